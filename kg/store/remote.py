"""A store in an engine elsewhere: SPARQL 1.1 Protocol to Oxigraph's server or Virtuoso. Implements ``kg.store.protocol.Store``.

This process keeps nothing, so any number of them may stand before one engine; what there is to know of a graph is in the engine too
(``kg.store.remote_books``). A write is three requests: claim, look, and one update with the content, the books and the end of the claim.
What an engine cannot do is a ``Capability`` that it lacks, with what happens instead; ``docs/remote-stores.md`` tells how to choose.
"""

from __future__ import annotations

import random
import tempfile
import threading
import time
import uuid
import weakref
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime

import msgspec
import structlog

from kg.errors import InvalidDocument, StoreUnavailable
from kg.rdf import digest, is_iri
from kg.settings import StoreSettings
from kg.sparql.dataset import choose
from kg.store import blanks, remote_querying
from kg.store import remote_books as books
from kg.store.delta import Change
from kg.store.lines import canonical
from kg.store.protocol import (
    Answer,
    Dataset,
    GraphEntry,
    GraphWrite,
    Lines,
    LogEntry,
    Row,
    StoredGraph,
    Visible,
    Written,
)
from kg.store.remote_connection import Connection, UpdateFailed
from kg.store.remote_engine import RESERVED, Capability, Engine
from kg.store.streaming import Stream
from kg.store.writer import check

_UNION = Dataset()
_ABANDONED = 60.0  # seconds without a sign of life until a claim is taken for abandoned
_PAGE = 1000  # graphs asked for at once
_CONTENTS = 100  # graphs whose statements are asked for at once
_SETTLING = 5.0  # seconds that a graph may be half written when it is read
_TOGETHER = 20  # operations in one request where a sequence is no transaction; Virtuoso compiles it as one program

log = structlog.get_logger(__name__)


def now() -> datetime:
    """Return the time in UTC."""
    return datetime.now(UTC)


@dataclass(slots=True)
class _Claim:
    """The right to write, held by this process; ``beat`` changes to show that it lives."""

    name: str
    state: books.State
    beat: int = 0
    ended: bool = False


class RemoteStore:
    """A store in the engine at ``url`` (``sparql+http://host:port``), which belongs to Drumlin alone.

    Raises ``InvalidSettings`` for an address that is none, ``StoreUnavailable`` when the engine does not answer. ``query_timeout``
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
        self._clock = clock
        self._query_timeout = query_timeout
        self._writing = threading.Lock()
        self._streams: weakref.WeakSet[Stream] = weakref.WeakSet()
        self._connection = Connection(url, settings or StoreSettings())
        try:
            found = self._state(())
            if found.pending and not found.claims:  # whoever wrote last did not come to an end
                with self._claimed(()):
                    pass
        except BaseException:
            self._connection.close()
            raise
        log.info("store_opened", engine=self.engine.name, host=self._connection.host, generation=found.generation)

    @property
    def engine(self) -> Engine:
        """Which engine it is, and what it lacks."""
        return self._connection.engine

    @property
    def place(self) -> str:
        """Where the store is, for messages."""
        return self._connection.host

    @property
    def generation(self) -> int:
        """How many effective writes there have been, by all processes."""
        return self._state(()).generation

    def made_under(self, base: str) -> str:
        """Return the base that the store was made under; a new one is made under ``base``."""
        if (found := self._state(()).base) is not None:
            return found
        with self._claimed(()) as claim:
            if claim.state.base is None:
                self._commit(claim, [books.based(base)])
            return claim.state.base or base

    # -- writing ------------------------------------------------------------------------------------------------------
    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write all or none, in order; see ``Store.apply``.

        When the engine does not say whether it has written, it is asked; ``StoreUnavailable`` says so when that fails too.
        """
        if len({each.graph for each in writes}) < len(writes):
            raise ValueError("the same graph occurs twice in one write")
        wanted = [self._wanted(each) for each in writes]
        with self._claimed([each.graph for each in writes]) as claim:
            changes, results = self._planned(wanted, claim.state)
            if changes:
                self._write(claim, changes)
        return results

    def _wanted(self, write: GraphWrite) -> tuple[GraphWrite, Lines | None, str | None]:
        if not is_iri(write.graph) or write.graph.startswith(RESERVED):
            raise InvalidDocument(f"{write.graph!r} cannot name a graph")
        if write.lines is None:
            return write, None, None
        lines = canonical(write.lines, write.graph)
        if any(map(blanks.holds_blank, lines)):
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
        changes: list[Change] = []
        results: list[Written] = []
        for write, lines, after in wanted:
            entry = state.entries.get(write.graph)
            check(write, entry)
            before = entry.digest if entry else None
            if before == after:
                results.append(Written(write.graph, "unchanged", after, state.generation))
                continue
            changes.append(Change(write.graph, write.owner, before, after, frozenset(), lines))
            results.append(Written(write.graph, changes[-1].outcome, after, state.generation + 1))
        return changes, results

    def _write(self, claim: _Claim, changes: list[Change]) -> None:
        generation, at = claim.state.generation + 1, self._clock()
        entries = [LogEntry(generation, each.graph, each.owner, each.before, each.after, at) for each in changes]
        old = self._contents([claim.state.entries[each.graph] for each in changes if each.before is not None])
        steps = list(self._steps(changes, old))
        steps += books.booked(claim.state.entries, entries, self.engine.statements)
        try:
            self._commit(claim, steps)
        except UpdateFailed as error:
            self._after_failure(claim, entries[0], error)

    def _steps(self, changes: list[Change], old: Mapping[str, Lines]) -> Iterator[str]:
        """Yield the operations on the content."""
        gone: list[tuple[str, list[str]]] = []
        come: list[tuple[str, list[str]]] = []
        for change in changes:
            before = self.engine.stored(old.get(change.graph, frozenset()))
            after = self.engine.stored(change.lines or frozenset())
            gone.append((change.graph, sorted(before - after)))
            come.append((change.graph, sorted(after - before)))
        yield from books.operations("DELETE", gone, self.engine.statements)
        if not self.engine.default_graph_is_union:
            yield from _union_without(line for _, lines in gone for line in lines)
            for change in changes:
                yield f"{'DROP' if change.lines is None else 'CREATE'} SILENT GRAPH <{change.graph}>"
            yield from _union_with(line for _, lines in come for line in lines)
        yield from books.operations("INSERT", come, self.engine.statements)

    def _after_failure(self, claim: _Claim, told: LogEntry, error: UpdateFailed) -> None:
        """Find out what became of an update that was not acknowledged; raise unless it was done."""
        try:
            if self._state(()).pending:
                self._redo(claim)
            elif self._log([told.generation]) == []:
                raise error
        except UpdateFailed:
            raise
        except StoreUnavailable as silence:
            raise StoreUnavailable(
                "the engine does not say whether it has written", hint="read again before writing anew"
            ) from silence
        claim.ended = True
        log.warning("write_found_done", generation=told.generation)

    # -- the claim ----------------------------------------------------------------------------------------------------
    @contextmanager
    def _claimed(self, graphs: Sequence[str]) -> Iterator[_Claim]:
        """Hold the right to write, with what is known of ``graphs``; see ``kg.store.remote_books``."""
        with self._writing:
            claim = self._claim(graphs)
            try:
                if claim.state.pending:
                    self._redo(claim)
                    claim.state = self._state(graphs)
                yield claim
            finally:
                if not claim.ended:
                    self._withdraw(claim)

    def _claim(self, graphs: Sequence[str]) -> _Claim:
        name = uuid.uuid4().hex
        seen: dict[str, float] = {}
        while True:
            claim = _Claim(name, books.State())
            self._connection.update(books.claim(name))
            try:
                claim.state = self._state(graphs)
            except BaseException:
                self._withdraw(claim)
                raise
            if not (others := claim.state.claims - {f"{name} 0"}):
                return claim
            self._withdraw(claim)
            self._wait(others, seen)

    def _wait(self, others: frozenset[str], seen: dict[str, float]) -> None:
        """Wait a little for other writers; take a claim that has long shown no sign of life for abandoned."""
        moment = time.monotonic()
        for said in others:
            if moment - seen.setdefault(said, moment) > _ABANDONED:
                log.warning("claim_abandoned", claim=said)
                self._connection.update(books.withdraw(said))
        time.sleep(random.uniform(0.005, 0.05))  # noqa: S311 - so that two do not meet again and again

    def _withdraw(self, claim: _Claim) -> None:
        try:
            self._connection.update(books.withdraw(f"{claim.name} {claim.beat}"))
        except StoreUnavailable as error:
            log.warning("claim_left_behind", detail=str(error), seconds=_ABANDONED)

    def _renew(self, claim: _Claim) -> None:
        self._connection.update(books.renew(claim.name, claim.beat))
        claim.beat += 1

    # -- a write's one update -----------------------------------------------------------------------------------------
    def _commit(self, claim: _Claim, steps: list[str]) -> None:
        """Run the operations of one write and end the claim: one transaction, or what can be done again after a crash."""
        fence, release = books.fence(claim.name), books.release(claim.name, claim.beat)
        if Capability.ISOLATION not in self.engine.lacks:
            self._connection.update(";\n".join([fence, *steps, release]))
        else:
            noted = [books.forgotten(), *books.written_down(steps)]
            self._run([fence, *noted, *steps, *books.struck_out(len(steps)), release])
        claim.ended = True

    def _redo(self, claim: _Claim) -> None:
        """Run the operations that a writer had written down and did not finish."""
        steps = books.steps(remote_querying.rows(self._connection, books.STEPS))
        self._run([*steps, *books.struck_out(len(steps))])
        log.warning("write_redone", operations=len(steps), claim=claim.name)

    def _run(self, operations: list[str]) -> None:
        """Run operations in order, as many in one request as fit."""
        for start in range(0, len(operations), _TOGETHER):
            self._connection.update(";\n".join(operations[start : start + _TOGETHER]))

    # -- reading ------------------------------------------------------------------------------------------------------
    def _state(self, graphs: Sequence[str]) -> books.State:
        found: list[books.Row] = []
        for start in range(0, max(len(graphs), 1), _PAGE):
            found += remote_querying.rows(self._connection, books.state_query(graphs[start : start + _PAGE]))
        return books.state(found)

    def read(self, graph: str) -> StoredGraph | None:
        """Return one graph, or None when it does not exist."""
        deadline = time.monotonic() + _SETTLING
        while True:
            entry, stored = books.graph(graph, remote_querying.rows(self._connection, books.graph_query(_name(graph))))
            if entry is None:
                return None
            lines = self._lines(stored, graph)
            if digest(lines) == entry.digest:
                return StoredGraph(entry, lines)
            if time.monotonic() > deadline:
                raise _altered(graph, self.engine)
            time.sleep(0.05)  # it is being written

    def _lines(self, stored: Lines, graph: str) -> Lines:
        return canonical(stored, graph) if Capability.EXACT_LITERALS in self.engine.lacks else stored

    def _contents(self, entries: Sequence[GraphEntry]) -> dict[str, Lines]:
        """Return the statements of several graphs; those that do not come out whole together are read one by one."""
        found: dict[str, Lines] = {}
        for start in range(0, len(entries), _CONTENTS):
            page = entries[start : start + _CONTENTS]
            stored: dict[str, set[str]] = {each.graph: set() for each in page}
            query = books.contents_query(each.graph for each in page)
            for graph, s, p, o in remote_querying.rows(self._connection, query):
                if o is not None:  # else it is being written, and read again below
                    stored[str(graph)[1:-1]].add(f"{s} {p} {o} .")
            for each in page:
                lines = self._lines(frozenset(stored[each.graph]), each.graph)
                if digest(lines) != each.digest:
                    again = self.read(each.graph)
                    if again is None or again.entry.digest != each.digest:
                        raise _altered(each.graph, self.engine)
                    lines = again.lines
                found[each.graph] = lines
        return found

    def entry(self, graph: str) -> GraphEntry | None:
        """Return what is recorded about one graph, without its content."""
        return self._state([_name(graph)]).entries.get(graph)

    def entries(
        self, *, owner: str | None = None, prefix: str = "", after: str = "", limit: int | None = None
    ) -> list[GraphEntry]:
        """List graphs in the order of their IRIs; see ``Store.entries``. The engine looks at all of them for each page."""
        found: list[GraphEntry] = []
        while limit is None or len(found) < limit:
            size = min(_PAGE, _PAGE if limit is None else limit - len(found))
            query = books.entries_query(owner, prefix, found[-1].graph if found else after, size)
            page = books.entries(remote_querying.rows(self._connection, query))
            found += page
            if len(page) < size:
                break
        return found

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

    def _log(self, generations: Sequence[int]) -> list[LogEntry]:
        return books.log(remote_querying.rows(self._connection, books.log_query(generations)))

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Run one of our own SELECTs over the union of all graphs; a variable in ``values`` is in every row too."""
        return remote_querying.look_up(self._connection, query, values or {})

    def answer(
        self,
        query: str,
        *,
        media_type: str,
        dataset: Dataset = _UNION,
        base: str | None = None,
        visible: Visible | None = None,
        timeout: float | None = None,
    ) -> Answer:
        """Run a caller's query; see ``Store.answer``. ``QueryRejected`` with reason ``timeout`` when the engine takes too long."""
        generation = self.generation
        chosen = choose(query, dataset, base, self._listed(visible))
        seconds = self._query_timeout if timeout is None else timeout
        stream = Stream(remote_querying.work(self._connection, chosen, media_type, base, seconds))
        self._streams.add(stream)
        return Answer(media_type, stream, generation)

    def _listed(self, visible: Visible | None) -> Visible | None:
        """List the graphs that a caller may see one by one: an engine knows no other way to see some of them."""
        if visible is None:
            return None
        found = set(visible.graphs)
        for prefix in visible.prefixes:
            found |= {each.graph for each in self.entries(prefix=prefix, limit=_PAGE + 1)}
        if len(found) > _PAGE:
            raise self.engine.lacking(
                Capability.VISIBILITY, f"must be told each graph that a caller may see; these are more than {_PAGE:,}"
            )
        return Visible(frozenset(found))

    def export(self) -> Iterator[tuple[str, Lines]]:
        """Yield all graphs of one generation, in the order of their IRIs.

        No engine gives a snapshot, so writers wait while everything is read into a temporary file here.
        """
        with tempfile.TemporaryFile(prefix="drumlin-export-") as kept:
            with self._claimed(()) as claim:
                after = ""
                while page := self.entries(after=after, limit=_CONTENTS):
                    for graph, lines in self._contents(page).items():
                        kept.write(msgspec.json.encode((graph, sorted(lines))) + b"\n")
                    after = page[-1].graph
                    self._renew(claim)
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


def _altered(graph: str, engine: Engine) -> StoreUnavailable:
    return StoreUnavailable(
        f"{graph} in {engine.name} is not what Drumlin has written there",
        hint="somebody else writes to this engine, or it answers fewer rows than it holds; write the graph again",
        detail={"graph": graph},
    )
