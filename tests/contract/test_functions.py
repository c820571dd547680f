"""The shop of ``make demo SYSTEM=functions``: its functions, calls and autoscaler, as the saved queries tell; also after a restart."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

from drumlin.api.demo import function_calls
from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.protocol import Change, Synced
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.store.protocol import GraphWrite
from drumlin.queries import catalogue
from tests.memory_sink import MemorySink
from tests.unit.rendering import CONTRACT, NOW, around, following

IRIS = Iris("https://kg.example")
SURROUNDINGS = around({**CONTRACT, "mappings": ["knative", "openfaas"], "exporters": ["knative"], "discover": False})
KINDS = {kind.name: kind for kind in kinds_of(SURROUNDINGS.settings)}
FUNCTION = IRIS.object("prod", "shop", "Function", "resize")
FRONTEND = IRIS.object("prod", "shop", "Deployment", "frontend")


def changes(directory: Path) -> tuple[Change, ...]:
    """Return what the demo's objects yield."""
    settings = function_calls.settings(None, 8080).model_copy(update={"base": "https://kg.example"})
    return tuple(function_calls.source(directory, settings).changes(threading.Event()))


@pytest.fixture
def sink(tmp_path: Path) -> MemorySink:
    """The graph of the shop, with one call."""
    found = MemorySink()
    run = following(found, SURROUNDINGS)
    for change in changes(tmp_path / "shop"):
        run.take(change)
    run.flush(everything=True)
    assert run.summary.rejected == []
    ends = {"caller": FRONTEND, "callee": IRIS.object("prod", "shop", "Deployment", "resize-00001-deployment")}
    graph = IRIS.invocation(ends["caller"], ends["callee"])
    document = {
        "id": graph,
        "type": "Invocation",
        "name": "x",
        **ends,
        "firstSeen": "2026-11-27T00:00:00Z",
        "lastSeen": "2026-11-28T00:00:00Z",
    }
    found.apply([GraphWrite.of(graph, lines(document), "user")])
    return found


def asked(sink: MemorySink, name: str, **values: str) -> list[dict[str, Any]]:
    """Ask a saved query; IRIs are given and returned by the last segment."""
    text = catalogue.QueryCatalogue.load(IRIS).get(name).bound(values, IRIS)
    return [{key: value.rpartition("/")[2] for key, value in row.items()} for row in sink.look_up(text)]


def test_the_functions_are_told_with_their_pods(sink: MemorySink) -> None:
    """From the function to the pod through revision and Deployment; a frontend is no function."""
    rows = asked(sink, "functions")

    assert {row["function"] for row in rows} == {"resize"}
    assert {row.get("pod") for row in rows} == {"resize-00001-deployment-6f7c9d8b57-fghij"}
    assert {(row["implementedBy"], row["trigger"]) for row in rows} == {("resize-00001", "http")}


def test_the_limits_of_an_autoscaler_are_told(sink: MemorySink) -> None:
    """How far and how fast."""
    rows = asked(sink, "scaling")

    assert {row["limit"] for row in rows} == {"up: 4 pods in 60 s", "down: after 300 s"}
    assert {(row["workload"], row["least"], row["most"]) for row in rows} == {("frontend", "2", "8")}


def test_calls_are_told_of_all_and_of_one(sink: MemorySink) -> None:
    """Both ends, with the days; the neighbours of one thing by direction."""
    (row,) = asked(sink, "calls")
    assert (row["caller"], row["callee"], row["lastSeen"]) == (
        "frontend",
        "resize-00001-deployment",
        "2026-11-28T00:00:00Z",
    )
    assert [(each["direction"], each["peer"]) for each in asked(sink, "callers", entity=FRONTEND)] == [
        ("out", "resize-00001-deployment")
    ]


def test_a_function_that_went_is_noticed_once_all_platforms_are_read(sink: MemorySink) -> None:
    """After a restart the functions of one platform do not make those of another one gone; what none of them has is buried."""
    run = following(sink, SURROUNDINGS)
    run.take(Synced(KINDS["Function"], NOW))
    run.flush(everything=True)
    (before,) = sink.look_up(_TYPE % FUNCTION)
    assert before["type"].endswith("#Function")

    knative = next(kind for kind in kinds_of(SURROUNDINGS.settings) if kind.segment == "service.serving.knative.dev")
    run.take(Synced(knative, NOW))
    run.flush(everything=True)

    (after,) = sink.look_up(_TYPE % FUNCTION)
    assert after["type"].endswith("#Tombstone")


_TYPE = "SELECT ?type WHERE { <%s> a ?type }"
