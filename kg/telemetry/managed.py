"""The runs of all pods below an entity that manages others: a workflow, a task, the part of a domain in a task, a serving.

Their pods stand in several namespaces, under names that no pattern of the entity's own gives, so they are asked for as groups are: by
the pods that the graph knows, whatever stands between them and the entity.
"""

from __future__ import annotations

from datetime import datetime

from drumlin.kg.errors import ResourceNotFound, TooLarge
from drumlin.kg.model.iris import Iris, ObjectName
from drumlin.kg.telemetry.graph import Entity, TelemetryGraph, overlap, time_of
from drumlin.kg.telemetry.group_queries import domain_of
from drumlin.kg.telemetry.groups import MAX_POD_RUNS, GroupedRun, PodPlace
from drumlin.kg.telemetry.inventory import Inventory

_RUNS = """SELECT ?entity ?pod ?start ?end WHERE {{
  ?pod drumlin:managedBy+ ?entity . ?run drumlin:runOf ?pod ; prov:startedAtTime ?start . FILTER(CONTAINS(STR(?pod), "/pod/"))
  OPTIONAL {{ ?run prov:endedAtTime ?end }} FILTER({span}) }} LIMIT {limit}"""


def runs_below(
    graph: TelemetryGraph, iris: Iris, entity: Entity, inventory: Inventory, start: datetime, end: datetime
) -> list[GroupedRun]:
    """Return the runs of the pods below an entity that overlap a span; of a party, those in namespaces of its domain.

    Raises ``ResourceNotFound`` when none ran, ``TooLarge`` when too many did.
    """
    whole = iris.entity(entity.iri)
    query = _RUNS.format(span=overlap(start, end), limit=MAX_POD_RUNS + 1)
    rows = graph.ask_all(query, [whole])[whole]
    if len(rows) > MAX_POD_RUNS:
        raise TooLarge(f"more than {MAX_POD_RUNS:,} pods ran in the window", hint="take a shorter window")
    party = iris.parse(entity.domain).name.name if entity.kind == "Party" and entity.domain else None
    found = []
    for row in rows:
        named = iris.parse(row["pod"]).name
        if not isinstance(named, ObjectName) or named.kind != "pod":
            continue
        pod = PodPlace(named.cluster, named.namespace or "", named.name)
        if party and (domain_of(pod.cluster, pod.namespace, inventory) or pod.namespace) != party:
            continue
        until = time_of(row["end"]).timestamp() if "end" in row else None
        found.append(GroupedRun(pod, time_of(row["start"]).timestamp(), until, None))
    if not found:
        raise ResourceNotFound(
            f"no pod of {iris.short(entity.iri)} is known to have run in the window", detail={"entity": entity.iri}
        )
    return found
