"""Resolve: an entity, a metric and a window → the exact query, where to send it, and how.

For a workload the query names the pods that ran in the window, as the graph's runs know them, the deleted ones too: no label
or recording rule of the server has to know whose they were. Blocking, thread-safe; nothing is fetched here but, where nobody configured it,
how often a server scrapes.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from itertools import chain, islice

from kg.errors import DrumlinError, InvalidInput, ResourceNotFound
from kg.iris import Iris
from kg.store.protocol import Store
from kg.telemetry import dialects, links, logql, promql
from kg.telemetry.asking import LOOKBACK, PodRun, Question
from kg.telemetry.datasources import DEFAULT_SCRAPE_INTERVAL, Datasource
from kg.telemetry.describe import Subject, pod_names
from kg.telemetry.graph import MAX_RUNS, Entity, TelemetryGraph
from kg.telemetry.holders import Holders
from kg.telemetry.intervals import Intervals
from kg.telemetry.quoting import any_of
from kg.telemetry.resolution import (
    How,
    Resolution,
    Unresolved,
    iso,
    log_resolution,
    metric_resolution,
    step_warnings,
)
from kg.telemetry.series import Grid, Step, Window, choose_step, moment, rate_window
from kg.telemetry.templates import Catalogue, Meaning, Template, did_you_mean

_TOGETHER = 100  # pairs whose entities are read of the graph together


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Which pods are asked for: their runs, or a regular expression of names; how they were found and what to know about it."""

    pattern: str | None
    runs: tuple[PodRun, ...] | None
    how: How
    warnings: tuple[str, ...] = ()


class _Read:
    """What is read of the graph for a few entities that are resolved together: each thing once, and for all of them at once."""

    def __init__(self, graph: TelemetryGraph, names: Iterable[str]) -> None:
        self._graph = graph
        self._entities = graph.entities(names)
        self._found = [each for each in self._entities.values() if isinstance(each, Entity)]
        self._stored = graph.metrics({each.describer for each in self._found})
        self._runs: dict[datetime, dict[str, tuple[PodRun, ...] | None]] = {}
        self._ran: dict[datetime, dict[str, datetime | None]] = {}

    def entity(self, name: str) -> Entity:
        found = self._entities[name]
        if isinstance(found, DrumlinError):
            raise found
        return found

    def stored(self, describer: str) -> frozenset[str]:
        return self._stored[describer]

    def runs(self, entity: Entity, start: datetime, end: datetime) -> tuple[PodRun, ...] | None:
        if start not in self._runs:
            workloads = [each for each in self._found if each.scope == "Workload"]
            self._runs[start] = self._graph.pods(workloads, start, end)
        return self._runs[start][entity.iri]

    def ran(self, entity: Entity, start: datetime, end: datetime) -> datetime | None:
        if start not in self._ran:
            running = {each.iri for each in self._found if each.scope in ("Workload", "Pod")}
            self._ran[start] = self._graph.ran(running, start, end)
        return self._ran[start][entity.iri]


class Resolver:
    """Resolves entities of one store. ``datasources`` are the configured ones; those of the graph are found there.

    Without ``intervals`` nothing is ever asked of a server.
    """

    def __init__(
        self,
        store: Store,
        iris: Iris,
        datasources: Sequence[Datasource] = (),
        catalogue: Catalogue | None = None,
        intervals: Intervals | None = None,
    ) -> None:
        self._graph = TelemetryGraph(store, iris)
        self._iris = iris
        self._holders = Holders(self._graph, iris, datasources)
        self._configured = tuple(datasources)
        self._pages = [each for each in self._configured if each.kind in ("grafana", "jaeger")]
        self._catalogue = catalogue or Catalogue.shipped()
        self._intervals = intervals
        self._merged: tuple[tuple[Template, ...], Catalogue] = ((), self._catalogue)

    @property
    def longest_scrape_interval(self) -> timedelta:
        """The longest scrape interval of the configured Prometheus datasources."""
        known = [each for each in self._configured if each.kind == "prometheus"]
        found = [self._intervals.longest(each) if self._intervals else each.scrape_interval for each in known]
        return max(found, default=DEFAULT_SCRAPE_INTERVAL)

    def short(self, iri: str) -> str:
        """Return the short id of an IRI."""
        return self._iris.short(iri)

    def datasource(self, resolution: Resolution) -> Datasource:
        """Return the datasource of a resolution, with its access when it is configured."""
        everywhere = chain(self._configured, self._graph.datasources())
        return next(each for each in everywhere if each.iri == resolution.datasource_iri)

    def resolve(
        self,
        entity: str,
        metric: str,
        window: Window,
        *,
        datasource: str | None = None,
        step: Step = None,
        query: str | None = None,
    ) -> Resolution:
        """Resolve one metric of one entity (IRI or short id); ``datasource`` is a name or IRI.

        ``query`` is the caller's own PromQL; every selector of it is limited to the entity, and ``metric`` is only its name then.
        Raises ``InvalidIdentifier``, ``InvalidInput`` (window, step, query), ``ResourceNotFound`` (entity, metric, datasource).
        """
        read = _Read(self._graph, [entity])
        return self._resolve(read, self.catalogue, entity, metric, window, datasource, step, query)

    def resolve_many(
        self,
        pairs: Iterable[tuple[str, str]],
        window: Window,
        *,
        datasource: str | None = None,
        step: Step = None,
        query: str | None = None,
    ) -> Iterator[Resolution | Unresolved]:
        """Resolve (entity, metric) after (entity, metric), in order; one that cannot be resolved says why and stops no other."""
        catalogue, waiting = self.catalogue, iter(pairs)
        while together := list(islice(waiting, _TOGETHER)):
            read = _Read(self._graph, {entity for entity, _ in together})
            for entity, metric in together:
                try:
                    yield self._resolve(read, catalogue, entity, metric, window, datasource, step, query)
                except DrumlinError as error:
                    yield Unresolved(entity, metric, error)

    def datasources(self) -> list[Datasource]:
        """Return all datasources that are known: the configured ones, then those of the graph."""
        return self._holders.known()

    def meaning(self, entity: str, metric: str) -> Meaning:
        """Return what the values of one of an entity's metrics are; raises ``ResourceNotFound`` with what may be meant."""
        found = self._graph.entity(entity)
        template = self._template(
            self.catalogue, found, metric, self._graph.metrics([found.describer])[found.describer]
        )
        said = template or self._graph.stored_metric(found.describer, metric)
        return Meaning(said.unit, said.quantity, said.metric_type, template is not None and template.adds_up)

    def metrics_of(self, entity: str) -> list[str]:
        """Return the names of the metrics that an entity has; raises ``ResourceNotFound``."""
        found = self._graph.entity(entity)
        stored = self._graph.metrics([found.describer])[found.describer]
        return sorted(stored) or [each.metric for each in self.catalogue.for_scope(found.scope)]

    @property
    def catalogue(self) -> Catalogue:
        """The metric templates: those of the graph, which users can add to and replace, over the shipped ones."""
        of_graph = self._graph.templates()
        if self._merged[0] is not of_graph:
            self._merged = of_graph, self._catalogue.with_(of_graph) if of_graph else self._catalogue
        return self._merged[1]

    def _resolve(
        self,
        read: _Read,
        catalogue: Catalogue,
        entity: str,
        metric: str,
        window: Window,
        datasource: str | None,
        step: Step,
        custom: str | None,
    ) -> Resolution:
        found = read.entity(entity)
        stored = read.stored(found.describer)
        template = (
            Template.ones_own(metric, found.scope) if custom else self._template(catalogue, found, metric, stored)
        )
        if template is None:
            candidates = self._holders.candidates(found, "prometheus", datasource, by_hand=True)
            return self._as_stored(found, metric, candidates, window, step)
        server = self._holders.of_metric(found, template, datasource)
        if custom and server.kind != "prometheus":
            raise InvalidInput(f"datasource {server.name} speaks no PromQL", hint="name a prometheus datasource")
        if self._intervals and server.learns:
            server = replace(server, scrape_interval=self._intervals.of(server, template.query))
        chosen_step = choose_step(window, step, server.scrape_interval)
        grid = Grid.over(window, chosen_step)
        span = rate_window(chosen_step, server.scrape_interval)
        if why := self._subject(found, stored, None).lacks(metric):
            raise ResourceNotFound(f"{self.short(found.iri)} has no {metric}: {why}", detail={"entity": found.iri})
        reach = max(span, timedelta(seconds=LOOKBACK))
        pods = self._pods(read, found, window.start - reach, window.end)

        def write(pattern: str | None) -> str:
            if custom:
                return promql.enforce(custom, _limits(found, pattern, server))
            values = self._subject(found, stored, pattern).values
            id = self.short(found.iri)
            return dialects.write(template, values, id, window=span, step=chosen_step, datasource=server)

        question = Question(write, pods.runs, pods.pattern, int(reach.total_seconds()))
        warnings = (*pods.warnings, *step_warnings(template, chosen_step, span, server))
        resolution = metric_resolution(found, template, server, question, grid, pods.how, warnings)
        return links.added(resolution, found, self._pages, window)

    def resolve_logs(
        self, entity: str, window: Window, *, datasource: str | None = None, containing: str | None = None
    ) -> Resolution:
        """Resolve the logs of a workload or pod, or the lines of them that contain a text; raises as ``resolve`` does."""
        read = _Read(self._graph, [entity])
        found = read.entity(entity)
        namespace, server = self._holders.of_logs(found, datasource)
        pods = self._pods(read, found, window.start, window.end)
        names = tuple(sorted({run.name for run in pods.runs or ()}))
        streams = logql.selector(namespace, any_of(names) if names else pods.pattern or "", server)
        query = logql.containing(streams, containing)
        resolution = log_resolution(found, server, query, window, names, pods.how, pods.warnings)
        return links.added(resolution, found, self._pages, window)

    # -- the parts of it ----------------------------------------------------------------------------------------------
    def _template(self, catalogue: Catalogue, entity: Entity, metric: str, stored: frozenset[str]) -> Template | None:
        """Return the template, or None when only the graph knows the metric (somebody described it by hand)."""
        try:
            return catalogue.find(entity.scope, metric)
        except ResourceNotFound as error:
            if metric in stored:
                return None
            known = [each.metric for each in catalogue.for_scope(entity.scope)]
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

    def _pods(self, read: _Read, entity: Entity, start: datetime, end: datetime) -> _Chosen:
        """Choose the pods to ask for: exactly those that ran in the span where the graph knows them."""
        if entity.scope == "Node":
            return _Chosen(None, None, "node")
        if entity.scope in ("Domain", "Cluster"):
            return _Chosen(None, None, "all")
        if entity.scope == "Pod":
            ran = read.ran(entity, start, end)
            warnings = () if ran else ("the pod did not run in the window, as far as the graph knows",)
            return _Chosen(None, (PodRun(entity.name, 0, None),), "runs", warnings)
        runs = read.runs(entity, start, end)
        pattern = pod_names(entity.kind, entity.name)
        if runs:
            since = moment(int(min(run.start for run in runs)))
            return _Chosen(pattern, runs, "runs", self._unknown_before(read, entity, since, start, end))
        reason = (
            f"it had more than {MAX_RUNS:,} pods" if runs is None else "no pod of it is known to have run in the window"
        )
        return _Chosen(pattern, None, "pattern", (f"{reason}, so the pattern of its pods' names is asked for",))

    def _unknown_before(
        self, read: _Read, entity: Entity, since: datetime, start: datetime, end: datetime
    ) -> tuple[str, ...]:
        """Warn when the workload is older than all that is known of its pods, so that earlier ones may be left out."""
        began = read.ran(entity, start, end)
        if began is None or max(began, start) >= since - timedelta(minutes=5):
            return ()
        return (f"none of its pods is known before {iso(since)}: one that had ended by then is not asked for",)

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
        return metric_resolution(entity, metric, server, Question(lambda _: query), grid, "stored", ())


def _limits(entity: Entity, pods: str | None, server: Datasource) -> tuple[promql.Matcher, ...]:
    """Return the matchers that limit any selector to an entity, in this server's label names."""

    def label(name: str) -> str:
        return server.labels.get(name, name)

    if entity.scope == "Node":
        return (promql.Matcher(label("instance"), "=", entity.name),)
    if entity.namespace is None:
        raise InvalidInput(
            f"a {entity.kind} cannot limit a query of your own", hint="ask for a workload, a pod or a node"
        )
    return promql.Matcher(label("namespace"), "=", entity.namespace), promql.Matcher(label("pod"), "=~", pods or "")
