"""Documents of a form that was proven before: only their texts and numbers are looked at.

Exporters send thousands of documents that have the same keys in the same places and differ in what stands there. The first ones are read
(``kg.documents``) and validated (``kg.validation``); then what holds for all documents of their form is known, and of the next one it
is enough to judge each value, most of which were met before. What decides about more than itself (a class, a signal) belongs to the form.

A form is sure or it is none: strings with escapes other than of quotes, what is not printable, a value that is not sure to fit, another
order of keys leave a document to those who read it whole. Where a document is taken apart as text, the text is known to be JSON: it is one
that was read, but for what stands between quotes, and digits.

A form that is met often becomes one regular expression (``_Pattern``), which does the same in less time, but takes long to be made.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from operator import itemgetter
from typing import Any, NamedTuple

import msgspec

from kg import documents
from kg.conformance import TYPE, UNKNOWN, Check, shipped
from kg.iris import Iris
from kg.rdf import Lines, Values, text_of
from kg.validation import left_to_check, test_of

_ROOM = 8 << 20
"""Bytes of the documents that were taken note of, after which it begins anew."""
_ALIKE = 16
"""Documents of one skeleton that are made forms, or found not to be sure."""
_LONGEST = 32 << 10  # bytes of a document that is taken note of
_SHORT = 256  # characters of a value that is remembered
_DIGITS = 15  # of a number that every reader of JSON takes for the same
_QUOTE = "\0"  # stands for an escaped quote: no JSON text holds it
_OFTEN = 256
"""Documents of a form after which a pattern is made of it: that takes as long as it spares in 300 of them."""
_PATTERNS = 4  # that are tried with each document, whatever it is
_MANY = 100  # strings of a document from which a pattern takes 10 ms and more to be made, under Python's lock, and spares little
_STRING = r'"([^"\\\0-\x1f]*+(?:\\"[^"\\\0-\x1f]*+)*+)"'
_WHOLE = rf"(0|[1-9][0-9]{{0,{_DIGITS - 1}}})"


class _Slot:
    """A place for values: by its key, and the classes of the thing, it is settled what they mean and which fit."""

    __slots__ = ("_fits", "_key", "_number")

    def __init__(self, key: str, predicate: str, kinds: Sequence[str], *, number: bool) -> None:
        self._key, self._number = key, number
        self._fits = test_of(predicate, kinds)

    def judge(self, text: str) -> str | None:
        """Return what a value says of its thing, as it stands in a line behind that; None when that is not sure to fit."""
        text = text.replace(_QUOTE, '"').replace('\\"', '"')
        if not text.isprintable():
            return None
        said = documents.statement(self._key, int(text) if self._number else text)
        return said[2] if said and self._fits(said[1]) else None


_slot = lru_cache(maxsize=4096)(_Slot)


def _judge(slot: _Slot, text: str) -> str | None:
    return slot.judge(text)


_judge_known = lru_cache(maxsize=16_384)(_judge)  # what documents say of their things is much the same


class _Parts(NamedTuple):
    """A document taken apart at its quotes: its ``skeleton`` is what stands between strings, without digits."""

    skeleton: bytes
    strings: Sequence[str]
    between: Sequence[str]
    digits: int


def _parted(text: str) -> _Parts | None:
    if _QUOTE in text:
        return None
    if "\\" in text:
        text = text.replace('\\"', _QUOTE)
        if "\\" in text:
            return None
    parts = text.split('"')
    if len(parts) % 2 == 0:
        return None  # a string does not end
    between = '"'.join(parts[::2]).encode()
    skeleton = between.translate(None, b"0123456789")
    return _Parts(skeleton, parts[1::2], parts[::2], len(between) - len(skeleton))


def _decoded(data: bytes) -> str | None:
    """Return a document that is not too long to be taken note of."""
    try:
        return data.decode() if len(data) <= _LONGEST else None
    except UnicodeDecodeError:
        return None


_DIGITS_AMID = re.compile(r"([0-9]+)")


class _Number(NamedTuple):
    """A number that stands between strings: what comes before and after it there, and how many digits it had."""

    place: int
    before: str
    after: str
    length: int

    def text(self, between: Sequence[str]) -> str:
        """Return the digits of the number; empty when there is none that JSON can have."""
        part = between[self.place]
        digits = part[len(self.before) : len(part) - len(self.after)]
        whole = len(digits) <= _DIGITS and digits.isdecimal() and (digits[0] != "0" or digits == "0")
        return digits if whole and part == f"{self.before}{digits}{self.after}" else ""


class _Link(NamedTuple):
    """A statement between two things, by their numbers; what it says must fit."""

    subject: int
    between: str
    value: int
    tests: Sequence[Callable[[str], bool]]


@dataclass(slots=True)
class _Form:
    """What documents have in common with the one that has ``parts``, by the places of their strings and the numbers of their things."""

    parts: _Parts
    ids: list[int] = field(default_factory=list)
    constants: list[tuple[int, str]] = field(default_factory=list)
    links: list[_Link] = field(default_factory=list)
    checks: list[tuple[int, Check]] = field(default_factory=list)
    places: list[int] = field(default_factory=list)
    numbers: list[_Number] = field(default_factory=list)
    slots: list[_Slot] = field(default_factory=list)  # those for strings, then those for numbers
    owners: list[int] = field(default_factory=list)  # the things that they are about
    taken: Callable[[Sequence[str]], tuple[str, ...]] = tuple  # takes the strings that are the same in all documents
    same: tuple[str, ...] = ()
    uses: int = 0
    crowded: bool = False  # two statements of a thing have the same predicate, so they may be the same

    def is_like(self, other: _Form) -> bool:
        """Tell whether the same documents of one skeleton are of this form and of another one."""
        return self.same == other.same and self.places == other.places

    def text(self, parts: _Parts, graph: str) -> str | None:
        """Return the text of the graph that a document of the same skeleton is; None when that is not certain."""
        strings = parts.strings
        if self.taken(strings) != self.same:
            return None
        values = [strings[place] for place in self.places]
        if parts.digits:
            numbers = [each.text(parts.between) for each in self.numbers]
            if not all(numbers) or sum(map(len, numbers)) != parts.digits:
                return None
            values += numbers
        return self.told([strings[place] for place in self.ids], values, graph)

    def told(self, ids: Sequence[str], values: Sequence[str], graph: str) -> str | None:
        """Return the text of a graph with these things and values, escaped quotes in them or ``_QUOTE``; None when that is not certain."""
        below = f"{graph}/"
        if ids[0] != graph or "/." in graph:
            return None
        for each in ids[1:]:
            if not each.startswith(below) or not documents.is_path(each[len(below) :]):
                return None
        judge = _judge_known if not values or len(max(values, key=len)) <= _SHORT else _judge
        told = [said for said in map(judge, self.slots, values) if said]
        if len(told) < len(self.slots):
            return None
        subjects = [f"<{each}>" for each in ids]
        lines = [subjects[owner] + each for owner, each in zip(self.owners, told, strict=True)]
        lines += [subjects[owner] + each for owner, each in self.constants]
        for subject, between, number, tests in self.links:
            value = subjects[number]
            for test in tests:
                if not test(value):
                    return None
            lines.append(f"{subjects[subject]}{between}{value} .")
        if len(set(ids)) < len(ids) or (self.crowded and len(set(lines)) < len(lines)):
            return None
        for subject, check in self.checks:
            if not check(subjects[subject], {subjects[subject]: _said_of(subjects[subject], lines)}):
                return None
        lines.sort()
        return "\n".join(lines)


def _said_of(subject: str, lines: Sequence[str]) -> Values:
    found: dict[str, list[str]] = {}
    for line in lines:
        about, predicate, value = line.split(" ", 2)
        if about == subject:
            found.setdefault(predicate, []).append(value[:-2])
    return found


class _Pattern:
    """A form as a regular expression: what takes a document apart in one go, but takes long to be made."""

    __slots__ = ("_form", "_ids", "_match", "_values")

    def __init__(self, form: _Form) -> None:
        numbers = {each.place: each for each in form.numbers}
        groups: dict[tuple[int, bool], int] = {}  # by the place of a string (True), or of what stands before it
        free = {*form.ids, *form.places}
        pieces: list[str] = []
        for place, between in enumerate(form.parts.between):
            if number := numbers.get(place):
                groups[place, False] = len(groups)
                pieces += re.escape(number.before), _WHOLE, re.escape(number.after)
            else:
                pieces.append(re.escape(between))
            if place in free:
                groups[place, True] = len(groups)
                pieces.append(_STRING)
            elif place < len(form.parts.strings):
                pieces.append(re.escape('"' + form.parts.strings[place].replace(_QUOTE, '\\"') + '"'))
        self._form = form
        self._match = re.compile("".join(pieces)).fullmatch
        self._ids = [groups[place, True] for place in form.ids]
        self._values = [groups[place, True] for place in form.places]
        self._values += [groups[each.place, False] for each in form.numbers]

    def text(self, document: str, graph: str) -> str | None:
        """Return the text of the graph that a document is; None when that is not certain."""
        found = self._match(document)
        if found is None:
            return None
        groups = found.groups()
        return self._form.told([groups[each] for each in self._ids], [groups[each] for each in self._values], graph)


class _Unsure(Exception):
    """A document is not made a form."""


class _Reading:
    """A document, which was read and validated, on its way to a form."""

    def __init__(self, parts: _Parts) -> None:
        self._parts = parts
        self._form = _Form(parts)
        self._fixed: dict[int, str] = {}
        self._facts: dict[str, dict[str, list[str]]] = {}
        self._at = -1  # the place of the string that was read last
        self._things: list[str] = []
        self._of_numbers: list[tuple[int, _Slot]] = []

    def form(self, document: dict[str, Any]) -> _Form:
        """Return the form of a document that has these parts; raises ``_Unsure``."""
        self._node(document)
        form, things = self._form, self._things
        if self._at + 1 < len(self._parts.strings) or sum(each.length for each in form.numbers) != self._parts.digits:
            raise _Unsure
        left = left_to_check(self._facts, things[0])
        if left is None or len(set(things)) < len(things):
            raise _Unsure
        form.crowded = any(len(values) > 1 for said in self._facts.values() for values in said.values())
        form.checks = [(things.index(subject), check) for subject, check in left]
        form.owners += [owner for owner, _ in self._of_numbers]
        form.slots += [slot for _, slot in self._of_numbers]
        form.taken, form.same = itemgetter(*self._fixed), tuple(self._fixed.values())
        return form

    def _node(self, document: dict[str, Any]) -> int:
        number = len(self._things)
        self._things.append(f"<{document.get('id')}>")
        self._form.ids.append(0)
        kinds = self._kinds(document)
        for key, value in document.items():
            self._fix(key)
            if key == "id":
                self._form.ids[number] = self._string(value)
            elif key == "@context":
                self._fix(value)
            else:
                for each in value if type(value) is list else (value,):
                    self._member(number, key, each, kinds)
        return number

    def _kinds(self, document: dict[str, Any]) -> tuple[str, ...]:
        given = document.get("type", [])
        return tuple(_said("type", each)[1] for each in (given if type(given) is list else [given]))

    def _member(self, number: int, key: str, value: Any, kinds: tuple[str, ...]) -> None:
        if type(value) is dict:
            self._part(number, key, value, kinds)
            return
        predicate, other, behind = _said(key, value)
        slot = None
        if type(value) is int:
            slot = _slot(key, predicate, kinds, number=True)
            self._of_numbers.append((number, slot))
            self._form.numbers.append(self._number(value))
        elif type(value) is str:
            place = self._string(value)
            if predicate == TYPE or predicate in shipped().deciding:
                self._fixed[place] = self._parts.strings[place]
            else:
                slot = _slot(key, predicate, kinds, number=False)
                self._form.places.append(place)
                self._form.owners.append(number)
                self._form.slots.append(slot)
        if slot is None:
            self._form.constants.append((number, behind))
        self._state(number, predicate, other if slot is None else f"{UNKNOWN}{self._at} {len(self._of_numbers)}")

    def _part(self, number: int, key: str, document: dict[str, Any], kinds: tuple[str, ...]) -> None:
        term = None if key == "type" else documents.term(key)
        if term is None:
            raise _Unsure
        subject, value = number, self._node(document)
        if term.reverse:
            subject, value, kinds = value, subject, self._kinds(document)
        tests = shipped().tests(term.predicate, kinds)
        self._form.links.append(_Link(subject, f" {term.predicate} ", value, tests))
        self._state(subject, term.predicate, self._things[value])

    def _state(self, number: int, predicate: str, value: str) -> None:
        self._facts.setdefault(self._things[number], {}).setdefault(predicate, []).append(value)

    def _fix(self, text: Any) -> None:
        place = self._string(text)
        self._fixed[place] = self._parts.strings[place]

    def _string(self, text: Any) -> int:
        """Go on to the next string, which must be this one; returns its place."""
        self._at += 1
        if self._at >= len(self._parts.strings) or self._parts.strings[self._at].replace(_QUOTE, '"') != text:
            raise _Unsure
        return self._at

    def _number(self, value: int) -> _Number:
        """Return where a number stands, after the string that was read last."""
        before, digits, after = (*_DIGITS_AMID.split(self._parts.between[self._at + 1]), "", "")[:3]
        number = _Number(self._at + 1, before, after, len(digits))
        if number.text(self._parts.between) != str(value):
            raise _Unsure
        return number


def _said(key: str, value: Any) -> tuple[str, str, str]:
    said = documents.statement(key, value)
    if said is None or said[2] is None:
        raise _Unsure
    return said[0], said[1], said[2]


class _Alike:
    """The forms of one skeleton, and how many documents of it were to be made one."""

    __slots__ = ("forms", "tried")

    def __init__(self) -> None:
        self.forms: list[_Form] = []
        self.tried = 0


class Forms:
    """The forms that are known, for the names of ``iris``; any thread may ask."""

    def __init__(self, iris: Iris) -> None:
        self._iris = iris
        self._known: dict[bytes, _Alike] = {}  # by skeletons, those that were seen once among them
        self._held = 0
        self._patterns: tuple[_Pattern, ...] = ()

    def text(self, data: bytes, graph: str) -> str | None:
        """Return the text (``kg.rdf.text_of``) of the graph that a document surely is, which is valid; None when it is to be read whole."""
        text = _decoded(data)
        if text is None or not self._iris.is_entity(graph):
            return None
        for pattern in self._patterns:
            if (said := pattern.text(text, graph)) is not None:
                return said
        parts = _parted(text)
        known = self._known.get(parts.skeleton) if parts else None
        if parts and known:
            for form in known.forms:
                if (said := form.text(parts, graph)) is not None:
                    form.uses += 1
                    if form.uses % _OFTEN == 0 and len(parts.strings) < _MANY:
                        self._patterns = (_Pattern(form), *self._patterns[: _PATTERNS - 1])
                    return said
        return None

    def learn(self, data: bytes, graph: str, lines: Lines) -> None:
        """Take note of a document that was read whole, as ``lines``, and is valid; the second one of a skeleton is made a form."""
        text = _decoded(data)
        parts = _parted(text) if text else None
        known = self._known.get(parts.skeleton) if parts else None
        if parts is None or (known and known.tried >= _ALIKE):
            return
        self._held += len(data)
        if self._held > _ROOM:
            self._held = 0
            self._known.clear()
        if known is None:
            self._known[parts.skeleton] = _Alike()
            return
        known.tried += 1
        try:
            form = _Reading(parts).form(msgspec.json.decode(data))
        except _Unsure:
            return
        if form.text(parts, graph) == text_of(lines) and not any(form.is_like(each) for each in known.forms):
            known.forms.append(form)
