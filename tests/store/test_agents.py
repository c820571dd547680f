"""Agents on a store: all or nothing, what is gone, the chain above a thing, transitions, and the saved queries about them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumlin.exporters.agents import otlp
from drumlin.exporters.agents.heartbeats import Heartbeats
from drumlin.exporters.agents.registration import decode
from drumlin.exporters.agents.registry import AgentRegistry, AgentWatch
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import GraphOwned, InvalidDocument, ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.tombstones import is_tombstone
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from drumlin.queries.catalogue import QueryCatalogue
from tests.unit.test_agents import GOLDEN, Clock, around

IRIS = Iris("https://kg.example")
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
HOST = {"key": "h", "type": "Host", "name": "node-17"}
REDIS = {"key": "c", "type": "ContainerInstance", "name": "redis-1", "parent": "h"}


class Site:
    """A registry on a store, with a clock that the test moves."""

    def __init__(self, store: EmbeddedStore) -> None:
        self.store, self.clock = store, Clock()
        self.agents = self.anew()

    def anew(self) -> AgentRegistry:
        """Return a registry as a service that starts has it."""
        known = around().datasources
        catalogue = TemplateCatalogue.shipped(frozenset({"node-exporter", "cadvisor", "libvirt"}))
        found = AgentRegistry(
            self.store, Settings(base="https://kg.example", cluster="prod"), IRIS, catalogue, known,
            clock=lambda: NOW, heartbeats=Heartbeats(self.clock),
        )  # fmt: skip
        found.recall()
        return found

    def register(self, guid: str, *entities: dict[str, Any], **more: Any) -> Any:
        """Register an agent of the site edge-lab."""
        said = {"name": guid, "platform": "docker", "origin": "edge-lab", "interval": 10, "entities": entities, **more}
        return self.agents.register(guid, decode(json.dumps(said).encode()))

    def phase(self, guid: str) -> str:
        """Return an agent's phase."""
        return "NotReady" if self.agents.find(guid).silent else "Ready"


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Return an empty site."""
    store = EmbeddedStore(tmp_path)
    yield Site(store)
    store.close()


def test_a_registration_is_whole_and_what_is_named_no_more_is_a_tombstone(site: Site) -> None:
    """The second time nothing is written; what is gone remains as a tombstone, and comes back as created."""
    first = site.register("a", HOST, REDIS)
    assert (first.outcome, [each.outcome for each in first.entities]) == ("created", ["created", "created"])
    assert site.store.read(f"{IRIS.root}cluster/edge-lab") is not None
    generation = site.store.generation
    again = site.register("a", HOST, REDIS)
    assert (again.outcome, {each.outcome for each in again.entities}) == ("unchanged", {"unchanged"})
    assert site.store.generation == generation
    fewer = site.register("a", HOST)
    (gone,) = fewer.removed
    stored = site.store.read(gone)
    assert stored is not None
    assert is_tombstone(stored, gone)
    assert [each.outcome for each in site.register("a", HOST, REDIS).entities] == ["unchanged", "created"]
    assert len(site.agents.remove("a")) == 3
    with pytest.raises(ResourceNotFound):
        site.agents.find("a")


def test_one_refused_entity_refuses_all_and_is_named(site: Site) -> None:
    """What another agent has is not taken; nothing of the registration is written."""
    site.register("a", HOST)
    generation = site.store.generation
    other = {"key": "mine", "type": "Host", "name": "node-18"}
    with pytest.raises(GraphOwned) as told:
        site.register("b", other, {**HOST, "key": "theirs"})
    assert list(told.value.detail["keys"]) == ["theirs"]
    assert site.store.generation == generation
    assert site.store.read(f"{IRIS.root}edge-lab/-/host/node-18") is None


def test_the_chain_above_a_thing_ends_with_the_root_agent(site: Site) -> None:
    """The managing agent comes first; an agent cannot stand below itself; a thing without agents says so."""
    site.register("root", tags=["eu/lab"], platform="bare-metal")
    site.register("middle", parent="root", tags=["eu/lab/rack-3"])
    site.register("leaf", HOST, {**REDIS, "namespace": "cache"}, parent="middle", tags=["eu/labour"])
    chain = site.agents.managing("edge-lab/cache/container/redis-1")
    assert [each.guid for each in chain] == ["leaf", "middle", "root"]
    assert [each.guid for each in site.agents.managing("agent/middle")] == ["middle", "root"]
    with pytest.raises(InvalidDocument, match="below itself"):
        site.register("root", parent="leaf")
    with pytest.raises(ResourceNotFound, match="no agent manages cluster/edge-lab"):
        site.agents.managing("cluster/edge-lab")
    assert [each.guid for each in site.agents.agents(tag="eu/lab")] == ["middle", "root"]
    assert [each.guid for each in site.agents.agents(name="redis-1")] == ["leaf"]
    assert [each.guid for each in site.agents.agents(namespace="cache", platform="docker", origin="edge-lab")] == [
        "leaf"
    ]


def test_heartbeats_write_nothing_and_silence_writes_one_graph(site: Site) -> None:
    """A hundred thousand heartbeats leave the generation; a transition each way is one write; a restart has an interval of grace."""
    site.register("a", HOST)
    site.register("b")
    generation = site.store.generation
    for _ in range(100_000):
        site.agents.beat("a")
    assert site.agents.write_transitions() == 0
    assert site.store.generation == generation
    site.clock.now += 31
    site.agents.beat("b")
    assert site.agents.write_transitions() == 1
    assert (site.phase("a"), site.phase("b"), site.store.generation) == ("NotReady", "Ready", generation + 1)
    seen = site.agents.find("a").said["lastSeen"]
    assert seen == "2026-11-30T11:59:29Z"
    assert site.agents.write_transitions() == 0
    site.agents = site.anew()
    site.clock.now += 41
    assert site.agents.write_transitions() == 1  # b, which nobody has heard since the start either
    assert (site.phase("a"), site.phase("b")) == ("NotReady", "NotReady")
    for _ in range(2):
        site.agents.beat("a")
    assert site.agents.write_transitions() == 1
    assert (site.phase("a"), site.store.generation) == ("Ready", generation + 3)
    with pytest.raises(ResourceNotFound):
        site.agents.beat("nobody")


def test_only_the_leader_says_who_is_silent_and_a_new_one_waits_an_interval(site: Site) -> None:
    """A process that does not lead writes no transition; one that begins to lead takes the agents up anew, with an interval of grace."""
    site.register("a")
    leading = False
    watch = AgentWatch(site.agents, lambda: leading)
    site.clock.now += 1000
    assert watch.turn() is False
    assert site.phase("a") == "Ready"
    leading = True
    watch.turn()
    assert site.phase("a") == "Ready"
    site.clock.now += 1000
    watch.turn()
    assert site.phase("a") == "NotReady"


def test_what_a_collector_reports_piece_by_piece_adds_up(site: Site) -> None:
    """Entities stay where they are over requests, ids find what ended and what runs on what."""
    reports = [otlp.observed(each) for each in otlp.from_protobuf((GOLDEN / "otlp" / "entities.bin").read_bytes())]
    for each in reports:
        site.agents.observe("col", each.registration, each.marks, above=each.above, ended=each.ended)
    names = [row["name"] for row in site.agents.things(f"{IRIS.root}agent/col")]
    assert names == ["redis-1", "node-10", "node-9"]
    container = site.store.read(f"{IRIS.root}prod/-/container/redis-1")
    assert container is not None
    assert (
        f"<{IRIS.root}prod/-/container/redis-1> <http://purl.org/dc/terms/isPartOf> <{IRIS.root}prod/-/host/node-9> ."
        in container
    )
    generation = site.store.generation
    alone = reports[0]
    only = [each for each in alone.registration.entities if each.type == "ContainerInstance"]
    later = msgspec.structs.replace(alone.registration, entities=only)
    site.agents.observe("col", later, alone.marks, above=alone.above, ended=())
    assert site.store.generation == generation  # its host is known of the graph
    nothing = msgspec.structs.replace(alone.registration, entities=[])
    gone = site.agents.observe("col", nothing, {}, above={}, ended=["host.id=aa11"]).removed
    assert gone == (f"{IRIS.root}prod/-/host/node-10",)


def test_the_saved_queries_about_agents_answer_what_was_registered(site: Site) -> None:
    """agents-of, managed-by, agents-by-tag and silent-agents."""
    site.register("root", tags=["eu/lab"])
    site.register("leaf", HOST, REDIS, parent="root", tags=["eu/lab/rack-3"])
    site.clock.now += 31
    site.agents.beat("root")
    site.agents.write_transitions()
    saved = QueryCatalogue.load(IRIS, None)

    def ask(name: str, *columns: str, **values: str) -> list[tuple[str, ...]]:
        rows = site.store.look_up(saved.get(name).bound(values, IRIS))
        return [tuple(row[column].removeprefix(IRIS.root) for column in columns) for row in rows]

    assert ask("agents-of", "name", "manager", agent="agent/root") == [
        ("redis-1", "agent/leaf"),
        ("node-17", "agent/leaf"),
    ]
    above = ask("managed-by", "agent", "root", thing="edge-lab/-/container/redis-1")
    assert above == [("agent/leaf", "false"), ("agent/root", "true")]
    assert ask("agents-by-tag", "agent", "full", tag="eu/lab") == [
        ("agent/root", "eu/lab"),
        ("agent/leaf", "eu/lab/rack-3"),
    ]
    assert ask("agents-by-tag", "agent", tag="eu/la") == []
    assert ask("silent-agents", "agent", "things", "lastSeen") == [("agent/leaf", "2", "2026-11-30T11:59:29Z")]


def test_containers_of_one_name_are_told_apart_by_their_hosts(site: Site) -> None:
    """Where another container has the name, the target of the host that this one runs on is asked for, and the answer says so."""
    site.register("a", HOST, REDIS)
    resolver = Resolver(
        site.store, IRIS, around().datasources, TemplateCatalogue.shipped(frozenset({"cadvisor", "node-exporter"}))
    )
    window = Window(datetime(2026, 11, 30, 11, tzinfo=UTC), NOW)
    alone = resolver.resolve("edge-lab/-/container/redis-1", "cpu_usage", window)
    assert 'container_cpu_usage_seconds_total{name="redis-1"}' in alone.query
    assert (alone.selector, alone.warnings) == ("machine", ())
    site.register("b", {**HOST, "name": "node-18"}, {**REDIS, "namespace": "other"})
    both = resolver.resolve("edge-lab/-/container/redis-1", "cpu_usage", window)
    assert 'instance=~"node-17(:[0-9]+)?"' in both.query
    assert "edge-lab/other/container/redis-1 has the same name" in both.warnings[0]
    assert 'instance="node-17"' in resolver.resolve("edge-lab/-/host/node-17", "cpu_usage", window).query
    traces = resolver.resolve("edge-lab/-/container/redis-1", "traces", window)
    assert (traces.datasource, traces.query, traces.fetchable) == ("jaeger-main", "service=redis-1", False)
    assert traces.links["jaeger-main"].startswith("http://jaeger/search?service=redis-1&start=")
    assert traces.curl.startswith("curl -sS --fail-with-body -G ")
    profiles = resolver.resolve("edge-lab/-/container/redis-1", "profiles", window)
    assert profiles.query == 'process_cpu:cpu:nanoseconds:cpu:nanoseconds{service_name="redis-1"}'
    with pytest.raises(ResourceNotFound, match="which has no traces"):
        resolver.resolve("edge-lab/-/host/node-17", "traces", window)
