"""A layered drawing of what waits for what: longest-path layers, ordered by barycentres (Sugiyama, Tagawa and Toda 1981). Pure.

Layers run from left to right: every edge goes to a later layer, but for those that would close a cycle, which are marked. An edge that
spans layers keeps a place of its own in each of them, so it crosses no node. Equal input gives an equal drawing.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

NODE_WIDTH, NODE_HEIGHT = 168, 44
"""Units of a node."""
_GAP_X, _GAP_Y, _THIN, _MARGIN = 56, 14, 12, 10
_SWEEPS = 8
MOST = 60
"""Nodes of one drawing."""

_Edge = tuple[str, str]
_Spot = str | tuple[str, str, int]
"""A node, or the place of an edge in a layer between its ends."""


@dataclass(frozen=True, slots=True)
class PlacedNode:
    """A node, its layer from 0 on, and its upper left corner."""

    key: str
    layer: int
    x: int
    y: int


@dataclass(frozen=True, slots=True)
class PlacedEdge:
    """An edge as the path of an SVG; ``back`` when it closes a cycle, and so leads from a later layer to an earlier one."""

    start: str
    end: str
    path: str
    back: bool


@dataclass(frozen=True, slots=True)
class LayeredDrawing:
    """Nodes in the order of their layers, edges, and how many nodes were left out of the later layers."""

    nodes: tuple[PlacedNode, ...]
    edges: tuple[PlacedEdge, ...]
    width: int
    height: int
    left_out: int


def layered(nodes: Sequence[str], edges: Iterable[_Edge], most: int = MOST) -> LayeredDrawing:
    """Place nodes, each once and in the order to prefer, and their edges (start, end); those that name others are left out.

    Of more nodes than ``most`` those of the first layers are drawn.
    """
    known = dict.fromkeys(nodes)
    wanted = [each for each in dict.fromkeys(edges) if each[0] in known and each[1] in known and each[0] != each[1]]
    back = _back_edges(known, wanted)
    forward = [each for each in wanted if each not in back]
    layer = _layers(known, forward)
    chosen = sorted(known, key=lambda key: layer[key])[:most]  # stable: the order that was given within a layer
    shown = set(chosen)
    drawn = [each for each in wanted if each[0] in shown and each[1] in shown]
    ranks = _ordered(chosen, [each for each in drawn if each not in back], layer)
    at = _coordinates(ranks)
    return LayeredDrawing(
        tuple(PlacedNode(key, layer[key], *at[key]) for rank in ranks for key in rank if isinstance(key, str)),
        tuple(PlacedEdge(*each, _path(each, layer, at, back), each in back) for each in drawn),
        2 * _MARGIN + len(ranks) * (NODE_WIDTH + _GAP_X) - _GAP_X if ranks else 2 * _MARGIN,
        max((y + _height(spot) for spot, (_, y) in at.items()), default=0) + _MARGIN,
        len(known) - len(chosen),
    )


def _back_edges(nodes: Iterable[str], edges: Iterable[_Edge]) -> set[_Edge]:
    """Return the edges that close a cycle in a walk, depth first, from the first node on."""
    following: dict[str, list[str]] = {each: [] for each in nodes}
    for start, end in edges:
        following[start].append(end)
    found: set[_Edge] = set()
    state: dict[str, int] = {}  # 1: on the way, 2: done
    for root, first in following.items():
        if root in state:
            continue
        state[root] = 1
        way = [(root, iter(first))]
        while way:
            here, rest = way[-1]
            for each in rest:
                if state.get(each) == 1:
                    found.add((here, each))
                elif each not in state:
                    state[each] = 1
                    way.append((each, iter(following[each])))
                    break
            else:
                state[here] = 2
                way.pop()
    return found


def _layers(nodes: Iterable[str], edges: Sequence[_Edge]) -> dict[str, int]:
    """Return the layer of each node: one more than the last of those that it waits for."""
    layer = dict.fromkeys(nodes, 0)
    waiting = dict.fromkeys(layer, 0)
    following: dict[str, list[str]] = {each: [] for each in layer}
    for start, end in edges:
        waiting[end] += 1
        following[start].append(end)
    ready = [each for each, count in waiting.items() if not count]
    for here in ready:  # which grows
        for each in following[here]:
            layer[each] = max(layer[each], layer[here] + 1)
            waiting[each] -= 1
            if not waiting[each]:
                ready.append(each)
    return layer


def _ordered(nodes: Sequence[str], edges: Sequence[_Edge], layer: Mapping[str, int]) -> list[list[_Spot]]:
    """Return the spots of each layer in an order that has few crossings."""
    ranks: list[list[_Spot]] = [[] for _ in range(max((layer[each] for each in nodes), default=-1) + 1)]
    for key in nodes:
        ranks[layer[key]].append(key)
    before: dict[_Spot, list[_Spot]] = {}
    after: dict[_Spot, list[_Spot]] = {}
    for start, end in edges:
        way: list[_Spot] = [start, *((start, end, rank) for rank in range(layer[start] + 1, layer[end])), end]
        for rank, spot in enumerate(way[1:-1], layer[start] + 1):
            ranks[rank].append(spot)
        for left, right in pairwise(way):
            after.setdefault(left, []).append(right)
            before.setdefault(right, []).append(left)
    for sweep in range(_SWEEPS):
        down = sweep % 2 == 0
        beside = before if down else after
        places = range(1, len(ranks)) if down else range(len(ranks) - 2, -1, -1)
        for place in places:
            other = {spot: index for index, spot in enumerate(ranks[place - 1 if down else place + 1])}
            own = {spot: index for index, spot in enumerate(ranks[place])}
            ranks[place].sort(key=lambda spot: _barycentre(spot, beside, other, own))
    return ranks


def _barycentre(
    spot: _Spot, beside: Mapping[_Spot, list[_Spot]], other: Mapping[_Spot, int], own: Mapping[_Spot, int]
) -> float:
    """Return the mean place of a spot's neighbours in the layer beside it; its own where it has none."""
    found = [other[each] for each in beside.get(spot, ()) if each in other]
    return sum(found) / len(found) if found else float(own[spot])


def _coordinates(ranks: Sequence[Sequence[_Spot]]) -> dict[_Spot, tuple[int, int]]:
    """Return the upper left corner of each spot: each layer is centred."""
    heights = [sum(map(_height, rank)) + _GAP_Y * (len(rank) - 1) for rank in ranks]
    highest = max(heights, default=0)
    found: dict[_Spot, tuple[int, int]] = {}
    for place, rank in enumerate(ranks):
        x, y = _MARGIN + place * (NODE_WIDTH + _GAP_X), _MARGIN + (highest - heights[place]) // 2
        for spot in rank:
            found[spot] = (x, y)
            y += _height(spot) + _GAP_Y
    return found


def _height(spot: _Spot) -> int:
    return NODE_HEIGHT if isinstance(spot, str) else _THIN


def _path(edge: _Edge, layer: Mapping[str, int], at: Mapping[_Spot, tuple[int, int]], back: set[_Edge]) -> str:
    """Return the path of an edge: curves between layers, straight through those that it only crosses."""
    start, end = edge
    (x, y), (to_x, to_y) = at[start], at[end]
    middle = NODE_HEIGHT // 2
    if edge in back:  # around below
        low = max(y, to_y) + NODE_HEIGHT + _GAP_Y // 2
        return f"M{x + 20} {y + NODE_HEIGHT}C{x} {low} {to_x + NODE_WIDTH} {low} {to_x + NODE_WIDTH - 20} {to_y + NODE_HEIGHT}"
    here = (x + NODE_WIDTH, y + middle)
    parts = [f"M{here[0]} {here[1]}"]
    for rank in range(layer[start] + 1, layer[end]):
        spot_x, spot_y = at[start, end, rank]
        parts += [_curve(here, (spot_x, spot_y + _THIN // 2)), f"H{spot_x + NODE_WIDTH}"]
        here = (spot_x + NODE_WIDTH, spot_y + _THIN // 2)
    parts.append(_curve(here, (to_x, to_y + middle)))
    return "".join(parts)


def _curve(start: tuple[int, int], end: tuple[int, int]) -> str:
    bend = (end[0] - start[0]) // 2
    return f"C{start[0] + bend} {start[1]} {end[0] - bend} {end[1]} {end[0]} {end[1]}"
