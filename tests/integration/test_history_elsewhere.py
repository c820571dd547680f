"""History from a real InfluxDB 1.x and from directories of Parquet: the same call, the same table, values computed by hand."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pyarrow as pa
import pyarrow.parquet
import pytest

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import (
    DatasourceRefused,
    DrumlinError,
    InvalidInput,
    MetricMissing,
    ResourceNotFound,
    SourceUnavailable,
)
from drumlin.kg.telemetry import influxql
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.influxdb import InfluxDB
from drumlin.kg.telemetry.fetch.parquet import Parquet
from drumlin.kg.telemetry.gathering import DatasourceClients
from drumlin.kg.telemetry.history import History, SeriesTable
from drumlin.kg.telemetry.probing import probe
from drumlin.kg.telemetry.quoting import any_of
from drumlin.kg.telemetry.resolution import Resolution
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Grid, Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from drumlin.kg.telemetry.values import CurrentValues, Values
from tests.integration.conftest import RealPrometheus, at, odd_values, start_influxdb
from tests.integration.test_prometheus_history import CHECKOUT, LEDGER, NODE_A, documents
from tests.unit.telemetry_store import IRIS, GraphStore

POD_A, POD_B, LEDGER_POD = "checkout-86b96c86dc-aaaaa", "checkout-86b96c86dc-bbbbb", "ledger-797bcddfd6-n9hxf"
MAPPED = {
    "workload.mem_usage": {"measurement": "pod", "field": "mem"},
    "workload.cpu_usage": {"measurement": "pod", "field": "cpu_seconds", "read": "rate"},
    "workload.energy_joules": {"measurement": "pod", "field": "mj", "read": "increase", "scale": 0.001},
    "workload.gpu_usage": {"measurement": "pod", "field": "mem", "across": "max", "where": {"host": "h1"}},
    "node.mem_usage": {"measurement": "node", "field": "used"},
    "cluster.mem_usage": {"measurement": "node", "field": "used"},
}


def _datasource(kind: str, url: str, **more: object) -> Datasource:
    given = {"name": "elsewhere", "kind": kind, "url": url, "scrape_interval": "60s", **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def _influx(url: str, **more: object) -> Datasource:
    given = {"database": "telemetry", "series": MAPPED, "labels": {"pod": "pod_name"}, **more}
    return _datasource("influxdb", url, **given)


def _fetch(servers: Sequence[Datasource], entity: str, metric: str, **more: object) -> SeriesTable:
    with History(Resolver(GraphStore(documents()), IRIS, servers)) as opened:
        given = {"start": at(0), "end": at(60), "step": "5m", **more}
        return opened.fetch(entity, metric, **given)


def _values(series: SeriesTable) -> dict[datetime, float | None]:
    return dict(zip(series.table["ds"].to_pylist(), series.table["y"].to_pylist(), strict=True))


@pytest.fixture(scope="module")
def filled(influx_url: str) -> str:
    """The real InfluxDB with two hours of checkout's two pods, of ledger's, and of two nodes."""
    lines = []
    for minute in range(131):
        stamp = int(at(minute).timestamp())
        tags = f"pod,namespace=payments,host=h1,pod_name={POD_A}"
        if minute <= 125:  # restarted every half hour: the counter begins again
            lines.append(f"{tags} mem={1000 + minute},cpu_seconds={30 * (minute % 30)},mj={2000 * minute} {stamp}")
        if minute >= 115:
            lines.append(f"{tags[: -len(POD_A)]}{POD_B} mem=5000,cpu_seconds={15 * minute} {stamp}")
        lines.append(f"pod,namespace=other,host=h1,pod_name={POD_A} mem=77,cpu_seconds={600 * minute} {stamp}")
        lines += [f"node,node=edge-a-1 used={minute} {stamp}", f"node,node=edge-b-1 used=100 {stamp}"]
    for number, value in enumerate(odd_values()):
        if "\n" not in value and not value.endswith("\\"):  # line protocol cannot write them as a tag
            tag = "".join(f"\\{c}" if c in ",= " else c for c in value)
            lines.append(f"odd,namespace={tag},pod_name={tag} v={number} {int(at(1).timestamp())}")
    answer = httpx.post(f"{influx_url}/write", params={"db": "telemetry", "precision": "s"}, content="\n".join(lines))
    assert answer.status_code == 204, answer.text
    return influx_url


def test_a_gauge_is_the_mean_of_each_step_added_up_over_pods(filled: str) -> None:
    """A point is the step that ends there; two pods that overlap are added up; another namespace's pod of that name is not."""
    found = _values(_fetch([_influx(filled)], CHECKOUT, "mem_usage", end=at(125)))

    assert found[at(5)] == 1000 + 3  # minutes 1 to 5
    assert found[at(120)] == 1000 + 118 + 5000  # both pods
    assert found[at(0)] == 1000
    assert len(found) == 26


def test_counters_are_read_with_their_resets(filled: str) -> None:
    """A rate is per second, an increase per step and in the metric's unit; what a restart takes away is left out."""
    rate = _values(_fetch([_influx(filled)], CHECKOUT, "cpu_usage", end=at(125)))
    assert rate[at(5)] == pytest.approx(30 / 60)
    assert rate[at(30)] == pytest.approx(30 * 4 / 300)  # minute 30 is the restart: four of five differences
    assert rate[at(120)] == pytest.approx(30 * 4 / 300 + 15 / 60)  # a restart of one pod, beside the other
    energy = _values(_fetch([_influx(filled)], CHECKOUT, "energy_joules", start=at(10), end=at(20)))
    assert energy == {at(10): pytest.approx(10), at(15): pytest.approx(10), at(20): pytest.approx(10)}


def test_any_name_of_a_measurement_and_a_field_is_asked_for_exactly(influx_url: str) -> None:
    """Names in the configuration are quoted as well: those that break quoting elsewhere select their own field."""
    grid = Grid(int(at(0).timestamp()), int(at(5).timestamp()), 300)
    for number, name in enumerate(each for each in odd_values()[:24] if "\n" not in each and not each.endswith("\\")):
        place = {"measurement": f"m {name}", "field": f"f {name}", "where": {"t": "v"}}
        server = _influx(influx_url, series={"cluster.mem_usage": place})
        with InfluxDB(server) as client:
            client.write(f"m {name}", {"t": "v"}, [(int(at(1).timestamp()) * 1000, {f"f {name}": float(number)})])
            (part,) = client.series(
                influxql.write("cluster.mem_usage", {}, timedelta(minutes=5), server, ()), grid
            ).parts
        assert part.values.to_pylist() == [number], name


def test_nodes_and_clusters_are_asked_for_by_their_tag_or_without(filled: str) -> None:
    """A node's own value; a cluster's is that of all; a tag that is fixed and a maximum instead of a sum."""
    window = {"start": at(10), "end": at(10), "step": "5m"}
    with History(Resolver(GraphStore([*documents(), _cluster()]), IRIS, [_influx(filled)])) as history:
        given = {**window, "start": at(8), "end": at(12)}
        node = _values(history.fetch(NODE_A, "mem_usage", **given))
        cluster = _values(history.fetch("cluster/prod", "mem_usage", **given))
    assert node == {at(10): 8.0}
    assert cluster == {at(10): 108.0}


def _cluster() -> dict[str, str]:
    return {"id": IRIS.expand("cluster/prod"), "type": "Cluster", "name": "prod"}


def test_it_is_the_same_in_every_chunk_and_with_gaps(filled: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """What is fetched in parts is what is fetched at once, and points that are missing are told."""
    whole = _fetch([_influx(filled)], CHECKOUT, "energy_joules", end=at(150))
    monkeypatch.setattr(Grid.chunks, "__defaults__", (3,))
    parts = _fetch([_influx(filled)], CHECKOUT, "energy_joules", end=at(150))
    assert parts.table.equals(whole.table)
    assert [tuple(gap) for gap in next(iter(whole.gaps.values()))] == [(at(0), at(0)), (at(130), at(150))]


def test_any_tag_value_is_asked_for_exactly(filled: str) -> None:
    """Values that break quoting elsewhere select their own series, by equality and in a regular expression."""
    place = {"workload.mem_usage": {"measurement": "odd", "field": "v"}}
    grid = Grid(int(at(0).timestamp()), int(at(5).timestamp()), 300)
    server = _influx(filled, series=place)
    with InfluxDB(server) as client:
        for number, value in enumerate(odd_values()):
            if "\n" in value or value.endswith("\\"):
                continue
            values = {"namespace": value, "pods": any_of([value, "x/y"])}
            query = influxql.write("workload.mem_usage", values, timedelta(minutes=5), server, ())
            (part,) = client.series(query, grid).parts
            assert part.values.to_pylist() == [number], value


@pytest.mark.parametrize(
    ("more", "metric", "reason", "hint"),
    [
        (
            {},
            "disk_usage",
            "does not say where it keeps workload.disk_usage",
            'add \\[datasource.series."workload.disk',
        ),
        ({"labels": {}}, "mem_usage", "there is no tag of pod named pod", "there is pod_name"),
        (
            {"series": {"workload.mem_usage": {"measurement": "pods", "field": "mem"}}},
            "mem_usage",
            "there is no measurement named pods",
            "there is pod",
        ),
        (
            {"series": {"workload.mem_usage": {"measurement": "pod", "field": "memory"}}},
            "mem_usage",
            "there is no field of pod named memory",
            "there is mem",
        ),
        (
            {"series": {"workload.mem_usage": {"measurement": "pod", "field": "mem", "where": {"host": "h2"}}}},
            "mem_usage",
            "no series of pod has host=h2",
            "there is h1",
        ),
        ({"database": "nope"}, "mem_usage", "database not found: nope", None),
    ],
)
def test_what_influxdb_lacks_is_named(filled: str, more: dict, metric: str, reason: str, hint: str | None) -> None:
    """A metric without a place, a tag, a measurement, a field or a value that is not there: which, and what is similar."""
    with pytest.raises(DrumlinError, match=reason) as error:
        _fetch([_influx(filled, **more)], CHECKOUT, metric, datasource="elsewhere")
    if hint:
        assert re.search(hint, str(error.value.hint))


def test_a_window_without_points_is_an_error(filled: str) -> None:
    """An entity of which there is nothing in the window is an error, not an empty table."""
    with pytest.raises(MetricMissing, match="no point of this entity"):
        _fetch([_influx(filled)], LEDGER, "mem_usage")
    with pytest.raises(InvalidInput, match="speaks no PromQL"):
        _fetch([_influx(filled)], LEDGER, "promql", query="up", datasource="elsewhere")


def test_prometheus_comes_first_and_the_other_is_asked_by_name(filled: str, prometheus: RealPrometheus) -> None:
    """One metric in two places: both give their own values, and the query tells where they come from."""
    servers = [prometheus.datasource(), _influx(filled)]
    first = _fetch(servers, CHECKOUT, "cpu_usage")
    second = _fetch(servers, CHECKOUT, "cpu_usage", datasource="elsewhere")
    assert first.queries[0].datasource == "prometheus-main"
    assert second.queries[0].datasource == "elsewhere"
    assert second.queries[0].endpoint == f"{filled}/query"
    assert "--data-urlencode 'params={" in second.queries[0].curl
    assert first.table.schema == second.table.schema


def test_an_influxdb_with_users_is_asked_as_one_of_them(tmp_path: Path) -> None:
    """Name and password from a file open a real server; a wrong one is told in its words, and never shown."""
    with start_influxdb(tmp_path, "auth-enabled = true") as server:
        create = "CREATE USER admin WITH PASSWORD 's3cret' WITH ALL PRIVILEGES"
        httpx.post(f"{server.url}/query", data={"q": create}).raise_for_status()
        httpx.post(
            f"{server.url}/query", data={"q": "CREATE DATABASE telemetry"}, auth=("admin", "s3cret")
        ).raise_for_status()
        secret = tmp_path / "password"
        there = _influx(server.url, credential={"username": "admin", "secret": f"file:{secret}"})
        secret.write_text("wr0ng")
        seen = probe(there, TemplateCatalogue.shipped(), at(0))
        assert "(401): authorization failed" in seen["error"]
        assert "wr0ng" not in json.dumps(seen)
        secret.write_text("s3cret\n")
        with InfluxDB(there) as client:
            client.write("node", {"node": "edge-a-1"}, [(int(at(1).timestamp()) * 1000, {"used": 7.0})])
        assert _values(_fetch([there], NODE_A, "mem_usage", end=at(9)))[at(5)] == 7.0


# -- Parquet ----------------------------------------------------------------------------------------------------------
def _table(minutes: Sequence[int], value: float, **more: object) -> pa.Table:
    stamps = pa.array([at(minute) for minute in minutes], pa.timestamp("ms", "UTC"))
    count = len(minutes)
    columns = {
        "unique_id": [LEDGER] * count,
        "ds": stamps,
        "y": [value + m for m in minutes],
        "metric": ["mem_usage"] * count,
    }
    return pa.table({**columns, **more})


def _directory(path: Path, **more: object) -> Datasource:
    return _datasource("parquet", path.as_uri(), **more)


def test_parquet_gives_the_mean_of_each_step(tmp_path: Path) -> None:
    """Rows of many files, in any order, with other entities and metrics between them, on the grid."""
    pyarrow.parquet.write_table(_table(range(31, 61), 0.0), tmp_path / "b.parquet")
    (tmp_path / "2026").mkdir()
    pyarrow.parquet.write_table(_table(range(30), 0.0), tmp_path / "2026" / "a.parquet")
    pyarrow.parquet.write_table(_table(range(60), 9.0, unique_id=["other"] * 60), tmp_path / "c.parquet")
    pyarrow.parquet.write_table(pa.table({"ds": [1]}), tmp_path / "z.parquet")

    series = _fetch([_directory(tmp_path)], LEDGER, "mem_usage", start=at(0), end=at(60))

    found = _values(series)
    assert found[at(0)] == 0.0
    assert found[at(5)] == 3.0  # minutes 1 to 5
    assert found[at(30)] == 27.5  # 26 to 29: there is no row of minute 30
    assert found[at(60)] == 58.0
    assert any("1 files have not the columns" in each for each in series.warnings)
    assert series.unit == "By"


def test_what_history_wrote_is_read_back_value_by_value(prometheus: RealPrometheus, tmp_path: Path) -> None:
    """A month in the archive is asked for like one in Prometheus, and is the same; what adds up is added up over longer steps."""
    servers = [prometheus.datasource(), _directory(tmp_path)]
    window = {"start": at(5), "end": at(55)}
    first = _fetch(servers, LEDGER, "mem_usage", **window)
    pyarrow.parquet.write_table(first.table, tmp_path / "x.parquet", compression="zstd")
    second = _fetch(servers, LEDGER, "mem_usage", datasource="elsewhere", **window)
    assert second.table.equals(first.table)
    joules = _table(range(0, 60, 5), 1.0, metric=["energy_joules"] * 12)
    pyarrow.parquet.write_table(joules, tmp_path / "joules.parquet")
    (value,) = _values(
        _fetch(servers, LEDGER, "energy_joules", datasource="elsewhere", start=at(29), end=at(31), step="30m")
    ).values()
    assert value == sum(1 + minute for minute in (5, 10, 15, 20, 25, 30))


def test_a_row_that_two_files_have_counts_once(tmp_path: Path) -> None:
    """Exports that overlap are not added up; the later file counts, and a warning tells how many rows it were."""
    for name, value in (("1", 0.0), ("2", 100.0)):
        pyarrow.parquet.write_table(
            _table(range(0, 60, 5), value, metric=["energy_joules"] * 12), tmp_path / f"{name}.parquet"
        )
    series = _fetch([_directory(tmp_path)], LEDGER, "energy_joules", end=at(10))
    assert _values(series) == {at(0): 100.0, at(5): 105.0, at(10): 110.0}
    assert any("3 rows have a time that another file has too" in each for each in series.warnings)


@pytest.mark.parametrize("kind", [pa.timestamp("ns"), pa.timestamp("us"), pa.timestamp("s", "Europe/Berlin")])
def test_columns_may_have_other_names_and_times_other_units(tmp_path: Path, kind: pa.DataType) -> None:
    """Columns are named in the configuration; times without a zone are UTC."""
    table = _table(range(60), 0.0)
    table = table.set_column(
        1, "ds", table["ds"].cast(pa.timestamp("ms")).cast(kind) if kind.tz is None else table["ds"].cast(kind)
    )
    pyarrow.parquet.write_table(table.rename_columns(["series", "time", "value's", "name"]), tmp_path / "a.parquet")
    renamed = {"unique_id": "series", "ds": "time", "y": "value's", "metric": "name"}
    assert _values(_fetch([_directory(tmp_path, labels=renamed)], LEDGER, "mem_usage", end=at(9)))[at(5)] == 3.0


def _broken(path: Path) -> None:
    (path / "a.parquet").write_text("<html>")


def _numbers(path: Path) -> None:
    pyarrow.parquet.write_table(_table(range(5), 0.0, ds=[1, 2, 3, 4, 5]), path / "a.parquet")


def _words(path: Path) -> None:
    pyarrow.parquet.write_table(_table(range(5), 0.0, y=["a", "b", "c", "d", "e"]), path / "a.parquet")


@pytest.mark.parametrize(
    ("make", "kind", "reason"),
    [
        (lambda path: path.rmdir(), SourceUnavailable, "is no directory"),
        (lambda _: None, SourceUnavailable, "has no .parquet file"),
        (_broken, SourceUnavailable, "cannot be read as Parquet"),
        (_numbers, DatasourceRefused, "column ds of a.parquet is int64, not a timestamp"),
        (_words, DatasourceRefused, "column y of a.parquet does not hold numbers"),
        (
            lambda path: pyarrow.parquet.write_table(
                _table([1], 0.0).rename_columns(["unique_id", "ds", "value", "metric"]), path / "a.parquet"
            ),
            MetricMissing,
            "no file has the column y",
        ),
        (
            lambda path: pyarrow.parquet.write_table(_table([1], 0.0, unique_id=[LEDGER + "x"]), path / "a.parquet"),
            MetricMissing,
            "no row has unique_id",
        ),
        (
            lambda path: pyarrow.parquet.write_table(_table([600], 0.0), path / "a.parquet"),
            MetricMissing,
            "none in the window",
        ),
    ],
)
def test_what_parquet_lacks_is_named(
    tmp_path: Path, make: Callable[[Path], None], kind: type[DrumlinError], reason: str
) -> None:
    """No directory, no file, no Parquet, no such column, no such series, no point: one line each, with what to do."""
    directory = tmp_path / "archive"
    directory.mkdir()
    make(directory)
    with pytest.raises(kind, match=reason) as error:
        _fetch([_directory(directory)], LEDGER, "mem_usage")
    assert error.value.hint
    assert "\n" not in str(error.value)


def test_an_unknown_metric_is_still_unknown(tmp_path: Path) -> None:
    """A datasource that may hold anything does not make every word a metric."""
    with pytest.raises(ResourceNotFound, match="has no metric"):
        _fetch([_directory(tmp_path)], LEDGER, "memusage")


def test_a_resolution_that_travelled_is_fetched_the_same(filled: str, tmp_path: Path) -> None:
    """What /resolve answers with is enough to fetch directly: the query of an InfluxDB and of a Parquet directory."""
    pyarrow.parquet.write_table(_table(range(60), 0.0), tmp_path / "a.parquet")
    window = Window(at(5), at(55))
    for server, entity in ((_influx(filled), CHECKOUT), (_directory(tmp_path), LEDGER)):
        resolver = Resolver(GraphStore(documents()), IRIS, [server])
        resolution = resolver.resolve(entity, "mem_usage", window, step="5m")
        travelled = Resolution.from_dict(json.loads(json.dumps(resolution.to_dict())))
        (part,) = travelled.parts
        with InfluxDB(server) if server.kind == "influxdb" else Parquet(server) as client:
            fetched = client.series(part.query, part.grid)
        with History(resolver) as history:
            table = history.fetch(entity, "mem_usage", start=at(5), end=at(55), step="5m").table
        assert [value for each in fetched.parts for value in each.values.to_pylist()] == table["y"].to_pylist()
    with Parquet(_directory(tmp_path)) as client, pytest.raises(DatasourceRefused, match="is no SQL engine"):
        client.series("SELECT 1", Grid(0, 60, 60))


# -- a look at them ---------------------------------------------------------------------------------------------------
def test_a_look_at_influxdb_tells_what_each_mapping_lacks(filled: str) -> None:
    """Version, the first point of what is mapped, and per template the measurement, field or tag that is not there."""
    series = {
        **MAPPED,
        "workload.disk_usage": {"measurement": "pod", "field": "dsk"},
        "node.cpu_usage": {"measurement": "nodes", "field": "used"},
        "workload.nonsense": {"measurement": "pod", "field": "mem"},
    }
    found = probe(_influx(filled, series=series), TemplateCatalogue.shipped(), at(240))
    assert found["reachable"]
    assert found["version"].startswith("1.")
    assert found["oldest"] == "2026-11-01T00:00:00Z"
    templates = {each["template"]: each for each in found["templates"]}
    assert templates["workload.mem_usage"]["found"]
    assert templates["node.mem_usage"]["found"]
    assert templates["workload.disk_usage"]["missing"] == "dsk"
    assert (templates["node.cpu_usage"]["missing"], templates["node.cpu_usage"]["similar"][0]) == ("nodes", "node")
    assert "there is no template workload.nonsense" in templates["workload.nonsense"]["detail"]
    renamed = probe(_influx(filled, labels={"pod": "pod"}), TemplateCatalogue.shipped(), at(240))
    tag = {each["template"]: each for each in renamed["templates"]}["workload.mem_usage"]
    assert (tag["missing"], tag["similar"][0]) == ("pod", "pod_name")


def test_a_look_at_parquet_tells_series_forecasts_and_what_is_neither(tmp_path: Path) -> None:
    """How many files of each, since when and until when, and which column the others lack."""
    directory = _directory(tmp_path)
    assert probe(directory, TemplateCatalogue.shipped(), at(0)) | {"files": 0, "reachable": True} == probe(
        directory, TemplateCatalogue.shipped(), at(0)
    )
    pyarrow.parquet.write_table(pa.table({"ds": [at(0)], "value": [1.0]}), tmp_path / "neither.parquet")
    found = probe(directory, TemplateCatalogue.shipped(), at(0))
    assert (found["missing"], found["similar"]) == ("unique_id", ["ds", "value"])
    pyarrow.parquet.write_table(_table(range(60), 0.0), tmp_path / "series.parquet")
    pyarrow.parquet.write_table(pa.table({"ds": [at(0)], "y": [1.0]}), tmp_path / "forecast.parquet")
    found = probe(directory, TemplateCatalogue.shipped(), at(0))
    assert (found["files"], found["series"], found["forecasts"]) == (3, 1, 1)
    assert (found["oldest"], found["newest"]) == ("2026-11-01T00:00:00Z", "2026-11-01T00:59:00Z")
    assert "detail" not in found
    (tmp_path / "broken.parquet").write_bytes(b"PAR1")
    broken = probe(directory, TemplateCatalogue.shipped(), at(0))
    assert broken["reachable"] is False
    assert "broken.parquet cannot be read as Parquet" in broken["error"]


# -- units and current values ----------------------------------------------------------------------------------------------
def _current(servers: Sequence[Datasource], entity: str, metric: str, minute: float, **more: Any) -> CurrentValues:
    clients = DatasourceClients(lambda _: None)
    try:
        resolver = Resolver(GraphStore(documents()), IRIS, servers)
        return Values(resolver, clients, clock=lambda: at(minute)).fetch([entity], [metric], **more)
    finally:
        clients.close()


def test_an_influxdb_converts_and_has_current_values(filled: str) -> None:
    """The factor stands in the query, beside the scale of the field; the newest whole step is the current value."""
    kilo = _values(_fetch([_influx(filled)], CHECKOUT, "mem_usage", end=at(30), unit="kB"))
    assert kilo[at(5)] == pytest.approx(1.003)
    energy = _fetch([_influx(filled)], CHECKOUT, "energy_joules", start=at(10), end=at(20), unit="kJ")
    assert list(_values(energy).values()) == pytest.approx([0.01] * 3)
    assert energy.unit == "kJ"
    found = _current([_influx(filled)], CHECKOUT, "cpu_usage", 22, unit=["millicores"])
    assert [(each.value, each.unit, each.time) for each in found.values] == [(pytest.approx(500), "{millicpu}", at(20))]
    later = _current([_influx(filled)], CHECKOUT, "mem_usage", 900)
    assert [str(error) for _, error in later.missing] == ["datasource elsewhere has no current sample of it"]


def test_parquet_converts_and_has_current_values(tmp_path: Path) -> None:
    """SQL with the factor, which DuckDB would run, and the newest whole step."""
    pyarrow.parquet.write_table(_table(range(61), 1000.0), tmp_path / "a.parquet")
    series = _fetch([_directory(tmp_path)], LEDGER, "mem_usage", unit="KiB")
    assert _values(series)[at(5)] == pytest.approx(1003 / 1024)
    assert " * 0.0009765625 AS " in series.queries[0].query
    found = _current([_directory(tmp_path)], LEDGER, "mem_usage", 58, unit=["kB"])
    assert [(each.value, each.time, each.age) for each in found.values] == [(pytest.approx(1.053), at(55), 180.0)]
