"""Tombstones are removed when their retention is over, and nothing else ever is."""

from __future__ import annotations

import itertools
import json
import time
from collections.abc import Callable, Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from drumlin.exporters.pipeline.runs import Run, text
from drumlin.exporters.pipeline.tombstones import remains
from drumlin.exporters.retention import Retention, purge
from drumlin.kg.config.settings import RetentionSettings
from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.observed_time import FILE, ObservedTime
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite, Row
from drumlin.kg.store.remote.store import RemoteStore
from drumlin.kg.store.run_archive import ArchivedRun
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


def since(now: datetime) -> Callable[[timedelta], datetime]:
    """Return the moments before now, all of whose time was observed."""
    return lambda age: now - age


def buried(kind: str, days: float, owner: str = "kubernetes:prod") -> GraphWrite:
    """A tombstone that is so many days old."""
    graph = IRIS.object("prod", "shop", kind, f"x-{days}")
    return GraphWrite.of(
        graph,
        remains(graph, kind, IRIS.parse(graph).name, IRIS.cluster("prod"), (), {}, NOW - timedelta(days=days)),
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
    store.apply([GraphWrite.of(living, sink.graphs[living], "test")])
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

    assert purge(store, RETENTION, since(NOW)) == 3
    assert left(store) == {"pod/old", "pod/x-13.9", "deployment/x-14.1", "deployment/x-89.9"}
    generation = store.generation
    assert purge(store, RETENTION, since(NOW)) == 0
    assert store.generation == generation


def run_over(graph: str, kind: str, manager: str | None, days: float) -> GraphWrite:
    """The tombstone of what ran for an hour until so many days ago."""
    ended = NOW - timedelta(days=days)
    run = Run(
        "u1", text(ended - timedelta(hours=1)), text(ended), "Completed", node=IRIS.object("prod", None, "Node", "a")
    )
    name, runs = IRIS.parse(graph).name, [run] if kind == "Pod" else []
    return GraphWrite.of(
        graph,
        remains(graph, kind, name, IRIS.cluster("prod"), runs, {"managedBy": manager} if manager else {}, ended),
        "kubernetes:prod",
    )


@pytest.mark.parametrize("job_days", [13, 20, 95])
def test_the_runs_of_pods_move_to_the_archive(store: EmbeddedStore, job_days: float) -> None:
    """By workload; a Job's under its CronJob too, whether the Job's tombstone stays, goes with the pod's or went before."""
    web, cron = IRIS.object("prod", "shop", "Deployment", "web"), IRIS.object("prod", "shop", "CronJob", "tick")
    job = IRIS.object("prod", "shop", "Job", "tick-29400000")
    pods = [IRIS.object("prod", "shop", "Pod", name) for name in ("web-1", "tick-29400000-x", "bare", "young")]
    if job_days < 90:
        store.apply([run_over(job, "Job", cron, job_days)])
    managers = (web, job, None, web)
    store.apply(
        [
            run_over(each, "Pod", manager, 3 if "young" in each else 20)
            for each, manager in zip(pods, managers, strict=True)
        ]
    )

    assert purge(store, RetentionSettings(days=15, classes={}), since(NOW), store.archive) == 3 + (job_days == 20)
    until = NOW.timestamp()
    (kept,) = store.archive.runs([web], 0, until)[web]
    ended = int((NOW - timedelta(days=20)).timestamp())
    node = IRIS.object("prod", None, "Node", "a")
    assert kept == ArchivedRun(web, "u1", "web-1", None, ended - 3600, ended, node, "Completed")
    assert [each.pod for each in store.archive.runs([cron], 0, until)[cron]] == ["tick-29400000-x"]
    assert store.archive.runs([job], 0, until)[job][0].workload == cron
    assert store.archive.counts() == (2, 0)


def test_the_archive_forgets_a_workload_with_its_tombstone(store: EmbeddedStore) -> None:
    """Nobody can ask for its history any more."""
    web = IRIS.object("prod", "shop", "Deployment", "web")
    store.archive.add([ArchivedRun(web, "u1", "web-1", None, 0, 9)])
    store.apply([run_over(web, "Deployment", None, 91)])

    assert purge(store, RETENTION, since(NOW), store.archive) == 1
    assert store.archive.counts() == (0, 0)


def test_a_tombstone_that_is_written_over_meanwhile_stays(store: EmbeddedStore) -> None:
    """Between the look and the write somebody may put a living graph there; that one is not removed, the others are."""
    old, other = buried("Pod", 20), buried("Pod", 20.5)
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
                store.apply([GraphWrite.of(old.graph, living, old.owner)])
            return found

    assert purge(Raced(), RETENTION, since(NOW)) == 1
    assert {each.graph for each in store.entries()} == {old.graph}


def test_an_object_that_comes_back_after_its_tombstone_is_gone_starts_anew() -> None:
    """A purged entity has no past; what comes under its name is new."""
    pod = {
        "kind": "Pod",
        "metadata": {"name": "a", "namespace": "shop", "uid": "u"},
        "status": {"startTime": "2026-11-01T00:00:00Z"},
    }
    sink, run = follow([upserted(pod), gone(pod)], one_by_one=True)
    assert purge(sink, RetentionSettings(days=0, classes={}), since(NOW + timedelta(days=1))) == 1
    again = {**pod, "metadata": {**pod["metadata"], "uid": "v"}}
    run.take(upserted(again))
    run.flush(everything=True)

    graph = sink.graphs[IRIS.object("prod", "shop", "Pod", "a")]
    assert sum("#Run>" in line for line in graph) == 1


def test_the_job_purges_at_its_start_and_ends_when_told(store: EmbeddedStore) -> None:
    """The service has it in a thread that does not outlive it."""
    store.apply([buried("Pod", 20)])
    job = Retention(store, RETENTION, ObservedTime(None, lambda: NOW))
    job.start()
    deadline = time.monotonic() + 20
    while left(store):
        assert time.monotonic() < deadline
        time.sleep(0.01)
    job.stop()

    assert not job._thread.is_alive()


class Machine:
    """A clock that may jump, and a service that looks every hour, in a store's directory."""

    def __init__(self, directory: Path, store: EmbeddedStore) -> None:
        self.wall, self.ticks, self.store, self.directory = NOW, 0.0, store, directory
        self.start()

    def start(self) -> None:
        """Begin a process: it knows what an earlier one has observed."""
        observed = ObservedTime(self.directory / FILE, lambda: self.wall, monotonic=lambda: self.ticks)
        self.job = Retention(self.store, RETENTION, observed)
        self.job.turn()

    def run(self, hours: int) -> None:
        """Be there for so long."""
        for _ in range(hours):
            self.wall += timedelta(hours=1)
            self.ticks += 3600
            self.job.turn()


@pytest.mark.parametrize("restarts", [True, False])
def test_a_clock_that_jumps_ahead_and_back_removes_nothing(
    store: EmbeddedStore, tmp_path: Path, *, restarts: bool
) -> None:
    """100 days ahead for some hours, with a start of the service or without: nothing is older for that, then or later."""
    machine = Machine(tmp_path, store)
    machine.run(3)
    store.apply([buried("Pod", 0), buried("Deployment", 0)])
    for jump in (100, -100):
        machine.wall += timedelta(days=jump)
        if restarts:
            machine.start()
        machine.run(5)
        assert left(store) == {"pod/x-0", "deployment/x-0"}
    machine.run(24 * 14 - 20)
    assert left(store) == {"pod/x-0", "deployment/x-0"}
    machine.run(20)
    assert left(store) == {"deployment/x-0"}


def test_time_without_the_service_does_not_count(store: EmbeddedStore, tmp_path: Path) -> None:
    """A service that was not there for a year keeps what it had for the rest of its retention; a restart costs nothing."""
    machine = Machine(tmp_path, store)
    store.apply([buried("Pod", 0)])
    machine.run(24 * 10)
    machine.wall += timedelta(days=365)
    machine.start()
    for _ in range(10):
        machine.run(9)
        machine.wall += timedelta(minutes=30)
        machine.start()
    assert left(store) == {"pod/x-0"}
    machine.run(6)
    assert left(store) == set()


def test_a_clock_that_is_wrong_from_the_first_start_removes_a_day_at_once(store: EmbeddedStore, tmp_path: Path) -> None:
    """What cannot be known to be wrong does little harm until somebody sees it."""
    store.apply([buried("Pod", days) for days in (14, 12, 11.5, 1, 0)])
    machine = Machine(tmp_path, store)
    machine.wall += timedelta(days=100)
    (tmp_path / FILE).unlink()
    machine.start()
    assert len(left(store)) == 4
    machine.job.turn()
    assert len(left(store)) == 2


@pytest.mark.parametrize("damage", ["", "[]", "{}", "[[1,2],[3]]", "[[2,1]]", '[["1",2]]', "[[5,6],[1,2]]", "\0"])
def test_retention_begins_anew_when_what_was_observed_is_lost(
    store: EmbeddedStore, tmp_path: Path, damage: str
) -> None:
    """A damaged file counts for nothing: everything is kept for as long again, and the file is whole."""
    (tmp_path / FILE).write_text(damage)
    store.apply([buried("Pod", 20)])
    machine = Machine(tmp_path, store)
    machine.run(24 * 13)
    machine.start()
    machine.run(23)
    assert left(store) == {"pod/x-20"}
    machine.run(2)
    assert left(store) == set()


def test_the_file_of_what_was_observed_stays_small(tmp_path: Path) -> None:
    """Of a thousand starts on a thousand days there is a thousand spans at most, and the oldest lose nothing."""
    days = itertools.count()
    for _ in range(1005):
        observed = ObservedTime(tmp_path / FILE, lambda: NOW + timedelta(days=next(days)), monotonic=lambda: 0.0)
        observed.observe()
    assert len(json.loads((tmp_path / FILE).read_text())) == 1000
    assert observed.cutoff(timedelta(seconds=1)) > NOW


@pytest.mark.parametrize("year", [1960, 1970, 2019, 2200, 9999])
def test_an_impossible_clock_is_refused_before_anything_is_made(tmp_path: Path, year: int) -> None:
    """In words, whichever store it is; nothing is left behind."""
    wrong = datetime(year, 6, 1, tzinfo=UTC)
    with pytest.raises(StoreUnavailable, match=f"the clock of this machine says {year}-06-01") as refused:
        EmbeddedStore(tmp_path / "new", clock=lambda: wrong)
    assert "NTP" in (refused.value.hint or "")
    assert not (tmp_path / "new").exists()
    with pytest.raises(StoreUnavailable, match="clock"):
        RemoteStore("sparql+http://127.0.0.1:1", clock=lambda: wrong)
