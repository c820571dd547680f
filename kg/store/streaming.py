"""Bytes of an answer, handed from the thread that runs the query to the one that sends it.

The engine binds an iterator to the thread that made it (another one aborts the process), so query, serialisation and
release all happen in one thread here; what crosses over is bytes, through a bounded pipe. A reader that stops
reading stops the query, so that it neither fills memory nor pins a snapshot for ever.
"""

from __future__ import annotations

import threading
import traceback
import weakref
from collections import deque
from collections.abc import Callable, Iterator
from typing import Protocol

_ROOM = 64  # chunks of about 8 kB
_STALLED = 600.0  # seconds without a reader taking anything: a slow client's buffers, between here and there, take long


class _Abandoned(Exception):
    """Nobody reads any more; raised inside the engine's writer to end the query."""


class ChunkWriter(Protocol):
    """Where the engine writes to."""

    def write(self, data: bytes, /) -> int:
        """Take some bytes."""
        ...

    def flush(self) -> None:
        """Do nothing: what is written is on its way."""
        ...


class _Pipe:
    """The part that both threads share; it must not know the reader, which ends the work when it is forgotten."""

    def __init__(self) -> None:
        self.changed = threading.Condition()
        self.waiting: deque[bytes] = deque()
        self.done = False
        self.abandoned = False
        self.error: BaseException | None = None

    def write(self, data: bytes, /) -> int:
        with self.changed:
            self.changed.wait_for(lambda: self.abandoned or len(self.waiting) < _ROOM, _STALLED)
            if self.abandoned or len(self.waiting) >= _ROOM:
                raise _Abandoned
            self.waiting.append(bytes(data))
            self.changed.notify_all()
        return len(data)

    def flush(self) -> None:
        pass

    def run(self, work: Callable[[ChunkWriter], None]) -> None:
        try:
            work(self)
        except _Abandoned:
            self.error = TimeoutError(f"the answer was not read for {_STALLED:.0f} s")
        except BaseException as error:  # noqa: BLE001 - raised again where the answer is read
            _let_go(error)
            self.error = error
        with self.changed:
            self.done = True
            self.changed.notify_all()

    def abandon(self) -> None:
        with self.changed:
            self.abandoned = True
            self.waiting.clear()
            self.changed.notify_all()


def _let_go(error: BaseException | None) -> None:
    """Clear the frames of an error and of its causes: they hold the engine's iterator, which must be freed in this thread."""
    while error is not None:
        traceback.clear_frames(error.__traceback__)
        error = error.__context__


class ResultStream(Iterator[bytes]):
    """The chunks of one answer. ``close`` it, or forget it, to end the query early."""

    def __init__(self, work: Callable[[ChunkWriter], None]) -> None:
        """Run ``work`` in a thread of its own and wait for its first bytes; what it raises before them is raised here."""
        self._pipe = _Pipe()
        self._thread = threading.Thread(target=self._pipe.run, args=(work,), name="answer", daemon=True)
        self._thread.start()
        self._forgotten = weakref.finalize(self, self._pipe.abandon)
        with self._pipe.changed:
            self._pipe.changed.wait_for(lambda: self._pipe.done or bool(self._pipe.waiting))
            if not self._pipe.waiting and self._pipe.error is not None:
                raise self._pipe.error

    def __next__(self) -> bytes:
        with self._pipe.changed:
            self._pipe.changed.wait_for(lambda: self._pipe.done or bool(self._pipe.waiting) or self._pipe.abandoned)
            if self._pipe.waiting:
                chunk = self._pipe.waiting.popleft()
                self._pipe.changed.notify_all()
                return chunk
            if self._pipe.error is not None and not self._pipe.abandoned:
                raise self._pipe.error
            raise StopIteration

    def close(self) -> None:
        """End the query and wait until the engine has let go of it."""
        self._forgotten()
        self._thread.join()
