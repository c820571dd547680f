"""What the graph remembers of an earlier life of the exporter: its graphs, their runs, which of them are tombstones.

Read once at the start, so that a restart neither forgets runs nor writes what is there already.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field

from exporters.runs import Run
from exporters.sink import Sink
from kg.iris import Iris
from kg.jsonld import NAMESPACE
from kg.store.protocol import Row

_PROV = "http://www.w3.org/ns/prov#"
_RUNS = f"""
SELECT ?entity ?run ?start ?end ?outcome ?estimated ?node WHERE {{
  ?run <{NAMESPACE}runOf> ?entity ; <{_PROV}startedAtTime> ?start .
  OPTIONAL {{ ?run <{_PROV}endedAtTime> ?end }}
  OPTIONAL {{ ?run <{NAMESPACE}outcome> ?outcome }}
  OPTIONAL {{ ?run <{NAMESPACE}endEstimated> ?estimated }}
  OPTIONAL {{ ?run <{NAMESPACE}scheduledOn> ?node }}
}}"""
_TOMBSTONES = f"SELECT ?entity WHERE {{ ?entity a <{NAMESPACE}Tombstone> }}"
_MANAGERS = f"SELECT ?entity ?manager WHERE {{ ?entity <{NAMESPACE}managedBy> ?manager }}"


@dataclass(slots=True)
class Earlier:
    """One graph of an earlier life that has not come again yet."""

    digest: str
    runs: dict[str, Run] = field(default_factory=dict)
    manager: str | None = None
    tombstone: bool = False


def recall(sink: Sink, owner: str, prefixes: Iterable[str], iris: Iris) -> dict[str, Earlier]:
    """Return what ``owner`` has written below ``prefixes``, by the graph's IRI."""
    found = {
        each.graph: Earlier(each.digest) for prefix in prefixes for each in sink.entries(owner=owner, prefix=prefix)
    }
    if not found:
        return found
    for entity, runs in _by_entity(sink.look_up(_RUNS), iris):
        if entity in found:
            found[entity].runs[runs.uid] = runs
    for row in sink.look_up(_TOMBSTONES):
        if row["entity"] in found:
            found[row["entity"]].tombstone = True
    for row in sink.look_up(_MANAGERS):
        if row["entity"] in found:
            found[row["entity"]].manager = row["manager"]
    return found


def runs_of(sink: Sink, entity: str, iris: Iris) -> dict[str, Run]:
    """Return the runs that the graph knows of one entity, by uid."""
    return {run.uid: run for _, run in _by_entity(sink.look_up(_RUNS, {"entity": entity}), iris, entity)}


def _by_entity(rows: Iterable[Row], iris: Iris, entity: str = "") -> Iterable[tuple[str, Run]]:
    for row in rows:
        outcome = row.get("outcome")
        yield (
            row.get("entity", entity),
            Run(
                iris.parse(row["run"]).below[1],
                row["start"],
                row.get("end"),
                outcome.removeprefix(NAMESPACE) if outcome else None,
                row.get("estimated") in ("true", "1"),
                row.get("node"),
            ),
        )
