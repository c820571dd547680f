"""Bodies as they arrive: in pieces of bounded size, whatever they unfold to, and in lines wherever the pieces end."""

from __future__ import annotations

import asyncio
import gzip
from collections.abc import AsyncIterator

import pytest
import zstandard
from hypothesis import given
from hypothesis import strategies as st
from starlette.requests import Request

from drumlin.api.http import bodies
from drumlin.api.http.bodies import _PIECE, body_of, content, lines_of
from drumlin.kg.errors import InvalidDocument, TooLarge, UnsupportedSyntax


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


PACKED = {"gzip": gzip.compress, "zstd": zstandard.compress}


@given(
    members=st.lists(st.binary(max_size=200).map(lambda part: part * 1000), min_size=1, max_size=3),
    size=st.integers(1, 9000),
    coding=st.sampled_from(sorted(PACKED)),
)
def test_any_body_arrives_as_it_was_before_it_was_packed(members: list[bytes], size: int, coding: str) -> None:
    """However it is cut on the way, and of however many members or frames it is made."""
    packed = b"".join(PACKED[coding](each) for each in members)
    chunks = [packed[at : at + size] for at in range(0, len(packed), size)]

    assert _read(_request(chunks, coding)) == b"".join(members)


@pytest.mark.parametrize(("coding", "most"), [("gzip", _PIECE), ("zstd", 8 << 20)])
def test_a_body_that_unfolds_without_end_is_too_large(coding: str, most: int) -> None:
    """The limit is that of the unpacked body, and no piece is larger than it must be."""
    packed = PACKED[coding](bytes(50 << 20))

    async def largest(pieces: AsyncIterator[bytes]) -> int:
        return max([len(each) async for each in pieces])

    request = _request([packed], coding)
    assert asyncio.run(largest(content(request, request.stream()))) <= most
    with pytest.raises(TooLarge):
        _read(_request([packed], coding))


@pytest.mark.parametrize("coding", PACKED)
def test_a_body_that_is_not_packed_so_is_refused(coding: str) -> None:
    """What is not what its header says, or is cut, is an error of the client's."""
    for body in (b"plain text", PACKED[coding](b"cut short")[:-9], b""):
        with pytest.raises(InvalidDocument):
            _read(_request([body] if body else [], coding))


def test_a_zstd_body_that_asks_for_a_large_window_is_refused() -> None:
    """A frame may not make its reader keep more than 8 MB of what came before."""
    parameters = zstandard.ZstdCompressionParameters.from_level(3, window_log=27, enable_ldm=True)
    packer = zstandard.ZstdCompressor(compression_params=parameters).compressobj()

    with pytest.raises(InvalidDocument):
        _read(_request([packer.compress(b"x" * 1000) + packer.flush()], "zstd"))


def test_another_encoding_is_refused_by_name() -> None:
    """Encodings that are not offered are named, with those that are."""
    with pytest.raises(UnsupportedSyntax) as caught:
        _read(_request([b"x"], "br"))

    assert caught.value.detail["offered"] == ["gzip", "zstd", "identity"]


@given(st.lists(st.lists(st.sampled_from([b"\n", b" ", b"\r", b"a", b"{}", b'"x y"']), max_size=8).map(b"".join)))
def test_lines_are_the_same_however_the_body_is_cut(pieces: list[bytes]) -> None:
    """Every line that is not blank comes once, in order, the last one without its end too."""

    async def read() -> list[bytes]:
        return [each async for each in lines_of(_request(pieces, "identity"), 10_000)]

    assert asyncio.run(read()) == [each for each in b"".join(pieces).split(b"\n") if each.strip()]


@pytest.mark.parametrize("coding", PACKED)
def test_what_a_body_unpacks_to_is_counted_in_all(monkeypatch: pytest.MonkeyPatch, coding: str) -> None:
    """A body of many lines, each short enough, is refused with the limit as soon as it exceeds it; nothing more is unpacked."""
    monkeypatch.setattr(bodies, "MAX_UNPACKED", 3 << 20)
    packed = PACKED[coding]((b"x" * 1000 + b"\n") * 50_000)
    taken = [0]

    async def read() -> None:
        async for line in lines_of(_request([packed], coding), 10_000):
            taken[0] += len(line)

    with pytest.raises(TooLarge, match="3,145,728 bytes"):
        asyncio.run(read())
    assert taken[0] <= 3 << 20


def test_a_bomb_of_newlines_is_refused_after_its_first_pieces() -> None:
    """Empty lines are counted, so that half a megabyte that unpacks to 500 MB of them costs next to nothing."""
    packed = gzip.compress(b"\n" * 10_000_000)

    async def read() -> list[bytes]:
        return [each async for each in lines_of(_request([packed]), 10_000)]

    with pytest.raises(TooLarge, match="100,000 empty lines"):
        asyncio.run(read())


@pytest.mark.parametrize("body", [bytes(20 << 20), b""], ids=["one member", "many empty members"])
def test_unpacking_lets_others_have_their_turns(body: bytes) -> None:
    """One packed piece can unpack to many: between them the event loop serves others."""
    packed = gzip.compress(body) if body else gzip.compress(b"") * 10_000
    turns = 0

    async def other() -> None:
        nonlocal turns
        while True:
            turns += 1
            await asyncio.sleep(0)

    async def read() -> None:
        beside = asyncio.create_task(other())
        request = _request([packed])
        async for _ in content(request, request.stream()):
            pass
        beside.cancel()

    asyncio.run(read())

    assert turns > 20
