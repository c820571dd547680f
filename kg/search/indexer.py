"""Taking changes of the log into the tables of the search index: each graph as its last change leaves it, or as it is now."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.search.facets import Facets, facts_of, same_facts
from drumlin.kg.search.schema import Row, Tables, key_of, packed
from drumlin.kg.store.protocol import GraphEntry, LogEntry, StoredGraph

CHUNK = 500
"""Changes taken in with one transaction."""


class FacetUpdate(NamedTuple):
    """What an entity is counted by from now on: its row, its values, and whether it is alive."""

    row: int
    facets: Facets
    live: bool


class IndexedBatch(NamedTuple):
    """What was taken in: up to which generation, how many changes, and what they brought."""

    position: int
    changes: int
    told: list[FacetUpdate]


class Intake:
    """Takes changes in. ``lines_of`` returns what a digest stands for, as far as it is kept; ``read`` what a graph is now."""

    def __init__(
        self,
        tables: Tables,
        iris: Iris,
        lines_of: Callable[[str], Lines | None],
        read: Callable[[str], StoredGraph | None],
    ) -> None:
        self._tables = tables
        self._iris = iris
        self._lines_of = lines_of
        self._read = read

    def take_in(self, entries: Sequence[LogEntry], oldest: int) -> IndexedBatch:
        """Write what some changes, whole generations of a log that begins with ``oldest``, made of their graphs."""
        last = {self._iris.short(each.graph): each for each in entries if self._iris.knows(each.graph)}
        known = self._tables.rows([*last], self._tables.writer)
        touched: list[Row] = []
        changed: dict[str, tuple[Row, Facets]] = {}
        for id, entry in last.items():
            before = known.get(id)
            row, facets = self._now(entry, before)
            if row and before and row.says_as_much_as(before):
                touched.append(row)
            elif row:
                changed[id] = row, facets
        position = entries[-1].generation
        with self._tables.transaction():
            placed = self._tables.put([row for row, _ in changed.values()], {each.row: each for each in known.values()})
            self._tables.touch(touched)
            self._tables.forget(oldest)  # no event mentions it any more
            self._tables.stand(position, mark_of(next(each for each in entries if each.generation == position)))
        return IndexedBatch(
            position, len(entries), [FacetUpdate(row.row, changed[row.id][1], live=not row.tombstone) for row in placed]
        )

    def _now(self, entry: LogEntry, known: Row | None) -> tuple[Row | None, Facets]:
        """Return a graph's row after a change, with facets when it says anything new; of what is gone the feed still knows what it was."""
        lines = self._lines_of(entry.after) if entry.after else None
        after = GraphEntry(entry.graph, entry.after or "", entry.owner, entry.generation, entry.at)
        if lines is None:
            stored = self._read(entry.graph)
            if stored is None:
                return known and known._replace(removed=True, words="", generation=entry.generation), ()
            after, lines = stored.entry, stored.lines
        before = self._lines_of(known.digest) if known and not known.removed and known.owner == after.owner else None
        if known and before is not None and same_facts(before, lines):
            return known._replace(digest=after.digest, generation=after.generation, changed=_time(after)), ()
        return row_of(self._iris, after, lines, known.row if known else 0)


def row_of(iris: Iris, entry: GraphEntry, lines: Lines, number: int = 0) -> tuple[Row, Facets]:
    """Return the row of a graph that holds ``lines``, and what it is counted by."""
    id = iris.short(entry.graph)
    facts = facts_of(lines, entry.graph, id, entry.owner)
    row = Row(id, facts.name, key_of(facts.name), facts.namespace, facts.type, facts.phase, entry.owner, facts.tombstone, False,
              packed(facts.facets), facts.words, entry.digest, entry.generation, _time(entry), number)  # fmt: skip
    return row, facts.facets


def mark_of(entry: LogEntry) -> str:
    """Return what distinguishes a history from another one with as many generations."""
    return f"{entry.at.isoformat()} {entry.graph} {entry.after}"


def _time(entry: GraphEntry) -> str:
    return entry.changed.isoformat()
