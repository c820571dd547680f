"""The rules that a graph below ``{base}/id/`` must satisfy before it is stored. The only module that knows the SHACL engine.

Most graphs are proven to satisfy them all (``kg.validation.shape_compiler``), in a fifth of the time; where that fails, two passes tell
what is wrong, if anything is. The first holds what SHACL cannot say: no blank node, every subject at or below the graph's IRI, no
undeclared term of our namespace, well-formed literals of bounded size, a typed root. The second is SHACL core with the shapes in
``ontology/shapes.ttl`` (https://www.w3.org/TR/shacl/), compiled once, on first use. A graph is judged alone, without any other and
without inference.
"""

from __future__ import annotations

import re
from calendar import monthrange
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from difflib import get_close_matches
from functools import cache, lru_cache
from importlib.resources import files
from itertools import islice
from typing import NamedTuple

import shacl

from drumlin.kg.errors import InvalidDocument, ShapeViolation, Violation
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import Facts, Lines, Term, facts_of, is_iri, terms
from drumlin.kg.remembering import remembered
from drumlin.kg.telemetry.templates import unfillable
from drumlin.kg.validation import shape_compiler
from drumlin.ontology.vocabulary import CLASSES, CONCEPTS, NAMESPACE, PROPERTIES

MAX_LITERAL_BYTES = 64 * 1024
"""A literal must be shorter than this, in UTF-8."""

MAX_VIOLATIONS = 100
"""A report lists this many violations at most, so that a hostile document cannot make it long."""

_SCOPE, _QUERY = f"{NAMESPACE}scope", f"{NAMESPACE}query"
_ASKED_IN_PROMQL = frozenset({f"{NAMESPACE}prometheus", f"{NAMESPACE}loki"})  # LogQL's metric queries are written alike
_STEP, _HORIZON = f"{NAMESPACE}step", f"{NAMESPACE}horizon"
_SPAN = re.compile(r"P(?:(\d+)Y)?(?:(\d+)M)?(?:(\d+)D)?(?:T(?:(\d+)H)?(?:(\d+)M)?(?:(\d+(?:\.\d+)?)S)?)?", re.ASCII)
_CALLER, _CALLEE = f"<{NAMESPACE}caller>", f"<{NAMESPACE}callee>"
_RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_SHAPES = "https://w3id.org/drumlin/shapes#"
_OBJECTS = CLASSES | CONCEPTS
_PROV = "http://www.w3.org/ns/prov#"
_COMPARED = {f"{_PROV}startedAtTime", f"{_PROV}endedAtTime", f"{NAMESPACE}trainedFrom", f"{NAMESPACE}trainedTo"}
_MAX_COMPARED = 16
# What the SHACL engine must not be given: it panics on some ill-formed dates, and compares each value with each.
_UNFIT = frozenset({"ill-typed-literal", "too-many-values"})
_SHOWN = 120
_SHOWN_IRI = 512

Statement = tuple[Term, Term, Term]
NOTED = frozenset({f"{NAMESPACE}dependsOn"})
"""What a notes graph may say of its entity itself: links that users know of and no source does."""


class _GraphPlace(NamedTuple):
    """Where statements are to stand: the name of the graph, whether it is one beside an entity's, and the entity that notes are about."""

    graph: str
    beside: bool
    noted: str | None


def _place(graph: str, iris: Iris) -> _GraphPlace:
    return _GraphPlace(graph, iris.parse(graph).notes, iris.noted(graph))


def validate(lines: Lines, graph: str, iris: Iris, *, facts: Facts | None = None) -> None:
    """Check that ``lines`` may be stored as the graph named ``graph``; returns nothing, does no I/O after its first call.

    ``facts`` say the same by subject, from a reader that has made sure that every IRI is well-formed.

    A graph that the SHACL engine could not bear gets the report of the first pass alone, so the next one can be longer.
    Raises ``ShapeViolation`` with what was found (``MAX_VIOLATIONS`` at most), ``InvalidDocument`` when the lines are not
    RDF 1.1 statements or ``graph`` is not the name of a graph, ``InvalidIdentifier`` when it is no IRI of this base.
    """
    named = iris.parse(graph)
    if named.below:
        raise InvalidDocument(f"{graph} is a part of an entity and has no graph", hint=f"write {iris.entity(graph)}")
    place = _place(graph, iris)
    if _proven(lines, place, facts):
        return
    statements = [terms(line) for line in lines]
    found = list(islice(_violations(statements, place), MAX_VIOLATIONS))
    if len(found) < MAX_VIOLATIONS and not any(each.rule in _UNFIT for each in found):
        known = {(each.focus, each.value) for each in found if each.value is not None}
        found += [each for each in _shape_violations(lines, statements) if (each.focus, each.value) not in known]
    if found:
        raise ShapeViolation(tuple(sorted(set(found), key=_order)[:MAX_VIOLATIONS]))


def conforms(lines: Lines, graph: str, iris: Iris, facts: Facts) -> bool:
    """Return whether ``lines`` are proven to be valid as the graph named ``graph``, in a fraction of a millisecond; False says nothing.

    ``facts`` say the same by subject (``validate``). Raises ``InvalidIdentifier`` when ``graph`` is no IRI of this base.
    """
    named = iris.parse(graph)
    return not named.below and _proven(lines, _place(graph, iris), facts)


def _order(violation: Violation) -> tuple[bool, str, str, str, str]:
    """Put first what may explain all else: a document without an id is full of blank nodes."""
    return (
        violation.rule != "root-described",
        violation.focus,
        violation.path or "",
        violation.rule,
        violation.value or "",
    )


# -- proof without a report -----------------------------------------------------------------------------------------------
_OPEN = f"<{NAMESPACE}"
_KNOWN_PROPERTIES, _KNOWN_CLASSES, _KNOWN_OBJECTS = (
    frozenset(f"{_OPEN}{name}>" for name in names) for names in (PROPERTIES, CLASSES, _OBJECTS)
)
_CROWDED = frozenset(f"<{name}>" for name in _COMPARED)
_TOLD_APART = frozenset(f"<{name}>" for name in (_STEP, _HORIZON, f"{NAMESPACE}scope"))
_SURELY_SHORT = MAX_LITERAL_BYTES // 8  # characters, of up to four bytes, with room for what stands around the text


def _proven(lines: Lines, place: _GraphPlace, facts: Facts | None) -> bool:
    """Return whether neither pass would find anything; False says nothing."""
    if facts is None:
        facts = facts_of(lines)
        if not _well_formed(facts):
            return False
    own = facts.get(f"<{place.graph}>") or (facts.get(f"<{place.noted}>") if place.noted else None)
    if not own or not (place.beside or any(kind.startswith(_OPEN) for kind in own.get(shape_compiler.TYPE, ()))):
        return False
    if (iris := _of_invocation(place.graph)) and not _is_named_by_ends(place.graph, own, iris):
        return False
    return _fitting(facts, place) and shape_compiler.shipped().proves(facts)


def _well_formed(facts: Facts) -> bool:
    """Return whether each IRI is well-formed, as a reader has made sure; what a store holds may be older than that rule."""
    return all(
        _is_well_formed(term)
        for subject, said in facts.items()
        for group in ([subject], said, *said.values())
        for term in group
        if term[0] == "<"
    )


@remembered(65_536)
def _is_well_formed(iri: str) -> bool:
    return is_iri(iri[1:-1])


def _fitting(facts: Facts, place: _GraphPlace) -> bool:
    """Return whether all subjects and values surely do, each for itself, and no parser would look twice at a term."""
    root, below = f"<{place.graph}>", f"<{place.graph}/"
    noted = f"<{place.noted}>" if place.noted else None
    for subject, said in facts.items():
        if subject == noted:
            if not all(predicate[1:-1] in NOTED and _all_iris(values) for predicate, values in said.items()):
                return False
        elif not (subject == root or subject.startswith(below)):
            return False
        for predicate, values in said.items():
            if len(predicate) > _USUAL or (len(values) > _MAX_COMPARED and predicate in _CROWDED):
                return False
            for value in values:
                # Few literals and names of the vocabulary are new; most other things are.
                usual = len(value) <= _USUAL and (value[0] == '"' or value.startswith(_OPEN))
                if not (_known_value if usual else _fits)(predicate, value):
                    return False
    return True


def _all_iris(values: Iterable[str]) -> bool:
    return all(value[0] == "<" for value in values)


def _fits(predicate: str, value: str) -> bool:
    """Return whether a value surely does: neither pass would look at it twice."""
    if value[0] == '"':
        if len(value) >= _SURELY_SHORT or not (value[-1] == '"' or _surely_well_formed(value)):
            return False
    elif value.startswith(_OPEN):
        if value not in (_KNOWN_CLASSES if predicate == shape_compiler.TYPE else _KNOWN_OBJECTS):
            return False
    elif value[0] != "<" or value[1] == "<":  # a blank node, a triple
        return False
    tests = _tests(predicate)
    if tests is None:
        return False
    for test in tests:  # noqa: SIM110 - a generator for each statement takes longer than the tests
        if not test(value):
            return False
    return True


_known_value = lru_cache(maxsize=16_384)(_fits)
_USUAL = 256  # characters of what is remembered


@remembered(4096)
def _tests(predicate: str) -> Sequence[Callable[[str], bool]] | None:
    """Return what each value of a predicate is held to; None when either pass would look twice at the predicate itself."""
    if predicate.startswith(_OPEN) and (predicate not in _KNOWN_PROPERTIES or predicate in _TOLD_APART):
        return None
    return shape_compiler.shipped().tests(predicate)


@remembered(4096)
def _surely_well_formed(literal: str) -> bool:
    end = literal.rfind('"')
    suffix = literal[end + 1 :]
    if "\\" in literal:
        return False
    return "--" not in suffix if suffix[:1] == "@" else is_well_formed(literal[1:end], suffix[3:-1])


# -- what SHACL cannot say ------------------------------------------------------------------------------------------------


def _violations(statements: list[Statement], place: _GraphPlace) -> Iterator[Violation]:
    yield from _root_violations(statements, place)
    yield from _crowds(statements)
    yield from _forecasts(statements)
    yield from _templates(statements)
    yield from _misnamed(statements, place.graph)
    for subject, predicate, value in statements:
        focus, path = subject.value, predicate.value
        if value.kind == "literal" and (fault := _literal_fault(focus, path, value)):
            yield fault
        if subject.kind == "blank" or value.kind == "blank":
            yield _blank(subject, path, value)
            continue
        yield from _misplaced(focus, path, value, place)
        if path.startswith(NAMESPACE) and path[len(NAMESPACE) :] not in PROPERTIES:
            yield _undeclared(focus, path, path, "property", PROPERTIES)
        if value.kind == "literal":
            continue
        if value.value.startswith(NAMESPACE):
            kind, declared = ("class", CLASSES) if path == _RDF_TYPE else ("concept", _OBJECTS)
            if value.value[len(NAMESPACE) :] not in declared:
                yield _undeclared(focus, path, value.value, kind, declared)
        elif value.value.startswith("<("):  # an RDF 1.2 triple term: no IRI begins so
            yield _breach(focus, path, None, "no-triple-term", f"the value of {_short(path)} is a triple, not a thing")


def _misplaced(focus: str, path: str, value: Term, place: _GraphPlace) -> Iterator[Violation]:
    """Subjects are at or below the graph's IRI; a notes graph may say of its entity what is ``NOTED``, too."""
    graph = place.graph
    if focus == graph or focus.startswith(f"{graph}/"):
        return
    if focus != place.noted:
        yield _breach(focus, path, None, "subject-outside-graph", f"it is not at or below {graph}, the graph's IRI")
    elif path not in NOTED:
        may = ", ".join(map(_short, sorted(NOTED)))
        message = f"of its entity a notes graph says {may} only; say anything else of {graph}, the graph's IRI"
        yield _breach(focus, path, None, "subject-outside-graph", message)
    elif value.kind == "literal":
        yield _breach(focus, path, value.value, "reference", f"the value of {_short(path)} is an IRI, not text")


def _root_violations(statements: list[Statement], place: _GraphPlace) -> Iterator[Violation]:
    """The graph says something about its own IRI and gives it a class of ours; remarks in a notes graph need no class."""
    graph, mine = place.graph, (place.graph, place.noted)
    about = [(predicate.value, value.value) for subject, predicate, value in statements if subject.value in mine]
    if not about:
        yield _breach(
            graph,
            None,
            None,
            "root-described",
            f"nothing is said about {graph}, whose graph this is: it is the id to give",
        )
    elif not place.beside and not any(path == _RDF_TYPE and value.startswith(NAMESPACE) for path, value in about):
        yield _breach(
            graph, _RDF_TYPE, None, "root-typed", "it has no type of the vocabulary, such as Deployment or Node"
        )


def _crowds(statements: list[Statement]) -> Iterator[Violation]:
    times = Counter(
        (subject.value, predicate.value) for subject, predicate, _ in statements if predicate.value in _COMPARED
    )
    for (focus, path), count in times.items():
        if count > _MAX_COMPARED:
            yield _breach(focus, path, None, "too-many-values", f"{_short(path)} has {count:,} values instead of one")


def _forecasts(statements: list[Statement]) -> Iterator[Violation]:
    """A forecast's step is not longer than its horizon; SPARQL, and so SHACL, has no order of durations."""
    spans: dict[str, dict[str, list[str]]] = {}
    for subject, predicate, value in statements:
        if predicate.value in (_STEP, _HORIZON) and value.kind == "literal":
            spans.setdefault(subject.value, {}).setdefault(predicate.value, []).append(value.value)
    for focus, span in spans.items():
        steps, horizons = span.get(_STEP, []), span.get(_HORIZON, [])
        if len(steps) != 1 or len(horizons) != 1:
            continue  # none, or too many: reported by other rules
        shortest, longest = _days(steps[0], 28, 365), _days(horizons[0], 31, 366)
        if shortest is not None and longest is not None and shortest > longest:
            message = "the step of a forecast is not longer than its horizon"
            yield _breach(focus, _STEP, steps[0], "forecast-order", message)


def _templates(statements: list[Statement]) -> Iterator[Violation]:
    """The query of a template can be filled for the entities of its scope; SHACL cannot read PromQL."""
    scopes = {subject.value: value.value for subject, predicate, value in statements if predicate.value == _SCOPE}
    promql = {subject.value for subject, _, value in statements if scopes and value.value in _ASKED_IN_PROMQL}
    for subject, predicate, value in statements if promql else ():
        if predicate.value == _QUERY and subject.value in promql:
            message = unfillable(value.value, scopes.get(subject.value, ""))
            if message:
                yield _breach(subject.value, _QUERY, value.value, "template-query", message)


def _of_invocation(graph: str) -> Iris | None:
    """Return what names invocations, of the base that the graph of one has; None for any other graph."""
    base, found, name = graph.rpartition("/id/invocation/")
    return Iris(base) if found and "/" not in name else None


def _is_named_by_ends(graph: str, own: Mapping[str, Collection[str]], iris: Iris) -> bool:
    """Return whether a graph has the name of the invocation of one callee by one caller."""
    callers, callees = own.get(_CALLER, ()), own.get(_CALLEE, ())
    if len(callers) != 1 or len(callees) != 1:
        return False
    ends = [_plain(each) for each in (*callers, *callees)]
    return all(each.startswith(iris.root) for each in ends) and iris.invocation(*ends) == graph


def _misnamed(statements: list[Statement], graph: str) -> Iterator[Violation]:
    """An invocation's id is made of its caller and callee, so that each pair is one invocation."""
    if (iris := _of_invocation(graph)) is None:
        return
    ends: dict[str, list[str]] = {_CALLER[1:-1]: [], _CALLEE[1:-1]: []}
    for subject, predicate, value in statements:
        if subject.value == graph and predicate.value in ends and value.kind == "iri":
            ends[predicate.value].append(value.value)
    (callers, callees) = ends.values()
    if len(callers) != 1 or len(callees) != 1:
        return  # none, or several: reported by other rules
    both = (*callers, *callees)
    if foreign := next((each for each in both if not each.startswith(iris.root)), None):
        yield _breach(graph, None, foreign, "invocation-name", f"an end of an invocation is a thing below {iris.root}")
    elif (right := iris.invocation(*both)) != graph:
        message = "its id is not that of its caller and callee"
        yield _breach(graph, None, None, "invocation-name", message, iris.short(right))


def _days(duration: str, month: int, year: int) -> float | None:
    """Return the length of a duration in days, with months and years of so many days; None when it is no such thing."""
    match = _SPAN.fullmatch(duration)
    if match is None or len(duration) > _SHOWN:
        return None
    years, months, days, hours, minutes, seconds = (float(each or 0) for each in match.groups())
    return years * year + months * month + days + (hours + (minutes + seconds / 60) / 60) / 24


def _breach(
    focus: str, path: str | None, value: str | None, rule: str, message: str, suggestion: str | None = None
) -> Violation:
    focus, path = _cut(focus, _SHOWN_IRI), path and _cut(path, _SHOWN_IRI)
    shown = None if value is None else _shown(value)
    return Violation(focus, path, shown, rule, f"{_short(focus)}: {message}", suggestion)


def _blank(subject: Term, path: str, value: Term) -> Violation:
    focus = f"_:{subject.value}" if subject.kind == "blank" else subject.value
    message = f"a blank node stands in a statement of {_short(path)}; give it an id at or below the graph's IRI"
    return _breach(focus, path, f"_:{value.value}" if value.kind == "blank" else None, "no-blank-node", message)


def _undeclared(focus: str, path: str, iri: str, kind: str, declared: frozenset[str]) -> Violation:
    """Name the term, never the value that stood beside it: a misspelt key may hold anything."""
    name = iri[len(NAMESPACE) :]
    close = get_close_matches(name[:64], declared, n=1)
    message = f"{_shown(name)!r} is not a {kind} of the vocabulary"
    return _breach(focus, path, iri, "undeclared-term", message, close[0] if close else None)


def _literal_fault(focus: str, path: str, value: Term) -> Violation | None:
    text, datatype = value.value, value.datatype or ""
    if len(text) * 4 >= MAX_LITERAL_BYTES and (size := len(text.encode())) >= MAX_LITERAL_BYTES:
        message = f"the value of {_short(path)} has {size:,} bytes; a literal is shorter than {MAX_LITERAL_BYTES:,}"
        return _breach(focus, path, None, "literal-too-long", message)
    if is_well_formed(text, datatype):
        return None
    zone = " with a zone" if datatype == f"{_XSD}dateTime" else ""
    return _breach(
        focus, path, text, "ill-typed-literal", f"the value of {_short(path)} is not an xsd:{_short(datatype)}{zone}"
    )


_XSD = "http://www.w3.org/2001/XMLSchema#"
_NUMBER = r"[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+)"
_DATE = r"-?(?P<year>[1-9][0-9]{3,8}|0[0-9]{3})-(?P<month>0[1-9]|1[0-2])-(?P<day>0[1-9]|[12][0-9]|3[01])"
_ZONE = r"(?:Z|[+-](?:(?:0[0-9]|1[0-3]):[0-5][0-9]|14:00))"
_CLOCK = r"(?:(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](?:\.[0-9]+)?|24:00:00(?:\.0+)?)"
_DOUBLE = re.compile(rf"{_NUMBER}(?:[eE][+-]?[0-9]+)?|[+-]?INF|NaN")
# Lexical forms of https://www.w3.org/TR/xmlschema11-2/, but a dateTime must have its zone and a year nine digits at most: the
# SHACL engine panics on longer ones.
_LEXICAL = {
    f"{_XSD}boolean": re.compile(r"true|false|0|1"),
    f"{_XSD}integer": re.compile(r"[+-]?[0-9]+"),
    f"{_XSD}decimal": re.compile(_NUMBER),
    f"{_XSD}double": _DOUBLE,
    f"{_XSD}float": _DOUBLE,
    f"{_XSD}date": re.compile(rf"{_DATE}{_ZONE}?"),
    f"{_XSD}dateTime": re.compile(rf"{_DATE}T{_CLOCK}{_ZONE}"),
    f"{_XSD}duration": re.compile(
        r"-?P(?!\Z)(?:[0-9]+Y)?(?:[0-9]+M)?(?:[0-9]+D)?(?:T(?!\Z)(?:[0-9]+H)?(?:[0-9]+M)?(?:[0-9]+(?:\.[0-9]+)?S)?)?"
    ),
    f"{_XSD}anyURI": re.compile(r"[^\s<>\"{}|\\^`]*"),
}


def is_well_formed(text: str, datatype: str) -> bool:
    """Return whether ``text`` is a lexical form of ``datatype``; datatypes that are not used here are left alone."""
    form = _LEXICAL.get(datatype)
    if form is None:
        return True
    match = form.fullmatch(text)
    if match is None or "day" not in form.groupindex:
        return match is not None
    year = int(match["year"]) % 400 + 400  # the calendar repeats; datetime knows four digits only
    return int(match["day"]) <= monthrange(year, int(match["month"]))[1]


# -- SHACL ----------------------------------------------------------------------------------------------------------------


@cache
def _shapes() -> shacl.Shapes:
    """Compile the shapes; immutable, so all threads share them (two that come first at one time both compile)."""
    return shacl.Shapes.from_turtle(files("drumlin.ontology").joinpath("shapes.ttl").read_text(encoding="utf-8"))


def _shape_violations(lines: Lines, statements: list[Statement]) -> Iterator[Violation]:
    try:
        report = _shapes().validate_text("\n".join(lines), format="ntriples", max_results=MAX_VIOLATIONS)
    except ValueError as error:
        raise InvalidDocument("the graph is not a set of RDF 1.1 statements") from error
    if report.conforms:
        return
    for result in report.results:
        if result.focus_node.startswith("_:") or (result.value or "").startswith("_:"):
            continue  # reported as no-blank-node; the engine's label for it says nothing
        focus = _plain(result.focus_node)
        path = _predicate(result.path, focus, result.value_plain, statements)
        rule = _rule(result)
        yield _breach(focus, path, result.value_plain, rule, result.message or rule)


def _rule(result: shacl.Result) -> str:
    source = result.source_shape or ""
    named = source if source.startswith(f"<{_SHAPES}") else result.root_shape or source
    return _plain(named).removeprefix(_SHAPES)


def _predicate(path: str | None, focus: str, value: str | None, statements: list[Statement]) -> str | None:
    """Return the one predicate that a result is about; an alternative path is told apart by where the value stands."""
    if path is None or path.startswith("<"):
        return path and _plain(path)
    held = (
        predicate.value
        for subject, predicate, other in statements
        if subject.value == focus and other.value == value and f"<{predicate.value}>" in path
    )
    return min(held, default=None)


# -- words ----------------------------------------------------------------------------------------------------------------


def _plain(term: str) -> str:
    return term[1:-1] if term.startswith("<") else term


def _short(iri: str) -> str:
    """Write an IRI as people say it: the short id of a thing, the local name of a term."""
    _, found, short = iri.partition("/id/")
    return _cut(short if found else re.split(r"[#/]", iri)[-1], _SHOWN_IRI)


def _shown(value: str) -> str:
    """Make a value fit to be shown: no credentials of a URL, bounded length."""
    before, at, after = value.rpartition("@")
    scheme, slashes, _ = before.partition("//")
    return _cut(f"{scheme}//…@{after}" if at and slashes else value, _SHOWN)


def _cut(text: str, length: int) -> str:
    return text if len(text) <= length else f"{text[:length]}…"
