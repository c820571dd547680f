"""Two states of a graph compared: what one statement said before and says after, part by part. What both say is left out."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from itertools import islice, takewhile

from drumlin.api.bootstrap import Services
from drumlin.api.pages.values import ShownValue, cut, shown_iri, term_of
from drumlin.api.pages.wording import amount, moment, name_of
from drumlin.api.routes.compare import compared
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import syntax
from drumlin.kg.rdf.syntax import Lines

MAX_ROWS = 500
"""Differences on one page."""
_LOOKED_AT = 1_000  # changes that are looked through for the next one
_DATE_TIME = "http://www.w3.org/2001/XMLSchema#dateTime"


@dataclass(frozen=True, slots=True)
class Difference:
    """What was said of a part by one property and is not any more, and what is said of it since; the entity itself has no part."""

    part: str
    term: str
    before: tuple[ShownValue, ...]
    after: tuple[ShownValue, ...]


@dataclass(frozen=True, slots=True)
class Comparison:
    """An entity at two generations: ``differences`` in the order of parts and terms, and how many statements both have.

    ``was`` and ``is_there`` say whether the entity was there at all; ``earlier`` and ``later`` lead to its changes around the two, 0 for
    none.
    """

    short: str
    name: str
    begin: int
    end: int
    was: bool
    is_there: bool
    differences: tuple[Difference, ...]
    left_out: int
    same: int
    earlier: int
    later: int


def comparison(service: Services, entity: str, begin: str, end: str) -> Comparison:
    """Compare an entity at two moments, as ``api.routes.compare`` reads them; raises what that does."""
    states = compared(service, entity, begin, end)
    iris, iri = service.iris, states.iri
    old, new = (frozenset[str]() if each is None else each for each in (states.before, states.after))
    found = list(differences(old, new, iri, iris))
    earlier = next(service.store.changes_of(iri, states.begin + 1), None)
    later = _next(service, iri, states.end)
    return Comparison(
        short=iris.short(iri),
        name=name_of(iris.short(iri)),
        begin=states.begin,
        end=states.end,
        was=states.before is not None,
        is_there=states.after is not None,
        differences=tuple(found[:MAX_ROWS]),
        left_out=max(0, len(found) - MAX_ROWS),
        same=len(old & new),
        earlier=earlier.generation if earlier else 0,
        later=later,
    )


def _next(service: Services, iri: str, generation: int) -> int:
    """Return the generation after one in which an entity changed next; 0 for none, or when very many came since."""
    newest = islice(service.store.changes_of(iri, service.store.generation + 1), _LOOKED_AT)
    since = [each.generation for each in takewhile(lambda each: each.generation > generation, newest)]
    return since[-1] if since and len(since) < _LOOKED_AT else 0


def differences(before: Lines, after: Lines, iri: str, iris: Iris) -> Iterator[Difference]:
    """Yield what differs, those of the entity itself first, then part by part."""
    told: dict[tuple[str, str], tuple[list[ShownValue], list[ShownValue]]] = {}
    for side, lines in enumerate((before - after, after - before)):
        for line in sorted(lines):
            subject, predicate, value = syntax.terms(line)
            part = "" if str(subject.value) == iri else _part(str(subject.value), iri)
            term = term_of(predicate.value)
            told.setdefault((part, term), ([], []))[side].append(_shown(term, value, iris))
    for (part, term), (old, new) in sorted(told.items()):
        yield Difference(part, term, tuple(old), tuple(new))


def _part(subject: str, iri: str) -> str:
    return cut(subject.removeprefix(f"{iri}/"))


def _shown(term: str, value: syntax.Term, iris: Iris) -> ShownValue:
    text = str(value.value)
    if value.kind != "literal":
        return shown_iri(text, iris)
    if value.datatype == _DATE_TIME:
        return ShownValue(moment(text))
    return ShownValue(cut(amount(term, text)))
