"""Bodies of requests as they arrive: one that does not come to its end is told as that, to whom may still listen.

One look now and then does for all that are waited for: a timer for each would cost as much as reading a small body.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from typing import Any

from api import listening
from api.compression import Receive
from api.problems import BodyCut, BodyStalled

_LOOKS = 4  # within the time that a client is waited for

_Task = asyncio.Task[Any]


class _Waits:
    """The tasks that wait for more of a body, by the number of looks there were when they began."""

    def __init__(self) -> None:
        self.since: dict[_Task, int] = {}
        self.stalled: set[_Task] = set()
        self.looks = 0
        self._loop: asyncio.AbstractEventLoop | None = None  # that has the next look before it

    def attend(self) -> None:
        """See to it that there are looks."""
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop = loop
            loop.call_later(listening.STALLED / _LOOKS, self._look)

    def _look(self) -> None:
        self._loop = None
        self.looks += 1
        for task, begun in self.since.items():
            if self.looks - begun > _LOOKS and task not in self.stalled:
                self.stalled.add(task)
                task.cancel()
        if self.since:
            self.attend()


_waits = _Waits()


async def arriving(receive: Receive) -> AsyncIterator[bytes]:
    """Yield a body as it arrives. Raises ``BodyCut``, and ``BodyStalled`` when nothing comes for as long as a client is waited for."""
    task = asyncio.current_task()
    assert task is not None
    more = True
    while more:
        _waits.since[task] = _waits.looks
        _waits.attend()
        try:
            message = await receive()
        except asyncio.CancelledError as error:
            if task not in _waits.stalled:
                raise
            task.uncancel()
            text = f"nothing came of the body for {listening.STALLED:g} s"
            raise BodyStalled(text, hint="send it without long pauses") from error
        finally:
            del _waits.since[task]
            _waits.stalled.discard(task)
        if message["type"] == "http.disconnect":
            raise BodyCut("the connection ended before the body did; what was not whole was not done")
        more = message.get("more_body", False)
        if body := message.get("body"):
            yield body
