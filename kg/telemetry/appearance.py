"""Collects the names that a Prometheus uses: jobs, labels, nodes, and labels that may distinguish clusters.

It reads the index only (label names and values of the last hour, always with start and end), and runs two counts.
``kg.telemetry.recognition`` and ``kg.telemetry.proposing`` draw the conclusions.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from typing import Final, NamedTuple

from drumlin.kg.config.datasources import NodeJoin
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.profiles import ADDRESS, NAME

LOOKED_AT: Final = timedelta(hours=1)
"""How far back series are looked for."""
LONGER: Final = timedelta(days=1)
"""How far back where nothing is newer."""
CLUSTER_LABELS: Final[tuple[str, ...]] = (
    "cluster",
    "k8s_cluster_name",
    "cluster_name",
    "clusterName",
    "cluster_id",
    "clusterArn",
    "k8s_cluster",
    "kubernetes_cluster",
)
"""Labels by which installations tell clusters apart, the usual ones first."""
SIGNS: Final[Mapping[str, str]] = {
    "cadvisor": "container_cpu_usage_seconds_total",
    "kubelet": "kubelet_volume_stats_used_bytes",
    "kube-state-metrics": "kube_pod_info",
    "node-exporter": "node_cpu_seconds_total",
    "dcgm": "DCGM_FI_DEV_GPU_UTIL",
    "otel": "k8s_pod_cpu_time_seconds_total",
}
"""The metric by which an exporter is recognised."""
OF_GOOGLE: Final[tuple[str, ...]] = ("location", "project_id")
"""Labels that Google's servers have beside the cluster's: clusters of equal name differ in them."""
MIXED: Final = "mixed"
"""What ``instance`` is where it is an address at some targets and the name of a node at others."""
RULES: Final[Mapping[str, str]] = {
    "cadvisor": "node_namespace_pod_container:container_cpu_usage_seconds_total:sum_rate5m",
    "node-exporter": "instance:node_num_cpu:sum",
}
"""A recording rule of the mixins over an exporter's series."""
_ADDRESS = re.compile(r"\[?([0-9a-fA-F.:]+?)\]?(:[0-9]+)?")


class Exported(NamedTuple):
    """The series of one exporter: the jobs that scrape them, and their labels."""

    jobs: tuple[str, ...]
    labels: frozenset[str]


@dataclass(frozen=True, slots=True)
class Appearance:
    """The names that a server uses.

    ``instances`` are node-exporter's, ``nodes`` the names of nodes that the server knows, ``joins`` the ways from an instance to such
    a name, ``node_label`` whether node-exporter's label ``node`` has one. ``clusters`` has the values of each label that may tell
    clusters apart, ``unclustered`` whether there are series without it. ``otel`` are names of OpenTelemetry's metrics where the usual
    one is missing; ``rules`` the exporters over whose series there are recording rules; ``marks`` the features of one installation;
    ``span`` how far back was looked. ``scrapes`` counts how often one container is there, ``state_metrics`` the kube-state-metrics.
    """

    series: Mapping[str, Exported] = field(default_factory=dict)
    instances: tuple[str, ...] = ()
    nodes: frozenset[str] = frozenset()
    joins: tuple[NodeJoin, ...] = ()
    node_label: bool = False
    marks: Mapping[str, str] = field(default_factory=dict)
    clusters: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    unclustered: bool = False
    rules: frozenset[str] = frozenset()
    otel: tuple[str, ...] = ()
    span: str = "hour"
    scrapes: int = 1
    state_metrics: int = 1

    def has(self, exporter: str, label: str) -> bool:
        """Return whether the series of an exporter have a label."""
        return exporter in self.series and label in self.series[exporter].labels

    @property
    def instance(self) -> str | None:
        """What node-exporter's ``instance`` holds: the name of a node, an address, or either; None without such a label."""
        if not self.instances:
            return None
        if self.nodes:
            names = sum(each in self.nodes for each in self.instances)
            return NAME if names == len(self.instances) else MIXED if names else ADDRESS
        return ADDRESS if all(":" in each or _ADDRESS.fullmatch(each) for each in self.instances) else NAME


def look(client: Prometheus, now: datetime) -> Appearance:
    """Collect what a server shows of the last hour, or of the last day if there is nothing; raises what the client raises."""
    seen = _look(client, now - LOOKED_AT, now)
    return seen if seen.series or seen.rules else replace(_look(client, now - LONGER, now), span="day")


def _look(client: Prometheus, start: datetime, now: datetime) -> Appearance:
    asked = _Index(client, start, now)
    series = {exporter: found for exporter in SIGNS if (found := asked.series(exporter))}
    nodes = frozenset(asked.values("node", "kube_node_info")) or frozenset(
        asked.values("node", SIGNS["cadvisor"]) if "node" in _labels_of(series, "cadvisor") else ()
    )
    rules = frozenset(exporter for exporter, rule in RULES.items() if asked.names(rule))
    of_nodes = next((each["node-exporter"] for each in (SIGNS, RULES) if asked.names(each["node-exporter"])), None)
    instances = asked.values("instance", of_nodes) if of_nodes else []
    judged = next(
        (each for each in ("cadvisor", "otel", "kube-state-metrics", "node-exporter") if each in series), None
    )
    clusters = asked.clusters(judged, _labels_of(series, judged)) if judged else {}
    first = next(iter(each for each in clusters if each not in OF_GOOGLE), None)
    return Appearance(
        series=series,
        instances=tuple(sorted(instances)),
        nodes=nodes,
        joins=asked.joins(nodes, instances) if instances else (),
        node_label="node" in _labels_of(series, "node-exporter")
        and bool(nodes & set(asked.values("node", SIGNS["node-exporter"]))),
        marks=dict(asked.marks(series)),
        clusters=clusters,
        unclustered=bool(judged and first and asked.names(f'{SIGNS[judged]}{{{first}=""}}')),
        rules=rules,
        otel=()
        if {"otel", "cadvisor"} & series.keys()
        else tuple(asked.values("__name__", '{__name__=~"k8s.pod.cpu.(time|usage).*"}')),
        scrapes=asked.scrapes(first) if "cadvisor" in series else 1,
        state_metrics=asked.state_metrics(first) if "kube-state-metrics" in series else 1,
    )


def _labels_of(series: Mapping[str, Exported], exporter: str | None) -> frozenset[str]:
    return series[exporter].labels if exporter and exporter in series else frozenset()


class _Index:
    """The index of one server, the part that the datasource's fixed matchers select."""

    def __init__(self, client: Prometheus, start: datetime, end: datetime) -> None:
        self._client = client
        self._span = (start, end)
        fixed = ((label, value) for label, value in client.datasource.matchers.items() if "{" not in value)
        self._part = tuple(promql.Matcher(label, "=", value) for label, value in sorted(fixed))

    def names(self, match: str) -> list[str]:
        return self._client.label_names(promql.enforce(match, self._part), *self._span)

    def values(self, label: str, match: str) -> list[str]:
        found = self._client.label_values(label, *self._span, match=promql.enforce(match, self._part))
        return [each for each in found if each]

    def series(self, exporter: str) -> Exported | None:
        metric = SIGNS[exporter]
        labels = self.names(f'{metric}{{container!=""}}' if exporter == "cadvisor" else metric)
        if exporter == "cadvisor" and not labels:
            labels = self.names(metric)
        jobs = self.values("job", metric) if "job" in labels else []
        return Exported(tuple(sorted(jobs)), frozenset(labels) - {"__name__"}) if labels else None

    def clusters(self, exporter: str, labels: Collection[str]) -> dict[str, tuple[str, ...]]:
        wanted = [each for each in (*CLUSTER_LABELS, *OF_GOOGLE) if each in labels]
        found = {each: tuple(sorted(self.values(each, SIGNS[exporter]))) for each in wanted}
        return {each: values for each, values in found.items() if values}

    def joins(self, nodes: frozenset[str], instances: Collection[str]) -> tuple[NodeJoin, ...]:
        """Return the ways that lead from node-exporter's instances to names of nodes, as far as these are known."""
        told = set(self.values("nodename", "node_uname_info"))
        hosts = {match[1] for each in instances if (match := _ADDRESS.fullmatch(each))}
        reached: dict[NodeJoin, int] = {
            "node_uname_info": len(nodes & told if nodes else told),
            "kube_node_info": len(hosts & set(self.values("internal_ip", "kube_node_info"))),
        }
        enough = 0.9 * max(reached.values())  # a node may come or go between two scrapes
        return tuple(join for join, count in reached.items() if count and count >= enough)

    def marks(self, series: Mapping[str, Exported]) -> Iterator[tuple[str, str]]:
        kubelets = self.values("kubelet_version", "kube_node_info")
        if k3s := next((each for each in kubelets if "+k3s" in each), None):
            yield "k3s", f"a kubelet is of K3s ({k3s})"
        if any({"project_id", "location"} <= each.labels for each in series.values()):
            yield "google", "the series have labels project_id and location"
        if "cadvisor" in series and "openshift-monitoring" in self.values("namespace", SIGNS["cadvisor"]):
            yield "openshift", "there is a namespace openshift-monitoring"

    def scrapes(self, cluster: str | None) -> int:
        """Count how often the memory of one container is there, the most of any."""
        by = ",".join(filter(None, (cluster, "namespace,pod,container,id")))
        return self._count(
            f'max(count by ({by}) (container_memory_working_set_bytes{{container!="",container!="POD"}}))'
        )

    def state_metrics(self, cluster: str | None) -> int:
        by = ",".join(filter(None, (cluster, "job,instance")))
        each = f"count by ({by}) (kube_pod_info)"
        return self._count(f"max(count by ({cluster}) ({each}))" if cluster else f"count({each})")

    def _count(self, query: str) -> int:
        return int(self._client.number(promql.enforce(query, self._part), self._span[1]) or 1)
