"""The pool of worker processes: limits of each job, deaths at every moment, idle workers, and the end of all."""

from __future__ import annotations

import os
import signal
import socket
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import closing, suppress
from pathlib import Path

import pytest

from drumlin.kg import cancellation, processes
from drumlin.kg.errors import Cancelled, DrumlinError, ShapeViolation, TooLarge
from drumlin.kg.workers import child, pool
from drumlin.kg.workers.child import JobKind
from drumlin.kg.workers.frames import (
    Frames,
    FrameTooLarge,
    JobFailed,
    LimitExceeded,
    Limits,
    NoWorker,
    WorkerDied,
    frame,
)
from drumlin.kg.workers.pool import WorkerPool
from tests.waiting import PATIENCE, until

ROOT = Path(__file__).parents[2]
LIMITS = Limits(seconds=20.0, memory=256 << 20, output=8 << 20)
NAMES = ("echo", "sleep", "take", "write", "end", "fail", "refuse", "nap", "open_files", "ignore_signals")


@pytest.fixture(autouse=True)
def jobs(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let the pool know the jobs of the tests."""
    found = {name: JobKind(f"tests.jobs:{name}", "parse", LIMITS) for name in NAMES}
    monkeypatch.setattr(pool, "JOBS", {**child.JOBS, **found, "bulk": JobKind("tests.jobs:echo", "bulk", LIMITS)})


@pytest.fixture
def workers() -> Iterator[WorkerPool]:
    """A pool of its own."""
    with closing(WorkerPool()) as made:
        yield made


def pid_of(workers: WorkerPool) -> int:
    """Return the process that does a job now."""
    return int(workers.run("echo", b"")[1])


def lost(workers: WorkerPool, job: str) -> threading.Thread:
    """Begin a job that never ends, in a thread that expects its worker to be ended."""

    def work() -> None:
        with pytest.raises(NoWorker):
            workers.run(job, b"")

    thread = threading.Thread(target=work)
    thread.start()
    return thread


def alive(process: int) -> bool:
    """Return whether a process runs."""
    return Path(f"/proc/{process}").exists()


def test_a_worker_is_started_on_demand_and_used_again(workers: WorkerPool) -> None:
    """Nothing runs before the first job; jobs one after the other are done by one process."""
    assert not workers._idle
    assert workers.run("echo", b"sent")[0] == b"sent"
    assert pid_of(workers) == pid_of(workers)
    assert len(workers._idle) == 1


@pytest.mark.parametrize(
    ("job", "payload", "limits", "kind"),
    [
        ("sleep", b"", Limits(0.2, 256 << 20, 1 << 20), "time"),
        ("take", b"100000000", Limits(20.0, 50 << 20, 1 << 20), "memory"),
        ("write", b"40000000", LIMITS, "output"),
        ("echo", bytes(9 << 20), LIMITS, "output"),
        ("end", b"memory allocation of 10 bytes failed", LIMITS, "memory"),  # as native code ends
    ],
)
def test_a_job_that_exceeds_a_limit_ends_alone(
    workers: WorkerPool, job: str, payload: bytes, limits: Limits, kind: str
) -> None:
    """The error names the limit, and the next job works; a worker is used again only when it stopped the job itself."""
    before = pid_of(workers)

    with pytest.raises(LimitExceeded) as caught:
        workers.run(job, payload, limits=limits)

    assert (caught.value.kind, caught.value.limits) == (kind, limits)
    assert (pid_of(workers) == before) == (kind == "output")
    until(lambda: alive(before) == (kind == "output"))


def test_a_limit_on_memory_holds_for_one_job_alone(workers: WorkerPool) -> None:
    """What the process has already does not count, and the next job may take more."""
    assert workers.run("take", b"100000000", limits=Limits(20.0, 200 << 20, 100)) == [b"100000000"]
    with pytest.raises(LimitExceeded):
        workers.run("take", b"300000000", limits=Limits(20.0, 200 << 20, 100))
    assert workers.run("take", b"300000000", limits=Limits(20.0, 400 << 20, 100)) == [b"300000000"]


@pytest.mark.parametrize(
    ("payload", "reason"), [(str(int(signal.SIGSEGV)).encode(), "SIGSEGV"), (b"last words", "exit code 1")]
)
def test_a_worker_that_dies_within_a_job_is_replaced(workers: WorkerPool, payload: bytes, reason: str) -> None:
    """The error has its exit reason and what it wrote to stderr; the next job has another worker."""
    with pytest.raises(WorkerDied) as caught:
        workers.run("end", payload)

    assert caught.value.exit_reason == reason
    assert caught.value.last_words.strip() == ("last words" if b"words" in payload else "")
    assert workers.run("echo", b"x")[0] == b"x"


def test_an_unexpected_exception_ends_the_worker_with_its_traceback(workers: WorkerPool) -> None:
    """A fault is not hidden: the caller gets what the process wrote."""
    with pytest.raises(WorkerDied) as caught:
        workers.run("fail", b"x")
    assert "KeyError: b'x'" in caught.value.last_words


def test_a_worker_that_is_ended_from_outside_is_not_the_jobs_fault(workers: WorkerPool) -> None:
    """SIGKILL and SIGTERM come from somebody else: the job may be tried again."""
    for each in (signal.SIGKILL, signal.SIGTERM):
        with pytest.raises(NoWorker, match=each.name):
            workers.run("end", str(int(each)).encode())


def test_a_worker_that_died_while_it_was_idle_is_not_missed(workers: WorkerPool) -> None:
    """Whether its death was seen or not: the job was not begun, so another worker does it."""
    before = pid_of(workers)
    os.kill(before, signal.SIGKILL)
    assert pid_of(workers) != before
    os.kill(workers._idle[0].process.pid, signal.SIGKILL)
    until(lambda: not workers._idle[0].is_alive)
    assert workers.run("echo", b"x")[0] == b"x"


def test_an_error_of_ours_comes_back_as_it_is(workers: WorkerPool) -> None:
    """Its class, message, hint, detail and violations; the worker is used again."""
    before = pid_of(workers)
    with pytest.raises(TooLarge) as large:
        workers.run("refuse", b"")
    assert (str(large.value), large.value.hint, large.value.detail) == ("too large", "less", {"limit": 1})
    with pytest.raises(ShapeViolation) as shape:
        workers.run("refuse", b"x")
    assert shape.value.violations[0].suggestion == "right"
    assert pid_of(workers) == before


def test_a_lane_has_so_many_workers_and_no_more(workers: WorkerPool) -> None:
    """A job that finds its lane full waits, and is told after a while; another lane has workers of its own."""
    count = pool._LANES["parse"]
    sleeping = [lost(workers, "sleep") for _ in range(count)]
    until(lambda: len(workers._busy) == count)

    with pytest.raises(NoWorker, match="busy"):
        workers.run("echo", b"", wait=0.05)
    assert workers.run("bulk", b"x")[0] == b"x"

    workers.close()
    for each in sleeping:
        each.join(PATIENCE)
        assert not each.is_alive()


def test_a_job_that_is_cancelled_ends_its_worker(workers: WorkerPool) -> None:
    """The job, and one that waits for its lane, end when nobody waits for their results; the lane is free again."""
    before = pid_of(workers)
    of_all, ends = cancellation.Cancellation(), []

    def work() -> None:
        with cancellation.under(of_all), pytest.raises(Cancelled):
            workers.run("sleep", b"", wait=PATIENCE)
        ends.append("cancelled")

    count = pool._LANES["parse"] + 1
    threads = [threading.Thread(target=work) for _ in range(count)]
    for each in threads:
        each.start()
    until(lambda: len(workers._busy) == count - 1)
    of_all.cancel()
    for each in threads:
        each.join(PATIENCE)
    assert ends == ["cancelled"] * count
    assert pid_of(workers) != before


def test_other_work_goes_before_a_long_job(workers: WorkerPool) -> None:
    """A worker that is busy for long gets the lowest priority, and has its own again for the next job."""
    own = os.getpriority(os.PRIO_PROCESS, 0)
    before = pid_of(workers)
    slow = threading.Thread(target=lambda: workers.run("nap", b"0.5"))
    slow.start()
    until(lambda: os.getpriority(os.PRIO_PROCESS, before) == 19 and bool(workers._busy))
    slow.join()
    assert os.getpriority(os.PRIO_PROCESS, pid_of(workers)) == own


def test_outcomes_are_counted(workers: WorkerPool) -> None:
    """Each job once, by what became of it."""
    for job, payload in (("echo", b""), ("echo", b""), ("write", b"40000000"), ("refuse", b""), ("end", b"3")):
        with suppress(DrumlinError, JobFailed):
            workers.run(job, payload)
    workers.close()
    with suppress(JobFailed):
        workers.run("echo", b"")

    assert workers.outcomes == {
        ("echo", "done"): 2,
        ("write", "output"): 1,
        ("refuse", "refused"): 1,
        ("end", "died"): 1,
        ("echo", "unavailable"): 1,
    }
    assert workers.size == 0


def test_idle_workers_end() -> None:
    """After the idle timeout there is no process left; the next job starts one."""
    with closing(WorkerPool(idle_timeout=0.2)) as workers:
        before = pid_of(workers)
        until(lambda: not alive(before))
        assert not workers._idle
        assert pid_of(workers) != before


def test_a_worker_that_grew_is_expired(workers: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is replaced after its job, so that what an allocator keeps does not stay."""
    monkeypatch.setattr(pool, "EXPIRED_BYTES", 1 << 20)
    assert pid_of(workers) != pid_of(workers)


def test_closing_ends_every_worker(workers: WorkerPool) -> None:
    """The idle ones, and those within a job, whatever signals they ignore; nothing is started afterwards."""
    idle = pid_of(workers)
    stubborn = lost(workers, "ignore_signals")
    until(lambda: len(workers._busy) == 1)
    busy = next(iter(workers._busy)).process.pid

    workers.close()

    stubborn.join(PATIENCE)
    assert not any(map(alive, {idle, busy}))
    with pytest.raises(NoWorker):
        workers.run("echo", b"")


def test_a_worker_inherits_no_secret_and_no_socket(workers: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """Its environment has nothing of the service's, its files are its own socket, its errors' and /dev/null."""
    monkeypatch.setenv("DRUMLIN_SECRET", "secret-value")
    with socket.socket() as listening, Path(__file__).open(encoding="utf-8") as file:
        listening.bind(("127.0.0.1", 0))
        os.set_inheritable(listening.fileno(), True)
        os.set_inheritable(file.fileno(), True)
        environment, *files = (each.decode() for each in workers.run("open_files", b""))

    assert "secret-value" not in environment
    assert sum("socket:" in each for each in files) == 1
    assert "DRUMLIN" not in environment
    kinds = {each.split()[1].partition(":")[0] for each in files}
    assert {each for each in kinds if not each.startswith("/proc/")} == {"socket", "/dev/null", "/memfd"}


def test_a_worker_that_cannot_be_started_is_told(workers: WorkerPool, monkeypatch: pytest.MonkeyPatch) -> None:
    """At once, with the system's reason; it is tried again after a while."""

    def fails(*_: object, **__: object) -> None:
        raise BlockingIOError(11, "Resource temporarily unavailable")

    with monkeypatch.context() as patch:
        patch.setattr(processes, "start", fails)
        with pytest.raises(NoWorker, match="Resource temporarily unavailable"):
            workers.run("echo", b"")
    workers._retry_at = 0.0
    assert workers.run("echo", b"x")[0] == b"x"


def test_a_frame_larger_than_allowed_is_not_waited_for() -> None:
    """A worker that lost its mind cannot have the service gather gigabytes."""
    arrived = Frames(most=10)
    arrived.feed(frame(b"D", b"0123456789") + frame(b"D", bytes(11)))
    assert arrived.next() == (b"D", b"0123456789")
    with pytest.raises(FrameTooLarge):
        arrived.next()


BEGINNING = """
import sys
from drumlin.kg.workers import pool
from drumlin.kg.workers.child import JobKind, Limits

pool.JOBS = {"echo": JobKind("tests.jobs:echo", "parse", Limits(20.0, 1 << 28, 1 << 20))}
workers = pool.WorkerPool()
print(workers.run("echo", b"")[1].decode(), flush=True)
sys.stdin.read()
"""


def test_workers_die_with_the_service() -> None:
    """``kill -9`` leaves none behind."""
    command = [sys.executable, "-c", BEGINNING]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout
        worker = int(service.stdout.readline())
        assert alive(worker)
        service.kill()
    until(lambda: not alive(worker))
