"""Ingress → one node document. Source: Ingress v1 networking.k8s.io."""

from __future__ import annotations

from collections.abc import Iterable

import msgspec

from drumlin.exporters.kubernetes.manifests import Installed
from drumlin.exporters.kubernetes.render.place import inside
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import without_nulls
from drumlin.kg.rdf.jsonld import NodeDocument


class ServiceReference(msgspec.Struct, frozen=True, gc=False):
    """The Service behind a path."""

    name: str


class Backend(msgspec.Struct, frozen=True, gc=False):
    """Where requests go; one that is no Service is not taken."""

    service: ServiceReference | None = None


class IngressPath(msgspec.Struct, frozen=True, gc=False):
    """A path of a host, as far as it names a backend."""

    backend: Backend = Backend()


class HttpRule(msgspec.Struct, frozen=True, gc=False):
    """The paths of a host."""

    paths: tuple[IngressPath, ...] | None = None


class IngressRule(msgspec.Struct, frozen=True, gc=False):
    """A host and its paths."""

    host: str | None = None
    http: HttpRule | None = None


class IngressSpec(msgspec.Struct, frozen=True, gc=False):
    """The rules, and where all else goes. The names of TLS secrets are not taken."""

    defaultBackend: Backend | None = None
    rules: tuple[IngressRule, ...] | None = None


class Ingress(Installed, frozen=True, kw_only=True):
    """What is taken from an Ingress."""

    spec: IngressSpec = IngressSpec()


def render_ingress(ingress: Ingress, context: RenderContext) -> NodeDocument:
    """Describe an Ingress with its hosts and the Services that it brings requests to."""
    metadata, rules = ingress.metadata, ingress.spec.rules or ()
    return without_nulls(
        {
            **inside(metadata, "Ingress", context),
            "host": sorted({each.host for each in rules if each.host}),
            "routesTo": [
                context.around.object(metadata.namespace, "Service", name)
                for name in sorted({each.service.name for each in _backends(ingress.spec) if each.service})
            ],
        }
    )


def _backends(spec: IngressSpec) -> Iterable[Backend]:
    if spec.defaultBackend:
        yield spec.defaultBackend
    for rule in spec.rules or ():
        yield from (path.backend for path in (rule.http and rule.http.paths) or ())
