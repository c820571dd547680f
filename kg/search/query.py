"""Finding entities: text and filters, counted by facet, sorted, page after page.

What is found is first asked of the index as words. Up to ``EXACT`` matches everything is exact and taken from them; where there are more,
what is counted is counted over the first ``EXACT`` matches, and said to be so, and a page is found by walking in order and looking at each
entity. A hit is seldom far; where it is (all matches stand together, far behind), all matches are taken and sorted, or, when they are very
many, walked to. Cursors name the place of the last item, not a number of items, so nothing is shown twice or left out because something
else came or went; what itself moves in the order meanwhile (sorted by name or change) may be.
"""

from __future__ import annotations

import base64
import json
import sqlite3
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from hashlib import blake2b
from itertools import chain
from typing import Annotated, Any, Literal, NamedTuple

import msgspec

from drumlin.kg.errors import InvalidInput, StoreUnavailable
from drumlin.kg.search.facets import FIELDS, LIVE, token
from drumlin.kg.search.index import Index
from drumlin.kg.search.schema import key_of
from drumlin.kg.search.tokenizer import SearchTerm, sought

EXACT = 2_000
"""Matches up to which counts are exact."""
LOOKS = 4_000
"""Entities that a walk looks at before the index is asked, and ``LOOKS_EACH`` for each that is wanted; fewer when it is for many words."""
LOOKS_EACH = 20
SORTED = 30_000
"""Matches up to which taking and sorting them costs less than walking to them."""
MAX_PARTS = 16
MAX_VALUES = 200
"""Values of all filters together."""
TOP = 50
"""Values of one facet that are reported."""
BEHIND = 10_000
"""Changes that a question takes in at most before it is answered, half a second's work: those of one request in bulk."""
LISTING = 5.0
"""Seconds that a question waits while everything is listed anew; after them it is refused for now."""

Sort = Literal["relevance", "id", "name", "-changed"]
_KEYS: Mapping[str, str] = {"id": "id", "name": "key", "-changed": "changed"}


@dataclass(frozen=True, slots=True)
class SearchQuery:
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
class SearchHit:
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
    """A page. ``total`` and ``facets`` are exact when ``exact``, else they cover the first ``EXACT`` matches; ``next`` is the cursor."""

    items: tuple[SearchHit, ...]
    total: int
    exact: bool
    facets: Mapping[str, Mapping[str, int]]
    next: str | None
    generation: int


Clause = tuple[SearchTerm, ...]
"""Words, one of which must be there."""


class Search:
    """Answers questions over an index. All methods block and may be called from any thread."""

    def __init__(self, index: Index) -> None:
        self.index = index

    def find(self, question: SearchQuery) -> Result:
        """Answer from all that is stored.

        Raises ``InvalidInput`` for a field, cursor or text that cannot be read, ``StoreUnavailable`` when the disk fails, or while
        everything is listed anew and that takes longer than ``LISTING``.
        """
        clauses = _clauses(question)
        try:
            return self._answer(question, clauses, self._caught_up())
        except StoreUnavailable:
            if not self.index.partial:
                raise
        return self._answer(question, clauses, self._caught_up())  # the index was damaged, and is made anew

    def _caught_up(self) -> int:
        """Wait until the index is whole, and return the generation that it holds."""
        generation = self.index.catch_up(BEHIND)
        if self.index.partial:
            self.index.wait_listed(LISTING)
            generation = self.index.catch_up(BEHIND)
        if self.index.partial:
            raise StoreUnavailable(
                "the search index is being built anew: what is found now would only be a part",
                hint="ask again in some seconds; /readyz is 503 until then",
            )
        return generation

    def _answer(self, question: SearchQuery, clauses: Sequence[Clause], generation: int) -> Result:
        with self.index.reading() as connection:
            rows = _matches(connection, clauses)
            items, more = _page(connection, question, clauses, rows)
        total, exact, facets = self._counted(question, clauses, rows)
        cursor = _cursor(question, items[-1]) if more else None
        return Result(tuple(_found(self.index, each) for each in items), total, exact, facets, cursor, generation)

    def _counted(
        self, question: SearchQuery, clauses: Sequence[Clause], rows: list[int] | None
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


def _matches(connection: sqlite3.Connection, clauses: Sequence[Clause]) -> list[int] | None:
    """Return the rows that match, at most one more than ``EXACT``; None when everything does that is alive."""
    if all(clause == _ALIVE for clause in clauses):
        return None
    query = "SELECT rowid FROM found WHERE found MATCH ? LIMIT ?"
    return [row for (row,) in connection.execute(query, (_matching(clauses), EXACT + 1)).fetchall()]


def _page(
    connection: sqlite3.Connection, question: SearchQuery, clauses: Sequence[Clause], rows: list[int] | None
) -> tuple[list[Any], bool]:
    """Return at most ``limit`` entities after the cursor, and whether there are more."""
    found: list[Any] = []
    for stage in _stages(question):
        missing = question.limit + 1 - len(found)
        if rows is not None and len(rows) <= EXACT:
            found += _sorted(connection, stage, json.dumps(rows), missing)
        elif missing:
            found += _walked(connection, stage, clauses, missing)
    return found[: question.limit], len(found) > question.limit


def _sorted(connection: sqlite3.Connection, stage: _Stage, rows: str, limit: int) -> list[Any]:
    where = f"row IN ({_select('value', 'json_each(:rows)', 'true')}) AND {stage.where}"
    query = _select(_SHOWN, "entity", where, f"{stage.order} LIMIT :limit")
    return connection.execute(query, {**stage.values, "rows": rows, "limit": limit}).fetchall()


def _walked(connection: sqlite3.Connection, stage: _Stage, clauses: Sequence[Clause], limit: int) -> list[Any]:
    """Look at one entity after the other; when that leads nowhere, ask the index for all."""
    words: dict[str, Any] = {}
    alive = " AND ".join(["NOT removed", *_conditions(clauses, words)])
    looks = (LOOKS + LOOKS_EACH * limit) // max(1, len(words)) if clauses else -1
    values = {**stage.values, **words, "looks": looks, "limit": limit}
    near = _select(_KEPT, "entity", stage.where, f"{stage.order} LIMIT :looks")
    found = connection.execute(_select(_SHOWN, f"({near})", alive, "LIMIT :limit"), values).fetchall()
    if looks < 0 or len(found) == limit:
        return found
    there_are = _select("1", "entity", stage.where, "LIMIT :looks")
    (looked,) = connection.execute(_select("count(*)", f"({there_are})", "true"), values).fetchone()
    return found if looked < looks else _all_taken(connection, stage, clauses, limit)


def _all_taken(connection: sqlite3.Connection, stage: _Stage, clauses: Sequence[Clause], limit: int) -> list[Any]:
    """Take what the index finds and sort it; when it is very much, walk in order until enough of it is met."""
    found = _select("rowid", "found", "found MATCH :match")
    values = {"match": _matching(clauses), "sorted": SORTED + 1}
    query = _select("json_group_array(rowid), count(*)", f"({found} LIMIT :sorted)", "true")
    rows, count = connection.execute(query, values).fetchone()
    if count <= SORTED:
        return _sorted(connection, stage, rows, limit)
    query = _select(_SHOWN, "entity", f"+row IN ({found}) AND {stage.where}", f"{stage.order} LIMIT :limit")
    return connection.execute(query, {**stage.values, **values, "limit": limit}).fetchall()


def _select(what: str, source: str, where: str, rest: str = "") -> str:
    return f"SELECT {what} FROM {source} WHERE {where} {rest}"  # noqa: S608 - parts of ours, values are bound


def _top(counter: Counter[str]) -> dict[str, int]:
    """Return the most frequent values, the least of equals first."""
    found = sorted((-count, value) for value, count in list(counter.items()) if count > 0)
    return {value: -count for count, value in found[:TOP]}


_ALIVE: Clause = (SearchTerm(LIVE, beginning=False),)


def _clauses(question: SearchQuery) -> list[Clause]:
    unknown = sorted(({*question.filters} | {*question.facets}) - {*FIELDS})
    if unknown:
        raise InvalidInput(
            f"{unknown[0]!r} is not something to filter or count by", hint=f"it is one of {', '.join(FIELDS)}"
        )
    if sum(map(len, question.filters.values())) > MAX_VALUES:
        raise InvalidInput(f"the filters have more than {MAX_VALUES} values")
    parts = sought(question.text)
    if question.text.strip() and not parts:
        raise InvalidInput("there is no word in the text", hint="search for a name, label, image, id or tag")
    if len(parts) > MAX_PARTS:
        raise InvalidInput(f"the text has {len(parts)} words; the limit is {MAX_PARTS}")
    clauses: list[Clause] = [(part,) for part in parts]
    clauses += [
        tuple(SearchTerm(token(name, each), beginning=False) for each in values)
        for name, values in question.filters.items()
        if values
    ]
    return clauses if question.tombstones else [*clauses, _ALIVE]


def _matching(clauses: Sequence[Clause]) -> str:
    return " AND ".join(f"({' OR '.join(map(_quoted, clause))})" for clause in clauses)


def _quoted(part: SearchTerm) -> str:
    return f'"{part.word}" *' if part.beginning else f'"{part.word}"'


_SHOWN = "id, type, name, namespace, phase, owner, tombstone, digest, generation, changed"
_KEPT = f"{_SHOWN}, removed, words"


class _Stage(NamedTuple):
    """Part of an order, after the cursor."""

    where: str
    order: str
    values: dict[str, Any]


def _stages(question: SearchQuery) -> Iterator[_Stage]:
    """Yield what to go through, in order: for relevance first those whose name is the text, then the others."""
    values: dict[str, Any] = {}
    where = ["true"]
    if question.prefix:
        where = ["id >= :first AND id < :past"]
        values = {"first": question.prefix, "past": question.prefix + "\U0010ffff"}
    stages = [where]
    if question.sort == "relevance" and (name := key_of(question.text.strip())):
        values["name"] = name
        stages = [[*where, "key = :name"], [*where, "key <> :name"]]
    begin, *place = _read_cursor(question)
    column = _KEYS.get(question.sort, "id")
    direction, compared = ("DESC", "<") if question.sort.startswith("-") else ("ASC", ">")
    for number, conditions in enumerate(stages[begin:], begin):
        after, at = [], {}
        if place and number == begin:
            after = [f"({column}, id) {compared} (:value, :id)"]
            at = {"value": place[0], "id": place[1]}
        order = f"ORDER BY {column} {direction}, id {direction}"
        yield _Stage(" AND ".join([*conditions, *after]), order, {**values, **at})


def _conditions(clauses: Sequence[Clause], values: dict[str, Any]) -> Iterator[str]:
    for clause in clauses:
        options = []
        for part in clause:
            name = f"word{len(values)}"
            values[name] = f" {part.word}" if part.beginning else f" {part.word} "
            options.append(f"instr(words, :{name})")
        yield f"({' OR '.join(options)})"


_Place = tuple[Annotated[int, msgspec.Meta(ge=0, le=1)], str, str, str]


def _cursor(question: SearchQuery, last: Any) -> str:
    """Name the place of an item: its stage, what it is sorted by, its id, and the question that all that is about."""
    shown = dict(zip(_SHOWN.split(", "), last, strict=True))
    shown["key"] = key_of(shown["name"])
    text = key_of(question.text.strip())
    stage = int(question.sort == "relevance" and bool(text) and shown["key"] != text)
    place = [stage, shown[_KEYS.get(question.sort, "id")], shown["id"], _asked(question)]
    return base64.urlsafe_b64encode(msgspec.json.encode(place)).decode().rstrip("=")


def _asked(question: SearchQuery) -> str:
    """Return a mark of everything that decides what is found and in which order."""
    filters = sorted((name, sorted(values)) for name, values in question.filters.items() if values)
    asked = [question.text.strip(), filters, question.prefix, question.tombstones, question.sort]
    return blake2b(msgspec.json.encode(asked), digest_size=6).hexdigest()


def _read_cursor(question: SearchQuery) -> list[Any]:
    """Return the stage and the place after which to go on; raises ``InvalidInput``."""
    if not question.cursor:
        return [0, question.after, question.after] if question.after else [0]
    try:
        padded = question.cursor + "=" * (-len(question.cursor) % 4)
        stage, value, id, asked = msgspec.json.decode(base64.b64decode(padded, "-_", validate=True), type=_Place)
    except (ValueError, msgspec.MsgspecError) as error:
        raise InvalidInput("the cursor is not one that was given out here", hint="take it from next") from error
    if asked != _asked(question):
        raise InvalidInput("the cursor is of another question", hint="leave text, filters and sort as they were")
    return [stage, value, id]


def _found(index: Index, row: Any) -> SearchHit:
    id, *rest = row
    shown = dict(zip(_SHOWN.split(", ")[1:], rest, strict=True))
    return SearchHit(id=id, iri=index.iri(id), **{**shown, "tombstone": bool(shown["tombstone"])})
