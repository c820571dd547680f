"""Answers from reader processes: each query runs on a replica, can be stopped, and harms no other.

Every reader has a replica of the writer's quads: one checkpoint (hard links) per life, then the writer's deltas, sent along with its next
query, or every ``TICK`` seconds while it is idle; never while it is busy, so that no query holds up a write. A query waits for
nothing but a free reader, and sees all that was acknowledged before it came. A write costs a replica as much as the store itself, so
readers that nobody needs go while there are writes: one stays, and the others come back with the first query that finds it busy. In a
flood of writes none stays: a query that comes then waits for a new one, as it would have to for the deltas.
Two threads serve all: ``watch`` looks after readers (deadline, memory, priority, catching up), ``spawn`` starts and buries them,
since both take their time.
"""

from __future__ import annotations

import itertools
import os
import queue
import select
import shutil
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Protocol

import structlog

from drumlin.kg import processes
from drumlin.kg.errors import Busy, DrumlinError, StoreUnavailable
from drumlin.kg.store.delta import Delta
from drumlin.kg.store.query_workers import replica_deltas
from drumlin.kg.store.query_workers.handle import Fate, QueryWorker
from drumlin.kg.store.query_workers.pool import Pool, Promise
from drumlin.kg.store.query_workers.replica_deltas import Deltas
from drumlin.kg.threads import ServiceThread
from drumlin.kg.workers.frames import frame

TICK = 0.05
"""Seconds between two looks at the readers: how late a deadline may be kept, how far behind an idle replica may be."""
_DRAINING = 0.5  # seconds that a query nobody waits for may take to end by itself
_OPENING = 120.0  # seconds that a new reader may take
_HOPELESS = 3  # readers that ended at their start, from which on queries no longer wait for the next one
_PAUSE = 1.0  # seconds after a start that failed
_WAITING = 512  # queries that wait for a reader, at most
_WAITING_OF_ONE = 256  # of one client; behind a proxy, all of its clients are one

log = structlog.get_logger(__name__)


class ReplicaSource(Protocol):
    """What is copied: the embedded store."""

    @property
    def generation(self) -> int:
        """The newest generation."""
        ...

    def follow_deltas(self, listener: Callable[[Delta], None]) -> None:
        """Have all deltas sent."""
        ...

    def checkpoint(self, folder: Path) -> int:
        """Copy the quads."""
        ...


class Readers:
    """Reader processes over ``origin``, their replicas in ``folder`` (on the store's file system, emptied first).

    There are ``count`` (None: processors + 1); ``memory`` is the cap of each in bytes.
    """

    def __init__(self, origin: ReplicaSource, folder: Path, *, count: int | None = None, memory: int = 1 << 30) -> None:
        self._origin, self._folder, self._memory = origin, folder, memory
        shutil.rmtree(folder, ignore_errors=True)
        try:
            folder.mkdir(parents=True)
        except OSError as error:
            raise StoreUnavailable(f"readers cannot keep their replicas in {folder}: {error.strerror}") from error
        self._lock = threading.Lock()
        self._numbers = itertools.count()
        self._errands: queue.SimpleQueue[Callable[[], None] | None] = queue.SimpleQueue()
        self._orphans: queue.SimpleQueue[QueryWorker] = queue.SimpleQueue()
        self._ending = threading.Event()
        self._closed = False
        count = count or (os.cpu_count() or 1) + 1
        self._pool = Pool(origin.generation, count, self._start, self._errands.put)
        origin.follow_deltas(self._follow)
        self._threads = [
            ServiceThread(self._run_errands, "readers-spawn", self._died),
            ServiceThread(self._watch, "readers-watch", self._died),
        ]
        with self._lock:
            self._pool.maintain()
        for each in self._threads:
            each.start()

    # -- what the writer says -----------------------------------------------------------------------------------------
    def _follow(self, delta: Delta) -> None:
        with self._lock:
            try:
                self._pool.follow(delta)
            except BaseException:
                self._pool.deltas = Deltas(delta.generation)  # replicas that lack this delta are replaced, never asked
                raise

    @property
    def lag(self) -> int:
        """How many generations the farthest idle reader is behind."""
        with self._lock:
            return max((self._pool.deltas.latest - each.generation for each in self._pool.idle), default=0)

    @property
    def ended(self) -> Counter[Fate]:
        """How many ended, by reason."""
        return self._pool.ended

    @property
    def pids(self) -> list[int]:
        """The processes, those that are opening too."""
        with self._lock:
            return [reader.pid for reader in self._pool.readers]

    # -- borrowing ----------------------------------------------------------------------------------------------------
    def charge(self, client: str, seconds: float) -> None:
        """Note the reader time that a query of a client took."""
        with self._lock:
            self._pool.usage.charge(client, seconds)

    def borrow(self, deadline: float, client: str = "", *, long: bool = False) -> QueryWorker | Promise:
        """Return a reader that sees all acknowledged so far, or the promise of one; give it to ``release`` in any case.

        Clients that have used little come first. Raises ``Busy`` when too many queries wait already, or too many of this client.
        """
        with self._lock:
            if self._ending.is_set():
                raise _stopping()
            pool = self._pool
            need = self._origin.generation
            if (reader := pool.lend_idle(need, deadline, client, long=long)) is not None:
                return reader
            crowding = bool(client) and pool.waiting.waiting_for(client) >= _WAITING_OF_ONE
            if crowding or len(pool.waiting) >= _WAITING:
                raise Busy(
                    f"{len(pool.waiting)} queries wait for a reader already",
                    hint="ask again in a moment, and less at a time",
                )
            promise = Promise(need, deadline, client, long=long)
            pool.waiting.put(client, promise)
            pool.maintain()
            return promise

    def take(self, deadline: float, client: str = "") -> QueryWorker | None:
        """Return a reader as ``borrow`` does if one is idle."""
        with self._lock:
            pool = self._pool
            found = pool.lend_idle(self._origin.generation, deadline, client, long=False)
            if found is None:
                pool.grow()
            return found

    def join(self, reader: QueryWorker, room: int, client: str) -> bool:
        """Prepare a busy reader for one more query, as ``Pool.join`` does."""
        with self._lock:
            return not self._ending.is_set() and self._pool.join(reader, room, client)

    def go_on(self, reader: QueryWorker, deadline: float, client: str) -> None:
        """Note that a reader has begun the next query that it holds."""
        with self._lock:
            reader.begin(deadline, reader.owed)
            reader.client = client

    def leave(self, promise: Promise) -> None:
        """Give up a promise: a reader that it was kept with meanwhile is released."""
        with self._lock:
            if promise.cancel():
                self._pool.waiting.remove(promise.client, promise)
                return
        if promise.exception() is None:
            self.release(promise.result())

    def release(self, reader: QueryWorker) -> None:
        """Take back a reader whose query has ended, or which itself has."""
        if reader.reniced and not reader.fate and not reader.restore():
            self._lose(reader, "worn")
            return
        with self._lock:
            reader.began, reader.long = None, False
            pool = self._pool
            if not reader.fate and reader in pool.readers:
                pool.offer(reader)
                if reader.replayed > replica_deltas.LIMIT:
                    pool.worn.add(reader)
                    pool.maintain()
                return
        self._lose(reader, reader.fate or "closed")

    def abandon(self, reader: QueryWorker, answers: int = 1) -> None:
        """Take back a reader whose queries nobody waits for any more: it may end them by itself soon, else it is killed."""
        with self._lock:
            reader.answers = answers
            self._pool.tended[reader] = time.monotonic() + _DRAINING

    def orphan(self, reader: QueryWorker) -> None:
        """Abandon a reader whose holder was forgotten: called by the garbage collector, so without any lock."""
        self._orphans.put(reader)

    # -- looking after them -------------------------------------------------------------------------------------------
    def _lose(self, reader: QueryWorker, fate: Fate) -> None:
        """Bury a reader that ended, or ends now, and start another."""
        with self._lock:
            pool = self._pool
            if reader not in pool.readers:  # replaced already
                reader.kill(fate)
                self._pool.tended.pop(reader, None)
                self._errands.put(reader.bury)
                return
            pool.forget(reader, fate)
            pool.maintain()
        log.info("reader_replaced", reason=reader.fate, pid=reader.pid)

    # -- the thread that starts and buries ----------------------------------------------------------------------------
    def _run_errands(self) -> None:
        """Do what takes long. Readers die with this thread (PR_SET_PDEATHSIG), so it lives as long as they."""
        while (errand := self._errands.get()) is not None:
            try:
                errand()
            except Exception:
                log.exception("reader_errand_failed")

    def _start(self) -> None:
        if not self._ending.is_set():
            self._errands.put(self._spawn)

    def _spawn(self) -> None:
        folder = self._folder / str(next(self._numbers))
        reader = None
        try:
            generation = self._origin.checkpoint(folder)
            reader = QueryWorker(folder, generation, self._memory)
        except Exception as error:
            log.warning("reader_not_started", error=str(error), exc_info=not isinstance(error, DrumlinError | OSError))
            shutil.rmtree(folder, ignore_errors=True)
            if not self.pids:  # else one that is being opened may serve them
                self._tell_waiting(str(error))
            self._pause()  # the disk may have no room; the watch asks again
        with self._lock:
            self._pool.starting -= 1
            if reader is None:
                return
            wanted = not self._ending.is_set()
            if wanted:
                self._pool.readers.add(reader)
                self._pool.tended[reader] = time.monotonic() + _OPENING
        if not wanted:
            reader.bury()

    def _count_start(self, *, opened: bool) -> int:
        """Count a start that failed, and return how many did since the last one that did not."""
        self._pool.lost_starting = 0 if opened else self._pool.lost_starting + 1
        return self._pool.lost_starting

    def _pause(self) -> None:
        """Let some time pass after a start that failed."""
        self._ending.wait(_PAUSE)

    def _tell_waiting(self, reason: str) -> None:
        """Fail the queries that wait for a reader, unless one that has been open can serve them."""
        with self._lock:
            pool = self._pool
            if any(each.opened for each in pool.readers):
                return
            waiting = [each for each in pool.waiting if each.set_running_or_notify_cancel()]
            pool.waiting.clear()
        for promise in waiting:
            promise.set_exception(
                StoreUnavailable(
                    f"no reader can be started, and queries need one: {reason}",
                    hint="it needs room on the store's disk, and memory; queries go on by themselves once there is some",
                )
            )

    # -- the thread that watches --------------------------------------------------------------------------------------
    def _watch(self) -> None:
        due = 0.0
        while not self._ending.is_set():
            try:
                self._tend_ready()
                if (now := time.monotonic()) >= due:
                    due = now + TICK
                    self._look(now)
            except Exception:
                log.exception("reader_watch_failed")
                self._ending.wait(TICK)

    def _tend_ready(self) -> None:
        """Wait for a moment; look after those of the tended readers that have something to say."""
        with self._lock:
            while not self._orphans.empty():
                self._pool.tended[self._orphans.get()] = time.monotonic() + _DRAINING
            tended = {each.socket.fileno(): each for each in self._pool.tended}
        for reader in tended.values():  # what nobody waits for may have come whole: then no event reports it
            self._tend_again(reader)
        poll = select.poll()
        for descriptor in tended:
            if descriptor >= 0:
                poll.register(descriptor, select.POLLIN)
        for descriptor, _ in poll.poll(1000 * TICK / 2):
            self._tend_again(tended[descriptor])

    def _tend_again(self, reader: QueryWorker) -> None:
        """Tend a reader, unless it is tended no more."""
        with self._lock:
            if reader not in self._pool.tended:
                return
        self._tend(reader)

    def _tend(self, reader: QueryWorker) -> None:
        """Read on behalf of nobody: until the end, then the reader is free."""
        try:
            while (found := reader.poll()) is not None:
                reader.answers -= found[0] != b"D"
                if not reader.answers:
                    with self._lock:
                        self._pool.tended.pop(reader, None)
                        reader.answers, reader.opened = 1, True
                        self._count_start(opened=True)
                    self.release(reader)
                    return
        except DrumlinError:  # it has ended; nothing waits for it
            if not reader.opened:  # the next one may end so too, and takes a checkpoint each time
                self._errands.put(self._pause)
            self._lose(reader, "crash")
            if not reader.opened and (lost := self._count_start(opened=False)) >= _HOPELESS:
                self._tell_waiting(f"the last {lost} ended before they were open")

    def _look(self, now: float) -> None:
        with self._lock:
            pool = self._pool
            overdue = [reader for reader, until in pool.tended.items() if now > until]
            busy = [each for each in pool.readers if each.began is not None]
            behind = []
            pool.rest(now)
            pool.give_way(now)
            for reader in [each for each in pool.idle if each.generation < pool.deltas.latest]:
                if pool.deltas.reach(reader.generation):
                    pool.idle.remove(reader)
                    reader.owed = pool.deltas.since(reader.generation) or []
                    pool.tended[reader] = now + _OPENING
                    behind.append(reader)
            pool.maintain()
            idle = list(pool.idle)
        for reader in overdue:
            self._lose(reader, "abandoned")
        for reader in busy:
            self._check(reader, now)
        for reader in idle:
            if not reader.alive():
                self._bury_idle(reader)
        for reader in behind:
            self._catch_up(reader)

    def _check(self, reader: QueryWorker, now: float) -> None:
        over = reader.over_memory()
        with self._lock:
            if reader.began is None or reader.began > now:  # its query has ended meanwhile; this is the next one
                return
            if now > reader.deadline or over:
                # Its query may be slow to notice (its client does not read), so another is started at once.
                if reader in (pool := self._pool).readers:
                    pool.forget(reader, "timeout" if now > reader.deadline else "memory", held=True)
                    pool.maintain()
            elif not reader.reniced and now - reader.began > processes.BUSY_FOR_LONG:
                reader.renice()

    def _bury_idle(self, reader: QueryWorker) -> None:
        with self._lock:
            if reader not in self._pool.idle:
                return
            self._pool.idle.remove(reader)
        self._lose(reader, "crash")

    def _catch_up(self, reader: QueryWorker) -> None:
        try:
            reader.socket.sendall(reader.request(frame(b"P")))
        except OSError:
            self._lose(reader, "crash")

    def _died(self, _: BaseException) -> None:
        """Refuse queries from now on: without these threads none can be answered, or stopped."""
        self._end()
        self._errands.put(None)

    def _end(self) -> None:
        with self._lock:
            if self._ending.is_set():
                return
            self._ending.set()
            for promise in self._pool.waiting:
                if promise.set_running_or_notify_cancel():
                    promise.set_exception(_stopping())
            self._pool.close()

    def close(self) -> None:
        """End all readers and remove their replicas; a caller that waits for an answer gets an error."""
        if self._closed:
            return
        self._closed = True
        self._end()
        self._threads[1].join()
        self._errands.put(None)
        self._threads[0].join()
        shutil.rmtree(self._folder, ignore_errors=True)


def _stopping() -> StoreUnavailable:
    return StoreUnavailable("the service is stopping")
