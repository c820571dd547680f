"""Subgraphs: reading and writing the graph of one entity, under every rule that a caller's write must keep.

What is decided here, for the REST API and the bulk route alike: a graph is validated before it is written, has one owner, is
deleted into a tombstone (which counts as absent for everyone who does not ask for it), and is written over only as the
caller expects it. Pure of HTTP.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from datetime import datetime

import msgspec

from kg import documents, inlining, rdf
from kg.errors import (
    AlreadyExists,
    GraphOwned,
    InvalidDocument,
    InvalidInput,
    PreconditionFailed,
    ResourceGone,
    ResourceNotFound,
    TooLarge,
)
from kg.forms import Forms
from kg.iris import Iris
from kg.neighbourhood import Following, Neighbourhood, neighbourhood
from kg.rdf import JSONLD, NTRIPLES, Lines, Syntax, digest_of
from kg.store.lines import Canonical
from kg.store.protocol import (
    ANY,
    Content,
    GraphEntry,
    GraphWrite,
    Known,
    Store,
    StoredGraph,
    Unconditional,
    Written,
    statements_of,
)
from kg.store.texts import PlainText
from kg.tombstones import is_tombstone, tombstone
from kg.validation import validate

USER = "user"
_PATCH_TRIES = 5
_OWNER = re.compile(r"[^\x00-\x1f\x7f]{1,200}")


def check_owner(owner: str) -> None:
    """Raise ``InvalidInput`` when a name cannot be one of those who write graphs."""
    if not _OWNER.fullmatch(owner):
        raise InvalidInput(
            f"{owner[:64]!r} is no owner", hint="1 to 200 characters, and none of them a control character"
        )


class Subgraph(msgspec.Struct, frozen=True):
    """The graph of one entity as it is stored."""

    stored: StoredGraph
    tombstone: bool

    @property
    def iri(self) -> str:
        """The entity's IRI, which is its graph's."""
        return self.stored.entry.graph

    @property
    def digest(self) -> str:
        """What tells this content from any other."""
        return self.stored.entry.digest

    @property
    def owner(self) -> str:
        """Who may write it."""
        return self.stored.entry.owner

    @property
    def text(self) -> str:
        """What it says, as one text (``kg.rdf.text_of``)."""
        return self.stored.text

    @property
    def lines(self) -> Lines:
        """What it says."""
        return self.stored.lines


class Subgraphs:
    """CRUD of subgraphs over a store. ``clock`` tells when something was deleted (aware, UTC)."""

    def __init__(
        self, store: Store, iris: Iris, *, clock: Callable[[], datetime], max_bytes: int = inlining.MAX_BYTES
    ) -> None:
        self._store = store
        self._iris = iris
        self._clock = clock
        self._max_bytes = max_bytes
        self._forms = Forms(iris)

    # -- reading ------------------------------------------------------------------------------------------------------
    def read(self, id: str, *, allow_gone: bool = False) -> Subgraph:
        """Return the graph of an id or IRI; raises ``ResourceNotFound``, or ``ResourceGone`` for a tombstone."""
        iri = id if "://" in id else f"{self._iris.root}{id}"
        stored = self._store.read(iri) if iri.startswith(self._iris.root) else None
        if stored is None:
            self._iris.expand(id)  # what there is has a legal name
            raise ResourceNotFound(
                f"there is no {self._iris.short(iri)}", hint="list what there is: GET /subgraphs", detail={"id": iri}
            )
        gone = is_tombstone(stored, iri)
        if gone and not allow_gone:
            raise ResourceGone(f"{self._iris.short(iri)} was deleted; its tombstone remains", detail={"id": iri})
        return Subgraph(stored, gone)

    def around(self, id: str, following: Following) -> Neighbourhood:
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
        """Tell whether there is such a graph, tombstones included."""
        return self._store.entry(self._iris.expand(id)) is not None

    def has_notes(self, iri: str) -> bool:
        """Tell whether there are live notes on the entity ``iri``, which is known to be one."""
        if not self._store.may_hold(f"{self._iris.root}notes/"):
            return False
        notes = self._iris.notes(iri)
        return self._store.entry(notes) is not None and self.live_entry(notes) is not None

    # -- a caller's document ------------------------------------------------------------------------------------------
    def parse(self, data: bytes, syntax: Syntax, graph: str) -> Content:
        """Read a document as the content of ``graph``: triples, or quads of that graph and no other.

        Raises ``TooLarge`` and ``InvalidDocument``; nothing is validated yet, unless it is known to be valid (``Known``).
        """
        if len(data) > self._max_bytes:
            raise TooLarge(f"the document has {len(data):,} bytes; the limit is {self._max_bytes:,}")
        if syntax is NTRIPLES and (lines := documents.triples(data)) is not None:
            return lines
        if syntax is JSONLD:
            if (text := self._forms.text(data, graph)) is not None:
                return Known(PlainText(text), digest_of(text), graph)
            if (lines := documents.lines(data)) is not None:
                return lines
            data = inlining.inline(data, max_bytes=self._max_bytes)
        graphs = rdf.parse(data, syntax, base=graph)
        if other := next((name for name in graphs if name not in (None, graph)), None):
            raise InvalidDocument(
                f"the document has statements in the graph {other}; this one is {graph}",
                hint="send triples, or quads of that graph only",
            )
        return graphs.get(None, frozenset()) | graphs.get(graph, frozenset())

    # -- writing ------------------------------------------------------------------------------------------------------
    def put(
        self, id: str, content: Content, *, owner: str = USER, expected: str | Unconditional | None = ANY
    ) -> Written:
        """Make the graph hold exactly ``content``. ``expected`` is the digest of the live graph, None when there must be none.

        Raises what ``validate`` raises, ``GraphOwned`` and ``PreconditionFailed``. Writing over a tombstone creates.
        """
        write, finish = self.putting(id, content, owner=owner, expected=expected)
        return finish(self._store.apply([write])[0])

    def putting(
        self, id: str, content: Content, *, owner: str = USER, expected: str | Unconditional | None = ANY
    ) -> tuple[GraphWrite, Callable[[Written], Written]]:
        """Return the write that ``put`` makes, and what tells its outcome from the store's."""
        return self.in_turn(self.prepare(id, content, owner=owner, expected=expected))

    def in_turn(self, write: GraphWrite) -> tuple[GraphWrite, Callable[[Written], Written]]:
        """Return a write as it is to be made now, and what tells its outcome: a tombstone counts as absent."""
        if write.expected is None and (gone := self._tombstone(write.graph)) is not None:
            write = _expecting(write, gone.entry.digest)
        return write, _told

    def patch(
        self,
        id: str,
        change: Callable[[Subgraph], Content],
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

    def create(self, id: str, content: Content) -> Written:
        """Write a graph that must not exist (a tombstone does not count); raises ``AlreadyExists``."""
        iri = self._iris.expand(id)
        if (entry := self.live_entry(iri)) is not None:
            raise self._exists(iri, entry.digest)
        try:
            return self.put(iri, content, expected=None)
        except PreconditionFailed as error:  # somebody was faster
            raise self._exists(iri, error.detail["digest"]) from error

    def _exists(self, iri: str, digest: str) -> AlreadyExists:
        return AlreadyExists(
            f"{self._iris.short(iri)} exists already", hint="replace it with PUT", detail={"id": iri, "digest": digest}
        )

    def delete(self, id: str, *, expected: str | Unconditional | None = ANY) -> Written:
        """Turn a graph into its tombstone at once.

        Raises ``ResourceNotFound``, ``ResourceGone`` when it is one, ``GraphOwned`` and ``PreconditionFailed``.
        """
        return self._store.apply([self.prepare_delete(id, expected=expected)])[0]

    def prepare(
        self, id: str, content: Content, *, owner: str = USER, expected: str | Unconditional | None = ANY
    ) -> GraphWrite:
        """Return the write that puts ``content``, validated, for ``apply``."""
        iri = self._iris.expand(id)
        if not isinstance(content, Known) or content.graph != iri:
            lines = statements_of(content)
            validate(lines, iri, self._iris)
            if isinstance(lines, Canonical) and (source := lines.take_source()):
                self._forms.learn(source, iri, lines)
        return GraphWrite(iri, content, owner, expected)

    def prepare_delete(self, id: str, *, owner: str = USER, expected: str | Unconditional | None = ANY) -> GraphWrite:
        """Return the write that leaves a tombstone, for ``apply``: it holds for the graph as it is now."""
        live = self.read(id)
        if live.owner != owner:
            raise GraphOwned(live.iri, live.owner, owner)
        remains = tombstone(live.lines, live.iri, self._clock())
        return GraphWrite(live.iri, remains, owner, live.digest if expected is ANY else expected)

    def apply(self, writes: Sequence[GraphWrite]) -> Sequence[Written]:
        """Write what was prepared, all or none; see ``Store.apply``."""
        return self._store.apply(writes)

    def _tombstone(self, iri: str) -> StoredGraph | None:
        stored = self._store.read(iri)
        return stored if stored and is_tombstone(stored, iri) else None


def _told(written: Written) -> Written:
    """Tell of a write over a tombstone, which counts as absent."""
    if written.held is None or written.outcome != "replaced" or not is_tombstone(written.held, written.graph):
        return written
    return Written(written.graph, "created", written.digest, written.generation)


def _expecting(write: GraphWrite, expected: str) -> GraphWrite:
    return GraphWrite(write.graph, write.content, write.owner, expected)
