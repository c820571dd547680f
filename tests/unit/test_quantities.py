"""Quantities: the grammar of ``resource.Quantity`` against an independent reading of it."""

from __future__ import annotations

from decimal import Decimal
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidManifest
from drumlin.kg.model.quantities import pieces, quantity

# Written out, not computed, so that a mistake in the table of the code cannot repeat itself here.
FACTORS = {
    "": Fraction(1),
    "n": Fraction(1, 1_000_000_000),
    "u": Fraction(1, 1_000_000),
    "m": Fraction(1, 1_000),
    "k": Fraction(1_000),
    "M": Fraction(1_000_000),
    "G": Fraction(1_000_000_000),
    "T": Fraction(1_000_000_000_000),
    "P": Fraction(1_000_000_000_000_000),
    "E": Fraction(1_000_000_000_000_000_000),
    "Ki": Fraction(1_024),
    "Mi": Fraction(1_048_576),
    "Gi": Fraction(1_073_741_824),
    "Ti": Fraction(1_099_511_627_776),
    "Pi": Fraction(1_125_899_906_842_624),
    "Ei": Fraction(1_152_921_504_606_846_976),
}
NUMBER = st.from_regex(r"[+-]?([0-9]{1,18}(\.[0-9]{0,9})?|\.[0-9]{1,9})", fullmatch=True)


@pytest.mark.parametrize(
    ("written", "value"),
    [
        ("1e3", "1000"),
        ("1E3", "1000"),
        ("12E", "12000000000000000000"),
        ("12E3", "12000"),
        ("1e-3", "0.001"),
        ("100u", "0.0001"),
        ("5n", "0.000000005"),
        ("1.5Gi", "1610612736"),
        ("0.5", "0.5"),
        (".5", "0.5"),
        ("5.", "5"),
        ("-1", "-1"),
        ("+1", "1"),
        ("250m", "0.25"),
        ("128974848", "128974848"),
        (2, "2"),
        (0.1, "0.1"),
    ],
)
def test_known_quantities_have_their_exact_value(written: str | float, value: str) -> None:
    """The forms that Kubernetes documents, and those that people confuse, mean what Kubernetes says."""
    assert quantity(written) == Decimal(value)


@given(NUMBER, st.sampled_from(sorted(FACTORS)))
def test_suffixes_scale_without_rounding(number: str, suffix: str) -> None:
    """Number times factor, exactly, for every suffix and as many digits as fit."""
    padded = number.replace("+", "")
    expected = Fraction(padded + "0" if padded.endswith(".") else padded) * FACTORS[suffix]

    assert Fraction(quantity(number + suffix)) == expected


@given(NUMBER, st.sampled_from("eE"), st.integers(-30, 30))
def test_exponents_scale_without_rounding(number: str, letter: str, exponent: int) -> None:
    """Number times a power of ten, exactly, in either letter."""
    padded = number.replace("+", "")
    expected = Fraction(padded + "0" if padded.endswith(".") else padded) * Fraction(10) ** exponent

    assert Fraction(quantity(f"{number}{letter}{exponent}")) == expected


@pytest.mark.parametrize(
    "written",
    ["", " 1", "1 ", "1,5", "0x10", "1KiB", "1K", "1ki", "1mi", "e3", "Gi", ".", "+-1", "1e", "1e1.5", "1e999", "1e31",
     "NaN", "inf", "١", "1_000", "9" * 65, float("nan"), float("inf"), True],
)  # fmt: skip
def test_malformed_quantities_are_refused_without_being_repeated(written: str | float) -> None:
    """What is not a quantity is an error, at once, whose message says how to write one and not what was written."""
    with pytest.raises(InvalidManifest) as caught:
        quantity(written)

    assert str(caught.value) == "a quantity is malformed"
    assert caught.value.hint


@given(st.text(max_size=70))
def test_any_text_is_a_quantity_or_refused(text: str) -> None:
    """No text crashes the parser or keeps it busy."""
    try:
        value = quantity(text)
    except InvalidManifest:
        return
    assert value.is_finite()


@pytest.mark.parametrize(("written", "bytes_"), [("1.5", 2), ("128974848000m", 128974848), ("1n", 1), ("1Ki", 1024)])
def test_pieces_are_rounded_up(written: str, bytes_: int) -> None:
    """A part of a byte is a byte, as in Kubernetes' own ``Quantity.Value``."""
    assert pieces(written) == bytes_
