"""StatefulSet → one node document. Source: StatefulSet v1 apps."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from drumlin.exporters.kubernetes.manifests import InstalledWorkload, PodTemplate
from drumlin.exporters.kubernetes.render.workload import render_workload, running
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.kg.rdf.jsonld import NodeDocument

_MOST_ORDINALS = 10_000  # a typing error in replicas must not fill the graph


class ClaimName(msgspec.Struct, frozen=True, gc=False):
    """The name of a claim template."""

    name: str


class ClaimTemplate(msgspec.Struct, frozen=True, gc=False):
    """A claim that each pod gets."""

    metadata: ClaimName


class Ordinals(msgspec.Struct, frozen=True, gc=False):
    """The number of the first pod."""

    start: int = 0


class StatefulSetSpec(msgspec.Struct, frozen=True, gc=False):
    """Size, template and claims."""

    template: PodTemplate
    replicas: int | None = None
    ordinals: Ordinals | None = None
    volumeClaimTemplates: tuple[ClaimTemplate, ...] | None = None


class StatefulSet(InstalledWorkload, frozen=True, kw_only=True):
    """What is taken from a StatefulSet."""

    spec: StatefulSetSpec


def render_statefulset(statefulset: StatefulSet, context: RenderContext) -> NodeDocument:
    """Describe a StatefulSet with the claims that its pods have by their ordinals."""
    spec = statefulset.spec
    return render_workload(
        "StatefulSet",
        statefulset.metadata,
        spec.template,
        context,
        phase=running(spec.replicas),
        replicas=_replicas(spec),
        claims=_claims(statefulset.metadata.name, spec),
    )


def _replicas(spec: StatefulSetSpec) -> int:
    return 1 if spec.replicas is None else spec.replicas


def _claims(name: str, spec: StatefulSetSpec) -> Iterable[str]:
    first = spec.ordinals.start if spec.ordinals else 0
    ordinals = range(first, first + min(_replicas(spec), _MOST_ORDINALS))
    for template in spec.volumeClaimTemplates or ():
        yield from (f"{template.metadata.name}-{name}-{ordinal}" for ordinal in ordinals)
