"""What was reached as JSON, Mermaid, DOT, SVG and rows of Grafana's node graph. Pure: the same reach always gives the same text.

Names come from clusters, so each language gets them escaped as text. https://mermaid.js.org/syntax/flowchart.html,
https://graphviz.org/doc/info/lang.html, https://www.w3.org/TR/SVG2/.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Mapping
from typing import Any
from xml.sax.saxutils import escape, quoteattr

from drumlin.kg.graphs.reach import Reach, ReachedNode
from drumlin.kg.model.iris import Iris

_LONGEST = 60
_WELL = frozenset({"Active", "Available", "Bound", "Ready", "Running", "Succeeded"})
_FAILING = frozenset({"Failed", "Lost", "NotReady"})
_BOX, _ROW, _COLUMN, _MARGIN, _LETTERS = 170, 46, 250, 20, 24


def as_json(found: Reach, iris: Iris) -> dict[str, Any]:
    """Return nodes and edges by short ids; ``more`` counts the neighbours that are not shown, ``cyclic`` marks links on a cycle."""
    return {
        "root": iris.short(found.root),
        "relations": list(found.relations),
        "depth": found.depth,
        "nodes": [
            {
                "id": iris.short(each.iri),
                "type": each.type,
                "name": each.name,
                "distance": each.distance,
                **({"more": each.more} if each.more else {}),
            }
            for each in found.nodes
        ],
        "edges": [
            {
                "from": iris.short(each.source),
                "to": iris.short(each.target),
                "term": each.term,
                **({"cyclic": True} if each.cyclic else {}),
            }
            for each in found.edges
        ],
        "left_out": found.left_out,
    }


def as_node_graph(found: Reach, iris: Iris) -> dict[str, Any]:
    """Return nodes and edges in the fields that Grafana's node graph draws, each a frame of its own.

    The arc says how a thing is: well, failing, or nothing known of it; ``mainstat`` is its phase.
    https://grafana.com/docs/grafana/latest/panels-visualizations/visualizations/node-graph/#data-api
    """
    return {
        "nodes": [
            {
                "id": (id := iris.short(each.iri)),
                "title": each.name or id.rpartition("/")[2],
                "subtitle": each.type,
                "mainstat": each.phase,
                "secondarystat": f"+{each.more}" if each.more else "",
                **{f"arc__{state}": int(state == _state(each.phase)) for state in ("well", "failing", "unknown")},
                "detail__id": id,
            }
            for each in found.nodes
        ],
        "edges": [
            {
                "id": f"{source} {each.term} {target}",
                "source": source,
                "target": target,
                "mainstat": each.term,
                "secondarystat": "cyclic" if each.cyclic else "",
            }
            for each in found.edges
            for source, target in ((iris.short(each.source), iris.short(each.target)),)
        ],
    }


def _state(phase: str) -> str:
    if phase in _WELL:
        return "well"
    return "failing" if phase in _FAILING else "unknown"


def as_mermaid(found: Reach, iris: Iris) -> str:
    """Return a Mermaid flowchart; links on a cycle are dotted, and +N stands for neighbours that are not shown."""
    ids = _numbered(found)
    lines = ["flowchart LR"]
    for each in found.nodes:
        lines.append(f'  {ids[each.iri]}["{_mermaid(_label(each, iris))}"]')
        if each.more:
            lines.append(f'  {ids[each.iri]} --- {ids[each.iri]}m(("+{each.more}"))')
    for edge in found.edges:
        arrow = "-.->" if edge.cyclic else "-->"
        lines.append(f"  {ids[edge.source]} {arrow}|{edge.term}| {ids[edge.target]}")
    if found.left_out:
        lines.append(f'  rest["+{found.left_out} left out"]')
    lines.append(f"  style {ids[found.root]} stroke-width:3px")
    return "\n".join(lines) + "\n"


def as_dot(found: Reach, iris: Iris) -> str:
    """Return a graph of Graphviz; links on a cycle are dashed."""
    ids = _numbered(found)
    lines = ["digraph reach {", "  rankdir=LR; node [shape=box];"]
    for each in found.nodes:
        bold = " style=bold" if each.iri == found.root else ""
        lines.append(f"  {ids[each.iri]} [label={_dot(_label(each, iris))}{bold}];")
        if each.more:
            more = f"{ids[each.iri]}m"
            lines.append(f'  {more} [label="+{each.more}" shape=circle]; {ids[each.iri]} -> {more} [dir=none];')
    for edge in found.edges:
        dashed = " style=dashed" if edge.cyclic else ""
        lines.append(f"  {ids[edge.source]} -> {ids[edge.target]} [label={_dot(edge.term)}{dashed}];")
    if found.left_out:
        lines.append(f'  rest [label="+{found.left_out} left out" shape=plain];')
    return "\n".join([*lines, "}"]) + "\n"


def as_svg(found: Reach, iris: Iris) -> str:
    """Return a picture: what leads to the root on its left, what it leads to on its right, a column for each distance."""
    columns: defaultdict[int, list[ReachedNode]] = defaultdict(list)
    for each in found.nodes:
        columns[each.distance].append(each)
    first, most = min(columns), max(map(len, columns.values()))
    places: dict[str, tuple[int, int]] = {}
    for distance, nodes in columns.items():
        top = (most - len(nodes)) * _ROW // 2
        for row, each in enumerate(nodes):
            places[each.iri] = (_MARGIN + (distance - first) * _COLUMN, _MARGIN + top + row * _ROW)
    width = 2 * _MARGIN + (max(columns) - first) * _COLUMN + _BOX
    height = 2 * _MARGIN + most * _ROW + (20 if found.left_out else 0)
    parts = [_head(width, height, f"What reaches {iris.short(found.root)} and what it reaches")]
    parts += [_curve(places[each.source], places[each.target], each.term, cyclic=each.cyclic) for each in found.edges]
    parts += [_box(each, places[each.iri], iris, root=each.iri == found.root) for each in found.nodes]
    if found.left_out:
        parts.append(f'<text x="{_MARGIN}" y="{height - 10}">+{found.left_out} left out</text>')
    return "".join([*parts, "</svg>\n"])


def _head(width: int, height: int, title: str) -> str:
    size = f'viewBox="0 0 {width} {height}" width="{width}" height="{height}"'
    look = 'role="img" font-family="system-ui, sans-serif" font-size="12"'
    marker = '<marker id="to" viewBox="0 0 8 8" refX="7" refY="4" markerWidth="7" markerHeight="7" orient="auto">'
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" {size} {look} aria-label={quoteattr(title)}>'
        f'<defs>{marker}<path d="M0 0 8 4 0 8z"/></marker></defs>'
    )


def _box(each: ReachedNode, place: tuple[int, int], iris: Iris, *, root: bool) -> str:
    x, y = place
    more = f'<text x="{x + _BOX + 4}" y="{y + 12}" font-size="10">+{each.more}</text>' if each.more else ""
    label = escape(_cut(each.name or iris.short(each.iri).rpartition("/")[2], _LETTERS))
    return (
        f"<g><title>{escape(iris.short(each.iri))}</title>"
        f'<rect x="{x}" y="{y}" width="{_BOX}" height="34" rx="5" fill="#fff" stroke="#333" stroke-width="{3 if root else 1}"/>'
        f'<text x="{x + 8}" y="{y + 15}">{label}</text>'
        f'<text x="{x + 8}" y="{y + 28}" font-size="10" fill="#555">{escape(each.type)}</text>{more}</g>'
    )


def _curve(start: tuple[int, int], end: tuple[int, int], term: str, *, cyclic: bool) -> str:
    (x1, y1), (x2, y2) = (start[0] + _BOX, start[1] + 17), (end[0], end[1] + 17)
    dashed = ' stroke-dasharray="4 3"' if cyclic else ""
    if x2 >= x1:
        bend = (x1 + x2) // 2
        path = f"M{x1} {y1}C{bend} {y1} {bend} {y2} {x2} {y2}"
    else:  # it leads back, or down in its own column: below both
        low = max(y1, y2) + 28
        path = f"M{x1} {y1}C{x1 + 30} {low} {x2 - 30} {low} {x2} {y2}"
    return (
        f'<path d="{path}" fill="none" stroke="#666"{dashed} marker-end="url(#to)"><title>{escape(term)}</title></path>'
    )


def _numbered(found: Reach) -> Mapping[str, str]:
    return {each.iri: f"n{number}" for number, each in enumerate(found.nodes)}


def _label(each: ReachedNode, iris: Iris) -> str:
    name = each.name or iris.short(each.iri).rpartition("/")[2]
    return _cut(f"{name} ({each.type})" if each.type else name, _LONGEST)


def _cut(text: str, longest: int) -> str:
    """Return the beginning and end of a text, without characters that cannot be printed, or stand in XML."""
    text = "".join(each if each.isprintable() else " " for each in text)
    return text if len(text) <= longest else f"{text[: longest // 2]}…{text[-longest // 2 + 1 :]}"


def _mermaid(text: str) -> str:
    """Write text so that nothing in it is Mermaid's, HTML or a line break: all but letters, digits and a few marks as character codes."""
    return "".join(each if each.isalnum() or each in " .-_/()" else f"#{ord(each)};" for each in text)


def _dot(text: str) -> str:
    escaped = text.replace("\\", "\\\\").replace('"', '\\"')
    return f'"{escaped}"'
