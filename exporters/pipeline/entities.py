"""The entities of one source: the last manifest of each, its runs, and which graphs have to be written again.

Free of I/O but for the look-ups of the memory that is given from outside. Changes go in, graph writes come out; the pipeline decides when.
Nothing here depends on the order in which objects of different kinds arrive.
"""

from __future__ import annotations

from collections import Counter, OrderedDict
from collections.abc import Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass
from datetime import datetime
from itertools import islice
from typing import Any, NamedTuple

import msgspec

from drumlin.exporters.pipeline.context import (
    DATASOURCES,
    ClusterContext,
    RenderContext,
    domain_topic,
    object_topic,
    whole_topic,
)
from drumlin.exporters.pipeline.dependencies import DependencyGraph
from drumlin.exporters.pipeline.hosting_domain import discovered
from drumlin.exporters.pipeline.hysteresis import Hysteresis
from drumlin.exporters.pipeline.renderings import Rendering, fingerprint
from drumlin.exporters.pipeline.restore import Memory
from drumlin.exporters.pipeline.runs import (
    Observed,
    Run,
    advance,
    befallen,
    close,
    documents,
    merge,
    stand_in,
    supersede,
    without_stand_ins,
)
from drumlin.exporters.pipeline.tombstones import remains
from drumlin.exporters.protocol import (
    Clock,
    Gone,
    Kind,
    Manifest,
    Metadata,
    OwnerReference,
    RememberedRun,
    RunReport,
    Synced,
    Topic,
    Trouble,
    Upserted,
)
from drumlin.exporters.sites import NODES
from drumlin.kg.errors import InvalidInput, Violation
from drumlin.kg.graphs.ingest import Statements, accept_conforming
from drumlin.kg.rdf.jsonld import NodeDocument, read
from drumlin.kg.rdf.syntax import Lines, digest
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.ontology.vocabulary import WORKLOAD_KINDS

_DEPARTED = 10_000  # uids of which a late change is still recognised
_WAITING = 10_000  # runs that have not begun, or of objects that are not followed, of which something was reported


@dataclass(slots=True)
class _Entity:
    kind: Kind
    manifest: Manifest
    runs: dict[str, Run]
    digest: str | None = None  # of its graph as an earlier life left it, until this life has looked at it
    has_graph: bool = False
    rendering: Rendering | None = None  # what an earlier life rendered it from, until this life has looked at it

    @property
    def uid(self) -> str:
        return self.manifest.metadata.uid


class Due(NamedTuple):
    """A write that is due, and what had to be left out of what the source reports."""

    write: GraphWrite
    left_out: tuple[Violation, ...] = ()


class Entities:
    """What one source has reported. Not for use by several threads."""

    def __init__(self, owner: str, around: ClusterContext, *, clock: Clock, memory: Memory) -> None:
        self.dirty: set[str] = set()
        self.objects: Counter[str] = Counter()  # that exist, by kind
        self.unchanged = 0
        self.skipped: Counter[str] = Counter()  # by home of the kind: what came and gave no write
        self.synced: set[str] = set()  # segments of kinds
        self.data_changed = True  # whether other external data may be linked to than before; at first that is not known
        self._owner = owner
        self._around = around
        self._clock = clock
        self._memory = memory
        self._gathering = True
        self._prints: dict[tuple[Topic, ...], bytes | None] = {}  # fingerprints of facts, while nothing is taken in
        self._facts = DependencyGraph()
        self._lasting = Hysteresis()
        self._topics: dict[str, Topic] = {}  # by graph: on which it publishes what lasts
        self._entities: dict[str, _Entity] = {}
        self._departed: OrderedDict[str, None] = OrderedDict()
        self._data: dict[str, frozenset[str]] = {}  # by graph: the external data (IRIs) that it links to
        self._external = f"{around.iris.root}external/"
        self._tombstones: dict[str, tuple[Lines, dict[str, Run]]] = {}  # not yet written
        # What was reported of runs that have not begun, by graph and uid.
        self._waiting: OrderedDict[tuple[str, str], dict[tuple[str, str | None], Trouble]] = OrderedDict()
        self._missed: dict[str, tuple[RememberedRun, str]] = {}  # by graph: what others remember of it, and which do
        for graph, namespace, domain in memory.domains():
            if domain != around.settings.domain.id:
                self._facts.publish(graph, [(domain_topic(namespace), domain)])

    def __len__(self) -> int:
        """Return how many objects exist."""
        return len(self._entities)

    def __contains__(self, graph: str) -> bool:
        """Return whether ``graph`` is that of an object that exists."""
        return graph in self._entities

    def sample(self, most: int) -> list[tuple[str, str]]:
        """Return the IRIs and uids of some objects that have a run, at most so many."""
        having = ((graph, each.uid) for graph, each in self._entities.items() if each.uid in each.runs)
        return list(islice(having, most))

    # -- changes in ---------------------------------------------------------------------------------------------------
    def upserted(self, change: Upserted) -> None:
        """Take in that an object exists and looks like this; what changes nothing, or comes too late, is passed over."""
        kind, manifest = change.kind, change.manifest
        if kind.reports:
            if report := kind.reports(manifest):
                self._take(report)
            return
        graph = self._name(kind, manifest.metadata)
        if manifest.metadata.uid in self._departed:
            return
        entity = self._entities.get(graph)
        if entity and _same(entity.manifest, manifest):
            entity.manifest = manifest  # the source keeps this one too
            self.skipped[kind.home] += 1
            return
        if entity is None:
            entity = self._entities[graph] = self._begun(graph, kind, manifest)
            self.objects[kind.name] += 1
            self.dirty |= self._facts.readers(object_topic(graph))
        elif entity.uid != manifest.metadata.uid:
            self._depart(entity.uid)
            self._replace(entity, manifest.metadata)
        entity.manifest = manifest
        if not entity.rendering or entity.rendering.manifest != _fingerprint(entity):
            entity.rendering = None
            self._advance(entity)  # else it, and its runs, are as an earlier life left them
        if self._waiting and entity.uid in entity.runs:
            for trouble in self._waiting.pop((graph, entity.uid), {}).values():
                self._befall(graph, entity, entity.uid, trouble)
        self._missed.update((self._graph_of(each), (each, graph)) for each in kind.past(manifest))
        self.dirty |= {graph, *self._facts.publish(graph, kind.facts(manifest))}
        if lasting := kind.lasting(manifest):
            self._topics[graph], members = lasting
            self._lasting.offer(graph, members, self._clock(), at_once=kind.segment not in self.synced)

    def went(self, change: Gone) -> None:
        """Take in that an object is gone; what is said of a uid that is not the present one is passed over."""
        graph = self._name(change.kind, change.manifest.metadata)
        entity = self._entities.get(graph)
        uid = change.manifest.metadata.uid
        if entity is None or (uid and uid != entity.uid):
            return
        last_words = None
        try:
            last_words = self._last_words(graph, entity, change)
        finally:  # it is gone, also when its last form cannot be rendered
            if last_words is not None or entity.has_graph:
                self._bury(graph, entity.kind, entity.runs, last_words or {}, change.observed)
            del self._entities[graph]
            self.data_changed |= bool(self._data.pop(graph, None))
            self.objects[change.kind.name] -= 1
            self._depart(entity.uid)
            self.dirty |= {graph, *self._facts.retract(graph), *self._facts.readers(object_topic(graph))}
            self._facts.unread(graph)
            if self._topics.pop(graph, None):
                self._lasting.forget(graph)
                self.dirty |= self._facts.retract(_lasting(graph))

    def settle(self) -> None:
        """Take in what has lasted by now."""
        for graph, members in self._lasting.settle(self._clock()):
            facts = [(self._topics[graph], members)] if members else []
            self.dirty |= self._facts.publish(_lasting(graph), facts)

    def unreadable(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Take in that an object exists and cannot be read: what an earlier life wrote of it is not lost."""
        self._memory.mentioned(self._name(kind, Metadata(name, namespace=namespace)))

    def completed(self, change: Synced) -> None:
        """Take in that all objects of a kind have come: what an earlier life wrote and is not among them is lost."""
        if change.namespace is None:
            self.synced.add(change.kind.segment)
        for graph, earlier in self._memory.completed(change.kind, change.namespace):
            name = self._around.iris.parse(graph).name
            runs = {
                uid: close(run, Metadata(name.name), change.observed, estimated=True)
                for uid, run in self._memory.runs_before(graph, earlier).items()
            }
            manager = self._memory.manager(graph)
            said = self._memory.said(graph) | ({"managedBy": manager} if manager else {})
            self._bury(graph, change.kind, runs, said, change.observed)
            self.dirty |= {graph, *self._facts.retract(graph), *self._facts.readers(object_topic(graph))}
        self.dirty |= self._facts.readers(whole_topic(change.kind.home))

    def _take(self, report: RunReport) -> None:
        """Take in what another object reports of a run; what is reported of a run that has not begun waits for it."""
        graph, uid = self._around.object(report.namespace, report.kind, report.name, report.group), report.uid
        entity = self._entities.get(graph)
        while entity and entity.kind.type in WORKLOAD_KINDS and not entity.runs and (owner := _owner(entity)):
            graph, uid = self._around.object(report.namespace, owner.kind, owner.name, _group(owner)), owner.uid
            entity = self._entities.get(graph)
        if entity and uid == entity.manifest.metadata.name:  # the kubelet knows no uid of its node
            uid = entity.uid
        if entity and uid in entity.runs:
            self._befall(graph, entity, uid, report.trouble)
        if entity and (uid in entity.runs or not entity.kind.life):
            return
        self._waiting.setdefault((graph, uid), {})[report.trouble.reason, report.trouble.container] = report.trouble
        if len(self._waiting) > _WAITING:
            self._waiting.popitem(last=False)

    def _befall(self, graph: str, entity: _Entity, uid: str, trouble: Trouble) -> None:
        before = entity.runs[uid]
        entity.runs[uid] = befallen(before, trouble)
        if entity.runs[uid] is not before:
            entity.rendering = None
            self.dirty.add(graph)

    def recall_missed(self) -> None:
        """Rebuild the runs that others remember, of objects that are gone and of which nothing else is known.

        Those of kinds that are not complete yet wait.
        """
        waiting = {}
        for graph, (past, manager) in self._missed.items():
            if not self._memory.is_complete(past.kind, past.namespace):
                waiting[graph] = past, manager
            elif graph not in self._entities and graph not in self._tombstones and not self._memory.runs_of(graph):
                node = self._around.object(None, "Node", past.node) if past.node else None
                run = stand_in(past.start, past.end, past.outcome, node)
                self.observed(Observed(graph, past.type, (run,), manager, datetime.fromisoformat(run.end or run.start)))
                self.dirty.add(graph)
        self._missed = waiting

    def _graph_of(self, past: RememberedRun) -> str:
        return self._around.object(past.namespace, past.kind, past.name)

    def observed(self, found: Observed) -> bool:
        """Take in what a datasource remembers of an entity; return whether its graph has to be written. What is known already stands."""
        graph = found.graph
        if entity := self._entities.get(graph):
            return _merged(entity.runs, found.runs)
        if self._memory.awaits(graph):
            return False
        stands, manager = self._memory.left(graph)
        if stands and not found.runs:
            return False
        runs = self._tombstones[graph][1] if graph in self._tombstones else self._memory.runs_of(graph)
        if not _merged(runs, found.runs) and stands:
            return False
        ends = [datetime.fromisoformat(run.end) for run in runs.values() if run.end]
        at, name = max([found.until, *ends]), self._around.iris.parse(graph).name
        said = self._memory.said(graph)
        if manager := manager or found.manager:
            said = said | {"managedBy": manager}
        left = remains(graph, found.type, name, self._around.cluster, runs.values(), said, at)
        self._tombstones[graph] = left, runs
        return True

    # -- writes out ---------------------------------------------------------------------------------------------------
    @property
    def buried(self) -> Collection[str]:
        """The graphs that will be tombstones when they are written."""
        return self._tombstones.keys()

    def datasources(self, reached: Collection[str] = ()) -> tuple[Datasource, ...]:
        """Return the datasources that have been discovered so far; ``reached`` as for ``hosting.discovered``."""
        found = self._facts.on(DATASOURCES)
        return discovered(found, self._around.settings, self._around.iris, self._domain_of, reached)

    def external_data(self) -> frozenset[str]:
        """Return the IRIs of the external data that the documents written so far link to."""
        self.data_changed = False
        return frozenset().union(*self._data.values())

    def nodes(self) -> list[tuple[str, Mapping[str, str]]]:
        """Return the names and labels of the nodes that have come."""
        return list(self._facts.on(NODES))

    def telemetry_changed(self, around: ClusterContext) -> None:
        """Have everything with telemetry rendered again, in these surroundings."""
        self._around = around
        self.dirty |= self._facts.readers(DATASOURCES)

    def write(self, graph: str, datasources: tuple[Datasource, ...]) -> Due | None:
        """Return the write that brings one graph up to date; None when there is nothing to write.

        Raises ``ShapeViolation`` when what the source reports breaks the rules, and leaving out what does so does not help.
        """
        entity = self._entities.get(graph)
        if entity is None:
            buried = self._tombstones.pop(graph, None)
            return Due(GraphWrite.of(graph, buried[0], self._owner)) if buried else None
        known, entity.rendering = entity.rendering, None
        if known and self._is_as_rendered(known, graph, datasources):
            self._stays(entity)
            return None
        left_out: list[Violation] = []
        document = self._document(graph, entity, datasources, left_out)
        self._note_data(graph, document)
        if document is None:
            had, entity.has_graph, entity.digest = entity.has_graph, False, None
            return Due(GraphWrite(graph, None, self._owner)) if had else None
        said = Statements(*read(document))
        if entity.digest and entity.digest == digest(said.lines):  # it was accepted then
            self._stays(entity)
            return None
        accepted = accept_conforming(said, graph, self._around.iris)
        if entity.digest == accepted.content.digest:
            self._stays(entity)
            return None
        entity.digest, entity.has_graph = None, True
        return Due(GraphWrite(graph, accepted.content, self._owner), (*left_out, *accepted.left_out))

    def _stays(self, entity: _Entity) -> None:
        """Take note that an earlier life left the graph as it is to be."""
        entity.digest, entity.has_graph = None, True
        self.unchanged += 1
        self.skipped[entity.kind.home] += 1

    # -- what graphs were rendered from -------------------------------------------------------------------------------
    def _is_as_rendered(self, known: Rendering, graph: str, datasources: tuple[Datasource, ...]) -> bool:
        """Return whether the facts are the same, too, as when a graph was rendered; the topics that were read then count as read."""
        if known.facts != self._facts_on(known.topics, datasources):
            return False
        for topic in known.topics:
            self._facts.read(graph, topic)
        return True

    def _facts_on(self, topics: tuple[Topic, ...], datasources: tuple[Datasource, ...]) -> bytes | None:
        if topics not in self._prints:
            self._prints[topics] = self._fingerprint_of(topics, datasources)
        return self._prints[topics]

    def _fingerprint_of(self, topics: Iterable[Topic], datasources: tuple[Datasource, ...]) -> bytes | None:
        """Return what distinguishes the facts on topics; None while an object is awaited that the graph remembers."""
        facts: list[object] = []
        for topic in topics:
            if topic == object_topic(about := topic[-1]):
                if self._memory.awaits(about):
                    return None
                facts.append(about in self._entities)
            elif topic == whole_topic(about):
                if self._memory.awaits_any(about):
                    return None
                facts.append(self._memory.complete_namespaces(about))
            elif topic == DATASOURCES:
                facts.append(datasources)
            else:
                facts.append(self._facts.on(topic))
        return fingerprint(facts)

    def renderings(
        self, digests: Mapping[str, str], datasources: tuple[Datasource, ...]
    ) -> Iterator[tuple[str, Rendering]]:
        """Yield what the graphs with ``digests`` were rendered from, without those that have to be written again."""
        self._prints.clear()
        for graph, entity in self._entities.items():
            if graph in self.dirty or not entity.has_graph or graph not in digests or graph in self._data:
                continue
            topics = tuple(sorted(self._facts.topics(graph)))
            content, facts = _fingerprint(entity), self._facts_on(topics, datasources)
            if content and facts:
                yield graph, Rendering(digests[graph], tuple(entity.runs.values()), content, topics, facts)
        self._prints.clear()

    def distrust_renderings(self) -> None:
        """Have everything rendered again."""
        for entity in self._entities.values():
            entity.rendering = None

    def gathered(self) -> None:
        """Take note that all graphs of an earlier life were compared: from now on what comes is rendered."""
        self._gathering = False
        self._prints.clear()

    # -- inside -------------------------------------------------------------------------------------------------------
    def _name(self, kind: Kind, metadata: Metadata) -> str:
        """Return the IRI of an object's graph."""
        if kind.reserved == "domain":
            return self._around.iris.domain(metadata.name)
        namespace = metadata.namespace if kind.namespaced else None
        return self._around.object(namespace, kind.name, metadata.name, kind.group)

    def _begun(self, graph: str, kind: Kind, manifest: Manifest) -> _Entity:
        if graph in self._tombstones:
            return _Entity(kind, manifest, self._tombstones.pop(graph)[1], has_graph=True)
        earlier = self._memory.mentioned(graph)
        if earlier:
            runs = self._memory.runs_before(graph, earlier)
            stands = not earlier.tombstone or bool(runs)  # what never had a run keeps its tombstone, as below
            known = earlier.rendering if self._gathering else None
            return _Entity(kind, manifest, runs, earlier.digest, has_graph=stands, rendering=known)
        # Until the kind is complete, everything that was ever written about it stands in what was recalled.
        complete = self._memory.is_complete(kind.home, manifest.metadata.namespace)
        runs = self._memory.runs_of(graph) if kind.life and complete else {}
        return _Entity(kind, manifest, runs, has_graph=bool(runs))

    def _replace(self, entity: _Entity, successor: Metadata) -> None:
        """End the run of an object whose name another one has taken."""
        run, former = entity.runs.get(entity.uid), entity.manifest.metadata
        if run and former.deletionTimestamp:
            entity.runs[run.uid] = close(run, former, self._clock(), estimated=False)
        elif run:
            entity.runs[run.uid] = supersede(run, successor, self._clock())

    def _advance(self, entity: _Entity) -> None:
        metadata = entity.manifest.metadata
        if not entity.kind.life or not metadata.uid:
            return
        for uid, other in entity.runs.items():
            if uid != metadata.uid:
                entity.runs[uid] = supersede(other, metadata, self._clock())
        life = entity.kind.life(entity.manifest)
        node = self._around.object(None, "Node", life.node) if life.node else None
        if run := advance(entity.runs.get(metadata.uid), metadata.uid, life, node, self._clock):
            entity.runs[metadata.uid] = run
            without_stand_ins(entity.runs, run)

    def _depart(self, uid: str) -> None:
        if uid:
            self._departed[uid] = None
        if len(self._departed) > _DEPARTED:
            self._departed.popitem(last=False)

    def _document(
        self,
        graph: str,
        entity: _Entity,
        datasources: tuple[Datasource, ...] = (),
        left_out: list[Violation] | None = None,
    ) -> NodeDocument | None:
        runs = documents(graph, entity.runs.values())
        context = RenderContext(
            graph,
            self._around,
            self._facts,
            self._memory,
            self._entities,
            datasources,
            runs,
            [] if left_out is None else left_out,
        )
        with self._facts.reading(graph):
            return entity.kind.render(entity.manifest, context) if entity.kind.render else None

    def _note_data(self, graph: str, document: NodeDocument | None) -> None:
        """Take note of the external data that a document links to."""
        links = document.get("dependsOn") if document else None
        if not links and graph not in self._data:
            return  # as nearly all
        found = frozenset(each for each in links or () if each.startswith(self._external))
        if found != self._data.get(graph, frozenset()):
            self.data_changed = True
            self._data[graph] = found

    def _last_words(self, graph: str, entity: _Entity, change: Gone) -> NodeDocument | None:
        """End the run of an object by its last form; return what it was, or None when it was no entity or cannot be read."""
        entity.manifest = change.manifest
        try:
            self._advance(entity)
            if run := entity.runs.get(entity.uid):
                entity.runs[run.uid] = close(run, entity.manifest.metadata, change.observed, estimated=change.estimated)
            return self._document(graph, entity)
        except InvalidInput:
            return None  # it was reported when it came

    def _bury(self, graph: str, kind: Kind, runs: dict[str, Run], said: Mapping[str, object], at: datetime) -> None:
        cluster = self._around.cluster
        name = self._around.iris.parse(graph).name
        self._tombstones[graph] = (remains(graph, kind.type, name, cluster, runs.values(), said, at), runs)

    def _domain_of(self, namespace: str) -> str | None:
        return next(iter(self._facts.on(domain_topic(namespace))), None)


def _fingerprint(entity: _Entity) -> bytes | None:
    """Return what distinguishes a manifest; the runs are in the graph that has the digest."""
    return fingerprint(entity.kind.segment, entity.manifest)


def _owner(entity: _Entity) -> OwnerReference | None:
    """Return the owner that manages an object."""
    return next((each for each in entity.manifest.metadata.ownerReferences if each.controller), None)


def _group(owner: OwnerReference) -> str:
    return owner.apiVersion.rpartition("/")[0]


def _lasting(graph: str) -> str:
    """Return the name under which an entity publishes what has lasted, beside what counts at once."""
    return f"{graph}#lasting"


def _merged(runs: dict[str, Run], found: Iterable[Run]) -> bool:
    """Merge runs that were found into the known ones, by uid; return whether that changed any."""
    changed = False
    for run in found:
        merged = merge(runs.get(run.uid), run)
        changed |= merged != runs.get(run.uid)
        runs[run.uid] = merged
        without_stand_ins(runs, merged)
    return changed


def _same(one: Any, other: Any) -> bool:
    """Return whether two forms of an object differ in nothing but the resourceVersion."""
    metadata = msgspec.structs.replace(other.metadata, resourceVersion=one.metadata.resourceVersion)
    return bool(one.metadata == metadata) and bool(one == msgspec.structs.replace(other, metadata=metadata))
