"""The configuration file: what is wrong in it is told by its place, in one line."""

from __future__ import annotations

from pathlib import Path

import pytest

from kg.errors import InvalidSettings
from kg.settings import Settings

DATASOURCE = '[[datasource]]\nname = "p"\nkind = "prometheus"\nurl = "http://x:1"\n'


@pytest.mark.parametrize(
    ("content", "said", "hint"),
    [
        ("query_timout = 1", "query_timout: there is no such setting", "did you mean query_timeout?"),
        (
            DATASOURCE + 'scrape_intervall = "60s"',
            "datasource.0.scrape_intervall: there is no such setting",
            "did you mean scrape_interval?",
        ),
        ("xyz = 1", "xyz: there is no such setting", None),
        ('query_timeout = "soon"', "query_timeout: Input should be a valid number", None),
    ],
)
def test_what_is_wrong_in_the_file_is_named(tmp_path: Path, content: str, said: str, hint: str | None) -> None:
    """A misspelt setting is told with the one that was meant, at any depth; a wrong value is never shown."""
    file = tmp_path / "drumlin.toml"
    file.write_text(content)

    with pytest.raises(InvalidSettings) as told:
        Settings.load(file)

    assert str(told.value).startswith(f"{file}: {said}")
    assert told.value.hint == hint
    assert "soon" not in str(told.value)
