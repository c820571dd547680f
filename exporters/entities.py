"""The entities of one source: the last manifest of each, its runs, and which graphs have to be written again.

Free of I/O but for one look-up given from outside (the runs of an entity that existed before). Changes go in, graph writes come out; the
pipeline decides when. Nothing here depends on the order in which objects of different kinds arrive.
"""

from __future__ import annotations

from collections import Counter, OrderedDict, defaultdict
from collections.abc import Callable
from dataclasses import dataclass
from datetime import datetime
from typing import Any

import msgspec

from exporters.context import DATASOURCES, Context, Surroundings
from exporters.facts import Facts
from exporters.hosting import discovered
from exporters.kubernetes.render.place import domain_topic
from exporters.protocol import Clock, Gone, Kind, Manifest, Metadata, Synced, Upserted
from exporters.recall import Earlier
from exporters.runs import Run, advance, close, documents, supersede
from exporters.tombstones import remains
from kg.errors import InvalidInput
from kg.iris import RESERVED
from kg.jsonld import NodeDocument, lines
from kg.rdf import Lines, digest
from kg.store.protocol import GraphWrite
from kg.telemetry.datasources import Datasource

_DEPARTED = 10_000  # uids of which a late change is still recognised


@dataclass(slots=True)
class _Entity:
    kind: Kind
    manifest: Manifest
    runs: dict[str, Run]
    digest: str | None = None  # of its graph as an earlier life left it, until this life has looked at it
    has_graph: bool = False

    @property
    def uid(self) -> str:
        return self.manifest.metadata.uid


class Entities:
    """What one source has told. Not for use by several threads."""

    def __init__(
        self,
        owner: str,
        around: Surroundings,
        *,
        clock: Clock,
        earlier: dict[str, Earlier],
        former_runs: Callable[[str], dict[str, Run]],
    ) -> None:
        self.dirty: set[str] = set()
        self.objects: Counter[str] = Counter()  # that exist, by kind
        self.unchanged = 0
        self.skipped: Counter[str] = Counter()  # by home of the kind: what came and gave no write
        self.gone = 0
        self.synced: set[str] = set()  # segments of kinds
        self._owner = owner
        self._around = around
        self._clock = clock
        self._former_runs = former_runs
        self._facts = Facts()
        self._entities: dict[str, _Entity] = {}
        self._departed: OrderedDict[str, None] = OrderedDict()
        self._tombstones: dict[str, tuple[Lines, dict[str, Run]]] = {}  # not yet written
        self._earlier: dict[str, dict[str, Earlier]] = defaultdict(dict)  # by what tells the kind in an id
        for graph, found in earlier.items():
            self._earlier[home_in(around.iris.short(graph))][graph] = found

    # -- changes in ---------------------------------------------------------------------------------------------------
    def upserted(self, change: Upserted) -> None:
        """Take in that an object exists and looks like this; what changes nothing, or comes too late, is passed over."""
        kind, manifest = change.kind, change.manifest
        graph = self._name(kind, manifest.metadata)
        if manifest.metadata.uid in self._departed:
            return
        entity = self._entities.get(graph)
        if entity and _same(entity.manifest, manifest):
            entity.manifest = manifest  # the source keeps this one too
            self.skipped[home_of(kind)] += 1
            return
        if entity is None:
            entity = self._entities[graph] = self._begun(graph, kind, manifest)
            self.objects[kind.name] += 1
        elif entity.uid != manifest.metadata.uid:
            self._depart(entity.uid)
            self._replace(entity, manifest.metadata)
        entity.manifest = manifest
        self._advance(entity)
        self.dirty |= {graph, *self._facts.tell(graph, kind.facts(manifest))}

    def went(self, change: Gone) -> None:
        """Take in that an object is gone; what is said of a uid that is not the present one is passed over."""
        graph = self._name(change.kind, change.manifest.metadata)
        entity = self._entities.get(graph)
        uid = change.manifest.metadata.uid
        if entity is None or (uid and uid != entity.uid):
            return
        last_words = self._last_words(graph, entity, change)
        if last_words is not None or entity.has_graph:
            self._bury(graph, entity.kind, entity.runs, (last_words or {}).get("managedBy"), change.observed)
        del self._entities[graph]
        self.objects[change.kind.name] -= 1
        self._depart(entity.uid)
        self.dirty |= {graph, *self._facts.withdraw(graph)}
        self._facts.unread(graph)

    def unreadable(self, kind: Kind, namespace: str | None, name: str) -> None:
        """Take in that an object exists and cannot be read: what an earlier life wrote of it is not lost."""
        self._earlier[home_of(kind)].pop(self._name(kind, Metadata(name, namespace=namespace)), None)

    def completed(self, change: Synced) -> None:
        """Take in that all objects of a kind have been told: what an earlier life wrote and is not among them is lost."""
        self.synced.add(change.kind.segment)
        for graph, earlier in self._earlier.pop(home_of(change.kind), {}).items():
            if earlier.tombstone:
                continue
            name = self._around.iris.parse(graph).name
            runs = {
                uid: close(run, Metadata(name.name), change.observed, estimated=True)
                for uid, run in earlier.runs.items()
            }
            self._bury(graph, change.kind, runs, earlier.manager, change.observed)
            self.dirty.add(graph)

    # -- writes out ---------------------------------------------------------------------------------------------------
    def datasources(self) -> tuple[Datasource, ...]:
        """Return the datasources that have been discovered so far."""
        found = self._facts.on(DATASOURCES)
        return discovered(found, self._around.settings, self._around.iris, self._domain_of)

    def datasources_changed(self) -> None:
        """Have everything with telemetry rendered again."""
        self.dirty |= self._facts.readers(DATASOURCES)

    def write(self, graph: str, datasources: tuple[Datasource, ...]) -> GraphWrite | None:
        """Return the write that brings one graph up to date; None when there is nothing to write."""
        entity = self._entities.get(graph)
        if entity is None:
            buried = self._tombstones.pop(graph, None)
            return GraphWrite(graph, buried[0], self._owner) if buried else None
        document = self._document(graph, entity, datasources)
        if document is None:
            had, entity.has_graph = entity.has_graph, False
            return GraphWrite(graph, None, self._owner) if had else None
        found = lines(document)
        known, entity.digest, entity.has_graph = entity.digest, None, True
        if known and known == digest(found):
            self.unchanged += 1
            self.skipped[home_of(entity.kind)] += 1
            return None
        return GraphWrite(graph, found, self._owner)

    # -- inside -------------------------------------------------------------------------------------------------------
    def _name(self, kind: Kind, metadata: Metadata) -> str:
        """Return the IRI of an object's graph."""
        if kind.reserved:
            return self._around.iris.of_class(kind.reserved, metadata.name)
        namespace = metadata.namespace if kind.namespaced else None
        return self._around.object(namespace, kind.name, metadata.name, kind.group)

    def _begun(self, graph: str, kind: Kind, manifest: Manifest) -> _Entity:
        if graph in self._tombstones:
            return _Entity(kind, manifest, self._tombstones.pop(graph)[1], has_graph=True)
        earlier = self._earlier.get(home_of(kind), {}).pop(graph, None)
        if earlier:
            return _Entity(kind, manifest, earlier.runs, earlier.digest, has_graph=True)
        # Until the kind is synced, everything that was ever written about it stands in what was recalled.
        runs = self._former_runs(graph) if kind.life and kind.segment in self.synced else {}
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

    def _depart(self, uid: str) -> None:
        if uid:
            self._departed[uid] = None
        if len(self._departed) > _DEPARTED:
            self._departed.popitem(last=False)

    def _document(self, graph: str, entity: _Entity, datasources: tuple[Datasource, ...] = ()) -> NodeDocument | None:
        runs = documents(graph, entity.runs.values())
        context = Context(graph, self._around, self._facts, datasources, runs)
        with self._facts.reading(graph):
            return entity.kind.render(entity.manifest, context) if entity.kind.render else None

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

    def _bury(self, graph: str, kind: Kind, runs: dict[str, Run], manager: str | None, at: datetime) -> None:
        cluster = self._around.cluster
        name = self._around.iris.parse(graph).name
        self._tombstones[graph] = (remains(graph, kind.type, name, cluster, runs.values(), manager, at), runs)
        self.gone += 1

    def _domain_of(self, namespace: str) -> str | None:
        return next(iter(self._facts.on(domain_topic(namespace))), None)


def _same(one: Any, other: Any) -> bool:
    """Tell whether two forms of an object differ in nothing but the resourceVersion."""
    metadata = msgspec.structs.replace(other.metadata, resourceVersion=one.metadata.resourceVersion)
    return bool(one.metadata == metadata) and bool(one == msgspec.structs.replace(other, metadata=metadata))


def home_of(kind: Kind) -> str:
    """Return what tells a kind in the ids of its objects: its segment, or the reserved class whose things they are."""
    return kind.reserved or kind.segment


def home_in(id: str) -> str:
    """Return the same of a short id."""
    first, _, kind, *_ = (*id.split("/"), "", "")
    return first if first in RESERVED else kind
