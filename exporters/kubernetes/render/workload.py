"""What all workload kinds have in common: the document of contract/graphs/deployment.jsonld.

Each kind's own module says only what differs: its projection, its phase, how many replicas it wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from drumlin.exporters.kubernetes.manifests import (
    Container,
    PodSpec,
    PodTemplate,
    WorkloadAnnotations,
    WorkloadMetadata,
)
from drumlin.exporters.kubernetes.render.data import stated_data
from drumlin.exporters.kubernetes.render.demand import demanded, statements
from drumlin.exporters.kubernetes.render.images import digest_in, pods_are_told, running_digests, tag_in
from drumlin.exporters.kubernetes.render.place import inside, manager
from drumlin.exporters.kubernetes.render.references import references
from drumlin.exporters.kubernetes.render.releases import ARGO, FLUX
from drumlin.exporters.kubernetes.render.scraping import scrapers
from drumlin.exporters.kubernetes.selectors import SELECTABLE, LabelSelector, Selectable, selectable_topic
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import Life, Manifest, Metadata, Topic, without_nulls
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry.describe import Subject, pod_names

_NAME = "app.kubernetes.io/name"
_INSTANCE = "app.kubernetes.io/instance"
_GROUP = "app.kubernetes.io/part-of"
_VERSION = "app.kubernetes.io/version"


def render_workload(
    kind: str,
    metadata: WorkloadMetadata,
    template: PodTemplate,
    context: RenderContext,
    *,
    phase: str,
    replicas: int | None = None,
    claims: Iterable[str] = (),
) -> dict[str, object]:
    """Describe a workload: application, containers, the claims and other data it depends on, what else it refers to, runs and telemetry.

    ``replicas`` is how many pods are wanted; ``claims`` are names of claims beyond those in the template's volumes.
    """
    labels = metadata.labels or {}
    return without_nulls(
        {
            **inside(metadata, kind, context),
            "application": labels.get(_NAME) or labels.get(_INSTANCE),
            "applicationGroup": _group(metadata),
            "version": labels.get(_VERSION) or _tag(metadata.name, template.spec),
            "managedBy": manager(metadata, context),
            "phase": phase,
            "replicas": replicas,
            "container": _containers(metadata, template.spec, context),
            "dependsOn": [
                *(
                    context.around.object(metadata.namespace, "PersistentVolumeClaim", name)
                    for name in sorted({*_claims(template.spec), *claims})
                ),
                *stated_data(metadata, context),
            ],
            **references(template.spec),
            "runs": context.runs,
            "telemetry": _telemetry(kind, metadata, template, context),
        }
    )


def _group(metadata: WorkloadMetadata) -> str | None:
    """Return what the application is part of: by its label, else the Argo CD application, the Flux release, or the Helm release."""
    labels, annotations = metadata.labels or {}, metadata.annotations or WorkloadAnnotations()
    application = (annotations.tracking or "").partition(":")[0]
    flux = next((labels[each] for each in FLUX if labels.get(each)), None)
    return labels.get(_GROUP) or application or labels.get(ARGO) or flux or annotations.release


def running(replicas: int | None) -> str:
    """Return the phase of a workload that keeps ``replicas`` pods (None: Kubernetes' default of one)."""
    return "Suspended" if replicas == 0 else "Running"


def selected(
    namespace: str, selector: LabelSelector | None, context: RenderContext, term: str = "selects"
) -> list[str]:
    """Return the workloads of a namespace whose pods a selector matches; an absent one matches none.

    Workloads of which nothing was reported stay, where the entity was linked to them by ``term``.
    """
    if selector is None:
        return []
    found = [
        context.around.object(namespace, each.kind, each.name)
        for each in context.told(selectable_topic(namespace))
        if selector.matches(each.labels)
    ]
    return [*found, *context.kept(term, SELECTABLE)]


def template_facts(kind: str, metadata: Metadata, template: PodTemplate) -> Iterable[tuple[Topic, Selectable]]:
    """Publish the labels of the workload's pods, for objects that select pods."""
    told = Selectable(metadata.namespace or "", kind, metadata.name, _pod_labels(template))
    yield selectable_topic(told.namespace), told
    yield selectable_topic("*"), told


def created_life(manifest: Manifest) -> Life:
    """A workload runs from its creation until it is deleted."""
    return Life(manifest.metadata.creationTimestamp)


def _containers(metadata: Metadata, spec: PodSpec, context: RenderContext) -> Sequence[NodeDocument]:
    digests, told = running_digests(metadata.uid, context), pods_are_told(metadata.namespace, context)
    return [_container(each, digests, context, told=told) for each in spec.running]


def _container(
    container: Container, digests: Mapping[tuple[str, str | None], str | None], context: RenderContext, *, told: bool
) -> NodeDocument:
    """Describe a container; what the graph knows of its image counts while pods of the workload have not been ``told``."""
    iri, image = context.around.iris.container(context.entity, container.name), container.image or None
    key = (container.name, container.image)
    digest = digests.get(key)
    if not told and (key not in digests or context.memory.awaits_pods(context.entity)):
        known = context.memory.image(iri)
        digest = known[1] if known and known[0] == image else digest
    return without_nulls(
        {
            "id": iri,
            "type": "Container",
            "name": container.name,
            "image": image,
            "imageDigest": (digest_in(image) if image else None) or digest,
            **statements(*demanded(container.resources)),
        }
    )


def _claims(spec: PodSpec) -> Iterable[str]:
    return (each.persistentVolumeClaim.claimName for each in spec.volumes or () if each.persistentVolumeClaim)


def _tag(name: str, spec: PodSpec) -> str | None:
    main = next(
        (each for each in spec.containers if each.name == name), spec.containers[0] if spec.containers else None
    )
    return tag_in(main.image) if main and main.image else None


def _pod_labels(template: PodTemplate) -> Mapping[str, str]:
    return (template.metadata and template.metadata.labels) or {}


def _telemetry(kind: str, metadata: Metadata, template: PodTemplate, context: RenderContext) -> list[NodeDocument]:
    """Describe the telemetry; who scrapes the pods is asked only where some datasource holds nothing else."""
    subject = _subject(kind, metadata, template, context)
    if not any(each.metrics == "scraped" for each in context.around.settings.datasource):
        return context.telemetry(subject)
    annotations = template.metadata and template.metadata.annotations
    annotated = bool(annotations and annotations.scrape == "true")
    namespace = metadata.namespace or ""
    return context.telemetry(subject, scrapers(namespace, _pod_labels(template), context, annotated=annotated))


def _subject(kind: str, metadata: Metadata, template: PodTemplate, context: RenderContext) -> Subject:
    annotations = template.metadata and template.metadata.annotations
    limits = [each.resources.limits for each in template.spec.running if each.resources and each.resources.limits]
    return Subject(
        context.entity,
        "Workload",
        context.cluster_name,
        metadata.namespace,
        kind,
        metadata.name,
        pods=pod_names(kind, metadata.name),
        cpu_limited=any(each.get("cpu") is not None for each in limits),
        host_network=bool(template.spec.hostNetwork),
        logs_injected=bool(annotations and annotations.injection == "enabled"),
    )


def facts_of(kind: str) -> Any:
    """Return the ``facts`` of a workload kind whose manifest has ``spec.template``."""

    def facts(manifest: Any) -> Iterable[tuple[Topic, Any]]:
        return template_facts(kind, manifest.metadata, manifest.spec.template)

    return facts
