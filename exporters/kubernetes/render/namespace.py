"""Namespace → one node document, and the domain that everything in it belongs to. Source: Namespace v1 core."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from drumlin.exporters.kubernetes.manifests import Projection
from drumlin.exporters.kubernetes.render.place import domain
from drumlin.exporters.kubernetes.render.scraping import namespace_topic
from drumlin.exporters.kubernetes.selectors import NAMESPACES
from drumlin.exporters.pipeline.context import RenderContext, domain_topic
from drumlin.exporters.protocol import Topic, without_nulls
from drumlin.kg.rdf.jsonld import NodeDocument

DOMAIN_LABEL = "kuscia.secretflow/domain-name"


class NamespaceStatus(msgspec.Struct, frozen=True, gc=False):
    """Active, or Terminating while it is emptied."""

    phase: str | None = None


class Namespace(Projection, frozen=True, kw_only=True):
    """What is taken from a Namespace."""

    status: NamespaceStatus | None = None


def render_namespace(namespace: Namespace, context: RenderContext) -> NodeDocument:
    """Describe a namespace of the cluster."""
    metadata = namespace.metadata
    return without_nulls(
        {
            "id": context.entity,
            "type": "Namespace",
            "name": metadata.name,
            "partOf": context.around.cluster,
            "cluster": context.around.cluster,
            "domain": domain(metadata.name, context),
            "phase": (namespace.status and namespace.status.phase) or "Active",
            "label": context.labels(metadata.labels),
        }
    )


def namespace_facts(namespace: Namespace) -> Iterable[tuple[Topic, Any]]:
    """Publish its labels, and the domain that the namespace belongs to if one of them says so."""
    labels = namespace.metadata.labels or {}
    yield namespace_topic(namespace.metadata.name), labels
    yield NAMESPACES, (namespace.metadata.name, labels)
    name = labels.get(DOMAIN_LABEL)
    if name:
        yield domain_topic(namespace.metadata.name), name
