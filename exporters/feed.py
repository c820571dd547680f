"""A source in its own thread behind a bounded queue, so that whoever takes changes can also watch the clock."""

from __future__ import annotations

import threading
from queue import Empty, Full, Queue

from exporters.protocol import Change, Source

_BOUND = 10_000
_POLL_SECONDS = 0.2


class Feed:
    """The changes of one source, in order. A fast source waits when ``_BOUND`` changes have not been taken."""

    def __init__(self, source: Source, stop: threading.Event) -> None:
        self._queue: Queue[Change | BaseException | None] = Queue(_BOUND)
        self._source = source
        self._stop = stop
        self._closed = threading.Event()
        self.ended = False
        self._thread = threading.Thread(target=self._pump, name=f"feed {source.name}", daemon=True)
        self._thread.start()

    def take(self, timeout: float) -> Change | None:
        """Return the next change, or None after ``timeout`` seconds or when ``ended``; raises what the source raised."""
        if self.ended:
            return None
        try:
            taken = self._queue.get(timeout=timeout) if timeout > 0 else self._queue.get_nowait()
        except Empty:
            return None
        if isinstance(taken, BaseException):
            self.ended = True
            raise taken
        self.ended = taken is None
        return taken

    def close(self) -> None:
        """Let the thread go; what has not been taken is dropped. The source ends when its ``stop`` is set."""
        self._closed.set()

    def _pump(self) -> None:
        last: BaseException | None = None
        try:
            for change in self._source.changes(self._stop):
                if not self._put(change):
                    return
        except BaseException as error:  # noqa: BLE001  raised again in the thread that takes
            last = error
        self._put(last)

    def _put(self, change: Change | BaseException | None) -> bool:
        while not self._closed.is_set():
            try:
                self._queue.put(change, timeout=_POLL_SECONDS)
            except Full:
                continue
            return True
        return False
