"""The list of graphs of a remote store: read from the engine once, then kept up to date by the change log.

An engine has no index of names in their order, so each page of a list made it look at all of them. The copy here is never trusted
unasked: each listing begins with the generation that the engine is at, and takes in what the log holds beyond its own. While an engine
without transactions is in the middle of a write, all is read instead, and the copy forgotten.
"""

from __future__ import annotations

import threading
from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Sequence

from drumlin.kg.store.protocol import GraphEntry, LogEntry
from drumlin.kg.store.remote import bookkeeping_graph as books
from drumlin.kg.store.remote import querying
from drumlin.kg.store.remote.connection import EngineConnection
from drumlin.kg.store.remote.engine import Capability
from drumlin.kg.store.remote.write_lease import Claims

FAR = 1000
"""Generations from which on reading all is cheaper than reading the log."""
_PAGE = 50_000  # rows asked for at once where the engine sets no limit
_TOGETHER = 100  # generations asked for at once


class Entries:
    """The graphs of one engine in the order of their IRIs, for any thread. ``log`` reads the changes of some generations."""

    def __init__(
        self, connection: EngineConnection, claims: Claims, log: Callable[[Sequence[int]], list[LogEntry]]
    ) -> None:
        self._connection = connection
        self._claims = claims
        self._log = log
        self._lock = threading.Lock()
        self._known: int | None = None
        self._names: list[str] = []
        self._entries: dict[str, GraphEntry] = {}

    def listed(self, owner: str | None, prefix: str, after: str, limit: int | None) -> list[GraphEntry]:
        """List graphs as they are now; see ``Store.entries``."""
        found: list[GraphEntry] = []
        with self._lock:
            self._follow()
            at = max(bisect_left(self._names, prefix), bisect_right(self._names, after))
            while at < len(self._names) and self._names[at].startswith(prefix) and len(found) != limit:
                entry = self._entries[self._names[at]]
                if owner is None or entry.owner == owner:
                    found.append(entry)
                at += 1
        return found

    def _follow(self) -> None:
        """Bring the copy up to the engine's generation."""
        state = self._claims.state(())
        if state.pending or self._known is None or not self._known <= state.generation <= self._known + FAR:
            self._read()
        else:
            for start in range(self._known + 1, state.generation + 1, _TOGETHER):
                for change in self._log(range(start, min(start + _TOGETHER, state.generation + 1))):
                    self._take_in(change)
        # Without transactions a state can be seen at the moment when a write begins: its generation is read again next time.
        unsure = Capability.ISOLATION in self._connection.engine.lacks
        self._known = None if state.pending else max(0, state.generation - unsure)

    def _take_in(self, change: LogEntry) -> None:
        held = self._entries.get(change.graph)
        if held is not None and held.generation > change.generation:
            return  # read together with what came later
        if change.after is not None:
            if held is None:
                insort(self._names, change.graph)
            self._entries[change.graph] = GraphEntry(
                change.graph, change.after, change.owner, change.generation, change.at
            )
        elif held is not None:
            del self._entries[change.graph]
            del self._names[bisect_left(self._names, change.graph)]

    def _read(self) -> None:
        """Read all of the list, in as few pages as the engine's limit of rows allows."""
        limit = self._connection.engine.rows
        size = _PAGE if limit is None else limit - 1
        self._names, self._entries = [], {}
        after = ""
        while True:
            rows = list(querying.rows(self._connection, books.entries_query(after, size)))
            for entry in books.entries(rows):
                self._names.append(entry.graph)
                self._entries[entry.graph] = entry
            if len(rows) < size:
                return
            after = self._names[-1]
