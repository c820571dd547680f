"""Deployment → one node document. Source: Deployment v1 apps."""

from __future__ import annotations

import msgspec

from drumlin.exporters.kubernetes.manifests import Condition, InstalledWorkload, PodTemplate, condition
from drumlin.exporters.kubernetes.render.workload import render_workload, running
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.kg.rdf.jsonld import NodeDocument


class DeploymentSpec(msgspec.Struct, frozen=True, gc=False):
    """Size and template."""

    template: PodTemplate
    replicas: int | None = None


class DeploymentStatus(msgspec.Struct, frozen=True, gc=False):
    """Whether a rollout is stuck."""

    conditions: tuple[Condition, ...] | None = None


class Deployment(InstalledWorkload, frozen=True, kw_only=True):
    """What is taken from a Deployment."""

    spec: DeploymentSpec
    status: DeploymentStatus = DeploymentStatus()


def render_deployment(deployment: Deployment, context: RenderContext) -> NodeDocument:
    """Describe a Deployment; one whose rollout exceeded its deadline has failed."""
    spec = deployment.spec
    stuck = condition(deployment.status.conditions, "Progressing") == "False"
    phase = running(spec.replicas)
    document = render_workload(
        "Deployment",
        deployment.metadata,
        spec.template,
        context,
        phase="Failed" if stuck and phase == "Running" else phase,
        replicas=1 if spec.replicas is None else spec.replicas,
    )
    return document | _revision(deployment)


def _revision(deployment: Deployment) -> dict[str, object]:
    """Return the number that the controller counts its ReplicaSets by; nothing before it has, or where it is no number."""
    written = deployment.metadata.annotations and deployment.metadata.annotations.revision
    return (
        {"revision": int(written)}
        if written and written.isdecimal() and written.isascii() and len(written) < 19
        else {}
    )
