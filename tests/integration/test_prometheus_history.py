"""Resolve and history against a real Prometheus equal what was computed by hand."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest

from drumlin.kg.errors import (
    DatasourceRefused,
    InvalidInput,
    MetricMissing,
    ResourceNotFound,
    SourceUnavailable,
    TooLarge,
)
from drumlin.kg.rdf.jsonld import NodeDocument, lines
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry import promql
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import Subject
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.history import History, SeriesTable
from drumlin.kg.telemetry.quoting import literally
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Grid, Key, Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.integration.conftest import RealPrometheus, at, available, odd_values
from tests.unit.telemetry_store import CLUSTER, IRIS, GraphStore, pod, workload

CHECKOUT = "prod/payments/deployment/checkout"
LEDGER = "prod/payments/deployment/ledger"
NODE_A, NODE_B = "prod/-/node/edge-a-1", "prod/-/node/edge-b-1"


def _time(minute: int) -> str:
    return at(minute).isoformat().replace("+00:00", "Z")


def documents() -> list[NodeDocument]:
    """Describe checkout with two pods, ledger with one, and two nodes."""
    checkout, ledger = IRIS.expand(CHECKOUT), IRIS.expand(LEDGER)
    return [
        workload("Deployment", "payments", "checkout", began=_time(0)),
        pod("payments", "checkout-86b96c86dc-aaaaa", checkout, [(_time(0), _time(120))], gone=True),
        pod("payments", "checkout-86b96c86dc-bbbbb", checkout, [(_time(120), None)]),
        workload("Deployment", "payments", "ledger", began=_time(0)),
        pod("payments", "ledger-797bcddfd6-n9hxf", ledger, [(_time(0), None)]),
        {"id": IRIS.expand(NODE_A), "type": "Node", "name": "edge-a-1", "partOf": CLUSTER},
        {"id": IRIS.expand(NODE_B), "type": "Node", "name": "edge-b-1", "partOf": CLUSTER},
    ]


def _graph() -> GraphStore:
    return GraphStore(documents())


@pytest.fixture
def history(prometheus: RealPrometheus) -> Iterator[History]:
    """History over the graph and the real server."""
    with History(Resolver(_graph(), IRIS, [prometheus.datasource()])) as opened:
        yield opened


@pytest.fixture
def client(prometheus: RealPrometheus) -> Iterator[Prometheus]:
    """A client of the real server."""
    with Prometheus(prometheus.datasource()) as opened:
        yield opened


def _fetch(server: Datasource, entity: str, metric: str, **more: object) -> SeriesTable:
    with History(Resolver(_graph(), IRIS, [server])) as opened:
        given = {"start": at(5), "end": at(235), "step": "5m", **more}
        return opened.fetch(entity, metric, **given)


YOUNG = 300 / 359.999
"""Of a rate over five minutes: what a series shows that has no sample before them, at a scrape a minute."""


def checkout_cpu() -> list[float]:
    """Return the cores that checkout used from minute 5 to 235, as its samples show: the first pod's last is that of minute 119."""
    whole = [0.5 if minute <= 120 else 0.25 for minute in range(5, 240, 5)]
    return [each * (4 / 5 if at == 23 else 1) for at, each in enumerate(whole)]


def checkout_cpu_by_rate() -> list[float]:
    """Return the same as the query of a resolution gives it: what a pod lacks before its first sample and after its last is extrapolated."""
    whole = [0.5 if minute <= 120 else 0.25 for minute in range(5, 240, 5)]
    return [each * (YOUNG if at in (0, 24) else 1) for at, each in enumerate(whole)]


def test_two_pods_with_disjoint_lives_give_one_series(history: History) -> None:
    """A deleted pod, a counter that restarts and a successor add up to the hand-computed series; a namesake is left out."""
    series = history.fetch(CHECKOUT, "cpu_usage", start=at(5), end=at(235), step="5m")

    assert series.table["y"].to_pylist() == pytest.approx(checkout_cpu())
    assert series.table["ds"].to_pylist() == [at(minute) for minute in range(5, 240, 5)]
    assert set(series.table["unique_id"].to_pylist()) == {CHECKOUT}
    assert series.queries[0].pods == ("checkout-86b96c86dc-aaaaa", "checkout-86b96c86dc-bbbbb")
    assert series.unit == "{cpu}"
    assert series.coverage == {Key(CHECKOUT, "cpu_usage"): 1.0}
    assert series.warnings == ()


def test_the_store_on_disk_gives_the_same(prometheus: RealPrometheus, tmp_path: Path) -> None:
    """With the graph in the embedded store the series is the same, and a near name is suggested from it."""
    store = EmbeddedStore(tmp_path / "store")
    store.apply([GraphWrite.of(document["id"], lines(document), "dump") for document in documents()])
    try:
        with History(Resolver(store, IRIS, [prometheus.datasource()])) as opened:
            series = opened.fetch(CHECKOUT, "cpu_usage", start=at(5), end=at(235), step="5m")
            with pytest.raises(ResourceNotFound) as error:
                opened.fetch("prod/payments/deployment/chekout", "cpu_usage", start=at(5), end=at(235))
    finally:
        store.close()

    assert series.table["y"].to_pylist() == pytest.approx(checkout_cpu())
    assert error.value.hint == f"did you mean {CHECKOUT}?"


def test_only_pods_of_the_window_are_asked_for(history: History) -> None:
    """A window after the first pod's end names the second one alone."""
    series = history.fetch(CHECKOUT, "cpu_usage", start=at(150), end=at(200), step="5m")

    assert series.queries[0].pods == ("checkout-86b96c86dc-bbbbb",)
    assert series.table["y"].to_pylist() == pytest.approx([0.25] * 11)


def test_a_scrape_gap_is_null_and_reported(history: History) -> None:
    """Points that the server lacks stay null; coverage and the longest gap say so."""
    series = history.fetch(LEDGER, "mem_usage", start=at(0), end=at(235), step="5m")

    key = Key(LEDGER, "mem_usage")
    assert series.gaps[key] == ((at(65), at(115)),)  # the sample of 0:59 is looked back at until 1:00
    assert series.longest_gap(key) == timedelta(minutes=55)
    assert series.coverage[key] == pytest.approx(1 - 11 / 48)
    assert series.table["y"].null_count == 11


def test_gaps_are_filled_only_on_request(history: History) -> None:
    """Filling forward, on a line or dropping gives what was asked for, with a warning that counts the points."""
    fetched = {
        how: history.fetch(LEDGER, "mem_usage", start=at(60), end=at(120), step="5m", gaps=how)
        for how in ("ffill", "linear", "drop")
    }

    assert fetched["ffill"].table["y"].to_pylist() == [1059.0] * 12 + [1120.0]
    assert fetched["linear"].table["y"].to_pylist() == pytest.approx([1059 + 61 * n / 12 for n in range(13)])
    assert fetched["drop"].table["y"].to_pylist() == [1059.0, 1120.0]
    assert "11 of 13 points were missing and are filled (linear)" in fetched["linear"].warnings[0]
    assert fetched["linear"].coverage == fetched["drop"].coverage == {Key(LEDGER, "mem_usage"): 2 / 13}


def test_values_that_are_not_finite_become_null_and_are_counted(history: History) -> None:
    """NaN and Inf never reach a table, and the warning says how many there were."""
    series = history.fetch(NODE_B, "mem_usage", start=at(0), end=at(59), step="1m")

    assert [n for n, y in enumerate(series.table["y"].to_pylist()) if y is None] == [10, 20]
    assert "2 values were not finite" in series.warnings[0]


def test_more_points_than_one_query_allows_are_fetched_in_parts(history: History) -> None:
    """Ten days by the minute (14,400 points) equal the samples, and the coarse series where both have a point."""
    fine = history.fetch(NODE_A, "mem_usage", start=at(0), end=at(14_399), step="1m")
    coarse = history.fetch(NODE_A, "mem_usage", start=at(0), end=at(14_399), step="10m")

    values = fine.table["y"].to_pylist()
    assert values == [4_000_000 - available(minute) for minute in range(14_400)]
    assert coarse.table["y"].to_pylist() == values[::10]
    assert any("more than one query" in warning for warning in fine.warnings)


def test_a_range_that_is_too_heavy_is_halved(client: Prometheus) -> None:
    """A server that would load too many samples answers in parts; the result is the same as from a lighter query."""
    grid = Grid.over(Window(at(0), at(10_000)), timedelta(minutes=1))

    one = 'node_memory_MemTotal_bytes{instance="edge-a-1"}'

    fetched = client.series(f"{one} + ({one} + ({one} + ({one} + {one})))", grid)

    assert len(fetched.parts) > 1
    assert sum(len(part.seconds) for part in fetched.parts) == grid.points


def test_a_query_that_stays_too_heavy_is_refused_with_advice(client: Prometheus) -> None:
    """Halving ends; the error names datasource and query and says what to do."""
    grid = Grid.over(Window(at(14_300), at(14_399)), timedelta(minutes=1))

    with pytest.raises(
        DatasourceRefused, match=r"prometheus-main refused the query \(422\).*too many samples.*asked for sum"
    ) as error:
        client.series("sum(count_over_time(node_memory_MemTotal_bytes[10d:1s]))", grid)
    assert "shorter window" in (error.value.hint or "")


def test_a_renamed_label_is_named(prometheus: RealPrometheus) -> None:
    """A server that calls the label otherwise gives MetricMissing with the label it has; with its name configured, the data."""
    with pytest.raises(MetricMissing, match="container_fs_usage_bytes has no label pod") as error:
        _fetch(prometheus.datasource(), LEDGER, "disk_usage")
    assert error.value.detail["missing"] == "pod"
    assert error.value.detail["similar"] == ["pod_name"]
    assert 'labels = {pod = "pod_name"}' in (error.value.hint or "")

    series = _fetch(prometheus.datasource(labels={"pod": "pod_name"}), LEDGER, "disk_usage")
    assert set(series.table["y"].to_pylist()) == {4096.0}


def test_another_job_name_is_named(prometheus: RealPrometheus) -> None:
    """A job called otherwise is reported with the jobs there are; renamed or dropped by the configuration, the data comes."""
    with pytest.raises(
        MetricMissing, match='no series of container_network_receive_bytes_total has job="kubelet"'
    ) as error:
        _fetch(prometheus.datasource(), LEDGER, "network_receive")
    assert error.value.detail["similar"] == ["cadvisor"]

    for job in ("cadvisor", ""):
        series = _fetch(prometheus.datasource(jobs={"kubelet": job}), LEDGER, "network_receive")
        assert series.table["y"].to_pylist() == pytest.approx([100.0] * 47)


def test_an_absent_metric_is_named_with_what_is_similar(history: History) -> None:
    """A metric that the server does not have is MetricMissing, never an empty success."""
    with pytest.raises(MetricMissing, match="there is no metric kepler_pod_cpu_joules_total") as error:
        history.fetch(LEDGER, "energy_joules", start=at(5), end=at(235), step="5m")
    assert "kepler_container_joules_total" in error.value.detail["similar"]
    assert error.value.detail["datasource"] == "prometheus-main"


def test_a_window_without_samples_is_an_error(history: History) -> None:
    """A window that ended before the first sample is reported, not answered with an empty table."""
    with pytest.raises(MetricMissing):
        history.fetch(LEDGER, "mem_usage", start=at(-3000), end=at(-2900), step="5m")


def test_a_window_inside_a_scrape_gap_is_an_error(history: History) -> None:
    """The server knows the series but has no point of it there: the error says that, and what may help."""
    with pytest.raises(MetricMissing, match="there are series, but no point of the query in the window") as error:
        history.fetch(LEDGER, "mem_usage", start=at(70), end=at(110), step="5m")
    assert "longer window" in (error.value.hint or "")


def test_pods_that_are_not_scraped_are_named(history: History) -> None:
    """The metric and its labels are there, these pods are not: the error names the matcher that leaves nothing."""
    with pytest.raises(
        MetricMissing, match='no series of container_cpu_usage_seconds_total has pod=~"ledger-797bcddfd6-n9hxf"'
    ) as error:
        history.fetch(LEDGER, "cpu_usage", start=at(5), end=at(60), step="5m")
    assert error.value.detail["missing"] == "pod"


def test_one_series_that_fails_does_not_take_the_others_with_it(history: History) -> None:
    """What can be had is in the table, what cannot is listed with its reason, in failures and warnings."""
    series = history.fetch(
        [CHECKOUT, LEDGER, "prod/payments/deployment/chekout"], "cpu_usage", start=at(5), end=at(60), step="5m"
    )

    assert set(series.table["unique_id"].to_pylist()) == {CHECKOUT}
    assert [failure.key.unique_id for failure in series.failures] == [LEDGER, "prod/payments/deployment/chekout"]
    assert isinstance(series.failures[0].error, MetricMissing)
    assert isinstance(series.failures[1].error, ResourceNotFound)
    assert sum("is missing" in warning for warning in series.warnings) == 2


def test_several_metrics_stand_in_one_table(history: History) -> None:
    """Each row tells its metric and unit; the table's types are those of the schema."""
    series = history.fetch([CHECKOUT, NODE_A], ["cpu_usage", "mem_usage"], start=at(5), end=at(60), step="5m")

    found = series.table.select(["unique_id", "metric", "unit"]).to_pylist()
    assert {tuple(row.values()) for row in found} == {(CHECKOUT, "cpu_usage", "{cpu}"), (NODE_A, "mem_usage", "By")}
    assert series.unit is None
    assert series.table.schema.field("ds").type == pa.timestamp("ms", "UTC")
    assert series.table.schema.field("unique_id").type == pa.dictionary(pa.int32(), pa.string())


@pytest.mark.parametrize("scope", ["Workload", "Pod", "Node", "Domain", "Cluster"])
def test_the_server_accepts_every_shipped_template(client: Prometheus, scope: str) -> None:
    """Each template of each scope renders to a query that the real server evaluates without an error."""
    subject = Subject("", scope, "prod", "pay.ments", "Deployment", 'a"b\\c', pods="x-[0-9a-f]{6,10}-[0-9a-z]{5}")
    templates = TemplateCatalogue.shipped().for_scope(scope)

    for template in templates:
        query = promql.render(
            template.query, subject.values, window=timedelta(minutes=5), datasource=client.datasource, matchers=()
        )
        client.series(query, Grid.over(Window(at(5), at(60)), timedelta(minutes=5)))
    assert len(templates) == 7


@pytest.mark.parametrize("place", ["pods", "namespace"])
def test_any_label_value_is_asked_for_exactly(client: Prometheus, place: str) -> None:
    """A hundred odd names, as a pattern and as a plain value, each select their own series and nothing else."""
    template = TemplateCatalogue.shipped().find("Workload", "mem_usage")
    grid = Grid.over(Window(at(1), at(2)), timedelta(minutes=1))
    values = odd_values()

    for number, value in enumerate(values):
        filled = (
            {"namespace": "odd", "pods": literally(value)} if place == "pods" else {"namespace": value, "pods": "odd"}
        )
        query = promql.render(
            template.query, filled, window=timedelta(minutes=5), datasource=client.datasource, matchers=()
        )
        (part,) = client.series(query, grid).parts
        assert part.values.to_pylist() == [number, number], (value, query)
    assert len(values) > 100


def test_probe_tells_the_version(client: Prometheus) -> None:
    """A server that is there answers with its version."""
    assert client.probe()[0].isdigit()


def test_a_datasource_that_is_not_configured_is_never_fetched_from(prometheus: RealPrometheus) -> None:
    """What was only discovered resolves, and fetching says which lines to add to drumlin.toml."""
    found = replace(prometheus.datasource(), access=None)
    resolver = Resolver(_graph(), IRIS, [found])

    assert not resolver.resolve(CHECKOUT, "cpu_usage", Window(at(5), at(60))).fetchable
    with History(resolver) as opened, pytest.raises(SourceUnavailable, match="not configured") as error:
        opened.fetch(CHECKOUT, "cpu_usage", start=at(5), end=at(60))
    assert '[[datasource]] name = "prometheus-main"' in (error.value.hint or "")


@pytest.mark.parametrize(
    ("given", "reason"),
    [
        ({}, "either a start or how long back"),
        ({"start": at(0), "last": "1h"}, "either a start or how long back"),
        ({"start": at(0), "gaps": "guess"}, "no way to treat gaps"),
        ({"last": "a while"}, "is not a duration"),
        ({"last": "1h", "step": "90"}, "is not a duration"),
    ],
)
def test_a_request_that_cannot_be_is_refused(history: History, given: dict[str, Any], reason: str) -> None:
    """Nothing is asked of the server when window, step or gaps make no sense."""
    with pytest.raises(InvalidInput, match=reason):
        history.fetch(NODE_A, "mem_usage", **given)
    with pytest.raises(InvalidInput, match="no entity"):
        history.fetch([], "mem_usage", last="1h")


def test_the_last_so_much_ends_now(prometheus: RealPrometheus) -> None:
    """The clock decides where ``last`` ends; a timeout with a fraction is understood by the server."""
    resolver = Resolver(_graph(), IRIS, [prometheus.datasource(timeout=2.5)])
    with History(resolver, clock=lambda: at(100)) as opened:
        series = opened.fetch(NODE_A, "mem_usage", last="PT30M", step="10m")

    assert series.table["ds"].to_pylist() == [at(70), at(80), at(90), at(100)]


def test_a_table_beyond_the_limit_is_refused_beforehand(history: History) -> None:
    """The numbers stand in the message and nothing is asked."""
    with pytest.raises(TooLarge, match=r"20,000,000"):
        history.fetch(NODE_A, "mem_usage", start=at(0), end=at(60 * 24 * 365), step="1s")
    with pytest.raises(TooLarge, match=r"a series of 31,536,001 points; the limit is 20,000,000"):
        history.plan(NODE_A, "mem_usage", start=at(0), end=at(60 * 24 * 365), step="1s", limit=None)
    with pytest.raises(TooLarge, match=r"2 series of 15,768,001 points are 31,536,002 values"):
        history.fetch([NODE_A, NODE_B], "mem_usage", start=at(0), end=at(60 * 24 * 365), step="2s")
