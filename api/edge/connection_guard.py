"""Connections that only hold a place are cut, so that there is room for all others.

The server takes a bounded number of connections. One address that opens thousands and sends a byte from time to time would keep everybody
else out, probes too. So at each look, the connections of an address beyond its share are cut, those first that have sent least since
they were opened; young ones are left alone. A proxy brings the clients of many addresses: those that are configured are exempt.
"""

from __future__ import annotations

import asyncio
import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterator, Mapping
from pathlib import Path

import structlog

from drumlin.api.http import tcp_info

LOOK = 1.0
"""Seconds between two looks."""
YOUNG = 2.0
"""Seconds that a connection is left alone."""

log = structlog.get_logger()


class ConnectionGuard:
    """Keeps the connections of each address to ``share``; those in ``proxies`` may have any number."""

    def __init__(self, share: int, proxies: Collection[str], clock: Callable[[], float] = time.monotonic) -> None:
        self._share, self._proxies, self._clock = share, frozenset(proxies), clock
        self._since: dict[tuple[str, int], float] = {}

    async def watch(self) -> None:
        """Look again and again."""
        while True:
            await asyncio.sleep(LOOK)
            if _descriptors() > self._share:
                await asyncio.to_thread(self.look)

    def look(self) -> int:
        """Look once; return how many connections were cut."""
        connections = tcp_info.connections()
        now = self._clock()
        self._since = {each: self._since.get(each, now) for each in connections}
        count = 0
        for address, excess in self._excess(connections):
            for connection in excess:
                tcp_info.cut(connections[connection])
            if excess:
                count += len(excess)
                log.warning("connections_cut", address=address, connections=len(excess), share=self._share)
        return count

    def _excess(self, connections: Mapping[tuple[str, int], int]) -> Iterator[tuple[str, list[tuple[str, int]]]]:
        """Yield each address with the connections that are too many."""
        of: defaultdict[str, list[tuple[str, int]]] = defaultdict(list)
        for each in connections:
            of[each[0]].append(each)
        for address, all_ in of.items():
            if (over := len(all_) - self._share) > 0 and address not in self._proxies:
                now = self._clock()
                old = [each for each in all_ if now - self._since[each] >= YOUNG]
                old.sort(key=lambda each: tcp_info.received(connections[each]))
                yield address, old[:over]


def _descriptors() -> int:
    """Return how many descriptors this process has, 0 where that cannot be seen."""
    folder = Path("/proc/self/fd")
    return sum(1 for _ in folder.iterdir()) if folder.is_dir() else 0
