"""The clusters and domains that a graph knows, and which nodes and namespaces are whose.

Read when it is first asked for, and kept as long as the object: one request sees one state of it. What came from peers does not count:
no server here holds its series, so it makes none of one's own ambiguous.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cached_property
from typing import Literal, NamedTuple, Protocol
from urllib.parse import unquote

from drumlin.kg.errors import InvalidIdentifier
from drumlin.kg.model.iris import RESERVED, Iris, ObjectName
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.preconditions import PEERS
from drumlin.kg.store.protocol import GraphEntry, Row

_MEMBERS = f"""SELECT ?member ?domain WHERE {{
  VALUES ?class {{ <{NAMESPACE}Cluster> <{NAMESPACE}Node> <{NAMESPACE}Namespace> }}
  ?member a ?class ; <{NAMESPACE}domain> ?domain }}"""


class Member(NamedTuple):
    """A cluster, node or namespace, by name, and the id of the domain that it belongs to."""

    kind: Literal["cluster", "node", "namespace"]
    cluster: str
    name: str
    domain: str


class Listing(Protocol):
    """The part of ``kg.store.protocol.Store`` that an inventory is read from, with the same guarantees."""

    def entries(self, *, prefix: str = "", after: str = "", limit: int | None = None) -> list[GraphEntry]:
        """List graphs without their content."""
        ...

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run one of our own bounded SELECTs."""
        ...


def _is_of_peer(entry: GraphEntry) -> bool:
    return entry.owner.startswith(PEERS)


class Inventory:
    """The clusters and domains of one store."""

    def __init__(self, store: Listing, iris: Iris) -> None:
        self._store = store
        self._iris = iris

    @cached_property
    def declared(self) -> frozenset[str]:
        """The names of the clusters that have a graph of their own, as every exporter writes; a deleted one too."""
        return frozenset(self._last(each.graph) for each in self._all_declared if not _is_of_peer(each))

    @cached_property
    def _all_declared(self) -> list[GraphEntry]:
        return self._store.entries(prefix=f"{self._iris.root}cluster/")

    @cached_property
    def clusters(self) -> frozenset[str]:
        """The names of all clusters: the declared ones, and those of which there is any object."""
        return self.declared | {unquote(each) for each in self._first_segments() if each not in RESERVED}

    def _first_segments(self) -> Iterator[str]:
        """Yield what the short ids of graphs begin with, each once: one look-up each, however many graphs there are."""
        after = self._iris.root
        of_peers = {self._last(each.graph) for each in self._all_declared} - self.declared
        while entries := self._store.entries(prefix=self._iris.root, after=after, limit=1):
            segment = self._iris.short(entries[0].graph).partition("/")[0]
            if not _is_of_peer(entries[0]) or (unquote(segment) not in of_peers and self._has_own(segment)):
                yield segment
            after = f"{self._iris.root}{segment}0"  # the character after "/": behind everything below the segment

    def _has_own(self, segment: str) -> bool:
        """Return whether something that begins with a segment is no peer's; few graphs are, where the peer shows no cluster."""
        return any(not _is_of_peer(each) for each in self._store.entries(prefix=f"{self._iris.root}{segment}/"))

    @cached_property
    def domains(self) -> frozenset[str]:
        """The ids of all domains."""
        entries = self._store.entries(prefix=f"{self._iris.root}domain/")
        return frozenset(self._last(each.graph) for each in entries if not _is_of_peer(each))

    @cached_property
    def members(self) -> tuple[Member, ...]:
        """The clusters, nodes and namespaces that belong to a domain."""
        return tuple(self._members())

    def of(self, domain: str, kind: Literal["cluster", "node", "namespace"]) -> list[Member]:
        """Return the members of a domain that are of a kind."""
        return [each for each in self.members if each.kind == kind and each.domain == domain]

    def clusters_of(self, domain: str) -> frozenset[str]:
        """Return the names of the clusters in which a domain has something; all clusters when it is the only domain."""
        if self.domains <= {domain}:
            return self.declared
        return frozenset(each.cluster for each in self.members if each.domain == domain)

    def _members(self) -> Iterator[Member]:
        for each in self._stated_members():
            if each.cluster in self.clusters:
                yield each

    def _stated_members(self) -> Iterator[Member]:
        for row in self._store.look_up(_MEMBERS):
            domain = self._last(row["domain"])
            try:
                name = self._iris.parse(row["member"]).name
            except InvalidIdentifier:
                continue  # a foreign graph may state what it likes
            if isinstance(name, ObjectName):
                if name.kind in ("node", "namespace"):
                    yield Member("node" if name.kind == "node" else "namespace", name.cluster, name.name, domain)
            elif name.kind == "cluster":
                yield Member("cluster", name.name, name.name, domain)

    @staticmethod
    def _last(iri: str) -> str:
        return unquote(iri.rpartition("/")[2])
