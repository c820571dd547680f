"""Lines that a writer sends, made certain: legal statements, in the one form in which the engine will give them back.

The store builds update text from lines and hashes them, so a line that is not canonical would be an injection or a digest
that never matches; and a write is acknowledged before the engine sees it, so what passes here must be what the engine takes. Producers
write canonical lines already; this is the border that makes sure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import lru_cache
from typing import Self

import pyoxigraph as ox

from kg.errors import InvalidDocument
from kg.rdf import Facts
from kg.store.protocol import Lines

_IRI = r'<[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|^`\\]*+>'
# Legal for sure, and nearly all are so; the engine is asked about every other one. (RFC 3986, without IP literals in brackets.)
_REST = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]++|%[0-9A-Fa-f]{2})*+"
_MORE = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]++|%[0-9A-Fa-f]{2})*+"
_SURE_IRI = (
    rf"<(?:https?://[A-Za-z0-9.-]++(?::[0-9]{{1,5}})?+(?:/{_REST})?+|urn:[A-Za-z0-9][A-Za-z0-9-]*+:{_REST})"
    rf"(?:\?{_MORE})?+(?:#{_MORE})?+>"
)
_TEXT = r'"(?:[^"\\\x00-\x1f\x7f\ufffe\uffff]|\\[btnfr"\\]|\\u00[01][0-9A-F]|\\u007F|\\uFFF[EF])*+"'
_BLANK = r"_:[A-Za-z0-9]{1,64}"  # as kg.rdf labels them
_LINE = re.compile(rf"(?:{_IRI}|{_BLANK}) {_IRI} (?:{_IRI}|{_BLANK}|({_TEXT}(?:@[A-Za-z0-9-]++|\^\^({_IRI}))?+)) \.")
# Literals that stand in the engine's own form for sure; every other one with a type of XML Schema is asked about.
_XSD = "<http://www.w3.org/2001/XMLSchema#"
_CERTAIN = re.compile(
    rf'"(?:0|-?[1-9][0-9]{{0,17}})"\^\^{_XSD}integer>|"(?:true|false)"\^\^{_XSD}boolean>'
    rf'|"(?:0|-?[1-9][0-9]{{0,14}})(?:\.[0-9]{{0,14}}[1-9])?"\^\^{_XSD}decimal>'
    rf'|"[12][0-9]{{3}}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z"\^\^{_XSD}dateTime>'
)


SURE_LITERAL = rf"(?:{_TEXT}(?= )|{_CERTAIN.pattern})"
"""Matches a literal, before a space, that stands in the engine's own form for sure."""
# A whole graph at once: nearly all are so, and one search is quicker than one for each line.
_GRAPH = re.compile(rf"(?:{_SURE_IRI} {_SURE_IRI} (?:{_SURE_IRI}|{SURE_LITERAL}) \.\n)*+")
_IRIS = re.compile(_IRI)


class Canonical(frozenset[str]):
    """Lines in the engine's form for sure, without blank nodes: who has just read them need not have them looked at again."""

    __slots__ = ("_facts", "_source")
    _facts: Facts | None
    _source: bytes

    def __new__(cls, lines: Iterable[str], facts: Facts | None = None, source: bytes = b"") -> Self:
        """Take lines, and where the reader has that what they say, and the document that it read."""
        made = super().__new__(cls, lines)
        made._facts, made._source = facts, source
        return made

    def take_facts(self) -> Facts | None:
        """Return what was read along with the lines, once: it is not kept as long as they are."""
        facts, self._facts = self._facts, None
        return facts

    def take_source(self) -> bytes:
        """Return the document that was read, once; empty when it was none."""
        source, self._source = self._source, b""
        return source


def canonical(lines: Lines, graph: str) -> Lines:
    """Return ``lines`` in the engine's form; raises ``InvalidDocument`` for one that cannot be stored in ``graph``."""
    if isinstance(lines, Canonical):
        lines.take_facts()  # who has not looked at them by now will not
        lines.take_source()
        return lines
    text = "\n".join([*lines, ""])
    if text.count("\n") == len(lines) and _GRAPH.fullmatch(text):
        return lines
    changed: dict[str, str] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise InvalidDocument(
                f"a statement of {graph} is not a canonical RDF statement",
                hint="check its IRIs, and the labels of its blank nodes",
            )
        literal, datatype = match[1], match[2]
        for iri in _IRIS.findall(line if literal is None else line[: match.start(1)] + (datatype or "")):
            _make_sure(iri)
        if literal is None or (datatype is None and literal.endswith('"')):
            continue
        if (datatype is None or datatype.startswith(_XSD)) and (form := kept(literal)) != literal:
            changed[line] = f"{line[: match.start(1)]}{form} ."
    return (lines - changed.keys()) | frozenset(changed.values()) if changed else lines


@lru_cache(maxsize=65_536)
def _make_sure(iri: str) -> None:
    try:
        ox.NamedNode(iri[1:-1])
    except ValueError as error:
        raise InvalidDocument("a statement is not legal RDF: one of its IRIs is malformed") from error


def kept(literal: str) -> str:
    """Return a literal as the engine gives it back (``"0.250"^^xsd:decimal`` comes back as 0.25)."""
    return literal if _CERTAIN.fullmatch(literal) else _as_kept(literal)


@lru_cache(maxsize=65_536)
def _as_kept(literal: str) -> str:
    scratch = ox.Store()
    try:
        scratch.load(f"<x:s> <x:p> {literal} .".encode(), format=ox.RdfFormat.N_TRIPLES)
    except (SyntaxError, ValueError) as error:
        raise InvalidDocument("a literal has a language tag or a datatype that is not legal") from error
    written = (scratch.dump(format=ox.RdfFormat.N_QUADS) or b"").decode()
    return written[len("<x:s> <x:p> ") : -len(" .\n")]
