"""Ways in which the fake API server misbehaves, each seen in a bug report or a recording."""

from __future__ import annotations

import threading
from dataclasses import dataclass
from typing import Literal

Action = Literal[
    "refuse",  # answer `status` (with Retry-After) instead
    "missing",  # 404 as for a collection that is not served
    "reinitialise",  # 429 of a storage whose watch cache is being filled
    "drop",  # close the connection
    "silence",  # keep the connection open and say nothing more
    "truncate",  # send half an event or page, then end the answer cleanly
    "empty",  # 200 and a clean end
    "error",  # an ERROR event of `status` inside the 200
    "garble",  # a whole line that is not JSON
    "slow",  # send one byte every millisecond
    "lose-continue",  # a page without its token
    "no-initial-end",  # a watch-list that never says where the list ends
]


@dataclass(slots=True)
class Fault:
    """One misbehaviour: what, on which requests, how often, and after how many events or bytes of each."""

    action: Action
    on: Literal["list", "watch", "any"] = "any"
    plural: str | None = None
    times: int = 1
    after: int = 0
    status: int = 500
    retry_after: int | None = None


class Faults:
    """Faults that wait for a request that they fit."""

    def __init__(self) -> None:
        self._waiting: list[Fault] = []
        self._lock = threading.Lock()

    def inject(self, fault: Fault) -> Fault:
        """Let ``fault`` strike the next ``times`` requests that it fits."""
        with self._lock:
            self._waiting.append(fault)
        return fault

    def clear(self) -> None:
        """Behave from now on."""
        with self._lock:
            self._waiting.clear()

    def strike(self, plural: str, *, watch: bool) -> Fault | None:
        """Return the fault for a request, if one waits for it."""
        with self._lock:
            for fault in self._waiting:
                if fault.plural in {None, plural} and fault.on in {"any", "watch" if watch else "list"}:
                    fault.times -= 1
                    if fault.times <= 0:
                        self._waiting.remove(fault)
                    return fault
        return None
