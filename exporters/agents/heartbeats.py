"""Which agents are alive: their heartbeats, in memory only. Pure but for the clock.

An agent is silent once three of its intervals have passed without a word, and heard again after two heartbeats: so one late or
stray heartbeat changes nothing. What changes is a *transition*, and only that is written. After a start nobody knows when an agent was
heard last, so each has one interval of grace.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from dataclasses import dataclass
from typing import NamedTuple

MISSED = 3
"""Intervals without a heartbeat after which an agent is silent."""
MAX_DEPTH = 32
"""Agents above an agent, at most."""
RETURNED = 2
"""Heartbeats after which a silent agent is heard again."""


class HeartbeatTransition(NamedTuple):
    """An agent that has fallen silent, or is heard again; ``ago`` is for how many seconds it has not been heard."""

    guid: str
    silent: bool
    ago: float


@dataclass(slots=True)
class _Pulse:
    interval: float
    last: float
    silent: bool
    parent: str | None = None
    beats: int = 0
    heard: bool = False  # since this process runs

    @property
    def deadline(self) -> float:
        return self.last + MISSED * self.interval


class Heartbeats:
    """The pulses of all agents; ``clock`` gives seconds that never run back. May be used by several threads."""

    def __init__(self, clock: Callable[[], float]) -> None:
        self._clock = clock
        self._pulses: dict[str, _Pulse] = {}
        self._lock = threading.Lock()  # around what adds and removes; a heartbeat needs none

    def register(self, guid: str, interval: float, parent: str | None = None) -> None:
        """Take up an agent that has just been heard; one without an interval (0) is never waited for. ``parent`` is the one above."""
        with self._lock:
            if interval:
                self._pulses[guid] = _Pulse(interval, self._clock(), silent=False, parent=parent, heard=True)
            else:
                self._pulses.pop(guid, None)

    def recall(self, guid: str, interval: float, parent: str | None = None, *, silent: bool) -> None:
        """Take up an agent of which the graph knows, with one interval of grace; one that is known already stays as it is."""
        with self._lock:
            if interval and guid not in self._pulses:
                self._pulses[guid] = _Pulse(interval, self._clock() + interval, silent, parent)

    def forget(self, guid: str) -> None:
        """Wait for an agent no longer."""
        with self._lock:
            self._pulses.pop(guid, None)

    def clear(self) -> None:
        """Wait for nobody."""
        with self._lock:
            self._pulses.clear()

    def beat(self, guid: str) -> bool:
        """Note that an agent is alive; False when it is not known."""
        pulse = self._pulses.get(guid)
        if pulse is None:
            return False
        now = self._clock()
        if pulse.silent:
            pulse.beats = 1 if now > pulse.deadline else pulse.beats + 1
        pulse.last, pulse.heard = now, True
        return True

    def relay(self, guid: str, others: Iterable[str]) -> list[str]:
        """Note that agents below ``guid`` are alive, as it says; return those that are not known or not below it."""
        return [each for each in others if not (self._is_below(each, guid) and self.beat(each))]

    def _is_below(self, guid: str, above: str) -> bool:
        at: str | None = guid
        for _ in range(MAX_DEPTH):
            pulse = self._pulses.get(at or "")
            at = pulse.parent if pulse else None
            if at is None or at == above:
                break
        return at == above

    def ago(self, guid: str) -> float | None:
        """Return how many seconds ago an agent was heard; None when it was not since this process began."""
        pulse = self._pulses.get(guid)
        return self._clock() - pulse.last if pulse is not None and pulse.heard else None

    def due(self) -> list[HeartbeatTransition]:
        """Return the transitions that have not been settled yet."""
        now = self._clock()
        with self._lock:
            pulses = list(self._pulses.items())
        found = []
        for guid, pulse in pulses:
            if not pulse.silent and now > pulse.deadline:
                found.append(HeartbeatTransition(guid, silent=True, ago=now - pulse.last))
            elif pulse.silent and pulse.beats >= RETURNED:
                found.append(HeartbeatTransition(guid, silent=False, ago=now - pulse.last))
        return found

    def settle(self, transition: HeartbeatTransition) -> None:
        """Note that a transition has been written."""
        pulse = self._pulses.get(transition.guid)
        if pulse is not None:
            pulse.silent, pulse.beats = transition.silent, 0
