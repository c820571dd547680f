"""What a write removes and adds, as text for the engine: made from canonical lines and checked IRIs only, never from a caller's text."""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, NamedTuple

import msgspec

from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.store import blank_nodes
from drumlin.kg.store.content import GraphContent


class Change(msgspec.Struct, frozen=True, dict=True):
    """One graph that will change: digests before and after, what it holds (not filled in for a removal), what it shall hold.

    The content is None for a removal; ``blank`` is False when neither state surely has a blank node. ``undo`` is what it held as a patch
    against what it shall hold (``kg.store.graph_text``), None for a new graph and for a removal; ``earlier`` the generation of the
    graph's change before this one.
    """

    graph: str
    owner: str
    before: str | None
    after: str | None
    old: Lines
    content: GraphContent | None
    blank: bool = True
    undo: bytes | None = None
    earlier: int | None = None

    @cached_property
    def lines(self) -> Lines:
        """The statements it shall hold: none for a removal."""
        return self.content.lines if self.content else frozenset()

    @property
    def statements(self) -> int:
        """How many it shall hold."""
        return self.content.statements if self.content else 0

    @property
    def outcome(self) -> Literal["created", "replaced", "removed"]:
        """What becomes of the graph."""
        if self.content is None:
            return "removed"
        return "created" if self.before is None else "replaced"

    @property
    def loadable(self) -> bool:
        """True for a new graph that may be bulk-loaded: the engine would give its blank nodes other labels."""
        return not self.blank and self.before is None and self.statements > 0


@dataclass(frozen=True, slots=True)
class Delta:
    """What one commit did to the quads, for those who keep a copy of them.

    ``generation`` is the newest one that the commit brought; ``update`` is a ground SPARQL update that may be replayed over a
    copy which holds it already, as long as all later ones follow. ``bulk`` says that there is no text: take a new checkpoint.
    """

    generation: int
    update: str
    graphs: tuple[str, ...]
    bulk: bool


def update_text(changes: Iterable[Change]) -> str:
    """Write changes as one ground SPARQL update: what was removed, what was added, and which graphs come and go.

    Written so that it can be replayed: each operation says what shall be, whatever there is.
    """
    removed: list[str] = []
    added: list[str] = []
    graphs: list[str] = []
    blank: tuple[list[tuple[str, Lines]], list[tuple[str, Lines]]] = ([], [])
    for change in changes:
        if change.content is None:
            graphs.append(f"DROP SILENT GRAPH <{change.graph}>")
            continue
        if not change.statements:  # such a graph exists only when it is made
            graphs.append(f"CREATE SILENT GRAPH <{change.graph}>")
        elif not change.old and not change.blank:
            added.append(f"GRAPH <{change.graph}> {{\n{change.content.text}\n}}\n")
            continue
        _block(change, change.old - change.lines, removed, blank[0])
        _block(change, change.lines - change.old, added, blank[1])
    operations = [*graphs]
    if removed:
        operations.append(f"DELETE DATA {{\n{''.join(removed)}}}")
    if added:
        operations.append(f"INSERT DATA {{\n{''.join(added)}}}")
    operations += blank_nodes.operations(*blank)
    return ";\n".join(operations)


def _block(change: Change, lines: Lines, blocks: list[str], blank: list[tuple[str, Lines]]) -> None:
    if change.blank and (with_blanks := frozenset(filter(blank_nodes.holds_blank, lines))):
        blank.append((change.graph, with_blanks))
        lines -= with_blanks
    if lines:
        blocks.append(f"GRAPH <{change.graph}> {{\n" + "\n".join(lines) + "\n}\n")


class New(NamedTuple):
    """A new graph that may be bulk-loaded, and its content."""

    graph: str
    content: GraphContent

    def nquads(self) -> bytes:
        """Write it as N-Quads: no literal holds the end of a line as it is."""
        return f"{self.content.text}\n".encode().replace(b" .\n", f" <{self.graph}> .\n".encode())


class Parted(NamedTuple):
    """Changes by how the engine takes them: those that may be bulk-loaded, without what else is known of them, and the others."""

    new: list[New]
    rest: list[Change]


def parted(changes: Iterable[Change]) -> Parted:
    """Part changes, in their order."""
    found = Parted([], [])
    for each in changes:
        if each.loadable and each.content:
            found.new.append(New(each.graph, each.content))
        else:
            found.rest.append(each)
    return found
