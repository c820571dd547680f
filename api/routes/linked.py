"""Linked data: names that lead to documents, and documents that say what there is (https://www.w3.org/TR/cooluris/, VoID).

``/id/…`` names a thing, so it is answered with 303 and the address of the document about it, ``/doc/…``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.responses import Response

from drumlin.api.bootstrap import Services, parts
from drumlin.api.http.negotiation import rdf_syntax
from drumlin.api.http.relative_addresses import prefix_of, root_of
from drumlin.api.routes.description import FORMATS, GRAPHS
from drumlin.api.routes.subgraph import EntityId, Wanted, represent
from drumlin.api.statistics import VOID, number
from drumlin.kg import rdf
from drumlin.kg.rdf import jsonld
from drumlin.kg.rdf.syntax import TURTLE

router = APIRouter(tags=["linked data"])

Service = Annotated[Services, Depends(parts)]
Accept = Annotated[str | None, Header()]


@router.get("/id/{id:path}", summary="Follow the name of a thing", status_code=303, response_class=Response)
def name(request: Request, id: EntityId, service: Service) -> Response:
    """Lead to the document about a thing: 303 See Other. A part (a run, a container) is described in its entity's document."""
    entity = service.iris.entity(service.iris.expand(id))
    # Below the path of the base, where it has one: the name does, whichever way it was asked for.
    prefix = prefix_of(service.iris.base)
    address = f"{f'{prefix}/' if prefix else root_of(request)}doc/{service.iris.short(entity)}"
    return Response(status_code=303, headers={"Location": address, "Vary": "Accept"})


@router.get("/doc/{id:path}", summary="Read the document about a thing", response_class=Response)
def document(id: EntityId, service: Service, wanted: Wanted) -> Response:
    """Return the same as ``/subgraph/{id}``; its Link headers name the thing and the other representations."""
    return represent(service, id, wanted)


_DCTERMS = "http://purl.org/dc/terms/"
_FOAF = "http://xmlns.com/foaf/0.1/"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"


@router.get("/.well-known/void", summary="What is in the dataset, and how to reach it", response_class=Response)
def void(
    service: Service,
    accept: Accept = None,
    wanted: Annotated[str | None, Query(alias="format", description="Syntax of the answer; wins over Accept.")] = None,
) -> Response:
    """Describe the dataset (https://www.w3.org/TR/void/): end points, formats, vocabularies, how much there is, things by class."""
    syntax, media_type = rdf_syntax(accept or TURTLE.media_type, wanted)
    content = rdf.serialize(frozenset(_void(service)), syntax)
    return Response(content, media_type=media_type, headers={"Vary": "Accept", "Cache-Control": "no-cache"})


def _void(service: Services) -> Iterator[str]:
    base = service.settings.base
    here, dataset = f"<{base}/.well-known/void>", f"<{base}/.well-known/void#dataset>"
    yield f"{here} <{_TYPE}> <{VOID}DatasetDescription> ."
    yield f"{here} <{_FOAF}primaryTopic> {dataset} ."
    yield f"{dataset} <{_TYPE}> <{VOID}Dataset> ."
    yield f'{dataset} <{_DCTERMS}title> "Drumlin" .'
    yield f"{dataset} <{VOID}sparqlEndpoint> <{base}/sparql> ."
    yield f"{dataset} <{VOID}dataDump> <{base}/export> ."
    yield f'{dataset} <{VOID}uriSpace> "{service.iris.root}" .'
    for name in GRAPHS:
        yield f"{dataset} <{VOID}feature> <{FORMATS}{name}> ."
    for vocabulary in (jsonld.NAMESPACE, *(rdf.PREFIXES[name] for name in ("dcat", "dcterms", "prov"))):
        yield f"{dataset} <{VOID}vocabulary> <{vocabulary}> ."
    counts = service.counting.counts()
    yield f"{dataset} <{VOID}documents> {number(counts.graphs)} ."
    yield from counts.described(dataset)
