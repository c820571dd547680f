"""JSON-LD of the project's one context: documents read as statements, and graphs written readably.

* One reader turns *node documents* into canonical statements without a JSON-LD processor, several times faster: those of our own
  renderers (``read``), and those of clients that surely mean the same to every processor (``read_certain``). Tests hold it equal to the
  engine and to pyld.
* ``compact`` writes lines as the nested document that the contract shows.

Terms: JSON-LD 1.1, https://www.w3.org/TR/json-ld11/.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from decimal import Decimal
from functools import cache, lru_cache, partial
from importlib.resources import files
from json.encoder import encode_basestring
from typing import Any

import msgspec

from drumlin.kg.errors import InvalidDocument
from drumlin.kg.rdf.canonical import SURE_HTTP_IRI, kept
from drumlin.kg.rdf.jsonld_context import TermDefinition, compiled, json_text
from drumlin.kg.rdf.syntax import Facts, Lines, Term, facts_of, is_iri, lines_of, unescape
from drumlin.ontology.vocabulary import PROPERTIES

NodeDocument = Mapping[str, Any]
"""A JSON-LD object that uses the terms of the context; a value is a string, number, bool, node document or a list."""

CONTEXT_IRI = "https://w3id.org/drumlin/context/v1.jsonld"
"""Well-known name of the context. It is read without a fetch, but nothing serves it: see ``Iris.context`` for an address that is served."""
NAMED = f'"{CONTEXT_IRI}"'
"""The well-known name as a value of ``@context``, as JSON text: for documents that only this project reads."""
NAMESPACE = "https://w3id.org/drumlin/ns#"

_RDF_TYPE = "<http://www.w3.org/1999/02/22-rdf-syntax-ns#type>"
_XSD = "http://www.w3.org/2001/XMLSchema#"


_Fact = tuple[str, str]
"""What a statement says that leads to no other node: the term (``type`` for a class), and its value as JSON."""
_Content = dict[str, list[str]]
"""What a node says by its terms: values as JSON."""
_DEEPEST = 14  # nodes within one another, since 32 levels of JSON are read (kg.inlining); a part beyond that is listed by itself
_SHORT = 256  # characters of a statement that is remembered: labels and states, and no annotation


def context_document() -> bytes:
    """Return the context as it is served at its IRI."""
    return files("drumlin.ontology").joinpath("context.jsonld").read_bytes()


@cache
def context_value() -> Mapping[str, Any]:
    """Return the context itself: the value of ``@context`` of a document that carries it. It is shared, so it must not be changed."""
    return compiled().document


@lru_cache(16)
def linked(address: str) -> str:
    """Return ``address`` as a value of ``@context``, as JSON text."""
    return json_text(address)


@cache
def inline() -> str:
    """Return the context itself as a value of ``@context``, as JSON text on one line."""
    return json_text(context_value())


def predicate(term: str) -> str | None:
    """Return the predicate that a term of the context stands for, or None when it is no term."""
    definition = compiled().terms.get(term)
    return definition.predicate if definition else None


# -- documents → statements -----------------------------------------------------------------------------------------------


def lines(document: NodeDocument) -> Lines:
    """Return the lines of a node document of our own renderers; see ``read``."""
    return read(document)[0]


def read(document: NodeDocument) -> tuple[Lines, Facts]:
    """Read a node document of our own renderers, with all that is nested in it, as canonical lines, and as the same by subject.

    Absent keys are absent statements; ``None`` is not allowed (``TypeError``), a renderer leaves the key out. An IRI that is
    not one raises ``InvalidDocument``: text from a manifest must not be able to end the statement it stands in.
    """
    reader = _DocumentReader(_of_ours)
    reader.node({key: value for key, value in document.items() if key != "@context"})
    return lines_of(reader.facts), reader.facts


def read_certain(document: NodeDocument) -> tuple[Lines, Facts] | None:
    """Read a client's document, without its context, as every JSON-LD processor surely does, or return None where that is not certain.

    Not certain are keywords, compact and relative IRIs, floats, nulls and whatever else a processor would have to look into.
    """
    reader = _DocumentReader(_uncertain)
    try:
        reader.node(document)
    except InvalidDocument:
        return None
    return lines_of(reader.facts), reader.facts


@dataclass(frozen=True, slots=True)
class _Property:
    """How the statements of one term are read: its predicate, and what writes a value; None is for one that is not certain."""

    predicate: str
    coercion: str | None
    write: Callable[[Any], str | None]
    reverse: bool = False


@cache
def _properties() -> Mapping[str, _Property]:
    """Return the terms of the context and the properties of the vocabulary, as they are read."""
    read = {name: TermDefinition(NAMESPACE + name) for name in PROPERTIES} | compiled().terms
    read |= {"type": TermDefinition(_RDF_TYPE[1:-1], "@vocab"), "id": TermDefinition("id", "@id")}
    return {name: _read_as(definition) for name, definition in read.items()}


def _read_as(term: TermDefinition) -> _Property:
    write: Callable[[Any], str | None] = _scalar
    if term.coercion == "@id":
        write = _iri
    elif term.coercion == "@vocab":
        write = _word
    elif term.coercion:
        write = partial(_typed, f"^^<{term.coercion}>")
    return _Property(f"<{term.predicate}>", term.coercion, write, term.reverse)


class _DocumentReader:
    """Reads one document. ``rest`` writes a value of a term that is not certain, or raises ``InvalidDocument``."""

    def __init__(self, rest: Callable[[_Property, Any], str]) -> None:
        self.facts: dict[str, dict[str, list[str]]] = {}
        self._rest = rest
        self._properties = _properties()

    def node(self, document: NodeDocument, depth: int = 1) -> str:
        """Read a node and what is nested in it; return its name."""
        if depth > _DEEPEST_READ:
            raise InvalidDocument(f"nodes are nested more than {_DEEPEST_READ} deep")
        subject = _iri(document.get("id")) or self._rest(self._properties["id"], document.get("id"))
        said = self.facts.setdefault(subject, {}) if len(document) > 1 else {}
        for name, value in document.items():
            if name == "id":
                continue
            term = self._properties.get(name) or _unknown(name)
            for each in value if isinstance(value, (list, tuple)) else (value,):
                other = term.write(each) or self._other(term, each, depth)
                if term.reverse:
                    self.facts.setdefault(other, {}).setdefault(term.predicate, []).append(subject)
                elif term.predicate in said:
                    said[term.predicate].append(other)
                else:
                    said[term.predicate] = [other]
        return subject

    def _other(self, term: _Property, value: Any, depth: int) -> str:
        if type(value) is dict and term.predicate != _RDF_TYPE:
            return self.node(value, depth + 1)
        return self._rest(term, value)


def _unknown(name: str) -> _Property:
    """Return how a key is read that is no term; raises ``InvalidDocument`` unless it surely is a name of the vocabulary."""
    if not _is_name(name):
        raise InvalidDocument("a key is neither a term of the context nor a name of the vocabulary")
    return _read_as(TermDefinition(NAMESPACE + name))


def _uncertain(term: _Property, _value: Any) -> str:
    raise InvalidDocument(f"a value of {term.predicate} may mean one thing or another")


def _of_ours(term: _Property, value: Any) -> str:
    """Write what only our own renderers may give: any absolute IRI, as it is; a word of their source; an integer of any size."""
    if isinstance(value, str):
        iri = compiled().definition(value).predicate if term.coercion == "@vocab" else value
        if _IRI.fullmatch(iri) and is_iri(iri):
            return f"<{iri}>"
        # The text itself is not shown: an address may hold a password.
        raise InvalidDocument(
            f"a value of {term.predicate} is not an absolute IRI", hint="check what the object gives there"
        )
    if type(value) is int and term.coercion not in ("@id", "@vocab"):
        return kept(f'"{value}"{f"^^<{term.coercion}>" if term.coercion else _INTEGER}')
    raise TypeError(f"{type(value).__name__} is not a value of a node document")


def _iri(value: Any) -> str | None:
    if type(value) is not str:
        return None
    return _known_iri(value) if len(value) <= _SHORT else _sure_iri(value)


def _sure_iri(text: str) -> str | None:
    return f"<{text}>" if "/." not in text and _SURE_IRI.fullmatch(text) else None


_known_iri = lru_cache(maxsize=16_384)(_sure_iri)  # most graphs name the same few things


def _word(value: Any) -> str | None:
    return f"<{NAMESPACE}{value}>" if type(value) is str and _is_name(value) else _iri(value)


def _is_name(text: str) -> bool:
    """Return whether a text is a name of the vocabulary for every processor: the context gives it no other meaning."""
    return text.isalnum() and text.isascii() and not text[0].isdigit() and text not in context_value()


def _scalar(value: Any) -> str | None:
    """Write a literal of the type that its JSON value has."""
    kind = type(value)
    if kind is str:
        return literal(value)
    if kind is bool:
        return f'"{"true" if value else "false"}"{_BOOLEAN}'
    if kind is int and abs(value) < _MOST_EXACT:
        return f'"{value}"{_INTEGER}'
    return f'"{decimal_text(value)}"{_DECIMAL}' if kind is Decimal else None


def _typed(typed: str, value: Any) -> str | None:
    """Write a literal whose type the context gives; ``typed`` is that as it stands behind the quotes."""
    own = _scalar(value)
    if own is None or own.endswith(typed):
        return own
    return kept(own[: own.rindex('"') + 1] + typed)


_BOOLEAN, _INTEGER, _DECIMAL = (f"^^<{_XSD}{name}>" for name in ("boolean", "integer", "decimal"))
_MOST_EXACT = 10**15  # integers below are integers to every reader of JSON
_DEEPEST_READ = 16  # nodes within one another: half of the levels of JSON that are read (kg.inlining)
_SURE_IRI = re.compile(SURE_HTTP_IRI)
_IRI = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:[^\x00-\x20<>\"{}|^`\\]*")


def literal(text: str) -> str:
    """Write a plain literal as canonical N-Triples has it."""
    if text.isprintable():  # JSON escapes then what N-Triples does, and alike
        return encode_basestring(text)
    return f'"{text.translate(_ESCAPES)}"'


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


def compact(graph: Iterable[str], root: str, context: str = NAMED) -> dict[str, Any]:
    """Return a graph as one nested document around ``root``: the decoded form of what ``write`` writes."""
    document: dict[str, Any] = msgspec.json.decode(_document(nodes(graph, root), context))
    return document


def write(text: str, root: str, context: str = NAMED) -> str:
    """Write a graph (``kg.rdf.syntax.text_of``) as one nested document around ``root``, in the context's terms and order.

    ``context`` is the value of ``@context`` as JSON text (``linked``, ``inline``).

    A part that is named by another part stands inside it, once; whatever ``root`` does not lead to is listed under
    ``@included``, so nothing is lost: parsing the result gives the same lines (tests hold it to that).
    """
    return _document(_nodes(text.split("\n") if text else (), root), context)


def nodes(graph: Iterable[str], root: str) -> list[str]:
    """Write a graph as the nodes that stand in no other: ``root`` first, then whatever it does not lead to."""
    return _nodes(sorted(graph), root)


def _nodes(ordered: Iterable[str], root: str) -> list[str]:
    writer = _Writer(ordered)
    first = writer.node(f"<{root}>")
    left = [name for name in writer.facts if name not in writer.written]
    return [first, *(writer.node(name) for name in left if name not in writer.written)]


def _document(nodes: Sequence[str], context: str) -> str:
    first, *others = nodes
    included = f',"@included":[{",".join(others)}]' if others else ""
    return f'{{"@context":{context},{first[1:-1]}{included}}}'


class _Writer:
    """Writes nodes, which are named as N-Triples has them, as JSON on one line.

    ``incoming`` are the links that the context reverses, by what they name. A document in between would take as long again.
    """

    def __init__(self, ordered: Iterable[str]) -> None:
        self.context = compiled()
        self.facts = facts_of(ordered)
        self.incoming: dict[str, list[tuple[str, str]]] = {}
        self.written: set[str] = set()
        self.depth = 0
        self.reversed_: set[tuple[str, str, str]] = set()  # statements already made from the other side
        for name, said in self.facts.items():
            for predicate in self.context.reversed & said.keys():
                for other in said[predicate]:
                    self.incoming.setdefault(other, []).append((predicate, name))

    def node(self, name: str) -> str:
        """Write one node with what is nested in it."""
        self.written.add(name)
        self.depth += 1
        reverse = self._reverse(name) if name in self.incoming else {}
        content: _Content = {}
        for predicate, values in self.facts.get(name, {}).items():
            for value in values:
                if value[0] == '"' or (predicate == _RDF_TYPE and value[0] == "<"):
                    term, text = (_known_fact if len(value) <= _SHORT else _fact)(predicate, value)
                elif (name, predicate, value) not in self.reversed_:
                    term, text = self._link(predicate, value)
                else:
                    continue
                content.setdefault(term, []).append(text)
        self.depth -= 1
        content.update(reverse)
        members = [f'"id":"{_plain(name)}"']
        for term, key, is_set in self.context.order(content):
            texts = content[term]
            members.append(f"{key}[{','.join(texts)}]" if is_set or len(texts) > 1 else f"{key}{texts[0]}")
        return f"{{{','.join(members)}}}"

    def _link(self, predicate: str, other: str) -> tuple[str, str]:
        """Write a link: a part stands where it is named first; elsewhere, and where too much is nested, there is its name."""
        term, coercion = self.context.term_of(predicate)
        if other in self.facts and other not in self.written and self.depth < _DEEPEST:
            return term, self.node(other)
        return term, self._named(other, coercion)

    def _reverse(self, name: str) -> _Content:
        """Take in the parts that point here by a predicate which the context reverses (``runs``)."""
        found: _Content = {}
        for predicate, other in self.incoming[name]:
            if other not in self.written and other != name and self.depth < _DEEPEST:
                self.reversed_.add((other, predicate, name))
                term = self.context.by_predicate[predicate[1:-1], True]
                found.setdefault(term, []).append(self.node(other))
        return found

    def _named(self, name: str, coercion: str | None) -> str:
        """Write a node's name, in the short form that the term allows."""
        plain = _plain(name)
        if coercion == "@id":
            return f'"{plain}"'
        return f'"{self.context.vocabulary_name(plain)}"' if coercion == "@vocab" else f'{{"id":"{plain}"}}'


def _fact(predicate: str, value: str) -> _Fact:
    """Write what a statement says of its subject, where that is a literal or a class."""
    if value[0] != '"':
        return "type", f'"{compiled().compact_iri(value[1:-1])}"'
    end = value.rfind('"')
    term, read = _literal(predicate, value[end + 1 :])
    text = value[1:end]
    return term, json_text(read(unescape(text) if "\\" in text else text))


_known_fact = lru_cache(16_384)(_fact)  # states and labels come again and again


@lru_cache(4096)
def _literal(predicate: str, suffix: str) -> tuple[str, Callable[[str], Any]]:
    """Return the term that a predicate is written as, and what makes a JSON value of the text of literals that end so."""
    term, coercion = compiled().term_of(predicate)
    if suffix[:1] == "@":
        return term, partial(_object, "@language", suffix[1:])
    datatype = suffix[3:-1] or _XSD + "string"
    if coercion is None and datatype == _XSD + "string":
        return term, str
    if coercion is None or coercion != datatype:
        return term, partial(_object, "@type", datatype)
    return term, _NATIVE.get(datatype, str)


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
