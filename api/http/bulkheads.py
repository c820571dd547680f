"""Bulkheads: bounded pools of threads, one for each sort of work, so that slow work of one sort leaves room for the others.

Blocking work runs in threads. In one pool, forty updates, or forty requests to a Prometheus that hangs, keep every other request
waiting. Here each sort of work has threads of its own with a bounded queue before them: a request that finds the queue full is refused
at once (503 with Retry-After), and one whose client leaves is taken out of the queue, or its work is cancelled (``kg.cancellation``).
Reads of entities, search and the change feed stay in the framework's pool, which the sorts below never use; probes have their own.
Pattern: https://learn.microsoft.com/azure/architecture/patterns/bulkhead
"""

from __future__ import annotations

import asyncio
import functools
import inspect
from collections.abc import Awaitable, Callable, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from contextvars import ContextVar, copy_context
from typing import Any, TypeVar

from fastapi import Request
from fastapi.routing import APIRoute
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from drumlin.api.http.disconnects import client, unless_disconnected
from drumlin.kg import cancellation
from drumlin.kg.errors import Busy, Cancelled

T = TypeVar("T")
PATIENCE = 10.0
"""Seconds that a request waits for a thread at most."""


class Bulkhead:
    """A pool of ``threads`` for one sort of work; at most ``waiting`` requests wait for one of them.

    ``running`` and ``queued`` say how many there are now; ``refused`` counts the requests that found no room. For one event loop.
    """

    def __init__(
        self,
        name: str,
        threads: int,
        waiting: int,
        *,
        patience: float = PATIENCE,
        reads: bool = False,
        whole: bool = False,
    ) -> None:
        """``reads``: its work changes nothing, by whatever method it is asked for, and ends with its client.

        ``whole``: the body of a request was read before it waits for a thread, so that it is seen when its client leaves.
        """
        self.name, self.threads, self.waiting = name, threads, waiting
        self.running = self.queued = self.refused = 0
        self.reads, self._patience, self._whole = reads, patience, whole
        self._free = asyncio.Semaphore(threads)
        self._pool = ThreadPoolExecutor(threads, name)

    async def run(
        self, work: Callable[[], T], *, begun: bool = False, of_this: cancellation.Cancellation | None = None
    ) -> T:
        """Run ``work`` in a thread of this pool, under ``of_this``, and return its result.

        Raises ``Busy`` when too many requests wait, or no thread is free in time, ``Cancelled`` when the client leaves before. When
        this task is cancelled, so is ``work``; its thread is free again once it has returned. The rest of what has ``begun`` to be
        answered waits as long as it takes.
        """
        of_this = of_this or cancellation.Cancellation()
        if self._free.locked() and self.queued >= self.waiting and not begun:
            raise self._busy()
        self.queued += 1
        try:
            async with asyncio.timeout(None if begun else self._patience):
                await self._enter()
        except TimeoutError:
            raise self._busy() from None
        finally:
            self.queued -= 1
        self.running += 1
        running = asyncio.get_running_loop().run_in_executor(
            self._pool, copy_context().run, self._within, work, of_this
        )
        running.add_done_callback(self._done)
        try:
            return await asyncio.shield(running)
        except asyncio.CancelledError:
            of_this.cancel()
            raise

    async def _enter(self) -> None:
        receive = client.get()() if self._whole and self._free.locked() else None
        if receive is None:
            await self._free.acquire()
        elif not await unless_disconnected(receive, self._free.acquire()):
            raise Cancelled("the client left before its work began")

    def close(self) -> None:
        """Begin nothing any more; work that runs is not waited for."""
        self._pool.shutdown(wait=False, cancel_futures=True)

    def _within(self, work: Callable[[], T], of_this: cancellation.Cancellation) -> T:
        _current.set(self)  # in a context of its own
        with cancellation.under(of_this):
            cancellation.check()
            return work()

    def _done(self, running: asyncio.Future[Any]) -> None:
        self.running -= 1
        self._free.release()
        if not running.cancelled():
            running.exception()  # it was raised, or nobody waits for it any more

    def _busy(self) -> Busy:
        self.refused += 1
        return Busy(
            f"all {self.threads} threads for {self.name} are in use, and {self.queued} requests wait for one",
            hint="ask again in a few seconds, for less at a time",
            detail={"pool": self.name, "threads": self.threads, "waiting": self.queued},
        )


class Bulkheads:
    """The pools of one service, by the sort of work."""

    def __init__(self) -> None:
        self.probes = Bulkhead("probes", 2, 16)
        self.writes = Bulkhead("writes", 16, 256, whole=True)
        self.bulk = Bulkhead("bulk", 8, 512, patience=600)  # a request that has begun is finished
        self.updates = Bulkhead("updates", 4, 16)
        self.queries = Bulkhead("queries", 16, 64)
        self.telemetry = Bulkhead("telemetry", 48, 64, reads=True)
        self.administration = Bulkhead("administration", 4, 8)

    def __iter__(self) -> Iterator[Bulkhead]:
        """Yield all of them."""
        return iter(vars(self).values())

    def close(self) -> None:
        """Close all of them."""
        for each in self:
            each.close()


_current: ContextVar[Bulkhead | None] = ContextVar("bulkhead", default=None)


def current() -> Bulkhead | None:
    """Return the bulkhead in whose thread this runs: the rest of an answer that is streamed is made in it too."""
    return _current.get()


async def finish_in(bulkhead: Bulkhead | None, work: Callable[[], T]) -> T:
    """Run the rest of what ``bulkhead`` has begun, or the framework's pool when it is None."""
    return await run_in_threadpool(work) if bulkhead is None else await bulkhead.run(work, begun=True)


def confine(route: APIRoute, choose: Callable[[Bulkheads], Bulkhead]) -> None:
    """Let a blocking endpoint run in the bulkhead of its service that ``choose`` returns; one that is a coroutine chooses for itself.

    To be called before the router of the route is included in an application; several applications share a route.
    """
    if not inspect.iscoroutinefunction(route.endpoint):
        route.endpoint = _confined(route.endpoint, choose)


def _confined(endpoint: Callable[..., Any], choose: Callable[[Bulkheads], Bulkhead]) -> Callable[..., Awaitable[Any]]:
    """Make a coroutine of a blocking endpoint; it needs the request, to see when the client leaves."""
    signature = inspect.signature(endpoint, eval_str=True)
    own = next((each.name for each in signature.parameters.values() if each.annotation is Request), None)

    @functools.wraps(endpoint)
    async def confined(**given: Any) -> Any:
        request: Request = given[own] if own else given.pop(_REQUEST)
        bulkhead = choose(request.app.state.parts.bulkheads)
        work = bulkhead.run(functools.partial(endpoint, **given))
        exchange = request.scope.get("exchange")
        if exchange is None or not (bulkhead.reads or request.method in ("GET", "HEAD")):
            return await work  # what changes something is finished
        answer = await unless_disconnected(exchange.receive, work)
        return Response(status_code=499) if answer is None else answer  # which nobody reads: the client has left

    del confined.__wrapped__  # whose signature lacks the request
    parameters: Mapping[str, inspect.Parameter] = signature.parameters
    if own is None:
        parameters = {
            _REQUEST: inspect.Parameter(_REQUEST, inspect.Parameter.KEYWORD_ONLY, annotation=Request),
            **parameters,
        }
    keywords = [each.replace(kind=inspect.Parameter.KEYWORD_ONLY) for each in parameters.values()]
    confined.__signature__ = signature.replace(parameters=keywords)  # type: ignore[attr-defined]
    return confined


_REQUEST = "request_of_the_client"
