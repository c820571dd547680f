"""``/export``: the whole store, or a part of it, as one document of one generation."""

from __future__ import annotations

from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query

from drumlin.api.bootstrap import Services, parts
from drumlin.api.http import filter_validation
from drumlin.api.http.negotiation import choose, named
from drumlin.api.http.streaming import BodyStream
from drumlin.kg.graphs import dump
from drumlin.kg.graphs.dump import SYNTAXES, GraphSelection
from drumlin.kg.rdf.syntax import JSONLD, syntax_named
from drumlin.ontology.vocabulary import CLASSES

router = APIRouter(tags=["subgraphs"])

Service = Annotated[Services, Depends(parts)]


@router.get("/export", summary="Export the store or a part of it")
def export(
    service: Service,
    accept: Annotated[str | None, Header()] = None,
    wanted: Annotated[
        str | None, Query(alias="format", description="nquads, jsonld, trig or turtle; wins over Accept.")
    ] = None,
    type: Annotated[str | None, Query(description="Class, e.g. Deployment; Workload stands for all workloads.")] = None,
    domain: Annotated[str | None, Query(description="Id or IRI of a domain.")] = None,
    namespace: Annotated[str | None, Query(description="Kubernetes namespace.")] = None,
    owner: Annotated[str | None, Query(description="Who writes the graph: user, drumlin, or a source.")] = None,
    prefix: Annotated[str, Query(description="Beginning of the short id.")] = "",
    frame: Annotated[
        str | None,
        Query(
            description="JSON-LD only: each (by the frame of its class), a class, or a frame as JSON.",
            examples=["each"],
        ),
    ] = None,
) -> BodyStream:
    """Stream graphs of one generation in the order of their ids: N-Quads, JSON-LD, TriG or Turtle, compressed when gzip is accepted.

    With ``frame`` it is JSON-LD in that shape, each entity a tree of its own: ``each`` keeps all graphs, a class those of the class,
    a frame of your own those that it matches; it takes about 5 ms a graph.

    JSON-LD carries its context, so that it is read without any service. Equal stores give equal bytes. All but Turtle can be
    read back with `drumlin import`.
    """
    filter_validation.check(service, {"type": [type] if type else []})
    offered = (JSONLD,) if frame and not wanted else SYNTAXES
    syntax = named(wanted, offered) if wanted else syntax_named(choose(accept, [each.media_type for each in offered]))
    if frame and frame in CLASSES:
        type = type or frame
    selection = GraphSelection(type, domain, namespace, owner, prefix)
    chunks = dump.written(
        dump.select(service.store, selection, service.iris), syntax, frame, served=service.iris.context
    )
    return BodyStream(chunks, syntax.media_type, {"Vary": "Accept"})
