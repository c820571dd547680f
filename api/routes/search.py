"""``/search``: entities by text and filters, counted by facet."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from fastapi import APIRouter, Depends, Query

from drumlin.api.bootstrap import Services, parts
from drumlin.api.http import filter_validation
from drumlin.kg.search.facets import FIELDS
from drumlin.kg.search.query import SearchQuery, Sort
from drumlin.kg.sparql.absent_terms import unkept_labels

router = APIRouter(tags=["search"])
Service = Annotated[Services, Depends(parts)]

DEFAULT_FACETS = tuple(name for name in FIELDS if name not in ("tag", "owner"))


async def filters(
    type: Annotated[
        list[str] | None,
        Query(description="Class: Deployment; Workload stands for all workload kinds.", examples=["Workload"]),
    ] = None,
    domain: Annotated[list[str] | None, Query(description="Id of a domain.")] = None,
    cluster: Annotated[list[str] | None, Query(description="Name of a cluster.")] = None,
    namespace: Annotated[list[str] | None, Query(description="Kubernetes namespace.", examples=["payments"])] = None,
    node: Annotated[list[str] | None, Query(description="Name of the node that it runs on.")] = None,
    phase: Annotated[list[str] | None, Query(description="Running, Failed …")] = None,
    quantity: Annotated[list[str] | None, Query(description="What is measured of it: cpu, memory, energy …")] = None,
    datasource: Annotated[list[str] | None, Query(description="Name of a datasource that holds its telemetry.")] = None,
    tag: Annotated[list[str] | None, Query(description="A tag that it bears.")] = None,
    owner: Annotated[list[str] | None, Query(description="Who writes the graph: user, drumlin, or a source.")] = None,
) -> dict[str, list[str]]:
    """Read the filters (FastAPI dependency); several values of one filter mean any of them."""
    given = (type, domain, cluster, namespace, node, phase, quantity, datasource, tag, owner)
    return {name: values for name, values in zip(FIELDS, given, strict=True) if values}


Filters = Annotated[dict[str, list[str]], Depends(filters)]
Tombstones = Annotated[bool, Query(description="Deleted entities too.")]


@router.get("/search", summary="Search entities")
def search(
    service: Service,
    narrowed: Filters,
    q: Annotated[
        str,
        Query(
            max_length=1000,
            description="Words of names, labels, images, ids, tags; each may be a beginning.",
            examples=["checkout"],
        ),
    ] = "",
    facet: Annotated[
        list[str] | None, Query(description="What to count by (default: all but tag and owner); none counts nothing.")
    ] = None,
    sort: Annotated[
        Sort, Query(description="relevance: what bears the text as its name comes first, then by id.")
    ] = "relevance",
    cursor: Annotated[str, Query(max_length=4096, description="Where the last page ended: its next.")] = "",
    limit: Annotated[int, Query(ge=1, le=1000)] = 50,
    tombstones: Tombstones = False,
) -> dict[str, Any]:
    """Return a page of matches, how many there are, and how they spread over each facet.

    ``exact`` is false when there are more than 2,000 matches: then ``total`` and the counts are those of 2,000 of them. ``next`` is
    absent at the end. ``warnings`` name labels of the text that are not kept, when nothing is found.
    """
    filter_validation.check(service, narrowed)
    facets = DEFAULT_FACETS if facet is None else tuple(each for each in facet if each != "none")
    question = SearchQuery(q, narrowed, "", tombstones, sort, cursor, "", limit, facets)
    found: dict[str, Any] = msgspec.to_builtins(service.search.find(question))
    if not found["total"] and (unkept := unkept_labels(q.split(), service.settings.keeps_label)):
        found["warnings"] = [each.detail for each in unkept]
    return {key: value for key, value in found.items() if value is not None}
