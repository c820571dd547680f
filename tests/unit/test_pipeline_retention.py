"""Tombstones are removed when their retention is over, and nothing else ever is."""

from __future__ import annotations

import time
from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from exporters.retention import Retention, purge
from exporters.tombstones import remains
from kg.iris import Iris
from kg.settings import RetentionSettings
from kg.store.embedded import EmbeddedStore
from kg.store.protocol import GraphWrite, Row
from tests.unit.rendering import follow, gone, upserted

NOW = datetime(2026, 11, 27, 12, 0, tzinfo=UTC)
IRIS = Iris("https://kg.example")
RETENTION = RetentionSettings(days=90, classes={"Pod": 14})


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store on disk."""
    opened = EmbeddedStore(tmp_path / "store")
    yield opened
    opened.close()


def buried(kind: str, days: float, owner: str = "kubernetes:prod") -> GraphWrite:
    """A tombstone that is so many days old."""
    graph = IRIS.object("prod", "shop", kind, f"x-{days}")
    return GraphWrite(
        graph,
        remains(graph, kind, IRIS.parse(graph).name, IRIS.cluster("prod"), (), None, NOW - timedelta(days=days)),
        owner,
    )


def left(store: EmbeddedStore) -> set[str]:
    """The short ids of what is stored."""
    return {IRIS.short(each.graph).removeprefix("prod/shop/") for each in store.entries()}


def test_each_class_has_its_own_retention(store: EmbeddedStore) -> None:
    """Pods go after a fortnight, the rest after 90 days, whoever owns them; what lives stays."""
    sink, _ = follow(
        [
            upserted(
                {
                    "kind": "Pod",
                    "metadata": {
                        "name": "old",
                        "namespace": "shop",
                        "uid": "u",
                        "creationTimestamp": "2020-01-01T00:00:00Z",
                    },
                }
            )
        ]
    )
    living = IRIS.object("prod", "shop", "Pod", "old")
    store.apply([GraphWrite(living, sink.graphs[living], "test")])
    store.apply(
        [
            buried("Pod", 13.9),
            buried("Pod", 14.1),
            buried("Deployment", 14.1),
            buried("Deployment", 89.9),
            buried("Deployment", 90.1),
            buried("Job", 91, "user"),
        ]
    )

    assert purge(store, RETENTION, NOW) == 3
    assert left(store) == {"pod/old", "pod/x-13.9", "deployment/x-14.1", "deployment/x-89.9"}
    generation = store.generation
    assert purge(store, RETENTION, NOW) == 0
    assert store.generation == generation


def test_a_tombstone_that_is_written_over_meanwhile_stays(store: EmbeddedStore) -> None:
    """Between the look and the write somebody may put a living graph there; that one is not removed, the others are."""
    old, other = buried("Pod", 20), buried("Pod", 30)
    store.apply([old, other])
    living = frozenset({f'<{old.graph}> <https://w3id.org/drumlin/ns#name> "x" .'})

    class Raced:
        """The store, with somebody who writes after the second look."""

        apply, entries, looks = store.apply, store.entries, 0

        def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
            """Answer, and after the second time write."""
            found = store.look_up(query, values)
            self.looks += 1
            if self.looks == 2:
                store.apply([GraphWrite(old.graph, living, old.owner)])
            return found

    assert purge(Raced(), RETENTION, NOW) == 1
    assert {each.graph for each in store.entries()} == {old.graph}


def test_an_object_that_comes_back_after_its_tombstone_is_gone_starts_anew() -> None:
    """A purged entity has no past; what comes under its name is new."""
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "shop", "uid": "u"},
        "status": {"startTime": "2026-11-01T00:00:00Z"},
    }
    sink, run = follow([upserted(pod), gone(pod)], one_by_one=True)
    assert purge(sink, RetentionSettings(days=0, classes={}), NOW + timedelta(days=1)) == 1
    again = {**pod, "metadata": {**pod["metadata"], "uid": "v"}}
    run.take(upserted(again))
    run.flush(everything=True)

    graph = sink.graphs[IRIS.object("prod", "shop", "Pod", "a")]
    assert sum("#Run>" in line for line in graph) == 1


def test_the_job_purges_at_its_start_and_ends_when_told(store: EmbeddedStore) -> None:
    """The service has it in a thread that does not outlive it."""
    store.apply([buried("Pod", 20)])
    job = Retention(store, RETENTION, lambda: NOW)
    job.start()
    deadline = time.monotonic() + 20
    while left(store):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    job.stop()

    assert not job._thread.is_alive()
