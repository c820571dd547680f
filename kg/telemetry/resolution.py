"""What resolving gives: a runnable query with everything that is needed to run it, and to read what comes back."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Literal, NamedTuple, Self

from drumlin.kg.errors import DrumlinError
from drumlin.kg.telemetry import curl, dialects, logql, signals
from drumlin.kg.telemetry.asking import MAX_PODS, QueryPart, QueryTemplate
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.durations import iso_duration, parse_duration
from drumlin.kg.telemetry.fetch.loki import PAGE
from drumlin.kg.telemetry.fetch.loki import RANGE_PATH as LOKI_RANGE_PATH
from drumlin.kg.telemetry.graph import Entity, StoredMetric
from drumlin.kg.telemetry.quoting import any_of
from drumlin.kg.telemetry.series import MAX_POINTS, Grid, Window
from drumlin.kg.telemetry.templates import Template

SelectorKind = Literal[
    "exact", "pattern", "mixed", "node", "namespace", "all", "nodes", "namespaces", "stored", "machine", "service"
]
"""What picks the series: the names of the pods that ran, the pattern of pods' names, one after the other (``intervals``), the node's or
namespace's name, nothing (all nodes), a domain's nodes or namespaces, a stored query, the machine's name, the service's name."""

CUSTOM = "promql"
"""Name of the metric that a caller's own PromQL makes."""


class Interval(NamedTuple):
    """The points from ``start`` to ``end``, both included, and what picks their series."""

    selector: SelectorKind
    start: datetime
    end: datetime

    def to_dict(self) -> dict[str, str]:
        """Return it as JSON has it."""
        return {"selector": self.selector, "start": iso(self.start), "end": iso(self.end)}


@dataclass(frozen=True, slots=True)
class Resolution:
    """A runnable query. For logs ``metric`` is ``logs`` and ``unit`` is ``1``.

    ``query`` covers ``start`` to ``end`` every ``step`` at ``endpoint``; ``pods`` are the names it asks for (none for a
    pattern). When one query cannot name all pods, or not all that ran are known, ``parts`` are the queries for one span after the other,
    and ``query`` is the first of them; ``intervals`` say which selector picks the series when. ``question`` asks the same for other spans.
    ``asked`` are the queries that history asks instead, as JSON brought them; where there is a ``question``, that makes them.
    ``links`` are pages that show the entity in the window, by datasource.
    ``fetchable``: the service itself may fetch it, because the datasource is configured.
    """

    entity: str
    metric: str
    unit: str
    quantity: str
    metric_type: str
    datasource: str
    datasource_iri: str
    endpoint: str
    query: str
    start: datetime
    end: datetime
    step: timedelta
    pods: tuple[str, ...]
    selector: SelectorKind
    curl: str
    fetchable: bool
    warnings: tuple[str, ...] = ()
    links: Mapping[str, str] = field(default_factory=dict)
    intervals: tuple[Interval, ...] = ()
    parts: tuple[QueryPart, ...] = field(default=(), repr=False)
    asked: tuple[QueryPart, ...] = field(default=(), repr=False, compare=False)
    question: QueryTemplate | None = field(default=None, repr=False, compare=False)

    @classmethod
    def from_dict(cls, said: Mapping[str, Any]) -> Self:
        """Read what ``to_dict`` wrote."""
        step = parse_duration(said["step"])

        def grid(span: Mapping[str, str]) -> Grid:
            first, last = (int(datetime.fromisoformat(span[name]).timestamp()) for name in ("start", "end"))
            return Grid(first, last, int(step.total_seconds()))

        return cls(
            entity=said["entity"],
            metric=said["metric"],
            unit=said["unit"],
            quantity=said["quantity"],
            metric_type=said["metricType"],
            datasource=said["datasource"],
            datasource_iri=said["accessService"],
            endpoint=said["endpoint"],
            query=said["query"],
            start=datetime.fromisoformat(said["start"]),
            end=datetime.fromisoformat(said["end"]),
            step=step,
            pods=tuple(said["pods"]),
            selector=said["selector"],
            curl=said["curl"],
            fetchable=said["fetchable"],
            warnings=tuple(said["warnings"]),
            links=said.get("links", {}),
            intervals=tuple(
                Interval(each["selector"], *(datetime.fromisoformat(each[name]) for name in ("start", "end")))
                for each in said.get("intervals", ())
            ),
            parts=tuple(
                QueryPart(grid(part), part["query"], (), "pattern" if part.get("selector") == "pattern" else "exact")
                for part in said.get("parts", [said])
            ),
            asked=tuple(QueryPart(grid(part), part["query"], ()) for part in said.get("asked", ())),
        )

    def parts_of(self, grid: Grid) -> tuple[QueryPart, ...]:
        """Return the queries for a part of the window's grid."""
        return self.parts if grid == self._grid or self.question is None else tuple(self.question.parts(grid))

    @property
    def _grid(self) -> Grid:
        return Grid(int(self.start.timestamp()), int(self.end.timestamp()), int(self.step.total_seconds()))

    def asked_for(self, grid: Grid) -> tuple[QueryPart, ...]:
        """Return the queries that history asks for a part of the window's grid: precise where that matters, without pods that ended."""
        if self.question is None:
            return self.asked or self.parts
        return tuple(chain.from_iterable(map(self.question.refined, self.parts_of(grid))))

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it: keys as the context writes them, times in ISO 8601 UTC, the step as an ISO 8601 duration."""
        found: dict[str, Any] = {
            "entity": self.entity,
            "metric": self.metric,
            "unit": self.unit,
            "quantity": self.quantity,
            "metricType": self.metric_type,
            "datasource": self.datasource,
            "accessService": self.datasource_iri,
            "endpoint": self.endpoint,
            "query": self.query,
            "start": iso(self.start),
            "end": iso(self.end),
            "step": iso_duration(self.step),
            "pods": list(self.pods),
            "selector": self.selector,
            "intervals": [each.to_dict() for each in self.intervals],
            "curl": self.curl,
            "fetchable": self.fetchable,
            "warnings": list(self.warnings),
        }
        if self.question and (asked := self.asked_for(self._grid)) != self.parts:
            found["asked"] = [
                {"query": part.query, **dict(zip(("start", "end"), map(iso, part.grid.window), strict=True))}
                for part in asked
            ]
        if self.links:
            found["links"] = dict(self.links)
        if len(self.parts) > 1:
            found["parts"] = [
                {
                    "query": part.query,
                    "selector": part.selector,
                    **dict(zip(("start", "end"), map(iso, part.grid.window), strict=True)),
                }
                for part in self.parts
            ]
        return found


@dataclass(frozen=True, slots=True)
class Unresolved:
    """One of many that could not be resolved, and why."""

    entity: str
    metric: str
    error: DrumlinError


def metric_resolution(
    entity: Entity,
    metric: Template | StoredMetric,
    server: Datasource,
    question: QueryTemplate,
    grid: Grid,
    how: SelectorKind,
    warnings: tuple[str, ...],
) -> Resolution:
    """Put a question for a grid."""
    start, end = grid.window
    parts = tuple(question.parts(grid)) or (_all_pods(question, grid),)
    intervals: tuple[Interval, ...] = (Interval(how, start, end),)
    if question.runs is not None and how != "stored":
        intervals = tuple(Interval(selector, *span.window) for selector, span in question.intervals(grid))
        selectors = {each.selector for each in intervals}
        how = selectors.pop() if len(selectors) == 1 else "mixed"
    if question.crowded(grid):
        warnings += (
            f"more than {MAX_PODS:,} pods of it ran at one time, so the pattern of its pods' names is asked for",
        )
    named = [part for part in parts if part.pods]
    if len(named) > sum(each.selector == "exact" for each in intervals):
        warnings += (f"one query cannot name all {len({n for p in named for n in p.pods}):,} pods: {len(named)} do",)
    if any(part.grid.points > MAX_POINTS for part in parts):
        warnings += (
            f"{grid.points:,} points are more than one query may ask for ({MAX_POINTS:,}); history asks in parts",
        )
    first = parts[0]
    return Resolution(
        entity=entity.iri,
        metric=metric.metric if isinstance(metric, Template) else metric.name,
        unit=metric.unit,
        quantity=metric.quantity,
        metric_type=metric.metric_type,
        datasource=server.name,
        datasource_iri=server.iri,
        endpoint=dialects.endpoint(server),
        query=first.query,
        start=start,
        end=end,
        step=timedelta(seconds=grid.step),
        pods=first.pods if len(parts) == 1 else tuple(sorted({name for part in parts for name in part.pods})),
        selector=how,
        curl=dialects.command(server, first.query, first.grid),
        fetchable=server.access is not None,
        warnings=warnings,
        intervals=intervals,
        parts=parts,
        question=question,
    )


def log_resolution(
    entity: Entity,
    server: Datasource,
    query: str,
    window: Window,
    names: tuple[str, ...],
    how: SelectorKind,
    warnings: tuple[str, ...],
) -> Resolution:
    """Put a query for log lines."""
    first, last = logql.nanoseconds(window.start), logql.nanoseconds(window.end)
    form = {"query": query, "start": first, "end": last, "limit": str(PAGE), "direction": "forward"}
    return Resolution(
        entity=entity.iri,
        metric="logs",
        unit="1",
        quantity="",
        metric_type="",
        datasource=server.name,
        datasource_iri=server.iri,
        endpoint=server.url + LOKI_RANGE_PATH,
        query=query,
        start=window.start.astimezone(UTC),
        end=window.end.astimezone(UTC),
        step=timedelta(0),
        pods=names,
        selector=how,
        curl=curl.command(server, LOKI_RANGE_PATH, form),
        fetchable=server.access is not None,
        warnings=warnings,
        intervals=(Interval(how, window.start.astimezone(UTC), window.end.astimezone(UTC)),),
    )


def service_resolution(entity: Entity, signal: str, server: Datasource, window: Window) -> Resolution:
    """Put a query for the traces or profiles of a service."""
    sent = signals.request(server.kind, entity.name, window)
    start, end = window.start.astimezone(UTC), window.end.astimezone(UTC)
    return Resolution(
        entity=entity.iri,
        metric=signal,
        unit="1",
        quantity="",
        metric_type="",
        datasource=server.name,
        datasource_iri=server.iri,
        endpoint=server.url + sent.path,
        query=signals.query(server.kind, entity.name),
        start=start,
        end=end,
        step=timedelta(0),
        pods=(),
        selector="service",
        curl=curl.command(server, sent.path, sent.form, get=True),
        fetchable=False,
        intervals=(Interval("service", start, end),),
    )


def _all_pods(question: QueryTemplate, grid: Grid) -> QueryPart:
    """Return the query for all pods that are known, for a grid so short that none of them ran just then."""
    names = tuple(sorted({run.name for run in question.runs or ()}))
    return QueryPart(grid, question.write(any_of(names)), names)


def step_warnings(template: Template, step: timedelta, span: timedelta, server: Datasource) -> tuple[str, ...]:
    """Return what a step does that misleads: points that repeat, ranges that overlap."""
    found: tuple[str, ...] = ()
    if step < server.scrape_interval and server.kind != "loki":  # which nothing scrapes
        found += (f"the step is shorter than {server.name}'s scrape interval, so points repeat",)
    if span > step and "increase(" in template.query:
        found += (
            f"each point is a step's share of {span.total_seconds():g} s, since the step is shorter than four scrapes",
        )
    elif span > step and template.adds_up:
        found += (f"each point covers {span.total_seconds():g} s, more than the step: adding points up counts twice",)
    return found


def iso(at: datetime) -> str:
    """Write a time of UTC with a Z."""
    return at.isoformat().replace("+00:00", "Z")
