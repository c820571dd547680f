"""A restart renders only the graphs again of which something is not as it was noted: the object, what others say, or the surroundings."""

from __future__ import annotations

import copy
from pathlib import Path
from typing import Any

import pytest

from drumlin.exporters.pipeline import renderings
from drumlin.exporters.pipeline.context import ClusterContext
from drumlin.exporters.pipeline.entities import Entities
from drumlin.exporters.pipeline.reconciler import Reconciler
from drumlin.exporters.pipeline.renderings import fingerprint
from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.store.protocol import GraphEntry
from tests.memory_sink import MemorySink
from tests.unit.rendering import BY_NAME, CONTRACT, KINDS, around, now, synced, upserted
from tests.unit.test_pipeline import deployment, namespace, pod, replicaset, service

Documents = list[dict[str, Any]]
EVERYTHING = {
    "-/namespace/shop",
    "shop/deployment/web",
    "shop/service/web",
    *(f"shop/pod/web-{each}" for each in range(3)),
}


@pytest.fixture
def file(tmp_path: Path) -> Path:
    """Where it is noted."""
    return tmp_path / "rendered"


@pytest.fixture
def rendered(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The short ids of what is rendered."""
    found: list[str] = []
    original = Entities._document

    def spy(self: Entities, graph: str, *rest: Any) -> Any:
        if document := original(self, graph, *rest):
            found.append(graph.removeprefix("https://kg.example/id/prod/"))
        return document

    monkeypatch.setattr(Entities, "_document", spy)
    return found


def cluster() -> Documents:
    """A namespace with a workload, its pods, and a Service."""
    owner = replicaset()["metadata"]
    owners = [
        {"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": owner["name"], "uid": owner["uid"], "controller": True}
    ]
    pods = [pod(f"web-{number}", f"p{number}", owner=owners) for number in range(3)]
    return [namespace(), deployment(), replicaset(), *pods, service("web")]


def live(sink: MemorySink, file: Path, documents: Documents, surroundings: ClusterContext | None = None) -> Reconciler:
    """Begin a life that is told of these objects, and end it."""
    run = Reconciler(
        sink,
        surroundings or around(),
        "test",
        frozenset(each.segment for each in KINDS),
        now,
        window=0.0,
        renderings=file,
    )
    for change in [*map(upserted, documents), *synced()]:
        run.take(change)
    run.flush()
    run.note_renderings()
    return run


@pytest.fixture
def sink(file: Path, rendered: list[str]) -> MemorySink:
    """A store that an earlier life has filled."""
    sink = MemorySink()
    live(sink, file, cluster())
    rendered.clear()
    return sink


def test_nothing_is_rendered_again_where_nothing_has_changed(sink: MemorySink, file: Path, rendered: list[str]) -> None:
    """A restart on the same cluster renders no entity, writes nothing, and counts all as unchanged."""
    before = sink.generation
    run = live(sink, file, cluster())

    assert rendered == []
    assert sink.generation == before
    assert run.summary.unchanged == len(sink.graphs.keys() & {*run._entities._entities})


def test_what_has_changed_is_rendered_and_no_other(sink: MemorySink, file: Path, rendered: list[str]) -> None:
    """Of three pods the one that failed meanwhile is rendered."""
    documents = cluster()
    documents[3]["status"]["phase"] = "Failed"
    live(sink, file, documents)

    assert set(rendered) == {"shop/pod/web-0"}
    assert any(
        "ns#Failed>" in line for line in sink.graphs["https://kg.example/id/prod/shop/pod/web-0"] if "phase>" in line
    )


def test_what_others_say_counts_too(sink: MemorySink, file: Path, rendered: list[str]) -> None:
    """A namespace that changed its domain while nobody looked has all rendered again that lies in it."""
    documents = cluster()
    documents[0] = namespace("alice")
    live(sink, file, documents)

    assert {"shop/pod/web-0", "shop/pod/web-1", "shop/deployment/web"} <= set(rendered)
    assert all(
        any("domain/alice>" in line for line in sink.graphs[f"https://kg.example/id/prod/shop/pod/web-{number}"])
        for number in range(3)
    )


def test_what_is_noted_as_read_is_followed(sink: MemorySink, file: Path, rendered: list[str]) -> None:
    """After a restart that rendered nothing, a change elsewhere still has those rendered that depend on it."""
    run = live(sink, file, cluster())
    run.take(upserted(namespace("alice")))
    run.flush()

    assert {"shop/pod/web-0", "shop/deployment/web"} <= set(rendered)


def test_what_is_gone_is_buried(sink: MemorySink, file: Path) -> None:
    """A pod that went while nobody looked becomes a tombstone, noted or not."""
    live(sink, file, [each for each in cluster() if each["metadata"]["name"] != "web-1"])

    graph = sink.graphs["https://kg.example/id/prod/shop/pod/web-1"]
    assert any(line.endswith("ns#Tombstone> .") for line in graph)


def test_a_graph_that_is_not_as_it_was_noted_is_rendered(sink: MemorySink, file: Path, rendered: list[str]) -> None:
    """What is noted is believed only of the graph that it was noted of, by its digest."""
    graph = "https://kg.example/id/prod/shop/pod/web-1"
    right = sink.graphs[graph]
    sink.graphs[graph] = frozenset(line for line in right if "phase>" not in line)
    live(sink, file, cluster())

    assert set(rendered) == {"shop/pod/web-1"}
    assert sink.graphs[graph] == right


@pytest.mark.parametrize("changed", ["settings", "templates", "code"])
def test_other_surroundings_have_all_rendered(
    changed: str, sink: MemorySink, file: Path, rendered: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Other settings, templates or another version of Drumlin may make other documents of the same objects."""
    surroundings = around()
    match changed:
        case "settings":
            surroundings = around({**CONTRACT, "labels": ["app"]})
        case "templates":
            surroundings = around(templates=[surroundings.catalogue.templates[0].name])
        case _:
            monkeypatch.setattr("drumlin.exporters.pipeline.reconciler.fingerprint_of_code", lambda: b"another")
    live(sink, file, cluster(), surroundings)

    assert set(rendered) == EVERYTHING


@pytest.mark.parametrize("content", [b"", b"x" * 100, None], ids=["empty", "random", "cut"])
def test_a_damaged_file_costs_time_and_nothing_else(
    content: bytes | None, sink: MemorySink, file: Path, rendered: list[str]
) -> None:
    """All is rendered, nothing differs, and the file is whole afterwards."""
    file.write_bytes(file.read_bytes()[:-9] if content is None else content)
    before = sink.generation
    live(sink, file, cluster())
    assert set(rendered) == EVERYTHING
    rendered.clear()
    live(sink, file, cluster())

    assert rendered == []
    assert sink.generation == before


def test_a_file_of_another_format_is_as_none(file: Path, sink: MemorySink, rendered: list[str]) -> None:
    """What another version wrote is not understood, and replaced."""
    content = b"\x91\x07"
    file.write_bytes(renderings._check(content) + content)
    live(sink, file, cluster())

    assert set(rendered) == EVERYTHING


def test_a_file_that_cannot_be_written_keeps_the_old_one(sink: MemorySink, tmp_path: Path) -> None:
    """Where the folder is gone nothing is noted, which ends nothing."""
    run = live(sink, tmp_path / "nowhere" / "rendered", cluster())

    assert run.summary.rejected == []
    assert not (tmp_path / "nowhere").exists()


def test_a_store_that_is_closed_meanwhile_ends_nothing(
    sink: MemorySink, file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is noted, what was noted before stays, and the run ends as it would."""
    before = file.read_bytes()
    run = live(sink, file, cluster())

    def closed(**_: object) -> list[GraphEntry]:
        raise StoreUnavailable("the store is closed")

    monkeypatch.setattr(sink, "entries", closed)
    run.note_renderings()

    assert file.read_bytes() == before


def test_a_kind_that_has_not_come_leaves_nothing_to_what_was_noted(
    sink: MemorySink, file: Path, rendered: list[str]
) -> None:
    """While pods are awaited that the graph remembers, their workload is rendered by what the graph says of them."""
    run = Reconciler(
        sink, around(), "test", frozenset(each.segment for each in KINDS), now, window=0.0, renderings=file
    )
    for document in (each for each in cluster() if each["kind"] != "Pod"):
        run.take(upserted(document))
    for change in synced(*(each for each in BY_NAME if each != "Pod")):
        run.take(change)
    before = copy.deepcopy(sink.graphs)
    run.flush(everything=True)

    assert "shop/deployment/web" in rendered
    assert sink.graphs == before


def test_fingerprints_tell_what_differs_and_nothing_else() -> None:
    """The order of sets and of keys is no difference; what has no plain form has no fingerprint."""
    assert fingerprint({"a": 1, "b": frozenset({"x", "y"})}) == fingerprint({"b": frozenset({"y", "x"}), "a": 1})
    assert fingerprint({"a": 1}) != fingerprint({"a": 2})
    assert fingerprint(object()) is None
