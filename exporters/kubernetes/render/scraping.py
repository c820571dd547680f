"""Who scrapes what: prometheus-operator's monitors and the ``prometheus.io/scrape`` annotations, joined to datasources.

ServiceMonitor, PodMonitor and ScrapeConfig are entities; a Prometheus object only says which of them it takes. It is a datasource when
a Service of its namespace leads to its pods and that Service is a datasource: configured by ``service``, or discovered.
Source: https://prometheus-operator.dev/docs/api-reference/api/
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any

import msgspec

from drumlin.exporters.discovery import is_service
from drumlin.exporters.kubernetes.manifests import Installed, InstalledMetadata, Projection
from drumlin.exporters.kubernetes.render.place import inside
from drumlin.exporters.kubernetes.selectors import SELECTABLE, Labels, LabelSelector, Selectable, selectable_topic
from drumlin.exporters.pipeline.context import DATASOURCES, RenderContext
from drumlin.exporters.protocol import OPERATED, Metadata, Topic, without_nulls
from drumlin.kg.rdf.jsonld import NodeDocument

ANY = "*"
MONITORING = "monitoring.coreos.com"
"""prometheus-operator's group; its kinds are followed where it is installed."""
MONITORS: Topic = ("monitors",)
PROMETHEUSES: Topic = ("prometheuses",)

_PROMETHEUS, _SERVICE_MONITOR, _POD_MONITOR = (
    f"{kind}.{MONITORING}" for kind in ("prometheus", "servicemonitor", "podmonitor")
)
# The labels that the operator gives to the pods of the Prometheus NAME; a Service that leads to them names it by one.
_NAMES = ("operator.prometheus.io/name", "prometheus", "app.kubernetes.io/instance")
_COMMON = {"app.kubernetes.io/name": "prometheus", "app.kubernetes.io/managed-by": "prometheus-operator"}


class NamespaceSelector(msgspec.Struct, frozen=True, gc=False):
    """The namespaces that a monitor looks into: its own, unless it names others or any."""

    any: bool = False
    matchNames: tuple[str, ...] | None = None


class MonitorSpec(msgspec.Struct, frozen=True, gc=False):
    """Whom it selects. Endpoints name secrets and are not taken."""

    selector: LabelSelector = LabelSelector()
    namespaceSelector: NamespaceSelector = NamespaceSelector()


class Monitor(Installed, frozen=True, kw_only=True):
    """What is taken from a ServiceMonitor or PodMonitor."""

    spec: MonitorSpec = MonitorSpec()


class ScrapeConfig(Installed, frozen=True, kw_only=True):
    """What is taken from a ScrapeConfig: that it exists; its targets need not be of the cluster."""


class PrometheusSpec(msgspec.Struct, frozen=True, gc=False):
    """Which monitors it takes: by their labels, and by the labels of their namespaces (absent: its own namespace)."""

    serviceMonitorSelector: LabelSelector | None = None
    serviceMonitorNamespaceSelector: LabelSelector | None = None
    podMonitorSelector: LabelSelector | None = None
    podMonitorNamespaceSelector: LabelSelector | None = None
    scrapeConfigSelector: LabelSelector | None = None
    scrapeConfigNamespaceSelector: LabelSelector | None = None

    def selectors(self, kind: str) -> tuple[LabelSelector | None, LabelSelector | None]:
        """Return the selectors of a kind of monitor and of its namespaces."""
        return {
            "ServiceMonitor": (self.serviceMonitorSelector, self.serviceMonitorNamespaceSelector),
            "PodMonitor": (self.podMonitorSelector, self.podMonitorNamespaceSelector),
            "ScrapeConfig": (self.scrapeConfigSelector, self.scrapeConfigNamespaceSelector),
        }[kind]


class PrometheusObject(Projection, frozen=True, kw_only=True):
    """What is taken from a Prometheus object."""

    spec: PrometheusSpec = PrometheusSpec()


@dataclass(frozen=True, slots=True)
class Selecting:
    """A Service as monitors see it: who it is, its labels, whom it selects, whether it is annotated to be scraped."""

    namespace: str
    name: str
    labels: Mapping[str, str]
    selector: Mapping[str, str]
    annotated: bool

    def leads_to(self, labels: Labels) -> bool:
        """Return whether its pods are those with ``labels``."""
        return bool(self.selector) and self.selector.items() <= labels.items()


@dataclass(frozen=True, slots=True)
class Watching:
    """A monitor as workloads see it."""

    kind: str
    metadata: InstalledMetadata
    spec: MonitorSpec

    def looks_into(self, namespace: str) -> bool:
        """Return whether it looks into a namespace."""
        return bool({namespace, ANY} & set(self.namespaces))

    @property
    def namespaces(self) -> tuple[str, ...]:
        """The namespaces that it looks into; ``*`` for any."""
        where = self.spec.namespaceSelector
        return (ANY,) if where.any else where.matchNames or (self.metadata.namespace or "",)


def services_topic(namespace: str) -> Topic:
    """The topic on which Services publish whom they select; ``*`` for those of all namespaces."""
    return ("services", namespace)


def namespace_topic(namespace: str) -> Topic:
    """The topic on which a Namespace publishes its labels."""
    return ("namespace", namespace)


# -- entities -------------------------------------------------------------------------------------------------------------


def render_servicemonitor(monitor: Monitor, context: RenderContext) -> NodeDocument:
    """Describe a ServiceMonitor with the Services it selects and the datasources that take it."""
    watching = Watching("ServiceMonitor", monitor.metadata, monitor.spec)
    services = [each for where in watching.namespaces for each in context.told(services_topic(where))]
    found = {
        context.around.object(each.namespace, "Service", each.name)
        for each in services
        if watching.spec.selector.matches(each.labels)
    }
    return _monitor(watching, {*found, *context.kept("selects", ("service",))}, context)


def render_podmonitor(monitor: Monitor, context: RenderContext) -> NodeDocument:
    """Describe a PodMonitor with the workloads whose pods it selects and the datasources that take it."""
    watching = Watching("PodMonitor", monitor.metadata, monitor.spec)
    workloads: list[Selectable] = [
        each for where in watching.namespaces for each in context.told(selectable_topic(where))
    ]
    found = {
        context.around.object(each.namespace, each.kind, each.name)
        for each in workloads
        if watching.spec.selector.matches(each.labels)
    }
    return _monitor(watching, {*found, *context.kept("selects", SELECTABLE)}, context)


def render_scrapeconfig(monitor: ScrapeConfig, context: RenderContext) -> NodeDocument:
    """Describe a ScrapeConfig with the datasources that take it."""
    return _monitor(Watching("ScrapeConfig", monitor.metadata, MonitorSpec()), (), context)


def _monitor(watching: Watching, selects: Iterable[str], context: RenderContext) -> NodeDocument:
    return without_nulls(
        {
            **inside(watching.metadata, "Monitor", context),
            "selects": sorted(selects),
            "scrapedBy": sorted(_takers(watching, context)),
        }
    )


# -- facts ----------------------------------------------------------------------------------------------------------------


def servicemonitor_facts(monitor: Monitor) -> Iterable[tuple[Topic, Any]]:
    """Publish to workloads that it watches Services."""
    yield MONITORS, Watching("ServiceMonitor", monitor.metadata, monitor.spec)


def podmonitor_facts(monitor: Monitor) -> Iterable[tuple[Topic, Any]]:
    """Publish to workloads that it watches pods."""
    yield MONITORS, Watching("PodMonitor", monitor.metadata, monitor.spec)


def prometheus_facts(prometheus: PrometheusObject) -> Iterable[tuple[Topic, Any]]:
    """Publish to monitors and workloads which of them it takes."""
    yield PROMETHEUSES, (prometheus.metadata, prometheus.spec)


# -- the join -------------------------------------------------------------------------------------------------------------


def scrapers(namespace: str, labels: Labels, context: RenderContext, *, annotated: bool) -> frozenset[str]:
    """Return the datasources (IRIs) that scrape the pods with ``labels``.

    An annotation, of the pods or of a Service that leads to them, is for every Prometheus; a monitor for those that take it.
    """
    services = [each for each in context.told(services_topic(namespace)) if each.leads_to(labels)]
    if annotated or any(each.annotated for each in services):
        return _prometheuses(context)
    found: set[str] = set()
    for watching in context.told(MONITORS):
        if watching.looks_into(namespace) and _sees(watching, labels, services):
            found |= _takers(watching, context)
    if any(context.awaits_any(*each) for each in (("service", namespace), (_SERVICE_MONITOR,), (_POD_MONITOR,))):
        found.update(context.memory.holders(context.entity))
    return frozenset(found)


def _sees(watching: Watching, labels: Labels, services: Iterable[Selecting]) -> bool:
    selector = watching.spec.selector
    if watching.kind == "PodMonitor":
        return selector.matches(labels)
    return any(selector.matches(each.labels) for each in services)


def _takers(watching: Watching, context: RenderContext) -> set[str]:
    """Return the datasources whose Prometheus takes a monitor; when no Prometheus object is known, the only datasource.

    While Prometheus objects may exist that were not reported, those are kept that the graph knows of the monitor.
    """
    known, every = context.told(PROMETHEUSES), _prometheuses(context)
    taken = {
        datasource
        for metadata, spec in known
        if _takes(metadata, spec, watching, context)
        for datasource in _datasources(metadata, context)
    }
    graph = context.around.object(watching.metadata.namespace, watching.kind, watching.metadata.name, MONITORING)
    if context.memory.knew(graph) and not context.is_complete(_PROMETHEUS):
        return taken | every.intersection(context.memory.links(graph, "scrapedBy"))
    return taken if known or len(every) != 1 else set(every)


def _takes(prometheus: Metadata, spec: PrometheusSpec, watching: Watching, context: RenderContext) -> bool:
    selector, namespaces = spec.selectors(watching.kind)
    if selector is None or not selector.matches(watching.metadata.labels or {}):
        return False
    namespace = watching.metadata.namespace or ""
    if namespaces is None:
        return namespace == prometheus.namespace
    return any(namespaces.matches(labels) for labels in context.told(namespace_topic(namespace)))


def _datasources(prometheus: Metadata, context: RenderContext) -> Iterable[str]:
    """Return the datasources that are Services leading to the pods of a Prometheus object."""
    own = dict.fromkeys(_NAMES, prometheus.name)
    named = _named(context)
    for each in context.told(services_topic(prometheus.namespace or "")):
        points = {key: value for key, value in each.selector.items() if key in own or key in _COMMON}
        if (own.keys() & points.keys() or each.name == OPERATED) and points.items() <= {**own, **_COMMON}.items():
            yield from named.get((each.namespace, each.name), ())


def _named(context: RenderContext) -> dict[tuple[str, str], list[str]]:
    """Return the datasources by the namespace and name of their Service."""
    found: dict[tuple[str, str], list[str]] = {}
    iris, settings = context.around.iris, context.around.settings
    for each in settings.datasource:
        if each.service and each.kind == "prometheus":
            namespace, _, name = each.service.partition("/")
            found.setdefault((namespace, name), []).append(iris.datasource(each.name))
    discovered = context.told(DATASOURCES)
    for told in discovered:
        if told.kind == "prometheus":
            configured = (
                each for each in settings.datasource if not each.service and is_service(each, told, discovered)
            )
            own = [iris.datasource(each.name) for each in configured]
            found.setdefault((told.namespace, told.service), []).extend(own)
            iri = iris.datasource(f"{told.service}.{told.namespace}.{settings.cluster}")
            if any(each.iri == iri for each in context.discovered):
                found.setdefault((told.namespace, told.service), []).append(iri)
    return found


def _prometheuses(context: RenderContext) -> frozenset[str]:
    context.told(DATASOURCES)
    known = (*context.around.datasources, *context.discovered)
    return frozenset(each.iri for each in known if each.kind == "prometheus")
