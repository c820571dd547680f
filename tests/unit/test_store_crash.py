"""A store whose process is killed at any moment: nothing acknowledged is lost, nothing is half there."""

from __future__ import annotations

import random
import subprocess
import sys
import time
from pathlib import Path

import pytest

from kg.rdf import digest
from kg.store.embedded import EmbeddedStore

KILLS = 20
ROOT = Path(__file__).parents[2]
WRITER = """
import os, sys, threading
from pathlib import Path
from kg.store import writer
from kg.store.embedded import EmbeddedStore
from kg.store.protocol import GraphWrite

writer.BULK, writer.CHUNK = 20, 7
store = EmbeddedStore(Path(sys.argv[1]))
life = sys.argv[2]

def lines(graph, value):
    return frozenset(f'<{graph}> <http://p/{n}> "{value}" .' for n in range(12))

def acknowledge(*words):
    os.write(1, (" ".join(map(str, words)) + chr(10)).encode())

def one(name):
    graph, value = f"http://g/{life}/{name}", 0
    while True:  # every tenth write removes the graph
        store.apply([GraphWrite(graph, None if value % 10 == 9 else lines(graph, value), "user")])
        acknowledge("one", graph, value)
        value += 1

def bulk():
    for batch in range(10**6):
        names = [f"http://b/{life}/{batch}/{n}" for n in range(40)]
        replaced = f"http://r/{life}"
        store.apply([GraphWrite(each, lines(each, batch), "bulk") for each in names]
                    + [GraphWrite(replaced, lines(replaced, batch), "bulk")])
        acknowledge("bulk", batch, 0)

for target, arguments in [(one, ("a",)), (one, ("b",)), (one, ("c",)), (bulk, ())]:
    threading.Thread(target=target, args=arguments, daemon=True).start()
threading.Event().wait()
"""


def killed(directory: Path, life: int, moments: random.Random) -> list[list[str]]:
    """Let a process write for a random while, kill it, and return what it acknowledged."""
    process = subprocess.Popen(
        [sys.executable, "-c", WRITER, str(directory), str(life)], cwd=ROOT, stdout=subprocess.PIPE
    )
    assert process.stdout is not None
    first = process.stdout.readline()
    time.sleep(moments.uniform(0, 0.25))
    process.kill()
    rest = process.stdout.read()
    process.wait()
    process.stdout.close()
    # The last line may have been cut by the kill: then it was not acknowledged to anybody. The rest is log output.
    lines = (first + rest).decode().split("\n")[:-1]
    return [line.split() for line in lines if line.startswith(("one ", "bulk "))]


def held(store: EmbeddedStore, graph: str) -> int | None:
    """Return the value of a graph, None when it is not there; fails when it is half there."""
    stored = store.read(graph)
    if stored is None:
        return None
    values = {line.split('"')[1] for line in stored.lines}
    assert len(values) == 1, f"{graph} is a mixture"
    assert len(stored.lines) == 12, f"{graph} is not whole"
    return int(values.pop())


def agree(store: EmbeddedStore) -> None:
    """Check that engine, entries and log tell the same."""
    entries = {entry.graph: entry for entry in store.entries()}
    content = dict(store.export())
    assert {graph: digest(lines) for graph, lines in content.items()} == {
        graph: entry.digest for graph, entry in entries.items()
    }
    in_engine = store._engine.store.named_graphs()
    assert {each.value for each in in_engine} == set(entries)
    latest: dict[str, str | None] = {}
    generations: set[int] = set()
    for entry in store.log(0, limit=10**9):
        assert latest.get(entry.graph) == entry.before
        latest[entry.graph] = entry.after
        generations.add(entry.generation)
    assert generations == set(range(1, store.generation + 1))
    assert {graph: after for graph, after in latest.items() if after} == {
        graph: entry.digest for graph, entry in entries.items()
    }


def expected(value: int) -> int | None:
    """Return what a graph holds after its write number ``value``."""
    return None if value % 10 == 9 else value


@pytest.mark.parametrize("seed", [1])
def test_a_killed_writer_loses_nothing_acknowledged(tmp_path: Path, seed: int) -> None:
    """After each of many kills under concurrent writers, log, entries and engine agree and every acknowledgement holds."""
    moments = random.Random(seed)
    acknowledged = 0
    for life in range(KILLS):
        told = killed(tmp_path, life, moments)
        acknowledged += len(told)
        store = EmbeddedStore(tmp_path)
        try:
            last = {graph: int(value) for what, graph, value in told if what == "one"}
            for graph, value in last.items():
                assert held(store, graph) in (expected(value), expected(value + 1))
            batches = [int(batch) for what, batch, _ in told if what == "bulk"]
            known = max(batches, default=-1)
            for batch in range(known + 2):  # the one after the last acknowledged: all or nothing
                found = [held(store, f"http://b/{life}/{batch}/{n}") for n in range(40)]
                assert found in ([batch] * 40, [None] * 40)
                assert batch > known or found[0] == batch
            if batches:
                assert held(store, f"http://r/{life}") in (known, known + 1)
            if life % 5 == 4:
                agree(store)
        finally:
            store.close()

    assert acknowledged > KILLS
