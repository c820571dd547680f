"""The table of profiles: how the usual installations of Prometheus name their series.

The templates use kube-prometheus's names. A *profile* lists the differences of one installation, by exporter: the job, the label with
the node's name, missing labels. OpenTelemetry has other metrics, so its profile brings its own queries. Rows are the defaults of charts
and managed services; the ``labels``, ``jobs`` and ``nodes`` of a datasource override them (``kg.telemetry.renaming``).
``kg.telemetry.recognition`` finds the row of a server. Pure data.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import Final, Literal, NamedTuple

from drumlin.kg.config.datasources import NodeJoin, ProfileName

_BEGINNINGS: Final = (
    ("container_", "cadvisor"),
    ("kubelet_", "kubelet"),
    ("kube_", "kube-state-metrics"),
    ("node_", "node-exporter"),
    ("kepler_", "kepler"),
    ("DCGM_", "dcgm"),
)
_OF_THE_NODE_MIXIN = "instance:node_"  # its recording rules keep the labels of node-exporter


def exporter_of(metric: str) -> str | None:
    """Return the exporter whose metric this is; None for one that no profile renames, and for a rule over several exporters."""
    if metric.startswith(_OF_THE_NODE_MIXIN):
        return "node-exporter"
    if ":" in metric:
        return None
    return next((exporter for beginning, exporter in _BEGINNINGS if metric.startswith(beginning)), None)


class Naming(NamedTuple):
    """How one exporter's series are named where that differs from the templates.

    ``job`` replaces the template's ("" for any, ``=~…`` for a regular expression), ``node`` is the label in which the node's name
    stands, ``labels`` maps the template's labels to this server's ("" where there is none, so that its matcher is dropped).
    """

    job: str | None = None
    node: str | None = None
    labels: tuple[tuple[str, str], ...] = ()


_NO_PATH = (("metrics_path", ""),)
ADDRESS: Final = "address"
NAME: Final = "name"


@dataclass(frozen=True, slots=True)
class Profile:
    """One row of the table.

    ``nodes`` is how node-exporter's series are matched to a node: by a label, or by a join where ``instance`` is an address. ``queries``
    replace those of templates, by the templates' names; they are written in the names of this installation. ``instance`` is what
    node-exporter's ``instance`` holds, ``path`` whether cAdvisor's series have ``metrics_path``, ``node_on_cadvisor`` whether they have
    ``node`` (None: either). ``mark`` is what only this installation has, as ``kg.telemetry.recognition`` names it. ``lacks`` are metrics
    of templates that it does not have by default.
    """

    name: ProfileName
    title: str
    namings: Mapping[str, Naming] = field(default_factory=dict)
    nodes: NodeJoin = "label"
    queries: Mapping[str, str] = field(default_factory=dict)
    instance: Literal["address", "name"] | None = NAME
    path: bool | None = True
    node_on_cadvisor: bool | None = True
    mark: str | None = None
    lacks: tuple[str, ...] = ()


_OTEL_POD = "k8s_namespace_name={{namespace}},k8s_pod_name=~{{pods}}"
_OTEL_PER_POD = "k8s_namespace_name,k8s_pod_name"


def _otel() -> dict[str, str]:
    """Return the queries for what the collector's kubeletstats and k8s_cluster receivers write, resource attributes promoted to labels."""

    def pods(metric: str, *more: str, by: str = _OTEL_PER_POD) -> str:
        return f"sum(max by ({by}) ({metric}{{{','.join((_OTEL_POD, *more))}}}))"

    def rates(metric: str, *more: str, by: str = _OTEL_PER_POD, function: str = "rate") -> str:
        return f"sum(max by ({by}) ({function}({metric}{{{','.join((_OTEL_POD, *more))}}}[{{{{window}}}}])))"

    by_container = f"{_OTEL_PER_POD},k8s_container_name"
    by_interface = f"{_OTEL_PER_POD},interface"
    cpu = rates("k8s_pod_cpu_time_seconds_total")
    memory = pods("k8s_pod_memory_working_set_bytes")
    found = {
        "workload.cpu_usage": cpu,
        "workload.cpu_utilisation": f"100 * {cpu} / {pods('k8s_container_cpu_limit', by=by_container)}",
        "workload.mem_usage": memory,
        "workload.mem_utilisation": f"100 * {memory} / {pods('k8s_container_memory_limit_bytes', by=by_container)}",
        "workload.disk_usage": pods("k8s_pod_filesystem_usage_bytes"),
        "workload.network_receive": rates("k8s_pod_network_io_bytes_total", 'direction="receive"', by=by_interface),
        "workload.network_transmit": rates("k8s_pod_network_io_bytes_total", 'direction="transmit"', by=by_interface),
        "workload.restarts": rates("k8s_container_restarts", by=by_container, function="increase"),
        "workload.cpu_requested": pods("k8s_container_cpu_request", by=by_container),
        "workload.mem_requested": pods("k8s_container_memory_request_bytes", by=by_container),
    }
    for scope, node in (("node", "k8s_node_name={{node}}"), ("cluster", ""), ("domain", "")):
        limits = {way: ",".join(filter(None, (node, f'direction="{way}"'))) for way in ("receive", "transmit")}
        found |= {
            f"{scope}.cpu_usage": _by_node(f"rate(k8s_node_cpu_time_seconds_total{{{node}}}[{{{{window}}}}])"),
            f"{scope}.mem_usage": _by_node(f"k8s_node_memory_working_set_bytes{{{node}}}"),
            f"{scope}.disk_usage": _by_node(f"k8s_node_filesystem_usage_bytes{{{node}}}"),
        }
        for way, limit in limits.items():
            traffic = f"rate(k8s_node_network_io_bytes_total{{{limit}}}[{{{{window}}}}])"
            found[f"{scope}.network_{way}"] = f"sum(max by (k8s_node_name,interface) ({traffic}))"
    return found


def _by_node(query: str) -> str:
    return f"sum(max by (k8s_node_name) ({query}))"


_ROWS = (
    Profile(
        "kube-prometheus-stack",
        "Helm chart kube-prometheus-stack",
        nodes="node_uname_info",
        instance=ADDRESS,
    ),
    Profile("kube-prometheus", "kube-prometheus (jsonnet manifests)"),
    Profile("openshift", "OpenShift's monitoring", mark="openshift"),
    Profile(
        "prometheus-chart",
        "Helm chart prometheus",
        {
            "cadvisor": Naming("kubernetes-nodes-cadvisor", "instance", _NO_PATH),
            "kubelet": Naming("kubernetes-nodes", "instance", _NO_PATH),
            "kube-state-metrics": Naming("kubernetes-service-endpoints"),
            "node-exporter": Naming("kubernetes-service-endpoints", "node"),
        },
        instance=ADDRESS,
        path=None,
        node_on_cadvisor=None,
    ),
    Profile(
        "k8s-monitoring",
        "Helm chart k8s-monitoring (Grafana Alloy)",
        {
            "cadvisor": Naming("integrations/kubernetes/cadvisor", None, _NO_PATH),
            "kubelet": Naming("integrations/kubernetes/kubelet", None, _NO_PATH),
            "kube-state-metrics": Naming("integrations/kubernetes/kube-state-metrics"),
            "node-exporter": Naming("integrations/node_exporter"),
        },
        path=False,
        lacks=("workload.disk_usage",),
    ),
    Profile(
        "aks",
        "Azure Monitor managed Prometheus (AKS)",
        {
            "cadvisor": Naming("cadvisor", "instance", _NO_PATH),
            "kubelet": Naming("kubelet", "instance", _NO_PATH),
            "node-exporter": Naming("node"),
            "dcgm": Naming(None, "instance"),
        },
        path=False,
        node_on_cadvisor=False,
        lacks=("workload.disk_usage",),
    ),
    Profile(
        "gke",
        "Google Cloud Managed Service for Prometheus (GKE)",
        {
            "cadvisor": Naming("", None, _NO_PATH),
            "kubelet": Naming("", None, _NO_PATH),
            "kube-state-metrics": Naming(""),
            "node-exporter": Naming(""),
        },
        nodes="node_uname_info",
        instance=None,
        path=False,
        mark="google",
    ),
    Profile(
        "eks-amp",
        "EKS with the collector of Amazon Managed Prometheus",
        {
            "cadvisor": Naming("=~cadvisor|kubernetes-cadvisor", "instance", _NO_PATH),
            "kubelet": Naming("=~kubelet|kubernetes-kubelet", "instance", _NO_PATH),
            "kube-state-metrics": Naming(""),
            "node-exporter": Naming(""),
        },
        nodes="node_uname_info",
        instance=None,
        path=False,
        node_on_cadvisor=False,
    ),
    Profile(
        "otel-collector",
        "OpenTelemetry Collector (kubeletstats, k8s_cluster)",
        queries=_otel(),
        instance=None,
        path=None,
        node_on_cadvisor=None,
    ),
    Profile("k3s", "K3s with kube-prometheus-stack", nodes="node_uname_info", instance=ADDRESS, mark="k3s"),
)

PROFILES: Final[Mapping[ProfileName, Profile]] = MappingProxyType({each.name: each for each in _ROWS})
"""All profiles by name, in the order in which the documentation lists them."""


def _recorded() -> dict[str, str]:
    pod = 'namespace={{namespace}},pod=~{{pods}},container!=""'
    rule = "node_namespace_pod_container:container_"
    each = "sum(max by (namespace,pod,container) ({}{{{}}}))"
    found = {
        "workload.cpu_usage": each.format(f"{rule}cpu_usage_seconds_total:sum_rate5m", pod),
        "workload.mem_usage": each.format(f"{rule}memory_working_set_bytes", pod),
    }
    for scope, node in (("node", ",instance={{node}}"), ("cluster", ""), ("domain", "")):
        of_node = f'{{job="node-exporter"{node}}}'
        share, cores = (f"max by (instance) (instance:node_{name}{of_node})" for name in _SHARE_AND_CORES)
        found[f"{scope}.cpu_usage"] = f"sum({share} * {cores})"
        for way in ("receive", "transmit"):
            name = f"instance:node_network_{way}_bytes_excluding_lo:rate5m"
            found[f"{scope}.network_{way}"] = f"sum(max by (instance) ({name}{of_node}))"
    return found


_SHARE_AND_CORES = ("cpu_utilisation:rate5m", "num_cpu:sum")

RECORDED: Final[Mapping[str, str]] = MappingProxyType(_recorded())
"""What the recording rules of the Kubernetes and node mixins keep, by template: for where raw series are missing (``recorded``)."""
