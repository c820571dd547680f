"""Which entities a request about many is for: those it names, those a filter matches, or those a SPARQL query finds."""

from __future__ import annotations

from pydantic import BaseModel, ConfigDict, Field

from drumlin.api import querying
from drumlin.api.bootstrap import Services
from drumlin.api.http import filter_validation
from drumlin.kg.errors import InvalidInput, TooLarge
from drumlin.kg.search.query import SearchQuery
from drumlin.kg.sparql import gate
from drumlin.kg.telemetry.groups import NONE
from drumlin.kg.telemetry.series import Window

MAX_ENTITIES = 10_000
MAX_GROUPED = 100_000
"""Workloads and pods, gone ones too, whose groups one request may ask for."""
GROUP_HELP = (
    "Add up per applicationGroup, application, team, kind, namespace, node or label:KEY, with pods that are gone;"
    " of what is selected, else of all."
)
UNIT_HELP = "Unit of the values: UCUM, or MB, cores, kWh; of several, each metric takes the first that fits."


class EntitySelection(BaseModel):
    """Entities by name, by filter, or by query: one of the three."""

    model_config = ConfigDict(extra="forbid")
    entities: list[str] | None = Field(None, max_length=MAX_ENTITIES, description="Short ids or IRIs.")
    type: str | None = Field(None, description="All entities of a class: Deployment; Workload stands for all kinds.")
    namespace: str | None = Field(None, description="With type: of one namespace.")
    sparql: str | None = Field(None, description="A SELECT; its variable ?entity (or its first) is taken.")


class GroupedSelection(EntitySelection):
    """Entities, or groups of pods among them."""

    group_by: str | None = Field(None, max_length=300, description=GROUP_HELP)


def grouped(service: Services, selection: GroupedSelection, span: Window) -> tuple[list[str], frozenset[str] | None]:
    """Return what is asked about: the entities selected, or the groups of their pods, with the IRIs of what alone counts in these.

    Without a selection the groups are those of all pods. Raises ``InvalidInput`` as ``selected`` does, and for an unknown dimension.
    """
    if selection.group_by is None:
        return selected(service, selection), None
    among = _among(service, selection)
    found = service.resolver.groups(selection.group_by, span, among)
    if not found:
        raise InvalidInput("no pod of what is selected ran in the window", hint="take a longer window")
    key = selection.group_by.partition("label:")[2]
    if key and not service.settings.keeps_label(key) and all(each.endswith(f"/{NONE}") for each in found):
        raise InvalidInput(
            f"labels with the key {key[:100]} are not kept, so there is nothing to group by",
            hint="add it to the setting labels to keep them",
        )
    return found, among


def _among(service: Services, selection: EntitySelection) -> frozenset[str] | None:
    """Return the IRIs whose pods count; those of a class or namespace count also when they are gone."""
    if selection.entities is not None or selection.sparql is not None:
        return frozenset(map(service.iris.expand, selected(service, selection)))
    if selection.type is None and selection.namespace is None:
        return None
    types = [selection.type] if selection.type else ["Workload", "Pod"]
    filter_validation.check(service, {"type": types})
    filters = {"type": types, "namespace": [selection.namespace] if selection.namespace else []}
    question = SearchQuery(filters=filters, tombstones=True, sort="id", limit=MAX_GROUPED + 1)
    found = service.search.find(question).items
    if len(found) > MAX_GROUPED:
        raise TooLarge(f"more than {MAX_GROUPED:,} entities are selected", hint="name a namespace")
    return frozenset(each.iri for each in found)


def selected(service: Services, selection: EntitySelection) -> list[str]:
    """Return the ids or IRIs that are selected; raises ``InvalidInput`` for none or two ways, ``TooLarge`` for too many."""
    ways = [selection.entities is not None, selection.type is not None, selection.sparql is not None]
    if sum(ways) != 1:
        raise InvalidInput("say which entities: either entities, type (with namespace), or sparql")
    if selection.entities is not None:
        found = selection.entities
    elif selection.type is not None:
        filter_validation.check(service, {"type": [selection.type]})
        filters = {"type": [selection.type], "namespace": [selection.namespace] if selection.namespace else []}
        question = SearchQuery(filters=filters, sort="id", limit=MAX_ENTITIES + 1)
        found = [each.id for each in service.search.find(question).items]
    else:
        found = _by_query(service, selection.sparql or "")
    if len(found) > MAX_ENTITIES:
        raise TooLarge(f"more than {MAX_ENTITIES:,} entities are selected", hint="select fewer at a time")
    if not found:
        raise InvalidInput("no entity is selected", hint="list what there is with /subgraphs")
    return found


def _by_query(service: Services, query: str) -> list[str]:
    gated = gate.check(query, max_bytes=service.settings.query_bytes)
    if gated.form != "select":
        raise InvalidInput(
            "entities are found by a SELECT query", hint="SELECT ?entity WHERE { ?entity a drumlin:Deployment }"
        )
    found: dict[str, None] = {}  # in the order in which they come, each once
    with querying.solutions(service, gated.text) as (solutions, _):
        name = "entity" if "entity" in solutions.variables else next(iter(solutions.variables), "entity")
        for row in solutions.rows:
            if name in row and row[name]["type"] == "uri":
                found[row[name]["value"]] = None
                if len(found) > MAX_ENTITIES:
                    break
    return list(found)
