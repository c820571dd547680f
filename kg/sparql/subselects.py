"""Sub-selects inside ``GRAPH ?g``: the engine forgets which graph they matched in, so they are made to say it.

In ``GRAPH ?g { SELECT ?x { … } }`` the sub-select is evaluated graph by graph and ?g is joined afterwards
(https://www.w3.org/TR/sparql11-query/#sparqlAlgebra, ``Graph``). The engine writes ?g into the patterns instead, and the projection then
drops it. Projecting it restores the answer; what would need one evaluation per graph (LIMIT, an aggregate of all rows) is refused.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import dataclass

from kg.errors import QueryRejected
from kg.sparql.lexer import Token, rejected, tokens

MAX_SELECTS = 20
"""Sub-selects of this kind in one query; each is rewritten by itself."""
_AGGREGATES = frozenset({"COUNT", "SUM", "MIN", "MAX", "AVG", "SAMPLE", "GROUP_CONCAT"})


def restore(query: str) -> str:
    """Return a query that passed the gate, its sub-selects in ``GRAPH ?g`` projecting ?g; raises ``QueryRejected``."""
    upper = query.upper()
    if upper.find("SELECT", upper.find("GRAPH")) < 0 or "GRAPH" not in upper:
        return query
    count = sum(1 for _ in _selects(list(tokens(query))))
    if count > MAX_SELECTS:
        raise QueryRejected(
            f"{count} sub-selects stand inside GRAPH with a variable; the limit is {MAX_SELECTS}", reason="complexity"
        )
    for at in range(count):  # outer ones first: what they rename is what inner ones find
        select = next(itertools.islice(_selects(list(tokens(query))), at, None))
        for start, end, text in sorted(select.edits(query), reverse=True):
            query = f"{query[:start]}{text}{query[end:]}"
    return query


@dataclass(slots=True)
class _Select:
    """One sub-select: the graph's variable around it, and its own tokens up to the closing brace, with their depth below it."""

    variable: str
    inside: list[tuple[Token, int]]

    def edits(self, query: str) -> Iterator[tuple[int, int, str]]:
        """Yield what to replace: start, end, text."""
        own = [token for token, depth in self.inside if depth == 0]
        opens = next(at for at, token in enumerate(own) if token.text == "{")
        head, tail = own[1:opens], own[opens + 1 :]
        everything = [token for token, _ in self.inside]
        grouped = self._check(query, everything[: everything.index(own[opens])], tail)
        projected = [token.text for token in head]
        if "*" in projected:
            yield self._all(head)
            return
        if {f"?{self.variable}", f"${self.variable}"} & set(projected):
            return
        yield from self._rename(everything)
        before = own[opens - 1] if own[opens - 1].text == "WHERE" else own[opens]
        yield before.start, before.start, f" ?{self.variable} "
        if grouped:
            end = grouped.start + len(grouped.text)
            yield end, end, f" ?{self.variable}"

    def _check(self, query: str, head: list[Token], tail: list[Token]) -> Token | None:
        """Return the BY of its GROUP BY, None without one; raises when it would have to be evaluated graph by graph."""
        words = [token.text for token in tail if token.kind == "word"]
        if "LIMIT" in words or "OFFSET" in words:
            raise self._refused(query, "LIMIT and OFFSET inside GRAPH with a variable would count in each graph")
        if "GROUP" in words:
            at = [token.text for token in tail].index("GROUP") + 1
            return tail[at] if at < len(tail) else None  # without BY, which is the engine's to refuse
        if "HAVING" in words or any(token.kind == "word" and token.text in _AGGREGATES for token in head):
            raise self._refused(
                query, "an aggregate of all rows inside GRAPH with a variable would be one in each graph"
            )
        return None

    def _all(self, head: list[Token]) -> tuple[int, int, str]:
        """Replace ``*`` by every variable: one that is out of scope stays unbound, which harms no join."""
        names = {token.text[1:] for token, _ in self.inside if token.kind == "variable"} | {self.variable}
        star = next(token for token in head if token.text == "*")
        return star.start, star.start + 1, " ".join(f"?{name}" for name in sorted(names))

    def _rename(self, everything: list[Token]) -> Iterator[tuple[int, int, str]]:
        """Give another name to a variable of the sub-select's own that happens to be called as the graph's."""
        taken = {token.text[1:] for token in everything if token.kind == "variable"}
        fresh = f"{self.variable}_"
        while fresh in taken:
            fresh += "_"
        for token in everything:
            if token.kind == "variable" and token.text[1:] == self.variable:
                yield token.start, token.start + len(token.text), f"?{fresh}"

    def _refused(self, query: str, message: str) -> QueryRejected:
        select = self.inside[0][0]
        return rejected(
            message,
            query,
            select.start,
            select.text,
            reason="complexity",
            hint=f"select ?{self.variable} outside, and group by it: SELECT ?{self.variable} (COUNT(*) AS ?n)"
            f" {{ GRAPH ?{self.variable} {{ … }} }} GROUP BY ?{self.variable}",
        )


def _selects(found: list[Token]) -> Iterator[_Select]:
    """Yield the sub-selects that stand inside ``GRAPH`` with a variable, outer ones first."""
    graphs: list[str | None] = [None]
    for at, token in enumerate(found):
        if token.text == "{":
            graph = graphs[-1]
            if at > 1 and found[at - 2].text == "GRAPH":
                graph = found[at - 1].text[1:] if found[at - 1].kind == "variable" else None
            graphs.append(graph)
        elif token.text == "}":
            graphs.pop()
        elif token.text == "SELECT" and graphs[-1] is not None and found[at - 1].text == "{":
            inside = list(_inside(found[at:]))
            if any(each.text == "{" and depth == 0 for each, depth in inside):  # else the engine refuses it
                yield _Select(graphs[-1], inside)


def _inside(rest: list[Token]) -> Iterator[tuple[Token, int]]:
    """Yield the tokens of one sub-select; a bracket counts as outside of what it encloses."""
    depth = 0
    for token in rest:
        closes = token.text in (")", "}", "]") and token.kind == "sign"
        depth -= closes
        if depth < 0:
            return
        yield token, depth
        depth += token.text in ("(", "{", "[") and token.kind == "sign"
