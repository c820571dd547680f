"""Node → one node document. Source: Node v1 core."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

import msgspec

from drumlin.exporters.kubernetes.manifests import Condition, Projection, Resources, condition
from drumlin.exporters.kubernetes.render.demand import amounts, extended_amounts
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import Life, Topic, Trouble, without_nulls
from drumlin.exporters.sites import NODES
from drumlin.kg.model.quantities import whole
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.describe import Subject

_PHASE = {"True": "Ready", "False": "NotReady"}
_POOLS = (
    "karpenter.sh/nodepool",
    "cloud.google.com/gke-nodepool",
    "eks.amazonaws.com/nodegroup",
    "kubernetes.azure.com/agentpool",
    "node.cluster.x-k8s.io/nodepool",
    "agentpool",
)
"""The labels by which providers name the pool of a node."""
_PRESSURES = ("DiskPressure", "MemoryPressure", "NetworkUnavailable", "PIDPressure")
"""Conditions of a node that are bad when they are true."""


class NodeSystem(msgspec.Struct, frozen=True, gc=False):
    """The machine: what schedulers match on, never its serial numbers."""

    architecture: str | None = None
    kubeletVersion: str | None = None
    kernelVersion: str | None = None
    containerRuntimeVersion: str | None = None


class Taint(msgspec.Struct, frozen=True, gc=False):
    """What keeps pods away that do not tolerate it."""

    key: str
    effect: str
    value: str = ""


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    """Whether it is cordoned, and what keeps pods away."""

    unschedulable: bool | None = None
    taints: tuple[Taint, ...] | None = None


class NodeStatus(msgspec.Struct, frozen=True, gc=False):
    """Readiness and size."""

    capacity: Resources | None = None
    allocatable: Resources | None = None
    conditions: tuple[Condition, ...] | None = None
    nodeInfo: NodeSystem | None = None


class Node(Projection, frozen=True, kw_only=True):
    """What is taken from a Node."""

    spec: NodeSpec = NodeSpec()
    status: NodeStatus = NodeStatus()


def render_node(node: Node, context: RenderContext) -> NodeDocument:
    """Describe a worker node: its size in cores, bytes and GPUs, where it stands and whether it is ready."""
    metadata, status = node.metadata, node.status
    labels = metadata.labels or {}
    system = status.nodeInfo or NodeSystem()
    domain = context.around.settings.domain.of_node(labels)
    place = Place((context.cluster_name,), domain)
    subject = Subject(context.entity, "Node", context.cluster_name, None, "Node", metadata.name, place=place)
    return without_nulls(
        {
            "id": context.entity,
            "type": "Node",
            "name": metadata.name,
            "partOf": context.around.cluster,
            "cluster": context.around.cluster,
            "domain": context.around.iris.domain(domain),
            "phase": _PHASE.get(condition(status.conditions, "Ready") or "", "Unknown"),
            "unschedulable": node.spec.unschedulable or None,
            "architecture": system.architecture or labels.get("kubernetes.io/arch"),
            "zone": labels.get("topology.kubernetes.io/zone"),
            "region": labels.get("topology.kubernetes.io/region"),
            "nodePool": next((labels[each] for each in _POOLS if labels.get(each)), None),
            "taint": sorted(map(_written, node.spec.taints or ())),
            "kubeletVersion": system.kubeletVersion,
            "kernelVersion": system.kernelVersion or None,
            "containerRuntime": system.containerRuntimeVersion or None,
            **_size(status),
            "label": context.labels(labels),
            "runs": context.runs,
            "telemetry": context.telemetry(subject),
        }
    )


def _written(taint: Taint) -> str:
    """Write a taint as kubectl does: ``key=value:effect``."""
    return f"{taint.key}={taint.value}:{taint.effect}" if taint.value else f"{taint.key}:{taint.effect}"


def node_life(node: Node) -> Life:
    """A node runs from its registration until it is removed; what it runs short of befalls that run."""
    lacking = (each for each in _PRESSURES if condition(node.status.conditions, each) == "True")
    return Life(node.metadata.creationTimestamp, troubles=tuple(Trouble(each, ongoing=True) for each in lacking))


def node_facts(node: Node) -> Iterable[tuple[Topic, tuple[str, Mapping[str, str]]]]:
    """Publish whose site the node belongs to, as far as its labels say."""
    yield NODES, (node.metadata.name, node.metadata.labels or {})


def _size(status: NodeStatus) -> dict[str, object]:
    capacity, allocatable = amounts(status.capacity), amounts(status.allocatable)
    return {
        "cpuCapacity": capacity.get("cpu"),
        "cpuAllocatable": allocatable.get("cpu"),
        "memoryCapacity": whole(capacity["memory"]) if "memory" in capacity else None,
        "memoryAllocatable": whole(allocatable["memory"]) if "memory" in allocatable else None,
        "gpuCapacity": whole(capacity["gpu"]) if "gpu" in capacity else None,
        "extendedCapacity": extended_amounts(capacity),
    }
