"""Answers of an engine read back: rows of our own queries, and a caller's answer written anew in the syntax asked for.

Engines differ in how well they write results (Virtuoso's TSV, CSV and JSON-LD lose datatypes or languages), so each is asked for the one
syntax it is exact in, JSON for solutions and N-Triples for graphs, and what the caller wants is written here, as the embedded store does.
"""

from __future__ import annotations

import io
import re
from collections.abc import Callable, Iterator, Mapping

import httpx
import pyoxigraph as ox

from drumlin.kg.errors import InvalidDocument, InvalidIdentifier, QueryRejected, StoreUnavailable, TooLarge
from drumlin.kg.rdf import nesting
from drumlin.kg.rdf.syntax import NTRIPLES, PREFIXES, TURTLE
from drumlin.kg.sparql.dataset import Chosen
from drumlin.kg.sparql.lexer import tokens
from drumlin.kg.store import querying
from drumlin.kg.store.protocol import Row
from drumlin.kg.store.remote.bookkeeping_graph import Row as Terms
from drumlin.kg.store.remote.connection import EngineConnection
from drumlin.kg.store.remote.engine import Capability, RemoteEngine, datatype_given_back, given_back
from drumlin.kg.store.streaming import ChunkWriter

_JSON = "application/sparql-results+json"
_NTRIPLES = "application/n-triples, text/plain;q=0.5"
_VIRTUOSOS_NTRIPLES = "text/plain"


class _Body:
    """The body of an answer as a file that the parsers read from, with the engine's ways undone, line by line."""

    def __init__(self, response: httpx.Response, engine: RemoteEngine) -> None:
        self._chunks = response.iter_bytes(65_536)
        self._altered = Capability.EXACT_LITERALS in engine.lacks
        self._line = b""
        self._left = b""

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes; none at the end."""
        while not self._left:
            chunk = next(self._chunks, b"")
            self._left = self._undone(chunk) if self._altered else chunk
            if not chunk:
                break
        found, self._left = (self._left, b"") if size < 0 else (self._left[:size], self._left[size:])
        return found

    def _undone(self, chunk: bytes) -> bytes:
        whole, self._line = self._line + chunk, b""
        if chunk:
            end = whole.rfind(b"\n") + 1
            whole, self._line = whole[:end], whole[end:]
        return given_back(whole)


def rows(connection: EngineConnection, query: str) -> list[Terms]:
    """Run one of our own SELECTs and return its solutions, as terms in N-Triples form."""
    return [[None if term is None else str(term) for term in row] for row in _solutions(connection, query)]


def _solutions(connection: EngineConnection, query: str) -> ox.QuerySolutions:
    with connection.query(query, _JSON) as response:
        _refuse_cut(response, connection.engine)
        content = b"".join(iter(_Body(response, connection.engine).read, b""))
    try:
        nesting.check_results(content)
        found = ox.parse_query_results(content, format=ox.QueryResultsFormat.JSON)
    except (InvalidDocument, SyntaxError) as error:
        raise _unreadable(connection.engine, error) from error
    if not isinstance(found, ox.QuerySolutions):
        raise TypeError("a look-up is a SELECT")
    return found


def _refuse_cut(response: httpx.Response, engine: RemoteEngine) -> None:
    """Refuse an answer that Virtuoso has cut, which it says in a header only."""
    if response.headers.get("X-SQL-State"):
        raise QueryRejected(f"{engine.name} did not finish the query in its time", reason="timeout")
    if "X-SPARQL-MaxRows" in response.headers:
        raise _too_many(engine)


def _too_many(engine: RemoteEngine) -> TooLarge:
    return TooLarge(
        f"{engine.name} gives no more than {engine.rows:,} rows, and this query has as many or more",
        hint="ask with LIMIT and OFFSET, or raise Virtuoso's ResultSetMaxRows and store.rows",
        detail={"capability": Capability.UNLIMITED_ROWS.name, "limit": engine.rows},
    )


# -- our own look-ups -------------------------------------------------------------------------------------------------------


def look_up(connection: EngineConnection, query: str, values: Mapping[str, str]) -> list[Row]:
    """Run a trusted SELECT over the union of all graphs, with variables bound to IRIs as terms."""
    bound = {name: _iri(name, value) for name, value in values.items()}
    text, _ = connection.engine.put(Chosen(_substituted(query, bound)), None)
    found = _solutions(connection, text)
    names = [variable.value for variable in found.variables]
    return [
        {**values, **{name: _text(term) for name, term in zip(names, row, strict=True) if term is not None}}
        for row in found
    ]


def _substituted(query: str, values: Mapping[str, str]) -> str:
    """Put IRIs in the place of variables, everywhere but in what the query selects: there they fall away."""
    parts: list[str] = []
    end = depth = 0
    for token in tokens(query):
        depth += (token.text == "{") - (token.text == "}") if token.kind == "sign" else 0
        if token.kind == "variable" and (iri := values.get(token.text[1:])):
            parts += [query[end : token.start], iri if depth else ""]
            end = token.start + len(token.text)
    text = "".join(parts) + query[end:]
    return re.sub(r"\A(.*?\bSELECT\s+(?:DISTINCT\s+)?)(?=WHERE|\{)", r"\1* ", text, count=1, flags=re.DOTALL)


def _iri(name: str, value: str) -> str:
    try:
        return str(ox.NamedNode(value))
    except ValueError as error:
        raise InvalidIdentifier(f"{value!r}, given for {name}, is not an absolute IRI") from error


def _text(term: ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple) -> str:
    return term.value if isinstance(term, ox.NamedNode | ox.Literal) else str(term)


# -- a caller's query -------------------------------------------------------------------------------------------------------


_GRAPH_FORMS = frozenset({"CONSTRUCT", "DESCRIBE"})
_FORMS = _GRAPH_FORMS | {"SELECT", "ASK"}


def work(
    connection: EngineConnection, chosen: Chosen, media_type: str, base: str | None, timeout: float
) -> Callable[[ChunkWriter], None]:
    """Return what runs the query and writes its result; all of it must happen in one thread.

    The text is tried on nothing first, so that what is wrong with it is said as the embedded store says it.
    """
    querying.work(ox.Store(), chosen, media_type, base)(io.BytesIO())
    engine = connection.engine
    text, given = engine.put(chosen, base)
    form = next(token.text for token in tokens(chosen.text) if token.kind == "word" and token.text in _FORMS)
    graph = form in _GRAPH_FORMS
    accept = (_VIRTUOSOS_NTRIPLES if engine.rows else _NTRIPLES) if graph else _JSON

    def run(writer: ChunkWriter) -> None:
        with connection.query(text, accept, given, timeout) as response:
            _refuse_cut(response, engine)
            body = _Body(response, engine)
            try:
                if graph:
                    _write_graph(_triples(body, engine), media_type, writer)
                else:
                    _write_solutions(body, media_type, writer)
            except (InvalidDocument, SyntaxError) as error:
                raise _unreadable(engine, error) from error

    return run


def _unreadable(engine: RemoteEngine, error: InvalidDocument | SyntaxError) -> StoreUnavailable:
    said = error.msg if isinstance(error, SyntaxError) else error
    return StoreUnavailable(f"{engine.name} answers something that cannot be read: {said}")


def _write_solutions(body: _Body, media_type: str, writer: ChunkWriter) -> None:
    scanned = nesting.checked_results(body)
    found = ox.parse_query_results(scanned, format=ox.QueryResultsFormat.JSON)  # type: ignore[arg-type]  # read() is all it needs
    found.serialize(writer, format=ox.QueryResultsFormat.from_media_type(media_type))  # type: ignore[arg-type]  # write() and flush() are all it needs


def _write_graph(triples: Iterator[ox.Triple], media_type: str, writer: ChunkWriter) -> None:
    prefixes = dict(PREFIXES) if media_type == TURTLE.media_type else None
    ox.serialize(triples, writer, ox.RdfFormat.from_media_type(media_type), prefixes=prefixes)  # type: ignore[arg-type]  # as above


def _triples(body: _Body, engine: RemoteEngine) -> Iterator[ox.Triple]:
    count = 0
    scanned = nesting.checked(body, NTRIPLES.name)
    for quad in ox.parse(scanned, format=ox.RdfFormat.N_TRIPLES):  # type: ignore[arg-type]  # read() is all it needs
        count += 1
        yield _given_back(quad.triple)
    if engine.rows is not None and count >= engine.rows:  # cut, and not even a header says so
        raise _too_many(engine)


def _given_back(triple: ox.Triple) -> ox.Triple:
    value = triple.object
    if not isinstance(value, ox.Literal) or not value.datatype.value.startswith("urn:"):
        return triple
    datatype = ox.NamedNode(datatype_given_back(value.datatype.value))
    return ox.Triple(triple.subject, triple.predicate, ox.Literal(value.value, datatype=datatype))
