"""The store as its callers see it; ``embedded`` implements it here, ``remote`` over the SPARQL protocol.

A graph crosses this border as *lines*: the set of its canonical N-Triples statements (``kg.rdf`` makes and reads them).
Two graphs are equal exactly when their line sets are equal; the *digest* is a hash of the sorted lines.

Guarantees:

* **Atomic.** ``apply`` writes all of its graphs or none; a reader never sees half of one.
* **Durable.** When ``apply`` returns, the result survives the loss of the process.
* **Quiet.** A write that would leave a graph's lines as they are is not a write: no generation, no log entry.
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
from functools import cached_property
from typing import Literal, Protocol

import msgspec

from kg.rdf import lines_in
from kg.store.texts import Text

Lines = frozenset[str]
"""Canonical N-Triples statements of one graph: ``<s> <p> "o" .`` each, no line end, no blank node under ``{base}/id/``."""

Row = Mapping[str, str]
"""One solution of a trusted look-up: variable → IRI or lexical form; an unbound variable is absent."""


class Unconditional(Enum):
    """Sentinel for a write without a precondition."""

    ANY = "any"


ANY = Unconditional.ANY


class Known(msgspec.Struct, frozen=True, dict=True):
    """What ``graph`` shall hold, known to be valid and canonical, as a text without blank nodes, with its digest.

    The lines are made when they are asked for.
    """

    text: Text
    digest: str
    graph: str

    @cached_property
    def lines(self) -> Lines:
        """Its statements."""
        return lines_in(self.text.plain)


Content = Lines | Known
"""What a graph shall hold."""


def statements_of(content: Content) -> Lines:
    """Return the statements of a content."""
    return content.lines if isinstance(content, Known) else content


class GraphWrite(msgspec.Struct, frozen=True):
    """Make ``graph`` hold exactly ``content`` (``None``: remove it).

    ``expected`` is the digest the graph must have now (``None``: it must not exist), checked under the write lock;
    ``PreconditionFailed`` otherwise. ``owner`` is ``"user"`` or a source's name.
    """

    graph: str
    content: Content | None
    owner: str
    expected: str | Unconditional | None = ANY

    @property
    def lines(self) -> Lines | None:
        """The statements it shall hold."""
        return None if self.content is None else statements_of(self.content)


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
    """One graph of the store without its content. ``generation`` and ``changed`` (UTC) tell its last effective write."""

    graph: str
    digest: str
    owner: str
    generation: int
    changed: datetime


class StoredGraph(msgspec.Struct, frozen=True, dict=True):
    """One graph with its content, a text (``kg.rdf.text_of``) of which the lines are made when they are asked for."""

    entry: GraphEntry
    text: str

    @cached_property
    def lines(self) -> Lines:
        """Its statements."""
        return lines_in(self.text)

    def __contains__(self, line: object) -> bool:
        """Tell whether it has a statement, without taking it apart: no line ends within a literal."""
        return f"\n{line}\n" in f"\n{self.text}\n"


class LogEntry(msgspec.Struct, frozen=True):
    """One effective change of one graph. ``before``/``after`` are digests; None means the graph did not/does not exist."""

    generation: int
    graph: str
    owner: str
    before: str | None
    after: str | None
    at: datetime


@dataclass(frozen=True, slots=True)
class Dataset:
    """Which graphs a query reads: None leaves it to the query's FROM clauses, else to the union of all graphs."""

    default_graphs: tuple[str, ...] | None = None
    named_graphs: tuple[str, ...] | None = None


@dataclass(frozen=True, slots=True)
class Visible:
    """The graphs that a caller may read: those listed, and those whose IRI begins with one of ``prefixes``."""

    graphs: frozenset[str] = frozenset()
    prefixes: tuple[str, ...] = ()

    def sees(self, graph: str) -> bool:
        """Tell whether a graph is one of them."""
        return graph in self.graphs or graph.startswith(self.prefixes)


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
        """Tell whether a graph states one of each of ``facts``."""
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
        """The first generation that ``log`` still tells; one beyond ``generation`` when it tells none."""
        ...

    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none, in order; the results stand in the order of ``writes``.

        Raises ``GraphOwned``, ``PreconditionFailed``, ``StoreFull``, ``StoreUnavailable``; after a raise nothing was written, unless
        the error says that an engine elsewhere does not tell: then it is whole or not there.
        The same graph may occur once only (``ValueError`` otherwise).
        """
        ...

    def read(self, graph: str) -> StoredGraph | None:
        """Return one graph, or None when it does not exist."""
        ...

    def entry(self, graph: str) -> GraphEntry | None:
        """Return what is recorded about one graph, without its content."""
        ...

    def may_hold(self, prefix: str) -> bool:
        """Tell quickly whether the name of a graph may begin with ``prefix``: False when none does."""
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
        dataset: Dataset = Dataset(),
        base: str | None = None,
        visible: Visible | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Run a caller's query (the gate must have passed it) and serialise the result as ``media_type``.

        ``visible`` limits what any form of query can see (None: everything); ``timeout`` is in seconds (None: the store's own).
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

    def close(self) -> None:
        """Release the store; acknowledged writes are on disk already."""
        ...
