"""Tombstones do not stay for ever: each is removed when the retention of its former class is over.

The only writes that make the graph forget. A tombstone that was written over meanwhile is left alone: its digest is another.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import UTC, datetime, timedelta

import structlog

from exporters.jobs import Job
from exporters.protocol import Clock
from exporters.runs import text
from exporters.sink import Sink, batched
from kg.errors import PreconditionFailed
from kg.jsonld import NAMESPACE
from kg.settings import RetentionSettings
from kg.store.protocol import GraphWrite

log = structlog.get_logger()

PERIOD_SECONDS = 3600.0
"""How often tombstones are looked through."""

_OVER = f"""
SELECT ?entity ?former ?at WHERE {{
  ?entity a <{NAMESPACE}Tombstone> ; <{NAMESPACE}formerType> ?former ; <http://www.w3.org/ns/prov#invalidatedAtTime> ?at .
  FILTER(?at < "{{before}}"^^<http://www.w3.org/2001/XMLSchema#dateTime>)
}}"""


def purge(sink: Sink, retention: RetentionSettings, now: datetime) -> int:
    """Remove the tombstones whose retention is over, whoever owns them; return how many."""
    if not _over(sink, retention, now):
        return 0
    entries = {
        each.graph: each for each in sink.entries()
    }  # before the second look: what changes after it has another digest
    due = [entries[graph] for graph in _over(sink, retention, now) if graph in entries]
    writes = [GraphWrite(each.graph, None, each.owner, expected=each.digest) for each in due]
    return sum(_removed(sink, batch) for batch in batched(writes))


def _over(sink: Sink, retention: RetentionSettings, now: datetime) -> list[str]:
    shortest = min([retention.days, *retention.classes.values()])
    rows = sink.look_up(_OVER.replace("{before}", text(now - timedelta(days=shortest))))
    return [row["entity"] for row in rows if _is_over(row["former"], row["at"], retention, now)]


def _is_over(former: str, at: str, retention: RetentionSettings, now: datetime) -> bool:
    days = retention.classes.get(former.removeprefix(NAMESPACE), retention.days)
    return datetime.fromisoformat(at).astimezone(UTC) < now - timedelta(days=days)


def _removed(sink: Sink, writes: Iterable[GraphWrite]) -> int:
    batch = list(writes)
    try:
        return len(sink.apply(batch))
    except PreconditionFailed:
        if len(batch) == 1:
            return 0  # somebody wrote over it
        return sum(_removed(sink, [each]) for each in batch)


class Retention(Job):
    """The purge as a job of the service: at its start and every hour."""

    def __init__(self, sink: Sink, retention: RetentionSettings, clock: Clock) -> None:
        super().__init__("retention", PERIOD_SECONDS)
        self._sink = sink
        self._retention = retention
        self._clock = clock

    def turn(self) -> bool:
        """Purge once; there is always more to come."""
        log.info("tombstones_purged", removed=purge(self._sink, self._retention, self._clock()))
        return False
