"""Service → one node document, and the datasource that it may be. Source: Service v1 core."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Any

import msgspec

from drumlin.exporters.discovery import Discovered
from drumlin.exporters.kubernetes.manifests import SCRAPE, Installed, InstalledMetadata, ReleaseAnnotations
from drumlin.exporters.kubernetes.render.endpointslice import endpoints_topic, unready_topic
from drumlin.exporters.kubernetes.render.place import inside
from drumlin.exporters.kubernetes.render.scraping import ANY, Selecting, services_topic
from drumlin.exporters.kubernetes.render.workload import selected
from drumlin.exporters.kubernetes.selectors import LabelSelector
from drumlin.exporters.pipeline.context import DATASOURCES, RenderContext
from drumlin.exporters.protocol import OPERATED, Metadata, Topic, without_nulls
from drumlin.kg.config.datasources import DatasourceKind
from drumlin.kg.rdf.jsonld import NodeDocument

_NAME = "app.kubernetes.io/name"
_KINDS: dict[str, DatasourceKind] = {"prometheus": "prometheus", "loki": "loki", "grafana": "grafana"}
_OF_AN_OBJECT = "operator.prometheus.io/name"
_USUAL_PORTS = ("http", "web", "http-web", "http-metrics")


class ServicePort(msgspec.Struct, frozen=True, gc=False):
    """A port by which the Service is reached."""

    port: int
    name: str | None = None


class ServiceSpec(msgspec.Struct, frozen=True, gc=False):
    """Whom it selects and where it is reached."""

    selector: dict[str, str] | None = None
    ports: tuple[ServicePort, ...] | None = None
    clusterIP: str | None = None
    type: str | None = None


class ServiceAnnotations(ReleaseAnnotations, frozen=True):
    """Also whether a Prometheus is asked to scrape."""

    scrape: str | None = msgspec.field(default=None, name=SCRAPE)


class ServiceMetadata(InstalledMetadata, frozen=True):
    """Metadata with the annotations that are taken."""

    annotations: ServiceAnnotations | None = None


class Service(Installed, frozen=True, kw_only=True):
    """What is taken from a Service."""

    metadata: ServiceMetadata
    spec: ServiceSpec = ServiceSpec()


def render_service(service: Service, context: RenderContext) -> NodeDocument:
    """Describe a Service with the workloads whose pods its selector matches, and the pods that its endpoints are."""
    metadata = service.metadata
    pods = _pods(metadata, context)
    return without_nulls(
        {
            **inside(metadata, "Service", context),
            "selects": [*_selected(service, context), *pods],
            "unready": _unready(metadata, pods, context),
        }
    )


def service_facts(service: Service) -> Iterable[tuple[Topic, Any]]:
    """Publish whom it selects; and that it is a Prometheus, Loki or Grafana, by its name label or as prometheus-operator's.

    Headless twins are passed over, but for the one that the operator makes itself.
    """
    metadata, spec = service.metadata, service.spec
    yield from _selecting(metadata, spec)
    operated = metadata.name == OPERATED
    kind, port = _serves(service)
    if kind and port and (operated or spec.clusterIP != "None") and spec.type != "ExternalName":
        namespace = metadata.namespace or ""
        url = f"http://{metadata.name}.{namespace}.svc:{port}"
        yield DATASOURCES, Discovered(namespace, metadata.name, kind, url, operated, spec.clusterIP)


def _serves(service: Service) -> tuple[DatasourceKind | None, int | None]:
    """Return what a Service serves, and at which port. One that leads to the operator's pods may serve Thanos at another."""
    labels, spec = service.metadata.labels or {}, service.spec
    ports = spec.ports or ()
    if kind := _KINDS.get(labels.get(_NAME, "")):
        return kind, _port(ports)
    if service.metadata.name == OPERATED or _OF_AN_OBJECT in (spec.selector or {}):
        return "prometheus", next((each.port for each in ports if each.name in _USUAL_PORTS), None)
    return None, None


def _selecting(metadata: ServiceMetadata, spec: ServiceSpec) -> Iterable[tuple[Topic, Any]]:
    annotated = bool(metadata.annotations and metadata.annotations.scrape == "true")
    told = Selecting(metadata.namespace or "", metadata.name, metadata.labels or {}, spec.selector or {}, annotated)
    yield services_topic(told.namespace), told
    yield services_topic(ANY), told


def _port(ports: tuple[ServicePort, ...]) -> int | None:
    usual = (each.port for each in ports if each.name in _USUAL_PORTS)
    return next(usual, ports[0].port if ports else None)


def _selected(service: Service, context: RenderContext) -> list[str]:
    namespace, selector = service.metadata.namespace or "", service.spec.selector
    return selected(namespace, LabelSelector(matchLabels=selector) if selector else None, context)


def _unready(metadata: Metadata, pods: Sequence[str], context: RenderContext) -> list[str]:
    """Return those of the pods that have not been ready for a while; while slices have not been seen, those that it was linked to."""
    told = context.told(unready_topic(metadata.namespace or "", metadata.name))
    found = {context.around.object(namespace, "Pod", name) for namespace, name in frozenset().union(*told)}
    if not context.is_complete("endpointslice", metadata.namespace):
        found.update(context.linked("unready"))
    return [each for each in pods if each in found]


def _pods(metadata: Metadata, context: RenderContext) -> list[str]:
    """Return the pods that the Service's slices name; while slices have not been seen, also those that it was linked to.

    One that was reported itself is not kept against the slices that were.
    """
    told = context.told(endpoints_topic(metadata.namespace or "", metadata.name))
    found = {context.around.object(namespace, "Pod", name) for namespace, name in frozenset().union(*told)}
    if not context.is_complete("endpointslice", metadata.namespace):
        pods = [iri for iri in context.linked("selects") if context.home(iri) == "pod"]
        found.update(iri for iri in pods if (context.awaits(iri) if told else context.exists(iri)))
    return sorted(found)
