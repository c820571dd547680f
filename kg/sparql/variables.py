"""The variables of group graph patterns, read off the tokens of a query that passed the gate.

Which are in scope: https://www.w3.org/TR/sparql11-query/#variableScope. A text that the engine will refuse gives some answer, not an error.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import NamedTuple

from drumlin.kg.sparql.lexer import BRACKETS, Token

Tokens = Sequence[Token]

_CLOSING = frozenset(BRACKETS.values())
_KEYWORDS = frozenset({"FILTER", "OPTIONAL", "MINUS", "LATERAL", "GRAPH", "BIND", "VALUES", "UNION", "SELECT"})


class Element(NamedTuple):
    """One element of a group: its keyword, ``TRIPLES`` or ``GROUP``, all its tokens, and the insides of its groups.

    A ``GROUP`` has one group for each alternative of a UNION.
    """

    kind: str
    tokens: Tokens
    groups: Sequence[Tokens] = ()


def closing(found: Tokens, at: int) -> int:
    """Return the index of the bracket that closes the one at ``at``; the number of tokens when none does."""
    depth = 0
    for index in range(at, len(found)):
        if found[index].kind == "sign":
            depth += (found[index].text in BRACKETS) - (found[index].text in _CLOSING)
        if depth <= 0:
            return index
    return len(found)


def body_of(select: Tokens) -> int:
    """Return the index of the brace that opens the body of a SELECT; the number of tokens without one."""
    at = 0
    while at < len(select) and select[at].text != "{":
        at = closing(select, at) + 1
    return min(at, len(select))


def elements(group: Tokens) -> Iterator[Element]:
    """Yield the elements of a group, whose tokens are given without its braces; a sub-select is the only one of its group."""
    at = 0
    while at < len(group):
        kind = group[at].text if group[at].kind == "word" else ""
        if kind == "SELECT":
            yield Element(kind, group[at:])
            return
        if kind in ("FILTER", "BIND", "VALUES"):
            opens = next((i for i in range(at, len(group)) if group[i].text in ("{" if kind == "VALUES" else "({")), at)
            end = closing(group, opens) + 1
            yield Element(kind, group[at:end])
        elif kind in ("OPTIONAL", "MINUS", "LATERAL", "GRAPH"):
            opens = min(at + 1 + (kind == "GRAPH"), len(group) - 1)
            end = closing(group, opens) + 1
            yield Element(kind, group[at:end], [group[opens + 1 : end - 1]])
        elif group[at].text == "{":
            start, end, groups = at, closing(group, at) + 1, [group[at + 1 : closing(group, at)]]
            while end + 1 < len(group) and group[end].text == "UNION":
                groups.append(group[end + 2 : closing(group, end + 1)])
                end = closing(group, end + 1) + 1
            yield Element("GROUP", group[start:end], groups)
        else:
            end = at + 1 if group[at].text in (".", "UNION") else _end_of_triples(group, at)
            if group[at].text != ".":
                yield Element("TRIPLES", group[at:end])
        at = end


def _end_of_triples(group: Tokens, at: int) -> int:
    while at < len(group) and group[at].text not in (".", "{") and group[at].text not in _KEYWORDS:
        at = closing(group, at) + 1
    return at


def projection(select: Tokens) -> list[str]:
    """Return the names of the variables that a SELECT yields; ``select`` has its tokens to the end of its solution modifiers."""
    opens = body_of(select)
    names: list[str] = []
    at = 1
    while at < opens:
        end = closing(select, at)
        if select[at].text == "*":
            tail = select[closing(select, opens) + 1 :]
            values = next((i for i, token in enumerate(tail) if token.text == "VALUES"), len(tail))
            return sorted(visible(select[opens + 1 : closing(select, opens)]) | _named(tail[values:]))
        own = [token.text[1:] for token in select[at : end + 1] if token.kind == "variable"]
        names += own[-1:]
        at = end + 1
    return list(dict.fromkeys(names))


def visible(group: Tokens) -> set[str]:
    """Return the names of the variables that are in scope at the end of a group."""
    names: set[str] = set()
    for each in elements(group):
        if each.kind == "SELECT":
            names |= set(projection(each.tokens))
        elif each.kind == "BIND":
            names |= set([token.text[1:] for token in each.tokens if token.kind == "variable"][-1:])
        elif each.kind in ("TRIPLES", "VALUES"):
            names |= _named(each.tokens)
        elif each.kind not in ("FILTER", "MINUS"):
            names |= _named(each.tokens[:2] if each.kind == "GRAPH" else ())
            names = names.union(*map(visible, each.groups))
    return names


def always_bound(group: Tokens) -> set[str]:
    """Return names of variables that each solution of a group surely binds."""
    names: set[str] = set()
    for each in elements(group):
        if each.kind == "SELECT":
            opens = body_of(each.tokens)
            inside = each.tokens[opens + 1 : closing(each.tokens, opens)]
            names |= set(projection(each.tokens)) & always_bound(inside)
        elif each.kind == "TRIPLES" or (each.kind == "VALUES" and all(token.text != "UNDEF" for token in each.tokens)):
            names |= _named(each.tokens)
        elif each.kind in ("GROUP", "GRAPH", "LATERAL"):
            names |= _named(each.tokens[:2] if each.kind == "GRAPH" else ())
            names |= set.intersection(*map(always_bound, each.groups))
    return names


def _named(found: Tokens) -> set[str]:
    return {token.text[1:] for token in found if token.kind == "variable"}
