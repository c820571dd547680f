"""ReplicaSet → an entity when nothing owns it, else one link between pods and their workload. Source: ReplicaSet v1 apps."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from drumlin.exporters.kubernetes.manifests import InstalledWorkload, PodTemplate
from drumlin.exporters.kubernetes.render.images import revisions_topic
from drumlin.exporters.kubernetes.render.place import controller, owner_topic
from drumlin.exporters.kubernetes.render.workload import render_workload, running, template_facts
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import Life, Topic
from drumlin.kg.rdf.jsonld import NodeDocument


class ReplicaSetSpec(msgspec.Struct, frozen=True, gc=False):
    """Size and template."""

    replicas: int | None = None
    template: PodTemplate = PodTemplate()


_NO_SPEC = ReplicaSetSpec()


class ReplicaSet(InstalledWorkload, frozen=True, kw_only=True):
    """What is taken from a ReplicaSet."""

    spec: ReplicaSetSpec = ReplicaSetSpec()

    def __post_init__(self) -> None:
        """Let go of the template of a revision: clusters keep ten old ones of each Deployment, and none is rendered."""
        if controller(self.metadata):
            msgspec.structs.force_setattr(self, "spec", _NO_SPEC)


def render_replicaset(replicaset: ReplicaSet, context: RenderContext) -> NodeDocument | None:
    """Describe a ReplicaSet that nothing owns; None for a revision of a Deployment."""
    if controller(replicaset.metadata):
        return None
    spec = replicaset.spec
    return render_workload(
        "ReplicaSet",
        replicaset.metadata,
        spec.template,
        context,
        phase=running(spec.replicas),
        replicas=1 if spec.replicas is None else spec.replicas,
    )


def replicaset_facts(replicaset: ReplicaSet) -> Iterable[tuple[Topic, Any]]:
    """Publish to pods their owner's owner (None: the ReplicaSet itself), and that owner its revision."""
    metadata = replicaset.metadata
    owner = controller(metadata)
    if metadata.uid:
        yield owner_topic(metadata.uid), owner
    yield owner_topic(metadata.namespace or "", metadata.name), owner
    if owner:
        yield revisions_topic(owner.uid), metadata.uid
    else:
        yield from template_facts("ReplicaSet", metadata, replicaset.spec.template)


def replicaset_life(replicaset: ReplicaSet) -> Life:
    """A ReplicaSet of its own runs like any workload; a revision has no runs."""
    return Life(None if controller(replicaset.metadata) else replicaset.metadata.creationTimestamp)
