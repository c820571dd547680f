"""An entity's telemetry as documents: which metrics and logs it has, where they are and the query that asks for them.

Pure. What is stored uses a *stable* selector, the name pattern of the workload's kind, so that the graph does not change
when pods come and go; ``resolve`` asks for exactly the pods that ran.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry import binding, dialects, links, logql, promql, signals
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.quoting import any_of, literally
from drumlin.kg.telemetry.routes import Route
from drumlin.kg.telemetry.templates import Template, TemplateCatalogue

Scope = Literal[
    "Workload",
    "Pod",
    "Node",
    "Namespace",
    "Domain",
    "Cluster",
    "Group",
    "DomainRoute",
    "VirtualMachine",
    "ContainerInstance",
    "Invocation",
    "Function",
]
"""What templates are for. A host is asked for as a node is: both by their name in node-exporter's series."""

MACHINES = frozenset({"VirtualMachine", "ContainerInstance"})
"""Scopes whose series bear the name of the entity."""

DEFAULT_WINDOW = timedelta(minutes=5)
"""Rate window of a stored query, unless four scrapes take longer."""

_SUFFIX = "[0-9a-z]{5}"  # of generated names; the API server draws from 27 letters and digits
_LONGEST_BASE = 58  # characters kept of a generated name's base, so that it stays a DNS label with its suffix
# Kind → what stands between the workload's name and the last hyphen, and how long that can be.
_GENERATED: Mapping[str, tuple[str, int]] = {
    "Deployment": ("-[0-9a-f]{6,10}", 11),  # the replica set's hash
    "DaemonSet": ("", 0),
    "ReplicaSet": ("", 0),
    "Job": ("(-[0-9]+)?", 0),  # indexed jobs put the completion index there
    "CronJob": ("-[0-9]+(-[0-9]+)?", 9),  # the job's scheduled time, in minutes
}
WORKLOAD_KINDS = frozenset({*_GENERATED, "StatefulSet"})
"""Kinds whose pods' names are known from their own, so that they have telemetry."""

_NEEDS_HOST = frozenset({"rtt", "retransmission_rate", "connections"})
_NEEDS_CPU_LIMIT = frozenset({"cpu_utilisation"})
_NEEDS_OWN_NETWORK = frozenset({"network_receive", "network_transmit", "network_usage"})


@dataclass(frozen=True, slots=True)
class Subject:
    """An entity whose telemetry is described. ``pods`` is the regular expression (RE2) of its pods' names.

    ``cpu_limited`` False: no container has a CPU limit, so there is no utilisation. ``host_network``: its traffic is the
    node's. ``logs_injected``: a logging sidecar is injected into its pods. ``place``: where it is, when that is more than its cluster.
    ``nodes``: the nodes that a domain's metrics are summed over; None: all that a datasource holds of its place. ``route``: what names the
    series of a route between domains. ``matchers``: what else every selector of its metrics has.
    """

    iri: str
    scope: Scope
    cluster: str
    namespace: str | None
    kind: str
    name: str
    pods: str | None = None
    cpu_limited: bool = True
    host_network: bool = False
    logs_injected: bool = False
    place: Place | None = None
    nodes: tuple[str, ...] | None = None
    route: Route | None = None
    matchers: tuple[promql.Matcher, ...] = ()

    @property
    def values(self) -> dict[str, str]:
        """What fills the holes of a template."""
        found = {"namespace": self.namespace, "pods": self.pods, "node": self.name if self.scope == "Node" else None}
        found |= {"machine": self.name} if self.scope in MACHINES else {}
        found |= {"nodes": any_of(self.nodes)} if self.nodes else {}
        found |= self.route.values if self.route else {}
        if self.scope == "Function":
            found |= {"function": self.name, "qualified": f"{self.name}.{self.namespace}"}
        return {hole: value for hole, value in found.items() if value is not None}

    def lacks(self, metric: str) -> str | None:
        """Return why the entity cannot have a metric of its scope, or None when it can."""
        if self.route and metric in _NEEDS_HOST and self.route.remote is None:
            return "its endpoint has no host"
        if self.scope not in ("Workload", "Pod"):
            return None
        if metric in _NEEDS_CPU_LIMIT and not self.cpu_limited:
            return "none of its containers has a CPU limit"
        if metric in _NEEDS_OWN_NETWORK and self.host_network:
            return "it uses the network of its node"
        return None


def pod_names(kind: str, name: str) -> str:
    """Return the regular expression (RE2) of the names that pods of a workload get; ``KeyError`` for other kinds.

    A long name is cut by the API server before the suffix, so the pattern then allows for what is left of it.
    """
    if kind == "StatefulSet":
        return f"{literally(name)}-[0-9]+"
    middle, longest = _GENERATED[kind]
    if len(name) + longest + 1 <= _LONGEST_BASE:
        return f"{literally(name)}{middle}-{_SUFFIX}"
    room = _LONGEST_BASE - len(name)
    rest = f"[-0-9a-f]{{0,{room}}}" if room > 0 else ""
    return f"{literally(name[:_LONGEST_BASE])}{rest}{_SUFFIX}"


def owner_names(kind: str, name: str) -> tuple[str, str]:
    """Return the kind of what controls the pods of a workload, and the regular expression (RE2) of its names; ``KeyError`` as above."""
    if kind == "Deployment":
        return "ReplicaSet", literally(name) + _GENERATED[kind][0]
    if kind == "CronJob":
        return "Job", f"{literally(name)}-[0-9]+"
    if kind not in WORKLOAD_KINDS:
        raise KeyError(kind)
    return kind, literally(name)


def describe(
    subject: Subject, catalogue: TemplateCatalogue, datasources: Sequence[Datasource], iris: Iris
) -> list[NodeDocument]:
    """Return the Telemetry documents of an entity, one per signal; nothing for a signal that no datasource holds."""
    found = [
        _metrics(subject, catalogue, datasources, iris),
        _logs(subject, datasources, iris),
        *(_of_service(subject, signal, datasources, iris) for signal in signals.KINDS),
    ]
    return [telemetry for telemetry in found if telemetry]


def _metrics(
    subject: Subject, catalogue: TemplateCatalogue, datasources: Sequence[Datasource], iris: Iris
) -> NodeDocument | None:
    parts = [_metric(subject, template, datasources, iris) for template in _templates(subject, catalogue)]
    metrics = [part for part in parts if part]
    if not metrics:  # a dashboard shows metrics
        return None
    dashboards = [link for each in datasources if (link := _dashboard(subject, each))]
    iri = Iris.telemetry(subject.iri, "metrics")
    found: dict[str, Any] = {"id": iri, "type": "Telemetry", "signal": "metrics", "hasPart": metrics}
    return found | ({"dashboard": dashboards} if dashboards else {})


def _templates(subject: Subject, catalogue: TemplateCatalogue) -> Iterator[Template]:
    """Yield the templates of a subject: its scope's, for some nodes those of a node that its scope has too."""
    for each in catalogue.for_scope(subject.scope):
        if subject.nodes is None:
            yield each
        elif (
            subject.nodes and (of_node := catalogue.get("Node", each.metric)) and "node" in promql.holes(of_node.query)
        ):
            yield of_node


def _metric(subject: Subject, template: Template, datasources: Sequence[Datasource], iris: Iris) -> NodeDocument | None:
    holders = [each for each in datasources if each.kind != "parquet" and dialects.speaks(each, template)]
    if not holders or subject.lacks(template.metric):
        return None
    iri = Iris.metric(subject.iri, template.metric)
    return {
        "id": iri,
        "type": "Metric",
        "name": template.metric,
        "quantity": template.quantity,
        "unit": template.unit,
        "metricType": template.metric_type,
        "template": iris.template(template.name),
        "distribution": _marked(
            [_metric_query(iri, subject, template, each, iris) for each in holders],
            binding.preferred(holders, template.datasource_type, _home(subject, iris)),
        ),
    }


def _marked(distributions: list[NodeDocument], ranked: Sequence[Datasource]) -> list[NodeDocument]:
    """Mark the distribution that ``resolve`` takes, where there are several."""
    if len(distributions) == 1:
        return distributions
    first = ranked[0].iri
    return [{**each, "preferred": True} if each["accessService"] == first else each for each in distributions]


def _home(subject: Subject, iris: Iris) -> str | None:
    """Return the domain (IRI) whose datasources come first."""
    return iris.domain(subject.place.domain) if subject.place and subject.place.domain else None


def _metric_query(
    metric: str, subject: Subject, template: Template, datasource: Datasource, iris: Iris
) -> NodeDocument:
    window = max(DEFAULT_WINDOW, 4 * datasource.scrape_interval)
    query = dialects.write(
        template,
        subject.values,
        iris.short(subject.iri),
        window=window,
        step=window,
        datasource=datasource,
        matchers=_matchers(subject, datasource),
    )
    return {
        "id": Iris.at(metric, datasource.name),
        "type": "MetricQuery",
        "query": query,
        "accessService": datasource.iri,
    }


def _logs(subject: Subject, datasources: Sequence[Datasource], iris: Iris) -> NodeDocument | None:
    iri = Iris.telemetry(subject.iri, "logs")
    if subject.namespace is None or subject.pods is None:
        return None
    holders = [each for each in datasources if each.kind == "loki" and (each.logs == "all" or subject.logs_injected)]
    streams: list[NodeDocument] = [
        {
            "id": Iris.at(iri, datasource.name),
            "type": "LogQuery",
            "query": logql.selector(subject.namespace, subject.pods, datasource, _matchers(subject, datasource)),
            "accessService": datasource.iri,
        }
        for datasource in holders
    ]
    if not streams:
        return None
    dashboards = [link for each in datasources if (link := _dashboard(subject, each, logs=True))]
    ranked = binding.preferred(holders, "loki", _home(subject, iris))
    found: dict[str, Any] = {"id": iri, "type": "Telemetry", "signal": "logs", "distribution": _marked(streams, ranked)}
    return found | ({"dashboard": dashboards} if dashboards else {})


def _of_service(subject: Subject, signal: str, datasources: Sequence[Datasource], iris: Iris) -> NodeDocument | None:
    """Describe the traces or profiles of a service."""
    holders = [each for each in datasources if each.kind in signals.KINDS[signal]]
    if not holders or subject.scope not in signals.SCOPES:
        return None
    iri = Iris.telemetry(subject.iri, signal)
    queries: list[NodeDocument] = [
        {
            "id": Iris.at(iri, each.name),
            "type": signals.CLASSES[signal],
            "query": signals.query(each.kind, subject.name),
            "accessService": each.iri,
        }
        for each in holders
    ]
    ranked = binding.preferred(holders, signals.KINDS[signal][0], _home(subject, iris))
    return {"id": iri, "type": "Telemetry", "signal": signal, "distribution": _marked(queries, ranked)}


def _matchers(subject: Subject, datasource: Datasource) -> tuple[promql.Matcher, ...]:
    return (*binding.matchers(datasource, subject.place or Place((subject.cluster,))), *subject.matchers)


def _dashboard(subject: Subject, datasource: Datasource, *, logs: bool = False) -> NodeDocument | None:
    scope = links.LOGS if logs else subject.scope
    shown = links.Shown(scope, subject.cluster, subject.namespace, subject.kind, subject.name)
    url = links.stored(shown, datasource)
    name = f"{datasource.name}.{links.LOGS}" if logs else datasource.name
    return {"id": Iris.dashboard(subject.iri, name), "type": "Dashboard", "url": url} if url else None
