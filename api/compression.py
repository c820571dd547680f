"""Content codings of answers: gzip and zstd, chosen by Accept-Encoding (RFC 9110 §12.5.3), with ETags of their own.

A compressed body is another representation than the plain one, so its strong ETag ends in the coding (``"…-zstd"``, RFC 9110 §8.8.3.3).
Who sends one back, in If-None-Match or If-Match, means the plain one too: the coding says nothing about the graph.
Left as they are: answers that are small, binary (Arrow, Parquet) or a feed (``api.routes.events`` compresses that once for all who follow
it). Queries are answered before this (``api.hot``, which uses the
functions here).
"""

from __future__ import annotations

import re
import time
import zlib
from collections.abc import Awaitable, Callable, Mapping, MutableMapping, Sequence
from functools import lru_cache
from typing import Any, Literal, Protocol

import zstandard
from starlette.concurrency import run_in_threadpool

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
Coding = Literal["zstd", "gzip"]

VARIES = "Accept, Accept-Encoding"
"""The Vary header of what is negotiated in both ways."""
_VARIES = (b"vary", VARIES.encode())
CODINGS: tuple[Coding, ...] = ("zstd", "gzip")
"""The best first: zstd takes a third of gzip's time for the same size."""
MINIMUM = 1024
"""Bytes of the smallest body that is worth it: smaller ones fit into a packet anyway."""
_LEVELS: Mapping[Coding, int] = {"zstd": 3, "gzip": 4}
_INLINE = 128 << 10  # bytes that are compressed on the event loop (about a millisecond); more goes to a thread
_PAUSE = 0.05  # seconds after which what a stream has so far is sent, so that a slow one is not held back
_MAX_HEADER = 4096
_TEXT = re.compile(
    rb"(?:text/(?!event-stream)|application/(?:(?:[\w.-]+\+)?(?:json|xml)|n-triples|n-quads|trig|x-ndjson|ndjson|javascript|"
    rb"yaml|sparql-query|sparql-update|openmetrics-text)\b|image/svg\+xml)",
    re.IGNORECASE,
)
_CODED_TAG = re.compile(rb'-(?:zstd|gzip)"')


def wanted(accept_encoding: bytes | None, offered: Sequence[Coding] = CODINGS) -> Coding | None:
    """Return the coding of those ``offered`` (best first) that an Accept-Encoding header likes most, None for the plain body."""
    qualities: dict[str, float] = {}
    for part in (accept_encoding or b"")[:_MAX_HEADER].decode("latin-1").lower().split(","):
        name, _, parameter = part.partition(";")
        qualities[name.strip()] = _quality(parameter)
    anything = qualities.get("*", 0.0)
    best = max(offered, key=lambda each: qualities.get(each, anything))  # the first of equals
    quality = qualities.get(best, anything)
    return best if quality > 0 and quality >= qualities.get("identity", 0.0) else None


def _quality(parameter: str) -> float:
    name, _, value = parameter.partition("=")
    if name.strip() != "q":
        return 1.0
    try:
        return min(1.0, max(0.0, float(value)))
    except ValueError:
        return 0.0


class Packer(Protocol):
    """Compresses a stream, piece by piece."""

    def compress(self, data: bytes, /) -> bytes:
        """Take a piece; return what is ready, which may be nothing."""

    def flush(self) -> bytes:
        """Return all that is left; the stream ends."""

    def so_far(self) -> bytes:
        """Return what was taken and not yet returned; the stream goes on."""


class _Gzip:
    def __init__(self) -> None:
        self._packer = zlib.compressobj(_LEVELS["gzip"], wbits=31)
        self.compress, self.flush = self._packer.compress, self._packer.flush

    def so_far(self) -> bytes:
        return self._packer.flush(zlib.Z_SYNC_FLUSH)


class _Zstd:
    def __init__(self) -> None:
        self._packer = zstandard.ZstdCompressor(level=_LEVELS["zstd"]).compressobj()
        self.compress, self.flush = self._packer.compress, self._packer.flush

    def so_far(self) -> bytes:
        return self._packer.flush(zstandard.COMPRESSOBJ_FLUSH_BLOCK)


def packer(coding: Coding) -> Packer:
    """Return what compresses a stream."""
    return _Zstd() if coding == "zstd" else _Gzip()


def compress(body: bytes, coding: Coding) -> bytes:
    """Compress a whole body; the same body gives the same bytes."""
    if coding == "zstd":
        return zstandard.compress(body, level=_LEVELS["zstd"])
    stream = packer(coding)
    return stream.compress(body) + stream.flush()


def coded_tag(etag: bytes, coding: Coding) -> bytes:
    """Return the ETag of a body's compressed form; a weak one stays, since it does not promise equal bytes."""
    return etag if etag.startswith(b"W/") else etag[:-1] + b"-" + coding.encode() + b'"'


def plain_tags(header: bytes) -> bytes:
    """Return an If-Match or If-None-Match header with the ETags of the plain forms."""
    return _CODED_TAG.sub(b'"', header)


def coded_headers(headers: Headers, coding: Coding, size: int | None) -> Headers:
    """Return the headers of a body's compressed form, of ``size`` bytes (None for a stream)."""
    kept = [each for each in headers if each[0].lower() not in (b"content-length", b"etag")]
    tags = [(name, coded_tag(value, coding)) for name, value in headers if name.lower() == b"etag"]
    length = [] if size is None else [(b"content-length", b"%d" % size)]
    return [*kept, *tags, *length, (b"content-encoding", coding.encode())]


def varying(headers: Headers) -> Headers:
    """Return headers that say that the body depends on Accept-Encoding too."""
    found = [value for name, value in headers if name.lower() == b"vary"]
    said = _with_encoding(b", ".join(found))
    if said is None:
        return headers
    others = [each for each in headers if each[0].lower() != b"vary"] if found else headers
    return [*others, (b"vary", said)]


@lru_cache(64)
def _with_encoding(vary: bytes) -> bytes | None:
    """Return a Vary header with Accept-Encoding, None when it says so already."""
    if any(each.strip().lower() in (b"accept-encoding", b"*") for each in vary.split(b",")):
        return None
    return b", ".join([vary, b"Accept-Encoding"]) if vary else b"Accept-Encoding"


async def whole(status: int, headers: Headers, body: bytes, asked: Mapping[bytes, bytes]) -> tuple[Headers, bytes]:
    """Return the headers and the body of a whole answer in the coding that a request with the headers ``asked`` wants."""
    if status == 304:
        return _recognised(headers, asked.get(b"if-none-match", b"")), body
    if _VARIES in headers and b"accept-encoding" not in asked:
        return headers, body
    if not _may_be_coded(headers):
        return headers, body
    headers = varying(headers)
    accepted = asked.get(b"accept-encoding")
    coding = None if accepted is None else wanted(accepted)
    if coding is None or status in (204, 206) or len(body) < MINIMUM:
        return headers, body
    packed = compress(body, coding) if len(body) <= _INLINE else await _aside(compress, body, coding)
    return coded_headers(headers, coding, len(packed)), packed


def _recognised(headers: Headers, known: bytes) -> Headers:
    """Return the headers of a 304 with the ETag in the form that the client holds, so that it finds what it has kept."""
    return varying([(name, _listed(name, value, known)) for name, value in headers])


def _listed(name: bytes, value: bytes, known: bytes) -> bytes:
    if name.lower() != b"etag" or value.startswith(b"W/") or value in known:
        return value
    forms = (coded_tag(value, coding) for coding in CODINGS)
    return next((form for form in forms if form in known), value)


class Compression:
    """Compresses the answers of ``app`` (ASGI)."""

    def __init__(self, app: Callable[[Scope, Receive, Send], Awaitable[None]]) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on, with the ETags of plain bodies, and its answer back."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        sent = scope["headers"]
        answer = _Answer(send, wanted(_value(sent, b"accept-encoding")), _value(sent, b"if-none-match") or b"")
        names = (b"if-match", b"if-none-match")
        scope["headers"] = [(name, plain_tags(value) if name in names else value) for name, value in sent]
        await self._app(scope, receive, answer.send)


def _value(headers: Headers, name: bytes) -> bytes | None:
    found = [value for key, value in headers if key.lower() == name]
    return b",".join(found) if found else None


class _Answer:
    """One answer on its way: the head is held until the first piece tells whether the body is whole, and how large."""

    def __init__(self, send: Send, coding: Coding | None, known: bytes) -> None:
        self._send, self._coding, self._known = send, coding, known
        self._head: Message | None = None
        self._packer: Packer | None = None
        self._sent_at = 0.0

    async def send(self, message: Message) -> None:
        if message["type"] == "http.response.start":
            await self._start(message)
        elif message["type"] != "http.response.body":
            await self._send(message)
        elif self._head is not None:
            head, self._head = self._head, None
            await self._first(head, message)
        elif self._packer is not None:
            await self._more(message)
        else:
            await self._send(message)

    async def _start(self, message: Message) -> None:
        headers = message["headers"] = list(message.get("headers", ()))
        if message["status"] == 304:
            message["headers"] = _recognised(headers, self._known)
        elif _may_be_coded(headers):
            message["headers"] = varying(headers)
            if self._coding and message["status"] not in (204, 206):
                self._head = message
                return
        await self._send(message)

    async def _first(self, head: Message, message: Message) -> None:
        assert self._coding is not None
        body = message.get("body", b"")
        if message.get("more_body"):
            self._packer = packer(self._coding)
            await self._send({**head, "headers": coded_headers(head["headers"], self._coding, None)})
            await self._more(message)
        elif len(body) < MINIMUM:
            await self._send(head)
            await self._send(message)
        else:
            packed = (
                compress(body, self._coding) if len(body) <= _INLINE else await _aside(compress, body, self._coding)
            )
            await self._send({**head, "headers": coded_headers(head["headers"], self._coding, len(packed))})
            await self._send({**message, "body": packed})

    async def _more(self, message: Message) -> None:
        """Send what is ready; what comes after a pause, and the first piece, is not held back."""
        assert self._packer is not None
        body, more = message.get("body", b""), message.get("more_body", False)
        packed = self._packer.compress(body) if len(body) <= _INLINE else await _aside(self._packer.compress, body)
        if not more:
            packed += self._packer.flush()
        elif body and time.monotonic() - self._sent_at > _PAUSE:
            packed += self._packer.so_far()
        if packed or not more:
            self._sent_at = time.monotonic()
            await self._send({**message, "body": packed})


async def _aside(work: Callable[..., bytes], *given: Any) -> bytes:
    return await run_in_threadpool(work, *given)


def _may_be_coded(headers: Headers) -> bool:
    found = {name.lower(): value for name, value in headers}
    if found.get(b"content-encoding") or b"no-transform" in found.get(b"cache-control", b""):
        return False
    return _is_text(found.get(b"content-type", b""))


@lru_cache(256)
def _is_text(content_type: bytes) -> bool:
    return _TEXT.match(content_type) is not None
