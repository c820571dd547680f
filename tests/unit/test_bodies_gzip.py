"""Bodies that come compressed: read in pieces of bounded size, whatever they unfold to."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from api.bodies import _PIECE, body_of, content
from kg.errors import InvalidDocument, TooLarge, UnsupportedSyntax


def _request(chunks: list[bytes], encoding: str = "gzip") -> Request:
    messages = iter(
        [{"type": "http.request", "body": chunk, "more_body": True} for chunk in chunks]
        + [{"type": "http.request", "body": b"", "more_body": False}]
    )

    async def receive() -> dict[str, object]:
        return next(messages)

    scope = {"type": "http", "method": "POST", "headers": [(b"content-encoding", encoding.encode())]}
    return Request(scope, receive)


def _read(request: Request, limit: int = 1 << 20) -> bytes:
    return asyncio.run(body_of(request, limit))


@given(
    members=st.lists(st.binary(max_size=200).map(lambda part: part * 1000), min_size=1, max_size=3),
    size=st.integers(1, 9000),
)
def test_any_body_arrives_as_it_was_before_it_was_packed(members: list[bytes], size: int) -> None:
    """However it is cut on the way, and of however many members it is made."""
    packed = b"".join(gzip.compress(each) for each in members)

    assert _read(_request([packed[at : at + size] for at in range(0, len(packed), size)])) == b"".join(members)


def test_a_body_that_unfolds_without_end_is_too_large() -> None:
    """The limit is that of the unpacked body, and no piece is larger than it must be."""
    packed = gzip.compress(bytes(50 << 20))

    async def largest(pieces: AsyncIterator[bytes]) -> int:
        return max([len(each) async for each in pieces])

    request = _request([packed])
    assert asyncio.run(largest(content(request, request.stream()))) == _PIECE
    with pytest.raises(TooLarge):
        _read(_request([packed]))


@pytest.mark.parametrize("body", [b"plain text", gzip.compress(b"cut short")[:-9], b""])
def test_a_body_that_is_not_gzip_is_refused(body: bytes) -> None:
    """What is not what its header says is an error of the client's."""
    with pytest.raises(InvalidDocument):
        _read(_request([body] if body else []))


def test_another_encoding_is_refused_by_name() -> None:
    """Encodings that are not offered are named, with those that are."""
    with pytest.raises(UnsupportedSyntax) as caught:
        _read(_request([b"x"], "br"))

    assert caught.value.detail["offered"] == ["gzip", "identity"]
