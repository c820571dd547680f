"""Which reader serves a query: the readers of each visible set, waiting queries, expired and outdated ones. No threads, no processes.

Two rules keep a reader free. Of queries: those that take long leave one reader to those that do not. Of clients: while several are
present, none of them takes all readers, and neither do the heavy ones together; a client that has used little finds one at once.

Nothing here is locked: the lock of ``kg.store.query_workers.supervisor`` guards all of it.
"""

from __future__ import annotations

import time
from collections import Counter
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from drumlin.kg.fairness import FairQueue, Usage
from drumlin.kg.sparql.dataset import Visible
from drumlin.kg.store.delta import Delta
from drumlin.kg.store.query_workers import replica_deltas
from drumlin.kg.store.query_workers.handle import Fate, QueryWorker
from drumlin.kg.store.query_workers.replica_deltas import Deltas

RESTRICTED = 2
"""Readers of one restricted visible set, at most; there is one until two queries come together."""
SETS = 8
"""Restricted visible sets that have readers at one time; the one not asked for longest gives way."""
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
_LISTED = 100  # graphs up to which a restricted caller is answered by the common readers
_QUIET = 0.5  # seconds without a flood of writes, after which replicas are renewed though nobody asks


class Promise(Future[QueryWorker]):
    """A reader for ``client``, as soon as one is free that holds ``need``; a ``long`` query leaves one reader to the others."""

    def __init__(self, need: int, deadline: float, client: str, *, long: bool) -> None:
        super().__init__()
        self.need, self.deadline, self.client, self.long = need, deadline, client, long


@dataclass(slots=True)
class Pool:
    """The readers of one visible set."""

    visible: Visible | None
    size: int
    most: int
    waiting: FairQueue[Promise]
    readers: set[QueryWorker] = field(default_factory=set)
    idle: list[QueryWorker] = field(default_factory=list)
    starting: int = 0
    lost_starting: int = 0  # readers one after the other that ended before they were open
    worn: set[QueryWorker] = field(default_factory=set)  # they serve until their successor is there
    asked_at: float = field(default_factory=time.monotonic)

    def may_take_long(self) -> bool:
        """Return whether one more reader may work on what takes long: the last one is kept for what does not."""
        return self.most < 2 or sum(each.long for each in self.readers) < self.most - 1


class Pools:
    """The readers of all visible sets: ``common`` has ``count`` at most.

    ``start`` starts one, ``errand`` does what takes long: neither at once.
    """

    def __init__(
        self, generation: int, count: int, start: Callable[[Pool], None], errand: Callable[[Callable[[], None]], None]
    ) -> None:
        self._start, self._errand = start, errand
        self._flood_at = 0.0
        self._told = 0  # bytes of deltas at the last look
        self.deltas = Deltas(generation)
        self.usage = Usage()
        self.common = Pool(None, count, count, FairQueue(self._used))
        self.found: dict[Visible | None, Pool] = {None: self.common}
        self.tended: dict[QueryWorker, float] = {}  # opening, catching up or draining, and until when
        self.ended: Counter[Fate] = Counter()

    def follow(self, delta: Delta) -> None:
        """Take the next delta."""
        self.deltas.append(delta)
        if delta.bulk:
            self._flood_at = time.monotonic()

    def of(self, visible: Visible | None) -> Pool:
        """Return the pool of a visible set, made when there is none; the one not asked for longest may give way."""
        pool = self.found.get(visible)
        if pool is None:
            restricted = [each for each in self.found.values() if each is not self.common and not each.waiting]
            if len(restricted) >= SETS:
                self.close(min(restricted, key=lambda each: each.asked_at))
            pool = self.found[visible] = Pool(visible, 1, RESTRICTED, FairQueue(self._used))
        pool.asked_at = time.monotonic()
        return pool

    def _used(self, client: str) -> float:
        """Return the reader time that a client has used lately and is using now, in seconds."""
        now = time.monotonic()
        working = (each for pool in self.found.values() for each in pool.readers if each.began is not None)
        return self.usage.of(client) + sum(now - (each.began or now) for each in working if each.client == client)

    def _is_heavy(self, client: str) -> bool:
        """Return whether a client has used much, and there are others that it keeps from using any."""
        return self._used(client) > HEAVY and self.usage.others(client)

    def _may_take(self, pool: Pool, client: str) -> bool:
        """Return whether a client may have one more reader: it leaves one to others, and so do all heavy clients together.

        Readers that are being opened do not count: a query that waits for one of them waits long.
        """
        if pool.most < 2 or not self.usage.others(client):
            return True
        busy = [each.client for each in pool.readers if each.began is not None]
        heavy = self._is_heavy(client)
        held = sum(each == client or (heavy and self._is_heavy(each)) for each in busy)
        ready = sum(each.began is not None or each.spoke for each in pool.readers)
        return held == 0 or held < ready - 1

    def idle(self, pool: Pool, need: int, deadline: float, client: str, *, long: bool) -> QueryWorker | None:
        """Lend an idle reader of a pool if there is one."""
        self.usage.charge(client, 0.0)  # it is present
        if (long and not pool.may_take_long()) or not self._may_take(pool, client):
            return None
        for reader in reversed(pool.idle):
            if self.lend(reader, need, deadline, client, long=long):
                pool.idle.remove(reader)
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

    def offer(self, pool: Pool, reader: QueryWorker) -> None:
        """Give a free reader to the client whose turn it is and that can use it, else keep it."""
        for promise in list(pool.waiting):
            if (promise.long and not pool.may_take_long()) or not self._may_take(pool, promise.client):
                continue
            if self.lend(reader, promise.need, promise.deadline, promise.client, long=promise.long):
                pool.waiting.remove(promise.client, promise)
                if promise.set_running_or_notify_cancel():
                    promise.set_result(reader)
                    return
                reader.began, reader.long = None, False
        pool.idle.append(reader)
        if len(fresh := pool.readers - pool.worn - self._stale(pool)) > pool.most and reader in fresh:
            self.forget(pool, reader, "resting")  # the one more that ``give_way`` started

    def join(self, reader: QueryWorker, room: int, client: str) -> bool:
        """Prepare a busy reader for one more query of a client that may have it.

        Its deltas must be at most ``room`` bytes, and nobody wait for a reader.
        """
        if reader.client != client and not self._may_take(self.common, client):
            return False
        owed = self.deltas.since(reader.generation)
        if owed is None or sum(len(each.update) for each in owed) > room:
            return False
        if self.common.waiting or reader.fate or reader.reniced or reader.replayed > replica_deltas.LIMIT:
            return False
        if self.common.size < self.common.most:  # it would not stand behind another if there were more
            self.common.size = self.common.most
            self.maintain(self.common)
        reader.owed = owed
        return True

    def _stale(self, pool: Pool) -> set[QueryWorker]:
        """Return the readers that can no longer catch up."""
        return {each for each in pool.readers if not self.deltas.reach(each.generation)}

    def maintain(self, pool: Pool) -> None:
        """Start the readers that a pool lacks, and let go of those that are replaced."""
        if len(pool.waiting) > (pool is not self.common):
            pool.size = pool.most
        stale = self._stale(pool)
        fresh = len(pool.readers - stale - pool.worn)
        if not stale or pool.waiting or time.monotonic() - self._flood_at > _QUIET:
            for _ in range(pool.size - fresh - pool.starting):
                pool.starting += 1
                self._start(pool)
        for reader in [each for each in pool.idle if each in pool.worn or each in stale]:
            if fresh >= pool.size or len(pool.readers) > pool.size:
                pool.idle.remove(reader)
                self.forget(pool, reader, "worn" if reader in pool.worn else "stale")

    def give_way(self, pool: Pool, now: float) -> None:
        """Note which readers work on what takes long; when all of them do, see to one more for shorter queries.

        One that may be asked again ends: the newest query of the client that used most. A reader whose result has begun goes on, since its
        query cannot be asked again; when all have, and a query waits, one reader more than usual is started.
        """
        if pool.most < 2:
            return
        for reader in pool.readers:
            if reader.began is not None and now - reader.began > LONG_OF_HEAVY and not reader.long:
                reader.long = now - reader.began > LONG or self._is_heavy(reader.client)
        working = [each for each in pool.readers if each.long]
        if len(working) < pool.most:
            if working and not pool.idle and pool.size < pool.most:  # the next query would wait for a start
                pool.size = pool.most
                self.maintain(pool)
            return
        if quiet := [each for each in working if not each.spoke]:
            used = {
                client: self._used(client) for client in {each.client for each in quiet}
            }  # at one moment: use fades
            victim = max(quiet, key=lambda each: (used[each.client], each.began or 0.0))
            self.forget(pool, victim, "gave way", held=True)
            self.maintain(pool)
        elif any(not each.long for each in pool.waiting) and len(pool.readers) + pool.starting == pool.most:
            pool.starting += 1
            self._start(pool)

    def rest(self, pool: Pool, now: float) -> None:
        """Let go of readers that nobody has needed lately and that would have to be fed; the one asked last stays, but in a flood."""
        stay, resting = 1, RESTING
        if pool is self.common:
            if self.deltas.told - self._told > FLOOD:
                self._flood_at, stay, resting = now, 0, RESTING_IN_FLOOD
            elif not pool.size and now - self._flood_at > _QUIET:
                pool.size = 1
            self._told = self.deltas.told
        for reader in sorted(pool.idle, key=lambda each: each.lent)[: len(pool.readers) - stay]:
            if reader.generation < self.deltas.latest and now - reader.lent > resting:
                pool.size = len(pool.readers) - 1
                self.forget(pool, reader, "resting")

    def forget(self, pool: Pool, reader: QueryWorker, fate: Fate, *, held: bool = False) -> None:
        """Kill a reader and forget it."""
        reader.kill(fate)
        pool.readers.discard(reader)
        pool.worn.discard(reader)
        if reader in pool.idle:
            pool.idle.remove(reader)
        self.tended.pop(reader, None)
        self.ended[reader.fate] += 1
        self._errand(reader.reap if held else reader.bury)

    def close(self, pool: Pool) -> None:
        """End all readers of a pool."""
        for reader in list(pool.readers):
            self.forget(pool, reader, "closed")
        self.found.pop(pool.visible, None)


def listed(visible: Visible | None) -> bool:
    """Return whether ``visible`` is so small that its graphs are listed to a common reader."""
    return visible is not None and not visible.prefixes and len(visible.graphs) <= _LISTED
