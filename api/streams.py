"""Answers that come piece by piece, to a client that takes them.

A client that takes nothing for ``STALLED`` seconds is let go by the system itself (``api.listening``): its connection ends, and with that,
as when a client leaves by itself, what was held for it: a reader, a snapshot of the store, a place among the subscribers. One that
reads slowly goes on for as long as it likes. Here is what follows: the answer's pieces are closed, and who left one of them for long
is told of and counted.
"""

from __future__ import annotations

import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping

import anyio
import structlog
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from api import listening
from api.compression import Message, Receive, Scope, Send
from api.metrics import Metrics
from kg.errors import DrumlinError

log = structlog.get_logger()


class Stream(StreamingResponse):
    """Pieces as they come, from a thread or on the event loop; closed when the last was sent or the client is gone.

    The first piece of those from a thread is made now, and may block: what goes wrong until then is raised, so that it has a status.
    """

    def __init__(
        self,
        pieces: Iterator[bytes] | AsyncIterator[bytes],
        media_type: str,
        headers: Mapping[str, str] | None = None,
    ) -> None:
        self._pieces = pieces if isinstance(pieces, AsyncIterator) else _Begun(pieces)
        super().__init__(self._pieces, media_type=media_type, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them (ASGI)."""
        taking = Taking(send)
        left = False

        async def heard() -> Message:
            nonlocal left
            message = await receive()
            left = left or message["type"] == "http.disconnect"
            return message

        try:
            await super().__call__(scope, heard, taking.send)
        except DrumlinError as error:
            log.warning("result_cut", error=str(error))  # without an end, so that the server cuts the connection
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()
            if left:
                taking.tell(scope["app"].state.metrics)

    async def _close(self) -> None:
        if isinstance(self._pieces, _Begun):
            await run_in_threadpool(self._pieces.close)
        elif isinstance(self._pieces, AsyncGenerator):
            await self._pieces.aclose()


class _Begun(Iterator[bytes]):
    """Pieces of which the first is there; one thread may close them while another still makes one."""

    def __init__(self, pieces: Iterator[bytes]) -> None:
        self._pieces = pieces
        self._lock = threading.Lock()
        self._first: bytes | None = next(pieces, b"")

    def __next__(self) -> bytes:
        first, self._first = self._first, None
        if first is not None:
            return first
        with self._lock:
            return next(self._pieces)

    def close(self) -> None:
        with self._lock:
            if close := getattr(self._pieces, "close", None):
                close()


class Taking:
    """How a client takes the messages that are sent to it by ``send``."""

    def __init__(self, send: Send) -> None:
        self._send = send
        self._longest = 0.0  # seconds that one message has waited

    async def send(self, message: Message) -> None:
        """Send one: returns as soon as there is room for the next."""
        began = time.monotonic()
        try:
            await self._send(message)
        finally:
            self._longest = max(self._longest, time.monotonic() - began)

    def tell(self, metrics: Metrics) -> None:
        """Tell of a client that is gone, if it had left a piece for long: the system does not say which ones it has cut."""
        if self._longest >= listening.STALLED / 2:
            log.info("client_stalled", seconds=round(self._longest, 1))
            metrics.stalled()
