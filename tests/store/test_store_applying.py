"""The engine follows what the log holds: an acknowledged write outlives whatever happens to the engine, and nothing runs away."""

from __future__ import annotations

import sqlite3
import threading
import time
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path

import pytest

from drumlin.kg.errors import StoreFull, StoreUnavailable
from drumlin.kg.rdf.syntax import digest
from drumlin.kg.store.delta import New
from drumlin.kg.store.embedded import change_log, engine, engine_applier, writer
from drumlin.kg.store.embedded.change_log import ChangeLog
from drumlin.kg.store.embedded.engine import EmbeddedEngine, translated
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.store_behaviours import NOON, A, B, line, remove, values, write
from tests.waiting import until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Open a store in a directory of its own."""
    opened = EmbeddedStore(tmp_path / "store", clock=lambda: NOON)
    yield opened
    opened.close()


def refusing(method: str, error: Exception) -> Callable[..., None]:
    """Make a method of the engine that fails as the real one does when the disk refuses."""

    def refuse(self: EmbeddedEngine, *_: object) -> None:
        with self._writing(), translated("written"):
            raise error

    return refuse


NO_ROOM = OSError(28, "No space left on device")
BROKEN = OSError(5, "Input/output error")


def test_an_acknowledged_write_outlives_an_engine_that_refuses(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It is in the log, so it can be read; what follows is refused until the engine takes it, and then queries see all."""
    store.apply([write(B, 1)])
    store.optimize()
    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedEngine, "update", refusing("update", NO_ROOM))
        assert store.apply([write(A, 1)])[0].generation == 2
        with pytest.raises(StoreFull, match="No space left"):
            values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }")  # it would not see what was acknowledged
        for _ in range(2):
            with pytest.raises(StoreFull, match="No space left"):
                store.apply([write(A, 2), write(B, 2)])
        assert store.apply([write(A, 1)])[0].outcome == "unchanged"
        with pytest.raises(StoreFull), store.snapshot():
            pass
        assert (store.read(A).lines, store.read(B).lines) == ({line(A, 1)}, {line(B, 1)})
        assert [each.generation for each in store.log(0)] == [1, 2]

    assert store.apply([write(A, 3)])[0].generation == 3
    assert sorted(values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }")) == ["1", "3"]


def test_a_failed_sync_is_made_good_by_opening_the_engine_again(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What may not be on the disk does not count as applied; the engine is opened, and does it again."""
    store.apply([write(B, 1)])
    store.optimize()
    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedEngine, "sync", refusing("sync", BROKEN))
        store.apply([write(A, 1)])
        with pytest.raises(StoreUnavailable, match="Input/output"):
            store.look_up("SELECT ?s { GRAPH ?s { ?s ?p ?o } }")
        assert store._writer.applier.applied == 1

    assert len(store.look_up("SELECT ?s { GRAPH ?s { ?s ?p ?o } }")) == 2
    assert store._writer.applier.applied == 2


def test_a_disk_that_refuses_the_log_refuses_the_write(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Nothing of a batch that could not be recorded was written, and the next write goes through."""
    store.apply([write(A, 1)])
    with monkeypatch.context() as patched:
        patched.setattr(ChangeLog, "_insert_texts", raising(sqlite3.OperationalError("database or disk is full")))
        with pytest.raises(StoreFull, match="disk is full"):
            store.apply([write(A, 2), write(B, 1)])

    assert (store.generation, len(store.log(0))) == (1, 1)
    assert store.read(A).lines == {line(A, 1)}
    assert store.read(B) is None
    assert store.apply([write(A, 3)])[0].generation == 2


def raising(error: Exception) -> Callable[..., None]:
    """Make a function that raises."""

    def refuse(*_: object) -> None:
        raise error

    return refuse


def test_nothing_is_accepted_that_the_disk_may_have_no_room_for(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A disk that is nearly full is said to be, with figures, before anything is written; a removal needs little."""
    store.apply([write(A, 1), write(B, 1)])
    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedEngine, "free_bytes", lambda _: 1100 << 10)
        assert store.apply([remove(B)])[0].outcome == "removed"
        with pytest.raises(StoreFull, match="1,100 KB left, and 1,513 KB are needed"):
            store.apply([write(A, *range(500))])
    assert store.apply([write(A, *range(500))])[0].generation == 3


def test_an_engine_that_follows_late_holds_up_writers(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """What waits to be applied is bounded, however fast one writes and however slow the engine is."""
    monkeypatch.setattr("drumlin.kg.store.embedded.engine_applier.ROOM", 50)
    monkeypatch.setattr("drumlin.kg.store.embedded.engine_applier.LINGER", 60.0)
    for number in range(40):
        store.apply([write(f"{A}{number}", *range(9))])
        assert store._writer.applier.pending <= 60

    assert store._writer.applier.applied >= 30


def test_the_engine_begins_before_there_is_no_room(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """New graphs that could wait longer are taken over once much of the room is full, so that writers need not wait for it."""
    monkeypatch.setattr(engine_applier, "ROOM", 300)
    monkeypatch.setattr(engine_applier, "LINGER", 60.0)
    applier = store._writer.applier
    store.apply(many(20))
    time.sleep(2 * engine_applier.SOON)  # that it does not begin can only be seen by waiting
    assert applier.applied == 0
    store.apply([write(f"{A}{number}", *range(9)) for number in range(18)])
    until(lambda: applier.applied == store.generation)


def test_the_engine_begins_when_one_load_is_full(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """New graphs wait for one another no longer than until there are as many as are loaded at once."""
    monkeypatch.setattr(engine_applier, "CHUNK", 30)
    monkeypatch.setattr(engine_applier, "LINGER", 60.0)
    applier = store._writer.applier
    store.apply(many(20))
    time.sleep(2 * engine_applier.SOON)  # that it does not begin can only be seen by waiting
    assert applier.applied == 0
    store.apply([write(f"{A}{number}", 1) for number in range(20)])
    until(lambda: applier.applied == store.generation)
    store.apply([write(f"{B}{number}", 1) for number in range(20)])
    time.sleep(2 * engine_applier.SOON)
    assert applier.applied == store.generation - 1  # those that were applied do not count any more


@pytest.mark.parametrize("failing", [0, 1], ids=["the first part", "the other part"])
def test_a_load_in_two_parts_is_whole_or_done_again(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, failing: int
) -> None:
    """Many new graphs are loaded by two threads; when the disk fails one of them, both are loaded again and nothing is lost."""
    monkeypatch.setattr(engine, "APART", 10)
    monkeypatch.setattr(engine_applier, "LOADED", 10)
    load, parts = EmbeddedEngine._load, list[str]()
    failures = iter([NO_ROOM])

    def fail_once(self: EmbeddedEngine, new: Sequence[New]) -> None:
        parts.append(new[0].graph)
        if new[0].graph == names[20 * failing] and (failure := next(failures, None)):
            raise failure
        load(self, new)

    names = [f"{A}{number}" for number in range(40)]
    monkeypatch.setattr(EmbeddedEngine, "_load", fail_once)
    store.apply([write(each, number, "x") for number, each in enumerate(names)])
    found = values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }")
    assert sorted(found) == sorted([*map(str, range(40)), *["x"] * 40])
    assert sorted(parts) == sorted([names[0], names[20]] * 2)


def test_writers_give_way_to_who_waits_for_the_engine(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are held up for a moment each batch while a query waits for much that is pending, but never until it is done."""
    monkeypatch.setattr(engine_applier, "SCARCE", 5)
    monkeypatch.setattr(engine_applier, "LINGER", 60.0)
    monkeypatch.setattr(engine_applier, "GIVING_WAY", 60.0)
    store.apply(many(9))  # nobody waits for it
    update, go_on = EmbeddedEngine.update, threading.Event()
    monkeypatch.setattr(EmbeddedEngine, "update", lambda *given: (go_on.wait(60), update(*given))[1])
    found: list[object] = []
    asking = threading.Thread(target=lambda: found.append(store.look_up("SELECT ?s { GRAPH ?s { ?s ?p ?o } }")))
    asking.start()
    until(lambda: store._writer.applier._reaching)
    writing = threading.Thread(target=store.apply, args=([write(A, 1)],))
    writing.start()
    writing.join(0.1)
    assert writing.is_alive()
    go_on.set()
    for each in (asking, writing):
        each.join()
    assert found

    go_on.clear()
    monkeypatch.setattr(engine_applier, "GIVING_WAY", 0.05)
    store.apply(many(9, 2))
    asking = threading.Thread(target=store.look_up, args=("SELECT ?s { GRAPH ?s { ?s ?p ?o } }",))
    asking.start()
    until(lambda: store._writer.applier._reaching)
    assert store.apply([write(B, 1)])[0].outcome == "created"
    assert asking.is_alive()
    go_on.set()
    asking.join()


def test_who_waits_for_long_is_not_kept_waiting_between_batches(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be applied as one is applied without a pause as long as somebody waits."""
    monkeypatch.setattr(engine_applier, "_ASKED", 0.0)  # the question was asked long ago
    monkeypatch.setattr(engine_applier, "SOON", 3600.0)  # a pause would not end
    monkeypatch.setattr(engine_applier, "CHUNK", 1)
    for value in range(10):
        store.apply([write(A, value)])

    store._writer.applier.reach(store.generation)
    assert store._writer.applier.applied == store.generation


@pytest.mark.parametrize("loaded", [engine_applier.LOADED, 1])
def test_batches_that_write_over_one_another_are_applied_in_order_as_few(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, loaded: int
) -> None:
    """Who writes the same graphs again and again, and takes some away, has the engine follow, whether new ones are loaded or not."""
    monkeypatch.setattr(engine_applier, "LOADED", loaded)
    monkeypatch.setattr(engine_applier, "_ASKED", 0.0)
    updated: list[str] = []
    update, pause = EmbeddedEngine.update, threading.Event()

    def slowly(self: EmbeddedEngine, text: str) -> None:
        pause.wait(60)
        updated.append(text)
        update(self, text)

    monkeypatch.setattr(EmbeddedEngine, "update", slowly)
    store.apply([write(A, "first")])
    store.apply([write(A, "second")])
    until(lambda: len(store._writer.applier._pending) == 2)
    rounds = 20
    for value in range(rounds):
        store.apply([write(A, value), write(f"{B}{value}", value)])
        store.apply([write(A, value + 1), remove(f"{B}{value - 1}")])
        store.apply([write(B, value)])
    store.apply([remove(A), write(B, "last")])
    store.apply([write(A, "again")])

    pause.set()
    until(lambda: store._writer.applier.applied == store.generation)
    assert len(updated) <= 8
    assert sorted(values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }")) == sorted(["again", "last", str(rounds - 1)])


def test_a_merge_that_failed_while_the_disk_was_full_is_no_error_later(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """RocksDB tells of it only when the next one writes, which is tried again at once: the disk may have room by then."""
    update, told = EmbeddedEngine.update, refusing("update", NO_ROOM)

    def once(self: EmbeddedEngine, text: str) -> None:
        monkeypatch.setattr(EmbeddedEngine, "update", update)
        told(self, text)

    monkeypatch.setattr(EmbeddedEngine, "update", once)
    store.apply([write(A, 1)])
    assert values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }") == ["1"]


def test_what_was_bulk_loaded_is_merged_once_the_flood_is_over(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Merging writes everything anew, so it is left until no bulk load came for a while; smaller writes do not put it off."""
    for name, value in (("LOADED", 1), ("LINGER", 0.0), ("SOON", 0.0), ("_OPTIMIZE_AFTER", 30), ("_QUIET", 60.0)):
        monkeypatch.setattr(engine_applier, name, value)
    merged: list[int] = []
    monkeypatch.setattr(EmbeddedEngine, "optimize", lambda _: merged.append(store.generation))
    for number in range(40):
        store.apply([write(f"{A}{number}", 1)])
    until(lambda: store._writer.applier.applied == store.generation)
    assert not merged

    monkeypatch.setattr(engine_applier, "_QUIET", 0.0)
    monkeypatch.setattr(engine_applier, "LOADED", 100)
    store.apply([write(B, 1)])
    until(lambda: len(merged) == 1)

    monkeypatch.setattr(engine_applier, "_QUIET", 0.2)
    monkeypatch.setattr(engine_applier, "LOADED", 1)
    store.apply(many(40))
    until(lambda: len(merged) == 2)  # with no write after it


def many(count: int, value: object = 1) -> list[GraphWrite]:
    """Make many small graphs."""
    return [write(f"https://kg.example/id/prod/bulk/pod/p{number}", value) for number in range(count)]


def test_a_bulk_load_that_was_cut_is_done_again(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the process dies between two chunks, opening the store brings the engine up to what was acknowledged."""
    monkeypatch.setattr(writer, "BULK", 5)
    monkeypatch.setattr(engine_applier, "LOADED", 5)
    monkeypatch.setattr(engine_applier, "CHUNK", 3)
    store.apply([write(A, 1), write(B, 1)])
    store.optimize()
    load = EmbeddedEngine.load

    def cut(self: EmbeddedEngine, new: Sequence[New]) -> None:
        if any("p9" in each.content.text for each in new):
            raise RuntimeError("killed")
        load(self, new)

    monkeypatch.setattr(EmbeddedEngine, "load", cut)
    store.apply([*many(10), write(A, 2), remove(B)])
    with pytest.raises(StoreUnavailable, match="killed"):
        store.optimize()
    monkeypatch.undo()
    directory = store.directory
    store.close()

    again = EmbeddedStore(directory)
    assert len(again.entries()) == 11
    assert sorted(values(again, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }")) == ["1"] * 10 + ["2"]
    assert again.apply(many(10))[0].outcome == "unchanged"
    again.close()


def killed_in_format(directory: Path, version: int, before: str | None) -> None:
    """Make a store as an earlier version left it that was killed in its fourth write, of ``A``, before the engine had it."""
    with closing(EmbeddedStore(directory)) as store:
        for number in range(3):
            store.apply([write(A, number)])
    with closing(sqlite3.connect(directory / "changes.sqlite")) as log, log:
        settled = 0 if version == 1 else 3
        log.executescript(
            f"PRAGMA user_version = {version}; UPDATE settled SET generation = {settled}; DROP TABLE texts;"
            + ";".join(f"ALTER TABLE log DROP COLUMN {name}" for name in ("crc", "earlier", "undo"))
        )
        log.execute("INSERT INTO log VALUES (4, ?, 'user', ?, 'never', '2026-11-27T12:00:00+00:00')", (A, before))
        log.execute("UPDATE graphs SET digest = 'never', generation = 4, changed = '2026-11-27T12:00:00+00:00'")


@pytest.mark.parametrize("version", [1, 2, 3])
def test_a_store_of_an_earlier_format_is_taken_over(tmp_path: Path, version: int) -> None:
    """What nobody was told of and cannot be had is taken back; all else is there."""
    killed_in_format(tmp_path, version, digest({line(A, 2)}))

    with closing(EmbeddedStore(tmp_path)) as again:
        assert again.generation == 3
        assert again.read(A).lines == {line(A, 2)}
        assert again.apply([write(A, 4)])[0].generation == 4
        assert values(again, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }") == ["4"]


def test_a_store_whose_texts_are_deflated_is_taken_over(tmp_path: Path) -> None:
    """The fourth format: it is read as it was, brought up where it was killed, and not for an earlier version any more."""
    with closing(EmbeddedStore(tmp_path)) as store:
        store.apply([write(A, 1), write(B, 2)])
    with closing(sqlite3.connect(tmp_path / "changes.sqlite")) as log, log:
        for name, text in ((A, line(A, 1)), (B, line(B, 3))):
            log.execute("UPDATE texts SET packed = ? WHERE graph = ?", (zlib.compress(text.encode(), 1), name))
        for table, column in (("texts", "digest"), ("graphs", "digest"), ("log", "after")):
            log.execute(f"UPDATE {table} SET {column} = ? WHERE graph = ?", (digest({line(B, 3)}), B))
        log.executescript("ALTER TABLE log DROP COLUMN crc; PRAGMA user_version = 4; UPDATE settled SET generation = 0")

    with closing(EmbeddedStore(tmp_path)) as again:
        assert again.read(A).lines == {line(A, 1)}
        assert sorted(values(again, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }")) == ["1", "3"]
    with closing(sqlite3.connect(tmp_path / "changes.sqlite")) as log:
        assert log.execute("PRAGMA user_version").fetchone() == (change_log.VERSION,)


def in_the_fifth_format(directory: Path) -> None:
    """Make a store as the fifth format had it."""
    with closing(EmbeddedStore(directory)) as store:
        store.apply([write(A, 1), write(B, 2)])
    with closing(sqlite3.connect(directory / "changes.sqlite")) as log, log:
        log.executescript("""
            ALTER TABLE texts RENAME TO moved;
            CREATE TABLE texts (graph TEXT PRIMARY KEY, digest TEXT NOT NULL, packed BLOB NOT NULL) WITHOUT ROWID;
            INSERT INTO texts SELECT * FROM moved;
            DROP TABLE moved;
            ALTER TABLE log DROP COLUMN crc;
            PRAGMA user_version = 5;
        """)


def test_a_store_whose_texts_stand_in_the_tree_of_their_names_is_taken_over(tmp_path: Path) -> None:
    """The fifth format: its texts are moved when it is opened, and written over as any."""
    in_the_fifth_format(tmp_path)

    with closing(EmbeddedStore(tmp_path)) as again:
        assert [again.read(each).lines for each in (A, B)] == [{line(A, 1)}, {line(B, 2)}]
        again.apply([write(A, 3)])
        assert again.read(A).lines == {line(A, 3)}
    with closing(sqlite3.connect(tmp_path / "changes.sqlite")) as log:
        assert log.execute("PRAGMA user_version").fetchone() == (change_log.VERSION,)
        assert log.execute("SELECT count(*) FROM sqlite_master WHERE name LIKE 'texts%'").fetchone() == (1,)
        assert log.execute("SELECT count(*) FROM texts").fetchone() == (2,)


def test_a_store_that_cannot_be_taken_over_stays_what_it_was(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A disk that fails while texts are moved: the store is not opened, and opens when the disk is well."""
    in_the_fifth_format(tmp_path)
    with monkeypatch.context() as patched:
        patched.setattr(
            change_log, "_TEXTS_ANEW", change_log._TEXTS_ANEW.replace("DROP TABLE", "DROP TABLE never; DROP TABLE")
        )
        with pytest.raises(StoreUnavailable, match="opened"):
            EmbeddedStore(tmp_path)

    with closing(sqlite3.connect(tmp_path / "changes.sqlite")) as log:
        assert log.execute("PRAGMA user_version").fetchone() == (5,)
    with closing(EmbeddedStore(tmp_path)) as again:
        assert [again.read(each).lines for each in (A, B)] == [{line(A, 1)}, {line(B, 2)}]


def test_a_store_that_contradicts_itself_is_not_opened(tmp_path: Path) -> None:
    """An engine that holds neither what was nor what is recorded, without a text to go by, is said to need a backup."""
    killed_in_format(tmp_path, 3, "of something else")

    with pytest.raises(StoreUnavailable, match="neither what it was before nor after"):
        EmbeddedStore(tmp_path)


def test_a_clock_that_turns_impossible_refuses_writes_until_it_is_right(tmp_path: Path) -> None:
    """What is there is read meanwhile, and a write that changes nothing is answered; no such time is ever recorded."""
    clock = [NOON]
    with closing(EmbeddedStore(tmp_path / "store", clock=lambda: clock[0])) as store:
        store.apply([write(A, 1)])
        clock[0] = NOON.replace(year=1970)
        with pytest.raises(StoreUnavailable, match="clock of this machine says 1970-") as refused:
            store.apply([write(A, 2)])
        assert "goes on by itself" in (refused.value.hint or "")
        assert store.read(A).lines == {line(A, 1)}
        assert store.apply([write(A, 1)])[0].outcome == "unchanged"
        clock[0] = NOON
        assert store.apply([write(A, 2)])[0].generation == 2
        assert {each.at for each in store.log(0)} == {NOON}
