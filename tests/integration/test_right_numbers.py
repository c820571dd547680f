"""Histories of installations whose truth is known: each server × installation × metric × window is right."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest

from drumlin.kg.telemetry import doubles
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.doubles import Doubles
from drumlin.kg.telemetry.gathering import DatasourceClients
from drumlin.kg.telemetry.intervals import Intervals
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Grid, Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from drumlin.kg.telemetry.values import Values
from tests.integration import known_truth as known
from tests.integration.known_truth import ClusterLoad
from tests.integration.right_numbers import (
    DOWN,
    ENTITIES,
    LIMITS,
    POINT,
    Span,
    failing,
    filled,
    installations,
    measure,
    spans,
)
from tests.unit.telemetry_store import IRIS, GraphStore

DAYS, SCRAPE = 8, 60
LOAD = ClusterLoad(DAYS)
INSTALLATIONS = {each.name: each for each in (*installations(SCRAPE), failing(SCRAPE))}
USUAL = [each.name for each in installations(SCRAPE)]
SPANS = pytest.mark.parametrize("span", spans(DAYS), ids=lambda each: f"{each.name} {each.step}")
METRICS = pytest.mark.parametrize("metric", [each for each in ENTITIES if each != "node"])


@pytest.fixture(autouse=True)
def _patience(monkeypatch: pytest.MonkeyPatch) -> None:
    """Wait for a busy machine: a look that is given up takes everything for doubled, perhaps, and the mean of it."""
    monkeypatch.setattr(doubles, "_PATIENCE", 120.0)


@pytest.fixture(scope="module")
def prometheus_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Datasource]]:
    """A real Prometheus with every installation, by its name."""
    with filled("prometheus", tmp_path_factory.mktemp("prometheus"), LOAD, INSTALLATIONS.values()) as found:
        yield found


@pytest.fixture(scope="module")
def victoria_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Datasource]]:
    """A real VictoriaMetrics with those whose series end in other ways, and a doubled one."""
    some = [INSTALLATIONS[each] for each in (*ON_VICTORIA, FAILING)]
    with filled("victoriametrics", tmp_path_factory.mktemp("victoria"), LOAD, some) as found:
        yield found


@pytest.fixture(scope="module")
def influx_of(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Mapping[str, Datasource]]:
    """A real InfluxDB with one."""
    with filled("influxdb", tmp_path_factory.mktemp("influxdb"), LOAD, [INSTALLATIONS["plain"]]) as found:
        yield found


ON_VICTORIA = ("plain", "ends marked", "replicas")
FAILING = failing(SCRAPE).name


@SPANS
@METRICS
@pytest.mark.parametrize("name", USUAL)
def test_a_history_of_prometheus_is_right(
    prometheus_of: Mapping[str, Datasource], name: str, metric: str, span: Span
) -> None:
    """However targets are scraped: the total is the written samples', and no point is far off but within a window of an edge."""
    _holds(prometheus_of, name, metric, span)


@SPANS
@METRICS
@pytest.mark.parametrize("name", ON_VICTORIA)
def test_a_history_of_victoria_metrics_is_right(
    victoria_of: Mapping[str, Datasource], name: str, metric: str, span: Span
) -> None:
    """The same of a server whose rate and increase are others."""
    _holds(victoria_of, name, metric, span)


@METRICS
@pytest.mark.parametrize("span", [each for each in spans(DAYS) if "hours" in each.name], ids=lambda each: each.name)
def test_scrapes_that_fail_lose_nothing(prometheus_of: Mapping[str, Datasource], metric: str, span: Span) -> None:
    """Windows of few points are asked for precisely: the next sample has what was counted meanwhile."""
    off = measure(prometheus_of[FAILING], LOAD, INSTALLATIONS[FAILING], metric, span)
    assert abs(off.total) <= LIMITS[metric]


@SPANS
@pytest.mark.parametrize("interval", [15, 30, 60])
def test_victoria_metrics_counts_whatever_the_interval_is_taken_for(
    victoria_of: Mapping[str, Datasource], span: Span, interval: int
) -> None:
    """Of any length: scrapes that fail, and targets that are scraped less often than the configuration says, lose nothing."""
    server = replace(victoria_of[FAILING], scrape_interval=timedelta(seconds=interval))
    off = measure(server, LOAD, INSTALLATIONS[FAILING], "network_receive", span)
    assert abs(off.total) <= LIMITS["network_receive"]


@SPANS
@METRICS
def test_a_history_of_influxdb_is_right(influx_of: Mapping[str, Datasource], metric: str, span: Span) -> None:
    """The same of Telegraf's measurements."""
    _holds(influx_of, "plain", metric, span, means=True)


@SPANS
@pytest.mark.parametrize("name", ["plain", "replicas"])
def test_a_nodes_history_is_right(prometheus_of: Mapping[str, Datasource], name: str, span: Span) -> None:
    """A node that is scraped once or twice, and was started anew."""
    _holds(prometheus_of, name, "node", span)


def _asked(server: Datasource, metric: str = "cpu_usage") -> str:
    """Return the query of a day's history, as a service asks it that has looked for doubles."""
    day = Window(known.T0, known.T0 + timedelta(days=1))
    resolver = Resolver(GraphStore(LOAD.documents()), IRIS, [server], intervals=Intervals())
    return resolver.resolve(known.WEB, metric, day, step="5m").query


def test_only_where_something_is_doubled_one_is_made_of_it(
    prometheus_of: Mapping[str, Datasource], victoria_of: Mapping[str, Datasource]
) -> None:
    """A look finds which installation scrapes twice; its queries take one of two, the others' cost nothing more."""
    for servers in (prometheus_of, victoria_of):
        assert "topk by (namespace,pod,container,id,name,cpu) (1, count_over_time(" in _asked(servers["replicas"])
        assert " by " not in _asked(servers["plain"])
    assert "min by (namespace,pod,container) (avg by (" in _asked(prometheus_of["two jobs"], "mem_usage")
    assert "avg by (" in _asked(replace(prometheus_of["plain"], asks_doubled=False))  # nobody looked


@pytest.mark.parametrize("name", ["plain", "replicas"])
def test_a_current_value_is_right(prometheus_of: Mapping[str, Datasource], name: str) -> None:
    """A value is made of doubled series as a history is, also while one of two replicas is down; of others it costs nothing more."""
    moment = DOWN[0] + 150
    clients = DatasourceClients(lambda _: None)
    resolver = Resolver(GraphStore(LOAD.documents()), IRIS, [prometheus_of[name]], intervals=Intervals())
    values = Values(resolver, clients, clock=lambda: known.T0 + timedelta(seconds=moment))
    found = values.fetch([known.WEB], ["network_receive"])
    clients.close()

    ((_, query),) = found.queries
    assert ("topk by" in query) is (name == "replicas")
    assert "avg by" not in query
    true = LOAD.rate(known.NETWORK, np.array([moment]), 300)
    assert found.values[0].value == pytest.approx(true[0], rel=POINT)


def test_a_look_is_taken_once_for_a_span(prometheus_of: Mapping[str, Datasource]) -> None:
    """What was looked through holds, also within; a longer span is looked at where it is longer; a long one not at all."""
    server, query = prometheus_of["plain"], TemplateCatalogue.shipped().find("Workload", "cpu_usage").query
    limits = (Matcher("cluster", "=", "plain"),)
    looks = Doubles()
    asked: list[tuple[int, int]] = []
    look = looks._look

    def looked(datasource: Datasource, count: str, first: int, last: int) -> object:
        asked.append(((first - known.SECOND) // 3600, (last - known.SECOND) // 3600))
        return look(datasource, count, first, last)

    looks._look = looked  # type: ignore[method-assign, assignment]

    def seen(first: int, last: int, limits: tuple[Matcher, ...] = limits) -> bool | None:
        grid = Grid(known.SECOND + 3600 * first, known.SECOND + 3600 * last, 3600)
        return looks.seen(server, query, limits, grid)

    assert [seen(24, 48), seen(30, 40), seen(24, 49), seen(12, 72), seen(13, 71)] == [False] * 5
    assert asked == [(24, 48), (12, 24), (48, 72)]
    assert seen(0, 93 * 24) is None
    assert seen(24, 48, (Matcher("cluster", "=", "replicas"),)) is True
    assert Doubles().seen(replace(server, url="http://127.0.0.1:9"), query, limits, Grid(0, 3600, 3600)) is None
    assert Doubles().seen(replace(server, doubled=True, asks_doubled=False), query, limits, Grid(0, 3600, 3600)) is True


def _holds(servers: Mapping[str, Datasource], name: str, metric: str, span: Span, *, means: bool = False) -> None:
    off = measure(servers[name], LOAD, INSTALLATIONS[name], metric, span, means=means)
    assert abs(off.total) <= LIMITS[metric]
    assert off.point <= POINT
