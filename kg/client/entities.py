"""What a client holds in its hands: workloads with their metrics, and one subgraph to read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of an entity as the graph tells it: its unit (UCUM) and, per datasource, a runnable query."""

    name: str
    unit: str
    quantity: str
    type: str
    queries: Mapping[str, str]

    @property
    def query(self) -> str:
        """The query for the first datasource (by name)."""
        return self.queries[min(self.queries)]


def metrics_of(document: Mapping[str, Any]) -> dict[str, Metric]:
    """Read the metrics out of an entity's document."""
    found: dict[str, Metric] = {}
    for telemetry in document.get("telemetry", ()):
        for part in telemetry.get("hasPart", ()) if isinstance(telemetry, Mapping) else ():
            queries = {
                each["accessService"].rpartition("/")[2]: each["query"]
                for each in part.get("distribution", ())
                if isinstance(each, Mapping)
            }
            found[part["name"]] = Metric(part["name"], part["unit"], part["quantity"], part["metricType"], queries)
    return found


@dataclass(frozen=True, slots=True)
class Summary:
    """One line of a listing."""

    id: str
    iri: str
    type: str
    name: str
    namespace: str | None
    phase: str | None
    owner: str

    @classmethod
    def read(cls, item: Mapping[str, Any]) -> Summary:
        """Read one item of ``/subgraphs``."""
        return cls(
            item["id"], item["iri"], item["type"], item["name"], item.get("namespace"), item.get("phase"), item["owner"]
        )
