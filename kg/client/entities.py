"""What a client holds in its hands: workloads with their metrics, and one subgraph to read and write."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from difflib import get_close_matches
from typing import Any

from drumlin.kg.client import notebook
from drumlin.kg.errors import UnknownMetric


@dataclass(frozen=True, slots=True)
class Metric:
    """A metric of an entity as the graph states it: its unit (UCUM) and, per datasource, a runnable query.

    ``preferred`` is the datasource that the graph marks where several hold it.
    """

    name: str
    unit: str
    quantity: str
    type: str
    queries: Mapping[str, str]
    preferred: str | None = None

    @property
    def query(self) -> str:
        """The query for the preferred datasource, else for the first (by name)."""
        return self.queries[self.preferred or min(self.queries)]


class EntityMetrics(dict[str, Metric]):
    """The metrics of an entity by name; a name that it has not raises ``UnknownMetric`` with the one that may have been meant."""

    def __init__(self, entity: str, found: Mapping[str, Metric]) -> None:
        super().__init__(found)
        self._entity = entity

    def __missing__(self, name: str) -> Metric:
        near = get_close_matches(str(name)[:64], self, n=1)
        meant = f"; did you mean {near[0]!r}?" if near else ""
        raise UnknownMetric(
            f"{self._entity} has no metric {name!r}{meant}", hint=f"it has {', '.join(sorted(self)) or 'none'}"
        )


def metrics_of(document: Mapping[str, Any]) -> dict[str, Metric]:
    """Read the metrics out of an entity's document, or out of that of its own metrics (``scraped/…``)."""
    found: dict[str, Metric] = {}
    for telemetry in (document, *document.get("telemetry", ())):
        for part in telemetry.get("hasPart", ()) if isinstance(telemetry, Mapping) else ():
            held = [each for each in part.get("distribution", ()) if isinstance(each, Mapping)]
            queries = {each["accessService"].rpartition("/")[2]: each["query"] for each in held}
            best = next((each["accessService"].rpartition("/")[2] for each in held if each.get("preferred")), None)
            about = part["name"], part["unit"], part["quantity"], part["metricType"]
            found[part["name"]] = Metric(*about, queries, best)
    return found


@dataclass(frozen=True)
class Identity:
    """What an entity is called: short id, IRI, class, name, namespace, and its phase."""

    id: str
    iri: str
    type: str
    name: str
    namespace: str | None
    phase: str | None

    def _repr_html_(self) -> str:
        return notebook.facts(self.name, self.type, self.id, self.phase or "", [("namespace", self.namespace)])

    @classmethod
    def of(cls, document: Mapping[str, Any]) -> Identity:
        """Read it out of an entity's document."""
        iri = str(document["id"])
        known = document.get("namespace"), document.get("phase")
        return Identity(iri.partition("/id/")[2], iri, str(document["type"]), str(document["name"]), *known)


@dataclass(frozen=True)
class GraphSummary(Identity):
    """One line of a listing: who writes the graph, its digest, and its last effective write."""

    owner: str
    digest: str
    generation: int
    changed: str

    @classmethod
    def read(cls, item: Mapping[str, Any]) -> GraphSummary:
        """Read one item of ``/subgraphs``."""
        known: dict[str, Any] = {each.name: item.get(each.name) for each in fields(cls)}
        return cls(**known)
