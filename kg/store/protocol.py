"""The store as its callers see it; ``embedded`` implements it here, ``remote`` over the SPARQL protocol.

A graph crosses this border as its *content* (``kg.store.content``): its canonical N-Triples statements in order, with their *digest*.
Two graphs are equal exactly when their digests are.

Guarantees:

* **Atomic.** ``apply`` writes all of its graphs or none; a reader never sees half of one.
* **Durable.** When ``apply`` returns, the result survives the loss of the process.
* **Quiet.** A write that would leave a graph's lines as they are is not a write: no generation, no log entry. Taking over what a peer
  gave is one (``kg.store.preconditions``).
* **Serial.** Writes have one total order, the *generation* (0 for an empty store, + 1 per effective ``apply``). Writes that are asked for
  at the same time may become visible together; each has a generation of its own even so.
* **Owned.** Each graph has one owner, recorded with it; a write by another raises ``GraphOwned``.
* **Logged.** Every effective change of a graph has exactly one ``LogEntry``, in order, kept across restarts; the log may be given up from
  its beginning (``oldest``), never in its middle.
* **Read your writes.** Every read sees all writes acknowledged before it began.

All methods block and may be called from any thread.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from enum import Enum
from typing import Literal, Protocol, Self

import msgspec

from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.sparql.dataset import UNION, Dataset
from drumlin.kg.store.content import GraphContent

Row = Mapping[str, str]
"""One solution of a trusted look-up: variable → IRI or lexical form; an unbound variable is absent."""


class Unconditional(Enum):
    """Sentinel for a write without a precondition."""

    ANY = "any"


ANY = Unconditional.ANY


class GraphWrite(msgspec.Struct, frozen=True):
    """Make ``graph`` hold exactly ``content`` (``None``: remove it).

    ``expected`` is the digest the graph must have now (``None``: it must not exist), checked under the write lock;
    ``PreconditionFailed`` otherwise. ``owner`` is ``"user"`` or a source's name; ``takes_from`` is an owner whose graph it may take over.
    """

    graph: str
    content: GraphContent | None
    owner: str
    expected: str | Unconditional | None = ANY
    takes_from: str | None = None

    @classmethod
    def of(cls, graph: str, lines: Lines | None, owner: str, expected: str | Unconditional | None = ANY) -> Self:
        """Make a write of statements; raises ``InvalidDocument`` for one that cannot be stored."""
        return cls(graph, None if lines is None else GraphContent.of(lines, graph), owner, expected)

    @property
    def lines(self) -> Lines | None:
        """The statements it shall hold."""
        return None if self.content is None else self.content.lines

    @property
    def digest(self) -> str | None:
        """The digest that the graph shall have, None for a removal."""
        return None if self.content is None else self.content.digest


class Written(msgspec.Struct, frozen=True):
    """What became of one ``GraphWrite``.

    ``digest`` is None when the graph does not exist afterwards; ``held`` is what a graph held that was replaced, else None.
    """

    graph: str
    outcome: Literal["created", "replaced", "unchanged", "removed"]
    digest: str | None
    generation: int
    held: Lines | None = None


class GraphEntry(msgspec.Struct, frozen=True):
    """One graph of the store without its content. ``generation`` and ``changed`` (UTC) are those of its last effective write."""

    graph: str
    digest: str
    owner: str
    generation: int
    changed: datetime


class StoredGraph(msgspec.Struct, frozen=True):
    """One graph with its content."""

    entry: GraphEntry
    content: GraphContent

    @property
    def text(self) -> str:
        """Its statements as one text."""
        return self.content.text

    @property
    def lines(self) -> Lines:
        """Its statements."""
        return self.content.lines

    def __contains__(self, line: object) -> bool:
        """Return whether it has a statement."""
        return line in self.content


class LogEntry(msgspec.Struct, frozen=True):
    """One effective change of one graph. ``before``/``after`` are digests; None means the graph did not/does not exist."""

    generation: int
    graph: str
    owner: str
    before: str | None
    after: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Answer:
    """A serialised query result. ``chunks`` is read once, in order; ``generation`` is the state it saw."""

    media_type: str
    chunks: Iterator[bytes]
    generation: int


@dataclass(frozen=True, slots=True)
class Narrowed:
    """Which graphs an export is of: those of ``owner`` whose IRI starts with ``prefix``, and which state one of each of ``facts``.

    A fact is a predicate's IRI and an object as N-Triples has it, about the graph's own name.
    """

    owner: str | None = None
    prefix: str = ""
    facts: tuple[frozenset[tuple[str, str]], ...] = ()

    def states(self, graph: str, lines: Lines) -> bool:
        """Return whether a graph states one of each of ``facts``."""
        return not any(lines.isdisjoint(f"<{graph}> <{name}> {value} ." for name, value in each) for each in self.facts)


EVERYTHING = Narrowed()


class Store(Protocol):
    """A dataset of owned, digested, logged graphs. See the module for what is guaranteed."""

    @property
    def generation(self) -> int:
        """How many effective writes there have been."""
        ...

    @property
    def oldest(self) -> int:
        """The first generation that ``log`` still holds; one beyond ``generation`` when it holds none."""
        ...

    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none, in order; the results stand in the order of ``writes``.

        Raises ``GraphOwned``, ``PreconditionFailed``, ``StoreFull``, ``StoreUnavailable``; after a raise nothing was written, unless
        the error says that an engine elsewhere does not tell: then it is whole or not there. The first refusal is raised; its
        ``refusals`` has that of each write.
        The same graph may occur once only (``ValueError`` otherwise).
        """
        ...

    def read(self, graph: str) -> StoredGraph | None:
        """Return one graph, or None when it does not exist."""
        ...

    def read_each(self, graphs: Sequence[str]) -> dict[str, StoredGraph]:
        """Return some graphs, a thousand or so, by name; those that do not exist are absent."""
        ...

    def entry(self, graph: str) -> GraphEntry | None:
        """Return what is recorded about one graph, without its content."""
        ...

    def may_hold(self, prefix: str) -> bool:
        """Return quickly whether the name of a graph may begin with ``prefix``: False when none does."""
        ...

    def entries(
        self, *, owner: str | None = None, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[GraphEntry]:
        """List graphs in the order of their IRIs: those of ``owner``, starting with ``prefix``, greater than ``after``."""
        ...

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run one of our own bounded SELECTs over the union of all graphs.

        ``values`` binds variables to IRIs, as terms and never as text. Never give it a caller's text.
        """
        ...

    def answer(
        self,
        query: str,
        *,
        media_type: str,
        dataset: Dataset = UNION,
        base: str | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Run a caller's query (the gate must have passed it) and serialise the result as ``media_type``.

        ``timeout`` is in seconds (None: the store's own).
        Raises ``QueryRejected`` with the position of a syntax error, ``UnsupportedSyntax`` when the query's form cannot
        be written in ``media_type``.
        """
        ...

    def export(self, narrowed: Narrowed = EVERYTHING) -> Iterator[tuple[str, Lines]]:
        """Yield the graphs of one generation that are wanted, in the order of their IRIs."""
        ...

    def log(self, since: int, limit: int = 1000) -> list[LogEntry]:
        """Return changes of generations greater than ``since``, oldest first, whole generations only.

        Raises ``EventsGone`` when some of them are older than ``oldest``.
        """
        ...

    def newest_changes(self, generation: int, place: int, limit: int) -> list[tuple[int, LogEntry]]:
        """Return the last changes before the one at ``place`` of ``generation``, the newest first, each with its own place.

        Changes of a generation stand in the order of their graphs, from place 0 on. Those that the log holds no more are left out.
        """
        ...

    def read_at(self, graph: str, generation: int) -> StoredGraph | None:
        """Return what one graph was after a generation, None when it was not there.

        The entry has that generation and when it was written. Raises ``EventsGone`` when the log does not reach so far back,
        ``InvalidInput`` for a generation that is not written yet, ``CapabilityMissing`` where contents of the past are not kept.
        """
        ...

    def generation_at(self, moment: datetime) -> int:
        """Return the newest generation that was written at ``moment`` (aware) or before it; raises what ``read_at`` does."""
        ...

    def changes_of(self, graph: str, before: int) -> Iterator[LogEntry]:
        """Yield the changes of one graph in generations below ``before``, the newest first, as far as the log has them."""
        ...

    def close(self) -> None:
        """Release the store; acknowledged writes are on disk already."""
        ...
