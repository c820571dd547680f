"""From telemetry to a forecast in the graph and back, over a listening service with a real Prometheus and a real InfluxDB; logs and datasources."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

import httpx
import pandas
import pyarrow as pa
import pytest

import drumlin
from drumlin.kg.errors import InvalidDocument, InvalidInput, MetricMissing, ResourceNotFound, SourceUnavailable
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.store.protocol import GraphWrite
from tests.integration.conftest import RealPrometheus, at, available
from tests.integration.test_grafana import SECRETS, TOKEN, FakeGrafana
from tests.integration.test_loki import FakeLoki
from tests.integration.test_prometheus_history import LEDGER, NODE_A, documents
from tests.listening import listening
from tests.service.conftest import Service, drumlin_asks, serving

OF = (NODE_A, "mem_usage")


@pytest.fixture(scope="module")
def loki() -> Iterator[FakeLoki]:
    """A Loki with two lines of ledger's pod."""
    with listening(FakeLoki()) as running:
        stamp = int(at(10).timestamp()) * 10**9
        running.lines = [(stamp + n, {"pod": "ledger-797bcddfd6-n9hxf"}, f"line {n}") for n in range(2)]
        yield running


@pytest.fixture(scope="module")
def grafana() -> Iterator[FakeGrafana]:
    """A Grafana that lists datasources."""
    with listening(FakeGrafana()) as running:
        yield running


@pytest.fixture(scope="module")
def service(
    prometheus: RealPrometheus,
    influx_url: str,
    loki: FakeLoki,
    grafana: FakeGrafana,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[Service]:
    """A service with metrics, logs, two places for forecasts, and a Grafana."""
    directory = tmp_path_factory.mktemp("service")
    (directory / "token").write_text(TOKEN)
    config = directory / "drumlin.toml"
    config.write_text(
        f'[[datasource]]\nname = "prometheus-main"\nkind = "prometheus"\nurl = "{prometheus.url}"\nscrape_interval = "60s"\n'
        f'[[datasource]]\nname = "loki-main"\nkind = "loki"\nurl = "http://127.0.0.1:{loki.server_port}"\n'
        f'[[datasource]]\nname = "forecasts"\nkind = "parquet"\nurl = "{(directory / "forecasts").as_uri()}"\n'
        f'[[datasource]]\nname = "grafana-main"\nkind = "grafana"\nurl = "{grafana.url}"\n'
        f'credential = {{ secret = "file:{directory / "token"}" }}\n'
        f'[[datasource]]\nname = "influx"\nkind = "influxdb"\nurl = "{influx_url}"\ndatabase = "forecasts"\n'
    )
    with (
        serving("--store", str(directory / "store"), "--config", str(config)) as running,
        drumlin.connect(running.url) as client,
    ):
        client.apply([GraphWrite.of(str(each["id"]), lines(each), "test") for each in documents()], atomic=True)
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[drumlin.Client]:
    """A client of the service."""
    with drumlin.connect(service.url) as connected:
        yield connected


def _points(count: int = 12) -> pa.Table:
    stamps = [at(5 * n) for n in range(count)]
    values = [4_000_000.0 - available(5 * n) + 10 for n in range(count)]
    return pa.table({"ds": pa.array(stamps, pa.timestamp("ms", "UTC")), "y": values, "q0.9": [v + 1 for v in values]})


@pytest.mark.parametrize("datasource", ["forecasts", "influx"])
def test_a_forecast_goes_into_the_graph_and_comes_back(
    client: drumlin.Client, service: Service, datasource: str
) -> None:
    """Saved, found by SPARQL under its metric, read back value by value, and compared with what a real server measured."""
    saved = client.forecasts.save(
        _points(),
        of=OF,
        model="mine",
        horizon="1h",
        step="5m",
        trained=(at(-60).isoformat(), at(0).isoformat()),
        datasource=datasource,
    )

    document = client.subgraph(saved["id"]).get()
    assert (document["type"], document["model"], document["horizon"]) == ("Forecast", "mine", "PT1H")
    query = f"PREFIX prov: <http://www.w3.org/ns/prov#> SELECT ?f WHERE {{ ?f prov:wasDerivedFrom <{saved['derivedFrom']}> }}"
    assert {"f": saved["id"]} in client.sparql(query)
    assert client.forecasts.points(OF, saved["id"]).equals(_points())
    assert client.forecasts.list(OF)[0]["derivedFrom"].endswith("/metric/mem_usage")
    compared = client.forecasts.compare(OF, saved["id"])
    assert (compared["points"], compared["unit"]) == (12, "By")
    assert compared["mae"] == pytest.approx(10)
    assert 0 < compared["mape"] < 0.001


def test_any_quantile_comes_back_from_either_place(client: drumlin.Client) -> None:
    """Columns are those that were saved, also uncommon ones, in a table beyond one page of InfluxDB's answers."""
    stamps = pa.array([at(n / 60) for n in range(60_000)], pa.timestamp("ms", "UTC"))
    table = pa.table({"ds": stamps, "y": [n / 7 for n in range(60_000)], "q0.025": [float(n) for n in range(60_000)]})
    for datasource in ("forecasts", "influx"):
        saved = client.forecasts.save(table, of=OF, model="m", horizon="1d", step="1s", datasource=datasource)
        found = client.forecasts.points(OF, saved["id"].partition("/id/")[2])
        assert found.select(["ds", "y", "q0.025"]).equals(table), datasource


def test_a_deleted_forecast_is_a_tombstone_and_has_no_points(client: drumlin.Client, service: Service) -> None:
    """The one that is named goes, in the list too; naming it again is not found."""
    first, second = (client.forecasts.save(_points(), of=OF, model="m", horizon="1h", step="5m") for _ in range(2))

    assert client.forecasts.delete(OF, second["id"])["path"] == second["path"]

    assert client.forecasts.list(OF)[0]["id"] == first["id"]
    assert httpx.get(f"{service.url}/subgraph/{second['id'].partition('/id/')[2]}").status_code == 410
    for again in (client.forecasts.delete, client.forecasts.points):
        with pytest.raises(ResourceNotFound):
            again(OF, second["id"])


def test_forecasts_are_fetched_like_history(client: drumlin.Client, service: Service) -> None:
    """The same call and the same table; each forecast revises the one before; the command line shows them too."""
    made = {"of": OF, "model": "mine", "horizon": "1h", "step": "5m"}
    first = client.forecasts.save(_points(), **made)
    second = client.forecasts.save(_points(6), **made)
    assert second["revisionOf"] == first["id"]
    assert client.subgraph(second["id"]).get()["revisionOf"] == first["id"]

    newest = client.history(*OF, kind="forecast")
    assert newest.table.num_rows == 6
    assert (newest.unit, newest.step) == ("By", 300)
    both = client.history(*OF, kind="forecast", start=at(0).isoformat(), end=at(55).isoformat())
    actual = client.history(*OF, start=at(0).isoformat(), end=at(55).isoformat(), step="5m")
    assert both.table.schema == actual.table.schema
    assert both.table["ds"].equals(actual.table["ds"])
    assert [p - a for p, a in zip(both.table["y"].to_pylist(), actual.table["y"].to_pylist(), strict=True)] == [10] * 12
    larger = client.history(*OF, kind="forecast", unit="kB")
    assert larger.unit == "kBy"
    assert larger.table["y"].to_pylist() == pytest.approx([each / 1000 for each in newest.table["y"].to_pylist()])
    with pytest.raises(InvalidInput, match="cores"):
        client.history(*OF, kind="forecast", unit="cores")
    some = client.history([NODE_A, LEDGER], "mem_usage", kind="forecast")
    assert [each["unique_id"] for each in some.failures] == [LEDGER]
    shown = drumlin_asks("history", NODE_A, "mem_usage", "--forecast", "-o", "csv", "--url", service.url)
    assert len(shown.stdout.splitlines()) == 7, shown.stderr
    with pytest.raises(InvalidInput, match="lies where it was saved"):
        client.history(*OF, kind="forecast", datasource="influx")
    with pytest.raises(InvalidInput, match="read by the service"):
        client.history(*OF, kind="forecast", via="direct")


def test_the_asynchronous_client_does_the_same(service: Service) -> None:
    """Saved, listed, read and compared; a pandas frame is a table as well."""

    async def work() -> None:
        async with drumlin.AsyncClient(service.url) as client:
            frame = _points().to_pandas()
            saved = await client.forecasts.save(frame, of=OF, model="async", horizon="1h", step="5m")
            assert (await client.forecasts.list(OF))[0]["id"] == saved["id"]
            assert (await client.forecasts.points(OF))["y"].to_pylist() == _points()["y"].to_pylist()
            compared = await client.forecasts.compare(OF)
            assert (compared["points"], compared["mae"]) == (12, pytest.approx(10))
            with pytest.raises(ResourceNotFound, match="no such forecast"):
                await client.forecasts.points(OF, "forecast/nope")

    asyncio.run(work())


def test_what_cannot_be_saved_is_refused(client: drumlin.Client) -> None:
    """A table without points, an entity that is not there, a place that takes none."""
    made = {"model": "mine", "horizon": "1h", "step": "5m"}
    with pytest.raises(InvalidDocument):
        client.forecasts.save(pa.table({"a": [1]}), of=OF, **made)
    with pytest.raises(ResourceNotFound):
        client.forecasts.save(_points(), of=("prod/-/node/nope", "mem_usage"), **made)
    with pytest.raises(ResourceNotFound, match="takes no forecasts"):
        client.forecasts.save(_points(), of=OF, datasource="prometheus-main", **made)
    with pytest.raises(ResourceNotFound):
        client.forecasts.points((LEDGER, "mem_usage"))
    with pytest.raises(ResourceNotFound, match="has no metric 'mem'"):
        client.forecasts.save(_points(), of=(NODE_A, "mem"), **made)
    with pytest.raises(InvalidInput, match="a step ahead"):
        client.forecasts.save(_points(), of=OF, model="mine", horizon="1h", step="2h")


def test_the_loop_is_closed_on_the_command_line(client: drumlin.Client, service: Service) -> None:
    """``drumlin forecast`` reads the history, saves a baseline and registers it; one command each."""
    last = f"{int((time.time() - at(0).timestamp()) // 86400) + 1}d"
    done = drumlin_asks(
        "forecast", NODE_A, "mem_usage", "--last", last, "--step", "1h", "--url", service.url, "-o", "json"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["model"].startswith("seasonal-baseline (")
    assert told["trainedFrom"].startswith("2026-1")  # what there is, not the days that were asked for
    assert any("it learnt from" in each for each in told["warnings"])
    assert "it learnt from" in done.stderr
    assert "sum(" in client.subgraph(told["id"]).get()["query"]
    newest = client.forecasts.list(OF)[0]
    assert client.forecasts.points(OF, newest["id"]).num_rows == 24


def test_many_series_are_saved_with_one_call(client: drumlin.Client, service: Service) -> None:
    """A long frame of pandas, as statsforecast returns it: one forecast a series; what cannot be saved says why."""
    frame = _points().to_pandas().rename(columns={"y": "Model", "q0.9": "Model-hi-80"})
    frame["ds"] = frame["ds"].dt.tz_localize(None)
    frame = pandas.concat([frame.assign(unique_id=each) for each in (NODE_A, LEDGER, "prod/-/node/nope")])
    found = client.forecasts.save(frame, metric="mem_usage", model="Model", horizon="1h", step="5m")["items"]
    assert [("problem" in each) for each in found] == [False, False, True]
    assert (found[2]["entity"], found[2]["problem"]["status"]) == ("prod/-/node/nope", 404)
    assert client.forecasts.points((LEDGER, "mem_usage"), found[1]["id"]).equals(_points())
    assert client.forecasts.list(LEDGER)[0]["id"] == found[1]["id"]
    client.forecasts.delete((LEDGER, "mem_usage"), found[1]["id"])
    nobody = frame.assign(unique_id="prod/-/node/nope")
    with pytest.raises(ResourceNotFound, match="nope"):
        client.forecasts.save(nobody, metric="mem_usage", model="Model", horizon="1h", step="5m")
    answer = httpx.post(
        f"{service.url}/forecasts", params={"entity": NODE_A, "model": "m", "horizon": "1h", "step": "5m"}
    )
    assert (answer.status_code, "no metric is named" in answer.text) == (422, True)


def test_a_scaler_reads_one_number(client: drumlin.Client, service: Service) -> None:
    """KEDA's metrics-api scaler takes the number at ``value``; before its time a forecast cannot be compared."""
    begin = datetime.now(UTC).replace(minute=0, second=0, microsecond=0) + timedelta(hours=1)
    stamps = [begin + timedelta(minutes=5 * n) for n in range(24)]
    table = pa.table({"ds": pa.array(stamps, pa.timestamp("ms", "UTC")), "y": [7.5] * 24, "q0.9": [9.0] * 24})
    saved = client.forecasts.save(table, of=OF, model="mine", horizon="2h", step="5m")
    params = {"entity": OF[0], "metric": OF[1], "ahead": "1h"}
    answer = httpx.get(f"{service.url}/forecasts/value", params=params).json()
    assert (answer["value"], answer["unit"], answer["forecast"]) == (7.5, "By", saved["id"])
    assert client.forecasts.value(OF, ahead="1h", quantile="q0.9")["value"] == 9.0
    in_bits = client.forecasts.value(OF, ahead="1h", unit=["cores", "bit"])
    assert (in_bits["value"], in_bits["unit"]) == (60.0, "bit")
    assert httpx.get(f"{service.url}/forecasts/value", params={**params, "ahead": "30d"}).status_code == 404
    assert httpx.get(f"{service.url}/forecasts/value", params={**params, "quantile": "mean"}).status_code == 422
    with pytest.raises(MetricMissing, match="it is too early: the forecast of mem_usage"):
        client.forecasts.compare(OF)
    early = drumlin_asks("forecast", *OF, "--compare", "--url", service.url)
    assert (early.returncode, "too early" in early.stderr) == (5, True)
    client.forecasts.delete(OF, saved["id"])


def test_a_backtest_measures_models_on_the_same_days(client: drumlin.Client, service: Service) -> None:
    """The built-in one and a caller's own, from the same origins, over one history of a real server."""
    window = {"horizon": "10m", "step": "1m", "origins": 3, "every": "10m", "learn": "30m", "end": at(70).isoformat()}

    def perfect(history: pa.Table, horizon: timedelta, step: timedelta) -> pa.Table:
        last = history["ds"][-1].as_py()
        stamps = [last + n * step for n in range(1, 11)]
        minutes = [int((each - at(0)).total_seconds()) // 60 for each in stamps]
        return pa.table({"ds": pa.array(stamps), "y": [4_000_000.0 - available(each) for each in minutes]})

    found = client.forecasts.backtest(OF, model=perfect, **window)
    assert (found.overall["points"], found.overall["mae"]) == (30, 0)
    assert [each["origin"][-9:] for each in found.origins] == ["00:40:00Z", "00:50:00Z", "01:00:00Z"]
    with pytest.raises(InvalidInput, match="a day of history"):
        client.forecasts.backtest(OF, **window)
    both = drumlin_asks("forecast", *OF, "--backtest", "2", "--compare", "--url", service.url)
    assert both.returncode == 2


def test_logs_come_over_http_and_the_command_line(client: drumlin.Client, service: Service, loki: FakeLoki) -> None:
    """NDJSON with what was asked at its end, plain text, and a table of lines, the oldest first."""
    window = {"start": at(0).isoformat(), "end": at(60).isoformat()}
    assert [each["line"] for each in client.logs(LEDGER, **window)] == ["line 1", "line 0"]
    text = httpx.get(f"{service.url}/logs", params={"entity": LEDGER, **window}, headers={"Accept": "text/plain"}).text
    assert text == "line 1\nline 0\n"
    shown = drumlin_asks("logs", LEDGER, "--start", window["start"], "--end", window["end"], "--url", service.url)
    assert [row.split(" ", 2)[2] for row in shown.stdout.splitlines()] == ["line 0", "line 1"]
    assert httpx.get(f"{service.url}/logs", params={"entity": NODE_A}).status_code == 404


def test_log_lines_that_are_cut_end_with_the_reason(client: drumlin.Client, service: Service, loki: FakeLoki) -> None:
    """Their server fails after the first page: what came is there, and the reason at its end, over HTTP, in the client, on the command line."""
    stamp = int(at(20).timestamp()) * 10**9
    before, loki.lines = loki.lines, [(stamp + n, {"pod": "ledger-797bcddfd6-n9hxf"}, f"line {n}") for n in range(40)]
    window = {"start": at(0).isoformat(), "end": at(60).isoformat()}
    params = {"entity": LEDGER, **window}

    def fails(after: int) -> None:
        loki.max_entries, loki.fails_after = 30, len(loki.requests) + after

    try:
        fails(2)  # the first one is refused: too many at once
        told = [json.loads(line) for line in httpx.get(f"{service.url}/logs", params=params).text.splitlines()]
        assert [each["line"] for each in told[:-1]] == [f"line {n}" for n in range(39, 9, -1)]
        assert (told[-1]["lines"], told[-1]["problem"]["status"]) == (30, 502)
        assert "something broke" in told[-1]["problem"]["detail"]
        fails(2)
        with pytest.raises(SourceUnavailable, match="cut after 30: .*something broke") as cut:
            client.logs(LEDGER, **window)
        assert len(cut.value.detail["received"]) == 30
        fails(2)
        shown = drumlin_asks(
            "logs", LEDGER, "--start", window["start"], "--end", window["end"], "-n", "40", "--url", service.url
        )
        assert (shown.returncode, len(shown.stdout.splitlines())) == (5, 30)
        assert "the log lines are cut after 30" in shown.stderr
        fails(2)
        text = httpx.get(f"{service.url}/logs", params=params, headers={"Accept": "text/plain"}).content
        assert len(text.splitlines()) == 31
        assert text.splitlines()[-1].startswith(b"--- cut after 30 lines: datasource loki-main")
        fails(0)
        assert httpx.get(f"{service.url}/logs", params=params).status_code == 502  # nothing came: it has a status
    finally:
        loki.lines, loki.max_entries, loki.fails_after = before, 5000, None


def test_datasources_are_looked_at(client: drumlin.Client, service: Service) -> None:
    """Each configured one with its state; one that is named, with what its templates lack."""
    found = {each["name"]: each for each in client.datasources()}
    assert found["prometheus-main"]["reachable"]
    assert found["prometheus-main"]["oldest"].startswith("2026-10-24T0")
    assert found["influx"]["reachable"]
    assert "reachable" not in client.datasources("influx", probe=False)[0]
    shown = drumlin_asks("datasources", "prometheus-main", "--url", service.url)
    assert shown.returncode == 0, shown.stderr
    assert "workload.energy_joules" in shown.stdout
    assert "profile: unlike all" in shown.stdout  # its samples are older than a day
    assert "no series of cadvisor (container_cpu_usage_seconds_total) in the last day" in shown.stdout
    assert drumlin_asks("datasources", "prometheus-mian", "--url", service.url).returncode == 4


def test_an_import_is_resolved_against_and_keeps_no_secret(service: Service) -> None:
    """One command; then queries name the imported server, nothing is fetched from it, and a second import changes nothing."""
    done = drumlin_asks("datasources", "grafana-main", "--import", "--url", service.url, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert [each["outcome"] for each in json.loads(done.stdout)][:4] == ["created"] * 4
    with drumlin.connect(service.url) as client:
        assert {each["outcome"] for each in client.import_datasources("grafana-main")} == {
            "unchanged",
            "unsupported",
            "unusable",
        }
        resolution = client.resolve(NODE_A, "cpu_usage", last="1h", datasource="Mimir (team a)")
        assert resolution["endpoint"] == "http://mimir:8080/prometheus/api/v1/query_range"
        assert resolution["fetchable"] is False
        kept = b"".join(client.export()).decode()
        assert "http://mimir:8080/prometheus" in kept
        assert not [secret for secret in SECRETS if secret in kept]
        with pytest.raises(ResourceNotFound, match="no Grafana"):
            client.import_datasources("prometheus-main")
        with pytest.raises(SourceUnavailable, match="not configured"):
            client.history(NODE_A, "cpu_usage", last="1h", datasource="Mimir (team a)")
    assert drumlin_asks("datasources", "--import", "--url", service.url).returncode == 2
