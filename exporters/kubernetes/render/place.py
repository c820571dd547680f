"""Where an object is and who manages it: the part that the documents of all kinds share."""

from __future__ import annotations

from drumlin.exporters.kubernetes.manifests import InstalledMetadata
from drumlin.exporters.kubernetes.render.releases import releases
from drumlin.exporters.pipeline.context import RenderContext, domain_topic
from drumlin.exporters.protocol import Metadata, OwnerReference, Topic
from drumlin.kg.model.iris import is_own_group

_CLUSTER_SCOPED = frozenset({"Node", "Namespace", "PersistentVolume", "StorageClass"})


def domain(namespace: str | None, context: RenderContext) -> str:
    """Return the IRI of the domain of everything in ``namespace``: the Namespace's own, else the hosting one."""
    for name in context.told(domain_topic(namespace)) if namespace else ():
        return context.around.iris.domain(name)
    return context.around.hosting_domain


def placed(metadata: Metadata, kind: str, context: RenderContext) -> dict[str, object]:
    """Return what every namespaced entity says first: identity, namespace, cluster and domain."""
    return {
        "id": context.entity,
        "type": kind,
        "name": metadata.name,
        "namespace": metadata.namespace,
        "cluster": context.around.cluster,
        "domain": domain(metadata.namespace, context),
    }


def inside(metadata: InstalledMetadata, kind: str, context: RenderContext) -> dict[str, object]:
    """Return what an entity of a namespace says first, with the namespace it is part of, its labels and what brought it."""
    return {
        **placed(metadata, kind, context),
        "partOf": context.around.object(None, "Namespace", metadata.namespace or ""),
        "label": context.labels(metadata.labels),
        "release": releases(metadata, context),
    }


def controller(metadata: Metadata) -> OwnerReference | None:
    """Return the owner that manages the object; others only keep it from being collected."""
    for each in metadata.ownerReferences or ():
        if each.controller:
            return each
    return None


def manager(metadata: Metadata, context: RenderContext, term: str = "managedBy") -> str | None:
    """Return the IRI of what manages an object, with a ReplicaSet replaced by its own owner.

    The owner's uid decides, then its name. Of a ReplicaSet that was not seen (yet) the graph may know the owner, to which the object was
    linked by ``term``; a Deployment's pods tell its name. For any other ReplicaSet, None.
    """
    owner = controller(metadata)
    if owner is None:
        return None
    if owner.kind != "ReplicaSet" or group(owner.apiVersion) != "apps":
        return _iri(owner, metadata.namespace, context)
    told = context.told(owner_topic(owner.uid)) or context.told(owner_topic(metadata.namespace or "", owner.name))
    if told:
        return _iri(told[0] or owner, metadata.namespace, context)
    if not context.is_complete("replicaset", metadata.namespace):
        for known in context.linked(term):
            return known
    return _deployment_by_hash(owner, metadata, context)


def owner_topic(*identity: str) -> Topic:
    """The topic on which a ReplicaSet publishes its owner: by its uid, or by its namespace and name."""
    return ("owner", *identity)


def group(api_version: str) -> str:
    """Return the API group of an ``apiVersion``; the core group is empty."""
    return api_version.rpartition("/")[0]


def _deployment_by_hash(owner: OwnerReference, metadata: Metadata, context: RenderContext) -> str | None:
    # The Deployment controller names its ReplicaSets {deployment}-{hash} and puts the hash on the pods.
    suffix = f"-{(metadata.labels or {}).get('pod-template-hash', '')}"
    if len(suffix) > 1 and owner.name.endswith(suffix) and owner.name != suffix:
        return context.around.object(metadata.namespace, "Deployment", owner.name.removesuffix(suffix))
    return None


def _iri(owner: OwnerReference, namespace: str | None, context: RenderContext) -> str:
    return referred(owner.kind, owner.apiVersion, owner.name, namespace, context)


def referred(kind: str, api_version: str, name: str, namespace: str | None, context: RenderContext) -> str:
    """Return the IRI of what an object of ``namespace`` refers to by kind and name; it need not exist."""
    api_group = group(api_version)
    cluster_scoped = is_own_group(api_group) and kind in _CLUSTER_SCOPED
    return context.around.object(None if cluster_scoped else namespace, kind, name, api_group)
