"""Custom resources by configuration: a ``ResourceSettings`` → one more row for the table of kinds. No code for a new CRD.

Where an object speaks of others (the DAG of a job's tasks, the room that a party has), it publishes that, and their own graphs state it.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

from drumlin.exporters.kubernetes import custom_values
from drumlin.exporters.kubernetes.custom_links import (
    Said,
    Scopes,
    Statements,
    iris_of,
    is_copy,
    link_facts,
    links_of,
    remember,
    said_of,
    segment_of,
    word_in,
)
from drumlin.exporters.kubernetes.custom_values import fitting
from drumlin.exporters.kubernetes.paths import found, path, projection, texts
from drumlin.exporters.kubernetes.render.place import controller, manager, placed
from drumlin.exporters.kubernetes.render.workload import selected
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.protocol import Kind, Life, Topic, without_nulls
from drumlin.kg.config.custom_resources import RelationSettings, ResourceSettings, SharedSettings, WordSettings
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.describe import Subject
from drumlin.kg.telemetry.routes import Route, is_bound


@dataclass(frozen=True)
class Resource:
    """One table with its paths read; ``scopes`` says of each kind's segment whether it stands in namespaces.

    ``stated`` are the relations that objects of other kinds state of its objects, ``statements`` what else they say, and ``sharers``
    the values that any kind shares; each with the segment of that kind in ids.
    """

    table: ResourceSettings
    scopes: Scopes
    stated: tuple[tuple[str, RelationSettings], ...] = ()
    statements: Statements = ()
    sharers: tuple[tuple[str, SharedSettings], ...] = ()

    @property
    def segment(self) -> str:
        """The kind as ids name it."""
        return segment_of(self.table)

    def kind(self) -> Kind:
        """Return the row of the table of kinds."""
        table = self.table
        return Kind(
            table.kind,
            table.group,
            table.version,
            table.plural,
            table.namespaced,
            projection(
                table.kind, [path(each) for each in paths_of(table)], [path(each) for each in self._selectors()]
            ),
            partial(_rendered, self) if table.type else None,
            partial(_facts, self),
            partial(_life, self) if table.run else None,
            partial(custom_values.past_runs, table),
            table.type or "",
            reserved="" if table.identity == "object" else table.identity,
        )

    def _selectors(self) -> Iterator[str]:
        return (each.selector for each in self.table.relation if each.selector)


def custom_kinds(tables: Iterable[ResourceSettings], scopes: Scopes) -> tuple[Kind, ...]:
    """Return the rows for all tables; ``scopes`` are those of all kinds. Raises ``InvalidSettings`` for an invalid path."""
    listed = tuple(tables)
    sharers = tuple((_home(each), shared) for each in listed for shared in each.shared)
    return tuple(
        Resource(
            each,
            scopes,
            tuple(stated(segment_of(each), listed)),
            tuple((_home(by), said) for by in listed for said in by.states if said.of == segment_of(each)),
            sharers,
        ).kind()
        for each in listed
    )


def _home(table: ResourceSettings) -> str:
    """Return the segment of the kind in ids."""
    return segment_of(table) if table.identity == "object" else table.identity


def stated(segment: str, tables: Iterable[ResourceSettings]) -> Iterator[tuple[str, RelationSettings]]:
    """Yield the relations that mapped objects state of those of a kind, each with the segment of the stating kind in ids."""
    for table in tables:
        yield from ((_home(table), relation) for relation in table.relation if relation.of == segment)


# -- what is read ---------------------------------------------------------------------------------------------------------


def paths_of(table: ResourceSettings) -> Iterator[str]:
    """Yield every path of a table, from the root of the resource."""
    yield from table.value.values()
    yield from _given(_path_of(table.phase), table.domain)
    if run := table.run:
        yield from _given(run.start, run.end, _path_of(run.outcome))
    if copy := table.copy_of:
        yield from _given(copy.owner, copy.name)
    for relation in table.relation:
        yield from _relation_paths(relation, relation.each or "$")
    for part in table.part:
        yield from (part.each + each[1:] for each in (part.name, *part.value.values()))
        for beside in part.beside:
            paths = _given(beside.name, _path_of(beside.phase), *beside.value.values())
            yield from (beside.each + each[1:] for each in paths)
        for relation in part.relation:
            yield from _relation_paths(relation, part.each)
    for statement in table.states:
        yield from _given(statement.of_name, statement.part_name, _path_of(statement.phase), *statement.value.values())
    yield from (case.when for case in table.case)
    for past in table.past:
        paths = _given(past.name, past.namespace, past.start, past.node, _path_of(past.outcome))
        yield from (past.each + each[1:] for each in paths)
        yield past.end
    for shared in table.shared:
        yield from (shared.each + each[1:] for each in (shared.name, *shared.value.values()))
    yield from (each for lookup in table.lookup for each in lookup.name if each.startswith("$"))


def _relation_paths(relation: RelationSettings, start: str) -> Iterator[str]:
    for each in _given(relation.name, relation.namespace, relation.of_name, relation.of_namespace):
        yield start + each[1:]
    yield from _given(relation.without)
    if translation := relation.translate:
        yield translation.each + translation.written[1:]
        yield translation.each + translation.meant[1:]


def _path_of(words: WordSettings | None) -> str | None:
    return words.path if words else None


def _given(*paths: str | None) -> Iterator[str]:
    return (each for each in paths if each)


# -- what it says ---------------------------------------------------------------------------------------------------------


def _rendered(resource: Resource, manifest: Any, context: RenderContext) -> NodeDocument | None:
    table, metadata = resource.table, manifest.metadata
    if table.identity == "domain" and metadata.name == context.around.settings.domain.id:
        return None  # the hosting domain is described by the configuration
    if (table.within and metadata.namespace not in table.within) or (table.merged and controller(metadata)):
        return None
    if is_copy(table, manifest, context):
        return None
    said = said_of(resource.segment, metadata, context)
    remember(said, resource.statements, custom_values.part_keys(table, manifest), context)
    values: dict[str, list[str]] = defaultdict(list)
    for written in (
        custom_values.gathered(table.value, manifest),
        custom_values.looked_up(table, resource.sharers, manifest, context),
        said.texts(),
    ):
        for term, texts_of in written.items():
            values[term] += texts_of
    place = context.around.object(None, "Namespace", metadata.namespace) if table.namespaced else None
    return without_nulls(
        {
            **_identity(table, manifest, context),
            "partOf": place,
            "label": context.labels(metadata.labels),
            **table.constant,
            **custom_values.cases(table, manifest, context),
            **{term: custom_values.typed(term, written) for term, written in values.items()},
            "phase": _phase(table, manifest, said),
            **_relations(resource, manifest, said, context),
            **custom_values.parts(table, resource.scopes, manifest, said, context),
            "runs": context.runs,
            "telemetry": _telemetry(table, manifest, values, context),
        }
    )


def _telemetry(
    table: ResourceSettings, manifest: Any, values: Mapping[str, list[str]], context: RenderContext
) -> list[NodeDocument]:
    """Describe the telemetry of a domain, or of a route in what its source's gateway shows, in datasources that are bound to the domain."""
    if table.telemetry == "Function":
        name, namespace = manifest.metadata.name, manifest.metadata.namespace
        return context.telemetry(Subject(context.entity, "Function", context.cluster_name, namespace, "Function", name))
    domain = next(texts(manifest, path(table.domain)), None) if table.domain else manifest.metadata.name
    if table.telemetry is None or domain is None:
        return []
    cluster = context.cluster_name
    subject = Subject(
        context.entity,
        table.telemetry,
        cluster,
        None,
        table.type or "",
        manifest.metadata.name,
        place=Place((cluster,), domain),
    )
    if table.telemetry == "DomainRoute":
        ends = {each.term: next(links_of(each, manifest), None) for each in table.relation}
        hop = ends.get("via") or ends.get("destination")
        host = next(iter(values.get("host", ())), None)
        if hop is None or host is None or not values.get("port"):
            return []  # through a transit: its series are those of the route to the hop
        subject = replace(subject, route=Route(domain, hop.name, host, tuple(values["port"])))
    return context.telemetry(subject, only=lambda each: is_bound(each, domain))


def _identity(table: ResourceSettings, manifest: Any, context: RenderContext) -> dict[str, object]:
    metadata, type_ = manifest.metadata, table.type or ""
    if table.identity == "domain":
        return {"id": context.entity, "type": type_, "name": metadata.name}
    document = placed(metadata, type_, context)
    if table.domain and (owner := next(texts(manifest, path(table.domain)), None)):
        document["domain"] = context.around.iris.domain(owner)
    return document


def _phase(table: ResourceSettings, manifest: Any, said: Said) -> str | None:
    own = word_in(table.phase, manifest) if table.phase else None
    return said.phase(overrides=True) or own or said.phase() or (table.phase.default if table.phase else None)


def _relations(resource: Resource, manifest: Any, said: Said, context: RenderContext) -> dict[str, Any]:
    links: dict[str, list[str]] = defaultdict(list)
    for relation in resource.table.relation:
        if not relation.of:
            links[relation.term] += _linked(resource, relation, manifest, context)
    for term, iris in told_links(said, resource.scopes, resource.stated, manifest.metadata.namespace, context):
        links[term] += iris
    return {term: fitting(term, iris) for term, iris in links.items() if iris}


def told_links(
    said: Said,
    scopes: Scopes,
    stated_relations: Iterable[tuple[str, RelationSettings]],
    namespace: str | None,
    context: RenderContext,
) -> Iterator[tuple[str, list[str]]]:
    """Yield the links that others state of an object, by term; while not all of them have reported, also those that the graph knows."""
    for term, link in said.links:
        yield term, iris_of(link, scopes, context)
    for home, relation in stated_relations:
        if context.awaits_any(home, None if relation.of_namespace or relation.itself else namespace):
            to = relation.to or home
            yield relation.term, [iri for iri in context.linked(relation.term) if context.home(iri) == to]


def _linked(resource: Resource, relation: RelationSettings, manifest: Any, context: RenderContext) -> Iterable[str]:
    if relation.owner:
        owner = manager(manifest.metadata, context, relation.term)
        return [owner] if owner else []
    if relation.selector:
        selectors = found(manifest, path(relation.selector))
        namespace = manifest.metadata.namespace or ""
        return [iri for each in selectors for iri in selected(namespace, each, context, relation.term)]
    return [iri for link in links_of(relation, manifest) for iri in iris_of(link, resource.scopes, context)]


def _facts(resource: Resource, manifest: Any) -> Iterable[tuple[Topic, Any]]:
    """Publish where the object is, in which cases, and what it says of others or shares with them."""
    if resource.table.within and manifest.metadata.namespace not in resource.table.within:
        return
    yield from link_facts(resource.table, resource.scopes, manifest)
    yield from custom_values.case_facts(resource.table, manifest)
    yield from custom_values.shared_facts(resource.table, manifest)


def _life(resource: Resource, manifest: Any) -> Life:
    run = resource.table.run
    if run is None:
        return Life(None)
    start = next(texts(manifest, path(run.start)), None)
    outcome = (word_in(run.outcome, manifest) or run.outcome.default) if run.outcome else None
    end = next(texts(manifest, path(run.end)), None) if run.end and outcome else None
    return Life(start, end, outcome)
