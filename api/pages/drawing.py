"""The neighbourhood of an entity as a picture: what leads to it on the left, what it leads to on the right. Pure.

It is bounded; the lists of the page beside it hold the same, and all of it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from drumlin.api.pages.values import ShownValue

EACH_SIDE = 12
"""Entities that are drawn on one side."""
WIDTH = 760
_ROW, _MARGIN, _COLUMN = 26, 34, 190
_LETTERS = 26


@dataclass(frozen=True, slots=True)
class Neighbour:
    """An entity to draw: the property of the link, what is shown of it, and the colour of its state."""

    term: str
    what: ShownValue
    state: str


@dataclass(frozen=True, slots=True)
class DrawnNode:
    """A circle with its text and its link."""

    x: int
    y: int
    text_x: int
    anchor: str
    text: str
    title: str
    href: str
    state: str


@dataclass(frozen=True, slots=True)
class DrawnEdge:
    """A line with the name of its property; the name is left out where the line above it has the same."""

    path: str
    term: str
    x: int
    y: int
    anchor: str


@dataclass(frozen=True, slots=True)
class GraphDrawing:
    """The picture; ``x``, ``y`` and ``name`` are of the entity itself."""

    nodes: tuple[DrawnNode, ...]
    edges: tuple[DrawnEdge, ...]
    x: int
    y: int
    name: str
    height: int
    width: int = WIDTH


def draw(name: str, leads_here: Sequence[Neighbour], leads_to: Sequence[Neighbour]) -> GraphDrawing | None:
    """Draw at most ``EACH_SIDE`` entities on each side; None when there is nothing around."""
    sides = (leads_here[:EACH_SIDE], leads_to[:EACH_SIDE])
    most = max(map(len, sides))
    if not most:
        return None
    height = most * _ROW + 2 * _MARGIN
    x, y = WIDTH // 2, height // 2
    nodes: list[DrawnNode] = []
    edges: list[DrawnEdge] = []
    for neighbours, at, outward in ((sides[0], _COLUMN, -1), (sides[1], WIDTH - _COLUMN, 1)):
        top = (height - (len(neighbours) - 1) * _ROW) // 2
        before = ""
        for place, each in enumerate(neighbours):
            row = top + place * _ROW
            bend = x + outward * 80
            path = f"M{x + outward * 10} {y}C{bend} {y} {bend} {row} {at - outward * 6} {row}"
            anchor = "start" if outward < 0 else "end"
            term = each.term if each.term != before else ""
            edges.append(DrawnEdge(path, term, at - outward * 14, row - 4, anchor))
            nodes.append(_node(each, at, row, outward))
            before = each.term
    return GraphDrawing(tuple(nodes), tuple(edges), x, y, _short(name), height)


def _node(each: Neighbour, x: int, y: int, outward: int) -> DrawnNode:
    anchor = "end" if outward < 0 else "start"
    title = each.what.title or each.what.text
    return DrawnNode(x, y, x + outward * 12, anchor, _short(each.what.text), title, each.what.href, each.state)


def _short(text: str) -> str:
    return text if len(text) <= _LETTERS else f"{text[: _LETTERS // 2]}…{text[-_LETTERS // 2 + 1 :]}"
