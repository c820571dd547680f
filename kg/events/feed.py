"""The change feed: the committed changes of the store, in order, each once, from any place that is still in the log.

The log is the truth, so a reader who names the last event it has seen misses nothing and gets nothing twice, whatever happened in
between. One thread follows the store for all: it brings the search index up to date, keeps the newest events ready in memory, and rings.
A reader pulls at its own pace; one that is far behind reads from the log, so nothing is ever buffered for a reader.

An event's id is ``generation.place``: the place among the changes of one generation, which have one order too.
"""

from __future__ import annotations

import re
import threading
import time
from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import datetime
from functools import lru_cache
from itertools import groupby
from typing import NamedTuple

import msgspec
import structlog

from drumlin.kg.errors import EventsGone, InvalidInput
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import Lines
from drumlin.kg.search.facets import FIELDS, Facets
from drumlin.kg.search.index import Index, Known
from drumlin.kg.store.protocol import LogEntry, Store
from drumlin.kg.threads import ServiceThread, call_safely
from drumlin.ontology.vocabulary import WORKLOAD_KINDS

KEPT = 4_096
"""Newest events kept in memory."""
PAUSE = 0.02
"""Seconds between two looks at the store while it changes; with many readers more (``PER_READER`` each)."""
PER_READER = 0.005
UNREAD = 0.2
"""The same while nobody reads: more changes in one transaction of the index; a search brings it up to date first."""
ASIDE = 2.0
"""Seconds that indexing is deferred during bulk writes while there are no subscribers; a search brings it up to date."""
MAX_QUADS = 1_000
"""Quads of one event."""
_SMALL = 4096  # bytes of an event with quads that is kept as long as the event
_IDLE = 1.0
_END = 1 << 62
_PAGE = 1_000
_ID = re.compile(r"([0-9]{1,18})(?:\.([0-9]{1,18}))?")

LinesOf = Callable[[str], Lines | None]
"""Returns the lines of a digest, as long as they are kept."""

log = structlog.get_logger()


class Position(NamedTuple):
    """Where a reader is: after the change number ``place`` of ``generation``."""

    generation: int
    place: int = _END

    def __str__(self) -> str:
        return str(self.generation) if self.place == _END else f"{self.generation}.{self.place}"

    @property
    def since(self) -> int:
        """The generation whose successors the log, which holds whole ones, is asked for."""
        return self.generation - (self.place != _END)

    @classmethod
    def read(cls, text: str) -> Position:
        """Read an event's id, or a generation (after all of it); raises ``InvalidInput``."""
        match = _ID.fullmatch(text.strip())
        if match is None:
            raise InvalidInput(
                f"{text[:64]!r} is not the id of an event", hint="take it from the last one, or name a generation"
            )
        return cls(int(match[1]), int(match[2]) if match[2] else _END)


@dataclass(slots=True, eq=False)
class Event:
    """One change of one graph, and what its entity is filtered by (as far as the index knows it). Each form is written once for all."""

    position: Position
    entry: LogEntry
    facets: Facets | None
    content: bytes
    lines_of: LinesOf
    _with_quads: bytes = b""

    @property
    def with_quads(self) -> bytes:
        """``content`` with the N-Quads that the change ``removed`` and ``added``, or why they are ``leftOut`` of its data."""
        if self._with_quads:
            return self._with_quads
        told = msgspec.json.encode(self._quads())
        made = self.content.removesuffix(b"}}") + b"," + told.removeprefix(b"{") + b"}"
        if len(made) <= _SMALL:
            self._with_quads = made
        return made

    def _quads(self) -> dict[str, list[str] | str]:
        entry = self.entry
        before, after = (frozenset() if each is None else self.lines_of(each) for each in (entry.before, entry.after))
        if before is None or after is None:
            return {"leftOut": "what the graph held is not kept any more: read it"}
        removed, added = sorted(before - after), sorted(after - before)
        if len(removed) + len(added) > MAX_QUADS:
            return {
                "leftOut": f"{len(removed):,} removed and {len(added):,} added quads, more than {MAX_QUADS:,}: read the graph"
            }
        name = f" <{entry.graph}> ."
        return {"removed": [each[:-2] + name for each in removed], "added": [each[:-2] + name for each in added]}

    def value(self, field: str) -> tuple[str, ...]:
        """Return the values of a facet; of a foreign graph nothing is known."""
        return self.facets[FIELDS.index(field)] if self.facets else ()


@dataclass(frozen=True, slots=True)
class EventFilter:
    """Which events a reader wants: those that have one of the values of each field that is named; ``quads``: with what they changed."""

    type: frozenset[str] = frozenset()
    domain: frozenset[str] = frozenset()
    namespace: frozenset[str] = frozenset()
    owner: frozenset[str] = frozenset()
    quads: bool = False

    def form(self, event: Event) -> bytes:
        """Return an event as JSON in the form that is wanted."""
        return event.with_quads if self.quads else event.content

    def takes(self, event: Event) -> bool:
        """Return whether an event is wanted."""
        if self.owner and event.entry.owner not in self.owner:
            return False
        types = WORKLOAD_KINDS | self.type if "Workload" in self.type else self.type
        asked = (("type", types), ("domain", self.domain), ("namespace", self.namespace))
        return all(not values or values.intersection(event.value(name)) for name, values in asked)


class ChangeFeed:
    """Follows one store. ``start`` begins; readers ask with ``after``, and ``on_news`` wakes them when there is more.

    ``lines_of`` returns what a digest stands for, as long as somebody keeps it: for events with quads.
    """

    def __init__(self, store: Store, iris: Iris, index: Index) -> None:
        self.lines_of: LinesOf = lambda _: None
        self._store = store
        self._iris = iris
        self._index = index
        self._lock = threading.Lock()
        self._events: list[Event] = []
        self._floor = Position(store.generation)
        self._head = self._floor
        self._woken = threading.Event()
        self._ending = threading.Event()
        self._listeners: list[Callable[[], None]] = []
        self.readers = 0
        self._aside = 0
        self._thread = ServiceThread(self._run, "feed", self._died)

    def start(self) -> None:
        """Begin to follow, at once: a large index that has to be listed is not left to the first question."""
        self._woken.set()
        self._thread.start()

    def stop(self) -> None:
        """End, and wake those that wait."""
        self._ending.set()
        self._woken.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join(10)
        self._ring()

    def _died(self, _: BaseException) -> None:
        """Wake the readers that wait: no more events will come."""
        self._ending.set()
        self._ring()

    @property
    def ended(self) -> bool:
        """True once no more will come."""
        return self._ending.is_set()

    def wake(self) -> None:
        """Note that the store has changed; quick, from any thread."""
        self._woken.set()

    @contextmanager
    def aside(self) -> Iterator[None]:
        """Have what is written meanwhile taken in later, ``ASIDE`` seconds at most, unless somebody reads."""
        with self._lock:
            self._aside += 1
        try:
            yield
        finally:
            with self._lock:
                self._aside -= 1

    def on_news(self, listener: Callable[[], None]) -> Callable[[], None]:
        """Have ``listener`` called, in the feed's thread, when there is something new; returns what undoes it.

        What it raises is only logged.
        """
        with self._lock:
            self._listeners.append(listener)
        return lambda: self._listeners.remove(listener)

    @property
    def head(self) -> Position:
        """The newest event that readers can get at once."""
        return self._head

    @property
    def taken_in(self) -> int:
        """The generation up to which neither the feed nor its index needs the log any more."""
        return min(self._index.position, self._head.generation)

    @property
    def newest(self) -> int:
        """The generation of the store, which the feed may be a moment behind."""
        return self._store.generation

    # -- reading ------------------------------------------------------------------------------------------------------
    def check(self, position: Position) -> None:
        """Raise ``EventsGone`` when changes after ``position`` are not in the log any more, or ``position`` lies ahead of it."""
        oldest, newest = self._store.oldest, self._store.generation
        if position.generation > newest or position.since + 1 < oldest:
            raise EventsGone(
                f"event {position} is not in the log, which goes from {oldest} to {newest}",
                hint="read the graph anew, then follow from its generation; log_retention tells how long changes are kept",
                detail={"oldest": oldest, "newest": newest},
            )

    @property
    def learning(self) -> bool:
        """True while the index is listed anew: of older events it is not known yet what they are filtered by."""
        return self._index.listing

    def remembers(self, position: Position) -> bool:
        """Return whether what comes after ``position`` is in memory."""
        return position >= self._floor

    def after(self, position: Position, limit: int = _PAGE) -> list[Event]:
        """Return the events after ``position``, oldest first, about ``limit`` of them at most.

        Raises ``EventsGone`` when the log does not reach so far any more.
        """
        with self._lock:
            if position >= self._floor:
                start = bisect_right(self._events, position, key=lambda event: event.position)
                return self._events[start : start + limit]
            until = self._head.generation
        return self._read(position, limit, until)

    def _read(self, position: Position, limit: int, until: int) -> list[Event]:
        """Read from the log what comes after ``position``, up to the generation ``until``."""
        since = position.since
        while entries := [each for each in self._store.log(since, limit) if each.generation <= until]:
            if numbered := [(place, entry) for place, entry in _numbered(entries) if place > position]:
                return self.described(numbered)
            since = entries[-1].generation
        return []

    def described(self, changes: Sequence[tuple[Position, LogEntry]]) -> list[Event]:
        """Return changes as events, with what their entities are filtered by."""
        known = self._index.known([entry.graph for _, entry in changes])
        return [self._event(place, entry, known.get(entry.graph)) for place, entry in changes]

    def _event(self, position: Position, entry: LogEntry, known: Known | None) -> Event:
        facets, tombstone = known or (None, None)
        id = self._iris.short(entry.graph) if self._iris.knows(entry.graph) else entry.graph
        told = [values[0] if values else None for values in facets[: len(_TOLD)]] if facets else ()
        content = msgspec.json.encode(
            _CloudEvent(
                "1.0",
                str(position),
                self._iris.base,
                f"drumlin.subgraph.{_outcome(entry, tombstone)}",
                id,
                _moment(entry.at),
                "application/json",
                _Data(entry.graph, entry.owner, entry.before, entry.after, entry.generation, *told),
            )
        )
        return Event(position, entry, facets, content, self.lines_of)

    # -- following ----------------------------------------------------------------------------------------------------
    def _run(self) -> None:
        while not self._ending.is_set():
            self._woken.wait(_IDLE)
            self._woken.clear()
            try:
                self._follow()
            except Exception:
                # The edge of the thread: the feed goes on when the disk does; readers can still read the log.
                log.exception("feed_failed")
                self._ending.wait(_IDLE)
            self._ending.wait(PAUSE + PER_READER * self.readers if self.readers else UNREAD)
            self._stand_aside()

    def _stand_aside(self) -> None:
        """Leave the processors to bulk writes while there are no subscribers."""
        ends = time.monotonic() + ASIDE
        while self._aside and not self.readers and not self.ended and time.monotonic() < ends:
            self._ending.wait(UNREAD)

    def _follow(self) -> None:
        """Take in what is new, page by page; what comes meanwhile is for the next time."""
        until = self._store.generation
        while (before := self.taken_in) < until and not self._ending.is_set():
            self._index.catch_up(_PAGE)
            if (
                self._index.position > self._head.generation
            ):  # else the index was behind at the start, and there is no news
                self._publish()
            if self.taken_in <= before:
                return

    def _publish(self) -> None:
        if self.readers:
            self._keep(self._read(self._head, _PAGE, self._index.position))
            self._ring()
        else:  # a reader that comes later reads from the log what there was meanwhile
            with self._lock:
                self._events.clear()
                self._floor = self._head = Position(self._index.position)

    def _keep(self, events: list[Event]) -> None:
        with self._lock:
            self._events += events
            if len(self._events) > 2 * KEPT:
                self._floor = self._events[-KEPT - 1].position
                del self._events[:-KEPT]
            self._head = Position(events[-1].position.generation)

    def _ring(self) -> None:
        with self._lock:
            listeners = list(self._listeners)
        for each in listeners:
            call_safely(each)


_TOLD = ("type", "domain", "cluster", "namespace")
assert FIELDS[: len(_TOLD)] == _TOLD
_moment = lru_cache(maxsize=64)(datetime.isoformat)  # what was committed together has one


class _Data(msgspec.Struct, omit_defaults=True, gc=False):
    """What an event says of a change; what is not known is left out."""

    iri: str
    owner: str
    before: str | None = None
    after: str | None = None
    generation: int = 0
    type: str | None = None
    domain: str | None = None
    cluster: str | None = None
    namespace: str | None = None


class _CloudEvent(msgspec.Struct, gc=False):
    """An event as CloudEvents JSON (https://github.com/cloudevents/spec, 1.0.2)."""

    specversion: str
    id: str
    source: str
    type: str
    subject: str
    time: str
    datacontenttype: str
    data: _Data  # last: what an event with quads has more stands at its end


def _outcome(entry: LogEntry, tombstone: str | None) -> str:
    """Name a change; ``deleted`` (it became a tombstone) is reported as long as it is the last one of its graph."""
    if entry.after is None:
        return "removed"
    if entry.after == tombstone:
        return "deleted"
    return "created" if entry.before is None else "replaced"


def _numbered(entries: Iterable[LogEntry]) -> Iterator[tuple[Position, LogEntry]]:
    for generation, group in groupby(entries, key=lambda entry: entry.generation):
        for place, entry in enumerate(group):
            yield Position(generation, place), entry
