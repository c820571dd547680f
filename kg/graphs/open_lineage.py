"""Runs of tasks as OpenLineage run events: what started, what ended how, and the data that it read and wrote.

One START for each run of a task and, when it is over, one event for its end. Jobs and datasets are named by their short ids in the
namespace of the graph's base. Spec: https://openlineage.io/apidocs/openapi/.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from drumlin.kg.rdf.jsonld import NAMESPACE

QUERY = f"""PREFIX : <{NAMESPACE}>
PREFIX prov: <http://www.w3.org/ns/prov#>
SELECT ?task ?run ?start ?end ?outcome ?job ?jobRun ?input ?output WHERE {{
  ?task a :Task . ?run :runOf ?task ; prov:startedAtTime ?start .
  OPTIONAL {{ ?run prov:endedAtTime ?end }}
  OPTIONAL {{ ?run :outcome ?outcome }}
  OPTIONAL {{ ?task :managedBy ?job . OPTIONAL {{ ?jobRun :runOf ?job }} }}
  OPTIONAL {{ ?task :dependsOn ?input . ?input a :DataAsset }}
  OPTIONAL {{ ?task :produces ?output }}
}} ORDER BY ?start ?run"""
"""The rows that ``events`` takes; those of one run stand together."""

PRODUCER = "https://w3id.org/drumlin"
_SCHEMA = "https://openlineage.io/spec/2-0-2/OpenLineage.json#/$defs/RunEvent"
_PARENT = "https://openlineage.io/spec/facets/1-0-1/ParentRunFacet.json#/$defs/ParentRunFacet"
_ENDS = {"Completed": "COMPLETE", "Deleted": "ABORT", "Evicted": "ABORT"}
Row = Mapping[str, Any]


def events(rows: Iterable[Row]) -> Iterator[dict[str, Any]]:
    """Yield the events of the runs in rows of ``QUERY``: IRIs in full, times in RFC 3339; what is unbound is absent or None."""
    together: dict[str, list[Row]] = {}
    for row in rows:
        together.setdefault(str(row["run"]), []).append(row)
    for run in together.values():
        yield from _of_run(run)


def _of_run(rows: list[Row]) -> Iterator[dict[str, Any]]:
    first = rows[0]
    about: dict[str, Any] = {
        "run": {"runId": _run_id(first["run"]), **_parent(first)},
        "job": _named(first["task"]),
        "producer": PRODUCER,
        "schemaURL": _SCHEMA,
    }
    inputs = [_named(each) for each in _values(rows, "input")]
    yield {"eventType": "START", "eventTime": str(first["start"]), **about, "inputs": inputs, "outputs": []}
    if end := first.get("end"):
        outcome = str(first.get("outcome") or "").removeprefix(NAMESPACE)
        outputs = [_named(each) for each in _values(rows, "output")]
        kind = _ENDS.get(outcome, "FAIL")
        yield {"eventType": kind, "eventTime": str(end), **about, "inputs": inputs, "outputs": outputs}


def _parent(row: Row) -> dict[str, Any]:
    """Return the facet that names the workflow's run, when that is known."""
    if not row.get("job") or not row.get("jobRun"):
        return {}
    parent = {"_producer": PRODUCER, "_schemaURL": _PARENT, "run": {"runId": _run_id(row["jobRun"])}}
    return {"facets": {"parent": {**parent, "job": _named(row["job"])}}}


def _values(rows: Iterable[Row], name: str) -> list[str]:
    return sorted({str(row[name]) for row in rows if row.get(name)})


def _named(iri: str) -> dict[str, str]:
    """Return namespace (the base) and name (the short id) of an entity."""
    base, _, name = str(iri).partition("/id/")
    return {"namespace": base, "name": name}


def _run_id(iri: str) -> str:
    """Return the UUID of a run: its Kubernetes uid, or one made of its IRI where the uid is no UUID."""
    try:
        return str(uuid.UUID(str(iri).rpartition("/run/")[2]))
    except ValueError:
        return str(uuid.uuid5(uuid.NAMESPACE_URL, str(iri)))
