"""What brought an object into the cluster: the Helm release, the Argo CD application, the Flux HelmRelease or Kustomization, as text.

Each is ``tool:namespace/name``; several may be true of one object, as Flux installs by Helm. What was only copied from another object is
not taken: Helm's annotations count with its label, as Helm holds it, and an Argo CD tracking id counts on the object that it names.
Sources: https://helm.sh/docs/chart_best_practices/labels/, https://argo-cd.readthedocs.io/en/stable/user-guide/resource_tracking/,
https://fluxcd.io/flux/faq/ (labels of what Flux applies).
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from drumlin.exporters.kubernetes.manifests import InstalledMetadata, ReleaseAnnotations
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.kg.model.iris import Name, ObjectName

ARGO = "argocd.argoproj.io/instance"
"""Label of the Argo CD application, where applications are tracked by a label of its own."""
FLUX = ("helm.toolkit.fluxcd.io/name", "kustomize.toolkit.fluxcd.io/name")
"""Labels of the names of what Flux applies."""
_MANAGED_BY = "app.kubernetes.io/managed-by"
_TOOLS = {"helm.toolkit.fluxcd.io": "helmrelease", "kustomize.toolkit.fluxcd.io": "kustomization"}


def releases(metadata: InstalledMetadata, context: RenderContext) -> list[str]:
    """Return what brought the object, sorted: nothing for what somebody applied by hand."""
    labels, annotations = metadata.labels or {}, metadata.annotations
    if not labels and annotations is None:
        return []
    found = [*_flux(labels)]
    if annotations and annotations.release and labels.get(_MANAGED_BY) == "Helm":
        found.append(_written("helm", annotations.release_namespace or metadata.namespace, annotations.release))
    if application := _application(labels, annotations, context):
        found.append(application)
    return sorted(found)


def _flux(labels: Mapping[str, str]) -> Iterator[str]:
    for group, tool in _TOOLS.items():
        if name := labels.get(f"{group}/name"):
            yield _written(tool, labels.get(f"{group}/namespace"), name)


def _application(
    labels: Mapping[str, str], annotations: ReleaseAnnotations | None, context: RenderContext
) -> str | None:
    """Return the Argo CD application. The annotation wins over the label, also when it says that the object is another's copy."""
    if annotations and annotations.tracking:
        application, _, of = annotations.tracking.partition(":")
        named = context.around.iris.parse(context.entity).name
        return _of_argo(application) if application and _names(of, named) else None
    return _of_argo(labels[ARGO]) if labels.get(ARGO) else None


def _of_argo(application: str) -> str:
    """Write an application; one outside of Argo CD's own namespace is tracked as ``namespace_name``."""
    namespace, _, name = application.partition("_")
    return _written("argocd", namespace, name) if name else _written("argocd", None, application)


def _names(of: str, named: Name) -> bool:
    """Return whether ``group/kind:namespace/name`` is the object itself."""
    kind, _, place = of.partition(":")
    namespace, _, name = place.rpartition("/")
    return isinstance(named, ObjectName) and (kind.rpartition("/")[2].lower(), namespace or None, name) == (
        named.kind,
        named.namespace,
        named.name,
    )


def _written(tool: str, namespace: str | None, name: str) -> str:
    return f"{tool}:{namespace}/{name}" if namespace else f"{tool}:{name}"
