"""Running a query in the engine and writing its result: SELECT and ASK as the four result formats, graphs as any RDF syntax."""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping

import pyoxigraph as ox

from drumlin.kg.errors import InvalidIdentifier, NotAcceptable, QueryRejected, StoreUnavailable
from drumlin.kg.rdf.syntax import PREFIXES, SYNTAXES, TURTLE
from drumlin.kg.sparql.dataset import Chosen
from drumlin.kg.store.protocol import Row
from drumlin.kg.store.streaming import ChunkWriter

_RESULTS: Mapping[str, ox.QueryResultsFormat] = {
    "application/sparql-results+json": ox.QueryResultsFormat.JSON,
    "application/sparql-results+xml": ox.QueryResultsFormat.XML,
    "text/csv": ox.QueryResultsFormat.CSV,
    "text/tab-separated-values": ox.QueryResultsFormat.TSV,
}
_GRAPHS: Mapping[str, ox.RdfFormat] = {
    syntax.media_type: found for syntax in SYNTAXES if (found := ox.RdfFormat.from_media_type(syntax.media_type))
}
_POSITION = re.compile(r"(?:error at )?(\d+):(\d+):\s*", re.IGNORECASE)


def work(engine: ox.Store, chosen: Chosen, media_type: str, base: str | None) -> Callable[[ChunkWriter], None]:
    """Return what runs the query and writes its result; all of it must happen in one thread."""
    if media_type not in _RESULTS and media_type not in _GRAPHS:
        raise _unsupported(media_type, "this query", [*_RESULTS, *_GRAPHS])

    def run(writer: ChunkWriter) -> None:
        try:
            _write(_query(engine, chosen, base), media_type, writer)
        except OSError as error:
            if "does not support" in str(error):  # terms that this syntax cannot write: triple terms in JSON-LD
                raise NotAcceptable(
                    f"the result cannot be written as {media_type}: {error}", hint="ask for text/turtle"
                ) from error
            raise StoreUnavailable(f"the store cannot be read: {error}") from error

    return run


def _write(
    results: ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples, media_type: str, writer: ChunkWriter
) -> None:
    if isinstance(results, ox.QueryTriples):
        _write_graph(results, media_type, writer)
    elif (found := _RESULTS.get(media_type)) is None:
        raise _unsupported(media_type, "a SELECT or ASK query", list(_RESULTS))
    else:
        results.serialize(writer, format=found)  # type: ignore[arg-type]  # write() and flush() are all it needs


def _write_graph(results: ox.QueryTriples, media_type: str, writer: ChunkWriter) -> None:
    if (found := _GRAPHS.get(media_type)) is None:
        raise _unsupported(media_type, "a CONSTRUCT or DESCRIBE query", list(_GRAPHS))
    if media_type == TURTLE.media_type:  # for people: prefixes are worth the slower way
        ox.serialize(results, writer, found, prefixes=dict(PREFIXES))  # type: ignore[arg-type]  # as above
    else:
        results.serialize(writer, format=found)  # type: ignore[arg-type]  # as above


def _query(engine: ox.Store, chosen: Chosen, base: str | None) -> ox.QuerySolutions | ox.QueryBoolean | ox.QueryTriples:
    listed = chosen.default is not None or chosen.named is not None
    default: list[ox.NamedNode | ox.BlankNode | ox.DefaultGraph] = [_graph(each) for each in chosen.default or ()]
    named: list[ox.NamedNode | ox.BlankNode] = [_graph(each) for each in chosen.named or ()]
    try:
        return engine.query(
            chosen.text,
            base_iri=base,
            # The flag would win over FROM, and beside named graphs it would show all graphs.
            use_default_graph_as_union=chosen.union,
            default_graph=default if listed else None,
            named_graphs=named if listed else None,
        )
    except SyntaxError as error:
        raise _rejected(error) from error
    except RuntimeError as error:  # found before the query runs
        raise not_evaluated("query", error) from error


def not_evaluated(what: str, error: Exception) -> QueryRejected:
    """Return the error of a text that parses and has a function that nobody knows."""
    return QueryRejected(
        f"the {what} cannot be evaluated: {error}",
        reason="unknown_function",
        hint="only the functions of SPARQL and the casts of XML Schema are known here",
    )


def _graph(iri: str) -> ox.NamedNode:
    try:
        return ox.NamedNode(iri)
    except ValueError as error:
        raise QueryRejected(f"the graph {iri!r} is not an absolute IRI") from error


def _rejected(error: SyntaxError) -> QueryRejected:
    """Translate a syntax error; the engine's position is where it gave up, at or after the mistake."""
    message = str(error.msg)
    position = _POSITION.match(message)
    detail = {"line": int(position[1]), "column": int(position[2])} if position else {}
    where = f" at line {position[1]}, column {position[2]}" if position else ""
    said = message[position.end() :] if position else message
    return QueryRejected(f"the query does not parse{where}: {said}", detail=detail)


def _unsupported(media_type: str, what: str, offered: list[str]) -> NotAcceptable:
    return NotAcceptable(
        f"the result of {what} cannot be written as {media_type}",
        hint=f"accept one of {', '.join(offered)}",
        detail={"offered": offered},
    )


# -- our own queries ------------------------------------------------------------------------------------------------------

_PROJECTION = re.compile(r"\bSELECT\s+(?:DISTINCT\s+|REDUCED\s+)?([^{]*)")


def look_up(engine: ox.Store, query: str, values: Mapping[str, str]) -> list[Row]:
    """Run a trusted SELECT over the union of all graphs, with variables bound to IRIs as terms."""
    bound = {ox.Variable(name): _value(name, iri) for name, iri in values.items()}
    solutions = engine.query(
        _projecting(query, values),
        use_default_graph_as_union=True,
        substitutions=bound,  # type: ignore[arg-type]  # a mapping of IRIs is one of terms
    )
    if not isinstance(solutions, ox.QuerySolutions):
        raise TypeError("a look-up is a SELECT")
    names = [variable.value for variable in solutions.variables]
    return [{name: _text(term) for name, term in zip(names, row, strict=True) if term is not None} for row in solutions]


def _projecting(query: str, values: Mapping[str, str]) -> str:
    """Project the bound variables: the engine substitutes only what the query selects."""
    match = _PROJECTION.search(query)
    if match is None or match[1].lstrip().startswith("*"):
        return query
    missing = [f"?{name} " for name in values if not re.search(rf"\?{name}\b", match[1])]
    return f"{query[: match.start(1)]}{''.join(missing)}{query[match.start(1) :]}"


def _value(name: str, iri: str) -> ox.NamedNode:
    try:
        return ox.NamedNode(iri)
    except ValueError as error:
        raise InvalidIdentifier(f"{iri!r}, given for {name}, is not an absolute IRI") from error


def _text(term: ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple) -> str:
    return term.value if isinstance(term, ox.NamedNode | ox.Literal) else str(term)
