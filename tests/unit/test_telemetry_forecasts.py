"""Forecasts: what is stored is what was given, the graph says where, and errors are measured as everybody measures them."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import uuid
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from kg.errors import InvalidDocument, InvalidInput, ResourceNotFound, SourceUnavailable
from kg.jsonld import NodeDocument
from kg.servers import DatasourceSettings
from kg.telemetry.baseline import compare, seasonal
from kg.telemetry.datasources import Datasource
from kg.telemetry.forecasts import Forecasts, Made
from kg.telemetry.resolve import Resolver
from kg.telemetry.series import Window
from tests.unit.telemetry_store import IRIS, GraphStore

NOW = datetime(2026, 11, 27, tzinfo=UTC)
NODE = IRIS.object("prod", None, "Node", "edge.a-1")
MADE = Made(NODE, "energy_joules", "mine", timedelta(days=1), timedelta(minutes=5), (NOW - timedelta(days=1), NOW))


def _table(values: list[float | None], start: datetime = NOW, step: int = 300, **more: list[float]) -> pa.Table:
    stamps = [start + timedelta(seconds=n * step) for n in range(len(values))]
    columns = {"ds": pa.array(stamps, pa.timestamp("ms", "UTC")), "y": pa.array(values, pa.float64())}
    return pa.table({**columns, **{name.replace("_", "."): column for name, column in more.items()}})


class _Graph:
    """A store with what was registered."""

    def __init__(self, directory: Path, name: str = "forecasts") -> None:
        self.store = GraphStore([{"id": NODE, "type": "Node", "name": "edge.a-1"}])
        self.written: list[NodeDocument] = []
        self.buried: list[str] = []
        self.now = NOW
        given = {"name": name, "kind": "parquet", "url": directory.as_uri()}
        server = Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)
        self.forecasts = Forecasts(
            self.store, IRIS, Resolver(self.store, IRIS, [server]), self._write, self.buried.append, lambda: self.now
        )

    def _write(self, _iri: str, document: NodeDocument) -> None:
        self.written.append(document)
        self.store.add([document])


def test_a_forecast_is_stored_registered_and_read_back(tmp_path: Path) -> None:
    """The graph says of what, how, when and where; the points are those that were given, quantiles too."""
    graph = _Graph(tmp_path)
    points = _table([1.0, None, 3.0], q0_1=[0.0, 1.0, 2.0])

    saved = graph.forecasts.save(points, MADE)

    (document,) = graph.written
    assert document["derivedFrom"] == [IRIS.metric(NODE, "energy_joules")]
    assert (document["model"], document["horizon"], document["step"]) == ("mine", "P1D", "PT5M")
    assert (document["trainedFrom"], document["trainedTo"]) == ("2026-11-26T00:00:00Z", "2026-11-27T00:00:00Z")
    (file,) = document["distribution"]
    assert (tmp_path / file["path"]).is_file()
    assert file["path"].startswith("energy_joules/prod/-/node/edge.a-1/")
    assert graph.forecasts.list(NODE, "energy_joules") == [saved]
    assert graph.forecasts.points(saved).equals(points)


def test_a_deleted_forecast_takes_its_file_with_it(tmp_path: Path) -> None:
    """The graph ends and its file goes, the other forecast's stays; one that there is not deletes nothing."""
    graph = _Graph(tmp_path)
    first = graph.forecasts.save(_table([1.0]), MADE)
    second = graph.forecasts.save(_table([2.0]), MADE)

    with pytest.raises(ResourceNotFound):
        graph.forecasts.delete(NODE, "energy_joules", "forecast/none")
    assert graph.forecasts.delete(NODE, "energy_joules", first.iri) == first

    assert graph.buried == [first.iri]
    assert [each.relative_to(tmp_path).as_posix() for each in tmp_path.rglob("*.parquet")] == [second.path]


@pytest.mark.parametrize("path", ["../out.parquet", "data.parquet", "energy_joules/prod/-/node/edge.a-1/data.parquet"])
def test_a_forecast_deletes_no_file_that_was_not_saved_for_it(tmp_path: Path, path: str) -> None:
    """A document may name any path; only what was saved for its own metric is removed."""
    graph = _Graph(tmp_path / "in")
    graph.forecasts.save(_table([1.0]), MADE)
    document = json.loads(json.dumps(graph.written[0]))
    document["id"] = f"{document['id']}9"
    document["distribution"][0] |= {"id": f"{document['id']}#at-forecasts", "path": path}
    graph.store.add([document])
    file = tmp_path / "in" / path
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_bytes(b"kept")

    graph.forecasts.delete(NODE, "energy_joules", document["id"])

    assert graph.buried == [document["id"]]
    assert file.read_bytes() == b"kept"


def test_the_next_forecast_revises_the_last(tmp_path: Path) -> None:
    """The newest comes first, and says which one it follows."""
    graph = _Graph(tmp_path)
    first = graph.forecasts.save(_table([1.0]), MADE)
    graph.now += timedelta(days=1)
    second = graph.forecasts.save(_table([2.0]), MADE)

    assert graph.forecasts.list(NODE, "energy_joules") == [second, first]
    assert graph.written[1]["revisionOf"] == first.iri
    assert "revisionOf" not in graph.written[0]


@pytest.mark.parametrize(
    ("table", "reason"),
    [
        (pa.table({"y": [1.0]}), "has the columns ds and y"),
        (_table([]), "1 to 1,000,000 points"),
        (pa.table({"ds": ["x"], "y": [1.0]}), "ds of a forecast are times"),
        (pa.concat_tables([_table([1.0]), _table([2.0])]), "each time of a forecast occurs once"),
        (_table([1.0, float("inf")]), "finite numbers"),
    ],
)
def test_what_is_no_forecast_is_refused(tmp_path: Path, table: pa.Table, reason: str) -> None:
    """Nothing is stored and nothing registered when the table is not one of points of one series."""
    graph = _Graph(tmp_path)
    with pytest.raises(InvalidDocument, match=reason):
        graph.forecasts.save(table, MADE)
    assert graph.written == []
    assert list(tmp_path.rglob("*.parquet")) == []


def test_points_never_come_from_elsewhere(tmp_path: Path) -> None:
    """A path in a document that leads out of the datasource is not followed; a lost file and an unknown server are told."""
    graph = _Graph(tmp_path / "in")
    saved = graph.forecasts.save(_table([1.0]), MADE)
    (tmp_path / "out.parquet").write_bytes((tmp_path / "in" / saved.path).read_bytes())
    with pytest.raises(SourceUnavailable, match="leads out"):
        graph.forecasts.points(replace(saved, path="../out.parquet"))
    with pytest.raises(SourceUnavailable, match="cannot be read"):
        graph.forecasts.points(replace(saved, path="gone.parquet"))
    with pytest.raises(SourceUnavailable, match="not configured here"):
        graph.forecasts.points(replace(saved, datasource=IRIS.datasource("other")))
    with pytest.raises(ResourceNotFound, match="'other' takes no forecasts"):
        graph.forecasts.save(_table([1.0]), MADE, "other")


def test_errors_are_measured_at_common_times() -> None:
    """MAE and MAPE over points that both sides have; zeros are left out of the percentage only."""
    table, measured = compare(_table([1.0, 2.0, 3.0, None, 9.0]), _table([2.0, 0.0, 6.0, 1.0]))

    assert measured == {"points": 3, "mae": pytest.approx(2.0), "mape": pytest.approx(50.0)}
    assert table.column_names == ["ds", "forecast", "actual"]
    assert compare(_table([1.0]), _table([0.0]))[1]["mape"] is None


def test_the_seasonal_forecast_repeats_the_week() -> None:
    """A pure weekly pattern is predicted exactly, from the mean of the same times, with quantiles around it."""
    hours = 24 * 21
    history = _table([float(n % 168) for n in range(hours)], NOW - timedelta(hours=hours), 3600)

    found = seasonal(history, timedelta(days=2), timedelta(hours=1))

    assert found["ds"][0].as_py() == NOW
    assert found["y"].to_pylist() == [float(n % 168) for n in range(48)]
    assert found["q0.1"].to_pylist() <= found["y"].to_pylist() <= found["q0.9"].to_pylist()


def test_a_day_of_history_is_repeated_and_less_is_refused() -> None:
    """With less than a week, the same time of the day before counts."""
    history = _table([float(n % 24) for n in range(49)], NOW - timedelta(hours=48), 3600)
    assert seasonal(history, timedelta(hours=5), timedelta(hours=1))["y"].to_pylist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(InvalidInput, match="a day of history"):
        seasonal(_table([1.0, 2.0]), timedelta(days=1), timedelta(hours=1))


def test_a_forecast_has_the_contracts_shape(tmp_path: Path) -> None:
    """The same keys and the same kinds of values as the contract's example, but for what is said beside it."""
    shared = Path(__file__).resolve().parents[3] / "shared" / "contract" / "graphs" / "forecast.jsonld"
    if not shared.is_file():
        if os.environ.get("CI") == "true":
            pytest.fail("no contract in ../shared")
        pytest.skip("no contract in ../shared")
    example = json.loads(shared.read_text())
    graph = _Graph(tmp_path)
    graph.forecasts.save(_table([1.0]), MADE)
    (document,) = graph.written
    assert document.keys() == example.keys()
    assert {key: type(value) for key, value in document.items()} == {key: type(value) for key, value in example.items()}
    assert document["distribution"][0].keys() == example["distribution"][0].keys()
    assert document["id"].rpartition("/")[2][14] == "7"  # ordered by time, as the example's


def test_forecasts_of_one_second_keep_their_order(tmp_path: Path) -> None:
    """Saved one after the other within a second, also when the clock went back, each revises the one before."""
    graph = _Graph(tmp_path)
    saved = [graph.forecasts.save(_table([float(n)]), MADE) for n in range(5)]
    graph.now -= timedelta(hours=1)
    saved.append(graph.forecasts.save(_table([9.0]), MADE))
    assert graph.forecasts.list(NODE, "energy_joules") == saved[::-1]
    assert [each.previous for each in saved] == [None, *(each.iri for each in saved[:-1])]


def test_two_writers_at_once_make_one_chain(tmp_path: Path) -> None:
    """Whoever comes second revises the first: nobody is revised twice, and nobody's points are lost."""
    graph = _Graph(tmp_path)
    threads = [threading.Thread(target=lambda n=n: graph.forecasts.save(_table([float(n)]), MADE)) for n in range(12)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    found = graph.forecasts.list(NODE, "energy_joules")
    assert [each.previous for each in found] == [*(each.iri for each in found[1:]), None]
    assert sorted(graph.forecasts.points(each)["y"][0].as_py() for each in found) == [float(n) for n in range(12)]


def test_missing_values_may_be_nan(tmp_path: Path) -> None:
    """What pandas writes as NaN is a missing value; times without a zone are UTC."""
    graph = _Graph(tmp_path)
    naive = _table([1.0, float("nan")]).set_column(
        0, "ds", pa.array([NOW.replace(tzinfo=None), NOW.replace(tzinfo=None, hour=1)])
    )
    saved = graph.forecasts.save(naive, MADE)
    points = graph.forecasts.points(saved)
    assert points["y"].to_pylist() == [1.0, None]
    assert points["ds"][0].as_py() == NOW


def test_the_query_of_the_history_is_kept_unless_it_is_long(tmp_path: Path) -> None:
    """A forecast says what it was learnt from; a query of a thousand pods is left to the metric to tell."""
    graph = _Graph(tmp_path)
    for query in ("sum(x)", "x" * 10_001):
        graph.forecasts.save(_table([1.0]), replace(MADE, query=query))
    assert [each.get("query") for each in graph.written] == ["sum(x)", None]


@pytest.mark.parametrize(
    ("made", "reason"),
    [
        ({"step": timedelta(0)}, "a step ahead"),
        ({"horizon": timedelta(minutes=1)}, "a step ahead"),
        ({"trained": (NOW, NOW)}, "ends before it starts"),
    ],
)
def test_what_cannot_be_is_refused(made: dict, reason: str) -> None:
    """No step, a horizon below the step, a history that is none."""
    with pytest.raises(InvalidInput, match=reason):
        replace(MADE, **made)


def test_only_what_is_a_metric_is_forecast(tmp_path: Path) -> None:
    """A metric that the entity has not is refused with what may be meant, and nothing is stored."""
    graph = _Graph(tmp_path)
    with pytest.raises(ResourceNotFound) as error:
        graph.forecasts.save(_table([1.0]), replace(MADE, metric="energy_joule"))
    assert error.value.hint == "did you mean energy_joules?"
    assert list(tmp_path.rglob("*")) == []


def test_forecasts_are_read_like_history(tmp_path: Path) -> None:
    """Without a window the newest whole; in a window each point by the newest forecast that has it; on any step."""
    graph = _Graph(tmp_path)
    graph.forecasts.save(_table([1.0] * 24, step=3600), replace(MADE, step=timedelta(hours=1)))
    graph.now += timedelta(hours=12)
    newest = graph.forecasts.save(
        _table([2.0] * 24, start=graph.now, step=3600), replace(MADE, step=timedelta(hours=1))
    )
    pair = [("prod/-/node/edge.a-1", "energy_joules")]

    whole = graph.forecasts.history(pair, None)
    assert whole.table["y"].to_pylist() == [2.0] * 24
    assert whole.queries[0].query == newest.path
    window = Window(NOW, NOW + timedelta(hours=23))
    assert graph.forecasts.history(pair, window).table["y"].to_pylist() == [1.0] * 12 + [2.0] * 12
    later = Window(NOW + timedelta(hours=30), NOW + timedelta(hours=37))
    series = graph.forecasts.history([*pair, ("prod/-/node/edge.a-1", "mem_usage")], later)
    assert series.table["y"].to_pylist() == [2.0] * 6 + [None] * 2
    assert series.coverage[series.failures[0].key._replace(metric="energy_joules")] == 6 / 8
    assert "there is no forecast of mem_usage" in str(series.failures[0].error)
    coarse = graph.forecasts.history(pair, window, "6h")
    assert coarse.table["y"].to_pylist() == [1.0, 6.0, 5 * 1.0 + 2.0, 12.0]  # joules add up; 12:00 is of the newer one
    with pytest.raises(ResourceNotFound, match="no forecast of mem_usage"):
        graph.forecasts.history([(NODE, "mem_usage")], None)
    with pytest.raises(ResourceNotFound, match="has a point in the window"):
        graph.forecasts.history(pair, Window(NOW + timedelta(days=9), NOW + timedelta(days=10)))


_SAVING = """
import itertools, sys
import pyarrow as pa
from kg.telemetry import forecast_points
from kg.telemetry.datasources import Datasource
server = Datasource("f", "", "parquet", "file://" + sys.argv[1])
points = pa.table({"ds": pa.array(range(100_000), pa.timestamp("ms", "UTC")), "y": [n / 7 for n in range(100_000)]})
for number in itertools.count():
    forecast_points.store(points, server, f"energy/a/{number}.parquet")
    print(f"energy/a/{number}.parquet", flush=True)
"""


def test_a_kill_leaves_no_half_forecast(tmp_path: Path) -> None:
    """Killed in the middle of saving, every file that has its name is whole, and all that were told are there."""
    root = str(Path(__file__).resolve().parents[2])
    process = subprocess.Popen(
        [sys.executable, "-c", _SAVING, str(tmp_path)], cwd=root, stdout=subprocess.PIPE, text=True
    )
    assert process.stdout is not None
    told = [process.stdout.readline().strip() for _ in range(3)]
    time.sleep(0.013)  # into the middle of the fourth, wherever that is
    process.send_signal(signal.SIGKILL)
    told += [line.strip() for line in process.stdout.readlines() if line.endswith("\n")]
    process.wait()
    process.stdout.close()
    files = {str(file.relative_to(tmp_path)): file for file in tmp_path.rglob("*.parquet")}
    assert set(told) <= set(files)
    assert {pyarrow.parquet.read_table(file).num_rows for file in files.values()} == {100_000}


def test_what_was_never_negative_is_not_forecast_to_be(tmp_path: Path) -> None:
    """The lower quantile stays at nothing, and both lie around the forecast, also where the history leans one way."""
    hours = 24 * 21
    values = [float(n % 24 == 3) * (1 + n // 24) for n in range(hours)]  # a spike a day that grows
    found = seasonal(_table(values, NOW - timedelta(hours=hours), 3600), timedelta(days=1), timedelta(hours=1))
    for low, y, high in zip(*(found[name].to_pylist() for name in ("q0.1", "y", "q0.9")), strict=True):
        assert 0 <= low <= y <= high


def test_a_month_in_five_minutes_is_forecast_quickly() -> None:
    """The baseline's work grows with the history, not with its square."""
    history = _table([float(n % 288) for n in range(28 * 288)], NOW - timedelta(days=28))
    begun = time.process_time()
    found = seasonal(history, timedelta(days=1), timedelta(minutes=5))
    assert found["y"].to_pylist() == [float(n) for n in range(288)]
    assert time.process_time() - begun < 1


def test_a_forecast_begins_where_its_history_ends() -> None:
    """Also when the last points of the history are missing: the horizon does not slip into the past."""
    history = _table([*(float(n % 24) for n in range(72)), None, None], NOW - timedelta(hours=74), 3600)
    assert seasonal(history, timedelta(hours=2), timedelta(hours=1))["ds"][0].as_py() == NOW
    with pytest.raises(InvalidInput, match="shorter than the step"):
        seasonal(history, timedelta(minutes=5), timedelta(hours=1))


@settings(deadline=None, max_examples=12, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(
    st.lists(st.tuples(st.integers(0, 40), st.integers(1, 30)), min_size=1, max_size=5),
    st.integers(0, 30),
    st.integers(1, 40),
)
def test_each_point_is_of_the_newest_forecast_that_has_it(
    tmp_path: Path, made: list[tuple[int, int]], first: int, length: int
) -> None:
    """Whatever the forecasts cover: in a window every point is the newest one's that has it, and null where none has."""
    graph = _Graph(tmp_path / uuid.uuid4().hex)
    hour = timedelta(hours=1)
    expected: dict[int, float] = {}
    for number, (start, count) in enumerate(sorted(made)):
        graph.now = NOW + start * hour
        table = _table([float(number)] * count, start=graph.now, step=3600)
        graph.forecasts.save(table, replace(MADE, step=hour, horizon=max(count, 1) * hour))
        expected |= {start + n: float(number) for n in range(count)}
    window = Window(NOW + first * hour, NOW + (first + length) * hour)
    points = [expected.get(n) for n in range(first, first + length + 1)]
    if all(point is None for point in points):
        with pytest.raises(ResourceNotFound):
            graph.forecasts.history([(NODE, "energy_joules")], window)
    else:
        assert graph.forecasts.history([(NODE, "energy_joules")], window).table["y"].to_pylist() == points
