"""The pool of worker processes: started on demand, limited in time, memory and output, and never missed when one dies.

A caller with a job acquires a worker, talks to it directly and releases it. One thread, the supervisor, starts workers (they end with the
thread that starts them), reaps them, ends those that were idle for ``IDLE_TIMEOUT``, and lets other work go before a long job. A worker
inherits nothing but its socket and the file that its errors go to.
"""

from __future__ import annotations

import os
import signal
import subprocess
import threading
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Literal, NoReturn

import msgspec
import structlog

from drumlin.kg import cancellation, processes
from drumlin.kg.errors import DrumlinError
from drumlin.kg.threads import ServiceThread
from drumlin.kg.workers.child import JOBS, Lane
from drumlin.kg.workers.frames import (
    Frames,
    FrameTooLarge,
    JobHeader,
    LimitExceeded,
    Limits,
    NoWorker,
    Refusal,
    WorkerDied,
    frame,
    head,
)

IDLE_TIMEOUT = 120.0
"""Seconds without a job after which a worker ends."""
EXPIRED_BYTES = 256 << 20
"""Bytes of memory with which a worker is replaced after a job: an allocator seldom gives back what it took."""
WAIT_SECONDS = 10.0
"""The longest wait for a worker while all of a lane are busy."""
_START_SECONDS = 20.0  # that a worker may take until it begins its first job
_RETRY_SECONDS = 5.0  # after a failed start, before another is tried
_REAP_SECONDS = 5.0
_LOOK_SECONDS = 0.25  # between two looks whether anybody still waits for the result
_LAST_WORDS = 2000  # bytes of stderr that are read when a worker has died
_BYTES_AT_ONCE = 1 << 18
_LANES: dict[Lane, int] = {"bulk": 2, "update": max(2, os.cpu_count() or 1), "parse": max(2, os.cpu_count() or 1)}
_OUT_OF_MEMORY = ("memory allocation of", "MemoryError", "bad_alloc", "Cannot allocate memory")
_FROM_OUTSIDE = (-signal.SIGKILL, -signal.SIGTERM, -signal.SIGINT, -signal.SIGHUP)

Outcome = Literal["done", "refused", "time", "memory", "output", "died", "unavailable"]
"""What became of a job: a result, an error of ours, a limit that it exceeded, its worker's death, or no worker for it."""

log = structlog.get_logger()


class _NotBegun(Exception):
    """The worker was gone before it began the job."""


class Worker:
    """One process, for one job at a time."""

    def __init__(self) -> None:
        """Start the process; it reads its first job when it is ready."""
        self._stderr = os.memfd_create("stderr")
        try:
            self.process, self._channel = processes.start("drumlin.kg.workers.child", stderr=self._stderr)
        except BaseException:
            os.close(self._stderr)
            raise
        self._arrived = Frames()
        self.began = self.released = time.monotonic()
        self.expired = self.reniced = False

    @property
    def is_alive(self) -> bool:
        """False once the process has ended."""
        return self.process.poll() is None

    def run(self, target: str, payload: bytes, limits: Limits) -> Iterator[bytes]:
        """Yield the parts of a job's result; ``target`` is its function. The worker is expired unless all of them were taken."""
        self.expired = True
        self._send(JobHeader(target, limits.memory, limits.output), payload)
        self._arrived.most = limits.output + (1 << 20)
        deadline = time.monotonic() + limits.seconds
        left = limits.output
        while True:
            kind, data = self._next(deadline, limits)
            if kind == b"E":
                self.expired = int(data) > EXPIRED_BYTES
                return
            if kind == b"X":
                self.expired = int(self._next(deadline, limits)[1]) > EXPIRED_BYTES
                raise msgspec.msgpack.decode(data, type=Refusal).again()
            if kind == b"L" and data == b"memory":
                raise LimitExceeded("memory", limits)
            if kind == b"L":
                self.expired = int(self._next(deadline, limits)[1]) > EXPIRED_BYTES
                raise LimitExceeded("output", limits)
            if (left := left - len(data)) < 0:
                raise LimitExceeded("output", limits)
            yield data

    def _send(self, call: JobHeader, payload: bytes) -> None:
        """Send a job and wait until it is begun."""
        self._channel.settimeout(_START_SECONDS)
        try:
            self._channel.sendall(frame(b"J", msgspec.msgpack.encode(call)) + head(b"P", len(payload)))
            self._channel.sendall(payload)
            begun = self._arrived.wait(self._channel, _BYTES_AT_ONCE)
        except OSError as error:
            raise _NotBegun(str(error)) from error
        if begun is None:
            raise _NotBegun(self.end())

    def _next(self, deadline: float, limits: Limits) -> tuple[bytes, bytes]:
        try:
            found = self._arrived.next()
            while found is None:
                if (left := deadline - time.monotonic()) <= 0:
                    raise LimitExceeded("time", limits)
                self._channel.settimeout(left)
                if not (data := self._channel.recv(_BYTES_AT_ONCE)):
                    self._died(limits)
                self._arrived.feed(data)
                found = self._arrived.next()
        except TimeoutError as error:
            raise LimitExceeded("time", limits) from error
        except ConnectionError:
            self._died(limits)
        except FrameTooLarge as error:
            raise LimitExceeded("output", limits) from error
        return found

    def _died(self, limits: Limits) -> NoReturn:
        reason, last_words = self.end(), self._last_words()
        if any(each in last_words for each in _OUT_OF_MEMORY):
            raise LimitExceeded("memory", limits)
        if self.process.returncode in _FROM_OUTSIDE:
            raise NoWorker(f"the worker was ended by {reason}")
        raise WorkerDied(reason, last_words)

    def end(self) -> str:
        """Wait for a process whose socket has ended, and kill it if it does not end by itself; return its exit reason."""
        try:
            code = self.process.wait(_REAP_SECONDS)
        except subprocess.TimeoutExpired:
            self.kill()
            code = self.process.wait()
        return signal.Signals(-code).name if code < 0 else f"exit code {code}"

    def _last_words(self) -> str:
        size = os.fstat(self._stderr).st_size
        return os.pread(self._stderr, _LAST_WORDS, max(0, size - _LAST_WORDS)).decode(errors="replace")

    def kill(self) -> None:
        """Kill the process; a caller that waits for its answer finds the socket closed."""
        with suppress(ProcessLookupError):
            self.process.kill()

    def close(self) -> None:
        """Kill and reap the process, and release what is open."""
        self.kill()
        self.process.wait()
        self._channel.close()
        os.close(self._stderr)


class WorkerPool:
    """The workers of one service. ``outcomes`` counts the jobs by name and by what became of them."""

    def __init__(self, *, idle_timeout: float = IDLE_TIMEOUT) -> None:
        self.outcomes: Counter[tuple[str, Outcome]] = Counter()
        self._idle_timeout = idle_timeout
        self._changed = threading.Condition()
        self._lanes = {lane: threading.BoundedSemaphore(count) for lane, count in _LANES.items()}
        self._idle: list[Worker] = []  # the one that was released last stands last
        self._busy: set[Worker] = set()
        self._retired: list[Worker] = []
        self._waiting = 0
        self._closed = False
        self._failure: OSError | None = None
        self._retry_at = 0.0
        self._supervisor: ServiceThread | None = None

    @property
    def size(self) -> int:
        """How many workers there are."""
        return len(self._idle) + len(self._busy)

    # -- jobs ---------------------------------------------------------------------------------------------------------
    def run(
        self, job: str, payload: bytes, *, limits: Limits | None = None, scale: float = 1.0, wait: float = WAIT_SECONDS
    ) -> list[bytes]:
        """Run a job, and return the parts of its result; ``wait`` is the longest wait, in seconds, for a worker.

        ``limits`` are those of its kind by default, ``scale`` times as much.

        Blocks. Raises the job's own ``DrumlinError``, ``LimitExceeded``, ``WorkerDied``, ``NoWorker`` and ``Cancelled``. A worker that
        dies before it begins the job is replaced by another; one whose job is cancelled is ended.
        """
        outcome: Outcome = "unavailable"
        try:
            found = self._run(job, payload, (limits or JOBS[job].limits).scaled(scale), wait)
            outcome = "done"
        except LimitExceeded as error:
            outcome = error.kind
            raise
        except WorkerDied:
            outcome = "died"
            raise
        except DrumlinError:
            outcome = "refused"
            raise
        finally:
            with self._changed:
                self.outcomes[job, outcome] += 1
        return found

    def _run(self, job: str, payload: bytes, held: Limits, wait: float) -> list[bytes]:
        kind = JOBS[job]
        with self._lane(kind.lane, wait):
            for _ in range(2):
                with self._acquired() as worker:
                    try:
                        with cancellation.ended_by(worker.kill):
                            return list(worker.run(kind.target, payload, held))
                    except _NotBegun as error:
                        cancellation.check()
                        log.info("worker_died_idle", reason=str(error))
                    except NoWorker:
                        cancellation.check()  # which has ended it
                        raise
                    except (WorkerDied, LimitExceeded) as error:
                        said = error.last_words if isinstance(error, WorkerDied) else ""
                        log.warning("job_failed", job=job, bytes=len(payload), reason=str(error), stderr=said)
                        raise
        raise NoWorker("no worker begins the job")

    @contextmanager
    def _lane(self, lane: Lane, wait: float) -> Iterator[None]:
        until = time.monotonic() + wait
        while not self._lanes[lane].acquire(timeout=max(0.0, min(_LOOK_SECONDS, until - time.monotonic()))):
            cancellation.check()
            if time.monotonic() >= until:
                raise NoWorker("all workers are busy")
        try:
            yield
        finally:
            self._lanes[lane].release()

    @contextmanager
    def _acquired(self) -> Iterator[Worker]:
        """Lend a worker: one that is idle, else one that the supervisor starts."""
        worker = self._acquire()
        try:
            yield worker
        finally:
            with self._changed:
                self._busy.discard(worker)
                worker.expired |= worker.reniced and not processes.restore_priority(worker.process.pid)
                worker.reniced = False
                worker.released = time.monotonic()
                (self._retired if worker.expired or self._closed else self._idle).append(worker)
                self._changed.notify_all()

    def _acquire(self) -> Worker:
        with self._changed:
            self._waiting += 1
            try:
                self._supervise()
                self._changed.notify_all()
                ready = self._changed.wait_for(self._found, _START_SECONDS)
            finally:
                self._waiting -= 1
            if not ready or not self._idle or self._closed:
                raise NoWorker(f"no worker can be started: {self._failure or 'the pool is closed'}")
            worker = self._idle.pop()
            self._busy.add(worker)
            worker.began = time.monotonic()
            return worker

    def _found(self) -> bool:
        """Return whether a worker is there, once those that died while they were idle are put away; or none will be."""
        while self._idle and not self._idle[-1].is_alive:
            self._retired.append(self._idle.pop())
            self._changed.notify_all()
        return bool(self._idle) or self._closed or self._failure is not None

    def close(self) -> None:
        """End all workers, whatever they do; blocks until they have ended, and each caller with a job learns that it has no result."""
        with self._changed:
            self._closed = True
            supervisor = self._supervisor
            for each in self._busy:
                each.kill()
            self._changed.notify_all()
        if supervisor:
            supervisor.join()

    # -- the supervisor -----------------------------------------------------------------------------------------------
    def _supervise(self) -> None:
        if self._failure and time.monotonic() >= self._retry_at:
            self._failure = None
        if self._supervisor is None and not self._closed:
            self._supervisor = ServiceThread(self._keep, "workers")
            self._supervisor.start()

    def _keep(self) -> None:
        while True:
            with self._changed:
                while not self._is_due():
                    self._changed.wait(self._rest())
                if self._closed:
                    break
                self._renice()
                retired = self._expire()
                missing = 0 if self._failure else self._waiting - len(self._idle)
            for each in retired:
                each.close()
            if missing > 0:
                self._start()
        with self._changed:
            self._changed.wait_for(lambda: not self._busy)  # they were killed, so their callers are about to notice
            ended = [*self._retired, *self._idle]
            self._retired, self._idle = [], []
        for each in ended:
            each.close()

    def _is_due(self) -> bool:
        """Return whether there is anything to do: a worker to be started or ended, or all of them."""
        missing = self._waiting > len(self._idle) and not self._failure
        return bool(self._closed or self._retired or missing or self._rest() == 0.0)

    def _rest(self) -> float | None:
        """Return the seconds until a worker has been idle, or busy, for long enough; None when there is none."""
        due = [each.released + self._idle_timeout for each in self._idle[:1]]
        due += [each.began + processes.BUSY_FOR_LONG for each in self._busy if not each.reniced]
        if self._waiting:  # who waits takes a worker without a word
            due.append(time.monotonic() + processes.BUSY_FOR_LONG)
        return max(0.0, min(due) - time.monotonic()) if due else None

    def _renice(self) -> None:
        """Let other work go before jobs that take long."""
        latest = time.monotonic() - processes.BUSY_FOR_LONG
        for each in self._busy:
            if not each.reniced and each.began <= latest:
                processes.lower_priority(each.process.pid)
                each.reniced = True

    def _expire(self) -> list[Worker]:
        """Return the workers that are to be ended."""
        latest = time.monotonic() - self._idle_timeout
        ended = [each for each in self._idle if each.released <= latest]
        self._idle = [each for each in self._idle if each not in ended]
        ended += self._retired
        self._retired = []
        return ended

    def _start(self) -> None:
        try:
            worker = Worker()
        except OSError as error:
            log.warning("worker_not_started", reason=str(error))
            with self._changed:
                self._failure, self._retry_at = error, time.monotonic() + _RETRY_SECONDS
                self._changed.notify_all()
            return
        with self._changed:
            self._idle.append(worker)
            self._changed.notify_all()
