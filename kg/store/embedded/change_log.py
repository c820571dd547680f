"""The change log: which graphs there are, what they hold, who owns them, and every effective change. SQLite, beside the engine.

A batch of generations is recorded here, durably, and is written with that; the engine follows (``kg.store.embedded.engine_applier``), and
what it surely holds is noted with a later batch (``settled``). Whatever came after that is compared when the store is opened
(``kg.store.embedded.recovery``). The store's write lock is held around every change; reading needs no lock.

The log may be *pruned* (``kg.store.embedded.retention``): up to a generation that is noted here it holds nothing any more. What is left
is the last row of each graph.

A row also holds how to *undo* it: what the graph held before as a patch against what it holds now (a removal: as its text was packed),
and the generation of the graph's change ``earlier``. So what a graph was is found from what it is, without looking at other graphs
(``kg.store.embedded.graph_history``). Rows of before format 8 have neither.

Beside its entry stands a graph's *text* (``kg.store.graph_text``), with the digest that it is the text of: it counts only while
the entry has the same digest. Stores of before may have graphs without one: those are read from the engine.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import structlog

from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.store.embedded.change_log_reader import LogReader, check_of, json_of, log_entry
from drumlin.kg.store.embedded.wal import unavailable
from drumlin.kg.store.protocol import GraphEntry, LogEntry

log = structlog.get_logger(__name__)

_SCHEMA = """
CREATE TABLE IF NOT EXISTS graphs (
  graph TEXT PRIMARY KEY, digest TEXT NOT NULL, owner TEXT NOT NULL, generation INTEGER NOT NULL, changed TEXT NOT NULL
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS log (
  generation INTEGER NOT NULL, graph TEXT NOT NULL, owner TEXT NOT NULL, before TEXT, after TEXT, at TEXT NOT NULL, crc INTEGER,
  earlier INTEGER, undo BLOB,
  PRIMARY KEY (generation, graph)
) WITHOUT ROWID;
CREATE TABLE IF NOT EXISTS texts (graph TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, packed BLOB NOT NULL);
CREATE TABLE IF NOT EXISTS settled (generation INTEGER NOT NULL);
INSERT INTO settled SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM settled);
CREATE TABLE IF NOT EXISTS pruned (generation INTEGER NOT NULL);
INSERT INTO pruned SELECT 0 WHERE NOT EXISTS (SELECT 1 FROM pruned);
CREATE TABLE IF NOT EXISTS store (id TEXT NOT NULL, base TEXT);
INSERT INTO store (id) SELECT lower(hex(randomblob(16))) WHERE NOT EXISTS (SELECT 1 FROM store);
"""
# In the fifth format texts stood in the tree of their names: new ones were written all over it, and those of 1,000 bytes took a page each.
_TEXTS_ANEW = """
ALTER TABLE texts RENAME TO texts_of_before;
CREATE TABLE texts (graph TEXT NOT NULL UNIQUE, digest TEXT NOT NULL, packed BLOB NOT NULL);
INSERT INTO texts SELECT graph, digest, packed FROM texts_of_before;
DROP TABLE texts_of_before
"""
# In the seventh format rows of the log could not be undone.
# In the sixth they had no check.
# In the fourth texts were deflated; in the third the engine held a batch before it was acknowledged; the second never pruned.
VERSION = 8
# In the first format only the last generation could be in doubt, and opening and closing alone said what was settled.
_FROM_FIRST = "UPDATE settled SET generation = max(generation, (SELECT coalesce(max(generation), 1) - 1 FROM log))"

_COLUMNS = "SELECT name FROM pragma_table_info('log')"
_ADDED = {"crc": "INTEGER", "earlier": "INTEGER", "undo": "BLOB"}
# Where a graph is not there any more, its last change is found by this; other changes take no place in it.
_REMOVALS = "CREATE INDEX IF NOT EXISTS removals ON log (graph, generation) WHERE after IS NULL"
_NEW_ID = "UPDATE store SET id = lower(hex(randomblob(16)))"
_ROWS = 1000
# A statement writes many rows, out of one JSON text, since after each statement another thread runs. A row is: the graph, its digest after,
# where its packed text begins and its length, its check; and the generation, owner and digest before, the generation of the change
# before, and where what undoes it begins and its length, unless those are what most have (?3, ?4, none).
_INSERT_ROWS = """
INSERT INTO log (generation, graph, owner, before, after, at, crc, earlier, undo)
SELECT ifnull(json_extract(value, '$[5]'), ?3), json_extract(value, '$[0]'), ifnull(json_extract(value, '$[6]'), ?4),
  json_extract(value, '$[7]'), json_extract(value, '$[1]'), ?2, json_extract(value, '$[4]'), json_extract(value, '$[8]'),
  CASE WHEN json_extract(value, '$[10]') > 0 THEN substr(?5, json_extract(value, '$[9]'), json_extract(value, '$[10]'))
  WHEN json_extract(value, '$[1]') IS NULL
  THEN (SELECT packed FROM texts WHERE graph = json_extract(value, '$[0]') AND digest = json_extract(value, '$[7]')) END
FROM json_each(?1)
"""
_INSERT_ENTRIES = """
INSERT OR REPLACE INTO graphs (graph, digest, owner, generation, changed)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), ifnull(json_extract(value, '$[6]'), ?4),
  ifnull(json_extract(value, '$[5]'), ?3), ?2
FROM json_each(?1)
"""
_INSERT_TEXTS = """
INSERT INTO texts (graph, digest, packed)
SELECT json_extract(value, '$[0]'), json_extract(value, '$[1]'), substr(?2, json_extract(value, '$[2]'), json_extract(value, '$[3]'))
FROM json_each(?1) WHERE true
ON CONFLICT (graph) DO UPDATE SET digest = excluded.digest, packed = excluded.packed
"""
_INSERT_ENTRY = "INSERT OR REPLACE INTO graphs (graph, digest, owner, generation, changed) VALUES (?, ?, ?, ?, ?)"
_INSERT_ROW = "INSERT INTO log (generation, graph, owner, before, after, at, crc) VALUES (?, ?, ?, ?, ?, ?, ?)"
_INSERT_TEXT = "INSERT INTO texts (graph, digest, packed) VALUES (?, ?, ?)"
_DELETE_ENTRY = "DELETE FROM graphs WHERE graph = ?"
_DELETE_TEXT = "DELETE FROM texts WHERE graph = ?"
_SETTLE = "UPDATE settled SET generation = ?"
_SELECT_LATEST = """
SELECT generation, graph, owner, before, after, at, crc FROM log WHERE graph = ? ORDER BY generation DESC LIMIT 1
"""
_PRUNE = "UPDATE pruned SET generation = ?"
_SELECT_PRUNED = """
SELECT log.generation, graph, graphs.generation IS log.generation FROM log LEFT JOIN graphs USING (graph)
WHERE (log.generation, graph) > (?, ?) AND log.generation <= min(?, (SELECT generation FROM pruned)) ORDER BY log.generation, graph LIMIT ?
"""
_DELETE_LOG = "DELETE FROM log WHERE generation = ? AND graph = ?"


class Undo(NamedTuple):
    """How a change is undone: the generation of the graph's change before, and the patch that makes of what is what was.

    Both are None for a new graph; the patch is for a removal, too.
    """

    earlier: int | None
    patch: bytes | None


class ChangeLog(LogReader):
    """The tables of one store, made when absent; else as what it reads with."""

    def __init__(self, path: Path) -> None:
        self._path = path
        with self._translated("opened"):
            self._writer = self._connect("rwc")
            self._writer.execute("PRAGMA journal_mode = WAL")
            self._writer.execute("PRAGMA synchronous = FULL")
            self._writer.executescript(_SCHEMA)
            (version,) = self._writer.execute("PRAGMA user_version").fetchone()
            if version not in range(VERSION + 1):
                raise StoreUnavailable(
                    f"{path} was written by another version of drumlin (format {version}, this one reads {VERSION})",
                    hint="export with that version and load the export here",
                )
            if version < VERSION:
                self._take_over(version)
            self._writer.execute(_REMOVALS)
        super().__init__(path)

    def _take_over(self, version: int) -> None:
        """Bring a new store, or one of an earlier format, to this one, at once or not at all: some seconds for 200,000 graphs."""
        with self._transaction():
            if version == 1:
                self._writer.execute(_FROM_FIRST)
            if version:
                log.info("change_log_taken_over", path=str(self._path), format=version)
                if version < 6:
                    for statement in _TEXTS_ANEW.split(";"):
                        self._writer.execute(statement)
                there = {name for (name,) in self._writer.execute(_COLUMNS)}
                for name in _ADDED.keys() - there:
                    self._writer.execute(f"ALTER TABLE log ADD COLUMN {name} {_ADDED[name]}")
            self._writer.execute(f"PRAGMA user_version = {VERSION}")

    # -- writing, under the store's lock ------------------------------------------------------------------------------
    def record(
        self, changes: Sequence[LogEntry], held: Sequence[bytes | None], undoing: Sequence[Undo], settled: int
    ) -> None:
        """Write one batch durably: its log rows, the entries that follow from them, and each graph's packed text now (None: it is gone).

        All changes are of the same time. The engine holds all up to ``settled``.
        """
        gone = [(each.graph,) for each in changes if each.after is None]
        with self._translated("written"), self._transaction():
            self._writer.execute(_SETTLE, (settled,))
            for start in range(0, len(changes), _ROWS):
                end = start + _ROWS
                self._insert(changes[start:end], held[start:end], undoing[start:end])
            self._writer.executemany(_DELETE_ENTRY, gone)
            self._writer.executemany(_DELETE_TEXT, gone)

    def _insert(self, changes: Sequence[LogEntry], held: Sequence[bytes | None], undoing: Sequence[Undo]) -> None:
        first = changes[0]
        common = first.generation, first.owner, None
        at = first.at.isoformat()
        rows: list[tuple[Any, ...]] = []
        there: list[tuple[Any, ...]] = []
        packed, patches = bytearray(), bytearray()
        for change, piece, undo in zip(changes, held, undoing, strict=True):
            crc = check_of(change.generation, change.graph, change.owner, change.before, change.after, at)
            row: tuple[Any, ...] = change.graph, change.after, len(packed) + 1, len(piece or b""), crc
            own = change.generation, change.owner, change.before
            patch = undo.patch or b""
            rows.append(row if own == common else (*row, *own, undo.earlier, len(patches) + 1, len(patch)))
            patches += patch
            if piece is not None:
                there.append(rows[-1])
                packed += piece
        said = json_of(rows)
        kept = said if len(there) == len(rows) else json_of(there)
        given = at, first.generation, first.owner
        self._writer.execute(_INSERT_ROWS, (said, *given, patches))
        self._writer.execute(_INSERT_ENTRIES, (kept, *given))
        self._insert_texts(kept, packed)

    def _insert_texts(self, rows: str, packed: bytearray) -> None:
        self._writer.execute(_INSERT_TEXTS, (rows, packed))

    def begin_with(self, graphs: Iterable[tuple[GraphEntry, bytes]], generation: int) -> None:
        """Fill a new log with graphs and their packed texts; it holds no change up to ``generation``, its newest."""
        with self._translated("written"), self._transaction():
            for entry, packed in graphs:
                at = entry.changed.isoformat()
                row = entry.generation, entry.graph, entry.owner, None, entry.digest, at
                self._writer.execute(_INSERT_ENTRY, (entry.graph, entry.digest, entry.owner, entry.generation, at))
                self._writer.execute(_INSERT_ROW, (*row, check_of(*row)))
                self._writer.execute(_INSERT_TEXT, (entry.graph, entry.digest, packed))
            self._writer.execute(_PRUNE, (generation,))
            self._writer.execute(_SETTLE, (generation,))

    def take_back(self, settled: int) -> None:
        """Forget what came after ``settled``: the entries are again what the log before says."""
        with self._translated("written"), self._transaction():
            graphs = self._writer.execute("SELECT graph FROM log WHERE generation > ?", (settled,)).fetchall()
            self._writer.execute("DELETE FROM log WHERE generation > ?", (settled,))
            for (graph,) in graphs:
                row = self._writer.execute(_SELECT_LATEST, (graph,)).fetchone()
                earlier = log_entry(row) if row else None
                if earlier and earlier.after is not None:
                    self._writer.execute(_INSERT_ENTRY, _entry_row(earlier))
                else:
                    self._writer.execute(_DELETE_ENTRY, (graph,))

    def settle(self, generation: int) -> None:
        """Note that the engine holds ``generation``, so that opening the store need not look."""
        with self._translated("written"):
            self._writer.execute(_SETTLE, (generation,))

    def keep_base(self, base: str) -> None:
        """Record the base of all names in the store."""
        with self._translated("written"):
            self._writer.execute("UPDATE store SET base = ?", (base,))

    # -- pruning, in the thread that writes -----------------------------------------------------------------------------
    def give_up(self, until: int, settled: int) -> None:
        """Report nothing up to the generation ``until`` from now on; the engine holds all up to ``settled``."""
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

    def close(self) -> None:
        """Close all connections."""
        super().close()
        self._writer.close()


def _entry_row(change: LogEntry) -> tuple[Any, ...]:
    return change.graph, change.after, change.owner, change.generation, change.at.isoformat()


def give_new_id(path: Path) -> str | None:
    """Make the log in a file that of another store: a copy goes its own way. Return the new id.

    None: a log of an earlier version, which gets its id when it is opened.
    """
    try:
        with closing(sqlite3.connect(path)) as log, log:
            if log.execute("SELECT 1 FROM sqlite_schema WHERE name = 'store'").fetchone():
                log.execute(_NEW_ID)
                (id,) = log.execute("SELECT id FROM store").fetchone()
                return str(id)
    except sqlite3.Error as error:
        raise unavailable(f"{path} cannot be written", error) from error
    return None
