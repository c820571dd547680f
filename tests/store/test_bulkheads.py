"""Pools of threads: slow work of one sort is bounded, refused beyond its queue, and cancelled with its client."""

from __future__ import annotations

import asyncio
import threading
from concurrent.futures import Future

import pytest

from drumlin.api.http.asgi import Message
from drumlin.api.http.bulkheads import Bulkhead, current
from drumlin.api.http.disconnects import client
from drumlin.kg import cancellation
from drumlin.kg.cancellation import Cancellation
from drumlin.kg.errors import Busy, Cancelled


def test_work_runs_in_the_threads_of_its_pool() -> None:
    """Work returns its result, raises its errors, and knows the pool that it runs in."""

    async def scenario() -> None:
        pool = Bulkhead("telemetry", 1, 1)
        assert await pool.run(current) is pool
        with pytest.raises(ZeroDivisionError):
            await pool.run(lambda: 1 / 0)
        assert (pool.running, pool.queued, current()) == (0, 0, None)
        pool.close()

    asyncio.run(scenario())


def test_a_full_pool_refuses_and_recovers() -> None:
    """With all threads in use and the queue full, the next request is refused at once; what has begun is still finished."""

    async def scenario() -> None:
        pool, gate = Bulkhead("updates", 2, 1), threading.Event()
        held = [asyncio.create_task(pool.run(gate.wait)) for _ in range(3)]
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        with pytest.raises(Busy) as refused:
            await pool.run(int)
        rest = asyncio.create_task(pool.run(lambda: "rest", begun=True))
        await asyncio.sleep(0)
        gate.set()
        assert await asyncio.gather(*held) == [True, True, True]
        assert (await rest, await pool.run(int)) == ("rest", 0)
        assert refused.value.detail == {"pool": "updates", "threads": 2, "waiting": 1}
        assert (pool.running, pool.queued, pool.refused) == (0, 0, 1)
        pool.close()

    asyncio.run(scenario())


def test_who_waits_too_long_is_refused() -> None:
    """A request that gets no thread within the patience is refused, and leaves the queue."""

    async def scenario() -> None:
        pool, gate = Bulkhead("queries", 1, 5, patience=0.01), threading.Event()
        held = asyncio.create_task(pool.run(gate.wait))
        await asyncio.sleep(0)
        with pytest.raises(Busy):
            await pool.run(int)
        gate.set()
        assert (await held, pool.queued) == (True, 0)
        pool.close()

    asyncio.run(scenario())


def test_a_client_that_leaves_takes_its_work_along() -> None:
    """Work of a cancelled request sees that at its next look, and its thread is free again; waiting work never begins."""

    async def scenario() -> None:
        pool, begun, ended = Bulkhead("telemetry", 1, 5), threading.Event(), threading.Event()

        def work() -> None:
            begun.set()
            try:
                while True:
                    cancellation.check()
            except Cancelled:
                ended.set()
                raise

        running = asyncio.create_task(pool.run(work))
        await asyncio.to_thread(begun.wait)
        waiting = asyncio.create_task(pool.run(lambda: pytest.fail("begun")))
        await asyncio.sleep(0)
        waiting.cancel()
        running.cancel()
        await asyncio.gather(running, waiting, return_exceptions=True)
        assert await asyncio.to_thread(ended.wait, 30)
        assert (await pool.run(lambda: "free"), pool.running, pool.queued) == ("free", 0, 0)
        pool.close()

    asyncio.run(scenario())


def test_a_write_whose_client_leaves_the_queue_is_not_begun() -> None:
    """Its place is free at once, not after the patience; one whose client stays gets its turn."""

    async def scenario() -> None:
        pool, gate, gone = Bulkhead("writes", 1, 1, whole=True), threading.Event(), asyncio.Event()

        async def receive() -> Message:
            await gone.wait()
            return {"type": "http.disconnect"}

        held = asyncio.create_task(pool.run(gate.wait))
        await asyncio.sleep(0)
        client.set(lambda: receive)
        leaving = asyncio.create_task(pool.run(lambda: pytest.fail("begun")))
        await asyncio.sleep(0)
        assert pool.queued == 1
        gone.set()
        with pytest.raises(Cancelled):
            await leaving
        assert pool.queued == 0
        gone.clear()
        staying = asyncio.create_task(pool.run(lambda: "done"))
        await asyncio.sleep(0)
        gate.set()
        assert (await staying, await held, pool.refused) == ("done", True, 0)
        pool.close()

    asyncio.run(scenario())


def test_work_without_a_client_is_never_cancelled() -> None:
    """Outside a request the look at the cancellation does nothing."""
    cancellation.check()
    with cancellation.ended_by(lambda: pytest.fail("ended")):
        cancellation.check()


def test_the_step_that_runs_is_ended() -> None:
    """What ends a step is called when its work is cancelled meanwhile, never after the step, and at once when that was before."""
    work, ends = Cancellation(), []
    with cancellation.under(work):
        with cancellation.ended_by(lambda: ends.append("past")):
            pass
        with cancellation.ended_by(lambda: ends.append("present")):
            work.cancel()
        assert ends == ["present"]
        with pytest.raises(Cancelled), cancellation.ended_by(lambda: ends.append("later")):
            pytest.fail("begun")
        with pytest.raises(Cancelled):
            cancellation.wait_for(Future())
    assert ends == ["present"]
    assert not cancellation.wait_for(Future(), 0.0)
