"""Which graphs a set of domains sees, kept as graphs change and as grants end. No store is read here, and nothing is locked.

A set of domains sees whole what belongs to one of them, what one of them takes part in, what is everybody's, grants to one of them and the
data that these are about, while they are in force. Of other domains and clusters that such a graph names it sees the name.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping
from datetime import datetime
from enum import Enum

from drumlin.kg.visibility.standing import NOBODYS, Standing

DEEP = 3
"""How far the domain of a graph may be that states none: a forecast of what was in a namespace."""


class Sight(Enum):
    """How much of a graph is seen."""

    NOTHING = "nothing"
    NAME = "name"
    WHOLE = "whole"


class Standings:
    """The standing of every graph of a store, and which graphs are grants of which data."""

    def __init__(self) -> None:
        self._of: dict[str, Standing] = {}
        self._shared: dict[Standing, Standing] = {}  # most graphs have one of few
        self._grants: dict[str, set[str]] = {}
        self._within: dict[str, set[str]] = {}

    def __contains__(self, graph: object) -> bool:
        return graph in self._of

    def __iter__(self) -> Iterator[str]:
        return iter(self._of)

    def of(self, graph: str) -> Standing:
        """Return the standing of a graph; of one that there is not, one that nobody sees."""
        return self._of.get(graph, NOBODYS)

    def put(self, graph: str, standing: Standing | None) -> None:
        """Note the standing of a graph, None when it has gone."""
        before = self.of(graph)
        if before.grant is not None:
            self._grants[before.grant.data].discard(graph)
        if before.within is not None:
            self._within[before.within].discard(graph)
        if standing is None:
            self._of.pop(graph, None)
            return
        self._of[graph] = self._shared.setdefault(standing, standing)
        if standing.grant is not None:
            self._grants.setdefault(standing.grant.data, set()).add(graph)
        if standing.within is not None:
            self._within.setdefault(standing.within, set()).add(graph)

    def home(self, graph: str) -> str | None:
        """Return the domain that a graph belongs to."""
        return self.home_of(self.of(graph))

    def home_of(self, standing: Standing) -> str | None:
        """Return the domain that a graph with a standing belongs to: what it states, else that of what it is within."""
        for _ in range(DEEP):
            if standing.home is not None or standing.within is None:
                break
            standing = self.of(standing.within)
        return standing.home

    def within(self, graph: str) -> set[str]:
        """Return the graphs that belong to a domain because a graph does."""
        found = set[str]()
        if graph not in self._within:
            return found
        latest = {graph}
        for _ in range(DEEP):
            latest = {each for outer in latest for each in self._within.get(outer, ())} - found
            found |= latest
        return found

    def grants(self, data: str) -> Iterator[Standing]:
        """Yield the grants of a graph that its own domain states: nobody grants what is another's."""
        home = self.home(data)
        if home is not None:
            yield from (self.of(graph) for graph in self._grants.get(data, ()) if self.home(graph) == home)


class VisibleSet:
    """What ``domains`` (IRIs) see of the graphs in ``standings``; ``update`` after these have changed, or when time has passed."""

    def __init__(self, domains: frozenset[str], standings: Standings, now: datetime) -> None:
        self.domains = domains
        self._standings = standings
        self._whole: dict[str, frozenset[str]] = {}  # what is seen whole, and what it names
        self._named: Counter[str] = Counter()
        self._data: dict[str, str] = {}  # of grants to the domains
        self._ends: dict[str, datetime] = {}  # of grants to the domains that are in force and end
        self.next_end: datetime | None = None
        """When the first of them ends."""
        self.update(standings, now)

    def sight(self, graph: str) -> Sight:
        """Return how much of a graph is seen."""
        if graph in self._whole:
            return Sight.WHOLE
        return Sight.NAME if self._named[graph] and self._standings.of(graph).place else Sight.NOTHING

    def seen(self) -> Mapping[str, Sight]:
        """Return everything that is seen."""
        named = (each for each in self._named if self.sight(each) is Sight.NAME)
        return {**dict.fromkeys(self._whole, Sight.WHOLE), **dict.fromkeys(named, Sight.NAME)}

    def update(self, changed: Iterable[str], now: datetime) -> set[str]:
        """Look again at graphs that have changed, and at grants that have ended; return those of which more or less, or else, is seen."""
        looked_at = {*changed, *(grant for grant, end in self._ends.items() if end <= now)}
        touched = set(looked_at)
        for graph in looked_at:
            touched.update(self._note_grant(graph, now), self._standings.within(graph))
        for graph in tuple(touched):
            touched.update(self._look(graph, now))
        self.next_end = min(self._ends.values(), default=None)
        return touched

    def _note_grant(self, graph: str, now: datetime) -> Collection[str]:
        """Note whether a graph is a grant to the domains; return the data that it was or is about."""
        before = self._data.pop(graph, None)
        self._ends.pop(graph, None)
        grant = self._standings.of(graph).grant
        if grant is None and before is None:
            return ()
        if grant is not None and grant.to in self.domains:
            self._data[graph] = grant.data
            if grant.until is not None and grant.holds(now):
                self._ends[graph] = grant.until
        return {each for each in (before, self._data.get(graph)) if each is not None}

    def _look(self, graph: str, now: datetime) -> Collection[str]:
        """Note whether a graph is seen whole; return the places that are named no more, or are named now."""
        before = self._whole.pop(graph, frozenset())
        after: frozenset[str] = frozenset()
        if graph in self._standings and self._is_whole(graph, now):
            after = self._whole[graph] = self._standings.of(graph).names - {graph}
        if before == after:
            return ()
        touched = set[str]()
        for each in before - after:
            self._named[each] -= 1
            if not self._named[each]:
                del self._named[each]
                touched.add(each)
        for each in after - before:
            self._named[each] += 1
            if self._named[each] == 1:
                touched.add(each)
        return touched

    def _is_whole(self, graph: str, now: datetime) -> bool:
        found = self._standings.of(graph)
        if found.common or self._standings.home(graph) in self.domains or not self.domains.isdisjoint(found.parties):
            return True
        if graph in self.domains or self._is_in_force(found, now):
            return True
        return any(self._is_in_force(each, now) for each in self._standings.grants(graph))

    def _is_in_force(self, standing: Standing, now: datetime) -> bool:
        grant = standing.grant
        return grant is not None and grant.to in self.domains and grant.holds(now)
