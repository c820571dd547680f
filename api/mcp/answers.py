"""How tools answer: compact text of a bounded size, in which everything that comes from a cluster is marked as data.

A name, a label or a log line may be written to instruct whoever reads it. It stays data: it stands between ``<data>`` and ``</data>``, on
the line of its row, as a plain word or as a JSON string whose quotes, line ends, angle brackets and invisible characters are escaped, so
that it can neither end its place nor hide. A model is told so once, in the instructions of the server. Pure.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import msgspec

from drumlin.kg.errors import InvalidInput

BUDGET = 5_000
"""Characters of an answer at most, which are 2,000 tokens of ids and names; less where they are denser, as digests are."""
TOKENS = 1_900
"""Tokens of an answer at most, as ``tokens_of`` counts them."""
LONGEST = 300
"""Characters of one value."""
_NOTES = 5  # warnings that are passed on
_FRAME, _FRAME_TOKENS = 700, 250  # of the budget: heading, marks, cursor
_PART = re.compile(r"[A-Za-z]+|[0-9]+|[^\x00-\x7f]|[^A-Za-z0-9\x80-\U0010ffff]+")
_BARE = re.compile(r"[A-Za-z0-9_./:@%+~=,{}()*^#?&!|-]+")
_BRACKETS = {"<": "\\u003c", ">": "\\u003e"}


# -- values -----------------------------------------------------------------------------------------------------------------


def printable(text: str) -> str:
    r"""Write what is not shown, or moves what is, as ``\u200b``: controls, line ends, marks of direction, tags, half surrogate pairs."""
    return "".join(each if each.isprintable() else _escape(each) for each in text)


def _escape(sign: str) -> str:
    units = sign.encode("utf-16-be", "surrogatepass").hex()
    return "".join(f"\\u{units[place : place + 4]}" for place in range(0, len(units), 4))


def spoken(text: str, longest: int = 3 * LONGEST) -> str:
    """Write a sentence of ours that may quote others: on one line, bounded, and without what could end a place of data."""
    return printable(text[:longest]).replace("<", "‹").replace(">", "›")


def cell(value: Any, longest: int = LONGEST) -> str:
    """Write a value as a word, or as a JSON string when it is more than that; a long one is cut, and says by how much."""
    if value is None:
        return ""
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, float):
        return f"{value:.6g}"
    text = value if isinstance(value, str) else str(value)
    more = len(text) - longest
    shown = text[:longest] if more > 0 else text
    if _BARE.fullmatch(shown):
        written = shown
    else:
        quoted = shown.replace("\\", "\\\\").replace('"', '\\"')
        written = f'"{"".join(_BRACKETS.get(each, each) for each in printable(quoted))}"'
    return f"{written}…(+{more:,} characters)" if more > 0 else written


def row(values: Iterable[Any], longest: int = LONGEST) -> str:
    """Write the values of a row, with tabs between them."""
    return "\t".join(cell(each, longest) for each in values).rstrip("\t")


def tokens_of(text: str) -> int:
    """Return about how many tokens a model reads in a text, rather more than fewer.

    Words are one for each six letters, digits one for three, signs one for two, any other character one. Measured against o200k_base on
    answers of ours: 0.96 (random digests) to 1.5 times the true number, 2 where there is much text that is not ASCII.
    """
    return sum(map(_tokens, _PART.findall(text)))


def _tokens(part: str) -> int:
    if not part.isascii():
        return 1 if part < "\U00010000" else 2
    return -(-len(part) // (6 if part.isalpha() else 3 if part.isdigit() else 2))


# -- pages ------------------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class AnswerCursor:
    """Where an answer goes on: rows of ``page`` to skip. ``page`` says which part of the source the rows are, in its own words."""

    page: str = ""
    skip: int = 0

    def written(self, asked: str) -> str:
        """Return it as text that fits the same question only."""
        content = msgspec.json.encode([asked, self.page, self.skip])
        return base64.urlsafe_b64encode(content).decode().rstrip("=")

    @classmethod
    def read(cls, text: str, asked: str) -> AnswerCursor:
        """Read one; the empty text is the beginning. Raises ``InvalidInput`` for what is no cursor, or a cursor of another question."""
        if not text:
            return cls()
        wrong = InvalidInput("the cursor is not of this question", hint="repeat the arguments with it, or leave it out")
        try:
            content = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
            of, page, skip = msgspec.json.decode(content, type=tuple[str, str, int])
        except (ValueError, binascii.Error, msgspec.DecodeError) as error:
            raise wrong from error
        if of != asked or skip < 0:
            raise wrong
        return cls(page, skip)


def question_of(tool: str, given: Mapping[str, Any]) -> str:
    """Return what identifies a question: a short digest of the tool and its arguments, without the cursor."""
    content = msgspec.json.encode([tool, {name: given[name] for name in sorted(given) if name != "cursor"}])
    return hashlib.sha256(content).hexdigest()[:10]


@dataclass(frozen=True, slots=True)
class Table:
    """Rows to be answered with; those that do not fit come with the cursor.

    ``follow`` is the page after this one at the source, ``page`` this one where the cursor does not say it; ``longest`` bounds a value;
    ``notes`` are sentences for the end.
    """

    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[Any]]
    follow: str = ""
    notes: Sequence[str] = ()
    longest: int = LONGEST
    page: str = ""


def written(table: Table, cursor: AnswerCursor, asked: str) -> str:
    """Write as many rows as fit, and where to go on."""
    shown: list[str] = []
    notes = [f"note: {spoken(each, LONGEST)}" for each in table.notes[:_NOTES]]
    head = row(table.columns)
    room = BUDGET - _FRAME - len(head) - sum(map(len, notes))
    tokens = TOKENS - _FRAME_TOKENS - tokens_of(head) - sum(map(tokens_of, notes))
    for values in table.rows[cursor.skip :]:
        line = row(values, table.longest)
        if shown and (len(line) + 1 > room or tokens_of(line) + 1 > tokens):
            break
        while len(line) > room or tokens_of(line) > tokens:  # the first row alone is too long
            line = f"{line[: len(line) * 3 // 4]}…"
        shown.append(line)
        room -= len(line) + 1
        tokens -= tokens_of(line) + 1
    end = cursor.skip + len(shown)
    lines = [spoken(table.title)]
    if shown:
        lines += ["<data>", row(table.columns), *shown, "</data>"]
    lines += notes
    if end < len(table.rows):
        place = AnswerCursor(table.page or cursor.page, end)
        lines.append(_more(place, asked, f"{len(table.rows) - end:,} more rows"))
    elif table.follow:
        lines.append(_more(AnswerCursor(table.follow, 0), asked, "there are more"))
    return "\n".join(lines)


def _more(cursor: AnswerCursor, asked: str, what: str) -> str:
    return f"{what}: repeat the call with cursor={cursor.written(asked)}"
