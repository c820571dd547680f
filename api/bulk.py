"""Many writes in one request: NDJSON in, one result a line out, in order; in bounded memory.

A batch is bounded in lines and in bytes, and batches are read while the one before them is written, by processes
(``kg.proving``) that begin with the first full one; an atomic request is one batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import ExitStack
from typing import ParamSpec, TypeVar

import msgspec
from starlette.concurrency import run_in_threadpool

from api.assembly import Parts
from api.bodies import DISCARDED
from api.problems import problem_of
from api.representations import digests_of
from kg.bulk import Head, Line, read_line
from kg.errors import (
    DrumlinError,
    GraphOwned,
    InvalidDocument,
    PreconditionFailed,
    PreconditionRequired,
    TooLarge,
    UnsupportedSyntax,
)
from kg.proving_process import Proven
from kg.rdf import JSONLD
from kg.store import preconditions
from kg.store.protocol import ANY, GraphWrite, Known, Unconditional, Written
from kg.store.texts import PackedText
from kg.subgraphs import USER

P = ParamSpec("P")
T = TypeVar("T")

MEDIA_TYPE = "application/x-ndjson"
_SENT = (MEDIA_TYPE, "application/ndjson", "application/jsonl", "application/json")
BATCH = 1000
"""Lines that are validated and written together."""
BATCH_BYTES = 2 << 20
"""Bytes from which a batch takes no more lines."""
_AHEAD = 2  # batches that are read while one is written
MAX_LINES = 100_000
"""Lines of one request."""
MAX_TOGETHER = 10_000
"""Lines of one atomic request."""
MAX_TOGETHER_BYTES = 128 << 20
"""Bytes of one atomic request."""


def check_type(content_type: str | None) -> None:
    """Raise ``UnsupportedSyntax`` when what is sent is said to be something else than lines of JSON."""
    sent = (content_type or MEDIA_TYPE).partition(";")[0].strip().lower()
    if sent not in _SENT:
        raise UnsupportedSyntax(
            f"{sent[:80]!r} is not lines of JSON", hint=f"send {MEDIA_TYPE}", detail={"offered": list(_SENT)}
        )


async def together(lines: AsyncIterator[bytes]) -> list[bytes]:
    """Gather the lines of an atomic request; raises ``TooLarge`` when there are too many, or too much of them."""
    found: list[bytes] = []
    held = 0
    async for line in lines:
        held += len(line)
        if len(found) == MAX_TOGETHER or held > MAX_TOGETHER_BYTES:
            await _discard(lines)
            raise TooLarge(
                f"an atomic request takes at most {MAX_TOGETHER:,} lines and {MAX_TOGETHER_BYTES:,} bytes",
                hint="send several, or leave atomic out",
            )
        found.append(line)
    return found


async def _discard(lines: AsyncIterator[bytes]) -> None:
    """Read on without keeping anything, so that the client is done sending and reads the answer; gives up after a while."""
    rest = 0
    async for line in lines:
        rest += len(line)
        if rest > DISCARDED:
            return


async def results(service: Parts, lines: AsyncIterator[bytes]) -> bytes:
    """Write line by line, a batch in one transaction where that is possible, and return one result a line.

    Lines are read and written as they arrive, a batch being read while the one before it is written; only their results are kept until
    the end, since many clients do not read while they send. What ends the request early (a line that is too long, too many lines, a
    body that does not unpack) is the last result; where it is the first, it is raised.
    """
    told: list[bytes] = []
    ended = b""
    reading: deque[asyncio.Task[list[_Ready | _Told]]] = deque()
    writing: asyncio.Task[bytes] | None = None

    async def write_next() -> None:
        nonlocal writing
        ready = await reading.popleft()
        if writing:
            told.append(await writing)
        writing = asyncio.create_task(run_in_threadpool(_write_batch, service, ready))

    much = ExitStack()
    try:
        async for batch in _batches(lines):
            if isinstance(batch, DrumlinError):
                ended = _refused(batch)
                break
            if len(batch) == BATCH or reading or writing:
                service.provers.begin()
                much.enter_context(service.feed.aside())
            if len(reading) == _AHEAD:
                await write_next()
            reading.append(asyncio.create_task(run_in_threadpool(_read_batch, service, batch)))
        while reading:
            await write_next()
    finally:
        much.close()
        await asyncio.gather(*reading, return_exceptions=True)
        if writing:
            told.append(await writing)
    return b"".join([*told, ended])


async def _batches(lines: AsyncIterator[bytes]) -> AsyncIterator[list[bytes] | DrumlinError]:
    """Gather lines into batches; what ends the request early comes last, and is raised when nothing came before it."""
    pending: list[bytes] = []
    count = held = 0
    ended: DrumlinError | None = None
    try:
        async for line in lines:
            if count == MAX_LINES:
                await _discard(lines)
                raise TooLarge(f"a request takes at most {MAX_LINES:,} lines; the ones before were written")
            count += 1
            held += len(line)
            pending.append(line)
            if len(pending) == BATCH or held >= BATCH_BYTES:
                yield pending
                pending, held = [], 0
    except DrumlinError as error:
        if not count:
            raise
        ended = error
    if pending:
        yield pending
    if ended:
        yield ended


def write_together(service: Parts, batch: list[bytes]) -> bytes:
    """Write all lines or none and return the results; raises the first error, which names its ``line``, counted from 1."""
    writes: dict[str, _Write] = {}
    for number in range(1, len(batch) + 1):
        text, batch[number - 1] = batch[number - 1], b""  # what was read need not be kept
        try:
            line = read_line(text, service.iris)
            if line.id in writes:
                raise InvalidDocument(f"{line.id} occurs twice in one atomic request", hint="send it once")
            writes[line.id] = _in_turn(service, _ready(service, line))
        except DrumlinError as error:
            error.detail.setdefault("line", number)
            raise
    try:
        return b"".join(_applied(service, list(writes.values())))
    except (GraphOwned, PreconditionFailed) as error:
        numbered = enumerate((each.write for each in writes.values()), 1)
        refused = next((number for number, write in numbered if not _allowed(service, write)), None)
        if refused is not None:  # else it may be written by now
            error.detail["line"] = refused
        raise


def _allowed(service: Parts, write: GraphWrite) -> bool:
    try:
        preconditions.check(write, service.store.entry(write.graph))
    except (GraphOwned, PreconditionFailed):
        return False
    return True


class _Write(msgspec.Struct, frozen=True):
    """A write in its turn, and what tells its outcome from the store's."""

    write: GraphWrite
    finish: Callable[[Written], Written]
    deletes: bool = False

    def result(self, written: Written) -> bytes:
        told = self.finish(written)
        outcome = "deleted" if self.deletes and told.outcome == "replaced" else told.outcome  # into its tombstone
        found = {"id": told.graph, "outcome": outcome, "digest": told.digest, "generation": told.generation}
        return msgspec.json.encode(found) + b"\n"


_Ready = GraphWrite | Line
"""A line that was read: a write that was validated, or one that depends on what is there in its turn."""
_Told = bytes
"""A line of the answer. A refusal becomes one at once: the error holds its frames, and these all that was read."""


def _read_batch(service: Parts, batch: list[bytes]) -> list[_Ready | _Told]:
    """Read and validate lines, with processes where there are some; what depends on the store is left for its turn."""
    return [
        _or_refused(_read, service, text) if proven is None else _or_refused(_write_of, service, proven)
        for text, proven in zip(batch, service.provers.prove(batch), strict=True)
    ]


def _read(service: Parts, text: bytes) -> _Ready:
    return _ready(service, read_line(text, service.iris))


def _write_of(service: Parts, proven: Proven) -> GraphWrite:
    """Return the write of a document that was read and validated elsewhere."""
    head, text = proven.head, PackedText(proven.packed, proven.statements)
    return GraphWrite(head.id, Known(text, proven.digest, head.id), head.owner, _expected(service, head))


def _or_refused(step: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T | _Told:
    try:
        return step(*arguments, **more)
    except DrumlinError as error:
        return _refused(error)


def _write_batch(service: Parts, batch: list[_Ready | _Told]) -> bytes:
    """Write a batch in one transaction; a graph that occurs again is written in a later one, so that order holds."""
    told: list[_Told] = []
    writes: dict[int, _Write] = {}  # by their place among what is told
    touched: set[str] = set()

    def flush() -> None:
        for place, result in zip(writes, _write(service, list(writes.values())), strict=True):
            told[place] = result
        writes.clear()
        touched.clear()

    for each in batch:
        told.append(each if isinstance(each, bytes) else b"")
        if isinstance(each, bytes):
            continue
        try:
            graph = each.id if isinstance(each, Line) else each.graph
            if graph in touched:
                flush()
            writes[len(told) - 1] = _in_turn(service, each)
            touched.add(graph)
        except DrumlinError as error:
            told[-1] = _refused(error)
    flush()
    return b"".join(told)


def _write(service: Parts, writes: list[_Write]) -> list[_Told]:
    """Write in one transaction; where one of the writes is refused, each on its own."""
    try:
        return _applied(service, writes)
    except DrumlinError:
        return [_alone(service, each) for each in writes]


def _alone(service: Parts, write: _Write) -> _Told:
    try:
        return _applied(service, [write])[0]
    except DrumlinError as error:
        return _refused(error)


def _applied(service: Parts, writes: list[_Write]) -> list[_Told]:
    written = service.subgraphs.apply([each.write for each in writes])
    return [each.result(one) for each, one in zip(writes, written, strict=True)]


def _ready(service: Parts, line: Line) -> _Ready:
    """Read and validate what a line says, without a look at the store."""
    if line.op == "delete":
        return line
    expected = _expected(service, line)
    if line.op == "remove":
        return GraphWrite(line.id, None, line.owner, expected)
    if line.op != "put":
        raise InvalidDocument(f"op {line.op!r} is not one of put, delete, remove")
    if not bytes(line.document):
        raise InvalidDocument("a put needs a document")
    lines = service.subgraphs.parse(bytes(line.document), JSONLD, line.id)
    return service.subgraphs.prepare(line.id, lines, owner=line.owner, expected=expected)


def _in_turn(service: Parts, ready: _Ready) -> _Write:
    """Return a write for the graph as it is now."""
    if isinstance(ready, Line):
        expected = _expected(service, ready)
        write = service.subgraphs.prepare_delete(ready.id, owner=ready.owner, expected=expected)
        return _Write(write, lambda written: written, deletes=True)
    return _Write(*service.subgraphs.in_turn(ready))


def _expected(service: Parts, line: Head) -> str | Unconditional | None:
    """Return the digest that a line names, out of an ETag too; an exporter's graphs have no other writer, so it need not name one."""
    if isinstance(line.digest, str):
        return next(iter(digests_of(line.digest)), "")
    if line.digest is None:
        return None
    if service.settings.require_if_match and line.owner == USER:
        raise PreconditionRequired(
            "this service takes a line only with the digest that the graph must have now",
            hint='send "digest" as you have read it, or null to create',
        )
    return ANY


def _refused(error: DrumlinError) -> _Told:
    return msgspec.json.encode({"problem": problem_of(error)}, enc_hook=str) + b"\n"
