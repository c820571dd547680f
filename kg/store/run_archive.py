"""The run archive: runs of pods whose tombstones were removed, and since when all runs are known; beside the graph, in ``runs.sqlite``.

A tombstone leaves the graph when its retention is over, but a year of history is asked for by the names of the pods that ran. So their runs
move here. Of a workload the ``MOST_RUNS`` that ended last are kept; older ones fold into one line: first, last and count. Beside them stand
the spans in which every run of a cluster's pods is known (*known*), the spans of a datasource that were read for past runs (*read*),
and the times of which dumps tell (*seen*).

The file is made with the first line. It names the store that it is of, and ``runs.mark`` beside it the store and the last generation that
was written (``kg.store.embedded.marks``): an archive that is missing, damaged, older than its mark or of another store is refused by name.
"""

from __future__ import annotations

import math
import sqlite3
import threading
from collections import defaultdict
from collections.abc import Iterable, Iterator, Sequence
from contextlib import closing, contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NamedTuple

from drumlin.kg.disk import sync
from drumlin.kg.errors import StoreDamaged, StoreUnavailable
from drumlin.kg.store.embedded.marks import MarkFile, StoreMark, read_mark
from drumlin.kg.store.embedded.wal import unavailable

RUNS, RUNS_MARK = "runs.sqlite", "runs.mark"
MOST_RUNS = 2000
"""Runs that are kept of one workload."""
_VERSION = 1
_LOST = (
    "restore a backup (drumlin restore BACKUP --store NEW_DIRECTORY), or keep what is whole (drumlin repair STORE): without the archive"
    " history asks for past pods by the pattern of their names"
)
_SCHEMA = """
CREATE TABLE state (store TEXT NOT NULL, generation INTEGER NOT NULL, runs INTEGER NOT NULL, seconds INTEGER NOT NULL);
CREATE TABLE run (
  workload TEXT NOT NULL, uid TEXT NOT NULL, pod TEXT NOT NULL, job TEXT, start INTEGER NOT NULL, end INTEGER NOT NULL,
  node TEXT, outcome TEXT, PRIMARY KEY (workload, uid)
) WITHOUT ROWID;
CREATE INDEX run_of_job ON run (job) WHERE job IS NOT NULL;
CREATE TABLE folded (
  workload TEXT PRIMARY KEY, first INTEGER NOT NULL, last INTEGER NOT NULL, count INTEGER NOT NULL
) WITHOUT ROWID;
CREATE TABLE span (
  kind TEXT NOT NULL, cluster TEXT NOT NULL, part TEXT NOT NULL, start INTEGER NOT NULL, end INTEGER NOT NULL,
  PRIMARY KEY (kind, cluster, part, start)
) WITHOUT ROWID;
CREATE TRIGGER run_in AFTER INSERT ON run BEGIN
  UPDATE state SET runs = runs + 1, seconds = seconds + NEW.start + NEW.end; END;
CREATE TRIGGER run_out AFTER DELETE ON run BEGIN
  UPDATE state SET runs = runs - 1, seconds = seconds - OLD.start - OLD.end; END;
CREATE TRIGGER run_changed AFTER UPDATE ON run BEGIN
  UPDATE state SET seconds = seconds + NEW.start + NEW.end - OLD.start - OLD.end; END;
"""
_KEEP = """
INSERT INTO run VALUES (?, ?, ?, ?, ?, ?, ?, ?) ON CONFLICT DO UPDATE SET
  start = min(start, excluded.start), end = max(end, excluded.end), node = coalesce(node, excluded.node),
  outcome = coalesce(outcome, excluded.outcome)
"""
_RUN = "SELECT workload, uid, pod, job, start, end, node, outcome FROM run"
_OLDEST = (
    f"{_RUN} WHERE workload = ?1 ORDER BY end, uid LIMIT max(0, (SELECT count(*) FROM run WHERE workload = ?1) - ?2)"  # noqa: S608  a constant
)
_FOLD = """
INSERT INTO folded VALUES (?, ?, ?, ?) ON CONFLICT DO UPDATE SET
  first = min(first, excluded.first), last = max(last, excluded.last), count = count + excluded.count
"""
_SUMS = "SELECT count(*), coalesce(sum(start + end), 0) FROM run"


class ArchivedRun(NamedTuple):
    """One run of a pod that is over: seconds since the epoch, IRIs of the workload, of the Job between them, and of the node."""

    workload: str
    uid: str
    pod: str
    job: str | None
    start: int
    end: int
    node: str | None = None
    outcome: str | None = None


@dataclass(frozen=True, slots=True)
class FoldedRuns:
    """What is left of a workload's oldest runs: when the first began, when the last ended, in seconds, and how many there were."""

    first: int
    last: int
    count: int


class RunArchive:
    """The archive of one store, for many threads. Raises ``StoreDamaged`` and ``StoreUnavailable``.

    ``store`` is the id of the store that it belongs to, ``unwritable`` why writes are refused, None where they are not.
    """

    def __init__(self, directory: Path, store: str, unwritable: StoreUnavailable | None = None) -> None:
        self._path = directory / RUNS
        self._mark_path = directory / RUNS_MARK
        self._store = store
        self._unwritable = unwritable
        self._lock = threading.Lock()
        self._database: sqlite3.Connection | None = None
        self._mark: MarkFile | None = None
        mark = read_mark(self._mark_path)
        if self._path.exists() and self._path.stat().st_size:
            self._prove(mark)
        elif mark or self._mark_path.exists():
            raise StoreDamaged(
                f"{self._path} is missing, and {RUNS_MARK} shows that there was a run archive", hint=_LOST
            )

    def close(self) -> None:
        """Close the file."""
        with self._lock:
            if self._database:
                self._database.close()
                self._database = None
            if self._mark:
                self._mark.close()
                self._mark = None

    # -- runs -----------------------------------------------------------------------------------------------------------
    def add(self, runs: Iterable[ArchivedRun]) -> None:
        """Keep runs, each once by its uid: the earlier start and the later end win. What is too many of a workload is folded."""
        by_workload: defaultdict[str, list[ArchivedRun]] = defaultdict(list)
        for each in runs:
            by_workload[each.workload].append(each)
        if not by_workload:
            return
        with self._writing() as database:
            for workload, found in by_workload.items():
                _add(database, workload, found)

    def runs(self, workloads: Sequence[str], start: float, end: float) -> dict[str, list[ArchivedRun]]:
        """Return the runs that overlap a span, by the workload asked for: a CronJob has those of its Jobs, a Job has its own."""
        found: dict[str, list[ArchivedRun]] = {workload: [] for workload in workloads}
        with self._reading() as database:
            if database is None:
                return found
            for workload in found:
                rows = database.execute(
                    f"{_RUN} WHERE (workload = ?1 OR job = ?1) AND start <= ?2 AND end >= ?3",
                    (workload, end, start),
                )
                found[workload] = [ArchivedRun(*row) for row in rows]
        return found

    def folded(self, workload: str) -> FoldedRuns | None:
        """Return what is left of a workload's oldest runs; None when none was folded."""
        with self._reading() as database:
            row = (
                database
                and database.execute("SELECT first, last, count FROM folded WHERE workload = ?", (workload,)).fetchone()
            )
        return FoldedRuns(*row) if row else None

    def forget(self, workloads: Iterable[str]) -> None:
        """Remove what is kept of workloads that nobody can ask for any more."""
        gone = [(each,) for each in workloads]
        if not gone or self._database is None:
            return
        with self._writing() as database:
            database.executemany("DELETE FROM run WHERE workload = ?", gone)
            database.executemany("DELETE FROM folded WHERE workload = ?", gone)

    def counts(self) -> tuple[int, int]:
        """Return how many runs are kept, and how many were folded."""
        with self._reading() as database:
            if database is None:
                return 0, 0
            (runs,) = database.execute("SELECT runs FROM state").fetchone()
            (folded,) = database.execute("SELECT coalesce(sum(count), 0) FROM folded").fetchone()
            return runs, folded

    # -- spans ----------------------------------------------------------------------------------------------------------
    def note(
        self, kind: str, cluster: str, parts: Iterable[str], start: float, end: float, *, bridge: float = 0
    ) -> None:
        """Note a span of each part; it joins others of the same that it touches, or that are ``bridge`` seconds away at most."""
        with self._writing() as database:
            for part in parts:
                key = (kind, cluster, part)
                near = database.execute(
                    "SELECT start, end FROM span WHERE kind = ? AND cluster = ? AND part = ? AND start <= ? AND end >= ?",
                    (*key, end + bridge, start - bridge),
                ).fetchall()
                database.executemany(
                    "DELETE FROM span WHERE kind = ? AND cluster = ? AND part = ? AND start = ?",
                    [(*key, first) for first, _ in near],
                )
                first = min([int(start), *(each[0] for each in near)])
                last = max([int(end), *(each[1] for each in near)])
                database.execute("INSERT INTO span VALUES (?, ?, ?, ?, ?)", (*key, first, last))

    def note_dump(self, cluster: str, at: float) -> None:
        """Note that what is known of a cluster is what a dump of that time shows."""
        if (int(at), int(at)) not in self.spans("seen", cluster, [""]):
            self.note("seen", cluster, [""], int(at), int(at))

    def spans(self, kind: str, cluster: str, parts: Sequence[str]) -> list[tuple[int, int]]:
        """Return the spans that were noted of some parts, in the order of their starts."""
        with self._reading() as database:
            if database is None:
                return []
            marks = ",".join("?" * len(parts))
            return database.execute(
                f"SELECT start, end FROM span WHERE kind = ? AND cluster = ? AND part IN ({marks}) ORDER BY start",  # noqa: S608  question marks only
                (kind, cluster, *parts),
            ).fetchall()

    # -- the file -------------------------------------------------------------------------------------------------------
    def copy(self, path: Path) -> int:
        """Write the archive as a file of its own, when there is one; return how many runs it has."""
        with self._reading() as database:
            if database is None:
                return 0
            with closing(sqlite3.connect(path)) as copy:
                database.backup(copy)
                copy.execute("PRAGMA journal_mode = DELETE")
                return int(copy.execute("SELECT runs FROM state").fetchone()[0])

    def _prove(self, mark: StoreMark | None) -> None:
        """Open the file that there is, and compare it with itself, the store and its mark."""
        try:
            database = self._connect()
            if reason := _fault(database, self._store, mark):
                database.close()
                raise StoreDamaged(f"{self._path} {reason}", hint=_LOST)
            self._database = database
            self._mark = MarkFile(self._mark_path, self._store)
            self._mark.write(database.execute("SELECT generation FROM state").fetchone()[0])
        except sqlite3.Error as error:
            found = unavailable(f"the run archive {self._path} cannot be read", error)
            found.hint = _LOST if isinstance(found, StoreDamaged) else found.hint
            raise found from error
        except OSError as error:
            raise unavailable(f"{self._mark_path} cannot be written", error) from error

    def _connect(self) -> sqlite3.Connection:
        database = sqlite3.connect(self._path, check_same_thread=False, isolation_level=None)
        for statement in ("PRAGMA journal_mode = WAL", "PRAGMA synchronous = FULL"):
            database.execute(statement)
        return database

    @contextmanager
    def _reading(self) -> Iterator[sqlite3.Connection | None]:
        with self._lock, self._translated("read"):
            yield self._database

    @contextmanager
    def _writing(self) -> Iterator[sqlite3.Connection]:
        """Do everything inside, or nothing; then note the generation."""
        if self._unwritable:
            raise self._unwritable.again()
        with self._lock, self._translated("written"):
            database = self._database or self._made()
            database.execute("BEGIN IMMEDIATE")
            try:
                yield database
                database.execute("UPDATE state SET generation = generation + 1")
                database.execute("COMMIT")
            finally:
                if database.in_transaction:
                    database.execute("ROLLBACK")
            if self._mark:
                self._mark.write(database.execute("SELECT generation FROM state").fetchone()[0])

    def _made(self) -> sqlite3.Connection:
        database = self._connect()
        begun = f"INSERT INTO state VALUES ('{self._store}', 0, 0, 0); PRAGMA user_version = {_VERSION};"  # noqa: S608  our own id
        database.executescript(f"BEGIN; {_SCHEMA} {begun} COMMIT;")
        self._database, self._mark = database, MarkFile(self._mark_path, self._store)
        sync(self._path.parent)
        return database

    @contextmanager
    def _translated(self, what: str) -> Iterator[None]:
        try:
            yield
        except (sqlite3.Error, OSError) as error:
            raise unavailable(f"the run archive {self._path} cannot be {what}", error) from error


def take_over(path: Path, store: str) -> None:
    """Make the archive in a file that of another store: it was restored with that one's log."""
    try:
        with closing(sqlite3.connect(path)) as database, database:
            database.execute("UPDATE state SET store = ?", (store,))
    except sqlite3.Error as error:
        raise unavailable(f"{path} cannot be written", error) from error


def _fault(database: sqlite3.Connection, store: str, mark: StoreMark | None) -> str:
    """Return what is wrong with an archive, nothing when it is whole."""
    (verdict,) = database.execute("PRAGMA quick_check(1)").fetchone()
    if verdict != "ok":
        return f"is damaged: {' '.join(verdict.split())}"
    (version,) = database.execute("PRAGMA user_version").fetchone()
    if version != _VERSION:
        return f"has the format {version}, and this version of drumlin reads {_VERSION}"
    row: tuple[Any, ...] | None = database.execute("SELECT store, generation, runs, seconds FROM state").fetchone()
    if row is None:
        return "is damaged: it does not say which store it is of"
    if row[0] != store:
        return f"is of another store, {row[0]}, not of {store}"
    if database.execute(_SUMS).fetchone() != row[2:]:
        return "is damaged: its runs are not those that were written"
    if mark and mark.store == store and mark.generation > row[1]:
        return (
            f"ends at generation {row[1]:,}, but generation {mark.generation:,} was written ({RUNS_MARK}):"
            " its -wal is missing, or it is an older copy"
        )
    return ""


def _add(database: sqlite3.Connection, workload: str, runs: Sequence[ArchivedRun]) -> None:
    """Keep a workload's runs, and fold the oldest beyond the limit; a run that lies in what is folded is in its count already."""
    row = database.execute("SELECT first, last FROM folded WHERE workload = ?", (workload,)).fetchone()
    first, last = row or (math.inf, -math.inf)
    _fold(database, workload, [each for each in runs if each.end <= last and each.start < first])
    database.executemany(_KEEP, [each for each in runs if each.end > last])
    excess = [ArchivedRun(*each) for each in database.execute(_OLDEST, (workload, MOST_RUNS)).fetchall()]
    _fold(database, workload, excess)
    database.executemany("DELETE FROM run WHERE workload = ? AND uid = ?", [(workload, each.uid) for each in excess])


def _fold(database: sqlite3.Connection, workload: str, runs: Sequence[ArchivedRun]) -> None:
    if runs:
        first, last = min(each.start for each in runs), max(each.end for each in runs)
        database.execute(_FOLD, (workload, first, last, len(runs)))
