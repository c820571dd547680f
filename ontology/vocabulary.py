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
    }
)
"""Classes of workloads, named as Kubernetes names the kinds."""

CLASSES: Final = WORKLOAD_KINDS | {
    "Domain",
    "GlaciationNode",
    "Cluster",
    "Node",
    "Namespace",
    "Workload",
    "Pod",
    "Run",
    "Container",
    "Service",
    "Autoscaler",
    "DataAsset",
    "Tombstone",
    "Telemetry",
    "Metric",
    "MetricQuery",
    "LogQuery",
    "SeriesFile",
    "Datasource",
    "Dashboard",
    "MetricTemplate",
    "Forecast",
}
"""All classes; ``Workload`` is abstract, all others can be the type of a thing."""

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
        "scheduledOn",
        "runOf",
        "phase",
        "ready",
        "unschedulable",
        "replicas",
        "revision",
        "schedule",
        "outcome",
        "reason",
        "endEstimated",
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
        "model",
        "horizon",
        "step",
        "trainedFrom",
        "trainedTo",
        "path",
    }
)
"""Properties with one value at most."""

PROPERTIES: Final = FUNCTIONAL_PROPERTIES | {
    "label",
    "tag",
    "role",
    "dependsOn",
    "selects",
    "container",
    "telemetry",
    "dashboard",
    "labelName",
}
"""All properties of the namespace; those of other vocabularies (dcterms, dcat, prov, foaf) are not closed."""

ROLES: Final = frozenset(
    {
        "Master",
        "Lite",
        "Autonomy",
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
        "parquet",
    }
)
"""APIs that a datasource can speak."""

ASSET_TYPES: Final = frozenset(
    {
        "PersistentVolumeClaim",
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
        "Lost",
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
