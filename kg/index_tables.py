"""The file of the search index: a row an entity, and the words that it is found by. Of stores and graphs nothing is known here.

Where SQLite cannot read the file, or somebody has taken it away, the error ``is_damage``, and ``discard`` begins another one. Connections
of the old file that are in the middle of a read end after it.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import lru_cache
from pathlib import Path
from typing import NamedTuple

import msgspec

from kg.errors import StoreUnavailable
from kg.facets import Facets

_FORMAT = 3
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entity (
  row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, key TEXT NOT NULL, namespace TEXT, type TEXT NOT NULL,
  phase TEXT, owner TEXT NOT NULL, tombstone INTEGER NOT NULL, removed INTEGER NOT NULL, digest TEXT NOT NULL,
  generation INTEGER NOT NULL, changed TEXT NOT NULL, facets TEXT NOT NULL, words TEXT NOT NULL
);
CREATE INDEX IF NOT EXISTS gone ON entity (generation) WHERE removed;
CREATE VIRTUAL TABLE IF NOT EXISTS found USING fts5(
  words, content='entity', content_rowid='row', tokenize='unicode61 remove_diacritics 0', detail=none, columnsize=0, prefix='1 2 3'
);
CREATE TABLE IF NOT EXISTS state (position INTEGER NOT NULL, mark TEXT NOT NULL);
INSERT INTO state SELECT 0, '' WHERE NOT EXISTS (SELECT 1 FROM state);
"""
_ORDERS = ("key", "changed")
_KEY = 200


class Row(NamedTuple):
    """One entity: what is told of it, and ``words``, by which it is found. ``row`` 0: it is new."""

    id: str
    name: str
    key: str
    namespace: str | None
    type: str
    phase: str | None
    owner: str
    tombstone: int
    removed: int
    facets: str
    words: str
    digest: str
    generation: int
    changed: str
    row: int = 0

    def says_as_much_as(self, other: Row) -> bool:
        """Tell whether nothing differs but digest, generation and time."""
        return self[:11] == other[:11]


_COLUMNS = ", ".join(Row._fields)
_KNOWN = f"SELECT {_COLUMNS} FROM entity WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608 - constants
_TOLD = "SELECT id, facets, digest, tombstone FROM entity WHERE id IN (SELECT value FROM json_each(?))"
_INSERT = f"INSERT INTO entity ({_COLUMNS}) VALUES ({', '.join('?' * len(Row._fields))})"  # noqa: S608 - constants
_UPDATE = f"UPDATE entity SET {', '.join(f'{name} = ?' for name in Row._fields[1:-1])} WHERE row = ?"  # noqa: S608 - constants
_FIND = "INSERT INTO found (rowid, words) VALUES (?, ?)"
_UNFIND = "INSERT INTO found (found, rowid, words) VALUES ('delete', ?, ?)"
_TOUCH = "UPDATE entity SET digest = ?, generation = ?, changed = ? WHERE row = ?"


def is_damage(error: sqlite3.Error) -> bool:
    """Tell whether the file is not what it was made as, and will not be again."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith("no such table")


class Tables:
    """One file; ``file`` counts those before it. Whoever writes does so alone (``lock``); each who reads has a connection meanwhile."""

    def __init__(self, path: Path | None) -> None:
        """Name the file; None means a temporary one that is removed on ``close``."""
        self._temporary = Path(tempfile.mkdtemp(prefix="drumlin-")) if path is None else None
        self._path = path or Path(self._temporary or "") / "search.sqlite"
        self.lock = threading.Lock()
        self.file = 0
        self._free: list[sqlite3.Connection] = []
        self.writer = self._connect()

    def open(self) -> tuple[int, str]:
        """Open the file, made when absent, and return what ``stand`` was given last; raises ``sqlite3.DatabaseError``."""
        self.writer.execute("PRAGMA journal_mode = WAL")
        self.write_along()
        (version,) = self.writer.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"format {version}")
        self.writer.executescript(_SCHEMA)
        self.writer.execute(f"PRAGMA user_version = {_FORMAT}")
        position, mark = self.writer.execute("SELECT position, mark FROM state").fetchone()
        return position, mark

    def write_along(self) -> None:
        """Prepare to write into a file that is open already, here or elsewhere: what a loss of power takes is taken in again."""
        self.writer.execute("PRAGMA synchronous = NORMAL")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None, check_same_thread=False, timeout=30)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Have a connection for reading; threads come and go, so it is nobody's own."""
        free = self._free
        try:
            connection = free.pop()
        except IndexError:
            connection = self._connect()
        try:
            yield connection
        finally:
            if free is self._free:
                free.append(connection)
            else:
                connection.close()

    def discard(self) -> None:
        """Take the file away: the next one that is opened is empty."""
        self._close()
        self.file += 1
        for suffix in ("", "-wal", "-shm"):
            self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
        self.writer = self._connect()

    def close(self) -> None:
        """Close the file, and remove a temporary one."""
        self._close()
        if self._temporary:
            shutil.rmtree(self._temporary, ignore_errors=True)

    def _close(self) -> None:
        free, self._free = self._free, []
        for each in (*free, self.writer):
            each.close()

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Write all that is written within, or nothing; raises ``StoreUnavailable`` when the disk does, damage as it is."""
        try:
            self.writer.execute("BEGIN IMMEDIATE")
            yield
            self.writer.execute("COMMIT")
        except sqlite3.Error as error:
            if is_damage(error):
                raise
            raise StoreUnavailable(f"the search index cannot be written: {error}") from error
        finally:
            if self.writer.in_transaction:
                self.writer.execute("ROLLBACK")

    # -- rows ---------------------------------------------------------------------------------------------------------
    def rows(self, ids: Sequence[str], connection: sqlite3.Connection) -> dict[str, Row]:
        """Return what is known of entities, by id."""
        return {row[0]: Row(*row) for row in connection.execute(_KNOWN, (json.dumps(ids),)).fetchall()}

    def told(self, ids: Sequence[str], connection: sqlite3.Connection) -> list[tuple[str, str, str, bool]]:
        """Return ids of entities with their facets, digest, and whether they are tombstones."""
        return connection.execute(_TOLD, (json.dumps(ids),)).fetchall()

    def all_facets(self) -> Iterator[tuple[int, str, str]]:
        """Yield number, facets and words of each entity that is not removed."""
        return self.writer.execute("SELECT row, facets, words FROM entity WHERE NOT removed")

    def put(self, rows: Sequence[Row], known: Mapping[int, Row]) -> list[Row]:
        """Write rows, in place of those that are ``known`` by number; returns them with their numbers, in the order of these.

        In that order, since FTS5 begins another segment when it is told of an earlier row than before. Of the words only those that begin
        with the character of one that comes or goes: what FTS5 notes of a beginning is gone with any word that had it.
        """
        there = sorted([each for each in rows if each.row in known], key=lambda each: each.row)
        self.writer.executemany(_UPDATE, [each[1:] for each in there])
        for each in there:
            held, wanted = ({*row.words.split()} for row in (known[each.row], each))
            if first := {word[0] for word in held ^ wanted}:
                self.writer.execute(_UNFIND, (each.row, " ".join([word for word in held if word[0] in first])))
                self.writer.execute(_FIND, (each.row, " ".join([word for word in wanted if word[0] in first])))
        placed = self.place([each for each in rows if each.row not in known])
        self.writer.executemany(_FIND, [(each.row, each.words) for each in placed])
        return there + placed

    def place(self, rows: Sequence[Row]) -> list[Row]:
        """Write new rows without making them found (``order`` does); returns them with their numbers."""
        (last,) = self.writer.execute("SELECT coalesce(max(row), 0) FROM entity").fetchone()
        placed = [Row(*each[:-1], number) for number, each in enumerate(rows, last + 1)]
        self.writer.executemany(_INSERT, placed)
        return placed

    def forget(self, before: int) -> None:
        """Take out what was removed before a generation."""
        query = "SELECT row FROM entity INDEXED BY gone WHERE removed AND generation < ?"  # else it goes through all
        gone = sorted(self.writer.execute(query, (before,)).fetchall())
        self.writer.executemany(_UNFIND, [(row, "") for (row,) in gone])
        self.writer.executemany("DELETE FROM entity WHERE row = ?", gone)

    def touch(self, rows: Sequence[Row]) -> None:
        """Write digest, generation and time of rows that are there."""
        self.writer.executemany(_TOUCH, [each[11:] for each in sorted(rows, key=lambda each: each.row)])

    def stand(self, position: int, mark: str) -> None:
        """Note up to where the log has been taken in."""
        self.writer.execute("UPDATE state SET position = ?, mark = ?", (position, mark))

    def clear(self) -> None:
        """Forget all rows, and what orders them until ``order``: many are written much faster without."""
        self.writer.execute("DELETE FROM entity")
        self.writer.execute("INSERT INTO found (found) VALUES ('delete-all')")
        self.stand(0, "")
        for name in _ORDERS:
            self.writer.execute(f"DROP INDEX IF EXISTS by_{name}")

    def order(self, *, find: bool = False) -> None:
        """Make what orders the rows, and with ``find`` what finds them, where it is not there."""
        if find:
            self.writer.execute("INSERT INTO found (found) VALUES ('rebuild')")
        for name in _ORDERS:
            self.writer.execute(f"CREATE INDEX IF NOT EXISTS by_{name} ON entity ({name}, id)")


def key_of(name: str) -> str:
    """Return what a name is sorted and compared by: its beginning, whatever the case."""
    return name.casefold()[:_KEY]


def packed(facets: Facets) -> str:
    """Return facets as the text that a row has."""
    return msgspec.json.encode(facets).decode()


@lru_cache(maxsize=16_384)
def unpacked(text: str) -> Facets:
    """Return the facets of a row, the same objects for the same values."""
    return tuple(map(kept_once, msgspec.json.decode(text, type=Facets)))


@lru_cache(maxsize=65_536)
def kept_once(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values, the same object for the same ones."""
    return values
