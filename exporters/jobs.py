"""Work of the service in a thread of its own: done, done anew after a while, and ended with the service."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod

import structlog

from drumlin.kg.errors import DrumlinError
from drumlin.kg.threads import ServiceThread

log = structlog.get_logger()


class PeriodicJob(ABC):
    """A ``turn`` of work, anew ``seconds`` after the last one, until one was all there is to do, or the job is stopped.

    ``failure`` is why the last turn failed; it is logged, and the next one comes all the same.
    """

    def __init__(self, name: str, seconds: float) -> None:
        self.failure: str | None = None
        self._seconds = seconds
        self._stop = threading.Event()
        self._due = threading.Event()
        self._thread = ServiceThread(self._run, name, self._died)

    def start(self) -> None:
        """Begin; the first turn is now."""
        self._thread.start()

    def stop(self, timeout: float | None = 10.0) -> None:
        """End soon and wait for it, at most ``timeout`` seconds (None: until the turn is done)."""
        self._stop.set()
        self._due.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join(timeout)

    def hurry(self) -> None:
        """Have the next turn come now; callable from any thread."""
        self._due.set()

    @abstractmethod
    def turn(self) -> bool:
        """Do it once and return whether that was all. ``_stop`` says when to end early."""

    def _died(self, error: BaseException) -> None:
        self.failure = f"the job has ended by an error ({type(error).__name__}); see the log"

    def _run(self) -> None:
        while not self._stop.is_set() and not self._done():
            self._due.wait(self._seconds)
            self._due.clear()

    def _done(self) -> bool:
        try:
            done = self.turn()
        except DrumlinError as error:
            self.failure = str(error)
            log.error("job_failed", job=self._thread.name, detail=str(error), hint=error.hint)
        except Exception:
            # The edge of the job: a fault in it must not end the service, nor the job, and is never silent.
            self.failure = "an unexpected error; see the log"
            log.exception("job_crashed", job=self._thread.name)
        else:
            self.failure = None
            return done
        return False
