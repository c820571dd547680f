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
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache, partial
from importlib.resources import files
from typing import Any

from kg.errors import InvalidDocument
from kg.rdf import Lines, Term, terms

NodeDocument = Mapping[str, Any]
"""A JSON-LD object that uses the terms of the context; a value is a string, number, bool, node document or a list."""

CONTEXT_IRI = "https://w3id.org/drumlin/context/v1.jsonld"
NAMESPACE = "https://w3id.org/drumlin/ns#"

_RDF_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_XSD = "http://www.w3.org/2001/XMLSchema#"


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
        # The same few names again and again, in every graph that is written.
        self.compact_iri = lru_cache(4096)(self._compact_iri)
        self.vocabulary_name = lru_cache(4096)(self._vocabulary_name)
        self.rank = lru_cache(4096)(self._rank)
        self.literal = lru_cache(4096)(self._literal)
        self.link = lru_cache(4096)(self._term)

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
        """Return the term that a predicate is written as, and what it takes its values for."""
        for term, key in self.terms_by_predicate.get((predicate, False), ()):
            return term, key.coercion
        return self.compact_iri(predicate) if predicate.startswith(self.vocab) else predicate, None

    def _literal(self, predicate: str, datatype: str | None, tagged: bool) -> tuple[str, Callable[[Term], Any]]:  # noqa: FBT001 - cached
        """Return the term that a predicate is written as, and what writes literals of a type as its values."""
        term, coercion = self._term(predicate)
        if tagged:
            return term, _tagged
        if coercion is None:
            return term, _plain if datatype == _XSD + "string" else _typed
        return term, native if coercion == datatype else _typed

    def is_set(self, term: str) -> bool:
        """Tell whether a term's value is a list even when there is one."""
        key = self.keys.get(term)
        return key is not None and key.is_set

    def _rank(self, term: str) -> tuple[int, bool, str]:
        """Return what puts terms into the context's order, names first among those that it does not have."""
        return self.key(term).order, term != "name", term

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
        return _Plan(f" <{_RDF_TYPE}> ", reverse=False, write=cache(lambda kind: f"<{context.expand(kind)}>"))
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
    if text.isprintable() and '"' not in text and "\\" not in text:
        return f'"{text}"'
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
_ESCAPES = {code: f"\\u{code:04X}" for code in [*range(0x20), 0x7F]} | {
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
    """Write a graph as one nested document around ``root``, in the context's terms and order.

    A part that is named by another part stands inside it, once; whatever ``root`` does not lead to is listed under
    ``@included``, so nothing is lost: parsing the result gives the same lines (tests hold it to that).
    """
    context = _context()
    statements: dict[str, list[tuple[str, Term]]] = {}
    incoming: dict[str, list[tuple[str, str]]] = {}
    for line in sorted(graph):
        subject, predicate, value = terms(line)
        name = _node_name(subject)
        statements.setdefault(name, []).append((predicate.value, value))
        if value.kind != "literal":
            incoming.setdefault(_node_name(value), []).append((predicate.value, name))
    writer = _Writer(context, statements, incoming)
    document: dict[str, Any] = {"@context": CONTEXT_IRI, **writer.node(root)}
    if rest := [name for name in statements if name not in writer.written]:
        document["@included"] = [writer.node(name) for name in rest if name not in writer.written]
    return document


def _node_name(term: Term) -> str:
    return f"_:{term.value}" if term.kind == "blank" else term.value


class _Writer:
    def __init__(
        self,
        context: _Context,
        statements: Mapping[str, list[tuple[str, Term]]],
        incoming: Mapping[str, list[tuple[str, str]]],
    ) -> None:
        self.context = context
        self.statements = statements
        self.incoming = incoming
        self.written: set[str] = set()
        self.reversed_: set[tuple[str, str, str]] = set()  # statements already told from the other side

    def node(self, name: str) -> dict[str, Any]:
        """Write one node with what is nested in it."""
        self.written.add(name)
        content: dict[str, list[Any]] = {}
        types: list[str] = []
        reverse = self._reverse(name)
        for predicate, value in self.statements.get(name, ()):
            if value.kind == "literal":
                term, write = self.context.literal(predicate, value.datatype, value.language is not None)
                content.setdefault(term, []).append(write(value))
                continue
            other = _node_name(value)
            if (name, predicate, other) in self.reversed_:
                continue
            if predicate == _RDF_TYPE and value.kind == "iri":
                types.append(self.context.compact_iri(other))
                continue
            term, coercion = self.context.link(predicate)
            content.setdefault(term, []).append(self._link(other, coercion))
        content.update(reverse)
        document: dict[str, Any] = {"id": name}
        if types:
            document["type"] = types[0] if len(types) == 1 else types
        for term in sorted(content, key=self.context.rank):
            values = content[term]
            document[term] = values if len(values) > 1 or self.context.is_set(term) else values[0]
        return document

    def _reverse(self, name: str) -> dict[str, list[Any]]:
        """Take in the parts that point here by a predicate which the context reverses (``runs``)."""
        found: dict[str, list[Any]] = {}
        for predicate, other in self.incoming.get(name, ()):
            candidates = self.context.terms_by_predicate.get((predicate, True))
            if candidates and other not in self.written and other != name:
                self.reversed_.add((other, predicate, name))
                found.setdefault(candidates[0][0], []).append(self.node(other))
        return found

    def _link(self, name: str, coercion: str | None) -> Any:
        """Write a part where it is named first; whatever else by its name, in the short form that the term allows."""
        if name in self.statements and name not in self.written:
            return self.node(name)
        if coercion == "@id":
            return name
        return self.context.vocabulary_name(name) if coercion == "@vocab" else {"id": name}


def _tagged(value: Term) -> dict[str, str | None]:
    return {"@value": value.value, "@language": value.language}


def _typed(value: Term) -> dict[str, str | None]:
    return {"@value": value.value, "@type": value.datatype}


def _plain(value: Term) -> str:
    return value.value


def native(value: Term) -> int | bool | str:
    """Write an integer or boolean as JSON's own where every JSON reader keeps it exact (below 2^53), else as text."""
    if value.datatype == _XSD + "integer" and re.fullmatch(r"-?(?:0|[1-9][0-9]{0,14})", value.value):
        return int(value.value) if value.value != "-0" else value.value
    if value.datatype == _XSD + "boolean" and value.value in ("true", "false"):
        return value.value == "true"
    return value.value
