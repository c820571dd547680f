"""What leaves the command line for a terminal cannot command it."""

from __future__ import annotations

import json
import unicodedata

from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.cli.output import visible


@given(st.text())
def test_no_control_character_is_left(text: str) -> None:
    """Neither C0, C1 nor what turns the direction of text is left, but for tab and line feed; all else is as it was."""
    shown = visible(text)
    assert not [each for each in shown if unicodedata.category(each) == "Cc" and each not in "\t\n"]
    assert not set(shown) & set("\u202a\u202b\u202c\u202d\u202e\u2066\u2067\u2068\u2069\u200e\u200f")
    if shown != text:
        assert len(shown) > len(text)


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
def test_json_means_the_same(value: object) -> None:
    """A JSON text whose control characters were made visible is the same JSON."""
    assert json.loads(visible(json.dumps(value, ensure_ascii=False))) == value
