"""Graphs that were read or written lately, as texts, by digest: a third of a write's time would go into reading what it replaces."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from kg.store.texts import Text

MAX_SIZE = 16 << 20
"""Bytes kept in all."""


class Recent:
    """A bounded cache. It cannot be stale: equal digests are equal graphs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, Text] = OrderedDict()
        self._size = 0

    def get(self, digest: str) -> str | None:
        """Return the text of a digest (``kg.rdf.text_of``) when it is kept."""
        with self._lock:
            if digest in self._kept:
                self._kept.move_to_end(digest)
            kept = self._kept.get(digest)
        return kept.plain if kept else None

    def keep(self, texts: Iterable[tuple[str, Text]]) -> None:
        """Keep texts by their digests; those longest unused go."""
        with self._lock:
            for digest, text in texts:
                if digest in self._kept:
                    self._kept.move_to_end(digest)
                else:
                    self._kept[digest] = text
                    self._size += text.size
            while self._size > MAX_SIZE:
                self._size -= self._kept.popitem(last=False)[1].size
