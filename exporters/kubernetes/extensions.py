"""Built-in kinds in another system: what mapped objects state of them, or stands in its labels, annotations and status.

A pod of a Kuscia task has no owner reference; an annotation names its task. What a kind says of itself stands: a mapping adds what it
does not have.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from typing import Any

import msgspec

from drumlin.exporters.kubernetes.custom import stated, told_links
from drumlin.exporters.kubernetes.custom_links import Scopes, iris_of, links_of, said_of
from drumlin.exporters.kubernetes.custom_values import fitting, gathered, typed
from drumlin.exporters.kubernetes.paths import extended, path
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import Kind, without_nulls
from drumlin.kg.config.custom_resources import ExtensionSettings, RelationSettings, ResourceSettings
from drumlin.kg.errors import InvalidSettings
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.ontology.vocabulary import FUNCTIONAL_PROPERTIES

Stated = tuple[tuple[str, RelationSettings], ...]


def extended_kinds(
    kinds: Sequence[Kind], extensions: Iterable[ExtensionSettings], tables: Sequence[ResourceSettings], scopes: Scopes
) -> tuple[Kind, ...]:
    """Return the built-in kinds with what mappings add to them; raises ``InvalidSettings`` for a kind that has no graph of its own."""
    added: dict[str, list[ExtensionSettings]] = defaultdict(list)
    for extension in extensions:
        added[extension.kind].append(extension)
    mapped = {f"{each.kind.lower()}.{each.group}" for each in tables}
    of = {relation.of for table in tables for relation in table.relation if relation.of}
    of |= {statement.of for table in tables for statement in table.states}
    rendered = {each.segment for each in kinds if each.render}
    if unknown := sorted((added.keys() | of) - mapped - rendered):
        raise InvalidSettings(
            f"{unknown[0]} has no graph to which a relation could be added",
            hint="name a built-in kind such as pod, or one that a [[resource]] table maps (with its group)",
        )
    return tuple(
        _extended(each, tuple(added[each.segment]), tuple(stated(each.segment, tables)), scopes) for each in kinds
    )


def _extended(kind: Kind, added: tuple[ExtensionSettings, ...], told: Stated, scopes: Scopes) -> Kind:
    if not added and not told:
        return kind
    relations = tuple(relation for each in added for relation in each.relation)
    values = tuple(each.value for each in added if each.value)
    named = [each for relation in relations for each in (relation.name, relation.namespace) if each]
    paths = [path(each) for each in (*named, *(each for value in values for each in value.values()))]
    return replace(
        kind,
        projection=_projection(kind, paths) if paths else kind.projection,
        render=partial(_rendered, kind, relations, values, told, scopes),
    )


def _projection(kind: Kind, paths: Sequence[Any]) -> type[Any]:
    """Return the kind's projection with what the paths find in its metadata and its status."""
    parts = {each.name: each for each in msgspec.structs.fields(kind.projection)}
    fields: list[tuple[str, Any, Any]] = []
    for part in sorted({each[0].name for each in paths}):
        if part not in parts:
            raise InvalidSettings(f"nothing of the {part} of {kind.segment} is read")
        made = extended(part, f"{kind.name}{part.title()}", paths, parts[part].type)
        default = msgspec.field() if parts[part].required else msgspec.field(default_factory=made)
        fields.append((part, made, default))
    return msgspec.defstruct(kind.name, fields, bases=(kind.projection,), frozen=True, gc=False, kw_only=True)


def _rendered(
    kind: Kind,
    relations: tuple[RelationSettings, ...],
    values: tuple[Mapping[str, str], ...],
    told: Stated,
    scopes: Scopes,
    manifest: Any,
    context: RenderContext,
) -> NodeDocument | None:
    rendered = kind.render(manifest, context) if kind.render else None
    if rendered is None:
        return None
    document, metadata = dict(rendered), manifest.metadata
    links: dict[str, list[str]] = defaultdict(list)
    for relation in relations:
        found = [iri for link in links_of(relation, manifest) for iri in iris_of(link, scopes, context)]
        links[relation.term] += found or context.kept(relation.term, {relation.to or ""})
    said = said_of(kind.segment, metadata, context)
    for term, iris in told_links(said, scopes, told, metadata.namespace, context):
        links[term] += iris
    for term, iris in links.items():
        own = document.get(term)
        if own is None or term not in FUNCTIONAL_PROPERTIES:
            before = own if isinstance(own, list) else [own] if own else []
            document[term] = fitting(term, [*before, *iris])
    for each in values:
        texts = gathered(each, manifest)
        if all(texts.values()):
            document = {term: typed(term, found) for term, found in texts.items()} | document
    return without_nulls(document)
