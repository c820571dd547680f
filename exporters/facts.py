"""What objects tell about one another, and who has listened: the memory behind relations that arrive late.

A namespace tells its domain, a ReplicaSet its owner, a Service where a Prometheus is. Renderers read such facts by *topic*; each read
is noted, so a changed fact names exactly the documents to render again, and the order in which objects arrive does not
matter to the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from exporters.protocol import Topic

LASTING = frozenset({"owner"})
"""Topics that outlive their teller while somebody reads them: the garbage collector removes a ReplicaSet before its pods."""


class Facts:
    """Facts by topic and teller (an entity's IRI), with their readers. Not for use by several threads."""

    def __init__(self) -> None:
        self._told: dict[Topic, dict[str, Any]] = defaultdict(dict)
        self._by: dict[str, dict[Topic, Any]] = {}
        self._readers: dict[Topic, set[str]] = defaultdict(set)
        self._read: dict[str, set[Topic]] = {}
        self._left: dict[Topic, str] = {}  # lasting topics whose teller is gone

    def tell(self, teller: str, facts: Iterable[tuple[Topic, Any]]) -> set[str]:
        """Replace all that ``teller`` has told; return the readers of what differs."""
        new = dict(facts)
        old = self._by.get(teller, {})
        if old == new:
            return set()
        if new:
            self._by[teller] = new
        else:
            self._by.pop(teller, None)
        changed = (old.keys() ^ new.keys()) | {topic for topic in old.keys() & new.keys() if old[topic] != new[topic]}
        for topic in old.keys() - new.keys():
            self._drop(topic, teller)
        for topic, value in new.items():
            self._told[topic][teller] = value
            self._left.pop(topic, None)
        return {reader for topic in changed for reader in self._readers.get(topic, ())}

    def withdraw(self, teller: str) -> set[str]:
        """Forget what ``teller``, now gone, has told, save what lasts; return the readers of what is forgotten."""
        facts = self._by.pop(teller, {})
        lasting = {topic for topic in facts if topic[0] in LASTING and self._readers.get(topic)}
        self._left.update(dict.fromkeys(lasting, teller))
        for topic in facts.keys() - lasting:
            self._drop(topic, teller)
        return {reader for topic in facts.keys() - lasting for reader in self._readers.get(topic, ())}

    def read(self, reader: str, topic: Topic) -> list[Any]:
        """Return everything told on ``topic``, in the order of the tellers, and note the reader."""
        self._readers[topic].add(reader)
        self._read.setdefault(reader, set()).add(topic)
        return self.on(topic)

    def on(self, topic: Topic) -> list[Any]:
        """Return everything told on ``topic`` without noting a reader."""
        told = self._told.get(topic)
        if not told:
            return []
        return [told[teller] for teller in sorted(told)] if len(told) > 1 else [*told.values()]

    def readers(self, topic: Topic) -> set[str]:
        """Return who has read ``topic``."""
        return set(self._readers.get(topic, ()))

    @contextmanager
    def reading(self, reader: str) -> Iterator[None]:
        """While the block renders ``reader`` anew: what it reads again it has read without a break, the rest is forgotten."""
        before = self._read.pop(reader, set())
        try:
            yield
        except BaseException:
            self._read.setdefault(reader, set()).update(before)  # it is to be tried again when any of them changes
            raise
        for topic in before - self._read.get(reader, set()):
            self._unread(reader, topic)

    def unread(self, reader: str) -> None:
        """Forget what ``reader``, now gone, has read."""
        for topic in self._read.pop(reader, ()):
            self._unread(reader, topic)

    def _unread(self, reader: str, topic: Topic) -> None:
        self._readers[topic].discard(reader)
        if not self._readers[topic]:
            del self._readers[topic]
            if topic in self._left:
                self._drop(topic, self._left.pop(topic))

    def _drop(self, topic: Topic, teller: str) -> None:
        told = self._told[topic]
        told.pop(teller, None)
        if not told:
            del self._told[topic]
