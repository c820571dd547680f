"""How results leave the command line: tables for people, JSON, JSON-LD and CSV for programs. Stdout carries results only."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Sequence
from enum import StrEnum
from typing import Any

import msgspec
from rich.console import Console
from rich.table import Table

progress = Console(stderr=True)


class Output(StrEnum):
    """The forms of a result."""

    table = "table"
    json = "json"
    jsonld = "jsonld"
    csv = "csv"


def emit(text: str | bytes) -> None:
    """Write a result to stdout as it is."""
    data = text.encode() if isinstance(text, str) else text
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
    for row in rows:
        table.add_row(*("" if cell is None else str(cell) for cell in row))
    terminal = sys.stdout.isatty()
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
