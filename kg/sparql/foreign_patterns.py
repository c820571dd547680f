"""``GRAPH <IRI> { … }`` in a query without a dataset of its own: which graphs are named so, and what takes their place.

A group of one graph can be answered apart: its solutions do not depend on what stands around it
(https://www.w3.org/TR/sparql11-query/#sparqlAlgebra), so ``VALUES`` with them takes its place.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from drumlin.kg.sparql.from_clauses import resolved_names
from drumlin.kg.sparql.lexer import tokens
from drumlin.kg.sparql.variables import closing

_FORMS = frozenset({"SELECT", "ASK", "CONSTRUCT", "DESCRIBE"})


class GraphPattern(NamedTuple):
    """A group and its graph: where it stands in the text (from ``start`` to before ``end``), and the query for its solutions."""

    graph: str
    start: int
    end: int
    query: str


def named_patterns(query: str, base: str | None) -> list[GraphPattern]:
    """Return the outermost groups of graphs that are named by an IRI, in the order of the text."""
    listed = list(tokens(query))
    first = next((at for at, token in enumerate(listed) if token.kind == "word" and token.text in _FORMS), 0)
    prologue = query[: listed[first].start] if listed else ""
    names = resolved_names(listed[:first], base)
    found: list[GraphPattern] = []
    at = first
    while at + 2 < len(listed):
        token, name, opening = listed[at : at + 3]
        if token.text != "GRAPH" or name.kind not in ("iri", "name") or opening.text != "{":
            at += 1
            continue
        last = min(closing(listed, at + 2), len(listed) - 1)
        graph = names(name)
        end = listed[last].start + 1
        if graph is not None:
            found.append(
                GraphPattern(graph, token.start, end, f"{prologue} SELECT * WHERE {query[opening.start : end]}")
            )
        at = last + 1
    return found


def replaced(query: str, patterns: Sequence[GraphPattern], texts: Sequence[str]) -> str:
    """Return a query with a text in the place of each pattern."""
    for pattern, text in reversed(list(zip(patterns, texts, strict=True))):
        query = f"{query[: pattern.start]}{text}{query[pattern.end :]}"
    return query
