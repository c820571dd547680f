"""Clients that leave before their answer begins: the work for them ends with them."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Callable, Coroutine
from contextlib import asynccontextmanager
from contextvars import ContextVar
from typing import Any, TypeVar

from drumlin.api.http.asgi import Receive

T = TypeVar("T")

client: ContextVar[Callable[[], Receive | None]] = ContextVar("client", default=lambda: None)
"""Returns what receives from the client of this request: after the body, that it has left. None when there is no request any more."""


async def unless_disconnected(receive: Receive, work: Coroutine[Any, Any, T]) -> T | None:
    """Return what ``work`` returns; cancel it and return None when the client leaves first.

    The body of the request was read: all that ``receive`` can report is that the client has left.
    """
    working = asyncio.ensure_future(work)
    leaving = asyncio.ensure_future(_disconnected(receive))
    try:
        await asyncio.wait((working, leaving), return_when=asyncio.FIRST_COMPLETED)
        return working.result() if working.done() else leaving.result()
    finally:
        for task in (working, leaving):
            task.cancel()
        await asyncio.wait((working, leaving))


@asynccontextmanager
async def on_disconnect(receive: Receive, end: Callable[[], None]) -> AsyncIterator[None]:
    """Call ``end`` when the client leaves within this block, and go on: for work whose outcome must be known.

    The body of the request was read, as for ``unless_disconnected``.
    """

    async def watch() -> None:
        await _disconnected(receive)
        end()

    leaving = asyncio.ensure_future(watch())
    try:
        yield
    finally:
        leaving.cancel()
        await asyncio.wait((leaving,))


async def _disconnected(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass
