"""The first page: how much there is of what, how much of it is failing, which places."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from drumlin.api.bootstrap import Services
from drumlin.api.pages.values import BAD
from drumlin.kg.search.query import SearchHit, SearchQuery

_FAILING = tuple(sorted(BAD))
_SHOWN = 8


@dataclass(frozen=True, slots=True)
class ClassCount:
    """A class: how many there are, and how many of them somebody may want to look into."""

    type: str
    count: int
    failing: int


@dataclass(frozen=True, slots=True)
class HomeView:
    """What the first page shows."""

    classes: tuple[ClassCount, ...]
    failing: tuple[SearchHit, ...]
    failing_total: int
    failing_exact: bool
    bad_phases: tuple[str, ...]
    places: Mapping[str, Mapping[str, int]]
    stale: tuple[str, ...]
    generation: int
    total: int
    exact: bool


def view(service: Services) -> HomeView:
    """Collect it with the functions that ``/search`` calls; raises what they raise."""
    all_ = service.search.find(SearchQuery(limit=1, facets=("type", "cluster", "domain")))
    bad = service.search.find(
        SearchQuery(filters={"phase": _FAILING}, sort="-changed", limit=_SHOWN, facets=("type", "phase"))
    )
    counted = all_.facets["type"].items()
    return HomeView(
        classes=tuple(ClassCount(name, count, bad.facets["type"].get(name, 0)) for name, count in counted),
        failing=bad.items,
        failing_total=bad.total,
        failing_exact=bad.exact,
        bad_phases=_FAILING,
        places={name: all_.facets[name] for name in ("domain", "cluster")},
        stale=tuple(
            found.warning
            for each in service.exporting
            if (found := each.staleness) and service.store.entry(service.iris.cluster(each.cluster))
        ),
        generation=all_.generation,
        total=all_.total,
        exact=all_.exact,
    )
