"""Directories of Parquet: what is read is what a plain loop over the rows would find, however they are cut into files and row groups."""

from __future__ import annotations

import tempfile
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.parquet import How, Parquet, gridded, write
from drumlin.kg.telemetry.series import Grid
from tests.unit.telemetry_store import IRIS

START = 1_793_491_200
GRID = Grid(START, START + 600, 60)
_STAMPS = st.integers((START - 120) * 1000, (START + 720) * 1000)
_VALUES = st.one_of(st.none(), st.integers(-1000, 1000).map(float))
_IDS = st.sampled_from(["a", "a'b", 'q"x', "ä", "b"])
_OFTEN = st.integers(-2, 24).map(lambda n: (START + 30 * n) * 1000)  # the same time again and again
_ROWS = st.lists(st.tuples(_IDS, _OFTEN, _VALUES, st.sampled_from(["m", "n"])), min_size=1, max_size=60)


def _by_hand(rows: Mapping[int, float | None], how: How) -> dict[int, float]:
    """Put values into the steps that end at the grid's points, with a loop."""
    found: dict[int, list[float]] = {}
    for stamp, value in rows.items():
        for point in range(GRID.start, GRID.end + 1, GRID.step):
            if value is not None and (point - GRID.step) * 1000 < stamp <= point * 1000:
                found.setdefault(point, []).append(value)
    return {point: sum(each) / (len(each) if how == "avg" else 1) for point, each in sorted(found.items())}


@given(st.dictionaries(_STAMPS, _VALUES, max_size=60), st.sampled_from(["avg", "sum"]))
def test_a_point_is_what_its_step_holds(rows: dict[int, float | None], how: How) -> None:
    """The mean or the sum of the values after the point before and up to the point; nothing where there is none."""
    stamps = pa.chunked_array([pa.array(list(rows), pa.int64())])
    values = pa.chunked_array([pa.array(list(rows.values()), pa.float64())])

    found = gridded(stamps, values, GRID, how)

    expected = _by_hand(rows, how)
    assert found.seconds.to_pylist() == list(expected)
    assert found.values.to_pylist() == pytest.approx(list(expected.values()))


@settings(deadline=None, max_examples=15)
@given(_ROWS, st.integers(1, 7), st.integers(1, 3), st.sampled_from(["ms", "us", "ns"]), st.booleans())
def test_any_cut_into_files_and_groups_gives_the_same(
    rows: list[tuple[str, int, float | None, str]], group: int, files: int, unit: str, zone: bool
) -> None:
    """Statistics only leave out what is not there; of a time that is there twice, the later file's value counts, if it is one."""
    with tempfile.TemporaryDirectory() as place:
        directory = Path(place)
        for number in range(files):
            part = [row for at, row in enumerate(rows) if at % files == number]
            stamps = pa.array([row[1] for row in part], pa.timestamp("ms")).cast(pa.timestamp(unit))
            table = pa.table(
                {
                    "unique_id": pa.array([row[0] for row in part], pa.string()).dictionary_encode(),
                    "ds": stamps.cast(pa.timestamp(unit, "UTC")) if zone else stamps,
                    "y": pa.array([row[2] for row in part], pa.float64()),
                    "metric": pa.array([row[3] for row in part], pa.string()),
                }
            )
            pyarrow.parquet.write_table(table, directory / f"{number}.parquet", row_group_size=group)
        given_settings = {"name": "p", "kind": "parquet", "url": directory.as_uri()}
        datasource = Datasource.from_settings(DatasourceSettings.model_validate(given_settings), IRIS, None)
        with Parquet(datasource) as client:
            for id in {row[0] for row in rows}:
                for metric in ("m", "n"):
                    in_order = [row for number in range(files) for at, row in enumerate(rows) if at % files == number]
                    mine = {
                        row[1]: row[2] for row in in_order if (row[0], row[3]) == (id, metric) and row[2] is not None
                    }
                    fetched = client.series(write(id, metric, "avg", GRID.step, datasource), GRID)
                    found = {
                        s: v
                        for part in fetched.parts
                        for s, v in zip(part.seconds.to_pylist(), part.values.to_pylist(), strict=True)
                    }
                    assert found == pytest.approx(_by_hand(mine, "avg"))


def test_a_file_that_changes_is_read_anew(tmp_path: Path) -> None:
    """A footer is kept only as long as its file stays the same."""
    datasource = Datasource.from_settings(
        DatasourceSettings.model_validate({"name": "p", "kind": "parquet", "url": tmp_path.as_uri()}), IRIS, None
    )
    query = write("a", "m", "avg", GRID.step, datasource)
    with Parquet(datasource) as client:
        for count in (1, 3, 2):
            stamps = [datetime.fromtimestamp(START + 60 * n, UTC) for n in range(count)]
            table = {"unique_id": ["a"] * count, "ds": stamps, "y": [1.0] * count, "metric": ["m"] * count}
            pyarrow.parquet.write_table(pa.table(table), tmp_path / "a.parquet")
            (part,) = client.series(query, GRID).parts
            assert len(part.values) == count
