"""The page of one entity: what it is, how it is doing, what it is linked to, when it ran, what is measured of it.

It is made of what ``/subgraph/{id}``, ``/resolve`` and the saved queries return. Series and log lines are parts of their own, which a
browser fetches when they come into view.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

from drumlin.api.bootstrap import Services, now
from drumlin.api.pages import results
from drumlin.api.pages.drawing import GraphDrawing, Neighbour, draw
from drumlin.api.pages.timelines import RanRun, Timeline, timeline
from drumlin.api.pages.values import (
    ShownValue,
    entities_in,
    listed,
    shown,
    shown_binding,
    shown_iri,
    state_of_phase,
    term_of,
)
from drumlin.api.pages.wording import moment, name_of
from drumlin.api.pages.workflow import WorkflowView, plan_of
from drumlin.kg import rdf
from drumlin.kg.errors import InvalidInput, ResourceNotFound
from drumlin.kg.graphs.entities import EntityGraph
from drumlin.kg.graphs.neighbourhood import Traversal
from drumlin.kg.rdf import jsonld
from drumlin.kg.search.facets import FIELDS
from drumlin.kg.search.query import SearchQuery
from drumlin.ontology.vocabulary import WORKLOAD_KINDS
from drumlin.queries.catalogue import QueryCatalogue

MAX_RUNS = 60
"""Runs of one timeline."""
_NOT_DRAWN = frozenset({"telemetry"})  # how it is measured is shown below
_APART = frozenset({"@context", "id", "type", "name", "runs", "telemetry", "notes"})


@dataclass(frozen=True, slots=True)
class Fact:
    """What the graph says by one property."""

    term: str
    values: tuple[ShownValue, ...]


@dataclass(frozen=True, slots=True)
class PartTable:
    """Parts of one sort (containers, conditions) as a table."""

    term: str
    columns: tuple[str, ...]
    rows: tuple[tuple[tuple[ShownValue, ...], ...], ...]


@dataclass(frozen=True, slots=True)
class LinkedEntity:
    """An entity at the other end of a link."""

    what: ShownValue
    type: str
    phase: str
    state: str


@dataclass(frozen=True, slots=True)
class Relation:
    """The entities that one property leads to, or that lead here by it."""

    term: str
    entities: tuple[LinkedEntity, ...]

    @property
    def drawn(self) -> bool:
        """Whether it is part of the picture of the neighbourhood."""
        return self.term not in _NOT_DRAWN


@dataclass(frozen=True, slots=True)
class MetricCard:
    """A metric whose series is shown when it comes into view."""

    name: str
    unit: str
    entity: str


@dataclass(frozen=True, slots=True)
class DashboardLink:
    """A page elsewhere that shows a signal of an entity: the datasource that it belongs to, and its address."""

    name: str
    signal: str
    url: str


@dataclass(frozen=True, slots=True)
class EntityView:
    """Everything that the page of an entity shows at once."""

    short: str
    iri: str
    name: str
    type: str
    phase: str
    state: str
    gone: str
    owner: str
    facts: tuple[Fact, ...]
    parts: tuple[PartTable, ...]
    leads_to: tuple[Relation, ...]
    leads_here: tuple[Relation, ...]
    left_out: int
    runs: Timeline | None
    more_runs: bool
    metrics: tuple[MetricCard, ...]
    dashboards: tuple[DashboardLink, ...]
    logs: bool
    notes: bool
    place: tuple[ShownValue, ...]
    inside: tuple[tuple[str, int], ...]
    inside_by: tuple[str, str] | None
    deferred: bool
    plan: WorkflowView | None

    @property
    def runs_query(self) -> str:
        """The saved query that finds all runs."""
        return "runs-on-node" if self.type == "Node" else "runs-of-workload"

    graph: GraphDrawing | None

    @property
    def formats(self) -> tuple[tuple[str, str], ...]:
        """The syntaxes in which its data can be had, and their suffixes."""
        return tuple((each.name, each.suffix) for each in rdf.SYNTAXES)

    @property
    def sparql(self) -> str:
        """A query for everything that the graph says about it."""
        return f"SELECT ?property ?value WHERE {{\n  <{self.iri}> ?property ?value\n}}"

    @property
    def curl(self) -> str:
        """A command line that fetches its data."""
        address = self.iri.replace("/id/", "/doc/", 1)
        return f"curl -sS --fail-with-body -H 'Accept: application/ld+json' '{address}'"


def view(service: Services, catalogue: QueryCatalogue, id: str, *, whole: bool = False) -> EntityView:
    """Collect what is shown of an entity, also of one that is gone; raises what reading a subgraph raises.

    What leads to an entity that holds others, and what runs on it, can be thousands: it is ``deferred``, unless ``whole``.
    """
    graph = service.subgraphs.read(id, allow_gone=True)
    short, document = service.iris.short(graph.iri), _own(graph)
    kind = str(next(iter(listed(document.get("type", ""))), ""))
    former = _word(document.get("formerType", "")) if graph.tombstone else ""
    phase = _word(document.get("phase", ""))
    deferred = kind in _HOLDS and not whole
    runs, more = ([], False) if deferred else _runs(service, catalogue, graph.iri, former or kind, document)
    leads_to, leads_here, left_out = _links(service, graph, document, incoming=not deferred)
    name = str(document.get("name") or name_of(short))
    plan = plan_of(service, catalogue, graph.iri, graph.lines, kind) if kind in ("Workflow", "Task") else None
    apart = _APART | {"hasPart"} if plan else _APART
    inside_by = (_HOLDS[kind], name_of(short)) if kind in _HOLDS else None
    return EntityView(
        short=short,
        iri=graph.iri,
        name=name,
        type=former or kind,
        phase=phase,
        state=state_of_phase(phase),
        gone=str(document.get("invalidatedAt", "")) if graph.tombstone else "",
        owner=graph.owner,
        facts=tuple(_facts(service, document, apart)),
        parts=tuple(_parts(service, document, apart)),
        leads_to=leads_to,
        leads_here=leads_here,
        left_out=left_out,
        runs=timeline(runs, now()),
        more_runs=more,
        metrics=() if graph.tombstone else tuple(_metrics(service, short, document)) or _forecast_of(service, document),
        dashboards=tuple(_dashboards(document)),
        logs=not graph.tombstone and _has_logs(former or kind),
        notes=not short.startswith("notes/") and service.subgraphs.has_notes(graph.iri),
        place=tuple(_place(service, document)),
        inside=_inside(service, inside_by),
        inside_by=inside_by,
        deferred=deferred,
        plan=plan,
        graph=draw(name, _neighbours(leads_here), _neighbours(leads_to)),
    )


@dataclass(frozen=True, slots=True)
class PastView:
    """An entity as it was after a generation, which was written ``at`` a time: what its graph said, without what was around it."""

    short: str
    name: str
    type: str
    phase: str
    state: str
    gone: str
    owner: str
    generation: int
    at: str
    facts: tuple[Fact, ...]
    parts: tuple[PartTable, ...]
    place: tuple[ShownValue, ...]

    @property
    def formats(self) -> tuple[tuple[str, str], ...]:
        """The syntaxes in which its data can be had, and their suffixes."""
        return tuple((each.name, each.suffix) for each in rdf.SYNTAXES)


def past_view(service: Services, id: str, generation: int) -> PastView:
    """Collect what is shown of an entity as it was after a generation; raises what ``EntityGraphs.read_at`` raises."""
    graph = service.subgraphs.read_at(id, generation, allow_gone=True)
    short, document = service.iris.short(graph.iri), _own(graph)
    kind = str(next(iter(listed(document.get("type", ""))), ""))
    phase = _word(document.get("phase", ""))
    return PastView(
        short=short,
        name=str(document.get("name") or name_of(short)),
        type=_word(document.get("formerType", "")) if graph.tombstone else kind,
        phase=phase,
        state=state_of_phase(phase),
        gone=str(document.get("invalidatedAt", "")) if graph.tombstone else "",
        owner=graph.owner,
        generation=generation,
        at=moment(graph.stored.entry.changed),
        facts=tuple(_facts(service, document)),
        parts=tuple(_parts(service, document)),
        place=tuple(_place(service, document)),
    )


def _neighbours(relations: Sequence[Relation]) -> list[Neighbour]:
    return [Neighbour(each.term, one.what, one.state) for each in relations if each.drawn for one in each.entities]


def _own(graph: EntityGraph) -> Mapping[str, Any]:
    """Return the node of the entity itself: a graph may describe others beside it."""
    document = jsonld.compact(graph.lines, graph.iri)
    nodes: Sequence[Mapping[str, Any]] = document.get("@graph", [document])
    return next((each for each in nodes if each.get("id") == graph.iri), nodes[0] if nodes else {})


def _word(value: Any) -> str:
    return str(next(iter(listed(value)), "")).rpartition("#")[2]


def _place(service: Services, document: Mapping[str, Any]) -> Iterator[ShownValue]:
    """Yield where the entity stands: its domain, its cluster, its namespace."""
    for term in ("domain", "cluster"):
        if isinstance(iri := document.get(term), str):
            yield shown_iri(iri, service.iris)
    if isinstance(above := document.get("partOf"), str) and "/namespace/" in above:
        yield shown_iri(above, service.iris)


def _facts(service: Services, document: Mapping[str, Any], apart: frozenset[str] = _APART) -> Iterator[Fact]:
    for term, value in document.items():
        plain = [each for each in listed(value) if not _is_part(each)]
        if term not in apart and plain:
            yield Fact(term, tuple(shown(term, each, service.iris) for each in plain))


def _is_part(value: Any) -> bool:
    """Return whether a value is a thing of its own that is described in place."""
    return isinstance(value, dict) and bool(value.keys() - {"id", "@id", "@value", "@type", "@language"})


def _parts(service: Services, document: Mapping[str, Any], apart: frozenset[str] = _APART) -> Iterator[PartTable]:
    for term, value in document.items():
        parts = [each for each in listed(value) if _is_part(each)]
        if term in apart or not parts:
            continue
        names = dict.fromkeys(key for each in parts for key in each if key not in ("id", "@id", "type"))
        rows = tuple(
            tuple(tuple(shown(key, one, service.iris) for one in listed(each.get(key, []))) for key in names)
            for each in parts
        )
        yield PartTable(term, tuple(names), rows)


def _metrics(service: Services, short: str, document: Mapping[str, Any]) -> Iterator[MetricCard]:
    units = {
        str(part["name"]): str(part.get("unit", ""))
        for telemetry in listed(document.get("telemetry", []))
        if isinstance(telemetry, dict)
        for part in listed(telemetry.get("hasPart", []))
        if isinstance(part, dict) and "name" in part
    }
    try:
        names = service.resolver.metrics_of(short)
    except (InvalidInput, ResourceNotFound):
        return  # an entity of a class that nothing is measured of
    yield from (MetricCard(name, units.get(name, ""), short) for name in names)


def _dashboards(document: Mapping[str, Any]) -> Iterator[DashboardLink]:
    for telemetry in listed(document.get("telemetry", [])):
        signal = _word(telemetry.get("signal", "")) if isinstance(telemetry, dict) else ""
        for each in listed(telemetry.get("dashboard", [])) if signal else []:
            url = str(each.get("url", ""))
            if url.startswith(("https://", "http://")):
                yield DashboardLink(name_of(str(each.get("id", ""))).removesuffix(f".{signal}"), signal, url)


def _forecast_of(service: Services, document: Mapping[str, Any]) -> tuple[MetricCard, ...]:
    """Return the metric that a forecast is of: it is shown against what was measured."""
    metric = document.get("derivedFrom")
    if not isinstance(metric, str) or "/metric/" not in metric:
        return ()
    return (MetricCard(name_of(metric), "", service.iris.short(service.iris.entity(metric))),)


_HOLDS = {
    "Domain": "domain",
    "GlaciationNode": "domain",
    "Cluster": "cluster",
    "Namespace": "namespace",
    "Node": "node",
}
"""Classes whose entities hold others, and the facet that names them."""


def _inside(service: Services, by: tuple[str, str] | None) -> tuple[tuple[str, int], ...]:
    """Count what is in a domain, a cluster, a namespace or on a node, by class."""
    if by is None:
        return ()
    field, name = by
    found = service.search.find(SearchQuery(filters={field: [name]}, limit=1, facets=("type",)))
    return tuple(found.facets["type"].items())


def _has_logs(kind: str) -> bool:
    return kind in WORKLOAD_KINDS


# -- links ----------------------------------------------------------------------------------------------------------------


def _links(
    service: Services, graph: EntityGraph, document: Mapping[str, Any], *, incoming: bool
) -> tuple[tuple[Relation, ...], tuple[Relation, ...], int]:
    """Return the links out, the links in, and how many entities around are not shown."""
    out: dict[str, dict[str, None]] = {}
    for term, value in document.items():
        if term not in ("@context", "id", "notes"):
            for iri in entities_in(value, service.iris):
                if not iri.startswith(f"{graph.iri}/") and iri != graph.iri:
                    out.setdefault(term, {})[iri] = None
    into: dict[str, dict[str, None]] = {}
    left_out = 0
    if incoming and not graph.tombstone:
        around = service.subgraphs.around(graph.iri, Traversal(1, incoming=True))
        left_out = around.left_out
        needle = f" <{graph.iri}> ."
        for each in around.graphs[1:]:
            for line in each.lines:
                if line.endswith(needle):
                    _, predicate, _ = rdf.terms(line)
                    into.setdefault(term_of(predicate.value), {})[each.entry.graph] = None
    known = service.search.index.known([iri for group in (*out.values(), *into.values()) for iri in group])
    facets = {iri: each.facets for iri, each in known.items()}

    def related(groups: Mapping[str, Mapping[str, None]]) -> tuple[Relation, ...]:
        return tuple(
            Relation(term, tuple(_linked(service, iri, facets.get(iri)) for iri in iris))
            for term, iris in groups.items()
        )

    return related(out), related(into), left_out


_TYPE, _PHASE = FIELDS.index("type"), FIELDS.index("phase")


def _linked(service: Services, iri: str, facets: Sequence[Sequence[str]] | None) -> LinkedEntity:
    kind, phase = ("", "") if facets is None else (next(iter(facets[place]), "") for place in (_TYPE, _PHASE))
    return LinkedEntity(shown_iri(iri, service.iris), kind, phase, state_of_phase(phase))


# -- runs -----------------------------------------------------------------------------------------------------------------


def _runs(
    service: Services, catalogue: QueryCatalogue, iri: str, kind: str, document: Mapping[str, Any]
) -> tuple[list[RanRun], bool]:
    """Return the runs to show: those on a node, those of a workload's pods, else the entity's own."""
    if kind == "Node":
        rows, more = results.saved(service, catalogue, "runs-on-node", {"node": iri}, MAX_RUNS)
        return [run for row in rows if (run := _ran(service, row))], more
    if kind in WORKLOAD_KINDS and kind != "Pod":
        rows, more = results.saved(service, catalogue, "runs-of-workload", {"workload": iri}, MAX_RUNS)
        if rows:
            return [run for row in rows if (run := _ran(service, row))], more
    own = [run for each in listed(document.get("runs", [])) if (run := _own_run(service, iri, each))]
    return own[:MAX_RUNS], len(own) > MAX_RUNS


def _ran(service: Services, row: Mapping[str, Any]) -> RanRun | None:
    if (started := _time(row.get("start", {}).get("value"))) is None:
        return None
    outcome = row.get("outcome", {}).get("value", "").rpartition("#")[2]
    where = shown_binding(row["node"], service.iris) if "node" in row else None
    return RanRun(
        shown_binding(row["pod"], service.iris), where, started, _time(row.get("end", {}).get("value")), outcome
    )


def _own_run(service: Services, iri: str, run: Any) -> RanRun | None:
    if not isinstance(run, dict) or (started := _time(run.get("startedAt"))) is None:
        return None
    where = run.get("scheduledOn")
    uid = name_of(str(run.get("id", "")))
    what = ShownValue(uid, shown_iri(iri, service.iris).href)
    place = shown_iri(where, service.iris) if isinstance(where, str) else None
    return RanRun(what, place, started, _time(run.get("endedAt")), _word(run.get("outcome", "")))


def _time(text: Any) -> datetime | None:
    try:
        found = datetime.fromisoformat(text)
    except (TypeError, ValueError):
        return None
    return found if found.tzinfo is not None else None
