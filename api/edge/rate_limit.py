"""Limits on what one client may ask of the readers: queries at once, and queries in a minute that had to be killed.

A client is the name of a token, else an address; behind a proxy all clients without a token are one. A limit that is reached is reported
with its numbers (429). Nothing is kept of a client that has no query running and none killed within the last minute.
"""

from __future__ import annotations

import itertools
import math
import time
from collections import Counter, OrderedDict, deque
from collections.abc import Callable

from drumlin.kg.errors import DrumlinError, QueryRejected, ReaderLost, Throttled

WINDOW = 60.0
"""Seconds over which killed queries are counted."""
MAX_CLIENTS = 10_000
"""Clients whose killed queries are remembered; those that had one killed longest ago are forgotten first."""


class RateLimiter:
    """The clients of a service. For one thread."""

    def __init__(self, *, concurrent: int, kills: int, clock: Callable[[], float] = time.monotonic) -> None:
        self._concurrent, self._max_kills, self._clock = concurrent, kills, clock
        self._running: Counter[str] = Counter()
        self._kills: OrderedDict[str, deque[float]] = OrderedDict()  # the client with the newest one last

    def acquire(self, address: str) -> None:
        """Count a query of a client as running until ``release``. Raises ``Throttled`` when it has enough already."""
        now = self._clock()
        self._expire(now - WINDOW)
        kills = [each for each in self._kills.get(address, ()) if each >= now - WINDOW]
        running, limit = self._running.get(address, 0), max(1, self._concurrent - len(kills))
        if running >= limit:
            because = f", since {len(kills)} of its queries had to be killed" if kills else ""
            raise Throttled(
                f"{running} queries of this client are running; the limit is {limit}{because}",
                hint="wait for some of them to end",
                detail={"limit": limit, "retryAfter": 1},
            )
        if kills and len(kills) >= self._max_kills:
            seconds = math.ceil(kills[0] + WINDOW - now)
            raise Throttled(
                f"{len(kills)} queries of this client had to be killed within {WINDOW:.0f} s; the limit is {self._max_kills}",
                hint=f"ask again in {seconds} s, for less at a time",
                detail={"limit": self._max_kills, "retryAfter": max(1, seconds)},
            )
        self._running[address] += 1

    def release(self, address: str) -> None:
        """Count a query as running no longer."""
        self._running[address] -= 1
        if not self._running[address]:
            del self._running[address]

    def record(self, address: str, error: DrumlinError) -> None:
        """Remember that a query of a client failed, when that cost a reader."""
        if not _is_kill(error):
            return
        kills = self._kills.setdefault(address, deque(maxlen=self._max_kills))
        kills.append(self._clock())
        self._kills.move_to_end(address)
        if len(self._kills) > MAX_CLIENTS:
            self._kills.popitem(last=False)

    def __len__(self) -> int:
        """Return of how many clients something is kept."""
        return len(self._running.keys() | self._kills.keys())

    def _expire(self, begin: float) -> None:
        """Forget the clients whose last kill was before ``begin``."""
        for address in list(itertools.takewhile(lambda each: self._kills[each][-1] < begin, self._kills)):
            del self._kills[address]


def _is_kill(error: DrumlinError) -> bool:
    """Return whether a query's end cost a reader: its deadline, its memory, a crash."""
    return isinstance(error, ReaderLost) or (isinstance(error, QueryRejected) and error.reason in ("timeout", "memory"))
