"""Running SPARQL Updates: evaluated apart, written like every other write.

An update without a WHERE part is evaluated here, on the graphs it names. One with a WHERE part is evaluated by a process of its own
over a checkpoint: past its deadline it is killed, and nothing was written. The graphs that come back are checked under the rules
of all writes and applied if none of them was written meanwhile; else the update is evaluated again, and from the
fourth time on no other update may write beside it.
"""

from __future__ import annotations

import itertools
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Protocol

import msgspec
import structlog

from kg.errors import (
    AlreadyExists,
    Conflict,
    DrumlinError,
    InvalidDocument,
    PreconditionFailed,
    QueryRejected,
    StoreUnavailable,
    TooLarge,
)
from kg.foreign import Graphs
from kg.rdf import Lines
from kg.sparql import forms
from kg.sparql.forms import Modify, Operation
from kg.sparql.gate import Gated
from kg.sparql.update import Changed, Solution, evaluate
from kg.store import scratch
from kg.store.protocol import Dataset, Store
from kg.store.scratch_process import Job, Outcome, Refusal

MEMORY = 2 << 30
"""Bytes of address space for one evaluation."""
_SIDE_BY_SIDE = 3  # attempts before an update keeps the others out
_UNION = Dataset()
_ROOT = Path(__file__).resolve().parents[1]

log = structlog.get_logger(__name__)


class Checkpoints(Store, Protocol):
    """A store on this machine: it can give a copy of its quads."""

    directory: Path

    def checkpoint(self, folder: Path) -> int:
        """Make ``folder`` a copy of the quads."""
        ...


class Updates:
    """Runs updates against a store. ``seconds`` is the longest that one may take, retries included."""

    def __init__(self, store: Checkpoints, graphs: Graphs, base: str, *, seconds: float = 30.0) -> None:
        self._store = store
        self._graphs = graphs
        self._base = base
        self._seconds = seconds
        self._turn = threading.RLock()

    def run(self, update: Gated, dataset: Dataset = _UNION, *, seconds: float | None = None) -> int:
        """Run an update that passed the gate, all of it or nothing, and return the generation that holds it.

        ``dataset`` is what using-graph-uri and using-named-graph-uri say; ``seconds`` can only shorten the deadline. Raises
        ``QueryRejected`` (``timeout``: nothing was written), what the rules of each graph raise, and ``Conflict``.
        """
        operations = [each.operation for each in forms.operations(update.text)]
        if dataset != _UNION and any(_names_dataset(each) for each in operations):
            raise QueryRejected(
                "using-graph-uri and using-named-graph-uri cannot stand beside USING or WITH",
                hint="say it in one place (https://www.w3.org/TR/sparql11-protocol/#update-operation)",
            )
        allowed = self._seconds if seconds is None else min(seconds, self._seconds)
        deadline = time.monotonic() + allowed
        apart = any(isinstance(each, Modify) for each in operations)
        for attempt in itertools.count():
            with self._alone(deadline) if attempt >= _SIDE_BY_SIDE else nullcontext():
                changes = self._evaluate(update, dataset, deadline, apart=apart)
                try:
                    with self._alone(deadline):
                        self._graphs.change(changes)
                except PreconditionFailed:
                    log.debug("update_evaluated_again", attempt=attempt + 1, graphs=len(changes))
                    continue
                return self._store.generation
        raise AssertionError("unreachable: only a deadline ends this")

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        """Keep other updates from writing; may be entered again inside."""
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise _too_late()
        try:
            yield
        finally:
            self._turn.release()

    def _evaluate(self, update: Gated, dataset: Dataset, deadline: float, *, apart: bool) -> list[Changed]:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise _too_late()
        if apart:
            return self._evaluate_apart(update, dataset, seconds)
        operations = scratch.parse(update.text, self._base)
        return evaluate(operations, _Ground(self._store, self._base), self._graphs.scope, dataset)

    def _evaluate_apart(self, update: Gated, dataset: Dataset, seconds: float) -> list[Changed]:
        parent = self._store.directory / "checkpoints"  # what is left there is removed when the store is opened
        parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix="update-", ignore_cleanup_errors=True) as folder:
            copy = Path(folder) / "quads"
            self._store.checkpoint(copy)
            scope = self._graphs.scope
            job = Job(
                str(copy), update.text, self._base, scope.default, scope.root,
                dataset.default_graphs, dataset.named_graphs, MEMORY,
            )  # fmt: skip
            outcome = _run(job, seconds)
        if outcome.refusal:
            raise _error(outcome.refusal)
        return [
            Changed(each.graph, each.before, None if each.lines is None else frozenset(each.lines))
            for each in outcome.changes
        ]


def _run(job: Job, seconds: float) -> Outcome:
    process = subprocess.Popen(
        [sys.executable, "-m", "kg.store.scratch_process"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        cwd=_ROOT,
    )
    with process:
        try:
            written, _ = process.communicate(msgspec.json.encode(job), timeout=seconds)
        except subprocess.TimeoutExpired as error:
            raise _too_late() from error
        finally:
            process.kill()
    if process.returncode != 0:
        log.warning("update_evaluation_died", returncode=process.returncode, bytes=len(job.text))
        raise StoreUnavailable(
            "the evaluation of the update ended without a result; nothing was written",
            hint="it may need too much memory: let it touch less at a time",
        )
    return msgspec.json.decode(written, type=Outcome)


class _Ground:
    """The store as updates without a WHERE part see it. Implements ``kg.sparql.update.World``."""

    def __init__(self, store: Store, base: str) -> None:
        self._store = store
        self._base = base

    def read(self, graph: str) -> Lines | None:
        stored = self._store.read(graph)
        return stored.lines if stored else None

    def names(self) -> list[str]:
        return [each.graph for each in self._store.entries()]

    def terms(self, prologue: str, written: Sequence[str]) -> list[str]:
        return scratch.terms(prologue, written, self._base)

    def statements(self, prologue: str, quads: str) -> Mapping[str | None, Lines]:
        return scratch.statements(prologue, quads, self._base)

    def solve(self, query: str, dataset: Dataset, changed: Mapping[str, Lines | None]) -> Iterator[Solution]:
        del query, dataset, changed
        raise AssertionError("an update with a WHERE part is evaluated apart")


def _names_dataset(operation: Operation) -> bool:
    return isinstance(operation, Modify) and (operation.scope is not None or operation.using is not None)


def _too_late() -> QueryRejected:
    return QueryRejected(
        "the update was not done by its deadline; nothing was written",
        reason="timeout",
        hint="let it touch less at a time, or allow more time (timeout=)",
    )


def _error(refusal: Refusal) -> DrumlinError:
    if refusal.error == QueryRejected.__name__:
        return QueryRejected(
            refusal.message, reason=refusal.reason or "syntax", hint=refusal.hint, detail=refusal.detail
        )
    kinds: Mapping[str, type[DrumlinError]] = {
        kind.__name__: kind for kind in (AlreadyExists, Conflict, InvalidDocument, TooLarge)
    }
    return kinds.get(refusal.error, StoreUnavailable)(refusal.message, hint=refusal.hint, detail=refusal.detail)
