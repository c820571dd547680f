"""How a domain and a node are doing: what is in the graph, and, as parts of their own, what a look at the telemetry shows."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from drumlin.api.bootstrap import Services
from drumlin.api.pages import results
from drumlin.api.pages.values import ShownValue, shown_binding, state_of_phase
from drumlin.api.pages.wording import name_of, number, percent, span
from drumlin.kg.graphs.entities import EntityGraph
from drumlin.kg.rdf import jsonld
from drumlin.kg.sparql.results import Row
from drumlin.queries.catalogue import QueryCatalogue

MAX_ROUTES = 60
"""Routes of one domain that are shown."""
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_QUALITIES = ("rtt", "error_rate")
_TIGHT = 0.9  # share of what a node can give that may be reserved or used before it is worth a look


@dataclass(frozen=True, slots=True)
class CountedState:
    """How many are in a state; ``href`` leads to them, relative to the root, where there is a search for them."""

    phase: str
    state: str
    count: int
    href: str


@dataclass(frozen=True, slots=True)
class RouteRow:
    """A route of a domain: where it leads or comes from, how it is, and how many of its endpoints are healthy."""

    what: ShownValue
    peer: ShownValue
    outgoing: bool
    phase: str
    state: str
    healthy: str


@dataclass(frozen=True, slots=True)
class DomainBoard:
    """Machines and tasks of a domain by state, its routes, and what it has granted."""

    short: str
    nodes: tuple[CountedState, ...]
    tasks: tuple[CountedState, ...]
    routes: tuple[RouteRow, ...]
    more_routes: bool
    grants: results.ResultTable


@dataclass(frozen=True, slots=True)
class QualityRow:
    """What is measured of a route now; what is missing has its reason as a title."""

    what: ShownValue
    values: tuple[ShownValue, ...]


@dataclass(frozen=True, slots=True)
class UsageRow:
    """What a node has of a resource, can give, has given and uses; widths are of 1,000."""

    of: str
    capacity: str
    allocatable: str
    reserved: str
    reserved_share: str
    reserved_width: int
    reserved_state: str
    used: str
    used_share: str
    used_width: int
    used_state: str
    age: str


def board_of(service: Services, catalogue: QueryCatalogue, iri: str) -> DomainBoard:
    """Return the board of a domain: the saved queries ``domain-board`` and ``grants-of``, for it alone."""
    own = _board(service, catalogue, "domain", iri)
    coming = [row for row in _board(service, catalogue, "peer", iri) if "route" in row]
    routes = [*_routes(service, own, outgoing=True), *_routes(service, coming, outgoing=False)]
    short = service.iris.short(iri)
    address = f"search?type=Node&domain={name_of(short)}&phase="
    grants = catalogue.get("grants-of").bound({"domain": iri}, service.iris)
    return DomainBoard(
        short,
        tuple(_counted(own, "nodes", address)),
        tuple(_counted(own, "tasks", "")),
        tuple(routes[:MAX_ROUTES]),
        len(routes) > MAX_ROUTES,
        results.table_of(service, results.gated(service, grants), 100),
    )


def _board(service: Services, catalogue: QueryCatalogue, name: str, iri: str) -> list[Row]:
    text = catalogue.get("domain-board").bound({}, service.iris)
    query = results.gated(service, f"{text}\nVALUES ?{name} {{ <{iri}> }}")
    return results.bindings_of(service, query, results.MAX_ROWS)[1]


def _counted(rows: Iterable[Row], topic: str, address: str) -> Iterator[CountedState]:
    for row in rows:
        if row["topic"]["value"] == topic and "state" in row:
            phase = row["state"]["value"].rpartition("#")[2]
            yield CountedState(phase, state_of_phase(phase), int(row["count"]["value"]), address and address + phase)


def _routes(service: Services, rows: Iterable[Row], *, outgoing: bool) -> Iterator[RouteRow]:
    for row in rows:
        if "route" in row:
            phase = row["state"]["value"].rpartition("#")[2]
            yield RouteRow(
                shown_binding(row["route"], service.iris),
                shown_binding(row["peer" if outgoing else "domain"], service.iris),
                outgoing,
                phase,
                state_of_phase(phase),
                row.get("count", {}).get("value", ""),
            )


def is_node(graph: EntityGraph) -> bool:
    """Return whether an entity is a node."""
    return f"<{graph.iri}> <{_TYPE}> <{jsonld.NAMESPACE}Node> ." in graph.stored


def quality_of(service: Services, catalogue: QueryCatalogue, iri: str) -> tuple[QualityRow, ...]:
    """Return what is measured now of the routes of a domain: round-trip time and share of failed requests."""
    routes = [each for each in board_of(service, catalogue, iri).routes if each.outgoing]
    if not routes:
        return ()
    found = service.values.fetch([each.what.title for each in routes], _QUALITIES)
    known = {(each.key.unique_id, each.key.metric): each for each in found.values}
    why = {(key.unique_id, key.metric): str(error) for key, error in found.missing}

    def value(route: str, metric: str) -> ShownValue:
        if (held := known.get((route, metric))) is None:
            return ShownValue("–", title=why.get((route, metric), ""))
        return ShownValue(number(held.value, held.unit), f"history?entity={route}&metric={metric}", metric)

    return tuple(QualityRow(each.what, tuple(value(each.what.title, name) for name in _QUALITIES)) for each in routes)


def usage_of(service: Services, catalogue: QueryCatalogue, iri: str) -> tuple[tuple[UsageRow, ...], tuple[str, ...]]:
    """Return what a node has, can give, has given and uses of CPU and memory, and why something of it is not known."""
    rows, _ = results.saved(service, catalogue, "requests-on-node", {"node": iri}, 1)
    reserved: Row = rows[0] if rows else {}
    stated = jsonld.compact(service.subgraphs.read(iri).lines, iri)
    found = service.values.fetch([service.iris.short(iri)], ("cpu_usage", "mem_usage"))
    used = {each.key.metric: each for each in found.values}
    made = []
    for of, metric, unit in (("cpu", "cpu_usage", "{cpu}"), ("memory", "mem_usage", "By")):
        has, gives = (_number(stated.get(name)) for name in (f"{of}Capacity", f"{of}Allocatable"))
        given = _number(reserved.get(of, {}).get("value"))
        now = used.get(metric)
        by_reserved, by_used = _share(given, gives), _share(now.value if now else None, has or gives)
        made.append(
            UsageRow(
                of,
                number(has, unit),
                number(gives, unit),
                number(given, unit),
                *_bar(by_reserved),
                number(now.value if now else None, unit),
                *_bar(by_used),
                span(now.age) if now else "",
            )
        )
    return tuple(made), tuple(dict.fromkeys(str(error) for _, error in found.missing))


def _number(text: Any) -> float | None:
    return None if text in (None, "") else float(text)


def _share(part: float | None, whole: float | None) -> float | None:
    return None if part is None or not whole else part / whole


def _bar(share: float | None) -> tuple[str, int, str]:
    """Return a share as text, as a width of 1,000, and how it is to be coloured."""
    if share is None:
        return "–", 0, "over"
    state = "bad" if share > 1 else "waiting" if share > _TIGHT else "good"
    return percent(share), min(round(share * 1000), 1000), state
