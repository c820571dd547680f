"""How one kind is doing: what its reflector counts, and the same as it is shown to others (metrics, readiness)."""

from __future__ import annotations

import time
from dataclasses import dataclass

from drumlin.exporters.protocol import Kind


@dataclass(frozen=True, slots=True)
class KindStatus:
    """How one kind is doing; ages in seconds, None before the first. ``relists`` counts lists begun after ``Synced``.

    ``trouble`` is why the last request for it failed, None once something came again; ``trouble_age`` is for how long, in seconds,
    changes may have gone unseen because of it.
    """

    kind: Kind
    synced: bool = False
    forbidden: bool = False
    absent: bool = False
    objects: int = 0
    event_age: float | None = None
    bookmark_age: float | None = None
    relists: int = 0
    gone410: int = 0
    rejected: int = 0
    trouble: str | None = None
    trouble_age: float | None = None


@dataclass(slots=True)
class Tally:
    """What a ``KindStatus`` is made from; written by the reflector's thread only."""

    synced: bool = False
    forbidden: bool = False
    absent: bool = False
    relists: int = 0
    gone410: int = 0
    rejected: int = 0
    event: float | None = None  # time.monotonic()
    bookmark: float | None = None
    trouble: str | None = None
    since: float | None = None  # of the first trouble in a row

    def troubled(self, reason: str) -> None:
        """Take note that a request failed."""
        self.trouble = reason
        self.since = time.monotonic() if self.since is None else self.since

    def untroubled(self) -> None:
        """Take note that the server has answered."""
        self.trouble = self.since = None

    def status(self, kind: Kind, objects: int) -> KindStatus:
        """Return how ``kind``, of which ``objects`` are known, is doing now; callable from any thread."""
        now = time.monotonic()
        return KindStatus(
            kind=kind,
            synced=self.synced,
            forbidden=self.forbidden,
            absent=self.absent,
            objects=objects,
            event_age=None if self.event is None else now - self.event,
            bookmark_age=None if self.bookmark is None else now - self.bookmark,
            relists=self.relists,
            gone410=self.gone410,
            rejected=self.rejected,
            trouble=self.trouble,
            trouble_age=None if self.since is None else now - self.since,
        )
