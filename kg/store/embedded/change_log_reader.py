"""Reads the change log (``kg.store.embedded.change_log`` writes it): graphs, their owners and contents, and what became of them, in order.

Any number of threads and processes may read one log while one writes it (SQLite's WAL): each read has a connection of its own, so that none
waits for another, however long that takes.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from itertools import groupby
from pathlib import Path
from typing import Any, NamedTuple
from urllib.parse import quote

import msgspec

from drumlin.kg.errors import RESTORE, EventsGone, StoreDamaged, StoreUnavailable
from drumlin.kg.store.embedded.wal import unavailable
from drumlin.kg.store.graph_text import unpack
from drumlin.kg.store.protocol import GraphEntry, LogEntry

_CACHE = 16 << 20  # bytes of the log that the first connection keeps in memory: about 10,000 graphs
_IDLE = 4  # connections that are kept beside it

_SELECT_ENTRY = "SELECT graph, digest, owner, generation, changed FROM graphs WHERE graph = ?"
_WITH_TEXT = (
    "SELECT graph, graphs.digest, owner, generation, changed, packed FROM graphs LEFT JOIN texts USING (graph, digest)"
)
_SELECT_STORED = f"{_WITH_TEXT} WHERE graph = ?"
_EACH = "WHERE graph IN (SELECT value FROM json_each(?))"
_SELECT_STORED_EACH = f"{_WITH_TEXT} {_EACH}"
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
_SELECT_LAST = "SELECT max(coalesce((SELECT max(generation) FROM log), 0), (SELECT generation FROM pruned))"
_SELECT_LOG = """
SELECT generation, graph, owner, before, after, at, crc FROM log
WHERE generation > ? AND generation <= ? ORDER BY generation, graph LIMIT ?
"""
_SELECT_IN_DOUBT = """
SELECT generation, graph, owner, before, after, at, crc FROM log
WHERE generation > (SELECT generation FROM settled) ORDER BY generation
"""
_SELECT_NEWEST = """
SELECT generation, graph, owner, before, after, at, crc FROM log WHERE generation <= ? ORDER BY generation DESC LIMIT ?
"""
_SELECT_CHANGED = "SELECT DISTINCT graph FROM log WHERE generation > ? ORDER BY graph"
_UNDOABLE = "SELECT generation, graph, owner, before, after, at, crc, earlier, undo FROM log WHERE graph = ?"
_SELECT_UNDOABLE = f"{_UNDOABLE} AND generation = ?"
_SELECT_REMOVAL = f"{_UNDOABLE} AND after IS NULL AND generation > ? ORDER BY generation LIMIT 1"
_SELECT_LAST_REMOVAL = f"{_UNDOABLE} AND after IS NULL AND generation < ? ORDER BY generation DESC LIMIT 1"
_SELECT_LAST_CHANGE = f"{_UNDOABLE} AND generation < ? ORDER BY generation DESC LIMIT 1"
_SELECT_BELOW = """
SELECT generation, graph, owner, before, after, at, crc FROM log
WHERE generation < ?1 AND generation > (SELECT generation FROM pruned) ORDER BY generation DESC, graph DESC LIMIT ?2
"""
_SELECT_WITHIN = """
SELECT generation, graph, owner, before, after, at, crc FROM log
WHERE generation = ? AND generation > (SELECT generation FROM pruned) ORDER BY graph LIMIT ? OFFSET ?
"""
_SELECT_PACKED = f"{_WITH_TEXT} WHERE graph > ? ORDER BY graph LIMIT ?"


class UndoableChange(NamedTuple):
    """A change, the generation of its graph's change before it, and what undoes it; None where that was not kept."""

    entry: LogEntry
    earlier: int | None
    undo: bytes | None


class LogReader:
    """Reads the log in the file ``path``. Raises ``StoreUnavailable`` when the disk does; all methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._returned = threading.Condition()
        self._used = 0  # connections that are being read with
        self._closed = False
        with self._translated("opened"):
            first = self._connect()
            first.execute(f"PRAGMA cache_size = -{_CACHE >> 10}")
        self._idle = [first]  # its place is the last, from where connections are taken
        self._first = first

    def _connect(self, mode: str = "rw") -> sqlite3.Connection:
        """Open the file; a log that was removed is not begun anew, unless ``mode`` is ``rwc``."""
        path = f"file:{quote(str(self._path))}?mode={mode}"
        return sqlite3.connect(path, uri=True, isolation_level=None, check_same_thread=False)

    @property
    def path(self) -> Path:
        """The file."""
        return self._path

    @property
    def store_id(self) -> str:
        """The id that the store got when it was made."""
        return str(self._read("SELECT id FROM store")[0][0])

    @property
    def base(self) -> str | None:
        """The base of all names, None when it is not recorded."""
        found: str | None = self._read("SELECT base FROM store")[0][0]
        return found

    def last(self) -> int:
        """Return the newest generation (0 when there is none); after a repair no change may be left of it."""
        return int(self._read(_SELECT_LAST)[0][0])

    def pruned(self) -> int:
        """Return the newest generation that the log no longer holds (0 when it is whole)."""
        return int(self._read("SELECT generation FROM pruned")[0][0])

    def written_at(self, generation: int) -> datetime:
        """Return when a generation that the log holds was written."""
        rows = self._read("SELECT at FROM log WHERE generation >= ? ORDER BY generation LIMIT 1", (generation,))
        return _time(rows[0][0])

    def used_bytes(self) -> int:
        """Return how much of its file is used; the rest is written again before the file grows."""
        ((pages, free, size),) = self._read("SELECT * FROM pragma_page_count, pragma_freelist_count, pragma_page_size")
        return (int(pages) - int(free)) * int(size)

    def in_doubt(self) -> list[LogEntry]:
        """Return the changes that the engine is not known to hold, oldest first."""
        return [log_entry(row) for row in self._read(_SELECT_IN_DOUBT)]

    def newest(self, until: int, limit: int) -> list[LogEntry]:
        """Return the last ``limit`` changes up to the generation ``until``, newest first."""
        return [log_entry(row) for row in self._read(_SELECT_NEWEST, (until, limit))]

    def changed(self, since: int) -> list[str]:
        """Return the graphs with changes of generations greater than ``since``, those that are gone too."""
        return [graph for (graph,) in self._read(_SELECT_CHANGED, (since,))]

    def settled(self) -> int:
        """Return the generation up to which the engine is known to hold everything."""
        return int(self._read("SELECT generation FROM settled")[0][0])

    def packed(self, after: str, limit: int) -> list[tuple[GraphEntry, bytes | None]]:
        """Return graphs after one, in the order of their IRIs, with their packed texts (None: it is not there)."""
        return [(_entry(row), row[5]) for row in self._read(_SELECT_PACKED, (after, limit))]

    def entry(self, graph: str) -> GraphEntry | None:
        """Return what is recorded about one graph."""
        rows = self._read(_SELECT_ENTRY, (graph,))
        return _entry(rows[0]) if rows else None

    def stored(self, graph: str) -> tuple[GraphEntry, str | None] | None:
        """Return what is recorded about one graph, and its text if it is there."""
        rows = self._read(_SELECT_STORED, (graph,))
        return _stored(rows[0]) if rows else None

    def packed_each(self, graphs: Iterable[str]) -> list[tuple[GraphEntry, bytes | None]]:
        """Return what is recorded about some graphs that exist, with their packed texts (None: it is not there)."""
        return [(_entry(row), row[5]) for row in self._read(_SELECT_STORED_EACH, (json_of(list(graphs)),))]

    def text(self, graph: str) -> str | None:
        """Return what a graph holds (``kg.rdf.syntax.text_of``), None when it is not there."""
        rows = self._read(SELECT_TEXT, (graph,))
        return unpack(rows[0][0]) if rows else None

    def entries_of(self, graphs: Iterable[str]) -> dict[str, GraphEntry]:
        """Return what is recorded about some graphs, by graph; those that do not exist are absent."""
        ((found,),) = self._read(_SELECT_MANY, (json_of(list(graphs)),))
        return {row[0]: _entry(row) for row in msgspec.json.decode(found)}

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

    def newest_changes(self, generation: int, place: int, limit: int) -> list[tuple[int, LogEntry]]:
        """Return ``limit`` changes before the one at ``place`` of ``generation``, the newest first, each with its own place."""
        place = min(place, self._count(generation)) if place else 0
        first = max(0, place - limit)
        within = self._read(_SELECT_WITHIN, (generation, place - first, first)) if place > first else []
        found = [(first + index, log_entry(row)) for index, row in enumerate(within)][::-1]
        rows = self._read(_SELECT_BELOW, (generation, limit - len(found) + 1)) if len(found) < limit else []
        for number, group in groupby(map(log_entry, rows), key=lambda entry: entry.generation):
            entries = list(group)
            cut = number == rows[-1][0]  # what stands before those of it that were read is not known
            count = self._count(number) if cut else len(entries)
            found += [(count - 1 - index, entry) for index, entry in enumerate(entries)]
        return found[:limit]

    def _count(self, generation: int) -> int:
        return int(self._read("SELECT count(*) FROM log WHERE generation = ?", (generation,))[0][0])

    def undoable(self, graph: str, generation: int) -> UndoableChange | None:
        """Return the change of a graph in a generation, with what undoes it."""
        return _undoable(self._read(_SELECT_UNDOABLE, (graph, generation)))

    def removal_after(self, graph: str, generation: int) -> UndoableChange | None:
        """Return the first change after a generation that removed a graph."""
        return _undoable(self._read(_SELECT_REMOVAL, (graph, generation)))

    def last_removal(self, graph: str, before: int) -> UndoableChange | None:
        """Return the last change before a generation that removed a graph."""
        return _undoable(self._read(_SELECT_LAST_REMOVAL, (graph, before)))

    def last_change(self, graph: str, before: int) -> UndoableChange | None:
        """Return the last change of a graph before a generation; all rows between are looked at: 0.1 s for 100,000."""
        return _undoable(self._read(_SELECT_LAST_CHANGE, (graph, before)))

    def _whole(self, since: int, until: int, limit: int) -> list[LogEntry]:
        rows = self._read(_SELECT_LOG, (since, until, limit + 1))
        if len(rows) <= limit:
            return [log_entry(row) for row in rows]
        cut = rows[-1][0]
        whole = [row for row in rows if row[0] < cut]
        if not whole:  # one generation alone is larger than the limit
            whole = self._read(_SELECT_LOG, (cut - 1, cut, -1))
        return [log_entry(row) for row in whole]

    def _read(self, query: str, values: Iterable[Any] = ()) -> list[tuple[Any, ...]]:
        try:
            with self._reading() as connection:
                return connection.execute(query, tuple(values)).fetchall()
        except sqlite3.Error as error:
            raise self._unavailable("read", error) from error

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection]:
        """Have a connection that nobody else reads with; a new one when all are in use."""
        with self._returned:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            connection = self._idle.pop() if self._idle else None
            self._used += 1
        try:
            connection = connection or self._connect()
            yield connection
        finally:
            self._return(connection)

    def _return(self, connection: sqlite3.Connection | None) -> None:
        with self._returned:
            self._used -= 1
            if connection is self._first:
                self._idle.append(connection)
            elif connection and len(self._idle) <= _IDLE:
                self._idle.insert(0, connection)
            elif connection:
                connection.close()
            self._returned.notify_all()

    @contextmanager
    def still(self) -> Iterator[LogReader]:
        """Have the log as it is now, whatever is written later: for one thread, and for a moment, since the file grows meanwhile."""
        reader = LogReader(self._path)
        try:
            with self._translated("read"):
                reader._first.execute("BEGIN")
                reader._first.execute("SELECT generation FROM settled").fetchone()
            yield reader
        finally:
            reader.close()

    def frozen(self) -> sqlite3.Connection:
        """Return a connection that sees the log as it is now, whatever is written later."""
        with self._translated("read"):
            connection = self._connect()
            connection.execute("BEGIN")
            connection.execute("SELECT generation FROM settled").fetchone()
        return connection

    def close(self) -> None:
        """Close all connections, once no read is under way."""
        with self._returned:
            self._closed = True
            self._returned.wait_for(lambda: not self._used)
            for each in self._idle:
                each.close()
            self._idle.clear()

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._unavailable(what, error) from error

    def _unavailable(self, what: str, error: sqlite3.Error) -> StoreUnavailable:
        return unavailable(f"the change log {self._path.name} cannot be {what}", error)


def _entry(row: tuple[Any, ...]) -> GraphEntry:
    return GraphEntry(row[0], row[1], row[2], row[3], _time(row[4]))


def check_of(generation: int, graph: str, owner: str, before: str | None, after: str | None, at: str) -> int:
    """Return the check of a row of the log, by which damage to it shows: CRC-32. Rows of before format 7 have none."""
    return zlib.crc32(f"{generation} {graph} {owner} {before} {after} {at}".encode(errors="surrogatepass"))


def _time(text: str) -> datetime:
    try:
        return datetime.fromisoformat(text)
    except ValueError as error:
        raise StoreDamaged(f"a time in changes.sqlite is damaged: {text!r}", hint=RESTORE) from error


def json_of(rows: Sequence[Any]) -> str:
    """Return values as the text that SQLite reads them from (``json_each``)."""
    return msgspec.json.encode(rows).decode()


def _stored(row: tuple[Any, ...]) -> tuple[GraphEntry, str | None]:
    return _entry(row), None if row[5] is None else unpack(row[5])


def log_entry(row: tuple[Any, ...]) -> LogEntry:
    """Return a row of the log as an entry; raises ``StoreDamaged`` when it is not what was written."""
    if row[6] is not None and row[6] != check_of(*row[:6]):
        raise StoreDamaged(
            f"a change in changes.sqlite is damaged: one of generation {row[0]}",
            hint=RESTORE,
            detail={"generation": row[0]},
        )
    return LogEntry(row[0], row[1], row[2], row[3], row[4], _time(row[5]))


def _undoable(rows: Sequence[tuple[Any, ...]]) -> UndoableChange | None:
    return UndoableChange(log_entry(rows[0]), rows[0][7], rows[0][8]) if rows else None


def past(prefix: str) -> str | None:
    """Return the least string greater than all that begin with ``prefix``; None when there is none."""
    trimmed = prefix.rstrip("\U0010ffff")
    if not trimmed:
        return None
    following = ord(trimmed[-1]) + 1
    return trimmed[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
