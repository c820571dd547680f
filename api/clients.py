"""What one client may ask of the readers: so many queries at once, and so many in a minute that must be killed.

A client is an address; behind a proxy all of its clients are one. A limit that is reached is told with its numbers (429).
"""

from __future__ import annotations

import math
import time
from collections import deque

from kg.errors import DrumlinError, QueryRejected, ReaderLost, Throttled

WINDOW = 60.0
"""Seconds over which killed queries are counted."""
_MANY = 1000  # clients, above which those that ask for nothing are forgotten


class Client:
    """One client: how many of its queries run, and when some had to be killed."""

    def __init__(self) -> None:
        self.running = 0
        self.killed: deque[float] = deque()

    def fail(self, error: DrumlinError) -> None:
        """Note how a query of it failed."""
        if _killed(error):
            self.killed.append(time.monotonic())


class Clients:
    """The clients of a service. For one thread."""

    def __init__(self, *, concurrent: int, kills: int) -> None:
        self._concurrent, self._kills = concurrent, kills
        self._clients: dict[str, Client] = {}

    def admit(self, address: str) -> Client:
        """Return the client whose query may run: count it in ``running`` meanwhile. Raises ``Throttled`` when it has enough already."""
        if len(self._clients) > _MANY:
            self._clients = {name: each for name, each in self._clients.items() if each.running or each.killed}
        client = self._clients.get(address)
        if client is None:
            client = self._clients[address] = Client()
        if client.running >= self._concurrent:
            raise Throttled(
                f"{client.running} queries of this client are running; the limit is {self._concurrent}",
                hint="wait for some of them to end",
                detail={"limit": self._concurrent, "retryAfter": 1},
            )
        if client.killed:
            self._check_kills(client)
        return client

    def _check_kills(self, client: Client) -> None:
        now = time.monotonic()
        while client.killed and client.killed[0] < now - WINDOW:
            client.killed.popleft()
        if len(client.killed) >= self._kills:
            seconds = math.ceil(client.killed[0] + WINDOW - now)
            raise Throttled(
                f"{len(client.killed)} queries of this client had to be killed within {WINDOW:.0f} s; the limit is {self._kills}",
                hint=f"ask again in {seconds} s, for less at a time",
                detail={"limit": self._kills, "retryAfter": max(1, seconds)},
            )


def _killed(error: DrumlinError) -> bool:
    """Tell whether a query's end cost a reader: its deadline, its memory, a crash."""
    return isinstance(error, ReaderLost) or (isinstance(error, QueryRejected) and error.reason in ("timeout", "memory"))
