"""HorizontalPodAutoscaler → one node document. Source: HorizontalPodAutoscaler v2 autoscaling."""

from __future__ import annotations

import msgspec

from drumlin.exporters.kubernetes.manifests import Installed
from drumlin.exporters.kubernetes.render.place import inside, referred
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import without_nulls
from drumlin.kg.rdf.jsonld import NodeDocument


class ScaleTarget(msgspec.Struct, frozen=True, gc=False):
    """What is scaled (CrossVersionObjectReference)."""

    kind: str
    name: str
    apiVersion: str = ""


class AutoscalerSpec(msgspec.Struct, frozen=True, gc=False):
    """The target and its bounds. Metrics and readings change all the time and are not taken."""

    scaleTargetRef: ScaleTarget
    maxReplicas: int | None = None
    minReplicas: int | None = None


class HorizontalPodAutoscaler(Installed, frozen=True, kw_only=True):
    """What is taken from a HorizontalPodAutoscaler."""

    spec: AutoscalerSpec


def render_horizontalpodautoscaler(autoscaler: HorizontalPodAutoscaler, context: RenderContext) -> NodeDocument:
    """Describe an autoscaler with the workload that it scales and how far; unset, the least is one."""
    metadata, spec = autoscaler.metadata, autoscaler.spec
    target = spec.scaleTargetRef
    return without_nulls(
        {
            **inside(metadata, "Autoscaler", context),
            "scales": referred(target.kind, target.apiVersion, target.name, metadata.namespace, context),
            "minReplicas": 1 if spec.minReplicas is None else spec.minReplicas,
            "maxReplicas": spec.maxReplicas,
        }
    )
