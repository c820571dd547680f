"""The embedded store: Oxigraph on disk, one writer, a change log beside it. Implements ``kg.store.protocol.Store``.

The directory holds ``changes.sqlite`` (``kg.store.embedded.change_log``: all that was written), ``quads/`` (the engine's RocksDB, which
follows it), ``runs.sqlite`` (``kg.store.run_archive``: ``archive``, runs that have left the graph), ``lock`` (the pid of the process that
has it open) and, while an export runs, ``checkpoints/``. How it is written is the business of ``kg.store.embedded.writer`` and
``kg.store.embedded.engine_applier``; after a crash at any moment the engine is brought up to the log when the store is opened.
"""

from __future__ import annotations

import fcntl
import os
import shutil
import tempfile
import threading
import weakref
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TypeVar

import pyoxigraph as ox
import structlog

from drumlin.kg import observed_time
from drumlin.kg.errors import InvalidDocument, StoreUnavailable
from drumlin.kg.observed_time import ObservedTime, check_clock
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.sparql.dataset import UNION, Dataset
from drumlin.kg.sparql.from_clauses import choose
from drumlin.kg.store import querying
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.delta import Delta
from drumlin.kg.store.embedded import engine_folder, graph_history
from drumlin.kg.store.embedded.engine import translated
from drumlin.kg.store.embedded.engine_renewal import SMALLEST, EngineRenewal
from drumlin.kg.store.embedded.graph_cache import Recent
from drumlin.kg.store.embedded.opening import BASE, QUADS, REPAIRED, is_store, open_parts
from drumlin.kg.store.embedded.rebuilding import Progress, logged
from drumlin.kg.store.embedded.retention import Kept, Pruning
from drumlin.kg.store.embedded.snapshots import Snapshot
from drumlin.kg.store.embedded.stand_in import stand_in, why_unwritable, without_links
from drumlin.kg.store.embedded.wal import READ_ONLY
from drumlin.kg.store.embedded.writer import Batch, Writer
from drumlin.kg.store.preconditions import prepared
from drumlin.kg.store.protocol import (
    EVERYTHING,
    Answer,
    GraphEntry,
    GraphWrite,
    LogEntry,
    Narrowed,
    Row,
    StoredGraph,
    Written,
)
from drumlin.kg.store.query_workers.client import QueryExecutor
from drumlin.kg.store.run_archive import RunArchive
from drumlin.kg.store.streaming import ChunkWriter, ResultStream

UNFINISHED = "unfinished"
"""Subdirectory of a store or backup whose making did not end."""
_LOOKS = 3  # at a graph without the writer's lock, when batches begin meanwhile

log = structlog.get_logger(__name__)
T = TypeVar("T")


def now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


class EmbeddedStore:
    """A store in ``directory``, made when absent; None means a temporary one that is removed on ``close``.

    ``files`` is where its files are open: in the directory, but for a store whose disk takes no writes (``kg.store.embedded.stand_in``).
    ``unwritable`` says why that is so, and writes are refused with it.

    ``kept`` limits the change log; without it nothing of the log is given up. An engine that does not agree with the change log is built
    anew, which ``progress`` reports, or the log without it; without ``rebuild`` it is refused. Raises ``StoreUnavailable`` when another
    process has it open, or when it cannot be read, ``StoreDamaged`` when a file is missing or wrong that cannot be made from the others.
    """

    def __init__(
        self,
        directory: Path | None = None,
        *,
        clock: Callable[[], datetime] = now,
        kept: Kept | None = None,
        progress: Progress | None = None,
        rebuild: bool = True,
    ) -> None:
        self._clock = clock
        check_clock(clock())
        self._kept = kept
        self._temporary = directory is None
        self.directory = Path(tempfile.mkdtemp(prefix="drumlin-")) if directory is None else directory
        self._asking: QueryExecutor | None = None
        self._streams: weakref.WeakSet[ResultStream] = weakref.WeakSet()
        self._closing = threading.Lock()
        self._closed = False
        self._recent = Recent()
        self._none: dict[str, int] = {}  # beginnings of names that no graph has, and as of which generation
        self.files = self.directory
        self.unwritable: StoreUnavailable | None = None
        self._pid_file = claim(self.directory)
        try:
            if rebuild and is_store(self.directory) and (why := why_unwritable(self.directory)):
                self.files, self.unwritable = stand_in(self.directory), why
                log.warning("store_read_only", reason=str(why), hint=why.hint, files=str(self.files))
            self._open((progress or logged()) if rebuild else None)
        except BaseException:
            self._remove_stand_in()
            os.close(self._pid_file)
            raise

    def _open(self, progress: Progress | None) -> None:
        shutil.rmtree(self._checkpoints, ignore_errors=True)
        opened = open_parts(self.files, progress)
        self._changes, self._engine, self._witness = opened
        try:
            self.archive = RunArchive(self.files, self._changes.store_id, self.unwritable)
            self.observed = ObservedTime(self.files / observed_time.FILE, self._clock)
        except BaseException:
            for part in opened:
                part.close()
            raise
        self._pruning = Pruning(self._changes, self._kept, self.observed)
        self._writer = Writer(opened, self._recent, self._clock, self._pruning, self.unwritable)
        self._renewal = EngineRenewal(self._engine, self._changes, self._writer.applier)
        if progress and not self.unwritable:
            self._renewal.start()
        log.info("store_opened", directory=str(self.directory), generation=self.generation)

    @property
    def id(self) -> str:
        """What identifies its history: another store has another, and so has this one after it was restored or made anew."""
        return self._changes.store_id

    @property
    def place(self) -> str:
        """Where the store is, for messages."""
        return str(self.directory)

    @property
    def base(self) -> str | None:
        """The base that the store was made under, None before ``made_under``."""
        try:
            return self._changes.base or self._base_file.read_text(encoding="utf-8").strip() or None
        except FileNotFoundError:
            return None
        except (OSError, UnicodeDecodeError) as error:
            raise StoreUnavailable(f"{self._base_file} cannot be read: {error}") from error

    def made_under(self, base: str) -> str:
        """Return the base that the store was made under; a new one is made under ``base``.

        The change log keeps it; the file beside it is for people and scripts, and is written again when it was lost.
        """
        base = self.base or base
        try:
            if not self._base_file.exists() or self._base_file.read_bytes() != f"{base}\n".encode():
                self._base_file.write_text(base + "\n", encoding="utf-8")
        except OSError as error:
            raise StoreUnavailable(f"the store in {self.directory} cannot be used: {error.strerror}") from error
        if self._changes.base is None:
            self._changes.keep_base(base)
        return base

    @property
    def _base_file(self) -> Path:
        return self.files / BASE

    @property
    def _checkpoints(self) -> Path:
        return self.files / "checkpoints"

    @property
    def generation(self) -> int:
        """How many effective writes there have been."""
        return self._writer.generation

    @property
    def oldest(self) -> int:
        """The first generation that the log still holds."""
        return self._changes.pruned() + 1

    # -- writing ------------------------------------------------------------------------------------------------------
    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none, in order; see ``Store.apply``. Lines that are not legal raise ``InvalidDocument``."""
        if len({each.graph for each in writes}) < len(writes):
            raise ValueError("the same graph occurs twice in one write")
        return self._writer.apply(prepared(writes, _named))

    def ask(self, write: GraphWrite, answered: Callable[[], object]) -> Callable[[], list[Written]]:
        """Ask for one write and return at once; what is returned gives the results once ``answered`` was called, in another thread."""
        return self._writer.ask([_named(write)], answered)

    def is_being_written(self, graph: str) -> bool:
        """Return whether reading the graph now may have to wait for a write."""
        return graph in self._writer.in_flight

    # -- reading ------------------------------------------------------------------------------------------------------
    def read(self, graph: str) -> StoredGraph | None:
        """Return one graph, or None when it does not exist."""
        return self._settled((graph,), lambda: self._read(graph))

    def _read(self, graph: str) -> StoredGraph | None:
        found = self._changes.stored(graph)
        if found is None:
            return None
        entry, text = found
        return StoredGraph(entry, self._content(entry) if text is None else GraphContent.of_text(text, entry.digest))

    def read_each(self, graphs: Sequence[str]) -> dict[str, StoredGraph]:
        """Return some graphs, by name: a fifth of what it takes to read them one by one; see ``Store.read_each``."""
        found: dict[str, StoredGraph] = {}
        for entry, packed in self._settled(graphs, lambda: self._changes.packed_each(graphs)):
            if packed is not None:
                found[entry.graph] = StoredGraph(entry, GraphContent.of_stored(packed, entry.digest))
            elif (read := self.read(entry.graph)) is not None:  # a store of before has its text in the engine alone
                found[entry.graph] = read
        return found

    def _content(self, entry: GraphEntry) -> GraphContent:
        content = self._recent.get(entry.digest)
        if content is None:
            self._writer.applier.reach(entry.generation)
            content = GraphContent.of_canonical(self._engine.lines(entry.graph))
            if content.digest == entry.digest:  # else a write came between, and _settled looks again
                self._recent.keep([content])
        return content

    def recent_lines(self, digest: str) -> Lines | None:
        """Return the lines of a digest that was written or read lately, as long as it is kept in memory."""
        content = self._recent.get(digest)
        return None if content is None else content.lines

    def entry(self, graph: str) -> GraphEntry | None:
        """Return what is recorded about one graph, without its content."""
        return self._settled((graph,), lambda: self._changes.entry(graph))

    def _settled(self, graphs: Collection[str], look: Callable[[], T]) -> T:
        """Look at graphs at a moment when none of them is being written: without the lock nearly always."""
        for _ in range(_LOOKS):
            batches = self._writer.batches
            if not self._writer.in_flight.isdisjoint(graphs):
                break
            found = look()
            if self._writer.batches == batches:  # none has begun since; one that was under way writes other graphs
                return found
        with self._writer.lock:
            return look()

    def may_hold(self, prefix: str) -> bool:
        """Return whether the name of a graph begins with ``prefix``, which is looked up once a generation while none does."""
        generation = self.generation
        if self._none.get(prefix) == generation:
            return False
        if self.entries(prefix=prefix, limit=1):
            return True
        self._none[prefix] = generation
        return False

    def entries(
        self, *, owner: str | None = None, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[GraphEntry]:
        """List graphs in the order of their IRIs; see ``Store.entries``."""
        found = self._changes.entries(owner=owner, prefix=prefix, after=after, limit=limit)
        if self._writer.in_flight:  # it may be in what was found, before ``generation`` says so
            with self._writer.lock:
                pass
        return found

    def log(self, since: int, limit: int = 1000) -> list[LogEntry]:
        """Return changes of generations greater than ``since``, oldest first, whole generations only; see ``Store.log``."""
        return self._changes.log(since, self.generation, limit)

    def newest_changes(self, generation: int, place: int, limit: int) -> list[tuple[int, LogEntry]]:
        """Return the last changes before a place, the newest first; see ``Store.newest_changes``."""
        if generation > self.generation:
            generation, place = self.generation + 1, 0
        return self._changes.newest_changes(generation, place, limit)

    def read_at(self, graph: str, generation: int) -> StoredGraph | None:
        """Return what one graph was after a generation; see ``Store.read_at``."""
        graph_history.check_reach(self._changes, generation, self.generation)
        return graph_history.content_at(self._changes, graph, self.read(graph), generation)

    def generation_at(self, moment: datetime) -> int:
        """Return the newest generation that was written at a time or before it; see ``Store.generation_at``."""
        return graph_history.generation_at(self._changes, moment, self.generation)

    def changes_of(self, graph: str, before: int) -> Iterator[LogEntry]:
        """Yield the changes of one graph, the newest first; see ``Store.changes_of``."""
        return graph_history.changes_of(self._changes, graph, self.entry(graph), before)

    def keep_log_after(self, needed: Callable[[], int]) -> None:
        """Keep what the log holds beyond the generation that ``needed`` returns, however old it is."""
        self._pruning.needed = needed

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run one of our own SELECTs over the union of all graphs; a variable in ``values`` is in every row too."""
        self._applied()
        with translated("read"), self._engine.using():
            return querying.look_up(self._engine.store, query, values or {})

    def answer_through(self, asking: QueryExecutor) -> None:
        """Have callers' queries run by reader processes from now on; ``close`` ends them."""
        self._asking = asking

    def answer(
        self,
        query: str,
        *,
        media_type: str,
        dataset: Dataset = UNION,
        base: str | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Run a caller's query; see ``Store.answer``. Chunks come as the query runs; ``close`` them to end it early.

        The answer holds every write up to ``generation``, and may hold one that came while it began. Without reader processes
        nothing can stop a query, and ``timeout`` is not kept.
        """
        if asking := self._asking:
            question = asking.question(query, media_type=media_type, dataset=dataset, base=base, timeout=timeout)
            return asking.answer(question)
        generation = self._applied()
        chosen = choose(query, dataset)

        def run(writer: ChunkWriter) -> None:
            with self._engine.using():
                querying.work(self._engine.store, chosen, media_type, base)(writer)

        stream = ResultStream(run)
        self._streams.add(stream)
        return Answer(media_type, stream, generation)

    def export(self, narrowed: Narrowed = EVERYTHING) -> Iterator[tuple[str, Lines]]:
        """Yield the graphs of one generation that are wanted, in the order of their IRIs, from a checkpoint (hard links)."""
        with self.snapshot() as snapshot:
            for graph in snapshot.graphs(narrowed):
                if narrowed.states(graph, lines := snapshot.lines(graph)):
                    yield graph, lines

    def scratch(self, prefix: str = "") -> Path:
        """Make a directory beside the quads, for hard links; what is left of it is removed when the store is opened again."""
        self._checkpoints.mkdir(exist_ok=True)
        return Path(tempfile.mkdtemp(dir=self._checkpoints, prefix=prefix))

    @contextmanager
    def snapshot(self, quads: Path | None = None) -> Iterator[Snapshot]:
        """Keep the store as it is now for reading; writers are held up for the moment that a checkpoint takes.

        ``quads``, which must not exist, becomes the checkpoint and remains; else it is a temporary one.
        """
        self._applied()  # nearly all, before writers are held up
        folder = self.scratch()
        try:
            with self._writer.lock:
                self._applied()
                generation, frozen = self.generation, self._changes.frozen()
                self._engine.backup(quads or folder / "quads")
            if quads and self.unwritable:
                with translated("copied"):
                    without_links(quads)
            with closing(Snapshot(generation, quads or folder / "quads", frozen)) as snapshot:
                yield snapshot
        finally:
            shutil.rmtree(folder, ignore_errors=True)

    def follow_deltas(self, listener: Callable[[Delta], None]) -> None:
        """Have ``listener`` called with every delta from now on, in order, before its writes are acknowledged.

        It is called on the way of every write, so it must be quick and must not block; what it raises is only logged. The store's
        ``generation`` moves on after the call: a reader that sees a generation finds that its delta was published.
        """
        self._writer.follow(listener)

    def observe(self, observer: Callable[[Batch], None]) -> None:
        """Have ``observer`` called after every batch of writes with what it did; it must be quick. What it raises is only logged."""
        self._writer.observe(observer)

    def checkpoint(self, folder: Path) -> int:
        """Make ``folder``, which must not exist, a copy of the quads (hard links where it is on the store's file system).

        Returns a generation that the copy holds; it may hold later ones too, in part where a bulk load is under way. Replaying
        all deltas after it makes the copy what the store is. Writers are not held up.
        """
        generation = self._applied()
        self._engine.backup(folder)
        return generation

    def _applied(self) -> int:
        """Wait until the engine holds what has been written; raises while the disk does not allow it. Returns the generation."""
        generation = self.generation
        self._writer.applier.reach(generation)
        return generation

    def _remove_stand_in(self) -> None:
        if self.files != self.directory:
            shutil.rmtree(self.files, ignore_errors=True)

    def optimize(self) -> None:
        """Merge the engine's files, about a second for a million quads, and build them anew where they have outgrown their graphs.

        Others read and write meanwhile.
        """
        if self.unwritable:
            raise self.unwritable.again()
        self._applied()
        self._engine.flush()
        self._engine.optimize()
        self._renewal.renew(SMALLEST)

    @property
    def wal_bytes(self) -> int:
        """Size of the engine's write-ahead log after the last batch."""
        return self._engine.wal_bytes

    @property
    def pending(self) -> int:
        """How many statements the engine has still to take over from the log."""
        return self._writer.applier.pending

    def stored_bytes(self) -> int:
        """Size of the files of the quads and of the change log."""
        return self.engine_bytes + sum(map(_size, self.files.glob("changes.sqlite*")))

    @property
    def engine_bytes(self) -> int:
        """Size of the engine's files."""
        return engine_folder.size(self._engine.folder)

    @property
    def renewal(self) -> EngineRenewal:
        """What builds the engine anew when its files have outgrown the graphs."""
        return self._renewal

    def close(self) -> None:
        """Release the store, ending the queries that run; acknowledged writes are on disk already."""
        with self._closing:
            if self._closed:
                return
            self._closed = True
        if self._asking:
            self._asking.readers.close()
        for stream in list(self._streams):
            stream.close()
        self._renewal.close()
        self._writer.close()
        self._engine.close()
        self._settle_engine()
        self._changes.close()
        self._witness.close()
        self.archive.close()
        os.close(self._pid_file)
        if self._temporary:
            shutil.rmtree(self.directory, ignore_errors=True)
        self._remove_stand_in()
        log.info("store_closed", directory=str(self.directory), generation=self.generation)

    def _settle_engine(self) -> None:
        """Give an engine that was built meanwhile its usual place, as the next start would."""
        if self._engine.folder.name == QUADS:
            return
        try:
            engine_folder.settle(self.files / QUADS)
        except OSError as error:
            log.warning("engine_not_settled", error=str(error))


def _size(file: Path) -> int:
    try:
        return file.stat().st_size
    except FileNotFoundError:  # merged into another meanwhile
        return 0


def _named(write: GraphWrite) -> GraphWrite:
    """Return a write of a graph that has a legal name."""
    try:
        ox.NamedNode(write.graph)
    except ValueError as error:
        raise InvalidDocument(f"{write.graph!r} is not an IRI that can name a graph") from error
    return write


def claim(directory: Path, *, repairing: bool = False) -> int:
    """Lock the directory for this process and return the file that holds the lock; it ends with the process, however that ends.

    Raises ``StoreUnavailable`` while another process has it, or when its making did not end; so did its repair, unless ``repairing``.
    """
    if not repairing and (directory / REPAIRED).exists():
        raise StoreUnavailable(f"{directory} was not repaired to its end", hint=f"drumlin repair {directory}")
    if (directory / UNFINISHED).exists():
        raise StoreUnavailable(f"{directory} was not restored to its end", hint="remove it and restore again")
    try:
        directory.mkdir(parents=True, exist_ok=True)
        file = _lock_file(directory)
    except OSError as error:
        raise StoreUnavailable(
            f"{directory} cannot be used as a store: {error.strerror}", hint="choose another directory (--store)"
        ) from error
    try:
        fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except OSError as error:
        holder = _holder(directory)
        os.close(file)
        raise StoreUnavailable(
            f"{directory} is in use by process {holder}",
            hint="talk to that service, or stop it first",
            detail={"pid": holder},
        ) from error
    try:
        os.ftruncate(file, 0)
        os.pwrite(file, f"{os.getpid()}\n".encode(), 0)
    except OSError:  # the disk takes no writes: the lock holds, and does not say whose it is
        log.warning("lock_not_signed", directory=str(directory))
    return file


def _lock_file(directory: Path) -> int:
    try:
        return os.open(directory / "lock", os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
    except OSError as error:
        if error.errno != READ_ONLY:
            raise
        there = directory / "lock"
        return os.open(there if there.exists() else directory, os.O_RDONLY | os.O_CLOEXEC)


def _holder(directory: Path) -> str:
    """Return the process that holds the lock, as far as it could say so."""
    return (directory / "lock").read_bytes()[:20].decode("ascii", "replace").strip() or "another process"
