"""The newest changes of the graph, the newest first: the feed of ``/events`` read backwards, a bounded way."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import datetime
from heapq import merge
from itertools import islice
from typing import Any

import msgspec

from drumlin.api.bootstrap import Services
from drumlin.api.pages.values import ShownValue, shown_iri
from drumlin.api.pages.wording import moment
from drumlin.kg.events.feed import Event, EventFilter, Position
from drumlin.kg.graphs.neighbourhood import Traversal
from drumlin.kg.store.protocol import LogEntry

MAX_SHOWN = 100
"""Changes on one page."""
_LOOKED_AT = 5_000  # changes that are looked at for one page
_PART = 128  # the same at once, at first; then twice as many each time
_WHOLE = Position(0).place  # after all changes of a generation
_LINES = 40  # statements of one change that are shown


@dataclass(frozen=True, slots=True)
class ChangeView:
    """One change as it is shown: what became of which entity, when, by whom; the statements where they are still kept."""

    what: ShownValue
    short: str
    comparable: bool
    outcome: str
    at: str
    owner: str
    type: str
    namespace: str
    generation: int
    removed: tuple[str, ...]
    added: tuple[str, ...]
    unkept: str


@dataclass(frozen=True, slots=True)
class ChangePage:
    """Changes, the newest first. ``before`` is the place to go on before, empty when the log has nothing older."""

    changes: tuple[ChangeView, ...]
    before: str
    oldest: int
    newest: int


def changes(
    service: Services,
    chosen: EventFilter,
    *,
    entity: str | None = None,
    around: bool = False,
    before: Position | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = MAX_SHOWN,
) -> ChangePage:
    """Return the newest changes before a place (its own not included) that ``chosen`` takes, of one entity when it is named.

    ``around`` adds those of the entities that are linked with it now, at most 100 of them. A bounded number of changes is looked at;
    ``before`` of the page leads on.
    """
    oldest, newest = service.store.oldest, service.store.generation
    graphs = [] if entity is None else _graphs(service, entity, around=around)
    begin = before or Position(newest)
    found: list[ChangeView] = []
    place: Position | None = begin
    looked = 0
    for part in _parts(service, begin, graphs):
        for event in service.feed.described(part):
            if since is not None and event.entry.at < since:
                return ChangePage(tuple(found), "", oldest, newest)
            if len(found) == limit:
                return ChangePage(tuple(found), str(place), oldest, newest)
            place = event.position
            if _takes(event, chosen, since, until):
                found.append(_view(service, event, quads=chosen.quads))
        looked += len(part)
        if looked >= _LOOKED_AT:
            return ChangePage(tuple(found), str(place), oldest, newest)
    return ChangePage(tuple(found), "", oldest, newest)


def _graphs(service: Services, entity: str, *, around: bool) -> list[str]:
    """Return the graph of an entity, and those of its neighbours; one that is gone has none."""
    iri = service.iris.entity(service.iris.expand(entity))
    if not around or service.subgraphs.live_entry(iri) is None:
        return [iri]
    found = service.subgraphs.around(iri, Traversal(1, incoming=True))
    return list(dict.fromkeys((iri, *(each.entry.graph for each in found.graphs))))


def _parts(service: Services, place: Position, graphs: Sequence[str]) -> Iterator[list[tuple[Position, LogEntry]]]:
    """Yield the changes before a place, or those of some graphs, the newest first, some at a time."""
    if place.place == _WHOLE:
        place = Position(place.generation + 1, 0)
    if graphs:
        # Of graphs the place is their order in the list: a graph changes once in a generation.
        of_each = (_changes_of(service, graph, index, place) for index, graph in enumerate(graphs))
        found = merge(*of_each, key=lambda change: change[0], reverse=True)
        while part := list(islice(found, _PART)):
            yield part
        return
    size = _PART
    while part := [
        (Position(entry.generation, number), entry)
        for number, entry in service.store.newest_changes(place.generation, place.place, size)
    ]:
        yield part
        place, size = part[-1][0], size * 2


def _changes_of(service: Services, graph: str, index: int, place: Position) -> Iterator[tuple[Position, LogEntry]]:
    for each in service.store.changes_of(graph, place.generation + 1):
        if (found := Position(each.generation, index)) < place:
            yield found, each


def _takes(event: Event, chosen: EventFilter, since: datetime | None, until: datetime | None) -> bool:
    at = event.entry.at
    return (since is None or at >= since) and (until is None or at <= until) and chosen.takes(event)


def _view(service: Services, event: Event, *, quads: bool) -> ChangeView:
    told: dict[str, Any] = msgspec.json.decode(event.with_quads if quads else event.content)
    data = told["data"]
    return ChangeView(
        what=shown_iri(event.entry.graph, service.iris),
        short=told["subject"],
        comparable=service.iris.knows(event.entry.graph),
        outcome=told["type"].rpartition(".")[2],
        at=moment(event.entry.at),
        owner=data["owner"],
        type=data.get("type") or "",
        namespace=data.get("namespace") or "",
        generation=event.entry.generation,
        removed=tuple(data.get("removed", ())[:_LINES]),
        added=tuple(data.get("added", ())[:_LINES]),
        unkept=data.get("leftOut", ""),
    )
