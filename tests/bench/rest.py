"""PUT and GET of one entity's graph over HTTP against ``oxigraph serve``, and many in one request; load from outside (wrk).

The peer's graph store does the same bytes without validation, ownership, change log or fsync. Rounds alternate, every request is of another
graph, nothing is cached, and a row tells the processor time of either side per request: it scatters less than rates do.
"""

from __future__ import annotations

import json
import os
import re
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path

import httpx

from drumlin.api.demo.prometheus import free_port
from drumlin.kg import rdf
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld
from drumlin.kg.store.embedded.engine_applier import LINGER
from drumlin.kg.validation.validate import validate
from tests.bench.running import Row, phase, sized, wait_for
from tests.service.conftest import BASE, serving

CONNECTIONS, SECONDS, ROUNDS, MANY = 16, *sized((4, 3, 10_000), (1, 1, 200))
GRAPH = Path(__file__).resolve().parents[2].parent / "shared" / "contract" / "graphs" / "node.jsonld"
NAME = "edge-a-gpu-1"
NTRIPLES, JSONLD = "application/n-triples", "application/ld+json"


@dataclass(frozen=True)
class _Side:
    """One of both servers: its process, and the address of a node's graph without the node's name."""

    pid: int
    url: str
    path: str


@dataclass(frozen=True)
class _Round:
    """What one round of wrk came to; ``cpu`` is in ms per request."""

    rate: float
    slow: float
    cpu: float


def run() -> list[Row]:
    """Measure all rows; about five minutes."""
    if not GRAPH.exists():
        return [("rest", "", "", f"skipped: {GRAPH.name} of the contract is not here", "")]
    with (
        tempfile.TemporaryDirectory() as name,
        serving("--store", f"{name}/ours") as service,
        _oxigraph(Path(name) / "peer") as peer,
    ):
        ours = _Side(service.process.pid, service.url, "/subgraph/prod/-/node/")
        return [
            _validation(),
            *_puts(ours, peer, Path(name)),
            *_bulk(service.url, ours, peer, Path(name)),
            *_gets(ours, peer, Path(name)),
        ]


# -- the document ---------------------------------------------------------------------------------------------------------
def _text(name: str) -> bytes:
    return GRAPH.read_bytes().replace(NAME.encode(), name.encode())


def _document(name: str) -> str:
    return json.dumps(json.loads(_text(name)), separators=(",", ":"))


def _ntriples(name: str) -> str:
    return rdf.serialize(jsonld.lines(json.loads(_text(name))), rdf.NTRIPLES).decode()


def _validation() -> Row:
    """Judge the document under a thousand names, none of which was seen before."""
    phase("validation")
    iris = Iris(BASE)
    graphs = [
        (f"{BASE}/id/prod/-/node/v{number}", rdf.parse(_ntriples(f"v{number}").encode(), rdf.NTRIPLES)[None])
        for number in range(1000)
    ]
    began = time.process_time()
    for iri, lines in graphs:
        validate(lines, iri, iris)
    took = time.process_time() - began
    return f"validation of a graph of {len(graphs[0][1])} quads", f"{took:.2f} ms", "", "", "≤ 0.5 ms"


# -- wrk ------------------------------------------------------------------------------------------------------------------
def _wrk(
    side: _Side,
    headers: dict[str, str],
    names: str,
    body: str | None,
    directory: Path,
    seconds: int,
    clients: int = CONNECTIONS,
) -> _Round:
    """Send requests of which none is like another: ``names`` begins the nodes' names, a number follows.

    Reading begins anew after ``MANY``, when what was read first has left every cache (``kg.store.embedded.graph_cache``).
    """
    script = directory / "requests.lua"
    parts = ", ".join(json.dumps(each, ensure_ascii=False) for each in (body or "").split(NAME))
    method = "GET" if body is None else "PUT"
    sent = "nil" if body is None else "table.concat(parts, name)"
    fields = ", ".join(f"[{json.dumps(key)}] = {json.dumps(value)}" for key, value in headers.items())
    script.write_text(
        f"local parts = {{{parts}}}\nlocal headers = {{{fields}}}\nlocal at = 0\n"
        f"request = function()\n  at = at % {MANY * 10 if body else MANY} + 1\n  local name = {json.dumps(names)} .. at\n"
        f"  return wrk.format('{method}', {json.dumps(side.path)} .. name, headers, {sent})\nend\n"
    )
    command = ["wrk", "-t1", f"-c{clients}", f"-d{seconds}s", "--latency", "-s", str(script), side.url]
    before = _cpu(side.pid)
    said = subprocess.run(command, capture_output=True, text=True, check=True, timeout=120).stdout
    spent = _cpu(side.pid) - before
    if "Non-2xx" in said or "Socket errors" in said:
        raise RuntimeError(said)
    rate, count, slow = (
        re.search(each, said) for each in (r"Requests/sec:\s+(\S+)", r"(\d+) requests in", r"\n +99%\s+(\S+)")
    )
    assert rate
    assert count
    assert slow
    return _Round(float(rate[1]), _milliseconds(slow[1]), 1000 * spent / int(count[1]))


def _milliseconds(text: str) -> float:
    number = float(re.sub(r"[a-z]", "", text))
    return number / 1000 if text.endswith("us") else number if text.endswith("ms") else number * 1000


def _row(what: str, pairs: list[tuple[_Round, _Round]], target: str) -> Row:
    ours, peer = (
        _Round(*(statistics.median(getattr(pair[side], name) for pair in pairs) for name in ("rate", "slow", "cpu")))
        for side in (0, 1)
    )
    shown = [f"{each.rate:,.0f}/s, p99 {each.slow:.0f} ms, {each.cpu:.2f} ms CPU" for each in (ours, peer)]
    return what, shown[0], shown[1], f"{statistics.median(a.rate / b.rate for a, b in pairs):.2f}", target


def _puts(ours: _Side, peer: _Side, directory: Path) -> list[Row]:
    """Create graphs; write other content over them; create some from compact JSON-LD, which the peer gets as N-Triples."""
    body = _ntriples(NAME)
    changed = body.replace("/ns#Ready>", "/ns#NotReady>")
    assert changed != body
    triples = {"Content-Type": NTRIPLES}
    new, over, compact = [], [], []
    for turn in range(ROUNDS):
        phase(f"PUT, round {turn + 1} of {ROUNDS}")
        name = f"n{turn}-"
        new.append(_pair(directory, SECONDS, *((side, triples, name, body) for side in (ours, peer))))
        over.append(_pair(directory, max(1, SECONDS // 2), *((side, triples, name, changed) for side in (ours, peer))))
        documents = ours, {"Content-Type": JSONLD}, f"j{name}", _document(NAME)
        compact.append(_pair(directory, SECONDS, documents, (peer, triples, f"j{name}", body)))
    return [
        _row(f"PUT of a new 33-quad graph, {CONNECTIONS} connections", new, "≥ 0.8, p99 ≤ 50 ms"),
        _row("  over one that it changes", over, "≥ 0.8"),
        _row("  the new one as compact JSON-LD", compact, "≥ 0.8"),
    ]


def _pair(directory: Path, seconds: int, *asked: tuple[_Side, dict[str, str], str, str]) -> tuple[_Round, _Round]:
    """Measure both sides, each when both have done what was left of before."""
    rounds = []
    for side, headers, names, body in asked:
        _settled(*(each[0] for each in asked))
        rounds.append(_wrk(side, headers, names, body, directory, seconds))
    return rounds[0], rounds[1]


def _bulk(url: str, ours: _Side, peer: _Side, directory: Path) -> list[Row]:
    """Write many documents in one request after some single PUTs, of many clients and of one, in turn."""
    rates, single, alone, grown = [], [], [], []
    for turn in range(ROUNDS):
        phase(f"many in one request, round {turn + 1} of {ROUNDS}")
        single.append(_alone(ours, CONNECTIONS, turn, directory))
        alone.append(_alone(ours, 1, turn, directory))
        _settled(ours)
        lines = [
            f'{{"op":"put","id":"prod/-/node/b{turn}-{number}","document":{_document(f"b{turn}-{number}")}}}\n'
            for number in range(1, MANY + 1)
        ]
        _forget_peak(ours.pid)
        before = _memory(ours.pid, "VmRSS")
        began = time.perf_counter()
        answer = httpx.post(f"{url}/subgraphs", content="".join(lines).encode(), timeout=120).text
        rates.append(MANY / (time.perf_counter() - began))
        assert answer.count('"outcome":"created"') == MANY
        grown.append(_memory(ours.pid, "VmHWM") - before)
    for number in range(1, MANY + 1, 1000):
        quads = "".join(
            line.removesuffix(" .") + f" <{BASE}/id/prod/-/node/b0-{each}> .\n"
            for each in range(number, number + 1000)
            for line in _ntriples(f"b0-{each}").splitlines()
        )
        httpx.post(f"{peer.url}/store", content=quads, headers={"Content-Type": "application/n-quads"}, timeout=120)
    rate = statistics.median(rates)
    return [
        (
            f"{MANY:,} documents in one request, and single PUTs",
            f"{rate:,.0f}/s",
            f"{statistics.median(single):,.0f}/s ours, single",
            f"{_as_many(rates, single):.1f}",
            "≥ 3,000/s",
        ),
        (
            "  and single PUTs of one client, who waits for each",
            f"{rate:,.0f}/s",
            f"{statistics.median(alone):,.0f}/s ours, single",
            f"{_as_many(rates, alone):.1f}",
            "",
        ),
        ("  most memory it takes beyond what was taken", f"{max(grown):.0f} MB", "", "", "bounded"),
    ]


def _as_many(rates: list[float], others: list[float]) -> float:
    return statistics.median(a / b for a, b in zip(rates, others, strict=True))


def _alone(ours: _Side, clients: int, turn: int, directory: Path) -> float:
    """Measure single PUTs a second, without the peer."""
    _settled(ours)
    names = f"single{clients}-{turn}-"
    return _wrk(ours, {"Content-Type": JSONLD}, names, _document(NAME), directory, SECONDS, clients).rate


def _settled(*sides: _Side) -> None:
    """Wait until nobody has anything left to do of what was written before: it is no work of what is measured next.

    A table to merge, new graphs that the engine takes over after a while (``LINGER``), or what the peer has not synced: the disk would have
    to write that before what ours syncs.
    """
    os.sync()
    seconds = sized(1.0, 0.1)  # between two looks
    idle, ends = 0, time.monotonic() + 60
    while idle <= sized(LINGER, 0) and time.monotonic() < ends:
        before = sum(_cpu(each.pid) for each in sides)
        time.sleep(seconds)
        idle = idle + 1 if sum(_cpu(each.pid) for each in sides) - before < 0.05 else 0


def _gets(ours: _Side, peer: _Side, directory: Path) -> list[Row]:
    """Read graphs that were written in bulk: as N-Triples, the same bytes from both, and as compact JSON-LD, which the peer has not."""
    phase("GET")
    same, compact = [], []
    _settled(ours, peer)
    for _ in range(ROUNDS):
        theirs = _wrk(peer, {"Accept": NTRIPLES}, "b0-", None, directory, SECONDS)
        same.append((_wrk(ours, {"Accept": NTRIPLES}, "b0-", None, directory, SECONDS), theirs))
        compact.append((_wrk(ours, {"Accept": JSONLD}, "b0-", None, directory, SECONDS), theirs))
    return [
        _row("GET of a 33-quad graph as N-Triples", same, "≥ 0.5"),
        _row("  ours as compact JSON-LD", compact, "≥ 0.5"),
    ]


# -- processes ------------------------------------------------------------------------------------------------------------
def _cpu(pid: int) -> float:
    """Return the processor time of a process and its children, those that have ended too, in seconds."""
    children = Path(f"/proc/{pid}/task/{pid}/children").read_text().split()
    found = [_times(pid), *(_times(int(each)) for each in _of_threads(pid, children))]
    return (sum(found[0]) + sum(sum(each[:2]) for each in found[1:])) / os.sysconf("SC_CLK_TCK")


def _of_threads(pid: int, children: list[str]) -> set[str]:
    """Return the children of all threads: a reader belongs to the thread that started it."""
    for each in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(FileNotFoundError, ProcessLookupError):  # it has just ended
            children += each.read_text().split()
    return set(children)


def _times(pid: int) -> list[int]:
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except FileNotFoundError:  # it has just ended
        return [0, 0, 0, 0]
    return [int(each) for each in fields[11:15]]


def _memory(pid: int, what: str) -> float:
    (line,) = [each for each in Path(f"/proc/{pid}/status").read_text().splitlines() if each.startswith(f"{what}:")]
    return int(line.split()[1]) / 1024


def _forget_peak(pid: int) -> None:
    Path(f"/proc/{pid}/clear_refs").write_text("5")


def _answers(url: str) -> bool:
    try:
        httpx.get(url)
    except httpx.TransportError:
        return False
    return True


@contextmanager
def _oxigraph(directory: Path) -> Iterator[_Side]:
    port = free_port()
    binary = Path(sys.executable).parent / "oxigraph"
    process = subprocess.Popen(
        [str(binary), "serve", "--location", str(directory), "--bind", f"127.0.0.1:{port}"], stderr=subprocess.DEVNULL
    )
    url = f"http://127.0.0.1:{port}"
    try:
        wait_for(lambda: _answers(url), "oxigraph serve to answer", 30)
        yield _Side(process.pid, url, f"/store?graph={BASE}/id/prod/-/node/")
    finally:
        process.terminate()
        process.wait()
