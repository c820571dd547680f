"""ConfigMaps, Secrets and service accounts that a pod template refers to: their names, never what is in them.

Source: PodSpec v1 core (env, envFrom, volumes, imagePullSecrets, serviceAccountName).
"""

from __future__ import annotations

from collections.abc import Iterator

from drumlin.exporters.kubernetes.manifests import TemplateSpec


def references(spec: TemplateSpec) -> dict[str, object]:
    """Return the names as terms of the context: ``configMap``, ``secret`` (sorted) and ``serviceAccount``."""
    named = [*_of_variables(spec), *_of_volumes(spec)]
    named += [("secret", each.name) for each in spec.imagePullSecrets or ()]
    return {
        "configMap": sorted({name for term, name in named if term == "configMap" and name}),
        "secret": sorted({name for term, name in named if term == "secret" and name}),
        "serviceAccount": spec.serviceAccountName or None,
    }


def _of_variables(spec: TemplateSpec) -> Iterator[tuple[str, str]]:
    for container in (*spec.containers, *(spec.initContainers or ())):
        for variable in container.env or ():
            if source := variable.valueFrom:
                if source.configMapKeyRef:
                    yield "configMap", source.configMapKeyRef.name
                if source.secretKeyRef:
                    yield "secret", source.secretKeyRef.name
        for each in container.envFrom or ():
            if each.configMapRef:
                yield "configMap", each.configMapRef.name
            if each.secretRef:
                yield "secret", each.secretRef.name


def _of_volumes(spec: TemplateSpec) -> Iterator[tuple[str, str]]:
    for volume in spec.volumes or ():
        if volume.configMap:
            yield "configMap", volume.configMap.name
        if volume.secret:
            yield "secret", volume.secret.secretName
        for each in (volume.projected.sources if volume.projected else None) or ():
            if each.configMap:
                yield "configMap", each.configMap.name
            if each.secret:
                yield "secret", each.secret.name
