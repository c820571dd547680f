"""How long a reflector waits for what: its settings, and the growing waits after failures."""

from __future__ import annotations

import random
from dataclasses import dataclass, field


@dataclass(frozen=True, slots=True)
class Timing:
    """How long each thing may take, in seconds; a pair is a range that is drawn from, so that kinds do not move in step."""

    watch: tuple[float, float] = (240.0, 300.0)
    """How long the server keeps one watch open (``timeoutSeconds``, whole seconds)."""
    silence: tuple[float, float] = (90.0, 120.0)
    """Nothing for this long means a dead connection: live servers send a bookmark about every 60 s."""
    page: float = 60.0
    """Nothing for this long gives up a page of a list."""
    backoff: tuple[float, float] = (0.5, 30.0)
    """First and longest wait after a failure; doubled each time, and half of it is drawn."""
    asked: float = 300.0
    """The longest wait that a server may ask for (``Retry-After``); one kind must not sleep for a day."""
    forbidden: tuple[float, float] = (120.0, 300.0)
    """Until a kind that is forbidden or not installed is tried again."""
    absent: tuple[float, float] = (20.0, 30.0)
    """Until a kind that was not found the first time is looked for again: a server that starts does not know its CRDs yet."""
    relist: tuple[float, float] | None = (1500.0, 2100.0)
    """Until a kind is listed anew though nothing seems wrong, None: never. A restored etcd loses and brings back objects unseen."""
    forgiven: float = 180.0
    """So long a 403 on a kind that was served counts as passing: a server that starts has not read its roles yet."""

    @classmethod
    def relisting(cls, minutes: float) -> Timing:
        """Return the usual times with a relist about every so many ``minutes``, a sixth more or less; 0: none."""
        seconds = minutes * 60.0
        return cls(relist=(seconds * 5 / 6, seconds * 7 / 6) if minutes else None)


@dataclass(slots=True)
class Backoff:
    """Exponential waits with jitter between ``first`` and ``most`` seconds."""

    first: float
    most: float
    failures: int = field(default=0, init=False)

    def next(self) -> float:
        """Return the next wait: half of it fixed, half of it drawn."""
        whole = min(self.most, self.first * 2.0 ** min(self.failures, 16))
        self.failures += 1
        return whole * random.uniform(0.5, 1.0)  # noqa: S311 — spreads load, guards nothing

    def reset(self) -> None:
        """Begin again at ``first``: something went well."""
        self.failures = 0
