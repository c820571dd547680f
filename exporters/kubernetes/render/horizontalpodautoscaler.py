"""HorizontalPodAutoscaler → one node document. Source: HorizontalPodAutoscaler v2 autoscaling."""

from __future__ import annotations

from collections.abc import Iterator

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


class ScalingPolicy(msgspec.Struct, frozen=True, gc=False):
    """How many pods, or per cent of them, may come or go in a period (HPAScalingPolicy)."""

    type: str
    value: int
    periodSeconds: int


class ScalingRules(msgspec.Struct, frozen=True, gc=False):
    """How fast one direction goes (HPAScalingRules)."""

    policies: tuple[ScalingPolicy, ...] = ()
    selectPolicy: str | None = None
    stabilizationWindowSeconds: int | None = None


class ScalingBehaviour(msgspec.Struct, frozen=True, gc=False):
    """The rules of both directions; what is unset is Kubernetes' default and not stated."""

    scaleUp: ScalingRules | None = None
    scaleDown: ScalingRules | None = None


class AutoscalerSpec(msgspec.Struct, frozen=True, gc=False):
    """The target, its bounds, and how fast they are gone towards. Metrics and readings change all the time and are not taken."""

    scaleTargetRef: ScaleTarget
    maxReplicas: int | None = None
    minReplicas: int | None = None
    behavior: ScalingBehaviour | None = None


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
            "scalingLimit": [*_limits("up", spec), *_limits("down", spec)],
        }
    )


def _limits(direction: str, spec: AutoscalerSpec) -> Iterator[str]:
    """Yield the limits of a direction in words: ``up: 4 pods in 60 s``."""
    behaviour = spec.behavior or ScalingBehaviour()
    rules = behaviour.scaleUp if direction == "up" else behaviour.scaleDown
    if rules is None:
        return
    if rules.selectPolicy == "Disabled":
        yield f"{direction}: never"
        return
    for each in rules.policies:
        yield f"{direction}: {each.value} {'%' if each.type == 'Percent' else 'pods'} in {each.periodSeconds} s"
    if rules.selectPolicy == "Min" and len(rules.policies) > 1:
        yield f"{direction}: by the least of these"
    if rules.stabilizationWindowSeconds is not None:
        yield f"{direction}: after {rules.stabilizationWindowSeconds} s"
