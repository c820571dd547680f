"""Stores as each earlier format of the change log left them (recorded with those versions): opened, they are what they were, and go on."""

from __future__ import annotations

import shutil
import sqlite3
from contextlib import closing
from pathlib import Path

import pyoxigraph as ox
import pytest

from drumlin.kg.errors import StoreDamaged
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.embedded.change_log import VERSION
from drumlin.kg.store.embedded.consistency import check
from drumlin.kg.store.embedded.marks import MarkFile
from drumlin.kg.store.embedded.repairing import repair
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.store_behaviours import NOON, answered

RECORDED = Path(__file__).parents[1] / "golden" / "stores"
BASE = "https://kg.example"
WITH_TEXTS = 3
"""From this format on the recorded log has the texts of all graphs."""
WITH_CHECKS = 7
"""From this format on its changes have checks."""
ALL = "SELECT ?g ?s ?p ?o { GRAPH ?g { ?s ?p ?o } } ORDER BY ?g ?s ?p ?o"

formats = pytest.mark.parametrize("version", range(1, VERSION))


def made(version: int, directory: Path) -> None:
    """Make the directory of a store as a version left it; its engine's files are written by this version's engine."""
    directory.mkdir()
    (directory / "base").write_text(f"{BASE}\n")
    with closing(sqlite3.connect(directory / "changes.sqlite")) as log:
        log.executescript((RECORDED / f"format-{version}.sql").read_text())
        row = log.execute("SELECT id FROM store").fetchone() if version >= 6 else None
    engine = ox.Store(str(directory / "quads"))
    engine.extend(ox.parse((RECORDED / f"format-{version}.nq").read_bytes(), format=ox.RdfFormat.N_QUADS))
    engine.flush()
    del engine
    for path in (directory / "witness", directory / "quads" / "held") if row else ():
        mark = MarkFile(path, row[0])
        mark.write(4, durable=True)
        mark.close()


def expected(version: int) -> tuple[list[tuple[str, ...]], list[tuple[object, ...]], int]:
    """Return what was recorded: entries, changes, and the number of quads."""
    with closing(sqlite3.connect(":memory:")) as log:
        log.executescript((RECORDED / f"format-{version}.sql").read_text())
        entries = log.execute("SELECT graph, digest, owner, generation, changed FROM graphs ORDER BY graph").fetchall()
        changes = log.execute(
            "SELECT generation, graph, owner, before, after, at FROM log ORDER BY generation, graph"
        ).fetchall()
    return entries, changes, len((RECORDED / f"format-{version}.nq").read_text().splitlines())


def assert_as_recorded(store: EmbeddedStore, version: int) -> None:
    """Check records, changes and content, by REST's way and by SPARQL's."""
    entries, changes, quads = expected(version)
    assert [(e.graph, e.digest, e.owner, e.generation, e.changed.isoformat()) for e in store.entries()] == entries
    assert [(c.generation, c.graph, c.owner, c.before, c.after, c.at.isoformat()) for c in store.log(0)] == changes
    assert store.generation == 4
    assert sum(len(store.read(graph).lines) for graph, *_ in entries) == quads
    assert answered(store, ALL).count('"g":') == quads
    with store.snapshot() as snapshot:
        assert check(snapshot, Iris(BASE)).whole


@formats
def test_a_store_of_each_earlier_format_is_taken_over(tmp_path: Path, version: int) -> None:
    """Nothing is built anew, and all is as it was recorded; it is written, closed and opened as any other then."""
    directory = tmp_path / "store"
    made(version, directory)
    with closing(EmbeddedStore(directory, rebuild=False)) as store:
        assert store.made_under("https://other.example") == BASE
        assert_as_recorded(store, version)
        assert store.apply([GraphWrite.of(f"{BASE}/id/domain/e", frozenset(), "user")])[0].generation == 5
    with closing(sqlite3.connect(directory / "changes.sqlite")) as log:
        assert log.execute("PRAGMA user_version").fetchone() == (VERSION,)
        checked = log.execute("SELECT DISTINCT generation FROM log WHERE crc IS NOT NULL").fetchall()
        assert checked == [(each,) for each in (range(1, 6) if version >= WITH_CHECKS else (5,))]
    with closing(EmbeddedStore(directory, rebuild=False)) as store:
        assert [each.generation for each in store.log(4)] == [5]
        assert store.base == BASE


@formats
def test_an_engine_that_an_earlier_format_lost_is_built_anew_where_the_log_has_all_texts(
    tmp_path: Path, version: int
) -> None:
    """Before logs had texts the engine alone held the graphs: then the store is refused in words, and there is nothing to repair."""
    directory = tmp_path / "store"
    made(version, directory)
    shutil.rmtree(directory / "quads")
    if version >= WITH_TEXTS:
        with closing(EmbeddedStore(directory)) as store:
            assert_as_recorded(store, version)
        return
    with pytest.raises(StoreDamaged, match="cannot be built anew") as refused:
        EmbeddedStore(directory)
    assert "drumlin repair" in (refused.value.hint or "")


@formats
def test_a_damaged_store_of_an_earlier_format_is_repaired(tmp_path: Path, version: int) -> None:
    """What the log lost is had from the engine, and what has only the engine stays there: nothing is lost."""
    directory = tmp_path / "store"
    made(version, directory)
    if version >= WITH_TEXTS:
        with closing(sqlite3.connect(directory / "changes.sqlite")) as log, log:
            log.execute("UPDATE texts SET packed = zeroblob(9) WHERE graph LIKE '%/a'")
        with pytest.raises(StoreDamaged):
            EmbeddedStore(directory)

    report = repair(directory, lambda: NOON, lambda *_: None)
    assert report.whole
    with closing(EmbeddedStore(directory, rebuild=False)) as store:
        entries, _, quads = expected(version)
        assert [(e.graph, e.digest, e.owner) for e in store.entries()] == [each[:3] for each in entries]
        assert answered(store, ALL).count('"g":') == quads
