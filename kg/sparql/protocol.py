"""SPARQL 1.1 Protocol, query operation, without any HTTP library: https://www.w3.org/TR/sparql11-protocol/#query-operation.

A decoded request goes in, what is asked comes out; which media types an answer may have is said by ``offered``.
"""

from __future__ import annotations

from dataclasses import dataclass
from urllib.parse import parse_qsl

from kg.errors import QueryRejected, UnsupportedSyntax
from kg.rdf import JSONLD, NQUADS, NTRIPLES, RDFXML, TRIG, TURTLE
from kg.sparql.gate import Form
from kg.store.protocol import Dataset

FORM = "application/x-www-form-urlencoded"
DIRECT = "application/sparql-query"
RESULTS = (
    "application/sparql-results+json",
    "application/sparql-results+xml",
    "text/csv",
    "text/tab-separated-values",
)
"""What SELECT and ASK can be written as, best first."""
GRAPHS = tuple(each.media_type for each in (TURTLE, JSONLD, NTRIPLES, RDFXML, NQUADS, TRIG))
"""What CONSTRUCT and DESCRIBE can be written as, best first."""


@dataclass(frozen=True, slots=True)
class Request:
    """One query operation: the text, the graphs that it reads, and the value of ``format`` where it is given."""

    query: str
    dataset: Dataset
    format: str | None = None


def read_query(method: str, query_string: bytes, content_type: str | None, body: bytes) -> Request:
    """Read a query sent by GET, as a form or directly.

    Raises ``QueryRejected`` (no query, two queries, not UTF-8) and ``UnsupportedSyntax`` for another Content-Type.
    """
    if method not in ("GET", "POST"):
        raise QueryRejected(f"a query is sent by GET or POST, not by {method}")
    parameters = _parameters(query_string, "the query string")
    if method == "POST":
        media_type, charset = _content_type(content_type)
        if charset not in ("", "utf-8", "utf8"):
            raise QueryRejected(f"the charset {charset} is not allowed: SPARQL is sent as UTF-8")
        if media_type == DIRECT:
            return _request(parameters, _decoded(body, "the query"))
        if media_type != FORM:
            sent = media_type or "no Content-Type"
            raise UnsupportedSyntax(
                f"a query by POST cannot come with {sent}",
                hint=f"send it as {DIRECT} or as {FORM}",
                detail={"offered": [DIRECT, FORM]},
            )
        parameters += _parameters(body, "the form")
    return _request(parameters, None)


def offered(form: Form) -> tuple[str, ...]:
    """Return the media types that the result of a query can be written as, best first."""
    return RESULTS if form in ("select", "ask") else GRAPHS


def _request(parameters: list[tuple[str, str]], direct: str | None) -> Request:
    if any(name == "update" for name, _ in parameters):
        raise QueryRejected("an update was sent where a query is expected", hint="write PUT /subgraph/{id} instead")
    queries = [value for name, value in parameters if name == "query"]
    if direct is not None:
        queries.append(direct)
    if len(queries) != 1:
        many = f"{len(queries)} queries were sent; send one" if queries else "no query was sent"
        raise QueryRejected(many, hint="give the parameter query once, or the query as the body")
    default = tuple(value for name, value in parameters if name == "default-graph-uri")
    named = tuple(value for name, value in parameters if name == "named-graph-uri")
    # Naming one kind of graph chooses the whole dataset (protocol §2.1.4): the other kind is empty then.
    dataset = Dataset(default, named) if default or named else Dataset()
    return Request(queries[0], dataset, next((value for name, value in parameters if name == "format"), None))


def _parameters(encoded: bytes, what: str) -> list[tuple[str, str]]:
    text = _decoded(encoded, what)
    try:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=1000)
    except UnicodeDecodeError as error:
        raise QueryRejected(f"{what} does not decode to UTF-8") from error
    except ValueError as error:
        raise QueryRejected(f"{what} has more than 1,000 parameters", reason="too_large") from error


def _decoded(data: bytes, what: str) -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise QueryRejected(f"{what} is not UTF-8") from error


def _content_type(header: str | None) -> tuple[str, str]:
    media_type, _, parameters = (header or "").partition(";")
    charset = ""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"').lower()
    return media_type.strip().lower(), charset
