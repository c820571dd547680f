"""Compression of answers by the exchange: which coding, what becomes of ETags, and that a body is never another one."""

from __future__ import annotations

import asyncio
import gzip
from typing import Any

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.edge import exchange
from drumlin.api.edge.exchange import Exchange
from drumlin.api.edge.slow_clients import SlowClientGuard
from drumlin.api.http import compression
from drumlin.api.http.compression import MINIMUM
from drumlin.api.http.etags import CODINGS, Coding

TAG = b'"0a1b-turtle"'


def unpacked(body: bytes, coding: str | None) -> bytes:
    """Undo a coding, several frames and all."""
    if coding == "gzip":
        return gzip.decompress(body)
    return zstandard.ZstdDecompressor().decompressobj().decompress(body) if coding == "zstd" else body


class _Uncounted:
    """Stands for the metrics."""

    def observe(self, *_: object) -> None:
        """Count nothing."""


def answer(
    parts: list[bytes],
    *,
    accept: str = "zstd",
    headers: dict[str, str] | None = None,
    request: dict[str, str] | None = None,
    status: int = 200,
) -> tuple[dict[str, str], list[bytes], dict[str, str]]:
    """Pass an answer through: its headers, its pieces, and the request's headers that the application saw."""
    seen: dict[str, str] = {}
    sent: list[Any] = []

    async def app(scope: Any, receive: Any, send: Any) -> None:
        seen.update({name.decode(): value.decode() for name, value in scope["headers"]})
        given = {"Content-Type": "text/turtle", **(headers or {})}
        raw = [(name.lower().encode(), value.encode()) for name, value in given.items()]
        await send({"type": "http.response.start", "status": status, "headers": raw})
        for number, part in enumerate(parts, 1):
            await send({"type": "http.response.body", "body": part, "more_body": number < len(parts)})

    async def take(message: Any) -> None:
        sent.append(message)

    asked = {"accept-encoding": accept, **(request or {})}
    raw = [(name.encode(), value.encode()) for name, value in asked.items()]
    scope = {"type": "http", "method": "GET", "headers": raw}

    async def run() -> None:
        uncounted: Any = _Uncounted()
        await Exchange(scope, lambda: None, take, uncounted, SlowClientGuard(uncounted)).run(app)  # type: ignore[arg-type, return-value]

    asyncio.run(run())
    found = {name.decode().lower(): value.decode() for name, value in sent[0]["headers"]}
    return found, [each["body"] for each in sent[1:]], seen


@pytest.mark.parametrize(
    ("header", "coding"),
    [
        (None, None),
        (b"", None),
        (b"identity", None),
        (b"br", None),
        (b"gzip, deflate, br, zstd", "zstd"),
        (b"GZIP", "gzip"),
        (b"gzip;q=1.0, zstd;q=0.5", "gzip"),
        (b"*", "zstd"),
        (b"zstd;q=0, *", "gzip"),
        (b"gzip;q=0", None),
        (b"gzip;q=0.2, identity;q=0.9", None),
        (b"gzip;q=nonsense", None),
    ],
)
def test_the_coding_that_is_liked_most_is_taken(header: bytes | None, coding: str | None) -> None:
    """Qualities decide, then our order; nothing is taken that the client refuses or does not name."""
    assert compression.wanted(header) == coding


@given(st.binary(max_size=300))
def test_any_header_is_read(header: bytes) -> None:
    """Whatever a client sends as Accept-Encoding, an answer comes."""
    assert compression.wanted(header) in (*CODINGS, None)


@given(st.sampled_from(CODINGS), st.lists(st.binary(max_size=5000), min_size=1, max_size=6))
def test_a_body_comes_out_as_it_went_in(coding: Coding, parts: list[bytes]) -> None:
    """Whole or in pieces, large or small, empty pieces and all."""
    headers, pieces, _ = answer(parts, accept=coding)

    assert unpacked(b"".join(pieces), headers.get("content-encoding")) == b"".join(parts)
    assert headers["vary"] == "Accept-Encoding"
    if len(parts) > 1 or len(parts[0]) >= MINIMUM:
        assert headers["content-encoding"] == coding


@pytest.mark.parametrize("coding", CODINGS)
def test_a_compressed_body_has_a_strong_tag_of_its_own(coding: Coding) -> None:
    """The tag ends in the coding, a weak one stays; length and Vary are those of the compressed body."""
    body = b"<a> <b> <c> .\n" * 500
    headers, pieces, _ = answer([body], accept=coding, headers={"ETag": TAG.decode(), "Vary": "Accept"})
    weak, _, _ = answer([body], accept=coding, headers={"ETag": 'W/"x"'})

    assert headers["etag"] == f'"0a1b-turtle-{coding}"'
    assert headers["vary"] == "Accept, Accept-Encoding"
    assert int(headers["content-length"]) == len(pieces[0]) < len(body)
    assert pieces[0] == compression.compress(body, coding)
    assert weak["etag"] == 'W/"x"'


def test_the_application_sees_plain_tags_and_the_client_the_form_it_sent() -> None:
    """If-None-Match and If-Match may list either form; a 304 names the one that the client holds."""
    listed = {"if-none-match": '"other", "0a1b-turtle-gzip"', "if-match": 'W/"a-zstd", "0a1b-turtle-zstd"'}
    headers, _, seen = answer([b""], headers={"ETag": TAG.decode()}, request=listed, status=304)

    assert seen["if-none-match"] == '"other", "0a1b-turtle"'
    assert seen["if-match"] == 'W/"a", "0a1b-turtle"'
    assert headers["etag"] == '"0a1b-turtle-gzip"'
    assert headers["vary"] == "Accept-Encoding"


@pytest.mark.parametrize(
    "headers",
    [
        {"Content-Type": "text/event-stream"},
        {"Content-Type": "application/vnd.apache.arrow.stream"},
        {"Content-Type": "application/vnd.apache.parquet"},
        {"Content-Encoding": "gzip"},
        {"Cache-Control": "no-transform"},
    ],
)
def test_what_is_binary_or_a_feed_passes_piece_by_piece(headers: dict[str, str]) -> None:
    """Neither its pieces nor its headers are touched."""
    found, pieces, _ = answer([b"a" * 5000, b"b", b""], headers={"ETag": TAG.decode(), **headers})

    assert pieces == [b"a" * 5000, b"b", b""]
    assert found["etag"] == TAG.decode()
    assert "content-length" not in found


@pytest.mark.parametrize("coding", CODINGS)
def test_a_slow_stream_is_not_held_back(coding: Coding, monkeypatch: pytest.MonkeyPatch) -> None:
    """What comes after a pause can be read before the next piece comes."""
    monkeypatch.setattr(exchange, "_PAUSE", -1.0)
    _, pieces, _ = answer([b"one\n", b"two\n", b""], accept=coding)
    reader: Any = (
        zstandard.ZstdDecompressor().decompressobj() if coding == "zstd" else compression.zlib.decompressobj(31)
    )

    assert reader.decompress(pieces[0]) == b"one\n"
    assert reader.decompress(pieces[1]) == b"two\n"


def test_a_large_body_is_compressed_aside() -> None:
    """A body of megabytes, whole or as a piece, does not hold the event loop and arrives."""
    body = bytes(range(256)) * 4096
    for parts in ([body], [body, body]):
        headers, pieces, _ = answer(parts, accept="gzip")
        assert unpacked(b"".join(pieces), headers["content-encoding"]) == b"".join(parts)
