"""What a set of domains sees of a store, as a store of its own: its graphs, its log and its generations are those of what is seen.

Whatever reads a store reads this one as any other, so nothing can show what is not in it, and a total counts what is seen. It is an
embedded store beside the source: ``bring_up`` takes over what has changed, and what is seen no more leaves it, with an entry in its log.
It is derived and proves nothing: one that cannot be opened is made anew. Writes go to the source.
"""

from __future__ import annotations

import hashlib
import shutil
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from tempfile import TemporaryDirectory

import structlog

from drumlin.kg.errors import (
    CapabilityMissing,
    DrumlinError,
    EventsGone,
    Forbidden,
    PreconditionFailed,
    ResourceNotFound,
    StoreDamaged,
)
from drumlin.kg.model.iris import Iris
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.embedded.retention import Kept
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.preconditions import PEERS, prepared
from drumlin.kg.store.protocol import ANY, GraphEntry, GraphWrite, Store, StoredGraph, Written
from drumlin.kg.visibility.standing import Standing, is_tombstone, standing_of, stub_of
from drumlin.kg.visibility.visible_set import Sight, Standings, VisibleSet

_PAGE = 1_000  # entries of the log, or graphs, that are looked at together
_TRIES = 3  # of a write whose graph is written by others meanwhile

log = structlog.get_logger()

Clock = Callable[[], datetime]


class Visibility:
    """Who sees what of a store: the standings of its graphs, and the stores of what sets of domains see that are open. For many threads.

    ``folder`` is where these stores lie, one for each set of domains; None: in a temporary one that ``close`` removes.
    """

    def __init__(self, source: Store, folder: Path | None, iris: Iris, clock: Clock, kept: Kept | None = None) -> None:
        self.source, self.iris, self.clock = source, iris, clock
        self._folder, self._kept = folder, kept
        self._temporary: TemporaryDirectory[str] | None = None
        self._lock = threading.Lock()
        self._standings = Standings()
        self._position = -1  # the generation whose standings these are
        self._open: set[VisibleStore] = set()

    def open(self, domains: frozenset[str], *, to_peer: bool = False) -> VisibleStore:
        """Open the store of what domains (ids) see and bring it up; the caller closes it. Raises what opening a store does.

        A store that is given ``to_peer`` holds nothing that came from a peer.
        """
        if self._folder is None:
            self._temporary = TemporaryDirectory(prefix="drumlin-views-")
            self._folder = Path(self._temporary.name)
        directory = self._folder / _name_of(domains, to_peer=to_peer)
        try:
            found = VisibleStore(self, directory, domains, self._kept, to_peer=to_peer)
        except StoreDamaged as error:
            log.warning("visible_store_made_anew", directory=str(directory), reason=str(error))
            shutil.rmtree(directory, ignore_errors=True)
            found = VisibleStore(self, directory, domains, self._kept, to_peer=to_peer)
        return found

    def learn(self) -> None:
        """Take in what the source holds: a few seconds for a large one, which the first store would have to wait for."""
        with self._lock:
            self._follow()

    def close(self) -> None:
        """Remove what is temporary; the stores are closed before."""
        if self._temporary:
            self._temporary.cleanup()

    def register(self, store: VisibleStore) -> VisibleSet:
        """Report to a store what changes from now on; returns what it sees now."""
        with self._lock:
            self._follow()
            seen = VisibleSet(frozenset(map(self.iris.domain, store.domains)), self._standings, self.clock())
            self._open.add(store)
            return seen

    def forget(self, store: VisibleStore) -> None:
        """Report nothing more to a store."""
        with self._lock:
            self._open.discard(store)

    def is_current(self, seen: VisibleSet, generation: int) -> bool:
        """Return whether nothing has changed since a generation of the source, and no grant has ended."""
        end = seen.next_end
        return self.source.generation == generation and (end is None or self.clock() < end)

    def take(self, store: VisibleStore) -> tuple[int, dict[str, Sight]]:
        """Return what has changed for a store since it asked, and the generation of the source as of which that is."""
        with self._lock:
            self._follow()
            store.changed |= store.seen.update((), self.clock())
            found = {graph: store.seen.sight(graph) for graph in store.changed}
            store.changed.clear()
            return self._position, found

    def exists(self, graph: str) -> bool:
        """Return whether the source has a graph."""
        with self._lock:
            self._follow()
            return graph in self._standings

    def home_of(self, standing: Standing) -> str | None:
        """Return the domain that a graph with a standing belongs to."""
        with self._lock:
            return self._standings.home_of(standing)

    def standing(self, graph: str) -> Standing:
        """Return the standing of a graph."""
        with self._lock:
            return self._standings.of(graph)

    def as_of(self, graphs: Sequence[str], generation: int) -> Iterator[tuple[str, StoredGraph | None]]:
        """Yield graphs as they were after a generation; where the source keeps no past, as they are now."""
        for start in range(0, len(graphs), _PAGE):
            part = graphs[start : start + _PAGE]
            found = self.source.read_each(part)
            still = self.source.generation == generation
            for graph in part:
                yield graph, self._one_as_of(graph, found.get(graph), generation, still=still)

    def _one_as_of(self, graph: str, found: StoredGraph | None, generation: int, *, still: bool) -> StoredGraph | None:
        """Return what a graph was, as which it was ``found``; ``still``: nothing had been written since."""
        if still or (found is not None and found.entry.generation <= generation):
            return found
        try:
            return self.source.read_at(graph, generation)
        except (CapabilityMissing, EventsGone):
            return found

    def stands(self, graph: str, text: str) -> bool:
        """Return whether what a graph's text says of who sees it is what is known of it."""
        return self._standings.of(graph) == standing_of(graph, text)

    def _follow(self) -> None:
        """Take in what the source has written; with the lock."""
        until = self.source.generation
        if self._position < 0:
            self._read_all(until)
        changed: set[str] = set()
        reached = self._position
        try:
            while reached < until and (entries := self.source.log(reached, _PAGE)):
                changed.update(each.graph for each in entries)
                reached = entries[-1].generation
        except EventsGone:
            self._read_all(until)
            return
        if reached > self._position:
            self._take_in(changed, reached)

    def _read_all(self, until: int) -> None:
        self._take_in({*self._standings, *(each.graph for each in self.source.entries())}, until)

    def _take_in(self, changed: set[str], generation: int) -> None:
        self._position = generation
        for graph, found in self.as_of(sorted(changed), generation):
            self._standings.put(graph, None if found is None else standing_of(graph, found.text))
        now = self.clock()
        for store in self._open:
            store.changed |= store.seen.update(changed, now)


class VisibleStore(EmbeddedStore):
    """The store of what ``domains`` (ids) see. ``bring_up`` makes it current; ``apply`` writes to the source what they may write.

    One that is given ``to_peer`` holds nothing that came from a peer: who wants that follows the peer itself.

    ``changed`` is what has changed since it was brought up; ``Visibility`` has the lock of it and of ``seen``.
    """

    def __init__(
        self, visibility: Visibility, directory: Path, domains: frozenset[str], kept: Kept | None, *, to_peer: bool
    ) -> None:
        super().__init__(directory, kept=kept)
        self.domains, self._to_peer = domains, to_peer
        self._visibility, self._source = visibility, visibility.source
        self._bringing = threading.RLock()
        self._current = -1
        self.changed: set[str] = set()
        try:
            self.seen = visibility.register(self)
            self._compare()
            self.bring_up()
        except BaseException:
            self.close()
            raise

    # -- following ----------------------------------------------------------------------------------------------------
    def bring_up(self) -> None:
        """Take over what has changed in the source; quick when nothing has. Raises what reading and writing stores do."""
        if self.is_current:
            return
        with self._bringing:
            current, touched = self._visibility.take(self)
            self._take_over(self._writes(touched, current, {graph: self.entry(graph) for graph in touched}))
            self._current = current

    def _compare(self) -> None:
        """Bring the store up to what is seen, whatever it holds."""
        recorded = {each.graph: each for each in self.entries()}
        digests = {each.graph: each.digest for each in self._source.entries() if self._shows(each)} if recorded else {}
        current, _ = self._visibility.take(self)
        seen = self.seen.seen()
        differ = [
            graph
            for graph, sight in seen.items()
            if sight is Sight.NAME or graph not in recorded or recorded[graph].digest != digests.get(graph)
        ]
        differ += recorded.keys() - seen.keys()
        differ.sort()  # as they lie on the disk
        for start in range(0, len(differ), _PAGE):
            part = differ[start : start + _PAGE]
            self._take_over(self._writes({each: seen.get(each, Sight.NOTHING) for each in part}, current, recorded))

    def _writes(
        self, sights: Mapping[str, Sight], generation: int, recorded: Mapping[str, GraphEntry | None]
    ) -> list[GraphWrite]:
        """Return the writes that make of graphs, as they are ``recorded`` here, what is seen of them as of a generation of the source."""
        found = dict(self._visibility.as_of([each for each in sights if sights[each] is not Sight.NOTHING], generation))
        writes = (
            self._write_of(graph, sight, found.get(graph), generation, recorded.get(graph))
            for graph, sight in sights.items()
        )
        return [each for each in writes if each is not None]

    def _write_of(
        self, graph: str, sight: Sight, found: StoredGraph | None, generation: int, here: GraphEntry | None
    ) -> GraphWrite | None:
        """Return the write that makes of a graph what is seen of what was ``found``; None when there is nothing to write."""
        if found is None or not self._shows(found.entry):
            return None if here is None else GraphWrite(graph, None, here.owner)
        if found.entry.generation > generation and not self._visibility.stands(graph, found.text):
            return None  # it has become another since: the next look finds whether it is seen
        content = found.content if sight is Sight.WHOLE else GraphContent.of_text(stub_of(graph, found.text))
        return GraphWrite(graph, content, found.entry.owner, takes_from=None if here is None else here.owner)

    def _shows(self, entry: GraphEntry) -> bool:
        return not (self._to_peer and entry.owner.startswith(PEERS))

    @property
    def is_current(self) -> bool:
        """Whether it holds what is seen now."""
        return self._visibility.is_current(self.seen, self._current)

    def _take_over(self, writes: Sequence[GraphWrite]) -> None:
        if writes:
            super().apply(writes)

    # -- writing ------------------------------------------------------------------------------------------------------
    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write to the source, and take it over; see ``Store.apply``.

        Raises ``ResourceNotFound`` for a graph that is there and not seen, ``Forbidden`` for one that belongs to another domain, or would.
        """
        for tries in range(_TRIES):
            self.bring_up()
            admitted = prepared(writes, self._admitted)
            try:
                written = self._source.apply(admitted)
            except PreconditionFailed:
                if tries == _TRIES - 1 or not any(one.expected is ANY for one in writes):
                    raise
                continue  # another one has written what was looked at
            break
        self.bring_up()
        return [Written(each.graph, each.outcome, each.digest, self.generation, each.held) for each in written]

    def ask(self, write: GraphWrite, answered: Callable[[], object]) -> Callable[[], list[Written]]:
        """Write, as ``apply`` does: it is not asked for on an event loop (``is_being_written``)."""
        try:
            written = self.apply([write])
        except DrumlinError as error:
            refusal = error
        else:
            answered()
            return lambda: written
        answered()

        def refuse() -> list[Written]:
            raise refusal

        return refuse

    def is_being_written(self, graph: str) -> bool:  # noqa: ARG002 - a part of the interface
        """Return True: reading and writing may have to wait for the source."""
        return True

    def _admitted(self, write: GraphWrite) -> GraphWrite:
        """Return a write as the source gets it: of what is as it was looked at."""
        here = self.entry(write.graph)
        if here is None and self._visibility.exists(write.graph):
            raise ResourceNotFound(f"there is no {write.graph}", hint="list what there is: GET /subgraphs")
        if here is not None and here.digest == write.digest:
            return write  # which changes nothing, and the source says so
        if here is not None and not self._is_own(write.graph, self._visibility.standing(write.graph)):
            raise self._refusal(f"{write.graph} belongs to another domain")
        text = None if write.content is None else write.content.text
        buries = here is not None and text is not None and is_tombstone(text, write.graph)
        if text is not None and not buries and not self._is_own(write.graph, standing_of(write.graph, text)):
            raise self._refusal(f"{write.graph} would not belong to a domain of this caller's")
        if write.expected is not ANY:
            return write
        return GraphWrite(
            write.graph, write.content, write.owner, None if here is None else here.digest, write.takes_from
        )

    def _is_own(self, graph: str, standing: Standing) -> bool:
        return graph in self.seen.domains or self._visibility.home_of(standing) in self.seen.domains

    def _refusal(self, message: str) -> Forbidden:
        """Return why a write is refused; the same whatever there is that the caller does not see."""
        own = ", ".join(sorted(self.domains))
        return Forbidden(
            f"{message}: it writes for {own} only",
            hint=f"state as its domain {self._visibility.iris.domain(min(self.domains))}; an operator grants others"
            " (drumlin token create --domain)",
        )

    def close(self) -> None:
        """Release the store."""
        self._visibility.forget(self)
        super().close()


def _name_of(domains: frozenset[str], *, to_peer: bool) -> str:
    """Return the name of the directory of what domains see."""
    return hashlib.sha256("\n".join(sorted(domains)).encode()).hexdigest()[:16] + ("-peer" if to_peer else "")
