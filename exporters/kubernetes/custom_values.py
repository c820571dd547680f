"""What a mapped object says of itself beyond its links: typed values, cases, its parts, and values that others share with it."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping
from itertools import product
from typing import Any

from drumlin.exporters.kubernetes.custom_links import PartKey, Said, Scopes, iris_of, links_below, segment_of, word_in
from drumlin.exporters.kubernetes.paths import found, path, texts
from drumlin.exporters.pipeline.context import RenderContext
from drumlin.exporters.pipeline.runs import moment
from drumlin.exporters.protocol import RememberedRun, Topic, without_nulls
from drumlin.kg.config.custom_resources import (
    BesideSettings,
    CaseSettings,
    PartSettings,
    ResourceSettings,
    SharedSettings,
)
from drumlin.kg.model.iris import Iris
from drumlin.kg.model.quantities import pieces, quantity
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.rdf.jsonld_context import compiled
from drumlin.ontology.vocabulary import FUNCTIONAL_PROPERTIES

_XSD = "http://www.w3.org/2001/XMLSchema#"
_SINGLE = FUNCTIONAL_PROPERTIES | {"title", "format", "columnName", "datatype", "creator"}


def fitting(term: str, values: Iterable[Any]) -> Any:
    """Return one value for a term that can have one only, else all of them; None for none."""
    unique = list(dict.fromkeys(values))
    if term in _SINGLE:
        return unique[0] if unique else None
    return unique


def typed(term: str, written: Iterable[str]) -> Any:
    """Return the values of a term in its datatype: numbers are added, quantities in cores, bytes or pieces.

    Raises ``InvalidManifest`` for what is no number, quantity or time.
    """
    values = list(written)
    definition = compiled().terms.get(term)
    datatype = (definition.coercion if definition else None) or ""
    match datatype.removeprefix(_XSD):
        case "integer":
            return sum(map(pieces, values)) if values else None
        case "decimal":
            return sum(map(quantity, values)) if values else None
        case "boolean":
            return values[0] == "true" if values else None
        case "dateTime":
            return moment(values[0]) if values else None
    return fitting(term, values)


def gathered(values: Mapping[str, str], element: Any) -> dict[str, list[str]]:
    """Return the texts that the paths of terms find, by term."""
    return {term: list(texts(element, path(where))) for term, where in values.items()}


# -- cases ----------------------------------------------------------------------------------------------------------------


def case_facts(table: ResourceSettings, manifest: Any) -> Iterator[tuple[Topic, bool]]:
    """Publish in which cases the object is."""
    for number, case in enumerate(table.case):
        if _is_given(case, manifest):
            yield _case_topic(table, number), True


def cases(table: ResourceSettings, manifest: Any, context: RenderContext) -> dict[str, Any]:
    """Return the values of the first case that is given."""
    for number, case in enumerate(table.case):
        if not _is_given(case, manifest):
            continue
        if case.others is None or case.others == _others(table, number, context):
            links = {case.hosting: context.around.hosting_domain} if case.hosting else {}
            return {**case.constant, **links}
    return {}


def _others(table: ResourceSettings, number: int, context: RenderContext) -> bool:
    """Return whether other objects of the kind are in a case; while not all have been reported, as the graph knows it."""
    if len(context.told(_case_topic(table, number))) > 1:
        return True
    if not context.awaits_any(segment_of(table) if table.identity == "object" else table.identity):
        return False
    return any(context.linked(each.hosting) for each in table.case if each.hosting)


def _is_given(case: CaseSettings, manifest: Any) -> bool:
    there = list(texts(manifest, path(case.when)))
    return case.equals in there if case.equals is not None else bool(there)


def _case_topic(table: ResourceSettings, number: int) -> Topic:
    return ("case", segment_of(table), str(number))


# -- values of others -----------------------------------------------------------------------------------------------------


def shared_facts(table: ResourceSettings, manifest: Any) -> Iterator[tuple[Topic, dict[str, list[str]]]]:
    """Publish the values that others look up by name."""
    for settings in table.shared:
        for element in found(manifest, path(settings.each)):
            for name in texts(element, path(settings.name)):
                yield ("shared", settings.topic, name), gathered(settings.value, element)


def looked_up(
    table: ResourceSettings, sharers: Iterable[tuple[str, SharedSettings]], manifest: Any, context: RenderContext
) -> dict[str, list[str]]:
    """Return the values that others share by the names that are built of this object's, or that the graph knows of who did not report yet.

    ``sharers`` are the settings of all kinds that share, each with the segment of that kind in ids.
    """
    values: dict[str, list[str]] = defaultdict(list)
    for settings in table.lookup:
        parts = [list(texts(manifest, path(each))) if each.startswith("$") else [each] for each in settings.name]
        for name in dict.fromkeys("".join(each) for each in product(*parts)):
            for shared in context.told(("shared", settings.topic, name)):
                for term, written in shared.items():
                    values[term] += written
        for home, shares in sharers:
            if shares.topic == settings.topic and context.awaits_any(home):
                for term in shares.value.keys() - values.keys():
                    values[term] += context.memory.values(context.entity, term)
    return values


# -- runs of others --------------------------------------------------------------------------------------------------------


def past_runs(table: ResourceSettings, manifest: Any) -> Iterator[RememberedRun]:
    """Yield the runs of pods that the object remembers, once all of them are over."""
    for settings in table.past:
        end = next(texts(manifest, path(settings.end)), None)
        for element in found(manifest, path(settings.each)) if end else ():
            name, namespace, start = (
                next(texts(element, path(each)), None) for each in (settings.name, settings.namespace, settings.start)
            )
            if name and start and end:
                outcome = word_in(settings.outcome, element) or settings.outcome.default or ""
                node = next(texts(element, path(settings.node)), None) if settings.node else None
                yield RememberedRun("pod", "Pod", namespace, name, start, end, outcome, node)


# -- parts ----------------------------------------------------------------------------------------------------------------


def part_keys(table: ResourceSettings, manifest: Any) -> list[PartKey]:
    """Return which parts the object has."""
    return [
        PartKey(settings.segment, name)
        for settings in table.part
        for name in _by_name(settings.name, found(manifest, path(settings.each)))
    ]


def parts(
    table: ResourceSettings, scopes: Scopes, manifest: Any, said: Said, context: RenderContext
) -> dict[str, list[NodeDocument]]:
    """Return the documents of the object's parts, by the property that it has them by."""
    documents: dict[str, list[NodeDocument]] = defaultdict(list)
    for settings in table.part:
        documents[settings.term] += _parts(settings, scopes, manifest, said, context)
    return documents


def _parts(
    settings: PartSettings, scopes: Scopes, manifest: Any, said: Said, context: RenderContext
) -> Iterator[NodeDocument]:
    elements = _by_name(settings.name, found(manifest, path(settings.each)))
    beside = [(each, _by_name(each.name, found(manifest, path(each.each)))) for each in settings.beside]
    for name, own in elements.items():
        key = PartKey(settings.segment, name)
        more = [(each, element) for each, named in beside for element in named.get(name, ())]
        values: dict[str, list[str]] = defaultdict(list)
        for written in (*(gathered(settings.value, each) for each in own), *_beside(more), said.texts(key)):
            for term, texts_of in written.items():
                values[term] += texts_of
        links: dict[str, list[str]] = defaultdict(list)
        for relation in settings.relation:
            for element in own:
                for link in links_below(relation, manifest, element):
                    links[relation.term] += iris_of(link, scopes, context)
        yield without_nulls(
            {
                "id": Iris.part(context.entity, settings.segment, name),
                "type": settings.type,
                **({} if "columnName" in settings.value else {"name": name}),
                **{term: typed(term, written) for term, written in values.items()},
                "phase": _phase(more) or said.phase(key) or _default_phase(settings),
                **{term: fitting(term, iris) for term, iris in links.items()},
            }
        )


def _beside(more: Iterable[tuple[BesideSettings, Any]]) -> Iterator[dict[str, list[str]]]:
    return (gathered(settings.value, element) for settings, element in more)


def _phase(more: Iterable[tuple[BesideSettings, Any]]) -> str | None:
    """Return the phase that other elements state of a part: of several words, the first of the settings."""
    words = [
        (list(settings.phase.words.values()).index(word), word)
        for settings, element in more
        if settings.phase and (word := word_in(settings.phase, element))
    ]
    return min(words)[1] if words else None


def _default_phase(settings: PartSettings) -> str | None:
    return next((each.phase.default for each in settings.beside if each.phase), None)


def _by_name(name: str, elements: Iterable[Any]) -> dict[str, list[Any]]:
    named: dict[str, list[Any]] = defaultdict(list)
    for element in elements:
        for each in texts(element, path(name)):
            named[each].append(element)
    return named
