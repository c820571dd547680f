"""Image references: the tag and digest in them, and the digests that a workload's live pods report.

Grammar: https://pkg.go.dev/github.com/distribution/reference
"""

from __future__ import annotations

import re

from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import Topic

_DIGEST = re.compile(r"@(sha256:[0-9a-f]{32,})$")


def images_topic(controller_uid: str) -> Topic:
    """The topic on which pods publish the digests of their images, for their controller."""
    return ("images", controller_uid)


def revisions_topic(owner_uid: str) -> Topic:
    """The topic on which ReplicaSets publish of which owner they are revisions."""
    return ("revisions", owner_uid)


def digest_in(reference: str) -> str | None:
    """Return the digest of a reference or image id; a bare ``sha256:…`` names a local configuration, not an image."""
    match = _DIGEST.search(reference)
    return match[1] if match else None


def tag_in(reference: str) -> str | None:
    """Return the tag of an image reference, or None."""
    _, _, tag = reference.partition("@")[0].rpartition("/")[2].partition(":")
    return tag or None


def running_digests(uid: str, context: RenderContext) -> dict[tuple[str, str | None], str | None]:
    """Return container and image reference → digest, as live pods of the workload ``uid`` report; None where they disagree."""
    controllers = [uid, *context.told(revisions_topic(uid))]
    found: dict[tuple[str, str | None], set[str]] = {}
    for controller in controllers:
        for told in context.told(images_topic(controller)):
            for container, digest in told.items():
                found.setdefault(container, set()).add(digest)
    return {container: next(iter(digests)) if len(digests) == 1 else None for container, digests in found.items()}


def pods_are_told(namespace: str | None, context: RenderContext) -> bool:
    """Return whether all pods of a workload have come, and by which ReplicaSets they are its own."""
    return context.is_complete("pod", namespace) and context.is_complete("replicaset", namespace)
