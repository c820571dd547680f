"""Lines that a writer sends, made certain: legal statements, in the one form in which the engine will give them back.

The store builds update text from lines and hashes them, so a line that is not canonical would be an injection or a digest
that never matches; and a write is acknowledged before the engine sees it, so what passes here must be what the engine takes. Producers
write canonical lines already; this is the border that makes sure.
"""

from __future__ import annotations

import re
from functools import lru_cache

import pyoxigraph as ox

from drumlin.kg.errors import InvalidDocument
from drumlin.kg.rdf.syntax import Lines

_IRI = r'<[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>"{}|^`\\]*+>'
# Legal for sure, and nearly all are so; the engine is asked about every other one. (RFC 3986, without IP literals in brackets.)
_REST = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]++|%[0-9A-Fa-f]{2})*+"
_MORE = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]++|%[0-9A-Fa-f]{2})*+"
_BEHIND = rf"(?:\?{_MORE})?+(?:#{_MORE})?+"
SURE_HTTP_IRI = rf"https?://[A-Za-z0-9][A-Za-z0-9.-]*+(?::[0-9]{{1,4}})?+(?:/{_REST})?+{_BEHIND}"
"""Matches an http(s) IRI that every parser takes, and leaves as it is where it resolves none (a segment that begins with a dot)."""
_SURE_IRI = rf"<(?:{SURE_HTTP_IRI}|urn:[A-Za-z0-9][A-Za-z0-9-]*+:{_REST}{_BEHIND})>"
_TEXT = r'"(?:[^"\\\x00-\x1f\x7f\ufffe\uffff]|\\[btnfr"\\]|\\u00[01][0-9A-F]|\\u007F|\\uFFF[EF])*+"'
_BLANK = r"_:[A-Za-z0-9]{1,64}"  # as kg.rdf labels them
_LINE = re.compile(rf"(?:{_IRI}|{_BLANK}) {_IRI} (?:{_IRI}|{_BLANK}|({_TEXT}(?:@[A-Za-z0-9-]++|\^\^({_IRI}))?+)) \.")
_TRIPLE_TERM = re.compile(rf"(?:{_IRI}|{_BLANK}) {_IRI} <<\(")
# Literals that stand in the engine's own form for sure; every other one with a type of XML Schema is asked about.
_XSD = "<http://www.w3.org/2001/XMLSchema#"
_CERTAIN = re.compile(
    rf'"(?:0|-?[1-9][0-9]{{0,17}})"\^\^{_XSD}integer>|"(?:true|false)"\^\^{_XSD}boolean>'
    rf'|"(?:0|-?[1-9][0-9]{{0,14}})(?:\.[0-9]{{0,14}}[1-9])?"\^\^{_XSD}decimal>'
    rf'|"[12][0-9]{{3}}-(?:0[1-9]|1[0-2])-(?:0[1-9]|1[0-9]|2[0-8])T(?:[01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9]Z"\^\^{_XSD}dateTime>'
)


_SURE_LITERAL = rf"(?:{_TEXT}(?= )|{_CERTAIN.pattern})"
"""Matches a literal, before a space, that stands in the engine's own form for sure."""
_REMEMBERED = 256  # characters of a term whose form is remembered: a client can send any number of them
# A whole graph at once: nearly all are so, and one search is quicker than one for each line.
_GRAPH = re.compile(rf"(?:{_SURE_IRI} {_SURE_IRI} (?:{_SURE_IRI}|{_SURE_LITERAL}) \.\n)*+")
_IRIS = re.compile(_IRI)
_SHORT = 256  # characters of what is remembered


def surely_canonical(text: str) -> bool:
    """Return whether each line of a text, the last one too, ends in a line feed and surely is a statement in the engine's form."""
    return _GRAPH.fullmatch(text) is not None


def canonical(lines: Lines, graph: str) -> Lines:
    """Return ``lines`` in the engine's form; raises ``InvalidDocument`` for one that cannot be stored in ``graph``."""
    text = "\n".join([*lines, ""])
    if text.count("\n") == len(lines) and surely_canonical(text):
        return lines
    changed: dict[str, str] = {}
    for line in lines:
        match = _LINE.fullmatch(line)
        if match is None:
            raise _refused(line, graph)
        literal, datatype = match[1], match[2]
        for iri in _IRIS.findall(line if literal is None else line[: match.start(1)] + (datatype or "")):
            _make_sure(iri)
        if literal is None or (datatype is None and literal.endswith('"')):
            continue
        if (datatype is None or datatype.startswith(_XSD)) and (form := kept(literal)) != literal:
            changed[line] = f"{line[: match.start(1)]}{form} ."
    return (lines - changed.keys()) | frozenset(changed.values()) if changed else lines


def _refused(line: str, graph: str) -> InvalidDocument:
    if _TRIPLE_TERM.match(line):
        return InvalidDocument(
            f"a statement of {graph} has a triple term (RDF 1.2), and none is stored",
            hint="say it of a node with an IRI of its own, or keep the document as it is: PUT /subgraph/x/…",
        )
    return InvalidDocument(
        f"a statement of {graph} is not a canonical RDF statement",
        hint="check its IRIs, and the labels of its blank nodes",
    )


def _make_sure(iri: str) -> None:
    (_known_to_be_sure if len(iri) <= _REMEMBERED else _check)(iri)


def _check(iri: str) -> None:
    try:
        ox.NamedNode(iri[1:-1])
    except ValueError as error:
        raise InvalidDocument("a statement is not legal RDF: one of its IRIs is malformed") from error


_known_to_be_sure = lru_cache(maxsize=65_536)(_check)


def kept(literal: str) -> str:
    """Return a literal as the engine gives it back (``"0.250"^^xsd:decimal`` comes back as 0.25)."""
    if _CERTAIN.fullmatch(literal):
        return literal
    return _known_form(literal) if len(literal) <= _SHORT else _form(literal)


def _form(literal: str) -> str:
    scratch = ox.Store()
    try:
        scratch.load(f"<x:s> <x:p> {literal} .".encode(), format=ox.RdfFormat.N_TRIPLES)
    except (SyntaxError, ValueError) as error:
        raise InvalidDocument("a literal has a language tag or a datatype that is not legal") from error
    written = (scratch.dump(format=ox.RdfFormat.N_QUADS) or b"").decode()
    return written[len("<x:s> <x:p> ") : -len(" .\n")]


_known_form = lru_cache(maxsize=16_384)(_form)
