"""The lines of a bulk request (NDJSON): what shall become of one graph each, and the documents of many validated by workers."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import msgspec
import structlog

from drumlin.kg.errors import InvalidDocument
from drumlin.kg.graphs import ingest
from drumlin.kg.graphs.owners import HINT
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld_loader
from drumlin.kg.rdf.syntax import JSONLD
from drumlin.kg.workers.frames import JobFailed
from drumlin.kg.workers.pool import WorkerPool

PART = 100
"""Documents that a worker returns together: what is still in the processor's cache is sent soonest."""

log = structlog.get_logger()


class Head(msgspec.Struct, forbid_unknown_fields=True):
    """What of which graph. ``digest``: what it must be now, null when it must not exist, absent when it may be anything."""

    op: str
    id: str
    digest: str | msgspec.UnsetType | None = msgspec.UNSET


class BulkLine(Head):
    """A line as it is sent."""

    document: msgspec.Raw = msgspec.Raw()
    owner: object = msgspec.UNSET  # known only to be refused with a hint

    def head(self) -> Head:
        """Return it without the document."""
        return Head(self.op, self.id, self.digest)


_decode = msgspec.json.Decoder(BulkLine).decode


def read_line(text: bytes, iris: Iris) -> BulkLine:
    """Read a line; its id becomes the full IRI. Raises ``InvalidDocument`` for an invalid line, ``InvalidIdentifier`` for an invalid id."""
    try:
        line = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidDocument(f"the line is not what is expected: {error}") from error
    except RecursionError as error:
        raise InvalidDocument("the line is nested too deeply to be read") from error
    if line.owner is not msgspec.UNSET:
        raise InvalidDocument("a line names no owner", hint=HINT)
    line.id = iris.expand(line.id)
    return line


class ValidatedLine(NamedTuple):
    """What a line puts that is valid: the graph's text packed (``kg.store.graph_text``), its digest and its number of statements."""

    head: Head
    digest: str
    packed: bytes
    statements: int


class LinesJob(msgspec.Struct, array_like=True):
    """Lines to validate, for a service whose entities stand below ``base``, and the limit of a document in bytes."""

    base: str
    max_bytes: int
    lines: list[bytes]


class ValidationPool:
    """Validates batches of lines in workers."""

    def __init__(self, pool: WorkerPool, iris: Iris, *, max_bytes: int = jsonld_loader.MAX_BYTES) -> None:
        self._pool = pool
        self._iris = iris
        self._max_bytes = max_bytes

    def validate_batch(self, lines: Sequence[bytes]) -> Sequence[ValidatedLine | None]:
        """Read lines and validate their documents; None for each that the caller has to read: it puts nothing, or it is invalid.

        Blocks. All are None when no worker does it, and on one processor, which workers would only share with the caller.
        """
        if os.cpu_count() != 1:
            job = LinesJob(self._iris.base, self._max_bytes, [*lines])
            try:
                return [
                    each
                    for part in self._pool.run("validate", msgspec.msgpack.encode(job))
                    for each in _decode_part(part)
                ]
            except JobFailed as error:  # each line is read by itself, and what is wrong with it reported
                log.info("batch_not_validated", reason=str(error), lines=len(lines))
        return [None] * len(lines)


_decode_part = msgspec.msgpack.Decoder(list[ValidatedLine | None]).decode


def validate_job(payload: bytes) -> Iterator[bytes]:
    """Validate the lines of a ``LinesJob``, ``PART`` by ``PART``."""
    job = msgspec.msgpack.decode(payload, type=LinesJob)
    iris = Iris(job.base)
    for start in range(0, len(job.lines), PART):
        found = [validated(each, iris, max_bytes=job.max_bytes) for each in job.lines[start : start + PART]]
        yield msgspec.msgpack.encode(found)


def validated(sent: bytes, iris: Iris, *, max_bytes: int = jsonld_loader.MAX_BYTES) -> ValidatedLine | None:
    """Read a line and validate the document that it puts; None when it puts none, or when anything is wrong with it."""
    try:
        line = read_line(sent, iris)
        if line.op != "put":
            return None
        said = ingest.read(bytes(line.document), JSONLD, line.id, iris, max_bytes=max_bytes)
        content = ingest.accept(said, line.id, iris)
    except Exception:  # noqa: BLE001 - whatever it is, the service meets it too when it reads the line, and reports it
        return None
    return ValidatedLine(line.head(), content.digest, content.packed, content.statements)
