"""One run of the pipeline over one source: what to write, and when.

Gathering ends when every kind is complete; everything is written then, in bulk. Afterwards each object has its own window: its first
change is written at once, later ones together when the window is over.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass, field
from functools import partial

import structlog

from exporters import hosting
from exporters.context import Surroundings
from exporters.entities import Entities, home_in, home_of
from exporters.keeping import Keeping
from exporters.protocol import Aside, Change, Clock, Gone, Metadata, Rejected, Synced, Upserted
from exporters.recall import recall, runs_of
from exporters.sink import BATCH, Sink, batched, write
from exporters.tombstones import remains
from kg.errors import DrumlinError, GraphOwned, SourceUnavailable, StoreUnavailable
from kg.jsonld import lines
from kg.store.protocol import GraphWrite, Written
from kg.telemetry.datasources import Datasource

log = structlog.get_logger()

PATIENCE_SECONDS = 30.0
"""So long gathering waits for a kind of which nothing comes and nothing is said."""
IDLE_SECONDS = 0.5
_MOST_LISTED = 1000
_MOST_WINDOWS = 20_000
_FEW = 1000  # graphs that are not worth a thread


@dataclass
class Summary:
    """What was done. ``objects`` counts what exists by kind; ``written``, ``unchanged`` and ``gone`` count graphs.

    ``rejected`` lists what could not be read, rendered or written: where it stood and why, at most a thousand.
    """

    objects: Counter[str] = field(default_factory=Counter)
    written: int = 0
    unchanged: int = 0
    gone: int = 0
    rejected: list[Rejected] = field(default_factory=list)

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"{self.objects.total()} objects: {self.written} graphs written, {self.unchanged} unchanged, "
            f"{self.gone} gone, {len(self.rejected)} rejected"
        )


@dataclass(frozen=True, slots=True)
class Counts:
    """What became of the changes, by home of their kind (``exporters.entities.home_of``).

    Graphs written; changes that gave no write, since their graph stays the same; errors of rendering.
    """

    written: dict[str, int]
    skipped: dict[str, int]
    failed: dict[str, int]


class Following:
    """The state of one run. Not for use by several threads."""

    def __init__(
        self,
        sink: Sink,
        around: Surroundings,
        owner: str,
        kinds: frozenset[str],
        clock: Clock,
        window: float,
        most: int = BATCH,
    ) -> None:
        self.gathered = False
        self.summary = Summary()
        self._sink = sink
        self._around = around
        self._owner = owner
        self._kinds = kinds
        self._clock = clock
        self._window = window
        self._most = most
        self._entities = Entities(
            owner,
            around,
            clock=clock,
            earlier=recall(sink, owner, (around.prefix, f"{around.iris.root}domain/"), around.iris),
            former_runs=partial(runs_of, sink, iris=around.iris),
        )
        self._mine = tuple(hosting.found_earlier(sink, around, owner))
        mine = {each.iri for each in self._mine}
        self._others = tuple(each for each in hosting.found_earlier(sink, around) if each.iri not in mine)
        self._datasources: tuple[Datasource, ...] | None = None  # as last written
        self._written_at: dict[str, float] = {}
        self._progress_at = time.monotonic()
        self._keeping = Keeping()
        self._aside: set[str] = set()
        self._failing: set[str] = set()
        self._refused: set[str] = set()
        self._unreadable: set[str] = set()
        self._written: Counter[str] = Counter()  # by home
        self._failed: Counter[str] = Counter()

    def take(self, change: Change) -> None:
        """Take in one change; what cannot be understood of it is reported and left."""
        if isinstance(change, Rejected):
            if change.where not in self._unreadable:  # once; the object may change every second
                self._reject(change)
            self._unreadable.add(change.where)
            if change.kind and change.name:
                with self._reported(change.where, home_of(change.kind)):
                    self._entities.unreadable(change.kind, change.namespace, change.name)
            return
        if change.kind.segment not in self._entities.synced:
            self._progress_at = time.monotonic()
            self._keeping.took(1)
        match change:
            case Aside():
                self._aside.add(change.kind.segment)
            case Synced():
                self._entities.completed(change)
            case Upserted():
                with self._reported(_identity(change), home_of(change.kind)):
                    self._entities.upserted(change)
            case Gone():
                with self._reported(_identity(change), home_of(change.kind)):
                    self._entities.went(change)

    @property
    def counts(self) -> Counts:
        """What became of the changes so far; callable from any thread."""
        return Counts(dict(self._written), dict(self._entities.skipped), dict(self._failed))

    def pause(self) -> float:
        """Return how many seconds may pass until something has to be written, at most half a second."""
        if not self.gathered or not self._entities.dirty:
            return IDLE_SECONDS
        due = min(self._due_at(graph) for graph in self._entities.dirty)
        return min(IDLE_SECONDS, max(0.001, due - time.monotonic()))

    def flush(self, *, everything: bool = False) -> None:
        """Write what is due; ``everything`` when no more will come."""
        if not (self.gathered or everything or self._complete()):
            return
        self._apply(self._hosting())
        now = time.monotonic()
        ready = [each for each in self._entities.dirty if everything or not self.gathered or self._due_at(each) <= now]
        self._entities.dirty.difference_update(ready)
        self._write(ready)
        self._open_windows(ready)
        if not self.gathered:
            self._keeping.gathered()
        self.gathered = True

    def _home(self, graph: str) -> str:
        return home_in(self._around.iris.short(graph))

    def _complete(self) -> bool:
        if self._kinds <= self._entities.synced | self._aside:
            return True
        return bool(self._entities.dirty) and time.monotonic() - self._progress_at > PATIENCE_SECONDS

    def _due_at(self, graph: str) -> float:
        return self._written_at.get(graph, 0.0) + self._window

    def _open_windows(self, written: Iterable[str]) -> None:
        now = time.monotonic()
        if len(self._written_at) > _MOST_WINDOWS:
            self._written_at = {graph: at for graph, at in self._written_at.items() if at + self._window > now}
        if self._window and self.gathered:
            self._written_at.update(dict.fromkeys(written, now))

    def _hosting(self) -> list[GraphWrite]:
        """Return the writes that follow from a change of the datasources; nothing when there is none."""
        found = self._entities.datasources()
        if "service" not in self._entities.synced:  # nobody said that those found earlier are gone
            known = {each.iri for each in found}
            found = (*found, *(each for each in self._mine if each.iri not in known))
        if found == self._datasources:
            return []
        before = self._mine if self._datasources is None else self._datasources
        self._datasources = found
        self._entities.datasources_changed()
        return [
            *hosting.writes(self._around, (*found, *self._others)),
            *(GraphWrite(each.iri, lines(each.document()), self._owner) for each in found),
            *self._vanished({each.iri for each in before} - {each.iri for each in found}),
        ]

    def _vanished(self, datasources: Iterable[str]) -> Iterable[GraphWrite]:
        for iri in datasources:
            name = self._around.iris.parse(iri).name
            left = remains(iri, "Datasource", name, self._around.cluster, (), None, self._clock())
            yield GraphWrite(iri, left, self._owner)

    def _rendered(self, graphs: Iterable[str]) -> Iterator[GraphWrite]:
        datasources = (*(self._datasources or ()), *self._others)
        for graph in graphs:
            found = None
            with self._reported(graph, self._home(graph)):
                found = self._entities.write(graph, datasources)
            if not self.gathered:
                self._keeping.took(1)
            if found:
                yield found

    def _write(self, graphs: list[str]) -> None:
        """Render and write; of many, one batch is rendered while the store, outside of Python for the most part, writes another."""
        writes = self._rendered(sorted(graphs))
        if len(graphs) < _FEW:
            self._apply(list(writes))
            return
        with ThreadPoolExecutor(1, thread_name_prefix="write") as writer:
            writing = None
            for batch in batched(writes, self._most):
                if writing:
                    self._account(*writing.result())
                writing = writer.submit(write, self._sink, batch, self._most)
            if writing:
                self._account(*writing.result())

    def _apply(self, writes: list[GraphWrite]) -> None:
        self._account(*write(self._sink, writes, self._most))

    def _account(self, written: list[Written], refused: list[GraphOwned]) -> None:
        for error in refused:
            if error.detail["graph"] not in self._refused:  # once; the object may change every second
                self._reject(Rejected(error.detail["graph"], str(error)))
            self._refused.add(error.detail["graph"])
        unchanged = 0
        for each in written:
            same = each.outcome == "unchanged"
            unchanged += same
            (self._entities.skipped if same else self._written)[self._home(each.graph)] += 1
        self.summary.written += len(written) - unchanged
        self.summary.unchanged += unchanged + self._entities.unchanged
        self._entities.unchanged = 0
        self.summary.gone = self._entities.gone
        self.summary.objects = +self._entities.objects

    def _reject(self, rejected: Rejected) -> None:
        log.warning("object_rejected", where=rejected.where, reason=rejected.reason)
        if len(self.summary.rejected) < _MOST_LISTED:
            self.summary.rejected.append(rejected)

    @contextmanager
    def _reported(self, identity: str, home: str) -> Iterator[None]:
        """Report an error in handling one object, once until it is handled well again, and go on with the others."""
        try:
            yield
            self._failing.discard(identity)
        except (StoreUnavailable, SourceUnavailable):
            raise  # the store's fault, not the object's: a new run has to take it in again
        except DrumlinError as error:
            self._failed[home] += 1
            if identity not in self._failing:
                self._reject(Rejected(identity, str(error)))
            self._failing.add(identity)
        except Exception as error:  # noqa: BLE001  the pipeline's edge: one object must not end the others
            self._failed[home] += 1
            if identity not in self._failing:
                # Frames only: the message of an unforeseen error may hold a value of the object.
                frames = "".join(traceback.format_tb(error.__traceback__))
                log.error("render_crashed", identity=identity, error=type(error).__name__, frames=frames)
                self._reject(Rejected(identity, f"unexpected {type(error).__name__}; see the log"))
            self._failing.add(identity)


def _identity(change: Upserted | Gone) -> str:
    metadata: Metadata = change.manifest.metadata
    return f"{change.kind.name} {metadata.namespace + '/' if metadata.namespace else ''}{metadata.name}"
