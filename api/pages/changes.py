"""The newest changes of the graph, the newest first: the feed of ``/events`` read backwards, a bounded way."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from drumlin.api.bootstrap import Services
from drumlin.api.pages.values import ShownValue, shown_iri
from drumlin.api.pages.wording import moment
from drumlin.kg.events.feed import Event, EventFilter, Position

MAX_SHOWN = 100
"""Changes on one page."""
_LOOKED_AT = 5_000  # changes that are looked at for one page
_PAGE = 400  # the same when nothing is looked for
_FIRST = 32  # generations back that are looked at first
_LINES = 40  # statements of one change that are shown


@dataclass(frozen=True, slots=True)
class ChangeView:
    """One change as it is shown: what became of which entity, when, by whom; the statements where they are still kept."""

    id: str
    what: ShownValue
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
    """Changes, the newest first. ``before`` is the generation to go on before, None when the log has nothing older."""

    changes: tuple[ChangeView, ...]
    before: int | None
    oldest: int
    newest: int


def changes(
    service: Services,
    chosen: EventFilter,
    *,
    entity: str | None = None,
    before: int | None = None,
    since: datetime | None = None,
    until: datetime | None = None,
    limit: int = MAX_SHOWN,
) -> ChangePage:
    """Return the newest changes of generations up to ``before`` (not included) that ``chosen`` takes, of one entity when it is named.

    A bounded number of changes is looked at; ``before`` of the page leads on.
    """
    oldest, newest = service.store.oldest, service.store.generation
    most = _LOOKED_AT if entity or since else _PAGE
    graph = None if entity is None else service.iris.entity(service.iris.expand(entity))
    found: list[ChangeView] = []
    end, back, looked = min(before or newest + 1, newest + 1), _FIRST, 0
    over = False
    while end > oldest and len(found) < limit and looked < most and not over:
        begin = max(end - back, oldest)
        events = _between(service, begin, end, most)
        looked += max(len(events), 1)
        wanted = [each for each in events if _takes(each, chosen, graph, since, until)]
        found += [_view(service, each, quads=chosen.quads) for each in reversed(wanted)]
        over = since is not None and any(each.entry.at < since for each in events)
        end, back = begin, back * 2
    shown = found[:limit]
    if len(found) > limit:
        end = shown[-1].generation
    return ChangePage(tuple(shown), None if end <= oldest or over else end, oldest, newest)


def _between(service: Services, begin: int, end: int, most: int) -> Sequence[Event]:
    """Return the changes of the generations from ``begin`` to ``end`` (not included), oldest first, about ``most``."""
    found: list[Event] = []
    position = Position(begin - 1)
    while len(found) < most:
        events = service.feed.after(position, min(most, 1_000))
        found += [each for each in events if each.entry.generation < end]
        if not events or events[-1].entry.generation >= end:
            break
        position = events[-1].position
    return found


def _takes(
    event: Event, chosen: EventFilter, graph: str | None, since: datetime | None, until: datetime | None
) -> bool:
    at = event.entry.at
    if graph is not None and event.entry.graph != graph:
        return False
    return (since is None or at >= since) and (until is None or at <= until) and chosen.takes(event)


def _view(service: Services, event: Event, *, quads: bool) -> ChangeView:
    told: dict[str, Any] = msgspec.json.decode(event.with_quads if quads else event.content)
    data = told["data"]
    return ChangeView(
        id=told["id"],
        what=shown_iri(event.entry.graph, service.iris),
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
