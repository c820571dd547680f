"""What remains of an entity that is gone at its source, when its graph is not at hand: who it was, and its runs.

``kg.tombstones`` owns the shape; here is the little of the former graph that it keeps, written from memory.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from exporters.runs import Run, documents
from kg.iris import Name, ObjectName
from kg.jsonld import lines
from kg.rdf import Lines
from kg.tombstones import tombstone


def remains(
    graph: str, former: str, name: Name, cluster: str, runs: Iterable[Run], manager: str | None, at: datetime
) -> Lines:
    """Return the tombstone of an entity of class ``former`` that was found to be gone ``at`` a moment (aware)."""
    optional = {"namespace": name.namespace if isinstance(name, ObjectName) else None, "managedBy": manager}
    last = {
        "id": graph,
        "type": former,
        "name": name.name,
        "cluster": cluster,
        "runs": documents(graph, runs),
        **{key: value for key, value in optional.items() if value},
    }
    return tombstone(lines(last), graph, at)
