"""The change log: which graphs there are, what they hold, who owns them, and every effective change. SQLite, beside the engine.

A batch of generations is recorded here, durably, and is written with that; the engine follows (``kg.store.applying``), and what it surely
holds is noted with a later batch (``settled``). Whatever came after that is compared when the store is opened (``kg.store.recovery``). The
store's write lock is held around every change; reading needs no lock.

The log may be *pruned* (``kg.store.pruning``): up to a generation that is noted here it tells nothing any more. What is left is the last
row of each graph.

Beside its entry stands a graph's *text* (``kg.store.texts``), with the digest that it is the text of: it counts only while the entry
has the same digest. Stores of before may have graphs without one: those are read from the engine.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

from kg.errors import EventsGone, StoreUnavailable
from kg.store.durability import unavailable
from kg.store.protocol import GraphEntry, Lines, LogEntry
from kg.store.texts import pack, unpack

_SCHEMA = """
CREATE TABLE IF NOT EXISTS graphs (
  graph TEXT PRIMARY KEY, digest TEXT NOT NULL, owner TEXT NOT NULL, generation INTEGER NOT NULL, changed TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (
  generation INTEGER NOT NULL, graph TEXT NOT NULL, owner TEXT NOT NULL, before TEXT, after TEXT, at TEXT NOT NULL,
  PRIMARY KEY (generation, graph)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS texts (graph TEXT PRIMARY KEY, digest TEXT NOT NULL, packed BLOB NOT NULL) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS settled (generation INTEGER NOT NULL);
INSERT INTO settled SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM settled);
CREATE TABLE IF NOT EXISTS pruned (generation INTEGER NOT NULL);
INSERT INTO pruned SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM pruned);
"""
# In the fourth format texts were deflated; in the third the engine held a batch before it was acknowledged; the second never pruned.
_VERSION = 5
# In the first format only the last generation could be in doubt, and opening and closing alone said what was settled.
_FROM_FIRST = "UPDATE settled SET generation = max(generation, (SELECT coalesce(max(generation), 1) - 1 FROM log))"

_ROWS = 1000
_CACHE = 16 << 20  # bytes of the log that are kept in memory for reading: about 10,000 graphs


def _from_rows(columns: int) -> str:
    """Return the SELECT that reads rows out of one JSON text: a statement for many, since after each another thread runs."""
    read = ", ".join(f"json_extract(value, '$[{each}]')" for each in range(columns))
    return f"SELECT {read} FROM json_each(?)"  # noqa: S608 - numbers


_INSERT_ROWS = f"INSERT INTO log (generation, graph, owner, before, after, at) {_from_rows(6)}"
_INSERT_ENTRIES = f"INSERT OR REPLACE INTO graphs (graph, digest, owner, generation, changed) {_from_rows(5)}"
_INSERT_ENTRY = "INSERT OR REPLACE INTO graphs (graph, digest, owner, generation, changed) VALUES (?, ?, ?, ?, ?)"
_INSERT_TEXTS = """
INSERT OR REPLACE INTO texts (graph, digest, packed)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), substr(?2, json_extract(value, '$[2]'), json_extract(value, '$[3]'))
FROM json_each(?1)
"""
_DELETE_ENTRY = "DELETE FROM graphs WHERE graph = ?"
_DELETE_TEXT = "DELETE FROM texts WHERE graph = ?"
_SETTLE = "UPDATE settled SET generation = ?"
_SELECT_ENTRY = "SELECT graph, digest, owner, generation, changed FROM graphs WHERE graph = ?"
_SELECT_WITH_TEXT = """
SELECT graph, graphs.digest, owner, generation, changed, packed
FROM graphs LEFT JOIN texts USING (graph, digest) WHERE graph = ?
"""
SELECT_TEXT = "SELECT packed FROM graphs JOIN texts USING (graph, digest) WHERE graph = ?"
"""The packed text of a graph, if it is there and of the digest that is recorded."""
_SELECT_MANY = """
SELECT json_group_array(json_array(graph, digest, owner, generation, changed))
FROM graphs WHERE graph IN (SELECT value FROM json_each(?))
"""
_SELECT_ENTRIES = """
SELECT graph, digest, owner, generation, changed FROM graphs
WHERE graph > ?1 AND graph >= ?2 AND (?3 IS NULL OR graph < ?3) AND (?4 IS NULL OR owner = ?4) ORDER BY graph LIMIT ?5
"""
_SELECT_LATEST = """
SELECT generation, graph, owner, before, after, at FROM log WHERE graph = ? ORDER BY generation DESC LIMIT 1
"""
_SELECT_LOG = """
SELECT generation, graph, owner, before, after, at FROM log
WHERE generation > ? AND generation <= ? ORDER BY generation, graph LIMIT ?
"""
_PRUNE = "UPDATE pruned SET generation = ?"
_SELECT_PRUNED = """
SELECT log.generation, graph, graphs.generation IS log.generation FROM log LEFT JOIN graphs USING (graph)
WHERE (log.generation, graph) > (?, ?) AND log.generation <= min(?, (SELECT generation FROM pruned)) ORDER BY log.generation, graph LIMIT ?
"""
_DELETE_LOG = "DELETE FROM log WHERE generation = ? AND graph = ?"
_SELECT_IN_DOUBT = """
SELECT generation, graph, owner, before, after, at FROM log
WHERE generation > (SELECT generation FROM settled) ORDER BY generation
"""


class ChangeLog:
    """The tables of one store. Raises ``StoreUnavailable`` when the disk does; all methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reading = threading.Lock()
        with self._translated("opened"):
            self._writer = self._connect()
            self._writer.executescript(_SCHEMA)
            (version,) = self._writer.execute("PRAGMA user_version").fetchone()
            if version not in range(_VERSION + 1):
                raise StoreUnavailable(
                    f"{path} was written by another version of drumlin (format {version}, this one reads {_VERSION})",
                    hint="export with that version and load the export here",
                )
            if version == 1:
                self._writer.execute(_FROM_FIRST)
            self._writer.execute(f"PRAGMA user_version = {_VERSION}")
            self._reader = self._connect()
            self._reader.execute(f"PRAGMA cache_size = -{_CACHE >> 10}")

    def _connect(self) -> sqlite3.Connection:
        connection = sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)
        connection.execute("PRAGMA journal_mode = WAL")
        connection.execute("PRAGMA synchronous = FULL")
        return connection

    # -- writing, under the store's lock ------------------------------------------------------------------------------
    def record(self, changes: Sequence[LogEntry], held: Sequence[str | None], settled: int) -> None:
        """Write one batch durably: its log rows, the entries that follow from them, and each graph's text now (None: it is gone).

        The engine holds all up to ``settled``.
        """
        gone = [(each.graph,) for each in changes if each.after is None]
        there = [_entry_row(each) for each in changes if each.after is not None]
        with self._translated("written"), self._transaction():
            self._writer.execute(_SETTLE, (settled,))
            self._insert(_INSERT_ROWS, [_row(each) for each in changes])
            self._writer.executemany(_DELETE_ENTRY, gone)
            self._insert(_INSERT_ENTRIES, there)
            self._writer.executemany(_DELETE_TEXT, gone)
            self._insert_texts(list(zip(changes, held, strict=True)))

    def _insert(self, statement: str, rows: Sequence[tuple[Any, ...]]) -> None:
        """Insert many rows with one statement each thousand: after each, another thread may take Python's lock."""
        for start in range(0, len(rows), _ROWS):
            self._writer.execute(statement, (json.dumps(rows[start : start + _ROWS]),))

    def _insert_texts(self, found: Sequence[tuple[LogEntry, str | None]]) -> None:
        """Insert many texts with one statement each thousand, cut out of one value that holds them all."""
        for start in range(0, len(found), _ROWS):
            rows: list[tuple[Any, ...]] = []
            packed = bytearray()
            for entry, text in found[start : start + _ROWS]:
                if text is not None:
                    piece = pack(text)
                    rows.append((entry.graph, entry.after, len(packed) + 1, len(piece)))
                    packed += piece
            self._writer.execute(_INSERT_TEXTS, (json.dumps(rows), packed))

    def take_back(self, settled: int) -> None:
        """Forget what came after ``settled``: the entries are again what the log before says."""
        with self._translated("written"), self._transaction():
            graphs = self._writer.execute("SELECT graph FROM log WHERE generation > ?", (settled,)).fetchall()
            self._writer.execute("DELETE FROM log WHERE generation > ?", (settled,))
            for (graph,) in graphs:
                row = self._writer.execute(_SELECT_LATEST, (graph,)).fetchone()
                earlier = _log_entry(row) if row else None
                if earlier and earlier.after is not None:
                    self._writer.execute(_INSERT_ENTRY, _entry_row(earlier))
                else:
                    self._writer.execute(_DELETE_ENTRY, (graph,))

    def settle(self, generation: int) -> None:
        """Note that the engine holds ``generation``, so that opening the store need not look."""
        with self._translated("written"):
            self._writer.execute(_SETTLE, (generation,))

    # -- pruning, in the thread that writes -----------------------------------------------------------------------------
    def give_up(self, until: int, settled: int) -> None:
        """Tell nothing up to the generation ``until`` from now on; the engine holds all up to ``settled``."""
        with self._translated("written"), self._transaction():
            self._writer.execute(_SETTLE, (settled,))
            self._writer.execute(_PRUNE, (until,))

    def sweep(self, after: tuple[int, str], limit: int, settled: int) -> tuple[int, str] | None:
        """Delete, of the ``limit`` rows after ``after`` that were given up and are in the engine, those that are not the last of a graph.

        Returns the last row looked at, None when there is none beyond. The engine holds all up to ``settled``.
        """
        with self._translated("written"), self._transaction():
            self._writer.execute(_SETTLE, (settled,))
            rows = self._writer.execute(_SELECT_PRUNED, (*after, settled, limit)).fetchall()
            self._writer.executemany(_DELETE_LOG, [(generation, graph) for generation, graph, last in rows if not last])
        return (rows[-1][0], rows[-1][1]) if len(rows) == limit else None

    @contextmanager
    def _transaction(self) -> Iterator[None]:
        self._writer.execute("BEGIN IMMEDIATE")
        try:
            yield
            self._writer.execute("COMMIT")
        finally:
            if self._writer.in_transaction:
                self._writer.execute("ROLLBACK")

    # -- reading ------------------------------------------------------------------------------------------------------
    def last(self) -> int:
        """Return the newest generation recorded (0 when there is none)."""
        return int(self._read("SELECT coalesce(max(generation), 0) FROM log")[0][0])

    def pruned(self) -> int:
        """Return the newest generation that the log tells nothing of any more (0 when it is whole)."""
        return int(self._read("SELECT generation FROM pruned")[0][0])

    def written_at(self, generation: int) -> datetime:
        """Return when a generation that the log tells was written."""
        rows = self._read("SELECT at FROM log WHERE generation >= ? ORDER BY generation LIMIT 1", (generation,))
        return datetime.fromisoformat(rows[0][0])

    def used_bytes(self) -> int:
        """Return how much of its file is used; the rest is written again before the file grows."""
        ((pages, free, size),) = self._read("SELECT * FROM pragma_page_count, pragma_freelist_count, pragma_page_size")
        return (int(pages) - int(free)) * int(size)

    def in_doubt(self) -> list[LogEntry]:
        """Return the changes that the engine is not known to hold, oldest first."""
        return [_log_entry(row) for row in self._read(_SELECT_IN_DOUBT)]

    def entry(self, graph: str) -> GraphEntry | None:
        """Return what is recorded about one graph."""
        rows = self._read(_SELECT_ENTRY, (graph,))
        return _entry(rows[0]) if rows else None

    def stored(self, graph: str) -> tuple[GraphEntry, Lines | None] | None:
        """Return what is recorded about one graph, and what it holds if its text is there."""
        rows = self._read(_SELECT_WITH_TEXT, (graph,))
        if not rows:
            return None
        return _entry(rows[0]), None if rows[0][5] is None else unpack(rows[0][5])

    def lines(self, graph: str) -> Lines | None:
        """Return what a graph holds, None when its text is not there."""
        rows = self._read(SELECT_TEXT, (graph,))
        return unpack(rows[0][0]) if rows else None

    def entries_of(self, graphs: Iterable[str]) -> dict[str, GraphEntry]:
        """Return what is recorded about some graphs, by graph; those that do not exist are absent."""
        ((found,),) = self._read(_SELECT_MANY, (json.dumps(list(graphs)),))
        return {row[0]: _entry(row) for row in json.loads(found)}

    def entries(self, *, owner: str | None, prefix: str, after: str, limit: int | None) -> list[GraphEntry]:
        """List graphs in the order of their IRIs."""
        found = self._read(_SELECT_ENTRIES, (after, prefix, past(prefix), owner, -1 if limit is None else limit))
        return [_entry(row) for row in found]

    def log(self, since: int, until: int, limit: int) -> list[LogEntry]:
        """Return whole generations in (``since``, ``until``], about ``limit`` rows but at least one generation.

        Raises ``EventsGone`` when some of them were given up.
        """
        found = self._whole(since, until, limit)
        if since < (pruned := self.pruned()):  # looked up afterwards: else what is given up meanwhile would be missed
            raise EventsGone(
                f"the change log goes from generation {pruned + 1} to {until}: what follows {since} is not in it any more",
                hint="read the graph anew, then follow from its generation; log_retention tells how long changes are kept",
                detail={"oldest": pruned + 1, "newest": until},
            )
        return found

    def _whole(self, since: int, until: int, limit: int) -> list[LogEntry]:
        rows = self._read(_SELECT_LOG, (since, until, limit + 1))
        if len(rows) <= limit:
            return [_log_entry(row) for row in rows]
        cut = rows[-1][0]
        whole = [row for row in rows if row[0] < cut]
        if not whole:  # one generation alone is larger than the limit
            whole = self._read(_SELECT_LOG, (cut - 1, cut, -1))
        return [_log_entry(row) for row in whole]

    def _read(self, query: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._reading:
                return self._reader.execute(query, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise self._unavailable("read", error) from error

    def frozen(self) -> sqlite3.Connection:
        """Return a connection that sees the log as it is now, whatever is written later."""
        with self._translated("read"):
            connection = self._connect()
            connection.execute("BEGIN")
            connection.execute("SELECT generation FROM settled").fetchone()
        return connection

    def close(self) -> None:
        """Close both connections."""
        with self._reading:
            self._reader.close()
        self._writer.close()

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._unavailable(what, error) from error

    def _unavailable(self, what: str, error: sqlite3.Error) -> StoreUnavailable:
        return unavailable(f"the change log {self._path.name} cannot be {what}", error)


def _row(change: LogEntry) -> tuple[Any, ...]:
    return change.generation, change.graph, change.owner, change.before, change.after, change.at.isoformat()


def _entry_row(change: LogEntry) -> tuple[Any, ...]:
    return change.graph, change.after, change.owner, change.generation, change.at.isoformat()


def _entry(row: tuple[Any, ...]) -> GraphEntry:
    return GraphEntry(row[0], row[1], row[2], row[3], datetime.fromisoformat(row[4]))


def _log_entry(row: tuple[Any, ...]) -> LogEntry:
    return LogEntry(row[0], row[1], row[2], row[3], row[4], datetime.fromisoformat(row[5]))


def past(prefix: str) -> str | None:
    """Return the least string greater than all that begin with ``prefix``; None when there is none."""
    trimmed = prefix.rstrip("\U0010ffff")
    if not trimmed:
        return None
    following = ord(trimmed[-1]) + 1
    return trimmed[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
