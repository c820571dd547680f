"""What the graph remembers of an earlier life of the exporter, so that a new one neither forgets, nor overwrites what it does not know.

The graphs, their runs and which of them are tombstones are read once, at the start. What a document said because of other objects is
looked up when a renderer needs it: where the source has not mentioned these objects, what they would say is unknown, not nothing.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, NamedTuple
from urllib.parse import unquote

from drumlin.exporters.pipeline.renderings import NO_RENDERINGS, Rendering, Renderings
from drumlin.exporters.pipeline.restarts import ContainerRun, container_run_of, remembered
from drumlin.exporters.pipeline.runs import Run
from drumlin.exporters.pipeline.sink import Sink
from drumlin.exporters.pipeline.transitions import Transition, transition_of
from drumlin.exporters.protocol import Kind
from drumlin.kg.model.iris import RESERVED, Iris
from drumlin.kg.rdf.jsonld import NAMESPACE, predicate
from drumlin.kg.store.protocol import Row

_FEW = 500  # living graphs whose runs are looked up one by one
_RUN = "/run/"
_PROV = "http://www.w3.org/ns/prov#"
_RUNS = f"""
SELECT ?entity ?run ?start ?end ?outcome ?estimated ?node ?observed WHERE {{
  ?run <{NAMESPACE}runOf> ?entity ; <{_PROV}startedAtTime> ?start .
  OPTIONAL {{ ?run <{_PROV}endedAtTime> ?end }}
  OPTIONAL {{ ?run <{NAMESPACE}outcome> ?outcome }}
  OPTIONAL {{ ?run <{NAMESPACE}endEstimated> ?estimated }}
  OPTIONAL {{ ?run <{NAMESPACE}scheduledOn> ?node }}
  OPTIONAL {{ ?run <{NAMESPACE}observedIn> ?observed }}
}}"""
_TRANSITIONS = f"""
SELECT ?run ?reason ?container ?count ?last ?ongoing ?code WHERE {{
  ?run <{NAMESPACE}transition> ?transition .
  ?transition <{NAMESPACE}reason> ?reason ; <{NAMESPACE}lastSeen> ?last .
  OPTIONAL {{ ?transition <{NAMESPACE}containerName> ?container }}
  OPTIONAL {{ ?transition <{NAMESPACE}occurrences> ?count }}
  OPTIONAL {{ ?transition <{NAMESPACE}ongoing> ?ongoing }}
  OPTIONAL {{ ?transition <{NAMESPACE}exitCode> ?code }}
}}"""
_TRANSITIONS_OF = _TRANSITIONS.replace("?code WHERE {", f"?code ?entity WHERE {{ ?run <{NAMESPACE}runOf> ?entity .", 1)
_RUN_VALUES = {
    "end": f"{_PROV}endedAtTime",
    "outcome": f"{NAMESPACE}outcome",
    "estimated": f"{NAMESPACE}endEstimated",
    "node": f"{NAMESPACE}scheduledOn",
    "observed": f"{NAMESPACE}observedIn",
}
_RESTARTS = f"""
SELECT ?run ?life ?container ?start ?end ?reason ?code WHERE {{
  ?run <{NAMESPACE}containerRun> ?life .
  ?life <{NAMESPACE}containerName> ?container ; <{_PROV}endedAtTime> ?end .
  OPTIONAL {{ ?life <{_PROV}startedAtTime> ?start }}
  OPTIONAL {{ ?life <{NAMESPACE}reason> ?reason }}
  OPTIONAL {{ ?life <{NAMESPACE}exitCode> ?code }}
}}"""
_RESTARTS_OF = _RESTARTS.replace("?code WHERE {", f"?code ?entity WHERE {{ ?run <{NAMESPACE}runOf> ?entity .", 1)
_STANDS = f"SELECT ?entity ?class ?manager WHERE {{ ?entity a ?class . OPTIONAL {{ ?entity <{NAMESPACE}managedBy> ?manager }} }}"
_TOMBSTONES = f"SELECT ?entity WHERE {{ ?entity a <{NAMESPACE}Tombstone> }}"
_BELONGINGS = f"""SELECT ?entity ?group ?label WHERE {{
  {{ ?entity <{NAMESPACE}applicationGroup> ?group }} UNION {{ ?entity <{NAMESPACE}label> ?label }} }}"""
_LINKS = "SELECT ?entity ?value WHERE {{ ?entity <{predicate}> ?value }}"
_DOMAINS = f"SELECT ?entity ?domain WHERE {{ ?entity a <{NAMESPACE}Namespace> ; <{NAMESPACE}domain> ?domain }}"
_IMAGES = f"""
SELECT ?container ?image ?digest WHERE {{
  ?container a <{NAMESPACE}Container> ; <{NAMESPACE}image> ?image .
  OPTIONAL {{ ?container <{NAMESPACE}imageDigest> ?digest }}
}}"""
_HOLDERS = f"""
SELECT DISTINCT ?entity ?datasource WHERE {{
  ?entity <{NAMESPACE}telemetry> ?telemetry . ?telemetry <{predicate("hasPart")}> ?metric .
  ?metric <{predicate("distribution")}> ?query . ?query <{predicate("accessService")}> ?datasource
}}"""


@dataclass(slots=True)
class PreviousGraph:
    """One graph of an earlier life that has not come again yet.

    ``runs`` None: they are looked up when they are needed. ``rendering`` is what it was rendered from, where that is known.
    """

    digest: str
    rendering: Rendering | None = None
    runs: dict[str, Run] | None = None
    tombstone: bool = False


class Memory:
    """What the graph said at the start of a run, and which of its objects the source has not mentioned yet. Not for use by several threads.

    ``prefixes`` are those of the IRIs of all objects that ``owner`` may have written. ``functions`` are the kinds whose objects are
    functions: an IRI does not say of which kind a function is, so one is missing when it is of none of them.
    """

    def __init__(
        self,
        sink: Sink,
        owner: str,
        prefixes: Iterable[str],
        iris: Iris,
        functions: frozenset[str] = frozenset(),
        renderings: Renderings = NO_RENDERINGS,
    ) -> None:
        self._sink = sink
        self._iris = iris
        self._unmentioned: dict[str, dict[str, dict[str, PreviousGraph]]] = {}  # by home and namespace
        self._awaited = Counter[tuple[str, str | None]]()  # how many of them live, by home and namespace (None: all)
        self._functions = functions
        self._told: defaultdict[str | None, set[str]] = defaultdict(set)  # kinds of functions, by namespace
        self._complete: set[tuple[str, str | None]] = set()
        self._links: dict[str, Mapping[str, list[str]]] = {}
        self._belongings: defaultdict[str, dict[str, Any]] | None = None
        self._known: set[str] = set()
        for graph, earlier in _recalled(sink, owner, prefixes, renderings).items():
            home, place = self._place(graph)
            self._unmentioned.setdefault(home, {}).setdefault(place, {})[graph] = earlier
            if not earlier.tombstone:
                self._known.add(graph)
                self._awaited[home, place] += 1
                self._awaited[home, None] += 1

    # -- objects that the source has not mentioned ----------------------------------------------------------------------
    def mentioned(self, graph: str) -> PreviousGraph | None:
        """Take in that the source speaks of an object; return what was known of it, the first time."""
        home, place = self._place(graph)
        earlier = self._unmentioned.get(home, {}).get(place, {}).pop(graph, None)
        if earlier and not earlier.tombstone:
            self._awaited[home, place] -= 1
            self._awaited[home, None] -= 1
        return earlier

    def runs_before(self, graph: str, earlier: PreviousGraph) -> dict[str, Run]:
        """Return the runs that a graph of an earlier life has."""
        if earlier.rendering:
            return {run.uid: run for run in earlier.rendering.runs}
        return self.runs_of(graph) if earlier.runs is None else earlier.runs

    def completed(self, kind: Kind, namespace: str | None) -> list[tuple[str, PreviousGraph]]:
        """Take in that all objects of a kind, in ``namespace`` (None: anywhere), have been mentioned; return the living that were not."""
        if kind.segment in self._functions:
            self._told[namespace].add(kind.segment)
            if self._told[namespace] | self._told[None] < self._functions:
                return []
        self._complete.add((kind.home, namespace))
        missing = [
            (graph, earlier) for shelf in self._shelves(kind.home, namespace) for graph, earlier in shelf.items()
        ]
        for graph, _ in missing:
            self.mentioned(graph)
        return [(graph, earlier) for graph, earlier in missing if not earlier.tombstone]

    def is_complete(self, home: str, namespace: str | None = None) -> bool:
        """Return whether all objects of a kind, in ``namespace`` (None: anywhere), have been mentioned."""
        return not self._complete.isdisjoint(((home, None), (home, namespace)))

    def complete_namespaces(self, home: str) -> list[str]:
        """Return the namespaces of which all objects of a kind have been mentioned, sorted; ``*`` when that is so anywhere."""
        return sorted(namespace or "*" for each, namespace in self._complete if each == home)

    def awaits(self, graph: str) -> bool:
        """Return whether the graph of an object lives that the source has not mentioned."""
        earlier = self._shelf(graph).get(graph)
        return earlier is not None and not earlier.tombstone

    def awaits_any(self, home: str, namespace: str | None = None) -> bool:
        """Return whether that is so of any object of a kind, in ``namespace`` (None: anywhere)."""
        return bool(self._awaited[home, None if namespace is None else self._place_in(namespace)])

    def awaits_pods(self, manager: str) -> bool:
        """Return whether that is so of any pod that ``manager`` (an IRI) manages."""
        return self.awaits_any("pod") and any(self.awaits(pod) for pod in self._pods.get(manager, ()))

    # -- what the graph said --------------------------------------------------------------------------------------------
    def knew(self, graph: str) -> bool:
        """Return whether the graph of an object lived at the start."""
        return graph in self._known

    @property
    def homes(self) -> frozenset[str]:
        """The homes of the kinds of which the graph had living objects at the start."""
        return frozenset(home_in(self._iris.short(graph)) for graph in self._known)

    def runs_of(self, entity: str) -> dict[str, Run]:
        """Return the runs that the graph knows of one entity, by uid; looked up anew."""
        rows = self._sink.look_up(_RUNS, {"entity": entity})
        past = _past(self._sink, entity) if rows else _NO_PAST
        runs = (_run_of(row["run"], row, past) for row in rows)
        return {run.uid: run for run in runs}

    def left(self, graph: str) -> tuple[bool, str | None]:
        """Return whether there is a graph of that name, and what manages the entity in it; looked up anew."""
        rows = self._sink.look_up(_STANDS, {"entity": graph})
        return bool(rows), next((row["manager"] for row in rows if "manager" in row), None)

    def domains(self) -> Iterator[tuple[str, str, str]]:
        """Yield each living Namespace with its name and the name of the domain that it belongs to."""
        for row in self._sink.look_up(_DOMAINS) if self._known else ():
            if self.awaits(row["entity"]):
                yield (
                    row["entity"],
                    self._iris.parse(row["entity"]).name.name,
                    self._iris.parse(row["domain"]).name.name,
                )

    def manager(self, graph: str) -> str | None:
        """Return what manages an object that the source has not mentioned."""
        return self._managers.get(graph)

    def said(self, entity: str) -> dict[str, object]:
        """Return to whom an entity belonged, as its graph said at the start: application group and labels; of a pod, nothing."""
        if home_in(self._iris.short(entity)) == "pod" or not self._known:
            return {}
        if self._belongings is None:
            self._belongings = defaultdict(dict)
            for row in self._sink.look_up(_BELONGINGS):
                said = self._belongings[row["entity"]]
                if "group" in row:
                    said["applicationGroup"] = row["group"]
                if "label" in row:
                    said.setdefault("label", []).append(row["label"])
        return dict(self._belongings.get(entity, {}))

    def links(self, entity: str, term: str) -> list[str]:
        """Return the IRIs of this base that an entity was linked to by a term of the context."""
        return [iri for iri in self.values(entity, term) if iri.startswith(self._iris.root)]

    def values(self, entity: str, term: str) -> list[str]:
        """Return all values of a term of the context that an entity or a part of one had: IRIs, and literals as text."""
        if term not in self._links:
            rows = self._sink.look_up(_LINKS.format(predicate=predicate(term))) if self._known else []
            self._links[term] = _grouped((row["entity"], row["value"]) for row in rows)
        return list(self._links[term].get(entity, ()))

    def image(self, container: str) -> tuple[str, str | None] | None:
        """Return the image and its digest, if known, of a container (an IRI); None when there was no such container."""
        return self._images.get(container)

    def holders(self, entity: str) -> list[str]:
        """Return the datasources (IRIs) that held metrics of an entity."""
        return self._holders.get(entity, [])

    @cached_property
    def _managers(self) -> Mapping[str, str]:
        return _scanned(self._sink, f"{NAMESPACE}managedBy")

    @cached_property
    def _pods(self) -> Mapping[str, list[str]]:
        """The pods, by what manages them."""
        pods = ((graph, manager) for graph, manager in self._managers.items() if self._place(graph)[0] == "pod")
        return _grouped((manager, graph) for graph, manager in pods)

    @cached_property
    def _images(self) -> Mapping[str, tuple[str, str | None]]:
        rows = self._sink.look_up(_IMAGES) if self._known else []
        return {row["container"]: (row["image"], row.get("digest")) for row in rows}

    @cached_property
    def _holders(self) -> Mapping[str, list[str]]:
        return _grouped((row["entity"], row["datasource"]) for row in self._sink.look_up(_HOLDERS))

    def _place(self, graph: str) -> tuple[str, str]:
        id = self._iris.short(graph)
        home = home_in(id)
        return home, id.split("/", 3)[2 if home == "function" else 1]

    def _shelf(self, graph: str) -> dict[str, PreviousGraph]:
        home, place = self._place(graph)
        return self._unmentioned.get(home, {}).get(place, {})

    def _shelves(self, home: str, namespace: str | None) -> list[dict[str, PreviousGraph]]:
        """Return the shelves of a kind, or the one of a namespace."""
        shelves = self._unmentioned.get(home, {})
        return list(shelves.values()) if namespace is None else [shelves.get(self._place_in(namespace), {})]

    def _place_in(self, namespace: str) -> str:
        return self._place(self._iris.object("-", namespace, "x", "x"))[1]


def home_in(id: str) -> str:
    """Return what names the kind in a short id; ``Kind.home`` is the same of a kind."""
    first, _, kind, *_ = (*id.split("/"), "", "")
    return first if first in RESERVED else kind


def _recalled(sink: Sink, owner: str, prefixes: Iterable[str], renderings: Renderings) -> dict[str, PreviousGraph]:
    """Return what ``owner`` has written below ``prefixes``, by the graph's IRI."""
    found = {
        each.graph: PreviousGraph(each.digest, renderings.of(each.graph, each.digest))
        for prefix in prefixes
        for each in sink.entries(owner=owner, prefix=prefix)
    }
    if not found:
        return found
    for row in sink.look_up(_TOMBSTONES):
        if row["entity"] in found:
            found[row["entity"]].tombstone = True
    if sum(each.rendering is None and not each.tombstone for each in found.values()) > _FEW:
        runs: defaultdict[str, dict[str, Run]] = defaultdict(dict)
        for entity, run in _all_runs(sink):
            runs[entity][run.uid] = run
        for graph, each in found.items():
            each.runs = runs.get(graph, {})
    return found


class _Past(NamedTuple):
    """What befell runs, and the restarts in them, by the IRI of the run."""

    befell: Mapping[str, tuple[Transition, ...]]
    restarts: Mapping[str, tuple[ContainerRun, ...]]


_NO_PAST = _Past({}, {})


def _past(sink: Sink, entity: str | None = None) -> _Past:
    """Return the past of all runs, or of those of one ``entity``."""
    values = {"entity": entity} if entity else None
    befell: dict[str, list[Transition]] = defaultdict(list)
    for row in sink.look_up(_TRANSITIONS_OF if entity else _TRANSITIONS, values):
        befell[row["run"]].append(transition_of(row))
    restarts: dict[str, list[ContainerRun]] = defaultdict(list)
    for row in sink.look_up(_RESTARTS_OF if entity else _RESTARTS, values):
        restarts[row["run"]].append(container_run_of(row, row["life"].rpartition("/")[2]))
    return _Past(
        {run: tuple(sorted(each, key=lambda one: one.key)) for run, each in befell.items()},
        {run: remembered(tuple(each), ()) for run, each in restarts.items()},
    )


def _all_runs(sink: Sink) -> Iterator[tuple[str, Run]]:
    """Yield every run with the IRI of its entity, which a run's own begins with.

    Predicate by predicate: an engine looks up each optional value of each row by itself, in four times the time.
    """
    past = _past(sink)
    values = {name: _scanned(sink, predicate) for name, predicate in _RUN_VALUES.items()}
    for run, start in _scanned(sink, f"{_PROV}startedAtTime").items():
        row = {name: found[run] for name, found in values.items() if run in found}
        yield run.rpartition(_RUN)[0], _run_of(run, row | {"start": start}, past)


def _scanned(sink: Sink, predicate: str) -> dict[str, str]:
    return {row["entity"]: row["value"] for row in sink.look_up(_LINKS.format(predicate=predicate))}


def _run_of(run: str, row: Row, past: _Past) -> Run:
    outcome = row.get("outcome")
    return Run(
        unquote(run.rpartition(_RUN)[2]),
        row["start"],
        row.get("end"),
        outcome.removeprefix(NAMESPACE) if outcome else None,
        row.get("estimated") in ("true", "1"),
        row.get("node"),
        row.get("observed"),
        past.befell.get(run, ()),
        past.restarts.get(run, ()),
    )


def _grouped(pairs: Iterable[tuple[str, str]]) -> Mapping[str, list[str]]:
    found: dict[str, list[str]] = defaultdict(list)
    for entity, value in pairs:
        found[entity].append(value)
    return dict(found)
