"""The one thread that writes: what callers ask for at the same time becomes one batch, made durable at once.

A batch holds up to ``BATCH`` writes that touch different graphs; the second write of a graph waits for the next batch. It costs one
transaction of the change log, one update of the engine and one sync of its write-ahead log. Each effective write keeps a generation of
its own, in the order of the batch; all of a batch become visible and durable together. A write that is refused (its
owner, its precondition) leaves the others alone; when the engine refuses the batch, its writes are tried one by one.

A write that the disk refuses is taken back from the change log at once, or, where the disk refuses that too, when the engine is opened
again: before the next write, which is refused likewise while that does not succeed.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from kg.errors import DrumlinError, InvalidDocument, StoreUnavailable
from kg.store.changes import ChangeLog
from kg.store.delta import Change, Delta, nquads, update_text
from kg.store.engine import Engine
from kg.store.preconditions import check
from kg.store.protocol import GraphEntry, GraphWrite, Lines, LogEntry, Written
from kg.store.pruning import Pruning
from kg.store.recent import Recent

BATCH = 64
"""Writes in one batch, at most."""
BULK = 500
"""From this many new graphs on, a write is bulk-loaded, in a batch of its own."""
CHUNK = 4000
"""Graphs in one bulk load: the engine's memory grows with it."""
FLUSH_BYTES = 8 << 20
"""Size of the write-ahead log at which the engine's memory is written out as tables; at eight times that, writers wait for it."""
_OPTIMIZE_AFTER = 8  # bulk loads; each leaves files that slow point queries

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Wanted:
    """A write whose lines are canonical; ``after`` is their digest, None for a removal."""

    write: GraphWrite
    lines: Lines | None
    after: str | None


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch did, for metrics: changes of graphs by outcome (and writes refused or failed), and the seconds each write took."""

    outcomes: Counter[str]
    seconds: tuple[float, ...]


class _Asked:
    """One ``apply`` under way: ``answer`` is called when it has ended, in the writer's thread."""

    __slots__ = ("answer", "asked_at", "changes", "error", "graphs", "results", "wanted")

    def __init__(self, wanted: Sequence[Wanted], answer: Callable[[], object]) -> None:
        self.answer = answer
        self.wanted = wanted
        self.graphs = frozenset(each.write.graph for each in wanted)
        self.changes: list[Change] = []
        self.results: list[Written] = []
        self.error: BaseException | None = None
        self.asked_at = time.perf_counter()

    def outcome(self) -> list[Written]:
        if self.error is not None:
            raise self.error
        return self.results


class Writer:
    """Writes into ``engine`` and ``changes``, in a thread of its own, until ``close``. ``lock`` is held while it writes."""

    def __init__(
        self, engine: Engine, changes: ChangeLog, recent: Recent, clock: Callable[[], datetime], pruning: Pruning
    ) -> None:
        """Settle what an earlier life left in doubt; raises ``StoreUnavailable`` when that is impossible."""
        self.lock = threading.Lock()
        self.generation = 0
        self.in_flight: frozenset[str] = frozenset()
        self.batches = 0  # begun, counted once ``in_flight`` tells what they write
        self._engine = engine
        self._changes = changes
        self._recent = recent
        self._clock = clock
        self._pruning = pruning
        self._followers: list[Callable[[Delta], None]] = []
        self._observers: list[Callable[[Batch], None]] = []
        self._waiting: deque[_Asked] = deque()
        self._arrived = threading.Condition()
        self._closed = False
        self._bulk_loads = 0
        self._tidying: threading.Thread | None = None
        self._reconcile()
        self.generation = changes.last()
        self._thread = threading.Thread(target=self._run, name="writer", daemon=True)
        self._thread.start()

    def follow(self, listener: Callable[[Delta], None]) -> None:
        """Call ``listener`` with every delta from now on, before its generation is seen."""
        with self.lock:
            self._followers.append(listener)

    def observe(self, observer: Callable[[Batch], None]) -> None:
        """Call ``observer`` after every batch."""
        with self.lock:
            self._observers.append(observer)

    def apply(self, wanted: Sequence[Wanted]) -> list[Written]:
        """Write all or none and wait until it is durable; see ``Store.apply``."""
        done = threading.Lock()
        done.acquire()
        outcome = self.ask(wanted, done.release)
        done.acquire()
        return outcome()

    def ask(self, wanted: Sequence[Wanted], answered: Callable[[], object]) -> Callable[[], list[Written]]:
        """Ask for a write and return at once; after ``answered`` was called, in the writer's thread, what is returned gives the results."""
        asked = _Asked(wanted, answered)
        with self._arrived:
            if self._closed:
                raise StoreUnavailable("the store is closed")
            self._waiting.append(asked)
            self._arrived.notify()
        return asked.outcome

    def close(self) -> None:
        """Write what was asked for, then end."""
        with self._arrived:
            self._closed = True
            self._arrived.notify()
        self._thread.join()
        if self._tidying:
            self._tidying.join()
        if not self.in_flight:
            self._changes.settle(self.generation)

    # -- batches ------------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while batch := self._next():
            try:
                with self.lock:
                    self._write(batch)
            except Exception as error:  # the thread must outlive it; it is raised again where each write was asked for
                log.exception("batch_failed", writes=len(batch))
                for each in batch:
                    each.error = each.error or error
            self._observed(batch)
            for each in batch:
                each.answer()
            self._tidy_when_due()
            self._prune(sum(len(each.changes) for each in batch if each.error is None))

    def _next(self) -> list[_Asked]:
        """Wait for writes and take a batch of them; empty when the store is being closed and none is left."""
        with self._arrived:
            self._arrived.wait_for(lambda: self._waiting or self._closed)
            batch: list[_Asked] = []
            later: list[_Asked] = []
            touched: set[str] = set()
            while self._waiting and len(batch) < BATCH and len(touched) < BULK:
                each = self._waiting.popleft()
                if touched and (len(each.graphs) >= BULK or not touched.isdisjoint(each.graphs)):
                    later.append(each)
                    continue
                batch.append(each)
                touched |= each.graphs
            self._waiting.extendleft(reversed(later))
            return batch

    def _write(self, batch: list[_Asked]) -> None:
        """Hold each write against what there is, and write what changes something; errors stand in the writes."""
        try:
            self._mend()
            entries = self._changes.entries_of(graph for each in batch for graph in each.graphs)
        except StoreUnavailable as error:
            _fail(batch, error)
            return
        for each in batch:
            try:
                self._plan(each, entries)
            except DrumlinError as error:
                each.error = error
        effective = [each for each in batch if each.error is None and each.changes]
        try:
            if effective:
                self._commit(effective)
        except InvalidDocument as error:
            if len(effective) == 1:
                effective[0].error = error
                return
            for each in effective:
                self._write_alone(each)
        except StoreUnavailable as error:
            _fail(effective, error)

    def _write_alone(self, asked: _Asked) -> None:
        try:
            self._mend()
            self._commit([asked])
        except DrumlinError as error:
            asked.error = error

    def _plan(self, asked: _Asked, entries: dict[str, GraphEntry]) -> None:
        for wanted in asked.wanted:
            write, lines, after = wanted.write, wanted.lines, wanted.after
            entry = entries.get(write.graph)
            check(write, entry)
            before = entry.digest if entry else None
            if before == after:
                asked.results.append(Written(write.graph, "unchanged", after, self.generation))
                continue
            old = self._old(entry) if entry and lines is not None else frozenset()
            asked.changes.append(Change(write.graph, write.owner, before, after, old, lines))
            asked.results.append(Written(write.graph, asked.changes[-1].outcome, after, 0))

    def _old(self, entry: GraphEntry) -> Lines:
        found = self._recent.get(entry.digest)
        if found is None:
            found = self._changes.lines(entry.graph)
            if found is None:
                found = self._engine.lines(entry.graph)
            self._recent.keep(entry.digest, found)  # the feed tells what was removed
        return found

    # -- one commit ---------------------------------------------------------------------------------------------------
    def _commit(self, effective: list[_Asked]) -> None:
        """Record, commit and sync; tell followers, then the world, by moving the generation on."""
        last, at = self.generation + len(effective), self._clock()
        changes = [change for each in effective for change in each.changes]
        entries = [
            LogEntry(generation, each.graph, each.owner, each.before, each.after, at)
            for generation, asked in enumerate(effective, self.generation + 1)
            for each in asked.changes
        ]
        self.in_flight = frozenset(each.graph for each in changes)
        self.batches += 1
        try:
            self._changes.record(entries, [each.lines for each in changes], settled=self.generation)
            delta = self._commit_quads(changes, last)
        except DrumlinError:
            self._take_back()
            if self.generation != last:  # else opening the engine again has made it durable after all
                raise
        else:
            self._moved(delta)
        for generation, asked in enumerate(effective, last - len(effective) + 1):
            asked.results = [_numbered(each, generation) for each in asked.results]
        for change in changes[:CHUNK]:
            if change.after is not None and change.lines is not None:
                self._recent.keep(change.after, change.lines)

    def _commit_quads(self, changes: list[Change], last: int) -> Delta:
        new = [each for each in changes if each.loadable]
        bulk, update = len(new) >= BULK, ""
        if bulk:
            for start in range(0, len(new), CHUNK):
                self._engine.load(nquads(new[start : start + CHUNK]))
                self._bulk_loads += 1
        if rest := [each for each in changes if not (bulk and each.loadable)]:
            update = update_text(rest)
            self._engine.update(update)  # the commit point: one transaction
        self._engine.sync()
        if bulk:  # thousands of graphs need not be compared again at the next start
            self._changes.settle(last)
        return Delta(last, "" if bulk else update, tuple(each.graph for each in changes), bulk)

    def _moved(self, delta: Delta) -> None:
        for each in self._followers:
            each(delta)
        self.generation = delta.generation
        self.in_flight = frozenset()

    # -- when the disk fails ------------------------------------------------------------------------------------------
    def _take_back(self) -> None:
        """After a failure: make the change log agree with the engine, now or else before the next write."""
        try:
            self._mend()
        except StoreUnavailable as error:
            log.warning("store_needs_mending", error=str(error), graphs=len(self.in_flight))
            self._take_back_unmended()

    def _take_back_unmended(self) -> None:
        """Settle what a failed engine, which can be read, surely does not hold: so the graphs can be read until it is mended."""
        try:
            self._reconcile()
            if self._changes.last() == self.generation:
                self.in_flight = frozenset()
        except StoreUnavailable as error:
            log.warning("write_in_doubt", error=str(error), graphs=len(self.in_flight))

    def _mend(self) -> None:
        """Open a failed engine again and settle what is in doubt. Raises while the disk does not allow it."""
        if self._engine.failed:
            if self._tidying:
                self._tidying.join()
            self._engine.reopen()
            log.info("engine_opened_again")
        if not self.in_flight:
            return
        self._reconcile()
        if (last := self._changes.last()) == self.generation:
            self.in_flight = frozenset()
        else:  # it was written after all
            self._moved(Delta(last, "", tuple(self.in_flight), bulk=True))

    def _reconcile(self) -> None:
        """Settle the last batch: keep it when the engine holds all of it, else take all of it back."""
        in_doubt = self._changes.in_doubt()
        held = {each.graph: self._engine.digest(each.graph) for each in in_doubt}
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
            self._engine.update(";".join(f"DROP GRAPH <{graph}>" for graph in half))
            self._engine.sync()
            for follower in self._followers:  # a checkpoint may hold them
                follower(Delta(self.generation, "", tuple(half), bulk=True))
        self._changes.take_back(in_doubt[0].generation - 1)
        log.warning("generation_taken_back", generation=in_doubt[0].generation, graphs=len(in_doubt), half=len(half))

    # -- beside writing -----------------------------------------------------------------------------------------------
    def _tidy_when_due(self) -> None:
        """Keep the engine's files in shape, in a thread beside this one: writers go on meanwhile, unless the log runs away."""
        wal = self._engine.wal_bytes
        if self._engine.failed:
            return
        if wal < FLUSH_BYTES and self._bulk_loads < _OPTIMIZE_AFTER:
            return
        if self._tidying and self._tidying.is_alive():
            if wal < 8 * FLUSH_BYTES:
                return
            self._tidying.join()
        self._tidying = threading.Thread(target=self._tidy, name="tidy", daemon=True)
        self._tidying.start()

    def _tidy(self) -> None:
        try:
            self._engine.flush()
            if self._bulk_loads >= _OPTIMIZE_AFTER:
                self._bulk_loads = 0
                self._engine.optimize()
        except StoreUnavailable as error:  # the next write mends it, or is told why not
            log.warning("flush_failed", error=str(error))

    def _prune(self, written: int) -> None:
        """Shorten the change log a little, unless something is in doubt."""
        if not self.in_flight:
            try:
                self._pruning.step(self.generation, written)
            except StoreUnavailable as error:
                log.warning("pruning_failed", error=str(error))

    def _observed(self, batch: Iterable[_Asked]) -> None:
        if not self._observers:
            return
        now = time.perf_counter()
        outcomes: Counter[str] = Counter()
        for each in batch:
            if each.error is None:
                outcomes.update(result.outcome for result in each.results)
            else:
                outcomes["failed" if isinstance(each.error, StoreUnavailable) else "refused"] += 1
        told = Batch(outcomes, tuple(now - each.asked_at for each in batch))
        for observer in self._observers:
            observer(told)


def _fail(writes: Iterable[_Asked], error: DrumlinError) -> None:
    """Give each write an error of its own: one that is raised in several threads would mix their tracebacks."""
    for each in writes:
        each.error = type(error)(str(error), hint=error.hint, detail=error.detail)
        each.error.__cause__ = error


def _numbered(written: Written, generation: int) -> Written:
    if written.outcome == "unchanged":
        return written
    return Written(written.graph, written.outcome, written.digest, generation)
