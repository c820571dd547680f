"""A source in its own thread behind a bounded buffer, so that the consumer of its changes can also watch the clock."""

from __future__ import annotations

import threading
import time
from collections import deque
from queue import Empty, SimpleQueue

from drumlin.exporters.protocol import Change, Kind, Source

_BOUND = 10_000
"""Changes that may wait; a source that is faster than the store waits, too."""

_LAST_SECONDS = 5.0
"""How long a closed source may take to let go of its connections."""


class _Wake:
    """Stands in the queue for nothing but itself."""


class SourceThread:
    """The changes of one source, in order, handed over in lots: as many as have come since the last."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stop = threading.Event()
        self._waiting: SimpleQueue[Change | _Wake | None] = SimpleQueue()  # None: the source has ended
        self._room = threading.Event()
        self._began: deque[tuple[float, Kind | None]] = deque()  # of each change until it has been dealt with
        self._taken = 0  # of these, handed over
        self._last: BaseException | None = None
        self._exhausted = False
        self._closed = False
        self._thread = threading.Thread(target=self._pump, name=f"feed {source.name}", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether everything has been taken, also the error that ended the source."""
        return self._exhausted and not self._last

    def ages(self) -> dict[Kind, float]:
        """Return for how many seconds the oldest change of each kind has waited, until it is dealt with; callable from any thread."""
        now, ages = time.monotonic(), dict[Kind, float]()
        for began, kind in tuple(self._began):
            if kind:
                ages.setdefault(kind, now - began)
        return ages

    def take(self, timeout: float) -> list[Change]:
        """Return what has come, waiting at most ``timeout`` seconds for something; at the end, raise what the source raised."""
        taken: list[Change] = []
        for _ in range(self._taken):
            self._began.popleft()
        self._taken = 0
        try:
            change = None if self._exhausted else self._waiting.get(timeout=timeout)
            while change is not None:
                if not isinstance(change, _Wake):
                    taken.append(change)
                    self._taken += 1
                change = self._waiting.get_nowait()
            self._exhausted = True
        except Empty:
            self._room.set()
        if not taken and self._last and self._exhausted:
            raise self._last
        return taken

    def wake(self) -> None:
        """Have ``take`` return at once, also without a change; callable from any thread."""
        self._waiting.put(_Wake())

    def stop(self) -> None:
        """Ask the source to end; what it has yielded can still be taken."""
        self._stop.set()

    def close(self) -> None:
        """End the source and wait for it, so that it can be followed anew; what has not been taken is dropped."""
        self.stop()
        self._closed = True
        self._room.set()
        self._thread.join(_LAST_SECONDS)

    def _pump(self) -> None:
        try:
            for change in self._source.changes(self._stop):
                self._began.append((time.monotonic(), change.kind))
                self._waiting.put(change)
                self._wait_for_room()
                if self._closed:
                    return
        except BaseException as error:  # noqa: BLE001  raised again in the thread that takes
            self._last = error
        self._waiting.put(None)

    def _wait_for_room(self) -> None:
        while self._waiting.qsize() >= _BOUND and not self._closed:
            self._room.clear()
            if self._waiting.qsize() >= _BOUND and not self._closed:
                self._room.wait()
