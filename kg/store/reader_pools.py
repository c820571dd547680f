"""Which reader serves whom: the readers of each visible set, who waits for one, which are worn or behind. No threads, no processes.

Nothing here is locked: the lock of ``kg.store.readers`` guards all of it.
"""

from __future__ import annotations

import time
from collections import Counter, deque
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass, field

from kg.store import replica_deltas
from kg.store.delta import Delta
from kg.store.protocol import Visible
from kg.store.reader import Fate, Reader
from kg.store.replica_deltas import Deltas

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
_LISTED = 100  # graphs up to which a restricted caller is answered by the common readers
_QUIET = 0.5  # seconds without a flood of writes, after which replicas are renewed though nobody asks


class Promise(Future[Reader]):
    """A reader, as soon as one is free that holds ``need``."""

    def __init__(self, need: int, deadline: float) -> None:
        super().__init__()
        self.need, self.deadline = need, deadline


@dataclass(slots=True)
class Pool:
    """The readers of one visible set."""

    visible: Visible | None
    size: int
    most: int
    readers: set[Reader] = field(default_factory=set)
    idle: list[Reader] = field(default_factory=list)
    waiting: deque[Promise] = field(default_factory=deque)
    starting: int = 0
    worn: set[Reader] = field(default_factory=set)  # they serve until their successor is there
    asked_at: float = field(default_factory=time.monotonic)


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
        self.common = Pool(None, count, count)
        self.found: dict[Visible | None, Pool] = {None: self.common}
        self.tended: dict[Reader, float] = {}  # opening, catching up or draining, and until when
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
            pool = self.found[visible] = Pool(visible, 1, RESTRICTED)
        pool.asked_at = time.monotonic()
        return pool

    def idle(self, pool: Pool, need: int, deadline: float) -> Reader | None:
        """Lend an idle reader of a pool if there is one."""
        for reader in reversed(pool.idle):
            if self.lend(reader, need, deadline):
                pool.idle.remove(reader)
                return reader
        return None

    def lend(self, reader: Reader, need: int, deadline: float) -> bool:
        """Prepare a free reader for a query that must see ``need``; False when it cannot."""
        owed = self.deltas.since(reader.generation) if reader.generation < need else []
        if owed is None:
            return False
        reader.begin(deadline, owed)
        return True

    def offer(self, pool: Pool, reader: Reader) -> None:
        """Give a free reader to who waits longest and can use it, else keep it."""
        for promise in list(pool.waiting):
            if self.lend(reader, promise.need, promise.deadline):
                pool.waiting.remove(promise)
                if promise.set_running_or_notify_cancel():
                    promise.set_result(reader)
                    return
                reader.began = None
        pool.idle.append(reader)

    def join(self, reader: Reader, room: int) -> bool:
        """Prepare a busy reader for one more query, when its deltas are at most ``room`` bytes and nobody waits for a reader."""
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

    def maintain(self, pool: Pool) -> None:
        """Start the readers that a pool lacks, and let go of those that are replaced."""
        if len(pool.waiting) > (pool is not self.common):
            pool.size = pool.most
        stale = {each for each in pool.readers if not self.deltas.reach(each.generation)}
        fresh = len(pool.readers - stale - pool.worn)
        if not stale or pool.waiting or time.monotonic() - self._flood_at > _QUIET:
            for _ in range(pool.size - fresh - pool.starting):
                pool.starting += 1
                self._start(pool)
        for reader in [each for each in pool.idle if each in pool.worn or each in stale]:
            if fresh >= pool.size or len(pool.readers) > pool.size:
                pool.idle.remove(reader)
                self.forget(pool, reader, "worn" if reader in pool.worn else "stale")

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

    def forget(self, pool: Pool, reader: Reader, fate: Fate, *, held: bool = False) -> None:
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
    """Tell whether ``visible`` is so small that its graphs are listed to a common reader."""
    return visible is not None and not visible.prefixes and len(visible.graphs) <= _LISTED
