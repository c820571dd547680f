"""What a notebook shows: the look of the pages, every text escaped, nothing run and nothing fetched."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from html.parser import HTMLParser
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.client import notebook
from drumlin.kg.client.entities import GraphSummary
from drumlin.kg.client.notebook import EntityDocument, Records
from drumlin.kg.client.resolve_api import Resolved
from drumlin.kg.client.rows import Rows
from drumlin.kg.client.series import Series

STYLE_SHEET = Path(__file__).parents[2] / "api" / "pages" / "static" / "style.css"
EVIL = "\"'><script>alert(1)</script><img src=x onerror=alert(2)>"
TAGS = {"style", "div", "strong", "small", "span", "table", "thead", "tbody", "tr", "th", "td", "a"}
TEXTS = st.text(max_size=40) | st.just(EVIL) | st.just(f"javascript:{EVIL}") | st.just(f"https://x.example/{EVIL}")
VALUES = TEXTS | st.none() | st.booleans() | st.integers() | st.floats() | st.lists(TEXTS, max_size=3)


class Shown(HTMLParser):
    """The elements of what is shown, their attributes, and its text."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str]] = []
        self.text = ""
        self.feed(text)

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        """Note an element."""
        self.tags.append(tag)
        self.attributes += [(name, value or "") for name, value in attrs]

    def handle_data(self, data: str) -> None:
        """Note a text."""
        self.text += data


def assert_harmless(html: str) -> Shown:
    """Assert that there are no elements but ours, no handlers, and no links but to web addresses."""
    found = Shown(html)
    assert set(found.tags) <= TAGS
    assert {name for name, _ in found.attributes} <= {"class", "scope", "href", "rel"}
    assert all(value.startswith(("http://", "https://")) for name, value in found.attributes if name == "href")
    return found


@given(st.dictionaries(TEXTS, VALUES, max_size=4), TEXTS, TEXTS)
def test_an_entity_runs_nothing_of_what_it_says(said: dict[str, Any], name: str, phase: str) -> None:
    """Names, keys and values of any sort are text."""
    assert_harmless(EntityDocument({**said, "name": name, "type": name, "phase": phase, "id": name})._repr_html_())


@given(st.lists(TEXTS, min_size=1, max_size=3, unique=True), st.lists(VALUES, max_size=3))
def test_a_table_runs_nothing_of_what_it_holds(columns: list[str], values: list[Any]) -> None:
    """Columns and values of any sort are text."""
    assert_harmless(Rows(columns, (dict.fromkeys(columns, value) for value in values))._repr_html_())
    assert_harmless(Records([dict.fromkeys(columns, value) for value in values])._repr_html_())


def test_an_entity_is_shown_by_its_name_state_and_properties() -> None:
    """The state has a mark beside its colour; what is linked is shown by its short id, and leads to it."""
    shown = assert_harmless(
        EntityDocument(
            id="https://kg.example/id/prod/payments/deployment/checkout", type="Deployment", name="checkout",
            phase="Failed", domain="https://kg.example/id/domain/alice", hasPart=[{"id": "x", "name": "container"}],
        )._repr_html_()
    )  # fmt: skip
    assert "checkout ▲ Failed Deployment prod/payments/deployment/checkout" in shown.text
    assert "domaindomain/alice" in shown.text
    assert "hasPartcontainer" in shown.text
    assert ("href", "https://kg.example/id/domain/alice") in shown.attributes


def test_a_long_table_says_how_much_more_there_is() -> None:
    """The first rows are shown, numbers to the right."""
    rows = Rows(["n"], ({"n": number} for number in range(notebook.MAX_ROWS + 5)))
    html = rows._repr_html_()
    assert html.count("<tr>") == notebook.MAX_ROWS + 1
    assert "5 more rows" in html
    assert '<td class="n">7</td>' in html


def test_series_are_shown_as_a_row_each() -> None:
    """Points, coverage, and the least, mean and most of each; a series without points too."""
    at = [datetime(2026, 11, 1, hour, tzinfo=UTC) for hour in (0, 1)]
    table = pa.table(
        {
            "unique_id": ["a", "a", EVIL, EVIL], "metric": ["cpu"] * 4, "unit": ["{cpu}"] * 4,
            "ds": pa.array([*at, *at], pa.timestamp("ms", "UTC")), "y": [1.0, 3.0, None, None],
        }
    )  # fmt: skip
    series = [
        {"unique_id": each, "metric": "cpu", "coverage": share, "gaps": []} for each, share in (("a", 1.0), (EVIL, 0.0))
    ]
    account = {"unit": "{cpu}", "step": 3600, "queries": [], "series": series, "warnings": [], "failures": []}
    shown = assert_harmless(Series(table, account)._repr_html_())
    assert "4 rows, a point every 3600 s" in shown.text
    assert "acpu{cpu}21002026-11-01 00:00:00Z2026-11-01 01:00:00Z123" in shown.text


@pytest.mark.parametrize(
    "shown",
    [
        Resolved(entity="a", metric=EVIL, query=f"sum({EVIL})", unit="1"),
        GraphSummary(EVIL, EVIL, EVIL, EVIL, None, None, EVIL, EVIL, 1, EVIL),
        Records([]),
        Rows([]),
    ],
    ids=lambda shown: type(shown).__name__,
)
def test_everything_else_is_harmless_too(shown: Any) -> None:
    """Resolutions, lines of a listing, and what is empty."""
    assert_harmless(shown._repr_html_())


def test_the_colours_are_those_of_the_pages() -> None:
    """Each pair of colours, for light and dark, is one of the style sheet."""
    pairs = [re.sub(r"\s", "", each) for each in re.findall(r"light-dark\([^)]*\)", notebook.STYLE)]
    known = {re.sub(r"\s", "", each) for each in re.findall(r"light-dark\([^)]*\)", STYLE_SHEET.read_text())}
    assert set(pairs) <= known
    assert len(pairs) >= 8
