"""Resolve: an entity, a metric and a window → the exact query, where to send it, and how.

For a workload the query names the pods that ran in the window, as the graph's runs know them, the deleted ones too: no label
or recording rule of the server has to know whose they were. Blocking, thread-safe, and nothing is fetched here.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from itertools import chain
from typing import Any, Literal

from kg.errors import ResourceNotFound
from kg.iris import Iris
from kg.store.protocol import Store
from kg.telemetry import curl, logql, promql
from kg.telemetry.datasources import DEFAULT_SCRAPE_INTERVAL, Datasource
from kg.telemetry.describe import Subject, pod_names
from kg.telemetry.durations import iso_duration
from kg.telemetry.fetch.prometheus import RANGE_PATH
from kg.telemetry.graph import MAX_PODS, Entity, StoredMetric, TelemetryGraph
from kg.telemetry.quoting import any_of, literally
from kg.telemetry.series import MAX_POINTS, Grid, Step, Window, choose_step, rate_window
from kg.telemetry.templates import Catalogue, Template, did_you_mean

LOKI_RANGE_PATH = "/loki/api/v1/query_range"
_LOKI_LIMIT = "5000"  # lines; Loki's own default maximum

How = Literal["runs", "pattern", "node", "all", "stored"]
"""What picks the series: pods the runs know, the pattern of pods' names, the node's name, nothing (all nodes), a stored query."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """A runnable query. For logs ``metric`` is ``logs`` and ``unit`` is ``1``.

    ``query`` covers ``start`` to ``end`` every ``step`` at ``endpoint``; ``pods`` are the names it asks for (none for a
    pattern). ``fetchable``: the service itself may fetch it, because the datasource is configured.
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
    selector: How
    curl: str
    fetchable: bool
    warnings: tuple[str, ...] = ()

    def to_dict(self) -> dict[str, Any]:
        """Return it as JSON has it: keys as the context writes them, times in ISO 8601 UTC, the step as an ISO 8601 duration."""
        return {
            "entity": self.entity,
            "metric": self.metric,
            "unit": self.unit,
            "quantity": self.quantity,
            "metricType": self.metric_type,
            "datasource": self.datasource,
            "accessService": self.datasource_iri,
            "endpoint": self.endpoint,
            "query": self.query,
            "start": _iso(self.start),
            "end": _iso(self.end),
            "step": iso_duration(self.step),
            "pods": list(self.pods),
            "selector": self.selector,
            "curl": self.curl,
            "fetchable": self.fetchable,
            "warnings": list(self.warnings),
        }


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Which pods are asked for: a regular expression, the names in it, how they were found and what to know about it."""

    pattern: str | None
    names: tuple[str, ...]
    how: How
    warnings: tuple[str, ...] = ()


class Resolver:
    """Resolves entities of one store. ``datasources`` are the configured ones; those of the graph are found there."""

    def __init__(
        self, store: Store, iris: Iris, datasources: Sequence[Datasource] = (), catalogue: Catalogue | None = None
    ) -> None:
        self._graph = TelemetryGraph(store, iris)
        self._iris = iris
        self._configured = tuple(datasources)
        self._catalogue = catalogue or Catalogue.shipped()

    @property
    def longest_scrape_interval(self) -> timedelta:
        """The longest scrape interval of the configured Prometheus datasources."""
        found = [each.scrape_interval for each in self._configured if each.kind == "prometheus"]
        return max(found, default=DEFAULT_SCRAPE_INTERVAL)

    def short(self, iri: str) -> str:
        """Return the short id of an IRI."""
        return self._iris.short(iri)

    def datasource(self, resolution: Resolution) -> Datasource:
        """Return the datasource of a resolution, with its access when it is configured."""
        everywhere = chain(self._configured, self._graph.datasources())
        return next(each for each in everywhere if each.iri == resolution.datasource_iri)

    def resolve(
        self, entity: str, metric: str, window: Window, *, datasource: str | None = None, step: Step = None
    ) -> Resolution:
        """Resolve one metric of one entity (IRI or short id); ``datasource`` is a name or IRI.

        Raises ``InvalidIdentifier``, ``InvalidInput`` (window, step), ``ResourceNotFound`` for an unknown entity, metric or datasource.
        """
        found = self._graph.entity(entity)
        stored = self._graph.metrics(found.describer)
        template = self._template(found, metric, stored)
        candidates = self._candidates(found, "prometheus", datasource, by_hand=template is None)
        if template is None:
            return self._as_stored(found, metric, candidates, window, step)
        server = candidates[0]
        chosen_step = choose_step(window, step, server.scrape_interval)
        grid = Grid.over(window, chosen_step)
        span = rate_window(chosen_step, server.scrape_interval)
        pods = self._pods(found, window.start - span, window.end)
        subject = self._subject(found, stored, pods.pattern)
        if why := subject.lacks(metric):
            raise ResourceNotFound(f"{self.short(found.iri)} has no {metric}: {why}", detail={"entity": found.iri})
        query = promql.render(template.query, subject.values, window=span, datasource=server)
        warnings = (*pods.warnings, *_step_warnings(template, chosen_step, span, server))
        return _metric_resolution(found, template, server, query, grid, pods, warnings)

    def resolve_logs(self, entity: str, window: Window, *, datasource: str | None = None) -> Resolution:
        """Resolve the logs of a workload or pod; raises as ``resolve`` does."""
        found = self._graph.entity(entity)
        if found.scope not in ("Workload", "Pod") or found.namespace is None:
            raise ResourceNotFound(
                f"{self.short(found.iri)} is a {found.kind}, which has no logs", hint="ask for a workload's or a pod's"
            )
        described = self._graph.log_datasources(found.describer)
        holders = [
            each for each in self._candidates(found, "loki", datasource) if each.logs == "all" or each.iri in described
        ]
        if not holders:
            raise ResourceNotFound(
                f"no datasource holds the logs of {self.short(found.iri)}: no logging sidecar is injected into its pods",
                hint="annotate its pods with fluentd-sidecar-injector.h3poteto.dev/injection, or name another datasource",
            )
        server = holders[0]
        pods = self._pods(found, window.start, window.end)
        query = logql.selector(found.namespace, pods.pattern or "", server)
        form = {
            "query": query,
            "start": _nanoseconds(window.start),
            "end": _nanoseconds(window.end),
            "limit": _LOKI_LIMIT,
            "direction": "forward",
        }
        return Resolution(
            entity=found.iri,
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
            pods=pods.names,
            selector=pods.how,
            curl=curl.command(server, LOKI_RANGE_PATH, form),
            fetchable=False,
            warnings=pods.warnings,
        )

    # -- the parts of it ----------------------------------------------------------------------------------------------
    def _template(self, entity: Entity, metric: str, stored: frozenset[str]) -> Template | None:
        """Return the template, or None when only the graph knows the metric (somebody described it by hand)."""
        try:
            return self._catalogue.find(entity.scope, metric)
        except ResourceNotFound as error:
            if metric in stored:
                return None
            known = [each.metric for each in self._catalogue.for_scope(entity.scope)]
            raise ResourceNotFound(
                f"{self.short(entity.iri)} has no metric {metric[:80]!r}",
                hint=did_you_mean(metric, {*known, *stored}),
                detail={"entity": entity.iri, "metrics": sorted({*known, *stored})},
            ) from error

    def _subject(self, entity: Entity, stored: frozenset[str], pods: str | None) -> Subject:
        """Describe the entity to its template; what its graph leaves out is what it cannot have."""
        return Subject(
            iri=entity.iri,
            scope=entity.scope,
            cluster=entity.cluster,
            namespace=entity.namespace,
            kind=entity.kind,
            name=entity.name,
            pods=pods,
            cpu_limited=not stored or "cpu_utilisation" in stored,
            host_network=bool(stored) and "network_receive" not in stored,
        )

    def _candidates(self, entity: Entity, kind: str, wanted: str | None, *, by_hand: bool = False) -> list[Datasource]:
        """Return the datasources of a kind, best first: configured, then of the entity's domain, then as they come.

        Those of the graph are looked at when one is ``wanted`` by name, when nothing is configured, or for what was described ``by_hand``.
        """
        known = [each for each in self._configured if each.kind == kind]
        if not known or wanted is not None or by_hand:
            taken = {each.iri for each in self._configured}
            known += [each for each in self._graph.datasources() if each.kind == kind and each.iri not in taken]
        if wanted is not None:
            named = [each for each in known if wanted in (each.name, each.iri)]
            if not named:
                raise ResourceNotFound(
                    f"{wanted[:80]!r} is not a {kind} datasource",
                    hint=did_you_mean(wanted, [each.name for each in known]),
                )
            return named
        if not known:
            raise ResourceNotFound(
                f"no {kind} datasource is known",
                hint=f'add [[datasource]] with name, kind = "{kind}" and url to drumlin.toml',
            )
        return sorted(known, key=lambda each: (each.access is None, each.domain != entity.domain))

    def _pods(self, entity: Entity, start: datetime, end: datetime) -> _Chosen:
        """Choose the pods to ask for: exactly those that ran in the span where the graph knows them."""
        if entity.scope == "Node":
            return _Chosen(None, (), "node")
        if entity.scope in ("Domain", "Cluster"):
            return _Chosen(None, (), "all")
        if entity.scope == "Pod":
            ran = self._graph.ran(entity, start, end)
            warnings = () if ran else ("the pod did not run in the window, as far as the graph knows",)
            return _Chosen(literally(entity.name), (entity.name,), "runs", warnings)
        pods = self._graph.pods(entity, start, end)
        if pods.names:
            return _Chosen(any_of(pods.names), pods.names, "runs", self._unknown_before(entity, pods.since, start, end))
        reason = (
            "no pod of it is known to have run in the window"
            if pods.complete
            else f"it had more than {MAX_PODS:,} pods"
        )
        pattern = pod_names(entity.kind, entity.name)
        return _Chosen(pattern, (), "pattern", (f"{reason}, so the pattern of its pods' names is asked for",))

    def _unknown_before(
        self, entity: Entity, since: datetime | None, start: datetime, end: datetime
    ) -> tuple[str, ...]:
        """Warn when the workload is older than all that is known of its pods, so that earlier ones may be left out."""
        began = self._graph.ran(entity, start, end)
        if since is None or began is None or max(began, start) >= since - timedelta(minutes=5):
            return ()
        return (f"none of its pods is known before {_iso(since)}: one that had ended by then is not asked for",)

    def _as_stored(
        self, entity: Entity, name: str, candidates: list[Datasource], window: Window, step: Step
    ) -> Resolution:
        """Resolve a metric that was described by hand: the stored query as it is."""
        metric = self._graph.stored_metric(entity.describer, name)
        server = next((each for each in candidates if each.iri in metric.queries), None)
        if server is None:
            raise ResourceNotFound(f"{name} of {self.short(entity.iri)} is in no datasource that is known here")
        query = metric.queries[server.iri]
        promql.parse(query)
        grid = Grid.over(window, choose_step(window, step, server.scrape_interval))
        return _metric_resolution(entity, metric, server, query, grid, _Chosen(None, (), "stored"), ())


def _metric_resolution(
    entity: Entity,
    metric: Template | StoredMetric,
    server: Datasource,
    query: str,
    grid: Grid,
    pods: _Chosen,
    warnings: tuple[str, ...],
) -> Resolution:
    start, end = grid.window
    if grid.points > MAX_POINTS:
        warnings += (
            f"{grid.points:,} points are more than one query may ask for ({MAX_POINTS:,}); history asks in parts",
        )
    form = {"query": query, "start": str(grid.start), "end": str(grid.end), "step": str(grid.step)}
    return Resolution(
        entity=entity.iri,
        metric=metric.metric if isinstance(metric, Template) else metric.name,
        unit=metric.unit,
        quantity=metric.quantity,
        metric_type=metric.metric_type,
        datasource=server.name,
        datasource_iri=server.iri,
        endpoint=server.url + RANGE_PATH,
        query=query,
        start=start,
        end=end,
        step=timedelta(seconds=grid.step),
        pods=pods.names,
        selector=pods.how,
        curl=curl.command(server, RANGE_PATH, form),
        fetchable=server.access is not None,
        warnings=warnings,
    )


def _step_warnings(template: Template, step: timedelta, span: timedelta, server: Datasource) -> tuple[str, ...]:
    found: tuple[str, ...] = ()
    if step < server.scrape_interval:
        found += (f"the step is shorter than {server.name}'s scrape interval, so points repeat",)
    if span > step and "increase(" in template.query:
        found += (f"each point covers {span.total_seconds():g} s, more than the step: adding points up counts twice",)
    return found


def _iso(at: datetime) -> str:
    return at.isoformat().replace("+00:00", "Z")


def _nanoseconds(at: datetime) -> str:
    """Return the time as Loki takes it, exactly: nanoseconds since the epoch."""
    return f"{(at - datetime(1970, 1, 1, tzinfo=UTC)) // timedelta(microseconds=1)}000"
