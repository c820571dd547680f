"""What objects say about one another, and which entities read it: the memory behind relations that arrive late.

A namespace names its domain, a ReplicaSet its owner, a Service where a Prometheus is. Renderers read such facts by *topic*; each read
is noted, so a changed fact names exactly the documents to render again, and the order in which objects arrive does not
matter to the graph.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from typing import Any

from drumlin.exporters.protocol import Topic

STICKY = frozenset({"owner", "named"})
"""Topics that outlive their publisher while somebody reads them: the garbage collector removes a ReplicaSet or task before its pods."""


class DependencyGraph:
    """Facts by topic and publisher (an entity's IRI), with their readers. Not for use by several threads."""

    def __init__(self) -> None:
        self._published: dict[Topic, dict[str, Any]] = defaultdict(dict)
        self._by: dict[str, dict[Topic, Any]] = {}
        self._readers: dict[Topic, set[str]] = defaultdict(set)
        self._read: dict[str, set[Topic]] = {}
        self._left: dict[Topic, str] = {}  # lasting topics whose publisher is gone

    def publish(self, publisher: str, facts: Iterable[tuple[Topic, Any]]) -> set[str]:
        """Replace all that ``publisher`` has published; return the readers of what differs."""
        new = dict(facts)
        old = self._by.get(publisher, {})
        if old == new:
            return set()
        if new:
            self._by[publisher] = new
        else:
            self._by.pop(publisher, None)
        changed = (old.keys() ^ new.keys()) | {topic for topic in old.keys() & new.keys() if old[topic] != new[topic]}
        for topic in old.keys() - new.keys():
            self._drop(topic, publisher)
        for topic, value in new.items():
            self._published[topic][publisher] = value
            self._left.pop(topic, None)
        return {reader for topic in changed for reader in self._readers.get(topic, ())}

    def retract(self, publisher: str) -> set[str]:
        """Forget what ``publisher``, now gone, has published, save what lasts; return the readers of what is forgotten."""
        facts = self._by.pop(publisher, {})
        lasting = {topic for topic in facts if topic[0] in STICKY and self._readers.get(topic)}
        self._left.update(dict.fromkeys(lasting, publisher))
        for topic in facts.keys() - lasting:
            self._drop(topic, publisher)
        return {reader for topic in facts.keys() - lasting for reader in self._readers.get(topic, ())}

    def read(self, reader: str, topic: Topic) -> list[Any]:
        """Return everything published on ``topic``, in the order of the publishers, and note the reader."""
        self._readers[topic].add(reader)
        self._read.setdefault(reader, set()).add(topic)
        return self.on(topic)

    def on(self, topic: Topic) -> list[Any]:
        """Return everything published on ``topic`` without noting a reader."""
        facts = self._published.get(topic)
        if not facts:
            return []
        return [facts[publisher] for publisher in sorted(facts)] if len(facts) > 1 else [*facts.values()]

    def topics(self, reader: str) -> set[Topic]:
        """Return what ``reader`` has read."""
        return set(self._read.get(reader, ()))

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

    def _drop(self, topic: Topic, publisher: str) -> None:
        facts = self._published[topic]
        facts.pop(publisher, None)
        if not facts:
            del self._published[topic]
