"""Bodies of requests in bounded memory; many writes in one: NDJSON in, one result a line out."""

from __future__ import annotations

import asyncio
import zlib
from collections.abc import AsyncIterator

import msgspec
from fastapi import Request
from starlette.concurrency import run_in_threadpool

from api.assembly import Parts
from api.problems import problem_of
from kg.errors import DrumlinError, InvalidDocument, TooLarge, UnsupportedSyntax
from kg.rdf import JSONLD
from kg.store.protocol import ANY, GraphWrite, Unconditional, Written

MEDIA_TYPE = "application/x-ndjson"
BATCH = 1000
"""Lines that are validated and written together."""
DISCARDED = 256 << 20
"""Bytes of a body that is too large which are read to the end; beyond it the connection is cut."""
_GZIP = 16 + zlib.MAX_WBITS
_PIECE = 64 << 10
MAX_LINES = 100_000
"""Lines of one request."""
MAX_TOGETHER = 10_000
"""Lines of one atomic request."""


class Line(msgspec.Struct, forbid_unknown_fields=True):
    """One line as it is sent."""

    op: str
    id: str
    owner: str = "user"
    document: msgspec.Raw = msgspec.Raw()
    digest: str | None = None


async def content(request: Request, sent: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    """Yield a body, ``sent`` as it arrives, decompressed when it is gzip, in pieces of bounded size."""
    encoding = request.headers.get("content-encoding", "identity").strip().lower()
    if encoding not in ("identity", "gzip", "x-gzip"):
        raise UnsupportedSyntax(
            f"the Content-Encoding {encoding[:40]!r} is not offered", detail={"offered": ["gzip", "identity"]}
        )
    async for piece in sent if encoding == "identity" else _gunzipped(sent):
        yield piece


async def _gunzipped(sent: AsyncIterator[bytes]) -> AsyncIterator[bytes]:
    member = zlib.decompressobj(_GZIP)
    try:
        async for chunk in sent:
            rest, full = chunk, False
            while rest or full:
                if member.eof:  # another member follows
                    member = zlib.decompressobj(_GZIP)
                piece = member.decompress(rest, _PIECE)
                rest, full = member.unconsumed_tail or member.unused_data, len(piece) == _PIECE and not member.eof
                yield piece
    except zlib.error as error:
        raise InvalidDocument("the body is not gzip, as its Content-Encoding says") from error
    if not member.eof:
        raise InvalidDocument("the body ends in the middle of its gzip stream")


async def lines_of(request: Request, limit: int) -> AsyncIterator[bytes]:
    """Yield the lines of a body as they arrive; raises ``TooLarge`` for a line of more than ``limit`` bytes."""
    rest = bytearray()
    sent = request.stream()
    async for chunk in content(request, sent):
        rest += chunk
        *whole, last = rest.split(b"\n")
        rest = last
        for line in whole:
            if line.strip():
                yield bytes(line)
        if len(rest) > limit:
            await discard(sent)
            raise TooLarge(f"a line has more than {limit:,} bytes")
    if rest.strip():
        yield bytes(rest)


async def body_of(request: Request, limit: int) -> bytes:
    """Read a body; raises ``TooLarge`` when it has more than ``limit`` bytes."""
    received = bytearray()
    sent = request.stream()
    async for chunk in content(request, sent):
        received += chunk
        if len(received) > limit:
            await discard(sent)
            raise TooLarge(f"the body has more than {limit:,} bytes, the limit here")
    return bytes(received)


async def discard(sent: AsyncIterator[bytes]) -> None:
    """Read on without keeping or unpacking anything, so that the client is done sending and reads the answer; gives up after a while."""
    rest = 0
    async for chunk in sent:
        rest += len(chunk)
        if rest > DISCARDED:
            return


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


def _too_many() -> TooLarge:
    return TooLarge(f"a request takes at most {MAX_LINES:,} lines; the ones before were written")


async def results(service: Parts, lines: AsyncIterator[bytes]) -> bytes:
    """Write line by line, a batch in one transaction where that is possible, and return one result a line.

    Lines are read and written as they arrive, a batch being read while the one before it is written; only their results are kept until
    the end, since many clients do not read while they send. What ends the request early (a line that is too long, too many lines)
    is the last result.
    """
    told: list[bytes] = []
    ended = b""
    writing: asyncio.Task[bytes] | None = None
    try:
        async for batch in _batches(lines):
            if isinstance(batch, TooLarge):
                ended = _result(batch)
                break
            ready = await run_in_threadpool(_read_batch, service, batch)
            if writing:
                told.append(await writing)
            writing = asyncio.create_task(run_in_threadpool(_write_batch, service, ready))
    finally:
        if writing:
            told.append(await writing)
    return b"".join([*told, ended])


async def _batches(lines: AsyncIterator[bytes]) -> AsyncIterator[list[bytes] | TooLarge]:
    """Gather lines into batches; what ends the request early comes last."""
    pending: list[bytes] = []
    count = 0
    ended: TooLarge | None = None
    try:
        async for line in lines:
            if count == MAX_LINES:
                raise _too_many()
            count += 1
            pending.append(line)
            if len(pending) == BATCH:
                yield pending
                pending = []
    except TooLarge as error:
        ended = error
    if pending:
        yield pending
    if ended:
        yield ended


def write_together(service: Parts, batch: list[bytes]) -> bytes:
    """Write all lines or none and return the results; raises the first error."""
    lines = [_decoded(service, line) for line in batch]
    if len({line.id for line in lines}) < len(lines):
        raise InvalidDocument("the same id occurs twice in one atomic request")
    written = service.subgraphs.apply([_prepared(service, line) for line in lines])
    return b"".join(_result(each) for each in written)


_Ready = GraphWrite | Line | DrumlinError
"""A line that was read: a write that needs nothing of the store, or a line that is to be seen in its turn, or what is wrong with it."""


def _read_batch(service: Parts, batch: list[bytes]) -> list[_Ready]:
    """Read and validate lines; what depends on the store is left for its turn."""
    return [_read(service, text) for text in batch]


def _read(service: Parts, text: bytes) -> _Ready:
    try:
        line = _decoded(service, text)
        return line if line.op == "delete" else _prepared(service, line)
    except DrumlinError as error:
        return error


def _write_batch(service: Parts, batch: list[_Ready]) -> bytes:
    """Write a batch in one transaction; a graph that occurs again is written in a later one, so that order holds."""
    outcomes: list[Written | DrumlinError] = []
    writes: dict[int, GraphWrite] = {}  # by their place among the outcomes
    touched: set[str] = set()

    def flush() -> None:
        for place, outcome in zip(writes, _write(service, list(writes.values())), strict=True):
            outcomes[place] = outcome
        writes.clear()
        touched.clear()

    for line in batch:
        if isinstance(line, DrumlinError):
            outcomes.append(line)
            continue
        outcomes.append(_UNDECIDED)
        graph = line.id if isinstance(line, Line) else line.graph
        if graph in touched:
            flush()
        try:
            writes[len(outcomes) - 1] = _prepared(service, line) if isinstance(line, Line) else line
            touched.add(graph)
        except DrumlinError as error:
            outcomes[-1] = error
    flush()
    return b"".join(_result(each) for each in outcomes)


_UNDECIDED = DrumlinError("not decided yet")


def _write(service: Parts, writes: list[GraphWrite]) -> list[Written | DrumlinError]:
    """Write in one transaction; where one of the writes is refused, each on its own."""
    try:
        return list(service.subgraphs.apply(writes))
    except DrumlinError:
        return [_alone(service, each) for each in writes]


def _alone(service: Parts, write: GraphWrite) -> Written | DrumlinError:
    try:
        return service.subgraphs.apply([write])[0]
    except DrumlinError as error:
        return error


def _decoded(service: Parts, line: bytes) -> Line:
    """Read a line; its id becomes the full IRI."""
    try:
        read = msgspec.json.decode(line, type=Line)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidDocument(f"the line is not what is expected: {error}") from error
    return msgspec.structs.replace(read, id=service.iris.expand(read.id))


def _prepared(service: Parts, line: Line) -> GraphWrite:
    expected: str | Unconditional = line.digest if line.digest is not None else ANY
    if line.op == "put":
        if not bytes(line.document):
            raise InvalidDocument("a put needs a document")
        lines = service.subgraphs.parse(bytes(line.document), JSONLD, line.id)
        return service.subgraphs.prepare(line.id, lines, owner=line.owner, expected=expected)
    if line.op == "delete":
        return service.subgraphs.prepare_delete(line.id, owner=line.owner, expected=expected)
    if line.op == "remove":
        return GraphWrite(line.id, None, line.owner, expected)
    raise InvalidDocument(f"op {line.op!r} is not one of put, delete, remove")


def _result(result: Written | DrumlinError) -> bytes:
    if isinstance(result, DrumlinError):
        return msgspec.json.encode({"problem": problem_of(result)}, enc_hook=str) + b"\n"
    found = {"id": result.graph, "outcome": result.outcome, "digest": result.digest, "generation": result.generation}
    return msgspec.json.encode(found) + b"\n"
