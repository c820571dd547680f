"""The engine follows the change log: what the log holds durably is applied to the engine by a thread of its own.

A write is done once it stands in the log (``kg.store.embedded.writer``): that is one sync, and no wait for the engine, which takes ten
times as long for a new graph. A caller that needs what the engine holds waits for its generation (``reach``), and writers wait while
too much is pending. Several batches are applied as one, and many new graphs are bulk-loaded, at half the cost of an update; so while
nobody needs the engine, new graphs may be pending for ``LINGER`` seconds, and while somebody does, writers give way a little. What a
killed process did not apply is applied when the store is opened (``kg.store.embedded.recovery``).

On a disk that is nearly full, nothing is accepted that the engine might have no room for: it then keeps up with every batch. When
the disk fails the engine all the same, what is in the log stays there: it is retried once at once, then on every later read or write,
which raises the cause until it succeeds.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain

import structlog

from drumlin.kg.errors import DrumlinError, StoreUnavailable
from drumlin.kg.store.delta import Change, New, update_text
from drumlin.kg.store.embedded.engine import EmbeddedEngine
from drumlin.kg.store.embedded.wal import full
from drumlin.kg.threads import ServiceThread

ROOM = 600_000
"""Statements that may be pending, about 80 MB of new graphs: 10,000 in one request need not wait for the engine."""
SCARCE = 20_000
"""Statements beyond which writers give way to callers that wait for the engine, which would share the processors with them."""
GIVING_WAY = 0.02
"""Seconds that a batch of writes is held up then."""
LOADED = 128
"""From this many new graphs on, they are bulk-loaded."""
CHUNK = 7000
"""Graphs in one bulk load: the engine's memory grows with it."""
LINGER = 4.0
"""Seconds that new graphs may be pending while nobody has needed the engine for ``_ASKED`` seconds: every fourth load or so has what was
loaded before merged, so the fewer they are, the less is written."""
FLUSH_BYTES = 8 << 20
"""Size of the write-ahead log at which the engine's memory is written out as tables; at eight times that, it is waited for."""
SOON = 0.1
"""Seconds that any other write may be pending then."""
_ASKED = 1.0
_ENOUGH = 0.6  # of the room: from this on no more is waited for, and the engine has it before the room is full
_STATEMENT = 1000  # bytes of disk that a statement may take at first
_SPARE = 1 << 20  # bytes that are left for the files' own needs
_OPTIMIZE_AFTER = 5 * CHUNK  # graphs that were bulk-loaded: their files slow point queries
_QUIET = 1.0  # seconds without a bulk load before they are merged, which writes everything anew; in a flood RocksDB keeps them few

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Pending:
    """What the writer changed, up to ``generation``: new graphs, the ``rest``, and all as an update, unless it is to be loaded.

    ``statements`` is what ``room_of`` says of it.
    """

    generation: int
    graphs: frozenset[str]
    new: Sequence[New]
    rest: Sequence[Change]
    update: str
    statements: int


class EngineApplier:
    """Applies batches to ``engine``, which holds all up to the generation ``applied``, until ``close``."""

    def __init__(self, engine: EmbeddedEngine, applied: int) -> None:
        self.applied = applied
        """The generation up to which the engine holds everything, durably."""
        self.building_from: int | None = None
        """The generation from which on another engine, which is being built, needs the log."""
        self._engine = engine
        self._moved = threading.Condition()
        self._pending: deque[Pending] = deque()
        self._statements = 0
        self._graphs = 0  # new ones that are pending
        self._reaching: list[int] = []  # generations that somebody waits for
        self._asked_at = 0.0
        self._error: StoreUnavailable | None = None
        self._again = False
        self._held_back = False  # a batch could not be applied with those before it, and is next
        self._closed = False
        self._applying = threading.Lock()
        self._loaded = 0
        self._loaded_at = 0.0
        self._tidying: threading.Thread | None = None
        self._thread = ServiceThread(self._run, "applier", self._died)
        self._thread.start()

    @property
    def pending(self) -> int:
        """How many statements wait to be applied."""
        return self._statements

    @property
    def settled(self) -> int:
        """The generation up to which no engine needs the log."""
        return self.applied if self.building_from is None else min(self.applied, self.building_from)

    def give(self, batch: Pending) -> None:
        """Have a batch applied that the log holds, after those given before."""
        with self._moved:
            if batch.generation <= self.applied:  # another engine, which has it from the log, has taken the place
                return
            self._pending.append(batch)
            self._statements += batch.statements
            self._graphs += len(batch.new)
            if len(self._pending) == 1 or batch.rest or self._is_enough:
                self._moved.notify_all()

    def make_room(self, statements: int) -> None:
        """Wait until a batch of so many ``statements`` (``room_of``) may be recorded and given.

        Raises ``StoreFull`` when the disk has no room for it, ``StoreUnavailable`` while it fails the engine.
        """
        if self._reaching and self._statements > SCARCE:
            with self._moved:
                self._moved.wait_for(lambda: not self._reaching or self._statements <= SCARCE, GIVING_WAY)
        if self._statements > ROOM or self._error or self._engine.failed:
            self._wait(lambda: self._statements <= ROOM)
        needed = _SPARE + _STATEMENT * statements
        if self._engine.free_bytes() < needed + _STATEMENT * self._statements:
            self._wait(lambda: not self._pending)
            if (free := self._engine.free_bytes()) < needed:
                raise full(
                    f"the store cannot be written: its disk has {free >> 10:,} KB left, and {needed >> 10:,} KB are needed"
                )

    def reach(self, generation: int) -> None:
        """Wait until the engine holds ``generation``. Raises ``StoreUnavailable`` while the disk fails it."""
        self._asked_at = time.monotonic()
        if self.applied >= generation and not self._engine.failed:
            return
        self._reaching.append(generation)
        try:
            self._wait(lambda: self.applied >= generation)
        finally:
            self._reaching.remove(generation)

    @contextmanager
    def paused(self) -> Iterator[Callable[[int], None]]:
        """Have nothing applied meanwhile: another engine may take the place. Yields what notes the generation that it holds."""
        with self._applying:
            yield self._replaced

    def _replaced(self, generation: int) -> None:
        with self._moved:
            self._done([each for each in self._pending if each.generation <= generation])
            self.applied = max(self.applied, generation)
            self._moved.notify_all()

    def _wait(self, true: Callable[[], bool]) -> None:
        with self._moved:
            if self._error or self._engine.failed:
                self._again = True
                self._moved.notify_all()
                self._moved.wait_for(lambda: not self._again or self._closed)
            self._moved.notify_all()
            self._moved.wait_for(lambda: true() or self._error or self._closed)
            if error := self._error:
                raise error.again()
            if not true():
                raise StoreUnavailable("the store is closed")

    def close(self) -> None:
        """Apply what is pending, unless the disk fails, then end."""
        with self._moved:
            self._closed = True
            self._moved.notify_all()
        self._thread.join()
        if self._tidying:
            self._tidying.join()

    # -- the thread ---------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while self._wait_for_work():
            with self._applying:
                self._apply_next()
            try:
                self._tidy_when_due()
            except Exception:  # the files are put in shape after a later batch
                log.exception("tidying_failed")

    def _apply_next(self) -> None:
        with self._moved:
            taken = self._as_one()
        error: StoreUnavailable | None = None
        try:
            self._apply_or_again(taken)
        except StoreUnavailable as failure:
            error = failure
            log.warning("engine_behind", error=str(error), statements=self._statements)
        except Exception as failure:  # the thread must outlive it; callers that need the engine get the error
            log.exception("engine_refused", generation=taken[-1].generation if taken else None)
            error = StoreUnavailable(f"the engine does not take what the change log holds: {failure}")
        with self._moved:
            self._error, self._again = error, False
            if error is None:
                self._done(taken)
            self._moved.notify_all()

    def _died(self, error: BaseException) -> None:
        """Refuse writes, and reads that need the engine, from now on: nothing is applied any more."""
        with self._moved:
            self._error = StoreUnavailable(
                f"the thread that applies writes to the engine has ended by an error: {type(error).__name__}: {error}",
                hint="restart the service; what was written is in the change log",
            )
            self._closed = True
            self._moved.notify_all()

    def _wait_for_work(self) -> bool:
        """Wait for something to do: batches to apply, a failed engine to open, files to tidy; False to end."""
        with self._moved:
            to_tidy = self._loaded >= _OPTIMIZE_AFTER and not self._error
            if not self._moved.wait_for(self._asked_for, _QUIET if to_tidy else None):
                return True
            if self._closed and (self._error or not self._pending):
                return False
            if not (self._again or self._held_back):
                self._moved.wait_for(self._urgent, SOON)
                self._moved.wait_for(lambda: self._urgent() or any(each.rest for each in self._pending), LINGER)
            return True

    def _as_one(self) -> list[Pending]:
        """Return the pending batches that may be applied as one: updates in order, and what is loaded before them may be loaded first."""
        taken: list[Pending] = []
        touched: set[str] = set()
        graphs = 0
        self._held_back = False
        for batch in self._pending:
            self._held_back = not touched.isdisjoint(each.graph for each in batch.new)
            if graphs >= CHUNK or self._held_back:
                break
            taken.append(batch)
            touched |= batch.graphs
            graphs += len(batch.graphs)
        return taken

    def _asked_for(self) -> bool:
        return self._closed or self._again or (bool(self._pending) and not self._error)

    def _urgent(self) -> bool:
        if self._closed or self._again or self._reaching or self._is_enough:
            return True
        return time.monotonic() - self._asked_at < _ASKED

    @property
    def _is_enough(self) -> bool:
        """Whether waiting for more would not make one load of it, or fill the room."""
        return self._graphs >= CHUNK or self._statements > ROOM * _ENOUGH

    def _done(self, taken: Sequence[Pending]) -> None:
        for batch in taken:
            self._pending.popleft()
            self._statements -= batch.statements
            self._graphs -= len(batch.new)
            self.applied = batch.generation

    # -- the engine ---------------------------------------------------------------------------------------------------
    def _apply_or_again(self, taken: Sequence[Pending]) -> None:
        """Apply, twice if need be: RocksDB reports a failed merge to the next write, and the disk may be well since."""
        try:
            self._apply(taken)
        except StoreUnavailable:
            self._apply(taken)

    def _apply(self, taken: Sequence[Pending]) -> None:
        """Make the engine hold what some batches brought, durably. What a failure left half done may be done again."""
        if self._engine.failed:
            if self._tidying:
                self._tidying.join()
            self._engine.reopen()
            log.info("engine_opened_again")
        new = list(chain.from_iterable(each.new for each in taken))
        if len(new) >= LOADED or not all(each.update for each in taken):
            write(self._engine, new, ";\n".join(update_text(each.rest) for each in taken if each.rest))
            self._loaded += len(new)
            self._loaded_at = time.monotonic()
        else:
            write(self._engine, (), ";\n".join(each.update for each in taken))
        if taken:
            self._engine.hold(taken[-1].generation)

    def _tidy_when_due(self) -> None:
        """Keep the engine's files in shape, in a thread beside this one, which goes on unless the engine's log runs away."""
        if self._engine.failed:
            return
        if (wal := self._engine.wal_bytes) >= FLUSH_BYTES:
            self._in_background(self._engine.flush, wait=wal >= 8 * FLUSH_BYTES)
        elif self._loaded >= _OPTIMIZE_AFTER and time.monotonic() >= self._loaded_at + _QUIET:
            self._in_background(self._optimize)

    def _optimize(self) -> None:
        self._loaded = 0
        self._engine.flush()
        self._engine.optimize()

    def _in_background(self, work: Callable[[], None], *, wait: bool = False) -> None:
        """Have the engine's files put in shape by another thread, unless one is at it; ``wait``: after it."""
        if self._tidying and self._tidying.is_alive():
            if not wait:
                return
            self._tidying.join()
        self._tidying = threading.Thread(target=_tidy, args=(work,), name="tidy", daemon=True)
        self._tidying.start()


def _tidy(work: Callable[[], None]) -> None:
    try:
        work()
    except DrumlinError as error:  # the next batch opens the engine again, or the caller that needs it gets the reason
        log.warning("tidying_failed", error=str(error))
    except Exception:  # the edge of the thread: a later batch begins another one
        log.exception("tidying_failed")


def write(engine: EmbeddedEngine, new: Sequence[New], update: str) -> None:
    """Make ``engine`` hold new graphs and what an update of other graphs says, durably."""
    for start in range(0, len(new), CHUNK):
        engine.load(new[start : start + CHUNK])
    if update:
        engine.update(update)
    engine.sync()


def room_of(changes: Sequence[Change]) -> int:
    """Return how many statements changes take room for: those that they bring, and one for each graph."""
    return sum(each.statements + 1 for each in changes)
