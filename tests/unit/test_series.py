"""Grids, durations and the table: arithmetic that must never trial a server."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta, timezone
from itertools import pairwise

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry.durations import iso_duration, parse_duration, promql_duration
from drumlin.kg.telemetry.fetch.prometheus import _lone, decode_values
from drumlin.kg.telemetry.series import (
    MAX_POINTS,
    Gap,
    Grid,
    Key,
    Samples,
    SeriesColumn,
    Window,
    assemble,
    choose_step,
    fill,
    gaps_of,
    moment,
    place,
    rate_window,
)

SECONDS = st.integers(0, 4_000_000_000)
STEPS = st.integers(1, 100_000)
SCRAPE = timedelta(seconds=30)


def _window(start: int, length: int) -> Window:
    return Window(moment(start), moment(start + length))


def _values(*values: float | None) -> pa.DoubleArray:
    return pa.array(values, pa.float64())


@given(SECONDS, st.integers(1, 10_000_000), STEPS)
def test_a_grid_is_aligned_and_lies_in_its_window(start: int, length: int, step: int) -> None:
    """Every point is a multiple of the step inside the window, and none is left out at either end."""
    window = _window(start, length)
    multiples = (start + length) // step - (start - 1) // step
    if multiples == 0:
        with pytest.raises(InvalidInput, match="no multiple"):
            Grid.over(window, timedelta(seconds=step))
        return

    grid = Grid.over(window, timedelta(seconds=step))

    assert grid.start % step == grid.end % step == 0
    assert start <= grid.start <= grid.end <= start + length
    assert grid.points == multiples


@given(SECONDS, st.integers(1, 20_000), STEPS, st.integers(7, 20_000))
def test_chunks_cover_a_grid_exactly_once(start: int, points: int, step: int, limit: int) -> None:
    """Parts follow one another without gap and overlap, none longer than the limit."""
    grid = Grid(start * step, (start + points - 1) * step, step)

    chunks = list(grid.chunks(limit))

    assert chunks[0].start == grid.start
    assert chunks[-1].end == grid.end
    assert all(right.start - left.end == step for left, right in pairwise(chunks))
    assert max(chunk.points for chunk in chunks) <= limit
    assert sum(chunk.points for chunk in chunks) == points


@pytest.mark.parametrize("points", [2, 3, 11_000])
def test_halves_meet(points: int) -> None:
    """Both halves together are the grid."""
    first, second = Grid(0, 60 * (points - 1), 60).halves()

    assert first.points + second.points == points
    assert second.start - first.end == 60


@given(st.integers(60, 400 * 86_400))
def test_an_automatic_step_fits_into_one_query(length: int) -> None:
    """Whatever the window, the points of an automatic step are within the server's limit."""
    window = _window(1_700_000_000, length)

    step = choose_step(window, "auto", SCRAPE)

    assert length // step.total_seconds() + 1 <= MAX_POINTS + 1
    assert step >= timedelta(minutes=1)


@pytest.mark.parametrize(("days", "minutes"), [(1, 1), (7, 1), (30, 5), (365, 60)])
def test_an_automatic_step_is_a_usual_one(days: int, minutes: int) -> None:
    """Thirty days come every five minutes, a year every hour."""
    assert choose_step(_window(0, days * 86_400), None, SCRAPE) == timedelta(minutes=minutes)


def test_a_step_is_not_shorter_than_a_scrape_and_a_rate_covers_four() -> None:
    """An automatic step waits for a new sample; a rate looks at four scrapes at least, and leaves nothing between points."""
    assert choose_step(_window(0, 3600), "auto", timedelta(minutes=2)) == timedelta(minutes=2)
    assert rate_window(timedelta(minutes=1), SCRAPE) == timedelta(minutes=2)
    assert rate_window(timedelta(minutes=5), SCRAPE) == timedelta(minutes=5)


@pytest.mark.parametrize("step", ["500ms", "1500ms", timedelta(0), timedelta(days=400)])
def test_a_step_that_cannot_be_is_refused(step: str | timedelta) -> None:
    """Fractions of a second, nothing and more than a year are no steps."""
    window = _window(0, 86_400)
    with pytest.raises(InvalidInput, match="not offered"):
        Grid.over(window, choose_step(window, step, SCRAPE))


@pytest.mark.parametrize(
    ("start", "end", "reason"),
    [
        (datetime(2026, 1, 1), datetime(2026, 1, 2, tzinfo=UTC), "without a zone"),  # noqa: DTZ001  naive on purpose
        (datetime(2026, 1, 2, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), "before it starts"),
        (datetime(1969, 1, 1, tzinfo=UTC), datetime(2026, 1, 2, tzinfo=UTC), "before 1970"),
    ],
)
def test_a_window_that_cannot_be_is_refused(start: datetime, end: datetime, reason: str) -> None:
    """No zone, no length, no time before the epoch."""
    with pytest.raises(InvalidInput, match=reason):
        Window(start, end)


def test_a_window_may_be_given_in_any_zone() -> None:
    """The grid is in UTC whatever zone the window was written in."""
    zone = timezone(timedelta(hours=5, minutes=30))
    window = Window(datetime(2026, 1, 1, 5, 30, tzinfo=zone), datetime(2026, 1, 1, 6, 30, tzinfo=zone))

    assert Grid.over(window, timedelta(minutes=30)).window == (
        datetime(2026, 1, 1, tzinfo=UTC),
        datetime(2026, 1, 1, 1, tzinfo=UTC),
    )


@given(st.sets(st.integers(0, 50)), st.integers(1, 3))
def test_placing_keeps_each_sample_at_its_time(present: set[int], parts: int) -> None:
    """However the samples were cut and whichever are missing, each stands at its own grid point and the rest is null."""
    grid = Grid(6000, 6000 + 50 * 60, 60)
    seconds = sorted(present)
    cut = [seconds[n * len(seconds) // parts : (n + 1) * len(seconds) // parts] for n in range(parts)]
    samples = [Samples(pa.array([6000 + 60 * n for n in each], pa.int64()), _values(*map(float, each))) for each in cut]

    placed = place(samples, grid)

    assert placed.values.to_pylist() == [float(n) if n in present else None for n in range(51)]
    missing = {
        gap.start + timedelta(seconds=60 * n) for gap in gaps_of(placed.values, grid) for n in range(_length(gap))
    }
    assert missing == {moment(6000 + 60 * n) for n in range(51) if n not in present}


def _length(gap: Gap) -> int:
    return (gap.end - gap.start) // timedelta(seconds=60) + 1


def test_values_that_are_not_finite_are_null_and_counted() -> None:
    """NaN and both infinities are no values."""
    samples = Samples(pa.array([0, 60, 120, 180], pa.int64()), _values(1.0, float("nan"), float("inf"), float("-inf")))

    assert place([samples], Grid(0, 180, 60)) == (_values(1.0, None, None, None), 3)


@pytest.mark.parametrize(
    ("how", "expected"),
    [
        ("null", [None, 1.0, None, None, 4.0, None]),
        ("drop", [None, 1.0, None, None, 4.0, None]),
        ("ffill", [None, 1.0, 1.0, 1.0, 4.0, 4.0]),
        ("linear", [None, 1.0, 2.0, 3.0, 4.0, None]),
    ],
)
def test_filling_does_what_was_asked(how: str, expected: list[float | None]) -> None:
    """Nothing is invented before the first value, and a line is never drawn beyond the last."""
    assert fill(_values(None, 1.0, None, None, 4.0, None), how).to_pylist() == expected


def test_the_table_is_long_with_dictionaries() -> None:
    """One row per series and point; ids, metrics and units are dictionaries; dropping leaves only points with a value."""
    grid = Grid(0, 60, 60)
    columns = [
        SeriesColumn(Key("b", "m"), "By", _values(1.0, None)),
        SeriesColumn(Key("a", "n"), "%", _values(3.0, 4.0)),
    ]

    table = assemble(columns, grid, "null")

    assert table.column_names == ["unique_id", "ds", "y", "metric", "unit"]
    assert table["unique_id"].to_pylist() == ["b", "b", "a", "a"]
    assert table["unit"].to_pylist() == ["By", "By", "%", "%"]
    assert table["ds"].to_pylist() == [moment(0), moment(60)] * 2
    assert assemble(columns, grid, "drop")["y"].to_pylist() == [1.0, 3.0, 4.0]


@given(st.lists(st.floats(), min_size=1))
def test_decoding_loses_nothing(values: list[float]) -> None:
    """Every float that a server can write, NaN and infinities included, is read back bit for bit."""
    written = ",".join(f'[{1_700_000_000 + 60 * n},"{_go(value)}"]' for n, value in enumerate(values))

    samples = decode_values(f"[{written}]".encode())

    assert samples.seconds.to_pylist() == [1_700_000_000 + 60 * n for n in range(len(values))]
    assert [repr(value) for value in samples.values.to_pylist()] == [repr(value) for value in values]


def _go(value: float) -> str:
    return {"nan": "NaN", "inf": "+Inf", "-inf": "-Inf"}.get(repr(value), repr(value))


@pytest.mark.parametrize(
    "text",
    [
        '[ [1700000000, "0.5"], [1700000060, "-1e-7"] ]',
        '[[1700000000,"0.5"],\n[1700000060,"-1e-7"]]',
        '[[1700000000.0,"0.5"],[1700000060.0,"-1e-7"]]',
        '[[1700000000,"0.5"],[1700000059.7,"-1e-7"]]',
        '[[1700000000,"0.5"],[1700000060,"-0.0000001"]]',
    ],
)
def test_decoding_does_not_depend_on_how_a_server_writes(text: str) -> None:
    """Spaces and fractions of seconds are others' ways to write the same pairs."""
    samples = decode_values(text.encode())

    assert samples.seconds.to_pylist() == [1_700_000_000, 1_700_000_060]
    assert samples.values.to_pylist() == [0.5, -1e-7]


@pytest.mark.parametrize("seconds", [0, 999_999_999, 1_000_000_000, 9_999_999_999, 10_000_000_000])
def test_decoding_reads_seconds_of_any_length(seconds: int) -> None:
    """Times have ten digits for centuries, and other numbers of them are read as well."""
    assert decode_values(f'[[{seconds},"1"]]'.encode()).seconds.to_pylist() == [seconds]


@pytest.mark.parametrize(
    "text", ["[[1700000000,0.55]]", '[[1700000000,"x"]]', '[["1700000000","1"]]', '[[1700000000,"1"],{"a":"b"}]']
)
def test_decoding_refuses_what_is_no_pair_of_time_and_value(text: str) -> None:
    """Nothing is guessed."""
    with pytest.raises(pa.ArrowException):
        decode_values(text.encode())


_SERIES = '"values":[[1700000000,"0.5"]]'


@pytest.mark.parametrize(
    "body",
    [
        '{"status":"success","warnings":["partial"],"data":{"resultType":"matrix","result":[{"metric":{},VALUES}]}}',
        '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},VALUES}]},"warnings":["partial"]}',
        '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},"histograms":[[1,{}]],VALUES}]}}',
        '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},VALUES},{"metric":{},VALUES}]}}',
        '{"status":"error","data":{"resultType":"matrix","result":[{"metric":{},VALUES}]}}',
        '{"status":"success","data":{"resultType":"vector","result":[{"metric":{},VALUES}]}}',
    ],
)
def test_an_answer_that_says_more_is_not_cut_out_of(body: str) -> None:
    """Warnings, other series, histograms and errors are never passed over; the series alone is taken as it is."""
    alone = '{"status":"success","data":{"resultType":"matrix","result":[{"metric":{},VALUES}]}}'
    values = _lone(alone.replace("VALUES", _SERIES).encode())
    assert values is not None
    assert bytes(values) == b'[[1700000000,"0.5"]]'

    assert _lone(body.replace("VALUES", _SERIES).encode()) is None


def test_decoding_nothing_gives_nothing() -> None:
    """An empty list of values is an empty series."""
    assert len(decode_values(b"[]").seconds) == 0


@pytest.mark.parametrize(
    ("text", "seconds"),
    [
        ("30d", 2_592_000),
        ("5m", 300),
        ("1h30m", 5400),
        ("500ms", 0.5),
        ("2w", 1_209_600),
        (" 90s ", 90),
        ("P1D", 86_400),
        ("PT5M", 300),
        ("P1DT12H", 129_600),
        ("P2W", 1_209_600),
        ("PT0.5S", 0.5),
    ],
)
def test_durations_are_read(text: str, seconds: float) -> None:
    """People's short forms and ISO 8601 mean the same lengths."""
    assert parse_duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize(
    "text", ["", "5", "m", "-5m", "5 m", "P", "PT", "P1M", "P1Y", "0s", "PT0S", "1.5h", "9" * 30 + "d", "5mx"]
)
def test_what_is_no_duration_is_refused(text: str) -> None:
    """Missing units, months, zero and lengths beyond the calendar are errors with examples."""
    with pytest.raises(InvalidInput, match="is not a duration") as error:
        parse_duration(text)
    assert "30d" in (error.value.hint or "")


@given(st.timedeltas(timedelta(milliseconds=1), timedelta(days=4000)))
def test_durations_survive_writing(length: timedelta) -> None:
    """What is written as xsd:duration or for PromQL is read back, to the precision of each."""
    assert parse_duration(iso_duration(length)) == length
    milliseconds = timedelta(milliseconds=length // timedelta(milliseconds=1))
    assert parse_duration(promql_duration(length)) == milliseconds


@pytest.mark.parametrize(
    ("seconds", "iso", "short"),
    [(30, "PT30S", "30s"), (300, "PT5M", "5m"), (90, "PT1M30S", "90s"), (129_600, "P1DT12H", "36h")],
)
def test_durations_are_written_shortly(seconds: int, iso: str, short: str) -> None:
    """The forms that the graph and the queries show."""
    assert (iso_duration(timedelta(seconds=seconds)), promql_duration(timedelta(seconds=seconds))) == (iso, short)


@given(
    points=st.integers(1, 8),
    at=st.lists(st.integers(-4, 12), max_size=12),
    off=st.sampled_from([0, 0, 0, 1]),
)
def test_every_value_stands_at_its_own_time(points: int, at: list[int], off: int) -> None:
    """A server's points go to the grid's points of the same time and nowhere else: also when some lie outside it, twice, or beside it."""
    grid = Grid(1000, 1000 + 60 * (points - 1), 60)
    samples = {1000 + 60 * each + off: float(number) for number, each in enumerate(sorted(at))}
    seconds, values = pa.array(list(samples), pa.int64()), pa.array(list(samples.values()), pa.float64())

    placed = place([Samples(seconds, values)], grid)

    assert placed.values.to_pylist() == [samples.get(second) for second in range(grid.start, grid.end + 1, grid.step)]
