"""Which entities a request about many is for: those it names, those a filter matches, or those a SPARQL query finds."""

from __future__ import annotations

import msgspec
from pydantic import BaseModel, ConfigDict, Field

from api import narrowing
from api.assembly import Parts
from kg.errors import InvalidInput, TooLarge
from kg.search import Question
from kg.sparql import gate

MAX_ENTITIES = 10_000


class Selection(BaseModel):
    """Entities by name, by filter, or by query: one of the three."""

    model_config = ConfigDict(extra="forbid")
    entities: list[str] | None = Field(None, max_length=MAX_ENTITIES, description="Short ids or IRIs.")
    type: str | None = Field(None, description="All entities of a class: Deployment; Workload stands for all kinds.")
    namespace: str | None = Field(None, description="With type: of one namespace.")
    sparql: str | None = Field(None, description="A SELECT; its variable ?entity (or its first) is taken.")


def selected(service: Parts, selection: Selection) -> list[str]:
    """Return the ids or IRIs that are selected; raises ``InvalidInput`` for none or two ways, ``TooLarge`` for too many."""
    ways = [selection.entities is not None, selection.type is not None, selection.sparql is not None]
    if sum(ways) != 1:
        raise InvalidInput("say which entities: either entities, type (with namespace), or sparql")
    if selection.entities is not None:
        found = selection.entities
    elif selection.type is not None:
        narrowing.check(service, {"type": [selection.type]})
        filters = {"type": [selection.type], "namespace": [selection.namespace] if selection.namespace else []}
        question = Question(filters=filters, sort="id", limit=MAX_ENTITIES + 1)
        found = [each.id for each in service.search.find(question).items]
    else:
        found = _by_query(service, selection.sparql or "")
    if len(found) > MAX_ENTITIES:
        raise TooLarge(f"more than {MAX_ENTITIES:,} entities are selected", hint="select fewer at a time")
    if not found:
        raise InvalidInput("no entity is selected", hint="list what there is with /subgraphs")
    return found


def _by_query(service: Parts, query: str) -> list[str]:
    gated = gate.check(query, max_bytes=service.settings.query_bytes)
    if gated.form != "select":
        raise InvalidInput(
            "entities are found by a SELECT query", hint="SELECT ?entity WHERE { ?entity a drumlin:Deployment }"
        )
    answer = service.store.answer(gated.text, media_type="application/sparql-results+json", base=service.settings.base)
    body = msgspec.json.decode(b"".join(answer.chunks))
    names = body["head"].get("vars", [])
    name = "entity" if "entity" in names else next(iter(names), "entity")
    terms = [row[name] for row in body["results"]["bindings"] if name in row]
    return list(dict.fromkeys(term["value"] for term in terms if term["type"] == "uri"))
