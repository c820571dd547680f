"""DaemonSet → one node document. Source: DaemonSet v1 apps."""

from __future__ import annotations

import msgspec

from drumlin.exporters.kubernetes.manifests import InstalledWorkload, PodTemplate
from drumlin.exporters.kubernetes.render.workload import render_workload
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.kg.rdf.jsonld import NodeDocument


class DaemonSetSpec(msgspec.Struct, frozen=True, gc=False):
    """The template."""

    template: PodTemplate


class DaemonSet(InstalledWorkload, frozen=True, kw_only=True):
    """What is taken from a DaemonSet."""

    spec: DaemonSetSpec


def render_daemonset(daemonset: DaemonSet, context: RenderContext) -> NodeDocument:
    """Describe a DaemonSet. How many pods it wants follows from the nodes, so it has no ``replicas``."""
    return render_workload("DaemonSet", daemonset.metadata, daemonset.spec.template, context, phase="Running")
