"""Which reader serves a query: the readers, waiting queries, expired and outdated ones. No threads, no processes.

Two rules keep a reader free. Of queries: those that take long leave one reader to those that do not. Of clients: while several are
present, none of them takes all readers, and neither do the heavy ones together; a client that has used little finds one at once.

Nothing here is locked: the lock of ``kg.store.query_workers.supervisor`` guards all of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future

from drumlin.kg.fairness import FairQueue, Usage
from drumlin.kg.store.delta import Delta
from drumlin.kg.store.query_workers import replica_deltas
from drumlin.kg.store.query_workers.handle import Fate, QueryWorker
from drumlin.kg.store.query_workers.replica_deltas import Deltas

RESTING = 2.0
"""Seconds without a query, after which a reader is let go rather than fed with writes."""
RESTING_IN_FLOOD = 0.3
"""The same in a flood of writes."""
FLOOD = 128 * 1024
"""Bytes of deltas between two looks, beyond which even the last reader is let go: a new one costs less than feeding it."""
LONG = 1.0
"""Seconds after which a query counts as a long one; not all readers work on such."""
LONG_OF_HEAVY = 0.1
"""The same for a query of a heavy client, while other clients are present."""
HEAVY = 1.0
"""Seconds of reader time, as ``kg.fairness`` counts them, beyond which a client is a heavy one."""
_QUIET = 2.0
"""Seconds without a flood of writes, after which replicas are renewed though nobody asks. Each renewal has the engine apply what it would
collect otherwise, so a flood that draws breath in between must not count as over."""


class Promise(Future[QueryWorker]):
    """A reader for ``client``, as soon as one is free that holds ``need``; a ``long`` query leaves one reader to the others."""

    def __init__(self, need: int, deadline: float, client: str, *, long: bool) -> None:
        super().__init__()
        self.need, self.deadline, self.client, self.long = need, deadline, client, long


class Pool:
    """The readers, ``count`` at most.

    ``start`` starts one, ``errand`` does what takes long: neither at once.
    """

    def __init__(
        self, generation: int, count: int, start: Callable[[], None], errand: Callable[[Callable[[], None]], None]
    ) -> None:
        self._start, self._errand = start, errand
        self._flood_at = 0.0
        self._told = 0  # bytes of deltas at the last look
        self.size = self.most = count
        self.waiting: FairQueue[Promise] = FairQueue(self._used)
        self.readers: set[QueryWorker] = set()
        self.idle: list[QueryWorker] = []
        self.starting = 0
        self.lost_starting = 0  # readers one after the other that ended before they were open
        self.worn: set[QueryWorker] = set()  # they serve until their successor is there
        self.deltas = Deltas(generation)
        self.usage = Usage()
        self.tended: dict[QueryWorker, float] = {}  # opening, catching up or draining, and until when
        self.ended: Counter[Fate] = Counter()

    def may_take_long(self) -> bool:
        """Return whether one more reader may work on what takes long: the last one is kept for what does not."""
        return self.most < 2 or sum(each.long for each in self.readers) < self.most - 1

    def follow(self, delta: Delta) -> None:
        """Take the next delta."""
        self.deltas.append(delta)
        if delta.bulk:
            self._flood_at = time.monotonic()

    def _used(self, client: str) -> float:
        """Return the reader time that a client has used lately and is using now, in seconds."""
        now = time.monotonic()
        working = (each for each in self.readers if each.began is not None)
        return self.usage.of(client) + sum(now - (each.began or now) for each in working if each.client == client)

    def _is_heavy(self, client: str) -> bool:
        """Return whether a client has used much, and there are others that it keeps from using any."""
        return self._used(client) > HEAVY and self.usage.others(client)

    def _may_take(self, client: str) -> bool:
        """Return whether a client may have one more reader: it leaves one to others, and so do all heavy clients together.

        Readers that are being opened do not count: a query that waits for one of them waits long.
        """
        if self.most < 2 or not self.usage.others(client):
            return True
        busy = [each.client for each in self.readers if each.began is not None]
        heavy = self._is_heavy(client)
        held = sum(each == client or (heavy and self._is_heavy(each)) for each in busy)
        ready = sum(each.began is not None or each.spoke for each in self.readers)
        return held == 0 or held < ready - 1

    def lend_idle(self, need: int, deadline: float, client: str, *, long: bool) -> QueryWorker | None:
        """Lend an idle reader if there is one."""
        self.usage.charge(client, 0.0)  # it is present
        if (long and not self.may_take_long()) or not self._may_take(client):
            return None
        for reader in reversed(self.idle):
            if self.lend(reader, need, deadline, client, long=long):
                self.idle.remove(reader)
                return reader
        return None

    def lend(self, reader: QueryWorker, need: int, deadline: float, client: str, *, long: bool) -> bool:
        """Prepare a free reader for a query that must see ``need``; False when it cannot."""
        owed = self.deltas.since(reader.generation) if reader.generation < need else []
        if owed is None:
            return False
        reader.begin(deadline, owed)
        reader.client, reader.long = client, long
        return True

    def offer(self, reader: QueryWorker) -> None:
        """Give a free reader to the client whose turn it is and that can use it, else keep it."""
        for promise in list(self.waiting):
            if (promise.long and not self.may_take_long()) or not self._may_take(promise.client):
                continue
            if self.lend(reader, promise.need, promise.deadline, promise.client, long=promise.long):
                self.waiting.remove(promise.client, promise)
                if promise.set_running_or_notify_cancel():
                    promise.set_result(reader)
                    return
                reader.began, reader.long = None, False
        self.idle.append(reader)
        if len(fresh := self.readers - self.worn - self._stale()) > self.most and reader in fresh:
            self.forget(reader, "resting")  # the one more that ``give_way`` started

    def join(self, reader: QueryWorker, room: int, client: str) -> bool:
        """Prepare a busy reader for one more query of a client that may have it.

        Its deltas must be at most ``room`` bytes, and nobody wait for a reader.
        """
        if reader.client != client and not self._may_take(client):
            return False
        owed = self.deltas.since(reader.generation)
        if owed is None or sum(len(each.update) for each in owed) > room:
            return False
        if self.waiting or reader.fate or reader.reniced or reader.replayed > replica_deltas.LIMIT:
            return False
        self.grow()  # it would not stand behind another if there were more
        reader.owed = owed
        return True

    @property
    def _is_flooded(self) -> bool:
        return time.monotonic() - self._flood_at <= _QUIET

    def grow(self) -> None:
        """Have all readers started, since the next query would find none idle; not in a flood of writes, which they would not outlast."""
        if self.size < self.most and not self._is_flooded:
            self.size = self.most
            self.maintain()

    def _stale(self) -> set[QueryWorker]:
        """Return the readers that can no longer catch up."""
        return {each for each in self.readers if not self.deltas.reach(each.generation)}

    def maintain(self) -> None:
        """Start the readers that are lacking, and let go of those that are replaced."""
        flooded = self._is_flooded
        if self.waiting:  # in a flood, which they do not outlast, no more are started than are waited for
            busy = sum(each.began is not None for each in self.readers)
            self.size = min(self.most, busy + len(self.waiting)) if flooded else self.most
        stale = self._stale()
        fresh = len(self.readers - stale - self.worn)
        if not stale or self.waiting or not flooded:
            for _ in range(self.size - fresh - self.starting):
                self.starting += 1
                self._start()
        for reader in [each for each in self.idle if each in self.worn or each in stale]:
            if fresh >= self.size or len(self.readers) > self.size:
                self.idle.remove(reader)
                self.forget(reader, "worn" if reader in self.worn else "stale")

    def give_way(self, now: float) -> None:
        """Note which readers work on what takes long; when all of them do, see to one more for shorter queries.

        One that may be asked again ends: the newest query of the client that used most. A reader whose result has begun goes on, since its
        query cannot be asked again; when all have, and a query waits, one reader more than usual is started.
        """
        if self.most < 2:
            return
        for reader in self.readers:
            if reader.began is not None and now - reader.began > LONG_OF_HEAVY and not reader.long:
                reader.long = now - reader.began > LONG or self._is_heavy(reader.client)
        working = [each for each in self.readers if each.long]
        if len(working) < self.most:
            if working and not self.idle:
                self.grow()
            return
        if quiet := [each for each in working if not each.spoke]:
            used = {
                client: self._used(client) for client in {each.client for each in quiet}
            }  # at one moment: use fades
            victim = max(quiet, key=lambda each: (used[each.client], each.began or 0.0))
            self.forget(victim, "gave way", held=True)
            self.maintain()
        elif any(not each.long for each in self.waiting) and len(self.readers) + self.starting == self.most:
            self.starting += 1
            self._start()

    def rest(self, now: float) -> None:
        """Let go of readers that nobody has needed lately and that would have to be fed; the one asked last stays, but in a flood."""
        stay, resting = 1, RESTING
        if self.deltas.told - self._told > FLOOD:
            self._flood_at, stay, resting = now, 0, RESTING_IN_FLOOD
        elif not self.size and now - self._flood_at > _QUIET:
            self.size = 1
        self._told = self.deltas.told
        for reader in sorted(self.idle, key=lambda each: each.lent)[: len(self.readers) - stay]:
            if reader.generation < self.deltas.latest and now - reader.lent > resting:
                self.size = len(self.readers) - 1
                self.forget(reader, "resting")

    def forget(self, reader: QueryWorker, fate: Fate, *, held: bool = False) -> None:
        """Kill a reader and forget it."""
        reader.kill(fate)
        self.readers.discard(reader)
        self.worn.discard(reader)
        if reader in self.idle:
            self.idle.remove(reader)
        self.tended.pop(reader, None)
        self.ended[reader.fate] += 1
        self._errand(reader.reap if held else reader.bury)

    def close(self) -> None:
        """End all readers of a self."""
        for reader in list(self.readers):
            self.forget(reader, "closed")
