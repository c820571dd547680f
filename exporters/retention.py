"""Tombstones do not stay for ever: each is removed when the retention of its former class is over, in time that the service observed.

At once there go those whose retention ended within a day: a clock that is wrong when time is first observed costs little until it is seen.
The runs of pods move to the run archive before, so that the past still resolves.
The only writes that make the graph forget. A tombstone that was written over meanwhile is left alone: its digest is another.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Container, Iterator, Sequence
from datetime import UTC, datetime, timedelta
from urllib.parse import unquote

import structlog

from drumlin.exporters.jobs import PeriodicJob
from drumlin.exporters.pipeline.runs import text
from drumlin.exporters.pipeline.sink import Sink, batched
from drumlin.kg.config.settings import RetentionSettings
from drumlin.kg.observed_time import ObservedTime
from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.store.preconditions import PEERS, apply_allowed
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.store.run_archive import ArchivedRun, RunArchive

log = structlog.get_logger()

PERIOD_SECONDS = 3600.0
"""How often tombstones are looked through, and time is observed."""
AT_ONCE = timedelta(days=1)
"""Between the ends of the retention of those tombstones that are removed together."""
Cutoff = Callable[[timedelta], datetime]
"""The moment since which so much time was observed."""

_PROV = "http://www.w3.org/ns/prov#"
_OVER = f"""
SELECT ?entity ?former ?at WHERE {{
  ?entity a <{NAMESPACE}Tombstone> ; <http://www.w3.org/ns/prov#invalidatedAtTime> ?at .
  OPTIONAL {{ ?entity <{NAMESPACE}formerType> ?former }}
  FILTER(?at < "{{before}}"^^<http://www.w3.org/2001/XMLSchema#dateTime>)
}}"""


_RUNS = f"""
SELECT ?entity ?run ?start ?end ?outcome ?node ?manager ?above WHERE {{
  VALUES ?entity {{ {{named}} }}
  ?run <{NAMESPACE}runOf> ?entity ; <{_PROV}startedAtTime> ?start ; <{_PROV}endedAtTime> ?end .
  ?entity <{NAMESPACE}managedBy> ?manager . OPTIONAL {{ ?manager <{NAMESPACE}managedBy> ?above }}
  OPTIONAL {{ ?run <{NAMESPACE}outcome> ?outcome }} OPTIONAL {{ ?run <{NAMESPACE}scheduledOn> ?node }}
}}"""
_POD, _CRON_JOB = re.compile("/pod/[^/<>]+$"), re.compile("/cronjob/[^/]+$")
_SCHEDULED = re.compile("(.*)/job/(.*)-[0-9]{8,}")
_TOGETHER = 500  # tombstones whose runs are looked up together


def purge(sink: Sink, retention: RetentionSettings, cutoff: Cutoff, archive: RunArchive | None = None) -> int:
    """Remove the tombstones of all owners whose retention is over, a day's worth; return how many. Their runs go to the archive."""
    if not _over(sink, retention, cutoff):
        return 0
    # Before the second look: what changes after it has another digest. A peer's are removed when the peer removes them.
    entries = {each.graph: each for each in sink.entries() if not each.owner.startswith(PEERS)}
    due = [entries[graph] for graph in _over(sink, retention, cutoff, entries)]
    writes = [GraphWrite(each.graph, None, each.owner, expected=each.digest) for each in due]
    removed = 0
    if archive:  # all before the first is removed: a pod's tombstone names the Job, and that one's the CronJob
        for batch in batched(writes, _TOGETHER):
            archive.add(_archived(sink, [each.graph for each in batch]))
    for batch in batched(writes, _TOGETHER):
        # A refused graph was written meanwhile: it is no tombstone any more, or another one.
        gone = [each.graph for each in apply_allowed(sink.apply, batch)[0]]
        if archive:
            archive.forget(gone)
        removed += len(gone)
    return removed


def _archived(sink: Sink, graphs: Sequence[str]) -> Iterator[ArchivedRun]:
    """Yield the runs of those of the graphs that are pods' and say what managed them."""
    named = " ".join(f"<{each}>" for each in graphs if _POD.search(each))
    for row in sink.look_up(_RUNS.replace("{named}", named)) if named else ():
        manager, above = row["manager"], row.get("above")
        if above is None and (scheduled := _SCHEDULED.fullmatch(manager)):  # the Job's own tombstone went before
            above = f"{scheduled[1]}/cronjob/{scheduled[2]}"
        by_cron = above is not None and _CRON_JOB.search(above)
        yield ArchivedRun(
            workload=above if above and by_cron else manager,
            uid=unquote(row["run"].rpartition("/")[2]),
            pod=unquote(row["entity"].rpartition("/")[2]),
            job=manager if by_cron else None,
            start=int(datetime.fromisoformat(row["start"]).timestamp()),
            end=int(datetime.fromisoformat(row["end"]).timestamp()),
            node=row.get("node"),
            outcome=row["outcome"].removeprefix(NAMESPACE) if "outcome" in row else None,
        )


def _over(sink: Sink, retention: RetentionSettings, cutoff: Cutoff, among: Container[str] | None = None) -> list[str]:
    """Return the tombstones, ``among`` some, to remove now: those whose retention ended first, and within a day after."""
    cutoffs = {days: cutoff(timedelta(days=days)) for days in {retention.days, *retention.classes.values()}}
    ends: dict[str, datetime] = {}
    for row in sink.look_up(_OVER.replace("{before}", text(max(cutoffs.values())))):
        days = retention.classes.get(row.get("former", "").removeprefix(NAMESPACE), retention.days)
        at = datetime.fromisoformat(row["at"]).astimezone(UTC)
        if at < cutoffs[days] and (among is None or row["entity"] in among):
            ends[row["entity"]] = at + timedelta(days=days)
    return [entity for entity, end in ends.items() if end <= min(ends.values()) + AT_ONCE]


class Retention(PeriodicJob):
    """The purge as a job of the service: at its start and every hour."""

    def __init__(
        self, sink: Sink, retention: RetentionSettings, observed: ObservedTime, archive: RunArchive | None = None
    ) -> None:
        super().__init__("retention", PERIOD_SECONDS)
        self._sink = sink
        self._archive = archive
        self._retention = retention
        self._observed = observed

    def turn(self) -> bool:
        """Purge once; there is always more to come."""
        self._observed.observe()
        log.info("tombstones_purged", removed=purge(self._sink, self._retention, self._observed.cutoff, self._archive))
        return False
