"""A source in its own thread behind a bounded buffer, so that whoever takes changes can also watch the clock."""

from __future__ import annotations

import threading

from exporters.protocol import Change, Source

_BOUND = 10_000
"""Changes that may wait; a source that is faster than the store waits, too."""

_LAST_SECONDS = 5.0
"""How long a closed source may take to let go of its connections."""


class Feed:
    """The changes of one source, in order, handed over in lots: as many as have come since the last."""

    def __init__(self, source: Source) -> None:
        self._source = source
        self._stop = threading.Event()
        self._moved = threading.Condition()
        self._waiting: list[Change] = []
        self._last: BaseException | None = None
        self._exhausted = False
        self._closed = False
        self._thread = threading.Thread(target=self._pump, name=f"feed {source.name}", daemon=True)
        self._thread.start()

    @property
    def ended(self) -> bool:
        """Whether everything has been taken, also the error that ended the source."""
        return self._exhausted and not self._waiting and not self._last

    def take(self, timeout: float) -> list[Change]:
        """Return what has come, waiting at most ``timeout`` seconds for something; at the end, raise what the source raised."""
        with self._moved:
            self._moved.wait_for(lambda: self._waiting or self._exhausted, timeout)
            taken, self._waiting = self._waiting, []
            self._moved.notify()
        if not taken and self._last:
            raise self._last
        return taken

    def stop(self) -> None:
        """Ask the source to end; what it has yielded can still be taken."""
        self._stop.set()

    def close(self) -> None:
        """End the source and wait for it, so that it can be followed anew; what has not been taken is dropped."""
        self.stop()
        with self._moved:
            self._closed = True
            self._moved.notify()
        self._thread.join(_LAST_SECONDS)

    def _pump(self) -> None:
        last: BaseException | None = None
        try:
            for change in self._source.changes(self._stop):
                if not self._put(change):
                    return
        except BaseException as error:  # noqa: BLE001  raised again in the thread that takes
            last = error
        with self._moved:
            self._last, self._exhausted = last, True
            self._moved.notify()

    def _put(self, change: Change) -> bool:
        with self._moved:
            self._moved.wait_for(lambda: len(self._waiting) < _BOUND or self._closed)
            self._waiting.append(change)
            self._moved.notify()
            return not self._closed
