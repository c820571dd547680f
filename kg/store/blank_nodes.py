"""Blank nodes that keep their labels, in a text for the engine.

The engine gives every ``_:label`` of an update a fresh node and allows none in DELETE DATA, so a graph that holds blank nodes could be
written but never be changed. Here a label travels as a string, and a function that only our own texts may call turns it into
the node of that label (``docs/decisions/0006-foreign-graphs.md``). ``replay`` runs such a text, on the store and on its copies.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator

import pyoxigraph as ox

from drumlin.kg.rdf.syntax import Lines, parts

_FUNCTION = "urn:drumlin:blank"


Term = ox.NamedNode | ox.BlankNode | ox.Literal | ox.Triple


def _node(*terms: Term) -> Term | None:
    (label,) = terms
    return ox.BlankNode(label.value) if isinstance(label, ox.Literal) else None


_FUNCTIONS = {ox.NamedNode(_FUNCTION): _node}


def replay(engine: ox.Store, update: str) -> None:
    """Run an update that was made from lines (never a caller's text), in one transaction."""
    engine.update(update, custom_functions=_FUNCTIONS)


def holds_blank(line: str) -> bool:
    """Return whether a line may have a blank node (a literal that looks like one counts too)."""
    return line.startswith("_:") or "> _:" in line


def holds_blanks(lines: Lines) -> bool:
    """Return whether one of ``lines`` may have a blank node."""
    return "_:" in "".join(lines) and any(map(holds_blank, lines))


def operations(removed: Iterable[tuple[str, Lines]], added: Iterable[tuple[str, Lines]]) -> Iterator[str]:
    """Write the removal and the addition of lines that have blank nodes, per graph, as operations of an update."""
    for verb, blocks in (("DELETE", removed), ("INSERT", added)):
        for graph, lines in blocks:
            yield from _of_graph(verb, graph, lines)


def _of_graph(verb: str, graph: str, lines: Lines) -> Iterator[str]:
    rows: dict[tuple[bool, bool], list[str]] = {}
    for subject, predicate, value in map(parts, sorted(lines)):
        terms, blank = (subject, value), (subject.startswith("_:"), value.startswith("_:"))
        left, right = (f'"{term[2:]}"' if is_blank else term for term, is_blank in zip(terms, blank, strict=True))
        rows.setdefault(blank, []).append(f"({left} {predicate} {right})")
    for (left_blank, right_blank), found in rows.items():
        nodes = (f" BIND(<{_FUNCTION}>(?a) AS ?s)" if left_blank else "") + (
            f" BIND(<{_FUNCTION}>(?b) AS ?o)" if right_blank else ""
        )
        names = ("?a" if left_blank else "?s", "?b" if right_blank else "?o")
        values = "\n".join(found)
        yield (
            f"{verb} {{ GRAPH <{graph}> {{ ?s ?p ?o }} }}"
            f" WHERE {{ VALUES ({names[0]} ?p {names[1]}) {{\n{values}\n}}{nodes} }}"
        )
