"""Data that a workload depends on beside its claims, because an annotation or the configuration says so: IRIs of data assets."""

from __future__ import annotations

from collections.abc import Iterator

from drumlin.exporters.kubernetes.manifests import DEPENDS_ON, WorkloadMetadata
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.kg.errors import Violation
from drumlin.kg.model.data_urls import NO_URL, SYNTAX, id_of


def stated_data(metadata: WorkloadMetadata, context: RenderContext) -> list[str]:
    """Return the data assets, sorted; entries of the annotation that are no URLs are left out, and reported by their places."""
    written = (metadata.annotations.depends_on or "").split() if metadata.annotations else []
    if bad := [str(place) for place, each in enumerate(written, 1) if each == NO_URL]:
        context.left_out.append(_violation(context.entity, ", ".join(bad)))
    urls = {*written, *_configured(metadata, context)} - {NO_URL}
    return sorted(context.around.iris.of_class("external", id_of(each)) for each in urls)


def _configured(metadata: WorkloadMetadata, context: RenderContext) -> Iterator[str]:
    for rule in context.around.settings.depends_on:
        if rule.matches(metadata.namespace or "", metadata.name, metadata.labels or {}):
            yield from rule.data


def _violation(entity: str, places: str) -> Violation:
    """Say which entries are not URLs, never what stands there: a URL may have a password in it."""
    message = f"{DEPENDS_ON}: no URL of data is entry {places}; one is written {SYNTAX}"
    return Violation(entity, "dependsOn", places, "data-url", message, None)
