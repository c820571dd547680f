"""What agents say, as documents; who is alive; OpenTelemetry's entity events in both encodings."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.exporters.agents import otlp, reference
from drumlin.exporters.agents.documents import Surrounding, agent_document, entity_documents
from drumlin.exporters.agents.heartbeats import Heartbeats, HeartbeatTransition
from drumlin.exporters.agents.protobuf import MAX_FIELDS, WireReader, varint
from drumlin.exporters.agents.registration import MAX_ENTITIES, check_guid, decode
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidDocument, InvalidIdentifier
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.templates import TemplateCatalogue
from drumlin.kg.validation.validate import validate

GOLDEN = Path(__file__).parents[1] / "golden"
IRIS = Iris("https://kg.example")
SITE = GOLDEN / "agents" / "site.json"
GUID = "fdfec62eb21cf0ef0a22c690f40774de"
SAID: dict[str, Any] = {
    "name": "agent of node-17",
    "platform": "docker",
    "origin": "edge-lab",
    "version": "1.4.0",
    "tags": ["eu/lab/rack-3"],
    "parent": "0b7a11c2",
    "interval": 30,
    "entities": [
        {
            "key": "h",
            "type": "Host",
            "name": "node-17",
            "cpuCapacity": "8",
            "memoryCapacity": 16,
            "architecture": "amd64",
        },
        {"key": "v", "type": "VirtualMachine", "name": "vm-3", "parent": "h", "platform": "kvm"},
        {
            "key": "c",
            "type": "ContainerInstance",
            "name": "redis-1",
            "namespace": "cache",
            "parent": "v",
            "image": "redis:7",
            "phase": "Running",
        },
    ],
}


def around(**settings: Any) -> Surrounding:
    """Return a site with two Prometheus, a Jaeger and a Pyroscope."""
    servers = [
        DatasourceSettings.model_validate({"name": f"{kind}-main", "kind": kind, "url": f"http://{kind}"})
        for kind in ("prometheus", "jaeger", "pyroscope")
    ]
    servers.append(servers[0].model_copy(update={"name": "second"}))
    catalogue = TemplateCatalogue.shipped(frozenset({"node-exporter", "cadvisor", "libvirt"}))
    known = [Datasource.from_settings(each, IRIS, None) for each in servers]
    return Surrounding(Settings(**settings), IRIS, catalogue, known, "edge-lab")


def documents(said: dict[str, Any], **settings: Any) -> dict[str, Any]:
    """Return what a registration becomes, by key; the agent's under ""."""
    read = decode(json.dumps(said).encode())
    site = around(**settings)
    return {"": agent_document(GUID, read, site), **entity_documents(GUID, read.entities, site)}


# -- registrations --------------------------------------------------------------------------------------------------------
def test_a_registration_becomes_graphs_that_the_rules_accept() -> None:
    """Ids are the contract's, parents lead upwards, each thing is managed by its agent, and the agent by the one above."""
    found = documents(SAID)

    for document in found.values():
        validate(lines(document), document["id"], IRIS)
    ids = {key: IRIS.short(document["id"]) for key, document in found.items()}
    assert ids == {
        "": f"agent/{GUID}",
        "h": "edge-lab/-/host/node-17",
        "v": "edge-lab/-/virtualmachine/vm-3",
        "c": "edge-lab/cache/container/redis-1",
    }
    assert found[""]["managedBy"] == f"{IRIS.root}agent/0b7a11c2"
    assert found[""]["heartbeatInterval"] == "PT30S"
    assert found["c"]["partOf"] == found["v"]["id"]
    assert found["h"]["partOf"] == f"{IRIS.root}cluster/edge-lab"
    assert {each["managedBy"] for key, each in found.items() if key} == {found[""]["id"]}


def test_a_registration_becomes_the_golden_documents() -> None:
    """Word for word; after a change that is meant, write the file anew: python -m tests.unit.test_agents."""
    assert list(documents(SAID).values()) == json.loads(SITE.read_bytes())


def test_hosts_machines_and_containers_have_queries_in_their_exporters_words() -> None:
    """node-exporter by instance, libvirt by domain, cAdvisor by name; a container's traces and profiles by its service."""
    found = documents(SAID)

    def queries(key: str) -> str:
        return json.dumps(found[key]["telemetry"])

    assert 'instance=\\\\\\"node-17\\\\\\"' in json.dumps(queries("h"))
    assert 'libvirt_domain_info_cpu_time_seconds_total{domain=\\\\\\"vm-3\\\\\\"}' in json.dumps(queries("v"))
    assert 'container_cpu_usage_seconds_total{name=\\\\\\"redis-1\\\\\\"}' in json.dumps(queries("c"))
    signals = {each["signal"]: each for each in found["c"]["telemetry"]}
    assert signals["traces"]["distribution"][0] | {"id": ""} == {
        "id": "", "type": "TraceQuery", "query": "service=redis-1", "accessService": f"{IRIS.root}datasource/jaeger-main",
    }  # fmt: skip
    assert signals["profiles"]["distribution"][0]["type"] == "ProfileQuery"
    assert "traces" not in {each["signal"] for each in found["h"]["telemetry"]}


def test_nothing_is_kept_but_what_is_documented() -> None:
    """Environment, arguments, commands and labels that the settings do not name never reach a document."""
    canary = "CANARY-9d1f"
    said = json.loads(json.dumps(SAID)) | {"environment": {"TOKEN": canary}, "command": [canary], "args": canary}
    for each in said["entities"]:
        each |= {
            "env": [canary],
            "arguments": canary,
            "mounts": {canary: canary},
            "marks": [canary],
            "telemetry": canary,
        }
        each["labels"] = {"secret": canary, "com.docker.compose.env": canary, "team": "shop"}

    found = documents(said)

    assert canary not in json.dumps(found)
    assert all(document["label"] == ["team=shop"] for key, document in found.items() if key)


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"entities": [{"key": "a", "type": "Pod", "name": "x"}]}, r"Invalid enum value 'Pod' - at `\$.entities\[0\].type`"),
        ({"platform": "abacus"}, "Invalid enum value 'abacus'"),
        ({"tags": ["/eu"]}, r"at `\$.tags\[0\]`"),
        ({"name": ""}, r"length >= 1 - at `\$.name`"),
        ({"interval": -1}, r"at `\$.interval`"),
        ({"entities": [{"key": "a", "type": "Host", "name": "x"}] * 2}, "two entities have the key 'a'"),
        ({"entities": [{"key": f"{n}", "type": "Host", "name": f"h{n}"} for n in range(MAX_ENTITIES + 1)]}, "1,001 entities; the limit is 1,000"),
    ],
)  # fmt: skip
def test_a_bad_registration_names_the_place(change: dict[str, Any], message: str) -> None:
    """The answer says which field of which entity."""
    with pytest.raises(InvalidDocument, match=message):
        decode(json.dumps(SAID | change).encode())


@pytest.mark.parametrize(
    ("entities", "message"),
    [
        ([{"key": "a", "type": "Host", "name": "x"}, {"key": "b", "type": "Host", "name": "x"}], "'a' and 'b' have the same id"),
        ([{"key": "a", "type": "Host", "name": "x", "parent": "b"}, {"key": "b", "type": "Host", "name": "y", "parent": "a"}], "below itself"),
    ],
)  # fmt: skip
def test_entities_that_cannot_be_told_apart_or_stand_in_a_circle_are_refused(entities: list[Any], message: str) -> None:
    """Two of one id, parents in a circle."""
    with pytest.raises(InvalidDocument, match=message):
        documents(SAID | {"entities": entities})


@pytest.mark.parametrize("guid", ["", "..", "a/b", "a b", "ä", "x" * 129, ".hidden"])
def test_what_is_no_guid_is_refused(guid: str) -> None:
    """A GUID is a plain segment of an id."""
    with pytest.raises(InvalidIdentifier):
        check_guid(guid)


# -- heartbeats -----------------------------------------------------------------------------------------------------------
class Clock:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = 1000.0

    def __call__(self) -> float:
        """Return the time that the test has set."""
        return self.now


def test_three_missed_intervals_are_one_transition_and_two_heartbeats_bring_it_back() -> None:
    """Until it is settled a transition stays due, afterwards there is none until the other one."""
    clock = Clock()
    beats = Heartbeats(clock)
    beats.register("a", 10)
    clock.now += 30
    assert beats.due() == []
    clock.now += 1
    (silent,) = beats.due()
    assert silent == HeartbeatTransition("a", silent=True, ago=31)
    assert beats.due() == [silent]
    beats.settle(silent)
    assert beats.due() == []
    assert beats.beat("a")
    assert beats.due() == []  # one heartbeat may be a stray one
    clock.now += 100
    beats.beat("a")  # so late that it begins anew
    assert beats.due() == []
    beats.beat("a")
    (heard,) = beats.due()
    assert not heard.silent
    beats.settle(heard)
    assert beats.due() == []


def test_after_a_start_each_agent_has_one_interval_of_grace() -> None:
    """Nobody knows when it was heard last."""
    clock = Clock()
    beats = Heartbeats(clock)
    beats.recall("a", 10, silent=False)
    assert beats.ago("a") is None
    clock.now += 40
    assert beats.due() == []
    clock.now += 1
    assert [each.guid for each in beats.due()] == ["a"]


def test_an_agent_that_is_not_known_or_has_no_interval_is_not_waited_for() -> None:
    """A heartbeat of a stranger says so; an interval of 0 means that none will come."""
    clock = Clock()
    beats = Heartbeats(clock)
    beats.register("quiet", 0)
    clock.now += 10_000
    assert not beats.beat("stranger")
    assert beats.due() == []
    beats.register("a", 1)
    beats.forget("a")
    assert not beats.beat("a")


def test_an_agent_speaks_for_those_below_it_and_for_no_others() -> None:
    """At any depth; a stranger and an agent beside it are returned."""
    beats = Heartbeats(Clock())
    beats.register("root", 10)
    beats.register("middle", 10, "root")
    beats.register("leaf", 10, "middle")
    beats.register("other", 10)
    assert beats.relay("root", ["middle", "leaf", "other", "nobody", "root"]) == ["other", "nobody", "root"]
    assert beats.relay("leaf", ["middle"]) == ["middle"]


@given(st.lists(st.tuples(st.sampled_from(["beat", "wait", "turn"]), st.floats(0.1, 50)), max_size=60))
def test_a_transition_is_never_written_twice_in_a_row(steps: list[tuple[str, float]]) -> None:
    """Whatever comes when: silent and heard alternate, beginning with silent."""
    clock = Clock()
    beats = Heartbeats(clock)
    beats.register("a", 10)
    written: list[bool] = []
    for what, seconds in steps:
        if what == "beat":
            beats.beat("a")
        elif what == "wait":
            clock.now += seconds
        else:
            for each in beats.due():
                written.append(each.silent)
                beats.settle(each)
    assert written == [place % 2 == 0 for place in range(len(written))]


# -- OpenTelemetry --------------------------------------------------------------------------------------------------------
def test_both_encodings_of_a_request_say_the_same() -> None:
    """What opentelemetry-proto wrote as protobuf and as JSON is read alike."""
    binary = otlp.from_protobuf((GOLDEN / "otlp" / "entities.bin").read_bytes())
    text = otlp.from_json((GOLDEN / "otlp" / "entities.json").read_bytes())

    assert binary == text
    assert [(each.guid, each.name, each.others) for each in binary] == [
        ("collector-7", "otelcol", 1),
        ("collector-7", "otelcol", 0),
    ]


def test_both_shapes_of_events_become_registrations() -> None:
    """The specification's and the Collector's; what has no class here is counted, and nothing else of an entity is kept."""
    first, second = (
        otlp.observed(each) for each in otlp.from_protobuf((GOLDEN / "otlp" / "entities.bin").read_bytes())
    )

    assert [(each.type, each.name) for each in first.registration.entities] == [
        ("Host", "node-9"),
        ("ContainerInstance", "redis-1"),
    ]
    assert first.registration.interval == 60
    assert first.marks["host:host.id=dfd2f1c6"] == ("host.id=dfd2f1c6",)
    assert first.above == {"container:container.id=0123456789abcdef": "host.id=dfd2f1c6"}
    assert first.registration.entities[0].architecture == "arm64"
    assert [each.name for each in second.registration.entities] == ["node-10"]
    assert second.registration.interval == 30
    assert second.ended == ("host.id=bb22",)
    assert second.left_out == {"k8s.pod": 1}
    assert b"CANARY" not in msgspec.json.encode([first.registration, second.registration])


@given(st.binary(max_size=300))
def test_any_bytes_are_read_or_refused(body: bytes) -> None:
    """No body of a client is anything but a request or an invalid document."""
    for read in (otlp.from_protobuf, otlp.from_json):
        try:
            for each in read(body):
                otlp.observed(each)
        except InvalidDocument:
            pass


@given(st.data())
def test_a_request_that_is_damaged_is_read_or_refused(data: st.DataObject) -> None:
    """Also where only some bytes of a good one are others."""
    body = bytearray((GOLDEN / "otlp" / "entities.bin").read_bytes())
    for _ in range(data.draw(st.integers(1, 5))):
        body[data.draw(st.integers(0, len(body) - 1))] = data.draw(st.integers(0, 255))
    try:
        for each in otlp.from_protobuf(bytes(body)):
            otlp.observed(each)
    except InvalidDocument:
        pass


def test_a_message_with_very_many_fields_or_very_deep_values_is_refused() -> None:
    """Both limits are ours: a reader without them would be kept busy by a small body."""
    with pytest.raises(InvalidDocument, match="fields"):
        list(WireReader().fields(b"\x08\x01" * (MAX_FIELDS + 1)))

    def field(number: int, inner: bytes) -> bytes:
        return bytes([number << 3 | 2]) + varint(len(inner)) + inner

    value = field(1, b"x")
    for _ in range(20):
        value = field(5, field(1, value))
    attribute = field(6, field(1, b"k") + field(2, value))
    with pytest.raises(InvalidDocument, match="nested"):
        otlp.from_protobuf(field(1, field(2, field(2, attribute))))


# -- the reference agent --------------------------------------------------------------------------------------------------
def test_the_reference_agent_describes_this_machine_and_its_containers(tmp_path: Path) -> None:
    """What it says is a registration; of Docker's answer only id, name, image, state and labels are read."""
    body = b'[{"Id":"9f86d081884c7d65","Names":["/redis-1"],"Image":"redis:7","State":"running","Command":"redis --requirepass CANARY","Labels":{"team":"shop"}}]'
    found = msgspec.json.decode(body, type=list[reference.DockerContainer])

    said = reference.describe_machine(found, name="node-17", tags=["eu/lab"])

    decode(msgspec.json.encode(reference._plain(said)))
    host, container = said.entities
    assert (said.platform, host.name, container.name, container.parent, container.phase) == (
        "docker",
        "node-17",
        "redis-1",
        "host",
        "Running",
    )
    assert b"CANARY" not in msgspec.json.encode(said)
    assert reference.containers(tmp_path / "none.sock") is None
    assert reference.describe_machine(None).platform == "bare-metal"
    (tmp_path / "machine-id").write_text("0123\n")
    assert reference.guid_of_machine(tmp_path / "machine-id") == reference.guid_of_machine(tmp_path / "machine-id")
    assert "0123" not in reference.guid_of_machine(tmp_path / "machine-id")


if __name__ == "__main__":
    SITE.parent.mkdir(exist_ok=True)
    SITE.write_text(json.dumps(list(documents(SAID).values()), indent=1) + "\n")
