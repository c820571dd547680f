"""What is wrong with a value is said in our words, whatever kind of error the validation library found."""

from __future__ import annotations

import re
from typing import get_args

import pytest
from pydantic_core import core_schema

from drumlin.kg.config.explaining import explained, place
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings

_OF_THE_LIBRARY = re.compile(
    r"Input|Field required|Extra inputs|Unable to|Value error|[Ii]nstance of|pydantic|\{\w+\}", re.ASCII
)


@pytest.mark.parametrize("kind", get_args(core_schema.ErrorType))
def test_every_kind_of_error_is_in_our_words(kind: str) -> None:
    """No text of the library is left, and no place of a template is unfilled; what we raised ourselves keeps our text."""
    said = explained({"type": kind, "msg": "Value error, the name is taken", "ctx": {}})
    if kind in ("value_error", "assertion_error"):
        assert said == "the name is taken"
    else:
        assert said
        assert not _OF_THE_LIBRARY.search(said), said
        assert "taken" not in said


def test_what_an_error_says_of_itself_is_passed_on() -> None:
    """Bounds and choices are in the text; what the library tried is not in the place."""
    assert explained({"type": "less_than_equal", "ctx": {"le": 10}, "msg": ""}) == "must be 10 or less"
    assert explained({"type": "literal_error", "ctx": {"expected": "'a' or 'b'"}, "msg": ""}) == "must be 'a' or 'b'"
    assert explained({"type": "string_too_short", "ctx": {"min_length": 1}, "msg": ""}) == "must not be empty"
    choices = {"type": "literal_error", "ctx": {"expected": "'prometheus', 'loki' or 'tempo'"}, "msg": ""}
    assert explained({**choices, "input": "promethus"}).endswith("; did you mean 'prometheus'?")
    assert "s3cret" not in explained({**choices, "input": "s3cret"})
    assert place({"loc": ("query", "limit")}) == ["query", "limit"]
    assert place({"loc": ("datasource", 0, "function-wrap[check()]", "url")}) == ["datasource", "0", "url"]


@pytest.mark.parametrize(
    ("name", "value", "said", "hint"),
    [
        ("DRUMLIN_READERS", "many", "DRUMLIN_READERS: must be a whole number", None),
        (
            "DRUMLIN_DATASOURCE",
            "prometheus",
            "DRUMLIN_DATASOURCE: a setting with parts is written as JSON",
            'such as ["…"]',
        ),
        ("DRUMLIN_DOMAIN", "alice", "DRUMLIN_DOMAIN: a setting with parts is written as JSON", 'such as {"id": "…"}'),
        ("DRUMLIN_DOMAIN__IDD", "alice", "DRUMLIN_DOMAIN__IDD: there is no such setting", "did you mean ID?"),
        ("DRUMLIN_QUERY_TIMEOUT", "-1", "DRUMLIN_QUERY_TIMEOUT: must be more than 0", None),
    ],
)
def test_a_wrong_variable_is_named_as_it_was_set(
    monkeypatch: pytest.MonkeyPatch, name: str, value: str, said: str, hint: str | None
) -> None:
    """The error names the variable, says what it must be, and never shows its value."""
    monkeypatch.setenv(name, value)
    with pytest.raises(InvalidSettings) as refused:
        Settings.load()
    assert str(refused.value).startswith(said)
    assert refused.value.hint == hint
    assert value not in str(refused.value)
