"""Waiting for a datasource's server, and no longer than somebody waits for its answer."""

from __future__ import annotations

import socket
from concurrent.futures import ThreadPoolExecutor

import pytest

from drumlin.kg import cancellation
from drumlin.kg.cancellation import Cancellation
from drumlin.kg.errors import Cancelled
from drumlin.kg.telemetry.fetch.transport import HttpResponse, Transport

SECONDS = 600.0
"""A time limit that no test waits for."""


@pytest.mark.parametrize("said", [b"", b"HTTP/1.1 200 OK\r\nContent-Length: 9\r\n\r\nhalf"])
def test_a_silent_server_is_left_as_soon_as_nobody_waits(said: bytes) -> None:
    """A thread that waits for an answer, or for the rest of one, ends when its work is cancelled, not at the time limit."""
    of_this = Cancellation()
    with socket.create_server(("127.0.0.1", 0)) as server, ThreadPoolExecutor(1) as pool:
        transport = Transport(f"http://127.0.0.1:{server.getsockname()[1]}", SECONDS, None)

        def work() -> HttpResponse:
            with cancellation.under(of_this):
                return transport.send("GET", "/", {}, None, 1 << 20)

        asked = pool.submit(work)
        taken, _ = server.accept()
        with taken:
            assert taken.recv(1 << 16)
            taken.sendall(said)
            of_this.cancel()
            with pytest.raises(Cancelled):
                asked.result(30)
        transport.close()
