"""The last deltas of the writer, for replicas to catch up with: bounded, since a replica that is too far behind takes a new checkpoint."""

from __future__ import annotations

from collections import deque

from drumlin.kg.store.delta import Delta

LIMIT = 16 * 1024 * 1024
"""Bytes of deltas kept, and replayed by one replica in its life (replaying un-shares its files and grows its memory)."""


class Deltas:
    """The newest deltas, up to ``LIMIT`` bytes. Not locked: the readers' lock guards it."""

    def __init__(self, generation: int) -> None:
        self._kept: deque[Delta] = deque()
        self._bytes = 0
        self._forgotten = generation  # the newest generation whose delta is not kept
        self.latest = generation
        self.told = 0  # bytes of all deltas

    def append(self, delta: Delta) -> None:
        """Take the next delta. A bulk one ends what replicas can replay."""
        self.latest = delta.generation
        if delta.bulk:
            self._kept.clear()
            self._bytes, self._forgotten = 0, delta.generation
            return
        self._kept.append(delta)
        self._bytes += len(delta.update)
        self.told += len(delta.update)
        while self._bytes > LIMIT:
            oldest = self._kept.popleft()
            self._bytes -= len(oldest.update)
            self._forgotten = oldest.generation

    def reach(self, generation: int) -> bool:
        """Return whether a replica at ``generation`` can still catch up."""
        return generation >= self._forgotten

    def since(self, generation: int) -> list[Delta] | None:
        """Return all deltas after ``generation``, oldest first; None when some are forgotten."""
        if generation < self._forgotten:
            return None
        if generation >= self.latest:
            return []
        found: list[Delta] = []
        for delta in reversed(self._kept):
            if delta.generation <= generation:
                break
            found.append(delta)
        found.reverse()
        return found
