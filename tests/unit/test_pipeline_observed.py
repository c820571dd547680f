"""What a datasource remembers reaches the graph through the exporter: merged by uid, marked, and never against what the source tells."""

from __future__ import annotations

import threading
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import pytest

from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.exporters.pipeline.reconciler import Reconciler
from drumlin.exporters.pipeline.runs import LOST, Observed, Run, text
from drumlin.exporters.protocol import Change
from drumlin.kg.errors import SourceUnavailable
from drumlin.kg.rdf.jsonld import compact
from drumlin.kg.validation.validate import validate
from tests.memory_sink import MemorySink
from tests.unit.rendering import BY_NAME, NOW, around, follow, now, synced, upserted

BASE = "https://kg.example/id/"
MAIN = f"{BASE}datasource/prometheus-main"
DB = f"{BASE}prod/shop/statefulset/db"


def run(uid: str, start: float, end: float, outcome: str = LOST) -> Run:
    """Make a run that ended some hours before now."""
    times = [text(NOW - timedelta(hours=each)) for each in (start, end)]
    node = f"{BASE}prod/-/node/a"
    return Run(uid, *times, outcome, estimated=outcome == LOST, node=node, observed=MAIN)


def pod(name: str, *runs: Run, manager: str | None = DB) -> Observed:
    """What is remembered of a pod."""
    return Observed(f"{BASE}prod/shop/pod/{name}", "Pod", runs, manager, NOW - timedelta(hours=1))


def living(uid: str = "u3", **labels: str) -> dict[str, Any]:
    """The pod db-0 as it is now."""
    owner = {"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "s", "controller": True}
    metadata = {"name": "db-0", "namespace": "shop", "uid": uid, "ownerReferences": [owner], "labels": labels}
    status = {"phase": "Running", "startTime": text(NOW - timedelta(hours=1))}
    return {"kind": "Pod", "metadata": metadata, "spec": {"nodeName": "a", "containers": []}, "status": status}


def document(sink: MemorySink, short: str) -> dict[str, Any]:
    """Return a graph as a document, valid and the source's."""
    assert sink.owners[BASE + short] == "test"
    validate(sink.graphs[BASE + short], BASE + short, around().iris)
    return compact(sink.graphs[BASE + short], BASE + short)


def followed(*documents: dict[str, Any], sink: MemorySink | None = None) -> tuple[MemorySink, Reconciler]:
    """Follow a source until all that exists is written."""
    return follow([*map(upserted, documents), *synced()], sink)


def test_a_pod_that_is_gone_gets_a_tombstone_that_names_the_datasource() -> None:
    """Its runs, manager, node and where they were observed; once, however often it is told."""
    sink, following = followed()
    assert following.observed([pod("db-0", run("u1", 9, 7), run("u2", 6, 4, "Completed"))]) == 1

    found = document(sink, "prod/shop/pod/db-0")
    assert (found["type"], found["formerType"], found["managedBy"]) == ("Tombstone", "Pod", DB)
    assert found["invalidatedAt"] == text(NOW - timedelta(hours=1))
    first, second = sorted(found["runs"], key=lambda each: each["startedAt"])
    assert (first["observedIn"], first["endEstimated"], first["outcome"]) == (MAIN, True, LOST)
    assert (second["outcome"], second.get("endEstimated")) == ("Completed", None)
    assert second["endedAt"] == text(NOW - timedelta(hours=4))
    assert following.observed([pod("db-0", run("u1", 9, 7))]) == 0
    assert following.summary.removed == following.summary.added == 0


def test_a_later_finding_of_the_same_run_bridges_an_outage() -> None:
    """Read newest day first, the true end stands against the one that an outage makes."""
    sink, following = followed()
    following.observed([pod("db-0", run("u1", 30, 2))])
    following.observed([pod("db-0", run("u1", 30, 20))])

    (only,) = document(sink, "prod/shop/pod/db-0")["runs"]
    assert only["endedAt"] == text(NOW - timedelta(hours=2))


def test_a_name_that_lives_gets_its_earlier_runs_and_keeps_them() -> None:
    """A StatefulSet's pod has its former uids beside its own, also after its manifest changes and in the next life of the exporter."""
    sink, following = followed(living())
    assert following.observed([pod("db-0", run("u1", 9, 7), run("u3", 1, 0.5))]) == 1
    following.take(upserted(living(team="x")))
    following.flush(everything=True)
    first = document(sink, "prod/shop/pod/db-0")
    followed(living(team="y"), sink=sink)
    second = document(sink, "prod/shop/pod/db-0")

    for found in (first, second):
        assert found["type"] == "Pod"
        runs = {each["id"].rpartition("/")[2]: each for each in found["runs"]}
        assert runs.keys() == {"u1", "u3"}
        assert runs["u1"]["observedIn"] == MAIN
        assert "endedAt" not in runs["u3"]
        assert "observedIn" not in runs["u3"]


def test_a_workload_that_is_gone_is_found_again_and_one_that_is_there_is_left() -> None:
    """A Job leaves who managed it; what exists, or has a tombstone already, is not touched by being a manager only."""
    job, cron = f"{BASE}prod/shop/job/tick-29000000", f"{BASE}prod/shop/cronjob/tick"
    sink, following = followed(living())
    before = sink.graphs[f"{BASE}prod/shop/pod/db-0"]

    told = [Observed(job, "Job", (), cron, NOW), Observed(f"{BASE}prod/shop/pod/db-0", "Pod", (), None, NOW)]
    assert [following.observed(told), following.observed(told)] == [1, 0]
    found = document(sink, "prod/shop/job/tick-29000000")
    assert (found["formerType"], found["managedBy"], found.get("runs")) == ("Job", cron, None)
    assert sink.graphs[f"{BASE}prod/shop/pod/db-0"] == before


def test_what_the_source_has_not_told_yet_is_not_buried() -> None:
    """A graph of an earlier life whose kind cannot be listed now stays what it is."""
    sink, _ = followed(living())
    _, again = follow([], sink)

    assert again.observed([pod("db-0", run("u1", 9, 7))]) == 0
    assert document(sink, "prod/shop/pod/db-0")["type"] == "Pod"


class Told:
    """A source that tells what it is given, waits, and fails if so asked."""

    name = "test"

    def __init__(self, *documents: dict[str, Any], error: Exception | None = None) -> None:
        self._documents = documents
        self._error = error
        self.more = threading.Event()

    def changes(self, stop: threading.Event) -> Iterator[Change]:
        """Yield what exists, then wait."""
        yield from map(upserted, self._documents)
        yield from synced()
        self.more.wait(20)
        if self._error:
            raise self._error
        stop.wait(20)


def test_another_thread_hands_over_and_is_told_when_it_is_written() -> None:
    """The future is done when the graphs are; while nobody follows it is not, and the next run takes it up."""
    base, sink, stop = around(), MemorySink(), threading.Event()
    pipeline = Pipeline(sink, list(BY_NAME.values()), base.settings, base.iris, base.catalogue, (), clock=now)
    waiting = pipeline.observe([pod("db-0", run("u1", 9, 7))])
    assert not waiting.done()

    failing = Told(living(), error=SourceUnavailable("gone"))
    failing.more.set()
    with pytest.raises(SourceUnavailable):
        pipeline.run(failing, stop)
    source = Told(living())
    thread = threading.Thread(target=pipeline.run, args=(source, stop))
    thread.start()
    assert waiting.result(20) == 1
    assert pipeline.observe([pod("db-1", run("u7", 9, 7))]).result(20) == 1
    stop.set()
    source.more.set()
    thread.join(20)
    assert document(sink, "prod/shop/pod/db-1")["type"] == "Tombstone"
