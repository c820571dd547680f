"""The odd cases of a history, on a real Prometheus: each equals what was computed by hand from the samples that were written."""

from __future__ import annotations

from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest

from drumlin.kg.errors import DatasourceRefused, InvalidInput, MetricMissing
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.history import History, SeriesTable
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Gap, Grid, Key
from tests.integration.conftest import DAYS, WIDE, RealPrometheus, at, available
from tests.integration.remote_write import STALE, histogram, sample, write
from tests.integration.test_prometheus_cache import Proxy, proxy  # noqa: F401  # a fixture
from tests.integration.test_prometheus_history import CHECKOUT, NODE_A, _graph, _time
from tests.unit.telemetry_store import CLUSTER, IRIS, GraphStore, pod, workload

WIDE_ID, SLOW, DYING = (f"prod/shop/{kind}" for kind in ("deployment/wide", "statefulset/slow", "statefulset/dying"))
NODE_DST = "prod/-/node/edge-dst"
BERLIN = ZoneInfo("Europe/Berlin")
LATER = 20_000
"""Minute since ``T0`` of what is written remotely: after all that was backfilled."""


def _documents() -> GraphStore:
    store = _graph()
    store.add(
        [
            workload("Deployment", "shop", "wide", began=_time(0)),
            *(pod("shop", name, IRIS.expand(WIDE_ID), [(_time(0), None)]) for name in WIDE),
            workload("StatefulSet", "shop", "slow", began=_time(0)),
            pod("shop", "slow-0", IRIS.expand(SLOW), [(_time(0), None)]),
            workload("StatefulSet", "shop", "dying", began=_time(0)),
            pod("shop", "dying-0", IRIS.expand(DYING), [(_time(0), None)]),
            {"id": IRIS.expand(NODE_DST), "type": "Node", "name": "edge-dst", "partOf": CLUSTER},
        ]
    )
    return store


@pytest.fixture(scope="module")
def graph() -> GraphStore:
    """The graph with the entities of the matrix."""
    return _documents()


@pytest.fixture
def history(prometheus: RealPrometheus, graph: GraphStore) -> Iterator[History]:
    """History over that graph and the real server."""
    with History(Resolver(graph, IRIS, [prometheus.datasource()])) as opened:
        yield opened


def history_grid(first: int = 0, last: int = 239) -> Grid:
    """Return a grid by the minute since ``T0``."""
    return Grid(int(at(first).timestamp()), int(at(last).timestamp()), 60)


def _minutes(series: SeriesTable) -> dict[float, float | None]:
    """Return the values by minute since ``T0``."""
    times = [(each - at(0)).total_seconds() / 60 for each in series.table["ds"].to_pylist()]
    return dict(zip(times, series.table["y"].to_pylist(), strict=True))


def test_two_replicas_that_tell_the_same_count_once(history: History) -> None:
    """Half a core of two is a quarter, though two kube-state-metrics tell the limit; and so for the pod that followed."""
    found = _minutes(history.fetch(CHECKOUT, "cpu_utilisation", start=at(10), end=at(230), step="10m"))

    # The first pod's last sample is that of 1:59. At 2:00 both pods' limits are recent, so four cores are told for half a core used.
    assert found == pytest.approx(
        {m: 12.5 * 9 / 10 if m == 120 else 25.0 if m < 120 else 12.5 for m in range(10, 240, 10)}
    )


def test_a_scrape_interval_beyond_the_step_repeats_and_says_so(prometheus: RealPrometheus, graph: GraphStore) -> None:
    """Five minutes between scrapes, one between points: each value stands five times, rates are right, a warning tells."""
    server = prometheus.datasource(scrape_interval="5m")
    with History(Resolver(graph, IRIS, [server])) as history:
        memory = history.fetch(SLOW, "mem_usage", start=at(60), end=at(120), step="1m")
        cpu = history.fetch(SLOW, "cpu_usage", start=at(60), end=at(120), step="1m")

    assert _minutes(memory) == {m: 100.0 + m // 5 * 5 for m in range(60, 121)}
    assert list(_minutes(cpu).values()) == pytest.approx([0.75] * 61)
    assert any("shorter than prometheus-main's scrape interval" in each for each in memory.warnings)


def test_a_window_that_is_too_short_for_two_scrapes_counts_all_the_same(
    prometheus: RealPrometheus, graph: GraphStore
) -> None:
    """With the interval believed to be a minute, windows of four minutes hold a scrape at most: what was counted since the last adds up."""
    with History(Resolver(graph, IRIS, [prometheus.datasource()])) as history:
        found = _minutes(history.fetch(SLOW, "cpu_usage", start=at(60), end=at(119), step="1m"))
    assert sum(found.values()) / 60 == pytest.approx(0.75)


def test_a_rate_that_finds_no_two_scrapes_is_an_error(prometheus: RealPrometheus, graph: GraphStore) -> None:
    """A caller's own PromQL whose range is too short has no point: the error says so, and no zeros come."""
    rate = "sum(rate(container_cpu_usage_seconds_total[4m]))"
    with (
        History(Resolver(graph, IRIS, [prometheus.datasource()])) as history,
        pytest.raises(MetricMissing, match="no point of the query in the window") as error,
    ):
        history.fetch(SLOW, "promql", query=rate, start=at(62), end=at(64), step="1m")
    assert "two scrapes" in (error.value.hint or "")


def test_the_end_of_summer_time_leaves_the_grid_regular(history: History) -> None:
    """A day of Berlin's wall clock that has 25 hours is 26 hourly points of UTC, each an hour after the other."""
    start, end = datetime(2026, 10, 25, tzinfo=BERLIN), datetime(2026, 10, 26, tzinfo=BERLIN)
    series = history.fetch(NODE_DST, "mem_usage", start=start, end=end, step="1h")

    stamps = series.table["ds"].to_pylist()
    assert stamps == [datetime(2026, 10, 24, 22, tzinfo=UTC) + timedelta(hours=n) for n in range(26)]
    assert list(_minutes(series).values()) == [4_000_000.0 - available(int(m)) for m in _minutes(series)]


def test_the_last_day_is_24_hours_over_a_change_of_the_clock(prometheus: RealPrometheus, graph: GraphStore) -> None:
    """``last`` counts time, not the wall clock: its day has 24 hours also when the clock was set back in it."""
    noon = datetime(2026, 10, 25, 12, tzinfo=BERLIN)
    with History(Resolver(graph, IRIS, [prometheus.datasource()]), clock=lambda: noon) as history:
        series = history.fetch(NODE_DST, "mem_usage", last="1d", step="1h")

    assert series.grid.window == (datetime(2026, 10, 24, 11, tzinfo=UTC), datetime(2026, 10, 25, 11, tzinfo=UTC))
    assert series.coverage == {Key(NODE_DST, "mem_usage"): 1.0}


def test_times_without_a_zone_are_refused(history: History) -> None:
    """A naive time would mean another hour on each machine."""
    with pytest.raises(InvalidInput, match="without a zone"):
        history.fetch(NODE_A, "mem_usage", start=datetime(2026, 11, 1), end=datetime(2026, 11, 2))  # noqa: DTZ001  naive on purpose


def test_a_window_in_the_future_is_an_error(history: History) -> None:
    """Nobody has measured it yet: an error that says what is missing, not an empty table."""
    with pytest.raises(MetricMissing):
        history.fetch(NODE_A, "mem_usage", start=at(600_000), end=at(600_060), step="1m")


def test_points_before_the_oldest_sample_are_a_gap(history: History) -> None:
    """A window that begins before the first sample has nulls there, counted in coverage and listed, and its values after."""
    series = history.fetch(NODE_A, "mem_usage", start=at(-30), end=at(30), step="10m")

    assert _minutes(series) == {m: None if m < 0 else 4_000_000.0 - available(m) for m in range(-30, 40, 10)}
    key = Key(NODE_A, "mem_usage")
    assert series.gaps[key] == (Gap(at(-30), at(-10)),)
    assert series.coverage[key] == pytest.approx(4 / 7)


def test_points_after_the_newest_sample_are_a_gap(history: History) -> None:
    """A window that ends in the future ends with nulls, after the five minutes that a server looks back."""
    last = DAYS * 1440
    series = history.fetch(NODE_A, "mem_usage", start=at(last - 2), end=at(last + 8), step="1m")

    newest = 4_000_000.0 - available(last - 1)
    found = _minutes(series)
    assert [found[m] for m in range(last - 1, last + 4)] == [newest] * 5
    assert [found[m] for m in range(last + 5, last + 9)] == [None] * 4


def test_more_samples_than_a_query_may_load_are_computed_not_tried(
    prometheus: RealPrometheus,
    graph: GraphStore,
    proxy: Proxy,  # noqa: F811  a fixture
) -> None:
    """300 series of 240 points are beyond this server's 50,000 samples: asked in parts from the start, none of them refused."""
    behind = RealPrometheus(f"http://127.0.0.1:{proxy.server_port}").datasource(max_samples=50_000)
    with History(Resolver(graph, IRIS, [behind])) as history:
        found = _minutes(history.fetch(WIDE_ID, "mem_usage", start=at(0), end=at(239), step="1m"))
        assert found == {m: 300.0 * (1 + m) for m in range(240)}
    assert len(proxy.spans) == 6
    assert proxy.statuses == [200] * 6
    with Prometheus(prometheus.datasource()) as client, pytest.raises(DatasourceRefused, match="too many samples"):
        client._range(f'sum(container_memory_working_set_bytes{{pod=~"{"|".join(WIDE)}"}})', history_grid())


def test_a_staleness_marker_ends_a_series_within_two_scrapes(prometheus: RealPrometheus, history: History) -> None:
    """The last sample counts for two and a half scrapes, marked or not: then the gap begins, and ends with the next sample."""
    labels = {"__name__": "container_memory_working_set_bytes", "job": "kubelet", "metrics_path": "/metrics/cadvisor"}
    labels |= {"namespace": "shop", "pod": "dying-0", "container": "c"}
    seconds = int(at(LATER).timestamp())
    values = [*((m, float(m)) for m in range(11)), (11, STALE), *((m, float(m)) for m in range(20, 31))]
    write(prometheus.url, labels, [sample(seconds + 60 * m, value) for m, value in values])

    series = history.fetch(DYING, "mem_usage", start=at(LATER), end=at(LATER + 30), step="1m")

    expected = {LATER + m: None if 13 <= m < 20 else float(min(m, 10) if m < 20 else m) for m in range(31)}
    assert _minutes(series) == expected
    assert series.gaps[Key(DYING, "mem_usage")] == (Gap(at(LATER + 13), at(LATER + 19)),)


def test_native_histograms_are_refused_with_advice_and_read_by_a_function(prometheus: RealPrometheus) -> None:
    """A histogram is no number: told as it is; its count, which is one, comes as a series."""
    seconds = int(at(LATER).timestamp())
    write(prometheus.url, {"__name__": "latency"}, [histogram(seconds + 60 * m, 10 * (m + 1)) for m in range(5)])
    grid = history_grid(LATER, LATER + 4)
    with Prometheus(prometheus.datasource()) as client:
        with pytest.raises(DatasourceRefused, match="answered with native histograms") as error:
            client.series("latency", grid)
        (part,) = client.series("histogram_count(latency)", grid).parts

    assert "histogram_quantile" in (error.value.hint or "")
    assert part.values.to_pylist() == [10.0, 20.0, 30.0, 40.0, 50.0]
