"""Removes the snapshots of the public peer's clients that are too old, a few times an hour."""

from __future__ import annotations

import structlog

from drumlin.exporters.jobs import PeriodicJob
from drumlin.kg.graphs.legacy import LegacyGraphs

log = structlog.get_logger()

PERIOD_SECONDS = 150.0


class SnapshotExpiry(PeriodicJob):
    """Expires the snapshots of ``legacy``."""

    def __init__(self, legacy: LegacyGraphs) -> None:
        super().__init__("snapshot-expiry", PERIOD_SECONDS)
        self._legacy = legacy

    def turn(self) -> bool:
        """Remove what is too old; there is always more to come."""
        if removed := self._legacy.expire():
            log.info("snapshots_expired", removed=removed)
        return False
