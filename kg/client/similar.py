"""Entities that may have been meant by an id that there is not: a name that is misspelt, or that stands elsewhere.

Apart because the command line and the tools of agents both propose them. They are found by the caller's own requests, so that nobody learns
of an entity that he may not see.
"""

from __future__ import annotations

from collections.abc import Iterable
from difflib import SequenceMatcher
from urllib.parse import unquote

from drumlin.kg.client import calls
from drumlin.kg.client.transport import ClientTransport
from drumlin.kg.model.kind_names import spelled

_LISTED = 1000
"""Names of one place that are compared."""
_NEAR = 0.6
"""Likeness of two ids from which one may have been meant by the other, of 1."""
_BEGINNING = 4  # letters of a name that are looked for elsewhere: who errs mostly errs later


async def similar(carrier: ClientTransport, id: str, limit: int) -> list[str]:
    """Return at most ``limit`` short ids that are near ``id``, the nearest first; none when there is one of this id."""
    short = spelled(id.partition("/id/")[2] if "://" in id else id).strip("/")
    place, _, name = short.rpartition("/")
    found = await _listed(carrier, f"{place}/") if place.count("/") >= 2 else []
    near = [] if short in found else _nearest(short, found, limit)
    if near or not name or short in found:
        return near
    said = unquote(name, errors="replace")[:64]
    for text in (said, said[:_BEGINNING]):
        hits = await carrier.run(calls.search(text, {}, limit=50, facet="none"))
        if near := _nearest(short, (each["id"] for each in hits["items"]), limit):
            return near
    return []


async def _listed(carrier: ClientTransport, prefix: str) -> list[str]:
    page = await carrier.run(calls.list_subgraphs(prefix=prefix, limit=_LISTED))
    return [each["id"] for each in page.items]


def _nearest(id: str, found: Iterable[str], limit: int) -> list[str]:
    """Return the ids whose last segment, which people remember, is near that of ``id``; among these the nearest as a whole first."""
    name = id.rpartition("/")[2]
    rated = [(_likeness(name, each.rpartition("/")[2]), _likeness(id, each), each) for each in found if each != id]
    near = sorted((-of_name, -of_all, each) for of_name, of_all, each in rated if of_name >= _NEAR)
    return [each for _, _, each in near[:limit]]


def _likeness(one: str, other: str) -> float:
    return SequenceMatcher(None, one, other).ratio()
