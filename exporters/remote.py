"""Writing to a service elsewhere: what ``drumlin follow`` puts in the place of the store."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import datetime

from drumlin.kg.client import Client, calls
from drumlin.kg.errors import (
    Conflict,
    GraphOwned,
    InvalidSettings,
    ResourceGone,
    ResourceNotFound,
    SourceUnavailable,
    StoreUnavailable,
    Throttled,
    Unauthenticated,
)
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.preconditions import raise_refusals
from drumlin.kg.store.protocol import GraphEntry, GraphWrite, Row, StoredGraph, Written

MOST = 1000
"""Graphs in one write: what a service takes in one transaction."""


class RemoteSink:
    """A ``Sink`` over HTTP. Each ``apply`` is one request and one transaction of the service, all writes of which have one owner.

    What cannot be written or read now, and may be later, is ``StoreUnavailable``: the service is away, busy, or a proxy refuses.
    ``base`` is the base of the IRIs that will be written; raises ``InvalidSettings`` when the service has another one.
    """

    def __init__(self, client: Client, base: str) -> None:
        self._client = client
        self._iris = Iris(base)
        served = client.about().get("base")
        if served is None:
            raise Unauthenticated(
                f"the service at {client.url} asks for a token",
                hint="an operator makes one: drumlin token create NAME --role exporter --source OWNER; give it as --token-file",
            )
        if served != self._iris.base:
            raise InvalidSettings(
                f"the service at {client.url} names things below {served}, this exporter below {self._iris.base}",
                hint=f"say --base {served}, or set base in drumlin.toml",
            )

    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none; the error has the refusal of each write (``refusals``)."""
        if not writes:
            return []
        try:
            with _away():
                results = self._client.apply(writes, atomic=True)
        except Conflict as error:
            writer = writes[0].owner
            refused = error.detail.get("refusals", [error.detail])  # services of before name only the first
            raise_refusals(
                {
                    each["graph"]: GraphOwned(each["graph"], each["owner"], writer)
                    for each in refused
                    if "owner" in each and "graph" in each
                }
            )
            raise
        return [Written(each["id"], each["outcome"], each["digest"], each["generation"]) for each in results]

    def entries(
        self, *, owner: str | None = None, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[GraphEntry]:
        """List graphs without their content."""
        found: list[GraphEntry] = []
        short = prefix.removeprefix(self._iris.root)
        with _away():
            for each in self._client.subgraphs(owner=owner, prefix=short, tombstones=True):
                if each.iri > after:
                    at = datetime.fromisoformat(each.changed)
                    found.append(GraphEntry(each.iri, each.digest, each.owner, each.generation, at))
                if limit is not None and len(found) >= limit:
                    break
        return found

    def read(self, graph: str) -> StoredGraph | None:
        """Return one graph, or None when it does not exist."""
        entry = next(iter(self.entries(prefix=graph, limit=1)), None)
        if entry is None or entry.graph != graph:
            return None
        try:
            with _away():
                text = self._client.run(calls.get_subgraph_text(self._iris.short(graph), "ntriples"))
        except (ResourceNotFound, ResourceGone):  # a tombstone is read by nobody here
            return None
        return StoredGraph(entry, GraphContent.of(text.split("\n")[:-1], graph))

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run one of our own bounded SELECTs; ``values`` are IRIs and are checked to be, so none can end its bracket."""
        for name, iri in (values or {}).items():
            self._iris.parse(iri)
            query = query.replace("WHERE {", f"WHERE {{ VALUES ?{name} {{ <{iri}> }}", 1)
        with _away():
            return self._client.run(calls.sparql_texts(query))


@contextmanager
def _away() -> Iterator[None]:
    try:
        yield
    except (
        SourceUnavailable,
        Throttled,
        InvalidSettings,
        Unauthenticated,
    ) as error:  # the last two: a token is just rotated
        raise StoreUnavailable(str(error), hint=error.hint) from error
