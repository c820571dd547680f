"""Running SPARQL Updates: evaluated apart, written like every other write.

An update without a WHERE part is evaluated here, on the graphs it names. A WHERE part that comes first is run by a reader, like any
query; when there are several, or one after other operations, all of it is evaluated by a worker on a checkpoint that it
may change. Either is killed at the deadline, and nothing was written. The graphs that come back are checked under the rules of
all writes and applied if none of them was written meanwhile; else the update is evaluated again, and from the fourth time
on no other update may write beside it.
"""

from __future__ import annotations

import itertools
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, nullcontext
from pathlib import Path
from typing import Literal, Protocol, runtime_checkable

import msgspec
import structlog

from drumlin.kg import cancellation
from drumlin.kg.errors import (
    CapabilityMissing,
    EventsGone,
    PreconditionFailed,
    QueryRejected,
    StoreUnavailable,
    TooLarge,
)
from drumlin.kg.graphs.named import NamedGraphs
from drumlin.kg.parsers import Parsers
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.sparql import forms
from drumlin.kg.sparql.dataset import UNION, Dataset
from drumlin.kg.sparql.forms import Modify, Operation
from drumlin.kg.sparql.gate import Gated
from drumlin.kg.sparql.protocol import RESULTS
from drumlin.kg.sparql.update import Changed, Solution, evaluate
from drumlin.kg.store import sandbox
from drumlin.kg.store.protocol import Store
from drumlin.kg.store.remote.engine import Capability
from drumlin.kg.store.sandbox import ChangedGraph, UpdateJob
from drumlin.kg.workers.frames import JobFailed, LimitExceeded, Limits
from drumlin.kg.workers.pool import WorkerPool

MEMORY = 2 << 30
"""Bytes of address space for one evaluation."""
MAX_CHANGES_BYTES = 512 << 20
"""Bytes of the graphs that one evaluation changes."""
MAX_SOLUTIONS_BYTES = 64 << 20
"""Bytes of the solutions of one WHERE part."""
_SIDE_BY_SIDE = 3  # attempts before an update keeps the others out

log = structlog.get_logger(__name__)


@runtime_checkable
class Checkpoints(Store, Protocol):
    """A store on this machine: it can give a copy of its quads."""

    files: Path

    def checkpoint(self, folder: Path) -> int:
        """Make ``folder`` a copy of the quads."""
        ...


class Updates:
    """Runs updates against a store, in the workers of ``pool``. ``seconds`` is the longest that one may take, retries included."""

    def __init__(
        self, store: Store, graphs: NamedGraphs, base: str, pool: WorkerPool, *, seconds: float = 30.0
    ) -> None:
        self._store = store
        self._graphs = graphs
        self._base = base
        self._seconds = seconds
        self._turn = threading.RLock()
        self._pool = pool
        self._parsers = Parsers(pool)

    def run(self, update: Gated, dataset: Dataset = UNION, *, seconds: float | None = None) -> int:
        """Run an update that passed the gate, all of it or nothing, and return the generation that holds it.

        ``dataset`` is what using-graph-uri and using-named-graph-uri say; ``seconds`` can only shorten the deadline. Raises
        ``QueryRejected`` (``timeout``: nothing was written), what the rules of each graph raise, ``Conflict``, and ``Cancelled``
        (nobody waits for it: nothing was written).
        """
        operations = [each.operation for each in forms.operations(update.text)]
        if dataset != UNION and any(_names_dataset(each) for each in operations):
            raise QueryRejected(
                "using-graph-uri and using-named-graph-uri cannot stand beside USING or WITH",
                hint="say it in one place (https://www.w3.org/TR/sparql11-protocol/#update-operation)",
            )
        allowed = self._seconds if seconds is None else min(seconds, self._seconds)
        deadline = time.monotonic() + allowed
        where = _where(operations)
        for attempt in itertools.count():
            with self._alone(deadline) if attempt >= _SIDE_BY_SIDE else nullcontext():
                try:
                    changes = self._evaluate(update, dataset, deadline, where)
                    cancellation.check()  # the last time: what is written has an outcome that must be known
                    with self._alone(deadline):
                        self._graphs.change(changes)
                except PreconditionFailed as error:
                    log.debug("update_evaluated_again", attempt=attempt + 1, why=str(error))
                    continue
                return self._store.generation
        raise AssertionError("unreachable: only a deadline ends this")

    @contextmanager
    def _alone(self, deadline: float) -> Iterator[None]:
        """Keep other updates from writing; may be entered again inside."""
        if not self._turn.acquire(timeout=max(0.0, deadline - time.monotonic())):
            raise _timed_out()
        try:
            yield
        finally:
            self._turn.release()

    def _evaluate(self, update: Gated, dataset: Dataset, deadline: float, where: _Where) -> list[Changed]:
        seconds = deadline - time.monotonic()
        if seconds <= 0:
            raise _timed_out()
        if where == "apart":
            return self._evaluate_apart(update, dataset, seconds)
        self._parsers.check_update(update.text, self._base)
        operations = [each.operation for each in forms.operations(update.text)]
        world = _Live(self._store, self._parsers, self._base, seconds)
        changes = evaluate(operations, world, self._graphs.scope, dataset)
        world.check()
        return changes

    def _evaluate_apart(self, update: Gated, dataset: Dataset, seconds: float) -> list[Changed]:
        if not isinstance(self._store, Checkpoints):
            raise CapabilityMissing(
                "such an update is evaluated on a copy of the quads, which an engine elsewhere does not give",
                hint="ask with /sparql and send the result as INSERT DATA and DELETE DATA",
                detail={"capability": Capability.CHECKPOINT.name},
            )
        parent = self._store.files / "checkpoints"  # what is left there is removed when the store is opened
        parent.mkdir(exist_ok=True)
        with tempfile.TemporaryDirectory(dir=parent, prefix="update-", ignore_cleanup_errors=True) as folder:
            copy = Path(folder) / "quads"
            self._store.checkpoint(copy)
            scope = self._graphs.scope
            job = UpdateJob(
                str(copy), update.text, self._base, scope.default, scope.roots,
                dataset.default_graphs, dataset.named_graphs,
            )  # fmt: skip
            changes = self._run(job, seconds)
        return [
            Changed(each.graph, each.before, None if each.lines is None else frozenset(each.lines)) for each in changes
        ]

    def _run(self, job: UpdateJob, seconds: float) -> list[ChangedGraph]:
        """Evaluate an update in a worker; raises ``QueryRejected`` (``timeout``) past ``seconds``, ``StoreUnavailable`` when it dies."""
        limits = Limits(seconds, MEMORY, MAX_CHANGES_BYTES)
        try:
            (part,) = self._pool.run("update", msgspec.msgpack.encode(job), limits=limits, wait=seconds)
        except LimitExceeded as error:
            if error.kind == "time":
                raise _timed_out() from error
            raise _no_result(f"it exceeds its limit on {error.kind}") from error
        except JobFailed as error:
            raise _no_result(str(error)) from error
        return msgspec.msgpack.decode(part, type=list[ChangedGraph])


class _Live:
    """The store itself as the state an update begins from. Implements ``kg.sparql.update.World``."""

    def __init__(self, store: Store, parsers: Parsers, base: str, seconds: float) -> None:
        self._store = store
        self._parsers = parsers
        self._base = base
        self._seconds = seconds
        self._read: set[str] = set()
        self._asked_at: int | None = None

    def read(self, graph: str) -> Lines | None:
        self._read.add(graph)
        stored = self._store.read(graph)
        return stored.lines if stored else None

    def names(self) -> list[str]:
        return [each.graph for each in self._store.entries()]

    def terms(self, prologue: str, written: Sequence[str]) -> list[str]:
        return self._parsers.terms(prologue, written, self._base)

    def statements(self, prologue: str, quads: str) -> Mapping[str | None, Lines]:
        return self._parsers.ground(prologue, quads, self._base)

    def solve(self, query: str, dataset: Dataset, changed: Mapping[str, Lines | None]) -> Iterator[Solution]:
        """Have a reader run the first WHERE part, before anything has changed."""
        assert not changed
        answer = self._store.answer(
            query, media_type=RESULTS[0], dataset=dataset, base=self._base, timeout=self._seconds
        )
        self._asked_at = answer.generation
        content = bytearray()
        for chunk in answer.chunks:
            content += chunk
            if len(content) > MAX_SOLUTIONS_BYTES:
                raise TooLarge(
                    f"the WHERE part has more than {MAX_SOLUTIONS_BYTES >> 20} MB of solutions", hint="split it"
                )
        return sandbox.solutions(bytes(content))

    def check(self) -> None:
        """Raise ``PreconditionFailed`` when a graph was written between the query and its reading."""
        since = self._asked_at
        while since is not None and self._read:
            try:
                later = self._store.log(since)
            except EventsGone as error:
                raise PreconditionFailed("too much was written while the update was evaluated") from error
            if written := next((each.graph for each in later if each.graph in self._read), None):
                raise PreconditionFailed(f"{written} was written while the update was evaluated")
            since = later[-1].generation if later else None


_Where = Literal["none", "reader", "apart"]


def _where(operations: Sequence[Operation]) -> _Where:
    """Return what evaluates the WHERE parts: a reader can when there is one, it comes first, and it needs no dataset of its own.

    (A reader's dataset lists its named graphs or has them all; WITH alone has one default graph beside all named ones.)
    """
    found = [each for each in operations if isinstance(each, Modify)]
    if not found:
        return "none"
    first = operations[0]
    if len(found) > 1 or not isinstance(first, Modify):
        return "apart"
    mixed = first.scope is not None and first.using is None and "GRAPH" in first.where.upper()
    return "apart" if mixed else "reader"


def _names_dataset(operation: Operation) -> bool:
    return isinstance(operation, Modify) and (operation.scope is not None or operation.using is not None)


def _timed_out() -> QueryRejected:
    """Return the error of an update that was stopped."""
    return QueryRejected(
        "the update was not done by its deadline; nothing was written",
        reason="timeout",
        hint="let it touch less at a time, or allow more time (timeout=)",
    )


def _no_result(why: str) -> StoreUnavailable:
    return StoreUnavailable(
        f"the evaluation of the update ended without a result ({why}); nothing was written",
        hint="it may need too much memory: let it touch less at a time",
    )
