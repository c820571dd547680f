"""What reaches a thing and what it reaches, by chosen relations: the blast radius of a failure, the steps of a plan. Bounded.

A relation is a property of the vocabulary, ``hasPart`` or ``calls``, which stands for the invocations between two things; ``^`` before it
follows it backwards, as in a SPARQL path. What is followed forwards and what is followed backwards are two walks from the root: mixed, they
would reach everything that anything near has in common.
"""

from __future__ import annotations

import re
from collections import defaultdict
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from drumlin.kg.errors import InvalidIdentifier, InvalidInput, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.protocol import Row
from drumlin.kg.telemetry.templates import did_you_mean
from drumlin.ontology.vocabulary import PROPERTIES

MAX_DEPTH = 10
MAX_NODES = 500
MAX_FAN = 25
"""Neighbours of one thing that are shown in one direction; the rest is counted."""
_MAX_ROWS = 50_000
_TOGETHER = 200
_PREFIX = f"PREFIX drumlin: <{NAMESPACE}> PREFIX dcterms: <http://purl.org/dc/terms/> "
_CALLS = "calls"
_PATTERNS = {
    _CALLS: "?call a drumlin:Invocation ; drumlin:caller {source} ; drumlin:callee {target} .",
    "hasPart": "{source} dcterms:hasPart {target} .",
}
_DEFAULT: Mapping[str, tuple[str, ...]] = {"Workflow": ("hasPart", "dependsOn")}
_USUAL = (_CALLS, f"^{_CALLS}")
_IMPLEMENTERS = (
    "SELECT ?root ?to WHERE { { ?root drumlin:implementedBy ?to } UNION { ?to drumlin:managedBy ?root }"
    " UNION { ?root drumlin:implementedBy ?group . ?to drumlin:managedBy ?group } ?to a ?type } LIMIT 100"
)
_ROOT = "SELECT ?root ?type WHERE { ?root a ?type }"
_ABOUT = (
    "SELECT ?node ?type ?name ?phase WHERE {{ VALUES ?node {{ {nodes} }} ?node a ?type ."
    " OPTIONAL {{ ?node drumlin:name ?name }} OPTIONAL {{ ?node drumlin:phase ?phase }} }}"
)
_PLAIN = re.compile(r"[^\x00-\x20<>\"{}|^`\\]+")

LookUp = Callable[[str, Mapping[str, str]], Sequence[Row]]


@dataclass(frozen=True, slots=True)
class ReachedNode:
    """A thing, how many links it is away (negative: it leads to the root), and how many neighbours of it are not shown."""

    iri: str
    type: str
    name: str
    distance: int
    more: int = 0
    phase: str = ""


@dataclass(frozen=True, slots=True)
class ReachedEdge:
    """A link; ``cyclic``: it is on a way that leads back to where it began."""

    source: str
    target: str
    term: str
    cyclic: bool = False


@dataclass(frozen=True, slots=True)
class Reach:
    """What was reached, nearest first; ``left_out`` counts the things that were too many in all."""

    root: str
    relations: tuple[str, ...]
    depth: int
    nodes: tuple[ReachedNode, ...]
    edges: tuple[ReachedEdge, ...]
    left_out: int


def reach(look_up: LookUp, iris: Iris, root: str, relations: Sequence[str] = (), depth: int = 3) -> Reach:
    """Walk from ``root`` (an IRI), forwards and backwards apart, at most ``depth`` links far.

    Raises ``ResourceNotFound`` for a root that is not there, ``InvalidInput`` for a relation that there is not.
    """
    kinds = {row["type"].removeprefix(NAMESPACE) for row in look_up(_PREFIX + _ROOT, {"root": root})}
    if not kinds - {"Tombstone"}:
        raise ResourceNotFound(
            f"there is no {iris.short(root)}", hint="list what there is with /subgraphs or drumlin get"
        )
    chosen = tuple(relations) or next((each for kind, each in _DEFAULT.items() if kind in kinds), _USUAL)
    for each in chosen:
        _check(each)
    walk = _ReachWalk(look_up, iris, root)
    start = [root]
    if "Function" in kinds:
        start += walk.implementers()
    for backwards in (False, True):
        terms = [each.removeprefix("^") for each in chosen if each.startswith("^") == backwards]
        if terms:
            walk.go(start, terms, depth, backwards=backwards)
    return Reach(root, chosen, depth, *walk.found(), len(walk.left_out))


def _check(relation: str) -> None:
    term = relation.removeprefix("^")
    if term not in _PATTERNS and term not in PROPERTIES:
        raise InvalidInput(f"{relation[:64]!r} is no relation", hint=did_you_mean(term, {*_PATTERNS, *PROPERTIES}))


class _ReachWalk:
    def __init__(self, look_up: LookUp, iris: Iris, root: str) -> None:
        self._look_up = look_up
        self._iris = iris
        self._root = root
        self._distance: dict[str, int] = {root: 0}
        self._more: defaultdict[str, int] = defaultdict(int)
        self._edges: dict[tuple[str, str, str], None] = {}
        self.left_out: set[str] = set()

    def implementers(self) -> list[str]:
        """Return the workloads of a function, as if they were it."""
        rows = self._look_up(_PREFIX + _IMPLEMENTERS, {"root": self._root})
        found = sorted({row["to"] for row in rows})
        for each in found:
            self._reached(self._root, each, "implementedBy", 1)
        return [each for each in found if each in self._distance]

    def go(self, start: Sequence[str], terms: Sequence[str], depth: int, *, backwards: bool) -> None:
        """Walk level by level; a thing that was reached is not walked from again."""
        walked, frontier = set(start), list(start)
        for step in range(1, depth + 1):
            reached: dict[str, None] = {}
            for term in terms:
                for here, ends in self._links(frontier, term, backwards=backwards).items():
                    shown = sorted(ends)[:MAX_FAN]
                    self._more[here] += len(ends) - len(shown)
                    for there in shown:
                        ends_of = (there, here) if backwards else (here, there)
                        if self._reached(*ends_of, term, -step if backwards else step):
                            reached[there] = None
            frontier = [each for each in reached if each not in walked]
            walked.update(frontier)
            if not frontier:
                return

    def _reached(self, source: str, target: str, term: str, distance: int) -> bool:
        """Take in a link; return whether both ends are shown."""
        for each in (source, target):
            if each not in self._distance:
                if len(self._distance) >= MAX_NODES:
                    self.left_out.add(each)
                    return False
                self._distance[each] = distance
        self._edges[source, target, term] = None
        return True

    def _links(self, frontier: Sequence[str], term: str, *, backwards: bool) -> dict[str, set[str]]:
        """Return what things are linked to: here → there."""
        pattern = _PATTERNS.get(term, f"{{source}} drumlin:{term} {{target}} .")
        places = {"source": "?there", "target": "?here"} if backwards else {"source": "?here", "target": "?there"}
        found: dict[str, set[str]] = {}
        for group in _groups(frontier):
            query = f"SELECT DISTINCT ?here ?there WHERE {{ VALUES ?here {{ {group} }} {pattern.format(**places)} }} LIMIT {_MAX_ROWS}"
            for row in self._look_up(_PREFIX + query, {}):
                if self._is_thing(row["there"]):
                    found.setdefault(row["here"], set()).add(row["there"])
        return {here: found[here] for here in frontier if here in found}

    def _is_thing(self, iri: str) -> bool:
        try:
            return iri.startswith(self._iris.root) and bool(self._iris.parse(iri))
        except InvalidIdentifier:
            return False

    def found(self) -> tuple[tuple[ReachedNode, ...], tuple[ReachedEdge, ...]]:
        """Return what was reached, with types and names, and the links, with those that are on a cycle marked."""
        about: dict[str, tuple[str, str, str]] = {}
        for group in _groups(list(self._distance)):
            for row in self._look_up(_PREFIX + _ABOUT.format(nodes=group), {}):
                phase = row.get("phase", "").removeprefix(NAMESPACE)
                about[row["node"]] = (row["type"].removeprefix(NAMESPACE), row.get("name", ""), phase)
        nodes = []
        for iri, distance in self._distance.items():
            type, name, phase = about.get(iri, ("", "", ""))
            nodes.append(ReachedNode(iri, type, name, distance, self._more[iri], phase))
        component = _components([(source, target) for source, target, _ in self._edges])
        edges = [
            ReachedEdge(source, target, term, component[source] == component[target])
            for source, target, term in self._edges
        ]
        nodes.sort(key=lambda each: (abs(each.distance), each.distance, each.iri))
        edges.sort(key=lambda each: (each.source, each.target, each.term))
        return tuple(nodes), tuple(edges)


def _groups(iris: Sequence[str]) -> Iterable[str]:
    plain = [f"<{each}>" for each in iris if _PLAIN.fullmatch(each)]
    for start in range(0, len(plain), _TOGETHER):
        yield " ".join(plain[start : start + _TOGETHER])


def _components(edges: Sequence[tuple[str, str]]) -> dict[str, int]:
    """Return the strongly connected component of each node: Tarjan's algorithm, without recursion."""
    following: defaultdict[str, list[str]] = defaultdict(list)
    for source, target in edges:
        following[source].append(target)
        following.setdefault(target, [])
    order: dict[str, int] = {}
    low: dict[str, int] = {}
    found: dict[str, int] = {}
    open_nodes: list[str] = []
    for first in following:
        if first in order:
            continue
        stack = [(first, iter(following[first]))]
        order[first] = low[first] = len(order)
        open_nodes.append(first)
        while stack:
            node, rest = stack[-1]
            child = next(rest, None)
            if child is None:
                stack.pop()
                if stack:
                    low[stack[-1][0]] = min(low[stack[-1][0]], low[node])
                if low[node] == order[node]:
                    _close(node, open_nodes, found)
            elif child not in order:
                order[child] = low[child] = len(order)
                open_nodes.append(child)
                stack.append((child, iter(following[child])))
            elif child not in found:
                low[node] = min(low[node], order[child])
    return found


def _close(node: str, open_nodes: list[str], found: dict[str, int]) -> None:
    """Take a component, of which ``node`` is the first, off the open nodes."""
    number = len(found)
    while True:
        each = open_nodes.pop()
        found[each] = number
        if each == node:
            return
