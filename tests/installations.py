"""Small generated data as each usual installation of Prometheus names it, written by hand from what its charts and services configure.

Nothing here reads the product's table of profiles: the two are written apart, so that a test can find a row wrong. Each installation has
one pod, ``shop/db-0``, of which the truth is ``CPU`` cores, ``MEMORY`` bytes and ``RECEIVE`` bytes a second, times its factor; a decoy
pod; two nodes; and what usually stands beside them: rows of cgroups without a container, idle CPU, the exporters' own pods.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import NamedTuple

Labels = Mapping[str, str]

CPU, MEMORY, RECEIVE = 0.5, 4.0e8, 1000.0
NODE_CPU, NODE_MEMORY, NODE_RECEIVE = 4.0, 6.0e9, 5000.0
LIMIT, REQUEST, RESTARTS = 2.0, 1.5, 1 / 600
USED = 3.0e9
TOTAL_MEMORY = 16.0e9
ADDRESSES = {"n-1": "10.0.0.1", "n-2": "10.0.0.2"}


class Installation(NamedTuple):
    """How one installation labels what it scrapes.

    ``cadvisor``, ``states``, ``nodes`` and ``volumes`` are labels of a target: of cAdvisor, kube-state-metrics, node-exporter and the
    kubelet. ``clusters`` tell its cluster in any series.
    ``uname``: there is node_uname_info. ``kubelet`` is the version of the nodes' kubelets.
    """

    profile: str
    cadvisor: Labels
    states: Labels
    nodes: Labels
    clusters: Labels = MappingProxyType({})
    uname: bool = True
    kubelet: str = "v1.33.2"
    extra: tuple[tuple[str, Labels], ...] = ()
    volumes: Labels = MappingProxyType({})


_STACK = {"job": "kubelet", "metrics_path": "/metrics/cadvisor", "node": "{node}", "instance": "{ip}:10250"}
_KUBELET = {"job": "kubelet", "metrics_path": "/metrics", "node": "{node}", "instance": "{ip}:10250"}
_OPERATED = {"endpoint": "https-metrics", "service": "kubelet"}
_OWN = {"namespace": "monitoring", "pod": "exporter-{node}", "container": "exporter"}
_KSM = {"job": "kube-state-metrics", "instance": "10.0.9.9:8080"}
_GOOGLE = {"project_id": "acme", "location": "europe-west1", "cluster": "prod"}

INSTALLATIONS: Mapping[str, Installation] = {
    "A": Installation(
        "kube-prometheus-stack",
        {**_STACK, **_OPERATED},
        {**_KSM, "service": "stack-kube-state-metrics", "endpoint": "http"},
        {"job": "node-exporter", "instance": "{ip}:9100", **_OWN},
        volumes=_KUBELET,
    ),
    "B": Installation(
        "kube-prometheus",
        {**_STACK, **_OPERATED},
        _KSM,
        {"job": "node-exporter", "instance": "{node}", **_OWN},
        {"prometheus_replica": "prometheus-k8s-0"},
        volumes=_KUBELET,
    ),
    "C": Installation(
        "openshift",
        {**_STACK, **_OPERATED},
        _KSM,
        {"job": "node-exporter", "instance": "{node}", **_OWN},
        extra=(("openshift-monitoring", {"pod": "alertmanager-main-0", "container": "alertmanager"}),),
        volumes=_KUBELET,
    ),
    "D": Installation(
        "prometheus-chart",
        {"job": "kubernetes-nodes-cadvisor", "instance": "{node}", "kubernetes_io_hostname": "{node}"},
        {
            "job": "kubernetes-service-endpoints",
            "instance": "10.0.9.9:8080",
            "service": "prometheus-kube-state-metrics",
        },
        {"job": "kubernetes-service-endpoints", "instance": "{ip}:9100", "node": "{node}", "namespace": "monitoring"},
        volumes={"job": "kubernetes-nodes", "instance": "{node}"},
    ),
    "E": Installation(
        "k8s-monitoring",
        {"job": "integrations/kubernetes/cadvisor", "instance": "{node}", "node": "{node}", "source": "kubernetes"},
        {"job": "integrations/kubernetes/kube-state-metrics", "instance": "10.0.9.9:8080"},
        {"job": "integrations/node_exporter", "instance": "{node}"},
        {"cluster": "prod", "k8s_cluster_name": "prod"},
        uname=False,
        volumes={"job": "integrations/kubernetes/kubelet", "instance": "{node}", "node": "{node}"},
    ),
    "F": Installation(
        "aks",
        {"job": "cadvisor", "instance": "{node}"},
        {"job": "kube-state-metrics", "instance": "ama-metrics-ksm.kube-system.svc.cluster.local:8080"},
        {"job": "node", "instance": "{node}"},
        {"cluster": "prod"},
        volumes={"job": "kubelet", "instance": "{node}"},
    ),
    "G": Installation(
        "gke",
        {"job": "kubelet", "instance": "{node}:cadvisor", "node": "{node}"},
        {"job": "gmp-kube-state-metrics", "instance": "gmp-kube-state-metrics-0:k8s-objects"},
        {"job": "node-exporter-managed", "instance": "node-exporter-{node}:metrics"},
        _GOOGLE,
        kubelet="v1.33.2-gke.1111000",
        volumes={"job": "kubelet", "instance": "{node}:metrics", "node": "{node}"},
    ),
    "H": Installation(
        "eks-amp",
        {"job": "cadvisor", "instance": "{node}", "topology_kubernetes_io_zone": "eu-west-1a"},
        {"job": "kubernetes-services-ksm", "instance": "10.0.9.9:8080"},
        {"job": "kubernetes-pods-node-exporter", "instance": "{ip}:9100"},
        kubelet="v1.33.1-eks-1abcdef",
        volumes={"job": "kubelet", "instance": "{node}"},
    ),
    "J": Installation(
        "k3s",
        {**_STACK, **_OPERATED},
        _KSM,
        {"job": "node-exporter", "instance": "{ip}:9100", **_OWN},
        kubelet="v1.33.2+k3s1",
        volumes=_KUBELET,
    ),
}
"""All but I, OpenTelemetry's, which has other metrics."""

UNLIKE = Installation(
    "",
    {"job": "advisor", "host": "{node}"},
    {"job": "states-a"},
    {"job": "machines", "instance": "{ip}:9100"},
    {"clusterName": "site"},
    uname=False,
    volumes={"job": "machines-kubelet", "node": "{node}"},
)
"""An installation of somebody's own: pods' labels are those of an old kubelet."""


EXPORTED = INSTALLATIONS["G"]._replace(
    states={**INSTALLATIONS["G"].states, "namespace": "gmp", "pod": "ksm-0", "container": "ksm"}
)
"""Google's, with kube-state-metrics below a PodMonitoring: its own place keeps the labels, what it tells gets others."""


class Written(NamedTuple):
    """A series: its metric, its labels, and how it goes: ``at`` + ``rate`` per second."""

    metric: str
    labels: dict[str, str]
    at: float
    rate: float = 0.0


def series(installation: Installation, factor: float = 1.0) -> Iterator[Written]:
    """Yield the series of an installation; all values are times ``factor``."""
    yield from _pods(installation, factor)
    yield from _states(installation, factor)
    yield from _volumes(installation, factor)
    for node, ip in ADDRESSES.items():
        yield from _node(installation, node, ip, factor if node == "n-1" else 7 * factor)


def _target(labels: Labels, node: str, installation: Installation) -> dict[str, str]:
    filled = {name: value.format(node=node, ip=ADDRESSES[node]) for name, value in labels.items()}
    return {**installation.clusters, **filled}


def _pods(installation: Installation, factor: float) -> Iterator[Written]:
    target = _target(installation.cadvisor, "n-1", installation)
    pods = [("shop", "db-0", "db", 1.0), ("shop", "dbx-0", "db", 3.0), ("monitoring", "exporter-n-1", "exporter", 0.1)]
    pods += [(namespace, labels["pod"], labels["container"], 0.2) for namespace, labels in installation.extra]
    renamed = ("pod_name", "container_name") if installation is UNLIKE else ("pod", "container")
    for namespace, pod, container, share in pods:
        named = {**target, "namespace": namespace, renamed[0]: pod, "id": f"/kubepods/{pod}"}
        of_one = {**named, renamed[1]: container, "id": f"/kubepods/{pod}/c"}
        cores, memory, received = (share * factor * each for each in (CPU, MEMORY, RECEIVE))
        yield Written("container_cpu_usage_seconds_total", {**of_one, "cpu": "total"}, 0, cores)
        yield Written("container_cpu_usage_seconds_total", {**named, "cpu": "total"}, 0, cores)  # the pod's own cgroup
        yield Written("container_memory_working_set_bytes", of_one, memory)
        yield Written("container_memory_working_set_bytes", named, memory)
        yield Written("container_network_receive_bytes_total", {**named, "interface": "eth0"}, 0, received)


def _states(installation: Installation, factor: float) -> Iterator[Written]:
    target = _target(installation.states, "n-1", installation)
    for name, share in (("db-0", 1.0), ("dbx-0", 3.0)):
        pod = {"namespace": "shop", "pod": name, "node": "n-1", "uid": f"u-{name}"}
        yield Written("kube_pod_info", _scraped(pod, target), 1)
        limit = {**pod, "container": "db", "resource": "cpu", "unit": "core"}
        yield Written("kube_pod_container_resource_limits", _scraped(limit, target), LIMIT * share * factor)
        yield Written("kube_pod_container_resource_requests", _scraped(limit, target), REQUEST * share * factor)
        plain = {**pod, "container": "db"}
        yield Written("kube_pod_container_status_restarts_total", _scraped(plain, target), 0, RESTARTS * share * factor)
        for phase, value in (("Running", 1), ("Pending", 0)):
            yield Written("kube_pod_status_phase", _scraped({**pod, "phase": phase}, target), value)
        claim = {**pod, "volume": "data", "persistentvolumeclaim": f"data-{name}"}
        yield Written("kube_pod_spec_volumes_persistentvolumeclaims_info", _scraped(claim, target), 1)
    for node, ip in ADDRESSES.items():
        told = {**target, "node": node, "internal_ip": ip, "kubelet_version": installation.kubelet}
        yield Written("kube_node_info", told, 1)


def _volumes(installation: Installation, factor: float) -> Iterator[Written]:
    for name, share, node in (("db-0", 1.0, "n-1"), ("dbx-0", 3.0, "n-1"), ("far-0", 9.0, "n-2")):
        claim = {"namespace": "shop", "persistentvolumeclaim": f"data-{name}"}
        target = _target(installation.volumes, node, installation)
        yield Written("kubelet_volume_stats_used_bytes", {**target, **claim}, USED * share * factor)


def _scraped(labels: Labels, target: Labels) -> dict[str, str]:
    """Return the labels of a scraped series without honor_labels: the target's stay, those of the series that collide are renamed."""
    return {**{f"exported_{name}" if name in target else name: value for name, value in labels.items()}, **target}


def _node(installation: Installation, node: str, ip: str, factor: float) -> Iterator[Written]:
    target = _target(installation.nodes, node, installation)
    for mode, cores in (("user", 0.75), ("system", 0.25), ("idle", 2.0)):
        rate = NODE_CPU * cores * factor
        yield Written("node_cpu_seconds_total", {**target, "cpu": "0", "mode": mode}, 0, rate)
    yield Written("node_memory_MemTotal_bytes", target, TOTAL_MEMORY * 100)
    yield Written("node_memory_MemAvailable_bytes", target, TOTAL_MEMORY * 100 - NODE_MEMORY * factor)
    for device, rate in (("eth0", NODE_RECEIVE * factor), ("lo", 1.0e6)):
        yield Written("node_network_receive_bytes_total", {**target, "device": device}, 0, rate)
    if installation.uname:
        yield Written("node_uname_info", {**target, "nodename": node, "release": "6.1"}, 1)


def otel(factor: float, cluster: str = "prod") -> Iterator[Written]:
    """Yield the series of I: an OpenTelemetry Collector that makes labels of resource attributes."""
    every = {"k8s_cluster_name": cluster, "job": "otel", "instance": "c-1"}
    for pod, share in (("db-0", 1.0), ("dbx-0", 3.0)):
        named = {**every, "k8s_namespace_name": "shop", "k8s_pod_name": pod, "k8s_node_name": "n-1"}
        yield Written("k8s_pod_cpu_time_seconds_total", named, 0, CPU * share * factor)
        yield Written("k8s_pod_memory_working_set_bytes", named, MEMORY * share * factor)
        limited = {**named, "k8s_container_name": "db"}
        yield Written("k8s_container_cpu_limit", limited, LIMIT * share * factor)
        yield Written("k8s_container_cpu_request", limited, REQUEST * share * factor)
        yield Written("k8s_container_restarts", limited, 0, RESTARTS * share * factor)
        for direction, rate in (("receive", RECEIVE), ("transmit", 1.0e6)):
            traffic = {**named, "interface": "eth0", "direction": direction}
            yield Written("k8s_pod_network_io_bytes_total", traffic, 0, rate * share * factor)
    for node, times in (("n-1", 1.0), ("n-2", 7.0)):
        named = {**every, "k8s_node_name": node}
        yield Written("k8s_node_cpu_time_seconds_total", named, 0, NODE_CPU * times * factor)
        yield Written("k8s_node_memory_working_set_bytes", named, NODE_MEMORY * times * factor)
        for direction, rate in (("receive", NODE_RECEIVE), ("transmit", 1.0e6)):
            traffic = {**named, "interface": "eth0", "direction": direction}
            yield Written("k8s_node_network_io_bytes_total", traffic, 0, rate * times * factor)


def rules(factor: float) -> Iterator[Written]:
    """Yield what a hub keeps of an installation: the recording rules of the mixins, and node_uname_info."""
    for pod, share in (("db-0", 1.0), ("dbx-0", 3.0)):
        named = {"namespace": "shop", "pod": pod, "container": "db", "node": "n-1"}
        rule = "node_namespace_pod_container:container_"
        yield Written(f"{rule}cpu_usage_seconds_total:sum_rate5m", named, CPU * share * factor)
        yield Written(f"{rule}memory_working_set_bytes", named, MEMORY * share * factor)
    for node, times in (("n-1", 1.0), ("n-2", 7.0)):
        named = {"job": "node-exporter", "instance": f"{ADDRESSES[node]}:9100"}
        yield Written("instance:node_cpu_utilisation:rate5m", named, 0.5)
        yield Written("instance:node_num_cpu:sum", named, 2 * NODE_CPU * times * factor)
        traffic = "instance:node_network_receive_bytes_excluding_lo:rate5m"
        yield Written(traffic, named, NODE_RECEIVE * times * factor)
        yield Written("node_uname_info", {**named, "nodename": node}, 1)
