"""Answers that come piece by piece, to a client that takes them.

One that takes nothing for ``STALLED`` seconds is let go: its connection is cut, and with that, as when a client leaves by itself, ends what
was held for it: a reader, a snapshot of the store, a place among the subscribers. One that takes little at a time goes on for as long
as it likes, since what counts is what the other side has acknowledged, not the pieces: buffers on the way hold megabytes of those.
"""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Iterator, Mapping
from contextlib import contextmanager
from contextvars import copy_context

import anyio
import structlog
from starlette.concurrency import run_in_threadpool
from starlette.responses import StreamingResponse

from api import listening
from api.compression import Message, Receive, Scope, Send
from api.metrics import Metrics
from kg.errors import DrumlinError

_LARGE = 256 << 10  # bytes of a piece, beyond which a whole answer is sent in several
_LOOKS = 4

Connections = Mapping[tuple[str, int], int]

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
        patience: Patience = scope["app"].state.patience
        try:
            with patience.watching(scope, send) as watched:
                await super().__call__(scope, receive, watched)
        except DrumlinError as error:
            log.warning("result_cut", error=str(error))  # without an end, so that the server cuts the connection
        finally:
            with anyio.CancelScope(shield=True):
                await self._close()

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


class Patience:
    """Looks after the streams of one event loop, all at once, a few times within ``STALLED`` seconds."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._watched: set[_Taking] = set()
        self._ticking = False

    @contextmanager
    def watching(self, scope: Scope, send: Send) -> Iterator[Send]:
        """Yield what sends to the client of a request (ASGI) for as long as that is looked after."""
        taking = _Taking(scope.get("client"), send)
        self._watched.add(taking)
        if not self._ticking:
            self._tick()
        try:
            yield taking.send
        finally:
            self._watched.discard(taking)

    async def pass_on(self, message: Message, scope: Scope, send: Send) -> None:
        """Send a message; a large whole body in pieces: the server would take it at once, and keep it as long as its client likes."""
        body = message.get("body", b"")
        if len(body) <= _LARGE or message.get("more_body") or scope["method"] == "HEAD":
            await send(message)
            return
        with self.watching(scope, send) as watched:
            for start in range(0, len(body), _LARGE):
                await watched(
                    {**message, "body": body[start : start + _LARGE], "more_body": start + _LARGE < len(body)}
                )

    def _tick(self) -> None:
        self._ticking = True
        asyncio.get_running_loop().call_later(listening.STALLED / _LOOKS, self._look)

    def _look(self) -> None:
        self._ticking = False
        if self._watched:
            self._tick()
        if waiting := [each for each in self._watched if each.waits]:
            now, connections = time.monotonic(), listening.connections()
            for each in waiting:
                if each.left_for(now, connections) >= listening.STALLED:
                    self._let_go(each, connections)

    def _let_go(self, taking: _Taking, connections: Connections) -> None:
        self._watched.discard(taking)
        self._metrics.let_go()
        taking.context.run(log.info, "client_let_go", seconds=listening.STALLED)
        if (descriptor := connections.get(taking.client)) is not None:
            listening.cut(descriptor)


class _Taking:
    """How one client takes what is sent to it."""

    def __init__(self, client: tuple[str, int | str] | None, send: Send) -> None:
        host, port = client or ("", 0)
        self.client, self._send = (host, int(port)), send  # granian writes the port as text
        self.context = copy_context()  # with the id of the request, for the log
        self._sent = 0
        self._seen: tuple[int, int] | None = None
        self._since = 0.0
        self.waits = False

    async def send(self, message: Message) -> None:
        """Send one message; waits until there is room for the next."""
        self._sent += 1
        self.waits = True
        await self._send(message)
        self.waits = False

    def left_for(self, now: float, connections: Connections) -> float:
        """Return for how many seconds nothing was taken, as far as was looked."""
        descriptor = connections.get(self.client)
        seen = self._sent, 0 if descriptor is None else listening.acknowledged(descriptor)
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since
