"""EndpointSlice → the pods behind a Service, with or without a selector. Source: EndpointSlice v1 discovery.

Not an entity: its Service states the pods. Readiness is not taken, it flaps.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import msgspec

from drumlin.exporters.kubernetes.manifests import Projection
from drumlin.exporters.protocol import Topic

_SERVICE = "kubernetes.io/service-name"


class TargetReference(msgspec.Struct, frozen=True, gc=False):
    """What an address belongs to."""

    kind: str = ""
    name: str = ""
    namespace: str | None = None


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """One endpoint, without its addresses and conditions."""

    targetRef: TargetReference | None = None


class EndpointSlice(Projection, frozen=True, kw_only=True):
    """What is taken from an EndpointSlice."""

    endpoints: tuple[Endpoint, ...] | None = None


def endpoints_topic(namespace: str, service: str) -> Topic:
    """The topic on which slices publish the pods of a Service."""
    return ("endpoints", namespace, service)


def endpointslice_facts(slice_: EndpointSlice) -> Iterable[tuple[Topic, Any]]:
    """Tell the Service that the slice belongs to the namespaces and names of its pods."""
    service = (slice_.metadata.labels or {}).get(_SERVICE)
    namespace = slice_.metadata.namespace or ""
    targets = [each.targetRef for each in slice_.endpoints or () if each.targetRef]
    pods = {(each.namespace or namespace, each.name) for each in targets if each.kind == "Pod" and each.name}
    if service and pods:
        yield endpoints_topic(namespace, service), frozenset(pods)
