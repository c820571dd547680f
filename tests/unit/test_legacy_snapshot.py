"""The current graph in the public peer's terms."""

from __future__ import annotations

from datetime import UTC, datetime

from drumlin.kg.graphs.legacy_snapshot import Measured, snapshot
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import NTRIPLES, parse
from tests.unit.telemetry_store import GraphStore

IRIS = Iris("https://kg.example")
NOW = datetime(2026, 11, 27, tzinfo=UTC)
MS = int(NOW.timestamp() * 1000)
NODE, POD = IRIS.object("prod", None, "Node", "n1"), IRIS.object("prod", "shop", "Pod", "web.1")
K = "https://kubernetes.local/#"


def test_a_snapshot_has_the_peers_names_and_the_newest_values() -> None:
    """Node and pod as the exporter writes them, with values of both; a node's stand at its parts. It is well-formed RDF."""
    place = {"partOf": IRIS.cluster("prod"), "phase": "NotReady", "cpuAllocatable": "4", "memoryAllocatable": 1024}
    store = GraphStore(
        [
            {"id": NODE, "type": "Node", "name": "n1", **place},
            {"id": POD, "type": "Pod", "name": "web.1", "namespace": "shop", "phase": "Pending"},
        ]
    )
    asked: list[list[str]] = []

    def measure(entities: list[str], metrics: list[str]) -> list[Measured]:
        asked.append(sorted(entities))
        assert metrics == ["cpu_usage", "mem_usage"]
        return [Measured(NODE, "cpu_usage", 1.5, 1000.0), Measured(POD, "mem_usage", 64.0, 1000.0)]

    lines = snapshot(store.look_up, measure, IRIS, NOW)

    assert parse("\n".join(sorted(lines)).encode(), NTRIPLES)[None] == lines
    assert asked == [sorted([NODE, POD])]
    said = {line.removesuffix(" .") for line in lines}
    assert f'<{K}n1.Status> <glc:hasDescription> "NotReady"' in said
    assert f"<{K}n1.CPU> <glc:hasMeasurement> <{K}n1.CPU.Capacity.{MS}>" in said
    assert f"<{K}n1.CPU> <glc:hasMeasurement> <{K}n1.CPU.Usage.1000000>" in said
    assert f'<{K}n1.CPU.Usage.1000000> <glc:hasValue> "1.5"^^<http://www.w3.org/2001/XMLSchema#double>' in said
    assert f"<{K}shop.web.1> <glc:hasMeasurement> <{K}shop.web.1.RAM.Usage.1000000>" in said
    assert f'<{K}shop.web.1> <http://glaciation-project.eu/model/k8s/#hasName> "web.1"' in said
    assert f'<{K}shop.web.1.Status> <glc:hasDescription> "Pending"' in said


def test_a_large_graph_has_no_values() -> None:
    """Beyond the limit nothing is fetched."""
    pods = [
        {"id": IRIS.object("prod", "a", "Pod", f"p{number}"), "type": "Pod", "name": f"p{number}", "namespace": "a"}
        for number in range(2001)
    ]

    def never(_: object, __: object) -> list[Measured]:
        raise AssertionError("values were asked for")

    assert len(snapshot(GraphStore(pods).look_up, never, IRIS, NOW)) > 2001
