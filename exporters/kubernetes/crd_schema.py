"""Compares a mapping with a CustomResourceDefinition: a path that leads to no field of the schema finds nothing, for ever and silently."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from drumlin.exporters.kubernetes.custom import paths_of
from drumlin.exporters.kubernetes.paths import Elements, Inside, MemberStep, Path, path
from drumlin.kg.config.custom_resources import ResourceSettings


def mismatches(table: ResourceSettings, definition: Mapping[str, Any]) -> list[str]:
    """Return what a table says that a definition (``apiextensions.k8s.io/v1``) does not, a line each; [] when all of it fits.

    A path is followed up to a text that is JSON itself, whose content no schema describes.
    """
    spec = definition.get("spec", {})
    versions = [each for each in spec.get("versions", ()) if each.get("name") == table.version]
    found = []
    if spec.get("group") != table.group or spec.get("names", {}).get("plural") != table.plural:
        found.append(f"the definition is not that of {table.plural}.{table.group}")
    if spec.get("names", {}).get("kind") != table.kind:
        found.append(f"the kind is {spec.get('names', {}).get('kind')}, not {table.kind}")
    if (spec.get("scope") == "Namespaced") != table.namespaced:
        found.append(f"its objects are {spec.get('scope')}, so namespaced = {str(not table.namespaced).lower()}")
    if not versions:
        return [*found, f"there is no version {table.version}"]
    schema = versions[0].get("schema", {}).get("openAPIV3Schema", {})
    unknown = [each for each in dict.fromkeys(paths_of(table)) if not _is_field(schema, path(each))]
    return [*found, *(f"{each} is not a field of {table.version}" for each in unknown)]


def _is_field(schema: Mapping[str, Any], steps: Path) -> bool:
    if not steps or isinstance(steps[0], Inside) or schema.get("x-kubernetes-preserve-unknown-fields"):
        return True
    first, rest = steps[0], steps[1:]
    if isinstance(first, Elements):
        inner = schema.get("items", schema.get("additionalProperties"))
        return isinstance(inner, Mapping) and _is_field(inner, rest)
    assert isinstance(first, MemberStep)
    if first.name == "metadata":
        return True
    inner = schema.get("properties", {}).get(first.name, schema.get("additionalProperties"))
    return isinstance(inner, Mapping) and _is_field(inner, rest)
