"""The one door in: whatever is to become the content of an entity's graph is read, canonicalised, validated and digested here.

PUT, POST, PATCH, bulk, the Graph Store Protocol, SPARQL Update, imports and exporters all come through ``accept``, so that the same
document has the same verdict, the same bytes and the same digest, whichever way it takes. Pure: nothing is looked up or written.
"""

from __future__ import annotations

from typing import NamedTuple

from drumlin.kg.errors import InvalidDocument, ShapeViolation, TooLarge, Violation
from drumlin.kg.model.iris import Iris
from drumlin.kg.parsers import HERE, Parsers
from drumlin.kg.rdf import context_reader, jsonld_loader
from drumlin.kg.rdf.canonical import canonical
from drumlin.kg.rdf.jsonld import CONTEXT_IRI
from drumlin.kg.rdf.syntax import JSONLD, NTRIPLES, Facts, Lines, Syntax, facts_of, terms
from drumlin.kg.store.content import GraphContent
from drumlin.kg.validation.validate import conforms, validate


class Statements(NamedTuple):
    """What somebody wants a graph to say, not yet accepted.

    ``facts`` say the same by subject and predicate, from a reader that has made sure that each statement is well-formed and canonical.
    """

    lines: Lines
    facts: Facts | None = None


def read(
    data: bytes,
    syntax: Syntax,
    graph: str,
    iris: Iris,
    *,
    max_bytes: int = jsonld_loader.MAX_BYTES,
    parsers: Parsers = HERE,
) -> Statements:
    """Read a document as what ``graph`` shall say: triples, or quads of that graph and no other.

    What our own readers do not take is parsed by ``parsers``. JSON without a context is read in ours where ``graph`` is an entity's.
    Raises ``TooLarge`` and ``InvalidDocument``.
    """
    if len(data) > max_bytes:
        raise TooLarge(f"the document has {len(data):,} bytes; the limit is {max_bytes:,}")
    default = CONTEXT_IRI if graph.startswith(iris.root) else None
    if (said := _read_certain(data, syntax, iris, default)) is not None:
        return said
    graphs = parsers.rdf(data, syntax, base=graph, served=iris.context, max_bytes=max_bytes, default=default)
    if other := next((name for name in graphs if name not in (None, graph)), None):
        raise InvalidDocument(
            f"the document has statements in the graph {other}; this one is {graph}",
            hint="send triples, or quads of that graph only",
        )
    return Statements(graphs.get(None, frozenset()) | graphs.get(graph, frozenset()))


def _read_certain(data: bytes, syntax: Syntax, iris: Iris, default: str | None = CONTEXT_IRI) -> Statements | None:
    said = None
    if syntax is NTRIPLES:
        said = context_reader.triples(data)
    elif syntax is JSONLD:
        said = context_reader.lines(data, iris.context, default)
    return None if said is None else Statements(*said)


def accept_at_once(data: bytes, syntax: Syntax, graph: str, iris: Iris) -> GraphContent | None:
    """Return the content that a document gives, when that is certain in well under a millisecond; None for any other, valid or not."""
    said = _read_certain(data, syntax, iris)
    if said is None or said.facts is None or not conforms(said.lines, graph, iris, said.facts):
        return None
    return GraphContent.of_canonical(said.lines)


class Accepted(NamedTuple):
    """The content of a graph, and what had to be left out of what it was to say."""

    content: GraphContent
    left_out: tuple[Violation, ...]


def accept_conforming(said: Statements, graph: str, iris: Iris) -> Accepted:
    """Return the content that a graph has when properties that break a rule are left out, each with the violation that it was.

    For exporters, whose sources may say more than the vocabulary knows: a phase that is new to Kubernetes must not hide a pod. Raises what
    ``validate`` raises where leaving out does not help: something that is needed is missing, or the graph has no class.
    """
    left_out: list[Violation] = []
    for _ in range(_ROUNDS):
        try:
            return Accepted(accept(said, graph, iris), tuple(left_out))
        except ShapeViolation as error:
            kept = frozenset(line for line in said.lines if not any(_says(line, each) for each in error.violations))
            if len(kept) == len(said.lines):
                raise
            left_out += error.violations
            said = Statements(kept)
    return Accepted(accept(said, graph, iris), tuple(left_out))


_ROUNDS = 5  # a report lists so many violations at most, and what is left out may break another rule
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


def _says(line: str, violation: Violation) -> bool:
    """Return whether a statement is what a violation is about; the class of a thing is never left out."""
    subject, predicate, value = terms(line)
    if (subject.value, predicate.value) != (violation.focus, violation.path) or predicate.value == _TYPE:
        return False
    return violation.value is None or violation.value == value.value


def accept(said: Statements, graph: str, iris: Iris) -> GraphContent:
    """Return the content that a graph has when it says this; raises what ``validate`` raises."""
    if said.facts is None:
        lines = canonical(said.lines, graph)
        said = Statements(lines, facts_of(lines))
    validate(said.lines, graph, iris, facts=said.facts)
    return GraphContent.of_canonical(said.lines)
