"""Forecasts: what is stored is what was given, the graph says where, and errors are measured as everybody measures them."""

from __future__ import annotations

import json
import os
import threading
import uuid
from collections.abc import Sequence
from dataclasses import replace
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import InvalidDocument, InvalidInput, ResourceNotFound, SourceUnavailable, TooLarge
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry.baseline import predict
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.forecasts import Forecast, ForecastStore, Made, Unsaved
from drumlin.kg.telemetry.measures import backtest, compare, naive_error
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from tests.counting import counted_calls
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
        self.forecasts = ForecastStore(
            self.store, IRIS, Resolver(self.store, IRIS, [server]), self._write, self.buried.append, lambda: self.now
        )

    def _write(self, documents: Sequence[NodeDocument]) -> None:
        self.written += documents
        self.store.add(documents)


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


@pytest.mark.parametrize("path", ["a\x00b.parquet", "x" * 5000, "a/" * 3000], ids=["NUL", "long", "deep"])
def test_a_path_that_can_name_no_file_is_reported(tmp_path: Path, path: str) -> None:
    """A document may hold any text as a path: reading its points says that they are not there."""
    graph = _Graph(tmp_path)
    saved = graph.forecasts.save(_table([1.0]), MADE)
    with pytest.raises(SourceUnavailable):
        graph.forecasts.points(replace(saved, path=path))


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

    assert (measured["points"], measured["mae"], measured["mape"]) == (3, pytest.approx(2.0), pytest.approx(50.0))
    assert (measured["mase"], measured["quantileLoss"], measured["intervalCoverage"]) == (None, {}, {})
    assert table.column_names == ["ds", "forecast", "actual"]
    assert compare(_table([1.0]), _table([0.0]))[1]["mape"] is None


def test_the_seasonal_forecast_repeats_the_week() -> None:
    """A pure weekly pattern is predicted exactly, from the mean of the same times, with quantiles around it."""
    hours = 24 * 21
    history = _table([float(n % 168) for n in range(hours)], NOW - timedelta(hours=hours), 3600)

    found = predict(history, timedelta(days=2), timedelta(hours=1)).table

    assert found["ds"][0].as_py() == NOW
    assert found["y"].to_pylist() == [float(n % 168) for n in range(48)]
    assert found["q0.1"].to_pylist() <= found["y"].to_pylist() <= found["q0.9"].to_pylist()


def test_a_day_of_history_is_repeated_and_less_is_refused() -> None:
    """With less than a week, the same time of the day before counts."""
    history = _table([float(n % 24) for n in range(49)], NOW - timedelta(hours=48), 3600)
    assert predict(history, timedelta(hours=5), timedelta(hours=1)).table["y"].to_pylist() == [1.0, 2.0, 3.0, 4.0, 5.0]
    with pytest.raises(InvalidInput, match="a day of history"):
        predict(_table([1.0, 2.0]), timedelta(days=1), timedelta(hours=1))


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


def test_two_points_that_are_far_apart_make_no_grid_of_all_between(tmp_path: Path) -> None:
    """A grid beyond the limit of history is refused before it is made, with and without a window; a longer step helps."""
    graph = _Graph(tmp_path)
    graph.forecasts.save(_table([1.0, 2.0], start=datetime(1970, 1, 1, tzinfo=UTC), step=8000 * 365 * 86_400), MADE)
    pair = [(NODE, "energy_joules")]

    for window in (None, Window(datetime(1970, 1, 1, tzinfo=UTC), datetime(9000, 1, 1, tzinfo=UTC))):
        with pytest.raises(TooLarge, match="the limit is 20,000,000"):
            graph.forecasts.history(pair, window)
    assert graph.forecasts.history(pair, None, "366d").table["y"].drop_null().to_pylist() == [1.0, 2.0]


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


def test_what_was_never_negative_is_not_forecast_to_be(tmp_path: Path) -> None:
    """The lower quantile stays at nothing, and both lie around the forecast, also where the history leans one way."""
    hours = 24 * 21
    values = [float(n % 24 == 3) * (1 + n // 24) for n in range(hours)]  # a spike a day that grows
    found = predict(_table(values, NOW - timedelta(hours=hours), 3600), timedelta(days=1), timedelta(hours=1)).table
    for low, y, high in zip(*(found[name].to_pylist() for name in ("q0.1", "y", "q0.9")), strict=True):
        assert 0 <= low <= y <= high


def test_the_work_of_a_forecast_grows_with_the_history() -> None:
    """The baseline's work is proportional to the length of the history, not to its square."""

    def work(days: int) -> int:
        history = _table([float(n % 288) for n in range(days * 288)], NOW - timedelta(days=days))
        with counted_calls() as calls:
            found = predict(history, timedelta(days=1), timedelta(minutes=5)).table
        assert found["y"].to_pylist() == [float(n) for n in range(288)]
        return calls.count

    assert work(28) < 2.5 * work(14)


def test_a_forecast_begins_where_its_history_ends() -> None:
    """Also when the last points of the history are missing: the horizon does not slip into the past."""
    history = _table([*(float(n % 24) for n in range(72)), None, None], NOW - timedelta(hours=74), 3600)
    assert predict(history, timedelta(hours=2), timedelta(hours=1)).table["ds"][0].as_py() == NOW
    with pytest.raises(InvalidInput, match="shorter than the step"):
        predict(history, timedelta(minutes=5), timedelta(hours=1))


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


def _long(*names: str, **more: list[object]) -> pa.Table:
    """Return a long frame of these entities, two points each."""
    parts = [
        _table([float(n), float(n) + 1]).append_column("unique_id", pa.array([name] * 2))
        for n, name in enumerate(names)
    ]
    table = pa.concat_tables(parts)
    for name, column in more.items():
        table = table.append_column(name, pa.array(column))
    return table


def test_a_long_frame_is_saved_series_by_series(tmp_path: Path) -> None:
    """Each series is a forecast of its own with its own revision; one that cannot be saved says why and stops no other."""
    graph = _Graph(tmp_path)
    other = IRIS.object("prod", None, "Node", "b")
    graph.store.add([{"id": other, "type": "Node", "name": "b"}])
    names = ("prod/-/node/edge.a-1", "prod/-/node/none", "prod/-/node/b")
    how = replace(MADE, entity="")
    before = graph.forecasts.save(_table([7.0]), MADE)
    first, refused, third = graph.forecasts.save_many(_long(*names), how)
    assert isinstance(refused, Unsaved)
    assert (refused.entity, refused.metric, type(refused.error)) == (names[1], "energy_joules", ResourceNotFound)
    assert isinstance(first, Forecast)
    assert isinstance(third, Forecast)
    assert (first.previous, third.previous) == (before.iri, None)
    assert third.trained == MADE.trained
    assert graph.forecasts.points(first)["y"].to_pylist() == [0.0, 1.0]
    assert graph.forecasts.points(third)["y"].to_pylist() == [2.0, 3.0]
    two = _long(names[0], names[0], metric=["energy_joules"] * 2 + ["mem_usage"] * 2)
    assert [each.metric.rpartition("/")[2] for each in graph.forecasts.save_many(two, how)] == [
        "energy_joules",
        "mem_usage",
    ]
    assert [each.metric.rpartition("/")[2] for each in graph.forecasts.list(names[0])] == [
        "mem_usage",
        "energy_joules",
        "energy_joules",
        "energy_joules",
    ]
    twice = graph.forecasts.save_many(_long(names[0], names[2], names[0]), how)
    assert [isinstance(each, Unsaved) for each in twice] == [True, False]
    assert "each time of a forecast occurs once" in str(twice[0].error)
    with pytest.raises(InvalidDocument, match="has the column unique_id"):
        graph.forecasts.save_many(_table([1.0]), how)
    with pytest.raises(InvalidDocument, match="no metric is named"):
        graph.forecasts.save_many(_long(names[0]), replace(how, metric=""))


def test_the_value_of_a_moment_is_that_of_the_step_that_holds_it(tmp_path: Path) -> None:
    """By the newest forecast that has its point; a quantile where it has one; nothing is made up beyond the horizon."""
    graph = _Graph(tmp_path)
    graph.forecasts.save(_table([1.0, 2.0, 3.0, 4.0], q0_9=[5.0, 6.0, 7.0, 8.0]), MADE)
    graph.now = NOW + timedelta(minutes=1)
    newer = graph.forecasts.save(_table([10.0, None]), MADE)
    of = ("prod/-/node/edge.a-1", "energy_joules")
    found = graph.forecasts.value(*of, NOW)
    assert (found.forecast, found.at, found.value, found.unit) == (newer, NOW, 10.0, "J")
    assert graph.forecasts.value(*of, NOW + timedelta(seconds=1)).value == 2.0  # the newer one has none there
    assert graph.forecasts.value(*of, NOW + timedelta(minutes=5), "q0.9").value == 6.0
    with pytest.raises(ResourceNotFound, match="has y at 2026-11-27T00:16:00Z"):
        graph.forecasts.value(*of, NOW + timedelta(minutes=16))
    with pytest.raises(ResourceNotFound, match="has q0.5"):
        graph.forecasts.value(*of, NOW, "q0.5")
    with pytest.raises(ResourceNotFound, match="there is no forecast of mem_usage"):
        graph.forecasts.value(of[0], "mem_usage", NOW)


def test_measures_are_those_of_the_field() -> None:
    """MASE, quantile loss and interval coverage by hand."""
    forecast = _table([2.0, 2.0, 2.0, 2.0], q0_1=[1.0] * 4, q0_9=[3.0] * 4, q0_5=[2.0] * 4)
    _, measured = compare(forecast, _table([2.0, 3.5, 0.0, 1.0]), scale=0.5)
    assert measured["mase"] == pytest.approx(measured["mae"] / 0.5) == pytest.approx(2.25)
    assert measured["intervalCoverage"] == {"0.8": 0.5}
    assert measured["quantileLoss"] == pytest.approx(
        {"q0.1": (0.1 + 0.25 + 0.9 + 0.0) / 4, "q0.9": (0.1 + 0.45 + 0.3 + 0.2) / 4, "q0.5": 4.5 / 8}
    )
    days = _table([1.0, 5.0, 2.0, 9.0, None, 1.0], step=43_200)
    assert naive_error(days) == pytest.approx((1 + 4 + 8) / 3)  # two points a day; the missing one is left out
    assert naive_error(_table([1.0, 2.0])) is None
    assert naive_error(_table([3.0] * 4, step=86_400)) is None  # no error to compare with


def test_a_backtest_sees_nothing_of_what_it_is_measured_by() -> None:
    """From each origin a model gets what came before and no more; measures are those of each origin and of all points."""
    history = _table([float(n) for n in range(24 * 6)], step=3600)
    seen: list[tuple[float, float]] = []

    def last_value(past: pa.Table, horizon: timedelta, step: timedelta) -> pa.Table:
        seen.append((past["y"][0].as_py(), past["y"][-1].as_py()))
        until = past["ds"][-1].as_py()
        stamps = [until + n * step for n in range(1, horizon // step + 3)]  # further than it is asked for
        return pa.table({"ds": pa.array(stamps, pa.timestamp("ms", "UTC")), "y": [past["y"][-1].as_py()] * len(stamps)})

    origins = [NOW + timedelta(days=day) for day in (-1, 2, 3, 4)]  # the first has no past
    found = backtest(
        history, last_value, origins, horizon=timedelta(hours=4), step=timedelta(hours=1), learn=timedelta(days=2)
    )
    assert seen == [(1.0, 48.0), (25.0, 72.0), (49.0, 96.0)]
    assert [each["mae"] for each in found.origins] == [2.5, 2.5, 2.5]
    assert (found.overall["points"], found.overall["mae"], found.table.num_rows) == (12, 2.5, 12)
    assert found.overall["mase"] == pytest.approx(2.5 / 24)
    assert found.origins[0]["origin"] == "2026-11-29T00:00:00Z"
    with pytest.raises(InvalidInput, match="no starting point"):
        backtest(history, last_value, [NOW - timedelta(days=9)], horizon=timedelta(hours=4), step=timedelta(hours=1))


def test_a_long_frame_costs_as_many_look_ups_as_a_short_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Fifty series are checked, stored and registered with as many questions to the graph and writes as two."""
    graph = _Graph(tmp_path)
    nodes = [IRIS.object("prod", None, "Node", f"n{number}") for number in range(50)]
    graph.store.add([{"id": each, "type": "Node", "name": each.rpartition("/")[2]} for each in nodes])
    asked: list[str] = []
    look_up = graph.store.look_up
    monkeypatch.setattr(graph.store, "look_up", lambda *given: asked.append(given[0]) or look_up(*given))
    costs = []
    for some in (nodes[:2], nodes):
        asked.clear()
        saved = graph.forecasts.save_many(_long(*some), replace(MADE, entity=""))
        assert [type(each) for each in saved] == [Forecast] * len(some)
        costs.append(len(asked))
    assert costs[0] == costs[1]
