"""Processes that evaluate updates (``kg.store.scratch_process``), one job each, and a spare so that the next job need not wait.

A spare waits on its standard input and ends with it. A job's process is killed at its deadline, and ends by itself soon after if
the service is gone by then.
"""

from __future__ import annotations

import subprocess
import sys
import threading

import msgspec
import structlog

from kg.errors import QueryRejected, StoreUnavailable
from kg.processes import ENVIRONMENT
from kg.store.scratch_process import Job, Outcome

SPARES = 1

log = structlog.get_logger(__name__)


class Evaluators:
    """Runs jobs, each in a process of its own."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._spares: list[subprocess.Popen[bytes]] = []
        self._closed = False

    def run(self, job: Job, seconds: float) -> Outcome:
        """Evaluate a job; raises ``QueryRejected`` (``timeout``) past ``seconds``, ``StoreUnavailable`` when the process dies."""
        with self._lock:
            process = self._spares.pop() if self._spares else None
        try:
            return _result(process or _start(), job, seconds)
        finally:
            self._prepare()

    def _prepare(self) -> None:
        with self._lock:
            if len(self._spares) < SPARES and not self._closed:
                self._spares.append(_start())

    def close(self) -> None:
        """End the spares."""
        with self._lock:
            self._closed = True
            spares, self._spares = self._spares, []
        for each in spares:
            with each:
                each.kill()


def _start() -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-P", "-m", "kg.store.scratch_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env=ENVIRONMENT,
    )


def _result(process: subprocess.Popen[bytes], job: Job, seconds: float) -> Outcome:
    with process:
        try:
            written, _ = process.communicate(msgspec.json.encode(job), timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise too_late() from error
        finally:
            process.kill()
    if process.returncode != 0:
        log.warning("update_evaluation_died", returncode=process.returncode, bytes=len(job.text))
        raise StoreUnavailable(
            "the evaluation of the update ended without a result; nothing was written",
            hint="it may need too much memory: let it touch less at a time",
        )
    return msgspec.json.decode(written, type=Outcome)


def too_late() -> QueryRejected:
    """Return the error of an update that was stopped."""
    return QueryRejected(
        "the update was not done by its deadline; nothing was written",
        reason="timeout",
        hint="let it touch less at a time, or allow more time (timeout=)",
    )
