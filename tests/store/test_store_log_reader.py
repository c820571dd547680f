"""Reading the change log: no read waits for another one, however long that takes, and all connections are closed in the end."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.store.embedded.change_log import ChangeLog
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphEntry, GraphWrite
from tests.store_behaviours import NOON, A, B, line, write

PATIENCE = 20.0
MANY = 3_000


class Holding:
    """Holds whatever one thread reads with SQLite, from its first steps on, until ``go_on`` is set."""

    def __init__(self) -> None:
        self.begun, self.go_on = threading.Event(), threading.Event()
        self._connect = sqlite3.connect
        self._thread: int | None = None

    def connect(self, *arguments: Any, **named: Any) -> sqlite3.Connection:
        """Open a connection as ``sqlite3.connect`` does."""
        connection = self._connect(*arguments, **named)
        connection.set_progress_handler(self._step, 100)
        return connection

    def _step(self) -> int:
        if threading.get_ident() == self._thread:
            self.begun.set()
            self.go_on.wait(PATIENCE)
        return 0

    def hold(self, read: Callable[[], Any]) -> Any:
        """Read in this thread, held."""
        self._thread = threading.get_ident()
        return read()


@pytest.fixture
def holding(monkeypatch: pytest.MonkeyPatch) -> Iterator[Holding]:
    """What holds a read; in the end it goes on."""
    found = Holding()
    monkeypatch.setattr(sqlite3, "connect", found.connect)
    yield found
    found.go_on.set()


@pytest.fixture
def store(tmp_path: Path, holding: Holding) -> Iterator[EmbeddedStore]:
    """A store with many graphs, whose reads can be held."""
    opened = EmbeddedStore(tmp_path / "store", clock=lambda: NOON)
    opened.apply([GraphWrite.of(f"{A}/{n}", frozenset({line(A, n)}), "user") for n in range(MANY)])
    opened.apply([write(A, 1)])
    yield opened
    holding.go_on.set()
    opened.close()


SCANS: dict[str, Callable[[EmbeddedStore], Any]] = {
    "entries": lambda store: store.entries(),
    "entries of an owner": lambda store: store.entries(owner="user"),
    "log": lambda store: store.log(0, MANY),
    "many": lambda store: store._changes.entries_of([f"{A}/{n}" for n in range(MANY)]),
    "packed": lambda store: store._changes.packed("", MANY),
}


def open_files(folder: Path) -> list[str]:
    """Return the open files in ``folder``."""
    found = []
    for each in Path("/proc/self/fd").iterdir():
        try:
            found.append(str(each.readlink()))
        except FileNotFoundError:
            continue  # the listing itself
    return [each for each in found if each.startswith(f"{folder}/changes.sqlite")]


@pytest.mark.parametrize("scan", SCANS.values(), ids=SCANS.keys())
def test_a_read_does_not_wait_for_a_scan(
    store: EmbeddedStore, holding: Holding, scan: Callable[[EmbeddedStore], Any]
) -> None:
    """While one thread is in the middle of a scan, others read, write and read what they wrote."""
    with ThreadPoolExecutor(2) as threads:
        scanning = threads.submit(holding.hold, partial(scan, store))
        assert holding.begun.wait(PATIENCE)

        def beside() -> tuple[object, ...]:
            store.apply([write(B, 1)])
            return (
                store.entry(A).digest == store.read(A).entry.digest,
                store.read(B).lines,
                [each.graph for each in store.entries(prefix=B)],
                [each.graph for each in store.log(store.generation - 1)],
                store.may_hold(f"{B}/none"),
                store.oldest,
            )

        try:
            assert threads.submit(beside).result(PATIENCE / 2) == (True, {line(B, 1)}, [B], [B], False, 1)
            assert not scanning.done()
        finally:
            holding.go_on.set()
        assert len(scanning.result(PATIENCE)) >= MANY


def test_a_listing_beside_a_write_scans_once(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """It waits for a write under way, of which it may have seen the result, without holding up the next one by another scan."""
    scans, begun, go_on, listed = [], threading.Event(), threading.Event(), threading.Event()
    real = ChangeLog.entries

    def entries(log: ChangeLog, **named: Any) -> list[GraphEntry]:
        scans.append(store._writer.lock.locked() and go_on.is_set())
        found = real(log, **named)
        listed.set()
        return found

    monkeypatch.setattr(ChangeLog, "entries", entries)
    store.follow_deltas(lambda _: (begun.set(), go_on.wait(PATIENCE)))
    with ThreadPoolExecutor(2) as threads:
        writing = threads.submit(store.apply, [write(B, 1)])
        assert begun.wait(PATIENCE)
        listing = threads.submit(store.entries, prefix=B)
        assert listed.wait(PATIENCE)
        go_on.set()
        assert [each.generation for each in listing.result(PATIENCE)] == [writing.result(PATIENCE)[0].generation]
    assert scans == [False]


def test_all_connections_are_closed(store: EmbeddedStore, holding: Holding) -> None:
    """Closing waits for the read under way, leaves no file open, and later reads are refused."""
    with ThreadPoolExecutor(2) as threads:
        scanning = threads.submit(holding.hold, store.entries)
        assert holding.begun.wait(PATIENCE)
        assert store.entry(A)
        closing = threads.submit(store.close)
        holding.go_on.set()
        assert len(scanning.result(PATIENCE)) == MANY + 1
        closing.result(PATIENCE)
    assert open_files(store.directory) == []
    with pytest.raises(StoreUnavailable, match="closed"):
        store.entry(A)


def test_few_connections_outlive_many_reads(store: EmbeddedStore) -> None:
    """Reads that come together have a connection each, most of which are closed after them."""
    together = threading.Barrier(30)

    def read() -> None:
        with store._changes._reading():
            together.wait(PATIENCE)

    with ThreadPoolExecutor(30) as threads:
        for each in [threads.submit(read) for _ in range(30)]:
            each.result(PATIENCE)
    log = str(store.directory / "changes.sqlite-wal")  # of the database itself SQLite keeps files for later connections
    assert open_files(store.directory).count(log) <= 6  # the writer's, the first, and four more


def test_a_removed_log_is_not_begun_anew_by_reading(store: EmbeddedStore) -> None:
    """Another connection to a file that is gone is an error, and the file stays gone."""
    (store.directory / "changes.sqlite").unlink()
    with store._changes._reading(), pytest.raises(StoreUnavailable, match="cannot be read"):
        store.entry(A)
    assert not (store.directory / "changes.sqlite").exists()
