"""``/sparql`` without a framework: queries are read, looked up and answered here, before FastAPI routes anything.

A result of up to 64 KB is kept until the next write, under the query's text, its dataset, its format and what the caller may see;
asked for again it costs a look-up. The same query asked by several clients at once runs once. What cannot be kept (NOW, RAND,
…) always runs; what is larger is streamed as the reader makes it. A stream that fails is cut: the body has no end.
"""

from __future__ import annotations

import asyncio
import re
from collections import OrderedDict
from collections.abc import Awaitable, Callable, MutableMapping
from copy import copy
from dataclasses import dataclass
from typing import Any

import structlog
from fastapi import Request

from api.assembly import Parts
from api.bodies import body_of
from api.clients import Clients
from api.metrics import Metrics
from api.problems import error_response
from api.result_cache import MAX_ENTRY, Entry, ResultCache, content_type, entry
from api.routes.sparql import result_type
from kg.errors import DrumlinError, Throttled
from kg.sparql import gate, protocol
from kg.store.protocol import Visible
from kg.store.reader_answers import Asking, AsyncChunks, Question

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]

_CACHE_BYTES = 64 * 1024 * 1024
_READINGS = 4096  # requests whose reading is remembered
_LONGEST_READING = 8192  # bytes of a request that is worth remembering
_WATCH_AFTER = 0.1  # seconds until it is noticed that a client has left
_CHANGING = re.compile(r"\b(?:NOW|RAND|UUID|STRUUID|BNODE|SERVICE)\b", re.IGNORECASE)

log = structlog.get_logger(__name__)


class _Route:
    """How the request is named in metrics, as a route of FastAPI would."""

    path = "/sparql"


_Landing = asyncio.Future[Entry | DrumlinError | None]


@dataclass(frozen=True, slots=True)
class _Reading:
    """What a request asks. ``key`` is None when the result may not be kept."""

    question: Question
    key: tuple[Any, ...] | None


class Hot:
    """Answers queries to ``/sparql`` from readers; passes everything else on (ASGI)."""

    def __init__(
        self, app: Callable[[Scope, Receive, Send], Awaitable[None]], parts: Parts, asking: Asking, metrics: Metrics
    ) -> None:
        self._app, self._parts, self._asking, self._metrics = app, parts, asking, metrics
        settings = parts.settings
        self._cache = ResultCache(_CACHE_BYTES)
        self._clients = Clients(concurrent=settings.query_concurrency, kills=settings.query_kills)
        self._readings: OrderedDict[tuple[Any, ...], _Reading] = OrderedDict()
        self._flights: dict[tuple[Any, ...], _Landing] = {}

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer or pass on."""
        if scope["type"] != "http" or scope["path"] != "/sparql" or not _is_query(scope):
            await self._app(scope, receive, send)
            return
        scope["route"] = _Route
        try:
            await self._answer(scope, receive, send)
        except DrumlinError as error:
            await error_response(Request(scope), error)(scope, receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        body = b""
        if scope["method"] == "POST":
            body = await body_of(Request(scope, receive), self._parts.settings.query_bytes + 65_536)
        reading = self._read(scope, body)
        if reading.key is not None and (found := self._cache.get(self._parts.store.generation, reading.key)):
            self._metrics.cached("hit")
            await _send_entry(scope, send, found)
            return
        watch = _Watch(receive)
        try:
            await self._run(scope, reading, send)
        except asyncio.CancelledError:
            if not watch.left:
                raise
        finally:
            watch.end()

    def _read(self, scope: Scope, body: bytes) -> _Reading:
        """Read a request: parameters, gate, format. One that came before is not read again."""
        headers = dict(scope["headers"])
        accept, kind = headers.get(b"accept"), headers.get(b"content-type")
        raw = (scope["method"] == "POST", scope["query_string"], accept, kind, body)
        if (found := self._readings.get(raw)) is not None:
            self._readings.move_to_end(raw)
            return found
        settings = self._parts.settings
        method = "POST" if scope["method"] == "POST" else "GET"
        sent = protocol.read_query(method, scope["query_string"], kind and kind.decode("latin-1"), body)
        gated = gate.check(sent.query, max_bytes=settings.query_bytes)
        media_type = result_type(accept and accept.decode("latin-1"), sent.format, protocol.offered(gated.form))
        visible: Visible | None = None
        question = self._asking.question(
            gated.text, media_type=media_type, dataset=sent.dataset, base=settings.base, timeout=sent.seconds
        )
        keep = not _CHANGING.search(gated.text)
        reading = _Reading(question, (visible, gated.text, sent.dataset, media_type) if keep else None)
        if len(body) + len(scope["query_string"]) <= _LONGEST_READING:
            self._readings[raw] = reading
            if len(self._readings) > _READINGS:
                self._readings.popitem(last=False)
        return reading

    async def _run(self, scope: Scope, reading: _Reading, send: Send) -> None:
        """Run a query, or share the result of one that is running already and came at the same generation."""
        flight = (self._parts.store.generation, reading.key, reading.question.timeout)
        if reading.key is None:
            await self._ask(scope, reading, send, None)
        elif (landing := self._flights.get(flight)) is not None:
            made = await asyncio.shield(landing)
            if isinstance(made, DrumlinError):  # each raises its own, since a raised one keeps its traceback
                raise copy(made)
            if made is None:  # it is too large to share, or its client left
                await self._ask(scope, reading, send, None)
                return
            self._metrics.cached("shared")
            await _send_entry(scope, send, made)
        else:
            landing = self._flights[flight] = asyncio.get_running_loop().create_future()
            landing.add_done_callback(lambda _: self._flights.pop(flight))
            try:
                await self._ask(scope, reading, send, landing)
            except DrumlinError as error:
                landing.set_result(None if isinstance(error, Throttled) else copy(error))
                raise
            finally:
                if not landing.done():
                    landing.set_result(None)

    async def _ask(self, scope: Scope, reading: _Reading, send: Send, landing: _Landing | None) -> None:
        self._metrics.cached("miss" if reading.key is not None else "uncacheable")
        with self._clients.query(scope["client"][0] if scope.get("client") else ""):
            chunks = await self._asking.ask(reading.question)
            try:
                whole = chunks.whole()
                if whole is None or len(whole) > MAX_ENTRY:
                    if landing is not None:
                        landing.set_result(None)
                    await _stream(scope, send, chunks, whole, reading.question.media_type)
                    return
                made = entry(whole, reading.question.media_type, chunks.generation, keep=reading.key is not None)
                if reading.key is not None:
                    self._cache.put(chunks.generation, reading.key, made)
                if landing is not None:
                    landing.set_result(made)
                await _send_entry(scope, send, made)
            finally:
                chunks.close()


async def _stream(scope: Scope, send: Send, chunks: AsyncChunks, whole: bytes | None, media_type: str) -> None:
    """Send a result as it is made; one that fails on the way is cut, since a 200 has been said."""
    headers = [
        (b"content-type", content_type(media_type)),
        (b"x-drumlin-generation", str(chunks.generation).encode()),
        (b"cache-control", b"no-cache"),
        (b"vary", b"Accept"),
    ]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    if scope["method"] != "HEAD":
        if whole is not None:
            await send({"type": "http.response.body", "body": whole, "more_body": True})
        try:
            async for part in chunks:
                await send({"type": "http.response.body", "body": part, "more_body": True})
        except DrumlinError as error:
            log.warning("result_cut", error=str(error))
            return  # without an end, so that the server cuts the connection
    await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _send_entry(scope: Scope, send: Send, made: Entry) -> None:
    """Send a whole result, or only say that the client has it already (304)."""
    body = made.body
    if any(name == b"if-none-match" and _matches(value, made.etag) for name, value in scope["headers"]):
        headers = [each for each in made.headers if each[0] != b"content-type"]
        await send({"type": "http.response.start", "status": 304, "headers": headers})
        await send({"type": "http.response.body", "body": b"", "more_body": False})
        return
    headers = [*made.headers, (b"content-length", b"%d" % len(body))]
    await send({"type": "http.response.start", "status": 200, "headers": headers})
    body = b"" if scope["method"] == "HEAD" else body
    await send({"type": "http.response.body", "body": body, "more_body": False})


def _matches(known: bytes, etag: bytes) -> bool:
    return known.strip() == b"*" or etag in (each.strip().removeprefix(b"W/") for each in known.split(b","))


def _is_query(scope: Scope) -> bool:
    return scope["method"] == "POST" or (scope["method"] in ("GET", "HEAD") and b"query=" in scope["query_string"])


class _Watch:
    """Cancels the task that made it when the client leaves; looks for that only after a while, since most are answered sooner."""

    def __init__(self, receive: Receive) -> None:
        self.left = False
        self._receive = receive
        self._asking = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None
        self._timer = asyncio.get_running_loop().call_later(_WATCH_AFTER, self._begin)

    def _begin(self) -> None:
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        if self._asking:
            self._asking.cancel()

    def end(self) -> None:
        """Look no longer."""
        self._timer.cancel()
        if self._watching:
            self._watching.cancel()
