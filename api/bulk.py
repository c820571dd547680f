"""Many writes in one request: NDJSON in, one result a line out, in bounded memory."""

from __future__ import annotations

from collections.abc import AsyncIterator, Iterator

import msgspec
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from api.assembly import Parts
from api.problems import problem_of
from kg.errors import DrumlinError, InvalidDocument, TooLarge
from kg.rdf import JSONLD
from kg.store.protocol import ANY, GraphWrite, Unconditional, Written

MEDIA_TYPE = "application/x-ndjson"
BATCH = 500
"""Lines that are validated and written together."""
MAX_TOGETHER = 10_000
"""Lines of one atomic request."""


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line as it is sent."""

    op: str
    id: str
    owner: str = "user"
    document: msgspec.Raw | None = None
    digest: str | None = None


async def lines_of(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the lines of a body as they arrive; raises ``TooLarge`` for a line of more than ``limit`` bytes."""
    rest = bytearray()
    async for chunk in request.stream():
        rest += chunk
        *whole, last = rest.split(b"\n")
        rest = last
        for line in whole:
            if line.strip():
                yield bytes(line)
        if len(rest) > limit:
            raise TooLarge(f"a line has more than {limit:,} bytes")
    if rest.strip():
        yield bytes(rest)


async def together(lines: AsyncIterator[bytes]) -> list[bytes]:
    """Gather the lines of an atomic request; raises ``TooLarge`` when there are too many."""
    found: list[bytes] = []
    async for line in lines:
        if len(found) == MAX_TOGETHER:
            raise TooLarge(
                f"an atomic request takes at most {MAX_TOGETHER:,} lines", hint="send several, or leave atomic out"
            )
        found.append(line)
    return found


async def results(service: Parts, lines: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Write line by line, a batch in one transaction where that is possible, and yield the results."""
    pending: list[bytes] = []
    async for line in lines:
        pending.append(line)
        if len(pending) == BATCH:
            yield await run_in_threadpool(_write_batch, service, pending)
            pending = []
    if pending:
        yield await run_in_threadpool(_write_batch, service, pending)


def write_together(service: Parts, batch: list[bytes]) -> bytes:
    """Write all lines or none and return the results; raises the first error."""
    try:
        written = service.subgraphs.apply([_prepared(service, line) for line in batch])
    except ValueError as error:
        raise InvalidDocument("the same id occurs twice in one atomic request") from error
    return b"".join(_result(each) for each in written)


def _write_batch(service: Parts, batch: list[bytes]) -> bytes:
    """Write a batch in one transaction; where one of its writes is refused, each line on its own."""
    writes = [_attempt(service, line) for line in batch]
    good = [each for each in writes if isinstance(each, GraphWrite)]
    outcomes: Iterator[Written | DrumlinError]
    try:
        outcomes = iter(service.subgraphs.apply(good))
    except (DrumlinError, ValueError):  # ValueError: the same graph twice
        outcomes = (_alone(service, each) for each in good)
    return b"".join(_result(each if isinstance(each, DrumlinError) else next(outcomes)) for each in writes)


def _attempt(service: Parts, line: bytes) -> GraphWrite | DrumlinError:
    try:
        return _prepared(service, line)
    except DrumlinError as error:
        return error


def _prepared(service: Parts, line: bytes) -> GraphWrite:
    try:
        read = msgspec.json.decode(line, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidDocument(f"the line is not what is expected: {error}") from error
    iri = service.iris.expand(read.id)
    expected: str | Unconditional = read.digest if read.digest is not None else ANY
    if read.op == "put":
        if read.document is None:
            raise InvalidDocument("a put needs a document")
        lines = service.subgraphs.parse(bytes(read.document), JSONLD, iri)
        return service.subgraphs.prepare(iri, lines, owner=read.owner, expected=expected)
    if read.op == "delete":
        return service.subgraphs.prepare_delete(iri, owner=read.owner, expected=expected)
    if read.op == "remove":
        return GraphWrite(iri, None, read.owner, expected)
    raise InvalidDocument(f"op {read.op!r} is not one of put, delete, remove")


def _alone(service: Parts, write: GraphWrite) -> Written | DrumlinError:
    try:
        return service.subgraphs.apply([write])[0]
    except DrumlinError as error:
        return error


def _result(result: Written | DrumlinError) -> bytes:
    if isinstance(result, DrumlinError):
        return msgspec.json.encode({"problem": problem_of(result)}, enc_hook=str) + b"\n"
    found = {"id": result.graph, "outcome": result.outcome, "digest": result.digest, "generation": result.generation}
    return msgspec.json.encode(found) + b"\n"
