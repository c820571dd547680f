"""A service under siege: slow work of one sort, hostile queries and idle connections leave it usable for everybody else."""

from __future__ import annotations

import socket
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, closing, suppress
from pathlib import Path

import httpx
import pytest

from tests.service.conftest import BASE, SAMPLE, Service, serving, until_ready
from tests.waiting import until

RUNAWAY = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
SLOW_UPDATE = f"INSERT {{ GRAPH <http://x/g> {{ <http://x/s> <http://x/p> ?n }} }} WHERE {{ {{ {RUNAWAY} }} }}"
CHECKOUT = "prod/payments/deployment/checkout"
NDJSON = {"Content-Type": "application/x-ndjson"}
SETTINGS = {"DRUMLIN_CONNECTIONS_PER_ADDRESS": "200", "DRUMLIN_QUERY_TIMEOUT": "300"}
"""Nothing here ends because its time is over."""


@pytest.fixture(scope="module")
def silent() -> Iterator[int]:
    """The port of a server that takes connections and never answers."""
    with closing(socket.create_server(("127.0.0.1", 0), backlog=1024)) as listening:
        yield listening.getsockname()[1]


@pytest.fixture(scope="module")
def besieged(tmp_path_factory: pytest.TempPathFactory, silent: int) -> Iterator[Service]:
    """A service with the sample cluster, whose Prometheus is silent."""
    folder = tmp_path_factory.mktemp("siege")
    (folder / "drumlin.toml").write_text(
        f'[[datasource]]\nname = "silent"\nkind = "prometheus"\nurl = "http://127.0.0.1:{silent}"\ntimeout = 600\n'
    )
    options = ["--config", str(folder / "drumlin.toml"), "--store", str(folder / "store"), "--source", f"dump:{SAMPLE}"]
    with serving(*options, environment=SETTINGS) as running:
        until_ready(running)
        yield running


@pytest.fixture
def good(besieged: Service) -> Iterator[httpx.Client]:
    """A client that gives each request some time."""
    with httpx.Client(base_url=besieged.url, timeout=15) as client:
        yield client


def all_is_well(client: httpx.Client, name: str) -> None:
    """Use the service as everybody does; each request has the client's time."""
    assert client.get("/readyz").status_code == 200
    assert client.get(f"/subgraph/{CHECKOUT}").status_code == 200
    assert client.get("/search", params={"q": "checkout"}).status_code == 200
    assert client.post("/sparql", data={"query": f"SELECT ?s {{ ?s ?p ?o }} LIMIT 3 # {name}"}).status_code == 200
    document = {"id": f"{BASE}/id/domain/{name}", "type": "Domain", "name": name}
    assert client.put(
        f"/subgraph/domain/{name}", json=document, headers={"Content-Type": "application/ld+json"}
    ).is_success


def pool(client: httpx.Client, name: str, what: str = "running") -> float:
    """Return a gauge of a pool."""
    line = next(
        each
        for each in client.get("/metrics").text.splitlines()
        if each.startswith(f'drumlin_pool_{what}{{pool="{name}"}}')
    )
    return float(line.rpartition(" ")[2])


def test_a_silent_prometheus_holds_up_nobody_else(besieged: Service, good: httpx.Client) -> None:
    """With 60 clients that wait for a Prometheus that never answers, all else is answered; when they leave, their work ends."""
    with ExitStack() as held:
        for _ in range(60):
            waiting = held.enter_context(
                closing(socket.create_connection(("127.0.0.1", int(besieged.url.rpartition(":")[2]))))
            )
            waiting.sendall(
                f"GET /history?entity={CHECKOUT}&metric=cpu_usage&last=1h&query=up HTTP/1.1\r\nHost: localhost\r\n\r\n".encode()
            )
        until(lambda: pool(good, "telemetry") > 10)
        all_is_well(good, "silent")
    until(lambda: pool(good, "telemetry") == 0)


def test_hostile_updates_hold_up_nobody_else(besieged: Service, good: httpx.Client) -> None:
    """Updates that never end are refused beyond their share, reads, queries and writes go on, and they end with their clients."""

    def attack(_: int) -> int:
        with suppress(httpx.HTTPError):
            return httpx.post(f"{besieged.url}/sparql/update", data={"update": SLOW_UPDATE}, timeout=8).status_code
        return 0

    with ThreadPoolExecutor(45) as attackers:
        results = attackers.map(attack, range(45))
        until(lambda: pool(good, "updates") > 0)
        all_is_well(good, "updates")
        assert 503 in set(results)
    until(lambda: pool(good, "updates") == 0, 60)


@pytest.mark.parametrize("atomic", ["false", "true"])
def test_bulk_requests_end_with_their_clients(besieged: Service, good: httpx.Client, atomic: str) -> None:
    """What clients that have left sent is not read any more, so that those who come later need not wait for it."""
    line = b'{"op":"put","id":"domain/x","document":{"type":"Nonsense","phase":7,"nothing":[1,2,3]}}\n'

    def attack(_: int) -> None:
        with suppress(httpx.HTTPError):
            httpx.post(f"{besieged.url}/subgraphs?atomic={atomic}", content=line * 900, headers=NDJSON, timeout=1)

    with ThreadPoolExecutor(40) as attackers:
        list(attackers.map(attack, range(40)))
        all_is_well(good, f"bulk-{atomic}")
    until(lambda: pool(good, "bulk") == pool(good, "bulk", "queued") == 0, 20)


def test_runaway_queries_leave_a_reader_to_others(besieged: Service, good: httpx.Client) -> None:
    """More runaway queries than there are readers, from one address, and a short query is answered all the same."""
    stop = threading.Event()

    def attack() -> None:
        while not stop.is_set():
            with suppress(httpx.HTTPError):
                httpx.post(f"{besieged.url}/sparql", data={"query": RUNAWAY}, timeout=3)

    attackers = [threading.Thread(target=attack) for _ in range(8)]
    for each in attackers:
        each.start()
    try:
        for turn in range(5):
            all_is_well(good, f"runaway{turn}")
    finally:
        stop.set()
        for each in attackers:
            each.join()


def test_idle_connections_leave_room(besieged: Service) -> None:
    """Of the connections of one address beyond its share, those that send least are cut, and new ones are answered."""
    port = int(besieged.url.rpartition(":")[2])
    with ExitStack() as held:
        idle = [held.enter_context(closing(socket.create_connection(("127.0.0.1", port)))) for _ in range(400)]
        for each in idle:
            each.sendall(b"P")

        def cut() -> int:
            count = 0
            for each in idle:
                with suppress(BlockingIOError):
                    try:
                        count += each.recv(1, socket.MSG_DONTWAIT) == b""
                    except ConnectionResetError:
                        count += 1
            return count

        until(lambda: cut() >= 150, 30)
        with httpx.Client(base_url=besieged.url, timeout=15) as client:
            assert client.get("/livez").status_code == 200


def test_it_ends_in_time_whatever_is_open(tmp_path: Path, silent: int) -> None:
    """SIGTERM ends the process with 0, with histories waiting, updates running and subscribers listening."""
    (tmp_path / "drumlin.toml").write_text(
        f'[[datasource]]\nname = "silent"\nkind = "prometheus"\nurl = "http://127.0.0.1:{silent}"\ntimeout = 600\n'
    )
    options = [
        "--config",
        str(tmp_path / "drumlin.toml"),
        "--store",
        str(tmp_path / "store"),
        "--source",
        f"dump:{SAMPLE}",
    ]
    with serving(*options) as running, ExitStack() as held:
        until_ready(running)
        port = int(running.url.rpartition(":")[2])
        body = f"update={SLOW_UPDATE}".replace(" ", "+").encode()
        requests = [
            f"GET /history?entity={CHECKOUT}&metric=cpu_usage&last=1h HTTP/1.1\r\nHost: localhost\r\n\r\n".encode(),
            b"GET /events HTTP/1.1\r\nHost: localhost\r\nAccept: text/event-stream\r\n\r\n",
            b"POST /sparql/update HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/x-www-form-urlencoded\r\n"
            b"Content-Length: %d\r\n\r\n%s" % (len(body), body),
            b"PUT /subgraph/domain/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 100\r\n\r\nx",
        ]
        for request in requests * 3:
            connection = held.enter_context(closing(socket.create_connection(("127.0.0.1", port))))
            connection.sendall(request)
        with httpx.Client(base_url=running.url, timeout=15) as client:
            until(lambda: pool(client, "telemetry") > 0 and pool(client, "updates") > 0)
        running.process.terminate()
        assert running.process.wait(12) == 0
