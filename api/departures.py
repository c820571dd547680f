"""Noticing that a client has left: the task that works for it is cancelled.

One look every tenth of a second does for all: most are answered before it comes to them.
"""

from __future__ import annotations

import asyncio

from api.compression import Receive

_EVERY = 0.1  # seconds


class Leaving:
    """One request that is looked after; ``left`` once its client has gone."""

    def __init__(self, departures: Departures, receive: Receive) -> None:
        self.left = False
        self._departures, self._receive = departures, receive
        self._asking = asyncio.current_task()
        self._watching: asyncio.Task[None] | None = None

    def begin(self) -> None:
        """Look from now on."""
        self._watching = asyncio.create_task(self._watch())

    async def _watch(self) -> None:
        while (await self._receive())["type"] != "http.disconnect":
            pass
        self.left = True
        if self._asking:
            self._asking.cancel()

    def end(self) -> None:
        """Look no longer."""
        self._departures.forget(self)
        if self._watching:
            self._watching.cancel()


class Departures:
    """The requests of one event loop that are looked after."""

    def __init__(self) -> None:
        self._new: dict[Leaving, None] = {}
        self._ticking = False

    def watch(self, receive: Receive) -> Leaving:
        """Look after the request of the current task: its body was read, so all that ``receive`` can tell is that the client left."""
        leaving = Leaving(self, receive)
        self._new[leaving] = None
        if not self._ticking:
            self._tick()
        return leaving

    def forget(self, leaving: Leaving) -> None:
        """Look after it no longer."""
        self._new.pop(leaving, None)

    def _tick(self) -> None:
        self._ticking = True
        asyncio.get_running_loop().call_later(_EVERY, self._look, list(self._new))

    def _look(self, before: list[Leaving]) -> None:
        """Begin with those that have been there since the last look."""
        for each in before:
            if self._new.pop(each, self) is None:
                each.begin()
        self._ticking = False
        if self._new:
            self._tick()
