"""Answers that are cut, compressed, late or refused on the way: a whole answer or an error, never half of one."""

from __future__ import annotations

import gzip
import json
import socket
import struct
import threading
from typing import Self

import pytest

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import DatasourceRefused, SourceUnavailable
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.series import Grid
from tests.unit.telemetry_store import IRIS

QUERY = 'sum(up{job="x"})'
GRID = Grid(1_793_491_200, 1_793_491_200 + 9 * 60, 60)
BODY = json.dumps(
    {
        "status": "success",
        "data": {
            "resultType": "matrix",
            "result": [{"metric": {}, "values": [[GRID.start + 60 * n, f"{n}"] for n in range(10)]}],
        },
    }
).encode()
VALUES = [float(n) for n in range(10)]


def _whole(body: bytes, *headers: bytes) -> bytes:
    return b"\r\n".join([b"HTTP/1.1 200 OK", b"Content-Length: %d" % len(body), *headers, b"", body])


def _chunked(*pieces: bytes) -> bytes:
    head = b"HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\n\r\n"
    return head + b"".join(b"%x\r\n%s\r\n" % (len(piece), piece) for piece in pieces)


CUT = {
    "a body shorter than its length": _whole(BODY)[:-100],
    "a body cut to its first byte": _whole(BODY)[: -len(BODY) + 1],
    "a chunk that breaks off": _chunked(BODY)[:-100],
    "chunks without the last one": _chunked(BODY[:100], BODY[100:]),
    "half of the headers": _whole(BODY)[:30],
    "nothing at all": b"",
}


class RawServer:
    """Reads a request and writes these very bytes, then hangs up: answer after answer, the last one again and again."""

    def __init__(self, *answers: bytes, reset: bool = False, keep: bool = False) -> None:
        self.answers = list(answers)
        self.reset, self.keep = reset, keep
        self.accepted = self.asked = 0
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._thread = threading.Thread(target=self._serve)
        self._thread.start()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._thread.join()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"http://127.0.0.1:{self._listener.getsockname()[1]}"

    def _serve(self) -> None:
        while True:
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed
                return
            self.accepted += 1
            with connection:
                self._answer(connection)

    def _answer(self, connection: socket.socket) -> None:
        while self._request(connection):
            self.asked += 1
            connection.sendall(self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
            if self.reset:
                connection.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
            if not self.keep:
                return

    @staticmethod
    def _request(connection: socket.socket) -> bool:
        """Read a request that ends with its form; False: the client is gone."""
        received = b""
        while not received.endswith(b"timeout=20"):
            piece = connection.recv(65536)
            if not piece:
                return False
            received += piece
        return True


def _client(server: RawServer, waits: list[float], **more: object) -> Prometheus:
    given = {"name": "prometheus-main", "kind": "prometheus", "url": server.url, "timeout": 20, **more}
    found = Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)
    return Prometheus(found, sleep=waits.append)


@pytest.fixture
def waits() -> list[float]:
    """How long the client would have slept."""
    return []


@pytest.mark.parametrize("answer", [_whole(BODY), _chunked(BODY), _chunked(BODY[:7], BODY[7:]) + b"0\r\n\r\n"])
def test_a_whole_answer_is_read_in_either_framing(answer: bytes, waits: list[float]) -> None:
    """By length or in chunks, the same values; chunks need their end."""
    whole = answer if b"chunked" not in answer or answer.endswith(b"0\r\n\r\n") else answer + b"0\r\n\r\n"
    with RawServer(whole) as server, _client(server, waits) as client:
        assert client.series(QUERY, GRID).parts[0].values.to_pylist() == VALUES
    assert waits == []


@pytest.mark.parametrize("reset", [False, True])
@pytest.mark.parametrize("name", CUT)
def test_what_breaks_off_is_asked_again_and_never_taken_for_an_answer(
    name: str, reset: bool, waits: list[float]
) -> None:
    """Three times cut is an error; cut once and then whole gives the values."""
    with RawServer(CUT[name], reset=reset) as server, _client(server, waits) as client:
        with pytest.raises(SourceUnavailable, match="cannot be reached"):
            client.series(QUERY, GRID)
        assert server.asked == 3
        server.answers = [CUT[name], _whole(BODY)]
        server.reset = False
        assert client.series(QUERY, GRID).parts[0].values.to_pylist() == VALUES
    assert len(waits) == 3


def test_json_that_breaks_off_in_a_whole_body_is_an_error(waits: list[float]) -> None:
    """A proxy that cuts and then corrects the length is told, asked once."""
    with (
        RawServer(_whole(BODY[:-9])) as server,
        _client(server, waits) as client,
        pytest.raises(DatasourceRefused, match="not the Prometheus API's JSON"),
    ):
        client.series(QUERY, GRID)
    assert (server.asked, waits) == (1, [])


def test_a_compression_that_nobody_asked_for_is_undone(waits: list[float]) -> None:
    """A proxy may compress; the values are the same."""
    with (
        RawServer(_whole(gzip.compress(BODY), b"Content-Encoding: gzip")) as server,
        _client(server, waits) as client,
    ):
        assert client.series(QUERY, GRID).parts[0].values.to_pylist() == VALUES


@pytest.mark.parametrize(
    ("body", "coding", "said"),
    [
        (gzip.compress(BODY)[:-20], b"gzip", "a broken compression"),
        (gzip.compress(BODY) + b"more", b"gzip", "a broken compression"),
        (BODY, b"gzip", "a broken compression"),
        (BODY, b"br", "the compression 'br', which was not asked for"),
    ],
)
def test_a_compression_that_cannot_be_undone_is_told(body: bytes, coding: bytes, said: str, waits: list[float]) -> None:
    """Cut, followed by something, not compressed at all, or in another way: refused, never half of it."""
    with (
        RawServer(_whole(body, b"Content-Encoding: " + coding)) as server,
        _client(server, waits) as client,
        pytest.raises(DatasourceRefused, match=said),
    ):
        client.series(QUERY, GRID)


def test_a_small_body_that_inflates_is_cut_off(waits: list[float], monkeypatch: pytest.MonkeyPatch) -> None:
    """The limit is for what is held in memory, not for what came over the wire."""
    monkeypatch.setattr("drumlin.kg.telemetry.fetch.connection.MAX_BYTES", 1 << 20)
    bomb = gzip.compress(b" " * (8 << 20))
    with (
        RawServer(_whole(bomb, b"Content-Encoding: gzip")) as server,
        _client(server, waits) as client,
        pytest.raises(DatasourceRefused, match="more than 1 MB"),
    ):
        client.series(QUERY, GRID)


def test_connections_are_kept(waits: list[float]) -> None:
    """Ten requests one after the other are one connection."""
    with RawServer(_whole(BODY), keep=True) as server:
        with _client(server, waits) as client:
            for _ in range(10):
                client.series(QUERY, GRID)
        assert (server.accepted, server.asked) == (1, 10)


def test_a_connection_that_the_server_closed_meanwhile_is_replaced(waits: list[float]) -> None:
    """The server hangs up after each answer without a word; the next request takes a new connection, at once."""
    with RawServer(_whole(BODY)) as server:
        with _client(server, waits) as client:
            for _ in range(3):
                client.series(QUERY, GRID)
        assert server.accepted == 3
    assert waits == []
