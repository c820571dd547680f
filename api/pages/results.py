"""Results of queries as tables of a page, up to a number of rows; what a query finds more is only counted as more."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from itertools import islice

from drumlin.api import querying
from drumlin.api.bootstrap import Services
from drumlin.api.pages.values import ShownValue, is_number, shown_binding
from drumlin.api.querying import SOLUTIONS, ParsedQuery
from drumlin.kg.sparql import gate
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.sparql.results import Row, read_solutions
from drumlin.queries.catalogue import QueryCatalogue

MAX_ROWS = 1_000
"""Rows that a page shows."""


@dataclass(frozen=True, slots=True)
class ResultTable:
    """Rows as they are shown; ``numeric`` are the columns that hold nothing but numbers, ``more`` that there are more rows."""

    columns: tuple[str, ...]
    rows: tuple[tuple[ShownValue, ...], ...]
    numeric: frozenset[str]
    more: bool
    generation: int


def bindings_of(service: Services, query: ParsedQuery, limit: int) -> tuple[list[str], list[Row], bool, int]:
    """Run a SELECT that passed the gate: its variables, at most ``limit`` solutions, whether there are more, the generation."""
    with querying.chunks(service, query._replace(media_type=SOLUTIONS["json"])) as (pieces, generation):
        solutions = read_solutions(pieces)
        rows = list(islice(solutions.rows, limit + 1))
    return solutions.variables, rows[:limit], len(rows) > limit, generation


def table_of(service: Services, query: ParsedQuery, limit: int = MAX_ROWS) -> ResultTable:
    """Run a SELECT that passed the gate."""
    variables, rows, more, generation = bindings_of(service, query, limit)
    numeric = frozenset(
        name
        for name in variables
        if (bound := [row[name] for row in rows if name in row]) and all(map(is_number, bound))
    )
    shown = tuple(tuple(shown_binding(row.get(name), service.iris) for name in variables) for row in rows)
    return ResultTable(tuple(variables), shown, numeric, more, generation)


def saved(
    service: Services, catalogue: QueryCatalogue, name: str, values: Mapping[str, str], limit: int = MAX_ROWS
) -> tuple[list[Row], bool]:
    """Ask a saved query: its solutions, at most ``limit``, and whether there are more."""
    _, rows, more, _ = bindings_of(service, gated(service, catalogue.get(name).bound(values, service.iris)), limit)
    return rows, more


def gated(service: Services, text: str) -> ParsedQuery:
    """Return a query of ours as one that passed the gate."""
    passed = gate.check(text, max_bytes=service.settings.query_bytes)
    return ParsedQuery(passed.text, Dataset(), SOLUTIONS["json"], timeout=None, volatile=passed.volatile)
