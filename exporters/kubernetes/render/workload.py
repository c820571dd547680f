"""What all workload kinds have in common: the document of contract/graphs/deployment.jsonld.

Each kind's own module says only what differs: its projection, its phase, how many replicas it wants.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from exporters.context import Context
from exporters.kubernetes.manifests import (
    Container,
    GroupAnnotations,
    InstalledMetadata,
    PodSpec,
    PodTemplate,
    without_nulls,
)
from exporters.kubernetes.render.demand import demanded, statements
from exporters.kubernetes.render.images import digest_in, running_digests, tag_in
from exporters.kubernetes.render.place import inside, manager
from exporters.kubernetes.render.scraping import scrapers
from exporters.kubernetes.selectors import LabelSelector, Selectable, selectable_topic
from exporters.protocol import Life, Manifest, Metadata, Topic
from kg.jsonld import NodeDocument
from kg.telemetry.describe import Subject, pod_names

_NAME = "app.kubernetes.io/name"
_INSTANCE = "app.kubernetes.io/instance"
_GROUP = "app.kubernetes.io/part-of"
_VERSION = "app.kubernetes.io/version"
_ARGO = "argocd.argoproj.io/instance"


def render_workload(
    kind: str,
    metadata: InstalledMetadata,
    template: PodTemplate,
    context: Context,
    *,
    phase: str,
    replicas: int | None = None,
    claims: Iterable[str] = (),
) -> dict[str, object]:
    """Describe a workload: application, containers, the claims it depends on, runs and telemetry.

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
            "container": _containers(metadata.uid, template.spec, context),
            "dependsOn": [
                context.around.object(metadata.namespace, "PersistentVolumeClaim", name)
                for name in sorted({*_claims(template.spec), *claims})
            ],
            "runs": context.runs,
            "telemetry": _telemetry(kind, metadata, template, context),
        }
    )


def _group(metadata: InstalledMetadata) -> str | None:
    """Return what the application is part of: by its label, else the Argo CD application, else the Helm release."""
    labels, annotations = metadata.labels or {}, metadata.annotations or GroupAnnotations()
    application = (annotations.tracking or "").partition(":")[0]
    return labels.get(_GROUP) or application or labels.get(_ARGO) or annotations.release


def running(replicas: int | None) -> str:
    """Return the phase of a workload that keeps ``replicas`` pods (None: Kubernetes' default of one)."""
    return "Suspended" if replicas == 0 else "Running"


def selected(namespace: str, selector: LabelSelector | None, context: Context) -> list[str]:
    """Return the workloads of a namespace whose pods a selector matches; an absent one matches none."""
    if selector is None:
        return []
    return [
        context.around.object(namespace, each.kind, each.name)
        for each in context.told(selectable_topic(namespace))
        if selector.matches(each.labels)
    ]


def template_facts(kind: str, metadata: Metadata, template: PodTemplate) -> Iterable[tuple[Topic, Selectable]]:
    """Tell whoever selects pods what those of the workload are labelled with."""
    told = Selectable(metadata.namespace or "", kind, metadata.name, _pod_labels(template))
    yield selectable_topic(told.namespace), told
    yield selectable_topic("*"), told


def created_life(manifest: Manifest) -> Life:
    """A workload runs from its creation until it is deleted."""
    return Life(manifest.metadata.creationTimestamp)


def _containers(uid: str, spec: PodSpec, context: Context) -> Sequence[NodeDocument]:
    digests = running_digests(uid, context)
    return [_container(each, digests.get((each.name, each.image)), context) for each in spec.running]


def _container(container: Container, digest: str | None, context: Context) -> NodeDocument:
    image = container.image or None
    return without_nulls(
        {
            "id": context.around.iris.container(context.entity, container.name),
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


def _telemetry(kind: str, metadata: Metadata, template: PodTemplate, context: Context) -> list[NodeDocument]:
    """Describe the telemetry; who scrapes the pods is asked only where some datasource holds nothing else."""
    subject = _subject(kind, metadata, template, context)
    if not any(each.metrics == "scraped" for each in context.around.settings.datasource):
        return context.telemetry(subject)
    annotations = template.metadata and template.metadata.annotations
    annotated = bool(annotations and annotations.scrape == "true")
    namespace = metadata.namespace or ""
    return context.telemetry(subject, scrapers(namespace, _pod_labels(template), context, annotated=annotated))


def _subject(kind: str, metadata: Metadata, template: PodTemplate, context: Context) -> Subject:
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
