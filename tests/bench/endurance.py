"""A service that runs for long: private memory, file handles, threads and files at each quarter of the writes, the last against the first.

The load is mixed: graphs that are replaced in bulk, some written alone, named ones that come and go; queries, each another text;
searches, reads and resolutions, from addresses that change; subscribers of the feed that come and go; histories of a Prometheus that
is dead. What is bounded is full at the first mark: the change log is given room for a tenth of the writes.
"""

from __future__ import annotations

import http.client
import itertools
import json
import os
import socket
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing, contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from urllib.parse import quote, urlencode, urlsplit

from tests.bench.running import phase, sized, wait_for
from tests.service.conftest import BASE, SAMPLE, serving, until_ready

WRITES = next((int(each) for each in sys.argv[1:] if each.isdigit()), sized(800_000, 4_000))
"""Writes in all; a number on the command line sets another."""
GRAPHS = sized(2_000, 100)
ALONE = 10
"""Graphs that are written one at a time."""
TOGETHER = sized(500, 50)
"""Lines of one bulk request."""
CHECKOUT = "prod/payments/deployment/checkout"
GROWTH = 1.05
_BYTES_OF_WRITE = 230
_LOOKS = 5
_ADDRESSES = 250
_FORM = {"Content-Type": "application/x-www-form-urlencoded"}


class Sample(NamedTuple):
    """What the service holds: private bytes of its main process, open files, threads, bytes of its store."""

    memory: int
    files: int
    threads: int
    disk: int


def run() -> list[tuple[str, str, str, str, str]]:
    """Load a service and look at each quarter; rows of the table."""
    with tempfile.TemporaryDirectory() as folder, closing(socket.create_server(("127.0.0.1", 0))) as dead:
        address = dead.getsockname()[1]
        dead.close()
        settings = Path(folder) / "drumlin.toml"
        settings.write_text(f'[[datasource]]\nname = "dead"\nkind = "prometheus"\nurl = "http://127.0.0.1:{address}"\n')
        store = Path(folder) / "store"
        room = str(max(2 << 20, WRITES // 10 * _BYTES_OF_WRITE + GRAPHS * 1000))
        environment = {"DRUMLIN_LOG_BYTES": room, "DRUMLIN_QUERY_TIMEOUT": "600"}
        options = ["--config", str(settings), "--store", str(store), "--source", f"dump:{SAMPLE}"]
        with serving(*options, environment=environment) as service:
            until_ready(service)
            load = Load(service.url)
            began = time.monotonic()
            samples = []
            for quarter in range(1, 5):
                writes = WRITES * quarter // 4
                phase(f"{writes:,} writes")
                load.go_on_until(writes)
                samples.append(_sampled(service.process.pid, store))
            seconds = time.monotonic() - began
            assert service.process.poll() is None, "the service ended"
            renewed = _renewals(service.url)
    return [*_rows(samples), _work(load, seconds), ("  engines built anew", f"{renewed:,}", "", "", "")]


def _renewals(url: str) -> int:
    """Return how often the engine was built anew, since it had outgrown its graphs."""
    with closing(http.client.HTTPConnection(urlsplit(url).netloc)) as connection:
        connection.request("GET", "/metrics")
        lines = connection.getresponse().read().decode().splitlines()
    name = 'drumlin_store_engine_renewals_total{outcome="done"} '
    return next(int(float(each.removeprefix(name))) for each in lines if each.startswith(name))


def _rows(samples: Sequence[Sample]) -> Iterator[tuple[str, str, str, str, str]]:
    first, last = samples[0], samples[-1]
    marks = f"{WRITES:,} writes ({WRITES // 4:,})"
    target = "≤ 1.05" if WRITES >= 400_000 else ""
    for what, one, other, unit in (
        ("private memory of the main process", last.memory, first.memory, 1 << 20),
        ("  bytes of the store, without replicas", last.disk, first.disk, 1 << 20),
        ("  open files", last.files, first.files, 1),
        ("  threads", last.threads, first.threads, 1),
    ):
        name, size = f"{marks}: {what}" if unit > 1 and not what.startswith(" ") else what, " MB" if unit > 1 else ""
        yield name, f"{one / unit:,.0f}{size}", f"{other / unit:,.0f}{size}", f"{one / other:.2f}", target
    memory = ", ".join(f"{each.memory / (1 << 20):,.0f}" for each in samples)
    yield "  private memory at each quarter", f"{memory} MB", "", "", ""


def _work(load: Load, seconds: float) -> tuple[str, str, str, str, str]:
    done = ", ".join(f"{count:,} {what}" for what, count in sorted(load.done.items()))
    return "  beside them", done, "", f"{WRITES / seconds:,.0f} writes/s", ""


# -- what is looked at -------------------------------------------------------------------------------------------------
def _sampled(pid: int, store: Path) -> Sample:
    """Look some times, when the load has stopped and its connections are closed, and return the least of each."""
    found = []
    for _ in range(_LOOKS):
        time.sleep(sized(3.0, 0.2))
        process = Path(f"/proc/{pid}")
        fields = dict(line.split(":", 1) for line in (process / "status").read_text().splitlines())
        memory = (
            int(fields["RssAnon"].split()[0]) << 10
        )  # pages of libraries are private when no other process has them
        files, threads = len(os.listdir(process / "fd")), len(os.listdir(process / "task"))  # noqa: PTH208  only counted
        found.append(Sample(memory, files, threads, _size(store)))
    sys.stderr.write(f"    {found[-1]}\n")
    return Sample(*(min(each) for each in zip(*found, strict=True)))


def _size(store: Path) -> int:
    """Return the bytes of a store without the replicas of its readers, of which there are more or fewer."""
    total = 0
    for each in store.rglob("*"):
        with suppress(FileNotFoundError):
            total += each.stat().st_size if each.is_file() and store / "readers" not in each.parents else 0
    return total


# -- the load ----------------------------------------------------------------------------------------------------------
class Load:
    """Clients of a service. ``done`` counts what they did by kind; whatever is answered otherwise than expected ends the bench."""

    def __init__(self, url: str) -> None:
        self._address = urlsplit(url)
        self._numbers = itertools.count()
        self._written = 0
        self._failure: Exception | None = None
        self.done: Counter[str] = Counter()

    def go_on_until(self, writes: int) -> None:
        """Write in bulk until so many graphs were written, with all other work beside it."""
        stop = threading.Event()
        works = (self._alone, self._come_and_go, self._query, self._read, self._follow, self._history)
        others = [threading.Thread(target=self._again, args=(each, stop)) for each in works]
        for each in others:
            each.start()
        try:
            with self._connection() as connection:
                while self._written < writes and self._failure is None:
                    self._bulk(connection)
        finally:
            stop.set()
            for each in others:
                each.join()
        if self._failure is not None:
            raise self._failure
        self._settle()

    def _again(self, work: Callable[[http.client.HTTPConnection, int], None], stop: threading.Event) -> None:
        """Do one kind of work until told to stop, each time over a connection from another address."""
        try:
            while not stop.is_set():
                number = next(self._numbers)
                with self._connection(f"127.0.1.{number % _ADDRESSES + 1}") as connection:
                    work(connection, number)
                self.done[work.__name__.strip("_")] += 1
                stop.wait(0.02)
        except (
            OSError,
            http.client.HTTPException,
            AssertionError,
        ) as error:  # of a thread: raised again where the load was begun
            self._failure = error

    def _settle(self) -> None:
        """Wait until the service has nothing left to do."""

        def idle() -> bool:
            with self._connection() as connection:
                lines = self._ask(connection, "GET", "/metrics").decode().splitlines()
            left = [each for each in lines if each.startswith(("drumlin_store_pending", "drumlin_pool_running"))]
            return all(each.endswith(" 0.0") or '"probes"' in each for each in left)

        wait_for(idle, "the service to be idle", every=0.5)
        with self._connection() as connection:  # what the engine holds until it writes it is no growth
            self._ask(connection, "POST", "/admin/optimize")

    @contextmanager
    def _connection(self, source: str = "127.0.0.1") -> Iterator[http.client.HTTPConnection]:
        address = self._address
        made = http.client.HTTPConnection(address.hostname or "", address.port, timeout=300, source_address=(source, 0))
        with closing(made):
            yield made

    def _ask(
        self,
        connection: http.client.HTTPConnection,
        method: str,
        target: str,
        body: str = "",
        headers: dict[str, str] | None = None,
        expected: tuple[int, ...] = (200,),
    ) -> bytes:
        connection.request(method, target, body.encode() or None, headers or {})
        answer = connection.getresponse()
        content = answer.read()
        if answer.status not in expected:
            raise AssertionError(f"{method} {target}: {answer.status} {content[:500]!r}")
        return content

    def _bulk(self, connection: http.client.HTTPConnection) -> None:
        lines = []
        for number in range(self._written, self._written + TOGETHER):
            id = f"domain/d{number % GRAPHS}"
            document = {"id": f"{BASE}/id/{id}", "type": "Domain", "name": f"version {number // GRAPHS} of {id}"}
            lines.append(json.dumps({"op": "put", "id": id, "document": document}))
        told = self._ask(connection, "POST", "/subgraphs", "\n".join(lines), {"Content-Type": "application/x-ndjson"})
        outcomes = Counter(json.loads(each).get("outcome") for each in told.splitlines())
        if outcomes["created"] + outcomes["replaced"] != TOGETHER:
            raise AssertionError(f"a bulk request: {outcomes} {told[:500]!r}")
        self._written += TOGETHER

    def _alone(self, connection: http.client.HTTPConnection, number: int) -> None:
        id = f"domain/s{number % ALONE}"
        document = {"id": f"{BASE}/id/{id}", "type": "Domain", "name": f"number {number}"}
        headers = {"Content-Type": "application/ld+json"}
        self._ask(connection, "PUT", f"/subgraph/{id}", json.dumps(document), headers, (200, 201, 204))

    def _come_and_go(self, connection: http.client.HTTPConnection, number: int) -> None:
        target = f"/store?graph={quote(f'http://example.org/{number}', safe='')}"
        self._ask(
            connection,
            "PUT",
            target,
            f"<http://example.org/{number}> <http://example.org/p> {number} .",
            {"Content-Type": "text/turtle"},
            (200, 201, 204),
        )
        self._ask(connection, "DELETE", target, expected=(200, 204))

    def _query(self, connection: http.client.HTTPConnection, number: int) -> None:
        text = f"SELECT ?s ?name {{ ?s a ?type ; <https://w3id.org/drumlin/ns#name> ?name }} LIMIT {number % 500 + 1} # {number}"
        self._ask(connection, "POST", "/sparql", urlencode({"query": text}), _FORM)

    def _read(self, connection: http.client.HTTPConnection, number: int) -> None:
        self._ask(connection, "GET", f"/search?q={'checkout' if number % 2 else f'version+{number}'}")
        self._ask(connection, "GET", f"/subgraph/{CHECKOUT}")
        self._ask(connection, "GET", f"/resolve?entity={CHECKOUT}&metric=cpu_usage", expected=(200, 404))

    def _follow(self, connection: http.client.HTTPConnection, number: int) -> None:
        connection.request("GET", "/events", headers={"Accept": "text/event-stream"})
        answer = connection.getresponse()
        for _ in range(number % 50):
            answer.fp.readline()  # and leave in the middle of a stream

    def _history(self, connection: http.client.HTTPConnection, number: int) -> None:
        last = f"{number % 100 + 1}h"
        expected = (200, 404, 502, 503)
        self._ask(connection, "GET", f"/history?entity={CHECKOUT}&metric=cpu_usage&last={last}", expected=expected)
