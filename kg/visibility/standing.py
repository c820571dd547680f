"""What of a graph decides who sees it: its domain, the domains that take part in it, the grant that it states. Pure.

Only statements about the graph's own entity count, so a part of it (the party of a task, say) says nothing of the whole.
"""

from __future__ import annotations

import re
from datetime import datetime
from typing import NamedTuple

from drumlin.kg.rdf.jsonld import NAMESPACE

_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_DOMAIN, _CLUSTER, _PHASE = f"{NAMESPACE}domain", f"{NAMESPACE}cluster", f"{NAMESPACE}phase"
_GRANTS, _TO, _UNTIL = f"{NAMESPACE}grants", f"{NAMESPACE}grantedTo", f"{NAMESPACE}expiresAt"
_TAKES_PART = frozenset(
    f"{NAMESPACE}{name}" for name in ("party", "initiator", "source", "destination", "via", "grantedBy", "holds")
)
_NAMESPACE, _DERIVED = f"{NAMESPACE}namespace", "http://www.w3.org/ns/prov#wasDerivedFrom"
_BESIDE = re.compile(r"(.*?/id/)(?:notes|scraped)/(.+)")  # the graphs beside an entity's
_READ = _TAKES_PART | {_TYPE, _DOMAIN, _CLUSTER, _PHASE, _GRANTS, _TO, _UNTIL, _NAMESPACE, _DERIVED}
_COMMON = frozenset({f"<{NAMESPACE}MetricTemplate>"})
_PLACES = frozenset(f"<{NAMESPACE}{name}>" for name in ("Domain", "GlaciationNode", "Cluster"))
_TOMBSTONE = f"<{NAMESPACE}Tombstone>"
_STUB = frozenset({_TYPE, f"{NAMESPACE}name"})
_IN_FORCE_NO_MORE = f"<{NAMESPACE}NotReady>"


class DataGrant(NamedTuple):
    """The right of a domain (``to``) to see ``data``, until a time; all but the time are IRIs."""

    data: str
    to: str
    until: datetime | None

    def holds(self, now: datetime) -> bool:
        """Return whether it is in force."""
        return self.until is None or now < self.until


class Standing(NamedTuple):
    """What decides who sees a graph; domains and clusters are IRIs.

    ``home`` is the domain that it belongs to, ``parties`` are those that take part in what it states, ``grant`` is the grant that it is.
    A ``common`` graph is everybody's. Of a ``place``, a domain or cluster, everybody who sees its name elsewhere sees the name.
    What states no domain belongs to that of the graph ``within``: a forecast to that of the entity that it is about, as do the graphs
    beside an entity's, and a tombstone, which has lost its domain, to that of the namespace that it stood in.
    """

    home: str | None = None
    parties: frozenset[str] = frozenset()
    cluster: str | None = None
    grant: DataGrant | None = None
    common: bool = False
    place: bool = False
    within: str | None = None

    @property
    def names(self) -> frozenset[str]:
        """The domains and the cluster that it names."""
        named = {self.home, self.cluster, *self.parties, *((self.grant.to,) if self.grant else ())}
        return frozenset(each for each in named if each is not None)


NOBODYS = Standing()
"""Of a graph that says nothing of whose it is: callers that are limited to domains do not see it."""


def standing_of(graph: str, text: str) -> Standing:
    """Return the standing of a graph by its text (``kg.rdf.syntax.text_of``)."""
    said: dict[str, list[str]] = {}
    for piece in f"\n{text}".split(f"\n<{graph}> <")[1:]:
        predicate, _, rest = piece.partition("> ")
        if predicate in _READ:
            said.setdefault(predicate, []).append(rest.partition("\n")[0].removesuffix(" ."))
    types = said.get(_TYPE, [])
    cluster = next(map(_iri, said.get(_CLUSTER, [])), None)
    found = Standing(
        next(map(_iri, said.get(_DOMAIN, [])), None),
        frozenset(_iri(each) for name in _TAKES_PART & said.keys() for each in said[name]),
        cluster,
        _grant(said),
        not _COMMON.isdisjoint(types),
        not _PLACES.isdisjoint(types),
        _within(graph, cluster, said),
    )
    return NOBODYS if found == NOBODYS else found


def stub_of(graph: str, text: str) -> str:
    """Return what everybody sees of a place who sees its name elsewhere: its class and its name.

    A GlaciationNode is a domain with an address, so what is seen of it is a Domain.
    """
    return "\n".join(
        line.replace(f"<{NAMESPACE}GlaciationNode> .", f"<{NAMESPACE}Domain> .")
        for line in text.split("\n")
        if line.startswith(f"<{graph}> <") and line[len(graph) + 4 :].partition("> ")[0] in _STUB
    )


def _within(graph: str, cluster: str | None, said: dict[str, list[str]]) -> str | None:
    if (beside := _BESIDE.fullmatch(graph)) is not None:
        return beside[1] + beside[2]
    if _TOMBSTONE in said.get(_TYPE, []):
        return _namespace(cluster, said)
    for metric in said.get(_DERIVED, []):
        entity, found, _ = _iri(metric).rpartition("/metric/")
        if found:
            beside = _BESIDE.fullmatch(entity)
            return entity if beside is None else beside[1] + beside[2]
    return None


def is_tombstone(text: str, graph: str) -> bool:
    """Return whether a graph's text is that of a deleted entity."""
    return f"<{graph}> <{_TYPE}> {_TOMBSTONE} ." in text


def _namespace(cluster: str | None, said: dict[str, list[str]]) -> str | None:
    """Return the graph of the namespace that an object stood in."""
    name = next((each.split('"')[1] for each in said.get(_NAMESPACE, []) if each.startswith('"')), None)
    if cluster is None or name is None:
        return None
    root, _, segment = cluster.rpartition("cluster/")
    return f"{root}{segment}/-/namespace/{name}"


def _grant(said: dict[str, list[str]]) -> DataGrant | None:
    data, to = said.get(_GRANTS), said.get(_TO)
    if not data or not to or _IN_FORCE_NO_MORE in said.get(_PHASE, []):
        return None
    until = said.get(_UNTIL)
    try:
        ends = datetime.fromisoformat(until[0].split('"')[1]) if until else None
    except ValueError:
        return None  # a time that cannot be read may have been long ago
    if ends is not None and ends.tzinfo is None:
        return None
    return DataGrant(_iri(data[0]), _iri(to[0]), ends)


def _iri(term: str) -> str:
    return term.removeprefix("<").removesuffix(">")
