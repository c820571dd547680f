"""Which graphs of a peer are taken over: those of the domains that it speaks for, under names that are not our own. Pure."""

from __future__ import annotations

from collections.abc import Callable, Iterable

from drumlin.kg.model.iris import Iris
from drumlin.kg.visibility.standing import standing_of
from drumlin.kg.visibility.visible_set import DEEP


class Acceptance:
    """What a peer may write here: ``iris`` mints its names, ``domains`` (ids) are its own; ``own`` mints ours.

    ``clusters`` (names) are followed here, and described here alone: what a peer says of one could keep its exporter from writing.
    """

    def __init__(self, iris: Iris, domains: Iterable[str], own: Iris, clusters: Iterable[str]) -> None:
        self._root = iris.root
        self._domains = frozenset(map(iris.domain, domains))
        self._clusters = frozenset(map(own.cluster, clusters))
        self._ours = tuple(f"{own.root}{place}{each}/" for each in clusters for place in ("", "function/"))

    def takes(self, graph: str, text: str, text_of: Callable[[str], str | None]) -> bool:
        """Return whether a graph is taken over, by its name and what it says; ``text_of`` is what the peer says in another one.

        What states no domain belongs to that of what it is within: a tombstone to that of its namespace.
        """
        if not graph.startswith(self._root) or graph.startswith(self._ours) or graph in self._clusters:
            return False
        if graph in self._domains:
            return True
        found = outer = standing_of(graph, text)
        for _ in range(DEEP):
            if outer.home is not None or outer.within is None:
                break
            outer = standing_of(outer.within, text_of(outer.within) or "")
        home = outer.home
        return home in self._domains if home is not None else not self._domains.isdisjoint(found.parties)
