"""How results leave the command line: tables for people, JSON, JSON-LD and CSV for programs. Stdout carries results only."""

from __future__ import annotations

import csv
import io
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
from rich.console import Console
from rich.table import Table
from rich.text import Text

if TYPE_CHECKING:
    from drumlin.kg.store.embedded.rebuilding import Progress

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What moves a terminal's cursor, begins an escape sequence (ESC, CSI, OSC), or turns the direction of text; not tab and line feed."""


def visible(text: str) -> str:
    r"""Write control characters as ``\u001b``: names, labels and log lines come from others, and may not command a terminal.

    Inside a JSON string the result means the same. ECMA-48: https://ecma-international.org/publications-and-standards/standards/ecma-48/
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


class _Notes(Console):
    """Notes and progress on stderr: plain text, without markup."""

    def print(self, *objects: Any, **more: Any) -> None:
        """Print; on a terminal, control characters are made visible."""
        super().print(
            *(visible(each) if isinstance(each, str) and self.is_terminal else each for each in objects), **more
        )


progress = _Notes(stderr=True, markup=False)


class Output(StrEnum):
    """The forms of a result."""

    table = "table"
    json = "json"
    jsonld = "jsonld"
    csv = "csv"


@contextmanager
def rebuilding() -> Iterator[Progress]:
    """Have what shows how far a store's engine is built anew, should that be needed: a bar on a terminal, else a line at the end."""
    from rich.progress import BarColumn, MofNCompleteColumn, TextColumn, TimeRemainingColumn
    from rich.progress import Progress as Bars

    columns = (TextColumn("rebuilding quads/"), BarColumn(), MofNCompleteColumn(), TextColumn("graphs"))
    with Bars(*columns, TimeRemainingColumn(), console=progress, transient=progress.is_terminal) as bars:

        def show(done: int, total: int) -> None:
            task = bars.task_ids[0] if bars.task_ids else bars.add_task("", total=total)
            bars.update(task, completed=done)

        yield show


def emit(text: str | bytes) -> None:
    """Write a result to stdout: as it is, but for control characters where stdout is a terminal."""
    data = text.encode() if isinstance(text, str) else text
    if sys.stdout.isatty():
        data = visible(data.decode(errors="replace")).encode()
    sys.stdout.buffer.write(data)
    if data and not data.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def emit_json(value: Any) -> None:
    """Write a value as readable JSON."""
    emit(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2))


def emit_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], output: Output) -> None:
    """Write rows as a table, CSV or JSON objects."""
    if output is Output.csv:
        text = io.StringIO()
        writer = csv.writer(text, lineterminator="\n")
        writer.writerow(columns)
        writer.writerows([["" if cell is None else cell for cell in row] for row in rows])
        emit(text.getvalue())
    elif output is Output.table:
        emit_table(columns, rows)
    else:
        emit_json([dict(zip(columns, row, strict=True)) for row in rows])


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as an aligned table; nothing is cut, however narrow the terminal, and no line ends in spaces."""
    table = Table(box=None, pad_edge=False, header_style="bold")
    for column in columns:
        table.add_column(column, overflow="fold")
    terminal = sys.stdout.isatty()
    for row in rows:
        cells = ("" if cell is None else str(cell) for cell in row)
        table.add_row(*(Text(visible(each) if terminal else each) for each in cells))
    console = Console(highlight=False, soft_wrap=not terminal, width=None if terminal else 10_000)
    with console.capture() as text:
        console.print(table)
    print("\n".join(line.rstrip(" ") for line in text.get().split("\n")), end="", flush=True)


def properties(document: dict[str, Any], prefix: str = "") -> Iterable[tuple[str, str]]:
    """Flatten a document into (path, value) rows."""
    for key, value in document.items():
        if key == "@context":
            continue
        for each in value if isinstance(value, list) else [value]:
            if isinstance(each, dict):
                yield from properties(each, f"{prefix}{key}.")
            else:
                yield f"{prefix}{key}", str(each)
