"""``/sparql`` without a framework: queries are read, looked up and answered here, in front of the application.

A result of up to 64 KB is kept until the next write, under the query's text, its dataset, its format and what the caller may see;
asked for again it costs a look-up. The same query asked by several clients at once runs once. What cannot be kept (NOW, RAND,
…) always runs; what is larger is streamed as the reader makes it. A stream that fails is cut: the body has no end.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager
from functools import lru_cache
from typing import Any

import structlog
from fastapi import Request

from api import compression
from api.assembly import Parts
from api.bodies import body_of
from api.clients import Clients
from api.compression import Coding, Headers, Receive, Scope, Send
from api.departures import Departures
from api.metrics import Metrics
from api.observing import values_of
from api.problems import crash_response, error_response
from api.readings import Reading, Readings
from api.request_ids import request_id
from api.result_cache import MAX_ENTRY, Entry, ResultCache, head
from api.streams import Patience
from kg.errors import DrumlinError, Throttled
from kg.store.reader_answers import Asking
from kg.store.reader_lines import AsyncChunks

Application = Callable[[Scope, Receive, Send], Awaitable[None]]

_CACHE_BYTES = 64 * 1024 * 1024
_SLACK = 65_536  # bytes of a body beyond the query: the other fields of its form

log = structlog.get_logger(__name__)
_coding_of = lru_cache(64)(compression.wanted)

_Landing = asyncio.Future[Entry | DrumlinError | None]


class Hot:
    """Answers queries to ``/sparql`` from readers; passes everything else on (ASGI).

    ``around`` wraps what answers them: the application's own middlewares do not see them.
    """

    def __init__(
        self,
        app: Application,
        parts: Parts,
        asking: Asking,
        metrics: Metrics,
        patience: Patience,
        around: Callable[[Application], Application],
    ) -> None:
        self._app, self._store, self._asking, self._metrics = app, parts.store, asking, metrics
        self._patience = patience
        settings = parts.settings
        self._longest = settings.query_bytes + _SLACK
        self._answering = around(self._serve)
        self._readings = Readings(settings, asking)
        self._cache = ResultCache(_CACHE_BYTES)
        self._clients = Clients(concurrent=settings.query_concurrency, kills=settings.query_kills)
        self._departures = Departures()
        self._flights: dict[tuple[Any, ...], list[_Landing]] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on."""
        if scope["type"] == "http" and scope["path"] == "/sparql" and _is_query(scope):
            await self._answering(scope, receive, send)
        else:
            await self._app(scope, receive, send)

    async def _serve(self, scope: Scope, receive: Receive, send: Send) -> None:
        began = time.perf_counter()
        reply = _Reply(scope, receive, send)
        try:
            await self._answer(scope, receive, reply)
        except DrumlinError as error:
            await reply.error(error)
        except Exception as error:
            if reply.status:
                raise
            await reply.crash(error)
        finally:
            self._metrics.observe(scope["method"], "/sparql", reply.status or 499, time.perf_counter() - began)

    async def _answer(self, scope: Scope, receive: Receive, reply: _Reply) -> None:
        body = b""
        if scope["method"] == "POST":
            body = await body_of(Request(scope, receive), self._longest)
        reading = self._readings.read(scope["method"], scope["query_string"], reply.asked, body)
        if reading.key is not None and (found := self._cache.get(self._store.generation, reading.key)):
            self._metrics.cached("hit")
            await reply.entry(found)
            return
        structlog.contextvars.bind_contextvars(request_id=reply.id)
        leaving = self._departures.watch(receive)
        try:
            await self._run(scope, reading, reply)
        except asyncio.CancelledError:
            if not leaving.left:
                raise
        finally:
            leaving.end()

    async def _run(self, scope: Scope, reading: Reading, reply: _Reply) -> None:
        """Run a query, or share the result of one that is running already and came at the same generation."""
        flight = (self._store.generation, reading.key, reading.question.timeout)
        if reading.key is None:
            await self._ask(scope, reading, reply, None)
        elif (waiting := self._flights.get(flight)) is not None:
            landing = asyncio.get_running_loop().create_future()
            waiting.append(landing)
            made = await landing
            if isinstance(made, DrumlinError):
                raise made.again()
            if made is None:  # it is too large to share, or its client left
                await self._ask(scope, reading, reply, None)
                return
            self._metrics.cached("shared")
            await reply.entry(made)
        else:
            waiting = self._flights[flight] = []
            try:
                await self._ask(scope, reading, reply, waiting)
            except DrumlinError as error:
                _land(waiting, None if isinstance(error, Throttled) else error)
                raise
            finally:
                del self._flights[flight]
                _land(waiting, None)

    async def _ask(self, scope: Scope, reading: Reading, reply: _Reply, waiting: list[_Landing] | None) -> None:
        self._metrics.cached("miss" if reading.key is not None else "uncacheable")
        client = self._clients.admit(scope["client"][0] if scope.get("client") else "")
        client.running += 1
        try:
            chunks = await self._asking.ask(reading.question)
            try:
                await self._send(chunks, reading, reply, waiting)
            finally:
                chunks.close()
        except DrumlinError as error:
            client.fail(error)
            raise
        finally:
            client.running -= 1

    async def _send(self, chunks: AsyncChunks, reading: Reading, reply: _Reply, waiting: list[_Landing] | None) -> None:
        whole = chunks.whole()
        if whole is None or len(whole) > MAX_ENTRY:
            _land(waiting, None)
            headers = head(reading.question.media_type, chunks.generation, keep=True)
            with reply.watched(self._patience):
                await reply.stream(chunks, whole, headers)
            return
        made = Entry(whole, reading.question.media_type, chunks.generation, keep=reading.key is not None)
        if reading.key is not None:
            self._cache.put(chunks.generation, reading.key, made)
        _land(waiting, made)
        await reply.entry(made)


def _land(waiting: list[_Landing] | None, made: Entry | DrumlinError | None) -> None:
    """Tell those who wait for the same result; once."""
    while waiting:
        landing = waiting.pop()
        if not landing.done():
            landing.set_result(made)


def _is_query(scope: Scope) -> bool:
    return scope["method"] == "POST" or (scope["method"] in ("GET", "HEAD") and b"query=" in scope["query_string"])


class _Reply:
    """The answer to one request. ``status`` is 0 until something was sent; ``asked`` are the request's headers."""

    def __init__(self, scope: Scope, receive: Receive, send: Send) -> None:
        self._scope, self._receive, self._send = scope, receive, send
        self.asked = values_of(scope["headers"])
        self.id = scope["request_id"] = request_id(self.asked.get(b"x-request-id"))
        self.status = 0
        self._id = (b"x-request-id", self.id.encode())

    async def entry(self, made: Entry) -> None:
        """Send a whole result, or only say that the client has it already (304)."""
        known = self.asked.get(b"if-none-match")
        if known is not None and (headers := made.unchanged(known)) is not None:
            await self._start(304, headers)
            await self._body(b"")
            return
        accepted = self.asked.get(b"accept-encoding")
        form = made.form(None if accepted is None else _coding_of(accepted))
        await self._start(200, form.headers)
        await self._body(form.body)

    @contextmanager
    def watched(self, patience: Patience) -> Iterator[None]:
        """Have it looked after while it is sent."""
        with patience.watching(self._scope, self._send) as self._send:
            yield

    async def stream(self, chunks: AsyncChunks, whole: bytes | None, headers: Headers) -> None:
        """Send a result as it is made; one that fails on the way is cut, since a 200 has been said."""
        coding: Coding | None = _coding_of(self.asked.get(b"accept-encoding"))
        packer = None if coding is None else compression.packer(coding)
        await self._start(200, headers if coding is None else compression.coded_headers(headers, coding, None))
        if self._scope["method"] == "HEAD":
            await self._body(b"")
            return
        try:
            if whole is not None:
                await self._body(whole if packer is None else packer.compress(whole), more=True)
            async for part in chunks:
                await self._body(part if packer is None else packer.compress(part) + packer.so_far(), more=True)
        except DrumlinError as error:
            log.warning("result_cut", error=str(error))
            return  # without an end, so that the server cuts the connection
        await self._body(b"" if packer is None else packer.flush())

    async def error(self, error: DrumlinError) -> None:
        """Send a problem document."""
        structlog.contextvars.bind_contextvars(request_id=self.id)
        response = error_response(Request(self._scope), error)
        await self._start(response.status_code, response.raw_headers)
        await self._body(bytes(response.body))

    async def crash(self, error: Exception) -> None:
        """Log an unexpected error and say no more than that there was one."""
        structlog.contextvars.bind_contextvars(request_id=self.id)
        response = crash_response(Request(self._scope), error)
        await self._start(response.status_code, response.raw_headers)
        await self._body(bytes(response.body))

    async def _start(self, status: int, headers: Headers) -> None:
        self.status = status
        await self._send({"type": "http.response.start", "status": status, "headers": [*headers, self._id]})

    async def _body(self, body: bytes, *, more: bool = False) -> None:
        if self._scope["method"] == "HEAD":
            body = b""
        await self._send({"type": "http.response.body", "body": body, "more_body": more})
