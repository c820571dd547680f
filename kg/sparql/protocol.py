"""SPARQL 1.1 Protocol, query and update operation, without any HTTP library: https://www.w3.org/TR/sparql11-protocol/.

A decoded request goes in, what is asked comes out; which media types an answer may have is said by ``offered``.
"""

from __future__ import annotations

import re
from binascii import a2b_qp
from dataclasses import dataclass
from urllib.parse import parse_qsl

from drumlin.kg.errors import QueryRejected, UnsupportedSyntax
from drumlin.kg.rdf.syntax import JSONLD, N3, NQUADS, NTRIPLES, RDFXML, TRIG, TURTLE
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.sparql.gate import Form

FORM = "application/x-www-form-urlencoded"
DIRECT = "application/sparql-query"
DIRECT_UPDATE = "application/sparql-update"
RESULTS = (
    "application/sparql-results+json",
    "application/sparql-results+xml",
    "text/csv",
    "text/tab-separated-values",
)
"""What SELECT and ASK can be written as, best first."""
GRAPHS = tuple(each.media_type for each in (TURTLE, JSONLD, NTRIPLES, RDFXML, NQUADS, TRIG, N3))
"""What CONSTRUCT and DESCRIBE can be written as, best first."""
_BROKEN = re.compile(rb"%(?![0-9A-Fa-f]{2})")


@dataclass(frozen=True, slots=True)
class QueryOperation:
    """One query operation: the text, the graphs that it reads; the value of ``format`` and the seconds of ``timeout`` where given."""

    query: str
    dataset: Dataset
    format: str | None = None
    seconds: float | None = None


def read_query(method: str, query_string: bytes, content_type: str | None, body: bytes) -> QueryOperation:
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


@dataclass(frozen=True, slots=True)
class UpdateRequest:
    """One update operation: the text, the graphs that its WHERE parts read, and the seconds that it is given."""

    update: str
    dataset: Dataset
    seconds: float | None = None


def read_update(query_string: bytes, content_type: str | None, body: bytes) -> UpdateRequest:
    """Read an update sent by POST, as a form or directly; raises as ``read_query`` does."""
    parameters = _parameters(query_string, "the query string")
    media_type, charset = _content_type(content_type)
    if charset not in ("", "utf-8", "utf8"):
        raise QueryRejected(f"the charset {charset} is not allowed: SPARQL is sent as UTF-8")
    if media_type not in (DIRECT_UPDATE, FORM):
        raise UnsupportedSyntax(
            f"an update cannot come with {media_type or 'no Content-Type'}",
            hint=f"send it as {DIRECT_UPDATE} or as {FORM}",
            detail={"offered": [DIRECT_UPDATE, FORM]},
        )
    if any(name in ("update", "query") for name, _ in parameters):
        raise QueryRejected("an update is not sent in the query string", hint="send it as the body")
    if media_type == FORM:
        parameters += _parameters(body, "the form")
        updates = [value for name, value in parameters if name == "update"]
    else:
        updates = [_decoded(body, "the update")]
    if len(updates) != 1:
        many = f"{len(updates)} updates were sent; send one" if updates else "no update was sent"
        raise QueryRejected(many, hint="give the parameter update once; several operations are parted by ;")
    return UpdateRequest(
        updates[0], _dataset(parameters, "using-graph-uri", "using-named-graph-uri"), _seconds(parameters)
    )


def offered(form: Form) -> tuple[str, ...]:
    """Return the media types that the result of a query can be written as, best first."""
    return RESULTS if form in ("select", "ask") else GRAPHS


def _request(parameters: list[tuple[str, str]], direct: str | None) -> QueryOperation:
    if any(name == "update" for name, _ in parameters):
        raise QueryRejected("an update was sent where a query is expected", hint="send updates to /sparql/update")
    queries = [value for name, value in parameters if name == "query"]
    if direct is not None:
        queries.append(direct)
    if len(queries) != 1:
        many = f"{len(queries)} queries were sent; send one" if queries else "no query was sent"
        raise QueryRejected(many, hint="give the parameter query once, or the query as the body")
    dataset = _dataset(parameters, "default-graph-uri", "named-graph-uri")
    format = next((value for name, value in parameters if name == "format"), None)
    return QueryOperation(queries[0], dataset, format, _seconds(parameters))


def _dataset(parameters: list[tuple[str, str]], default_name: str, named_name: str) -> Dataset:
    for name in {name for name, _ in parameters} - {default_name, named_name}:
        # Clients add parameters of their own, which are passed over; one that was to name graphs must not be: all would be read.
        if "graph" in name.lower():
            raise QueryRejected(
                f"there is no parameter {name[:64]!r} here", hint=f"graphs are named by {default_name} and {named_name}"
            )
    default = tuple(value for name, value in parameters if name == default_name)
    named = tuple(value for name, value in parameters if name == named_name)
    # Naming one kind of graph chooses the whole dataset (protocol §2.1.4): the other kind is empty then.
    return Dataset(default, named) if default or named else Dataset()


def _seconds(parameters: list[tuple[str, str]]) -> float | None:
    text = next((value for name, value in parameters if name == "timeout"), None)
    if text is None:
        return None
    try:
        seconds = float(text)
    except ValueError as error:
        raise QueryRejected("timeout is not a number of seconds") from error
    if not 0 < seconds < 1e9:
        raise QueryRejected("timeout is not a positive number of seconds")
    return seconds


def _parameters(encoded: bytes, what: str) -> list[tuple[str, str]]:
    if encoded.startswith(b"query=") and b"&" not in encoded and encoded.isascii() and not _BROKEN.search(encoded):
        return [("query", _decoded(_unquoted(encoded[6:]), what, "does not decode to UTF-8"))]
    text = _decoded(encoded, what)
    try:
        return parse_qsl(text, keep_blank_values=True, errors="strict", max_num_fields=1000)
    except UnicodeDecodeError as error:
        raise QueryRejected(f"{what} does not decode to UTF-8") from error
    except ValueError as error:
        raise QueryRejected(f"{what} has more than 1,000 parameters", reason="too_large") from error


def _unquoted(value: bytes) -> bytes:
    """Decode ``%XX`` and ``+``; quoted-printable is the same with another sign, and decoded in C."""
    return a2b_qp(value.replace(b"+", b" ").replace(b"=", b"=3D").replace(b"%", b"="))


def _decoded(data: bytes, what: str, fault: str = "is not UTF-8") -> str:
    try:
        return data.decode()
    except UnicodeDecodeError as error:
        raise QueryRejected(f"{what} {fault}") from error


def _content_type(header: str | None) -> tuple[str, str]:
    media_type, _, parameters = (header or "").partition(";")
    charset = ""
    for parameter in parameters.split(";"):
        name, _, value = parameter.partition("=")
        if name.strip().lower() == "charset":
            charset = value.strip().strip('"').lower()
    return media_type.strip().lower(), charset
