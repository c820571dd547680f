"""/resolve and /history over a listening service and a real Prometheus, through the real client and the command line."""

from __future__ import annotations

import asyncio
import csv
import io
import json
from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest

import drumlin
from drumlin.kg.errors import InvalidInput, MetricMissing, ResourceNotFound, SourceUnavailable
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.store.protocol import GraphWrite
from tests.integration.conftest import RealPrometheus, at
from tests.integration.test_prometheus_history import CHECKOUT, LEDGER, checkout_cpu, checkout_cpu_by_rate, documents
from tests.service.conftest import Service, drumlin_asks, serving

WINDOW = {"start": at(5).isoformat(), "end": at(235).isoformat(), "step": "5m"}
EXPECTED = checkout_cpu()


@pytest.fixture(scope="module")
def service(prometheus: RealPrometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that knows two pods with disjoint lives and one real Prometheus."""
    directory = tmp_path_factory.mktemp("service")
    config = directory / "drumlin.toml"
    config.write_text(
        f'[[datasource]]\nname = "prometheus-main"\nkind = "prometheus"\nurl = "{prometheus.url}"\nscrape_interval = "60s"\n'
        '[[datasource]]\nname = "down"\nkind = "prometheus"\nurl = "http://127.0.0.1:9"\nscrape_interval = "60s"\n'
    )
    with (
        serving("--store", str(directory / "store"), "--config", str(config)) as running,
        drumlin.connect(running.url) as client,
    ):
        writes = [GraphWrite.of(str(each["id"]), lines(each), "test") for each in documents()]
        client.apply(writes, atomic=True)
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[drumlin.Client]:
    """A client of the service."""
    with drumlin.connect(service.url) as connected:
        yield connected


def test_the_clients_table_is_the_hand_computed_series(client: drumlin.Client) -> None:
    """Two pods with disjoint lives, one of them deleted, give one series over HTTP, with unit, coverage and query."""
    series = client.history(CHECKOUT, "cpu_usage", **WINDOW)
    table = series.to_arrow()
    assert table["y"].to_pylist() == pytest.approx(EXPECTED)
    assert table.column_names == ["unique_id", "ds", "y", "metric", "unit"]
    assert table["ds"].type == pa.timestamp("ms", "UTC")
    assert (series.unit, series.step, len(series)) == ("{cpu}", 300, len(EXPECTED))
    assert series.coverage == {(CHECKOUT, "cpu_usage"): 1.0}
    assert "checkout-86b96c86dc-aaaaa|checkout-86b96c86dc-bbbbb" in series.query
    frame = series.to_pandas()
    assert str(frame["ds"].dt.tz) == "UTC"
    assert series.to_polars().height == len(EXPECTED)


def test_the_selector_is_chosen_and_told(client: drumlin.Client, service: Service) -> None:
    """By pattern a namesake's pod is in the sum, with a warning; JSON, client and command line say what picked the series when."""
    span = {"start": at(5).isoformat(), "end": at(60).isoformat(), "step": "5m"}
    exact = client.history(CHECKOUT, "cpu_usage", **span)
    pattern = client.history(CHECKOUT, "cpu_usage", selector="pattern", **span)
    resolved = client.resolve(CHECKOUT, "cpu_usage", selector="pattern", start=span["start"], end=span["end"])
    before = client.history(CHECKOUT, "cpu_usage", start=at(-60).isoformat(), end=at(60).isoformat(), step="5m")

    assert exact.to_arrow()["y"].to_pylist() == pytest.approx(EXPECTED[:12])
    # The namesake's first window lacks the scrape before it.
    assert pattern.to_arrow()["y"].to_pylist()[1:] == pytest.approx([10.5] * 11)
    assert [each["selector"] for each in exact.intervals[CHECKOUT, "cpu_usage"]] == ["exact"]
    assert [each["selector"] for each in pattern.intervals[CHECKOUT, "cpu_usage"]] == ["pattern"]
    assert "no owner labels of prometheus-main" in pattern.warnings[0]
    assert resolved["selector"] == resolved["intervals"][0]["selector"] == "pattern"
    assert [each["selector"] for each in before.intervals[CHECKOUT, "cpu_usage"]] == ["pattern", "exact"]
    with pytest.raises(InvalidInput):
        client.resolve(CHECKOUT, "cpu_usage", selector="all")

    options = ("--start", at(5).isoformat(), "--end", at(60).isoformat(), "--step", "5m", "-u", service.url)
    told = drumlin_asks("history", CHECKOUT, "cpu_usage", "--selector", "pattern", *options, "-o", "json")
    document = json.loads(told.stdout)
    assert document["series"][0]["intervals"] == pattern.intervals[CHECKOUT, "cpu_usage"]
    assert document["series"][0]["coverage"] == 1.0
    assert f"note: {CHECKOUT} cpu_usage is picked by pattern" in " ".join(told.stderr.split())
    assert drumlin_asks("history", CHECKOUT, "cpu_usage", "--selector", "some", *options).returncode == 2


def test_a_gap_is_reported_over_http(client: drumlin.Client) -> None:
    """An hour without scrapes is null in the table, counted in coverage and listed as a gap."""
    series = client.history(LEDGER, "mem_usage", **WINDOW)
    assert 0.7 < series.coverage[LEDGER, "mem_usage"] < 0.8
    ((start, end),) = series.gaps[LEDGER, "mem_usage"]
    assert start < end
    assert series.to_arrow()["y"].null_count > 0
    filled = client.history(LEDGER, "mem_usage", gaps="drop", **WINDOW)
    assert filled.to_arrow()["y"].null_count == 0
    assert len(filled) < len(series)


def test_every_format_holds_the_same_series(service: Service) -> None:
    """Arrow, CSV and JSON answers carry the same values; what failed is told in a header too."""
    params = {"entity": CHECKOUT, "metric": "cpu_usage", **WINDOW}
    with httpx.Client(base_url=service.url) as http:
        arrow = http.get("/history", params={**params, "format": "arrow"})
        table = pa.ipc.open_stream(arrow.content).read_all()
        text = http.get("/history", params=params, headers={"Accept": "text/csv"}).text
        body = http.get("/history", params=params).json()
        posted = http.post("/history", json={"entities": [CHECKOUT], "metrics": ["cpu_usage"], **WINDOW}).json()
        refused = http.get("/history", params={**params, "format": "png"})
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [float(row["y"]) for row in rows] == pytest.approx(EXPECTED)
    assert table["y"].to_pylist() == pytest.approx(EXPECTED)
    assert [row["y"] for row in body["rows"]] == pytest.approx(EXPECTED)
    assert posted["rows"] == body["rows"]
    assert arrow.headers["X-Drumlin-Failures"] == "0"
    assert refused.status_code == 406


def test_part_of_many_failing_is_told_for_each(client: drumlin.Client) -> None:
    """What can be had comes; what cannot is listed with its reason, never left out in silence."""
    series = client.history([CHECKOUT, LEDGER], ["cpu_usage"], **WINDOW)
    assert set(series.coverage) == {(CHECKOUT, "cpu_usage")}
    (failure,) = series.failures
    assert (failure["unique_id"], failure["error"]) == (LEDGER, "MetricMissing")
    assert any(LEDGER in warning for warning in series.warnings)


def test_what_is_missing_is_an_error_not_an_empty_answer(client: drumlin.Client, service: Service) -> None:
    """A renamed label and an absent metric are MetricMissing (404), naming what is missing, on HTTP and on the command line."""
    with pytest.raises(MetricMissing, match="pod"):
        client.history(LEDGER, "disk_usage", **WINDOW)
    with pytest.raises(MetricMissing, match="container_network_transmit_bytes_total"):
        client.history(LEDGER, "network_transmit", **WINDOW)
    options = ("--start", WINDOW["start"], "--end", WINDOW["end"], "-u", service.url)
    answer = drumlin_asks("history", LEDGER, "network_transmit", *options)
    assert answer.returncode == 5
    assert "container_network_transmit_bytes_total" in answer.stderr


def test_a_datasource_that_is_down_is_named(client: drumlin.Client) -> None:
    """Nobody answering gives 502 that names the datasource and the query, and says what to do."""
    with pytest.raises(SourceUnavailable, match="down") as failed:
        client.history(CHECKOUT, "cpu_usage", datasource="down", **WINDOW)
    assert failed.value.hint


@pytest.mark.parametrize(
    ("window", "error"),
    [
        ({"last": "soon"}, InvalidInput),
        ({"start": "yesterday"}, InvalidInput),
        ({"start": "2026-11-01T00:00:00"}, InvalidInput),
        ({"start": "2026-11-02T00:00:00Z", "end": "2026-11-01T00:00:00Z"}, InvalidInput),
        ({"last": "1h", "step": "0s"}, InvalidInput),
        ({"last": "1h", "datasource": "nope"}, ResourceNotFound),
    ],
)
def test_a_window_that_cannot_be_is_refused(
    client: drumlin.Client, window: dict[str, str], error: type[Exception]
) -> None:
    """Unreadable times, times without a zone, empty windows and unknown datasources are precise errors."""
    with pytest.raises(error):
        client.history(CHECKOUT, "cpu_usage", **window)


def test_the_asynchronous_client_fetches_too(service: Service) -> None:
    """AsyncWorkload.history gives the same table."""

    async def fetch() -> list[float]:
        async with drumlin.connect_async(service.url) as client:
            workload = await client.workload(CHECKOUT)
            series = await client.history(workload.id, "cpu_usage", **WINDOW)
            return list(series.to_arrow()["y"].to_pylist())

    assert asyncio.run(fetch()) == pytest.approx(EXPECTED)


def test_the_curl_line_runs_as_it_is(client: drumlin.Client) -> None:
    """What resolve prints gives the same values when a shell runs it, but for what Prometheus extrapolates where pods begin and end."""
    import subprocess

    resolution = client.resolve(CHECKOUT, "cpu_usage", **WINDOW)
    done = subprocess.run(resolution["curl"], shell=True, capture_output=True, check=True)
    (result,) = json.loads(done.stdout)["data"]["result"]
    assert [float(value) for _, value in result["values"]] == pytest.approx(checkout_cpu_by_rate())


def test_the_command_line_prints_series(service: Service) -> None:
    """The command prints an extract for people and every row as CSV; a table names coverage and unit."""
    options = ("--start", WINDOW["start"], "--end", WINDOW["end"], "--step", "5m", "-u", service.url)
    table = drumlin_asks("history", CHECKOUT, "cpu_usage", *options)
    assert "100.0% covered" in table.stdout
    rows = list(
        csv.DictReader(io.StringIO(drumlin_asks("history", CHECKOUT, "cpu_usage", *options, "-o", "csv").stdout))
    )
    assert [float(row["y"]) for row in rows] == pytest.approx(EXPECTED)
    assert rows[0]["ds"] == "2026-11-01T00:05:00Z"
    body = json.loads(drumlin_asks("history", CHECKOUT, "cpu_usage", *options, "-o", "json").stdout)
    assert len(body["rows"]) == len(EXPECTED)
