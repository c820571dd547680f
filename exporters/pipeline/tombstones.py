"""What remains of an entity that is gone at its source, when its graph is not at hand: who it was, and its runs.

``kg.rdf.tombstones`` owns the shape; here is the little of the former graph that it keeps, written from memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from datetime import datetime

from drumlin.exporters.pipeline.runs import Run, documents
from drumlin.kg.model.iris import Name, ObjectName
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.rdf.tombstones import KEPT, tombstone


def remains(
    graph: str,
    former: str,
    name: Name,
    cluster: str,
    runs: Iterable[Run],
    said: Mapping[str, object],
    at: datetime,
) -> Lines:
    """Return the tombstone of an entity of class ``former`` that was found to be gone ``at`` a moment (aware).

    ``said`` is what its document said last, as far as it is known.
    """
    optional: dict[str, object] = {"namespace": name.namespace if isinstance(name, ObjectName) else None}
    optional |= {term: said.get(term) for term in KEPT if term not in ("name", "namespace", "cluster")}
    last = {
        "id": graph,
        "type": former,
        "name": name.name,
        "cluster": cluster,
        "runs": documents(graph, runs),
        **{key: value for key, value in optional.items() if value},
    }
    left = tombstone(lines(last), graph, at)
    if left is None:
        raise ValueError(f"{former} is no class of an entity")
    return left
