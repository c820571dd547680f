"""Queries from a request to the answer: read, run, and streamed as the engine writes the result."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from functools import lru_cache
from typing import NamedTuple

import msgspec
from starlette.responses import Response

from drumlin.api.bootstrap import Services
from drumlin.api.http.compression import VARIES
from drumlin.api.http.negotiation import choose, named
from drumlin.api.http.streaming import BodyStream
from drumlin.kg.errors import NotAcceptable
from drumlin.kg.graphs.foreign import RewrittenQuery
from drumlin.kg.sparql import gate, protocol
from drumlin.kg.sparql.absent_terms import AbsentTerm, UnkeptLabel, absent_terms, asked_labels, unkept_labels
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.sparql.results import Solutions, read_solutions
from drumlin.kg.store.protocol import Answer

SOLUTIONS = {
    "json": "application/sparql-results+json",
    "srj": "application/sparql-results+json",
    "xml": "application/sparql-results+xml",
    "srx": "application/sparql-results+xml",
    "csv": "text/csv",
    "tsv": "text/tab-separated-values",
}
"""Media types of solutions by the names that ``format=`` takes."""
FORM_BYTES = 65_536
"""Bytes of a body beyond the query: the other fields of its form."""
_EMPTY = 8192  # bytes of a result without a row: the names of its variables
_PLAIN = {"application/json": SOLUTIONS["json"], "application/xml": SOLUTIONS["xml"]}
_PLAIN_GRAPHS = {"application/json": "application/ld+json", "application/xml": "application/rdf+xml"}
"""What many clients say when they mean JSON or XML of any kind."""


class ParsedQuery(NamedTuple):
    """A query that passed the gate. ``volatile`` when its result changes by itself; ``timeout`` in seconds, None for the cap."""

    text: str
    dataset: Dataset
    media_type: str
    timeout: float | None
    volatile: bool


def parse(
    method: str,
    query_string: bytes,
    accept: str | None,
    content_type: str | None,
    body: bytes,
    *,
    max_bytes: int,
) -> ParsedQuery:
    """Read a request to ``/sparql``; raises ``QueryRejected``, ``UnsupportedSyntax`` and ``NotAcceptable``."""
    sent = protocol.read_query("POST" if method == "POST" else "GET", query_string, content_type, body)
    gated = gate.check(sent.query, max_bytes=max_bytes)
    media_type = _result_type(accept, sent.format, protocol.offered(gated.form))
    return ParsedQuery(gated.text, sent.dataset, media_type, sent.seconds, gated.volatile)


@lru_cache(256)
def _result_type(accept: str | None, wanted: str | None, offered: tuple[str, ...]) -> str:
    """Return the media type to write a result as: what ``format`` names, else what Accept likes most."""
    if not wanted:
        if offered is protocol.GRAPHS:
            return _PLAIN_GRAPHS.get(found := choose(accept, (*offered, *_PLAIN_GRAPHS)), found)
        return _PLAIN.get(found := choose(accept, (*offered, *_PLAIN)), found)
    if offered is protocol.GRAPHS:
        return named(wanted).media_type
    media_type = SOLUTIONS.get(wanted.lower(), wanted.lower().replace(" ", "+"))  # as in ``named``
    if media_type in offered:
        return media_type
    raise NotAcceptable(
        f"format {wanted[:64]!r} is not offered for this query",
        hint=f"name one of {', '.join(SOLUTIONS)}, or a media type",
        detail={"offered": list(offered)},
    )


def headers_of(generation: int) -> Mapping[str, str]:
    """Return the headers of a query's result."""
    return {"X-Drumlin-Generation": str(generation), "Vary": VARIES, "Cache-Control": "no-cache"}


def of_documents(service: Services, query: ParsedQuery) -> Answer | ParsedQuery:
    """Return the answer to a query whose dataset has foreign documents, else the query as the store is to be asked it."""
    seconds = min(query.timeout or service.settings.query_timeout, service.settings.query_timeout)
    found = service.documents.answer(query.text, query.dataset, query.media_type, seconds)
    if found is None:
        return query
    if isinstance(found, RewrittenQuery):
        return query._replace(text=found.text)
    return Answer(query.media_type, iter(found), service.store.generation)


def _answer(service: Services, query: ParsedQuery) -> Answer:
    prepared = of_documents(service, query)
    if isinstance(prepared, Answer):
        return prepared
    query = prepared
    return service.store.answer(
        query.text,
        media_type=query.media_type,
        dataset=query.dataset,
        base=service.settings.base,
        timeout=query.timeout,
    )


def run(service: Services, query: ParsedQuery) -> BodyStream:
    """Run a query and wait for the first part of its result; raises what the query raises until then."""
    answer = _answer(service, query)
    return BodyStream(answer.chunks, answer.media_type, headers_of(answer.generation))


@contextmanager
def chunks(service: Services, query: ParsedQuery) -> Iterator[tuple[Iterator[bytes], int]]:
    """Run a query that passed the gate; yield its result in pieces, and the generation. The query ends with the block."""
    answer = _answer(service, query)
    try:
        yield answer.chunks, answer.generation
    finally:
        if close := getattr(answer.chunks, "close", None):
            close()


@contextmanager
def solutions(service: Services, query: str) -> Iterator[tuple[Solutions, int]]:
    """Run a SELECT that passed the gate; yield its solutions as they arrive, and the generation. The query ends with the block."""
    with chunks(service, ParsedQuery(query, Dataset(), SOLUTIONS["json"], timeout=None, volatile=False)) as found:
        pieces, generation = found
        yield read_solutions(pieces), generation


_ANYWHERE = (
    "SELECT ?x WHERE { ?s ?term ?x } LIMIT 1",
    "SELECT ?x WHERE { ?x ?p ?term } LIMIT 1",
    "SELECT ?x WHERE { ?term ?p ?x } LIMIT 1",
)


def absent_from(service: Services, query: str) -> tuple[AbsentTerm | UnkeptLabel, ...]:
    """Return what of a query is nowhere in the store: its terms, and labels that are not kept."""

    def occurs(iri: str) -> bool:
        return any(service.store.look_up(each, {"term": iri}) for each in _ANYWHERE)

    return *absent_terms(query, occurs), *unkept_labels(asked_labels(query), service.settings.keeps_label)


def explained(service: Services, query: ParsedQuery, given: frozenset[str] | None = None) -> Response:
    """Run a query as ``run`` does; to a SELECT in JSON that finds nothing, what is nowhere in the store is added as ``warnings``.

    ``given``: the IRIs that alone are worth a word, where the query itself is known to be right.
    """
    answer = _answer(service, query)
    chunks = iter(answer.chunks)
    begun = b""
    for piece in chunks:
        begun += piece
        if len(begun) > _EMPTY:
            break
    headers = headers_of(answer.generation)
    if query.media_type != SOLUTIONS["json"] or len(begun) > _EMPTY:
        return BodyStream(_whole(begun, chunks, answer), answer.media_type, headers)
    body = msgspec.json.decode(begun)
    if body.get("results", {}).get("bindings") != []:
        return Response(begun, media_type=query.media_type, headers=headers)
    absent = absent_from(service, query.text)
    body["warnings"] = [
        _warning(each) for each in absent if given is None or isinstance(each, UnkeptLabel) or each.iri in given
    ]
    return Response(msgspec.json.encode(body), media_type=query.media_type, headers=headers)


def _whole(begun: bytes, rest: Iterator[bytes], answer: Answer) -> Iterator[bytes]:
    """Yield what has come of a result and the rest of it; the query ends with it."""
    try:
        yield begun
        yield from rest
    finally:
        if close := getattr(answer.chunks, "close", None):
            close()


def _warning(found: AbsentTerm | UnkeptLabel) -> dict[str, str | None]:
    if isinstance(found, UnkeptLabel):
        return {"term": found.written, "label": found.key, "detail": found.detail}
    return {"term": found.written, "iri": found.iri, "suggestion": found.suggestion, "detail": found.detail}
