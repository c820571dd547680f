"""The one thread that writes: what callers ask for at the same time becomes one batch, made durable at once.

A batch holds up to ``BATCH`` writes that touch different graphs; the second write of a graph waits for the next batch. It is one
transaction of the change log, and with that it is done: the log holds what changed and what each graph is now, and the engine follows it
(``kg.store.embedded.engine_applier``). Each effective write keeps a generation of its own, in the order of the batch; all of a batch
become visible and durable together. A write that is refused (its owner, its precondition) leaves the others alone; when the disk refuses
a batch, nothing of it was written.
"""

from __future__ import annotations

import threading
import time
from collections import Counter, deque
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from datetime import datetime

import structlog

from drumlin.kg.errors import DrumlinError, StoreUnavailable
from drumlin.kg.observed_time import check_clock
from drumlin.kg.rdf.syntax import text_of
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.delta import Change, Delta, parted, update_text
from drumlin.kg.store.embedded.change_log import Undo
from drumlin.kg.store.embedded.engine_applier import EngineApplier, Pending, room_of
from drumlin.kg.store.embedded.graph_cache import Recent
from drumlin.kg.store.embedded.opening import Opened
from drumlin.kg.store.embedded.retention import Pruning
from drumlin.kg.store.graph_text import pack_patch
from drumlin.kg.store.preconditions import check, leaves_as_it_is
from drumlin.kg.store.protocol import GraphEntry, GraphWrite, LogEntry, Written
from drumlin.kg.threads import ServiceThread, call_safely

BATCH = 64
"""Writes in one batch, at most."""
BULK = 500
"""From this many new graphs on, a write is a batch of its own, and copies of the quads are made anew instead of being fed."""

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Batch:
    """What one batch did, for metrics: changes of graphs by outcome (and writes refused or failed), and the seconds each write took."""

    outcomes: Counter[str]
    seconds: tuple[float, ...]


class _Asked:
    """One ``apply`` under way: ``answer`` is called when it has ended, in the writer's thread."""

    __slots__ = ("answer", "asked_at", "changes", "error", "graphs", "results", "wanted")

    def __init__(self, wanted: Sequence[GraphWrite], answer: Callable[[], object]) -> None:
        self.answer = answer
        self.wanted = wanted
        self.graphs = frozenset(each.graph for each in wanted)
        self.changes: list[Change] = []
        self.results: list[Written] = []
        self.error: BaseException | None = None
        self.asked_at = time.perf_counter()

    def outcome(self) -> list[Written]:
        if self.error is not None:
            raise self.error
        return self.results


class Writer:
    """Writes into an ``opened`` store, in a thread of its own, until ``close``. ``lock`` is held while it writes.

    ``unwritable`` is why what would change something is refused; what changes nothing is answered all the same.
    """

    def __init__(
        self,
        opened: Opened,
        recent: Recent,
        clock: Callable[[], datetime],
        pruning: Pruning,
        unwritable: StoreUnavailable | None = None,
    ) -> None:
        self.lock = threading.Lock()
        self.in_flight: frozenset[str] = frozenset()
        self.batches = 0  # begun, counted once ``in_flight`` tells what they write
        self._changes, engine, self._witness = opened
        self._engine = engine
        self._recent = recent
        self._clock = clock
        self._pruning = pruning
        self._unwritable = unwritable
        self._followers: list[Callable[[Delta], None]] = []
        self._observers: list[Callable[[Batch], None]] = []
        self._asking = threading.Lock()
        self._waiting: deque[_Asked] = deque()
        self._arrived = threading.Event()  # cleared only when nothing waits: in a flood nobody needs to set it
        self._batch: list[_Asked] = []  # those taken and not answered yet
        self._closed = False
        self._death: StoreUnavailable | None = None
        self.generation = self._changes.last()
        self.applier = EngineApplier(engine, self.generation)
        self._thread = ServiceThread(self._run, "writer", self._died)
        self._thread.start()

    def follow(self, listener: Callable[[Delta], None]) -> None:
        """Call ``listener`` with every delta from now on, before its generation is seen; what it raises is only logged."""
        with self.lock:
            self._followers.append(listener)

    def observe(self, observer: Callable[[Batch], None]) -> None:
        """Call ``observer`` after every batch; what it raises is only logged."""
        with self.lock:
            self._observers.append(observer)

    def apply(self, wanted: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none and wait until it is durable; see ``Store.apply``."""
        done = threading.Lock()
        done.acquire()
        outcome = self.ask(wanted, done.release)
        done.acquire()
        return outcome()

    def ask(self, wanted: Sequence[GraphWrite], answered: Callable[[], object]) -> Callable[[], list[Written]]:
        """Ask for a write and return at once; after ``answered`` was called, in the writer's thread, what is returned gives the results."""
        asked = _Asked(wanted, answered)
        with self._asking:
            if self._death:
                raise self._death.again()
            if self._closed:
                raise StoreUnavailable("the store is closed")
            self._waiting.append(asked)
        if not self._arrived.is_set():
            self._arrived.set()
        return asked.outcome

    def close(self) -> None:
        """Write what was asked for, then end."""
        with self._asking:
            self._closed = True
        self._arrived.set()
        self._thread.join()
        self.applier.close()
        self._changes.settle(self.applier.applied)

    # -- batches ------------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while batch := self._next():
            self._batch = list(batch)
            try:
                with self.lock:
                    self._write(batch)
            except Exception as error:  # the thread must outlive it; it is raised again where each write was asked for
                log.exception("batch_failed", writes=len(batch))
                for each in batch:
                    each.error = each.error or error
            self._observed(batch)
            self._answer_batch()
            self._prune(sum(len(each.changes) for each in batch if each.error is None))

    def _answer_batch(self) -> None:
        while self._batch:
            call_safely(self._batch.pop(0).answer)

    def _died(self, error: BaseException) -> None:
        """Fail the writes that wait, and all later ones at once."""
        death = StoreUnavailable(
            f"the thread that writes has ended by an error: {type(error).__name__}: {error}",
            hint="restart the service; a write that was under way may have been written",
        )
        with self._asking:
            self._death = death
            self._batch += self._waiting
            self._waiting.clear()
        _fail(self._batch, death)
        self._answer_batch()

    def _next(self) -> list[_Asked]:
        """Wait for writes and take a batch of them; empty when the store is being closed and none is left."""
        while not self._waiting and not self._closed:
            self._arrived.clear()
            if not self._waiting and not self._closed:  # else it came before the flag was cleared
                self._arrived.wait()
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
        if effective:
            try:
                changes = [change for each in effective for change in each.changes]
                room = room_of(changes)
                if self._unwritable:
                    raise self._unwritable.again()
                self.applier.make_room(room)
                self._commit(effective, changes, room)
            except StoreUnavailable as error:
                _fail(effective, error)

    def _plan(self, asked: _Asked, entries: dict[str, GraphEntry]) -> None:
        check(asked.wanted, entries)
        for write in asked.wanted:
            content, after = write.content, write.digest
            entry = entries.get(write.graph)
            before = entry.digest if entry else None
            if leaves_as_it_is(write, after, entry):
                asked.results.append(Written(write.graph, "unchanged", after, self.generation))
                continue
            old = self._old(entry) if entry and content is not None else None
            blank = any(each is not None and each.may_hold_blank_nodes for each in (content, old))
            held = old.lines if old is not None else frozenset()
            undo = pack_patch(old.text, content.text) if old and content else None
            earlier = entry.generation if entry else None
            change = Change(write.graph, write.owner, before, after, held, content, blank, undo, earlier)
            asked.changes.append(change)
            asked.results.append(Written(write.graph, change.outcome, after, 0, None if old is None else held))

    def _old(self, entry: GraphEntry) -> GraphContent:
        content = self._recent.get(entry.digest)
        if content is None:
            text = self._changes.text(entry.graph)
            if text is None:
                self.applier.reach(entry.generation)
                text = text_of(self._engine.lines(entry.graph))
            content = GraphContent.of_text(text, entry.digest)
            self._recent.keep([content])  # the feed reports what was removed
        return content

    # -- one commit ---------------------------------------------------------------------------------------------------
    def _commit(self, effective: list[_Asked], changes: list[Change], room: int) -> None:
        """Record it durably; call the followers, then publish it by moving the generation on.

        Raises ``StoreUnavailable``, also when the clock says what cannot be.
        """
        last, at = self.generation + len(effective), self._clock()
        check_clock(at)
        entries = [
            LogEntry(generation, each.graph, each.owner, each.before, each.after, at)
            for generation, asked in enumerate(effective, self.generation + 1)
            for each in asked.changes
        ]
        new, rest = parted(changes)
        bulk = len(new) >= BULK
        update = "" if bulk else update_text(changes)
        delta = Delta(last, update, tuple(each.graph for each in changes), bulk)
        graphs = frozenset(delta.graphs)
        self.in_flight = graphs
        self.batches += 1
        try:
            self._changes.record(
                entries,
                [each.content.packed if each.content else None for each in changes],
                [Undo(each.earlier, each.undo) for each in changes],
                settled=self.applier.applied,
            )
            self._bear_witness(last)
            self.applier.give(Pending(last, graphs, new, rest, update, room))
            self._moved(delta)
        finally:
            self.in_flight = frozenset()
        for generation, asked in enumerate(effective, last - len(effective) + 1):
            asked.results = [_numbered(each, generation) for each in asked.results]
        self._recent.keep(each.content for each in changes if each.content)

    def _bear_witness(self, generation: int) -> None:
        """Note outside of the log that it has a generation, so that a start finds out when it has lost it."""
        try:
            self._witness.write(generation)
        except OSError as error:  # the write is done; a witness that stays behind accuses nobody
            log.warning("witness_failed", error=str(error))

    def _moved(self, delta: Delta) -> None:
        for each in self._followers:
            call_safely(each, delta)
        self.generation = delta.generation

    # -- beside writing -----------------------------------------------------------------------------------------------
    def _prune(self, written: int) -> None:
        """Shorten the change log a little; the next step tries again what fails."""
        try:
            self._pruning.step(self.generation, self.applier.settled, written)
        except StoreUnavailable as error:
            log.warning("pruning_failed", error=str(error))
        except Exception:  # a fault in it, or in what it calls (``Pruning.needed``), must not end writing
            log.exception("pruning_failed")

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
            call_safely(observer, told)


def _fail(writes: Iterable[_Asked], error: DrumlinError) -> None:
    """Give each write an error of its own."""
    for each in writes:
        each.error = error.again()


def _numbered(written: Written, generation: int) -> Written:
    if written.outcome == "unchanged":
        return written
    return Written(written.graph, written.outcome, written.digest, generation, written.held)
