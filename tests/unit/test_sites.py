"""Several GNodes in one cluster, told apart by a label of the nodes: in the graph, and in what is asked for them."""

from __future__ import annotations

from datetime import UTC, datetime
from typing import Any

import pytest

from drumlin.exporters.pipeline.hosting_domain import ensure
from drumlin.exporters.sites import joined, of_nodes
from drumlin.kg.config.settings import DomainSettings, Settings
from drumlin.kg.errors import InvalidSettings
from drumlin.kg.rdf.jsonld import compact
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from drumlin.kg.validation.validate import validate
from tests.memory_sink import MemorySink
from tests.unit.rendering import CONTRACT, around, follow, gone, synced, upserted
from tests.unit.telemetry_store import IRIS, GraphStore

LABEL = "example.org/gnode"
EAST = {"id": "east", "type": "GlaciationNode", "url": "https://east.example/"}
SETTINGS: dict[str, Any] = {
    **CONTRACT,
    "domain": {**CONTRACT["domain"], "node_label": LABEL, "site": [EAST]},
    "datasource": [{"name": "p", "kind": "prometheus", "url": "http://p:9090", "clusters": ["prod"]}],
}
HOUR = Window(datetime(2026, 11, 1, tzinfo=UTC), datetime(2026, 11, 1, 1, tzinfo=UTC))
BASE = "https://kg.example/id/"


def node(name: str, site: str | None) -> dict[str, Any]:
    """A Node, of a site or of none."""
    labels = {LABEL: site} if site else {}
    return {
        "kind": "Node",
        "metadata": {"name": name, "uid": name, "labels": labels, "creationTimestamp": "2026-11-01T00:00:00Z"},
    }


NODES = [node("n1", "east"), node("n2", "east"), node("n3", "west"), node("n4", None)]


def _document(sink: MemorySink, id: str) -> dict[str, Any]:
    found: dict[str, Any] = compact(sink.graphs[BASE + id], BASE + id)
    return found


def _query(sink: MemorySink, id: str) -> str:
    (metrics,) = _document(sink, id)["telemetry"]
    (cpu,) = (each for each in metrics["hasPart"] if each["name"] == "cpu_usage")
    return str(cpu["distribution"][0]["query"])


def test_each_site_is_a_domain_with_its_nodes() -> None:
    """Nodes belong to the domain that their label names, and each site's graph asks for exactly its nodes."""
    sink, _ = follow([*map(upserted, NODES), *synced()], None, around(SETTINGS))

    domains = {
        name: _document(sink, f"prod/-/node/{name}")["domain"].removeprefix(BASE) for name in ("n1", "n2", "n3", "n4")
    }
    assert domains == {"n1": "domain/east", "n2": "domain/east", "n3": "domain/west", "n4": "domain/glaciation-node1"}
    east, west = _document(sink, "domain/east"), _document(sink, "domain/west")
    assert (east["type"], east["url"], west["type"]) == ("GlaciationNode", "https://east.example/", "Domain")
    assert 'instance=~"n1|n2"' in _query(sink, "domain/east")
    assert 'instance=~"n3"' in _query(sink, "domain/west")
    assert 'instance=~"n4"' in _query(sink, "domain/glaciation-node1")
    for graph in ("domain/east", "domain/west", "domain/glaciation-node1"):
        validate(sink.graphs[BASE + graph], BASE + graph, IRIS)


def test_a_site_is_written_when_its_nodes_change_and_never_otherwise() -> None:
    """A restart writes nothing; a node that comes or goes rewrites its own site alone; a site without nodes stays, without metrics."""
    surroundings = around(SETTINGS)
    sink, run = follow([*map(upserted, NODES), *synced()], None, surroundings)
    before = dict(sink.graphs)
    ensure(sink, surroundings.settings, surroundings.iris, surroundings.catalogue, surroundings.datasources)
    follow([*map(upserted, NODES), *synced()], sink, surroundings)
    assert {graph for graph in sink.graphs if sink.graphs[graph] != before.get(graph)} == {
        graph for graph in sink.graphs if graph not in before
    }

    before = dict(sink.graphs)
    for change in (upserted(node("n5", "east")), gone(NODES[2])):
        run.take(change)
        run.flush()
    changed = {graph.removeprefix(BASE) for graph in sink.graphs if sink.graphs[graph] != before.get(graph)}
    assert changed == {"domain/east", "domain/west", "prod/-/node/n3", "prod/-/node/n5"}
    assert 'instance=~"n1|n2|n5"' in _query(sink, "domain/east")
    assert "telemetry" not in _document(sink, "domain/west")


def test_a_part_of_the_nodes_does_not_empty_a_site() -> None:
    """Where the source has told one node only, the others are those that the graph knows."""
    surroundings = around(SETTINGS)
    sink, _ = follow([*map(upserted, NODES), *synced()], None, surroundings)
    follow([upserted(NODES[0])], sink, surroundings)

    assert 'instance=~"n1|n2"' in _query(sink, "domain/east")


def test_a_site_is_resolved_over_its_nodes() -> None:
    """What is asked for a GNode are its own nodes, of no other GNode in the cluster."""
    surroundings = around(SETTINGS)
    sink, _ = follow([*map(upserted, NODES), *synced()], None, surroundings)
    graph = GraphStore([_document(sink, graph.removeprefix(BASE)) for graph in sink.graphs])
    found = Resolver(graph, IRIS, surroundings.datasources).resolve("domain/east", "energy_joules", HOUR)

    assert found.selector == "nodes"
    assert 'node_name=~"n1|n2"' in found.query


@pytest.mark.parametrize(
    ("domain", "message"),
    [
        ({"site": [EAST]}, "node_label"),
        ({"node_label": LABEL, "site": [EAST, EAST]}, "same id"),
        ({"node_label": LABEL, "site": [{"id": "x", "type": "GlaciationNode"}]}, "needs a url"),
        ({"node_label": LABEL, "sites": []}, "no such setting"),
    ],
)
def test_settings_that_do_not_tell_sites_apart_are_refused(domain: dict[str, Any], message: str) -> None:
    """Sites without a label, twice, or without their address are errors that name the setting."""
    with pytest.raises(InvalidSettings, match=message):
        Settings.load(domain={"id": "home", **domain})


def test_without_a_label_there_are_no_sites() -> None:
    """Nothing changes for whoever has one GNode in a cluster; of two reports on a node the newer one decides."""
    assert of_nodes([("n1", {LABEL: "east"})], DomainSettings()) == {}
    assert joined({"east": ("n1",)}, {"east": ("n2",), "west": ("n1", "n3")}) == {"east": ("n1", "n2"), "west": ("n3",)}
