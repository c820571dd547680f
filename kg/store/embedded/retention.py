"""How far back the change log reaches: what is older, or more than fits, is given up step by step, beside writing.

A *pass* says durably up to which generation the log holds nothing any more (``Store.log`` refuses it from then on), then goes through those
rows a few at a time and deletes what is not the last row of a graph that is there, once the engine holds it: until then the rows are
needed after a crash. A graph
that is written later leaves its old last row to the next pass. What a follower has not read yet is never given up.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from datetime import timedelta

import structlog

from drumlin.kg.observed_time import ObservedTime
from drumlin.kg.store.embedded.change_log import ChangeLog

EVERY = 256
"""Rows written between two steps."""
STEP = 512
"""Rows that one step looks at: more than are written meanwhile, so that a pass ends; about a millisecond."""
_ROOM = 0.9  # of the bytes are kept when there are too many, so that not every step begins a pass

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Kept:
    """How much of the log is kept: ``age`` in observed time, and ``size`` in bytes of its file, with the records of all graphs in it."""

    age: timedelta
    size: int


class Pruning:
    """Prunes one change log, in the thread that writes it. ``needed`` returns the generation that all followers have read.

    Without ``kept`` nothing more is given up, and a pass that was begun is ended all the same.
    """

    def __init__(self, changes: ChangeLog, kept: Kept | None, observed: ObservedTime) -> None:
        self.needed: Callable[[], int] | None = None
        self._changes = changes
        self._kept = kept
        self._observed = observed
        self._written = 0
        # A pass that an earlier life did not end is gone through again.
        self._place: tuple[int, str] | None = (0, "") if changes.pruned() else None

    def step(self, newest: int, settled: int, written: int) -> None:
        """Do a little after a write of ``written`` rows up to the generation ``newest``; the engine holds all up to ``settled``.

        Raises ``StoreUnavailable`` when the disk does; the next step tries again.
        """
        self._written += written
        if self._written < EVERY:
            return
        self._written -= EVERY
        if self._place is None and not self._begun(newest, settled):
            self._written = 0
            return
        self._place = self._changes.sweep(self._place or (0, ""), STEP, settled)

    def _begun(self, newest: int, settled: int) -> bool:
        """Begin a pass if there is anything to give up."""
        if self._kept is None:
            return False
        pruned = self._changes.pruned()
        until = max(self._too_old(self._kept.age, pruned, newest), self._too_much(self._kept.size, pruned, newest))
        until = min(until, newest - 1, self.needed() if self.needed else newest)
        if until <= pruned:
            return False
        self._changes.give_up(until, settled)
        log.debug("log_pruned", oldest=until + 1, newest=newest)
        return True

    def _too_old(self, age: timedelta, pruned: int, newest: int) -> int:
        """Find the newest generation that is too old, by halving: times grow with generations."""
        before = self._observed.cutoff(age)
        low, high = pruned, newest
        while low < high:
            middle = (low + high + 1) // 2
            if self._changes.written_at(middle) < before:
                low = middle
            else:
                high = middle - 1
        return low

    def _too_much(self, size: int, pruned: int, newest: int) -> int:
        used = self._changes.used_bytes()
        return pruned if used <= size else newest - int((newest - pruned) * _ROOM * size / used)
