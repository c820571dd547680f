"""Contents that were read or written lately, by digest: a third of a write's time would go into reading what it replaces."""

from __future__ import annotations

import threading
from collections import OrderedDict
from collections.abc import Iterable

from drumlin.kg.store.content import GraphContent

MAX_SIZE = 16 << 20
"""Bytes kept in all."""


class Recent:
    """A bounded cache. It cannot be stale: equal digests are equal graphs."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._kept: OrderedDict[str, GraphContent] = OrderedDict()
        self._size = 0

    def get(self, digest: str) -> GraphContent | None:
        """Return the content of a digest when it is kept."""
        with self._lock:
            if digest in self._kept:
                self._kept.move_to_end(digest)
            return self._kept.get(digest)

    def keep(self, contents: Iterable[GraphContent]) -> None:
        """Keep contents; those longest unused go."""
        with self._lock:
            for each in contents:
                if each.digest in self._kept:
                    self._kept.move_to_end(each.digest)
                else:
                    self._kept[each.digest] = each
                    self._size += each.size
            while self._size > MAX_SIZE:
                self._size -= self._kept.popitem(last=False)[1].size
