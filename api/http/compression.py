"""Content codings of answers: gzip and zstd, chosen by Accept-Encoding (RFC 9110 §12.5.3).

Small answers and binary ones (Arrow, Parquet) are left as they are, and so are feeds: a stream that is compressed for each subscriber
costs more memory than its bytes cost the network.
"""

from __future__ import annotations

import re
import zlib
from functools import lru_cache
from typing import Protocol

import zstandard

from drumlin.api.http.asgi import Headers
from drumlin.api.http.etags import CODINGS, Coding, coded_tag

VARIES = "Accept, Accept-Encoding"
"""The Vary header of what is negotiated in both ways."""
VARIES_BY_CONTEXT = "Accept, Prefer, Accept-Encoding"
"""The same of JSON-LD, whose context comes in the form that is preferred."""
MINIMUM = 1024
"""Bytes of the smallest body that is worth it: smaller ones fit into a packet anyway."""
_LEVELS = {"zstd": 3, "gzip": 4}
_MAX_HEADER = 4096
_TEXT = re.compile(
    rb"(?:text/(?!event-stream)|application/(?:(?:[\w.-]+\+)?(?:json|xml)|n-triples|n-quads|trig|x-ndjson|ndjson|javascript|"
    rb"yaml|sparql-query|sparql-update|openmetrics-text)\b|image/svg\+xml)",
    re.IGNORECASE,
)


@lru_cache(256)
def wanted(accept_encoding: bytes | None) -> Coding | None:
    """Return the coding that an Accept-Encoding header likes most, None for the plain body."""
    qualities: dict[str, float] = {}
    for part in (accept_encoding or b"")[:_MAX_HEADER].decode("latin-1").lower().split(","):
        name, _, parameter = part.partition(";")
        qualities[name.strip()] = _quality(parameter)
    anything = qualities.get("*", 0.0)
    best = max(CODINGS, key=lambda each: qualities.get(each, anything))  # the first of equals
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


def coded_headers(headers: Headers, coding: Coding, size: int | None) -> Headers:
    """Return the headers of a body's compressed form, of ``size`` bytes (None for a stream)."""
    kept = [each for each in headers if each[0] not in (b"content-length", b"etag")]
    tags = [(name, coded_tag(value, coding)) for name, value in headers if name == b"etag"]
    length = [] if size is None else [(b"content-length", b"%d" % size)]
    return [*kept, *tags, *length, (b"content-encoding", coding.encode())]


def coded(headers: Headers, body: bytes, coding: Coding) -> tuple[Headers, bytes]:
    """Return the headers and the body of a whole answer in its compressed form."""
    packed = compress(body, coding)
    return coded_headers(headers, coding, len(packed)), packed


def varying(headers: Headers, header: bytes = b"Accept-Encoding") -> Headers:
    """Return headers that say that the answer depends on a header of the request too."""
    found = [value for name, value in headers if name == b"vary"]
    said = _with_header(b", ".join(found), header)
    if said is None:
        return headers
    others = [each for each in headers if each[0] != b"vary"] if found else headers
    return [*others, (b"vary", said)]


@lru_cache(64)
def _with_header(vary: bytes, header: bytes) -> bytes | None:
    """Return a Vary header with another one in it, None when it says so already."""
    if any(each.strip().lower() in (header.lower(), b"*") for each in vary.split(b",")):
        return None
    return b", ".join([vary, header]) if vary else header


def may_be_coded(headers: Headers) -> bool:
    """Return whether an answer is text that is not compressed yet, and may be."""
    found = dict(headers)
    if b"content-encoding" in found or b"no-transform" in found.get(b"cache-control", b""):
        return False
    return _is_text(found.get(b"content-type", b""))


@lru_cache(256)
def _is_text(content_type: bytes) -> bool:
    return _TEXT.match(content_type) is not None
