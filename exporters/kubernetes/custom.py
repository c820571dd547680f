"""Custom resources by configuration: a ``ResourceSettings`` → one more row for the table of kinds. No code for a new CRD.

Where an object speaks of others (the DAG of a job's tasks), it tells them, and their own graphs state it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import partial
from typing import Any

from exporters.context import Context
from exporters.kubernetes.manifests import without_nulls
from exporters.kubernetes.paths import found, path, projection, texts
from exporters.kubernetes.render.place import manager, placed
from exporters.kubernetes.render.workload import selected
from exporters.protocol import Kind, Life, Topic
from kg.iris import RESERVED
from kg.jsonld import NodeDocument
from kg.resources import RelationSettings, ResourceSettings, WordSettings
from ontology.vocabulary import FUNCTIONAL_PROPERTIES


@dataclass(frozen=True, slots=True)
class Link:
    """What an object refers to: a kind (a segment of ids), a name, and the namespaces that it may stand in."""

    to: str
    name: str
    namespaces: tuple[str | None, ...]


@dataclass(frozen=True)
class Resource:
    """One table with its paths read; ``scopes`` tells of each mapped kind's segment whether it stands in namespaces."""

    table: ResourceSettings
    scopes: dict[str, bool]

    @property
    def segment(self) -> str:
        """The kind as ids name it."""
        return f"{self.table.kind.lower()}.{self.table.group}"

    def kind(self) -> Kind:
        """Return the row of the table of kinds."""
        table = self.table
        return Kind(
            table.kind,
            table.group,
            table.version,
            table.plural,
            table.namespaced,
            projection(table.kind, [path(each) for each in self._paths()], [path(each) for each in self._selectors()]),
            partial(_rendered, self),
            partial(_facts, self),
            partial(_life, self) if table.run else None,
            table.type,
            reserved="domain" if table.identity == "domain" else "",
        )

    def _selectors(self) -> Iterator[str]:
        return (each.selector for each in self.table.relation if each.selector)

    def _paths(self) -> Iterator[str]:
        table = self.table
        yield from table.value.values()
        if table.phase:
            yield table.phase.path
        if run := table.run:
            yield from filter(None, (run.start, run.end, run.outcome and run.outcome.path))
        for each in table.relation:
            yield from _paths(each)


def custom_kinds(tables: Iterable[ResourceSettings]) -> tuple[Kind, ...]:
    """Return the rows for all tables; raises ``InvalidSettings`` for a path that is none."""
    listed = tuple(tables)
    scopes = {f"{each.kind.lower()}.{each.group}": each.namespaced for each in listed}
    return tuple(Resource(each, scopes).kind() for each in listed)


def _paths(relation: RelationSettings) -> Iterator[str]:
    start = relation.each or "$"
    for each in (relation.name, relation.namespace, relation.of_name):
        if each:
            yield start + each[1:]
    if translation := relation.translate:
        yield translation.each + translation.written[1:]
        yield translation.each + translation.meant[1:]


# -- what it says ---------------------------------------------------------------------------------------------------------


def _rendered(resource: Resource, manifest: Any, context: Context) -> NodeDocument | None:
    table, metadata = resource.table, manifest.metadata
    if table.identity == "domain" and metadata.name == context.around.settings.domain.id:
        return None  # the hosting domain is described by the configuration
    document = (
        {"id": context.entity, "type": table.type, "name": metadata.name}
        if table.identity == "domain"
        else placed(metadata, table.type, context)
    )
    values = {term: _fitting(term, texts(manifest, path(where))) for term, where in table.value.items()}
    phase = {"phase": _word(table.phase, manifest)} if table.phase else {}
    place = context.around.object(None, "Namespace", metadata.namespace) if table.namespaced else None
    return without_nulls(
        {
            **document,
            "partOf": place,
            "label": context.labels(metadata.labels),
            **table.constant,
            **values,
            **phase,
            **_relations(resource, manifest, context),
            "runs": context.runs,
        }
    )


def _fitting(term: str, values: Iterable[str]) -> str | list[str] | None:
    """Return one value for a term that can have one only, else all of them."""
    unique = list(dict.fromkeys(values))
    if term in FUNCTIONAL_PROPERTIES or term == "title":
        return unique[0] if unique else None
    return unique


def _word(settings: WordSettings, manifest: Any) -> str | None:
    given = set(texts(manifest, path(settings.path)))
    return next((meant for word, meant in settings.words.items() if word in given), settings.default)


def _relations(resource: Resource, manifest: Any, context: Context) -> dict[str, Any]:
    links: dict[str, list[str]] = defaultdict(list)
    for relation in resource.table.relation:
        if not relation.of:
            links[relation.term] += _linked(resource, relation, manifest, context)
    metadata = manifest.metadata
    for told in context.told(_stated_topic(resource.segment, metadata.namespace, metadata.name)):
        for term, link in told:
            links[term] += _iris(resource, link, context)
    return {term: _fitting(term, iris) for term, iris in links.items()}


def _linked(resource: Resource, relation: RelationSettings, manifest: Any, context: Context) -> Iterable[str]:
    if relation.owner:
        owner = manager(manifest.metadata, context)
        return [owner] if owner else []
    if relation.selector:
        selectors = found(manifest, path(relation.selector))
        return [iri for each in selectors for iri in selected(manifest.metadata.namespace or "", each, context)]
    return [iri for _, link in _links(relation, manifest) for iri in _iris(resource, link, context)]


# -- what it refers to ----------------------------------------------------------------------------------------------------


def _links(relation: RelationSettings, manifest: Any) -> Iterator[tuple[str, Link]]:
    """Yield each link of a relation found by names, with the name of the object that has it (empty: itself)."""
    translated = _translation(relation, manifest)
    for element in found(manifest, path(relation.each)) if relation.each else (manifest,):
        places: tuple[str | None, ...] = (manifest.metadata.namespace,)
        if relation.namespace:
            places = tuple(dict.fromkeys(texts(element, path(relation.namespace))))
        subjects = list(texts(element, path(relation.of_name))) if relation.of_name else [""]
        for name in texts(element, path(relation.name or "$")):
            link = Link(relation.to or "", translated.get(name, name), places)
            yield from ((subject, link) for subject in subjects)


def _translation(relation: RelationSettings, manifest: Any) -> dict[str, str]:
    if not (translation := relation.translate):
        return {}
    pairs: dict[str, str] = {}
    written, meant = path(translation.written), path(translation.meant)
    for element in found(manifest, path(translation.each)):
        pairs.update(zip(texts(element, written), texts(element, meant), strict=False))
    return pairs


def _iris(resource: Resource, link: Link, context: Context) -> list[str]:
    """Name what a link refers to. Of several namespaces, those that hold such an object; when none does, all of them."""
    if link.to in RESERVED:
        return [context.around.iris.of_class(link.to, link.name)]
    kind, _, group = link.to.partition(".")
    places = link.namespaces if resource.scopes.get(link.to, True) else (None,)
    if len(places) > 1:
        places = tuple(each for each in places if context.told(_exists_topic(link.to, each, link.name))) or places
    return [context.around.object(each, kind, link.name, group) for each in places]


def _exists_topic(segment: str, namespace: str | None, name: str) -> Topic:
    return ("exists", segment, namespace or "", name)


def _stated_topic(segment: str, namespace: str | None, name: str) -> Topic:
    return ("stated", segment, namespace or "", name)


def _facts(resource: Resource, manifest: Any) -> Iterable[tuple[Topic, Any]]:
    """Tell that the object exists, and other objects what it says of them."""
    metadata = manifest.metadata
    yield _exists_topic(resource.segment, metadata.namespace, metadata.name), True
    stated: dict[Topic, list[tuple[str, Link]]] = defaultdict(list)
    for relation in resource.table.relation:
        for subject, link in _links(relation, manifest) if relation.of else ():
            stated[_stated_topic(relation.of or "", metadata.namespace, subject)].append((relation.term, link))
    yield from ((topic, tuple(links)) for topic, links in stated.items())


def _life(resource: Resource, manifest: Any) -> Life:
    run = resource.table.run
    if run is None:
        return Life(None)
    start = next(texts(manifest, path(run.start)), None)
    outcome = _word(run.outcome, manifest) if run.outcome else None
    end = next(texts(manifest, path(run.end)), None) if run.end and outcome else None
    return Life(start, end, outcome)
