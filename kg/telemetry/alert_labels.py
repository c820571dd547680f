"""Which entities an alert's labels name: pod, workload, node, namespace, in the cluster that its datasource says. Pure.

Labels that Prometheus renamed (``exported_pod``) win over the plain ones, which are then the exporter's own.
"""

from __future__ import annotations

from collections.abc import Collection, Iterator, Mapping

from drumlin.kg.errors import InvalidIdentifier
from drumlin.kg.model.iris import Iris
from drumlin.kg.telemetry.datasources import Datasource

_HOLE = "{cluster}"
_KINDS: Mapping[str, str] = {
    "deployment": "Deployment",
    "statefulset": "StatefulSet",
    "daemonset": "DaemonSet",
    "cronjob": "CronJob",
    "job_name": "Job",
    "replicaset": "ReplicaSet",
    "horizontalpodautoscaler": "HorizontalPodAutoscaler",
    "persistentvolumeclaim": "PersistentVolumeClaim",
    "poddisruptionbudget": "PodDisruptionBudget",
    "ingress": "Ingress",
}
"""Labels of kube-state-metrics → the kind of which they name one in the namespace; ``job`` is the scrape's."""
_OF_CLUSTER: Mapping[str, str] = {"persistentvolume": "PersistentVolume"}
_NODE = ("node", "nodename", "kubernetes_node")


IDENTIFYING = frozenset(
    {*_KINDS, *_OF_CLUSTER, *_NODE, "namespace", "pod", "pod_name", "container", "instance", "workload", "device"}
)
"""Labels that make two alerts of one name different ones; others may be those that a Prometheus adds to all it sends."""


def cluster_of(labels: Mapping[str, str], server: Datasource, known: Collection[str]) -> str | None:
    """Return the cluster that an alert is about; None where its labels and the datasource's binding do not say."""
    holding = server.clusters or tuple(known)
    found = list(holding)
    for label, value in server.matchers.items():
        if label not in labels and len(holding) > 1:
            return None  # an alert of whichever cluster
        if label in labels:
            found = [each for each in found if _filled(value, each) == labels[label] or "{domain}" in value]
    return found[0] if len(found) == 1 else None


def _filled(value: str, cluster: str) -> str:
    return value.replace(_HOLE, cluster)


def candidates(labels: Mapping[str, str], server: Datasource, cluster: str, iris: Iris) -> list[str]:
    """Return the IRIs that labels may name, the most specific first; whether there is such an entity is the graph's to say."""
    found: list[str] = []
    for namespace, kind, name in _named(labels, server):
        try:
            iri = iris.object(cluster, namespace, kind, name)
        except InvalidIdentifier:  # no name of an object
            continue
        if iri not in found:
            found.append(iri)
    return found


def _named(labels: Mapping[str, str], server: Datasource) -> Iterator[tuple[str | None, str, str]]:
    """Yield namespace, kind and name."""

    def own(name: str) -> str | None:
        return labels.get(f"exported_{name}") or labels.get(server.labels.get(name, name))

    namespace = own("namespace")
    if namespace:
        if pod := own("pod") or labels.get("pod_name"):
            yield namespace, "Pod", pod
        for label, kind in _KINDS.items():
            if name := labels.get(label):
                yield namespace, kind, name
        if "workload" in labels and "workload_type" in labels:
            yield namespace, labels["workload_type"], labels["workload"]
    for label, kind in _OF_CLUSTER.items():
        if name := labels.get(label):
            yield None, kind, name
    yield from ((None, "Node", node) for label in _NODE if (node := own(label)))
    if instance := own("instance"):
        yield None, "Node", instance
        yield None, "Node", instance.rpartition(":")[0] or instance
    if namespace:
        yield None, "Namespace", namespace
