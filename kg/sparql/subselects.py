"""Sub-selects inside ``GRAPH ?g``: rewritten so that the engine answers them as SPARQL defines.

By definition the inside of ``GRAPH ?g { … }`` is evaluated for each named graph, and the solutions are joined with ?g bound to its name
(https://www.w3.org/TR/sparql11-query/#sparqlAlgebra, ``Graph``). The engine writes ?g into the triple patterns instead, and the
projection of a sub-select then drops it. So each sub-select projects ?g as well. A variable of its own that is called ?g is
renamed; where it projects that one, a filter joins the two, inside another sub-select that hides the new name. What would need one
evaluation for each graph is refused: LIMIT, OFFSET, aggregates over all rows, and a MINUS of which it is not clear what it shares.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from functools import cached_property, partial

from drumlin.kg.errors import QueryRejected
from drumlin.kg.sparql.lexer import BRACKETS, Token, rejected, tokens
from drumlin.kg.sparql.variables import Element, always_bound, body_of, closing, elements, projection, visible

MAX_SELECTS = 20
"""Sub-selects of this kind in one query; each is rewritten by itself."""
MAX_WORK = 100_000
"""Tokens of a query, times its sub-selects of this kind: each is found and rewritten in about 7 microseconds for a token."""
_AGGREGATES = frozenset({"COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"})
_APART = ("OPTIONAL", "MINUS", "EXISTS")
"""Groups whose solutions are not simply joined with what stands before them."""

_Edit = tuple[int, int, str]
"""A part of the text to replace: its start, its end, the new text."""


def restore(query: str) -> str:
    """Return a query that passed the gate with its sub-selects in ``GRAPH ?g`` rewritten; raises ``QueryRejected``."""
    upper = query.upper()
    if upper.find("SELECT", upper.find("GRAPH")) < 0 or "GRAPH" not in upper:
        return query
    count = sum(1 for _ in _selects(query))
    if count > MAX_SELECTS:
        raise QueryRejected(
            f"{count} sub-selects stand inside GRAPH with a variable; the limit is {MAX_SELECTS}", reason="complexity"
        )
    if count and count * sum(1 for _ in tokens(query)) > MAX_WORK:
        raise QueryRejected(
            f"the query is too long for {count} sub-selects inside GRAPH with a variable",
            reason="complexity",
            hint="split the query, or list fewer constants in VALUES",
        )
    at = 0  # outer ones first: the inner ones are rewritten with the new names
    while (select := next(itertools.islice(_selects(query), at, None), None)) is not None:
        for start, end, text in sorted(select.edits(_fresh(select.variable, query)), reverse=True):
            query = f"{query[:start]}{text}{query[end:]}"
        at += 1 + select.joins
    return query


def _fresh(variable: str, query: str) -> str:
    """Return a name that no variable of the query has."""
    taken = {token.text[1:] for token in tokens(query) if token.kind == "variable"}
    return next(name for name in (f"{variable}_{number}" for number in itertools.count()) if name not in taken)


class _Select:
    """One sub-select. ``variable`` names the graph around it; ``found`` are its tokens, to the end of its solution modifiers."""

    def __init__(self, query: str, variable: str, found: Sequence[Token], *, apart: bool) -> None:
        opens = body_of(found)
        closes = closing(found, opens)
        self.variable = variable
        self._query = query
        self._apart = apart
        self._tokens = found
        self._brace = found[opens]
        self._head, self._body, self._tail = found[1:opens], found[opens + 1 : closes], found[closes + 1 :]

    @cached_property
    def names(self) -> list[str]:
        """The names of the variables that it yields."""
        return projection(self._tokens)

    @property
    def joins(self) -> bool:
        """Whether it projects a variable that is called as the graph's, and so is put into another sub-select."""
        return self.variable in self.names

    def edits(self, fresh: str) -> Iterator[_Edit]:
        """Yield the changes; its own variable that is called as the graph's is then called ``fresh``."""
        grouped = self._check()
        removed = [_span(each.tokens) for each in self._minuses(self._body)]
        yield from ((start, end, " FILTER(true) ") for start, end in removed)
        kept = partial(_outside, removed)
        for token in self._tokens:
            if token.kind == "variable" and token.text[1:] == self.variable and kept(token.start):
                yield token.start, token.start + len(token.text), f"?{fresh}"
        for at in self._unbound(self._brace.start + 1, self._body):
            if kept(at):
                yield at, at, f" GRAPH ?{self.variable} {{}} "
        yield self._project([fresh if name == self.variable else name for name in self.names])
        if grouped:
            end = grouped.start + len(grouped.text)
            yield end, end, f" ?{self.variable}"
        if self.joins:
            yield from self._join(fresh)

    def _check(self) -> Token | None:
        """Return the BY of its GROUP BY, None without one; raises when it would have to be evaluated for each graph."""
        words = [token.text for token in self._tail if token.kind == "word"]
        if "LIMIT" in words or "OFFSET" in words:
            raise self._refused("LIMIT and OFFSET inside GRAPH with a variable would count in each graph")
        if self.joins and self._apart:
            raise self._refused(
                f"a sub-select inside GRAPH ?{self.variable} and {', '.join(_APART)} cannot select ?{self.variable} itself",
                "give the variable another name and compare the two in a FILTER",
            )
        if "GROUP" in words:
            at = [token.text for token in self._tail].index("GROUP") + 1
            return self._tail[at] if at < len(self._tail) else None  # without BY, which the engine refuses
        if "HAVING" in words or any(token.kind == "word" and token.text in _AGGREGATES for token in self._head):
            raise self._refused("an aggregate of all rows inside GRAPH with a variable would be one in each graph")
        return None

    def _project(self, names: Sequence[str]) -> _Edit:
        """Project the graph's variable too; ``*`` becomes the variables that it stands for."""
        star = self._head[-1] if self._head and self._head[-1].text != "WHERE" else None
        star = star or (self._head[-2] if len(self._head) > 1 else None)
        if star is not None and star.text == "*":
            return star.start, star.start + 1, " ".join(f"?{name}" for name in [*names, self.variable])
        before = self._head[-1] if self._head and self._head[-1].text == "WHERE" else self._brace
        return before.start, before.start, f" ?{self.variable} "

    def _join(self, fresh: str) -> Iterator[_Edit]:
        """Keep the solutions whose own variable has the graph's name or no value, and hide that variable."""
        names = " ".join(f"?{name}" for name in dict.fromkeys([*self.names, self.variable]))
        start, end = _span(self._tokens)
        yield start, start, f"SELECT {names} {{ {{ "
        yield end, end, f" }} FILTER(!BOUND(?{fresh}) || SAMETERM(?{fresh}, ?{self.variable})) }}"

    def _unbound(self, start: int, group: Sequence[Token]) -> Iterator[int]:
        """Yield where the groups begin that may come to a solution without a pattern that says which graph it is of."""
        if not _matches(group):
            yield start
        for each in elements(group):
            if each.kind in ("GROUP", "OPTIONAL", "LATERAL"):
                for inside in each.groups:
                    if inside:
                        yield from self._unbound(inside[0].start, inside)

    def _minuses(self, group: Sequence[Token]) -> Iterator[Element]:
        """Yield each MINUS that shares no variable with what stands before it, and so removes nothing.

        To the engine it shares the graph's variable. Raises where the solutions may or may not share one.
        """
        before: list[Token] = []
        for each in elements(group):
            if each.kind == "MINUS" and not visible(before) & visible(each.groups[0]):
                yield each
                continue
            for inside in each.groups if each.kind != "GRAPH" or each.tokens[1].kind == "variable" else ():
                yield from self._minuses(inside)
            if each.kind == "MINUS" and not always_bound(before) & always_bound(each.groups[0]):
                raise self._refused(
                    "MINUS inside GRAPH with a variable needs a variable that both sides bind in any case",
                    "bind it before OPTIONAL, or write FILTER NOT EXISTS",
                )
            before += each.tokens

    def _refused(self, message: str, hint: str | None = None) -> QueryRejected:
        select = self._tokens[0]
        return rejected(
            message,
            self._query,
            select.start,
            select.text,
            reason="complexity",
            hint=hint
            or f"select ?{self.variable} outside, and group by it: SELECT ?{self.variable} (COUNT(*) AS ?n)"
            f" {{ GRAPH ?{self.variable} {{ … }} }} GROUP BY ?{self.variable}",
        )


def _matches(group: Sequence[Token]) -> bool:
    """Return whether each solution of a group comes from a pattern that is matched in the graph, before anything is optional."""
    for each in elements(group):
        if each.kind in ("TRIPLES", "SELECT") or (each.kind == "GROUP" and all(map(_matches, each.groups))):
            return True
        if each.kind in ("OPTIONAL", "MINUS", "LATERAL"):
            return False
    return False


def _span(found: Sequence[Token]) -> tuple[int, int]:
    return found[0].start, found[-1].start + len(found[-1].text)


def _outside(spans: Sequence[tuple[int, int]], at: int) -> bool:
    return not any(start <= at < end for start, end in spans)


def _selects(query: str) -> Iterator[_Select]:
    """Yield the sub-selects that stand inside ``GRAPH`` with a variable, outer ones first."""
    found = list(tokens(query))
    groups: list[tuple[str | None, bool]] = [(None, False)]  # the graph's variable, and whether a group may add nothing
    for at, token in enumerate(found):
        if token.text == "{":
            graph, apart = groups[-1]
            if at > 1 and found[at - 2].text == "GRAPH":
                graph = found[at - 1].text[1:] if found[at - 1].kind == "variable" else None
                apart = False
            groups.append((graph, apart or found[at - 1].text in _APART))
        elif token.text == "}":
            groups.pop()
        elif token.text == "SELECT" and found[at - 1].text == "{":
            graph, apart = groups[-1]
            inside = list(_inside(found[at:])) if graph is not None else []
            if body_of(inside) < len(inside):  # else the engine refuses it
                yield _Select(query, graph or "", inside, apart=apart)


def _inside(rest: Sequence[Token]) -> Iterator[Token]:
    """Yield the tokens of one sub-select: those up to the bracket that closes its group."""
    depth = 0
    for token in rest:
        if token.kind == "sign":
            depth += (token.text in BRACKETS) - (token.text in BRACKETS.values())
        if depth < 0:
            return
        yield token
