"""Cancellation of blocking work whose result nobody waits for any more, such as that of a client that has left.

The caller of the work gives it a ``Cancellation`` (``under``). The work looks at it between its steps (``check``), or says what ends a
step that may take long (``ended_by``). Work that is under none is never cancelled.
"""

from __future__ import annotations

import math
import threading
import time
from collections.abc import Callable, Iterator
from concurrent.futures import Future, wait
from contextlib import contextmanager
from contextvars import ContextVar
from typing import Any

from drumlin.kg.errors import Cancelled
from drumlin.kg.threads import call_safely

_LOOK = 0.25  # seconds between two looks while a future is waited for


class Cancellation:
    """Whether some work is cancelled, and what ends its present step. Thread-safe."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._ends: list[Callable[[], None]] = []
        self.cancelled = False

    def cancel(self) -> None:
        """Cancel the work: end its present step, and let each later look raise ``Cancelled``."""
        with self._lock:
            self.cancelled = True
            for each in self._ends:
                call_safely(each)

    @contextmanager
    def ended_by(self, end: Callable[[], None]) -> Iterator[None]:
        """Have ``end`` called when the work is cancelled within this block; it must be quick, and make the step raise."""
        with self._lock:
            if self.cancelled:
                raise _cancelled()
            self._ends.append(end)
        try:
            yield
        finally:
            with self._lock:
                self._ends.remove(end)


_current: ContextVar[Cancellation | None] = ContextVar("cancellation", default=None)


@contextmanager
def under(cancellation: Cancellation) -> Iterator[None]:
    """Put the work of this block, in this thread, under ``cancellation``."""
    token = _current.set(cancellation)
    try:
        yield
    finally:
        _current.reset(token)


def check() -> None:
    """Raise ``Cancelled`` when nobody waits for this work any more."""
    if (current := _current.get()) is not None and current.cancelled:
        raise _cancelled()


@contextmanager
def ended_by(end: Callable[[], None]) -> Iterator[None]:
    """Have ``end`` called when the work of this thread is cancelled within this block (see ``Cancellation.ended_by``)."""
    if (current := _current.get()) is None:
        yield
    else:
        with current.ended_by(end):
            yield


def wait_for(future: Future[Any], seconds: float = math.inf) -> bool:
    """Wait until a future is done, ``seconds`` at most, and return whether it is; raises ``Cancelled`` as ``check`` does."""
    until = time.monotonic() + seconds
    while not future.done() and (left := until - time.monotonic()) > 0:
        check()
        wait([future], min(_LOOK, left))
    return future.done()


def _cancelled() -> Cancelled:
    return Cancelled("nobody waits for the result of this request any more")
