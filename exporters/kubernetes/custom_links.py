"""What a mapped object refers to, and what it says of others: links, statements, copies, and the topics that they are published on.

A link names a kind, a name and the namespaces that the object may stand in; which of them it is depends on what exists, so it becomes an
IRI only when it is rendered.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

from drumlin.exporters.kubernetes.paths import found, path, texts
from drumlin.exporters.kubernetes.render.place import controller, group
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import Metadata, Topic
from drumlin.kg.config.custom_resources import (
    CopySettings,
    RelationSettings,
    ResourceSettings,
    StatementSettings,
    WordSettings,
)
from drumlin.kg.model.iris import RESERVED, Iris
from drumlin.kg.rdf.jsonld import NAMESPACE

ANYWHERE = "*"
"""The namespace of an object that is in whichever has one of its name."""
Scopes = Mapping[str, bool]
"""Of each kind's segment, whether its objects stand in namespaces."""
Statements = tuple[tuple[str, StatementSettings], ...]
"""Statements about the objects of a kind, each with the segment of the stating kind in ids."""


class ObjectKey(NamedTuple):
    """An object as a statement about it names it: the namespace is empty for cluster-scoped kinds, ``ANYWHERE`` where it is not known."""

    segment: str
    namespace: str
    name: str


class PartKey(NamedTuple):
    """A part of an object."""

    segment: str
    name: str


@dataclass(frozen=True, slots=True)
class Link:
    """What an object refers to: a kind (a segment of ids), a name, and the namespaces that it may stand in.

    ``part``: a part of the object itself, of this segment. ``existing``: only when it exists.
    """

    to: str
    name: str
    namespaces: tuple[str | None, ...]
    existing: bool = False
    part: str | None = None


@dataclass(slots=True)
class Said:
    """What one object says of another, or of its parts: links by term, texts of values, phases."""

    links: list[tuple[str, Link]]
    values: list[tuple[PartKey | None, str, str]]
    phases: list[tuple[PartKey | None, str, bool]]

    @classmethod
    def nothing(cls) -> Said:
        """Begin with nothing."""
        return cls([], [], [])

    def add(self, other: Said) -> None:
        """Add what another object says."""
        self.links += other.links
        self.values += other.values
        self.phases += other.phases

    def phase(self, part: PartKey | None = None, *, overrides: bool = False) -> str | None:
        """Return the phase that is said of the object or of a part: only one that ``overrides``, or any."""
        return next((word for key, word, wins in self.phases if key == part and (wins or not overrides)), None)

    def texts(self, part: PartKey | None = None) -> dict[str, list[str]]:
        """Return the values that are said of the object or of a part, by term."""
        gathered: dict[str, list[str]] = defaultdict(list)
        for key, term, text in self.values:
            if key == part:
                gathered[term].append(text)
        return gathered


# -- topics ---------------------------------------------------------------------------------------------------------------


def stated_topic(key: ObjectKey) -> Topic:
    """The topic of what others say of an object."""
    return ("stated", *key)


def named_topic(segment: str, name: str) -> Topic:
    """The topic on which an object publishes its namespace."""
    return ("named", segment, name)


def _copied_topic(segment: str, namespace: str | None, name: str) -> Topic:
    """The topic on which a copy publishes namespace and name of its original."""
    return ("copied", segment, namespace or "", name)


def segment_of(table: ResourceSettings) -> str:
    """Return the kind as ids name it."""
    return f"{table.kind.lower()}.{table.group}"


# -- facts ----------------------------------------------------------------------------------------------------------------


def link_facts(table: ResourceSettings, scopes: Scopes, manifest: Any) -> Iterator[tuple[Topic, Any]]:
    """Publish where the object stands, of what it is a copy, and what it says of others."""
    metadata, segment = manifest.metadata, segment_of(table)
    original = _original(table.copy_of, manifest) if table.copy_of else None
    if original:
        yield _copied_topic(segment, metadata.namespace, metadata.name), original
    else:
        yield named_topic(segment, metadata.name), metadata.namespace or ""
    said: dict[ObjectKey, Said] = defaultdict(Said.nothing)
    for relation in table.relation:
        for key, link in _stated_links(relation, segment, scopes, manifest) if relation.of else ():
            said[key].links.append((relation.term, link))
    for statement in table.states:
        _state(said, statement, scopes, manifest)
    yield from ((stated_topic(key), each) for key, each in said.items())


def _stated_links(
    relation: RelationSettings, segment: str, scopes: Scopes, manifest: Any
) -> Iterator[tuple[ObjectKey, Link]]:
    metadata = manifest.metadata
    for element in _elements(relation, manifest):
        names = list(texts(element, path(relation.of_name or "$")))
        spaces = [metadata.namespace or ""]
        if relation.of_namespace:
            spaces = list(dict.fromkeys(texts(element, path(relation.of_namespace))))
        if not scopes.get(relation.of or "", True):
            spaces = [""]
        place = ANYWHERE if relation.anywhere else metadata.namespace
        own = [Link(relation.to or segment, metadata.name, (place,))]
        linked = own if relation.itself else list(_named(relation, manifest, element))
        for namespace in spaces:
            for name in names:
                yield from ((ObjectKey(relation.of or "", namespace, name), link) for link in linked)


def _state(said: dict[ObjectKey, Said], statement: StatementSettings, scopes: Scopes, manifest: Any) -> None:
    key = _subject(statement, scopes, manifest)
    if key is None:
        return
    part = None
    if statement.part and statement.part_name:
        name = next(texts(manifest, path(statement.part_name)), None)
        if name is None:
            return
        part = PartKey(statement.part, name)
    for term, where in statement.value.items():
        said[key].values += [(part, term, text) for text in texts(manifest, path(where))]
    if statement.phase and (word := word_in(statement.phase, manifest) or statement.phase.default):
        said[key].phases.append((part, word, statement.overrides))


def _subject(statement: StatementSettings, scopes: Scopes, manifest: Any) -> ObjectKey | None:
    metadata: Metadata = manifest.metadata
    if statement.of_name is None:
        owner = controller(metadata)
        if owner is None or f"{owner.kind.lower()}.{group(owner.apiVersion)}" != statement.of:
            return None
        name: str | None = owner.name
    else:
        name = next(texts(manifest, path(statement.of_name)), None)
    if name is None:
        return None
    namespace = ANYWHERE if statement.anywhere else metadata.namespace or ""
    return ObjectKey(statement.of, namespace if scopes.get(statement.of, True) else "", name)


def word_in(settings: WordSettings, manifest: Any) -> str | None:
    """Return the ontology's word for what stands in an object, or None when no known word does."""
    given = set(texts(manifest, path(settings.path)))
    return next((meant for word, meant in settings.words.items() if word in given), None)


def said_of(segment: str, metadata: Metadata, context: RenderContext) -> Said:
    """Return all that others say of an object."""
    gathered = Said.nothing()
    for namespace in (metadata.namespace or "", ANYWHERE):
        for said in context.told(stated_topic(ObjectKey(segment, namespace, metadata.name))):
            gathered.add(said)
    return gathered


def remember(said: Said, statements: Statements, parts: Iterable[PartKey], context: RenderContext) -> None:
    """Add what the graph knows by statements of objects that the source has not reported yet, where those that came say nothing."""
    for home, statement in statements:
        if not context.awaits_any(home):
            continue
        for part in (key for key in parts if key.segment == statement.part) if statement.part else (None,):
            about = Iris.part(context.entity, *part) if part else context.entity
            known = said.texts(part)
            for term in statement.value.keys() - known.keys():
                said.values += [(part, term, text) for text in context.memory.values(about, term)]
            if statement.phase and said.phase(part) is None:
                words = (each.removeprefix(NAMESPACE) for each in context.memory.values(about, "phase"))
                given = statement.phase.given
                said.phases += [(part, word, statement.overrides) for word in words if word in given]


# -- names → links ----------------------------------------------------------------------------------------------------------


def links_of(relation: RelationSettings, manifest: Any) -> Iterator[Link]:
    """Yield the links of a relation of the object itself that are found by names."""
    for element in _elements(relation, manifest):
        yield from _named(relation, manifest, element)


def links_below(relation: RelationSettings, manifest: Any, element: Any) -> Iterator[Link]:
    """Yield the links of a relation of a part, whose paths start below its element."""
    return _named(relation, manifest, element)


def _elements(relation: RelationSettings, manifest: Any) -> Iterable[Any]:
    return found(manifest, path(relation.each)) if relation.each else (manifest,)


def _named(relation: RelationSettings, manifest: Any, element: Any) -> Iterator[Link]:
    places: tuple[str | None, ...] = (manifest.metadata.namespace,)
    if relation.namespace:
        places = tuple(dict.fromkeys(texts(element, path(relation.namespace)))) or places
    if relation.anywhere:
        places = (ANYWHERE,)
    left_out = set(texts(manifest, path(relation.without))) if relation.without else frozenset[str]()
    translated = _translation(relation, manifest)
    for name in texts(element, path(relation.name or "$")):
        if name not in left_out:
            yield Link(relation.to or "", translated.get(name, name), places, relation.existing, relation.to_part)


def _translation(relation: RelationSettings, manifest: Any) -> dict[str, str]:
    if not (translation := relation.translate):
        return {}
    pairs: dict[str, str] = {}
    written, meant = path(translation.written), path(translation.meant)
    for element in found(manifest, path(translation.each)):
        pairs.update(zip(texts(element, written), texts(element, meant), strict=False))
    return pairs


# -- links → IRIs ---------------------------------------------------------------------------------------------------------


def iris_of(link: Link, scopes: Scopes, context: RenderContext) -> list[str]:
    """Name what a link refers to: of several namespaces, those that hold such an object; when none does, all, unless it has to exist.

    A copy is its original, where that exists.
    """
    if link.part:
        return [Iris.part(context.entity, link.part, link.name)]
    if link.to in RESERVED:
        return [context.around.iris.of_class(link.to, link.name)]
    places = link.namespaces if scopes.get(link.to, True) else (None,)
    if places == (ANYWHERE,):
        places = tuple(sorted(set(context.told(named_topic(link.to, link.name)))))
    named = {each: _named_in(link, each, context) for each in places}
    if link.existing or len(places) > 1:
        existing = [iri for iri in named.values() if context.exists(iri)]
        if existing or link.existing:
            return list(dict.fromkeys(existing))
    return list(dict.fromkeys(named.values()))


def _named_in(link: Link, namespace: str | None, context: RenderContext) -> str:
    """Return the IRI of a link's object in a namespace, or of its original."""
    for owner, name in context.told(_copied_topic(link.to, namespace, link.name)):
        if _is_original(link.to, owner, name, context):
            return _iri(link.to, owner, name, context)
    return _iri(link.to, namespace, link.name, context)


def _iri(to: str, namespace: str | None, name: str, context: RenderContext) -> str:
    kind, _, api_group = to.partition(".")
    return context.around.object(namespace or None, kind, name, api_group)


# -- copies ---------------------------------------------------------------------------------------------------------------


def is_copy(table: ResourceSettings, manifest: Any, context: RenderContext) -> bool:
    """Return whether an object is a copy of one that exists, so that it is no entity of its own."""
    original = _original(table.copy_of, manifest) if table.copy_of else None
    return original is not None and _is_original(segment_of(table), *original, context)


def _is_original(to: str, owner: str, name: str, context: RenderContext) -> bool:
    """Return whether an object exists and is no copy in turn: of two that name each other, both stand."""
    return context.exists(_iri(to, owner, name, context)) and not context.told(_copied_topic(to, owner, name))


def _original(settings: CopySettings, manifest: Any) -> tuple[str, str] | None:
    owner = next(texts(manifest, path(settings.owner)), None)
    if owner is None or owner == manifest.metadata.namespace:
        return None
    name = next(texts(manifest, path(settings.name)), None) if settings.name else None
    return owner, name or manifest.metadata.name
