"""HTTP/1.1 to one server over kept-alive connections, on the standard library: a third of httpx's processor time per answer.

Why not httpx here: docs/decisions/0012-transport.md. An answer is whole or an error: what breaks off in the middle of a body raises, and
so does what takes longer or is larger than allowed. No redirect is followed, no proxy of the environment is used.
Framing: https://www.rfc-editor.org/rfc/rfc9112#section-6.3.
"""

from __future__ import annotations

import http.client
import select
import socket
import ssl
import threading
import time
import zlib
from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import NamedTuple
from urllib.parse import urlsplit

from drumlin.kg import cancellation

_PIECE = 1 << 18  # bytes that one read may bring
_GZIP = 31  # zlib's number for gzip's framing

BROKEN = (OSError, http.client.HTTPException)
"""What is raised when there is no whole answer; ``TimeoutError`` is one of them, ``ssl.SSLError`` another."""


class HttpResponse(NamedTuple):
    """A whole answer, its body decompressed."""

    status: int
    headers: http.client.HTTPMessage
    body: bytes


class Oversized(Exception):
    """The body is larger than allowed."""


class UnreadableBody(Exception):
    """The body is not compressed as its header says, or in a way that was not asked for."""


class Transport:
    """Connections to the server of a URL, for many threads; ``timeout`` (seconds) is for a whole answer."""

    def __init__(self, url: str, timeout: float, trust: ssl.SSLContext | None) -> None:
        self._url = urlsplit(url)
        self._timeout = timeout
        self._trust = trust
        self._idle: list[http.client.HTTPConnection] = []
        self._lock = threading.Lock()
        self._closed = False

    def close(self) -> None:
        """Close the connections; one that is in use closes with the end of its answer."""
        with self._lock:
            self._closed = True
            for kept in self._idle:
                kept.close()
            self._idle.clear()

    def send(self, method: str, target: str, headers: Mapping[str, str], body: bytes | None, most: int) -> HttpResponse:
        """Send a request to a target below the URL's path and read its answer of at most ``most`` bytes.

        Raises what is in ``BROKEN``, ``Oversized`` and ``UnreadableBody``, and ``Cancelled`` at once when nobody waits for it any more.
        """
        deadline = time.monotonic() + self._timeout
        connection = self._take()
        asked: list[socket.socket] = []
        try:
            with cancellation.ended_by(lambda: _hang_up(asked)):
                connection.request(method, self._url.path + target, body, dict(headers))
                asked += filter(None, [connection.sock])
                cancellation.check()
                with connection.getresponse() as response:
                    content = b"".join(_bounded(_plain(_pieces(response, deadline), response), most))
        except BaseException:
            connection.close()
            cancellation.check()
            raise
        self._keep(connection)
        return HttpResponse(response.status, response.headers, content)

    def _keep(self, connection: http.client.HTTPConnection) -> None:
        with self._lock:
            if self._closed:
                connection.close()
            else:
                self._idle.append(connection)

    def _take(self) -> http.client.HTTPConnection:
        """Return a kept connection that the server has not closed meanwhile, else a new one."""
        with self._lock:
            while self._idle:
                kept = self._idle.pop()
                if kept.sock is not None and not _readable(kept):
                    return kept
                kept.close()
        host, port = self._url.hostname or "", self._url.port
        if self._url.scheme == "https":
            return http.client.HTTPSConnection(host, port, timeout=self._timeout, context=self._trust)
        return http.client.HTTPConnection(host, port, timeout=self._timeout)


def _hang_up(asked: list[socket.socket]) -> None:
    """End the wait for an answer, in whichever thread that is."""
    for each in asked:
        with suppress(OSError):
            each.shutdown(socket.SHUT_RDWR)


def _readable(connection: http.client.HTTPConnection) -> bool:
    """Return whether there is something to read where nothing was asked: the server's end of the connection."""
    poll = select.poll()
    poll.register(connection.sock, select.POLLIN)
    return bool(poll.poll(0))


def _pieces(response: http.client.HTTPResponse, deadline: float) -> Iterator[bytes]:
    """Yield the body as it comes; raises when it is cut or trickles."""
    until_closed = response.length is None and response.headers.get("Transfer-Encoding") is None
    came = False
    while piece := response.read1(_PIECE):
        came = True
        yield piece
        if time.monotonic() > deadline:
            raise TimeoutError("the answer trickles")
    if response.length or (until_closed and not came):  # headers that break off look like these
        raise http.client.IncompleteRead(b"", response.length)


def _plain(pieces: Iterator[bytes], response: http.client.HTTPResponse) -> Iterator[bytes]:
    """Undo a compression that a proxy may have put in, without ever holding more than a piece of it."""
    coding = response.headers.get("Content-Encoding", "identity").strip().lower()
    if coding == "identity":
        yield from pieces
        return
    if coding not in ("gzip", "x-gzip"):
        raise UnreadableBody(f"the compression {coding[:40]!r}, which was not asked for")
    decoder = zlib.decompressobj(_GZIP)
    piece = b""
    try:
        for piece in pieces:
            waiting = piece
            while waiting:
                yield decoder.decompress(waiting, _PIECE)
                waiting = decoder.unconsumed_tail
    except zlib.error as error:
        raise UnreadableBody("a broken compression") from error
    if piece and (decoder.unused_data or not decoder.eof):
        raise UnreadableBody("a broken compression")


def _bounded(pieces: Iterator[bytes], most: int) -> Iterator[bytes]:
    size = 0
    for piece in pieces:
        size += len(piece)
        if size > most:
            raise Oversized
        yield piece
