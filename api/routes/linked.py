"""Linked data: names that lead to documents, and documents that say what there is (https://www.w3.org/TR/cooluris/, VoID).

``/id/…`` names a thing, so it is answered with 303 and the address of the document about it, ``/doc/…``.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from fastapi import APIRouter, Depends, Header
from starlette.responses import Response

from api.assembly import Parts, parts
from api.negotiation import rdf_syntax
from api.routes.subgraph import EntityId, Wanted, represent
from kg import jsonld, rdf
from kg.rdf import TURTLE

router = APIRouter(tags=["linked data"])

Service = Annotated[Parts, Depends(parts)]
Accept = Annotated[str | None, Header()]


@router.get("/id/{id:path}", summary="Follow the name of a thing", status_code=303, response_class=Response)
@router.head("/id/{id:path}", include_in_schema=False)
def name(id: EntityId, service: Service) -> Response:
    """Lead to the document about a thing: 303 See Other. A part (a run, a container) is told in its entity's document."""
    entity = service.iris.entity(service.iris.expand(id))
    return Response(status_code=303, headers={"Location": f"/doc/{service.iris.short(entity)}", "Vary": "Accept"})


@router.get("/doc/{id:path}", summary="Read the document about a thing", response_class=Response)
@router.head("/doc/{id:path}", include_in_schema=False)
def document(id: EntityId, service: Service, wanted: Wanted) -> Response:
    """Return the same as ``/subgraph/{id}``; its Link headers name the thing and the other representations."""
    return represent(service, id, wanted)


_VOID = "http://rdfs.org/ns/void#"
_DCTERMS = "http://purl.org/dc/terms/"
_TYPE = "http://www.w3.org/1999/02/22-rdf-syntax-ns#type"
_INTEGER = "http://www.w3.org/2001/XMLSchema#integer"


@router.get("/.well-known/void", summary="What is in the dataset, and how to reach it", response_class=Response)
def void(service: Service, accept: Accept = None) -> Response:
    """Describe the dataset (https://www.w3.org/TR/void/): end points, vocabularies, entities by class."""
    syntax, media_type = rdf_syntax(accept or TURTLE.media_type)
    content = rdf.serialize(frozenset(_void(service)), syntax)
    return Response(content, media_type=media_type, headers={"Vary": "Accept", "Cache-Control": "no-cache"})


def _void(service: Parts) -> Iterator[str]:
    base = service.settings.base
    dataset = f"<{base}/.well-known/void#dataset>"
    yield f"{dataset} <{_TYPE}> <{_VOID}Dataset> ."
    yield f'{dataset} <{_DCTERMS}title> "Drumlin" .'
    yield f"{dataset} <{_VOID}sparqlEndpoint> <{base}/sparql> ."
    yield f"{dataset} <{_VOID}dataDump> <{base}/export> ."
    yield f'{dataset} <{_VOID}uriSpace> "{service.iris.root}" .'
    for vocabulary in (jsonld.NAMESPACE, *(rdf.PREFIXES[name] for name in ("dcat", "dcterms", "prov"))):
        yield f"{dataset} <{_VOID}vocabulary> <{vocabulary}> ."
    for name, count in service.counting.counts().entities.items():
        part = f"<{base}/.well-known/void#{name.rpartition('#')[2]}>"
        yield f"{dataset} <{_VOID}classPartition> {part} ."
        yield f"{part} <{_VOID}class> <{name}> ."
        yield f'{part} <{_VOID}entities> "{count}"^^<{_INTEGER}> .'
