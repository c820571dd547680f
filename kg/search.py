"""Finding entities: text and filters, counted by facet, sorted, page after page.

What is found is first asked of the index as words. Up to ``EXACT`` matches everything is exact and taken from them; where there are more, a
page is found by walking in order and looking at each entity (a hit is never far), and what is counted is counted over the first ``EXACT``
matches, and said to be so. Cursors name the place of the last item, not a number of items, so nothing is shown twice or left out because
something else came or went.
"""

from __future__ import annotations

import base64
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from itertools import chain
from typing import Annotated, Any, Literal

import msgspec

from kg.errors import InvalidInput, StoreUnavailable
from kg.facets import FIELDS, LIVE, token
from kg.indexing import Index
from kg.words import Part, sought

EXACT = 2_000
"""Matches up to which counts are exact."""
MAX_PARTS = 16
TOP = 50
"""Values of one facet that are told."""
BEHIND = 2_000
"""Changes that a question takes in at most before it is answered."""
LISTING = 5.0
"""Seconds that a question waits while everything is listed anew; after them it is answered from a part."""

Sort = Literal["relevance", "id", "name", "-changed"]
_KEYS: Mapping[str, str] = {"id": "id", "name": "name", "-changed": "changed"}


@dataclass(frozen=True, slots=True)
class Question:
    """What is looked for. ``filters``: field → values, any of which will do; ``after``: a cursor for the order of ids, the id itself."""

    text: str = ""
    filters: Mapping[str, Sequence[str]] = field(default_factory=dict)
    prefix: str = ""
    tombstones: bool = False
    sort: Sort = "relevance"
    cursor: str = ""
    after: str = ""
    limit: int = 50
    facets: Sequence[str] = ()


@dataclass(frozen=True, slots=True)
class Found:
    """One entity. ``type`` is the former class when it is a tombstone; what is unknown is ""/None."""

    id: str
    iri: str
    type: str
    name: str
    namespace: str | None
    phase: str | None
    owner: str
    tombstone: bool
    digest: str
    generation: int
    changed: str


@dataclass(frozen=True, slots=True)
class Result:
    """A page. ``total`` and ``facets`` are exact when ``exact``, else they tell of the first ``EXACT`` matches; ``next`` is the cursor."""

    items: tuple[Found, ...]
    total: int
    exact: bool
    facets: Mapping[str, Mapping[str, int]]
    next: str | None
    generation: int


Clause = tuple[Part, ...]
"""Words, one of which must be there."""


class Search:
    """Answers questions over an index. All methods block and may be called from any thread."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def find(self, question: Question) -> Result:
        """Answer; ``generation`` 0: from a part, since everything is being listed anew.

        Raises ``InvalidInput`` for a field, cursor or text that cannot be read, ``StoreUnavailable`` when the disk fails.
        """
        clauses = _clauses(question)
        generation = self.index.catch_up(BEHIND)
        if self.index.listing:
            self.index.wait_listed(LISTING)
            generation = self.index.catch_up(BEHIND)
        try:
            rows = self._matches(clauses)
            narrow = rows is not None and len(rows) <= EXACT
            items, more = self._page(question, clauses, narrow=narrow)
        except sqlite3.Error as error:
            raise StoreUnavailable(f"the search index cannot be read: {error}") from error
        total, exact, facets = self._counted(question, clauses, rows)
        cursor = _cursor(question, items[-1]) if more else None
        return Result(tuple(_found(self.index, each) for each in items), total, exact, facets, cursor, generation)

    def _matches(self, clauses: Sequence[Clause]) -> list[int] | None:
        """Return the rows that match, at most one more than ``EXACT``; None when everything does that is alive."""
        if all(clause == _ALIVE for clause in clauses):
            return None
        query = "SELECT rowid FROM found WHERE found MATCH ? LIMIT ?"
        return [row for (row,) in self.index.reader.execute(query, (_matching(clauses), EXACT + 1))]

    def _page(self, question: Question, clauses: Sequence[Clause], *, narrow: bool) -> tuple[list[Any], bool]:
        """Return at most ``limit`` entities after the cursor, and whether there are more."""
        found: list[Any] = []
        for query, values in _selects(question, clauses, narrow=narrow):
            missing = question.limit + 1 - len(found)
            if missing:
                found += self.index.reader.execute(query, {**values, "limit": missing}).fetchall()
        return found[: question.limit], len(found) > question.limit

    def _counted(
        self, question: Question, clauses: Sequence[Clause], rows: list[int] | None
    ) -> tuple[int, bool, dict[str, dict[str, int]]]:
        wanted = [FIELDS.index(name) for name in question.facets]
        if rows is None and clauses:
            return self.index.live, True, {FIELDS[place]: _top(self.index.counts[place]) for place in wanted}
        known = self.index.facets
        rows = list(known) if rows is None else rows
        held = [facets for row in rows[:EXACT] if (facets := known.get(row))]
        counted = {
            FIELDS[place]: _top(Counter(chain.from_iterable([facets[place] for facets in held]))) for place in wanted
        }
        return min(len(rows), EXACT), len(rows) <= EXACT, counted


def _top(counter: Counter[str]) -> dict[str, int]:
    """Return the most frequent values, the least of equals first."""
    found = sorted((-count, value) for value, count in list(counter.items()) if count > 0)
    return {value: -count for count, value in found[:TOP]}


_ALIVE: Clause = (Part(LIVE, beginning=False),)


def _clauses(question: Question) -> list[Clause]:
    unknown = sorted(({*question.filters} | {*question.facets}) - {*FIELDS})
    if unknown:
        raise InvalidInput(
            f"{unknown[0]!r} is not something to filter or count by", hint=f"it is one of {', '.join(FIELDS)}"
        )
    parts = sought(question.text)
    if question.text.strip() and not parts:
        raise InvalidInput("there is no word in the text", hint="search for a name, label, image, id or tag")
    if len(parts) > MAX_PARTS:
        raise InvalidInput(f"the text has {len(parts)} words; the limit is {MAX_PARTS}")
    clauses: list[Clause] = [(part,) for part in parts]
    clauses += [
        tuple(Part(token(name, each), beginning=False) for each in values)
        for name, values in question.filters.items()
        if values
    ]
    return clauses if question.tombstones else [*clauses, _ALIVE]


def _matching(clauses: Sequence[Clause]) -> str:
    return " AND ".join(f"({' OR '.join(map(_quoted, clause))})" for clause in clauses)


def _quoted(part: Part) -> str:
    return f'"{part.word}" *' if part.beginning else f'"{part.word}"'


_SHOWN = "id, type, name, namespace, phase, owner, tombstone, digest, generation, changed"


def _selects(question: Question, clauses: Sequence[Clause], *, narrow: bool) -> Iterator[tuple[str, dict[str, Any]]]:
    """Yield what to ask, in order: for relevance first those whose name is the text, then the others."""
    values: dict[str, Any] = {}
    each_looked_at = ["NOT removed", *_conditions(clauses, values)]
    where = ["row IN (SELECT rowid FROM found WHERE found MATCH :match)"] if narrow else each_looked_at
    values["match"] = _matching(clauses)
    if question.prefix:
        where = [*where, "id >= :first AND id < :past"]
        values |= {"first": question.prefix, "past": question.prefix + "\U0010ffff"}
    stages = [where]
    if question.sort == "relevance" and (name := question.text.strip().casefold()):
        values["name"] = name
        stages = [[*each_looked_at, "key = :name"], [*where, "key <> :name"]]
    begin, *place = _read_cursor(question)
    column = _KEYS.get(question.sort, "id")
    direction, compared = ("DESC", "<") if question.sort.startswith("-") else ("ASC", ">")
    for number, conditions in enumerate(stages[begin:], begin):
        after = []
        if place and number == begin:
            after = [f"({column}, id) {compared} (:value, :id)"]
            values |= {"value": place[0], "id": place[1]}
        text = " AND ".join([*conditions, *after])
        order = f"ORDER BY {column} {direction}, id {direction}"
        yield f"SELECT {_SHOWN} FROM entity WHERE {text} {order} LIMIT :limit", values  # noqa: S608 - parts of ours


def _conditions(clauses: Sequence[Clause], values: dict[str, Any]) -> Iterator[str]:
    for clause in clauses:
        options = []
        for part in clause:
            name = f"word{len(values)}"
            values[name] = f" {part.word}" if part.beginning else f" {part.word} "
            options.append(f"instr(words, :{name})")
        yield f"({' OR '.join(options)})"


def _cursor(question: Question, last: Any) -> str:
    shown = dict(zip(_SHOWN.split(", "), last, strict=True))
    text = question.text.strip().casefold()
    stage = int(question.sort == "relevance" and bool(text) and shown["name"].casefold() != text)
    place = [stage, shown[_KEYS.get(question.sort, "id")], shown["id"]]
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


_Place = tuple[Annotated[int, msgspec.Meta(ge=0, le=1)], str, str]


def _read_cursor(question: Question) -> list[Any]:
    """Return the stage and the place after which to go on; raises ``InvalidInput``."""
    if not question.cursor:
        return [0, question.after, question.after] if question.after else [0]
    try:
        padded = question.cursor + "=" * (-len(question.cursor) % 4)
        return list(msgspec.json.decode(base64.b64decode(padded, "-_", validate=True), type=_Place))
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput("the cursor is not one that was given out here", hint="take it from next") from error


def _found(index: Index, row: Any) -> Found:
    id, *rest = row
    shown = dict(zip(_SHOWN.split(", ")[1:], rest, strict=True))
    return Found(id=id, iri=index.iri(id), **{**shown, "tombstone": bool(shown["tombstone"])})
