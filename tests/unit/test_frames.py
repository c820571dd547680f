"""Frames of Nixtla's libraries and of Prophet, in both directions, held to what these libraries document."""

from __future__ import annotations

import math
from datetime import UTC, datetime, timedelta

import pandas
import polars
import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidDocument, InvalidInput
from drumlin.kg.telemetry.frames import as_forecast, nixtla
from drumlin.kg.telemetry.series import Grid, Key, SeriesColumn, assemble

GRID = Grid(1_800_000_000, 1_800_000_000 + 9 * 300, 300)
VALUES = st.lists(st.one_of(st.none(), st.floats(0, 1e6)), min_size=10, max_size=10)


def _series(*columns: tuple[str, str, list[float | None]]) -> pa.Table:
    found = [SeriesColumn(Key(id, metric), "1", pa.array(values, pa.float64())) for id, metric, values in columns]
    return assemble(found, GRID, "null")


@given(st.lists(VALUES, min_size=1, max_size=3))
def test_a_frame_for_nixtla_is_regular_and_without_gaps(drawn: list[list[float | None]]) -> None:
    """The documented requirements: the three columns, ds without a zone and one step apart, numbers in y, no value that was there changed."""
    frame = nixtla(_series(*((f"a/{n}", "cpu_usage", values) for n, values in enumerate(drawn)))).to_pandas()
    assert list(frame.columns) == ["unique_id", "ds", "y"]
    assert frame["ds"].dt.tz is None
    assert pandas.api.types.is_float_dtype(frame["y"])
    for number, values in enumerate(drawn):
        mine = frame[frame["unique_id"] == f"a/{number}"]
        known = [place for place, value in enumerate(values) if value is not None]
        assert len(mine) == (known[-1] - known[0] + 1 if known else 0)
        assert all(map(math.isfinite, mine["y"]))
        assert set(mine["ds"].diff().dropna()) <= {pandas.Timedelta(seconds=300)}
        for place in known:
            assert mine["y"].iloc[place - known[0]] == values[place]


def test_a_frame_for_nixtla_has_one_metric() -> None:
    """Of several, one is named."""
    both = _series(("a", "cpu_usage", [1.0] * 10), ("a", "mem_usage", [2.0] * 10))
    with pytest.raises(InvalidInput, match="2 metrics"):
        nixtla(both)
    assert nixtla(both, "mem_usage")["y"].to_pylist() == [2.0] * 10


STAMPS = [datetime(2026, 11, 27) + timedelta(hours=n) for n in range(2)]  # noqa: DTZ001 - as these libraries write them


def test_what_nixtlas_libraries_return_is_a_forecast() -> None:
    """The model's column is y, its bounds are quantiles; ``unique_id`` may be the index; other models are left out when one is named."""
    frame = pandas.DataFrame(
        {
            "unique_id": ["a", "a"],
            "ds": STAMPS,
            "AutoETS": [1.0, 2.0],
            "AutoETS-lo-80": [0.0, 1.0],
            "AutoETS-hi-80": [2.0, 3.0],
            "AutoETS-hi-95.0": [4.0, 5.0],
        }
    )
    expected = ["unique_id", "ds", "y", "q0.1", "q0.9", "q0.975"]
    for given_frame in (frame, frame.set_index("unique_id"), polars.from_pandas(frame), pa.Table.from_pandas(frame)):
        assert sorted(as_forecast(given_frame).column_names) == sorted(expected)
    found = as_forecast(frame)
    assert (found["y"].to_pylist(), found["q0.9"].to_pylist()) == ([1.0, 2.0], [2.0, 3.0])
    two = frame.assign(Naive=[7.0, 8.0])
    with pytest.raises(InvalidDocument, match="2 models"):
        as_forecast(two, "mine")
    assert as_forecast(two, "Naive")["y"].to_pylist() == [7.0, 8.0]
    assert as_forecast(two, "Naive").column_names == ["unique_id", "ds", "y"]


def test_what_prophet_returns_is_a_forecast() -> None:
    """``yhat`` with its bounds, whose default width is 80 %; its components are left out."""
    frame = pandas.DataFrame(
        {"ds": STAMPS, "trend": [0.0, 0.0], "yhat": [1.0, 2.0], "yhat_lower": [0.5, 1], "yhat_upper": [3, 4]}
    )
    found = as_forecast(frame)
    assert found.column_names == ["ds", "y", "q0.1", "q0.9"]
    assert found["q0.1"].to_pylist() == [0.5, 1.0]


def test_a_table_of_a_forecast_is_left_as_it_is() -> None:
    """Also one that lacks a column: the service says which."""
    table = pa.table({"ds": [datetime(2026, 11, 27, tzinfo=UTC)], "y": [1.0]})
    assert as_forecast(table) is table
    odd = pa.table({"a": ["x"]})
    assert as_forecast(odd) is odd
