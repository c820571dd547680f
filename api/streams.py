"""Answers that come piece by piece, to a client that takes them.

One that takes nothing for ``STALLED`` seconds is let go, with what is held for it: a snapshot of the store, a place among the subscribers.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator

import structlog
from starlette.responses import StreamingResponse
from starlette.types import Message, Send

STALLED = 30.0
"""Seconds that a client may leave what it was sent."""

log = structlog.get_logger()


class Stream(StreamingResponse):
    """Pieces as they come, to their end or to that of the client's patience."""

    async def stream_response(self, send: Send) -> None:
        """Send piece by piece, each within its time."""

        async def in_time(message: Message) -> None:
            async with asyncio.timeout(STALLED):
                await send(message)

        try:
            await super().stream_response(in_time)
        except TimeoutError:
            log.info("client_let_go", seconds=STALLED)
        finally:
            if isinstance(self.body_iterator, AsyncGenerator):
                await self.body_iterator.aclose()
