"""Many writes in one request: NDJSON in, one result a line out, in order; in bounded memory.

A batch is bounded in lines and in bytes, and batches are read while the one before them is written, by workers
(``kg.graphs.bulk.ValidationPool``) from the first full one on; an atomic request is one batch.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator, Callable, Mapping, Sequence
from contextlib import ExitStack
from functools import partial
from typing import ParamSpec, TypeVar

import msgspec

from drumlin.api.bootstrap import Services, renew_hosting
from drumlin.api.http.asgi import Receive
from drumlin.api.http.bodies import DISCARDED
from drumlin.api.http.disconnects import on_disconnect
from drumlin.api.http.etags import digests_of
from drumlin.api.http.problems import problem_of
from drumlin.kg import cancellation
from drumlin.kg.cancellation import Cancellation
from drumlin.kg.errors import DrumlinError, InvalidDocument, PreconditionRequired, TooLarge, UnsupportedSyntax
from drumlin.kg.graphs.bulk import BulkLine, Head, ValidatedLine, read_line
from drumlin.kg.graphs.owners import USER
from drumlin.kg.rdf.syntax import JSONLD
from drumlin.kg.store import preconditions
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.protocol import ANY, GraphWrite, Unconditional, Written
from drumlin.kg.workers.frames import JobFailed

P = ParamSpec("P")
T = TypeVar("T")

MEDIA_TYPE = "application/x-ndjson"
_SENT = (MEDIA_TYPE, "application/ndjson", "application/jsonl", "application/json", "application/octet-stream")
BATCH = 1000
"""Lines that are validated and written together."""
BATCH_BYTES = 2 << 20
"""Bytes from which a batch takes no more lines."""
_AHEAD = 2  # batches that are read while one is written
MAX_LINES = 100_000
"""Lines of one request."""
MAX_FAULTS = 3
"""Lines of one request that may exceed a limit of their parser, end it, or find none free; all after them are refused unread."""
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


async def results(service: Services, lines: AsyncIterator[bytes], owner: str, receive: Receive) -> bytes:
    """Write line by line for ``owner``, a batch in one transaction where that is possible, and return one result a line.

    Lines are read and written as they arrive, a batch being read while the one before it is written; only their results are kept until
    the end, since many clients do not read while they send. What ends the request early (a line that is too long, too many lines, a
    body that does not unpack) is the last result; where it is the first, it is raised. When the client leaves, what was not read yet is not
    written; ``receive`` says so once ``lines`` are exhausted, and ``Cancelled`` is raised.
    """
    told: list[bytes] = []
    faults = _Faults()
    ended = b""
    reading: deque[asyncio.Task[list[_Ready | _Told]]] = deque()
    writing: asyncio.Task[bytes] | None = None
    of_this = Cancellation()

    async def write_next() -> None:
        nonlocal writing
        ready = await reading.popleft()
        if writing:
            told.append(await writing)
        writing = asyncio.create_task(service.bulkheads.bulk.run(partial(_write_batch, service, ready, owner)))

    much = ExitStack()
    try:
        async for batch in _batches(lines):
            if isinstance(batch, DrumlinError):
                ended = _refused(batch)
                break
            many = len(batch) == BATCH or bool(reading or writing)
            if many:
                much.enter_context(service.feed.aside())
            if len(reading) == _AHEAD:
                await write_next()
            read = partial(_read_batch, service, batch, owner, faults, many)
            reading.append(asyncio.create_task(service.bulkheads.bulk.run(read, of_this=of_this)))
        async with on_disconnect(receive, of_this.cancel):
            while reading:
                await write_next()
    finally:
        much.close()
        of_this.cancel()
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


def write_together(service: Services, batch: list[bytes], owner: str) -> bytes:
    """Write all lines or none for ``owner`` and return the results.

    Raises the first error, which names its ``line``, counted from 1; ``refusals`` of its detail lists the errors of all lines.
    """
    writes: dict[str, _Write] = {}
    line_of: dict[str, int] = {}
    refused: dict[int, DrumlinError] = {}
    faults = _Faults()
    for number in range(1, len(batch) + 1):
        cancellation.check()
        text, batch[number - 1] = batch[number - 1], b""  # what was read need not be kept
        try:
            line = read_line(text, service.iris)
            if line.id in writes:
                raise InvalidDocument(f"{line.id} occurs twice in one atomic request", hint="send it once")
            write = _in_turn(service, faults.counted(_ready, service, line, owner), owner)
            writes[line.id], line_of[write.write.graph] = write, number
        except DrumlinError as error:
            refused[number] = error.with_traceback(None)  # its frames would hold what was read
    if refused:
        raise _together(refused)
    try:
        return b"".join(_applied(service, list(writes.values())))
    except DrumlinError as error:
        if error.refusals:
            raise _together({line_of[graph]: each for graph, each in error.refusals.items()}) from error
        raise


def _together(refused: Mapping[int, DrumlinError]) -> DrumlinError:
    """Return the first of the errors, by line, with ``line`` and ``refusals`` in its detail."""
    listed = [{**each.detail, "line": number, "detail": str(each)} for number, each in refused.items()]
    number, error = next(iter(refused.items()))
    error.detail |= {"line": number, "refusals": listed}
    return error


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


_Ready = GraphWrite | BulkLine
"""A line that was read: a write that was validated, or one that depends on what is there in its turn."""
_Told = bytes
"""A line of the answer. A refusal becomes one at once: the error holds its frames, and these all that was read."""


class _Faults:
    """The lines of one request by which a worker was lost or stopped: each takes one for seconds."""

    def __init__(self) -> None:
        self._count = 0

    @property
    def too_many(self) -> bool:
        """True once no other line is to be read."""
        return self._count >= MAX_FAULTS

    def counted(self, read: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T:
        """Have a line read; raises ``TooLarge`` when it is not to be read any more."""
        if self.too_many:
            raise TooLarge(
                f"not read: {MAX_FAULTS} lines of this request exceeded a limit of the parser, ended it or found none free",
                hint="send it in another request, without those lines",
            )
        try:
            return read(*arguments, **more)
        except DrumlinError as error:
            self._count += isinstance(error.__cause__, JobFailed)
            raise


def _read_batch(service: Services, batch: list[bytes], owner: str, faults: _Faults, many: bool) -> list[_Ready | _Told]:
    """Read and validate lines, ``many`` by workers; what depends on the store is left for its turn."""
    found = service.validation.validate_batch(batch) if many and not faults.too_many else [None] * len(batch)
    ready: list[_Ready | _Told] = []
    for text, line in zip(batch, found, strict=True):
        cancellation.check()
        if line is None:
            ready.append(_or_refused(faults.counted, _read, service, text, owner))
        else:
            ready.append(_or_refused(_write_of, service, line, owner))
    return ready


def _read(service: Services, text: bytes, owner: str) -> _Ready:
    return _ready(service, read_line(text, service.iris), owner)


def _write_of(service: Services, line: ValidatedLine, owner: str) -> GraphWrite:
    """Return the write of a document that was read and validated elsewhere."""
    head, content = line.head, GraphContent.of_packed(line.packed, line.digest, line.statements)
    return service.subgraphs.prepare(head.id, content, owner=owner, expected=_expected(service, head, owner))


def _or_refused(step: Callable[P, T], *arguments: P.args, **more: P.kwargs) -> T | _Told:
    try:
        return step(*arguments, **more)
    except DrumlinError as error:
        return _refused(error)


def _write_batch(service: Services, batch: list[_Ready | _Told], owner: str) -> bytes:
    """Write a batch in one transaction; a graph that occurs again is written in a later one, so that order holds."""
    told: list[_Told] = []
    writes: dict[int, _Write] = {}  # by their place among what is reported
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
            graph = each.id if isinstance(each, BulkLine) else each.graph
            if graph in touched:
                flush()
            writes[len(told) - 1] = _in_turn(service, each, owner)
            touched.add(graph)
        except DrumlinError as error:
            told[-1] = _refused(error)
    flush()
    return b"".join(told)


def _write(service: Services, writes: list[_Write]) -> list[_Told]:
    """Write those that are not refused in one transaction; return the results of all."""
    refused: Mapping[str, DrumlinError]
    try:
        written, refused = preconditions.apply_allowed(service.subgraphs.apply, [each.write for each in writes])
    except DrumlinError as error:  # the store's, about all of them
        return [_refused(error)] * len(writes)
    allowed = [each for each in writes if each.write.graph not in refused]
    results = iter(_results(service, allowed, written))
    return [_refused(refused[each.write.graph]) if each.write.graph in refused else next(results) for each in writes]


def _applied(service: Services, writes: list[_Write]) -> list[_Told]:
    return _results(service, writes, service.subgraphs.apply([each.write for each in writes]))


def _results(service: Services, writes: list[_Write], written: Sequence[Written]) -> list[_Told]:
    if writes and writes[0].write.owner != USER:  # a follower's; all have one owner
        datasources = f"{service.iris.root}datasource/"
        if any(one.outcome != "unchanged" and one.graph.startswith(datasources) for one in written):
            renew_hosting(service)
    return [each.result(one) for each, one in zip(writes, written, strict=True)]


def _ready(service: Services, line: BulkLine, owner: str) -> _Ready:
    """Read and validate what a line says, without a look at the store."""
    if line.op == "delete":
        return line
    expected = _expected(service, line, owner)
    if line.op == "remove":
        return GraphWrite(line.id, None, owner, expected)
    if line.op != "put":
        raise InvalidDocument(f"op {line.op!r} is not one of put, delete, remove")
    if not bytes(line.document):
        raise InvalidDocument("a put needs a document")
    said = service.subgraphs.parse(bytes(line.document), JSONLD, line.id)
    return service.subgraphs.prepare(line.id, said, owner=owner, expected=expected)


def _in_turn(service: Services, ready: _Ready, owner: str) -> _Write:
    """Return a write for the graph as it is now."""
    if isinstance(ready, BulkLine):
        expected = _expected(service, ready, owner)
        write = service.subgraphs.prepare_delete(ready.id, owner=owner, expected=expected)
        return _Write(write, lambda written: written, deletes=True)
    return _Write(*service.subgraphs.in_turn(ready))


def _expected(service: Services, line: Head, owner: str) -> str | Unconditional | None:
    """Return the digest that a line names, out of an ETag too; an exporter's graphs have no other writer, so it need not name one."""
    if isinstance(line.digest, str):
        return next(iter(digests_of(line.digest)), "")
    if line.digest is None:
        return None
    if service.settings.require_if_match and owner == USER:
        raise PreconditionRequired(
            "this service takes a line only with the digest that the graph must have now",
            hint='send "digest" as you have read it, or null to create',
        )
    return ANY


def _refused(error: DrumlinError) -> _Told:
    return msgspec.json.encode({"problem": problem_of(error)}, enc_hook=str) + b"\n"
