"""A caller's JSON-LD document read without a JSON-LD processor, N-Triples without a parser, where both surely come to the same.

Most documents that are sent look like those that are served: they use the terms of our context and nothing else. Reading such a one
takes a tenth of what the processor takes. Whatever is not certain (another context, a keyword, a compact or relative IRI, a float, a
null, a key that may occur twice) is left to the processor, which also tells what is wrong. Likewise N-Triples in canonical form are
lines already; one expression over what each says tells.

JSON-LD 1.1, https://www.w3.org/TR/json-ld11/; canonical N-Triples, https://www.w3.org/TR/n-triples/#canonical-ntriples.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

import msgspec

from kg import inlining, jsonld
from kg.rdf import Lines
from kg.store.lines import SURE_LITERAL, Canonical, kept

_XSD = "http://www.w3.org/2001/XMLSchema#"
_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_NAME = re.compile(r"[A-Za-z][A-Za-z0-9]*")
# What every parser of IRIs takes and leaves as it is: http(s), ASCII, no segment that begins with a dot.
_PART = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/-]++|%[0-9A-Fa-f]{2})*+"
_MORE = r"(?:[A-Za-z0-9._~!$&'()*+,;=:@/?-]++|%[0-9A-Fa-f]{2})*+"
_IRI = re.compile(rf"https?://[A-Za-z0-9][A-Za-z0-9.-]*+(?::[0-9]{{1,4}})?+(?:/{_PART})?+(?:\?{_MORE})?+(?:#{_MORE})?+")
_PATH = re.compile(rf"{_PART}(?:\?{_MORE})?+(?:#{_MORE})?+")
_NODE = rf"<https?://[A-Za-z0-9][A-Za-z0-9.-]*+(?::[0-9]{{1,4}})?+(?:/{_PART})?+(?:\?{_PART})?+(?:#{_PART})?+>"
_SUBJECT = re.compile(_NODE)
_TOLD = re.compile(rf"{_NODE} (?:{_NODE}|{SURE_LITERAL}) \.")
_SHORT = 256  # characters of a statement that is remembered
_LOOSE = (b" :", b"\t:", b"\n:", b"\r:")
_MOST_EXACT = 10**15  # integers below are integers to every reader of JSON

_Writer = Callable[[Any], str | None]


@dataclass(frozen=True, slots=True)
class Term:
    """A term of the context: its predicate, and what writes a value that is no node."""

    predicate: str
    reverse: bool
    write: _Writer

    def told(self, other: str) -> Told | None:
        """Return the statement that a node makes with ``other``; a literal is the subject of none."""
        if not self.reverse:
            return self.predicate, other, f" {self.predicate} {other} ."
        return (self.predicate, other, None) if other[0] == "<" else None


def triples(data: bytes) -> Lines | None:
    """Read N-Triples as lines in the form of the engine, or return None where that is not certain."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not text.endswith("\n"):
        return None
    found = text[:-1].split("\n")
    facts: dict[str, dict[str, list[str]]] = {}
    said: dict[str, list[str]] = {}
    before = ""
    for line in found:
        subject, _, told = line.partition(" ")
        if subject != before:
            if not _SUBJECT.fullmatch(subject):
                return None
            before, said = subject, facts.setdefault(subject, {})
        parted = _known_parts(told) if len(told) <= _SHORT else _parts(told)
        if parted is None:
            return None
        predicate, value = parted
        if predicate in said:
            said[predicate].append(value)
        else:
            said[predicate] = [value]
    return Canonical(found, facts)


def _parts(told: str) -> tuple[str, str] | None:
    """Take apart what a line says of its subject; None when it is not surely in the engine's form."""
    if not _TOLD.fullmatch(told):
        return None
    predicate, _, value = told[:-2].partition(" ")
    return predicate, value


_known_parts = lru_cache(maxsize=16_384)(_parts)  # what graphs say of their things is much the same


def lines(data: bytes) -> Lines | None:
    """Read a document as lines in the form of the engine, or return None where that is not certain."""
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    # No key came twice when it is as long as it was, written anew: nothing but a float gets longer, and none is read here.
    tight = len(msgspec.json.encode(document)) == len(data)
    if document.pop("@context", jsonld.CONTEXT_IRI) != jsonld.CONTEXT_IRI:
        return None
    reading = _Reading()
    if reading.node(document, 1) is None:
        return None
    return Canonical(reading.found, reading.facts, data) if tight or _once(data, reading.keys) else None


def _once(data: bytes, keys: int) -> bool:
    """Tell whether a document of which so many keys were read surely has no more: one may have come twice."""
    if any(map(data.__contains__, _LOOSE)):
        return False
    return data.count(b'":') == keys + data.count(b'"@context":')


class _Reading:
    """One document on its way: the lines found, the same by what they are about, and how many keys were seen."""

    def __init__(self) -> None:
        self.found: list[str] = []
        self.facts: dict[str, dict[str, list[str]]] = {}
        self.keys = 0

    def node(self, document: dict[str, Any], depth: int) -> str | None:
        """Read a node and what is nested in it; returns its IRI, None when something is not certain."""
        subject = _iri(document.get("id"))
        if subject is None or depth > inlining.MAX_DEPTH // 2:
            return None
        self.keys += len(document)
        said = self.facts.setdefault(subject, {}) if len(document) > 1 else {}
        for name, value in document.items():
            if name == "id":
                continue
            values = value if type(value) is list else (value,)
            if not values and name != "type" and term(name) is None:
                return None
            for each in values:
                kind = type(each)
                if kind is dict:
                    told = self._part(name, each, depth)
                elif kind is str or kind is int or kind is bool:
                    told = _known_value(name, each) if kind is not str or len(each) <= _SHORT else statement(name, each)
                else:
                    return None
                if told is None:
                    return None
                predicate, other, behind = told
                if behind is None:
                    self.found.append(f"{other} {predicate} {subject} .")
                    self.facts.setdefault(other, {}).setdefault(predicate, []).append(subject)
                    continue
                self.found.append(f"{subject}{behind}")
                if predicate in said:
                    said[predicate].append(other)
                else:
                    said[predicate] = [other]
        return subject

    def _part(self, name: str, document: dict[str, Any], depth: int) -> Told | None:
        meant = None if name == "type" else term(name)
        other = meant and self.node(document, depth + 1)
        return meant.told(other) if meant and other else None


Told = tuple[str, str, str | None]
"""A statement that a key and its value make of a node: predicate, other end, what stands behind the node (None where it is the value)."""


def statement(name: str, value: Any) -> Told | None:
    """Return the statement that a key makes with a text, number or boolean; None where that is not certain."""
    if name == "type":
        if type(value) is not str or value in _context() or not _is_name(value):
            return None
        kind = f"<{jsonld.NAMESPACE}{value}>"
        return _TYPE, kind, f" {_TYPE} {kind} ."
    meant = term(name)
    other = meant and meant.write(value)
    return meant.told(other) if meant and other else None


_known_value = lru_cache(maxsize=16_384, typed=True)(statement)  # what documents say of their things is much the same


# -- the context ----------------------------------------------------------------------------------------------------------
@cache
def _context() -> dict[str, Any]:
    found: dict[str, Any] = json.loads(jsonld.context_document())["@context"]
    return found


@lru_cache(maxsize=1024)
def term(name: str) -> Term | None:
    """Compile a term, or a name that the context leaves to the vocabulary; None when more is said of it than is understood here."""
    meaning = _context().get(name, {})
    said = meaning if isinstance(meaning, dict) else {}
    predicate = jsonld.predicate(name)
    if not _is_name(name) or (predicate is None and name in _context()):
        return None
    write = _writer(said.get("@type"))
    if write is None or said.get("@container", "@set") != "@set" or not said.keys() <= _UNDERSTOOD:
        return None
    return Term(f"<{predicate or jsonld.NAMESPACE + name}>", "@reverse" in said, write)


_UNDERSTOOD = {"@id", "@type", "@container", "@reverse"}


def _writer(coercion: str | None) -> _Writer | None:
    if coercion == "@id":
        return _iri
    if coercion == "@vocab":
        return _of_vocabulary
    if coercion is None:
        return _plain
    prefix, _, name = coercion.partition(":")
    datatype = f"{_context().get(prefix, '')}{name}"
    return (lambda value: _typed(value, datatype)) if datatype.startswith(_XSD) else None


def _iri(value: Any) -> str | None:
    return f"<{value}>" if type(value) is str and _is_iri(value) else None


def _is_iri(text: str) -> bool:
    return "/." not in text and _IRI.fullmatch(text) is not None


@lru_cache(maxsize=4096)
def is_path(text: str) -> bool:
    """Tell whether an IRI that is read here, without query or fragment, is one with a slash and ``text`` behind it, too."""
    return text[:1] != "." and "/." not in text and _PATH.fullmatch(text) is not None


def _is_name(text: str) -> bool:
    return _NAME.fullmatch(text) is not None and text not in ("id", "type")


def _of_vocabulary(value: Any) -> str | None:
    if type(value) is not str:
        return None
    if ":" in value:
        return _iri(value)
    return f"<{jsonld.NAMESPACE}{value}>" if _is_name(value) and value not in _context() else None


def _plain(value: Any) -> str | None:
    kind = type(value)
    if kind is str:
        return jsonld.literal(value)
    return _typed(value, f"{_XSD}integer" if kind is int else f"{_XSD}boolean") if kind in (int, bool) else None


def _typed(value: Any, datatype: str) -> str | None:
    kind = type(value)
    if kind is str:
        return kept(f"{jsonld.literal(value)}^^<{datatype}>")
    if kind is bool and datatype == f"{_XSD}boolean":
        return f'"{"true" if value else "false"}"^^<{datatype}>'
    if kind is int and datatype == f"{_XSD}integer" and abs(value) < _MOST_EXACT:
        return f'"{value}"^^<{datatype}>'
    return None
