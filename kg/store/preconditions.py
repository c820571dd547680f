"""May a graph be written: the owner and the digest that a write names, held against what is recorded; the same for every store."""

from __future__ import annotations

from kg.errors import GraphOwned, PreconditionFailed
from kg.store.protocol import ANY, GraphEntry, GraphWrite


def check(write: GraphWrite, entry: GraphEntry | None) -> None:
    """Raise when the owner or the precondition forbids ``write``."""
    if entry is not None and entry.owner != write.owner:
        raise GraphOwned(write.graph, entry.owner, write.owner)
    current = entry.digest if entry else None
    if write.expected is not ANY and write.expected != current:
        now_there = "it does not exist" if current is None else "it is not what was expected"
        raise PreconditionFailed(
            f"{write.graph} was not written: {now_there}", hint="read it again", detail={"digest": current}
        )
