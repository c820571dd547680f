"""Line sets that were read or written lately, by digest: a third of a write's time would go into reading what it replaces."""

from __future__ import annotations

import threading
from collections import OrderedDict

from kg.store.protocol import Lines

MAX_LINES = 100_000
"""Lines kept in all, about 20 MB."""


class Recent:
    """A bounded cache. It cannot be stale: equal digests are equal graphs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Lines] = OrderedDict()
        self._size = 0

    def get(self, digest: str) -> Lines | None:
        """Return the lines of a digest when they are kept."""
        with self._lock:
            if digest in self._kept:
                self._kept.move_to_end(digest)
            return self._kept.get(digest)

    def keep(self, digest: str, lines: Lines) -> None:
        """Keep the lines of a digest; those longest unused go."""
        with self._lock:
            self._size += len(lines) - len(self._kept.pop(digest, ()))
            self._kept[digest] = lines
            while self._size > MAX_LINES:
                self._size -= len(self._kept.popitem(last=False)[1])
