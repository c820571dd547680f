"""A service under siege: hostile clients of every sort for ten minutes, beside one good client whose waiting times are the result.

The good client reads, writes, searches, queries and asks whether the service is ready, one after the other, from an address of its own.
The hostile ones are threads in processes of their own: runaway queries and updates, histories of a Prometheus that never answers,
large results that nobody reads, bodies that trickle, connections that only exist, bombs of gzip, deep nesting, invalid documents in
bulk, exports that are broken off, and requests that are none.
"""

from __future__ import annotations

import gzip
import itertools
import multiprocessing
import os
import random
import socket
import statistics
import tempfile
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from urllib.parse import quote, urlsplit

import httpx

from tests.bench.running import phase, sized
from tests.service.conftest import BASE, SAMPLE, serving, until_ready

SECONDS = sized(600.0, 4.0)
HOSTILE = sized(50, 11)
IDLE = sized(4500, 50)
"""Connections of one hostile client that only exist."""
RUNAWAY = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
CHECKOUT = "prod/payments/deployment/checkout"
_PAGE = os.sysconf("SC_PAGE_SIZE")
_PATIENCE = 120

Attack = Callable[[str, random.Random], None]


def run() -> list[tuple[str, str, str, str, str]]:
    """Besiege a service; rows of the table."""
    with (
        tempfile.TemporaryDirectory() as folder,
        closing(socket.create_server(("127.0.0.1", 0), backlog=4096)) as silent,
    ):
        settings = Path(folder) / "drumlin.toml"
        settings.write_text(
            f'[[datasource]]\nname = "silent"\nkind = "prometheus"\nurl = "http://127.0.0.1:{silent.getsockname()[1]}"\n'
        )
        options = ["--config", str(settings), "--store", f"{folder}/store", "--source", f"dump:{SAMPLE}"]
        with serving(*options) as service:
            until_ready(service)
            pid = service.process.pid
            with _besieged(service.url):
                phase("siege")
                times, failures, most = _good_client(service.url, pid)
            assert service.process.poll() is None, "the service ended"
            phase("recovery")
            recovered = _recovery(service.url)
    rows = [
        (
            f"{what}, p50 / p99",
            f"{statistics.median(found) * 1e3:.0f} ms",
            f"{_p99(found) * 1e3:.0f} ms",
            f"{len(found):,} ×",
            "p99 ≤ 500 ms",
        )
        for what, found in times.items()
    ]
    return [
        *rows,
        ("answers 5xx or none, of the good client", f"{failures}", "", "", "0"),
        ("memory of all processes, at most", f"{most / 2**20:,.0f} MB", "", "", "≤ 2,048 MB"),
        ("until everything is idle", recovered, "", "", "≤ 30 s"),
    ]


# -- the good client ---------------------------------------------------------------------------------------------------
def _good_client(url: str, pid: int) -> tuple[dict[str, list[float]], int, int]:
    """Use the service as everybody does; return the times by kind, the failures, and the memory (bytes) at most."""
    times: defaultdict[str, list[float]] = defaultdict(list)
    failures = most = 0
    transport = httpx.HTTPTransport(local_address="127.0.0.2")
    with httpx.Client(base_url=url, timeout=30, transport=transport) as client:
        ends = time.monotonic() + SECONDS
        for number in itertools.count():
            if time.monotonic() > ends:
                break
            for what, ask in _uses(client, number).items():
                began = time.perf_counter()
                try:
                    failures += ask().status_code >= 500
                except httpx.HTTPError:
                    failures += 1
                times[what].append(time.perf_counter() - began)
            most = max(most, _memory(pid))
            time.sleep(0.05)
    return times, failures, most


def _uses(client: httpx.Client, number: int) -> dict[str, Callable[[], httpx.Response]]:
    document = {"id": f"{BASE}/id/domain/good", "type": "Domain", "name": f"good {number}"}
    headers = {"Content-Type": "application/ld+json"}
    query = f"SELECT ?s ?o {{ ?s a ?o }} LIMIT 10 # {number}"
    return {
        "GET /subgraph": lambda: client.get(f"/subgraph/{CHECKOUT}"),
        "PUT /subgraph": lambda: client.put("/subgraph/domain/good", json=document, headers=headers),
        "GET /search": lambda: client.get("/search", params={"q": "checkout"}),
        "short SELECT": lambda: client.post("/sparql", data={"query": query}),
        "GET /readyz": lambda: client.get("/readyz"),
    }


def _p99(times: list[float]) -> float:
    return sorted(times)[min(len(times) - 1, int(len(times) * 0.99))]


def _memory(pid: int) -> int:
    """Return the private memory of a process and all its children, in bytes."""
    total = 0
    for each in [pid, *_children(pid)]:
        with suppress(OSError):
            fields = Path(f"/proc/{each}/statm").read_text().split()
            total += (int(fields[1]) - int(fields[2])) * _PAGE
    return total


def _children(pid: int) -> Iterator[int]:
    with suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                yield int(child)
                yield from _children(int(child))


def _recovery(url: str) -> str:
    """Return how long it takes until nothing runs or waits, or what still does after two minutes."""
    began = time.monotonic()
    while busy := _busy(url):
        if time.monotonic() - began > _PATIENCE:
            return f"not within {_PATIENCE} s: {', '.join(busy)}"
        time.sleep(0.2)
    return f"{time.monotonic() - began:.0f} s"


def _busy(url: str) -> list[str]:
    """Return the pools of the service that have work, as its metrics say; what it answered where it does not have them."""
    try:
        lines = httpx.get(f"{url}/metrics", timeout=5).text.splitlines()
    except httpx.HTTPError as error:
        return [f"/metrics: {error!r}"]
    pools = [each for each in lines if each.startswith(("drumlin_pool_running", "drumlin_pool_queued"))]
    return [each for each in pools if not (each.endswith(" 0.0") or '"probes"' in each)] if pools else lines[:1]


# -- the hostile ones --------------------------------------------------------------------------------------------------
@contextmanager
def _besieged(url: str) -> Iterator[None]:
    """Attack from processes of their own until the block ends."""
    context = multiprocessing.get_context("spawn")
    stop = context.Event()
    attacks = [context.Process(target=_attack, args=(url, share, stop)) for share in range(2)]
    for each in attacks:
        each.start()
    try:
        yield
    finally:
        stop.set()
        for each in attacks:
            each.join(5)
            if each.is_alive():
                each.kill()


def _attack(url: str, share: int, stop: threading.Event) -> None:
    """Run half of the hostile clients, each in a thread: it attacks in its way, again and again."""

    def again(number: int) -> None:
        chance = random.Random(number)
        attack = ATTACKS[number % len(ATTACKS)]
        while not stop.is_set():
            with suppress(Exception):  # whatever becomes of it
                attack(url, chance)
            stop.wait(0.01)

    threads = [threading.Thread(target=again, args=(number,), daemon=True) for number in range(share, HOSTILE, 2)]
    for each in threads:
        each.start()
    stop.wait()


def _query(url: str, _: random.Random) -> None:
    httpx.post(f"{url}/sparql", data={"query": RUNAWAY}, timeout=20)


def _update(url: str, _: random.Random) -> None:
    text = f"INSERT {{ GRAPH <http://x/g> {{ <http://x/s> <http://x/p> ?n }} }} WHERE {{ {{ {RUNAWAY} }} }}"
    httpx.post(f"{url}/sparql/update", data={"update": text}, timeout=20)


def _history(url: str, _: random.Random) -> None:
    httpx.get(
        f"{url}/history", params={"entity": CHECKOUT, "metric": "cpu_usage", "last": "30d", "query": "up"}, timeout=20
    )


def _unread(url: str, _: random.Random) -> None:
    """Ask for a large result and read nothing of it."""
    query = quote("SELECT * { ?a ?b ?c . ?d ?e ?f }")
    with closing(_connected(url)) as connection:
        connection.sendall(f"GET /sparql?query={query} HTTP/1.1\r\nHost: localhost\r\n\r\n".encode())
        time.sleep(5)


def _trickle(url: str, _: random.Random) -> None:
    """Send a body one byte a second."""
    with closing(_connected(url)) as connection:
        connection.sendall(b"PUT /subgraph/domain/x HTTP/1.1\r\nHost: localhost\r\nContent-Length: 1000\r\n\r\n")
        for _ in range(60):
            connection.sendall(b" ")
            time.sleep(1)


def _idlers(url: str, _: random.Random) -> None:
    """Open thousands of connections and send a byte over each from time to time."""
    idle = []
    try:
        for _ in range(IDLE // 4):
            with suppress(OSError):
                idle.append(_connected(url))
        for _ in range(4):
            for each in idle:
                with suppress(OSError):
                    each.sendall(b"G")
            time.sleep(5)
    finally:
        for each in idle:
            each.close()


def _bomb(url: str, _: random.Random) -> None:
    """Send half a megabyte that unpacks to 500."""
    headers = {"Content-Encoding": "gzip", "Content-Type": "application/x-ndjson"}
    httpx.post(f"{url}/subgraphs", content=_BOMB, headers=headers, timeout=60)


def _nested(url: str, chance: random.Random) -> None:
    """Send lists in lists."""
    depth = chance.choice((100, 10_000, 100_000))
    text = f"<{BASE}/id/domain/x> <http://x/p> {'(' * depth}{')' * depth} ."
    httpx.put(f"{url}/subgraph/domain/x", content=text.encode(), headers={"Content-Type": "text/turtle"}, timeout=60)


def _invalid(url: str, _: random.Random) -> None:
    """Send a thousand invalid documents at once."""
    line = b'{"op":"put","id":"domain/x","document":{"type":"Nonsense","phase":7,"nothing":[1,2,3]}}\n'
    httpx.post(f"{url}/subgraphs", content=line * 1000, headers={"Content-Type": "application/x-ndjson"}, timeout=60)


def _export(url: str, _: random.Random) -> None:
    """Begin an export and leave."""
    with httpx.stream("GET", f"{url}/export", timeout=20) as answer:
        next(answer.iter_bytes(), None)


def _noise(url: str, chance: random.Random) -> None:
    """Send bytes that are no request."""
    with closing(_connected(url)) as connection:
        connection.sendall(chance.randbytes(chance.randrange(1, 5000)))
        connection.recv(100)


def _connected(url: str) -> socket.socket:
    return socket.create_connection(("127.0.0.1", urlsplit(url).port or 80), 10)


ATTACKS: tuple[Attack, ...] = (
    _query, _update, _history, _unread, _trickle, _idlers, _bomb, _nested, _invalid, _export, _noise,
)  # fmt: skip
_BOMB = gzip.compress(b"\n" * (500 << 20 if SECONDS > 60 else 5 << 20), 9)
