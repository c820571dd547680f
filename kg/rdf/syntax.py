"""RDF text in and out: the border between bytes of any syntax and canonical lines.

Outside ``kg.store`` and ``kg.rdf.canonical`` this is the only module that knows the engine's parsers. A graph is handled as *lines*: its
N-Triples statements in the engine's canonical form (RDF 1.2 canonical N-Triples escapes; literals in the lexical form in which the
engine keeps them, so ``"0.250"^^xsd:decimal`` and ``"0.25"^^xsd:decimal`` are one). Lines read from a caller's
document and lines read back from the store are therefore comparable as text.
"""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, BinaryIO, NamedTuple, Self

import pyoxigraph as ox

from drumlin.kg.errors import InvalidDocument, NotAcceptable, QueryRejected, UnsupportedSyntax
from drumlin.kg.rdf import nesting

Lines = frozenset[str]
Values = Mapping[str, Sequence[str]]
"""What is said of one thing: predicate → objects, all terms as N-Triples writes them; one may be listed twice."""
Facts = Mapping[str, Values]
"""What a graph says: subject → predicate → objects."""

# What no relative IRI begins with (https://www.rfc-editor.org/rfc/rfc3986#section-4.2), blank nodes apart.
_ABSOLUTE = re.compile(r"(?!_:)[^:/?#]*:")


@dataclass(frozen=True, slots=True)
class Syntax:
    """One RDF syntax: its short name, IANA media type, file suffix and whether it can name graphs."""

    name: str
    media_type: str
    suffix: str
    quads: bool


JSONLD = Syntax("jsonld", "application/ld+json", ".jsonld", quads=True)
TURTLE = Syntax("turtle", "text/turtle", ".ttl", quads=False)
NTRIPLES = Syntax("ntriples", "application/n-triples", ".nt", quads=False)
NQUADS = Syntax("nquads", "application/n-quads", ".nq", quads=True)
TRIG = Syntax("trig", "application/trig", ".trig", quads=True)
RDFXML = Syntax("rdfxml", "application/rdf+xml", ".rdf", quads=False)
N3 = Syntax("n3", "text/n3", ".n3", quads=False)

SYNTAXES: tuple[Syntax, ...] = (JSONLD, TURTLE, NTRIPLES, NQUADS, TRIG, RDFXML, N3)

_FORMATS: Mapping[str, ox.RdfFormat] = {
    "jsonld": ox.RdfFormat.JSON_LD,
    "turtle": ox.RdfFormat.TURTLE,
    "ntriples": ox.RdfFormat.N_TRIPLES,
    "nquads": ox.RdfFormat.N_QUADS,
    "trig": ox.RdfFormat.TRIG,
    "rdfxml": ox.RdfFormat.RDF_XML,
    "n3": ox.RdfFormat.N3,
}

PREFIXES: Mapping[str, str] = {
    "drumlin": "https://w3id.org/drumlin/ns#",
    "dcat": "http://www.w3.org/ns/dcat#",
    "dcterms": "http://purl.org/dc/terms/",
    "prov": "http://www.w3.org/ns/prov#",
    "foaf": "http://xmlns.com/foaf/0.1/",
    "xsd": "http://www.w3.org/2001/XMLSchema#",
}
"""Prefixes written into Turtle and TriG."""


def syntax_named(name: str) -> Syntax:
    """Return the syntax of a short name, media type or suffix (its dot may be left out); raises ``UnsupportedSyntax``."""
    wanted = name.lower()
    for syntax in SYNTAXES:
        if wanted in (syntax.name, syntax.media_type, syntax.suffix, syntax.suffix[1:]):
            return syntax
    raise UnsupportedSyntax(
        f"{name[:64]!r} is not an RDF syntax that is offered here",
        hint=f"it is one of {', '.join(syntax.name for syntax in SYNTAXES)}",
        detail={"offered": [syntax.media_type for syntax in SYNTAXES]},
    )


def is_iri(text: str) -> bool:
    """Return whether ``text`` is an absolute IRI, as it can name a node or a graph."""
    try:
        ox.NamedNode(text)
    except ValueError:
        return False
    return True


def parse(data: bytes, syntax: Syntax, *, base: str | None = None) -> dict[str | None, Lines]:
    """Read RDF text into lines per graph (None is the default graph); an empty document gives an empty mapping.

    Blank nodes get fresh labels. JSON-LD must carry its context inline (``kg.rdf.jsonld_loader.inline`` sees to it): the engine
    fetches nothing and refuses a remote one. Raises ``InvalidDocument`` with line and column where the parser knows them, for
    terms nested too deeply and document types (``kg.rdf.nesting``), and for what JSON-LD leaves out without a word: a statement
    with an ill-formed IRI or language tag.
    """
    nesting.check(data, syntax.name)
    scratch = ox.Store()
    try:
        scratch.load(data, format=_FORMATS[syntax.name], base_iri=base)
        if syntax is JSONLD:
            _refuse_ill_formed(data, base, len(scratch))
    except SyntaxError as error:
        raise _invalid(error, syntax) from error
    except (ValueError, OSError) as error:
        raise InvalidDocument(f"the {syntax.name} document cannot be read: {error}") from error
    if syntax.quads:
        return by_graph(scratch.dump(format=ox.RdfFormat.N_QUADS) or b"")
    triples = scratch.dump(format=ox.RdfFormat.N_TRIPLES, from_graph=ox.DefaultGraph()) or b""
    return {None: frozenset(triples.decode().split("\n")[:-1])} if triples else {}


def _refuse_ill_formed(data: bytes, base: str | None, kept: int) -> None:
    """Raise for JSON-LD of which the parser left out more than what means nothing: relative IRIs, and keys that are no terms.

    https://www.w3.org/TR/json-ld11-api/#object-to-rdf-conversion: what is not well-formed is dropped. A writer would lose it unseen.
    """
    lenient = ox.Store()
    lenient.load(data, format=ox.RdfFormat.JSON_LD, base_iri=base, lenient=True)
    if len(lenient) > kept and any(map(_Words.of(json.loads(data)).are_ill_formed_in, lenient)):
        raise InvalidDocument(  # the text itself is not told: an address may hold a password
            "a statement of the jsonld document has an IRI or a language tag that is ill-formed",
            hint="percent-encode what an IRI may not hold",
        )


class _Words(NamedTuple):
    """Words of a JSON-LD document: keys that are no IRIs of any sort, and texts that would be IRIs if they were well-formed."""

    keys: frozenset[str]
    texts: frozenset[str]

    @classmethod
    def of(cls, document: Any) -> Self:
        """Find them in all objects and lists, those of contexts too."""
        keys, texts, left = set[str](), set[str](), [document]
        for each in left:  # it grows meanwhile
            if isinstance(each, dict):
                keys |= each.keys()
                left += each.values()
            elif isinstance(each, list):
                left += each
            elif isinstance(each, str) and _ABSOLUTE.match(each) and not is_iri(each):
                texts.add(each)
        return cls(frozenset(key for key in keys if key and ":" not in key), frozenset(texts))

    def are_ill_formed_in(self, quad: ox.Quad) -> bool:
        """Return whether a quad has a language tag or an absolute IRI that is ill-formed, or a text that was taken for a relative IRI."""
        value, predicate = quad.object, quad.predicate.value
        named = [each.value for each in (quad.subject, value, quad.graph_name) if isinstance(each, ox.NamedNode)]
        if isinstance(value, ox.Literal):
            named.append(value.datatype.value)
            try:
                ox.Literal("", language=value.language)
            except ValueError:
                return True
        if any(self._is_ill_formed(each) for each in named):
            return True
        return self._is_ill_formed(predicate) and not self._makes(predicate)

    def _is_ill_formed(self, iri: str) -> bool:
        if not is_iri(iri):
            return _ABSOLUTE.match(iri) is not None
        return any(iri.endswith(f"/{each}") for each in self.texts)

    def _makes(self, predicate: str) -> bool:
        """Return whether a predicate that is no IRI is one with a key behind it that means nothing; no term of ours is made so."""
        return not predicate.startswith(PREFIXES["drumlin"]) and any(
            predicate.endswith(key) and is_iri(predicate.removesuffix(key)) for key in self.keys
        )


def statements(stream: BinaryIO, syntax: Syntax) -> Iterator[tuple[str | None, str]]:
    """Yield the statements of RDF text as they are read, each with its graph (None is the default graph).

    Literals keep the form in which they are written. Raises ``InvalidDocument`` with line and column where the parser knows them,
    and for terms nested too deeply (``kg.rdf.nesting``).
    """
    scanned = nesting.checked(stream, syntax.name)
    try:
        for quad in ox.parse(scanned, format=_FORMATS[syntax.name]):  # type: ignore[arg-type]  # read() is all it needs
            name = quad.graph_name
            graph = (
                None
                if isinstance(name, ox.DefaultGraph)
                else name.value
                if isinstance(name, ox.NamedNode)
                else str(name)
            )
            yield graph, f"{quad.triple} ."
    except SyntaxError as error:
        raise _invalid(error, syntax) from error
    except ValueError as error:
        raise InvalidDocument(f"the {syntax.name} document cannot be read: {error}") from error


def ground(update: str, *, base: str) -> dict[str | None, Lines]:
    """Return the statements of one ``INSERT DATA`` operation, per graph (None is the default graph); nothing is stored.

    The gate must have passed the text. Raises ``InvalidDocument`` with the parser's own words.
    """
    scratch = ox.Store()
    try:
        scratch.update(update, base_iri=base)
    except SyntaxError as error:
        raise InvalidDocument(f"the update does not parse: {error.msg}") from error
    return by_graph(scratch.dump(format=ox.RdfFormat.N_QUADS) or b"")


def projected(query: str) -> tuple[str, ...]:
    """Return the variables that a SELECT yields, having the engine read it; nothing of the graph is asked.

    The gate must have passed the text. Raises ``QueryRejected`` with the parser's own words.
    """
    try:
        found = ox.Store().query(query)
    except (SyntaxError, RuntimeError) as error:
        raise QueryRejected(f"the query does not parse: {error}") from error
    return tuple(each.value for each in found.variables) if isinstance(found, ox.QuerySolutions) else ()


def by_graph(nquads: bytes) -> dict[str | None, Lines]:
    """Sort canonical N-Quads (as the engine writes them) into lines per graph."""
    graphs: dict[str | None, set[str]] = {}
    for line in nquads.decode().split("\n"):
        if not line:
            continue
        statement, graph = _without_graph(line)
        graphs.setdefault(graph, set()).add(statement)
    return {graph: frozenset(lines) for graph, lines in graphs.items()}


def _without_graph(line: str) -> tuple[str, str | None]:
    """Split one canonical N-Quads line into its N-Triples line and the graph's name.

    The last term before the dot is a graph exactly when four terms stand there. An IRI holds no space and a literal
    ends in a quote, a datatype or a language tag, so it is enough to look at what precedes the last term.
    """
    body = line[:-2]
    rest, _, last = body.rpartition(" ")
    if not last.startswith(("<", "_:")):
        return line, None  # ends in a literal (one that ends inside its quotes does not start with < after a space …)
    subject_end = rest.find(" ")
    predicate_end = rest.find(" ", subject_end + 1) if subject_end >= 0 else -1
    if predicate_end < 0:
        return line, None  # three terms: the last one is the object
    obj = rest[predicate_end + 1 :]
    if obj.startswith('"') and not _whole_literal(obj):
        return line, None  # the space was inside the literal
    return f"{rest} .", last[1:-1] if last.startswith("<") else last


def _whole_literal(term: str) -> bool:
    """Return whether ``term`` is a complete literal: its closing quote is not escaped and only a suffix follows."""
    position = 1
    while True:
        position = term.find('"', position)
        if position < 0:
            return False
        backslashes = 0
        while term[position - 1 - backslashes] == "\\":
            backslashes += 1
        if backslashes % 2 == 0:
            suffix = term[position + 1 :]
            return not suffix or suffix.startswith(("@", "^^<"))
        position += 1


def serialize(lines: Iterable[str], syntax: Syntax, *, graph: str | None = None) -> bytes:
    """Write lines as ``syntax``, as quads in ``graph`` where the syntax can name one.

    The order of statements is that of the sorted lines, so equal graphs give equal bytes. JSON-LD comes out expanded;
    ``kg.rdf.jsonld.compact`` makes the readable form. Raises ``NotAcceptable`` for what ``syntax`` cannot say: triple terms.
    """
    ordered = sorted(lines)
    if syntax is NTRIPLES or (syntax is NQUADS and graph is None):
        return "\n".join([*ordered, ""]).encode()
    if syntax is NQUADS:
        return b"".join(to_nquads(ordered, graph))
    triples = ox.parse("\n".join(ordered).encode(), format=ox.RdfFormat.N_TRIPLES)
    name = ox.NamedNode(graph) if graph is not None and syntax.quads else ox.DefaultGraph()
    prefixes = dict(PREFIXES) if syntax in (TURTLE, TRIG, RDFXML, N3) else None
    statements = (
        ox.Quad(each.subject, each.predicate, each.object, name) if syntax.quads else each.triple for each in triples
    )
    try:
        return ox.serialize(statements, format=_FORMATS[syntax.name], prefixes=prefixes) or b""
    except OSError as error:
        raise NotAcceptable(
            f"the graph cannot be written as {syntax.name}: {error}", hint="ask for text/turtle"
        ) from error


def to_nquads(lines: Iterable[str], graph: str | None) -> Iterator[bytes]:
    """Write lines as N-Quads statements of ``graph``, one at a time."""
    name = "." if graph is None else f"<{graph}> ."
    for line in lines:
        yield f"{line[:-1]}{name}\n".encode()


def parts(line: str) -> tuple[str, str, str]:
    """Take one line apart into subject, predicate and object, each as N-Triples writes it."""
    subject, predicate, value = line.split(" ", 2)
    return subject, predicate, value[:-2]


def facts_of(lines: Iterable[str]) -> Facts:
    """Sort lines by subject and predicate."""
    facts: dict[str, dict[str, list[str]]] = {}
    for subject, predicate, value in map(parts, lines):
        facts.setdefault(subject, {}).setdefault(predicate, []).append(value)
    return facts


def lines_of(facts: Facts) -> Lines:
    """Write facts as lines."""
    return frozenset(
        [
            f"{subject} {predicate} {value} ."
            for subject, said in facts.items()
            for predicate, values in said.items()
            for value in values
        ]
    )


def lines_in(text: str) -> Lines:
    """Return the lines of a graph's text (``text_of``)."""
    return frozenset(text.split("\n")) if text else frozenset()


def digest(lines: Iterable[str]) -> str:
    """Return the digest of a graph: 128 bits of BLAKE2b over its sorted lines, in hex."""
    return digest_of(text_of(lines))


def text_of(lines: Iterable[str]) -> str:
    """Return a graph as one text: its sorted lines, with a line feed between two; equal graphs have equal texts."""
    return "\n".join(sorted(lines))


def digest_of(text: str) -> str:
    """Return the digest of a graph of which this is the text (``text_of``)."""
    data = memoryview(text.encode())
    found = hashlib.blake2b(digest_size=16)
    step = _PIECE if len(data) <= _QUICK else _QUICK
    for start in range(0, len(data), step):
        found.update(data[start : start + step])
    return found.hexdigest()


def digest_at_once(text: str) -> str:
    """Return what ``digest_of`` does, where no other thread waits for Python's lock."""
    return digest_of_bytes(text.encode())


def digest_of_bytes(text: bytes) -> str:
    """Return what ``digest_at_once`` does of a text in UTF-8."""
    return hashlib.blake2b(text, digest_size=16).hexdigest()


_PIECE = 2047  # bytes that are hashed without giving up Python's lock, for which one may wait far longer than it takes
_QUICK = 64 << 10


class Term(NamedTuple):
    """An RDF term taken apart: ``kind`` is iri, blank or literal; ``datatype`` is set for literals only."""

    kind: str
    value: str
    datatype: str | None = None
    language: str | None = None


def terms(line: str) -> tuple[Term, Term, Term]:
    """Take one line apart into subject, predicate and object, each as what it means."""
    subject, predicate, value = parts(line)
    return _resource(subject), _resource(predicate), term(value)


def _resource(text: str) -> Term:
    return _known_resource(text) if len(text) < 256 else _new_resource(text)


def _new_resource(text: str) -> Term:
    return Term("iri", text[1:-1]) if text[0] == "<" else Term("blank", text[2:])


_known_resource = lru_cache(maxsize=16_384)(_new_resource)  # a few predicates and subjects make up most of a graph


_XSD_STRING = "http://www.w3.org/2001/XMLSchema#string"
_LANG_STRING = "http://www.w3.org/1999/02/22-rdf-syntax-ns#langString"
_UNESCAPE = {"t": "\t", "b": "\b", "n": "\n", "r": "\r", "f": "\f", '"': '"', "'": "'", "\\": "\\"}


def term(text: str) -> Term:
    """Return what a term means of which this is the text in a line."""
    if text[0] != '"':
        return _resource(text)
    return _known_literal(text) if len(text) < 256 else _new_literal(text)


def _new_literal(text: str) -> Term:
    end = text.rfind('"')
    value, suffix = text[1:end], text[end + 1 :]
    if "\\" in value:
        value = unescape(value)
    if not suffix:
        return Term("literal", value, _XSD_STRING)
    if suffix[0] == "@":
        return Term("literal", value, _LANG_STRING, suffix[1:])
    return Term("literal", value, suffix[3:-1])


_known_literal = lru_cache(maxsize=16_384)(_new_literal)


def unescape(text: str) -> str:
    """Return the text of a literal that is written with escapes."""
    parts: list[str] = []
    start = 0
    while (position := text.find("\\", start)) >= 0:
        parts.append(text[start:position])
        mark = text[position + 1]
        if mark in "uU":
            width = 4 if mark == "u" else 8
            parts.append(chr(int(text[position + 2 : position + 2 + width], 16)))
            start = position + 2 + width
        else:
            parts.append(_UNESCAPE[mark])
            start = position + 2
    parts.append(text[start:])
    return "".join(parts)


def _invalid(error: SyntaxError, syntax: Syntax) -> InvalidDocument:
    detail = {"line": error.lineno, "column": error.offset} if error.lineno else {}
    where = f" at line {error.lineno}, column {error.offset}" if error.lineno else ""
    return InvalidDocument(f"the {syntax.name} document does not parse{where}: {error.msg}", detail=detail)
