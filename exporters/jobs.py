"""Work of the service in a thread of its own: done, done anew after a while, and ended with the service."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod


class Job(ABC):
    """A ``turn`` of work, anew ``seconds`` after the last one, until one was all there is to do, or the job is stopped."""

    def __init__(self, name: str, seconds: float) -> None:
        self._seconds = seconds
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=name, daemon=True)

    def start(self) -> None:
        """Begin; the first turn is now."""
        self._thread.start()

    def stop(self, timeout: float | None = 10.0) -> None:
        """End soon and wait for it, at most ``timeout`` seconds (None: until the turn is done)."""
        self._stop.set()
        if self._thread.is_alive():
            self._thread.join(timeout)

    @abstractmethod
    def turn(self) -> bool:
        """Do it once and tell whether that was all; raises nothing, as nobody would hear of it. ``_stop`` says when to end early."""

    def _run(self) -> None:
        while not self._stop.is_set() and not self.turn():
            self._stop.wait(self._seconds)
