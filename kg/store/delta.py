"""What a write removes and adds, as text for the engine: made from canonical lines and checked IRIs only, never from a caller's text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Literal

from kg.rdf import to_nquads
from kg.store.protocol import Lines


@dataclass(frozen=True, slots=True)
class Change:
    """One graph that will change: digests before and after, what it holds (not filled in for a removal), what it shall hold."""

    graph: str
    owner: str
    before: str | None
    after: str | None
    old: Lines
    lines: Lines | None

    @property
    def outcome(self) -> Literal["created", "replaced", "removed"]:
        """What becomes of the graph."""
        if self.lines is None:
            return "removed"
        return "created" if self.before is None else "replaced"


def update_text(changes: Iterable[Change]) -> str:
    """Write changes as one ground SPARQL update: what was removed, what was added, and which graphs come and go."""
    removed: list[str] = []
    added: list[str] = []
    graphs: list[str] = []
    for change in changes:
        if change.lines is None:
            graphs.append(f"DROP GRAPH <{change.graph}>")
            continue
        if not change.lines:  # an empty graph exists only when it is made
            graphs.append(f"CREATE SILENT GRAPH <{change.graph}>")
        _block(change.graph, change.old - change.lines, removed)
        _block(change.graph, change.lines - change.old, added)
    operations = [*graphs]
    if removed:
        operations.append(f"DELETE DATA {{\n{''.join(removed)}}}")
    if added:
        operations.append(f"INSERT DATA {{\n{''.join(added)}}}")
    return ";\n".join(operations)


def _block(graph: str, lines: Lines, blocks: list[str]) -> None:
    if lines:
        blocks.append(f"GRAPH <{graph}> {{\n" + "\n".join(lines) + "\n}\n")


def nquads(changes: Iterable[Change]) -> bytes:
    """Write new graphs as N-Quads."""
    return b"".join(quad for change in changes for quad in to_nquads(change.lines or (), change.graph))
