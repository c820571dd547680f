"""Heartbeats of 1,000 agents, each every second, and what registering 10,000 things takes; both to a running service.

The processor time is that of the service's main process, which other work on the machine hardly changes.
"""

from __future__ import annotations

import os
import socket
import tempfile
import time
from pathlib import Path
from urllib.parse import urlsplit

import drumlin
from tests.bench.running import Row, phase, sized
from tests.service.conftest import Service, serving

AGENTS = sized(1_000, 20)
SECONDS = sized(60, 2)
THINGS = sized(1_000, 10)  # of one agent
REGISTERED = sized(10, 2)  # agents that register things
HEARTBEATS = sized(100_000, 200)


def run() -> list[Row]:
    """Register, then send heartbeats; rows of the table."""
    with tempfile.TemporaryDirectory() as folder, serving("--store", str(Path(folder) / "store")) as service:
        return [_registered(service), *_heartbeats(service)]


def _registered(service: Service) -> Row:
    phase("registrations")
    count = REGISTERED * THINGS
    with drumlin.connect(service.url, timeout=300) as client:
        client.register_agent("warm", {"name": "warm", "interval": 0, "entities": [_thing("warm", 0)]})
        began, before = time.perf_counter(), _processor_seconds(service)
        for number in range(REGISTERED):
            entities = [_thing(f"{number}", each) for each in range(THINGS)]
            found = client.register_agent(f"many-{number}", {"name": "many", "interval": 0, "entities": entities})
            assert {each["outcome"] for each in found["entities"]} == {"created"}
        took, used = time.perf_counter() - began, _processor_seconds(service) - before
    return (
        f"{count:,} things registered by {REGISTERED} agents",
        f"{took:.1f} s",
        f"{used:.1f} s of processor",
        "",
        "≤ 5 s",
    )


def _thing(agent: str, number: int) -> dict[str, object]:
    name = f"redis-{agent}-{number}"
    return {"key": name, "type": "ContainerInstance", "name": name, "image": "redis:7", "labels": {"team": "shop"}}


def _heartbeats(service: Service) -> list[Row]:
    phase("heartbeats")
    with drumlin.connect(service.url) as client:
        client.register_agent("root", {"name": "root", "interval": 3600})
        for number in range(AGENTS):
            client.register_agent(f"beats-{number}", {"name": f"beats-{number}", "interval": 30, "parent": "root"})
        before = _generation(client)
        address = urlsplit(service.url)
        with socket.create_connection((address.hostname, address.port or 80)) as connection:
            idle = _share(service, lambda: time.sleep(sized(5, 1)))
            busy = _share(service, lambda: _paced(connection))
            rest = max(0, HEARTBEATS - AGENTS * SECONDS)
            for first in range(0, rest, AGENTS):
                _send(connection, min(AGENTS, rest - first))
        relayed = _share(service, lambda: _relayed(client))
        written = _generation(client) - before
    what = f"{AGENTS:,} agents × 1 heartbeat/s for {SECONDS} s"
    return [
        (f"{what}, a request each", f"{busy - idle:.1%} of a core", f"idle {idle:.1%}", "", ""),
        (f"{what}, through their root agent", f"{relayed - idle:.1%} of a core", f"idle {idle:.1%}", "", "≤ 5 %"),
        (f"writes after {max(HEARTBEATS, AGENTS * SECONDS):,} heartbeats", f"{written}", "", "", "0"),
    ]


def _paced(connection: socket.socket) -> None:
    """Send a heartbeat of each agent every second."""
    began = time.perf_counter()
    for second in range(SECONDS):
        _send(connection, AGENTS)
        time.sleep(max(0.0, began + second + 1 - time.perf_counter()))


def _relayed(client: drumlin.Client) -> None:
    """Send the heartbeats of all agents every second, in one request of the agent above them."""
    below = [f"beats-{number}" for number in range(AGENTS)]
    began = time.perf_counter()
    for second in range(SECONDS):
        assert client.heartbeat("root", below) == []
        time.sleep(max(0.0, began + second + 1 - time.perf_counter()))


def _send(connection: socket.socket, count: int) -> None:
    """Send heartbeats one after the other on one connection, as a gateway of many agents does."""
    for number in range(count):
        path = f"/agents/beats-{number}/heartbeat"
        connection.sendall(f"POST {path} HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\n\r\n".encode())
        answer = b""
        while b"\r\n\r\n" not in answer:
            piece = connection.recv(1 << 16)
            assert piece, "the service has closed the connection"
            answer += piece
        assert answer.startswith(b"HTTP/1.1 204"), answer


def _share(service: Service, work: object) -> float:
    began, before = time.perf_counter(), _processor_seconds(service)
    assert callable(work)
    work()
    return (_processor_seconds(service) - before) / (time.perf_counter() - began)


def _generation(client: drumlin.Client) -> int:
    found: int = client.ready()["generation"]
    return found


def _processor_seconds(service: Service) -> float:
    fields = Path(f"/proc/{service.process.pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")
