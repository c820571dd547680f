"""Queries that stand in line at one reader: each gets its own answer, and nobody pays for the one before."""

from __future__ import annotations

import asyncio
import os
import random
import signal
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress

import pytest

from drumlin.kg.errors import DrumlinError, QueryRejected, ReaderLost
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.store.query_workers import pipelined_client
from drumlin.kg.store.query_workers.client import QueryExecutor
from drumlin.kg.store.query_workers.handle import QueryWorker
from drumlin.kg.store.query_workers.request import QueryRequest
from drumlin.kg.store.query_workers.supervisor import Readers
from drumlin.kg.workers.frames import frame
from tests.waiting import until

CSV = "text/csv"
BASE = "https://kg.example/id/prod/-/node/"
RUNAWAY = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
PATIENCE = 30.0


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[EmbeddedStore]:
    """Four hundred graphs of one line, whose number is their value."""
    opened = EmbeddedStore(tmp_path_factory.mktemp("lines"))
    opened.apply([put(number, number) for number in range(400)])
    yield opened
    opened.close()


@pytest.fixture(scope="module", params=[1, 2], ids=["one reader", "two readers"])
def asking(store: EmbeddedStore, request: pytest.FixtureRequest) -> Iterator[QueryExecutor]:
    """Readers of that store."""
    readers = Readers(store, store.directory / f"readers-{request.param}", count=request.param)
    until(lambda: len(readers._pool.idle) == request.param)  # hundreds of queries do not wait for the first one
    yield QueryExecutor(readers, timeout=PATIENCE)
    readers.close()


def put(number: int, value: int) -> GraphWrite:
    """Write a graph of one line."""
    return GraphWrite.of(
        f"{BASE}n{number}", frozenset({f'<{BASE}n{number}> <https://kg.example/p> "{value}" .'}), "user"
    )


async def value_of(asking: QueryExecutor, number: int) -> str:
    """Ask for the value of one graph."""
    query = f"SELECT ?o {{ <{BASE}n{number}> <https://kg.example/p> ?o }}"
    chunks = await asking.ask(asking.question(query, media_type=CSV))
    whole = chunks.whole()
    assert whole is not None
    return whole.decode().splitlines()[1]


async def fail(asking: QueryExecutor) -> str:
    """Ask what does not parse."""
    await asking.ask(asking.question("SELECT * { ?s ?p }", media_type=CSV))
    return ""


async def run_away(asking: QueryExecutor, seconds: float) -> None:
    """Ask for what never ends."""
    await asking.ask(asking.question(RUNAWAY, media_type=CSV, timeout=seconds))


def test_everyone_in_line_gets_the_own_answer(asking: QueryExecutor) -> None:
    """Hundreds of queries at once, some of whose clients leave, are answered by the readers that there are."""
    chance = random.Random(7)

    async def ask(number: int) -> None:
        asked = asyncio.create_task(value_of(asking, number))
        if chance.random() < 0.2:
            await asyncio.sleep(chance.random() / 50)
            asked.cancel()
        with suppress(asyncio.CancelledError):
            assert await asked == str(number)

    async def run() -> None:
        await asyncio.gather(*(ask(number) for number in range(250)))  # as many as one client may have in line

    asyncio.run(run())


def test_a_line_sees_what_was_written_before_each_query(asking: QueryExecutor, store: EmbeddedStore) -> None:
    """Deltas travel between the queries that stand in one line: each sees the write acknowledged before it, or a later one."""

    async def run() -> None:
        for round_ in range(1, 4):
            tasks = []
            for number in range(6):
                await asyncio.to_thread(store.apply, [put(number, 1000 * round_ + number)])
                tasks.append(asyncio.create_task(value_of(asking, number)))
            assert await asyncio.gather(*tasks) == [str(1000 * round_ + number) for number in range(6)]

    asyncio.run(run())
    store.apply([put(number, number) for number in range(6)])


def test_nobody_waits_for_a_long_query_before(asking: QueryExecutor) -> None:
    """Those behind one that runs away are answered by another reader, or as soon as this one was replaced; it alone is stopped."""

    async def run() -> tuple[object, list[str]]:
        await value_of(asking, 0)  # a reader is there
        long = asyncio.create_task(run_away(asking, 0.5))
        await asyncio.sleep(0)
        values = await asyncio.gather(*(value_of(asking, number) for number in range(5)))
        return (await asyncio.gather(long, return_exceptions=True))[0], values

    stopped, values = asyncio.run(run())
    assert isinstance(stopped, QueryRejected)
    assert stopped.reason == "timeout"
    assert values == [str(number) for number in range(5)]


def begun(asking: QueryExecutor) -> int:
    """Return how many queries the readers have begun."""
    return sum(reader.begun for reader in readers_of(asking))


def readers_of(asking: QueryExecutor) -> list[QueryWorker]:
    """Return the readers that there are."""
    return list(asking.readers._pool.readers)


def test_who_ends_the_reader_is_alone_in_it(asking: QueryExecutor) -> None:
    """Readers that are killed fail the queries that run, one each; those behind are asked anew."""
    killed: list[int] = []

    async def run() -> list[object]:
        await value_of(asking, 0)  # a reader is there
        before = begun(asking)
        long = asyncio.create_task(run_away(asking, PATIENCE))
        await asyncio.to_thread(until, lambda: begun(asking) > before)
        behind = [asyncio.create_task(value_of(asking, number)) for number in range(5)]
        await asyncio.sleep(0)
        killed.extend(asking.readers.pids)
        for pid in killed:
            os.kill(pid, signal.SIGKILL)
        return await asyncio.gather(long, *behind, return_exceptions=True)

    lost, *values = asyncio.run(run())
    assert isinstance(lost, ReaderLost)
    failed = [each for each in values if isinstance(each, BaseException)]
    assert all(isinstance(each, ReaderLost) for each in failed)
    assert len(failed) < len(killed)
    assert [each for each in values if each not in failed] == [
        str(number) for number, each in enumerate(values) if each not in failed
    ]


@pytest.mark.parametrize("in_a_thread", [False, True])
def test_who_asks_a_reader_that_ended_while_idle_is_answered_by_another(
    asking: QueryExecutor, monkeypatch: pytest.MonkeyPatch, in_a_thread: bool
) -> None:
    """Its end is told while nobody asks, and it is lent before the watch has buried it."""
    monkeypatch.setattr(Readers, "_bury_idle", lambda *_: None)

    async def run() -> str:
        await asyncio.gather(*(value_of(asking, number) for number in range(4)))
        for pid in asking.readers.pids:
            os.kill(pid, signal.SIGKILL)
        await asyncio.sleep(0.1)
        if in_a_thread:
            question = asking.question(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}", media_type=CSV)
            return b"".join(asking.answer(question).chunks).decode().splitlines()[1]
        return await asyncio.wait_for(value_of(asking, 1), PATIENCE)

    assert asyncio.run(run()) == "1"


def kill(*pids: int) -> None:
    """Kill processes."""
    for pid in pids:
        os.kill(pid, signal.SIGKILL)


@pytest.mark.parametrize("many", [1, 40])
def test_queries_that_were_sent_to_readers_that_died_before_they_began_are_answered(
    asking: QueryExecutor, many: int
) -> None:
    """Readers that are killed with queries in their sockets have run none: others are asked, however many there are."""

    async def run() -> list[str]:
        await asyncio.gather(*(value_of(asking, number) for number in range(4)))
        pids = asking.readers.pids
        for pid in pids:
            os.kill(pid, signal.SIGSTOP)  # so that what is sent stays unread
        asked = [asyncio.create_task(value_of(asking, number)) for number in range(many)]
        await asyncio.sleep(0)
        kill(*pids)
        return await asyncio.wait_for(asyncio.gather(*asked), PATIENCE)

    assert asyncio.run(run()) == [str(number) for number in range(many)]


@pytest.mark.parametrize("many", [1, 8])
def test_threads_whose_readers_died_before_they_began_are_answered(asking: QueryExecutor, many: int) -> None:
    """The same for queries that are asked from threads."""

    def ask(number: int) -> str:
        question = asking.question(f"SELECT ?o {{ <{BASE}n{number}> ?p ?o }}", media_type=CSV)
        return b"".join(asking.answer(question).chunks).decode().splitlines()[1]

    assert ask(0) == "0"
    pids = asking.readers.pids
    for pid in pids:
        os.kill(pid, signal.SIGSTOP)
    with ThreadPoolExecutor(many) as pool:
        asked = [pool.submit(ask, number) for number in range(many)]
        until(lambda: any(reader.began is not None for reader in readers_of(asking)))
        kill(*pids)
        assert [each.result(PATIENCE) for each in asked] == [str(number) for number in range(many)]


@pytest.mark.parametrize("in_a_thread", [False, True])
def test_a_query_that_ends_its_reader_is_asked_once(asking: QueryExecutor, in_a_thread: bool) -> None:
    """A query that was begun when its reader ended costs one reader, and no other is asked."""
    question = asking.question("SELECT * " + "{" * 20_000 + "}" * 20_000, media_type=CSV)
    before = asking.readers.ended["crash"]
    ask = asking.answer if in_a_thread else lambda question: asyncio.run(_ask(asking, question))
    with pytest.raises(ReaderLost):
        ask(question)

    assert asyncio.run(value_of(asking, 1)) == "1"
    assert asking.readers.ended["crash"] == before + 1


async def _ask(asking: QueryExecutor, question: QueryRequest) -> None:
    await asking.ask(question)


def test_a_reader_that_dies_of_what_it_has_to_replay_has_not_begun_the_query(
    asking: QueryExecutor, monkeypatch: pytest.MonkeyPatch
) -> None:
    """When a reader ends between the deltas and the query that came with them, another one answers."""
    request, ended = QueryWorker.request, 0

    def poisoned(reader: QueryWorker, query: bytes) -> bytes:
        nonlocal ended
        text = request(reader, query)
        ended += 1
        return frame(b"U", b"no update at all") + text if ended == 1 and query[:1] == b"Q" else text

    monkeypatch.setattr(QueryWorker, "request", poisoned)

    assert asyncio.run(value_of(asking, 2)) == "2"
    assert ended > 1


def test_who_leaves_a_line_harms_nobody_in_it(asking: QueryExecutor) -> None:
    """When the client of the running query leaves, and one behind, the others are answered."""

    async def run() -> list[str]:
        long = asyncio.create_task(run_away(asking, PATIENCE))
        await asyncio.sleep(0)
        behind = [asyncio.create_task(value_of(asking, number)) for number in range(5)]
        await asyncio.sleep(0)
        behind.pop(2).cancel()
        long.cancel()
        with pytest.raises(asyncio.CancelledError):
            await long
        return await asyncio.gather(*behind)

    assert asyncio.run(run()) == ["0", "1", "3", "4"]


def test_a_mistake_in_line_is_told_to_who_made_it(asking: QueryExecutor) -> None:
    """Errors come back in their places between answers."""

    async def run() -> list[object]:
        asked = [fail(asking) if number % 2 else value_of(asking, number) for number in range(6)]
        return await asyncio.gather(*asked, return_exceptions=True)

    for number, found in enumerate(asyncio.run(run())):
        assert isinstance(found, QueryRejected) if number % 2 else found == str(number)


def test_a_large_result_is_streamed_and_delays_nobody(asking: QueryExecutor) -> None:
    """While a client takes its time over a large result, those that stood behind it are answered; then it gets all of it."""
    query = "SELECT ?a ?d { ?a ?b ?c . ?d ?e ?f } LIMIT 12000"

    async def run() -> tuple[list[str], int]:
        opening = asyncio.create_task(asking.ask(asking.question(query, media_type=CSV)))
        await asyncio.sleep(0)
        behind = [asyncio.create_task(value_of(asking, number)) for number in range(5)]
        large = await opening
        assert large.whole() is None
        if len(asking.readers.pids) == 2:
            await asyncio.gather(*behind)  # before anything of the large one is read
        rows = b"".join([part async for part in large]).count(b"\r\n")
        return await asyncio.gather(*behind), rows

    values, rows = asyncio.run(run())
    assert values == [str(number) for number in range(5)]
    assert rows == 12000 + 1


def test_lines_are_bounded(asking: QueryExecutor) -> None:
    """Of a burst no reader is sent more than ``DEPTH`` at a time; the rest waits and is answered, or told that it is too late."""

    async def run() -> list[object]:
        long = [asyncio.create_task(run_away(asking, 0.5)) for _ in asking.readers.pids]
        await asyncio.sleep(0)
        burst = [asyncio.create_task(value_of(asking, number)) for number in range(5 * pipelined_client.DEPTH)]
        found = await asyncio.gather(*burst, return_exceptions=True)
        await asyncio.gather(*long, return_exceptions=True)
        return found

    found = asyncio.run(run())
    assert [each for each in found if isinstance(each, DrumlinError)] == []
    assert found == [str(number) for number in range(5 * pipelined_client.DEPTH)]
