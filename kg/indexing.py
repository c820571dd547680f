"""The search index: what entities are found and counted by, derived from the change log. SQLite with FTS5, beside the store.

SQLite because it is there, kept well and reads millions of rows a second; its full-text index answers "all of these words" by merging
sorted lists. A filter is a word too (a private character and a hash), so text and filters are one such merge. Nothing here is the truth:
``position`` says up to which generation the log has been taken in, catching up is all there is to writing, and an index that
does not belong to the store (another history, another format, damaged) is made anew. A log that does not reach back to ``position`` any
more is not needed for that: what is there is listed and read.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import threading
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from functools import lru_cache
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import structlog

from kg.errors import EventsGone, StoreUnavailable
from kg.facets import FIELDS, LIVE, Facets, Facts, facts_of
from kg.iris import Iris
from kg.rdf import Lines
from kg.store.protocol import GraphEntry, LogEntry, Store

CHUNK = 500
"""Changes taken in with one transaction."""
LISTED = 2_000
"""Graphs taken in with one transaction when all are listed."""

_FORMAT = 1
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entity (
  row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, key TEXT NOT NULL, namespace TEXT, type TEXT NOT NULL,
  phase TEXT, owner TEXT NOT NULL, tombstone INTEGER NOT NULL, removed INTEGER NOT NULL, digest TEXT NOT NULL,
  generation INTEGER NOT NULL, changed TEXT NOT NULL, facets TEXT NOT NULL, words TEXT NOT NULL
);
CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5(
  words, content='entity', content_rowid='row', tokenize='unicode61 remove_diacritics 0', detail=none, columnsize=0, prefix='1 2 3'
);
CREATE TABLE IF NOT EXISTS state (position INTEGER NOT NULL, mark TEXT NOT NULL);
INSERT INTO state SELECT 0, '' WHERE NOT EXISTS (SELECT 1 FROM state);
"""
_ORDERS = ("key", "name", "changed")
_COLUMNS = (
    "id, name, key, namespace, type, phase, owner, tombstone, removed, digest, generation, changed, facets, words"
)
_INSERT = f"INSERT INTO entity ({_COLUMNS}) VALUES ({', '.join('?' * 14)})"  # noqa: S608 - constants
_INSERT_AT = f"INSERT INTO entity (row, {_COLUMNS}) VALUES ({', '.join('?' * 15)})"  # noqa: S608 - constants
_UPDATE = f"UPDATE entity SET {', '.join(f'{name} = ?' for name in _COLUMNS.split(', '))} WHERE row = ?"  # noqa: S608 - constants

log = structlog.get_logger()


class Known(NamedTuple):
    """What the feed tells of an entity: its values, and the digest of its tombstone when it is one."""

    facets: Facets
    tombstone: str | None


class Index:
    """The tables of one store's index, and in memory what is counted. ``catch_up`` brings it to the store's generation."""

    def __init__(self, store: Store, iris: Iris, path: Path | None) -> None:
        """Open the index in ``path``, made when absent; None means a temporary one that is removed on ``close``."""
        self._store = store
        self._iris = iris
        self._temporary = Path(tempfile.mkdtemp(prefix="drumlin-")) if path is None else None
        self._path = path or Path(self._temporary or "") / "search.sqlite"
        self._writing = threading.Lock()
        self._local = threading.local()
        self._connections: list[sqlite3.Connection] = []
        self.facets: dict[int, Facets] = {}
        self.counts: list[Counter[str]] = []
        self.live = 0
        self.position = 0
        self._whole = threading.Event()
        self._whole.set()
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            log.warning("search_index_discarded", reason=str(error))
            self._discard()
            self._open()

    def _open(self) -> None:
        self._writer = self._connect()
        (version,) = self._writer.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"format {version}")
        self._writer.executescript(_SCHEMA)
        self._order()
        self._writer.execute(f"PRAGMA user_version = {_FORMAT}")
        position, mark = self._writer.execute("SELECT position, mark FROM state").fetchone()
        if position > self._store.generation or mark != self._mark(position):
            raise sqlite3.DatabaseError("it is not of this store")
        self.position = position
        self._count_anew()

    def _count_anew(self) -> None:
        self.facets, self.counts, self.live = {}, [Counter() for _ in FIELDS], 0
        for row, facets, words_ in self._writer.execute("SELECT row, facets, words FROM entity WHERE NOT removed"):
            self._count(row, _unpacked(facets), live=LIVE in words_)

    def _discard(self) -> None:
        for each in self._connections:
            each.close()
        self._connections.clear()
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)

    def _mark(self, position: int) -> str:
        """Return what tells this history from another one with as many generations."""
        if position < self._store.oldest:
            return ""
        entries = self._store.log(position - 1, 1)
        return _mark_of(entries[0]) if entries else ""

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = NORMAL")
        self._connections.append(connection)
        return connection

    @property
    def reader(self) -> sqlite3.Connection:
        """A connection of this thread's own, for reading."""
        found: sqlite3.Connection | None = getattr(self._local, "connection", None)
        if found is None:
            found = self._local.connection = self._connect()
        return found

    @property
    def listing(self) -> bool:
        """True while everything is listed anew: what is found meanwhile is only a part."""
        return not self._whole.is_set()

    def wait_listed(self, seconds: float) -> None:
        """Wait until a listing that is under way has ended, ``seconds`` at most."""
        self._whole.wait(seconds)

    # -- catching up --------------------------------------------------------------------------------------------------
    def catch_up(self, changes: int | None = None) -> int:
        """Take in what the log has beyond ``position``, at most about ``changes``; returns the new position.

        Raises ``StoreUnavailable`` when the disk does. An index that begins, or that the log does not reach any more, is listed anew: in
        one go, by one thread, while the others go on with what there is.
        """
        taken = 0
        while self.position < self._store.generation and (changes is None or taken < changes) and not self.listing:
            if not (step := self._step_in_turn()):
                break
            taken += step
        return self.position

    def _step_in_turn(self) -> int:
        """Take a step, one thread at a time; none when another one begins to list meanwhile."""
        while not self._writing.acquire(timeout=0.1):
            if self.listing:
                return 0
        try:
            return self._step()
        finally:
            self._writing.release()

    def _step(self) -> int:
        try:
            entries = self._store.log(self.position, CHUNK) if self.position else []
        except EventsGone:
            entries = []
        if not entries:
            return self._list_anew()
        position = entries[-1].generation
        self._take_in(entries, position, next(_mark_of(each) for each in entries if each.generation == position))
        return len(entries)

    def _list_anew(self) -> int:
        """Take in what the store holds instead of what the log told; returns how many graphs. What is gone is forgotten.

        Rows come in the order of their ids, and what orders and finds them is made when all are there: much faster than one by one.
        """
        position = self._store.generation
        mark = self._mark(position)  # of the log as it is now: what changes meanwhile is taken in after it
        self._whole.clear()
        try:
            self._clear()
            self._count_anew()
            rows = 0
            held = self._held()
            while chunk := list(islice(held, LISTED)):
                self._list(chunk, rows)
                rows += len(chunk)
            with self._transaction():
                self._writer.execute("INSERT INTO found (found) VALUES ('rebuild')")
                self._order()
                self._writer.execute("UPDATE state SET position = ?, mark = ?", (position, mark))
            self.position = position
        finally:
            self._whole.set()
        log.info("search_index_listed_anew", graphs=rows, generation=position)
        return rows + 1

    def _clear(self) -> None:
        with self._transaction():
            self._writer.execute("DELETE FROM entity")
            self._writer.execute("INSERT INTO found (found) VALUES ('delete-all')")
            self._writer.execute("UPDATE state SET position = 0, mark = ''")
            for name in _ORDERS:
                self._writer.execute(f"DROP INDEX IF EXISTS by_{name}")

    def _order(self) -> None:
        for name in _ORDERS:
            self._writer.execute(f"CREATE INDEX IF NOT EXISTS by_{name} ON entity ({name}, id)")

    def _held(self) -> Iterator[tuple[GraphEntry, Lines]]:
        """Yield the entities' graphs with what is recorded about them, in order; what differs between the two is in the log, too."""
        recorded = self._recorded()
        entry = next(recorded, None)
        for graph, lines in self._store.export():
            while entry is not None and entry.graph < graph:
                entry = next(recorded, None)
            if entry is None:
                return
            if entry.graph == graph:
                yield entry, lines

    def _recorded(self) -> Iterator[GraphEntry]:
        after = ""
        while page := self._store.entries(prefix=self._iris.root, after=after, limit=LISTED):
            yield from page
            after = page[-1].graph

    def _list(self, chunk: Sequence[tuple[GraphEntry, Lines]], rows: int) -> None:
        """Write the next entities, after ``rows`` others."""
        ids = [self._iris.short(entry.graph) for entry, _ in chunk]
        found = [facts_of(lines, entry.graph, id, entry.owner) for id, (entry, lines) in zip(ids, chunk, strict=True)]
        told = zip(ids, found, chunk, strict=True)
        values = [(row, *_row(id, facts, entry)) for row, (id, facts, (entry, _)) in enumerate(told, rows + 1)]
        with self._transaction():
            self._writer.executemany(_INSERT_AT, values)
        for row, facts in enumerate(found, rows + 1):
            self._count(row, facts.facets, live=not facts.tombstone)

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        try:
            self._writer.execute("BEGIN IMMEDIATE")
            yield
            self._writer.execute("COMMIT")
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the search index cannot be written: {error}") from error
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    def _take_in(self, entries: Sequence[LogEntry], position: int, mark: str) -> None:
        last = {each.graph: each for each in entries if each.graph.startswith(self._iris.root)}
        with self._transaction():
            counted = [self._write(entry) for entry in last.values()]
            self._writer.execute("UPDATE state SET position = ?, mark = ?", (position, mark))
        for row, facets, live in counted:
            self._uncount(row)
            self._count(row, facets, live=live)
        self.position = position

    def _write(self, entry: LogEntry) -> tuple[int, Facets, bool]:
        """Write one graph as it is now; a graph that is gone keeps its row, so that the feed still knows what it was."""
        id = self._iris.short(entry.graph)
        known = self._writer.execute("SELECT row, words FROM entity WHERE id = ?", (id,)).fetchone()
        stored = self._store.read(entry.graph)
        if known:
            self._writer.execute("INSERT INTO found (found, rowid, words) VALUES ('delete', ?, ?)", known)
        if stored is None:
            return self._forget(known, entry)
        facts = facts_of(stored.lines, entry.graph, id, stored.entry.owner)
        values = _row(id, facts, stored.entry)
        if known:
            row = int(known[0])
            self._writer.execute(_UPDATE, (*values, row))
        else:
            row = int(self._writer.execute(_INSERT, values).lastrowid or 0)
        self._writer.execute("INSERT INTO found (rowid, words) VALUES (?, ?)", (row, facts.words))
        return row, facts.facets, not facts.tombstone

    def _forget(self, known: tuple[int, str] | None, entry: LogEntry) -> tuple[int, Facets, bool]:
        if known is None:
            return 0, (), False
        self._writer.execute(
            "UPDATE entity SET removed = 1, words = '', generation = ? WHERE row = ?", (entry.generation, known[0])
        )
        self._writer.execute("INSERT INTO found (rowid, words) VALUES (?, '')", (known[0],))
        return known[0], (), False

    def _count(self, row: int, facets: Facets, *, live: bool) -> None:
        if not facets:
            return
        self.facets[row] = facets if live else (*facets, ())  # one more than FIELDS marks what is not counted
        if live:
            self.live += 1
            for counter, values in zip(self.counts, facets, strict=True):
                for value in values:
                    counter[value] += 1

    def _uncount(self, row: int) -> None:
        facets = self.facets.pop(row, None)
        if facets is not None and len(facets) == len(FIELDS):
            self.live -= 1
            for counter, values in zip(self.counts, facets, strict=True):
                counter.subtract(values)

    def iri(self, id: str) -> str:
        """Return the IRI of an entity of the index."""
        return self._iris.root + id

    # -- one entity ---------------------------------------------------------------------------------------------------
    def known(self, graphs: Sequence[str]) -> Mapping[str, Known]:
        """Return what is known of entities by IRI, those that are gone among them."""
        ids = [self._iris.short(each) for each in graphs if each.startswith(self._iris.root)]
        query = "SELECT id, facets, tombstone, digest FROM entity WHERE id IN (SELECT value FROM json_each(?))"
        with closing(self.reader.execute(query, (json.dumps(ids),))) as rows:
            return {
                self._iris.root + id: Known(_unpacked(facets), digest if gone else None)
                for id, facets, gone, digest in rows
            }

    def close(self) -> None:
        """Close every connection."""
        with self._writing:
            for each in self._connections:
                each.close()
            self._connections.clear()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)


def _mark_of(entry: LogEntry) -> str:
    return f"{entry.at.isoformat()} {entry.graph} {entry.after}"


def _row(id: str, facts: Facts, entry: GraphEntry) -> tuple[object, ...]:
    return (id, facts.name, facts.name.casefold(), facts.namespace, facts.type, facts.phase, entry.owner, facts.tombstone, False,
            entry.digest, entry.generation, entry.changed.isoformat(), _packed(facts.facets), facts.words)  # fmt: skip


def _packed(facets: Facets) -> str:
    return "\x1e".join("\x1f".join(values) for values in facets)


def _unpacked(text: str) -> Facets:
    return tuple(map(_interned, text.split("\x1e")))


@lru_cache(maxsize=65_536)  # the same few values again and again: kept once
def _interned(part: str) -> tuple[str, ...]:
    return tuple(part.split("\x1f")) if part else ()
