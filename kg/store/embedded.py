"""The embedded store: Oxigraph on disk, one writer, a change log beside it. Implements ``kg.store.protocol.Store``.

The directory holds ``quads/`` (the engine's RocksDB), ``changes.sqlite`` (``kg.store.changes``), ``lock`` (the pid of the
process that has it open) and, while an export runs, ``checkpoints/``. A write is: check under the one write lock, record
the generation in the change log, commit one engine transaction, sync the engine's write-ahead log, answer. A crash
between record and commit is settled when the store is opened.

Many new graphs at once are bulk-loaded, ``CHUNK`` at a time: each graph appears whole, but a query that runs meanwhile may see some of
them and not yet others; a crash takes all of them back.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pyoxigraph as ox
import structlog

from kg.errors import GraphOwned, InvalidDocument, PreconditionFailed, StoreUnavailable
from kg.rdf import digest
from kg.store import blanks, querying
from kg.store.changes import ChangeLog
from kg.store.delta import Change, Delta, nquads, update_text
from kg.store.durability import Wal
from kg.store.lines import canonical
from kg.store.protocol import (
    ANY,
    Answer,
    Dataset,
    GraphEntry,
    GraphWrite,
    Lines,
    LogEntry,
    Row,
    StoredGraph,
    Written,
)
from kg.store.recent import Recent
from kg.store.streaming import Stream

BULK = 500
"""From this many new graphs on, a write is bulk-loaded."""
CHUNK = 1000
"""Graphs in one bulk load: the engine's memory grows with it."""
_OPTIMIZE_AFTER = 8  # bulk loads; each leaves files that slow point queries

_UNION = Dataset()

log = structlog.get_logger(__name__)
T = TypeVar("T")


def now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


class EmbeddedStore:
    """A store in ``directory``, made when absent; None means a temporary one that is removed on ``close``.

    Raises ``StoreUnavailable`` when another process has it open, or when it cannot be read.
    """

    def __init__(self, directory: Path | None = None, *, clock: Callable[[], datetime] = now) -> None:
        self._clock = clock
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="drumlin-")) if directory is None else directory
        self._lock = threading.Lock()
        self._in_flight: frozenset[str] = frozenset()
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._broken = False
        self._bulk_loads = 0
        self._followers: list[Callable[[Delta], None]] = []
        self._recent = Recent()
        self._pid_file = _claim(self.directory)
        try:
            self._open()
        except BaseException:
            os.close(self._pid_file)
            raise

    def _open(self) -> None:
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        self._changes = ChangeLog(self.directory / "changes.sqlite")
        quads = self.directory / "quads"
        with _translated("opened"):
            self._opened: ox.Store | None = ox.Store(str(quads))
        self._wal = Wal(quads)
        self._reconcile()
        self._generation = self._changes.last()
        log.info("store_opened", directory=str(self.directory), generation=self._generation)

    @property
    def _checkpoints(self) -> Path:
        return self.directory / "checkpoints"

    @property
    def _engine(self) -> ox.Store:
        if self._opened is None:
            raise StoreUnavailable("the store is closed")
        return self._opened

    @property
    def generation(self) -> int:
        """How many effective writes there have been."""
        return self._generation

    # -- writing ------------------------------------------------------------------------------------------------------
    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none, in order; see ``Store.apply``. Lines that are not legal raise ``InvalidDocument``."""
        if len({each.graph for each in writes}) < len(writes):
            raise ValueError("the same graph occurs twice in one write")
        wanted = [_wanted(each) for each in writes]
        with self._lock:
            engine = self._engine
            if self._broken:
                raise StoreUnavailable("an earlier write failed and could not be undone", hint="restart the service")
            changes, results = self._planned(wanted)
            if changes:
                self._write(engine, changes)
        if changes:
            self._tidy(engine)
        return results

    def _planned(self, wanted: list[tuple[GraphWrite, Lines | None, str | None]]) -> tuple[list[Change], list[Written]]:
        """Hold the writes against what there is: the changes to make, and what to answer once they are made."""
        changes: list[Change] = []
        results: list[Written] = []
        for write, lines, after in wanted:
            entry = self._changes.entry(write.graph)
            _check(write, entry)
            before = entry.digest if entry else None
            if before == after:
                results.append(Written(write.graph, "unchanged", after, self._generation))
                continue
            old = self._lines(entry) if entry and lines is not None else frozenset()
            changes.append(Change(write.graph, write.owner, before, after, old, lines))
            results.append(Written(write.graph, changes[-1].outcome, after, self._generation + 1))
        return changes, results

    def _write(self, engine: ox.Store, changes: list[Change]) -> None:
        generation, at = self._generation + 1, self._clock()
        entries = [LogEntry(generation, each.graph, each.owner, each.before, each.after, at) for each in changes]
        delta: Delta | None = None
        self._in_flight = frozenset(each.graph for each in changes)
        try:
            self._changes.record(entries)
            delta = self._commit(engine, changes, generation)
        finally:
            if delta is None:
                self._broken = True
                self._reconcile()
                self._broken = self._changes.last() == generation  # it is in the engine, but perhaps not on disk
            else:
                self._tell(delta)
                self._generation = generation
            self._in_flight = frozenset()
        for each in changes[:CHUNK]:
            if each.after is not None and each.lines is not None:
                self._recent.keep(each.after, each.lines)

    def _commit(self, engine: ox.Store, changes: list[Change], generation: int) -> Delta:
        new = [each for each in changes if each.loadable]
        bulk, update = len(new) >= BULK, ""
        with _translated("written"):
            if bulk:
                for start in range(0, len(new), CHUNK):
                    engine.bulk_load(nquads(new[start : start + CHUNK]), format=ox.RdfFormat.N_QUADS)
                    self._bulk_loads += 1
            if rest := [each for each in changes if not (bulk and each.loadable)]:
                update = update_text(rest)
                blanks.replay(engine, update)  # the commit point: one transaction
            self._wal.sync()
        if bulk:  # thousands of graphs need not be compared again at the next start
            self._changes.settle(generation)
        return Delta(generation, "" if bulk else update, tuple(each.graph for each in changes), bulk)

    def _tell(self, delta: Delta) -> None:
        for each in self._followers:
            each(delta)

    def _reconcile(self) -> None:
        """Settle the last generation: keep it when the engine holds all of it, else take all of it back."""
        in_doubt = self._changes.in_doubt()
        held = {each.graph: self._held(each.graph) for each in in_doubt}
        if all(held[each.graph] == each.after for each in in_doubt):
            return
        for each in in_doubt:
            if each.before is not None and held[each.graph] != each.before:
                raise StoreUnavailable(
                    f"{each.graph} is neither what it was before nor after the last write",
                    hint="restore a backup of the directory, or load again into a new one",
                    detail={"graph": each.graph, "generation": each.generation},
                )
        half = [each.graph for each in in_doubt if each.before is None and held[each.graph] is not None]
        if half:  # bulk loads of a write that was cut
            with _translated("written"):
                self._engine.update(";".join(f"DROP GRAPH <{graph}>" for graph in half))
                self._wal.sync()
            self._tell(Delta(in_doubt[0].generation - 1, "", tuple(half), bulk=True))  # a checkpoint may hold them
        self._changes.take_back(in_doubt[0].generation)
        log.warning("generation_taken_back", generation=in_doubt[0].generation, graphs=len(in_doubt), half=len(half))

    def _held(self, graph: str) -> str | None:
        name = ox.NamedNode(graph)
        return digest(_lines_of(self._engine, graph)) if self._engine.contains_named_graph(name) else None

    def _tidy(self, engine: ox.Store) -> None:
        """Keep the engine's files in shape, outside the lock: other writers go on meanwhile."""
        with _translated("written"):
            self._wal.flush_when_large(engine.flush)
            if self._bulk_loads >= _OPTIMIZE_AFTER:
                self._bulk_loads = 0
                engine.optimize()

    # -- reading ------------------------------------------------------------------------------------------------------
    def read(self, graph: str) -> StoredGraph | None:
        """Return one graph, or None when it does not exist."""
        return self._settled(graph, self._read)

    def _read(self, graph: str) -> StoredGraph | None:
        entry = self._changes.entry(graph)
        return StoredGraph(entry, self._lines(entry)) if entry else None

    def _lines(self, entry: GraphEntry) -> Lines:
        lines = self._recent.get(entry.digest)
        if lines is None:
            lines = _lines_of(self._engine, entry.graph)
            if digest(lines) == entry.digest:  # else a write came between, and _settled looks again
                self._recent.keep(entry.digest, lines)
        return lines

    def entry(self, graph: str) -> GraphEntry | None:
        """Return what is recorded about one graph, without its content."""
        return self._settled(graph, self._changes.entry)

    def _settled(self, graph: str, look: Callable[[str], T]) -> T:
        """Look at a graph at a moment when it is not being written: without the lock nearly always."""
        if graph not in self._in_flight:
            before = self._changes.entry(graph)
            found = look(graph)
            if graph not in self._in_flight and self._changes.entry(graph) == before:
                return found
        with self._lock:
            return look(graph)

    def entries(
        self, *, owner: str | None = None, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[GraphEntry]:
        """List graphs in the order of their IRIs; see ``Store.entries``."""
        found = self._changes.entries(owner=owner, prefix=prefix, after=after, limit=limit)
        if self._in_flight or any(each.generation > self._generation for each in found):
            with self._lock:
                return self._changes.entries(owner=owner, prefix=prefix, after=after, limit=limit)
        return found

    def log(self, since: int, limit: int = 1000) -> list[LogEntry]:
        """Return changes of generations greater than ``since``, oldest first, whole generations only."""
        return self._changes.log(since, self._generation, limit)

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run one of our own SELECTs over the union of all graphs; a variable in ``values`` is in every row too."""
        with _translated("read"):
            return querying.look_up(self._engine, query, values or {})

    def answer(self, query: str, *, media_type: str, dataset: Dataset = _UNION, base: str | None = None) -> Answer:
        """Run a caller's query; see ``Store.answer``. Chunks come as the query runs; ``close`` them to end it early.

        The answer holds every write up to ``generation``, and may hold one that came while it began.
        """
        engine, generation = self._engine, self._generation
        stream = Stream(querying.work(engine, query, media_type, dataset, base))
        self._streams.add(stream)
        return Answer(media_type, stream, generation)

    def export(self) -> Iterator[tuple[str, Lines]]:
        """Yield all graphs of one generation, in the order of their IRIs, from a checkpoint (hard links)."""
        self._checkpoints.mkdir(exist_ok=True)
        folder = Path(tempfile.mkdtemp(dir=self._checkpoints))
        try:
            with _translated("read"):
                with self._lock:
                    graphs = [each.graph for each in self._changes.entries(owner=None, prefix="", after="", limit=None)]
                    self._engine.backup(str(folder / "quads"))
                checkpoint = ox.Store.read_only(str(folder / "quads"))
            for graph in graphs:
                yield graph, _lines_of(checkpoint, graph)
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def follow_deltas(self, listener: Callable[[Delta], None]) -> None:
        """Have ``listener`` called with every delta from now on, in order, before its writes are acknowledged.

        It is called on the way of every write, so it must be quick, must not block and must not raise. The store's ``generation`` moves
        on after the call: who sees a generation finds its delta told.
        """
        with self._lock:
            self._followers.append(listener)

    def checkpoint(self, folder: Path) -> int:
        """Make ``folder``, which must not exist, a copy of the quads (hard links where it is on the store's file system).

        Returns a generation that the copy holds; it may hold later ones too, in part where a bulk load is under way. Replaying
        all deltas after it makes the copy what the store is. Writers are not held up.
        """
        with _translated("read"):
            generation = self._generation
            self._engine.backup(str(folder))
        return generation

    def close(self) -> None:
        """Release the store, ending the queries that run; acknowledged writes are on disk already."""
        with self._lock:
            if self._opened is None:
                return
            for stream in list(self._streams):
                stream.close()
            if not self._broken:
                self._changes.settle(self._generation)
            self._opened = None
            self._changes.close()
            os.close(self._pid_file)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        log.info("store_closed", directory=str(self.directory), generation=self._generation)


def _wanted(write: GraphWrite) -> tuple[GraphWrite, Lines | None, str | None]:
    try:
        ox.NamedNode(write.graph)
    except ValueError as error:
        raise InvalidDocument(f"{write.graph!r} is not an IRI that can name a graph") from error
    if write.lines is None:
        return write, None, None
    lines = canonical(write.lines, write.graph)
    return write, lines, digest(lines)


def _check(write: GraphWrite, entry: GraphEntry | None) -> None:
    """Raise when the owner or the precondition forbids ``write``."""
    if entry is not None and entry.owner != write.owner:
        raise GraphOwned(write.graph, entry.owner, write.owner)
    current = entry.digest if entry else None
    if write.expected is not ANY and write.expected != current:
        now_there = "it does not exist" if current is None else "it is not what was expected"
        raise PreconditionFailed(
            f"{write.graph} was not written: {now_there}", hint="read it again", detail={"digest": current}
        )


def _lines_of(engine: ox.Store, graph: str) -> Lines:
    content = engine.dump(from_graph=ox.NamedNode(graph), format=ox.RdfFormat.N_TRIPLES) or b""
    return frozenset(content.decode().split("\n")) - {""}


def _claim(directory: Path) -> int:
    """Lock the directory for this process; the lock ends with the process, however that ends."""
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        raise StoreUnavailable(
            f"{directory} cannot be used as a store: {error.strerror}", hint="choose another directory (--store)"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = os.pread(file, 20, 0).decode("ascii", "replace").strip() or "another process"
        os.close(file)
        raise StoreUnavailable(
            f"{directory} is in use by process {holder}",
            hint="talk to that service, or stop it first",
            detail={"pid": holder},
        ) from error
    os.ftruncate(file, 0)
    os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    return file


@contextmanager
def _translated(what: str) -> Iterator[None]:
    try:
        yield
    except SyntaxError as error:
        raise InvalidDocument("a statement is not legal RDF: one of its IRIs is malformed") from error
    except OSError as error:
        raise StoreUnavailable(
            f"the store cannot be {what}: {error}", hint="check free space and permissions of the store's directory"
        ) from error
