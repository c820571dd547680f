"""An entity's telemetry as documents: which metrics and logs it has, where they are and the query that asks for them.

Pure. What is stored uses a *stable* selector, the name pattern of the workload's kind, so that the graph does not change
when pods come and go; ``resolve`` asks for exactly the pods that ran.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from typing import Any, Literal

from kg.iris import Iris
from kg.jsonld import NodeDocument
from kg.telemetry import dialects, links, logql
from kg.telemetry.datasources import Datasource
from kg.telemetry.quoting import literally
from kg.telemetry.templates import Catalogue, Template

Scope = Literal["Workload", "Pod", "Node", "Domain", "Cluster"]

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

_NEEDS_CPU_LIMIT = frozenset({"cpu_utilisation"})
_NEEDS_OWN_NETWORK = frozenset({"network_receive", "network_transmit"})


@dataclass(frozen=True, slots=True)
class Subject:
    """An entity whose telemetry is described. ``pods`` is the regular expression (RE2) of its pods' names.

    ``cpu_limited`` False: no container has a CPU limit, so there is no utilisation. ``host_network``: its traffic is the
    node's. ``logs_injected``: a logging sidecar is injected into its pods.
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

    @property
    def values(self) -> dict[str, str]:
        """What fills the holes of a template."""
        found = {"namespace": self.namespace, "pods": self.pods, "node": self.name if self.scope == "Node" else None}
        return {hole: value for hole, value in found.items() if value is not None}

    def lacks(self, metric: str) -> str | None:
        """Return why the entity cannot have a metric of its scope, or None when it can."""
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


def describe(
    subject: Subject, catalogue: Catalogue, datasources: Sequence[Datasource], iris: Iris
) -> list[NodeDocument]:
    """Return the Telemetry documents of an entity, one per signal; nothing for a signal that no datasource holds."""
    found = [_metrics(subject, catalogue, datasources, iris), _logs(subject, datasources)]
    return [telemetry for telemetry in found if telemetry]


def _metrics(
    subject: Subject, catalogue: Catalogue, datasources: Sequence[Datasource], iris: Iris
) -> NodeDocument | None:
    parts = [_metric(subject, template, datasources, iris) for template in catalogue.for_scope(subject.scope)]
    metrics = [part for part in parts if part]
    dashboards = [link for each in datasources if (link := _dashboard(subject, each))]
    if not metrics and not dashboards:
        return None
    telemetry: dict[str, Any] = {"id": Iris.telemetry(subject.iri, "metrics"), "type": "Telemetry", "signal": "metrics"}
    if metrics:
        telemetry["hasPart"] = metrics
    if dashboards:
        telemetry["dashboard"] = dashboards
    return telemetry


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
        "distribution": [_metric_query(iri, subject, template, each, iris) for each in holders],
    }


def _metric_query(
    metric: str, subject: Subject, template: Template, datasource: Datasource, iris: Iris
) -> NodeDocument:
    window = max(DEFAULT_WINDOW, 4 * datasource.scrape_interval)
    query = dialects.write(
        template, subject.values, iris.short(subject.iri), window=window, step=window, datasource=datasource
    )
    return {
        "id": Iris.at(metric, datasource.name),
        "type": "MetricQuery",
        "query": query,
        "accessService": datasource.iri,
    }


def _logs(subject: Subject, datasources: Sequence[Datasource]) -> NodeDocument | None:
    iri = Iris.telemetry(subject.iri, "logs")
    if subject.namespace is None or subject.pods is None:
        return None
    streams = [
        {
            "id": Iris.at(iri, datasource.name),
            "type": "LogQuery",
            "query": logql.selector(subject.namespace, subject.pods, datasource),
            "accessService": datasource.iri,
        }
        for datasource in datasources
        if datasource.kind == "loki" and (datasource.logs == "all" or subject.logs_injected)
    ]
    return {"id": iri, "type": "Telemetry", "signal": "logs", "distribution": streams} if streams else None


def _dashboard(subject: Subject, datasource: Datasource) -> NodeDocument | None:
    shown = links.Shown(subject.scope, subject.cluster, subject.namespace, subject.kind, subject.name)
    url = links.stored(shown, datasource)
    return {"id": Iris.dashboard(subject.iri, datasource.name), "type": "Dashboard", "url": url} if url else None
