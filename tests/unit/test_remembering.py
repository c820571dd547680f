"""What is remembered is short: a client's long texts are computed each time."""

from __future__ import annotations

from drumlin.kg.remembering import LONGEST, remembered


def test_short_texts_are_remembered_and_long_ones_are_not() -> None:
    """A second call with the same short text, or tuple of short texts, computes nothing; with a long one it does."""
    computed: list[object] = []

    @remembered(8)
    def length(text: str | tuple[str, ...]) -> int:
        computed.append(text)
        return len(text)

    long = "x" * (LONGEST + 1)
    for given in ("a", "a", ("a", "b"), ("a", "b"), long, long, (long,), (long,)):
        assert length(given) == len(given)
    assert computed == ["a", ("a", "b"), long, long, (long,), (long,)]
