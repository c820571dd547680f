"""Subgraphs: reading and writing the graph of one entity, under every rule that a caller's write must keep.

What is decided here, for the REST API and the bulk route alike: a graph is validated before it is written, has one owner, is
deleted into a tombstone (which counts as absent unless it is asked for), and is written over only as the
caller expects it. Pure of HTTP.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from types import MappingProxyType

import msgspec

from drumlin.kg.errors import (
    AlreadyExists,
    Conflict,
    GraphOwned,
    PreconditionFailed,
    ResourceGone,
    ResourceNotFound,
)
from drumlin.kg.graphs import ingest
from drumlin.kg.graphs.ingest import Statements
from drumlin.kg.graphs.neighbourhood import Neighbourhood, Traversal, neighbourhood
from drumlin.kg.graphs.owners import HOSTING, USER, is_hosting
from drumlin.kg.model.iris import Iris
from drumlin.kg.parsers import HERE, Parsers
from drumlin.kg.rdf import jsonld, jsonld_loader
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.rdf.syntax import Lines, Syntax
from drumlin.kg.rdf.tombstones import is_tombstone, tombstone
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.protocol import (
    ANY,
    GraphEntry,
    GraphWrite,
    Store,
    StoredGraph,
    Unconditional,
    Written,
)

_PATCH_TRIES = 5


class EntityGraph(msgspec.Struct, frozen=True):
    """The graph of one entity as it is stored."""

    stored: StoredGraph
    tombstone: bool

    @property
    def iri(self) -> str:
        """The entity's IRI, which is its graph's."""
        return self.stored.entry.graph

    @property
    def digest(self) -> str:
        """What distinguishes this content from any other."""
        return self.stored.entry.digest

    @property
    def owner(self) -> str:
        """Who may write it."""
        return self.stored.entry.owner

    @property
    def text(self) -> str:
        """What it says, as one text (``kg.rdf.syntax.text_of``)."""
        return self.stored.text

    @property
    def lines(self) -> Lines:
        """What it says."""
        return self.stored.lines


class EntityGraphs:
    """CRUD of subgraphs over a store. ``clock`` gives the time when something was deleted (aware, UTC), ``parsers`` read documents."""

    def __init__(
        self,
        store: Store,
        iris: Iris,
        *,
        clock: Callable[[], datetime],
        max_bytes: int = jsonld_loader.MAX_BYTES,
        shipped: Mapping[str, NodeDocument] = MappingProxyType({}),
        parsers: Parsers = HERE,
    ) -> None:
        """``shipped`` are documents, by IRI, that Drumlin writes and a user may replace; deleting what replaced one restores it."""
        self._shipped = shipped
        self._store = store
        self._iris = iris
        self._clock = clock
        self._max_bytes = max_bytes
        self._parsers = parsers

    # -- reading ------------------------------------------------------------------------------------------------------
    def read(self, id: str, *, allow_gone: bool = False) -> EntityGraph:
        """Return the graph of an id or IRI; raises ``ResourceNotFound``, or ``ResourceGone`` for a tombstone."""
        iri = self._iris.full(id)
        stored = self._store.read(iri) if self._iris.knows(iri) else None
        if stored is None:
            self._iris.expand(id)  # what there is has a legal name
            raise ResourceNotFound(
                f"there is no {self._iris.short(iri)}", hint="list what there is: GET /subgraphs", detail={"id": iri}
            )
        gone = is_tombstone(stored, iri)
        if gone and not allow_gone:
            raise ResourceGone(f"{self._iris.short(iri)} was deleted; its tombstone remains", detail={"id": iri})
        return EntityGraph(stored, gone)

    def read_at(self, id: str, generation: int, *, allow_gone: bool = False) -> EntityGraph:
        """Return the graph of an id or IRI as it was after a generation; raises what ``read`` and ``Store.read_at`` raise."""
        iri = self._iris.expand(id)
        stored = self._store.read_at(iri, generation)
        if stored is None:
            raise ResourceNotFound(
                f"there was no {self._iris.short(iri)} at generation {generation:,}",
                hint="its changes say since when it is there: /changes?entity=…",
                detail={"id": iri, "generation": generation},
            )
        gone = is_tombstone(stored, iri)
        if gone and not allow_gone:
            raise ResourceGone(
                f"{self._iris.short(iri)} was deleted by generation {generation:,}; its tombstone remained",
                detail={"id": iri, "generation": generation},
            )
        return EntityGraph(stored, gone)

    def around(self, id: str, following: Traversal) -> Neighbourhood:
        """Return the graph of an id or IRI with those that it is linked to; raises what ``read`` raises."""
        live = self.read(id)
        stored = self._store.read(live.iri)
        if stored is None:  # removed since
            raise ResourceNotFound(f"there is no {self._iris.short(live.iri)}", detail={"id": live.iri})
        return neighbourhood(self._store, self._iris, stored, following)

    def live_entry(self, id: str) -> GraphEntry | None:
        """Return what is recorded about a graph that exists and is no tombstone."""
        stored = self._store.read(self._iris.expand(id))
        return stored.entry if stored and not is_tombstone(stored, stored.entry.graph) else None

    def exists(self, id: str) -> bool:
        """Return whether there is such a graph, tombstones included."""
        return self._store.entry(self._iris.expand(id)) is not None

    def has_notes(self, iri: str) -> bool:
        """Return whether there are live notes on the entity ``iri``, which is known to be one."""
        if not any(self._store.may_hold(f"{root}notes/") for root in self._iris.roots):
            return False
        notes = self._iris.notes(iri)
        return self._store.entry(notes) is not None and self.live_entry(notes) is not None

    # -- a caller's document ------------------------------------------------------------------------------------------
    def parse(self, data: bytes, syntax: Syntax, graph: str) -> Statements:
        """Read a document as what ``graph`` shall say; see ``kg.graphs.ingest.read``. Nothing is validated yet."""
        return ingest.read(data, syntax, graph, self._iris, max_bytes=self._max_bytes, parsers=self._parsers)

    # -- writing ------------------------------------------------------------------------------------------------------
    def put(
        self, id: str, said: Statements, *, owner: str = USER, expected: str | Unconditional | None = ANY
    ) -> Written:
        """Make the graph say exactly this. ``expected`` is the digest of the live graph, None when there must be none.

        Raises what ``validate`` raises, ``GraphOwned`` and ``PreconditionFailed``. Writing over a tombstone creates.
        """
        write, finish = self.putting(id, said, owner=owner, expected=expected)
        return finish(self._store.apply([write])[0])

    def putting(
        self, id: str, said: Statements | GraphContent, *, owner: str = USER, expected: str | Unconditional | None = ANY
    ) -> tuple[GraphWrite, Callable[[Written], Written]]:
        """Return the write that ``put`` makes, and what makes its outcome of the store's; a content was accepted for the graph."""
        return self.in_turn(self.prepare(id, said, owner=owner, expected=expected))

    def in_turn(self, write: GraphWrite) -> tuple[GraphWrite, Callable[[Written], Written]]:
        """Return a write as it is to be made now, and what makes its outcome: a tombstone counts as absent."""
        if write.expected is None and (gone := self._tombstone(write.graph)) is not None:
            write = _expecting(write, gone.entry.digest)
        return write, _told

    def patch(
        self,
        id: str,
        change: Callable[[EntityGraph], Statements],
        *,
        owner: str = USER,
        expected: str | Unconditional | None = ANY,
    ) -> Written:
        """Write what ``change`` makes of the graph as it is now; a write that comes between makes it look again.

        Raises what ``read`` and ``put`` raise; with ``expected`` given, ``PreconditionFailed`` at once.
        """
        for _ in range(_PATCH_TRIES):
            live = self.read(id)
            if expected is not ANY and expected != live.digest:
                break
            try:
                return self.put(live.iri, change(live), owner=owner, expected=live.digest)
            except PreconditionFailed:
                continue
        raise PreconditionFailed(
            f"{self._iris.short(live.iri)} has changed meanwhile", hint="read it again", detail={"digest": live.digest}
        )

    def create(self, id: str, said: Statements, *, owner: str = USER) -> Written:
        """Write a graph that must not exist (a tombstone does not count); raises ``AlreadyExists``."""
        iri = self._iris.expand(id)
        if (entry := self.live_entry(iri)) is not None:
            raise self._exists(iri, entry.digest)
        try:
            return self.put(iri, said, owner=owner, expected=None)
        except PreconditionFailed as error:  # somebody was faster
            raise self._exists(iri, error.detail["digest"]) from error

    def _exists(self, iri: str, digest: str) -> AlreadyExists:
        return AlreadyExists(
            f"{self._iris.short(iri)} exists already", hint="replace it with PUT", detail={"id": iri, "digest": digest}
        )

    def delete(self, id: str, *, expected: str | Unconditional | None = ANY) -> Written:
        """Turn a graph into its tombstone at once; a graph that states no class of an entity, such as notes, is removed.

        What replaced a shipped document is that document again.

        Raises ``ResourceNotFound``, ``ResourceGone`` when it is one, ``GraphOwned`` and ``PreconditionFailed``.
        """
        return self._store.apply([self.prepare_delete(id, expected=expected)])[0]

    def prepare(
        self, id: str, said: Statements | GraphContent, *, owner: str = USER, expected: str | Unconditional | None = ANY
    ) -> GraphWrite:
        """Return the write that makes the graph say this, validated, for ``apply``."""
        iri = self._iris.expand(id)
        content = said if isinstance(said, GraphContent) else ingest.accept(said, iri, self._iris)
        return GraphWrite(iri, content, owner, expected, self._shipper(iri) if owner == USER else None)

    def may_replace(self, iri: str) -> bool:
        """Return whether a user may replace a graph that is another's: a shipped one, as long as Drumlin itself owns it."""
        return self._shipper(iri) is not None

    def _shipper(self, iri: str) -> str | None:
        entry = self._store.entry(iri) if iri in self._shipped else None
        return entry.owner if entry is not None and is_hosting(entry.owner) else None

    def prepare_delete(self, id: str, *, owner: str = USER, expected: str | Unconditional | None = ANY) -> GraphWrite:
        """Return the write that ``delete`` makes, for ``apply``: it holds for the graph as it is now."""
        live = self.read(id)
        if self.may_replace(live.iri):
            raise Conflict(
                f"{self._iris.short(live.iri)} is as it is shipped: there is nothing to restore",
                hint="replace it with PUT",
            )
        if live.owner != owner:
            raise GraphOwned(live.iri, live.owner, owner)
        if live.iri in self._shipped:
            shipped = ingest.accept(Statements(jsonld.lines(self._shipped[live.iri])), live.iri, self._iris)
            return GraphWrite(live.iri, shipped, HOSTING, live.digest if expected is ANY else expected, owner)
        remains = tombstone(live.lines, live.iri, self._clock())
        content = None if remains is None else GraphContent.of_canonical(remains)
        return GraphWrite(live.iri, content, owner, live.digest if expected is ANY else expected)

    def apply(self, writes: Sequence[GraphWrite]) -> Sequence[Written]:
        """Write what was prepared, all or none; see ``Store.apply``."""
        return self._store.apply(writes)

    def _tombstone(self, iri: str) -> StoredGraph | None:
        stored = self._store.read(iri)
        return stored if stored and is_tombstone(stored, iri) else None


def _told(written: Written) -> Written:
    """Return the outcome of a write over a tombstone, which counts as absent."""
    if written.held is None or written.outcome != "replaced" or not is_tombstone(written.held, written.graph):
        return written
    return Written(written.graph, "created", written.digest, written.generation)


def _expecting(write: GraphWrite, expected: str) -> GraphWrite:
    return GraphWrite(write.graph, write.content, write.owner, expected, write.takes_from)
