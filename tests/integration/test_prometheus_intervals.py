"""How often a server scrapes is learned from it, per job, so that rates have the window they need and steps do not repeat points."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta

import pytest

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.intervals import KEPT, Intervals
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from tests.integration.test_prometheus_faults import FaultServer, server  # noqa: F401  # a fixture
from tests.integration.test_prometheus_history import CHECKOUT, NODE_A, _graph
from tests.unit.telemetry_store import IRIS

TARGETS = [
    {"labels": {"job": "kubelet"}, "scrapeInterval": "1m"},
    {"labels": {"job": "kubelet"}, "scrapeInterval": "30s"},
    {"labels": {"job": "node"}, "scrapeInterval": "1m30s"},
    {"labels": {"job": "odd"}, "scrapeInterval": "soon"},
    {"labels": {}},
]


def _datasource(url: str, **more: object) -> Datasource:
    given = {"name": "p", "kind": "prometheus", "url": url, "timeout": 20, **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def _url(running: FaultServer) -> str:
    return f"http://127.0.0.1:{running.server_port}"


def _targets(targets: list[object]) -> tuple[int, dict[str, str], bytes]:
    return 200, {}, json.dumps({"status": "success", "data": {"activeTargets": targets}}).encode()


def _up(**scrapes: int) -> tuple[int, dict[str, str], bytes]:
    result = [{"metric": {"job": job}, "value": [1, str(count)]} for job, count in scrapes.items()]
    return 200, {}, json.dumps({"status": "success", "data": {"resultType": "vector", "result": result}}).encode()


def test_a_rate_looks_back_four_scrapes(server: FaultServer) -> None:  # noqa: F811  a fixture
    """The kubelet of this server is scraped once a minute, so a rate of five seconds looks back four minutes."""
    server.replies = [_targets(TARGETS)]
    resolver = Resolver(_graph(), IRIS, [_datasource(_url(server))], intervals=Intervals())
    now = datetime(2026, 11, 1, 1, tzinfo=UTC)

    found = resolver.resolve(CHECKOUT, "cpu_usage", Window.last("10m", now), step="5s")

    assert "[299999ms]" in found.query  # and a scrape
    assert found.warnings == ("the step is shorter than p's scrape interval, so points repeat",)


def test_each_job_has_its_own(server: FaultServer) -> None:  # noqa: F811  a fixture
    """The slowest target of a job counts; a query that names no known job takes the longest of all."""
    server.replies = [_targets(TARGETS)]
    datasource, intervals = _datasource(_url(server), jobs={"node-exporter": "node"}), Intervals()

    assert intervals.of(datasource, 'a{job="kubelet"}') == timedelta(minutes=1)
    assert intervals.of(datasource, 'a{job="node-exporter"} / a{job="kubelet"}') == timedelta(seconds=90)
    assert intervals.of(datasource, "kepler_joules_total") == timedelta(seconds=90)
    assert [form.get("query") for form in server.forms] == [None, "increase_prometheus(up[1m])"]  # asked once


@pytest.mark.parametrize("answer", [_targets([]), (404, {}, b"404 page not found")])
def test_a_server_without_targets_is_known_by_its_scrapes(
    server: FaultServer,  # noqa: F811  a fixture
    answer: tuple[int, dict[str, str], bytes],
) -> None:
    """What was sent from elsewhere (Mimir, VictoriaMetrics) has ``up``: its points of an hour are counted."""
    server.replies = [answer, _up(a=240, b=121, c=59, d=12, e=8)]
    with Prometheus(_datasource(_url(server))) as client:
        found = client.scrape_intervals()

    seconds = {job: each.total_seconds() for job, each in found.items()}
    assert seconds == {"a": 15, "b": 30, "c": 60, "d": 300, "e": 450}


def test_what_is_configured_is_not_asked_for(server: FaultServer) -> None:  # noqa: F811  a fixture
    """A configured interval holds, and the server is not asked."""
    server.replies = [_targets(TARGETS)]

    assert Intervals().longest(_datasource(_url(server), scrape_interval="10s")) == timedelta(seconds=10)
    assert server.forms == []


def test_a_server_that_does_not_tell_is_asked_again_later(server: FaultServer) -> None:  # noqa: F811  a fixture
    """The usual interval at once, asked again after a minute; what was learned holds for an hour."""
    at = [0.0]
    datasource, intervals = _datasource(_url(server)), Intervals(clock=lambda: at[0])
    server.replies = [(500, {}, b"not now")]
    assert intervals.longest(datasource) == timedelta(seconds=30)

    server.replies = [_targets(TARGETS)]
    assert intervals.longest(datasource) == timedelta(seconds=30)
    at[0] = 61
    assert intervals.longest(datasource) == timedelta(seconds=90)
    server.replies = [_targets(TARGETS[:1])]
    at[0] = KEPT
    assert intervals.longest(datasource) == timedelta(seconds=90)
    at[0] = KEPT + 62
    assert intervals.longest(datasource) == timedelta(minutes=1)


def test_an_automatic_step_is_a_scrape_at_least(server: FaultServer) -> None:  # noqa: F811  a fixture
    """Where targets are scraped every ninety seconds, points every minute would repeat."""
    server.replies = [_targets(TARGETS)]
    resolver = Resolver(_graph(), IRIS, [_datasource(_url(server))], intervals=Intervals())
    with History(resolver) as history:
        assert history.plan(NODE_A, "mem_usage", last="2h").step == timedelta(seconds=120)
        assert history.plan(NODE_A, "mem_usage", last="2h", step="1m").step == timedelta(seconds=60)


def test_the_jobs_of_a_template_are_found() -> None:
    """What stands after job= and job=~ counts, whatever the order and the quotes; another name for the label is known too."""
    query = """sum(a{job="x",n="job"}) / b{n="1", job='y'} + c{job=~"z"} + d{job!="w"} # job="v" """

    assert promql.jobs(query) == {"x", "y", "=~z"}
    assert promql.jobs('a{service="s"}', "service") == {"s"}
