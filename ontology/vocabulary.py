"""The vocabulary as constants: what ``drumlin.ttl`` declares, for code that must not parse Turtle to start.

Nothing is generated at run time; a test keeps each set equal to the Turtle. Names are local to ``NAMESPACE``; a class, a
property and a concept never share one. How to add a term: docs/ontology.md.
"""

from __future__ import annotations

from collections.abc import Mapping
from types import MappingProxyType
from typing import Final

NAMESPACE: Final = "https://w3id.org/drumlin/ns#"

WORKLOAD_KINDS: Final = frozenset(
    {
        "Deployment",
        "StatefulSet",
        "DaemonSet",
        "ReplicaSet",
        "Job",
        "CronJob",
        "Workflow",
        "Task",
        "Serving",
    }
)
"""Classes of workloads: those of Kubernetes' own kinds are named as the kinds are."""

CLASSES: Final = WORKLOAD_KINDS | {
    "Domain",
    "GlaciationNode",
    "Cluster",
    "Node",
    "Namespace",
    "Workload",
    "Pod",
    "Run",
    "Transition",
    "ContainerRun",
    "Container",
    "Service",
    "NetworkPolicy",
    "RoleBinding",
    "Autoscaler",
    "DataAsset",
    "Ingress",
    "DisruptionBudget",
    "Monitor",
    "Storage",
    "DomainRoute",
    "Grant",
    "Party",
    "Step",
    "AppImage",
    "Gateway",
    "Interconnection",
    "Agent",
    "Host",
    "VirtualMachine",
    "ContainerInstance",
    "Function",
    "Invocation",
    "External",
    "Tombstone",
    "Telemetry",
    "Metric",
    "MetricQuery",
    "LogQuery",
    "TraceQuery",
    "ProfileQuery",
    "SeriesFile",
    "Datasource",
    "Dashboard",
    "MetricTemplate",
    "Forecast",
    "Exporter",
}
"""All classes; ``Workload`` is abstract, all others can be the type of a thing."""

ENTITY_CLASSES: Final = CLASSES - {
    "Workload",
    "Run",
    "Transition",
    "ContainerRun",
    "Container",
    "Party",
    "Step",
    "Tombstone",
    "Telemetry",
    "Metric",
    "MetricQuery",
    "LogQuery",
    "TraceQuery",
    "ProfileQuery",
    "SeriesFile",
    "Dashboard",
}
"""Classes of entities that a tombstone can name: neither abstract, nor a part of an entity, nor a tombstone."""

FUNCTIONAL_PROPERTIES: Final = frozenset(
    {
        "name",
        "namespace",
        "application",
        "applicationGroup",
        "version",
        "domain",
        "cluster",
        "managedBy",
        "scales",
        "storedIn",
        "initiator",
        "source",
        "destination",
        "via",
        "grants",
        "grantedTo",
        "scheduledOn",
        "runOf",
        "phase",
        "ready",
        "unschedulable",
        "replicas",
        "minReplicas",
        "maxReplicas",
        "minAvailable",
        "maxUnavailable",
        "revision",
        "schedule",
        "outcome",
        "reason",
        "occurrences",
        "lastSeen",
        "ongoing",
        "containerName",
        "serviceAccount",
        "nodePool",
        "kernelVersion",
        "containerRuntime",
        "endEstimated",
        "observedIn",
        "formerType",
        "image",
        "imageDigest",
        "cpuRequest",
        "cpuLimit",
        "cpuCapacity",
        "cpuAllocatable",
        "memoryRequest",
        "memoryLimit",
        "memoryCapacity",
        "memoryAllocatable",
        "gpuRequest",
        "gpuCapacity",
        "storageRequest",
        "storageCapacity",
        "provisioner",
        "architecture",
        "zone",
        "region",
        "kubeletVersion",
        "assetType",
        "signal",
        "quantity",
        "unit",
        "metricType",
        "template",
        "query",
        "scope",
        "exporter",
        "datasourceType",
        "scrapeInterval",
        "profile",
        "preferred",
        "model",
        "horizon",
        "step",
        "staleSince",
        "trainedFrom",
        "trainedTo",
        "path",
        "controlledBy",
        "roleDerived",
        "podQuota",
        "exitCode",
        "task",
        "protocol",
        "authentication",
        "members",
        "membersHealthy",
        "kind",
        "grantedBy",
        "expiresAt",
        "useLimit",
        "flow",
        "metricPath",
        "metricPort",
        "boundRole",
        "platform",
        "origin",
        "heartbeatInterval",
        "caller",
        "callee",
        "route",
        "firstSeen",
    }
)
"""Properties with one value at most."""

PROPERTIES: Final = FUNCTIONAL_PROPERTIES | {
    "transition",
    "containerRun",
    "unready",
    "admits",
    "admitsAddress",
    "account",
    "readableSecret",
    "release",
    "configMap",
    "secret",
    "taint",
    "label",
    "extendedRequest",
    "extendedCapacity",
    "tag",
    "role",
    "dependsOn",
    "selects",
    "produces",
    "party",
    "routesTo",
    "host",
    "scrapedBy",
    "container",
    "telemetry",
    "dashboard",
    "labelName",
    "holds",
    "matcher",
    "partyRole",
    "port",
    "implementedBy",
    "trigger",
    "scalingLimit",
}
"""All properties of the namespace; those of other vocabularies (dcterms, dcat, prov, foaf) are not closed."""

ROLES: Final = frozenset(
    {
        "Master",
        "Lite",
        "Autonomy",
        "Partner",
    }
)
"""What a domain does in its network."""

SIGNALS: Final = frozenset(
    {
        "metrics",
        "logs",
        "traces",
        "profiles",
    }
)
"""Kinds of telemetry."""

METRIC_TYPES: Final = frozenset(
    {
        "counter",
        "gauge",
        "histogram",
        "summary",
    }
)
"""Types of series, in the words of Prometheus."""

DATASOURCE_TYPES: Final = frozenset(
    {
        "prometheus",
        "loki",
        "grafana",
        "influxdb",
        "jaeger",
        "tempo",
        "pyroscope",
        "alertmanager",
        "parquet",
    }
)
"""APIs that a datasource can speak."""

ASSET_TYPES: Final = frozenset(
    {
        "PersistentVolumeClaim",
        "PersistentVolume",
        "StorageClass",
        "DomainData",
        "DomainDataSource",
        "ExternalData",
    }
)
"""Kinds of data assets."""

QUANTITIES: Final = frozenset(
    {
        "cpu",
        "memory",
        "disk",
        "network",
        "energy",
        "gpu",
        "storage",
        "availability",
        "activity",
    }
)
"""What metrics measure."""

PHASES: Final = frozenset(
    {
        "Pending",
        "Running",
        "Succeeded",
        "Failed",
        "Unknown",
        "Ready",
        "NotReady",
        "Suspended",
        "Active",
        "Terminating",
        "Bound",
        "Available",
        "Released",
        "Lost",
        "Reserved",
        "Schedulable",
    }
)
"""States that an entity can be in."""

OUTCOMES: Final = frozenset(
    {
        "Completed",
        "Failed",
        "Lost",
        "Evicted",
        "OOMKilled",
        "Deleted",
    }
)
"""How a run can end; ``Failed`` and ``Lost`` are the same concepts as the phases."""

SCHEMES: Final[Mapping[str, frozenset[str]]] = MappingProxyType(
    {
        "RoleScheme": ROLES,
        "SignalScheme": SIGNALS,
        "MetricTypeScheme": METRIC_TYPES,
        "DatasourceTypeScheme": DATASOURCE_TYPES,
        "AssetTypeScheme": ASSET_TYPES,
        "QuantityScheme": QUANTITIES,
        "PhaseScheme": PHASES,
        "OutcomeScheme": OUTCOMES,
    }
)
"""Closed lists: concept scheme → its concepts."""

CONCEPTS: Final = frozenset().union(*SCHEMES.values())
"""All concepts of all schemes."""
