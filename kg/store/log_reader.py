"""What the change log tells (``kg.store.changes`` writes it): graphs, who owns them, what they hold, and what became of them, in order.

Any number of processes may read one log while one writes it.
"""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from datetime import datetime
from pathlib import Path
from typing import Any

import msgspec

from kg.errors import EventsGone, StoreUnavailable
from kg.store.durability import unavailable
from kg.store.protocol import GraphEntry, LogEntry
from kg.store.texts import unpack

_CACHE = 16 << 20  # bytes of the log that are kept in memory for reading: about 10,000 graphs

_SELECT_ENTRY = "SELECT graph, digest, owner, generation, changed FROM graphs WHERE graph = ?"
_WITH_TEXT = (
    "SELECT graph, graphs.digest, owner, generation, changed, packed FROM graphs LEFT JOIN texts USING (graph, digest)"
)
_SELECT_STORED = f"{_WITH_TEXT} WHERE graph = ?"
_SELECT_ALL_STORED = f"{_WITH_TEXT} WHERE graph IN (SELECT value FROM json_each(?))"  # noqa: S608 - constants
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
_SELECT_LOG = """
SELECT generation, graph, owner, before, after, at FROM log
WHERE generation > ? AND generation <= ? ORDER BY generation, graph LIMIT ?
"""
_SELECT_IN_DOUBT = """
SELECT generation, graph, owner, before, after, at FROM log
WHERE generation > (SELECT generation FROM settled) ORDER BY generation
"""


class LogReader:
    """Reads the log in the file ``path``. Raises ``StoreUnavailable`` when the disk does; all methods may be called from any thread."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._reading = threading.Lock()
        with self._translated("opened"):
            self._reader = self._connect()
            self._reader.execute(f"PRAGMA cache_size = -{_CACHE >> 10}")

    def _connect(self) -> sqlite3.Connection:
        return sqlite3.connect(self._path, isolation_level=None, check_same_thread=False)

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
        return [log_entry(row) for row in self._read(_SELECT_IN_DOUBT)]

    def entry(self, graph: str) -> GraphEntry | None:
        """Return what is recorded about one graph."""
        rows = self._read(_SELECT_ENTRY, (graph,))
        return _entry(rows[0]) if rows else None

    def stored(self, graph: str) -> tuple[GraphEntry, str | None] | None:
        """Return what is recorded about one graph, and its text if it is there."""
        rows = self._read(_SELECT_STORED, (graph,))
        return _stored(rows[0]) if rows else None

    def stored_of(self, graphs: Iterable[str]) -> dict[str, tuple[GraphEntry, str | None]]:
        """Return what ``stored`` does of many, by graph; those that do not exist are absent."""
        return {row[0]: _stored(row) for row in self._read(_SELECT_ALL_STORED, (json_of(list(graphs)),))}

    def text(self, graph: str) -> str | None:
        """Return what a graph holds (``kg.rdf.text_of``), None when it is not there."""
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

    def has_changed(self, since: int, changes: int) -> bool:
        """Tell whether there are at least so many changes of graphs after a generation."""
        return bool(self._read("SELECT 1 FROM log WHERE generation > ? LIMIT 1 OFFSET ?", (since, changes - 1)))

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
        """Close the connection."""
        with self._reading:
            self._reader.close()

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except sqlite3.Error as error:
            raise self._unavailable(what, error) from error

    def _unavailable(self, what: str, error: sqlite3.Error) -> StoreUnavailable:
        return unavailable(f"the change log {self._path.name} cannot be {what}", error)


def _entry(row: tuple[Any, ...]) -> GraphEntry:
    return GraphEntry(row[0], row[1], row[2], row[3], datetime.fromisoformat(row[4]))


def json_of(rows: Sequence[Any]) -> str:
    """Return values as the text that SQLite reads them from (``json_each``)."""
    return msgspec.json.encode(rows).decode()


def _stored(row: tuple[Any, ...]) -> tuple[GraphEntry, str | None]:
    return _entry(row), None if row[5] is None else unpack(row[5])


def log_entry(row: tuple[Any, ...]) -> LogEntry:
    """Return a row of the log as an entry."""
    return LogEntry(row[0], row[1], row[2], row[3], row[4], datetime.fromisoformat(row[5]))


def past(prefix: str) -> str | None:
    """Return the least string greater than all that begin with ``prefix``; None when there is none."""
    trimmed = prefix.rstrip("\U0010ffff")
    if not trimmed:
        return None
    following = ord(trimmed[-1]) + 1
    return trimmed[:-1] + chr(0xE000 if 0xD800 <= following <= 0xDFFF else following)
