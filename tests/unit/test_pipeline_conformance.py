"""What a source tells is held to the rules that everybody's documents are held to; one object that breaks them hides no other."""

from __future__ import annotations

from typing import Any

import pytest

from drumlin.exporters.protocol import Change, Rejected
from drumlin.kg.errors import ShapeViolation
from drumlin.kg.graphs.ingest import Statements, accept, accept_conforming
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE, lines
from drumlin.kg.validation.validate import validate
from tests.memory_sink import MemorySink
from tests.unit.rendering import CONTRACT, around, follow, following, synced, upserted

IRIS = Iris(CONTRACT["base"])
POD, OTHER, WEB = (IRIS.expand(f"prod/shop/{each}") for each in ("pod/db-0", "pod/db-1", "deployment/web"))


def pod(name: str = "db-0", phase: str = "Running") -> dict[str, Any]:
    """A pod in a phase."""
    metadata = {"name": name, "namespace": "shop", "uid": f"u-{name}", "creationTimestamp": "2026-11-27T21:49:43Z"}
    spec = {"containers": [{"name": "db", "image": "registry.example/db:1"}]}
    return {"kind": "Pod", "metadata": metadata, "spec": spec, "status": {"phase": phase}}


def deployment(replicas: int) -> dict[str, Any]:
    """A Deployment of so many replicas."""
    template = {"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "web"}]}}
    return {
        "kind": "Deployment",
        "metadata": {"name": "web", "namespace": "shop", "uid": "w"},
        "spec": {"replicas": replicas, "template": template},
    }


def said(sink: MemorySink, graph: str) -> str:
    """The statements of a graph, as one text."""
    return "\n".join(sorted(sink.graphs[graph]))


@pytest.mark.parametrize(
    ("document", "graph", "term"),
    [(pod(phase="Weird"), POD, "phase"), (deployment(-3), WEB, "replicas")],
    ids=["phase", "replicas"],
)
def test_a_property_that_breaks_a_rule_is_left_out_and_listed(document: dict[str, Any], graph: str, term: str) -> None:
    """A word that is new to Kubernetes hides no pod: all else of it is written, and what was left out is listed once."""
    changes: list[Change] = [upserted(document), upserted(pod("db-1"))]
    sink, run = follow(changes)

    validate(sink.graphs[graph], graph, IRIS)
    assert f"{NAMESPACE}{term}>" not in said(sink, graph)
    assert OTHER in sink.graphs
    (listed,) = run.summary.left_out
    assert listed.where == graph
    assert listed.reason.startswith(f"{NAMESPACE}{term}: ")
    assert run.summary.rejected == []


def test_the_same_is_listed_once_and_comes_back_when_it_is_right() -> None:
    """An object that changes every second does not fill the list; a legal value is written as soon as there is one."""
    sink = MemorySink()
    run = following(sink, around())
    for change in [*synced(), upserted(pod(phase="Weird"))]:
        run.take(change)
    run.flush()
    again = pod(phase="Weird")
    again["spec"]["nodeName"] = "edge-a-1"
    run.take(upserted(again))
    run.flush()
    assert len(run.summary.left_out) == 1

    run.take(upserted(pod()))
    run.flush()
    assert f"<{NAMESPACE}phase> <{NAMESPACE}Running>" in said(sink, POD)


def test_a_restart_writes_nothing_where_something_was_left_out() -> None:
    """What was left out is left out again, so that the graph stays as it is."""
    sink, _ = follow([upserted(pod(phase="Weird"))])
    before = dict(sink.graphs)
    written = sink.generation
    follow([upserted(pod(phase="Weird"))], sink)

    assert (sink.graphs, sink.generation) == (before, written)


def test_what_no_leaving_out_mends_keeps_its_last_valid_graph_marked_stale(monkeypatch: pytest.MonkeyPatch) -> None:
    """The last valid graph stays, says since when it is stale, and the object is listed; all others are written."""
    sink = MemorySink()
    run = following(sink, around())
    for change in [*synced(), upserted(pod())]:
        run.take(change)
    run.flush()
    valid = sink.graphs[POD]

    def refuse(found: Statements, graph: str, iris: Iris) -> Any:
        if graph == POD:
            accept(Statements(frozenset(line for line in found.lines if "#type>" not in line)), graph, iris)
        return accept_conforming(found, graph, iris)

    monkeypatch.setattr("drumlin.exporters.pipeline.entities.accept_conforming", refuse)
    for _ in range(2):
        run.take(upserted(pod(phase="Failed")))
        run.take(upserted(pod("db-1")))
        run.flush()

    (mark,) = sink.graphs[POD] - valid
    assert mark.startswith(f"<{POD}> <{NAMESPACE}staleSince> ")
    validate(sink.graphs[POD], POD, IRIS)
    assert OTHER in sink.graphs
    assert [each.where for each in run.summary.rejected if isinstance(each, Rejected)] == [POD]

    monkeypatch.undo()
    run.take(upserted(pod(phase="Succeeded")))
    run.flush()
    assert "staleSince" not in said(sink, POD)


def test_only_what_breaks_a_rule_is_left_out() -> None:
    """Of several values of a property the legal ones stay; a class is never left out."""
    document = {
        "id": POD,
        "type": "Pod",
        "name": "db-0",
        "namespace": "shop",
        "label": ["a=b", "no label"],
        "phase": "Weird",
    }
    found = accept_conforming(Statements(lines(document)), POD, IRIS)

    assert f'<{POD}> <{NAMESPACE}label> "a=b" .' in found.content.lines
    assert not any("no label" in line or "Weird" in line for line in found.content.lines)
    assert len(found.left_out) == 2
    with pytest.raises(ShapeViolation):
        accept_conforming(Statements(lines({**document, "type": "Nothing"})), POD, IRIS)
