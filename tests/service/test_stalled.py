"""Clients that take nothing of an answer are let go, however it is made; those that read slowly are not. Over real sockets."""

from __future__ import annotations

import re
import select
import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from functools import partial
from pathlib import Path
from typing import NamedTuple

import httpx
import pytest
from structlog.testing import capture_logs
from structlog.typing import EventDict

import drumlin.api
from drumlin.api.bootstrap import Services, assemble
from drumlin.api.cli.serving import listening_address, run_server
from drumlin.api.http import tcp_info
from drumlin.kg.config.settings import Settings
from drumlin.kg.store.protocol import GraphWrite

PATIENCE = 0.3
DEADLINE = 30.0
HOST = "127.0.0.1"
GRAPHS = 12
ELSEWHERE = "https://elsewhere.example/"
CROSS = "SELECT%20*%20%7B%20%3Fa%20%3Fb%20%3Fc%20.%20%3Fd%20%3Fe%20%3Ff%20%7D"  # each statement beside each other one: 50 MB
WHOLE = f"GET /store?graph={ELSEWHERE}0"
ENTITY = "https://kg.example/id/domain/large"
ANSWERS = (
    f"GET /sparql?query={CROSS}",
    "GET /export",
    "GET /store?format=trig",
    "POST /admin/backup",
    WHOLE,
    "GET /subgraph/domain/large",
)
OTHERS = (
    "GET /events?since=0&quads=true",
    f"GET /store?graph={ELSEWHERE}0",
)  # a feed that waits, an answer that is whole


class Running(NamedTuple):
    """A service in this process, and what it has logged."""

    parts: Services
    port: int
    logged: list[EventDict]

    def ask(self, what: str, body: str = "Content-Length: 0\r\n\r\n") -> socket.socket:
        """Send a request over a connection that holds little on its way."""
        connection = socket.socket()
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_MAXSEG, 1000)
        connection.settimeout(DEADLINE)
        connection.connect((HOST, self.port))
        connection.sendall(f"{what} HTTP/1.1\r\nHost: localhost\r\n{body}".encode())
        return connection

    def metric(self, name: str) -> float:
        """Return the value of one of its metrics."""
        lines = httpx.get(f"http://{HOST}:{self.port}/metrics").text.splitlines()
        return sum(float(each.rpartition(" ")[2]) for each in lines if each.startswith(name))

    @property
    def held(self) -> list[str]:
        """What the store holds for those who read all of it."""
        directory = self.parts.store.directory  # type: ignore[attr-defined]  # an embedded one
        return [each.name for each in directory.glob("checkpoints/*")]


@pytest.fixture(scope="module")
def running(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """Serve 4 MB with little patience."""
    directory, stop = tmp_path_factory.mktemp("stalled") / "store", threading.Event()
    with pytest.MonkeyPatch.context() as patch, capture_logs() as logged:
        patch.setattr(tcp_info, "STALLED", PATIENCE)
        parts = assemble(Settings(base="https://kg.example"), directory=directory)
        parts.store.apply([_written(f"{ELSEWHERE}{number}", 200_000) for number in range(1, GRAPHS)])
        parts.store.apply([_written(each, 2 << 20) for each in (f"{ELSEWHERE}0", ENTITY)])
        began = threading.Event()
        with listening_address(HOST, 0) as port:
            server = threading.Thread(target=run_server, args=(parts, HOST, port, stop, began.set))
            server.start()
            assert began.wait(DEADLINE)
            yield Running(parts, port, logged)
            stop.set()
            server.join(DEADLINE)


def _written(graph: str, size: int) -> GraphWrite:
    return GraphWrite.of(graph, frozenset({f'<{graph}> <{ELSEWHERE}says> "{"x" * size}" .'}), "user")


def until(true: Callable[[], bool]) -> None:
    """Wait for something to be true."""
    deadline = time.monotonic() + DEADLINE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.02)


def is_cut(connection: socket.socket) -> bool:
    """Return whether the other side has reset a connection, without taking anything from it."""
    poll = select.poll()
    poll.register(connection, 0)
    return any(event & select.POLLERR for _, event in poll.poll(0))


def test_who_takes_nothing_is_let_go_from_every_answer(running: Running) -> None:
    """Its connection is cut, what was held for it is freed, and who left the pieces of a stream is told of in the log and counted."""
    stalled, logged = running.metric("drumlin_clients_let_go_total"), len(running.logged)
    with ExitStack() as stack:
        clients = [stack.enter_context(running.ask(each)) for each in ANSWERS]
        until(lambda: running.metric("drumlin_clients_let_go_total") == stalled + len(ANSWERS))
        until(lambda: all(is_cut(each) for each in clients))
    until(lambda: not running.held)
    assert running.metric('drumlin_queries_total{outcome="abandoned"}') == 1
    assert sum(each["event"] == "client_let_go" for each in running.logged[logged:]) == len(ANSWERS)


def test_who_reads_slowly_is_never_cut(running: Running) -> None:
    """A client that takes a little now and then goes on for longer than one that takes nothing: none of its pieces comes in that time."""
    paused = PATIENCE
    while paused >= PATIENCE:  # then this machine was too busy to read
        paused = longest_pause(running)


def longest_pause(running: Running) -> float:
    """Read slowly, and return for how long nothing was read."""
    with running.ask("GET /export") as client:
        began = read = time.monotonic()
        longest = 0.0
        while read - began < 2 * PATIENCE:
            try:
                assert client.recv(4096)
            except ConnectionResetError:
                longest = max(longest, time.monotonic() - read)
                assert longest >= PATIENCE
                return longest
            longest, read = max(longest, time.monotonic() - read), time.monotonic()
            time.sleep(PATIENCE / 20)
    return longest


def test_who_stops_sending_is_answered(running: Running) -> None:
    """A body that does not go on is 408, and the connection, which would count among the open ones for ever, is closed."""
    with ExitStack() as stack:
        clients = []
        for what, kind in (
            ("POST /subgraphs", "x-ndjson"),
            ("POST /sparql", "sparql-query"),
            ("POST /store", "n-quads"),
            ("PUT /subgraph/domain/x", "n-triples"),
        ):
            body = f"Content-Type: application/{kind}\r\nContent-Length: 1000\r\n\r\nSELECT "
            clients.append(stack.enter_context(running.ask(what, body)))
        for client in clients:
            answer = b"".join(iter(partial(client.recv, 1 << 16), b""))
            assert answer.startswith(b"HTTP/1.1 408")
            assert b"nothing came of the body for 0.3 s" in answer


def test_who_waits_for_events_and_leaves_gives_up_its_place(running: Running) -> None:
    """A batch that is waited for counts as a reader of the feed; when its client goes it is one no longer, though nothing came."""
    batch = {"Accept": "application/cloudevents-batch+json"}
    newest = running.parts.store.generation
    with pytest.raises(httpx.ReadTimeout):
        httpx.get(f"http://{HOST}:{running.port}/events?since={newest}&wait=60", headers=batch, timeout=0.5)
    until(lambda: not running.parts.feed.readers)


def test_every_stream_is_of_the_one_kind() -> None:
    """Nothing is sent piece by piece but by ``api.http.streaming``, through the exchange, which watches the clients."""
    sources = {each.name: each.read_text() for each in Path(drumlin.api.__path__[0]).rglob("*.py")}
    assert [name for name, text in sources.items() if "StreamingResponse" in text] == ["streaming.py"]
    senders = {name for name, text in sources.items() if re.search(r'"more_body": (?!False)', text)}
    assert senders == {"streaming.py", "exchange.py"}
