"""A writing process that is killed at any moment, and what must hold afterwards: for the suite (some kills) and the bench (many).

The process writes from many threads at once, so that batches form; removes and bulk-loads graphs, counts in one graph through
preconditions, and takes checkpoints, all the while; every other life shortens the change log. What it tells on stdout is what was acknowledged.
"""

from __future__ import annotations

import random
import shutil
import subprocess
import sys
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pyoxigraph as ox

from drumlin.kg.rdf.syntax import by_graph, digest
from drumlin.kg.store.embedded.store import EmbeddedStore

ROOT = Path(__file__).parents[1]
WRITERS, COUNTERS = 8, 3
BULK = 40
COUNTER = "http://c/counter"
PROCESS = f"""
import os, shutil, sys, threading, time
from pathlib import Path
from drumlin.kg.errors import PreconditionFailed
from datetime import timedelta
from drumlin.kg.store.embedded import engine_applier, retention, writer
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.store.embedded.retention import Kept

retention.EVERY, retention.STEP = 8, 40
writer.BULK, engine_applier.LOADED, engine_applier.CHUNK, engine_applier.FLUSH_BYTES = 20, 15, 7, 64 * 1024
life = sys.argv[2]
kept = Kept(timedelta(0), 1 << 30) if int(life) % 2 else None  # what may go goes
store = EmbeddedStore(Path(sys.argv[1]), kept=kept)

def lines(graph, value):
    return frozenset(f'<{{graph}}> <http://p/{{n}}> "{{value}}" .' for n in range(12))

def acknowledge(*words):
    os.write(1, (" ".join(map(str, words)) + chr(10)).encode())

def one(name):
    graph, value = f"http://g/{{life}}/{{name}}", 0
    while True:  # every tenth write removes the graph
        store.apply([GraphWrite.of(graph, None if value % 10 == 9 else lines(graph, value), "user")])
        acknowledge("one", graph, value)
        value += 1

def count():
    while True:
        stored = store.read("{COUNTER}")
        value = 1 + int(next(iter(stored.lines)).split('"')[1]) if stored else 1
        try:
            store.apply([GraphWrite.of("{COUNTER}", lines("{COUNTER}", value), "user", stored.entry.digest if stored else None)])
            acknowledge("count", "{COUNTER}", value)
        except PreconditionFailed:
            continue

def bulk():
    for batch in range(10**6):
        names = [f"http://b/{{life}}/{{batch}}/{{n}}" for n in range({BULK})]
        replaced = f"http://r/{{life}}"
        store.apply([GraphWrite.of(each, lines(each, batch), "bulk") for each in names]
                    + [GraphWrite.of(replaced, lines(replaced, batch), "bulk")])
        acknowledge("bulk", "-", batch)
        time.sleep(0.03)  # or the others would hardly write

def backup():
    folder = Path(sys.argv[1] + "-copy")
    while True:
        shutil.rmtree(folder, ignore_errors=True)
        acknowledge("backup", "-", store.checkpoint(folder))

threads = [(one, (n,)) for n in range({WRITERS})] + [(count, ())] * {COUNTERS} + [(bulk, ()), (backup, ())]
for target, arguments in threads:
    threading.Thread(target=target, args=arguments, daemon=True).start()
threading.Event().wait()
"""


@dataclass
class Told:
    """What one life acknowledged: the last value of each graph, of the counter, of the bulk loads (-1 for none)."""

    ones: dict[str, int] = field(default_factory=dict)
    count: int = 0
    bulk: int = -1
    writes: int = 0


def killed(directory: Path, life: int, moments: random.Random) -> Told:
    """Let a process write for a random while, kill it, and return what it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", PROCESS, str(directory), str(life)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(moments.uniform(0, 0.3))
    process.kill()
    text = first + process.stdout.read()
    process.wait()
    process.stdout.close()
    # The last line may have been cut by the kill: then it was not acknowledged to anybody. The rest is log output.
    words = [line.split() for line in text.decode().split("\n")[:-1]]
    told = Told()
    for kind, graph, value in (each for each in words if len(each) == 3):
        if kind == "one":
            told.ones[graph] = int(value)
        elif kind == "count":
            told.count = max(told.count, int(value))
        elif kind == "bulk":
            told.bulk = int(value)
        told.writes += kind != "backup"
    return told


def held(store: EmbeddedStore, graph: str) -> int | None:
    """Return the value of a graph, None when it is not there; fails when it is half there."""
    stored = store.read(graph)
    if stored is None:
        return None
    values = {line.split('"')[1] for line in stored.lines}
    assert len(values) == 1, f"{graph} is a mixture"
    assert len(stored.lines) == 12, f"{graph} is not whole"
    return int(values.pop())


def check(store: EmbeddedStore, life: int, told: Told, counted: int) -> int:
    """Check that what was acknowledged is there, and nothing by halves; ``counted`` is the counter before. Returns it now."""
    for graph, value in told.ones.items():
        assert held(store, graph) in (_left(value), _left(value + 1)), graph
    for batch in range(told.bulk + 2):  # the one after the last acknowledged: all or nothing
        found = [held(store, f"http://b/{life}/{batch}/{n}") for n in range(BULK)]
        assert found in ([batch] * BULK, [None] * BULK), batch
        assert batch > told.bulk or found[0] == batch, batch
    if told.bulk >= 0:
        assert held(store, f"http://r/{life}") in (told.bulk, told.bulk + 1)
    now = held(store, COUNTER) or 0
    least = max(told.count, counted)
    assert least <= now <= least + COUNTERS
    return now


def _left(value: int) -> int | None:
    """Return what a graph holds after its write number ``value``."""
    return None if value % 10 == 9 else value


def agree(store: EmbeddedStore) -> None:
    """Check that the engine, the entries and the log, read from where it begins, tell the same."""
    store._applied()
    entries = {entry.graph: entry.digest for entry in store.entries()}
    content = by_graph(store._engine.store.dump(format=ox.RdfFormat.N_QUADS) or b"")
    assert {graph: digest(lines) for graph, lines in content.items()} == entries
    assert {each.value for each in store._engine.store.named_graphs()} == set(entries)
    latest: dict[str, str | None] = {}
    generations: dict[int, int] = defaultdict(int)
    since = pruned = store.oldest - 1
    while feed := store.log(since):
        for entry in feed:
            assert entry.graph not in latest or latest[entry.graph] == entry.before
            assert pruned or entry.graph in latest or entry.before is None
            latest[entry.graph] = entry.after
            generations[entry.generation] += 1
        since = feed[-1].generation
    assert list(generations) == list(range(pruned + 1, store.generation + 1))
    before = {each.graph: each.digest for each in store.entries() if each.generation <= pruned}
    assert before.keys().isdisjoint(latest)
    assert {graph: after for graph, after in latest.items() if after} | before == entries


def kill_often(directory: Path, kills: int, seed: int) -> tuple[int, int, int, float]:
    """Kill a writer ``kills`` times and check each time.

    Returns the writes that were acknowledged, the oldest generation that the log tells at the end, the last one, and the longest time
    that opening took, in seconds.
    """
    moments = random.Random(seed)
    acknowledged = counted = generation = oldest = 0
    slowest = 0.0
    for life in range(kills):
        told = killed(directory, life, moments)
        acknowledged += told.writes
        began = time.perf_counter()
        store = EmbeddedStore(directory, rebuild=False)  # a kill is no damage
        slowest = max(slowest, time.perf_counter() - began)
        try:
            assert store.generation >= generation
            generation, oldest = store.generation, store.oldest
            counted = check(store, life, told, counted)
            if life % 5 == 4:
                agree(store)
        finally:
            store.close()
    shutil.rmtree(f"{directory}-copy", ignore_errors=True)
    return acknowledged, oldest, generation, slowest
