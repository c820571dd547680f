"""Arrow streams and Parquet files that others wrote: whatever stands in them, there is a table or an error of ours, within limits."""

from __future__ import annotations

import io
import json
import struct
from collections.abc import Callable
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet
import pytest

from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import InvalidDocument, SourceUnavailable, TooLarge
from drumlin.kg.model.iris import Iris
from drumlin.kg.telemetry import arrow_input, forecast_points, wire
from drumlin.kg.telemetry.arrow_input import MAX_COLUMNS, read_stream
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.parquet import Parquet, write
from drumlin.kg.telemetry.fetch.parquet_files import Footer
from drumlin.kg.telemetry.series import Grid, schema
from tests import hostile
from tests.hostile import forecast, stream

SHARED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "hostile" / "forecast-out-of-bounds.arrow"
ROWS = 1000


def read(body: bytes) -> pa.Table:
    """Read a body as ``POST /forecasts`` does."""
    return forecast_points.checked(read_stream(body, max_rows=ROWS))


@pytest.mark.parametrize("codec", [None, "zstd", "lz4"])
def test_a_sound_stream_is_read(codec: str | None) -> None:
    """Plain, dictionary and view columns, with or without compression, in any number of batches."""
    words = pa.array(["1", "2.5"] * 4)
    table = forecast(
        **{"q0.1": words.dictionary_encode(), "q0.5": words, "q0.9": words.cast(pa.string_view()), "other": words}
    )

    found = read(stream(pa.concat_tables([table.slice(0, 3), table.slice(3)]), codec))

    assert found.column_names == ["ds", "y", "q0.1", "q0.5", "q0.9"]
    assert found["q0.9"].to_pylist() == [1.0, 2.5] * 4


@pytest.mark.parametrize("make", [hostile.out_of_bounds, hostile.out_of_dictionary])
def test_what_points_outside_is_refused(make: Callable[[], bytes]) -> None:
    """Offsets behind the end of a buffer and indices behind that of a dictionary are found before they are followed."""
    with pytest.raises(InvalidDocument, match="not a valid Arrow IPC stream: .*(out of bounds|index)"):
        read(make())


@pytest.mark.skipif(not SHARED.exists(), reason="the shared data is not here")
def test_the_recorded_stream_is_refused() -> None:
    """The body that once ended a service."""
    with pytest.raises(InvalidDocument, match="out of bounds"):
        read(SHARED.read_bytes())


@pytest.mark.parametrize("codec", ["zstd", "lz4"])
def test_what_unpacks_to_too_much_is_refused_before_it_is_unpacked(codec: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The sizes that compressed buffers declare are added up, over all batches and dictionaries; nothing is allocated for them."""
    monkeypatch.setattr(arrow_input, "MAX_UNPACKED", 1 << 20)
    whole = hostile.bomb(codec, 1_000_000)
    assert len(whole) < 1 << 18
    many = forecast(100_000)
    sink = io.BytesIO()
    with pa.ipc.new_stream(sink, many.schema, options=pa.ipc.IpcWriteOptions(compression=codec)) as out:
        for _ in range(3):
            out.write_table(many, max_chunksize=10_000)
    words = pa.array(["x" * 1000] * 2000 + [str(n) for n in range(2000)]).dictionary_encode()
    dictionary = pa.DictionaryArray.from_arrays(pa.array([0] * 8), pa.array(["x" * 300_000] * 8))
    before = pa.total_allocated_bytes()

    for body in (whole, sink.getvalue(), stream(forecast(y=dictionary), codec)):
        with pytest.raises(TooLarge, match="unpacks to .* or more; the limit is 1,048,576"):
            read(body)
    assert pa.total_allocated_bytes() == before
    assert read_stream(stream(pa.table({"w": words}), None), max_rows=10_000).num_rows == 4000


def test_a_size_that_is_a_lie_is_refused() -> None:
    """A buffer that declares less or more than it holds is an error of pyarrow's, and so one of ours."""
    sound = stream(forecast(1000), "zstd")
    at = sound.index(struct.pack("<q", 8000))
    for size in (0, 1, 7999, 8001, 10_000_000, 1 << 40, (1 << 63) - 1, -2, -(1 << 63)):
        with pytest.raises((InvalidDocument, TooLarge)):
            read(sound[:at] + struct.pack("<q", size) + sound[at + 8 :])


def test_rows_and_columns_are_counted_before_they_are_computed_with() -> None:
    """A run-length encoded column of two thousand million rows takes no memory, and is refused for its rows."""
    runs = pa.RunEndEncodedArray.from_arrays(pa.array([2**31 - 1], pa.int32()), pa.array([1.0]))
    for table in (pa.table({"y": runs}), pa.table({"y": pa.nulls(2**31 - 1)}), forecast(ROWS + 1)):
        with pytest.raises(TooLarge, match="more than 1,000 rows"):
            read(stream(table))
    wide = pa.table({f"c{n}": pa.array([1]) for n in range(MAX_COLUMNS + 1)})
    with pytest.raises(TooLarge, match="1,001 columns; the limit is 1,000"):
        read(stream(wide))


def _nested(depth: int) -> pa.DataType:
    kind: pa.DataType = pa.int8()
    for _ in range(depth):
        kind = pa.list_(kind)
    return kind


@pytest.mark.parametrize(
    "table",
    [
        forecast(y=pa.array([[1.0]] * 8)),
        forecast(y=pa.array([{"a": 1}] * 8)),
        forecast(y=pa.nulls(8, _nested(60))),
        forecast(y=pa.array(["one"] * 8)),
        forecast(y=pa.array([b"\xff"] * 8)),
        forecast(y=pa.array([None] * 8, pa.duration("s"))),
        forecast(ds=pa.array([2**62] * 8, pa.timestamp("s"))),
        forecast(ds=pa.array(["once"] * 8)),
        forecast(ds=pa.array([-1, *range(7)], pa.timestamp("ms"))),
        forecast(ds=pa.array([*range(7), 253_402_300_800_000], pa.timestamp("ms"))),
        forecast(ds=pa.nulls(8, pa.timestamp("s"))),
        forecast(y=pa.array([float("inf")] * 8)),
        pa.Table.from_arrays([pa.array([1]), pa.array([1.0]), pa.array([1.0])], names=["ds", "y", "y"]),
        pa.table({}),
    ],
    ids=lambda table: str(table.schema.names) + str(table.schema.types)[-40:],
)
def test_what_is_no_forecast_is_refused(table: pa.Table) -> None:
    """Columns of another kind, twice the same name, times beyond any calendar: an error of ours, whatever pyarrow calls it."""
    with pytest.raises(InvalidDocument):
        read(stream(table))


def test_a_stream_that_is_cut_anywhere_is_refused_or_shorter() -> None:
    """At whatever byte it ends there is an error of ours; a cut between two messages is the end of the stream."""
    whole = stream(forecast(y=pa.array(["1.5"] * 8).dictionary_encode()), "zstd")
    found = set()
    for end in range(len(whole)):
        try:
            found.add(read(whole[:end]).num_rows)
        except InvalidDocument:
            continue
    assert found <= {8}


@pytest.mark.parametrize("body", [b"", b"PAR1" * 10, b"ARROW1\0\0" + b"\xff" * 64, b"\xff" * 64, b"\0" * 64, b"{}"])
def test_what_is_no_stream_is_refused(body: bytes) -> None:
    """Parquet, an Arrow file, JSON or nothing at all; the hint says what to send."""
    with pytest.raises(InvalidDocument, match="not a valid Arrow IPC stream|not a forecast|has the columns") as refused:
        read(body)
    assert refused.value.hint


def test_a_service_that_answers_what_points_outside_is_an_error() -> None:
    """A client validates a service's stream, and needs an account that is one."""
    word = pa.DictionaryArray.from_arrays(pa.array([7], pa.int32()), pa.array(["a"]), safe=False)
    sound = pa.DictionaryArray.from_arrays(pa.array([0], pa.int32()), pa.array(["a"]))
    stamp, value = pa.array([0], pa.timestamp("ms", "UTC")), pa.array([1.0])
    account = {"series": [], "failures": [], "queries": [], "warnings": []}

    def answer(unique: pa.Array, about: bytes) -> bytes:
        sink = io.BytesIO()
        with pa.ipc.new_stream(sink, schema()) as out:
            batch = pa.record_batch([unique, stamp, value, sound, sound], schema=schema())
            out.write_batch(batch, custom_metadata={b"drumlin": about})
            out.write_batch(batch.slice(1), custom_metadata={b"drumlin": b'{"last":true}'})
        return sink.getvalue()

    assert wire.read(answer(sound, json.dumps(account).encode()))[0].num_rows == 1
    for unique, about in (
        (word, json.dumps(account).encode()),
        (sound, b"[" * 100_000),
        (sound, b"{}"),
        (sound, b"\xff"),
    ):
        with pytest.raises(InvalidDocument, match="not a whole stream of series"):
            wire.read(answer(unique, about))


# -- Parquet --------------------------------------------------------------------------------------------------------------
def _server(directory: Path) -> Datasource:
    settings = DatasourceSettings(name="files", kind="parquet", url=directory.as_uri())
    return Datasource.from_settings(settings, Iris("https://kg.example"), None)


def _series(points: int) -> pa.Table:
    return forecast(points, unique_id=pa.array(["a"] * points), metric=pa.array(["m"] * points))


def test_a_forecast_file_of_too_many_rows_is_not_read_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A small file can hold any number of equal rows: reading ends at the limit, and memory does not follow the file."""
    monkeypatch.setattr(forecast_points, "MAX_POINTS", 100_000)
    rows = 20_000_000
    table = pa.table({"ds": pa.repeat(pa.scalar(0, pa.timestamp("ms", "UTC")), rows), "y": pa.repeat(1.0, rows)})
    pa.parquet.write_table(table, tmp_path / "f.parquet")
    assert (tmp_path / "f.parquet").stat().st_size < 1 << 18
    del table
    before, tracked = pa.total_allocated_bytes(), pa.default_memory_pool().max_memory()

    with pytest.raises(SourceUnavailable, match="cannot be read as a forecast"):
        forecast_points.load(_server(tmp_path), "f.parquet")
    assert pa.total_allocated_bytes() - before < 64 << 20
    assert pa.default_memory_pool().max_memory() - tracked < 64 << 20


@pytest.mark.parametrize(
    "table",
    [pa.table({"y": [1.0]}), pa.table({"ds": ["x"], "y": [1.0]}), pa.table({"ds": [[1]], "y": [1.0]}), forecast(0)],
    ids=str,
)
def test_a_file_that_is_no_forecast_says_so(tmp_path: Path, table: pa.Table) -> None:
    """The graph can name any file of the directory: one without the columns, or with others, is an error of ours."""
    pa.parquet.write_table(table, tmp_path / "f.parquet")

    with pytest.raises(SourceUnavailable, match="f.parquet cannot be read as a forecast from datasource files"):
        forecast_points.load(_server(tmp_path), "f.parquet")


def test_a_series_of_too_many_rows_is_refused_while_it_is_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The rows of a series in a window are counted as they come."""
    monkeypatch.setattr("drumlin.kg.telemetry.fetch.parquet.MAX_ROWS", 50)
    pa.parquet.write_table(_series(64), tmp_path / "s.parquet")
    server = _server(tmp_path)

    with pytest.raises(SourceUnavailable, match="more than 50 rows"):
        Parquet(server).series(write("a", "m", "avg", 60, server), Grid(1_793_491_200, 1_793_498_400, 60))


def test_statistics_are_read_as_pyarrow_reads_them(tmp_path: Path) -> None:
    """The own reader of footers finds what pyarrow finds in files of either format, with any number of groups and columns."""
    table = _series(100)
    for version in ("1.0", "2.6"):
        for unit in ("ms", "us"):
            file = tmp_path / f"{version}-{unit}.parquet"
            pa.parquet.write_table(table, file, version=version, coerce_timestamps=unit, row_group_size=30)
            footer = Footer.of(file)
            per_second = 1000 if unit == "ms" else 10**6
            expected = []
            for n in range(footer.metadata.num_row_groups):
                known = footer.metadata.row_group(n).column(footer.columns["ds"]).statistics
                expected.append((known.min_raw // per_second, known.max_raw // per_second))
                assert footer.ranges[n]["unique_id"] == (b"a", b"a")
            assert list(footer.spans("ds")) == expected
            assert len(expected) == 4
    pa.parquet.write_table(table, file, write_statistics=False)
    assert list(Footer.of(file).spans("ds")) == []


def test_statistics_that_contradict_their_column_do_not_end_the_process(tmp_path: Path) -> None:
    """A footer whose histogram has too many levels: pyarrow's own reader of statistics would call terminate."""
    file = tmp_path / "s.parquet"
    pa.parquet.write_table(_series(64), file)
    data = bytearray(file.read_bytes())
    # in the schema, an optional column (1, written as 2) becomes a required one: its histograms have a level too many
    data[data.index(b"\x25\x02\x18\x06metric") + 1] = 0
    file.write_bytes(data)
    server = _server(tmp_path)

    with pytest.raises(SourceUnavailable, match="s.parquet cannot be read as Parquet"):
        Parquet(server).series(write("a", "m", "avg", 60, server), Grid(1_793_491_200, 1_793_498_400, 60))
