"""One write of a request without threads of its own: a small document is read on the event loop, and the writer tells when it is done.

Handing a request to a thread, and that thread's wait for the writer's, cost more than reading and validating 33 statements; and sixteen
threads that want Python's lock hold up the writer.
"""

from __future__ import annotations

import asyncio
import threading
from collections import deque
from collections.abc import Callable
from contextlib import suppress
from typing import TypeVar

from starlette.concurrency import run_in_threadpool

from kg.store.embedded import EmbeddedStore
from kg.store.protocol import GraphWrite, Store, Written

INLINE_BYTES = 16 * 1024
"""Documents up to this size are read and written on the event loop: well under a millisecond for the usual syntaxes."""

Prepared = tuple[GraphWrite, Callable[[Written], Written]]
"""A write, and what tells its outcome from the store's."""

T = TypeVar("T")


async def beside(store: Store, graph: str, size: int, work: Callable[[], T]) -> T:
    """Run ``work``, on ``graph`` and a document of ``size`` bytes, where it holds up nobody."""
    return work() if at_once(store, graph, size) else await run_in_threadpool(work)


def at_once(store: Store, graph: str, size: int) -> bool:
    """Tell whether work on ``graph`` and a document of ``size`` bytes may be done on the event loop."""
    return size <= INLINE_BYTES and isinstance(store, EmbeddedStore) and not store.is_being_written(graph)


async def written(store: Store, graph: str, size: int, prepare: Callable[[], Prepared]) -> Written:
    """Write what ``prepare`` gives, and let others have the thread until it is durable."""
    if not isinstance(store, EmbeddedStore):
        return await run_in_threadpool(_apply, store, prepare)
    loop = asyncio.get_running_loop()
    done: asyncio.Future[None] = loop.create_future()

    postbox = _own.of(loop)

    def answered() -> None:
        postbox.put(done)

    def ask() -> Callable[[], Written]:
        write, finish = prepare()
        outcome = store.ask(write, answered)
        return lambda: finish(outcome()[0])

    outcome = await beside(store, graph, size, ask)
    await done
    return outcome()


def _apply(store: Store, prepare: Callable[[], Prepared]) -> Written:
    write, finish = prepare()
    return finish(store.apply([write])[0])


class _Postbox:
    """Wakes those who wait on one event loop: once for all writes of a batch, since each wake is a call of the system."""

    def __init__(self, loop: asyncio.AbstractEventLoop) -> None:
        self.loop = loop
        self._told: deque[asyncio.Future[None]] = deque()

    def put(self, done: asyncio.Future[None]) -> None:
        """Tell from another thread that a write is done."""
        self._told.append(done)
        if len(self._told) == 1:  # else it was woken and has not emptied it yet
            with suppress(RuntimeError):  # the server has ended, and nobody waits any more
                self.loop.call_soon_threadsafe(self._empty)

    def _empty(self) -> None:
        while self._told:
            done = self._told.popleft()
            if not done.done():  # else the client has gone
                done.set_result(None)


class _Own(threading.local):
    """The postbox of the event loop that runs in this thread."""

    def __init__(self) -> None:
        self._postbox: _Postbox | None = None

    def of(self, loop: asyncio.AbstractEventLoop) -> _Postbox:
        if self._postbox is None or self._postbox.loop is not loop:
            self._postbox = _Postbox(loop)
        return self._postbox


_own = _Own()
