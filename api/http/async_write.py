"""One write of a request without a thread of its own: a small valid document is read on the event loop, and the writer wakes the loop.

Handing a request to a thread, and that thread's wait for the writer's, cost more than reading and validating 33 statements; and sixteen
threads that want Python's lock hold up the writer. Only what is certain to be quick stays on the event loop: a document that the quick
readers take and that is proven valid. Every other one is read, and judged, in a thread.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from drumlin.api.http.bulkheads import Bulkhead
from drumlin.kg.graphs.ingest import accept_at_once
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import Syntax
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite, Store, Written

INLINE_BYTES = 16 * 1024
"""Documents up to this size may be read and written on the event loop, in well under a millisecond."""

Prepared = tuple[GraphWrite, Callable[[Written], Written]]
"""A write, and what makes its outcome of the store's."""

T = TypeVar("T")


async def run_inline_or_thread(store: Store, graph: str, size: int, work: Callable[[], T], threads: Bulkhead) -> T:
    """Run ``work``, on ``graph`` and a document of ``size`` bytes, where it delays nobody."""
    return work() if can_run_inline(store, graph, size) else await threads.run(work)


def can_run_inline(store: Store, graph: str, size: int) -> bool:
    """Return whether work on ``graph`` and a valid document of ``size`` bytes may be done on the event loop."""
    return size <= INLINE_BYTES and isinstance(store, EmbeddedStore) and not store.is_being_written(graph)


def quick_content(store: Store, iris: Iris, data: bytes, syntax: Syntax, graph: str) -> GraphContent | None:
    """Return the content of a document that is read and proven valid at once; None for every other, valid or not."""
    return accept_at_once(data, syntax, graph, iris) if can_run_inline(store, graph, len(data)) else None


async def write(store: Store, prepare: Callable[[], Prepared], threads: Bulkhead, *, inline: bool) -> Written:
    """Write what ``prepare`` returns, called ``inline`` or in one of ``threads``; others have the event loop until it is durable."""
    if not isinstance(store, EmbeddedStore):
        return await threads.run(lambda: _apply(store, prepare))
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()
    queue = _own.of(loop)

    def enqueue() -> Callable[[], Written]:
        graph_write, finish = prepare()
        outcome = store.ask(graph_write, lambda: queue.put(done))
        return lambda: finish(outcome()[0])

    outcome = enqueue() if inline else await threads.run(enqueue)
    await done
    return outcome()


def _apply(store: Store, prepare: Callable[[], Prepared]) -> Written:
    graph_write, finish = prepare()
    return finish(store.apply([graph_write])[0])


class _WakeupQueue:
    """Wakes the waiting tasks of one event loop, once for all writes of a batch, since each wake is a system call."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._done: deque[asyncio.Future[None]] = deque()

    def put(self, done: asyncio.Future[None]) -> None:
        """Report from another thread that a write is done."""
        self._done.append(done)
        if len(self._done) == 1:  # else it was woken and has not emptied it yet
            with suppress(RuntimeError):  # the server has ended, and nobody waits any more
                self.loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        while self._done:
            done = self._done.popleft()
            if not done.done():  # else the client has gone
                done.set_result(None)


class _Own(threading.local):
    """The queue of the event loop that runs in this thread."""

    def __init__(self) -> None:
        self._queue: _WakeupQueue | None = None

    def of(self, loop: asyncio.AbstractEventLoop) -> _WakeupQueue:
        if self._queue is None or self._queue.loop is not loop:
            self._queue = _WakeupQueue(loop)
        return self._queue


_own = _Own()
