"""What reaches a thing and what it reaches, and how that is drawn."""

from __future__ import annotations

import re
import xml.etree.ElementTree as ET
from collections.abc import Iterable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidInput, ResourceNotFound
from drumlin.kg.graphs import reach as reaching
from drumlin.kg.graphs.diagrams import as_dot, as_json, as_mermaid, as_node_graph, as_svg
from drumlin.kg.graphs.reach import MAX_FAN, MAX_NODES, Reach, reach
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NodeDocument
from tests.unit.telemetry_store import GraphStore

IRIS = Iris("https://kg.example")


def workload(name: str, **more: object) -> NodeDocument:
    """Describe a Deployment of the shop."""
    return {"id": iri(name), "type": "Deployment", "name": name, "namespace": "shop", **more}


def iri(name: str) -> str:
    """Return the IRI of a Deployment of the shop."""
    return IRIS.object("prod", "shop", "Deployment", name)


def call(caller: str, callee: str) -> NodeDocument:
    """Describe that one thing calls another (IRIs)."""
    return {
        "id": IRIS.invocation(caller, callee),
        "type": "Invocation",
        "name": "x",
        "caller": caller,
        "callee": callee,
    }


def store(pairs: Iterable[tuple[str, str]], *more: NodeDocument) -> GraphStore:
    """Return a graph of workloads that call one another."""
    listed = list(pairs)
    names = sorted({name for pair in listed for name in pair})
    calls = [call(iri(caller), iri(callee)) for caller, callee in listed]
    return GraphStore([*map(workload, names), *calls, *more])


def walked(graph: GraphStore, root: str, *relations: str, depth: int = 3) -> Reach:
    """Walk from a Deployment, or from an IRI."""
    return reach(graph.look_up, IRIS, root if "://" in root else iri(root), relations, depth)


def names(found: Reach) -> dict[str, int]:
    """Return the distance of each thing by its name."""
    return {each.name: each.distance for each in found.nodes}


CHAIN = [("user", "web"), ("web", "cart"), ("cart", "db"), ("web", "ads"), ("batch", "db")]


def test_callers_and_callees_are_walked_apart() -> None:
    """From cart: what calls it on one side, what it calls on the other; what merely shares a neighbour is not reached."""
    assert names(walked(store(CHAIN), "cart")) == {"cart": 0, "web": -1, "db": 1, "user": -2}


def test_the_blast_radius_is_what_leads_to_a_thing() -> None:
    """Backwards alone, as far as asked."""
    assert names(walked(store(CHAIN), "db", "^calls")) == {"db": 0, "batch": -1, "cart": -1, "web": -2, "user": -3}
    assert names(walked(store(CHAIN), "db", "^calls", depth=1)) == {"db": 0, "batch": -1, "cart": -1}


def test_a_cycle_ends_and_is_marked() -> None:
    """Everything is reached once, and the links on the way back are told from those that lead to it."""
    found = walked(store([("web", "a"), ("a", "b"), ("b", "a"), ("b", "b")]), "web", "calls", depth=10)

    assert names(found) == {"web": 0, "a": 1, "b": 2}
    marked = {(each.source.rpartition("/")[2], each.target.rpartition("/")[2]): each.cyclic for each in found.edges}
    assert marked == {("web", "a"): False, ("a", "b"): True, ("b", "a"): True, ("b", "b"): True}


def test_a_hub_is_capped_and_the_rest_counted() -> None:
    """Of 40 callees 25 are shown, the same at every time, with +15; all in all no more than the limit."""
    found = walked(store([("hub", f"s{number:02}") for number in range(40)]), "hub", "calls")

    assert len(found.nodes) == MAX_FAN + 1
    assert found.nodes[0].more == 40 - MAX_FAN
    assert "+15" in as_mermaid(found, IRIS)
    assert "+15" in as_svg(found, IRIS)
    tree = [("hub", f"a{one:02}") for one in range(25)]
    tree += [(f"a{one:02}", f"b{one:02}{two:02}") for one in range(25) for two in range(25)]
    wide = walked(store(tree), "hub", "calls")
    assert len(wide.nodes) == MAX_NODES
    assert wide.left_out == 1 + 25 + 625 - MAX_NODES


def test_a_function_is_walked_from_its_workloads() -> None:
    """Its calls are those of what implements it, through a revision too."""
    function = IRIS.object("prod", "shop", "Function", "resize")
    revision = IRIS.object("prod", "shop", "Revision", "resize-1", "serving.knative.dev")
    documents = (
        {"id": function, "type": "Function", "name": "resize", "namespace": "shop", "implementedBy": [revision]},
        {"id": revision, "type": "Serving", "name": "resize-1", "namespace": "shop"},
        workload("impl", managedBy=revision),
    )
    found = walked(store([("web", "impl"), ("impl", "db")], *documents), function)

    assert {**names(found)} == {"resize": 0, "resize-1": 1, "impl": 1, "web": -1, "db": 1}


def test_the_steps_of_a_workflow_are_its_usual_graph() -> None:
    """Without a relation, a plan shows what waits for what."""
    flow = IRIS.object("prod", "ci", "Workflow", "build", "argoproj.io")
    steps = [{"id": f"{flow}/step/{each}", "type": "Step", "name": each} for each in "ab"]
    steps[1]["dependsOn"] = [f"{flow}/step/a"]
    document = {"id": flow, "type": "Workflow", "name": "build", "namespace": "ci", "hasPart": steps}
    found = walked(GraphStore([document]), flow)

    assert found.relations == ("hasPart", "dependsOn")
    assert {(each.source[-1], each.target[-1], each.term) for each in found.edges} == {
        ("d", "a", "hasPart"),
        ("d", "b", "hasPart"),
        ("b", "a", "dependsOn"),
    }


def test_what_is_not_there_is_an_error() -> None:
    """A root that nobody described, and a relation that is none, with what may be meant."""
    with pytest.raises(ResourceNotFound):
        walked(store(CHAIN), "nobody")
    with pytest.raises(InvalidInput) as told:
        walked(store(CHAIN), "web", "^cals")
    assert told.value.hint == "did you mean calls?"


def test_the_pictures_of_a_small_graph() -> None:
    """The whole text of each language, so that a change of it is seen."""
    found = walked(store([("web", "cart"), ("cart", "web")]), "web", "calls")

    assert as_mermaid(found, IRIS) == (
        "flowchart LR\n"
        '  n0["web (Deployment)"]\n'
        '  n1["cart (Deployment)"]\n'
        "  n1 -.->|calls| n0\n"
        "  n0 -.->|calls| n1\n"
        "  style n0 stroke-width:3px\n"
    )
    assert as_dot(found, IRIS) == (
        "digraph reach {\n"
        "  rankdir=LR; node [shape=box];\n"
        '  n0 [label="web (Deployment)" style=bold];\n'
        '  n1 [label="cart (Deployment)"];\n'
        '  n1 -> n0 [label="calls" style=dashed];\n'
        '  n0 -> n1 [label="calls" style=dashed];\n'
        "}\n"
    )
    told = as_json(found, IRIS)
    assert told["nodes"][1] == {"id": "prod/shop/deployment/cart", "type": "Deployment", "name": "cart", "distance": 1}
    assert told["edges"][0] == {
        "from": "prod/shop/deployment/cart",
        "to": "prod/shop/deployment/web",
        "term": "calls",
        "cyclic": True,
    }


def test_grafana_draws_nodes_with_their_state_and_edges_with_ids() -> None:
    """The arc of a node is one of three states, by its phase; what is not shown is counted; each edge has an id of its own."""
    nodes = (
        reaching.ReachedNode(iri("web"), "Deployment", "web", 0, 3, "Running"),
        reaching.ReachedNode(iri("cart"), "Deployment", "", 1, 0, "Failed"),
        reaching.ReachedNode(iri("db"), "StatefulSet", "db", 1),
    )
    edges = (reaching.ReachedEdge(iri("web"), iri("cart"), "calls", cyclic=True),)
    told = as_node_graph(Reach(iri("web"), ("calls",), 1, nodes, edges, 0), IRIS)

    web, cart, db = told["nodes"]
    assert web == {
        "id": "prod/shop/deployment/web",
        "title": "web",
        "subtitle": "Deployment",
        "mainstat": "Running",
        "secondarystat": "+3",
        "arc__well": 1,
        "arc__failing": 0,
        "arc__unknown": 0,
        "detail__id": "prod/shop/deployment/web",
    }
    assert (cart["title"], cart["arc__failing"], db["arc__unknown"]) == ("cart", 1, 1)
    assert told["edges"] == [
        {
            "id": "prod/shop/deployment/web calls prod/shop/deployment/cart",
            "source": "prod/shop/deployment/web",
            "target": "prod/shop/deployment/cart",
            "mainstat": "calls",
            "secondarystat": "cyclic",
        }
    ]


@given(st.text(min_size=1, max_size=40))
def test_no_name_breaks_a_picture(name: str) -> None:
    """Whatever a name holds, it stays text: in Mermaid one line a node, in DOT one string, and SVG is well-formed XML."""
    root = iri("web")
    node = reaching.ReachedNode(root, "Deployment", name, 0)
    found = Reach(root, ("calls",), 1, (node,), (), 0)

    mermaid = as_mermaid(found, IRIS)
    assert len(mermaid.splitlines()) == 3
    label = re.fullmatch(r'  n0\["(.*)"\]', mermaid.splitlines()[1])
    assert label
    assert not set(label[1]) & set('"<>[]{}|`')
    dot = as_dot(found, IRIS).splitlines()
    assert len(dot) == 4
    assert re.fullmatch(r'  n0 \[label="(?:[^"\\]|\\.)*" style=bold\];', dot[2])
    ET.fromstring(as_svg(found, IRIS))


@given(st.lists(st.tuples(st.integers(0, 6), st.integers(0, 6)), max_size=16))
def test_a_link_is_cyclic_exactly_when_its_end_leads_back(pairs: list[tuple[int, int]]) -> None:
    """The components agree with asking for each link whether there is a way back."""
    edges = [(str(source), str(target)) for source, target in dict.fromkeys(pairs)]
    component = reaching._components(edges)

    def leads(start: str, goal: str) -> bool:
        seen, stack = set[str](), [start]
        while stack:
            here = stack.pop()
            if here == goal:
                return True
            if here not in seen:
                seen.add(here)
                stack += [target for source, target in edges if source == here]
        return False

    for source, target in edges:
        assert (component[source] == component[target]) == leads(target, source)
