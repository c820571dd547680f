"""The agents of a service: registered into the graph, found there, and written again when one falls silent or is heard again."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any, Literal, NamedTuple

import msgspec
import structlog

from drumlin.exporters.agents.documents import Surrounding, agent_document, entity_documents, site_document
from drumlin.exporters.agents.heartbeats import MAX_DEPTH, Heartbeats, HeartbeatTransition
from drumlin.exporters.agents.registration import AgentRegistration, check_guid
from drumlin.exporters.jobs import PeriodicJob
from drumlin.exporters.pipeline.hosting_domain import write_of
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import DrumlinError, InvalidDocument, ResourceNotFound
from drumlin.kg.graphs.owners import agent_owner
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.rdf.tombstones import is_tombstone, tombstone
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.preconditions import apply_allowed
from drumlin.kg.store.protocol import GraphWrite, Row, Store, Written
from drumlin.kg.telemetry import binding
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.durations import parse_duration
from drumlin.kg.telemetry.inventory import Inventory
from drumlin.kg.telemetry.templates import TemplateCatalogue

log = structlog.get_logger()

SITES = "agents"
"""The owner of the graphs of sites: all agents share it."""
MAX_CHAIN = MAX_DEPTH
"""Steps from a thing to its root agent."""
_PREFIXES = f"PREFIX : <{NAMESPACE}> PREFIX dcterms: <http://purl.org/dc/terms/> "
# A filter: with VALUES, an engine goes through all statements with these properties, 5 s of a large cluster's.
_AGENTS = f"""{_PREFIXES} SELECT ?agent ?property ?value WHERE {{ ?agent a :Agent ; ?property ?value
  FILTER(?property IN (:name, :platform, :origin, :version, :tag, :managedBy, :heartbeatInterval, :phase, :lastSeen)) }}"""
_THINGS = f"""{_PREFIXES} SELECT ?agent ?thing ?type ?name ?namespace ?phase WHERE {{
  ?thing :managedBy ?agent ; a ?type ; :name ?name .
  FILTER(?type IN (:Host, :VirtualMachine, :ContainerInstance))
  OPTIONAL {{ ?thing :namespace ?namespace }} OPTIONAL {{ ?thing :phase ?phase }} }}"""
_ABOVE = f"""{_PREFIXES} SELECT ?property ?above WHERE {{
  VALUES ?property {{ :managedBy dcterms:isPartOf }} ?thing ?property ?above }}"""
_MARKED = f"{_PREFIXES} SELECT ?thing ?label WHERE {{ ?thing :managedBy ?agent ; :label ?label }}"
_DATE_TIME = "http://www.w3.org/2001/XMLSchema#dateTime"
_STATUS = tuple(f"<{NAMESPACE}{name}>" for name in ("phase", "lastSeen"))


class RegisteredEntity(NamedTuple):
    """What became of one entity of a registration."""

    key: str
    iri: str
    outcome: str


class Registered(NamedTuple):
    """What became of a registration; ``removed`` are the IRIs of what the agent no longer has."""

    guid: str
    iri: str
    outcome: str
    entities: tuple[RegisteredEntity, ...]
    removed: tuple[str, ...]


class AgentRecord(NamedTuple):
    """An agent as the graph knows it."""

    guid: str
    iri: str
    said: Mapping[str, str]
    tags: tuple[str, ...]

    @property
    def silent(self) -> bool:
        """Whether it has fallen silent."""
        return self.said.get("phase") == f"{NAMESPACE}NotReady"


class AgentRegistry:
    """Registers agents in one store. ``clock`` gives the time (aware, UTC), ``heartbeats`` are those of this process."""

    def __init__(
        self,
        store: Store,
        settings: Settings,
        iris: Iris,
        catalogue: TemplateCatalogue,
        datasources: Sequence[Datasource],
        *,
        clock: Callable[[], datetime],
        heartbeats: Heartbeats,
    ) -> None:
        self.heartbeats = heartbeats
        self._store = store
        self._settings = settings
        self._iris = iris
        self._catalogue = catalogue
        self._datasources = tuple(datasources)
        self._clock = clock
        self._lock = threading.Lock()  # what an agent had is compared with what it has

    # -- writing ------------------------------------------------------------------------------------------------------
    def register(self, guid: str, said: AgentRegistration) -> Registered:
        """Make the graph have exactly this of an agent, all or nothing; what the agent no longer has becomes tombstones.

        Raises ``InvalidDocument``, ``ShapeViolation`` and ``Conflict`` with the refused keys in ``detail``.
        """
        check_guid(guid)
        around = self._around(said.origin)
        with self._lock:
            self._check_parent(guid, said.parent)
            documents = entity_documents(guid, said.entities, around)
            writes = {key: _write(key, document, guid, self._iris) for key, document in documents.items()}
            agent = write_of(agent_document(guid, said, around), agent_owner(guid), self._iris)
            gone = self._removals(guid, {each.graph for each in writes.values()})
            found = self._apply(guid, [*self._site(around), agent, *writes.values(), *gone], writes)
        self.heartbeats.register(guid, said.interval, said.parent)
        return Registered(
            guid,
            agent.graph,
            _outcome(found[agent.graph]),
            tuple(RegisteredEntity(key, each.graph, _outcome(found[each.graph])) for key, each in writes.items()),
            tuple(each.graph for each in gone),
        )

    def observe(
        self,
        guid: str,
        said: AgentRegistration,
        marks: Mapping[str, Sequence[str]],
        *,
        above: Mapping[str, str],
        ended: Iterable[str],
    ) -> Registered:
        """Add to an agent what it reports piece by piece, and end what bears one of the marks ``ended``.

        ``marks`` are labels of the entities, by key: the ids by which the agent names them later. ``above`` are the marks of what
        entities are part of, by key; what is not known is not stated.

        An agent that is registered already stays as it is. Raises what ``register`` raises.
        """
        check_guid(guid)
        iri = self._iris.of_class("agent", guid)
        with self._lock:
            known = self._agent(guid)
            around = self._around(known.said.get("origin") if known else said.origin)
            said = self._placed(said, marks, above, iri)
            documents = entity_documents(guid, said.entities, around, marks)
            writes = {key: _write(key, document, guid, self._iris) for key, document in documents.items()}
            agents = [] if known else [write_of(agent_document(guid, said, around), agent_owner(guid), self._iris)]
            kept = {each.graph for each in writes.values()}
            gone = self._tombstones(guid, sorted(self._marked(iri, set(ended)) - kept))
            found = self._apply(guid, [*self._site(around), *agents, *writes.values(), *gone], writes)
        if known is None:
            self.heartbeats.register(guid, said.interval)
        else:
            self.heartbeats.beat(guid)
        return Registered(
            guid,
            iri,
            _outcome(found[iri]) if known is None else "unchanged",
            tuple(RegisteredEntity(key, each.graph, _outcome(found[each.graph])) for key, each in writes.items()),
            tuple(each.graph for each in gone),
        )

    def _placed(
        self, said: AgentRegistration, marks: Mapping[str, Sequence[str]], above: Mapping[str, str], agent: str
    ) -> AgentRegistration:
        """Return a registration whose entities have what they are part of as parents: of the same request, else as the graph has it."""
        if not above:
            return said
        parents = {row["label"]: row["thing"] for row in self._store.look_up(_MARKED, {"agent": agent})}
        parents |= {mark: each.key for each in said.entities for mark in marks.get(each.key, ())}
        placed = [
            msgspec.structs.replace(each, parent=parents.get(above[each.key])) if each.key in above else each
            for each in said.entities
        ]
        return msgspec.structs.replace(said, entities=placed)

    def remove(self, guid: str) -> tuple[str, ...]:
        """Turn an agent and all that it manages into tombstones; return their IRIs. Raises ``ResourceNotFound``."""
        with self._lock:
            record = self.find(guid)
            gone = self._tombstones(guid, [record.iri, *sorted(self._managed(record.iri))])
            self._apply(guid, gone, {})
        self.heartbeats.forget(guid)
        return tuple(each.graph for each in gone)

    def _around(self, origin: str | None) -> Surrounding:
        site = origin or self._settings.cluster
        self._iris.cluster(site)  # raises for a name that is reserved
        known = Inventory(self._store, self._iris).clusters | {site, self._settings.cluster}
        place = Place((site,), self._settings.domain.id)
        holding = binding.described(self._datasources, place, known)
        return Surrounding(self._settings, self._iris, self._catalogue, holding, site)

    def _site(self, around: Surrounding) -> list[GraphWrite]:
        """Return the write of a site's graph, where there is none yet: that of a Kubernetes cluster is its exporter's."""
        stored = self._store.read(around.cluster)
        if stored is not None and not is_tombstone(stored, around.cluster):
            return []
        return [write_of(site_document(around), SITES if stored is None else stored.entry.owner, self._iris)]

    def _check_parent(self, guid: str, parent: str | None) -> None:
        if parent is None:
            return
        check_guid(parent)
        chain = [guid]
        while parent is not None:
            if parent in chain or len(chain) > MAX_CHAIN:
                raise InvalidDocument(
                    f"the agent {guid} would be below itself: {' → '.join((*chain, parent))[:300]}",
                    hint="name another parent, or none",
                )
            chain.append(parent)
            above = self._agent(parent)
            manager = above.said.get("managedBy") if above else None
            parent = self._iris.parse(manager).name.name if manager else None

    def _removals(self, guid: str, kept: set[str]) -> list[GraphWrite]:
        managed = self._managed(self._iris.of_class("agent", guid))
        return self._tombstones(guid, sorted(managed - kept))

    def _managed(self, agent: str) -> set[str]:
        return {row["thing"] for row in self._store.look_up(_THINGS, {"agent": agent})}

    def _marked(self, agent: str, marks: set[str]) -> set[str]:
        if not marks:
            return set()
        return {row["thing"] for row in self._store.look_up(_MARKED, {"agent": agent}) if row["label"] in marks}

    def _tombstones(self, guid: str, graphs: Iterable[str]) -> list[GraphWrite]:
        found = []
        for graph in graphs:
            stored = self._store.read(graph)
            if stored is None or stored.entry.owner != agent_owner(guid) or is_tombstone(stored, graph):
                continue
            remains = tombstone(stored.lines, graph, self._clock())
            if remains is not None:
                found.append(GraphWrite(graph, GraphContent.of_canonical(remains), stored.entry.owner))
        return found

    def _apply(self, guid: str, writes: Sequence[GraphWrite], by_key: Mapping[str, GraphWrite]) -> dict[str, Written]:
        try:
            return {each.graph: each for each in self._store.apply(writes)}
        except DrumlinError as error:
            keys = {each.graph: key for key, each in by_key.items()}
            refused = {keys[graph]: str(why) for graph, why in error.refusals.items() if graph in keys}
            if refused:
                error.detail = {**error.detail, "guid": guid, "keys": refused}
            raise

    # -- reading ------------------------------------------------------------------------------------------------------
    def find(self, guid: str) -> AgentRecord:
        """Return an agent by its GUID; raises ``ResourceNotFound``."""
        if (found := self._agent(guid)) is None:
            raise ResourceNotFound(
                f"there is no agent {guid[:64]}",
                hint="list them: GET /agents; an agent registers with PUT /agents/GUID",
            )
        return found

    def _agent(self, guid: str) -> AgentRecord | None:
        found = self._records(self._store.look_up(_AGENTS, {"agent": self._iris.of_class("agent", guid)}))
        return found[0] if found else None

    def _records(self, rows: Iterable[Row]) -> list[AgentRecord]:
        said: dict[str, dict[str, str]] = {}
        tags: dict[str, set[str]] = {}
        for row in rows:
            name = row["property"].removeprefix(NAMESPACE)
            of_agent = said.setdefault(row["agent"], {})
            if name == "tag":
                tags.setdefault(row["agent"], set()).add(row["value"])
            else:
                of_agent[name] = row["value"]
        return [
            AgentRecord(self._iris.parse(iri).name.name, iri, values, tuple(sorted(tags.get(iri, ()))))
            for iri, values in sorted(said.items())
            if iri.startswith(f"{self._iris.root}agent/")
        ]

    def agents(
        self,
        *,
        platform: str | None = None,
        origin: str | None = None,
        tag: str | None = None,
        name: str | None = None,
        namespace: str | None = None,
    ) -> list[AgentRecord]:
        """List agents by GUID. ``tag`` also finds the finer ones below it; ``name`` is an agent's or that of something it manages."""
        found = self._records(self._store.look_up(_AGENTS))
        things = self._store.look_up(_THINGS) if name or namespace else []
        named = {row["agent"] for row in things if row["name"] == name}
        placed = {row["agent"] for row in things if row.get("namespace") == namespace}
        return [
            each
            for each in found
            if (platform is None or each.said.get("platform") == platform)
            and (origin is None or each.said.get("origin") == origin)
            and (tag is None or any(own == tag or own.startswith(f"{tag}/") for own in each.tags))
            and (name is None or each.said.get("name") == name or each.iri in named)
            and (namespace is None or each.iri in placed)
        ]

    def things(self, agent: str) -> list[Row]:
        """Return what an agent (IRI) manages: ``thing``, ``type``, ``name``, ``namespace``, ``phase``, sorted by IRI."""
        return sorted(self._store.look_up(_THINGS, {"agent": agent}), key=lambda row: row["thing"])

    def managing(self, id: str) -> list[AgentRecord]:
        """Return the agents above a thing (id or IRI): the one that manages it first, the root agent last.

        A thing that no agent manages is looked for in what it is managed by or part of. Raises ``ResourceNotFound``.
        """
        iri = self._iris.entity(self._iris.expand(id))
        if self._store.entry(iri) is None:
            raise ResourceNotFound(f"there is no {self._iris.short(iri)}", detail={"id": iri})
        agents = f"{self._iris.root}agent/"
        waiting, seen, chain = [iri], set[str](), list[AgentRecord]()
        while waiting and len(seen) < 2 * MAX_CHAIN:
            at = waiting.pop(0)
            if at in seen:
                continue
            seen.add(at)
            if at.startswith(agents):
                record = self._agent(self._iris.parse(at).name.name)
                chain += [record] if record else []
                above = record.said.get("managedBy") if record else None
                waiting = [above] if above else []
                continue
            rows = self._store.look_up(_ABOVE, {"thing": at})
            waiting += [row["above"] for row in sorted(rows, key=lambda row: row["property"], reverse=True)]
        if not chain:
            raise ResourceNotFound(
                f"no agent manages {self._iris.short(iri)}", hint="agents register what they manage: PUT /agents/GUID"
            )
        return chain

    # -- heartbeats ---------------------------------------------------------------------------------------------------
    def beat(self, guid: str) -> None:
        """Note that an agent is alive; raises ``ResourceNotFound`` when it is not registered. Nothing is written."""
        if self.heartbeats.beat(guid):
            return
        record = self.find(guid)  # registered as a plain graph, or by another process on the same store
        self._take_up(record)
        self.heartbeats.beat(guid)

    def relay(self, guid: str, others: Sequence[str]) -> list[str]:
        """Note that an agent is alive and that, as it says, ``others`` below it are; return those that are not known or not below it."""
        self.beat(guid)
        missing = self.heartbeats.relay(guid, others)
        for each in missing:  # as ``beat`` does; few, or none
            if (record := self._agent(each)) is not None:
                self._take_up(record)
        return self.heartbeats.relay(guid, missing)

    def _take_up(self, record: AgentRecord) -> None:
        above = record.said.get("managedBy")
        parent = self._iris.parse(above).name.name if above else None
        self.heartbeats.recall(record.guid, _seconds(record), parent, silent=record.silent)

    def recall(self) -> None:
        """Take up the agents that the graph knows; called once, at the start."""
        for record in self._records(self._store.look_up(_AGENTS)):
            self._take_up(record)

    def begin_anew(self) -> None:
        """Take up the agents that the graph knows as after a start: another process has had their heartbeats until now."""
        self.heartbeats.clear()
        self.recall()

    def last_seen(self, record: AgentRecord) -> datetime | None:
        """Return when an agent was heard last, as far as this process or the graph knows."""
        ago = self.heartbeats.ago(record.guid)
        if ago is not None:
            return self._clock() - timedelta(seconds=round(ago))
        said = record.said.get("lastSeen")
        return datetime.fromisoformat(said).astimezone(UTC) if said else None

    def write_transitions(self) -> int:
        """Write the phase of agents that have fallen silent or are heard again, in one batch; return how many were written."""
        due = {each.guid: each for each in self.heartbeats.due()}
        writes: list[GraphWrite] = []
        for guid, each in due.items():
            graph = self._iris.of_class("agent", guid)
            stored = self._store.read(graph)
            if stored is None or is_tombstone(stored, graph):
                self.heartbeats.forget(guid)
                continue
            lines = self._with_status(stored.lines, graph, each)
            content = GraphContent.of_canonical(lines)
            writes.append(GraphWrite(graph, content, stored.entry.owner, stored.entry.digest))
        written, refused = apply_allowed(self._store.apply, writes) if writes else ([], {})
        for one in written:
            transition = due[self._iris.parse(one.graph).name.name]
            self.heartbeats.settle(transition)
            log.info("agent_silent" if transition.silent else "agent_heard", guid=transition.guid)
        for graph in refused:  # written meanwhile; the next turn reads it again
            log.info("agent_changed_meanwhile", graph=graph)
        return len(written)

    def _with_status(self, lines: Iterable[str], graph: str, transition: HeartbeatTransition) -> frozenset[str]:
        """Return an agent's lines with another phase, and for a silent one with the time when it was heard last."""
        beginnings = tuple(f"<{graph}> {predicate} " for predicate in _STATUS)
        kept = {line for line in lines if not line.startswith(beginnings)}
        phase: Literal["NotReady", "Ready"] = "NotReady" if transition.silent else "Ready"
        kept.add(f"<{graph}> {_STATUS[0]} <{NAMESPACE}{phase}> .")
        if transition.silent:
            at = (self._clock() - timedelta(seconds=round(transition.ago))).astimezone(UTC)
            kept.add(f'<{graph}> {_STATUS[1]} "{at:%Y-%m-%dT%H:%M:%SZ}"^^<{_DATE_TIME}> .')
        return frozenset(kept)


class AgentWatch(PeriodicJob):
    """Looks every second which agents have fallen silent or are heard again, and writes that.

    ``leads`` tells whether this process is the one, of several before one store, that heartbeats come to.
    """

    def __init__(self, registry: AgentRegistry, leads: Callable[[], bool] = lambda: True, seconds: float = 1.0) -> None:
        super().__init__("agents", seconds)
        self._registry = registry
        self._leads = leads
        self._led = True

    def turn(self) -> bool:
        """Write what has changed; there is always a next turn."""
        led, self._led = self._led, self._leads()
        if self._led and not led:
            self._registry.begin_anew()
        if self._led:
            self._registry.write_transitions()
        return False


def _write(key: str, document: Mapping[str, Any], guid: str, iris: Iris) -> GraphWrite:
    try:
        return write_of(document, agent_owner(guid), iris)
    except DrumlinError as error:
        error.detail = {**error.detail, "guid": guid, "keys": {key: str(error)}}
        raise


def _outcome(written: Written) -> str:
    """Return what became of a graph; a tombstone counts as absent."""
    if written.held is not None and is_tombstone(written.held, written.graph):
        return "created"
    return written.outcome


def _seconds(record: AgentRecord) -> float:
    said = record.said.get("heartbeatInterval")
    return parse_duration(said).total_seconds() if said else 0.0
