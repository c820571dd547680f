"""The parsers of what clients send: RDF in every syntax, the text of updates, the points of forecasts.

They are native code, which a hostile document can stall or end. So a service runs them in workers (``kg.workers``), within limits on
time, memory and output. What our own bounded readers take (``kg.rdf.context_reader``) needs no parser and never comes here.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from drumlin.kg import rdf
from drumlin.kg.errors import InvalidDocument, StoreUnavailable, TooLarge
from drumlin.kg.rdf import jsonld_loader
from drumlin.kg.rdf.jsonld import CONTEXT_IRI
from drumlin.kg.rdf.syntax import JSONLD, Lines, Syntax
from drumlin.kg.workers.child import JOBS
from drumlin.kg.workers.frames import JobFailed, LimitExceeded, WorkerDied

if TYPE_CHECKING:
    from drumlin.kg.workers.pool import WorkerPool  # a worker needs none, and starts sooner without it

SCALE_BYTES = 2 << 20
"""Bytes of a document from which its limits grow with it: the operator allows larger ones than the default (``document_bytes``)."""
Graphs = dict[str | None, Lines]
"""Lines per graph; None is the default graph."""


class RdfJob(msgspec.Struct, array_like=True):
    """A document: its syntax by name, its bytes, and how it is read; see ``Parsers.rdf``."""

    syntax: str
    data: bytes
    base: str | None
    served: str
    max_bytes: int
    default: str | None


def rdf_job(payload: bytes) -> Iterator[bytes]:
    """Read an ``RdfJob``; the result has a part for each graph: its name and its statements as one text."""
    job = msgspec.msgpack.decode(payload, type=RdfJob)
    syntax, data = rdf.syntax_named(job.syntax), job.data
    if syntax is JSONLD:
        data = jsonld_loader.inline(data, max_bytes=job.max_bytes, served=job.served, default=job.default)
    return _written(rdf.parse(data, syntax, base=job.base))


def _written(graphs: Graphs) -> Iterator[bytes]:
    for graph, lines in graphs.items():
        yield msgspec.msgpack.encode((graph, "\n".join(lines)))


def _read(parts: Sequence[bytes]) -> Graphs:
    return {graph: rdf.lines_in(text) for graph, text in map(_decode, parts)}


_decode = msgspec.msgpack.Decoder(tuple[str | None, str]).decode


class UpdateText(msgspec.Struct, array_like=True):
    """A question to the engine's SPARQL parser: what is asked, the prologue, the texts, and the base of relative IRIs."""

    asked: str
    prologue: str
    texts: list[str]
    base: str


def sparql_job(payload: bytes) -> Iterator[bytes]:
    """Answer an ``UpdateText``: ``check`` an update, read ``terms``, or the statements of ``ground`` quads."""
    from drumlin.kg.store import sandbox

    job = msgspec.msgpack.decode(payload, type=UpdateText)
    if job.asked == "check":
        sandbox.check(job.texts[0], job.base)
    elif job.asked == "terms":
        yield msgspec.msgpack.encode(sandbox.terms(job.prologue, job.texts, job.base))
    else:
        yield from _written(sandbox.statements(job.prologue, job.texts[0], job.base))


class Parsers:
    """Reads what clients send, in the workers of a pool; without one in this process, as a worker or a command does."""

    def __init__(self, pool: WorkerPool | None = None) -> None:
        self._pool = pool

    def rdf(
        self,
        data: bytes,
        syntax: Syntax,
        *,
        base: str | None,
        served: str = CONTEXT_IRI,
        max_bytes: int = jsonld_loader.MAX_BYTES,
        default: str | None = CONTEXT_IRI,
    ) -> Graphs:
        """Read a document: ``kg.rdf.syntax.parse``, for JSON-LD after ``kg.rdf.jsonld_loader.inline``; raises what they raise.

        Raises ``TooLarge`` for one that exceeds a limit of its worker, ``InvalidDocument`` for one that ends it.
        """
        job = RdfJob(syntax.name, data, base, served, max_bytes, default)
        return _read(self._run("rdf", msgspec.msgpack.encode(job), f"the {syntax.name} document"))

    def check_update(self, text: str, base: str) -> None:
        """Have the engine parse an update that passed the gate; raises ``QueryRejected`` with the position of an error."""
        self._ask("check", "", [text], base)

    def terms(self, prologue: str, written: Sequence[str], base: str) -> list[str]:
        """Return terms as the engine writes them, read under ``prologue``."""
        if not written:
            return []
        (part,) = self._ask("terms", prologue, [*written], base)
        return msgspec.msgpack.decode(part, type=list[str])

    def ground(self, prologue: str, quads: str, base: str) -> Mapping[str | None, Lines]:
        """Return the statements of a block of quads, per graph; blank nodes get labels of their own."""
        return _read(self._ask("ground", prologue, [quads], base))

    def _ask(self, asked: str, prologue: str, texts: list[str], base: str) -> Sequence[bytes]:
        return self._run("sparql", msgspec.msgpack.encode(UpdateText(asked, prologue, texts, base)), "the update")

    def points(self, stream: bytes) -> bytes:
        """Return the points of a forecast in an Arrow stream of ours, from a foreign one; see ``forecast_points.checked``."""
        return b"".join(self._run("points", stream, "the Arrow IPC stream"))

    def frame(self, stream: bytes) -> bytes:
        """Return a long frame of many series in an Arrow stream of ours, from a foreign one."""
        return b"".join(self._run("frame", stream, "the Arrow IPC stream"))

    def points_in(self, file: Path) -> bytes:
        """Return the points in a Parquet file in an Arrow stream of ours."""
        return b"".join(self._run("points_file", os.fsencode(file), f"the Parquet file {file.name}"))

    def _run(self, job: str, payload: bytes, what: str) -> Sequence[bytes]:
        if self._pool is None:
            return list(JOBS[job].run(payload))
        with translated(what):
            return self._pool.run(job, payload, scale=max(1.0, len(payload) / SCALE_BYTES))


HERE = Parsers()
"""Parsers of this process."""


@contextmanager
def translated(what: str) -> Iterator[None]:
    """Raise the failure of a job as an error about ``what``, a noun with its article; it names the limit and its size."""
    try:
        yield
    except LimitExceeded as error:
        raise _exceeded(error, what) from error
    except WorkerDied as error:
        raise InvalidDocument(
            f"{what} cannot be read: the parser ended on it ({error.exit_reason})",
            hint="send it in smaller pieces, nested less deeply",
            detail={"exitReason": error.exit_reason},
        ) from error
    except JobFailed as error:
        raise StoreUnavailable(f"{what} was not read: {error}", hint="try again later") from error


def _exceeded(error: LimitExceeded, what: str) -> TooLarge:
    limits = error.limits
    said, limit = {
        "time": (f"takes more than {limits.seconds:g} s to read", limits.seconds),
        "memory": (f"takes more than {limits.memory >> 20:,} MB of memory to read", limits.memory),
        "output": (f"comes to more than {limits.output >> 20:,} MB once it is read", limits.output),
    }[error.kind]
    return TooLarge(
        f"{what} {said}, which is the limit", hint="send less at a time", detail={"limit": limit, "kind": error.kind}
    )
