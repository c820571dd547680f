"""From telemetry to a forecast in the graph and back, over a listening service with a real Prometheus and a real InfluxDB; logs and datasources."""

from __future__ import annotations

import asyncio
import json
import time
from collections.abc import Iterator

import httpx
import pyarrow as pa
import pytest

import kg
from kg.errors import InvalidDocument, InvalidInput, ResourceNotFound, SourceUnavailable
from kg.jsonld import lines
from kg.store.protocol import GraphWrite
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
        kg.connect(running.url) as client,
    ):
        client.apply([GraphWrite(str(each["id"]), lines(each), "test") for each in documents()], atomic=True)
        yield running


@pytest.fixture
def client(service: Service) -> Iterator[kg.Client]:
    """A client of the service."""
    with kg.connect(service.url) as connected:
        yield connected


def _points(count: int = 12) -> pa.Table:
    stamps = [at(5 * n) for n in range(count)]
    values = [4_000_000.0 - available(5 * n) + 10 for n in range(count)]
    return pa.table({"ds": pa.array(stamps, pa.timestamp("ms", "UTC")), "y": values, "q0.9": [v + 1 for v in values]})


@pytest.mark.parametrize("datasource", ["forecasts", "influx"])
def test_a_forecast_goes_into_the_graph_and_comes_back(client: kg.Client, service: Service, datasource: str) -> None:
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


def test_any_quantile_comes_back_from_either_place(client: kg.Client) -> None:
    """Columns are those that were saved, also uncommon ones, in a table beyond one page of InfluxDB's answers."""
    stamps = pa.array([at(n / 60) for n in range(60_000)], pa.timestamp("ms", "UTC"))
    table = pa.table({"ds": stamps, "y": [n / 7 for n in range(60_000)], "q0.025": [float(n) for n in range(60_000)]})
    for datasource in ("forecasts", "influx"):
        saved = client.forecasts.save(table, of=OF, model="m", horizon="1d", step="1s", datasource=datasource)
        found = client.forecasts.points(OF, saved["id"].partition("/id/")[2])
        assert found.select(["ds", "y", "q0.025"]).equals(table), datasource


def test_a_deleted_forecast_is_a_tombstone_and_has_no_points(client: kg.Client, service: Service) -> None:
    """The one that is named goes, in the list too; naming it again is not found."""
    first, second = (client.forecasts.save(_points(), of=OF, model="m", horizon="1h", step="5m") for _ in range(2))

    assert client.forecasts.delete(OF, second["id"])["path"] == second["path"]

    assert client.forecasts.list(OF)[0]["id"] == first["id"]
    assert httpx.get(f"{service.url}/subgraph/{second['id'].partition('/id/')[2]}").status_code == 410
    for again in (client.forecasts.delete, client.forecasts.points):
        with pytest.raises(ResourceNotFound):
            again(OF, second["id"])


def test_forecasts_are_fetched_like_history(client: kg.Client, service: Service) -> None:
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
        async with kg.AsyncClient(service.url) as client:
            frame = _points().to_pandas()
            saved = await client.forecasts.save(frame, of=OF, model="async", horizon="1h", step="5m")
            assert (await client.forecasts.list(OF))[0]["id"] == saved["id"]
            assert (await client.forecasts.points(OF))["y"].to_pylist() == _points()["y"].to_pylist()
            compared = await client.forecasts.compare(OF)
            assert (compared["points"], compared["mae"]) == (12, pytest.approx(10))
            with pytest.raises(ResourceNotFound, match="no such forecast"):
                await client.forecasts.points(OF, "forecast/nope")

    asyncio.run(work())


def test_what_cannot_be_saved_is_refused(client: kg.Client) -> None:
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


def test_the_loop_is_closed_on_the_command_line(client: kg.Client, service: Service) -> None:
    """``drumlin forecast`` reads the history, saves a baseline and registers it; one command each."""
    last = f"{int((time.time() - at(0).timestamp()) // 86400) + 1}d"
    done = drumlin_asks(
        "forecast", NODE_A, "mem_usage", "--last", last, "--step", "1h", "--url", service.url, "-o", "json"
    )
    assert done.returncode == 0, done.stderr
    told = json.loads(done.stdout)
    assert told["model"] == "seasonal-mean"
    assert "sum(" in client.subgraph(told["id"]).get()["query"]
    newest = client.forecasts.list(OF)[0]
    assert client.forecasts.points(OF, newest["id"]).num_rows == 24


def test_logs_come_over_http_and_the_command_line(client: kg.Client, service: Service, loki: FakeLoki) -> None:
    """NDJSON with what was asked at its end, plain text, and a table of lines, the oldest first."""
    window = {"start": at(0).isoformat(), "end": at(60).isoformat()}
    assert [each["line"] for each in client.logs(LEDGER, **window)] == ["line 1", "line 0"]
    text = httpx.get(f"{service.url}/logs", params={"entity": LEDGER, **window}, headers={"Accept": "text/plain"}).text
    assert text == "line 1\nline 0\n"
    shown = drumlin_asks("logs", LEDGER, "--start", window["start"], "--end", window["end"], "--url", service.url)
    assert [row.split(" ", 2)[2] for row in shown.stdout.splitlines()] == ["line 0", "line 1"]
    assert httpx.get(f"{service.url}/logs", params={"entity": NODE_A}).status_code == 404


def test_datasources_are_looked_at(client: kg.Client, service: Service) -> None:
    """Each configured one with its state; one that is named, with what its templates lack."""
    found = {each["name"]: each for each in client.datasources()}
    assert found["prometheus-main"]["reachable"]
    assert found["prometheus-main"]["oldest"].startswith("2026-10-24T0")
    assert found["influx"]["reachable"]
    assert "reachable" not in client.datasources("influx", probe=False)[0]
    shown = drumlin_asks("datasources", "prometheus-main", "--url", service.url)
    assert shown.returncode == 0, shown.stderr
    assert "workload.energy_joules" in shown.stdout
    assert drumlin_asks("datasources", "prometheus-mian", "--url", service.url).returncode == 4


def test_an_import_is_resolved_against_and_keeps_no_secret(service: Service) -> None:
    """One command; then queries name the imported server, nothing is fetched from it, and a second import changes nothing."""
    done = drumlin_asks("datasources", "grafana-main", "--import", "--url", service.url, "-o", "json")
    assert done.returncode == 0, done.stderr
    assert [each["outcome"] for each in json.loads(done.stdout)][:4] == ["created"] * 4
    with kg.connect(service.url) as client:
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
