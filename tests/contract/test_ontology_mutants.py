"""Mutants of the shapes: without any one constraint, or with it loosened, some failing fixture loses a result. So each is needed and works.

A mutant is dropped (the statement is gone) or loosened: a list of properties that a shape watches loses one, a bound moves by one, a pattern
loses an anchor, a closed list offers everything, and where a condition is negated or counted, it covers less. A constraint inside an alternative
is loosened by dropping it; inside a negation that would make the shape stricter, so there the lists shrink.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from functools import cache
from itertools import count
from typing import NamedTuple

import shacl

from drumlin.kg import rdf
from drumlin.ontology.vocabulary import CLASSES, CONCEPTS, NAMESPACE
from tests.unit.test_validation import FAILING, SHAPES, load, rule_of

SH = "http://www.w3.org/ns/shacl#"
FIRST, REST = (f"<http://www.w3.org/1999/02/22-rdf-syntax-ns#{name}>" for name in ("first", "rest"))
NIL = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#nil>"
INTEGER = "^^<http://www.w3.org/2001/XMLSchema#integer>"
DROPPED = {
    "minCount", "maxCount", "datatype", "nodeKind", "pattern", "in", "class", "or", "not", "minInclusive", "lessThanOrEquals",
    "qualifiedMaxCount", "targetClass", "targetSubjectsOf", "property",
}  # fmt: skip
LINES = frozenset(rdf.parse(SHAPES.read_bytes(), rdf.TURTLE)[None])


class Statement(NamedTuple):
    """A statement of the shapes, as N-Triples writes its terms."""

    subject: str
    predicate: str
    value: str

    def __str__(self) -> str:
        return f"{self.subject} {self.predicate} {self.value} ."

    @property
    def name(self) -> str:
        """The local name of a predicate of SHACL."""
        return self.predicate.removeprefix(f"<{SH}").removesuffix(">")


STATEMENTS = sorted(Statement(*line[:-2].split(" ", 2)) for line in LINES)
BY_SUBJECT: dict[str, list[Statement]] = defaultdict(list)
for each in STATEMENTS:
    BY_SUBJECT[each.subject].append(each)


class Mutant(NamedTuple):
    """What is taken from the shapes and put there instead."""

    what: str
    gone: frozenset[str]
    new: frozenset[str]


def value(subject: str, predicate: str) -> str:
    """Return the only value."""
    (found,) = [each.value for each in BY_SUBJECT[subject] if each.predicate == predicate]
    return found


def members(head: str) -> Iterator[tuple[str, str]]:
    """Yield the cells of a list and what is in them."""
    while head != NIL:
        yield head, value(head, FIRST)
        head = value(head, REST)


def below(node: str) -> Iterator[str]:
    """Yield a node and the blank nodes that it leads to."""
    yield node
    for each in BY_SUBJECT[node]:
        if each.value.startswith("_:"):
            yield from below(each.value)


NEGATED = {
    node
    for statement in STATEMENTS
    if statement.name in ("not", "qualifiedValueShape")
    for node in below(statement.value)
}


def shortened(statement: Statement) -> Iterator[Mutant]:
    """Leave out each member of a list once."""
    cells = list(members(statement.value))
    if statement.name == "alternativePath" and len(cells) == 2:  # SHACL has no alternative of one
        (path,) = [each for each in STATEMENTS if each.value == statement.subject]
        for (_, kept), (_, member) in (cells, cells[::-1]):
            shorter = frozenset({str(path._replace(value=kept))})
            yield Mutant(f"{statement.name} without {member}", frozenset({str(path)}), shorter)
        return
    for place, (cell, member) in enumerate(cells):
        rest = value(cell, REST)
        before = Statement(cells[place - 1][0], REST, cell) if place else statement
        shorter = frozenset({str(before._replace(value=rest))})
        yield Mutant(f"{statement.name} without {member}", frozenset({str(before)}), shorter)


def lengthened(statement: Statement) -> Mutant:
    """Offer every class, concept and word that is in some fixture."""
    numbers = count()
    words = [f"<{NAMESPACE}{name}>" for name in sorted(CLASSES | CONCEPTS)]
    words += sorted(set(TEXTS_WORDS))
    new: set[str] = set()
    head = statement.value
    for word in words:
        cell = f"_:more{next(numbers)}"
        new |= {f"{cell} {FIRST} {word} .", f"{cell} {REST} {head} ."}
        head = cell
    return Mutant(
        "in, offering everything", frozenset({str(statement)}), frozenset(new | {str(statement._replace(value=head))})
    )


def mutants() -> Iterator[tuple[Statement, Mutant]]:
    """Yield all mutants with the statement that is mutated."""
    for statement in STATEMENTS:
        if statement.name in DROPPED and statement.subject not in NEGATED:
            yield statement, Mutant("dropped", frozenset({str(statement)}), frozenset())
        for mutant in loosened(statement):
            yield statement, mutant


def loosened(statement: Statement) -> Iterator[Mutant]:
    """Yield the looser forms of a constraint."""
    gone = frozenset({str(statement)})

    def changed(what: str, new: str) -> Mutant:
        return Mutant(f"{statement.name} {what}", gone, frozenset({str(statement._replace(value=new))}))

    match statement.name:
        case "alternativePath":
            yield from shortened(statement)
        case "in" if statement.subject in NEGATED:
            yield from shortened(statement)
        case "in":
            yield lengthened(statement)
        case "maxCount" | "qualifiedMaxCount":
            yield changed("one more", f'"{int(statement.value.split(chr(34))[1]) + 1}"{INTEGER}')
        case "minInclusive":
            yield changed("one less", f'"{int(statement.value.split(chr(34))[1]) - 1}"{INTEGER}')
        case "nodeKind":
            yield changed("or literal", f"<{SH}IRIOrLiteral>")
        case "pattern":
            text = statement.value[1:-1]
            if text.startswith("^"):
                yield changed("without ^", f'"{text[1:]}"')
            if text.endswith("$"):
                yield changed("without $", f'"{text[:-1]}"')


TEXTS = {rule_of(path): "\n".join(load(path)[0]) for path in FAILING}
TEXTS_WORDS = [
    line[:-2].split(" ", 2)[2] for text in TEXTS.values() for line in text.split("\n") if line.endswith('" .')
]


def results(shapes: shacl.Shapes, rule: str) -> int:
    """Count what shapes find in a fixture."""
    return len(shapes.validate_text(TEXTS[rule], format="ntriples").results)


@cache
def before() -> dict[str, int]:
    """Count what the shapes find, by fixture."""
    whole = shacl.Shapes.from_text("\n".join(LINES), format="ntriples")
    return {rule: results(whole, rule) for rule in TEXTS}


def survives(mutant: Mutant, first: str) -> bool:
    """Return whether no fixture tells a mutant from the shapes; the one that is likely to is asked first."""
    weaker = shacl.Shapes.from_text("\n".join((LINES - mutant.gone) | mutant.new), format="ntriples")
    likely = [first] if first in TEXTS else []
    return all(results(weaker, rule) >= before()[rule] for rule in [*likely, *TEXTS])


def owner(statement: Statement) -> str:
    """Return the name of the shape that a statement is a part of."""
    if not statement.subject.startswith("_:"):
        return statement.subject.rpartition("#")[2].removesuffix(">")
    return OWNERS.get(statement.subject, "")


OWNERS = {
    node: shape.rpartition("#")[2].removesuffix(">")
    for shape in list(BY_SUBJECT)
    if not shape.startswith("_:")
    for node in below(shape)
}


def test_no_constraint_can_be_dropped_or_loosened_unnoticed() -> None:
    """Every mutant of every constraint, target and list makes some failing fixture lose a result."""
    found = list(mutants())
    survivors = [
        (owner(statement), *statement, mutant.what) for statement, mutant in found if survives(mutant, owner(statement))
    ]

    assert len(found) > 500
    assert survivors == []
