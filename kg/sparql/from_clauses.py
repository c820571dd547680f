"""Which graphs a query reads: what it says itself (FROM), and what the request says.

RDF datasets: https://www.w3.org/TR/sparql11-query/#rdfDataset.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from urllib.parse import urljoin

from drumlin.kg.sparql import gate, subselects
from drumlin.kg.sparql.dataset import Chosen, Dataset
from drumlin.kg.sparql.lexer import Token, outermost

_ABSOLUTE = re.compile(r"[A-Za-z][A-Za-z0-9+.-]*:")
_ESCAPE = re.compile(r"\\u([0-9A-Fa-f]{4})|\\U([0-9A-Fa-f]{8})|\\(.)")


def choose(query: str, dataset: Dataset) -> Chosen:
    """Return the query and the graphs that it reads."""
    query = subselects.restore(query)
    default, named = dataset.default_graphs, dataset.named_graphs
    union = default is None and named is None and not gate.names_dataset(query)
    return Chosen(query, union=union, default=default, named=named)


def from_clauses(query: str, base: str | None) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return the graphs of FROM and of FROM NAMED, in a query that passed the gate."""
    prefixes: dict[str, str] = {}
    found: dict[bool, list[str]] = {False: [], True: []}
    seen: list[Token] = []
    for token in outermost(query):  # a template, or an expression that is selected, may stand before FROM
        words = [each.text for each in seen[-2:]]
        if token.kind == "iri" and words[-1:] == ["BASE"]:
            base = _resolved(token.text, base)
        elif token.kind == "iri" and words[:1] == ["PREFIX"]:
            prefixes[words[1]] = _resolved(token.text, base)
        elif token.kind in ("iri", "name") and words and (words[-1] == "FROM" or words == ["FROM", "NAMED"]):
            iri = _resolved(token.text, base) if token.kind == "iri" else _expanded(token, prefixes)
            found[words[-1] == "NAMED"].append(iri)
        seen.append(token)
    return tuple(found[False]), tuple(found[True])


def resolved_names(prologue: Iterable[Token], base: str | None) -> Callable[[Token], str | None]:
    """Return what reads an IRI or a prefixed name under a prologue; None for a prefix that it does not declare."""
    prefixes: dict[str, str] = {}
    seen: list[Token] = []
    for token in prologue:
        words = [each.text for each in seen[-2:]]
        if token.kind == "iri" and words[-1:] == ["BASE"]:
            base = _resolved(token.text, base)
        elif token.kind == "iri" and words[:1] == ["PREFIX"]:
            prefixes[words[1]] = _resolved(token.text, base)
        seen.append(token)

    def read(name: Token) -> str | None:
        if name.kind == "iri":
            return _resolved(name.text, base)
        return _expanded(name, prefixes) if f"{name.prefix}:" in prefixes else None

    return read


def _resolved(text: str, base: str | None) -> str:
    iri = _ESCAPE.sub(_unescaped, text[1:-1])
    return iri if base is None or _ABSOLUTE.match(iri) else urljoin(base, iri)


def _expanded(name: Token, prefixes: dict[str, str]) -> str:
    local = _ESCAPE.sub(_unescaped, name.text[len(name.prefix) + 1 :])
    return prefixes[f"{name.prefix}:"] + local


def _unescaped(match: re.Match[str]) -> str:
    code = match[1] or match[2]
    return chr(int(code, 16)) if code else match[3]
