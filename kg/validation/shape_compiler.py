"""Proof, without the SHACL engine, that a graph satisfies the shapes: nearly every graph that is written does, and no report is made.

The shapes in ``ontology/shapes.ttl`` are compiled into checks over the canonical lines themselves. A proof is never wrong, but it may be
missing: what a check is not certain of (a construct of SHACL that it does not know, a text that is not ASCII before a pattern,
times of different form) counts as not proven, and the engine decides. So a shape that is added needs no change here, only time.

SHACL core: https://www.w3.org/TR/shacl/#core-components.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cache, lru_cache
from importlib.resources import files

from drumlin.kg.rdf.syntax import TURTLE, Facts, Values, facts_of, parse

_Value = Callable[[str], bool]
Check = Callable[[str, Facts], bool]
"""Returns whether what facts say of a subject surely conforms; what they say of other things never makes it less sure."""

TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_RDF = "http://www.w3.org/1999/02/22-rdf-syntax-ns#"
_SUBCLASS = "<http://www.w3.org/2000/01/rdf-schema#subClassOf>"
_XSD_STRING = "<http://www.w3.org/2001/XMLSchema#string>"
_NOTHING = '"0"^^<http://www.w3.org/2001/XMLSchema#integer>'
_MOMENT = re.compile(r'"([0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}(?:\.[0-9]+)?)Z"\^\^<[^>]+>')


_ESCAPED = re.compile(r'\\(["\\])')
_QUOTED = re.compile(r'(?:[^\\]|\\["\\])*+')  # no control character among what is escaped


def _sh(name: str) -> str:
    return f"<http://www.w3.org/ns/shacl#{name}>"


_TARGETS = frozenset({_sh("targetClass"), _sh("targetSubjectsOf")})
_CLASSES = frozenset({"<http://www.w3.org/2000/01/rdf-schema#Class>", "<http://www.w3.org/2002/07/owl#Class>"})
_SAID = _TARGETS | {TYPE, _sh("message"), _sh("path")}


@dataclass(frozen=True, slots=True)
class _Rule:
    """A check of a thing; one with a ``predicate`` holds for every thing that has no value of it."""

    predicate: str | None
    check: Check
    test: _Value | None = None  # all of the check, for one value
    most: int | None = None  # all of the check, when it only counts
    needs: str | None = None  # the predicate of which a value must be there, when that is all of the check


class _Demands:
    """What a class demands of its things, sorted by kind: most of it is answered by the predicates alone."""

    def __init__(self) -> None:
        self._needed: frozenset[str] = frozenset()
        self._most: dict[str, int] = {}
        self._tests: list[tuple[str, _Value]] = []
        self._checks: list[Check] = []

    def add(self, rules: Iterable[_Rule]) -> None:
        for each in rules:
            if each.needs:
                self._needed |= {each.needs}
            elif each.predicate and each.test:
                self._tests.append((each.predicate, each.test))
            elif each.predicate and each.most is not None:
                self._most[each.predicate] = min(each.most, self._most.get(each.predicate, each.most))
            elif each.check not in self._checks:
                self._checks.append(each.check)

    def of(self, predicates: frozenset[str]) -> _ClassConstraints | None:
        """Return what is to be looked at in a thing of which these predicates are said; None when one that is needed is not."""
        if not self._needed <= predicates:
            return None
        return _ClassConstraints(
            [(predicate, most) for predicate, most in self._most.items() if predicate in predicates],
            [(predicate, test) for predicate, test in self._tests if predicate in predicates],
            self._checks,
        )


@dataclass(frozen=True, slots=True)
class _ClassConstraints:
    """What things are held to of which the same predicates are said: how many values there may be, what each fits, and the rest."""

    most: Sequence[tuple[str, int]]
    tests: Sequence[tuple[str, _Value]]
    checks: Sequence[Check]

    def fits(self, said: Values) -> bool:
        """Return whether values are as many as demanded, and each is as it must be."""
        for predicate, most in self.most:
            if len(said[predicate]) > most:
                return False
        for predicate, test in self.tests:
            for value in said[predicate]:
                if not test(value):
                    return False
        return True


def _passes(checks: Iterable[Check], subject: str, facts: Facts) -> bool:
    for check in checks:  # noqa: SIM110 - with a generator, each graph would take a fifth longer
        if not check(subject, facts):
            return False
    return True


class Conformance:
    """The shapes of a Turtle text, compiled."""

    def __init__(self, shapes: str) -> None:
        self._shapes = facts_of(parse(shapes.encode(), TURTLE).get(None, ()))
        self._compiled: dict[str, list[_Rule]] = {}
        self._by_class: dict[str, _Demands] = {}
        self._by_predicate: dict[str, list[Check]] = {}
        self._tests: dict[str, list[_Value]] = {}  # what most values are held to, apart: it is most of the work
        self._most: dict[str, int] = {}
        self._complete = (
            True  # False once a shape is about things in a way that is not known here: then nothing is proven
        )
        self._plans = lru_cache(1024)(self._planned)  # things of a class are described alike
        for name, shape in self._shapes.items():
            self._aim(name, shape)

    def tests(self, predicate: str) -> Sequence[Callable[[str], bool]]:
        """Return what each value of ``predicate`` alone is held to: a value surely fits that passes all."""
        return self._tests.get(predicate, ())

    def proves(self, facts: Facts) -> bool:
        """Return whether ``facts`` surely conform: all values fit, every literal is well-formed and no term is a blank node."""
        if not self._complete:
            return False
        for subject, said in facts.items():
            for plan in self._plans(frozenset(said), tuple(said.get(TYPE, ()))):
                if plan is None or not plan.fits(said) or not _passes(plan.checks, subject, facts):
                    return False
        return True

    def _planned(self, predicates: frozenset[str], kinds: Sequence[str]) -> Sequence[_ClassConstraints | None]:
        """Return what a thing of some classes is held to; None among it when it surely is not as demanded."""
        if _SUBCLASS in predicates:
            return [None]
        most = [(each, self._most[each]) for each in predicates if each in self._most]
        checks = [check for each in predicates for check in self._by_predicate.get(each, ())]
        demands = [self._by_class[kind].of(predicates) for kind in kinds if kind in self._by_class]
        return [_ClassConstraints(most, (), checks), *demands]

    # -- compiling ----------------------------------------------------------------------------------------------------
    def _aim(self, name: str, shape: Values) -> None:
        """Have the things that a shape is about checked; with one that is about things in a way not known here nothing is proven."""
        targets = [key for key in shape if "#target" in key]
        if not _CLASSES.isdisjoint(shape.get(TYPE, ())):  # a class that is a shape aims at its things
            targets.append("")
        if not targets:
            return
        rules = self._node(name)
        for kind in shape.get(_sh("targetClass"), ()):
            self._by_class.setdefault(kind, _Demands()).add(rules)
        for predicate in shape.get(_sh("targetSubjectsOf"), ()):
            for each in rules:  # what is about the values of a property is looked at where there are any
                if each.predicate and each.test:
                    self._tests.setdefault(each.predicate, []).append(each.test)
                elif each.predicate and each.most is not None:
                    self._most[each.predicate] = min(each.most, self._most.get(each.predicate, each.most))
                elif each.check not in (held := self._by_predicate.setdefault(each.predicate or predicate, [])):
                    held.append(each.check)
        self._complete &= _TARGETS.issuperset(targets)

    def _node(self, name: str) -> list[_Rule]:
        """Compile what a node shape demands of a thing."""
        rules: list[_Rule] = []
        for key, given in self._shapes[name].items():
            if key == _sh("property"):
                rules += [each for inner in given for each in self._property(inner)]
            elif key == _sh("class"):
                rules += [_Rule(None, _typed(kind)) for kind in given]
            elif key == _sh("or"):
                rules += [_Rule(None, self._either(head)) for head in given]
            elif key not in _SAID:
                return [_UNPROVEN]
        return rules

    def _either(self, head: str) -> Check:
        members = [[rule.check for rule in self._node(member)] for member in self._members(head)]
        return lambda subject, facts: any(_passes(checks, subject, facts) for checks in members)

    def _property(self, name: str) -> list[_Rule]:
        """Compile, once, what a property shape demands: of the values of each of its predicates."""
        if name not in self._compiled:
            self._compiled[name] = self._compile(name)
        return self._compiled[name]

    def _compile(self, name: str) -> list[_Rule]:
        shape = self._shapes[name]
        (path,) = shape[_sh("path")]
        if (backwards := self._shapes.get(path, {}).get(_sh("inversePath"))) is not None:
            return self._linked(shape, backwards[0])
        single = path.startswith("<")
        predicates = [path] if single else self._alternatives(path)
        rules = []
        for key, given in shape.items():
            if key in _SAID:
                continue
            if len(given) == 1 and (test := self._value(key, given[0])) is not None:
                rules += [_Rule(each, _all(each, test), test) for each in predicates]
            elif single and (rule := self._whole(key, path, shape)) is not None:
                rules.append(rule)
            else:
                return [_UNPROVEN]
        return rules if predicates else [_UNPROVEN]

    def _linked(self, shape: Values, predicate: str) -> list[_Rule]:
        """Compile that a thing is the value of a predicate; other demands along an inverse path are not known."""
        known = shape.keys() - _SAID == {_sh("minCount")} and _number(shape[_sh("minCount")][0]) == 1
        if not known or not predicate.startswith("<"):
            return [_UNPROVEN]
        return [_Rule(None, lambda subject, facts: any(subject in said.get(predicate, ()) for said in facts.values()))]

    def _alternatives(self, path: str) -> list[str]:
        listed = self._shapes[path].get(_sh("alternativePath"), ())
        members = [each for head in listed for each in self._members(head)]
        return members if all(each.startswith("<") for each in members) else []

    def _members(self, head: str) -> list[str]:
        found = []
        while head != f"<{_RDF}nil>":
            (first,), (head,) = self._shapes[head][f"<{_RDF}first>"], self._shapes[head][f"<{_RDF}rest>"]
            found.append(first)
        return found

    def _value(self, key: str, given: str) -> _Value | None:
        """Compile a constraint of each value alone; None when it is none of those that are known."""
        if key == _sh("in"):
            return frozenset(self._members(given)).__contains__
        if key == _sh("not"):
            listed = self._listed(given)
            return None if listed is None else lambda value: value not in listed
        if key == _sh("datatype"):
            return _of_datatype(given)
        if key == _sh("pattern"):
            return _matching(_text(given))
        if key == _sh("nodeKind"):
            return (lambda value: value[0] == "<") if given == _sh("IRI") else None
        if key == _sh("minInclusive"):
            return _at_least_nothing if given == _NOTHING else None
        return None

    def _listed(self, shape: str) -> frozenset[str] | None:
        """Return the terms of a shape that says nothing but ``sh:in``."""
        said = self._shapes[shape]
        return frozenset(self._members(said[_sh("in")][0])) if said.keys() == {_sh("in")} else None

    def _whole(self, key: str, path: str, shape: Values) -> _Rule | None:
        """Compile a constraint of all values of a predicate together; None when it is none of those that are known."""
        given = shape[key]
        if key == _sh("minCount"):
            least = _number(given[0])
            needs = path if least == 1 else None
            return _Rule(None, lambda subject, facts: len(facts[subject].get(path, ())) >= least, needs=needs)
        if key == _sh("maxCount"):
            most = _number(given[0])
            return _Rule(path, lambda subject, facts: len(facts[subject].get(path, ())) <= most, most=most)
        if key == _sh("class"):
            return _Rule(path, _classed(path, given))
        if key == _sh("lessThanOrEquals"):
            return _Rule(path, _ordered(path, given))
        if key == _sh("qualifiedMaxCount"):
            listed = self._listed(shape[_sh("qualifiedValueShape")][0])
            return None if listed is None else _Rule(path, _few(path, listed, _number(given[0])))
        if key == _sh("qualifiedValueShape") and _sh("qualifiedMaxCount") in shape:
            return _Rule(path, lambda *_: True, most=sys.maxsize)  # reported by the count
        return None


# -- checks ---------------------------------------------------------------------------------------------------------------
def _unproven(_subject: str, _facts: Facts) -> bool:
    return False


_UNPROVEN = _Rule(None, _unproven)


def _all(predicate: str, test: _Value) -> Check:
    return lambda subject, facts: all(map(test, facts[subject].get(predicate, ())))


def _few(predicate: str, listed: frozenset[str], most: int) -> Check:
    def check(subject: str, facts: Facts) -> bool:
        values = facts[subject].get(predicate, ())
        return len(values) <= most or sum(each in listed for each in values) <= most

    return check


def _typed(kind: str) -> Check:
    return lambda subject, facts: kind in facts[subject].get(TYPE, ())


def _classed(predicate: str, kinds: Sequence[str]) -> Check:
    wanted = frozenset(kinds)

    def check(subject: str, facts: Facts) -> bool:
        for value in facts[subject].get(predicate, ()):
            if value not in facts or not wanted.issubset(facts[value].get(TYPE, ())):
                return False
        return True

    return check


def _ordered(predicate: str, others: Sequence[str]) -> Check:
    """Compare moments in UTC, which have the order of their texts."""

    def check(subject: str, facts: Facts) -> bool:
        said = facts[subject]
        first = [_MOMENT.fullmatch(value) for value in said.get(predicate, ())]
        last = [_MOMENT.fullmatch(value) for other in others for value in said.get(other, ())]
        return all(low and high and low[1] <= high[1] for low in first for high in last)

    return check


def _of_datatype(datatype: str) -> _Value:
    if datatype == _XSD_STRING:
        return lambda value: value[0] == '"' == value[-1]
    ending = f'"^^{datatype}'
    return lambda value: value.endswith(ending)


def _at_least_nothing(value: str) -> bool:
    return value[:1] == '"' and value[1:2].isdigit()


def _matching(pattern: str) -> _Value:
    """Search as SHACL does; certain for ASCII only, and a pattern's end is the end of the text."""
    search = re.compile(re.sub(r"\$$", r"\\Z", pattern), re.ASCII).search

    def test(value: str) -> bool:
        text = value[1:-1] if value[0] == "<" else value[1 : value.rfind('"')]
        if "\\" in text:
            if text.count("\\") == text.count('\\"'):  # nothing else is escaped, nearly always
                text = text.replace('\\"', '"')
            elif _QUOTED.fullmatch(text):
                text = _ESCAPED.sub(r"\1", text)
            else:
                return False
        return text.isascii() and search(text) is not None

    return test


def _text(literal: str) -> str:
    """Read a literal of the shapes."""
    return _ESCAPED.sub(r"\1", literal[1 : literal.rfind('"')])


def _number(literal: str) -> int:
    return int(_text(literal))


@cache
def shipped() -> Conformance:
    """Return the shapes of the vocabulary, compiled on first use; immutable, so all threads share them."""
    return Conformance(files("drumlin.ontology").joinpath("shapes.ttl").read_text(encoding="utf-8"))
