"""Forecasts: what is stored is what was given, the graph says where, and errors are measured as everybody measures them."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pyarrow as pa
import pytest

from kg.errors import InvalidDocument, InvalidInput, ResourceNotFound, SourceUnavailable
from kg.jsonld import NodeDocument
from kg.settings import DatasourceSettings
from kg.telemetry.datasources import Datasource
from kg.telemetry.forecasts import Forecasts, Made, compare, seasonal
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
        self.now = NOW
        given = {"name": name, "kind": "parquet", "url": directory.as_uri()}
        server = Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)
        self.forecasts = Forecasts(self.store, IRIS, [server], self._write, lambda: self.now)  # type: ignore[arg-type]

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
    from dataclasses import replace

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
