"""What leaves the command line for a terminal cannot command it."""

from __future__ import annotations

import csv
import io
import json
import os
import sys
import unicodedata
from collections.abc import Iterator
from contextlib import contextmanager

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.api.cli.output import Output, emit, emit_rows, emit_table, emit_value
from drumlin.api.cli.streams import ESCAPED, ready_streams, visible

ID = "prod/payments/deployment/a-name-that-is-longer-than-any-terminal-that-somebody-may-have-in-front-of-him-is-wide"
CELLS = st.none() | st.integers() | st.text(st.characters(codec="utf-8"), max_size=30)
TSV = {"\\t": "\t", "\\n": "\n", "\\r": "\r", "\\\\": "\\"}


@contextmanager
def written(encoding: str = "utf-8", *, terminal: bool = False) -> Iterator[io.BytesIO]:
    """Have what is written to stdout, in the encoding of a locale."""
    raw = io.BytesIO()
    stream = io.TextIOWrapper(raw, encoding, write_through=True)
    stream.isatty = lambda: terminal  # type: ignore[method-assign]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "stdout", stream)
        patch.setenv("COLUMNS", "20")
        ready_streams()
        yield raw
        stream.detach()


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


@given(st.text())
@settings(max_examples=40)
def test_every_text_is_written_in_every_locale(text: str) -> None:
    """Where the locale is not UTF-8 a text is ASCII, and half a surrogate pair is no error anywhere."""
    with written("ascii") as plain:
        emit(text)
        sys.stdout.write(text)
    plain.getvalue().decode("ascii")
    with written() as whole:
        emit(text)
        sys.stdout.write(text)
    whole.getvalue().decode("utf-8")


@given(st.text(st.characters(exclude_characters='"\\', exclude_categories=("Cc", "Cs"))))
def test_what_ascii_has_not_is_escaped_as_in_json(text: str) -> None:
    """So JSON that is written as ASCII means the same."""
    assert json.loads(f'"{text.encode("ascii", ESCAPED).decode("ascii")}"') == text


@given(
    st.recursive(
        st.none() | st.integers() | st.text(), lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner)
    )
)
@settings(max_examples=40)
def test_json_and_yaml_mean_the_value(value: object) -> None:
    """In UTF-8 and in ASCII the forms of programs carry the same value."""
    try:
        json.dumps(value, ensure_ascii=False).encode()
    except UnicodeEncodeError:
        return  # half a surrogate pair is no text of JSON
    for encoding in ("utf-8", "ascii"):
        with written(encoding) as raw:
            emit_value(value, Output.json)
        assert json.loads(raw.getvalue()) == value
    with written() as raw:
        emit_value(value, Output.yaml)
    assert yaml.safe_load(raw.getvalue()) == value


@given(st.lists(st.tuples(CELLS, CELLS), max_size=5))
@settings(max_examples=40)
def test_rows_are_read_back_from_csv_and_tsv(rows: list[tuple[object, object]]) -> None:
    """A line for each row in TSV, whatever a cell holds; CSV as the standard reader reads it."""
    expected = [["" if cell is None else str(cell) for cell in row] for row in [("a", "b"), *rows]]
    with written() as raw:
        emit_rows(("a", "b"), rows, Output.tsv)
    lines = raw.getvalue().decode().removesuffix("\n").split("\n")
    assert [[_unescaped(cell) for cell in line.split("\t")] for line in lines] == expected
    with written() as raw:
        emit_rows(("a", "b"), rows, Output.csv)
    read = list(csv.reader(io.StringIO(raw.getvalue().decode(), newline="")))
    assert read == expected


def _unescaped(cell: str) -> str:
    parts = []
    place = 0
    while place < len(cell):
        pair = cell[place : place + 2]
        parts.append(TSV.get(pair, cell[place]))
        place += 2 if pair in TSV else 1
    return "".join(parts)


@pytest.mark.parametrize("terminal", [True, False])
def test_a_table_never_breaks_an_id(terminal: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """However narrow the terminal, a row is one line, aligned by what signs take, and no line ends in spaces."""
    monkeypatch.delenv("NO_COLOR", raising=False)
    with written(terminal=terminal) as raw:
        emit_table(("id", "name"), [(ID, "x"), ("名前", None), ("two\nlines", "y")])
    head, *lines = raw.getvalue().decode().splitlines()
    width = len(ID)
    plain = f"{'id'.ljust(width)}  name"
    assert head == (f"\x1b[1m{plain}\x1b[0m" if terminal else plain)
    assert lines == [f"{ID}  x", "名前", f"{'two'.ljust(width)}  y", "lines"]


def test_names_alone_are_for_loops() -> None:
    """One a line; without any, nothing at all."""
    with written() as raw:
        emit_rows(("id", "b"), [("x/y", 1), ("z", 2)], Output.name)
        emit_rows(("id", "b"), [], Output.name)
    assert raw.getvalue() == b"x/y\nz\n"


def test_streams_that_were_closed_are_no_error(monkeypatch: pytest.MonkeyPatch) -> None:
    """A command that is started without stdout or stdin writes nowhere and reads nothing."""
    for name in ("stdin", "stdout", "stderr"):
        monkeypatch.setattr(sys, name, None)
    ready_streams()
    sys.stdout.write("x")
    sys.stderr.write("x")
    assert sys.stdin.read() == ""
    assert os.devnull == sys.stdout.name
    for stream in (sys.stdin, sys.stdout, sys.stderr):
        stream.close()
