"""Which graphs of a peer are taken over: what is of its domains, under names that are not ours."""

from __future__ import annotations

import pytest

from drumlin.exporters.peers.acceptance import Acceptance
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE

IRIS = Iris("https://kg.example")
TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
THING, SPACE = f"{IRIS.root}bob/ns/pod/x", f"{IRIS.root}bob/-/namespace/ns"


def text(graph: str, *said: tuple[str, str]) -> str:
    """Write a graph's text."""
    return "\n".join(f"<{graph}> <{name}> <{value}> ." for name, value in said)


def says(name: str, domain: str) -> tuple[str, str]:
    """Say that a domain has a part in something."""
    return f"{NAMESPACE}{name}", IRIS.domain(domain)


@pytest.mark.parametrize(
    ("graph", "said", "taken"),
    [
        (THING, [says("domain", "bob")], True),
        (THING, [says("domain", "alice"), says("party", "bob")], False),
        (THING, [says("party", "alice"), says("party", "bob")], True),
        (THING, [says("party", "alice")], False),
        (THING, [], False),
        (IRIS.domain("bob"), [], True),
        (IRIS.domain("alice"), [], False),
        (IRIS.notes(THING), [], True),
        (IRIS.notes(f"{THING}2"), [], False),
        (f"{IRIS.root}alice/ns/pod/x", [says("domain", "bob")], False),
        (f"{IRIS.root}function/alice/ns/f", [says("domain", "bob")], False),
        (IRIS.cluster("alice"), [says("domain", "bob")], False),
        (IRIS.cluster("alice-2"), [says("domain", "bob")], True),
        (f"{IRIS.root}alice-2/ns/pod/x", [says("domain", "bob")], True),
        (f"{IRIS.root}template/workload.x", [(TYPE, f"{NAMESPACE}MetricTemplate")], False),
        ("https://other.example/id/bob/ns/pod/x", [says("domain", "bob")], False),
    ],
)
def test_a_graph_is_taken_over_by_whose_it_is_and_by_its_name(
    graph: str, said: list[tuple[str, str]], taken: bool
) -> None:
    """Its own domain decides, else those that take part; what is within something belongs with it; our clusters' names are ours."""
    accepts = Acceptance(IRIS, ("bob",), IRIS, ("alice",))
    held = {THING: text(THING, says("domain", "bob"))}
    assert accepts.takes(graph, text(graph, *said), held.get) is taken


def test_what_remains_of_an_entity_is_its_namespaces() -> None:
    """A tombstone is followed to its namespace, and a forecast of what was deleted over the tombstone to that."""
    accepts = Acceptance(IRIS, ("bob",), IRIS, ("alice",))
    tombstone = f"<{THING}> <{TYPE}> <{NAMESPACE}Tombstone> .\n<{THING}> <{NAMESPACE}cluster> <{IRIS.cluster('bob')}> ."
    tombstone += f'\n<{THING}> <{NAMESPACE}namespace> "ns" .'
    forecast = f"{IRIS.root}forecast/f"
    about = f"<{forecast}> <http://www.w3.org/ns/prov#wasDerivedFrom> <{IRIS.metric(THING, 'cpu_usage')}> ."
    held = {THING: tombstone, SPACE: text(SPACE, says("domain", "bob"))}
    assert accepts.takes(THING, tombstone, held.get)
    assert accepts.takes(forecast, about, held.get)
    del held[SPACE]
    assert not accepts.takes(THING, tombstone, held.get)
    assert not accepts.takes(forecast, about, held.get)
