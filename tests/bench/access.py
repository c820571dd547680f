"""What tokens and the audit log cost: the same requests to a service with and one without, in turn, on one connection each.

The processor time of the services is compared, which other work on the machine hardly changes.
"""

from __future__ import annotations

import os
import socket
import statistics
import tempfile
from collections.abc import Callable
from contextlib import ExitStack
from itertools import count
from pathlib import Path
from urllib.parse import urlsplit

from drumlin.api.access.callers import Role
from drumlin.api.access.tokens import TokenFile
from tests.bench.running import Row, phase, sized
from tests.service.conftest import Service, serving

ROUNDS = sized(10, 2)
REQUESTS = sized(1_500, 20)
READS = ("/subgraph/domain/local", "/sparql?query=ASK%7B%7D")
Build = Callable[[], bytes]


def run() -> list[Row]:
    """Ask both; rows of the table, of which the ratio is that of the requests in a second of processor time."""
    with ExitStack() as opened:
        folder = Path(opened.enter_context(tempfile.TemporaryDirectory()))
        tokens = TokenFile(folder / "guarded" / "tokens.json")
        for number in range(100):
            token = tokens.create(f"caller-{number}", Role.admin)[1]
        plain = opened.enter_context(serving("--store", str(folder / "plain")))
        guarded = opened.enter_context(serving("--store", str(folder / "guarded")))
        silent = opened.enter_context(
            serving("--store", str(folder / "silent"), environment={"DRUMLIN_AUDIT_FILES": "0"})
        )
        bearing = f"Authorization: Bearer {token}\r\n"
        rows = [
            _row(f"GET {path}, a token of 100 against none", guarded, plain, _read(path, bearing), _read(path), "≥ 0.9")
            for path in READS
        ]
        numbers = count()
        rows.append(_row("PUT, audit log against none", plain, silent, _write(numbers), _write(numbers), ""))
    return rows


def _row(what: str, ours: Service, peer: Service, build: Build, build_peer: Build, target: str) -> Row:
    phase(what)
    asked = [(_connected(ours), build, ours, list[float]()), (_connected(peer), build_peer, peer, list[float]())]
    for connection, made, _, _ in asked:
        _ask(connection, made, 50)
    for number in range(ROUNDS):
        for connection, made, service, found in asked[:: 1 if number % 2 else -1]:
            began = _processor_seconds(service)
            _ask(connection, made, REQUESTS)
            found.append((_processor_seconds(service) - began) / REQUESTS * 1e6)
    for connection, *_ in asked:
        connection.close()
    with_, without = (statistics.mean(found) for *_, found in asked)
    return what, f"{with_:,.0f} µs", f"{without:,.0f} µs", f"{without / max(with_, 1):.2f}", target


def _processor_seconds(service: Service) -> float:
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _connected(service: Service) -> socket.socket:
    address = urlsplit(service.url)
    return socket.create_connection((address.hostname, address.port or 80))


def _read(path: str, more: str = "") -> Build:
    request = f"GET {path} HTTP/1.1\r\nHost: localhost\r\nAccept: application/ld+json, */*;q=0.1\r\n{more}\r\n".encode()
    return lambda: request


def _write(numbers: count[int]) -> Build:
    def build() -> bytes:
        body = b'{"id":"https://kg.example/id/domain/x","type":"Domain","name":"n%d"}' % next(numbers)
        head = "PUT /subgraph/domain/x HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/ld+json\r\n"
        return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body

    return build


def _ask(connection: socket.socket, build: Build, times: int) -> None:
    """Send requests one after the other, and read their answers."""
    for _ in range(times):
        connection.sendall(build())
        answer = b""
        while b"\r\n\r\n" not in answer:
            answer += connection.recv(1 << 16)
        head, _, body = answer.partition(b"\r\n\r\n")
        assert head.startswith(b"HTTP/1.1 2"), head
        length = next((line for line in head.lower().split(b"\r\n") if line.startswith(b"content-length:")), b":0")
        missing = int(length.partition(b":")[2]) - len(body)
        while missing > 0:
            missing -= len(connection.recv(missing))
