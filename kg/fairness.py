"""Fair turns between clients: who has used least comes next.

The use of a client is a number of seconds that halves every ``HALF_LIFE`` seconds, so that the past weighs less and less. A client is the
sender of a request (the name of its token, else its address); work that comes from no request belongs to the client "".
"""

from __future__ import annotations

import itertools
import time
from collections import OrderedDict, deque
from collections.abc import Callable, Iterator
from contextvars import ContextVar
from typing import Generic, TypeVar

T = TypeVar("T")
HALF_LIFE = 30.0
"""Seconds in which the use of a client halves."""
PRESENT = 60.0
"""Seconds after its last charge for which a client counts as present."""
MOST_CLIENTS = 10_000
"""Clients whose use is remembered; the one that was charged longest ago is forgotten first."""

client: ContextVar[str] = ContextVar("client", default="")
"""The client that the present work is for."""


class Usage:
    """What each client has used of something, in seconds that fade. Not for use by several threads at once."""

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._of: OrderedDict[str, tuple[float, float]] = OrderedDict()  # seconds, and when they were counted

    def charge(self, who: str, seconds: float) -> None:
        """Add to the use of a client."""
        self._of[who] = self.of(who) + seconds, self._clock()
        self._of.move_to_end(who)
        if len(self._of) > MOST_CLIENTS:
            self._of.popitem(last=False)

    def others(self, who: str) -> bool:
        """Return whether another client was charged within ``PRESENT`` seconds."""
        latest = itertools.islice(reversed(self._of.items()), 2)
        return any(each != who and self._clock() - at < PRESENT for each, (_, at) in latest)

    def of(self, who: str) -> float:
        """Return the use of a client, in seconds."""
        seconds, at = self._of.get(who, (0.0, 0.0))
        return seconds * 0.5 ** ((self._clock() - at) / HALF_LIFE) if seconds else 0.0


class FairQueue(Generic[T]):
    """Items that wait, by client. ``weight`` says what a client has used; the items of one client keep their order."""

    def __init__(self, weight: Callable[[str], float]) -> None:
        self._weight = weight
        self._of: dict[str, deque[T]] = {}
        self._length = 0

    def __len__(self) -> int:
        """Return how many wait."""
        return self._length

    def put(self, who: str, item: T) -> None:
        """Let an item of a client wait."""
        self._of.setdefault(who, deque()).append(item)
        self._length += 1

    def remove(self, who: str, item: T) -> bool:
        """Take an item out; False when it does not wait here."""
        queue = self._of.get(who, ())
        if item not in queue:
            return False
        self._of[who].remove(item)
        self._length -= 1
        if not self._of[who]:
            del self._of[who]
        return True

    def __iter__(self) -> Iterator[T]:
        """Yield all items in the order of their turns: one of each client, the least used first, then the next of each."""
        order = sorted(self._of, key=self._weight)
        waiting = [list(self._of[each]) for each in order]
        for turn in range(max(map(len, waiting), default=0)):
            yield from [items[turn] for items in waiting if turn < len(items)]

    def clear(self) -> None:
        """Forget all items."""
        self._of.clear()
        self._length = 0

    def waiting_for(self, who: str) -> int:
        """Return how many items of a client wait."""
        return len(self._of.get(who, ()))
