"""Backups and checks: what was backed up comes back as it was, and what is wrong with a store is found."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drumlin.kg.errors import InvalidInput, StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.embedded import backups
from drumlin.kg.store.embedded.consistency import check
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.killing import agree

BASE = "https://kg.example"
A, B = f"{BASE}/id/prod/a/pod/x", f"{BASE}/id/prod/b/pod/y"
NOON = datetime(2026, 11, 28, 12, tzinfo=UTC)


def taken(store: EmbeddedStore, folder: Path) -> Path:
    """Take a backup."""
    with backups.filling(folder) as made:
        backups.take(store, BASE, made, NOON)
    return folder


def write(graph: str, *objects: str) -> GraphWrite:
    """Make a write of one statement per object."""
    return GraphWrite.of(graph, frozenset(f"<{graph}> <http://p> {each} ." for each in objects), "user")


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store of two graphs that refer to one another, and a foreign one."""
    opened = EmbeddedStore(tmp_path / "store")
    opened.apply([write(A, f"<{B}/run/1>", '"1"'), write(B, f"<{A}>"), write("http://foreign/g", '"x"')])
    opened.apply([write(A, f"<{B}/run/1>", '"2"')])
    yield opened
    opened.close()


def test_a_backup_taken_beside_writers_comes_back_as_one_generation(store: EmbeddedStore, tmp_path: Path) -> None:
    """Restored, it holds every graph, entry and log row of its generation, and nothing of what came later."""
    done = threading.Event()

    def go_on() -> None:
        number = 0
        while not done.is_set():
            store.apply([write(f"{A}{number % 7}", f'"{number}"'), write(f"{B}{number % 5}", f'"{number}"')])
            number += 1

    writing = threading.Thread(target=go_on)
    writing.start()
    try:
        note = backups.read_note(taken(store, tmp_path / "backup"))
    finally:
        done.set()
        writing.join()
    store.apply([write(A)])

    assert backups.verify(tmp_path / "backup") == note
    assert backups.restore(tmp_path / "backup", tmp_path / "restored") == note
    with closing(EmbeddedStore(tmp_path / "restored")) as restored:
        assert restored.generation == note.generation
        assert restored.log(0, 10**6) == [each for each in store.log(0, 10**6) if each.generation <= note.generation]
        assert len(restored.entries()) == note.graphs
        agree(restored)
        assert restored.apply([write(A)])[0].generation == note.generation + 1


def test_a_backup_goes_only_where_nothing_is(store: EmbeddedStore, tmp_path: Path) -> None:
    """A directory in use is refused and left alone, for a backup and for a restore; what is no backup is refused."""
    used = tmp_path / "used"
    used.mkdir()
    (used / "mine").write_text("x")
    taken(store, tmp_path / "backup")

    for attempt in (
        lambda: taken(store, used),
        lambda: backups.restore(tmp_path / "backup", used),
        lambda: backups.restore(used, tmp_path / "new"),
    ):
        with pytest.raises(InvalidInput):
            attempt()
    assert [each.name for each in used.iterdir()] == ["mine"]
    assert not (tmp_path / "new").exists()


def test_what_was_not_made_to_its_end_is_neither_a_backup_nor_a_store(store: EmbeddedStore, tmp_path: Path) -> None:
    """However much of it is there, also all but the last step: it is refused by restore, by serve and as a target."""
    folder = taken(store, tmp_path / "backup")
    (folder / "unfinished").mkdir()

    for attempt in (
        lambda: backups.read_note(folder),
        lambda: backups.restore(folder, tmp_path / "new"),
        lambda: EmbeddedStore(folder),
        lambda: taken(store, folder),
    ):
        with pytest.raises((InvalidInput, StoreUnavailable)) as refused:
            attempt()
        assert refused.value.hint
    assert not (tmp_path / "new").exists()
    (folder / "unfinished").rmdir()
    assert backups.restore(folder, tmp_path / "new").graphs == 3


@pytest.mark.parametrize(
    "damage", ["UPDATE graphs SET digest = 'other'", "DELETE FROM log WHERE generation = 1", "truncate"]
)
def test_a_damaged_backup_is_not_restored(store: EmbeddedStore, tmp_path: Path, damage: str) -> None:
    """Whatever was done to it, the restore fails and leaves nothing."""
    folder = taken(store, tmp_path / "backup")
    if damage == "truncate":
        for table in (folder / "quads").glob("*.sst"):
            content = table.read_bytes()
            table.unlink()  # a hard link of the store's own file
            table.write_bytes(content[: len(content) // 2])
    else:
        with closing(sqlite3.connect(folder / "changes.sqlite")) as log:
            log.execute(damage)
            log.commit()

    with pytest.raises(StoreUnavailable):
        backups.restore(folder, tmp_path / "restored")
    assert not (tmp_path / "restored").exists()


def test_a_whole_store_has_no_fault(store: EmbeddedStore) -> None:
    """Counts are told, links into a graph that is there do not dangle, those that lead nowhere are told and are no fault."""
    store.apply([write(B, f"<{A}>", f"<{A}z>", f"<{BASE}/id/odd>")])
    with store.snapshot() as snapshot:
        report = check(snapshot, Iris(BASE))

    assert report.whole
    assert (report.generation, report.graphs, report.quads, report.owners) == (3, 3, 6, {"user": 3})
    assert report.dangling.examples == [f"{B} http://p {BASE}/id/odd", f"{B} http://p {A}z"]


def test_faults_are_found_and_named_without_values(store: EmbeddedStore) -> None:
    """Ill-typed literals, quads behind the log's back and a log that disagrees are faults, each with its place."""
    store.apply([write(B, '"never"^^<http://www.w3.org/2001/XMLSchema#dateTime>')])
    store._engine.store.update(
        f'INSERT DATA {{ GRAPH <{A}> {{ <{A}> <http://p> "3" }} GRAPH <http://stray> {{ <http://s> <http://p> 1 }} }}'
    )
    store._changes._writer.execute("DELETE FROM log WHERE generation = 2")
    with store.snapshot() as snapshot:
        report = check(snapshot, Iris(BASE))

    assert not report.whole
    assert {name: (each.count, each.examples) for name, each in report.faults.items()} == {
        "differs": (1, [A]),
        "not_recorded": (1, ["http://stray"]),
        "ill_typed": (1, [f"{B} http://p"]),
        "log_disagrees": (1, [A]),
        "generations_missing": (1, []),
        "quads_uncounted": (1, []),
    }


def test_a_snapshot_holds_nobody_up(store: EmbeddedStore) -> None:
    """Writers go on while a snapshot is read, which sees none of it; its files go with it."""
    with store.snapshot() as snapshot:
        store.apply([write(A, '"9"'), write(f"{A}9", '"9"')])
        assert [each.graph for each in snapshot.entries()] == ["http://foreign/g", A, B]
        assert snapshot.lines(A) == write(A, f"<{B}/run/1>", '"2"').lines

    assert list((store.directory / "checkpoints").iterdir()) == []
