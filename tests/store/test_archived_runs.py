"""Resolving reads the run archive: pods whose tombstones are gone, and since when all of them are known."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.store.run_archive import MOST_RUNS, ArchivedRun, RunArchive
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.resolution import Resolution
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from tests.unit.telemetry_store import IRIS, GraphStore, pod, workload

T0 = datetime(2026, 11, 1, tzinfo=UTC)
WEB, TICK = IRIS.object("prod", "shop", "Deployment", "web"), IRIS.object("prod", "shop", "CronJob", "tick")


def day(number: float) -> datetime:
    """Return a time so many days after ``T0``."""
    return T0 + timedelta(days=number)


def seconds(number: float) -> int:
    """Return the same in seconds."""
    return int(day(number).timestamp())


def text(number: float) -> str:
    """Return the same as the graph has it."""
    return day(number).isoformat().replace("+00:00", "Z")


@pytest.fixture
def archive(tmp_path: Path) -> Iterator[RunArchive]:
    """An archive."""
    with closing(RunArchive(tmp_path, "s")) as opened:
        yield opened


def resolve(archive: RunArchive, entity: str, first: float, last: float, **more: str) -> Resolution:
    """Resolve memory by the hour in a graph that knows the pods of day 20 and later."""
    store = GraphStore(
        [
            workload("Deployment", "shop", "web", began=text(20)),
            workload("CronJob", "shop", "tick", began=text(20)),
            pod("shop", "web-86b96c86dc-ddddd", WEB, [(text(20), None)]),
            pod("shop", "web-facade-bcdfg", IRIS.object("prod", "shop", "DaemonSet", "web-facade"), [(text(20), None)]),
            {"id": IRIS.cluster("prod"), "type": "Cluster", "name": "prod"},
        ]
    )
    given = {"name": "main", "kind": "prometheus", "url": "http://main:9090", "scrape_interval": "30s"}
    server = Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)
    resolver = Resolver(store, IRIS, [server], archive=archive)
    return resolver.resolve(entity, "mem_usage", Window(day(first), day(last)), step="1h", **more)


def told(found: Resolution) -> list[tuple[str, float, float]]:
    """Return the intervals, in days."""
    return [
        (each.selector, (each.start - T0) / timedelta(days=1), (each.end - T0) / timedelta(days=1))
        for each in found.intervals
    ]


def test_archived_pods_are_named_where_all_runs_are_known(archive: RunArchive) -> None:
    """Before that time the pattern is asked for, without a pod that the graph knows as another's."""
    archive.add(
        [ArchivedRun(WEB, f"u{n}", f"web-86b96c86dc-{n * 5}", None, seconds(9 + n), seconds(10 + n)) for n in range(8)]
    )
    archive.note("known", "prod", [""], seconds(10), seconds(30))

    found = resolve(archive, WEB, 5, 30)

    hour = 1 / 24
    assert told(found) == [("pattern", 5, 10), ("exact", 10 + hour, 30)]
    assert found.parts[0].query.count('pod!~"web-facade-bcdfg"') == 1
    names = sorted(f"web-86b96c86dc-{n * 5}" for n in range(1, 8))  # the first one ended when all began to be known
    assert found.parts[1].pods == (*names, "web-86b96c86dc-ddddd")
    assert "pod!~" not in found.parts[1].query
    assert told(resolve(archive, WEB, 5, 30, selector="exact")) == [("exact", 5, 30)]
    assert resolve(archive, WEB, 12, 13).pods == ("web-86b96c86dc-10", "web-86b96c86dc-15", "web-86b96c86dc-20")


def test_a_time_in_which_nobody_followed_is_asked_for_by_the_pattern(archive: RunArchive) -> None:
    """Two days without a service lie between; what was read of them afterwards for the namespace closes the gap."""
    archive.note("known", "prod", [""], seconds(1), seconds(22))
    archive.note("known", "prod", [""], seconds(24), seconds(30))

    assert [each[0] for each in told(resolve(archive, WEB, 21, 30))] == ["exact", "pattern", "exact"]
    archive.note("known", "prod", ["batch"], seconds(22), seconds(24))
    assert [each[0] for each in told(resolve(archive, WEB, 21, 30))] == ["exact", "pattern", "exact"]
    archive.note("known", "prod", ["shop"], seconds(22), seconds(24))
    assert told(resolve(archive, WEB, 21, 30)) == [("exact", 21, 30)]
    assert resolve(archive, WEB, 21, 30).pods == ("web-86b96c86dc-ddddd",)


def test_the_last_point_is_known_while_the_cluster_is_followed(archive: RunArchive) -> None:
    """Some seconds after it was last noted that the cluster is followed, nothing is unknown yet; after some minutes it is."""
    archive.note("known", "prod", [""], seconds(1), seconds(30) - 60)
    assert told(resolve(archive, WEB, 21, 30)) == [("exact", 21, 30)]
    assert told(resolve(archive, WEB, 21, 31))[-1][0] == "pattern"


def test_where_runs_are_folded_the_pattern_is_asked_for(archive: RunArchive) -> None:
    """Of a Job every five minutes the oldest runs are no longer named; those that are kept are."""
    archive.note("known", "prod", [""], 0, seconds(30))
    count, first = MOST_RUNS + 288, seconds(10)
    archive.add(
        ArchivedRun(TICK, f"u{n}", f"tick-{n:08}-bcdfg", f"{TICK}-{n}", first + 300 * n, first + 300 * n + 200)
        for n in range(count)
    )

    found = resolve(archive, TICK, 5, 12)

    assert [each[0] for each in told(found)] == ["exact", "pattern", "exact"]
    assert told(found)[1][1] == 10
    assert told(found)[1][2] == pytest.approx(11, abs=0.05)
    assert len(found.pods) == 289
