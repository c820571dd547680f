"""``/sparql`` against ``oxigraph serve`` on the same quads, in alternating rounds, load from outside (wrk); rows 1-5 of the design's targets.

The peer neither isolates queries nor can stop them, and nothing is written to it meanwhile; it is asked over the union of all graphs, too.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from urllib.parse import quote

import httpx

from drumlin.api.demo.prometheus import free_port
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.bench.running import BenchFailed, Row, phase, sized, wait_for
from tests.service.conftest import BASE, Service, serving

WORKLOADS, DISTINCT, ONCE, ROUNDS, SECONDS = sized((38_000, 5_000, 38_000, 3, 4), (500, 100, 500, 1, 1))
LEAVES = sized(5, 1)
NS = "https://w3id.org/drumlin/ns#"
# A million million rows, counted one by one: it takes hours on any machine, and no memory. (Joins of all quads with all quads take more
# memory the faster the machine is, and end at the reader's limit before their deadline.)
RUNAWAY = f"SELECT (COUNT(*) AS ?n) {{ {' '.join(f'VALUES ?v{n} {{ 0 1 2 3 4 5 6 7 8 9 }}' for n in range(12))} }}"
LARGE = "SELECT ?s ?p ?o { ?s ?p ?o } LIMIT 100000"


def run() -> list[Row]:
    """Measure all rows; about four minutes."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        phase("filling the store")
        _generate(directory)
        with (
            serving("--store", str(directory / "ours"), environment={"DRUMLIN_QUERY_KILLS": "1000"}) as ours,
            _oxigraph(directory / "peer") as peer,
        ):
            _settle(ours)
            return [
                _repeated(ours, peer, directory),
                *_distinct(ours, peer, directory),
                *_large(ours, peer),
                _fresh(ours),
                *_runaway(ours),
                _left(ours),
            ]


# -- what is asked --------------------------------------------------------------------------------------------------------
def _generate(directory: Path) -> None:
    store = EmbeddedStore(directory / "ours")
    for start in range(0, WORKLOADS, 2000):
        writes = [
            GraphWrite.of(_iri(number), frozenset(_lines(number)), "dump")
            for number in range(start, min(start + 2000, WORKLOADS))
        ]
        store.apply(writes)
    store.checkpoint(directory / "peer")
    (directory / "ours" / "base").write_text(BASE + "\n")
    store.close()


def _settle(ours: Service) -> None:
    """Have the search index of the new store built before anything is measured: that takes a minute of processor time."""
    phase("settling")
    with _writing(ours, 1):
        pass
    quiet, deadline = 0, time.monotonic() + 300
    while quiet < sized(3, 1) and time.monotonic() < deadline:
        before = _cpu(ours.process.pid)
        time.sleep(1)
        quiet = quiet + 1 if _cpu(ours.process.pid) - before < 0.1 else 0


def _cpu(pid: int) -> float:
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def _iri(number: int) -> str:
    return f"{BASE}/id/prod/ns-{number % 50}/deployment/app-{number}"


def _lines(number: int) -> Iterator[str]:
    me = _iri(number)
    yield f"<{me}> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <{NS}Deployment> ."
    yield f'<{me}> <{NS}name> "app-{number}" .'
    yield f'<{me}> <{NS}namespace> "ns-{number % 50}" .'
    yield f"<{me}> <{NS}scheduledOn> <{BASE}/id/prod/-/node/node-{number % 1000}> ."
    yield f'<{me}> <{NS}labels> "team=t{number % 100}" .'
    for metric in ("cpu_usage", "mem_usage", "disk_usage", "network_usage"):
        one = f"{me}/metrics/{metric}"
        yield f"<{me}> <{NS}metric> <{one}> ."
        yield f'<{one}> <{NS}name> "{metric}" .'
        yield f'<{one}> <{NS}unit> "By" .'
        yield f'<{one}> <{NS}query> "{metric}{{pod=~\\"app-{number}-.*\\"}}" .'
        yield f"<{one}> <{NS}datasource> <{BASE}/id/datasource/prometheus> ."


def _queries(count: int = DISTINCT) -> list[str]:
    shapes = (
        "SELECT ?p ?o WHERE {{ <{iri}> ?p ?o }}",
        "SELECT ?name ?unit ?query WHERE {{ <{iri}> <{ns}metric> ?m . ?m <{ns}name> ?name ; <{ns}unit> ?unit ; <{ns}query> ?query }}",
        "SELECT ?w ?node WHERE {{ ?w <{ns}name> 'app-{n}' ; a <{ns}Deployment> ; <{ns}scheduledOn> ?node }}",
        "SELECT ?query ?source WHERE {{ ?w <{ns}name> 'app-{n}' ; <{ns}metric> ?m . ?m <{ns}name> 'cpu_usage' ; <{ns}query> ?query ; <{ns}datasource> ?source }}",
        "SELECT ?g ?type WHERE {{ GRAPH ?g {{ <{iri}> a ?type }} }}",
    )
    return [shapes[n % 5].format(iri=_iri(n * 7 % WORKLOADS), ns=NS, n=n * 7 % WORKLOADS) for n in range(count)]


# -- wrk ------------------------------------------------------------------------------------------------------------------
def _wrk(url: str, path: str, queries: list[str], directory: Path) -> tuple[float, float, float]:
    """Return requests/s and the 50th and 99th percentile in ms, of 16 connections; raises when an answer is not 200."""
    script = directory / "queries.lua"
    paths = ",\n".join(json.dumps(f"{path}?query={quote(each, safe='')}") for each in queries)
    script.write_text(
        f"local paths = {{\n{paths}\n}}\nlocal at = 0\n"
        "request = function() at = at % #paths + 1; return wrk.format('GET', paths[at], {Accept = 'application/sparql-results+json'}) end\n"
    )
    command = ["wrk", "-t1", "-c16", f"-d{SECONDS}s", "--latency", "-s", str(script), url]
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    if "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(said)
    rate = re.search(r"Requests/sec:\s+([\d.]+)", said)
    found = {share: _milliseconds(text) for share, text in re.findall(r"(\d\d)%\s+([\d.]+\w+)", said)}
    assert rate
    return float(rate[1]), found["50"], found["99"]


def _milliseconds(text: str) -> float:
    number = float(re.sub(r"[a-z]", "", text))
    return number / 1000 if text.endswith("us") else number if text.endswith("ms") else number * 1000


def _repeated(ours: Service, peer: str, directory: Path) -> Row:
    phase("repeated query")
    query = _queries()[1:2]
    pairs = [
        (_wrk(ours.url, "/sparql", query, directory), _wrk(peer, "/query", query, directory)) for _ in range(ROUNDS)
    ]
    return _rates("repeated query, 16 connections", pairs, "≥ 1.4")


def _distinct(ours: Service, peer: str, directory: Path) -> list[Row]:
    phase("distinct queries")
    queries = _queries()
    once = _queries(ONCE)
    alone = [(_wrk(ours.url, "/sparql", once, directory), _wrk(peer, "/query", once, directory))]
    pairs = []
    for _ in range(ROUNDS):
        with _writing(ours, 50):
            mine = _wrk(ours.url, "/sparql", queries, directory)
        pairs.append((mine, _wrk(peer, "/query", queries, directory)))
    return [
        _rates(f"{DISTINCT:,} distinct queries beside 50 writes/s", pairs, "≥ 0.4"),
        _rates(f"  without writes, {ONCE:,} queries, none of them twice", alone, ""),
    ]


def _rates(what: str, pairs: list[tuple[tuple[float, float, float], tuple[float, float, float]]], target: str) -> Row:
    mine, theirs = (sorted(each[side] for each in pairs)[len(pairs) // 2] for side in (0, 1))
    shown = [f"{rate:,.0f}/s, p50 {half:.1f}, p99 {most:.1f} ms" for rate, half, most in (mine, theirs)]
    ratio = statistics.median(ours[0] / peer[0] for ours, peer in pairs)
    return what, shown[0], shown[1], f"{ratio:.2f}", target


# -- one request at a time ------------------------------------------------------------------------------------------------
def _large(ours: Service, peer: str) -> list[Row]:
    phase("large result")
    before = _rss(ours.process.pid)
    mine, theirs = [], []
    with httpx.Client(timeout=60) as http:  # kept: making one takes longer than the first byte
        for _ in range(5):
            mine.append(_fetch(http, f"{ours.url}/sparql"))
            theirs.append(_fetch(http, f"{peer}/query"))
    (first, total), (peer_first, peer_total) = (
        tuple(statistics.median(each[at] for each in found) for at in (0, 1)) for found in (mine, theirs)
    )
    grown = (_rss(ours.process.pid) - before) / 2**20
    return [
        (
            "100k-row SELECT, total",
            f"{total * 1000:.0f} ms",
            f"{peer_total * 1000:.0f} ms",
            f"{total / peer_total:.2f}",
            "≤ 1.2",
        ),
        (
            "  first byte; growth of the service's RSS",
            f"{first * 1000:.1f} ms, {grown:+.0f} MB",
            f"{peer_first * 1000:.1f} ms",
            "",
            "≤ 20 ms",
        ),
    ]


def _fetch(http: httpx.Client, url: str) -> tuple[float, float]:
    began = time.perf_counter()
    with http.stream(
        "GET",
        url,
        params={"query": LARGE},
        headers={"Accept": "application/sparql-results+json", "Accept-Encoding": "identity"},
    ) as answer:
        chunks = answer.iter_raw()
        next(chunks)
        first = time.perf_counter() - began
        for _ in chunks:
            pass
    return first, time.perf_counter() - began


def _fresh(ours: Service) -> Row:
    """Each query asks for what was acknowledged last."""
    phase("fresh results")
    took: list[float] = []
    with _writing(ours, 200) as newest, httpx.Client(timeout=30) as http:
        deadline = time.monotonic() + 2 * SECONDS
        while time.monotonic() < deadline:
            least = newest[0]
            began = time.perf_counter()
            answer = http.get(
                f"{ours.url}/sparql",
                params={"query": "SELECT ?v { <https://kg.example/bench> <https://kg.example/v> ?v }"},
            )
            took.append(time.perf_counter() - began)
            seen = int(answer.json()["results"]["bindings"][0]["v"]["value"])
            if seen < least:
                raise AssertionError(f"stale: {seen} < {least}")
            time.sleep(0.02)
        written = newest[1]
    return (
        f"query beside {written / (2 * SECONDS):.0f} writes/s, strictly fresh",
        f"p50 {_percentile(took, 50):.1f}, p99 {_percentile(took, 99):.1f} ms",
        "",
        "",
        "4 / 15 ms",
    )


def _runaway(ours: Service) -> list[Row]:
    phase("runaway queries")
    late: list[float] = []
    quiet = _paced(ours)
    stop = threading.Event()

    def again() -> None:
        while not (stop.is_set() and late):
            began = time.perf_counter()
            answer = httpx.get(
                f"{ours.url}/sparql", params={"query": f"{RUNAWAY} LIMIT {len(late) + 1}", "timeout": "1"}, timeout=30
            )
            if answer.status_code != 504:
                raise BenchFailed(f"a runaway was answered by {answer.status_code}: {answer.text[:300]}")
            late.append(time.perf_counter() - began - 1)

    with ThreadPoolExecutor(1) as pool:
        runaways = pool.submit(again)
        try:
            beside = _paced(ours)
        finally:
            stop.set()
        runaways.result()
    return [
        (f"{len(late)} runaways: 504 after the deadline by, at most", f"{max(late) * 1000:.0f} ms", "", "", "≤ 200 ms"),
        (
            "  p99 of paced queries beside one, and without",
            f"{beside:.1f} ms",
            f"{quiet:.1f} ms",
            f"{beside / quiet:.2f}",
            "≤ 3",
        ),
    ]


def _left(ours: Service) -> Row:
    """A client asks for what never ends and leaves: until its reader has ended, or is free."""
    phase("clients that leave")
    freed = []
    with httpx.Client(timeout=30) as http:
        for _ in range(LEAVES):
            before = _abandoned(http, ours)
            with suppress(httpx.TimeoutException):
                httpx.get(f"{ours.url}/sparql", params={"query": RUNAWAY}, timeout=0.5)
            left = time.perf_counter()
            wait_for(
                lambda was=before: _abandoned(http, ours) != was, "the reader of a client that left", 30, every=0.01
            )
            freed.append(time.perf_counter() - left)
    return "reader free after its client left, at most", f"{max(freed) * 1000:.0f} ms", "", "", "≤ 1 s"


def _abandoned(http: httpx.Client, ours: Service) -> str:
    found = re.search(r'drumlin_reader_restarts_total{reason="abandoned"} (\S+)', http.get(f"{ours.url}/metrics").text)
    return found[1] if found else ""


def _paced(ours: Service) -> float:
    took = []
    with httpx.Client(timeout=30) as http:
        for query in _queries()[: 100 * SECONDS]:
            began = time.perf_counter()
            http.get(f"{ours.url}/sparql", params={"query": query + " OFFSET 0"}).raise_for_status()
            took.append(time.perf_counter() - began)
            time.sleep(0.015)
    return _percentile(took, 99)


def _percentile(values: list[float], share: int) -> float:
    return statistics.quantiles(values, n=100)[share - 1] * 1000


@contextmanager
def _writing(ours: Service, rate: int) -> Iterator[list[int]]:
    """Write so often per second; yields [the value acknowledged last, how many]."""
    newest, stop = [0, 0], threading.Event()

    def write() -> None:
        due = time.monotonic()
        with httpx.Client(timeout=30) as http:
            while not stop.is_set():
                value = newest[0] + 1
                content = f"<https://kg.example/bench> <https://kg.example/v> {value} ."
                http.put(
                    f"{ours.url}/store?graph=https://kg.example/bench",
                    content=content,
                    headers={"Content-Type": "text/turtle"},
                ).raise_for_status()
                newest[0], newest[1] = value, newest[1] + 1
                due += 1 / rate
                time.sleep(max(0.0, due - time.monotonic()))

    newest[0] = int(time.time())
    with ThreadPoolExecutor(1) as pool:
        writer = pool.submit(write)
        try:
            wait_for(lambda: newest[1] or writer.done(), "the first write", every=0.01)
            yield newest
        finally:
            stop.set()
        writer.result()  # raises what stopped it


def _rss(pid: int) -> int:
    return int(Path(f"/proc/{pid}/statm").read_text().split()[1]) * 4096


def _answers(url: str) -> bool:
    try:
        httpx.get(url)
    except httpx.TransportError:
        return False
    return True


@contextmanager
def _oxigraph(directory: Path) -> Iterator[str]:
    port = free_port()
    binary = Path(sys.executable).parent / "oxigraph"
    process = subprocess.Popen(
        [str(binary), "serve", "--location", str(directory), "--bind", f"127.0.0.1:{port}", "--union-default-graph"],
        stderr=subprocess.DEVNULL,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for(lambda: _answers(url), "oxigraph serve to answer", 30)
        yield url
    finally:
        process.terminate()
        process.wait()
