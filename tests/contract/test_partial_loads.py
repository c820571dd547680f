"""The recorded cluster in the store, and dumps of parts of it: a part never takes away what the whole has told."""

from __future__ import annotations

import json
import random
import threading
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.pipeline.completeness import Completeness
from drumlin.exporters.pipeline.pipeline import Pipeline, RunSummary
from drumlin.kg.rdf.syntax import Lines
from tests.contract.test_cluster import is_tombstone, loaded, objects, pytestmark, without_ended_runs
from tests.memory_sink import MemorySink
from tests.unit.rendering import CONTRACT, KINDS, around

__all__ = ["pytestmark"]

DEMO = Path(__file__).parents[2] / "api" / "demo" / "cluster"
LATER = datetime(2026, 11, 28, tzinfo=UTC)


def dumped(sink: MemorySink, place: Path, *documents: dict[str, Any], complete: str | None = "") -> RunSummary:
    """Load objects as one dump in a file; ``complete`` as ``--complete`` says it, None when it stands alone."""
    place.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": documents}))
    return run(sink, place, complete)


def run(sink: MemorySink, place: Path, complete: str | None = "") -> RunSummary:
    """Load what stands at a place."""
    surroundings = around(CONTRACT)
    flow = Pipeline(
        sink, KINDS, surroundings.settings, surroundings.iris, surroundings.catalogue, (), clock=lambda: LATER
    )
    said = Completeness.parse([] if complete == "" else [complete], KINDS)
    return flow.run(DumpSource([place], KINDS, clock=lambda: LATER, complete=said), threading.Event())


def filled(folder: str) -> MemorySink:
    """A store with a folder of the recording, as a dump wrote it."""
    sink = loaded(folder)
    sink.owners = {graph: "dump" if owner == "test" else owner for graph, owner in sink.owners.items()}
    return sink


def test_every_object_of_the_cluster_loaded_alone_changes_nothing(tmp_path: Path) -> None:
    """Each recorded object, loaded by itself one after the other, leaves every graph and the generation as they were."""
    sink = filled("before")
    before, generation = dict(sink.graphs), sink.generation

    for each in objects("before"):
        summary = dumped(sink, tmp_path / "one.json", each)
        assert (summary.added, summary.updated, summary.removed, summary.rejected) == (0, 0, 0, []), each["metadata"]

    assert sink.graphs == before
    assert sink.generation == generation


@pytest.mark.parametrize("seed", range(12))
def test_any_part_of_the_cluster_changes_nothing(seed: int, tmp_path: Path) -> None:
    """Any subset of the recorded objects, loaded as one dump, leaves every graph as it was."""
    chance = random.Random(seed)
    sink = filled("before")
    before = dict(sink.graphs)
    every = objects("before")

    for count in (2, 10, len(every) // 2, len(every) - 3):
        dumped(sink, tmp_path / "some.json", *chance.sample(every, count))

    assert sink.graphs == before


def living(graphs: dict[str, Lines]) -> set[str]:
    """The graphs that are no tombstones."""
    return {graph for graph, lines in graphs.items() if not is_tombstone(lines)}


def test_a_later_dump_adds_and_updates_and_removes_nothing(tmp_path: Path) -> None:
    """What the later dump holds is as in a fresh store, but for links to what stays; what it lacks lives on as it was."""
    sink = filled("before")
    before, fresh = dict(sink.graphs), filled("after").graphs

    summary = dumped(sink, tmp_path / "after.json", *objects("after"))

    assert summary.removed == 0
    assert living(sink.graphs) == before.keys() | fresh.keys()
    assert {graph: sink.graphs[graph] for graph in before.keys() - fresh.keys()} == {
        graph: lines for graph, lines in before.items() if graph not in fresh
    }
    lost = {graph: fresh[graph] - sink.graphs[graph] for graph in fresh if fresh[graph] - sink.graphs[graph]}
    assert not lost


def test_a_later_dump_that_is_complete_is_the_truth(tmp_path: Path) -> None:
    """With every kind named as complete, what the later dump lacks becomes tombstones, and the rest is as in a fresh store."""
    sink = filled("before")
    fresh = filled("after").graphs

    dumped(
        sink,
        tmp_path / "after.json",
        *objects("after"),
        complete=",".join(f"{kind.plural}.{kind.group}".rstrip(".") for kind in KINDS),
    )

    found = {graph: sink.graphs[graph] for graph in living(sink.graphs)}
    assert {graph: without_ended_runs(lines) for graph, lines in found.items()} == fresh


def test_a_complete_dump_speaks_of_its_own_kinds_and_namespaces(tmp_path: Path) -> None:
    """A dump that is complete as it stands removes objects of its kinds in its namespaces, and no others."""
    sink = filled("before")
    payments = [
        each for each in objects("before") if each["kind"] == "Pod" and each["metadata"]["namespace"] == "payments"
    ]

    summary = dumped(sink, tmp_path / "pods.json", *payments[1:], complete=None)

    assert len(payments) > 1
    assert summary.removed == 1
    (gone,) = sink.graphs.keys() - living(sink.graphs)
    assert gone.endswith(f"/prod/payments/pod/{payments[0]['metadata']['name']}")


def test_the_demo_in_parts_is_the_demo(tmp_path: Path) -> None:
    """The bundled cluster, loaded file by file after it was loaded whole, changes nothing."""
    sink = MemorySink()
    run(sink, DEMO)
    before = dict(sink.graphs)

    for file in sorted(DEMO.iterdir()):
        run(sink, file)
        for each in json.loads(file.read_bytes())["items"]:
            dumped(sink, tmp_path / "one.json", {"kind": _kind(file), "apiVersion": _version(file), **each})

    assert sink.graphs == before


def _kind(file: Path) -> str:
    return next(kind.name for kind in KINDS if kind.plural == file.stem)


def _version(file: Path) -> str:
    return next(kind.api_version for kind in KINDS if kind.plural == file.stem)
