"""One run of the pipeline over one source: what to write, and when.

Gathering ends when every kind is complete; everything is written then, in bulk. Afterwards each object has its own window: its first
change is written at once, later ones together when the window is over.
"""

from __future__ import annotations

import time
import traceback
from collections import Counter, OrderedDict
from collections.abc import Callable, Container, Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from pathlib import Path

import structlog

from drumlin.exporters import sites
from drumlin.exporters.pipeline import external_data, hosting_domain
from drumlin.exporters.pipeline.context import ClusterContext
from drumlin.exporters.pipeline.entities import Due, Entities
from drumlin.exporters.pipeline.gc_tuning import GcFreezer
from drumlin.exporters.pipeline.renderings import Renderings, fingerprint, fingerprint_of_code
from drumlin.exporters.pipeline.restore import Memory, home_in
from drumlin.exporters.pipeline.runs import Observed
from drumlin.exporters.pipeline.sink import BATCH, Sink, batched, write
from drumlin.exporters.pipeline.tombstones import remains
from drumlin.exporters.protocol import (
    OPERATED,
    Change,
    Clock,
    Gone,
    Kind,
    KindUnavailable,
    Metadata,
    Rejected,
    Synced,
    Upserted,
)
from drumlin.exporters.sites import Sites
from drumlin.kg.errors import DrumlinError, GraphOwned, ShapeViolation, SourceUnavailable, StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.rdf.tombstones import is_tombstone
from drumlin.kg.store.protocol import GraphWrite, Written
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.graph import TelemetryGraph

log = structlog.get_logger()

PATIENCE_SECONDS = 30.0
"""So long gathering waits for a kind of which nothing comes and nothing is said."""
IDLE_SECONDS = 0.5
TEMPLATES_SECONDS = 10.0
"""So often it is looked whether a user has overridden a template, whose queries stand in the graphs."""
_MOST_LISTED = 1000
_MOST_WINDOWS = 20_000
_MOST_NAMES = 10_000  # objects of which it is known that their trouble was reported
_SAMPLE = 100  # objects whose uids are looked for in other clusters
_SAME = f"SELECT ?entity WHERE {{{{ VALUES ?run {{{{ {{runs}} }}}} ?run <{NAMESPACE}runOf> ?entity }}}} LIMIT 1"
_MOST_MISSED = (
    0.1  # of the graphs: when more had to be rendered again than that, what they were rendered from is noted at once
)
LIVE_BATCH = 250
"""Graphs in one write once all that exists is written: each is seen when its write is done, and the first need not wait for thousands."""


@dataclass
class RunSummary:
    """What was done. ``objects`` counts what exists by kind; ``added``, ``updated`` and ``unchanged`` count the graphs of objects.

    ``removed`` counts those that became tombstones, and discovered datasources that did. ``rejected`` lists what could not be read,
    rendered or written: where it stood and why, at most a thousand. ``left_out`` lists as many properties of what was written without
    them, because they break a rule. ``warnings`` are about the whole.
    """

    objects: Counter[str] = field(default_factory=Counter)
    added: int = 0
    updated: int = 0
    unchanged: int = 0
    removed: int = 0
    warnings: list[str] = field(default_factory=list)
    rejected: list[Rejected] = field(default_factory=list)
    left_out: list[Rejected] = field(default_factory=list)

    def __str__(self) -> str:
        """Say it in one line."""
        return (
            f"{self.objects.total()} objects: {self.added} added, {self.updated} updated, {self.unchanged} unchanged, "
            f"{self.removed} removed, {len(self.rejected)} rejected"
        )


Progress = Callable[[RunSummary], None]


@dataclass(frozen=True, slots=True)
class ChangeCounts:
    """What became of the changes, by home of their kind (``Kind.home``).

    Graphs written; changes that gave no write, since their graph stays the same; errors of rendering.
    """

    written: dict[str, int]
    skipped: dict[str, int]
    failed: dict[str, int]


class ReportedNames:
    """Names of objects whose trouble was reported, so that each is reported once until it is over.

    At most ``limit``: beyond that, the one whose trouble came up least recently is forgotten, and reported when it comes up again.
    """

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._names: OrderedDict[str, None] = OrderedDict()

    def __len__(self) -> int:
        """Return how many there are."""
        return len(self._names)

    def __contains__(self, name: str) -> bool:
        """Return whether a name is among them."""
        return name in self._names

    def add(self, name: str) -> bool:
        """Add a name; return whether it is new."""
        new = name not in self._names
        self._names[name] = None
        self._names.move_to_end(name)
        if len(self._names) > self._limit:
            self._names.popitem(last=False)
        return new

    def discard(self, name: str) -> None:
        """Forget a name."""
        self._names.pop(name, None)


class Reconciler:
    """The state of one run. Not for use by several threads."""

    def __init__(
        self,
        sink: Sink,
        around: ClusterContext,
        owner: str,
        kinds: frozenset[str],
        clock: Clock,
        window: float,
        most: int = BATCH,
        progress: Progress | None = None,
        renderings: Path | None = None,
    ) -> None:
        self.gathered = False
        self.summary = RunSummary()
        self._sink = sink
        self._shipped = around.catalogue
        self._around = around = around.among(sink)
        self._templates = TelemetryGraph(sink, around.iris)
        self._templates_at = time.monotonic() + TEMPLATES_SECONDS
        self._owner = owner
        self._kinds = kinds
        self._clock = clock
        self._window = window
        self._most = most
        self._progress = progress
        self._prefixes = (around.prefix, around.function_prefix, f"{around.iris.root}domain/")
        self._renderings = Renderings(renderings, self._surroundings)
        self._memory = Memory(sink, owner, self._prefixes, around.iris, around.functions, self._renderings)
        self._noted = len(self._renderings)
        self._renderings.forget()  # the memory has what it needs of them
        self.remembered = self._memory.homes
        self._entities = Entities(owner, around, clock=clock, memory=self._memory)
        self._mine = tuple(hosting_domain.found_earlier(sink, around, owner))
        mine = {each.iri for each in self._mine}
        self._others = tuple(each for each in hosting_domain.found_earlier(sink, around) if each.iri not in mine)
        self._datasources: tuple[Datasource, ...] | None = None  # as last written
        self._sites: Sites = {}
        self._written_at: dict[str, float] = {}
        self._progress_at = time.monotonic()
        self._keeping = GcFreezer()
        self._aside: set[str] = set()
        self._failing = ReportedNames(_MOST_NAMES)
        self._refused = ReportedNames(_MOST_NAMES)
        self._unreadable = ReportedNames(_MOST_NAMES)
        self._left_out: dict[str, frozenset[tuple[str | None, str | None]]] = {}  # by graph, at most so many
        self._written: Counter[str] = Counter()  # by home
        self._failed: Counter[str] = Counter()

    def take(self, change: Change) -> None:
        """Take in one change; what cannot be understood of it is reported and left."""
        if isinstance(change, Rejected):
            kind = change.kind if change.name else None
            identity = _identity(kind, change.namespace, change.name) if kind else change.where
            if self._unreadable.add(identity):  # once; the object may change every second
                self._reject(change)
            if kind:
                with self._reported(identity, kind.home):
                    self._entities.unreadable(kind, change.namespace, change.name)
            return
        if change.kind.segment not in self._entities.synced:
            self._progress_at = time.monotonic()
            self._keeping.took(1)
        match change:
            case KindUnavailable():
                self._aside.add(change.kind.segment)
            case Synced():
                self._entities.completed(change)
            case Upserted():
                identity = _identity_of(change)
                self._unreadable.discard(identity)
                with self._reported(identity, change.kind.home):
                    self._entities.upserted(change)
            case Gone():
                identity = _identity_of(change)
                with self._reported(identity, change.kind.home):
                    self._entities.went(change)
                for names in (self._unreadable, self._failing):
                    names.discard(identity)

    def observed(self, found: Iterable[Observed]) -> int:
        """Take in and write what a datasource remembers of entities; return how many graphs that changed."""
        graphs = []
        for each in found:
            with self._reported(each.graph, self._home(each.graph)):
                if self._entities.observed(each):
                    graphs.append(each.graph)
        before = self.summary.added, self.summary.updated, self.summary.removed  # they count what the source reported
        self._entities.dirty.difference_update(graphs)
        self._write(graphs)
        self.summary.added, self.summary.updated, self.summary.removed = before
        return len(graphs)

    @property
    def counts(self) -> ChangeCounts:
        """What became of the changes so far; callable from any thread."""
        return ChangeCounts(dict(self._written), dict(self._entities.skipped), dict(self._failed))

    def pause(self) -> float:
        """Return how many seconds may pass until something has to be written, at most half a second."""
        if not self.gathered or not self._entities.dirty:
            return IDLE_SECONDS
        due = min(self._due_at(graph) for graph in self._entities.dirty)
        return min(IDLE_SECONDS, max(0.001, due - time.monotonic()))

    def report(self) -> None:
        """Report how far it has come to whom it was asked for."""
        self.summary.objects = +self._entities.objects
        if self._progress:
            self._progress(self.summary)

    def removals(self) -> list[str]:
        """Return the IRIs of the graphs that become tombstones when everything is written, sorted."""
        before, found = self._discovered()
        return sorted({*self._entities.buried, *(before - {each.iri for each in found})})

    def flush(self, *, everything: bool = False) -> None:
        """Write what is due; ``everything`` when no more will come."""
        if not (self.gathered or everything or self._complete()):
            return
        self._entities.settle()
        if not self.gathered:
            self._look_for_namesakes()
        for writes in self._hosting():
            self._apply(writes)
        self._entities.recall_missed()
        now = time.monotonic()
        ready = [each for each in self._entities.dirty if everything or not self.gathered or self._due_at(each) <= now]
        self._entities.dirty.difference_update(ready)
        self._write(ready)
        if self._entities.data_changed:
            self._apply(external_data.writes(self._sink, self._around, self._entities.external_data()))
        self._open_windows(ready)
        if not self.gathered:
            self._keeping.gathered()
            self._entities.gathered()
            missed = len(self._entities) - self._noted
            if missed > _MOST_MISSED * len(self._entities):
                self.note_renderings()
        self.gathered = True

    def note_renderings(self) -> None:
        """Note what the graphs were rendered from, for a later process."""
        if not self._renderings.are_kept:
            return
        try:
            entries = [
                each for prefix in self._prefixes for each in self._sink.entries(owner=self._owner, prefix=prefix)
            ]
        except StoreUnavailable as error:  # the service ends, or its disk fails: a later one renders everything
            log.warning("renderings_not_noted", reason=str(error))
            return
        troubled = (self._failing, self._refused, self._left_out)  # they are tried, and reported, again
        digests = {each.graph: each.digest for each in entries if not any(each.graph in names for names in troubled)}
        self._renderings.write(self._surroundings, self._entities.renderings(digests, self._all_datasources))

    @property
    def _surroundings(self) -> bytes | None:
        """What distinguishes the surroundings that graphs are rendered in, beside the datasources that the cluster holds."""
        around = self._around
        return fingerprint(
            fingerprint_of_code(),
            around.settings,
            around.iris.root,
            around.catalogue.templates,
            around.datasources,
            around.known,
            around.hosted,
            (around.home, around.follower, around.functions),
        )

    def _look_for_namesakes(self) -> None:
        """Warn where the store has the same objects, by their uids, under the name of another cluster.

        Only at the beginning of a cluster: a mistyped name makes a second copy of everything, which nobody will ever end.
        """
        if self.remembered:
            return
        own, sample = self._around.prefix, self._entities.sample(_SAMPLE)
        for other in sorted(self._around.known - {self._around.settings.cluster}):
            prefix = self._around.prefix_of(other)
            runs = " ".join(f"<{Iris.run(prefix + graph.removeprefix(own), uid)}>" for graph, uid in sample)
            if runs and self._sink.look_up(_SAME.format(runs=runs)):
                warning = (
                    f"objects of cluster {self._around.settings.cluster} have the uids of objects of cluster {other}: "
                    f"it may be the same cluster under another name"
                )
                log.warning(
                    "cluster_has_two_names", warning=warning, hint=f"say --cluster {other}, and remove the copy"
                )
                self.summary.warnings.append(warning)

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

    def _discovered(self) -> tuple[set[str], tuple[Datasource, ...]]:
        """Return the IRIs of the datasources that were discovered before, and the datasources that there are now.

        One that was found earlier stays until the Services of its namespace are complete.
        """
        left = [each for each in self._mine if not self._memory.is_complete("service", self._place(each)[0])]
        reached = {
            namespace
            for namespace, service in map(self._place, (each for each in left if each.kind == "prometheus"))
            if service != OPERATED
        }
        found = self._entities.datasources(reached)
        known = {each.iri for each in found}
        before = self._mine if self._datasources is None else self._datasources
        return {each.iri for each in before}, (*found, *(each for each in left if each.iri not in known))

    def _place(self, datasource: Datasource) -> tuple[str, str]:
        """Return the namespace and name of the Service that a discovered datasource is."""
        service, _, namespace = datasource.name.removesuffix(f".{self._around.settings.cluster}").partition(".")
        return namespace, service

    def _hosting(self) -> tuple[list[GraphWrite], ...]:
        """Return the writes that follow from a change of the datasources or of the sites' nodes, none without a change.

        A follower's come in two lists, as each request to a service has one owner.
        """
        before, found = self._discovered()
        nodes = self._nodes_of_sites()
        renewed = time.monotonic() >= self._templates_at and self.renew_templates()
        if found == self._datasources and nodes == self._sites and not renewed:
            return ()
        if renewed and not self.gathered:
            self._entities.distrust_renderings()
        if found != self._datasources or renewed:
            self._entities.telemetry_changed(self._around)
        self._datasources, self._sites = found, nodes
        left = hosting_domain.theirs(self._sink, self._around)
        wanted = hosting_domain.writes(self._around, (*found, *self._others), nodes)
        around = [each for each in wanted if each.graph not in left]
        own = [
            hosting_domain.write_of(each.document(self._around.iris), self._owner, self._around.iris) for each in found
        ]
        own += self._vanished(before - {each.iri for each in found})
        if self._around.follower:
            return around, own
        return ([*around, *own],)

    def renew_templates(self) -> bool:
        """Look for templates that users have overridden or restored since; return whether there are any."""
        self._templates_at = time.monotonic() + TEMPLATES_SECONDS
        try:
            catalogue = self._shipped.overridden_by(self._templates.templates())
        except StoreUnavailable as error:  # what has to be written waits for it; this does not
            log.info("templates_unread", reason=str(error))
            return False
        if catalogue.templates == self._around.catalogue.templates:
            return False
        self._around = replace(self._around, catalogue=catalogue)
        return True

    def _nodes_of_sites(self) -> Sites:
        """Return the sites' nodes; a site that has lost all of them stays, and so do nodes that the source has not reported yet."""
        domain = self._around.settings.domain
        if domain.node_label is None:
            return {}
        told = sites.of_nodes(self._entities.nodes(), domain)
        if self._memory.is_complete("node"):
            return {**dict.fromkeys(self._sites, ()), **told}
        return sites.joined(told, sites.in_graph(self._sink, self._around))

    def _vanished(self, datasources: Iterable[str]) -> Iterable[GraphWrite]:
        for iri in datasources:
            name = self._around.iris.parse(iri).name
            left = remains(iri, "Datasource", name, self._around.cluster, (), {}, self._clock())
            yield GraphWrite.of(iri, left, self._owner)

    @property
    def _all_datasources(self) -> tuple[Datasource, ...]:
        """The datasources that the cluster holds, and those that others have found."""
        return (*(self._datasources or ()), *self._others)

    def _rendered(self, graphs: Iterable[str]) -> Iterator[GraphWrite]:
        datasources = self._all_datasources
        for graph in graphs:
            found = None
            with self._reported(graph, self._home(graph)):
                try:
                    found = self._entities.write(graph, datasources)
                except ShapeViolation:
                    found = self._stale(graph)
                    raise
            if not self.gathered:
                self._keeping.took(1)
            if found:
                self._list_left_out(found)
                yield found.write
            elif graph not in self._entities:  # gone without a trace
                self._forget(graph)

    def _stale(self, graph: str) -> Due | None:
        """Return the write that marks the last valid state of a graph as stale; None when there is none, or it is marked already."""
        stored = self._sink.read(graph)
        if stored is None or stored.entry.owner != self._owner or is_tombstone(stored, graph):
            return None
        mark = f"<{graph}> <{NAMESPACE}staleSince> "
        if any(line.startswith(mark) for line in stored.lines):
            return None
        since = self._clock().isoformat().replace("+00:00", "Z")
        marked = stored.lines | {f'{mark}"{since}"^^<http://www.w3.org/2001/XMLSchema#dateTime> .'}
        return Due(GraphWrite.of(graph, marked, self._owner))

    def _list_left_out(self, due: Due) -> None:
        """List what was left out of a graph: once, as long as the same is left out."""
        graph = due.write.graph
        now = frozenset((each.path, each.value) for each in due.left_out)
        before = self._left_out.pop(graph, frozenset())
        if now:
            self._left_out[graph] = now
            if len(self._left_out) > _MOST_NAMES:  # the oldest is reported again when it comes up again
                del self._left_out[next(iter(self._left_out))]
        for each in due.left_out:
            if (each.path, each.value) in before:
                continue
            log.warning("property_left_out", graph=graph, property=each.path, reason=each.message)
            if len(self.summary.left_out) < _MOST_LISTED:
                self.summary.left_out.append(Rejected(graph, f"{each.path}: {each.message}"))

    def _write(self, graphs: list[str]) -> None:
        """Render and write; of many, one batch is rendered while the store, outside of Python for the most part, writes another."""
        writes = self._rendered(sorted(graphs))
        most = min(self._most, LIVE_BATCH) if self.gathered else self._most
        if len(graphs) <= most:
            self._apply(list(writes))
            return
        with ThreadPoolExecutor(1, thread_name_prefix="write") as writer:
            writing = None
            for batch in batched(writes, most):
                if writing:
                    self._account(*writing.result())
                writing = writer.submit(write, self._sink, batch, most)
            self._account(*(writing.result() if writing else ([], [])))  # what is rendered and the same is counted, too

    def _apply(self, writes: list[GraphWrite]) -> None:
        self._account(
            *write(self._sink, writes, self._most),
            {each.graph for each in writes if each.owner == hosting_domain.OWNER},
        )

    def _account(self, written: list[Written], refused: list[GraphOwned], hosts: Container[str] = ()) -> None:
        """Count what was written, without the graphs ``hosts`` that are not the source's own, and without datasources that exist."""
        for error in refused:
            graph = error.detail["graph"]
            if self._refused.add(graph):  # once; the object may change every second
                self._reject(Rejected(graph, str(error)))
            if graph not in self._entities:
                self._forget(graph)
        datasources = {each.iri for each in self._datasources or ()}
        for each in written:
            self._refused.discard(each.graph)
            same = each.outcome == "unchanged"
            (self._entities.skipped if same else self._written)[self._home(each.graph)] += 1
            if each.graph not in hosts and each.graph not in datasources:
                self._count(each.outcome, exists=each.graph in self._entities)
        self.summary.unchanged += self._entities.unchanged
        self._entities.unchanged = 0
        self.report()

    def _count(self, outcome: str, *, exists: bool) -> None:
        if outcome == "unchanged":
            self.summary.unchanged += 1
        elif outcome == "removed" or not exists:
            self.summary.removed += 1
        elif outcome == "created":
            self.summary.added += 1
        else:
            self.summary.updated += 1

    def _reject(self, rejected: Rejected) -> None:
        log.warning("object_rejected", where=rejected.where, reason=rejected.reason)
        if len(self.summary.rejected) < _MOST_LISTED:
            self.summary.rejected.append(rejected)

    def _forget(self, graph: str) -> None:
        """Forget what was reported of a graph whose object is gone."""
        for names in (self._failing, self._refused):
            names.discard(graph)
        self._left_out.pop(graph, None)

    def _reported(self, identity: str, home: str) -> _Reported:
        """Report an error in handling one object, once until it is handled well again, and go on with the others."""
        return _Reported(self, identity, home)

    def handled(self, identity: str, home: str, error: BaseException | None) -> bool:
        """Take note of how handling an object ended; return whether to go on although it ended with an error."""
        if error is None:
            self._failing.discard(identity)
            return False
        if isinstance(error, StoreUnavailable | SourceUnavailable):
            return False  # the store's fault, not the object's: a new run has to take it in again
        if not isinstance(error, Exception):
            return False  # the process is to end
        self._failed[home] += 1
        if not self._failing.add(identity):
            return True
        if isinstance(error, DrumlinError):
            self._reject(Rejected(identity, str(error)))
        else:  # the pipeline's edge: one object must not end the others
            # Frames only: the message of an unforeseen error may hold a value of the object.
            frames = "".join(traceback.format_tb(error.__traceback__))
            log.error("render_crashed", identity=identity, error=type(error).__name__, frames=frames)
            self._reject(Rejected(identity, f"unexpected {type(error).__name__}; see the log"))
        return True


class _Reported:
    """Reports the errors in handling one object, and goes on. A class, since there is one for each object, and a generator costs more."""

    __slots__ = ("_home", "_identity", "_run")

    def __init__(self, run: Reconciler, identity: str, home: str) -> None:
        self._run, self._identity, self._home = run, identity, home

    def __enter__(self) -> None:
        pass

    def __exit__(self, _: object, error: BaseException | None, __: object) -> bool:
        return self._run.handled(self._identity, self._home, error)


def _identity_of(change: Upserted | Gone) -> str:
    metadata: Metadata = change.manifest.metadata
    return _identity(change.kind, metadata.namespace, metadata.name)


def _identity(kind: Kind, namespace: str | None, name: str) -> str:
    return f"{kind.name} {namespace + '/' if namespace else ''}{name}"
