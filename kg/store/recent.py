"""Graphs that were read or written lately, as texts, by digest: a third of a write's time would go into reading what it replaces."""

from __future__ import annotations

import threading
from collections import OrderedDict

MAX_SIZE = 16 << 20
"""Characters kept in all, about as many bytes."""


class Recent:
    """A bounded cache. It cannot be stale: equal digests are equal graphs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, str] = OrderedDict()
        self._size = 0

    def get(self, digest: str) -> str | None:
        """Return the text of a digest (``kg.rdf.text_of``) when it is kept."""
        with self._lock:
            if digest in self._kept:
                self._kept.move_to_end(digest)
            return self._kept.get(digest)

    def keep(self, digest: str, text: str) -> None:
        """Keep the text of a digest; those longest unused go."""
        with self._lock:
            self._size += len(text) - len(self._kept.pop(digest, ""))
            self._kept[digest] = text
            while self._size > MAX_SIZE:
                self._size -= len(self._kept.popitem(last=False)[1])
