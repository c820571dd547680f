"""The writer alone: many threads that replace graphs of 33 statements, and 100,000 writes after which everything must be bounded."""

from __future__ import annotations

import json
import tempfile
import threading
import time
from collections.abc import Iterator
from pathlib import Path

from drumlin.kg.rdf import jsonld
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.bench.running import phase, sized

WRITERS, SECONDS, GRAPHS = 16, sized(10.0, 0.5), sized(50, 4)
MANY, FLIPPED = sized((100_000, 1000), (200, 100))
SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "contract" / "graphs" / "node.jsonld"


def run() -> list[tuple[str, str, str, str, str]]:
    """Measure the rate and the times of writers, then what 100,000 writes leave behind."""
    if not SHARED.exists():
        return [("writes", "", "", f"skipped: {SHARED.name} of the contract is not here", "")]
    with tempfile.TemporaryDirectory() as name:
        store = EmbeddedStore(Path(name) / "store")
        try:
            return [*_rates(store), *_bounds(store)]
        finally:
            store.close()


def _versions(graph: str) -> list[GraphWrite]:
    """Make two contents of one graph that differ in one statement."""
    lines = jsonld.lines(json.loads(SHARED.read_text().replace("prod/-/node/edge-a-gpu-1", graph)))
    iri = f"https://kg.example/id/{graph}"
    return [GraphWrite.of(iri, lines | {f'<{iri}> <http://p/v> "{value}" .'}, "user") for value in (0, 1)]


def _rates(store: EmbeddedStore) -> Iterator[tuple[str, str, str, str, str]]:
    phase(f"{WRITERS} writers")
    stop = threading.Event()
    seconds: list[float] = []

    def write(number: int) -> None:
        versions = [_versions(f"prod/-/node/n{number}-{each}") for each in range(GRAPHS)]
        turn, mine = 0, []
        while not stop.is_set():
            began = time.perf_counter()
            store.apply([versions[turn % GRAPHS][turn // GRAPHS % 2]])
            mine.append(time.perf_counter() - began)
            turn += 1
        seconds.extend(mine)

    threads = [threading.Thread(target=write, args=(number,)) for number in range(WRITERS)]
    began = time.perf_counter()
    for each in threads:
        each.start()
    time.sleep(SECONDS)
    stop.set()
    for each in threads:
        each.join()
    rate = len(seconds) / (time.perf_counter() - began)
    seconds.sort()
    slow = seconds[len(seconds) * 99 // 100] * 1000
    yield f"{WRITERS} writers in one process, 33 statements, durable", f"{rate:,.0f}/s", "", "", "≥ 2,500/s"
    yield "  99 of 100 within", f"{slow:.1f} ms", "", "", "≤ 20 ms"


def _bounds(store: EmbeddedStore) -> Iterator[tuple[str, str, str, str, str]]:
    """Flip ``FLIPPED`` graphs, all in turn, until there are ``MANY`` writes, in writes of ten graphs, and look at the files and the memory at every tenth."""
    phase(f"{MANY:,} writes")
    versions = [_versions(f"prod/-/node/m{number}") for number in range(FLIPPED)]
    before, wal, files, size = _rss(), 0, 0, 0
    first = store.stored_bytes()
    for turn in range(MANY // FLIPPED):
        for start in range(0, FLIPPED, 10):
            threads = [
                threading.Thread(target=store.apply, args=([each[turn % 2]],)) for each in versions[start : start + 10]
            ]
            for each in threads:
                each.start()
            for each in threads:
                each.join()
        wal = max(wal, store.wal_bytes)
        files = max(files, len(list((store.directory / "quads").glob("*.sst"))))
        size = max(size, store.stored_bytes())
    log = sum(each.stat().st_size for each in store.directory.glob("changes.sqlite*"))
    yield f"{MANY:,} writes: largest write-ahead log", f"{wal / 1e6:.0f} MB", "", "", "≤ 64 MB"
    yield "  most table files", f"{files}", "", "", "bounded"
    yield (
        "  largest directory (before; of it the change log)",
        f"{size / 1e6:.0f} MB",
        f"{first / 1e6:.0f}; {log / 1e6:.0f} MB",
        "",
        "",
    )
    yield "  memory of the process (before)", f"{_rss():.0f} MB", f"{before:.0f} MB", "", "bounded"


def _rss() -> float:
    (line,) = [each for each in Path("/proc/self/status").read_text().splitlines() if each.startswith("VmRSS:")]
    return int(line.split()[1]) / 1024
