"""The flat document of one entity that edge monitoring with prediction reads: application, data, telemetry with its datasources.

Pure. It is JSON-LD too: its context (``ontology/frames/seed.jsonld``) gives each key its term. Metrics and logs stand in lists, an item for
each datasource that holds them; a metric's query is the stored one, in the metric's unit.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Mapping
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import WORKLOAD_KINDS
from drumlin.kg.telemetry.templates import ALIASES

NAME = "seed"
"""The name of the frame."""
_KINDS = WORKLOAD_KINDS | {"Node", "GlaciationNode", "Domain", "Cluster"}


@cache
def context() -> Any:
    """Return the document's ``@context``."""
    return msgspec.json.decode(files("drumlin.ontology").joinpath("frames", "seed.jsonld").read_bytes())["@context"]


def document(entity: Mapping[str, Any], datasources: Mapping[str, Datasource]) -> dict[str, Any]:
    """Return the flat document of an entity's nested one; ``datasources`` by IRI. Raises ``InvalidInput`` for what has no such document."""
    kind = entity.get("type")
    if kind not in _KINDS:
        raise InvalidInput(
            f"a {kind} has no flat document", hint="frame=seed is for workloads, nodes, domains and clusters"
        )
    found: dict[str, Any] = {"@context": context(), "id": entity["id"], "type": kind, "name": entity.get("name")}
    if kind in WORKLOAD_KINDS:
        found["application"] = entity.get("application") or entity.get("name")
        found["data"] = entity.get("dependsOn", [])
    if "url" in entity:
        found["url"] = entity["url"]
    told: dict[str, list[dict[str, Any]]] = {"metrics": [], "logs": []}
    for each in entity.get("telemetry", ()):
        if each["signal"] in told:
            told[each["signal"]] = list(_held(each, datasources))
    return found | {"telemetry": told}


def _held(telemetry: Mapping[str, Any], datasources: Mapping[str, Datasource]) -> Iterator[dict[str, Any]]:
    """Yield what each datasource holds of a telemetry, in the order of their IRIs."""
    metrics: defaultdict[str, list[dict[str, Any]]] = defaultdict(list)
    for part in telemetry.get("hasPart", ()):
        for at in part["distribution"]:
            metrics[at["accessService"]].append({"name": part["name"], "unit": part["unit"], "query": at["query"]})
    streams = {at["accessService"]: at["query"] for at in telemetry.get("distribution", ())}
    dashboard = next((each["url"] for each in telemetry.get("dashboard", ())), None)
    for iri in sorted({*metrics, *streams}):
        server = datasources.get(iri)
        kind = server.kind if server else None
        what = "logs" if iri in streams else "timeseries"
        found: dict[str, Any] = {"type": f"{what}/{kind}" if kind else what}
        found["dataSource"] = {"id": iri} | ({"type": server.kind, "url": server.url} if server else {})
        if iri in streams:
            found["query"] = streams[iri]
        else:
            found["metrics"] = [*metrics[iri], *_sums(metrics[iri])]
        yield found | ({"dashboard": dashboard} if dashboard else {})


def _sums(metrics: list[dict[str, Any]]) -> Iterator[dict[str, Any]]:
    """Yield the metrics that are sums of others, when all of these are there."""
    by_name = {each["name"]: each for each in metrics}
    for name, parts in ALIASES.items():
        if by_name.keys() >= set(parts) and name not in by_name:
            query = " + ".join(f"({by_name[part]['query']})" for part in parts)
            yield {"name": name, "unit": by_name[parts[0]]["unit"], "query": query}
