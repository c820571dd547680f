"""How results leave the command line: tables for people, other forms for programs. Stdout carries results only."""

from __future__ import annotations

import csv
import os
import re
import sys
from collections.abc import Iterable, Iterator, Sequence
from contextlib import contextmanager
from enum import StrEnum
from typing import TYPE_CHECKING, Any

import msgspec
from rich.cells import cell_len
from rich.console import Console

from drumlin.api.cli.streams import ESCAPED, is_utf8, visible

if TYPE_CHECKING:
    from drumlin.kg.store.embedded.rebuilding import Progress

_YAML_BREAKS = re.compile("[\x85\u2028\u2029\ufeff]")
_TSV = str.maketrans({"\\": "\\\\", "\t": "\\t", "\n": "\\n", "\r": "\\r"})


class _Notes(Console):
    """Notes and progress on stderr: plain text, without markup, each note on one line."""

    def print(self, *objects: Any, **more: Any) -> None:
        """Print; on a terminal, control characters are made visible. A text is not wrapped, so that ids stay whole."""
        texts = [visible(each) if isinstance(each, str) and self.is_terminal else each for each in objects]
        super().print(*texts, **({"soft_wrap": True} if any(isinstance(each, str) for each in texts) else {}) | more)


progress = _Notes(stderr=True, markup=False)


class Output(StrEnum):
    """The forms of a result."""

    table = "table"
    wide = "wide"
    json = "json"
    jsonld = "jsonld"
    yaml = "yaml"
    csv = "csv"
    tsv = "tsv"
    name = "name"


STRUCTURED = frozenset({Output.json, Output.jsonld, Output.yaml})
"""The forms that carry a nested value; the others carry rows."""


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


# -- results ----------------------------------------------------------------------------------------------------------------


def emit(text: str | bytes) -> None:
    """Write a result to stdout. A text is as it is, but for control characters where stdout is a terminal; bytes go unchanged to a file."""
    if sys.stdout.isatty() and isinstance(text, bytes):
        text = text.decode(errors="replace")
    data = text if isinstance(text, bytes) else _encoded(text)
    sys.stdout.flush()  # what was printed comes first
    sys.stdout.buffer.write(data)
    if data and not data.endswith(b"\n"):
        sys.stdout.buffer.write(b"\n")
    sys.stdout.buffer.flush()


def _encoded(text: str) -> bytes:
    shown = visible(text) if sys.stdout.isatty() else text
    return shown.encode("utf-8" if is_utf8(sys.stdout) else "ascii", ESCAPED)


def emit_json(value: Any) -> None:
    """Write a value as readable JSON."""
    emit(msgspec.json.format(msgspec.json.encode(value, enc_hook=str), indent=2).decode())


def emit_value(value: Any, output: Output) -> None:
    """Write a nested value in one of the forms that carry one (``STRUCTURED``)."""
    if output is not Output.yaml:
        emit_json(value)
        return
    import yaml

    text = msgspec.json.encode(value, enc_hook=str)
    dumper = getattr(yaml, "CSafeDumper", yaml.SafeDumper)  # ten times as fast, where there is libyaml
    readable = not _YAML_BREAKS.search(
        text.decode()
    )  # which the library writes so that it reads them as something else
    emit(yaml.dump(msgspec.json.decode(text), Dumper=dumper, allow_unicode=readable, sort_keys=False, width=1 << 30))


def emit_rows(columns: Sequence[str], rows: Iterable[Sequence[Any]], output: Output, *, name: str = "id") -> None:
    """Write rows as a table, CSV, TSV, objects, or the column ``name`` of them alone."""
    if output in (Output.table, Output.wide):
        emit_table(columns, rows)
    elif output is Output.csv:
        written = _CsvLines()
        csv.writer(written).writerows(["" if cell is None else cell for cell in row] for row in (columns, *rows))
        emit("".join(written))
    elif output is Output.tsv:
        lines = (["" if cell is None else str(cell).translate(_TSV) for cell in row] for row in (columns, *rows))
        emit("\n".join("\t".join(cells) for cells in lines))
    elif output is Output.name:
        emit_names(row[columns.index(name)] for row in rows)
    else:
        emit_value([dict(zip(columns, row, strict=True)) for row in rows], output)


class _CsvLines(list[str]):
    """Takes the lines of CSV with the ends that make the writer quote carriage returns, and ends them as Unix does."""

    def write(self, line: str) -> None:
        """Take a line."""
        self.append(line.removesuffix("\r\n") + "\n")


def emit_names(names: Iterable[Any]) -> None:
    """Write names alone, one a line, for ``xargs`` and loops of a shell; without any, nothing."""
    if lines := "\n".join(str(each).translate(_TSV) for each in names):
        emit(lines)


def emit_table(columns: Sequence[str], rows: Iterable[Sequence[Any]]) -> None:
    """Write rows as an aligned table; nothing is cut or broken, however narrow the terminal, and no line ends in spaces."""
    terminal = sys.stdout.isatty()
    lines = [list(columns), *_lines_of(rows)]
    if terminal:
        lines = [[visible(cell) for cell in line] for line in lines]
    widths = [max(map(cell_len, column)) for column in zip(*lines, strict=True)]
    written = [_aligned(line, widths) for line in lines]
    if terminal and "NO_COLOR" not in os.environ:
        written[0] = f"\x1b[1m{written[0]}\x1b[0m"
    print("\n".join(written), flush=True)


def _lines_of(rows: Iterable[Sequence[Any]]) -> Iterator[list[str]]:
    """Yield the lines of rows: a cell may have several."""
    for row in rows:
        cells = [("" if cell is None else str(cell)).split("\n") for cell in row]
        for place in range(max(map(len, cells))):
            yield [cell[place] if place < len(cell) else "" for cell in cells]


def _aligned(cells: Sequence[str], widths: Sequence[int]) -> str:
    padded = (cell + " " * (width - cell_len(cell)) for cell, width in zip(cells, widths, strict=True))
    return "  ".join(padded).rstrip(" ")


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
