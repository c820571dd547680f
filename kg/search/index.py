"""The search index: what entities are found and counted by, derived from the change log. SQLite with FTS5, beside the store.

SQLite because it is there, kept well and reads millions of rows a second; its full-text index answers "all of these words" by merging
sorted lists. A filter is a word too (a private character and a hash), so text and filters are one such merge. Nothing here is the truth:
``position`` says up to which generation the log has been taken in, catching up is all there is to writing, and an index that
does not belong to the store (another history, another format, damaged at the start or later) is made anew. A log that does not reach back
to ``position`` any more is not needed for that: what is there is listed and read.
"""

from __future__ import annotations

import sqlite3
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import islice
from pathlib import Path
from typing import NamedTuple

import msgspec
import structlog

from drumlin.kg.errors import EventsGone, StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.search.facets import FIELDS, LIVE, Facets
from drumlin.kg.search.indexer import CHUNK, Intake, mark_of, row_of
from drumlin.kg.search.schema import Tables, is_damage, kept_once, unpacked
from drumlin.kg.store.protocol import GraphEntry, Store

LISTED = 2_000
"""Graphs taken in with one transaction when all are listed."""

log = structlog.get_logger()


class Known(NamedTuple):
    """What the feed reports of an entity: its values, and the digest of its tombstone when it is one."""

    facets: Facets
    tombstone: str | None


class Index:
    """The tables of one store's index, and in memory what is counted. ``catch_up`` brings it to the store's generation.

    ``lines_of`` returns what a digest stands for, as long as somebody keeps it: then a graph is not read from the store.
    """

    def __init__(self, store: Store, iris: Iris, path: Path | None) -> None:
        """Open the index in ``path``, made when absent; None means a temporary one that is removed on ``close``."""
        self.lines_of: Callable[[str], Lines | None] = lambda _: None
        self._store = store
        self._iris = iris
        self._tables = Tables(path)
        self.facets: dict[int, Facets] = {}
        self.counts: list[Counter[str]] = []
        self.live = 0
        self.position = 0
        self._whole = threading.Event()
        self._whole.set()
        self._closing = False
        try:
            self._open()
        except sqlite3.DatabaseError as error:
            self._open_another(error)

    def _open(self) -> None:
        position, mark = self._tables.open()
        if position > self._store.generation or mark != self._mark(position):
            raise sqlite3.DatabaseError("it is not of this store")
        if position and not self._agrees(position):
            raise sqlite3.DatabaseError("it does not hold what the store held at its generation")
        self._tables.order()
        self.position = position
        self._count_anew()

    def _open_another(self, error: sqlite3.Error) -> None:
        log.warning("search_index_discarded", reason=str(error))
        self._tables.discard()
        self.position = 0
        self._open()

    def _count_anew(self) -> None:
        self.facets, self.counts, self.live = {}, [Counter() for _ in FIELDS], 0
        try:
            for row, facets, words_ in self._tables.all_facets():
                self._count(row, unpacked(facets), live=LIVE in words_)
        except msgspec.DecodeError as error:
            raise sqlite3.DatabaseError("a row of it is damaged") from error

    def _mark(self, position: int) -> str:
        """Return what distinguishes this history from another one with as many generations."""
        if position < self._store.oldest:
            return ""
        entries = self._store.log(position - 1, 1)
        return mark_of(entries[0]) if entries else ""

    def _agrees(self, position: int) -> bool:
        """Compare its rows with what is recorded of graphs, but for those that changed after ``position``: 0.15 s for 30,000."""
        changed: set[str] = set()
        since = position
        while entries := self._store.log(since, LISTED):
            changed.update(each.graph for each in entries)
            since = entries[-1].generation
        recorded = (
            hash((each.graph, each.digest))
            for root in self._iris.roots
            for each in self._store.entries(prefix=root)
            if each.graph not in changed
        )
        held = (
            hash((self._iris.full(id), digest))
            for id, digest in self._tables.digests()
            if self._iris.full(id) not in changed
        )
        return sum(recorded) == sum(held)

    @contextmanager
    def reading(self) -> Iterator[sqlite3.Connection]:
        """Have a connection to read with; raises ``StoreUnavailable`` when the disk fails.

        What is damaged is made anew, in the background: it is not there yet when the error is raised, but ``listing`` is.
        """
        file = self._tables.file
        try:
            with self._tables.reading() as connection:
                yield connection
        except sqlite3.Error as error:
            if is_damage(error):
                self._make_anew(file, error)
            raise StoreUnavailable(
                f"the search index cannot be read: {error}", hint="it is made anew when it is damaged: ask again"
            ) from error

    def _make_anew(self, file: int, error: sqlite3.Error) -> None:
        """Begin another file, unless somebody has done so since there were ``file`` of them, and list everything into it."""
        with self._tables.lock:
            if file != self._tables.file:
                return
            self._open_another(error)
            self._whole.clear()
        threading.Thread(target=self._list_alone, name="index", daemon=True).start()

    @property
    def listing(self) -> bool:
        """True while everything is listed anew: what is found meanwhile is only a part."""
        return not self._whole.is_set()

    @property
    def partial(self) -> bool:
        """True while what is found is only a part of what is stored, also before it begins to be listed."""
        return self.listing or (self.position == 0 and self._store.generation > 0)

    def wait_listed(self, seconds: float) -> None:
        """Wait until a listing that is under way has ended, ``seconds`` at most."""
        self._whole.wait(seconds)

    # -- catching up --------------------------------------------------------------------------------------------------
    def catch_up(self, changes: int | None = None) -> int:
        """Take in what the log has now beyond ``position``, at most about ``changes``; returns the new position.

        What is written meanwhile is left to the next time, or a question beside many writes would not end. Raises ``StoreUnavailable``
        when the disk does. An index that begins, or that the log does not reach any more, is listed anew: in one go, by one thread, while
        the others go on with what there is.
        """
        taken, until = 0, self._store.generation
        while self.position < until and (changes is None or taken < changes) and not self.listing:
            if not (step := self._step_in_turn(until)):
                break
            taken += step
        return self.position

    def _step_in_turn(self, until: int) -> int:
        """Take a step, one thread at a time; none when another one has come as far or begins to list meanwhile, or everything ends."""
        while not self._tables.lock.acquire(timeout=0.1):
            if self.listing:
                return 0
        file = self._tables.file
        try:
            return 0 if self._closing or self.position >= until else self._step()
        except sqlite3.Error as error:
            damage = error
        finally:
            self._tables.lock.release()
        self._make_anew(file, damage)
        return 0

    def _step(self) -> int:
        if not self.position:
            return self._list_anew()
        try:
            entries = self._store.log(self.position, CHUNK)
        except EventsGone:
            return self._list_anew()
        taken = Intake(self._tables, self._iris, self.lines_of, self._store.read).take_in(entries, self._store.oldest)
        for row, facets, live in taken.told:
            self._uncount(row)
            self._count(row, tuple(map(kept_once, facets)), live=live)
        self.position = taken.position
        return taken.changes

    def _list_alone(self) -> None:
        """Take a listing's turn, as a thread of its own that another one waits for."""
        try:
            with self._tables.lock:
                if not self._closing and not self.position:
                    self._list_anew()
        except Exception:  # the edge of the thread
            log.exception("search_index_not_listed")  # the next question, or the feed, begins again
        finally:
            self._whole.set()

    def _list_anew(self) -> int:
        """Take in what the store holds instead of what the log holds; returns how many graphs. What is gone is forgotten.

        Rows come in the order of their ids, and what orders and finds them is made when all are there: much faster than one by one.
        """
        position = self._store.generation
        mark = self._mark(position)  # of the log as it is now: what changes meanwhile is taken in after it
        self._whole.clear()
        try:
            with self._tables.transaction():
                self._tables.clear()
            self._count_anew()
            rows = 0
            held = self._held()
            while not self._closing and (chunk := list(islice(held, LISTED))):
                self._list(chunk)
                rows += len(chunk)
            if self._closing:
                return 0
            with self._tables.transaction():
                self._tables.order(find=True)
                self._tables.stand(position, mark)
            self.position = position
        finally:
            self._whole.set()
        log.info("search_index_listed_anew", graphs=rows, generation=position)
        return rows + 1

    def _held(self) -> Iterator[tuple[GraphEntry, Lines]]:
        """Yield the entities' graphs with what is recorded about them, in order; what differs between the two is in the log, too."""
        recorded = self._recorded()
        entry = next(recorded, None)
        for graph, lines in self._store.export():
            while entry is not None and entry.graph < graph:
                entry = next(recorded, None)
            if entry is None:
                return
            if entry.graph == graph:
                yield entry, lines

    def _recorded(self) -> Iterator[GraphEntry]:
        for root in sorted(self._iris.roots):
            after = ""
            while page := self._store.entries(prefix=root, after=after, limit=LISTED):
                yield from page
                after = page[-1].graph

    def _list(self, chunk: Sequence[tuple[GraphEntry, Lines]]) -> None:
        rows = [row_of(self._iris, entry, lines) for entry, lines in chunk]
        with self._tables.transaction():
            placed = self._tables.place([row for row, _ in rows])
        for row, (_, facets) in zip(placed, rows, strict=True):
            self._count(row.row, facets, live=not row.tombstone)

    def _count(self, row: int, facets: Facets, *, live: bool) -> None:
        if not facets:
            return
        self.facets[row] = facets if live else (*facets, ())  # one more than FIELDS marks what is not counted
        if live:
            self.live += 1
            for counter, values in zip(self.counts, facets, strict=True):
                for value in values:
                    counter[value] += 1

    def _uncount(self, row: int) -> None:
        facets = self.facets.pop(row, None)
        if facets is not None and len(facets) == len(FIELDS):
            self.live -= 1
            for counter, values in zip(self.counts, facets, strict=True):
                counter.subtract(values)

    def iri(self, id: str) -> str:
        """Return the IRI of an entity of the index."""
        return self._iris.full(id)

    # -- one entity ---------------------------------------------------------------------------------------------------
    def known(self, graphs: Sequence[str]) -> Mapping[str, Known]:
        """Return what is known of entities by IRI, those that are gone among them; raises ``StoreUnavailable``."""
        ids = [self._iris.short(each) for each in graphs if self._iris.knows(each)]
        with self.reading() as connection:
            rows = self._tables.told(ids, connection)
        return {
            self._iris.full(id): Known(unpacked(facets), digest if tombstone else None)
            for id, facets, digest, tombstone in rows
        }

    def close(self) -> None:
        """Close every connection; a listing that is under way ends."""
        self._closing = True
        with self._tables.lock:
            self._tables.close()
