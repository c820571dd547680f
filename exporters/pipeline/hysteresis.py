"""Members of a set that count only when they last: readiness flaps, and each flap would be a write.

Pure. A member that comes or goes has to stay so for ``LASTS``; what turns back before has never happened.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator
from datetime import datetime, timedelta
from typing import Any

LASTS = timedelta(seconds=60)
"""So long something is so before it counts."""
Members = frozenset[Any]


class Hysteresis:
    """A set of members by name, and those that are turning. Not for use by several threads."""

    def __init__(self) -> None:
        self._settled: dict[str, Members] = {}
        self._turning: defaultdict[str, dict[Any, datetime]] = defaultdict(dict)  # by name: until when it has to last

    def offer(self, name: str, members: Members, now: datetime, *, at_once: bool = False) -> None:
        """Take in what is so now; ``at_once``: it counts without waiting, as at a start, when nobody knows since when it is so."""
        settled = self._settled.get(name, frozenset())
        turning = {each: self._turning[name].get(each, now + LASTS) for each in settled ^ members}
        self._turning[name] = dict.fromkeys(turning, now) if at_once else turning
        if not turning:
            del self._turning[name]

    def forget(self, name: str) -> None:
        """Forget a name."""
        self._settled.pop(name, None)
        self._turning.pop(name, None)

    def settle(self, now: datetime) -> Iterator[tuple[str, Members]]:
        """Yield each name whose members have changed, with those that it has."""
        for name, turning in list(self._turning.items()):
            due = frozenset(each for each, at in turning.items() if at <= now)
            if not due:
                continue
            members = self._settled.get(name, frozenset()) ^ due
            if members:
                self._settled[name] = members
            else:
                self._settled.pop(name, None)
            self._turning[name] = {each: at for each, at in turning.items() if each not in due}
            if not self._turning[name]:
                del self._turning[name]
            yield name, members
