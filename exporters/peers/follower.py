"""Follows the change feed of another Drumlin, and keeps here what it shows of the domains that it speaks for.

The giver decides what is seen: its feed reports what is seen no more as ``removed``. Graphs are written for the owner ``peer:NAME``; what
another owner has stays as it is. The feed is followed from a position that is kept beside the store; without one, after 410, and when the
ids of the giver's events have begun anew, the digests of all graphs are compared, and what differs is read. This is done once an hour too,
since a graph may have been refused for a reason that has gone. When nothing changes, what is held is what the giver shows and this one
accepts. A giver that is away leaves what it gave.
"""

from __future__ import annotations

import random
import time
from collections import Counter, defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from itertools import islice
from typing import Any, Protocol

import msgspec
import structlog

from drumlin.exporters.jobs import PeriodicJob
from drumlin.exporters.peers.acceptance import Acceptance
from drumlin.exporters.peers.position import PeerPosition, PositionFile
from drumlin.kg.client.calls import Call, ChangeBatch, get_subgraph_text
from drumlin.kg.client.entities import GraphSummary
from drumlin.kg.config.peers import PeerSettings
from drumlin.kg.errors import EventsGone, InvalidInput, ResourceGone, ResourceNotFound, TooLarge
from drumlin.kg.graphs import ingest
from drumlin.kg.model.iris import Iris
from drumlin.kg.parsers import Parsers
from drumlin.kg.rdf.syntax import JSONLD, NTRIPLES, Syntax
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.preconditions import PEERS, apply_allowed
from drumlin.kg.store.protocol import GraphWrite, Store

WAIT_SECONDS = 2.0
"""How long a giver is asked to wait for news; a service that ends waits so long for the answer."""
COMPARED_SECONDS = 3600.0
"""After which all digests are compared, whatever the feed said."""
_SHORTEST, _LONGEST = 0.5, 60.0  # seconds between two tries while the giver is away
_PAUSE = 0.1  # seconds after an answer without news, which may have come at once: the giver is about to end
_TOGETHER = 200  # graphs that are read and written at one time
_CONNECTIONS = 8  # reads under way at one time: a giver may be far away

log = structlog.get_logger()


class Giver(Protocol):
    """The client of a peer's service, as far as it is needed here (``kg.client.Client``)."""

    def next_changes(self, since: str | None = None, *, wait: float = 0.0) -> ChangeBatch:
        """Return the next changes after an event, or the present position."""

    def subgraphs(self, *, tombstones: bool) -> Iterator[GraphSummary]:
        """List what the giver shows."""

    def run(self, call: Call[Any]) -> Any:
        """Carry out one call."""

    def close(self) -> None:
        """Close the connections."""


@dataclass(slots=True)
class PeerState:
    """How a peer is doing. ``reached`` and ``newest`` are generations of what it shows, ``since`` is when it was begun with.

    ``current`` is when nothing was missing; both are of the monotonic clock.
    """

    since: float
    reached: int | None = None
    newest: int | None = None
    current: float | None = None
    event: str | None = None
    written: int = 0
    withdrawn: int = 0
    compared: int = 0
    refused: Counter[str] = field(default_factory=Counter)  # by reason: foreign, owned, invalid

    def lag_generations(self) -> int | None:
        """Return how many generations of the giver are not here yet, as far as it has reported."""
        return None if self.reached is None or self.newest is None else max(0, self.newest - self.reached)

    def lag_seconds(self, now: float) -> float:
        """Return for how long something may be missing here."""
        return max(0.0, now - (self.since if self.current is None else self.current))


class PeerFollower(PeriodicJob):
    """Takes over what one peer gives. ``own`` mints this service's names, ``clusters`` are those that it follows itself."""

    def __init__(
        self,
        settings: PeerSettings,
        giver: Giver,
        store: Store,
        own: Iris,
        clusters: Collection[str],
        position: PositionFile,
        parsers: Parsers,
        *,
        max_bytes: int,
        wait: float = WAIT_SECONDS,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        super().__init__(f"peer {settings.name}", 0.0)
        self.settings = settings
        self._giver, self._store = giver, store
        self._position, self._parsers = position, parsers
        self._max_bytes, self._wait, self._clock = max_bytes, wait, clock
        self._iris = Iris(settings.base or own.base)
        self._accepts = Acceptance(self._iris, settings.domains, own, clusters)
        # Under other terms, what is held is looked at again.
        self._terms = "\n".join([self._iris.base, *sorted(settings.domains), "", *sorted(clusters)])
        self._looked_up: dict[str, str | None] = {}  # graphs that others are within
        self._compared_at = clock()
        self._failures = 0
        self.state = PeerState(clock())

    @property
    def lag(self) -> float:
        """For how long something may be missing here, in seconds. Callable from any thread."""
        return self.state.lag_seconds(self._clock())

    @property
    def base(self) -> str:
        """The base of the names that the peer gives."""
        return self._iris.base

    def stop(self, timeout: float | None = 10.0) -> None:
        """End soon, wait for it, and close the connections."""
        super().stop(timeout)
        self._giver.close()

    def turn(self) -> bool:
        """Take over the next changes, or compare everything; after a failure the next turn waits, longer each time."""
        self._failures += 1
        longest = min(_LONGEST, _SHORTEST * 2.0 ** min(self._failures, 10))
        self._seconds = longest * (0.5 + random.random() / 2)  # noqa: S311 - jitter
        more = self._take_turn()
        self._failures, self._seconds = 0, 0.0 if more else _PAUSE
        return False

    def _take_turn(self) -> bool:
        """Take over the next changes, or compare everything; return whether there were changes, so that more may follow at once."""
        self._looked_up.clear()
        kept = self._position.read()
        due = self._clock() - self._compared_at >= COMPARED_SECONDS
        if kept is None or kept.terms != self._terms or due:
            return self._compare()
        asked = self._clock()
        try:
            batch = self._giver.next_changes(kept.event, wait=self._wait)
        except (EventsGone, InvalidInput) as error:
            log.info("peer_position_gone", peer=self.settings.name, position=kept.event, reason=str(error))
            return self._compare()
        if batch.history != kept.history:
            log.info("peer_history_changed", peer=self.settings.name)
            return self._compare()
        told = [each["data"] for each in batch.events]
        changed = {each["iri"]: None if _passed_on(each["owner"]) else each.get("after") for each in told}
        if self._take_over(changed):
            self._reached(batch, asked)
        return bool(changed)

    def _reached(self, batch: ChangeBatch, asked: float) -> None:
        """Note that everything up to the end of a batch is here; one that is behind the newest generation says so."""
        before = self._position.read()
        position = PeerPosition(batch.history, batch.last, self._terms)
        if position != before:
            self._position.write(position)
        state = self.state
        state.event, state.reached, state.newest = batch.last, int(batch.last.partition(".")[0]), batch.newest
        if not state.lag_generations():
            state.current = asked

    # -- comparing ----------------------------------------------------------------------------------------------------
    def _compare(self) -> bool:
        """Bring what is held here to what the giver shows, whatever is known of its changes; returns False."""
        asked = self._clock()
        begin = self._giver.next_changes()  # what changes while the list is read comes after it
        shown = {each.iri: each.digest for each in self._giver.subgraphs(tombstones=True) if not _passed_on(each.owner)}
        held = {each.graph for each in self._store.entries(owner=self.settings.owner)}
        refused = [each for each in held if not self._still_takes(each)]
        wanted: dict[str, str | None] = {**shown, **dict.fromkeys(held - shown.keys()), **dict.fromkeys(refused)}
        if self._take_over(wanted):
            self._reached(begin, asked)
            self._compared_at = asked
            self.state.compared += 1
        return False

    def _still_takes(self, graph: str) -> bool:
        text = self._text_here(graph)
        return text is not None and self._accepts.takes(graph, text, self._said_in)

    def _text_here(self, graph: str) -> str | None:
        """Return what a graph says here that this peer has given."""
        found = self._store.read(graph)
        return found.text if found is not None and found.entry.owner == self.settings.owner else None

    def _said_in(self, graph: str) -> str | None:
        """Return what a graph says here that this peer has given, else what the peer shows: it may come later, or not be taken over."""
        if (here := self._text_here(graph)) is not None:
            return here
        if graph not in self._looked_up:
            content = self._content_of(graph, self._read(graph), _Refused())
            self._looked_up[graph] = None if content is None else content.text
        return self._looked_up[graph]

    # -- taking over --------------------------------------------------------------------------------------------------
    def _take_over(self, wanted: Mapping[str, str | None]) -> bool:
        """Make each graph what the giver shows, by the digest that it has there (None: it is not shown); False: the job is to end.

        A graph that has changed again since is read as it is now.
        """
        refused = _Refused()
        pending = iter([graph for graph, digest in wanted.items() if not self._is_so(graph, digest, refused)])
        with ThreadPoolExecutor(_CONNECTIONS, f"peer {self.settings.name}") as pool:
            while part := list(islice(pending, _TOGETHER)):
                if self._stop.is_set():
                    return False
                read = pool.map(lambda graph: self._read(graph) if wanted[graph] else None, part)
                found = {graph: self._content_of(graph, said, refused) for graph, said in zip(part, read, strict=True)}
                self._write(found, refused)
        for reason, graphs in refused.items():
            self.state.refused[reason] += len(graphs)
            log.info("peer_graphs_refused", peer=self.settings.name, reason=reason, graphs=len(graphs), first=graphs[0])
        return True

    def _is_so(self, graph: str, digest: str | None, refused: _Refused) -> bool:
        """Return whether there is nothing to do about a graph: it is as it shall be, or another's, or below another base."""
        here = self._store.entry(graph)
        reason = "owned" if here is not None and here.owner != self.settings.owner else None
        if not graph.startswith(self._iris.root):
            reason = "foreign"
        if reason is not None:
            if digest is not None:
                refused[reason].append(graph)
            return True
        return (None if here is None else here.digest) == digest

    def _read(self, graph: str) -> tuple[bytes, Syntax] | None:
        """Read a graph of the giver, a tombstone too; None when it is not shown."""
        if not graph.startswith(self._iris.root):
            return None
        try:
            text: str = self._giver.run(get_subgraph_text(self._iris.short(graph), NTRIPLES.name))
        except ResourceGone as gone:
            return msgspec.json.encode(gone.detail.get("tombstone")), JSONLD
        except ResourceNotFound:
            return None
        return text.encode(), NTRIPLES

    def _content_of(self, graph: str, said: tuple[bytes, Syntax] | None, refused: _Refused) -> GraphContent | None:
        """Return the content that a graph has that was read; None for one that is not shown, or breaks a rule for graphs."""
        if said is None:
            return None
        try:
            read = ingest.read(*said, graph, self._iris, max_bytes=self._max_bytes, parsers=self._parsers)
            return ingest.accept(read, graph, self._iris)
        except (InvalidInput, TooLarge) as error:
            log.warning("peer_graph_invalid", peer=self.settings.name, graph=graph, reason=str(error))
            refused["invalid"].append(graph)
            return None

    def _write(self, found: Mapping[str, GraphContent | None], refused: _Refused) -> None:
        """Write graphs as they were read; withdrawn is what is not shown any more, or not accepted."""
        writes = []
        for graph, content in found.items():
            taken = content is not None and self._accepts.takes(graph, content.text, self._said_in)
            if content is not None and not taken:
                refused["foreign"].append(graph)
            if taken or self._text_here(graph) is not None:
                writes.append(GraphWrite(graph, content if taken else None, self.settings.owner))
        written, owned = apply_allowed(self._store.apply, writes) if writes else ((), {})
        if owned:
            refused["owned"].extend(owned)
        self.state.written += sum(each.outcome in ("created", "replaced") for each in written)
        self.state.withdrawn += sum(each.outcome == "removed" for each in written)


class _Refused(defaultdict[str, list[str]]):
    """Graphs that are not taken over, by the reason: foreign, owned, invalid."""

    def __init__(self) -> None:
        super().__init__(list)


def _passed_on(owner: str) -> bool:
    """Return whether a giver has a graph from a peer of its own: whoever wants it follows that peer."""
    return owner.startswith(PEERS)
