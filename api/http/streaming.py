"""Answers that come piece by piece: begun, ended and closed in one way."""

from __future__ import annotations

import threading
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Iterator, Mapping

import anyio
import structlog
from starlette.responses import StreamingResponse

from drumlin.api.http.asgi import Receive, Scope, Send
from drumlin.api.http.bulkheads import Bulkhead, current, finish_in
from drumlin.kg.errors import DrumlinError

log = structlog.get_logger()


class BodyStream(StreamingResponse):
    """Pieces as they come, from a thread or on the event loop; closed when the last was sent or the client is gone.

    The first piece of those from a thread is made now, and may block: what goes wrong until then is raised, so that it has a status.
    ``on_close`` is called when the pieces are closed.
    """

    def __init__(
        self,
        pieces: Iterator[bytes] | AsyncIterator[bytes],
        media_type: str,
        headers: Mapping[str, str] | None = None,
        on_close: Callable[[], object] | None = None,
    ) -> None:
        self._bulkhead = current()
        self._pieces = pieces if isinstance(pieces, AsyncIterator) else _Begun(pieces)
        self._on_close = on_close
        chunks = self._pieces if isinstance(self._pieces, AsyncIterator) else _in_threads(self._pieces, self._bulkhead)
        super().__init__(chunks, media_type=media_type, headers=headers)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Send them (ASGI); for HEAD only say that there are some, since a feed never ends."""
        try:
            if scope["method"] == "HEAD":
                head = {"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers}
                await send(head)
                await send({"type": "http.response.body", "body": b"", "more_body": True})
                await send({"type": "http.response.body", "body": b"", "more_body": False})
            else:
                await super().__call__(scope, receive, send)
        except DrumlinError as error:
            log.warning("result_cut", error=str(error))  # without an end, so that the server cuts the connection
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

    async def _close(self) -> None:
        if isinstance(self._pieces, _Begun):
            await finish_in(self._bulkhead, self._pieces.close)
        elif isinstance(self._pieces, AsyncGenerator):
            await self._pieces.aclose()
        if self._on_close is not None:
            self._on_close()


async def _in_threads(pieces: Iterator[bytes], bulkhead: Bulkhead | None) -> AsyncIterator[bytes]:
    while (piece := await finish_in(bulkhead, lambda: next(pieces, None))) is not None:
        yield piece


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
