"""Resolve: an entity, a metric and a window → the exact query, where to send it, and how.

For a workload the query names the pods that ran in the window, as the graph's runs know them, the deleted ones too: no label
or recording rule of the server has to know whose they were. Where runs are not known in full, the pattern of the pods' names is asked for,
without the pods that are another workload's. Blocking, thread-safe; nothing is fetched here but how often a server scrapes, where nobody
configured it, and the names of pods that are alike and another's.
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from functools import partial
from itertools import chain, islice
from typing import cast, get_args

from drumlin.kg.errors import DrumlinError, InvalidInput, MetricMissing, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.protocol import Store
from drumlin.kg.store.run_archive import RunArchive
from drumlin.kg.telemetry import (
    Choice,
    binding,
    calls,
    conversions,
    dialects,
    group_queries,
    host_network,
    links,
    logql,
    machines,
    promql,
    renaming,
    routes,
    scraped,
    signals,
    units,
)
from drumlin.kg.telemetry.asking import LOOKBACK, MAX_PODS, PodRun, QueryTemplate, Span, union
from drumlin.kg.telemetry.binding import Place, Share
from drumlin.kg.telemetry.current import Current, can_be_asked_together
from drumlin.kg.telemetry.datasources import DEFAULT_SCRAPE_INTERVAL, Datasource, LearntDatasources
from drumlin.kg.telemetry.describe import MACHINES, Subject, pod_names
from drumlin.kg.telemetry.doubles import Doubles
from drumlin.kg.telemetry.fetch.prometheus import Described
from drumlin.kg.telemetry.freshness import Freshness, always_fresh, warnings_of
from drumlin.kg.telemetry.graph import MAX_RUNS, Entity, TelemetryGraph
from drumlin.kg.telemetry.groups import GroupedRun, Grouping, GroupName, PodPlace, dimension
from drumlin.kg.telemetry.guarding import Namesake, OwnerLabels, alike
from drumlin.kg.telemetry.holders import DatasourceSelector
from drumlin.kg.telemetry.intervals import Intervals
from drumlin.kg.telemetry.inventory import Inventory
from drumlin.kg.telemetry.managed import runs_below
from drumlin.kg.telemetry.quoting import any_of
from drumlin.kg.telemetry.resolution import (
    Resolution,
    SelectorKind,
    Unresolved,
    iso,
    log_resolution,
    metric_resolution,
    service_resolution,
    step_warnings,
)
from drumlin.kg.telemetry.series import (
    Grid,
    Step,
    Window,
    choose_step,
    counted_range,
    least_step,
    lookback,
    moment,
    rate_window,
)
from drumlin.kg.telemetry.templates import Meaning, Template, TemplateCatalogue, did_you_mean

_TOLD_BY_LABEL = frozenset({"Node", "Workload", "Pod", "Namespace"})  # scopes whose series bear a name of theirs
_LONGEST_REACH = timedelta(hours=1)  # before the window, at least, for which pods of groups are read
_TOGETHER = 100  # pairs whose entities are read of the graph together
_WIDER = timedelta(
    days=1
)  # before the window in which owners are looked for: their series may be missing when it begins


@dataclass(frozen=True, slots=True)
class _Chosen:
    """Which pods are asked for: their runs, or a regular expression of names; how they were found and what to know about it.

    ``unknown`` are spans for which the runs are not known in full; ``limits`` distinguish the entity from others of its name.
    """

    pattern: str | None
    runs: tuple[PodRun, ...] | None
    how: SelectorKind
    warnings: tuple[str, ...] = ()
    unknown: tuple[Span, ...] = ()
    limits: tuple[promql.Matcher, ...] = ()


@dataclass(frozen=True, slots=True)
class _Wish:
    """How metrics are asked for: as the parameters of ``Resolver.resolve`` say."""

    window: Window
    datasource: str | None
    step: Step
    query: str | None
    unit: Sequence[str]
    selector: Choice


@dataclass(frozen=True, slots=True)
class _QueryWriter:
    """Writes the queries for one metric of one entity. ``window`` is that of rates, ``custom`` a caller's PromQL.

    ``foreign``: a pattern of pods' names, and the pattern of those that match it and are another workload's.
    """

    entity: Entity
    unique_id: str
    template: Template
    server: Datasource
    limits: tuple[promql.Matcher, ...]
    values: Mapping[str, str]
    window: timedelta
    step: timedelta
    conversion: units.Conversion
    custom: str | None = None
    foreign: tuple[str, str] = ("", "")

    def write(self, pods: str | None, *, precise: bool = False) -> str:
        """Return the query for the pods whose names match a regular expression; ``precise`` as for ``dialects.write``."""
        if self.custom is not None:
            query = _limited(self.custom, self.entity, pods, self.server, self.limits)
        else:
            query = dialects.write(
                self.template,
                self.values if pods is None else {**self.values, "pods": pods},
                self.unique_id,
                window=self.window,
                step=self.step,
                datasource=self.server,
                matchers=self.limits,
                factor=self.conversion.factor,
                precise=precise,
            )
        pattern, names = self.foreign
        return promql.exclude(query, pattern, names) if pattern and pods == pattern else query


class _Read:
    """What is read of the graph for a few entities that are resolved together: each thing once, and for all of them at once.

    ``earlier``: what was read for others of the same request, of which some holds for these too.
    """

    def __init__(
        self,
        graph: TelemetryGraph,
        names: Iterable[str],
        among: frozenset[str] | None = None,
        earlier: _Read | None = None,
    ) -> None:
        self._graph = graph
        self._among = among
        self.groupings: dict[Hashable, Grouping] = earlier.groupings if earlier else {}
        self.inventory: Inventory = earlier.inventory if earlier else graph.inventory()
        self._entities = graph.entities(names)
        self._found = [each for each in self._entities.values() if isinstance(each, Entity)]
        self._stored = graph.metrics({each.describer for each in self._found})
        self._own: dict[str, frozenset[str]] | None = None
        self._runs: dict[datetime, dict[str, tuple[PodRun, ...] | None]] = {}
        self._ran: dict[datetime, dict[str, datetime | None]] = {}
        self._first: dict[str, datetime | None] | None = None
        self._unknown: dict[tuple[str, datetime], tuple[Span, ...]] = {}

    def entity(self, name: str) -> Entity:
        found = self._entities[name]
        if isinstance(found, DrumlinError):
            raise found
        return found

    def stored(self, describer: str) -> frozenset[str]:
        return self._stored[describer]

    def own(self, describer: str) -> frozenset[str]:
        if self._own is None:  # few ask for them
            workloads = {each.describer for each in self._found if each.scope in ("Workload", "Pod")}
            self._own = self._graph.own_metrics(workloads)
        return self._own.get(describer, frozenset())

    def runs(self, entity: Entity, start: datetime, end: datetime) -> tuple[PodRun, ...] | None:
        if start not in self._runs:
            workloads = [each for each in self._found if each.scope == "Workload"]
            self._runs[start] = self._graph.pods(workloads, start, end)
        return self._runs[start][entity.iri]

    def grouping(self, iris: Iris, by: str, start: datetime, end: datetime) -> Grouping:
        key = (by, start, end)
        if key not in self.groupings:
            self.groupings[key] = Grouping(self._graph, iris, by, start, end, self._among)
        return self.groupings[key]

    def unknown(self, entity: Entity, runs: tuple[PodRun, ...], start: datetime) -> tuple[Span, ...]:
        """Return the spans in which pods may have run that are not among the runs; they matter from ``start`` on.

        Where nobody noted since when all are known, it is since the first known run, and of a dump until that was made.
        """
        key = (entity.iri, start)
        if key not in self._unknown:
            noted = self._graph.unknown(entity)
            self._unknown[key] = self._unnoted(entity, runs, start) if noted is None else noted
        return self._unknown[key]

    def _unnoted(self, entity: Entity, runs: tuple[PodRun, ...], start: datetime) -> tuple[Span, ...]:
        dumped = self._graph.dumped(entity)
        later = () if dumped is None else ((dumped, math.inf),)
        if runs and min(run.start for run in runs) <= start.timestamp():
            return later
        if self._first is None:
            self._first = self._graph.first_known([each for each in self._found if each.scope == "Workload"])
        first = self._first[entity.iri]
        if first and first <= start:
            return later
        return union(((-math.inf, first.timestamp() if first else math.inf), *later))

    def ran(self, entity: Entity, start: datetime, end: datetime) -> datetime | None:
        if start not in self._ran:
            running = {each.iri for each in self._found if each.scope in ("Workload", "Pod")}
            self._ran[start] = self._graph.ran(running, start, end)
        return self._ran[start][entity.iri]


class Resolver:
    """Resolves entities of one store. ``datasources`` are the configured ones; those of the graph are found there.

    Without ``intervals`` and ``owners`` nothing is ever asked of a server. ``archive`` has the runs that have left the graph.
    ``freshness`` says which clusters are out of sight; resolutions warn of them. ``domains`` (IRIs) limit whose telemetry is resolved.
    """

    def __init__(
        self,
        store: Store,
        iris: Iris,
        datasources: Sequence[Datasource] = (),
        catalogue: TemplateCatalogue | None = None,
        intervals: Intervals | None = None,
        *,
        owners: OwnerLabels | None = None,
        archive: RunArchive | None = None,
        freshness: Freshness = always_fresh,
        domains: frozenset[str] | None = None,
    ) -> None:
        self._graph = TelemetryGraph(store, iris, archive, domains)
        self._freshness = freshness
        self._owners = owners
        self._iris = iris
        self._holders = DatasourceSelector(self._graph, iris, datasources)
        self._configured = tuple(datasources)
        self._pages = [each for each in self._configured if each.kind in ("grafana", "jaeger", "tempo", "pyroscope")]
        self._catalogue = catalogue or TemplateCatalogue.shipped()
        self._intervals = intervals
        self._doubles = Doubles() if intervals else None
        self._learnt = LearntDatasources()
        self._merged: tuple[tuple[Template, ...], TemplateCatalogue] = ((), self._catalogue)

    def least_step(self, metrics: Iterable[str]) -> timedelta:
        """Return the shortest automatic step for series of these metrics, of any configured Prometheus datasource."""
        known = [each for each in self._configured if each.kind == "prometheus"]
        found = [self._intervals.longest(each) if self._intervals else each.scrape_interval for each in known]
        return least_step(max(found, default=DEFAULT_SCRAPE_INTERVAL), counts=self.catalogue.counts(metrics))

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
        unit: Sequence[str] = (),
        selector: Choice = "auto",
    ) -> Resolution:
        """Resolve one metric of one entity (IRI or short id); ``datasource`` is a name or IRI, ``selector`` says how pods are picked.

        ``query`` is the caller's own PromQL; every selector of it is limited to the entity, and ``metric`` is only its name then.
        The query gives values in the first of the units ``unit`` that fits the metric; ``%`` of ``cpu_usage`` is ``cpu_utilisation``.
        Raises ``InvalidIdentifier``, ``InvalidInput`` (window, step, query, unit), ``ResourceNotFound`` (entity, metric, datasource).
        """
        wish = _Wish(window, datasource, step, query, unit, _choice(selector))
        return self._resolve(_Read(self._graph, [entity]), self.catalogue, entity, metric, wish)

    def resolve_many(
        self,
        pairs: Iterable[tuple[str, str]],
        window: Window,
        *,
        datasource: str | None = None,
        step: Step = None,
        query: str | None = None,
        unit: Sequence[str] = (),
        among: frozenset[str] | None = None,
        selector: Choice = "auto",
    ) -> Iterator[Resolution | Unresolved]:
        """Resolve (entity, metric) after (entity, metric), in order; one that cannot be resolved says why and stops no other.

        ``among``: the workloads and pods (IRIs) whose pods alone count in groups.
        """
        return self._many(pairs, _Wish(window, datasource, step, query, unit, _choice(selector)), among)

    def _many(
        self, pairs: Iterable[tuple[str, str]], wish: _Wish, among: frozenset[str] | None
    ) -> Iterator[Resolution | Unresolved]:
        catalogue, waiting = self.catalogue, iter(pairs)
        read: _Read | None = None
        while together := list(islice(waiting, _TOGETHER)):
            read = _Read(self._graph, {entity for entity, _ in together}, among, read)
            for entity, metric in together:
                try:
                    yield self._resolve(read, catalogue, entity, metric, wish)
                except DrumlinError as error:
                    yield Unresolved(entity, metric, error)

    def current(
        self,
        pairs: Iterable[tuple[str, str]],
        at: datetime,
        window: timedelta,
        *,
        datasource: str | None = None,
        unit: Sequence[str] = (),
    ) -> Iterator[Current | Unresolved]:
        """Resolve (entity, metric) after (entity, metric) for one time, in order; rates and increases look ``window`` back."""
        catalogue, waiting = self.catalogue, iter(pairs)
        read: _Read | None = None
        while together := list(islice(waiting, _TOGETHER)):
            read = _Read(self._graph, {entity for entity, _ in together}, None, read)
            for entity, metric in together:
                try:
                    yield self._current(read, catalogue, entity, metric, at, window, datasource, unit)
                except DrumlinError as error:
                    yield Unresolved(entity, metric, error)

    def groups(self, by: str, window: Window, among: frozenset[str] | None = None) -> list[str]:
        """Return the ids of the groups of a dimension whose pods ran in a window; of all namespaces, the namespaces themselves.

        ``among``: the workloads and pods (IRIs) whose pods alone count. Raises ``InvalidInput`` for what cannot be grouped by.
        """
        found = Grouping(self._graph, self._iris, dimension(by), window.start, window.end, among)
        if found.by != "namespace" or among is not None:
            return [self.short(each.iri(self._iris)) for each in found.names]
        places = (each.value.split("/") for each in found.names)
        iris = [self._iris.object(cluster, None, "Namespace", name) for cluster, name in places]
        known = self._graph.entities(iris)
        return [
            self.short(iri) if isinstance(known[iri], Entity) else self.short(each.iri(self._iris))
            for iri, each in zip(iris, found.names, strict=True)
        ]

    def datasources(self) -> list[Datasource]:
        """Return all datasources that are known: the configured ones, then those of the graph."""
        return self._holders.known()

    def clusters(self) -> frozenset[str]:
        """Return the names of all clusters that the graph knows."""
        return self._graph.inventory().clusters

    def meaning(self, entity: str, metric: str, unit: Sequence[str] = ()) -> Meaning:
        """Return what the values of one of an entity's metrics are, in the first of the units that fits, as ``resolve`` picks it.

        Raises ``ResourceNotFound`` with what may be meant, ``InvalidInput`` when no unit fits.
        """
        read, catalogue = _Read(self._graph, [entity]), self.catalogue
        found = read.entity(entity)
        template = self._template(read, catalogue, found, metric)
        if template is None:
            said = self._graph.stored_metric(found.describer, metric)
            conversion = conversions.first_fitting(metric, said.unit, unit)
            return Meaning(conversion.unit, said.quantity, said.metric_type, False, metric, float(conversion.factor))
        template, conversion = conversions.in_unit(catalogue, found.scope, template, unit, custom=False)
        about = (template.quantity, template.metric_type, template.adds_up, template.metric)
        return Meaning(conversion.unit, *about, float(conversion.factor))

    def metric_iris(self, pairs: Sequence[tuple[str, str]]) -> dict[tuple[str, str], str | DrumlinError]:
        """Return the IRI of the metric of each pair of entity and metric, or the error that says why there is none."""
        catalogue, found = self.catalogue, dict[tuple[str, str], str | DrumlinError]()
        read = _Read(self._graph, {entity for entity, _ in pairs})
        for entity, metric in pairs:
            try:
                known = read.entity(entity)
                template = self._template(read, catalogue, known, metric)
                own = template is not None and template.exporter == scraped.EXPORTER and known.scope == "Workload"
                found[entity, metric] = Iris.metric(self._iris.scraped(known.iri) if own else known.iri, metric)
            except DrumlinError as error:
                found[entity, metric] = error
        return found

    def metrics_of(self, entity: str) -> list[str]:
        """Return the names of the metrics that an entity or group has; raises ``ResourceNotFound``."""
        if GroupName.read(self._iris, entity):
            return [each.metric for each in self.catalogue.for_scope("Group")]
        read = _Read(self._graph, [entity])
        found = read.entity(entity)
        described = read.stored(found.describer) or {each.metric for each in self.catalogue.for_scope(found.scope)}
        return sorted(described | read.own(found.describer))

    @property
    def catalogue(self) -> TemplateCatalogue:
        """The metric templates: those of the graph, which users can add to and replace, over the shipped ones."""
        of_graph = self._graph.templates()
        if self._merged[0] is not of_graph:
            self._merged = of_graph, self._catalogue.with_(of_graph) if of_graph else self._catalogue
        return self._merged[1]

    def _resolve(self, read: _Read, catalogue: TemplateCatalogue, entity: str, metric: str, wish: _Wish) -> Resolution:
        if metric in signals.KINDS and wish.query is None:
            return self._resolve_signal(read, entity, metric, wish)
        if group := GroupName.read(self._iris, entity):
            return self._resolve_group(read, group, catalogue, metric, wish)
        found, custom = read.entity(entity), wish.query is not None
        if found.scope == "Group":
            return self._resolve_managed(read, found, catalogue, metric, wish)
        template = Template.ones_own(metric, found.scope) if custom else self._template(read, catalogue, found, metric)
        if template is None:
            return self._as_stored(found, metric, read.inventory, wish)
        template, conversion = conversions.in_unit(catalogue, found.scope, template, wish.unit, custom=custom)
        server, grid, span = self._timed(template, self._server(read, found, template, metric, wish), wish)
        step = timedelta(seconds=grid.step)
        self._check_has(catalogue, found, metric, template, read.stored(found.describer))
        # As far as any metric looks back: runs are read once for all of them.
        longest = max(counted_range(span, server.scrape_interval), timedelta(seconds=LOOKBACK))
        pods = self._pods(read, found, wish.window, longest, wish.selector)
        if server.kind == "parquet":  # its series are found by the id of the entity
            pods = replace(pods, unknown=())
        asked, values, place, pods = self._located(read, catalogue, found, template, server, pods, custom=custom)
        limits = (*self._limits(found, None if custom else template, server, place), *pods.limits)
        if not custom:
            server = self._looked_for_doubles(asked, server, limits, grid)
        writer = _QueryWriter(
            found, self.short(found.iri), asked, server, limits, values, span, step, conversion, wish.query
        )
        question, guarded = self._question(writer, pods, grid)
        stale = warnings_of(place.clusters, wish.window.end, self._freshness)
        warnings = (*pods.warnings, *guarded, *step_warnings(template, step, span, server), *stale)
        resolution = metric_resolution(
            found, _in_unit(template, conversion), server, question, grid, pods.how, warnings
        )
        return links.added(resolution, _shown(found, place), self._pages, wish.window)

    def _server(self, read: _Read, entity: Entity, template: Template, metric: str, wish: _Wish) -> Datasource:
        """Return the datasource that is asked."""
        named = wish.datasource
        if template.exporter == scraped.EXPORTER and named is None:
            named = self._own_holder(entity, metric)
        if entity.scope == "Invocation" and named is None:  # the server that it was observed in
            held = self._graph.metric_datasources(entity.iri)
            named = next((each.iri for each in self._configured if each.iri in held), None)
        server = self._holders.of_metric(entity, template, named, read.inventory)
        if wish.query is not None and server.kind != "prometheus":
            raise InvalidInput(f"datasource {server.name} speaks no PromQL", hint="name a prometheus datasource")
        return server

    def _question(self, writer: _QueryWriter, pods: _Chosen, grid: Grid) -> tuple[QueryTemplate, tuple[str, ...]]:
        """Return what is asked over any span for the chosen pods, and what to know about how they were found."""
        server, scrape = writer.server, writer.server.scrape_interval
        reach = int(_reach(writer.template, writer.window, server).total_seconds())
        lingers = int(lookback(scrape).total_seconds()) if reach == 0 else 0
        question = QueryTemplate(writer.write, pods.runs, pods.pattern, reach, pods.unknown, lingers)
        foreign, guarded = self._guard(writer.entity, pods, question, grid, server, writer.limits)
        if foreign:
            writer = replace(writer, foreign=(pods.pattern or "", any_of(foreign)))
            question = replace(question, write=writer.write)
        if writer.custom is None and _extrapolates(writer.template, server):
            question = question.with_precise(grid, scrape.total_seconds(), partial(writer.write, precise=True))
        return question, guarded

    def _looked_for_doubles(
        self, template: Template, server: Datasource, limits: tuple[promql.Matcher, ...], grid: Grid
    ) -> Datasource:
        """Return the datasource that knows whether what a template asks for is scraped more than once in a grid's span."""
        if self._doubles is None:
            return server
        doubled = self._doubles.seen(server, renaming.written(template, server), limits, grid)
        return self._learnt.get(server, server.scrape_interval, server.language, doubled=doubled)

    def _limits(
        self, entity: Entity, template: Template | None, server: Datasource, place: Place
    ) -> tuple[promql.Matcher, ...]:
        """Return what every selector must have; None is the template of a caller's own query."""
        limits = binding.matchers(server, place)
        if entity.scope == "Invocation":
            own = calls.read_matchers(self._graph.matchers(entity.iri))
            if not own:
                raise ResourceNotFound(
                    f"nothing tells which series are those of {self.short(entity.iri)}",
                    hint="state its `matcher`: label=value, for each label that names its ends",
                )
            limits = (*limits, *own)
        if template is None or entity.scope != "Namespace" or template.quantity != "network":
            return limits
        return (*limits, *host_network.left_out(self._graph, entity, server))

    def _located(
        self,
        read: _Read,
        catalogue: TemplateCatalogue,
        entity: Entity,
        template: Template,
        server: Datasource,
        pods: _Chosen,
        *,
        custom: bool,
    ) -> tuple[Template, Mapping[str, str], Place, _Chosen]:
        """Return the template that asks for an entity's part of a datasource, what fills it, where that is, and how it was chosen."""
        place = self._holders.place(entity, read.inventory)
        values: Mapping[str, str] = self._subject(entity, read.stored(entity.describer), None).values
        if entity.scope == "Domain" and not custom:
            part = binding.share(entity.name, server, read.inventory)
            if part.kind is not None:
                template, values = _of_share(part, entity.name, template, catalogue, server)
            pods = replace(pods, how=_SHARES[part.kind], warnings=_left_out(part))
            return template, values, Place(part.clusters, entity.name), pods
        if entity.scope in MACHINES:
            limits, warnings = machines.told_apart(self._graph.ask, self._iris, entity.iri, entity.name)
            return template, values, place, replace(pods, warnings=warnings, limits=limits)
        if entity.scope == "DomainRoute":
            route, alike = routes.read(self._graph.ask, self._iris, entity.route or entity.iri)
            routes.check(server, route)
            pods = replace(pods, warnings=_same_host(template, alike))
            return template, route.values, replace(place, domain=route.source), pods
        return template, values, place, pods

    def _timed(self, template: Template, server: Datasource, wish: _Wish) -> tuple[Datasource, Grid, timedelta]:
        """Return the datasource with what is learnt of it, the grid of the points, and the window of each point's rate."""
        if self._intervals:
            server = self._intervals.learned(server, renaming.written(template, server))
        is_scraped = server.kind != "loki"
        shortest = least_step(server.scrape_interval, counts=template.counts and is_scraped)
        chosen = choose_step(wish.window, wish.step, shortest)
        span = rate_window(chosen, server.scrape_interval) if is_scraped else chosen
        return server, Grid.over(wish.window, chosen), span

    def _current(
        self,
        read: _Read,
        catalogue: TemplateCatalogue,
        entity: str,
        metric: str,
        at: datetime,
        window: timedelta,
        datasource: str | None,
        unit: Sequence[str],
    ) -> Current:
        """Resolve one metric for one time, in a form in which many can be asked for together where there is one."""

        def alone() -> Resolution:
            wish = _Wish(Window(at - window, at), datasource, window, None, unit, "auto")
            return self._resolve(read, catalogue, entity, metric, wish)

        def by_itself() -> Current:
            resolution = alone()
            server = self.datasource(resolution)
            return Current(resolution.entity, resolution.metric, resolution.unit, server, lambda: resolution.query)

        if GroupName.read(self._iris, entity):
            return by_itself()
        found = read.entity(entity)
        template = self._template(read, catalogue, found, metric)
        if template is None or template.exporter == scraped.EXPORTER or found.scope not in _TOLD_BY_LABEL:
            return by_itself()
        template, conversion = conversions.in_unit(catalogue, found.scope, template, unit, custom=False)
        self._check_has(catalogue, found, metric, template, read.stored(found.describer))
        server = self._holders.of_metric(found, template, datasource, read.inventory)
        if self._intervals:
            server = self._intervals.learned(server, renaming.written(template, server))
        place = self._holders.place(found, read.inventory)
        limits = self._limits(found, template, server, place)
        server = self._looked_for_doubles(template, server, limits, _around(at, window))
        together = Current(
            entity=found.iri,
            metric=template.metric,
            unit=conversion.unit,
            server=server,
            query=lambda: alone().query,
            template=template,
            factor=conversion.factor,
            matchers=limits,
            window=rate_window(window, server.scrape_interval),
            names=self._told_by(read, found, at),
            holes=("node",) if found.scope == "Node" else ("namespace", "pods"),
        )
        return together if can_be_asked_together(together) else by_itself()

    def _told_by(self, read: _Read, entity: Entity, at: datetime) -> tuple[tuple[str, ...], ...]:
        """Return the names by which the series of an entity are told apart at a time: node, or namespace and pod."""
        if entity.scope == "Node":
            return ((entity.name,),)
        namespace = entity.namespace or ""
        if entity.scope == "Namespace":
            return ((namespace, ""),)
        if entity.scope == "Pod":
            return ((namespace, entity.name),)
        runs = read.runs(entity, at, at)
        if runs is not None and not runs:
            raise MetricMissing(f"no pod of {self.short(entity.iri)} is known to run", detail={"entity": entity.iri})
        names = {run.name for run in runs or ()}
        return tuple((namespace, name) for name in sorted(names))

    def _check_has(
        self, catalogue: TemplateCatalogue, entity: Entity, metric: str, template: Template, stored: frozenset[str]
    ) -> None:
        """Raise when an entity cannot have what ``template`` measures: ``InvalidInput`` where only its unit was asked for."""
        why = self._subject(entity, stored, None).lacks(template.metric)
        if why is None:
            return
        if template.metric == metric:
            raise ResourceNotFound(f"{self.short(entity.iri)} has no {metric}: {why}", detail={"entity": entity.iri})
        offered = units.possible(catalogue.find(entity.scope, metric).unit)
        raise InvalidInput(
            f"{metric} of {self.short(entity.iri)} has no %: {why}",
            hint=f"it can be given in {', '.join(offered)}",
            detail={"entity": entity.iri, "metric": metric, "possible": list(offered)},
        )

    def _resolve_group(
        self,
        read: _Read,
        group: GroupName,
        catalogue: TemplateCatalogue,
        metric: str,
        wish: _Wish,
    ) -> Resolution:
        """Resolve a metric of a group: the sum over the pods that ran, in each namespace of them."""
        if wish.query is not None:
            raise InvalidInput("your own PromQL cannot be limited to a group", hint="name a workload, pod or node")
        before = max(2 * choose_step(wish.window, wish.step, timedelta(0)), _LONGEST_REACH)
        grouping = read.grouping(self._iris, group.by, wish.window.start - before, wish.window.end)
        runs = grouping.of(group)
        if catalogue.find("Group", metric).quantity == "network":
            runs = host_network.without(self._graph, runs, group)
        clusters = tuple(sorted({run.pod.cluster for run in runs}))
        found = Entity(group.iri(self._iris), group.by, "Group", None, None, group.value, None, None, clusters)
        return self._resolve_runs(read, found, runs, grouping.shared, catalogue, metric, wish)

    def _resolve_managed(
        self, read: _Read, entity: Entity, catalogue: TemplateCatalogue, metric: str, wish: _Wish
    ) -> Resolution:
        """Resolve a metric of what manages others: the sum over all pods below it that ran."""
        if wish.query is not None:
            raise InvalidInput(f"your own PromQL cannot be limited to a {entity.kind}", hint="name one of its pods")
        before = max(2 * choose_step(wish.window, wish.step, timedelta(0)), _LONGEST_REACH)
        start = wish.window.start - before
        runs = runs_below(self._graph, self._iris, entity, read.inventory, start, wish.window.end)
        if entity.kind != "Party":  # the others are of no domain, but of all whose pods they have
            entity = replace(entity, domain=None, clusters=tuple(sorted({run.pod.cluster for run in runs})))
        return self._resolve_runs(read, entity, runs, (), catalogue, metric, wish)

    def _resolve_runs(
        self,
        read: _Read,
        found: Entity,
        runs: Sequence[GroupedRun],
        shared: Iterable[PodPlace],
        catalogue: TemplateCatalogue,
        metric: str,
        wish: _Wish,
    ) -> Resolution:
        """Resolve a metric of pods by their runs: the sum over their namespaces."""
        template = catalogue.find("Group", metric)
        template, conversion = conversions.in_unit(catalogue, "Group", template, wish.unit, custom=False)
        server = self._holders.of_metric(found, template, wish.datasource, read.inventory)
        group_queries.check(template, server, runs)
        server, grid, span = self._timed(template, server, wish)
        step = timedelta(seconds=grid.step)
        server = self._looked_for_doubles(template, server, (), grid)
        how = {"window": span, "step": step}
        write = group_queries.in_namespaces(template, server, read.inventory, how, conversion)
        # Not further: a pod that moved to another node within that time would count in both groups.
        reach = int(max(span, timedelta(seconds=LOOKBACK)).total_seconds())
        question = group_queries.question(runs, shared, reach, write)
        if _extrapolates(template, server):
            precise = group_queries.in_namespaces(
                template, server, read.inventory, {**how, "precise": True}, conversion
            )
            scrape = server.scrape_interval.total_seconds()
            question = replace(question.with_precise(grid, scrape, question.write), in_namespace_precise=precise)
        stale = warnings_of(sorted({run.pod.cluster for run in runs}), wish.window.end, self._freshness)
        warnings = (*step_warnings(template, step, span, server), *stale)
        return metric_resolution(found, _in_unit(template, conversion), server, question, grid, "exact", warnings)

    def _resolve_signal(self, read: _Read, entity: str, signal: str, wish: _Wish) -> Resolution:
        """Resolve the traces or profiles of a service."""
        found = read.entity(entity)
        server = self._holders.of_signal(found, signal, wish.datasource, read.inventory)
        return links.added(service_resolution(found, signal, server, wish.window), found, self._pages, wish.window)

    def resolve_logs(
        self, entity: str, window: Window, *, datasource: str | None = None, containing: str | None = None
    ) -> Resolution:
        """Resolve the logs of a workload, pod, workflow, task or party, or the lines of them that contain a text; raises as ``resolve``."""
        read = _Read(self._graph, [entity])
        found = read.entity(entity)
        if found.scope == "Group":
            return self._logs_of_managed(read, found, window, datasource, containing)
        namespace, server = self._holders.of_logs(found, datasource, read.inventory)
        place = self._holders.place(found, read.inventory)
        limits = binding.matchers(server, place)
        pods = self._pods(read, found, window, timedelta(0), "auto")
        names = tuple(sorted({run.name for run in pods.runs or ()}))
        expected, how = any_of(names), pods.how
        if not names or any(
            first < window.end.timestamp() and last > window.start.timestamp() for first, last in pods.unknown
        ):
            expected, how = "|".join(filter(None, (expected, pods.pattern))), "mixed" if names else "pattern"
        streams = logql.selector(namespace, expected, server, limits)
        if how != "exact" and pods.pattern and (foreign := self._strangers(found, pods)):
            streams = promql.exclude(streams, expected, any_of(foreign))
        query = logql.containing(streams, containing)
        stale = warnings_of(place.clusters, window.end, self._freshness)
        resolution = log_resolution(found, server, query, window, names, how, (*pods.warnings, *stale))
        return links.added(resolution, found, self._pages, window)

    def _logs_of_managed(
        self, read: _Read, entity: Entity, window: Window, datasource: str | None, containing: str | None
    ) -> Resolution:
        """Resolve the logs of all pods below an entity, in all their namespaces."""
        runs = runs_below(self._graph, self._iris, entity, read.inventory, window.start, window.end)
        if entity.kind != "Party":
            entity = replace(entity, domain=None, clusters=tuple(sorted({run.pod.cluster for run in runs})))
        server = self._holders.candidates(entity, "loki", datasource, read.inventory)[0]
        limits = binding.matchers(server, self._holders.place(entity, read.inventory))
        names = tuple(sorted({run.pod.name for run in runs}))
        places = sorted({run.pod.namespace for run in runs})
        query = logql.containing(logql.selector(places, any_of(names), server, limits), containing)
        stale = warnings_of(sorted({run.pod.cluster for run in runs}), window.end, self._freshness)
        return log_resolution(entity, server, query, window, names, "exact", stale)

    # -- the parts of it ----------------------------------------------------------------------------------------------
    def _own_holder(self, entity: Entity, metric: str) -> str | None:
        """Return the datasource (IRI) in which a metric that pods expose was found: the first configured one."""
        held = self._graph.own_metric(entity.describer, metric).queries
        return next((each.iri for each in self._configured if each.iri in held), None)

    def _template(self, read: _Read, catalogue: TemplateCatalogue, entity: Entity, metric: str) -> Template | None:
        """Return the template, or None when only the graph knows the metric (somebody described it by hand)."""
        stored = read.stored(entity.describer)
        try:
            return catalogue.find(entity.scope, metric)
        except ResourceNotFound as error:
            if metric in stored:
                return None
            if metric in read.own(entity.describer):
                about = self._graph.own_metric(entity.describer, metric)
                if template := scraped.template_of(metric, Described(about.metric_type)):
                    return replace(template, unit=about.unit, quantity=about.quantity)
            known = [*(each.metric for each in catalogue.for_scope(entity.scope)), *read.own(entity.describer)]
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
            cluster=entity.cluster or "",
            namespace=entity.namespace,
            kind=entity.kind,
            name=entity.name,
            pods=pods,
            cpu_limited=not stored or "cpu_utilisation" in stored,
            host_network=bool(stored) and "network_receive" not in stored,
        )

    def _pods(self, read: _Read, entity: Entity, window: Window, reach: timedelta, selector: Choice) -> _Chosen:
        """Choose the pods to ask for: exactly those that ran where all are known, else the pattern of names; points look ``reach`` back."""
        start, end = window.start - reach, window.end
        if entity.scope == "Node":
            return _Chosen(None, None, "node")
        if entity.scope in ("Domain", "Cluster", "DomainRoute", "Invocation", "Function"):
            return _Chosen(None, None, "all")
        if entity.scope in MACHINES:
            return _Chosen(None, None, "machine")
        if entity.scope == "Namespace":
            return _Chosen(".+", None, "namespace")
        if entity.scope == "Pod":
            ran = read.ran(entity, start, end)
            warnings = () if ran else ("the pod did not run in the window, as far as the graph knows",)
            return _Chosen(None, (PodRun(entity.name, 0, None),), "exact", warnings)
        pattern = pod_names(entity.kind, entity.name)
        if selector == "pattern":
            return _Chosen(pattern, None, "pattern")
        runs = read.runs(entity, start, end)
        if runs is None:
            reason = f"it had more than {MAX_RUNS:,} pods"
            return _Chosen(pattern, None, "pattern", (f"{reason}, so the pattern of its pods' names is asked for",))
        if selector == "exact":
            return self._known(read, entity, pattern, runs, start, end)
        if not runs:  # no name at all would be one that any series without a pod has
            return _Chosen(pattern, None, "pattern")
        return _Chosen(pattern, runs, "exact", unknown=read.unknown(entity, runs, window.start))

    def _known(
        self,
        read: _Read,
        entity: Entity,
        pattern: str,
        runs: tuple[PodRun, ...],
        start: datetime,
        end: datetime,
    ) -> _Chosen:
        """Choose the known runs and nothing else; warn where they are not all."""
        if not runs:
            raise ResourceNotFound(
                f"no pod of {self.short(entity.iri)} is known to have run in the window",
                hint="selector=auto asks for the pattern of its pods' names there",
                detail={"entity": entity.iri},
            )
        since = moment(int(min(run.start for run in runs)))
        return _Chosen(pattern, runs, "exact", self._unknown_before(read, entity, since, start, end))

    def _guard(
        self,
        entity: Entity,
        pods: _Chosen,
        question: QueryTemplate,
        grid: Grid,
        server: Datasource,
        limits: tuple[promql.Matcher, ...],
    ) -> tuple[frozenset[str], tuple[str, ...]]:
        """Return the names of pods that match the pattern and are another workload's, and what to know about how they were found."""
        if pods.pattern is None or entity.namespace is None or server.kind == "parquet":
            return frozenset(), ()
        if all(each == "exact" for each, _ in question.intervals(grid)):
            return frozenset(), ()
        pattern = pods.pattern
        foreign = self._strangers(entity, pods) if server.kind != "influxdb" else frozenset()
        said: tuple[str, ...] = ()
        labelled = None
        if self._owners and server.kind == "prometheus":
            start, end = grid.window
            who = Namesake(entity.kind, entity.namespace, entity.name, pattern)
            labelled = self._owners.foreign(server, limits, who, start - _WIDER, end)
        if labelled is None:
            guard = f"no owner labels of {server.name} (kube_pod_owner) guard the pattern of their names"
            said = (f"not all of its pods are known, and {guard}, which is asked for",)
        foreign |= (labelled or frozenset()) - frozenset(run.name for run in pods.runs or ())
        if len(foreign) > MAX_PODS:
            said += (f"{len(foreign):,} pods of other workloads have names of its pattern, and are asked for, too",)
            foreign = frozenset()
        return foreign, said

    def _strangers(self, entity: Entity, pods: _Chosen) -> frozenset[str]:
        """Return the names of pods that match the pattern and that the graph knows as another workload's."""
        found = self._graph.strangers(entity, lambda names: alike(pods.pattern or "", names))
        return found - frozenset(run.name for run in pods.runs or ())

    def _unknown_before(
        self, read: _Read, entity: Entity, since: datetime, start: datetime, end: datetime
    ) -> tuple[str, ...]:
        """Warn when the workload is older than all that is known of its pods, so that earlier ones may be left out."""
        began = read.ran(entity, start, end)
        if began is None or max(began, start) >= since - timedelta(minutes=5):
            return ()
        return (f"none of its pods is known before {iso(since)}: one that had ended by then is not asked for",)

    def _as_stored(self, entity: Entity, name: str, inventory: Inventory, wish: _Wish) -> Resolution:
        """Resolve a metric that was described by hand: the stored query as it is, with the datasource's matchers."""
        candidates = self._holders.candidates(entity, "prometheus", wish.datasource, inventory, by_hand=True)
        metric = self._graph.stored_metric(entity.describer, name)
        conversion = conversions.first_fitting(name, metric.unit, wish.unit)
        server = next((each for each in candidates if each.iri in metric.queries), None)
        if server is None:
            raise ResourceNotFound(f"{name} of {self.short(entity.iri)} is in no datasource that is known here")
        query = metric.queries[server.iri]
        promql.parse(query)
        if limits := binding.matchers(server, self._holders.place(entity, inventory)):
            query = promql.enforce(query, limits)
        grid = Grid.over(wish.window, choose_step(wish.window, wish.step, server.scrape_interval))
        query, told = units.scaled(query, conversion.factor), replace(metric, unit=conversion.unit)
        return metric_resolution(entity, told, server, QueryTemplate(lambda _: query), grid, "stored", ())


def _around(at: datetime, window: timedelta) -> Grid:
    """Return the span that a value at one time looks at."""
    last = int(at.timestamp())
    seconds = max(1, int(window.total_seconds()))
    return Grid(last - seconds, last, seconds)


def _choice(selector: str) -> Choice:
    """Return a caller's choice; raises ``InvalidInput`` for an unknown word."""
    for each in get_args(Choice):
        if each == selector:
            return cast("Choice", each)
    raise InvalidInput(f"{selector[:40]!r} is not a selector", hint=f"there are {', '.join(get_args(Choice))}")


def _same_host(template: Template, alike: Sequence[str]) -> tuple[str, ...]:
    """Warn of routes that socket statistics cannot tell apart: the series have only the host."""
    if not alike or "remote" not in promql.holes(template.query):
        return ()
    return (f"{', '.join(alike)} lead to the same host: socket statistics do not tell them apart",)


def _limited(
    custom: str, entity: Entity, pods: str | None, server: Datasource, limits: tuple[promql.Matcher, ...]
) -> str:
    """Return a caller's own PromQL, limited to an entity."""
    if entity.scope == "Node" and renaming.label_of_node(server) is None:
        return renaming.joined_to_node(custom, server, entity.name, limits)
    return promql.enforce(custom, (*limits, *_limits(entity, pods, server, limits)))


def _reach(template: Template, span: timedelta, server: Datasource) -> timedelta:
    """Return how far before a point a pod may have ended that has a part in it.

    A counter's samples count over the whole range. A gauge's last sample counts only while the pod lives, however long the server keeps it.
    """
    if template.counts or server.kind == "influxdb":
        return counted_range(span, server.scrape_interval)
    return timedelta(0) if promql.LOOKBACK_HOLE in template.query else max(span, timedelta(seconds=LOOKBACK))


def _in_unit(template: Template, conversion: units.Conversion) -> Template:
    """Return the template as the answer names it."""
    return template if template.unit == conversion.unit else replace(template, unit=conversion.unit)


def _extrapolates(template: Template, server: Datasource) -> bool:
    """Return whether a server estimates what a counter counted beyond its samples."""
    return template.counts and server.kind == "prometheus" and server.language == "promql"


_SHARES: Mapping[str | None, SelectorKind] = {None: "all", "node": "nodes", "namespace": "namespaces"}


def _of_share(
    part: Share, domain: str, template: Template, catalogue: TemplateCatalogue, server: Datasource
) -> tuple[Template, Mapping[str, str]]:
    """Return the template that asks for a domain's share, and what fills it: that of its nodes or of its namespaces' workloads.

    Raises ``InvalidInput`` when there is no such template: the metric cannot be told from other domains'.
    """
    of_one = catalogue.get("Node" if part.kind == "node" else "Workload", template.metric)
    if of_one is None or part.kind not in promql.holes(of_one.query):
        lines = binding.configuration(server, f'domains = ["{domain}"]')
        raise InvalidInput(
            f"{template.metric} of one domain cannot be told from the others' by its {part.kind}s",
            hint=f"when the server holds that domain alone, add the last line to drumlin.toml:\n{lines}",
            detail={"datasource": server.name, "configuration": lines},
        )
    names = any_of(part.names)
    if part.kind == "node":
        return of_one, {"nodes": names}
    return host_network.subtracted(of_one), {"namespaces": names, "pods": ".+"}


def _left_out(part: Share) -> tuple[str, ...]:
    if not part.left_out:
        return ()
    return (f"only its {part.kind}s are added up: what it has in {', '.join(part.left_out)} is not among them",)


def _shown(entity: Entity, place: Place) -> Entity:
    """Return the entity with the cluster that links to its pages name: a domain's, when it is in one."""
    return replace(entity, cluster=place.clusters[0]) if entity.cluster is None and len(place.clusters) == 1 else entity


def _limits(
    entity: Entity, pods: str | None, server: Datasource, bound: tuple[promql.Matcher, ...]
) -> tuple[promql.Matcher, ...]:
    """Return the matchers that limit any selector to an entity beside the ``bound`` ones, in this server's label names."""
    if entity.scope == "Node" and (of_node := renaming.label_of_node(server)):
        return (promql.Matcher(of_node, "=", entity.name),)
    if (entity.scope == "Cluster" and bound) or entity.scope == "Invocation":
        return ()
    if entity.scope in MACHINES:
        return (promql.Matcher(machines.LABELS[entity.scope], "=", entity.name),)
    if entity.namespace is None or entity.scope == "Function":
        raise InvalidInput(
            f"a {entity.kind} cannot limit a query of your own", hint="ask for a workload, a pod or a node"
        )
    namespace, pod = (renaming.label(server, name) for name in ("namespace", "pod"))
    own = promql.Matcher(namespace, "=", entity.namespace)
    return (own,) if entity.scope == "Namespace" else (own, promql.Matcher(pod, "=~", pods or ""))
