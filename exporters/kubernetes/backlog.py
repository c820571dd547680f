"""The queue between reflectors and the pipeline: ordered, bounded by objects, never by events.

While the consumer is busy, a newer form of an object that still waits takes the older one's place, so a storm of events
on few objects neither grows the queue nor blocks the watch. Nothing is delayed for it.
"""

from __future__ import annotations

import threading
import time
from collections import deque
from dataclasses import dataclass, field

from exporters.protocol import Change, Gone, Upserted


@dataclass(slots=True)
class _Slot:
    change: Change
    uid: str | None
    since: float = field(default_factory=time.monotonic)


class Backlog:
    """Changes that wait to be taken; ``capacity`` is the number of waiting objects at which ``put`` begins to block."""

    def __init__(self, capacity: int) -> None:
        self._capacity = capacity
        self._slots: deque[_Slot] = deque()
        self._upserts: dict[str, _Slot] = {}  # the waiting Upserted that a newer one may replace
        self._changed = threading.Condition()
        self._closed = False
        self._failure: BaseException | None = None

    def put(self, change: Change) -> None:
        """Add ``change`` behind all others, or in place of an older form of its object; blocks while full.

        After ``close`` it drops what it is given: nobody will take it.
        """
        uid = change.manifest.metadata.uid if isinstance(change, Upserted | Gone) else None
        with self._changed:
            waiting = self._upserts.get(uid) if uid and isinstance(change, Upserted) else None
            if waiting is not None:
                waiting.change = change
                return
            self._changed.wait_for(lambda: self._closed or len(self._slots) < self._capacity)
            if not self._closed:
                self._append(change, uid)

    def _append(self, change: Change, uid: str | None) -> None:
        slot = _Slot(change, uid)
        self._slots.append(slot)
        if uid and isinstance(change, Upserted):
            self._upserts[uid] = slot
        elif uid:
            self._upserts.pop(uid, None)  # what comes after the end of an object stands behind it
        self._changed.notify_all()

    def take(self, timeout: float) -> Change | None:
        """Return the oldest change, or None after ``timeout`` seconds without one. Raises what ``fail`` was given."""
        with self._changed:
            self._changed.wait_for(lambda: self._slots or self._failure, timeout)
            if self._failure:
                raise self._failure
            if not self._slots:
                return None
            slot = self._slots.popleft()
            if slot.uid and self._upserts.get(slot.uid) is slot:
                del self._upserts[slot.uid]
            self._changed.notify_all()
            return slot.change

    def age(self) -> float:
        """Return how many seconds the oldest waiting change has waited; 0 when none does."""
        with self._changed:
            return time.monotonic() - self._slots[0].since if self._slots else 0.0

    def fail(self, error: BaseException) -> None:
        """Let the next ``take`` raise ``error``: a reflector cannot go on."""
        with self._changed:
            self._failure = error
            self._changed.notify_all()

    def close(self) -> None:
        """Release every ``put`` that blocks; later ones drop what they are given."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
