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
import zlib
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from pathlib import Path
from typing import NamedTuple

import msgspec

from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.remembering import remembered
from drumlin.kg.search.facets import Facets
from drumlin.kg.store.embedded.pages import rows

_FORMAT = 4
_SCHEMA = """
CREATE TABLE IF NOT EXISTS entity (
  row INTEGER PRIMARY KEY, id TEXT NOT NULL UNIQUE, name TEXT NOT NULL, key TEXT NOT NULL, namespace TEXT, type TEXT NOT NULL,
  phase TEXT, owner TEXT NOT NULL, tombstone INTEGER NOT NULL, removed INTEGER NOT NULL, digest TEXT NOT NULL,
  generation INTEGER NOT NULL, changed TEXT NOT NULL, facets TEXT NOT NULL, words TEXT NOT NULL,
  crc INTEGER NOT NULL
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
    """One entity: what is known of it, and ``words``, by which it is found. ``row`` 0: it is new."""

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

    def check(self) -> int:
        """Return the check of the row, by which damage to it shows: CRC-32."""
        return _check((*self[:7], int(self.tombstone), int(self.removed), *self[9:-1]))

    def says_as_much_as(self, other: Row) -> bool:
        """Return whether nothing differs but digest, generation and time."""
        return self[:11] == other[:11]


def _check(values: tuple[object, ...]) -> int:
    """Return the check of the values of a row, as they are written, without its number."""
    return zlib.crc32(repr(values).encode(errors="surrogatepass"))


_COLUMNS = ", ".join(Row._fields)
_KNOWN = f"SELECT {_COLUMNS} FROM entity WHERE id IN (SELECT value FROM json_each(?))"  # noqa: S608 - constants
_TOLD = "SELECT id, facets, digest, tombstone FROM entity WHERE id IN (SELECT value FROM json_each(?))"
_INSERT = f"INSERT INTO entity ({_COLUMNS}, crc) VALUES ({', '.join('?' * len(Row._fields))}, ?)"  # noqa: S608 - constants
_UPDATE = f"UPDATE entity SET {', '.join(f'{name} = ?' for name in (*Row._fields[1:-1], 'crc'))} WHERE row = ?"  # noqa: S608 - constants
_FIND = "INSERT INTO found (rowid, words) VALUES (?, ?)"
_UNFIND = "INSERT INTO found (found, rowid, words) VALUES ('delete', ?, ?)"
_TOUCH = "UPDATE entity SET digest = ?, generation = ?, changed = ?, crc = ? WHERE row = ?"
_ALL = f"SELECT {_COLUMNS}, crc FROM entity"  # noqa: S608 - constants
_PROVE = "INSERT INTO found (found, rank) VALUES ('integrity-check', 1)"  # that it finds the words of all rows


def is_damage(error: sqlite3.Error) -> bool:
    """Return whether the file is not what it was made as, and will not be again."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF
    return code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB) or str(error).startswith("no such table")


class Tables:
    """One file; ``file`` counts those before it. One thread writes at a time (``lock``); each reader borrows a connection."""

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
        self.writer.execute("PRAGMA synchronous = NORMAL")  # what a loss of power takes is taken in again
        (version,) = self.writer.execute("PRAGMA user_version").fetchone()
        if version not in (0, _FORMAT):
            raise sqlite3.DatabaseError(f"format {version}")
        (verdict,) = self.writer.execute("PRAGMA quick_check(1)").fetchone()
        if verdict != "ok":
            raise sqlite3.DatabaseError(verdict)
        self.writer.executescript(_SCHEMA)
        self._prove()
        self.writer.execute(f"PRAGMA user_version = {_FORMAT}")
        position, mark = self.writer.execute("SELECT position, mark FROM state").fetchone()
        return position, mark

    def _prove(self) -> None:
        """Hold each row against its check, and what finds rows against their words: 0.2 s for 30,000. Raises ``sqlite3.DatabaseError``.

        Both at once: SQLite looks at the words by itself.
        """
        with closing(self._connect()) as beside, ThreadPoolExecutor(1, thread_name_prefix="proving") as other:
            words = other.submit(beside.execute, _PROVE)
            for *values, _, crc in self.writer.execute(_ALL):
                if _check(tuple(values)) != crc:
                    raise sqlite3.DatabaseError("a row is not what was written")
            words.result()

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

    def digests(self) -> Iterator[tuple[str, str]]:
        """Yield id and digest of each entity that is not removed."""
        return self.writer.execute("SELECT id, digest FROM entity WHERE NOT removed")

    def all_facets(self) -> Iterator[tuple[int, str, str]]:
        """Yield number, facets and words of each entity that is not removed."""
        return self.writer.execute("SELECT row, facets, words FROM entity WHERE NOT removed")

    def put(self, rows: Sequence[Row], known: Mapping[int, Row]) -> list[Row]:
        """Write rows, in place of those that are ``known`` by number; returns them with their numbers, in the order of these.

        In that order, since FTS5 begins another segment when it gets an earlier row than before. Of the words only those that begin
        with the character of one that comes or goes: what FTS5 notes of a beginning is gone with any word that had it.
        """
        there = sorted([each for each in rows if each.row in known], key=lambda each: each.row)
        self.writer.executemany(_UPDATE, [(*each[1:-1], each.check(), each.row) for each in there])
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
        self.writer.executemany(_INSERT, [(*each, each.check()) for each in placed])
        return placed

    def forget(self, before: int) -> None:
        """Take out what was removed before a generation."""
        query = "SELECT row FROM entity INDEXED BY gone WHERE removed AND generation < ?"  # else it goes through all
        gone = sorted(self.writer.execute(query, (before,)).fetchall())
        self.writer.executemany(_UNFIND, [(row, "") for (row,) in gone])
        self.writer.executemany("DELETE FROM entity WHERE row = ?", gone)

    def touch(self, rows: Sequence[Row]) -> None:
        """Write digest, generation and time of rows that are there."""
        ordered = sorted(rows, key=lambda each: each.row)
        self.writer.executemany(_TOUCH, [(*each[11:-1], each.check(), each.row) for each in ordered])

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


def recorded(path: Path) -> Iterator[tuple[str, str, str, int, str]]:
    """Yield what the index in a file, damaged or not, says of entities: id, owner, digest, generation and time of the last change.

    What is yielded may be of the past, or damaged, so it must be proven. Raises ``OSError``.
    """
    for row in rows(path):
        match row.values:
            case (
                None,
                str(id),
                *_,
                str(owner),
                int(),
                0,
                str(digest),
                int(generation),
                str(changed),
                str(),
                str(),
                int(),
            ):
                yield id, owner, digest, generation, changed


def key_of(name: str) -> str:
    """Return what a name is sorted and compared by: its beginning, whatever the case."""
    return name.casefold()[:_KEY]


def packed(facets: Facets) -> str:
    """Return facets as the text that a row has."""
    return msgspec.json.encode(facets).decode()


@remembered(16_384)
def unpacked(text: str) -> Facets:
    """Return the facets of a row, the same objects for the same values."""
    return tuple(map(kept_once, msgspec.json.decode(text, type=Facets)))


@remembered(65_536)
def kept_once(values: tuple[str, ...]) -> tuple[str, ...]:
    """Return the values, the same object for the same ones."""
    return values
