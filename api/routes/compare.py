"""``/compare``: what differs of an entity between two generations or times, as far as the change log reaches."""

from __future__ import annotations

from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Query

from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.past import generation_of
from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.rdf.syntax import Lines

router = APIRouter(tags=["subgraphs"])
Service = Annotated[Services, Depends(parts)]
_Moment = Annotated[
    str,
    Query(max_length=64, description="A generation, or a time (RFC 3339).", examples=["41", "2026-11-27T00:00:00Z"]),
]
Begin = Annotated[_Moment, Query(alias="from")]
End = Annotated[_Moment, Query(alias="to")]


class ComparedStates(NamedTuple):
    """What an entity was after two generations, None where it was not there."""

    iri: str
    begin: int
    end: int
    before: Lines | None
    after: Lines | None


def compared(service: Services, entity: str, begin: str, end: str) -> ComparedStates:
    """Read an entity at two moments; without ``end`` it is now, without ``begin`` before its last change up to then.

    Raises ``EventsGone`` for what the change log does not reach, ``ResourceNotFound`` for what was there at neither of the two.
    """
    store, iris = service.store, service.iris
    iri = iris.entity(iris.expand(entity))
    to = generation_of(store, end) if end else store.generation
    if begin:
        since = generation_of(store, begin)
    else:
        last = next(store.changes_of(iri, to + 1), None)
        since = last.generation - 1 if last else to
    before, after = (store.read_at(iri, each) for each in (since, to))
    if before is None and after is None:
        raise ResourceNotFound(
            f"there was no {iris.short(iri)} at generation {since:,}, nor at {to:,}",
            hint="its changes say since when it is there: /changes?entity=…",
        )
    return ComparedStates(iri, since, to, *(None if each is None else each.lines for each in (before, after)))


@router.get("/compare", summary="Compare an entity at two moments")
def compare(
    service: Service,
    entity: Annotated[str, Query(description="Short id or IRI of the entity.")],
    begin: Begin = "",
    end: End = "",
) -> dict[str, Any]:
    """Return what the entity's graph said at ``from`` alone (``removed``) and at ``to`` alone (``added``), as N-Quads.

    Without ``to`` it is now, without ``from`` before its last change: by itself, what that did. ``from`` and ``to`` of the answer are
    generations; ``was`` and ``is`` say whether the entity was there. 410 when the change log does not reach so far.
    """
    found = compared(service, entity, begin, end)
    before, after = (frozenset[str]() if each is None else each for each in (found.before, found.after))
    name = f" <{found.iri}> ."
    return {
        "id": found.iri,
        "from": found.begin,
        "to": found.end,
        "was": found.before is not None,
        "is": found.after is not None,
        "removed": [each[:-2] + name for each in sorted(before - after)],
        "added": [each[:-2] + name for each in sorted(after - before)],
    }
