"""SPARQL Update → the graphs it changes, as lines: https://www.w3.org/TR/sparql11-update/#updateLanguage.

The engine evaluates the WHERE parts as queries, everything else happens here on sets of lines, so that an update becomes what every
write is: graphs with the digest they had and the lines they shall have. Nothing is written here; the writer checks permissions. Operations
see what the ones before them did. One evaluation of a WHERE part serves all its templates, so NOW, RAND, UUID and BNODE have one value
each. Without USING or WITH a WHERE part reads the union of all graphs, as queries do; a template writes to the default graph alone. ALL
and NAMED mean the foreign graphs: an entity is named to be dropped (``docs/sparql.md``).
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import Protocol

from drumlin.kg.errors import AlreadyExists, Conflict, TooLarge
from drumlin.kg.rdf.syntax import Lines, digest
from drumlin.kg.rdf.tombstones import is_tombstone
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.sparql.forms import (
    Create,
    Empty,
    Ground,
    Modify,
    Operation,
    Pattern,
    Slot,
    TemplateTerm,
    Transfer,
    TripleSlot,
)

MAX_STATEMENTS = 500_000
"""Statements that the templates of one request may make."""

Solution = Sequence[str | None]
"""The values of a query's variables as N-Triples terms."""


class World(Protocol):
    """The state that an update begins from, and the engine's reading of terms."""

    def read(self, graph: str) -> Lines | None:
        """Return what a graph holds, None when it does not exist."""
        ...

    def names(self) -> Iterable[str]:
        """Return the names of all graphs."""
        ...

    def terms(self, prologue: str, written: Sequence[str]) -> list[str]:
        """Return terms as N-Triples writes them."""
        ...

    def statements(self, prologue: str, quads: str) -> Mapping[str | None, Lines]:
        """Return the statements of INSERT DATA, per graph; blank nodes get labels of their own."""
        ...

    def solve(self, query: str, dataset: Dataset, changed: Mapping[str, Lines | None]) -> Iterator[Solution]:
        """Run a SELECT over the state with ``changed`` graphs laid over it."""
        ...


@dataclass(frozen=True, slots=True)
class Scope:
    """What names mean: the graph that is written as the default graph, and the roots of the entities' graphs."""

    default: str
    roots: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class Changed:
    """One graph that an update changes: the digest it had (None: it was not there), the lines it gets (None: dropped)."""

    graph: str
    before: str | None
    lines: Lines | None


def evaluate(operations: Iterable[Operation], world: World, scope: Scope, dataset: Dataset) -> list[Changed]:
    """Evaluate operations in order; ``dataset`` is what the protocol's using-graph-uri parameters say.

    Raises ``Conflict`` for a graph that must (not) exist, ``TooLarge`` beyond ``MAX_STATEMENTS``, and what the engine says of a query.
    """
    run = _Run(world, scope, dataset)
    for operation in operations:
        run.apply(operation)
    return run.changes()


@dataclass(slots=True)
class _Run:
    world: World
    scope: Scope
    dataset: Dataset
    stored: dict[str, Lines | None] = field(default_factory=dict)  # graphs that were looked at
    now: dict[str, Lines | None] = field(default_factory=dict)
    made: int = 0

    # -- graphs -------------------------------------------------------------------------------------------------------
    def read(self, graph: str) -> Lines | None:
        """Return what a graph holds by now; a tombstone counts as absent."""
        if graph not in self.stored:
            self.stored[graph] = self.world.read(graph)
            self.now[graph] = None if self.gone(graph) else self.stored[graph]
        return self.now[graph]

    def changes(self) -> list[Changed]:
        found: list[Changed] = []
        for graph, lines in self.now.items():
            stored = self.stored[graph]
            if lines != stored and not (lines is None and self.gone(graph)):
                found.append(Changed(graph, None if stored is None else digest(stored), lines))
        return found

    def visible(self) -> dict[str, Lines | None]:
        """Return what a WHERE part finds in the graphs that were looked at: a tombstone that nobody wrote over stays."""
        return {
            each: self.stored[each] if lines is None and self.gone(each) else lines for each, lines in self.now.items()
        }

    def gone(self, graph: str) -> bool:
        stored = self.stored[graph]
        return stored is not None and graph.startswith(self.scope.roots) and is_tombstone(stored, graph)

    def foreign(self) -> list[str]:
        """Return the graphs that ALL means."""
        there = {each for each in self.world.names() if each not in self.now}
        there |= {each for each, lines in self.now.items() if lines is not None}
        return sorted(each for each in there if not each.startswith(self.scope.roots))

    # -- operations ---------------------------------------------------------------------------------------------------
    def apply(self, operation: Operation) -> None:
        if isinstance(operation, Ground):
            self.ground(operation)
        elif isinstance(operation, Modify):
            self.modify(operation)
        elif isinstance(operation, Empty):
            self.empty(operation)
        elif isinstance(operation, Create):
            graph = self.name(operation.prologue, operation.graph)
            if self.read(graph) is None:
                self.now[graph] = frozenset()
            elif not operation.silent:
                raise AlreadyExists(f"the graph {graph} exists already", hint="write CREATE SILENT GRAPH")
        else:
            self.transfer(operation)

    def ground(self, operation: Ground) -> None:
        for name, lines in self.world.statements(operation.prologue, operation.quads).items():
            graph = name or self.scope.default
            self.count(len(lines))
            old = self.read(graph)
            if operation.insert:
                self.now[graph] = (old or frozenset()) | lines
            elif old is not None:
                self.now[graph] = old - lines

    def empty(self, operation: Empty) -> None:
        everything = operation.target in ("ALL", "NAMED")
        if everything:
            graphs = self.foreign()
            if operation.target == "NAMED":
                graphs = [each for each in graphs if each != self.scope.default]
        else:
            graphs = [self.name(operation.prologue, operation.target)]
        for graph in graphs:
            if self.read(graph) is not None:
                self.now[graph] = None if operation.drop else frozenset()
            elif not (everything or operation.silent or graph == self.scope.default):
                raise _absent(graph)

    def transfer(self, operation: Transfer) -> None:
        source, target = (self.name(operation.prologue, each) for each in (operation.source, operation.target))
        lines = self.read(source)
        if lines is None:
            if source != self.scope.default and not operation.silent:
                raise _absent(source)
            lines = frozenset()
        if source == target:
            return
        kept = self.read(target)
        self.now[target] = lines | (kept or frozenset()) if operation.verb == "ADD" else lines
        if operation.verb == "MOVE":
            self.now[source] = None

    def modify(self, operation: Modify) -> None:
        terms = self.written(operation)
        with_graph = terms[operation.scope] if operation.scope else None
        default = with_graph[1:-1] if with_graph else self.scope.default
        names = sorted({slot.text for slot in _slots(operation) if slot.kind == "variable"})
        blank = any(slot.kind == "blank" for slot in _slots(operation))
        projection = ("" if blank else "DISTINCT ") + " ".join(f"?{name}" for name in names or ("none",))
        query = f"{operation.prologue}SELECT {projection} WHERE {operation.where}"
        removed: dict[str, set[str]] = {}
        added: dict[str, set[str]] = {}
        for solution in self.world.solve(query, self.read_by(operation, terms, with_graph), self.visible()):
            value = partial(_value, dict(zip(names, solution, strict=False)), terms, {})
            self.instantiate(operation.deletes, value, default, removed)
            self.instantiate(operation.inserts, value, default, added)
        for graph in removed.keys() | added.keys():
            self.exchange(graph, removed.get(graph, set()), added.get(graph, set()))

    def exchange(self, graph: str, removed: set[str], added: set[str]) -> None:
        old = self.read(graph)
        if old is None and not added:
            return
        self.now[graph] = ((old or frozenset()) - removed) | added

    def instantiate(
        self, patterns: Sequence[Pattern], value: partial[str | None], default: str, into: dict[str, set[str]]
    ) -> None:
        """Fill patterns with one solution; what is no statement is left out, as the specification says."""
        for pattern in patterns:
            graph = f"<{default}>" if pattern.graph is None else value(pattern.graph)
            subject, predicate, item = value(pattern.subject), value(pattern.predicate), value(pattern.object)
            if graph and subject and predicate and item and _legal(graph, subject, predicate):
                lines = into.setdefault(graph[1:-1], set())
                before = len(lines)
                lines.add(f"{subject} {predicate} {item} .")
                self.count(len(lines) - before)

    def count(self, statements: int) -> None:
        self.made += statements
        if self.made > MAX_STATEMENTS:
            raise TooLarge(f"the update makes more than {MAX_STATEMENTS:,} statements", hint="split it")

    # -- names --------------------------------------------------------------------------------------------------------
    def name(self, prologue: str, written: str) -> str:
        """Return the graph that a text names."""
        return self.scope.default if written == "DEFAULT" else self.world.terms(prologue, [written])[0][1:-1]

    def written(self, operation: Modify) -> dict[str, str]:
        """Read all terms of an operation at once."""
        texts = {slot.text for slot in _slots(operation) if slot.kind == "term"}
        texts |= {*(operation.using or ()), *operation.using_named, *([operation.scope] if operation.scope else ())}
        ordered = sorted(texts)
        return dict(zip(ordered, self.world.terms(operation.prologue, ordered), strict=True))

    def read_by(self, operation: Modify, terms: Mapping[str, str], with_graph: str | None) -> Dataset:
        """Return the dataset of a WHERE part: the request's, else USING, else WITH, else the union."""
        if self.dataset != Dataset():
            return self.dataset
        if operation.using is not None:
            return Dataset(
                *(tuple(terms[each][1:-1] for each in named) for named in (operation.using, operation.using_named))
            )
        return Dataset((with_graph[1:-1],)) if with_graph else Dataset()


def _slots(operation: Modify) -> Iterator[Slot]:
    for pattern in (*operation.deletes, *operation.inserts):
        for node in pattern:
            if node is not None:
                yield from _slots_of(node)


def _slots_of(node: TemplateTerm) -> Iterator[Slot]:
    if isinstance(node, Slot):
        yield node
    else:
        for each in node:
            yield from _slots_of(each)


def _value(
    solution: Mapping[str, str | None], terms: Mapping[str, str], fresh: dict[str, str], slot: TemplateTerm
) -> str | None:
    if isinstance(slot, TripleSlot):
        subject, predicate, value = (_value(solution, terms, fresh, each) for each in slot)
        if subject and predicate and value and _states(subject, predicate):
            return f"<<( {subject} {predicate} {value} )>>"
        return None
    if slot.kind == "variable":
        return solution.get(slot.text)
    if slot.kind == "term":
        return terms[slot.text]
    return fresh.setdefault(slot.text, f"_:{uuid.uuid4().hex}")  # one node for a solution


def _legal(graph: str, subject: str, predicate: str) -> bool:
    return _is_iri(graph) and _states(subject, predicate)


def _states(subject: str, predicate: str) -> bool:
    """Return whether these may begin a statement."""
    return _is_iri(predicate) and (_is_iri(subject) or subject.startswith("_:"))


def _is_iri(term: str) -> bool:
    return term[0] == "<" and not term.startswith("<<")


def _absent(graph: str) -> Conflict:
    return Conflict(f"the graph {graph} does not exist", hint="write SILENT when that does not matter")
