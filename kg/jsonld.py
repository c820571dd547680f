"""JSON-LD of the project's one context: our own documents as lines, and graphs written readably.

The context is data (``ontology/context.jsonld``), compiled here once. Two ways lead through it:

* ``lines`` turns a *node document* of our own renderers into canonical lines without a JSON-LD processor (they use only
  the context's terms), several times faster than parsing; tests hold it equal to the engine and to pyld.
* ``compact`` writes lines as the nested document that the contract shows.

Terms: JSON-LD 1.1, https://www.w3.org/TR/json-ld11/.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache, partial
from importlib.resources import files
from json.encoder import encode_basestring
from typing import Any

import msgspec

from kg.errors import InvalidDocument
from kg.rdf import Lines, Term, in_order, unescape

NodeDocument = Mapping[str, Any]
"""A JSON-LD object that uses the terms of the context; a value is a string, number, bool, node document or a list."""

CONTEXT_IRI = "https://w3id.org/drumlin/context/v1.jsonld"
NAMESPACE = "https://w3id.org/drumlin/ns#"

_RDF_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_TYPED = f"{_RDF_TYPE} <"
_XSD = "http://www.w3.org/2001/XMLSchema#"


_Fact = tuple[str, str]
"""What a statement says that leads to no other node: the term (``type`` for a class), and its value as JSON."""
_Content = dict[str, str | list[str]]
"""What a node says by its terms: one value or several, as JSON."""
_DEEPEST = 14  # nodes within one another, since 32 levels of JSON are read (kg.inlining); a part beyond that is listed by itself
_SHORT = 256  # characters of a statement that is remembered: labels and states, and no annotation


@dataclass(frozen=True, slots=True)
class _Key:
    """One term of the context: its predicate and how its values are read."""

    predicate: str
    coercion: str | None = None  # "@id", "@vocab", a datatype IRI or None
    is_set: bool = False
    reverse: bool = False
    order: int = 0


class _Context:
    def __init__(self, document: Mapping[str, Any]) -> None:
        self.document = document
        self.vocab: str = document["@vocab"]
        self.prefixes = {key: value for key, value in document.items() if isinstance(value, str) and value[-1:] in "#/"}
        self.keys: dict[str, _Key] = {}
        for order, (term, meaning) in enumerate(document.items()):
            if term.startswith("@") or term in self.prefixes or meaning in ("@id", "@type"):
                continue
            self.keys[term] = self._key(term, {"@id": meaning} if isinstance(meaning, str) else meaning, order)
        self.terms_by_predicate: dict[tuple[str, bool], list[tuple[str, _Key]]] = {}
        for term, key in self.keys.items():
            self.terms_by_predicate.setdefault((key.predicate, key.reverse), []).append((term, key))
        self.sets = frozenset(term for term, key in self.keys.items() if key.is_set)
        self.reversed = frozenset(f"<{key.predicate}>" for key in self.keys.values() if key.reverse)
        # The same few names again and again, in every graph that is written.
        self.compact_iri = lru_cache(4096)(self._compact_iri)
        self.vocabulary_name = lru_cache(4096)(self._vocabulary_name)
        self.literal = lru_cache(4096)(self._literal)
        self.link = lru_cache(4096)(self._term)
        self.fact = lru_cache(16_384)(self.read_fact)
        self._known_order = lru_cache(1024)(self._ordered)

    def _key(self, term: str, meaning: Mapping[str, Any], order: int) -> _Key:
        reverse = "@reverse" in meaning
        predicate = self.expand(meaning.get("@reverse") or meaning.get("@id") or term)
        coercion = meaning.get("@type")
        if coercion is not None and not coercion.startswith("@"):
            coercion = self.expand(coercion)
        return _Key(predicate, coercion, meaning.get("@container") == "@set", reverse, order)

    def expand(self, name: str) -> str:
        """Expand a compact IRI or a vocabulary-relative name."""
        prefix, colon, local = name.partition(":")
        if colon:
            return self.prefixes[prefix] + local if prefix in self.prefixes else name
        return self.vocab + name

    def key(self, term: str) -> _Key:
        """Return a term's meaning; a name that is not a term is relative to the vocabulary."""
        return self.keys.get(term) or _Key(self.expand(term))

    def _term(self, predicate: str) -> tuple[str, str | None]:
        """Return the term that a predicate (``<…>``) is written as, and what it takes its values for."""
        name = predicate[1:-1]
        for term, key in self.terms_by_predicate.get((name, False), ()):
            return term, key.coercion
        return self.compact_iri(name) if name.startswith(self.vocab) else name, None

    def _literal(self, predicate: str, suffix: str) -> tuple[str, Callable[[str], Any]]:
        """Return the term that a predicate is written as, and what makes a JSON value of the text of literals that end so."""
        term, coercion = self._term(predicate)
        if suffix[:1] == "@":
            return term, partial(_object, "@language", suffix[1:])
        datatype = suffix[3:-1] or _XSD + "string"
        if coercion is None and datatype == _XSD + "string":
            return term, str
        if coercion is None or coercion != datatype:
            return term, partial(_object, "@type", datatype)
        return term, _NATIVE.get(datatype, str)

    def read_fact(self, said: str) -> _Fact:
        """Read what a line says of its subject, where that is a literal or a class."""
        predicate, _, value = said[:-2].partition(" ")
        if value[0] != '"':
            return "type", f'"{self.compact_iri(value[1:-1])}"'
        end = value.rfind('"')
        term, read = self.literal(predicate, value[end + 1 :])
        text = value[1:end]
        return term, _json(read(unescape(text) if "\\" in text else text))

    def order(self, terms: Iterable[str]) -> Sequence[tuple[str, str, bool]]:
        """Put terms into the context's order, names first among those that it does not have.

        Returns each with the text that begins its member of an object, and whether its values are a list even when there is one.
        """
        given = tuple(terms)
        return self._known_order(given) if len(given) <= _USUAL else self._ordered(given)

    def _ordered(self, terms: tuple[str, ...]) -> Sequence[tuple[str, str, bool]]:
        ordered = sorted(terms, key=lambda term: (term != "type", self.key(term).order, term != "name", term))
        return [(term, f"{_json(term)}:", term in self.sets) for term in ordered]

    def _vocabulary_name(self, iri: str) -> str:
        """Write the value of a term of type ``@vocab``: without the vocabulary's IRI where that means the same."""
        short = self.compact_iri(iri)
        return short if self.expand(short) == iri and ":" not in short else iri

    def _compact_iri(self, iri: str) -> str:
        """Write a predicate or class as shortly as the context allows without changing its meaning."""
        if iri.startswith(self.vocab):
            local = iri[len(self.vocab) :]
            taken = self.keys.get(local)
            if local and (taken is None or taken.predicate == iri) and local not in self.prefixes and ":" not in local:
                return local
        for prefix, namespace in self.prefixes.items():
            if iri.startswith(namespace) and not iri[len(namespace) :].startswith("//"):
                return f"{prefix}:{iri[len(namespace) :]}"
        return iri


@cache
def _context() -> _Context:
    return _Context(json.loads(files("ontology").joinpath("context.jsonld").read_bytes())["@context"])


def context_document() -> bytes:
    """Return the context as it is served at its IRI."""
    return files("ontology").joinpath("context.jsonld").read_bytes()


def predicate(term: str) -> str | None:
    """Return the predicate that a term of the context stands for, or None when it is no term."""
    key = _context().keys.get(term)
    return key.predicate if key else None


# -- our own documents → lines --------------------------------------------------------------------------------------------


def lines(document: NodeDocument) -> Lines:
    """Turn a node document of our renderers, with all that is nested in it, into canonical lines.

    Absent keys are absent statements; ``None`` is not allowed (``TypeError``), a renderer leaves the key out. An IRI that is
    not one raises ``InvalidDocument``: text from a manifest must not be able to end the statement it stands in.
    """
    found: list[str] = []
    _node(document, found)
    return frozenset(found)


def _node(document: NodeDocument, found: list[str]) -> str:
    subject = _iri(document["id"], "id")
    for term, value in document.items():
        if term in ("id", "@context"):
            continue
        plan = _plan(term)
        for each in value if isinstance(value, list | tuple) else (value,):
            other = plan.write(each) if type(each) is str or not isinstance(each, Mapping) else _node(each, found)
            if plan.reverse:
                found.append(f"{other}{plan.predicate}{subject} .")
            else:
                found.append(f"{subject}{plan.predicate}{other} .")
    return subject


@dataclass(frozen=True, slots=True)
class _Plan:
    """How the statements of one term are written, settled once: the text between the two ends, and what writes a value."""

    predicate: str
    reverse: bool
    write: Callable[[Any], str]


@lru_cache(maxsize=1024)  # a term that is none of the context's may be any word
def _plan(term: str) -> _Plan:
    context = _context()
    if term == "type":
        return _Plan(f" {_RDF_TYPE} ", reverse=False, write=cache(lambda kind: f"<{context.expand(kind)}>"))
    key = context.key(term)
    return _Plan(f" <{key.predicate}> ", key.reverse, _writer(key, context))


def _writer(key: _Key, context: _Context) -> Callable[[Any], str]:
    """Return what writes a value of ``key`` that is no node document; the same words and IRIs come again and again."""
    if key.coercion == "@id":
        return lru_cache(maxsize=4096)(partial(_iri, term=key.predicate))
    if key.coercion == "@vocab":

        @lru_cache(maxsize=1024)
        def word(value: str) -> str:
            meaning = context.keys.get(value)
            return _iri(meaning.predicate if meaning else context.expand(value), key.predicate)

        return word
    return partial(_scalar, f"^^<{key.coercion}>" if key.coercion else "")


def _scalar(typed: str, value: Any) -> str:
    """Write a literal; ``typed`` is its datatype as it stands behind the quotes, empty for the one that JSON's value has."""
    if isinstance(value, str):
        return literal(value) + typed
    if isinstance(value, bool):
        return f'"{"true" if value else "false"}"{typed or _BOOLEAN}'
    if isinstance(value, int):
        return f'"{value}"{typed or _INTEGER}'
    if isinstance(value, Decimal):
        return f'"{decimal_text(value)}"{typed or _DECIMAL}'
    raise TypeError(f"{type(value).__name__} is not a value of a node document")


_BOOLEAN, _INTEGER, _DECIMAL = (f"^^<{_XSD}{name}>" for name in ("boolean", "integer", "decimal"))


def literal(text: str) -> str:
    """Write a plain literal as canonical N-Triples has it."""
    if text.isprintable():  # JSON escapes then what N-Triples does, and alike
        return encode_basestring(text)
    return f'"{text.translate(_ESCAPES)}"'


_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]*")


def _iri(text: str, term: str) -> str:
    if not _IRI.fullmatch(text):  # the text itself is not told: an address may hold a password
        raise InvalidDocument(f"a value of {term} is not an absolute IRI", hint="check what the object gives there")
    return f"<{text}>"


@lru_cache(maxsize=4096)  # replicas ask for the same
def decimal_text(value: Decimal) -> str:
    """Write a decimal in the canonical form of xsd:decimal that the engine keeps: no exponent, no trailing zero."""
    text = format(value, "f")
    if "." in text:
        text = text.rstrip("0").rstrip(".")
    return "0" if text in ("-0", "") else text


# RDF 1.2 canonical N-Triples: these and no other characters are escaped.
_ESCAPES = {code: f"\\u{code:04X}" for code in [*range(0x20), 0x7F, 0xFFFE, 0xFFFF]} | {
    0x08: "\\b",
    0x09: "\\t",
    0x0A: "\\n",
    0x0C: "\\f",
    0x0D: "\\r",
    0x22: '\\"',
    0x5C: "\\\\",
}


# -- lines → a document to read -------------------------------------------------------------------------------------------


def compact(graph: Iterable[str], root: str) -> dict[str, Any]:
    """Return a graph as one nested document around ``root``: what ``write`` writes, to go on with."""
    document: dict[str, Any] = msgspec.json.decode(_document(nodes(graph, root)))
    return document


def write(text: str, root: str) -> str:
    """Write a graph (``kg.rdf.text_of``) as one nested document around ``root``, in the context's terms and order.

    A part that is named by another part stands inside it, once; whatever ``root`` does not lead to is listed under
    ``@included``, so nothing is lost: parsing the result gives the same lines (tests hold it to that).
    """
    return _document(_nodes(text.split("\n") if text else (), root))


def nodes(graph: Iterable[str], root: str) -> list[str]:
    """Write a graph as the nodes that stand in no other: ``root`` first, then whatever it does not lead to."""
    return _nodes(in_order(graph), root)


def _nodes(ordered: Iterable[str], root: str) -> list[str]:
    writer = _Writer(_context(), ordered)
    first = writer.node(f"<{root}>")
    left = [name for name in writer.facts if name not in writer.written]
    return [first, *(writer.node(name) for name in left if name not in writer.written)]


def _document(nodes: Sequence[str]) -> str:
    first, *others = nodes
    included = f',"@included":[{",".join(others)}]' if others else ""
    return f'{{"@context":"{CONTEXT_IRI}",{first[1:-1]}{included}}}'


class _Writer:
    """Writes nodes, which are named as N-Triples has them, as JSON on one line.

    Of each subject it has the ``facts``, which end there, and the ``links``, which name another node; ``incoming`` are the links that the
    context reverses, by what they name. A document in between would take as long again.
    """

    def __init__(self, context: _Context, ordered: Iterable[str]) -> None:
        self.context = context
        self.facts: dict[str, list[_Fact]] = {}
        self.links: dict[str, list[tuple[str, str]]] = {}
        self.incoming: dict[str, list[tuple[str, str]]] = {}
        self.written: set[str] = set()
        self.depth = 0
        self.reversed_: set[tuple[str, str, str]] = set()  # statements already told from the other side
        subject, reversed_, fact = "", context.reversed, context.fact
        facts: list[_Fact] = []
        links: list[tuple[str, str]] = []
        for line in ordered:
            name, _, said = line.partition(" ")
            if name != subject:  # lines of one subject follow each other
                subject = name
                facts, links = self.facts.setdefault(name, []), self.links.setdefault(name, [])
            if '"' in said or said.startswith(_TYPED):
                facts.append(fact(said) if len(said) <= _SHORT else context.read_fact(said))
                continue
            predicate, _, value = said[:-2].partition(" ")
            links.append((predicate, value))
            if predicate in reversed_:
                self.incoming.setdefault(value, []).append((predicate, name))

    def node(self, name: str) -> str:
        """Write one node with what is nested in it."""
        nodes, written, told, link = self.facts, self.written, self.reversed_, self.context.link
        written.add(name)
        self.depth += 1
        reverse = self._reverse(name) if name in self.incoming else {}
        content: _Content = {}
        for term, value in nodes.get(name, ()):
            if term in content:
                _add(content, term, value)
            else:
                content[term] = value
        for predicate, other in self.links.get(name, ()):
            if told and (name, predicate, other) in told:
                continue
            term, coercion = link(predicate)
            # A part stands where it is named first; elsewhere, and where too much is nested, there is its name.
            if other in nodes and other not in written and self.depth < _DEEPEST:
                value = self.node(other)
            elif coercion == "@id" and other[0] == "<":
                value = f'"{other[1:-1]}"'
            else:
                value = self._named(other, coercion)
            if term in content:
                _add(content, term, value)
            else:
                content[term] = value
        self.depth -= 1
        content.update(reverse)
        members = [f'"id":"{_plain(name)}"']
        for term, key, is_set in self.context.order(content):
            said = content[term]
            if isinstance(said, str):
                members.append(f"{key}[{said}]" if is_set else f"{key}{said}")
            else:
                members.append(f"{key}[{','.join(said)}]")
        return f"{{{','.join(members)}}}"

    def _reverse(self, name: str) -> _Content:
        """Take in the parts that point here by a predicate which the context reverses (``runs``)."""
        found: _Content = {}
        for predicate, other in self.incoming[name]:
            if other not in self.written and other != name and self.depth < _DEEPEST:
                self.reversed_.add((other, predicate, name))
                ((term, _), *_) = self.context.terms_by_predicate[predicate[1:-1], True]
                _add(found, term, self.node(other))
        return found

    def _named(self, name: str, coercion: str | None) -> str:
        """Write a node's name, in the short form that the term allows."""
        plain = _plain(name)
        if coercion == "@id":
            return f'"{plain}"'
        return f'"{self.context.vocabulary_name(plain)}"' if coercion == "@vocab" else f'{{"id":"{plain}"}}'


def _add(content: _Content, term: str, value: str) -> None:
    """Give a term one more value; several make a list."""
    if term not in content:
        content[term] = value
    elif isinstance(held := content[term], str):
        content[term] = [held, value]
    else:
        held.append(value)


def _json(value: Any) -> str:
    return msgspec.json.encode(value).decode()


def _plain(name: str) -> str:
    return name[1:-1] if name[0] == "<" else name


def _object(key: str, said: str, text: str) -> dict[str, str]:
    return {"@value": text, key: said}


def native(value: Term) -> int | bool | str:
    """Write an integer or boolean as JSON's own where every JSON reader keeps it exact (below 2^53), else as text."""
    write = _NATIVE.get(value.datatype or "")
    return value.value if write is None else write(value.value)


def _integer(text: str) -> int | str:
    return int(text) if re.fullmatch(r"-?(?:0|[1-9][0-9]{0,14})", text) and text != "-0" else text


def _boolean(text: str) -> bool | str:
    return text == "true" if text in ("true", "false") else text


_NATIVE: Mapping[str, Callable[[str], Any]] = {_XSD + "integer": _integer, _XSD + "boolean": _boolean}
_USUAL = 64  # terms of one node
