"""Rows written as NDJSON are what a JSON reader reads back, whatever the names and values."""

from __future__ import annotations

import json

import pyarrow as pa
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg.telemetry.formats import _lines
from drumlin.kg.telemetry.series import Grid, Key, SeriesColumn, assemble

WORD = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
VALUES = st.lists(st.none() | st.floats(allow_nan=False, allow_infinity=False), min_size=1, max_size=5)


@settings(deadline=None)
@given(WORD, WORD, WORD, VALUES, st.integers(0, 2_000_000), st.integers(1, 90_000))
def test_each_row_is_a_json_object_of_its_values(
    name: str, metric: str, unit: str, values: list[float | None], first: int, step: int
) -> None:
    """Quotes, line ends and any script in names, nulls and the smallest floats: the objects hold exactly the rows."""
    grid = Grid(first * step, (first + len(values) - 1) * step, step)
    table = assemble([SeriesColumn(Key(name, metric), unit, pa.array(values, pa.float64()))], grid, "null")

    (batch,) = table.to_batches()
    read = [json.loads(line) for line in _lines(batch).decode().split("\n")[:-1]]

    rows = [{**row, "ds": row["ds"].isoformat().replace("+00:00", "Z")} for row in batch.to_pylist()]
    assert read == rows
    assert [list(each) for each in read] == [["unique_id", "ds", "y", "metric", "unit"]] * len(rows)
    assert _lines(batch.slice(1, 0)) == b""
    assert _lines(batch.slice(len(rows) - 1)) == _lines(batch)[-len(_lines(batch.slice(len(rows) - 1))) :]
