"""``GET /livez`` in front of everything else: no route, no thread, no store, so that it is answered as long as the event loop turns.

A service under load, or one whose store waits for its disk, is alive: who restarts it for a late answer makes it worse.
"""

from __future__ import annotations

import time
from collections.abc import Callable

import msgspec

from api.assembly import Parts
from api.compression import Receive, Scope, Send
from api.hot import Application
from api.metrics import Metrics
from api.request_ids import request_id
from api.routes import operations


class Alive:
    """Answers liveness; passes everything else on (ASGI). ``around`` wraps what answers: no middleware of the application sees it."""

    def __init__(
        self, app: Application, parts: Parts, metrics: Metrics, around: Callable[[Application], Application]
    ) -> None:
        self._app, self._metrics = app, metrics
        self._answering = around(self._answer)
        self._body = msgspec.json.encode(operations.livez(parts))

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on."""
        asked = scope["type"] == "http" and scope["path"] == "/livez" and scope["method"] in ("GET", "HEAD")
        await (self._answering if asked else self._app)(scope, receive, send)

    async def _answer(self, scope: Scope, _: Receive, send: Send) -> None:
        began = time.perf_counter()
        sent = next((value for name, value in scope["headers"] if name == b"x-request-id"), None)
        headers = [
            (b"content-type", b"application/json"),
            (b"content-length", b"%d" % len(self._body)),
            (b"x-request-id", request_id(sent).encode()),
        ]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        await send({"type": "http.response.body", "body": b"" if scope["method"] == "HEAD" else self._body})
        self._metrics.observe(scope["method"], "/livez", 200, time.perf_counter() - began)
