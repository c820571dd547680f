"""Bodies of requests in bounded memory, gzip and zstd unpacked on the way (RFC 9110 §8.4).

A body that is cut short or stalls is reported as such to a client that is still connected.
"""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator, Callable, Coroutine, Mapping
from contextlib import suppress
from typing import Any

import zstandard
from fastapi import Request, Response
from fastapi.routing import APIRoute

from drumlin.api.http import tcp_info
from drumlin.api.http.asgi import Receive
from drumlin.api.http.problems import CODINGS, PLAIN, BodyCut, BodyStalled
from drumlin.kg.errors import InvalidDocument, TooLarge, UnsupportedSyntax

MAX_JSON = 4 << 20
"""Bytes of a body that is one JSON value and no document: 10,000 entities by their IRIs fit."""
MAX_UNPACKED = 512 << 20
"""Bytes that the body of a request may have in all once it is unpacked; most routes take less."""
MAX_EMPTY_LINES = 100_000
"""Empty lines of a body that is read by lines."""
DISCARDED = 256 << 20
"""Bytes of a body that is too large which are read to the end; beyond it the connection is cut."""
_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 64 << 10
_TURN = 256 << 10  # bytes that are unpacked before others have a turn on the event loop
_PIECE_COST = 1 << 10  # bytes that a piece counts for beside its own, towards a turn: there may be many that are empty
_ZSTD_PIECE = 256  # bytes that are unpacked at one time: a block of 128 KB may be written in four
_ZSTD_WINDOW = 8 << 20  # what RFC 8878 §3.1.1.1.2 asks every decoder to have

Pieces = AsyncIterator[bytes]


async def pieces(receive: Receive) -> Pieces:
    """Yield a body as it arrives. Raises ``BodyCut``, and ``BodyStalled`` for one that stalls or comes too slowly (``tcp_info``)."""
    more, count, waited, clock = True, 0, 0.0, asyncio.get_running_loop().time
    while more:
        began = clock()
        try:
            async with asyncio.timeout(tcp_info.STALLED):
                message = await receive()
        except TimeoutError as error:
            text = f"nothing came of the body for {tcp_info.STALLED:g} s"
            raise BodyStalled(text, hint="send it without long pauses") from error
        if message["type"] == "http.disconnect":
            raise BodyCut("the connection ended before the body did; what was not whole was not done")
        more = message.get("more_body", False)
        waited += clock() - began
        if body := message.get("body"):
            count += len(body)
            yield body
        if more and waited > tcp_info.UNHURRIED and count < tcp_info.SLOWEST * waited:
            raise BodyStalled(
                f"the body comes too slowly: {count:,} bytes in {waited:.0f} s",
                hint=f"send at least {tcp_info.SLOWEST} bytes a second, or several smaller requests",
            )


async def content(request: Request, sent: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a body, ``sent`` as it arrives, decompressed when it is gzip or zstd, in pieces of bounded size.

    Raises ``TooLarge`` as soon as it has more than ``MAX_UNPACKED`` bytes in all.
    """
    encoding = request.headers.get("content-encoding", "").strip().lower() or PLAIN
    if encoding not in _UNPACKED:
        raise UnsupportedSyntax(
            f"the Content-Encoding {encoding[:40]!r} is not offered",
            hint="send gzip, zstd or the plain body",
            detail={"offered": list(CODINGS)},
        )
    unpacked = turn = 0
    async for piece in _UNPACKED[encoding](sent):
        unpacked += len(piece)
        turn += len(piece) + _PIECE_COST
        if unpacked > MAX_UNPACKED:
            await discard(sent)
            raise _too_large(MAX_UNPACKED)
        if turn > _TURN:
            turn = 0
            await asyncio.sleep(0)  # what was received packed in one piece can unpack to a thousand
        if piece:
            yield piece


async def _as_it_is(sent: Pieces) -> Pieces:
    async for chunk in sent:
        yield chunk


async def _unzstd(sent: Pieces) -> Pieces:
    frame = _zstd_frame()
    try:
        async for chunk in sent:
            for start in range(0, len(chunk), _ZSTD_PIECE):
                rest = chunk[start : start + _ZSTD_PIECE]
                while rest:
                    if frame.eof:  # another frame follows
                        frame = _zstd_frame()
                    yield frame.decompress(rest)
                    rest = frame.unused_data
    except zstandard.ZstdError as error:
        raise InvalidDocument(f"the body is not zstd, as its Content-Encoding says: {error}") from error
    if not frame.eof:
        raise InvalidDocument("the body ends in the middle of its zstd stream")


def _zstd_frame() -> zstandard.ZstdDecompressionObj:
    return zstandard.ZstdDecompressor(max_window_size=_ZSTD_WINDOW).decompressobj()


async def _gunzipped(sent: Pieces) -> Pieces:
    member = zlib.decompressobj(_GZIP)
    try:
        async for chunk in sent:
            rest, full = chunk, False
            while rest or full:
                if member.eof:  # another member follows
                    member = zlib.decompressobj(_GZIP)
                piece = member.decompress(rest, _PIECE)
                rest, full = member.unconsumed_tail or member.unused_data, len(piece) == _PIECE and not member.eof
                yield piece
    except zlib.error as error:
        raise InvalidDocument("the body is not gzip, as its Content-Encoding says") from error
    if not member.eof:
        raise InvalidDocument("the body ends in the middle of its gzip stream")


_UNPACKED: Mapping[str, Callable[[Pieces], Pieces]] = {
    PLAIN: _as_it_is,
    "gzip": _gunzipped,
    "x-gzip": _gunzipped,
    "zstd": _unzstd,
}


async def lines_of(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the lines of a body as they arrive, without those that are empty.

    Raises ``TooLarge`` for a line of more than ``limit`` bytes, and for more than ``MAX_EMPTY_LINES``.
    """
    begun = bytearray()  # a line that has not ended
    empty = 0
    sent = pieces(request.receive)
    async for chunk in content(request, sent):
        first, *others = chunk.split(b"\n")
        begun += first
        if others:
            whole = [bytes(begun), *others]
            begun = bytearray(whole.pop())
            found = [line for line in whole if line and not line.isspace()]
            empty += len(whole) - len(found)
            for line in found:
                yield line
        if empty > MAX_EMPTY_LINES:
            await discard(sent)
            raise TooLarge(f"a body has at most {MAX_EMPTY_LINES:,} empty lines", hint="leave them out")
        if len(begun) > limit:
            await discard(sent)
            raise TooLarge(f"a line has more than {limit:,} bytes")
    if begun and not begun.isspace():
        yield bytes(begun)


async def body_of(request: Request, limit: int) -> bytes:
    """Read a body; raises ``TooLarge`` when it has more than ``limit`` bytes, before it is sent if the client asks (``Expect``)."""
    received = bytearray()
    headers = request.headers
    if "expect" in headers and "content-encoding" not in headers and int(headers.get("content-length", 0)) > limit:
        raise _too_large(limit)
    sent = pieces(request.receive)
    async for chunk in content(request, sent) if "content-encoding" in headers else sent:
        received += chunk
        if len(received) > limit:
            await discard(sent)
            raise _too_large(limit)
    return bytes(received)


def _too_large(limit: int) -> TooLarge:
    return TooLarge(f"the body has more than {limit:,} bytes, the limit here")


async def discard(sent: AsyncIterator[bytes]) -> None:
    """Read on without keeping or unpacking anything, so that the client is done sending and reads the answer; gives up after a while."""
    rest = 0
    with suppress(BodyCut):
        async for chunk in sent:
            rest += len(chunk)
            if rest > DISCARDED:
                return


class JsonRoute(APIRoute):
    """A route whose body is one JSON value: FastAPI would read it however large it is; ``TooLarge`` beyond ``MAX_JSON`` bytes."""

    def get_route_handler(self) -> Callable[[Request], Coroutine[Any, Any, Response]]:
        """Return what answers a request, its body read and unpacked."""
        answer = super().get_route_handler()

        async def bounded(request: Request) -> Response:
            body = await body_of(request, MAX_JSON)

            async def receive() -> dict[str, Any]:
                return {"type": "http.request", "body": body, "more_body": False}

            return await answer(Request(request.scope, receive))

        return bounded
