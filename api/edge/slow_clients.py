"""Clients that take nothing of an answer are disconnected; those that read slowly are not.

A client that takes nothing for ``STALLED`` seconds is cut off, and with that ends, as when it leaves by itself, what was held for it: a
reader, a snapshot of the store, a place among the subscribers. What counts is what the other side has acknowledged, not the pieces
that were sent: buffers on the way hold megabytes of those.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping
from contextvars import copy_context

import structlog

from drumlin.api.http import tcp_info
from drumlin.api.http.asgi import Message, Scope, Send
from drumlin.api.metrics import Metrics

_LOOKS = 4

Connections = Mapping[tuple[str, int], int]

log = structlog.get_logger()


class SlowClientGuard:
    """Watches the streams of one event loop, all at once, a few times within ``STALLED`` seconds.

    One look serves all streams: each reads the list of this process's connections.
    """

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._watched: set[ClientProgress] = set()
        self._ticking = False

    def watch(self, scope: Scope, send: Send) -> ClientProgress:
        """Watch how the client of a request (ASGI) takes what is sent to it, until ``forget``."""
        progress = ClientProgress(scope.get("client"), send)
        self._watched.add(progress)
        if not self._ticking:
            self._tick()
        return progress

    def forget(self, progress: ClientProgress) -> None:
        """Watch it no longer."""
        self._watched.discard(progress)

    def _tick(self) -> None:
        self._ticking = True
        asyncio.get_running_loop().call_later(tcp_info.STALLED / _LOOKS, self._look)

    def _look(self) -> None:
        self._ticking = False
        if self._watched:
            self._tick()
        if waiting := [each for each in self._watched if each.waits]:
            now, connections = time.monotonic(), tcp_info.connections()
            for each in waiting:
                if each.stalled_for(now, connections) >= tcp_info.STALLED:
                    self._disconnect(each, connections)

    def _disconnect(self, progress: ClientProgress, connections: Connections) -> None:
        self._watched.discard(progress)
        self._metrics.let_go()
        progress.context.run(log.info, "client_let_go", seconds=tcp_info.STALLED)
        if (descriptor := connections.get(progress.client)) is not None:
            tcp_info.cut(descriptor)


class ClientProgress:
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

    def stalled_for(self, now: float, connections: Connections) -> float:
        """Return for how many seconds nothing was taken, as far as was looked."""
        descriptor = connections.get(self.client)
        seen = self._sent, 0 if descriptor is None else tcp_info.acknowledged(descriptor)
        if seen != self._seen:
            self._seen, self._since = seen, now
        return now - self._since
