"""``/graph``: what reaches a thing and what it reaches, as JSON, Mermaid, DOT, a picture, or rows for Grafana's node graph."""

from __future__ import annotations

import json
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from starlette.responses import Response

from drumlin.api.answers import NODE_GRAPH
from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.negotiation import choose, unnamed
from drumlin.kg.graphs import diagrams
from drumlin.kg.graphs.reach import MAX_DEPTH, reach

router = APIRouter(tags=["queries"])
Service = Annotated[Services, Depends(parts)]
JSON, MERMAID, DOT, SVG = "application/json", "text/vnd.mermaid", "text/vnd.graphviz", "image/svg+xml"
_FORMATS = {"json": JSON, "mermaid": MERMAID, "dot": DOT, "svg": SVG, "grafana": NODE_GRAPH}
_WRITERS = {MERMAID: diagrams.as_mermaid, DOT: diagrams.as_dot, SVG: diagrams.as_svg}
_OBJECTS = {JSON: diagrams.as_json, NODE_GRAPH: diagrams.as_node_graph}


@router.get("/graph", summary="Show what reaches a thing and what it reaches", response_class=Response)
def get_graph(
    service: Service,
    root: Annotated[str, Query(description="Short id or IRI of the thing to begin with.")],
    edges: Annotated[
        str,
        Query(
            description="Relations to follow, separated by commas: `calls`, `hasPart`, properties such as `dependsOn`; `^` before one"
            " follows it backwards. Without it calls in both directions, of a workflow its steps."
        ),
    ] = "",
    depth: Annotated[int, Query(ge=1, le=MAX_DEPTH, description="Links from the root, at most.")] = 3,
    wanted: Annotated[
        str | None, Query(alias="format", description="json, mermaid, dot, svg or grafana; wins over Accept.")
    ] = None,
    accept: Annotated[str | None, Header()] = None,
) -> Response:
    """Walk from the root, forwards and backwards apart; of a function also from the workloads that implement it.

    Of the neighbours of one thing 25 are shown, the rest is counted (`more`, +N); 500 things in all, `left_out` counts the others. A
    link on a cycle is marked. Days, not times, are known of calls, so the answer stays the same while nothing new calls anything.
    `grafana` has `nodes` and `edges` in the fields of Grafana's node graph.
    """
    if wanted is not None and wanted not in _FORMATS:
        raise unnamed(wanted, _FORMATS, list(_FORMATS.values()))
    media_type = _FORMATS[wanted] if wanted else choose(accept, tuple(_FORMATS.values()))
    relations = tuple(each.strip() for each in edges.split(",") if each.strip())
    found = reach(service.store.look_up, service.iris, service.iris.expand(root), relations, depth)
    if media_type in _OBJECTS:
        text = json.dumps(_OBJECTS[media_type](found, service.iris), ensure_ascii=False)
    else:
        text = _WRITERS[media_type](found, service.iris)
    return Response(text, media_type=media_type, headers={"Vary": "Accept", "Cache-Control": "no-cache"})
