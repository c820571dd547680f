"""Node → one node document. Source: Node v1 core."""

from __future__ import annotations

import msgspec

from exporters.context import Context
from exporters.kubernetes.manifests import Condition, Projection, Resources, condition, without_nulls
from exporters.kubernetes.render.demand import amounts, extended_amounts
from exporters.protocol import Life
from kg.jsonld import NodeDocument
from kg.quantities import whole
from kg.telemetry.describe import Subject

_PHASE = {"True": "Ready", "False": "NotReady"}


class NodeSystem(msgspec.Struct, frozen=True, gc=False):
    """The machine: what schedulers match on, never its serial numbers."""

    architecture: str | None = None
    kubeletVersion: str | None = None


class NodeSpec(msgspec.Struct, frozen=True, gc=False):
    """Whether it is cordoned."""

    unschedulable: bool | None = None


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


def render_node(node: Node, context: Context) -> NodeDocument:
    """Describe a worker node: its size in cores, bytes and GPUs, where it stands and whether it is ready."""
    metadata, status = node.metadata, node.status
    labels = metadata.labels or {}
    system = status.nodeInfo or NodeSystem()
    subject = Subject(context.entity, "Node", context.cluster_name, None, "Node", metadata.name)
    return without_nulls(
        {
            "id": context.entity,
            "type": "Node",
            "name": metadata.name,
            "partOf": context.around.cluster,
            "cluster": context.around.cluster,
            "domain": context.around.hosting_domain,
            "phase": _PHASE.get(condition(status.conditions, "Ready") or "", "Unknown"),
            "unschedulable": node.spec.unschedulable or None,
            "architecture": system.architecture or labels.get("kubernetes.io/arch"),
            "zone": labels.get("topology.kubernetes.io/zone"),
            "region": labels.get("topology.kubernetes.io/region"),
            "kubeletVersion": system.kubeletVersion,
            **_size(status),
            "label": context.labels(labels),
            "runs": context.runs,
            "telemetry": context.telemetry(subject),
        }
    )


def node_life(node: Node) -> Life:
    """A node runs from its registration until it is removed."""
    return Life(node.metadata.creationTimestamp)


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
