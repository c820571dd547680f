"""The queue between reflectors and the pipeline: ordered, bounded by objects, never by events.

While the consumer is busy, a newer form of an object that still waits takes the older one's place, so a storm of events
on few objects neither grows the queue nor blocks the watch. Nothing is delayed for it.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from drumlin.exporters.protocol import Change, Gone, Upserted

LOT = 256
"""Changes that are taken at once: a lock and a wake-up for each would cost more than the change itself."""


@dataclass(slots=True)
class _Slot:
    change: Change
    uid: str | None


class Backlog:
    """Changes that wait to be taken; ``capacity`` is the number of waiting objects at which ``put`` begins to block."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._slots: deque[_Slot] = deque()
        self._upserts: dict[str, _Slot] = {}  # the waiting Upserted that a newer one may replace
        self._lock = threading.Lock()
        self._arrived = threading.Condition(self._lock)
        self._room = threading.Condition(self._lock)
        self._closed = False
        self._failure: BaseException | None = None

    def put(self, change: Change) -> None:
        """Add ``change`` behind all others, or in place of an older form of its object; blocks while full.

        After ``close`` it drops what it is given: nobody will take it.
        """
        uid = change.manifest.metadata.uid if isinstance(change, Upserted | Gone) else None
        with self._lock:
            waiting = self._upserts.get(uid) if uid and isinstance(change, Upserted) else None
            if waiting is not None:
                waiting.change = change
                return
            while len(self._slots) >= self._capacity and not self._closed:
                self._room.wait()
            if not self._closed:
                self._append(change, uid)

    def _append(self, change: Change, uid: str | None) -> None:
        slot = _Slot(change, uid)
        self._slots.append(slot)
        if uid and isinstance(change, Upserted):
            self._upserts[uid] = slot
        elif uid:
            self._upserts.pop(uid, None)  # what comes after the end of an object stands behind it
        self._arrived.notify()

    def take(self, timeout: float) -> list[Change]:
        """Return the oldest changes, ``LOT`` at most; none after ``timeout`` seconds without one. Raises what ``fail`` was given."""
        with self._lock:
            self._arrived.wait_for(lambda: self._slots or self._failure, timeout)
            if self._failure:
                raise self._failure
            lot = [self._slots.popleft() for _ in range(min(LOT, len(self._slots)))]
            for slot in lot:
                if slot.uid and self._upserts.get(slot.uid) is slot:
                    del self._upserts[slot.uid]
            self._room.notify_all()
        return [slot.change for slot in lot]

    def fail(self, error: BaseException) -> None:
        """Let the next ``take`` raise ``error``: a reflector cannot go on."""
        with self._lock:
            self._failure = error
            self._arrived.notify()

    def close(self) -> None:
        """Release every ``put`` that blocks; later ones drop what they are given."""
        with self._lock:
            self._closed = True
            self._room.notify_all()
