"""Long-lived threads that the service needs, and calls of callbacks that must not end them.

A thread that ends by an error would leave its users waiting for ever. It is therefore logged and counted as dead, and ``/livez`` answers
503 from then on, so that the process is restarted. The owner of the thread refuses further work at once (``on_death``).
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import ParamSpec

import structlog

P = ParamSpec("P")

log = structlog.get_logger()
_dead: dict[threading.Thread, None] = {}


class ServiceThread(threading.Thread):
    """A daemon thread that runs ``work`` until it returns. ``on_death`` is called in this thread when ``work`` raises."""

    def __init__(
        self, work: Callable[[], None], name: str, on_death: Callable[[BaseException], None] = lambda _: None
    ) -> None:
        super().__init__(name=name, daemon=True)
        self._work, self._on_death = work, on_death

    def run(self) -> None:
        """Run ``work``; whatever it raises marks the thread as dead."""
        try:
            self._work()
        except BaseException as error:
            _dead[self] = None
            log.critical("thread_died", thread=self.name, exc_info=error)
            call_safely(self._on_death, error)

    def join(self, timeout: float | None = None) -> None:
        """Wait for the end. The owner that joins a thread no longer needs it: its death does not count any more."""
        super().join(timeout)
        if not self.is_alive():
            _dead.pop(self, None)


def dead() -> list[str]:
    """Return the names of the threads that the service needs and that ended by an error."""
    return [each.name for each in tuple(_dead)]


def call_safely(callback: Callable[P, object], *arguments: P.args, **named: P.kwargs) -> None:
    """Call ``callback``; log whatever it raises, so that the caller and the other callbacks go on."""
    try:
        callback(*arguments, **named)
    except BaseException as error:
        log.error("callback_failed", callback=getattr(callback, "__qualname__", repr(callback)), exc_info=error)
