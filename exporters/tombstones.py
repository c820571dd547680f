"""What remains of an entity that is gone: what it was, where it stood, and its runs, so that the past still resolves.

The shape is contract/graphs/tombstone.jsonld; a pod's also keeps its workload.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime

from exporters.runs import Run, documents, text
from kg.iris import Name, ObjectName
from kg.jsonld import NodeDocument


def tombstone(
    graph: str, former: str, name: Name, cluster: str, runs: Iterable[Run], manager: str | None, at: datetime
) -> NodeDocument:
    """Return the document of an entity of type ``former`` that was found to be gone ``at`` a moment."""
    optional = {"namespace": name.namespace if isinstance(name, ObjectName) else None, "managedBy": manager}
    return {
        "id": graph,
        "type": "Tombstone",
        "formerType": former,
        "name": name.name,
        "cluster": cluster,
        "invalidatedAt": text(at),
        "runs": documents(graph, runs),
        **{key: value for key, value in optional.items() if value},
    }
