"""Never two writers: each batch of an elected exporter names the term that it was elected for, and the store compares.

An exporter that begins to lead writes one small graph, its *term*: who writes, and the how-manieth that is. Every later batch holds that
graph too, unchanged, with the digest that it must have now. Stores check such a precondition in the same transaction as the rest, so
the batch of a writer that another has followed is refused whole, however late it arrives: of a process that was stopped between a look at
its right and its request, of a request that hung in the network. A new leader reads only after its own term is written, so it
sees everything that its predecessors ever wrote.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Protocol

import structlog

from drumlin.exporters.pipeline.hosting_domain import write_of
from drumlin.exporters.pipeline.sink import Sink
from drumlin.kg.errors import DrumlinError, PreconditionFailed, StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.protocol import GraphEntry, GraphWrite, Row, StoredGraph, Written

log = structlog.get_logger()

_REVISION = "https://w3id.org/drumlin/ns#revision"
_TERM = f"SELECT ?term ?revision WHERE {{ ?term <{_REVISION}> ?revision }}"


class NotLeading(StoreUnavailable):
    """This process does not write now: another leads, or it cannot be known."""


class Right(Protocol):
    """Whether this process may write, and under which name."""

    @property
    def holder(self) -> str:
        """The name of this process."""

    @property
    def leads(self) -> bool:
        """Whether it may write now."""

    def resign(self) -> None:
        """Note that the store has another writer."""


class FencedSink:
    """A sink that writes only while ``right`` allows it, and only as long as nobody else has taken over in the store.

    ``owners`` are those that it writes for; the first is the source's own. Raises ``NotLeading`` for what is not written.
    """

    def __init__(self, sink: Sink, right: Right, iris: Iris, owners: Sequence[str]) -> None:
        self._sink = sink
        self._right = right
        self._iris = iris
        self._owners = tuple(owners)
        self._terms: dict[str, GraphWrite] = {}

    def take_over(self) -> None:
        """Begin a term: from now on no batch of an earlier one is taken. Raises ``NotLeading`` when somebody was faster."""
        self._terms = {owner: self._begun(owner) for owner in self._owners}

    def _begun(self, owner: str) -> GraphWrite:
        graph = self._iris.of_class("agent", owner)
        found = next((each for each in self._sink.entries(prefix=graph) if each.graph == graph), None)
        rows = self._sink.look_up(_TERM, {"term": graph}) if found else []
        revision = max((int(row["revision"]) for row in rows), default=0) + 1
        document = {"id": graph, "type": "Exporter", "name": self._right.holder, "revision": revision}
        term = write_of(document, owner, self._iris)
        self._applied([], GraphWrite(graph, term.content, owner, found.digest if found else None))
        log.info("term_begun", owner=owner, term=revision, holder=self._right.holder)
        return GraphWrite(graph, term.content, owner, term.digest)

    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none; see ``Store.apply``."""
        owners = {each.owner for each in writes}
        term = next((self._terms[owner] for owner in self._owners if owner in owners), None)
        return self._applied(writes, term or self._terms[self._owners[0]])

    def _applied(self, writes: Sequence[GraphWrite], term: GraphWrite) -> list[Written]:
        if not self._right.leads:
            raise NotLeading("another process may lead by now", hint="this one writes again once it is elected")
        try:
            return list(self._sink.apply([term, *writes])[1:])
        except DrumlinError as error:
            if term.graph not in error.refusals and not isinstance(error, PreconditionFailed):
                raise
            self._right.resign()
            raise NotLeading(
                f"another process has taken over: {term.graph} has changed",
                hint="this one writes again once it is elected",
            ) from error

    def entries(
        self, *, owner: str | None = None, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[GraphEntry]:
        """List graphs without their content."""
        return self._sink.entries(owner=owner, prefix=prefix, after=after, limit=limit)

    def read(self, graph: str) -> StoredGraph | None:
        """Return one graph, or None when it does not exist."""
        return self._sink.read(graph)

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run one of our own bounded SELECTs."""
        return self._sink.look_up(query, values)
