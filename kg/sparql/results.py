"""Rows of SPARQL 1.1 Query Results JSON, one at a time as they arrive (https://www.w3.org/TR/sparql11-results-json/).

Nothing is kept but what is not whole yet, so a caller may count, and stop, in bounded memory.
"""

from __future__ import annotations

import codecs
import json
import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any, NamedTuple

Row = Mapping[str, Mapping[str, Any]]
"""One solution: terms, as the format has them, by the names of the variables that are bound."""

_BINDINGS = re.compile(r'"bindings"\s*:\s*\[')
_BETWEEN = re.compile(r"[\s,]*")
_decode = json.JSONDecoder().raw_decode


class Solutions(NamedTuple):
    """The names of the variables, and the rows as they arrive."""

    variables: list[str]
    rows: Iterator[Row]


def read_solutions(chunks: Iterable[bytes]) -> Solutions:
    """Read the result of a SELECT up to its rows; raises ``ValueError`` for another result, or one that ends too early."""
    pieces = _decoded(chunks)
    text = ""
    for piece in pieces:
        text += piece
        if begin := _BINDINGS.search(text):
            head = json.loads(f"{text[: begin.end()]}]}}}}")["head"]
            return Solutions(head.get("vars", []), _rows(text[begin.end() :], pieces))
    raise ValueError("a result of a SELECT query has no bindings")


def _decoded(chunks: Iterable[bytes]) -> Iterator[str]:
    decoder = codecs.getincrementaldecoder("utf-8")()
    for chunk in chunks:
        yield decoder.decode(chunk)


def _rows(text: str, pieces: Iterator[str]) -> Iterator[Row]:
    at = 0
    while True:
        at = _end_of_gap(text, at)
        if text[at : at + 1] == "]":
            for _ in pieces:  # to the end of the result: what is not read to its end was given up
                pass
            return
        try:
            row, at = _decode(text, at)
        except json.JSONDecodeError:
            text, at = _with_more(text[at:], pieces), 0
        else:
            yield row


def _end_of_gap(text: str, at: int) -> int:
    gap = _BETWEEN.match(text, at)
    return gap.end() if gap else at


def _with_more(text: str, pieces: Iterator[str]) -> str:
    """Return a text with as much again, at least a piece: a long row is not read anew for each piece of it."""
    more: list[str] = []
    size = 0
    for piece in pieces:
        more.append(piece)
        size += len(piece)
        if size > len(text):
            break
    if not size:
        raise ValueError("a result ends in the middle of its rows")
    return "".join([text, *more])
