"""PersistentVolume and StorageClass → what claims are stored in. Source: PersistentVolume v1 core, StorageClass v1 storage.k8s.io."""

from __future__ import annotations

import msgspec

from drumlin.exporters.kubernetes.manifests import Projection
from drumlin.exporters.kubernetes.render.persistentvolumeclaim import Storage
from drumlin.exporters.kubernetes.render.place import placed
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import without_nulls
from drumlin.kg.model.quantities import pieces
from drumlin.kg.rdf.jsonld import NodeDocument


class VolumeSpec(msgspec.Struct, frozen=True, gc=False):
    """Size and class. Where the bytes lie (server, path, handle, secret) is not taken."""

    capacity: Storage | None = None
    storageClassName: str | None = None


class VolumeStatus(msgspec.Struct, frozen=True, gc=False):
    """Pending, Available, Bound, Released or Failed."""

    phase: str | None = None


class PersistentVolume(Projection, frozen=True, kw_only=True):
    """What is taken from a PersistentVolume."""

    spec: VolumeSpec = VolumeSpec()
    status: VolumeStatus = VolumeStatus()


class StorageClass(Projection, frozen=True, kw_only=True):
    """What is taken from a StorageClass; its parameters may name secrets."""

    provisioner: str | None = None


def render_persistentvolume(volume: PersistentVolume, context: RenderContext) -> NodeDocument:
    """Describe a volume with the bytes that it holds and the class that it was made from."""
    size, made_from = volume.spec.capacity, volume.spec.storageClassName
    return without_nulls(
        {
            **placed(volume.metadata, "Storage", context),
            "assetType": "PersistentVolume",
            "phase": volume.status.phase or "Pending",
            "storageCapacity": pieces(size.storage) if size and size.storage is not None else None,
            "storedIn": context.around.object(None, "StorageClass", made_from) if made_from else None,
            "label": context.labels(volume.metadata.labels),
        }
    )


def render_storageclass(storage_class: StorageClass, context: RenderContext) -> NodeDocument:
    """Describe a class of storage with what makes its volumes."""
    return without_nulls(
        {
            **placed(storage_class.metadata, "Storage", context),
            "assetType": "StorageClass",
            "provisioner": storage_class.provisioner,
            "label": context.labels(storage_class.metadata.labels),
        }
    )
