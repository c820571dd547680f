"""EndpointSlice → the pods behind a Service, with or without a selector, and those that are not ready. Source: EndpointSlice v1 discovery.

Not an entity: its Service states the pods. Readiness flaps; that a pod is not ready counts when it lasts (``Kind.lasting``).
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
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


class EndpointConditions(msgspec.Struct, frozen=True, gc=False):
    """Whether the endpoint takes requests; unset means that it does."""

    ready: bool | None = None


class Endpoint(msgspec.Struct, frozen=True, gc=False):
    """One endpoint, without its addresses."""

    targetRef: TargetReference | None = None
    conditions: EndpointConditions | None = None

    def __post_init__(self) -> None:
        """Hold nothing for an endpoint that is ready, as nearly all are."""
        if self.conditions is not None and self.conditions.ready is not False:
            msgspec.structs.force_setattr(self, "conditions", None)


class EndpointSlice(Projection, frozen=True, kw_only=True):
    """What is taken from an EndpointSlice."""

    endpoints: tuple[Endpoint, ...] | None = None


def endpoints_topic(namespace: str, service: str) -> Topic:
    """The topic on which slices publish the pods of a Service."""
    return ("endpoints", namespace, service)


def unready_topic(namespace: str, service: str) -> Topic:
    """The topic on which slices publish the pods of a Service that have not been ready for a while."""
    return ("unready", namespace, service)


def endpointslice_facts(slice_: EndpointSlice) -> Iterable[tuple[Topic, Any]]:
    """Publish to the Service that the slice belongs to the namespaces and names of its pods."""
    service, namespace = _service(slice_)
    if service and (pods := frozenset(_pods(slice_.endpoints or (), namespace))):
        yield endpoints_topic(namespace, service), pods


def unready_endpoints(slice_: EndpointSlice) -> tuple[Topic, frozenset[tuple[str, str]]] | None:
    """Publish to it which of them are not ready."""
    service, namespace = _service(slice_)
    if not service:
        return None
    unready = (each for each in slice_.endpoints or () if each.conditions)
    return unready_topic(namespace, service), frozenset(_pods(unready, namespace))


def _service(slice_: EndpointSlice) -> tuple[str | None, str]:
    return (slice_.metadata.labels or {}).get(_SERVICE), slice_.metadata.namespace or ""


def _pods(endpoints: Iterable[Endpoint], namespace: str) -> Iterator[tuple[str, str]]:
    for each in endpoints:
        if (target := each.targetRef) and target.kind == "Pod" and target.name:
            yield target.namespace or namespace, target.name
