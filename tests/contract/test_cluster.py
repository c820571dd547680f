"""The recorded cluster: what a real API server said, replayed, must give the graphs and runs that the contract lists."""

from __future__ import annotations

import json
import os
import random
import threading
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import msgspec
import pytest

from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.exporters.pipeline.reconciler import Reconciler
from drumlin.exporters.protocol import Change, Gone, Upserted
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.rdf.syntax import Lines
from tests.memory_sink import MemorySink
from tests.unit.rendering import BY_NAME, CONTRACT, KINDS, around, following, synced

SHARED = Path(__file__).parents[2].parent / "shared"
CLUSTER = SHARED / "data" / "cluster"
CANARIES = ("canary-env-value", "--canary-arg", "CANARY-CERT", "CANARY-KEY", "CANARY-ENCRYPTED", "CANARY-SIGNATURE")
OBSERVED = datetime(2026, 11, 27, 21, 53, tzinfo=UTC)
TOKEN = "planted-5d0f2a"

pytestmark = pytest.mark.skipif(
    not CLUSTER.is_dir() and os.environ.get("CI") != "true", reason="no recorded cluster at ../shared/data/cluster"
)


def objects(folder: str) -> list[dict[str, Any]]:
    """All recorded objects of the kinds in the table, with their kind written into each."""
    found: list[dict[str, Any]] = []
    for kind in [each for each in KINDS if (CLUSTER / folder / f"{each.plural}.json").is_file()]:
        listed = json.loads((CLUSTER / folder / f"{kind.plural}.json").read_text())
        found += [{**each, "kind": kind.name, "apiVersion": kind.api_version} for each in listed["items"]]
    return found


def events() -> list[dict[str, Any]]:
    """The recorded watch events in the order of their resourceVersions, without bookmarks; what was not watched, as relisted."""
    names = {kind.plural for kind in KINDS}
    lines = [
        json.loads(line)
        for path in sorted((CLUSTER / "watch").glob("*.ndjson"))
        if path.stem in names
        for line in path.read_text().splitlines()
    ]
    material = [each for each in lines if each["type"] != "BOOKMARK"]
    return [*sorted(material, key=lambda each: int(each["object"]["metadata"]["resourceVersion"])), *relisted()]


def relisted() -> list[dict[str, Any]]:
    """What differs between ``before`` and ``after`` in the kinds of which no watch was recorded."""
    watched = {path.stem for path in (CLUSTER / "watch").glob("*.ndjson")}
    unwatched = {kind.name for kind in KINDS if kind.plural not in watched}
    old, new = (
        {_key(each): each for each in objects(folder) if each["kind"] in unwatched} for folder in ("before", "after")
    )
    gone = [{"type": "DELETED", "object": old[each]} for each in old.keys() - new.keys()]
    return gone + [{"type": "MODIFIED", "object": each} for key, each in new.items() if old.get(key) != each]


def _key(document: dict[str, Any]) -> str:
    return f"{document['kind']} {document['metadata']['uid']}"


def change(document: Mapping[str, Any], kind: str = "MODIFIED") -> Change:
    """One event as the change that a source makes of it."""
    row = BY_NAME[document["kind"]]
    read = msgspec.json.decode(json.dumps(document), type=row.projection)
    return Gone(row, read, OBSERVED) if kind == "DELETED" else Upserted(row, read)


def replayed(*, duplicates: bool = False, slowly: bool = False) -> MemorySink:
    """The graphs after ``before`` and the watch; ``slowly`` writes after each event."""
    sink = MemorySink()
    run = following(sink, around())
    for document in objects("before"):
        run.take(change(document))
    for each in synced(observed=OBSERVED):
        run.take(each)
    run.flush()
    for event in events():
        for _ in range(2 if duplicates else 1):
            run.take(change(event["object"], event["type"]))
        if slowly:
            run.flush()
    run.flush(everything=True)
    return sink


def loaded(folder: str, sink: MemorySink | None = None) -> MemorySink:
    """The graphs of a folder alone."""
    sink = sink or MemorySink()
    run = following(sink, around())
    for each in [*map(change, objects(folder)), *synced(observed=OBSERVED)]:
        run.take(each)
    run.flush(everything=True)
    return sink


def is_tombstone(lines: Lines) -> bool:
    """Tell a tombstone from a living graph."""
    return any(f"<{NAMESPACE}Tombstone>" in line for line in lines)


def without_ended_runs(lines: Lines) -> Lines:
    """The graph without runs that ended by deletion: only who watched can know them."""
    deleted = {line.split(" ", 1)[0] for line in lines if line.endswith(f"<{NAMESPACE}outcome> <{NAMESPACE}Deleted> .")}
    return frozenset(line for line in lines if line.split(" ", 1)[0] not in deleted)


@pytest.mark.parametrize("duplicates", [False, True])
@pytest.mark.parametrize("slowly", [False, True])
def test_before_and_watch_give_the_graphs_of_after(*, duplicates: bool, slowly: bool) -> None:
    """Following the changes ends where a fresh look ends, whether events come doubled, in bursts or one by one."""
    watched = replayed(duplicates=duplicates, slowly=slowly).graphs
    fresh = loaded("after").graphs

    living = {graph: without_ended_runs(lines) for graph, lines in watched.items() if not is_tombstone(lines)}
    assert living == fresh
    assert {graph for graph, lines in watched.items() if is_tombstone(lines)} == watched.keys() - fresh.keys()


RUNS = """SELECT ?entity ?run ?start ?end ?outcome ?node WHERE {
  ?run <https://w3id.org/drumlin/ns#runOf> ?entity ; <http://www.w3.org/ns/prov#startedAtTime> ?start .
  OPTIONAL { ?run <http://www.w3.org/ns/prov#endedAtTime> ?end }
  OPTIONAL { ?run <https://w3id.org/drumlin/ns#outcome> ?outcome }
  OPTIONAL { ?run <https://w3id.org/drumlin/ns#scheduledOn> ?node } }"""


def runs(sink: MemorySink) -> Iterator[dict[str, Any]]:
    """The runs in the graph, as the contract lists them."""
    iris = around().iris
    for row in sink.look_up(RUNS):
        name: Any = iris.parse(row["entity"]).name
        kind = next(each.name for each in KINDS if each.name.lower() == name.kind)
        end = row.get("end")
        yield {
            "kind": kind,
            **({"namespace": name.namespace} if name.namespace else {}),
            "name": name.name,
            "uid": iris.parse(row["run"]).below[1],
            "start": row["start"],
            "end": "observed" if end == f"{OBSERVED:%Y-%m-%dT%H:%M:%SZ}" else end,
            "outcome": row["outcome"].removeprefix(NAMESPACE) if "outcome" in row else None,
            **({"node": row["node"].rpartition("/")[2]} if "node" in row else {}),
        }


def test_runs_equal_the_contract_row_by_row() -> None:
    """Every run of the recording is in the graph as the contract lists it, and no other of those kinds."""
    listed = json.loads((SHARED / "contract" / "runs.json").read_text())
    kinds = {each["kind"] for each in listed}

    found = [each for each in runs(replayed(duplicates=True)) if each["kind"] in kinds]

    def by_uid(row: dict[str, Any]) -> str:
        return str(row["uid"])

    assert sorted(found, key=by_uid) == sorted(listed, key=by_uid)


def test_loading_twice_writes_nothing_the_second_time() -> None:
    """A restart against an unchanged cluster leaves the generation as it is."""
    sink = MemorySink()
    surroundings = around()
    pipeline = Pipeline(
        sink, KINDS, surroundings.settings, surroundings.iris, surroundings.catalogue, (), clock=lambda: OBSERVED
    )
    source = DumpSource([CLUSTER / "before"], KINDS, clock=lambda: OBSERVED)
    first = pipeline.run(source, threading.Event())
    generation = sink.generation
    second = pipeline.run(source, threading.Event())

    assert first.added > 100
    assert (second.added, second.updated, second.removed, second.rejected) == (0, 0, 0, [])
    assert second.unchanged == first.added
    assert sink.generation == generation
    assert pipeline.synced
    assert not source.skipped


def test_workloads_of_one_name_are_two() -> None:
    """search/web and edge/web are two workloads, each with its own pods."""
    sink = loaded("before")
    pods = "SELECT ?pod ?workload WHERE { ?pod <https://w3id.org/drumlin/ns#managedBy> ?workload }"
    found = {
        namespace: {
            row["pod"].rpartition("/")[2]
            for row in sink.look_up(pods, {"workload": f"https://kg.example/id/prod/{namespace}/deployment/web"})
        }
        for namespace in ("search", "edge")
    }

    assert found == {"edge": {"web-6585b8cfcd-qzggm"}, "search": {"web-6967c8c748-6p85f", "web-6967c8c748-tjksb"}}


def test_a_pod_that_outlives_its_replicaset_keeps_its_workload() -> None:
    """The garbage collector removes ReplicaSets first; the tombstones of their pods still name the Deployment."""
    tombstone = replayed(slowly=True).graphs["https://kg.example/id/prod/search/pod/web-6967c8c748-x824n"]

    assert is_tombstone(tombstone)
    assert any(line.endswith("managedBy> <https://kg.example/id/prod/search/deployment/web> .") for line in tombstone)


def test_canaries_never_reach_the_graph() -> None:
    """What the recording hides in env values, arguments and certificates is nowhere in the graphs."""
    text = replayed().text()

    assert not [each for each in CANARIES if each in text]


def named(projection: Any) -> dict[str, Any] | bool:
    """What a projection names: a tree of field names; True where a whole value is taken."""
    kind = msgspec.inspect.type_info(projection) if not isinstance(projection, msgspec.inspect.Type) else projection
    if isinstance(kind, msgspec.inspect.UnionType):
        inner = [each for each in kind.types if not isinstance(each, msgspec.inspect.NoneType)]
        return named(inner[0]) if len(inner) == 1 or isinstance(inner[0], msgspec.inspect.VarTupleType) else True
    if isinstance(kind, msgspec.inspect.StructType):
        return {field.encode_name: named(field.type) for field in kind.fields}
    if isinstance(kind, msgspec.inspect.VarTupleType | msgspec.inspect.ListType):
        return named(kind.item_type)
    return True


def planted(value: Any, tree: dict[str, Any] | bool, count: list[int]) -> Any:
    """Replace every string that ``tree`` does not name by a token of its own; keys too, where they are data."""
    if tree is True:
        return value
    if isinstance(value, list):
        return [planted(each, tree, count) for each in value]
    if isinstance(value, dict):
        names = tree if isinstance(tree, dict) else {}
        return {key: planted(each, names.get(key, {}), count) for key, each in value.items()}
    if isinstance(value, str):
        count[0] += 1
        return f"{TOKEN}-{count[0]}"
    return value


def test_nothing_that_the_projections_do_not_name_gets_anywhere(
    caplog: pytest.LogCaptureFixture, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """A token planted in every string leaf that no projection names is not in the store, the logs or the errors."""
    count = [0]
    kept = {kind.name: {**named(kind.projection), "kind": True, "apiVersion": True} for kind in KINDS}
    before = [planted(each, kept[each["kind"]], count) for each in objects("before")]
    labelled = [_with_label_tokens(each) for each in before]
    chance = random.Random(1)
    broken = [_broken(each, chance) for each in labelled[::7]]
    (tmp_path / "all.json").write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": [*labelled, *broken]}))
    sink = MemorySink()
    surroundings = around(CONTRACT)
    pipeline = Pipeline(
        sink, KINDS, surroundings.settings, surroundings.iris, surroundings.catalogue, (), clock=lambda: OBSERVED
    )

    summary = pipeline.run(DumpSource([tmp_path], KINDS, clock=lambda: OBSERVED), threading.Event())

    assert count[0] > 4000
    assert len(summary.rejected) == len(broken)
    printed = capsys.readouterr()
    everything = sink.text() + printed.out + printed.err + caplog.text + str(summary.rejected)
    assert TOKEN not in everything
    assert summary.added == len(
        [each for each, owner in loaded("before").owners.items() if owner == "test" and "/datasource/" not in each]
    )


def _with_label_tokens(document: dict[str, Any]) -> dict[str, Any]:
    """Labels are read whole, to be matched by selectors: those off the allow-list must still not be written."""
    labels = {**(document["metadata"].get("labels") or {}), "planted": TOKEN, f"{TOKEN}/key": "x"}
    return {**document, "metadata": {**document["metadata"], "labels": labels}}


def _broken(document: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """An object whose uid, times or amounts are not what Kubernetes would send, with a token in their place."""
    name, metadata = f"broken-{chance.random()}", document["metadata"]
    wrong = chance.choice(
        [{"uid": {TOKEN: TOKEN}}, {"creationTimestamp": [TOKEN]}, {"labels": [TOKEN]}, {"name": {TOKEN: 1}}]
    )
    return {**document, "metadata": {**metadata, "name": name, **wrong}}


def test_a_run_that_starts_anew_takes_up_where_the_graph_stands() -> None:
    """After a restart in the middle of the watch the graphs are those of an uninterrupted run."""
    half = len(events()) // 2
    sink = MemorySink()
    run: Reconciler | None = None
    for part in (events()[:half], events()[half:]):
        present = _present(events()[:half]) if run else objects("before")
        run = following(sink, around())
        for each in [*map(change, present), *synced(observed=OBSERVED)]:
            run.take(each)
        run.flush()
        for event in part:
            run.take(change(event["object"], event["type"]))
        run.flush(everything=True)

    assert sink.graphs == replayed().graphs


def _present(past: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """The objects that exist after ``past`` events."""
    found = {each["metadata"]["uid"]: each for each in objects("before")}
    for event in past:
        uid = event["object"]["metadata"]["uid"]
        if event["type"] == "DELETED":
            found.pop(uid)
        else:
            found[uid] = event["object"]
    return list(found.values())
