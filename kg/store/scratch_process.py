"""The process that evaluates one SPARQL Update over a checkpoint, so that it can be killed: ``python -m kg.store.scratch_process``.

A job comes as one JSON document on stdin, the graphs that change go back as one on stdout. The engine can neither be
interrupted nor be trusted to survive every query, and a scratch copy may be written to.
"""

from __future__ import annotations

import resource
import signal
import sys

import msgspec
import pyoxigraph as ox

from kg.errors import DrumlinError
from kg.sparql.update import Scope, evaluate
from kg.store.protocol import Dataset
from kg.store.scratch import Scratch, parse


class Job(msgspec.Struct):
    """What to evaluate: an update that passed the gate, over the checkpoint in ``folder`` (which is changed)."""

    folder: str
    text: str
    base: str
    default: str
    root: str
    using: tuple[str, ...] | None
    using_named: tuple[str, ...] | None
    memory: int
    """Bytes of address space that the process may take."""
    seconds: int
    """When the process ends by itself."""


class ChangedGraph(msgspec.Struct):
    """One graph of the result: the digest it had, the lines it shall have (None: dropped)."""

    graph: str
    before: str | None
    lines: list[str] | None


class Refusal(msgspec.Struct):
    """Why there is no result: an error of ``kg.errors``, to be raised again by its name."""

    error: str
    message: str
    hint: str | None
    reason: str | None
    detail: dict[str, object]


class Outcome(msgspec.Struct):
    """What goes back: changes or a refusal."""

    changes: list[ChangedGraph] = []
    refusal: Refusal | None = None


def main() -> None:
    """Evaluate the job that comes; none comes to a spare that is not needed."""
    read = sys.stdin.buffer.read()
    if not read:  # a spare that is no longer needed
        return
    job = msgspec.json.decode(read, type=Job)
    signal.alarm(job.seconds)  # when the service is not there any more to end it
    resource.setrlimit(resource.RLIMIT_AS, (job.memory, job.memory))
    sys.stdout.buffer.write(msgspec.json.encode(_outcome(job), enc_hook=str))


def _outcome(job: Job) -> Outcome:
    try:
        changes = evaluate(
            parse(job.text, job.base),
            Scratch(ox.Store(job.folder), job.base),
            Scope(job.default, job.root),
            Dataset(job.using, job.using_named),
        )
    except DrumlinError as error:
        reason = getattr(error, "reason", None)
        return Outcome(refusal=Refusal(type(error).__name__, str(error), error.hint, reason, error.detail))
    return Outcome(
        [ChangedGraph(each.graph, each.before, None if each.lines is None else [*each.lines]) for each in changes]
    )


if __name__ == "__main__":
    main()
