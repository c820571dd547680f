"""The state that a SPARQL Update begins from, and the engine's reading of its terms (``kg.sparql.update.World``).

``Scratch`` stands on a checkpoint that nobody else uses, so what earlier operations of the same request did is simply written into
it before the next WHERE part runs. ``update_job`` evaluates an update on one in a worker: the engine can neither be interrupted nor be
trusted to survive every query. The functions beside it need no state: they serve updates without a WHERE part too.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping, Sequence

import msgspec
import pyoxigraph as ox

from drumlin.kg.errors import QueryRejected
from drumlin.kg.rdf import nesting
from drumlin.kg.rdf.syntax import Lines, ground
from drumlin.kg.sparql import forms, subselects
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.sparql.forms import Operation, ParsedOperation
from drumlin.kg.sparql.lexer import place, token_at
from drumlin.kg.sparql.update import Scope, Solution, evaluate
from drumlin.kg.store import blank_nodes
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.delta import Change, update_text
from drumlin.kg.store.querying import not_evaluated

_NOTHING = "DROP GRAPH <urn:drumlin:absent>; "  # fails before what follows is evaluated, and after all of it is parsed
_POSITION = re.compile(r"(?:error at )?(\d+):(\d+):\s*", re.IGNORECASE)


class UpdateJob(msgspec.Struct, array_like=True):
    """What to evaluate: an update that passed the gate, over the checkpoint in ``folder`` (which is changed)."""

    folder: str
    text: str
    base: str
    default: str
    roots: tuple[str, ...]
    using: tuple[str, ...] | None
    using_named: tuple[str, ...] | None


class ChangedGraph(msgspec.Struct, array_like=True):
    """One graph of the result: the digest it had, the lines it shall have (None: dropped)."""

    graph: str
    before: str | None
    lines: list[str] | None


def update_job(payload: bytes) -> Iterator[bytes]:
    """Evaluate an ``UpdateJob``; the result is a list of ``ChangedGraph``."""
    job = msgspec.msgpack.decode(payload, type=UpdateJob)
    changes = evaluate(
        parse(job.text, job.base),
        Scratch(ox.Store(job.folder), job.base),
        Scope(job.default, job.roots),
        Dataset(job.using, job.using_named),
    )
    yield msgspec.msgpack.encode(
        [ChangedGraph(each.graph, each.before, None if each.lines is None else [*each.lines]) for each in changes]
    )


def parse(text: str, base: str) -> list[Operation]:
    """Take an update apart, once the engine's parser has accepted each operation; nothing is evaluated.

    The engine knows no prologue between operations, so it gets them one by one. Raises ``QueryRejected`` with the position.
    """
    check(text, base)
    return [each.operation for each in forms.operations(text)]


def check(text: str, base: str) -> None:
    """Have the engine's parser read each operation of an update; raises ``QueryRejected`` with the position of an error."""
    for each in forms.operations(text):
        try:
            ox.Store().update(f"{each.prologue}{_NOTHING}{each.text}", base_iri=base)
        except SyntaxError as error:
            raise _rejected(error, each, text) from error
        except RuntimeError:  # the graph is absent: the text does parse
            continue


def terms(prologue: str, written: Sequence[str], base: str) -> list[str]:
    """Return terms as the engine writes them, read under ``prologue``."""
    if not written:
        return []
    query = f"{prologue}SELECT ?term WHERE {{ VALUES ?term {{ {' '.join(written)} }} }}"
    solutions = ox.Store().query(query, base_iri=base)
    assert isinstance(solutions, ox.QuerySolutions)
    return [str(row[0]) for row in solutions]


def statements(prologue: str, quads: str, base: str) -> dict[str | None, Lines]:
    """Return the statements that INSERT DATA would make, per graph; blank nodes get labels of their own."""
    return ground(f"{prologue}INSERT DATA {quads}", base=base)


def solutions(results: bytes) -> Iterator[Solution]:
    """Read the solutions of a SELECT from SPARQL Results JSON; raises ``InvalidDocument`` for triple terms nested too deeply."""
    nesting.check_results(results)
    found = ox.parse_query_results(results, format=ox.QueryResultsFormat.JSON)
    assert isinstance(found, ox.QuerySolutions)
    for row in found:
        yield [None if term is None else _written(term) for term in row]


def _written(term: ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple) -> str:
    return f"<<( {term} )>>" if isinstance(term, ox.Triple) else str(term)


class Scratch:
    """A state of the store, to be changed at will. Implements ``kg.sparql.update.World``."""

    def __init__(self, engine: ox.Store, base: str) -> None:
        self._engine = engine
        self._base = base

    def read(self, graph: str) -> Lines | None:
        """Return what a graph holds, None when it does not exist."""
        name = ox.NamedNode(graph)
        if not self._engine.contains_named_graph(name):
            return None
        content = self._engine.dump(from_graph=name, format=ox.RdfFormat.N_TRIPLES) or b""
        return frozenset(content.decode().split("\n")) - {""}

    def names(self) -> Iterator[str]:
        """Return the names of all graphs."""
        return (each.value for each in self._engine.named_graphs())

    def terms(self, prologue: str, written: Sequence[str]) -> list[str]:
        """Return terms as N-Triples writes them."""
        return terms(prologue, written, self._base)

    def statements(self, prologue: str, quads: str) -> Mapping[str | None, Lines]:
        """Return the statements of INSERT DATA, per graph."""
        return statements(prologue, quads, self._base)

    def solve(self, query: str, dataset: Dataset, changed: Mapping[str, Lines | None]) -> Iterator[Solution]:
        """Run a SELECT over the state, once ``changed`` is part of it."""
        for graph, lines in changed.items():
            self._lay(graph, lines)
        default = [ox.NamedNode(each) for each in dataset.default_graphs or ()]
        try:
            solutions = self._engine.query(
                subselects.restore(query),
                base_iri=self._base,
                use_default_graph_as_union=dataset == Dataset(),
                default_graph=None if dataset.default_graphs is None else list(default),
                named_graphs=None if dataset.named_graphs is None else [*map(ox.NamedNode, dataset.named_graphs)],
            )
            assert isinstance(solutions, ox.QuerySolutions)
            for row in solutions:
                yield [None if term is None else _written(term) for term in row]
        except RuntimeError as error:
            raise not_evaluated("update", error) from error
        except (SyntaxError, ValueError) as error:  # a graph that is no IRI
            raise QueryRejected(f"the update cannot be evaluated: {error}") from error

    def _lay(self, graph: str, lines: Lines | None) -> None:
        held = self.read(graph)
        if held != lines:
            before = None if held is None else ""
            content = None if lines is None else GraphContent.of_canonical(lines)
            blank_nodes.replay(
                self._engine, update_text([Change(graph, "", before, None, held or frozenset(), content)])
            )


def _rejected(error: SyntaxError, written: ParsedOperation, text: str) -> QueryRejected:
    """Translate a syntax error in an operation of the caller's text."""
    message = str(error.msg)
    found = _POSITION.match(message)
    if found is None:
        return QueryRejected(f"the update does not parse: {message}")
    begins = place(text, written.start)
    line, column = int(found[1]) - written.prologue.count("\n"), int(found[2])
    if line <= 1:  # its first line stands behind what was put before it
        line, column = 1, max(1, column - len(_NOTHING) + begins[1] - 1)
    line += begins[0] - 1
    said = message[found.end() :]
    return QueryRejected(
        f"the update does not parse at line {line}, column {column}: {said}",
        detail={"line": line, "column": column, "token": token_at(text, line, column)},
    )
