"""The one table of kinds. To add one: write its renderer and projection, add its row, store a golden beside the others."""

from __future__ import annotations

from exporters.kubernetes.render.cronjob import CronJob, cronjob_facts, render_cronjob
from exporters.kubernetes.render.daemonset import DaemonSet, render_daemonset
from exporters.kubernetes.render.deployment import Deployment, render_deployment
from exporters.kubernetes.render.endpointslice import EndpointSlice, endpointslice_facts
from exporters.kubernetes.render.horizontalpodautoscaler import HorizontalPodAutoscaler, render_horizontalpodautoscaler
from exporters.kubernetes.render.ingress import Ingress, render_ingress
from exporters.kubernetes.render.job import Job, job_life, render_job
from exporters.kubernetes.render.namespace import Namespace, namespace_facts, render_namespace
from exporters.kubernetes.render.node import Node, node_life, render_node
from exporters.kubernetes.render.persistentvolume import (
    PersistentVolume,
    StorageClass,
    render_persistentvolume,
    render_storageclass,
)
from exporters.kubernetes.render.persistentvolumeclaim import PersistentVolumeClaim, render_persistentvolumeclaim
from exporters.kubernetes.render.pod import Pod, pod_facts, pod_life, render_pod
from exporters.kubernetes.render.poddisruptionbudget import PodDisruptionBudget, render_poddisruptionbudget
from exporters.kubernetes.render.replicaset import ReplicaSet, render_replicaset, replicaset_facts, replicaset_life
from exporters.kubernetes.render.scraping import (
    Monitor,
    Prometheus,
    ScrapeConfig,
    podmonitor_facts,
    prometheus_facts,
    render_podmonitor,
    render_scrapeconfig,
    render_servicemonitor,
    servicemonitor_facts,
)
from exporters.kubernetes.render.service import Service, render_service, service_facts
from exporters.kubernetes.render.statefulset import StatefulSet, render_statefulset
from exporters.kubernetes.render.workload import created_life, facts_of
from exporters.protocol import Kind

MONITORING = "monitoring.coreos.com"
"""prometheus-operator's group; its kinds are followed where it is installed."""

# fmt: off
KINDS: tuple[Kind, ...] = (
    Kind("Namespace", "", "v1", "namespaces", False, Namespace, render_namespace, namespace_facts),
    Kind("Node", "", "v1", "nodes", False, Node, render_node, life=node_life),
    Kind("ReplicaSet", "apps", "v1", "replicasets", True, ReplicaSet, render_replicaset, replicaset_facts, replicaset_life),
    Kind("Deployment", "apps", "v1", "deployments", True, Deployment, render_deployment, facts_of("Deployment"), created_life),
    Kind("StatefulSet", "apps", "v1", "statefulsets", True, StatefulSet, render_statefulset, facts_of("StatefulSet"), created_life),
    Kind("DaemonSet", "apps", "v1", "daemonsets", True, DaemonSet, render_daemonset, facts_of("DaemonSet"), created_life),
    Kind("CronJob", "batch", "v1", "cronjobs", True, CronJob, render_cronjob, cronjob_facts, created_life),
    Kind("Job", "batch", "v1", "jobs", True, Job, render_job, facts_of("Job"), job_life),
    Kind("Pod", "", "v1", "pods", True, Pod, render_pod, pod_facts, pod_life),
    Kind("PersistentVolumeClaim", "", "v1", "persistentvolumeclaims", True, PersistentVolumeClaim, render_persistentvolumeclaim, entity="DataAsset"),  # noqa: E501  a row of the table
    Kind("PersistentVolume", "", "v1", "persistentvolumes", False, PersistentVolume, render_persistentvolume, entity="Storage"),
    Kind("StorageClass", "storage.k8s.io", "v1", "storageclasses", False, StorageClass, render_storageclass, entity="Storage"),
    Kind("EndpointSlice", "discovery.k8s.io", "v1", "endpointslices", True, EndpointSlice, facts=endpointslice_facts),
    Kind("Service", "", "v1", "services", True, Service, render_service, service_facts),
    Kind("Ingress", "networking.k8s.io", "v1", "ingresses", True, Ingress, render_ingress),
    Kind("HorizontalPodAutoscaler", "autoscaling", "v2", "horizontalpodautoscalers", True, HorizontalPodAutoscaler, render_horizontalpodautoscaler, entity="Autoscaler"),  # noqa: E501  a row of the table
    Kind("PodDisruptionBudget", "policy", "v1", "poddisruptionbudgets", True, PodDisruptionBudget, render_poddisruptionbudget, entity="DisruptionBudget"),  # noqa: E501  a row of the table
    Kind("Prometheus", MONITORING, "v1", "prometheuses", True, Prometheus, facts=prometheus_facts),
    Kind("ServiceMonitor", MONITORING, "v1", "servicemonitors", True, Monitor, render_servicemonitor, servicemonitor_facts, entity="Monitor"),  # noqa: E501  a row of the table
    Kind("PodMonitor", MONITORING, "v1", "podmonitors", True, Monitor, render_podmonitor, podmonitor_facts, entity="Monitor"),
    Kind("ScrapeConfig", MONITORING, "v1alpha1", "scrapeconfigs", True, ScrapeConfig, render_scrapeconfig, entity="Monitor"),
)
# fmt: on
"""Namespaces, nodes and owners come first, so that little has to be rendered twice."""
