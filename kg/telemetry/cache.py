"""Finished days of series on disk, so that tomorrow's request for a month fetches one day.

A day is kept when it is over for good (an hour ago at least), asked for in full, and answered without a warning; its key is a digest of
everything that decides its values: datasource, query with the pods of that very day, step, day. So nothing here ever has to be
invalidated: when the graph learns of another pod of that day, the query and with it the key are others.
Each day has a checksum: one damaged on disk is fetched again, and a damaged file is made anew. A foreign file, or one that
cannot be read or written, is left alone for the rest of the process's life; the answer comes from the datasource. Processes may share it.
"""

from __future__ import annotations

import sqlite3
import threading
import zlib
from collections.abc import Iterable, Sequence
from datetime import timedelta
from hashlib import blake2b
from pathlib import Path

import structlog

from drumlin.kg.telemetry.arrow import pa, pc
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.series import Grid

_log = structlog.get_logger()

DAY = 86_400
SETTLED = timedelta(hours=1)
"""How long after its end a day is finished: late scrapes and remote writes have arrived by then."""
_CHECK_EVERY = 2000  # days written between two looks at the size
_SCHEMA = "CREATE TABLE IF NOT EXISTS day (key BLOB PRIMARY KEY, day INTEGER NOT NULL, y BLOB NOT NULL) WITHOUT ROWID"


class DayCache:
    """A file of days, for many threads; ``limit`` in bytes: beyond it the oldest days go."""

    def __init__(self, path: Path, limit: int) -> None:
        self._path = path
        self._limit = limit
        self._lock = threading.Lock()
        self._written = 0
        self._renewed = False
        self._database: sqlite3.Connection | None = None
        self._open()

    def _open(self) -> None:
        try:
            self._database = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
            for statement in ("PRAGMA journal_mode=WAL", "PRAGMA synchronous=OFF", _SCHEMA):
                self._database.execute(statement)
        except sqlite3.Error as error:
            self._failed(error)

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._database:
                self._database.close()
                self._database = None

    def get(self, keys: Sequence[bytes], points: int) -> dict[bytes, pa.DoubleArray]:
        """Return the days that are known, each with its ``points`` values (null where there is none)."""
        if not keys:
            return {}
        marks = ",".join("?" * len(keys))
        with self._lock:
            if self._database is None:
                return {}
            try:
                rows = self._database.execute(f"SELECT key, y FROM day WHERE key IN ({marks})", keys).fetchall()  # noqa: S608  question marks only
            except sqlite3.Error as error:
                self._failed(error)
                return {}
        found = {key: _read(y[_CHECK:]) for key, y in rows if len(y) == 8 * points + _CHECK and _is_whole(key, y)}
        if len(found) < len(rows):
            _log.warning("series_cache_damaged", days=len(rows) - len(found))
        return found

    def put(self, days: Iterable[tuple[bytes, Grid, pa.DoubleArray]]) -> None:
        """Keep days."""
        rows = [(key, grid.start, _checked(key, _written(values))) for key, grid, values in days]
        with self._lock:
            if self._database is None or not rows:
                return
            try:
                self._database.execute("BEGIN IMMEDIATE")
                self._database.executemany("INSERT OR REPLACE INTO day VALUES (?, ?, ?)", rows)
                self._database.execute("COMMIT")
                self._written += len(rows)
                if self._written >= _CHECK_EVERY:
                    self._written = 0
                    self._shrink(self._database)
            except sqlite3.Error as error:
                self._failed(error)

    def _shrink(self, database: sqlite3.Connection) -> None:
        (pages,), (free,), (size,) = (
            database.execute(f"PRAGMA {name}").fetchone() for name in ("page_count", "freelist_count", "page_size")
        )
        if (pages - free) * size > self._limit:
            (middle,) = database.execute("SELECT avg(day) FROM day").fetchone()
            database.execute("DELETE FROM day WHERE day <= ?", (middle,))
            _log.info("series_cache_shrunk", before=middle)

    def _failed(self, error: sqlite3.Error) -> None:
        """Go on without what another process holds just now, make a damaged file anew, and leave any other alone."""
        _log.warning("series_cache_unusable", reason=str(error))
        code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the primary one
        if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
            if self._database and self._database.in_transaction:
                self._database.execute("ROLLBACK")
            return
        if self._database:
            self._database.close()
        self._database = None
        if code == sqlite3.SQLITE_CORRUPT and not self._renewed:
            self._renewed = True
            for suffix in ("", "-wal", "-shm"):
                self._path.with_name(self._path.name + suffix).unlink(missing_ok=True)
            self._open()


def key(datasource: Datasource, identity: str, grid: Grid) -> bytes:
    """Return the name of one day of a question at a datasource."""
    access = datasource.access
    tenant = access.tenant_header.value if access and access.tenant_header else ""
    parameters = sorted(access.parameters.items()) if access else []
    said = (datasource.iri, datasource.url, tenant, repr(parameters), identity, str(grid.step), str(grid.start))
    return blake2b("\0".join(said).encode(), digest_size=16).digest()


_CHECK = 4  # bytes of checksum before a day's values


def _sum(key: bytes, values: bytes) -> bytes:
    return zlib.crc32(values, zlib.crc32(key)).to_bytes(_CHECK)


def _checked(key: bytes, values: bytes) -> bytes:
    return _sum(key, values) + values


def _is_whole(key: bytes, y: bytes) -> bool:
    return y[:_CHECK] == _sum(key, y[_CHECK:])


def _written(values: pa.DoubleArray) -> bytes:
    whole = pc.fill_null(values, float("nan"))
    return memoryview(whole.buffers()[1])[whole.offset * 8 : (whole.offset + len(whole)) * 8].tobytes()


def _read(blob: bytes) -> pa.DoubleArray:
    values = pa.Array.from_buffers(pa.float64(), len(blob) // 8, [None, pa.py_buffer(blob)])
    known = pc.invert(pc.is_nan(values))
    return values if pc.all(known).as_py() else pc.if_else(known, values, pa.scalar(None, pa.float64()))
