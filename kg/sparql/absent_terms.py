"""Explains an empty answer: the IRIs of a query that occur nowhere in the graph, and the labels that are not kept. Pure.

A misspelt property or class is no error of SPARQL: the query finds nothing, and says nothing of it. Nor does it find a label that the
settings do not keep.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from difflib import get_close_matches

from drumlin.kg.errors import QueryRejected
from drumlin.kg.sparql.lexer import Token, tokens
from drumlin.ontology.vocabulary import CLASSES, CONCEPTS, NAMESPACE, PROPERTIES

MAX_TERMS = 50
"""IRIs of one query that are looked up."""
_OF_OURS = CLASSES | PROPERTIES | CONCEPTS
_WRITTEN = {name.lower(): name for name in sorted(_OF_OURS)}
_LABEL = re.compile(r"([A-Za-z0-9](?:[A-Za-z0-9._/-]{0,251}[A-Za-z0-9])?)=")  # key=value, as the graph writes labels
_BUILT_IN = ("http://www.w3.org/2001/XMLSchema#", "http://www.w3.org/2005/xpath-functions")


@dataclass(frozen=True, slots=True)
class AbsentTerm:
    """An IRI that occurs nowhere: as the query writes it, the IRI itself, and what may have been meant in the query's own spelling."""

    written: str
    iri: str
    suggestion: str | None

    @property
    def detail(self) -> str:
        """Say it in a sentence."""
        meant = f"; did you mean {self.suggestion}?" if self.suggestion else ""
        return f"{self.written} occurs nowhere in the graph{meant}"


@dataclass(frozen=True, slots=True)
class UnkeptLabel:
    """A label that a query asks for and the settings do not keep, so that nothing in the graph bears it."""

    written: str
    key: str

    @property
    def detail(self) -> str:
        """Say it in a sentence."""
        return (
            f"{self.written}: labels with the key {self.key} are not kept, so nothing bears one; "
            f"add it to the setting labels to keep them"
        )


def unkept_labels(texts: Iterable[str], keeps: Callable[[str], bool]) -> list[UnkeptLabel]:
    """Return the labels among ``texts`` (``tier=web``, or ``tier=`` as the beginning of one) whose key is not kept, each key once."""
    found: dict[str, UnkeptLabel] = {}
    for text in texts:
        if (match := _LABEL.match(text)) and not keeps(match[1]):
            found.setdefault(match[1], UnkeptLabel(text[:100], match[1]))
    return list(found.values())


def asked_labels(query: str) -> list[str]:
    """Return the strings of a query that asks for ``:label``, where its labels are; [] for any other."""
    try:
        read = list(tokens(query))
        names = {iri for _, iri in _named(read)}
    except QueryRejected:
        return []
    if f"{NAMESPACE}label" not in names:
        return []
    return [each.text.strip("\"'") for each in read if each.kind == "string"]


def absent_terms(query: str, occurs: Callable[[str], bool]) -> list[AbsentTerm]:
    """Return the IRIs of a query for which ``occurs`` is false, in the order of the query; [] for a text that is no query.

    Only terms of patterns are looked up: datatypes and functions are part of the language.
    """
    try:
        named = list(_named(tokens(query)))
    except QueryRejected:
        return []
    found: dict[str, AbsentTerm] = {}
    for written, iri in named[:MAX_TERMS]:
        if iri not in found and not iri.startswith(_BUILT_IN) and not occurs(iri):
            found[iri] = AbsentTerm(written, iri, _suggestion(written, iri))
    return list(found.values())


def _named(found: Iterable[Token]) -> Iterator[tuple[str, str]]:
    """Yield each IRI of a query as it is written and in full; names of prefixes that are not declared are left out."""
    prefixes: dict[str, str] = {}
    declared: str | None = None
    datatype = False
    previous = ""
    for token in found:
        if token.kind == "name" and previous == "PREFIX":
            declared = token.text.removesuffix(":")
        elif token.kind == "iri" and declared is not None:
            prefixes[declared], declared = token.text[1:-1], None
        elif token.kind == "iri" and previous != "BASE" and not datatype and ":" in token.text:
            yield token.text, token.text[1:-1]
        elif token.kind == "name" and not datatype:
            prefix, _, local = token.text.partition(":")
            if prefix in prefixes:
                yield token.text, prefixes[prefix] + local
        datatype = token.text == "^^"
        previous = token.text if token.kind == "word" else ""


def _suggestion(written: str, iri: str) -> str | None:
    """Return the term of the ontology that is nearest, written as the query writes the absent one."""
    if not iri.startswith(NAMESPACE):
        return None
    name = iri.removeprefix(NAMESPACE)
    if name in _OF_OURS:
        return None  # it is right, and nothing has it
    close = get_close_matches(name[:64].lower(), _WRITTEN, n=1)
    if not close:
        return None
    return written.replace(name, _WRITTEN[close[0]]) if name in written else _WRITTEN[close[0]]
