"""A gateway in front of a real service that does to requests what networks and proxies do: refuse, cut, say nothing."""

from __future__ import annotations

import re
import socket
import socketserver
import struct
import time
from collections import deque
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from urllib.parse import urlsplit

from tests.listening import listening

_RESET = struct.pack("ii", 1, 0)


class _Request(socketserver.StreamRequestHandler):
    """One request of a connection; the connection ends with it."""

    server: Gateway

    def handle(self) -> None:
        """Do what is next, or pass the request on."""
        lines = list(iter(self.rfile.readline, b"\r\n"))
        if not lines or not lines[0]:
            return
        headers = dict(line.decode("latin-1").strip().lower().split(": ", 1) for line in lines[1:])
        body = self.rfile.read(int(headers.get("content-length", 0)))
        self.server.asked.append(lines[0].decode().rsplit(" ", 1)[0])
        self.server.headers.append(headers)
        kept = [line for line in lines if not line.lower().startswith(b"connection:")]
        self.server.next_act()(self, b"".join([*kept, b"Connection: close\r\n\r\n", body]))

    def answers(self, request: bytes) -> Iterator[bytes]:
        """Yield what the service answers, as it comes."""
        with socket.create_connection(self.server.behind) as service:
            service.sendall(request)
            while chunk := service.recv(4096):
                yield chunk


Act = Callable[[_Request, bytes], None]


def passed_on(request: _Request, sent: bytes) -> None:
    """Let the service answer."""
    with suppress(OSError):  # the client may have left
        for chunk in request.answers(sent):
            request.wfile.write(chunk)


def refused(status: int, body: bytes = b"<html>", **headers: str) -> Act:
    """Answer in the place of the service."""
    told = {
        "Content-Length": str(len(body)),
        "Connection": "close",
        **{name.replace("_", "-"): value for name, value in headers.items()},
    }
    head = "".join(f"{name}: {value}\r\n" for name, value in told.items())
    return lambda request, _: (request.wfile.write(f"HTTP/1.1 {status} Said\r\n{head}\r\n".encode() + body), None)[1]


def cut(after: int | bytes) -> Act:
    """Break the connection when so many bytes of the answer have come, or these have; the service has done what was asked.

    So that these are seen, the client is not said to accept compressed answers.
    """

    def act(request: _Request, sent: bytes) -> None:
        if isinstance(after, bytes):
            sent = re.sub(rb"(?i)\r\naccept-encoding:[^\r]*", b"", sent, count=1)
        come = b""
        for chunk in request.answers(sent):
            come += chunk
            end = after if isinstance(after, int) else come.find(after) + len(after) if after in come else len(come) + 1
            request.wfile.write(chunk[: max(0, end - len(come) + len(chunk))])
            if len(come) >= end:
                break
        time.sleep(0.1)  # a reset takes away what the client has not read yet
        request.connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET)

    return act


def silent(request: _Request, _: bytes) -> None:
    """Say nothing until the client leaves."""
    with suppress(OSError):
        request.connection.recv(1)


class Gateway(socketserver.ThreadingTCPServer):
    """The gateway: ``acts`` is what is done to the next requests, ``asked`` the requests that came, with their ``headers``."""

    daemon_threads = True
    allow_reuse_address = True

    def __init__(self, url: str) -> None:
        super().__init__(("127.0.0.1", 0), _Request)
        address = urlsplit(url)
        self.behind = (str(address.hostname), int(address.port or 80))
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.acts: deque[Act] = deque()
        self.asked: list[str] = []
        self.headers: list[dict[str, str]] = []

    def next_act(self) -> Act:
        """Return what to do with a request."""
        return self.acts.popleft() if self.acts else passed_on


@contextmanager
def gateway(url: str) -> Iterator[Gateway]:
    """Run a gateway in front of the service at ``url``."""
    with listening(Gateway(url)) as running:
        yield running
