"""Units: what people write is read as UCUM, and converts exactly or not at all."""

from __future__ import annotations

from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry.units import convert, impossible, parse_unit, possible, scaled

UNITS = ["{cpu}", "{millicpu}", "%", "1", "By", "MBy", "GiBy", "bit", "MBy/s", "kbit/s", "J", "kW.h", "W", "ms", "h"]


@pytest.mark.parametrize(
    ("written", "ucum"),
    [
        ("MB", "MBy"),
        ("mb", "MBy"),
        ("MBy", "MBy"),
        ("GiB", "GiBy"),
        ("gib/s", "GiBy/s"),
        ("MB/s", "MBy/s"),
        ("mbit/s", "Mbit/s"),
        ("Mbps", "Mbit/s"),
        ("bytes", "By"),
        ("cores", "{cpu}"),
        ("percent", "%"),
        ("kWh", "kW.h"),
        ("{pod}", "{pod}"),
    ],
)
def test_the_words_of_people_are_units(written: str, ucum: str) -> None:
    """What is no UCUM is read as what is meant: a megabyte, whatever its case, never a thousandth of a bit."""
    assert parse_unit(written).text == ucum


@pytest.mark.parametrize(
    ("own", "wanted", "factor"),
    [
        ("By", "MB", Fraction(1, 10**6)),
        ("By", "MiBy", Fraction(1, 2**20)),
        ("By/s", "Mbit/s", Fraction(8, 10**6)),
        ("J", "kWh", Fraction(1, 3_600_000)),
        ("{cpu}", "millicores", Fraction(1000)),
        ("1", "%", Fraction(100)),
        ("{pod}", "{pod}", Fraction(1)),
        ("W.h", "J", Fraction(3600)),
    ],
)
def test_conversions_are_exact(own: str, wanted: str, factor: Fraction) -> None:
    """Factors are fractions of whole numbers."""
    found = convert(own, wanted)
    assert found is not None
    assert found.factor == factor


@pytest.mark.parametrize(
    ("own", "wanted"), [("{cpu}", "%"), ("{cpu}", "{pod}"), ("By", "By/s"), ("J", "W"), ("?", "By")]
)
def test_different_things_do_not_convert(own: str, wanted: str) -> None:
    """Cores are no share, bytes no rate, and a unit that nobody knows is only itself."""
    assert convert(own, wanted) is None


@pytest.mark.parametrize("text", ["", "/", "By/", "./s", "MB//s", "furlong", "x" * 41, "M{cpu}", "By s", "{}", "{a b}"])
def test_what_is_no_unit_is_refused(text: str) -> None:
    """A text that is no unit is an error that shows how units are written."""
    with pytest.raises(InvalidInput, match="not a unit") as error:
        parse_unit(text)
    assert "UCUM" in str(error.value.hint)


@given(st.text(max_size=45))
def test_no_text_breaks_the_parser(text: str) -> None:
    """Any text is a unit, which is read the same again, or an error of ours."""
    try:
        found = parse_unit(text)
    except InvalidInput:
        return
    assert parse_unit(found.text) == found


@given(st.sampled_from(UNITS), st.sampled_from(UNITS))
def test_there_and_back_is_nothing(one: str, other: str) -> None:
    """A conversion and its opposite cancel, and both are possible or neither."""
    there, back = convert(one, other), convert(other, one)
    assert (there is None) == (back is None)
    if there and back:
        assert there.factor * back.factor == 1


def test_the_error_names_what_is_possible() -> None:
    """Which units a metric can be given in stands in the hint and for machines in the detail."""
    error = impossible("mem_usage", "By", ["W"])
    assert "MBy" in str(error.hint)
    assert error.detail["possible"][0] == "By"
    assert all(convert("By", each) for each in possible("By"))


@pytest.mark.parametrize(
    ("factor", "query"),
    [
        (Fraction(1), "up"),
        (Fraction(1, 10**6), "(up) / 1000000"),
        (Fraction(1000), "(up) * 1000"),
        (Fraction(8, 3), "(up) * 8 / 3"),
    ],
)
def test_a_query_is_scaled_with_whole_numbers(factor: Fraction, query: str) -> None:
    """The factor stands in the query as whole numbers, so that the server computes it without rounding the factor."""
    assert scaled("up", factor) == query
