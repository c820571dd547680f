"""Labels for blank nodes that follow from what is said of them, so that the same document sent twice is the same lines.

Colour refinement first: a node whose surroundings differ from those of all others gets a label made of them. Nodes that look alike are
then told apart by trying each of them (individualisation), which takes exponential time on graphs that are made for it. So the
steps are counted, and nodes that are not settled by then keep the label they came with: a document with such nodes counts as
changed whenever it is sent. RDFC-1.0 (https://www.w3.org/TR/rdf-canon/) has no such bound. The names of graphs are a part of what is
said, so no two graphs share a node by accident, and those that do share one still do; a name may itself be a blank node.
"""

from __future__ import annotations

import hashlib
import re
from collections import Counter, defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence
from typing import NamedTuple

from drumlin.kg.rdf.syntax import Lines

ROUNDS = 32
"""Steps around a node that are looked at before others are tried."""
MAX_STEPS = 2_000_000
"""Nodes of statements that are looked at, again and again, for the surroundings of all nodes: about two seconds."""
MAX_TRIED_STEPS = 400_000
"""The same, to tell apart nodes that look alike."""
_MAX_DEPTH = 100  # nodes that are tried one within the other
_TERM = re.compile(r'"(?:[^"\\]|\\.)*+"|<[^<>\s]*+>|(_:\S++)')


class _Statement(NamedTuple):
    """A statement with blank nodes: its graph, the text around its nodes (one part more than there are nodes), its nodes."""

    graph: str
    parts: Sequence[str]
    nodes: Sequence[str]

    def written(self, labels: Mapping[str, str]) -> str:
        """Write it with other labels for its nodes, where there are any."""
        return "".join(
            f"{part}{labels.get(node, node)}" for part, node in zip(self.parts, (*self.nodes, ""), strict=True)
        )


_Around = Mapping[str, Sequence[_Statement]]
"""The statements that each node stands in."""


def stable(lines: Lines, graph: str) -> Lines:
    """Return the lines of one graph with blank nodes relabelled where what is said of them tells them apart."""
    return stable_together({graph: lines})[graph]


def stable_together(graphs: Mapping[str, Lines]) -> dict[str, Lines]:
    """Return graphs, by name, with blank nodes relabelled as in ``stable``; a node that several graphs share has one label in all."""
    statements = {
        graph: [_statement(graph, line) for line in lines if "_:" in line or _is_blank(graph)]
        for graph, lines in graphs.items()
    }
    labels = _labels(each for of_one in statements.values() for each in of_one if each.nodes)
    found: dict[str, Lines] = {}
    for graph, lines in graphs.items():
        written = {each.written(labels) for each in statements[graph]}
        if _is_blank(graph):
            found[labels.get(graph, graph)] = frozenset(each.partition(" ")[2] for each in written)
        else:
            found[graph] = frozenset({line for line in lines if "_:" not in line} | written) if written else lines
    return found


def skolemized(graphs: Mapping[str, Lines], root: str) -> dict[str, Lines]:
    """Return graphs that all have IRIs as names: a blank node that names one becomes ``root`` and its label, wherever it stands.

    https://www.w3.org/TR/rdf11-concepts/#section-skolemization: such an IRI may be taken for the blank node again.
    """
    names = {graph: f"{root}{graph[2:]}" for graph in graphs if _is_blank(graph)}
    nodes = {graph: f"<{name}>" for graph, name in names.items()}
    return {
        names.get(graph, graph): frozenset(_statement("", line).written(nodes) for line in lines) if nodes else lines
        for graph, lines in graphs.items()
    }


def _is_blank(graph: str) -> bool:
    return graph.startswith("_:")


def _statement(graph: str, line: str) -> _Statement:
    """Take a line apart; blank nodes stand in triple terms too, and one that names the graph stands before the line."""
    if _is_blank(graph):
        graph, line = "", f"{graph} {line}"
    parts: list[str] = []
    nodes: list[str] = []
    end = 0
    for match in _TERM.finditer(line):
        if match[1]:
            parts.append(line[end : match.start()])
            nodes.append(match[1])
            end = match.end()
    return _Statement(graph, (*parts, line[end:]), nodes)


def _labels(statements: Iterable[_Statement]) -> dict[str, str]:
    """Return the new labels of all nodes that get one."""
    around: dict[str, list[_Statement]] = defaultdict(list)
    for each in statements:
        for node in set(each.nodes):
            around[node].append(each)
    rounds = min(ROUNDS, MAX_STEPS // max(1, _cost(around, around)))
    if not rounds:
        return {}
    colours: dict[str, str] = {}
    for piece in _pieces(around, around):
        colours |= _refined(piece, around, {}, rounds)[0]
    seen = Counter(colours.values())
    labels = {node: f"_:b{colour}" for node, colour in colours.items() if seen[colour] == 1}
    pieces = _pieces([node for node in around if node not in labels], around)
    search = _Individualisation(around)
    orders: list[_Order] = []
    for piece in sorted(pieces, key=lambda piece: (len(piece), sorted(colours[node] for node in piece))):
        try:
            orders.append(search.ordered(piece, labels))
        except _TooHard:
            continue
    return labels | _numbered(orders)


class _Order(NamedTuple):
    """Connected nodes in an order, and what is said of them in terms of it, as a hash."""

    form: str
    nodes: Sequence[str]


class _TooHard(Exception):
    """What looks alike was not told apart within the bounds."""


class _Individualisation:
    """Puts nodes into an order that does not depend on their labels, within a number of steps."""

    def __init__(self, around: _Around) -> None:
        self._around = around
        self._steps = MAX_TRIED_STEPS

    def ordered(self, piece: Sequence[str], named: Mapping[str, str], depth: int = 0) -> _Order:
        """Return connected nodes in their order, with a form that is equal for pieces that are alike in all.

        ``named`` are nodes that are settled, with names that do not depend on their labels. Raises ``_TooHard``.
        """
        near = {other: named[other] for node in piece for other in _beside(node, self._around) if other in named}
        cost = _cost(piece, self._around)
        allowed = min(ROUNDS, self._steps // cost)
        colours, rounds = _refined(piece, self._around, near, allowed)
        self._steps -= rounds * cost
        if rounds == allowed < ROUNDS or depth > _MAX_DEPTH:
            raise _TooHard
        seen = Counter(colours.values())
        own = {node: f"_:{depth}:{colour}" for node, colour in colours.items() if seen[colour] == 1}
        if own:
            return self._completed(piece, own, near, depth)
        _, chosen = min((count, colour) for colour, count in seen.items())
        tried = [node for node in piece if colours[node] == chosen]
        return min(
            (self._completed(piece, {node: f"_:{depth}:"}, near, depth) for node in tried), key=lambda order: order.form
        )

    def _completed(self, piece: Sequence[str], own: Mapping[str, str], near: Mapping[str, str], depth: int) -> _Order:
        """Order the nodes that ``own`` does not name, each connected piece of them by itself."""
        known = {**near, **own}
        rest = _pieces([node for node in piece if node not in own], self._around)
        names = {**own, **_numbered(self.ordered(each, known, depth + 1) for each in rest)}
        known |= names
        said = {f"{each.graph} {each.written(known)}" for node in piece for each in self._around[node]}
        return _Order(_hash(*sorted(said)), sorted(piece, key=names.__getitem__))


def _numbered(orders: Iterable[_Order]) -> dict[str, str]:
    """Return labels for nodes that are in order; pieces of the same form are numbered, whichever comes first."""
    count: Counter[str] = Counter()
    labels: dict[str, str] = {}
    for form, nodes in orders:
        count[form] += 1
        labels |= {node: f"_:b{_hash(form, str(count[form]), str(at))}" for at, node in enumerate(nodes)}
    return labels


def _pieces(nodes: Iterable[str], around: _Around) -> list[list[str]]:
    """Return the nodes in pieces that no statement connects."""
    left = dict.fromkeys(nodes)
    pieces: list[list[str]] = []
    while left:
        piece = [left.popitem()[0]]
        for node in piece:  # it grows meanwhile
            for other in _beside(node, around):
                if other in left:
                    del left[other]
                    piece.append(other)
        pieces.append(piece)
    return pieces


def _beside(node: str, around: _Around) -> Iterator[str]:
    return (other for each in around[node] for other in each.nodes)


def _cost(nodes: Iterable[str], around: _Around) -> int:
    """Return how many nodes of statements one round looks at."""
    return sum(len(each.nodes) for node in nodes for each in around[node])


def _refined(nodes: Iterable[str], around: _Around, named: Mapping[str, str], most: int) -> tuple[dict[str, str], int]:
    """Return a colour for each node, made of what is said of it and of those around it, and the rounds that it took."""
    colours = dict.fromkeys(nodes, "")
    count = rounds = 0
    while rounds < most:
        rounds += 1
        seen = {**named, **colours}
        colours = {node: _hash(*sorted(_said(each, node, seen) for each in around[node])) for node in colours}
        if (distinct := len(set(colours.values()))) in (count, len(colours)):
            break
        count = distinct
    return colours, rounds


def _said(statement: _Statement, node: str, seen: Mapping[str, str]) -> str:
    """Write a statement as ``node`` sees it."""
    return (
        f"{statement.graph} {statement.written({**{each: seen[each] for each in statement.nodes}, node: '_:itself'})}"
    )


def _hash(*parts: str) -> str:
    return hashlib.blake2b("\n".join(parts).encode(), digest_size=16).hexdigest()
