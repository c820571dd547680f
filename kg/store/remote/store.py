"""A store in an engine elsewhere: SPARQL 1.1 Protocol to Oxigraph's server or Virtuoso. Implements ``kg.store.protocol.Store``.

This process keeps nothing but a copy of the list of graphs (``kg.store.remote.catalogue_cache``), so any number of them may stand before
one engine; what there is to know of a graph is in the engine too (``kg.store.remote.bookkeeping_graph``). A write is three requests:
claim, look, and one update with the content, the books and the end of the claim. What an engine cannot do is a ``Capability`` that it
lacks, with what happens instead; ``docs/remote-stores.md`` says how to choose.
"""

from __future__ import annotations

import tempfile
import time
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from datetime import UTC, datetime
from itertools import groupby

import msgspec
import structlog

from drumlin.kg.config.datasources import StoreSettings
from drumlin.kg.errors import CapabilityMissing, InvalidDocument, StoreUnavailable, TooLarge
from drumlin.kg.observed_time import check_clock
from drumlin.kg.rdf.canonical import canonical
from drumlin.kg.rdf.syntax import Lines, digest, is_iri, text_of
from drumlin.kg.sparql.dataset import UNION, Dataset
from drumlin.kg.sparql.from_clauses import choose
from drumlin.kg.store import blank_nodes
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.delta import Change
from drumlin.kg.store.preconditions import check, leaves_as_it_is, prepared
from drumlin.kg.store.protocol import (
    EVERYTHING,
    Answer,
    GraphEntry,
    GraphWrite,
    LogEntry,
    Narrowed,
    Row,
    StoredGraph,
    Written,
)
from drumlin.kg.store.remote import bookkeeping_graph as books
from drumlin.kg.store.remote import querying
from drumlin.kg.store.remote.catalogue_cache import Entries
from drumlin.kg.store.remote.connection import EngineConnection, UpdateFailed
from drumlin.kg.store.remote.engine import RESERVED, Capability, RemoteEngine
from drumlin.kg.store.remote.write_lease import Claim, Claims
from drumlin.kg.store.streaming import ResultStream

_PAGE = 1000  # graphs asked for at once
_CONTENTS = 100  # graphs whose statements are asked for at once
_FEW, _LITTLE = 100, 5_000  # graphs and statements of a quick write
_SETTLING = 5.0  # seconds that a graph may be half written when it is read

log = structlog.get_logger(__name__)


def now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


class RemoteStore:
    """A store in the engine at ``url`` (``sparql+http://host:port``), which belongs to Drumlin alone.

    Raises ``InvalidSettings`` for an invalid address, ``StoreUnavailable`` when the engine does not answer. ``query_timeout``
    is in seconds.
    """

    def __init__(
        self,
        url: str,
        settings: StoreSettings | None = None,
        *,
        query_timeout: float = 30.0,
        clock: Callable[[], datetime] = now,
    ) -> None:
        check_clock(clock())
        self._clock = clock
        self._query_timeout = query_timeout
        self._streams: weakref.WeakSet[ResultStream] = weakref.WeakSet()
        self._connection = EngineConnection(url, settings or StoreSettings())
        self._claims = Claims(self._connection)
        self._entries = Entries(self._connection, self._claims, self._log)
        try:
            found = self._claims.state(())
            if found.pending and not found.claims:  # the last writer did not finish
                with self._claims.held(()):
                    pass
        except BaseException:
            self._connection.close()
            raise
        log.info("store_opened", engine=self.engine.name, host=self._connection.host, generation=found.generation)

    @property
    def engine(self) -> RemoteEngine:
        """Which engine it is, and what it lacks."""
        return self._connection.engine

    @property
    def place(self) -> str:
        """Where the store is, for messages."""
        return self._connection.host

    @property
    def generation(self) -> int:
        """How many effective writes there have been, by all processes."""
        return self._claims.state(()).generation

    @property
    def oldest(self) -> int:
        """The first generation that the log holds: nothing of it is given up."""
        return 1

    def made_under(self, base: str) -> str:
        """Return the base that the store was made under; a new one is made under ``base``."""
        if (found := self._claims.state(()).base) is not None:
            return found
        with self._claims.held(()) as claim:
            if claim.state.base is None:
                self._claims.commit(claim, [books.based(base)])
            return claim.state.base or base

    # -- writing ------------------------------------------------------------------------------------------------------
    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none, in order; see ``Store.apply``.

        When the engine does not say whether it has written, it is asked; ``StoreUnavailable`` says so when that fails too.
        """
        if len({each.graph for each in writes}) < len(writes):
            raise ValueError("the same graph occurs twice in one write")
        wanted = prepared(writes, self._wanted)
        quick = len(wanted) <= _FEW and sum(len(lines or ()) for _, lines, _ in wanted) <= _LITTLE
        with self._claims.held([each.graph for each in writes], quick=quick) as claim:
            changes, results = self._planned(wanted, claim.state)
            if changes:
                held = self._write(claim, changes)
                results = [msgspec.structs.replace(each, held=held.get(each.graph)) for each in results]
        return results

    def _wanted(self, write: GraphWrite) -> tuple[GraphWrite, Lines | None, str | None]:
        if not is_iri(write.graph) or write.graph.startswith(RESERVED):
            raise InvalidDocument(f"{write.graph!r} cannot name a graph")
        if (said := write.lines) is None:
            return write, None, None
        lines = canonical(said, write.graph)
        if any(map(blank_nodes.holds_blank, lines)):
            raise self.engine.lacking(Capability.BLANK_NODES, f"cannot keep the blank nodes of {write.graph}")
        if self.engine.rows is not None and len(lines) >= self.engine.rows:
            raise self.engine.lacking(
                Capability.UNLIMITED_ROWS, f"gives {self.engine.rows:,} rows at most; {write.graph} has {len(lines):,}"
            )
        self.engine.stored(lines)  # raises for what it cannot keep
        return write, lines, digest(lines)

    def _planned(
        self, wanted: list[tuple[GraphWrite, Lines | None, str | None]], state: books.State
    ) -> tuple[list[Change], list[Written]]:
        """Hold the writes against what there is: the changes to make, and what to answer once they are made."""
        check([write for write, _, _ in wanted], state.entries)
        changes: list[Change] = []
        results: list[Written] = []
        for write, lines, after in wanted:
            entry = state.entries.get(write.graph)
            before = entry.digest if entry else None
            if leaves_as_it_is(write, after, entry):
                results.append(Written(write.graph, "unchanged", after, state.generation))
                continue
            content = None if lines is None else GraphContent.of_canonical(lines)
            changes.append(Change(write.graph, write.owner, before, after, frozenset(), content))
            results.append(Written(write.graph, changes[-1].outcome, after, state.generation + 1))
        return changes, results

    def _write(self, claim: Claim, changes: list[Change]) -> Mapping[str, Lines]:
        """Write and return what the graphs held that were there before."""
        generation, at = claim.state.generation + 1, self._clock()
        check_clock(at)
        entries = [LogEntry(generation, each.graph, each.owner, each.before, each.after, at) for each in changes]
        old = self._held([claim.state.entries[each.graph] for each in changes if each.before is not None])
        steps = list(self._steps(changes, old))
        steps += books.booked(claim.state.entries, entries, self.engine.statements)
        try:
            self._claims.commit(claim, steps)
        except UpdateFailed as error:
            self._after_failure(claim, entries[0], error)
        return old

    def _steps(self, changes: list[Change], old: Mapping[str, Lines]) -> Iterator[str]:
        """Yield the operations on the content."""
        gone: list[tuple[str, list[str]]] = []
        come: list[tuple[str, list[str]]] = []
        for change in changes:
            before = self.engine.stored(old.get(change.graph, frozenset()))
            after = self.engine.stored(change.lines)
            gone.append((change.graph, sorted(before - after)))
            come.append((change.graph, sorted(after - before)))
        yield from books.operations("DELETE", gone, self.engine.statements)
        if not self.engine.default_graph_is_union:
            yield from _union_without(line for _, lines in gone for line in lines)
            for change in changes:
                yield f"{'DROP' if change.content is None else 'CREATE'} SILENT GRAPH <{change.graph}>"
            yield from _union_with(line for _, lines in come for line in lines)
        yield from books.operations("INSERT", come, self.engine.statements)

    def _after_failure(self, claim: Claim, told: LogEntry, error: UpdateFailed) -> None:
        """Find out what became of an update that was not acknowledged; raise unless it was done."""
        try:
            state = self._claims.state(())
            if state.pending and f"{claim.name} {claim.beat}" in state.claims:
                self._claims.redo(claim)
            elif told not in self._log([told.generation]):  # another writer's, if any: this one was passed over
                raise error
        except UpdateFailed:
            raise
        except StoreUnavailable as silence:
            raise StoreUnavailable(
                "the engine does not say whether it has written", hint="read again before writing anew"
            ) from silence
        claim.ended = True
        log.warning("write_found_done", generation=told.generation)

    # -- reading ------------------------------------------------------------------------------------------------------
    def read(self, graph: str) -> StoredGraph | None:
        """Return one graph, or None when it does not exist."""
        deadline = time.monotonic() + _SETTLING
        while True:
            entry, stored = books.graph(graph, querying.rows(self._connection, books.graph_query(_name(graph))))
            if entry is None:
                return None
            lines = self._lines(stored, graph)
            if digest(lines) == entry.digest:
                return StoredGraph(entry, GraphContent.of_text(text_of(lines), entry.digest))
            if time.monotonic() > deadline:
                raise _altered(graph, self.engine)
            time.sleep(0.05)  # it is being written

    def read_each(self, graphs: Sequence[str]) -> dict[str, StoredGraph]:
        """Return some graphs, by name; see ``Store.read_each``."""
        return {graph: found for graph in graphs if (found := self.read(graph)) is not None}

    def _lines(self, stored: Lines, graph: str) -> Lines:
        return canonical(stored, graph) if Capability.EXACT_LITERALS in self.engine.lacks else stored

    def _held(self, entries: Sequence[GraphEntry]) -> dict[str, Lines]:
        """Return what the engine holds in several graphs, whoever wrote it."""
        found: dict[str, Lines] = {}
        for start in range(0, len(entries), _CONTENTS):
            found |= self._held_together([each.graph for each in entries[start : start + _CONTENTS]])
        return found

    def _held_together(self, graphs: Sequence[str]) -> dict[str, Lines]:
        try:
            rows = querying.rows(self._connection, books.contents_query(graphs))
        except TooLarge:  # together they have more rows than the engine gives
            if len(graphs) == 1:
                raise
            half = len(graphs) // 2
            return self._held_together(graphs[:half]) | self._held_together(graphs[half:])
        stored: dict[str, set[str]] = {graph: set() for graph in graphs}
        for graph, s, p, o in rows:
            if o is not None:  # else gone while the engine looked
                stored[str(graph)[1:-1]].add(f"{s} {p} {o} .")
        return {graph: self._lines(frozenset(lines), graph) for graph, lines in stored.items()}

    def entry(self, graph: str) -> GraphEntry | None:
        """Return what is recorded about one graph, without its content."""
        return self._claims.state([_name(graph)]).entries.get(graph)

    def may_hold(self, prefix: str) -> bool:
        """Return that a graph's name may begin with ``prefix``: finding out takes as long as a look at the graph itself."""
        del prefix
        return True

    def entries(
        self, *, owner: str | None = None, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[GraphEntry]:
        """List graphs in the order of their IRIs; see ``Store.entries``."""
        return self._entries.listed(owner, prefix, after, limit)

    def log(self, since: int, limit: int = 1000) -> list[LogEntry]:
        """Return changes of generations greater than ``since``, oldest first, whole generations only."""
        last = self.generation
        found: list[LogEntry] = []
        while since < last and len(found) <= limit:
            until = min(since + _CONTENTS, last)
            found += self._log(range(since + 1, until + 1))
            since = until
        if len(found) <= limit:
            return found
        cut = found[limit].generation
        whole = [each for each in found if each.generation < cut]
        return whole or [each for each in found if each.generation == cut]

    def newest_changes(self, generation: int, place: int, limit: int) -> list[tuple[int, LogEntry]]:
        """Return the last changes before a place, the newest first, a few generations at a time."""
        found: list[tuple[int, LogEntry]] = []
        end = min(generation, self.generation) + 1
        while end > 1 and len(found) < limit:
            begin = max(1, end - _CONTENTS)
            entries = self._log(range(begin, end))
            for number, group in groupby(reversed(entries), key=lambda entry: entry.generation):
                placed = [(index, entry) for index, entry in enumerate(reversed(list(group)))]
                found += reversed([each for each in placed if (number, each[0]) < (generation, place)])
            end = begin
        return found[:limit]

    def read_at(self, graph: str, generation: int) -> StoredGraph | None:
        """Refuse: the engine keeps what graphs are."""
        raise self._without_past(f"what {graph} was after generation {generation:,}")

    def generation_at(self, moment: datetime) -> int:
        """Refuse: the engine keeps what graphs are."""
        raise self._without_past(f"what there was at {moment.isoformat()}")

    def changes_of(self, graph: str, before: int) -> Iterator[LogEntry]:
        """Yield the changes of one graph, the newest first: the whole log is read backwards."""
        end = min(before, self.generation + 1)
        while end > 1:
            begin = max(1, end - _CONTENTS)
            yield from (each for each in reversed(self._log(range(begin, end))) if each.graph == graph)
            end = begin

    def _without_past(self, asked: str) -> CapabilityMissing:
        return CapabilityMissing(
            f"{asked} is not known: {self.engine.name} keeps what graphs are, not what they were",
            hint="leave at away; the embedded store keeps the past of graphs as long as its change log reaches",
            detail={"capability": "PAST", "engine": self.engine.name},
        )

    def _log(self, generations: Sequence[int]) -> list[LogEntry]:
        return books.log(querying.rows(self._connection, books.log_query(generations)))

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run one of our own SELECTs over the union of all graphs; a variable in ``values`` is in every row too."""
        return querying.look_up(self._connection, query, values or {})

    def answer(
        self,
        query: str,
        *,
        media_type: str,
        dataset: Dataset = UNION,
        base: str | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Run a caller's query; see ``Store.answer``. ``QueryRejected`` with reason ``timeout`` when the engine takes too long."""
        generation = self.generation
        chosen = choose(query, dataset)
        seconds = self._query_timeout if timeout is None else timeout
        stream = ResultStream(querying.work(self._connection, chosen, media_type, base, seconds))
        self._streams.add(stream)
        return Answer(media_type, stream, generation)

    def export(self, narrowed: Narrowed = EVERYTHING) -> Iterator[tuple[str, Lines]]:
        """Yield the graphs of one generation that are wanted, in the order of their IRIs.

        No engine gives a snapshot, so writers wait while they are read into a temporary file here.
        """
        with tempfile.TemporaryFile(prefix="drumlin-export-") as kept:
            with self._claims.held(()) as claim:
                after = ""
                while page := self.entries(owner=narrowed.owner, prefix=narrowed.prefix, after=after, limit=_CONTENTS):
                    held = self._held(page)
                    for graph, expected in ((each.graph, each.digest) for each in page):
                        if digest(lines := held[graph]) != expected:
                            raise _altered(graph, self.engine)
                        if narrowed.states(graph, lines):
                            kept.write(msgspec.json.encode((graph, sorted(lines))) + b"\n")
                    after = page[-1].graph
                    self._claims.renew(claim)
            kept.seek(0)
            for each in kept:
                graph, told = msgspec.json.decode(each)
                yield graph, frozenset(told)

    def close(self) -> None:
        """Release the connections, ending the queries that run; acknowledged writes are in the engine already."""
        for stream in list(self._streams):
            stream.close()
        self._connection.close()


def _union_without(removed: Iterable[str]) -> Iterator[str]:
    """Yield the operation that takes statements, removed from named graphs, out of the engine's default graph.

    That graph is kept equal to the union of all named ones but ours, so that a query runs on one plain graph. A statement that is in
    another graph too stays.
    """
    if gone := "\n".join(f"({line[:-2]})" for line in removed):
        yield (
            f"DELETE {{ ?s ?p ?o }} WHERE {{ VALUES (?s ?p ?o) {{\n{gone}\n}} "
            "FILTER NOT EXISTS { GRAPH ?g { ?s ?p ?o } } }"
        )


def _union_with(added: Iterable[str]) -> Iterator[str]:
    if come := "\n".join(added):
        yield f"INSERT DATA {{\n{come}\n}}"


def _name(graph: str) -> str:
    """Return a graph's name where it is one; what is no IRI must not become part of a text."""
    if not is_iri(graph):
        raise InvalidDocument(f"{graph!r} is not an IRI that can name a graph")
    return graph


def _altered(graph: str, engine: RemoteEngine) -> StoreUnavailable:
    return StoreUnavailable(
        f"{graph} in {engine.name} is not what Drumlin has written there",
        hint="somebody else writes to this engine, or it answers fewer rows than it holds; remove the graph and write it again",
        detail={"graph": graph},
    )
