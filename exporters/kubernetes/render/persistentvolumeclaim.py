"""PersistentVolumeClaim → a DataAsset that workloads depend on. Source: PersistentVolumeClaim v1 core."""

from __future__ import annotations

import msgspec

from drumlin.exporters.kubernetes.manifests import Installed
from drumlin.exporters.kubernetes.render.place import inside
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import without_nulls
from drumlin.kg.model.quantities import Written, pieces
from drumlin.kg.rdf.jsonld import NodeDocument


class Storage(msgspec.Struct, frozen=True, gc=False):
    """An amount of storage, as written."""

    storage: Written | None = None


class ClaimResources(msgspec.Struct, frozen=True, gc=False):
    """How much is asked for."""

    requests: Storage | None = None


class ClaimSpec(msgspec.Struct, frozen=True, gc=False):
    """The claim, and what it was given."""

    resources: ClaimResources | None = None
    volumeName: str | None = None
    storageClassName: str | None = None


class ClaimStatus(msgspec.Struct, frozen=True, gc=False):
    """Pending, Bound or Lost."""

    phase: str | None = None


class PersistentVolumeClaim(Installed, frozen=True, kw_only=True):
    """What is taken from a PersistentVolumeClaim."""

    spec: ClaimSpec = ClaimSpec()
    status: ClaimStatus = ClaimStatus()


def render_persistentvolumeclaim(claim: PersistentVolumeClaim, context: RenderContext) -> NodeDocument:
    """Describe a claim with the bytes it asks for and its volume; until it has one, the class of volumes it asks for."""
    requests = claim.spec.resources and claim.spec.resources.requests
    asked = requests.storage if requests else None
    return without_nulls(
        {
            **inside(claim.metadata, "DataAsset", context),
            "assetType": "PersistentVolumeClaim",
            "phase": claim.status.phase or "Pending",
            "storageRequest": pieces(asked) if asked is not None else None,
            "storedIn": _storage(claim.spec, context),
        }
    )


def _storage(spec: ClaimSpec, context: RenderContext) -> str | None:
    if spec.volumeName:
        return context.around.object(None, "PersistentVolume", spec.volumeName)
    return context.around.object(None, "StorageClass", spec.storageClassName) if spec.storageClassName else None
