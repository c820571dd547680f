"""The one table of kinds. To add one: write its renderer and projection, add its row, store a golden beside the others."""

from __future__ import annotations

from collections.abc import Mapping

from drumlin.exporters.kubernetes.render.cronjob import CronJob, cronjob_facts, render_cronjob
from drumlin.exporters.kubernetes.render.daemonset import DaemonSet, render_daemonset
from drumlin.exporters.kubernetes.render.deployment import Deployment, render_deployment
from drumlin.exporters.kubernetes.render.endpointslice import EndpointSlice, endpointslice_facts, unready_endpoints
from drumlin.exporters.kubernetes.render.event import WARNINGS, EventObject, event_report
from drumlin.exporters.kubernetes.render.horizontalpodautoscaler import (
    HorizontalPodAutoscaler,
    render_horizontalpodautoscaler,
)
from drumlin.exporters.kubernetes.render.ingress import Ingress, render_ingress
from drumlin.exporters.kubernetes.render.job import Job, job_life, render_job
from drumlin.exporters.kubernetes.render.namespace import Namespace, namespace_facts, render_namespace
from drumlin.exporters.kubernetes.render.networkpolicy import NetworkPolicy, render_networkpolicy
from drumlin.exporters.kubernetes.render.node import Node, node_facts, node_life, render_node
from drumlin.exporters.kubernetes.render.persistentvolume import (
    PersistentVolume,
    StorageClass,
    render_persistentvolume,
    render_storageclass,
)
from drumlin.exporters.kubernetes.render.persistentvolumeclaim import (
    PersistentVolumeClaim,
    render_persistentvolumeclaim,
)
from drumlin.exporters.kubernetes.render.pod import Pod, pod_facts, pod_life, render_pod
from drumlin.exporters.kubernetes.render.poddisruptionbudget import PodDisruptionBudget, render_poddisruptionbudget
from drumlin.exporters.kubernetes.render.replicaset import (
    ReplicaSet,
    render_replicaset,
    replicaset_facts,
    replicaset_life,
)
from drumlin.exporters.kubernetes.render.rolebinding import (
    RBAC,
    RoleBinding,
    RoleObject,
    render_rolebinding,
    role_facts,
)
from drumlin.exporters.kubernetes.render.scraping import (
    MONITORING,
    Monitor,
    PrometheusObject,
    ScrapeConfig,
    podmonitor_facts,
    prometheus_facts,
    render_podmonitor,
    render_scrapeconfig,
    render_servicemonitor,
    servicemonitor_facts,
)
from drumlin.exporters.kubernetes.render.service import Service, render_service, service_facts
from drumlin.exporters.kubernetes.render.statefulset import StatefulSet, render_statefulset
from drumlin.exporters.kubernetes.render.workload import created_life, facts_of
from drumlin.exporters.protocol import Kind

# fmt: off
KINDS: tuple[Kind, ...] = (
    Kind("Namespace", "", "v1", "namespaces", False, Namespace, render_namespace, namespace_facts, short="ns"),
    Kind("Node", "", "v1", "nodes", False, Node, render_node, life=node_life, facts=node_facts, short="no"),
    Kind("ReplicaSet", "apps", "v1", "replicasets", True, ReplicaSet, render_replicaset, replicaset_facts, replicaset_life, short="rs"),
    Kind("Deployment", "apps", "v1", "deployments", True, Deployment, render_deployment, facts_of("Deployment"), created_life, short="deploy"),  # noqa: E501  a row of the table
    Kind("StatefulSet", "apps", "v1", "statefulsets", True, StatefulSet, render_statefulset, facts_of("StatefulSet"), created_life, short="sts"),  # noqa: E501  a row of the table
    Kind("DaemonSet", "apps", "v1", "daemonsets", True, DaemonSet, render_daemonset, facts_of("DaemonSet"), created_life, short="ds"),
    Kind("CronJob", "batch", "v1", "cronjobs", True, CronJob, render_cronjob, cronjob_facts, created_life, short="cj"),
    Kind("Job", "batch", "v1", "jobs", True, Job, render_job, facts_of("Job"), job_life),
    Kind("Pod", "", "v1", "pods", True, Pod, render_pod, pod_facts, pod_life, short="po"),
    Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", True, PersistentVolumeClaim, render_persistentvolumeclaim, entity="DataAsset", short="pvc"),  # noqa: E501  a row of the table
    Kind("PersistentVolume", "", "v1", "persistentvolumes", False, PersistentVolume, render_persistentvolume, entity="Storage", short="pv"),
    Kind("StorageClass", "storage.k8s.io", "v1", "storageclasses", False, StorageClass, render_storageclass, entity="Storage", short="sc"),
    Kind("EndpointSlice", "discovery.k8s.io", "v1", "endpointslices", True, EndpointSlice, facts=endpointslice_facts, lasting=unready_endpoints),  # noqa: E501  a row of the table
    Kind("Service", "", "v1", "services", True, Service, render_service, service_facts, short="svc"),
    Kind("Ingress", "networking.k8s.io", "v1", "ingresses", True, Ingress, render_ingress, short="ing"),
    Kind("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers", True, HorizontalPodAutoscaler, render_horizontalpodautoscaler, entity="Autoscaler", short="hpa"),  # noqa: E501  a row of the table
    Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", True, PodDisruptionBudget, render_poddisruptionbudget, entity="DisruptionBudget", short="pdb"),  # noqa: E501  a row of the table
    Kind("Prometheus", MONITORING, "v1", "prometheuses", True, PrometheusObject, facts=prometheus_facts, short="prom"),
    Kind("ServiceMonitor", MONITORING, "v1", "servicemonitors", True, Monitor, render_servicemonitor, servicemonitor_facts, entity="Monitor", short="smon"),  # noqa: E501  a row of the table
    Kind("PodMonitor", MONITORING, "v1", "podmonitors", True, Monitor, render_podmonitor, podmonitor_facts, entity="Monitor", short="pmon"),
    Kind("ScrapeConfig", MONITORING, "v1alpha1", "scrapeconfigs", True, ScrapeConfig, render_scrapeconfig, entity="Monitor", short="scfg"),
)
"""Namespaces, nodes and owners come first, so that little has to be rendered twice."""

OPTIONAL: Mapping[str, tuple[Kind, ...]] = {
    "events": (
        Kind("Event", "events.k8s.io", "v1", "events", True, EventObject, reports=event_report, fields=WARNINGS, short="ev"),
    ),
    "networkpolicies": (
        Kind("NetworkPolicy", "networking.k8s.io", "v1", "networkpolicies", True, NetworkPolicy, render_networkpolicy, short="netpol"),
    ),
    "rolebindings": (
        Kind("Role", RBAC, "v1", "roles", True, RoleObject, facts=role_facts("Role")),
        Kind("ClusterRole", RBAC, "v1", "clusterroles", False, RoleObject, facts=role_facts("ClusterRole")),
        Kind("RoleBinding", RBAC, "v1", "rolebindings", True, RoleBinding, render_rolebinding),
        Kind("ClusterRoleBinding", RBAC, "v1", "clusterrolebindings", False, RoleBinding, render_rolebinding, entity="RoleBinding"),
    ),
}
# fmt: on
"""Kinds that are followed where the setting ``optional_kinds`` names them."""
