"""Runs of pods that are over, as the series of kube-state-metrics show them: who ran, when, where, and for which workload.

Read a day at a time at the end of that day: a pod that has a series in the day and none at its end is over. Its start is the value of
``kube_pod_start_time``, so the day in which it ended is enough to know its whole run, however long that was; its end is the time of its
last sample, or what completed pods say of themselves. So a day costs a few queries over what ended in it, and the newest days are known
first.

What an outage of the exporter makes of this: pods seem to end when it begins. Whoever merges the runs by uid takes the latest end, and what
lives is not over. Outages are reported, since pods that ran in them only are not known.
"""

from __future__ import annotations

import math
import re
import statistics
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime, timedelta
from itertools import pairwise
from typing import NamedTuple

from drumlin.kg.telemetry.fetch.connection import TooHeavy
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.kube_state import NO_OWNER, POD_INFO, POD_START, KubeState
from drumlin.kg.telemetry.promql import Matcher
from drumlin.kg.telemetry.quoting import any_of
from drumlin.kg.telemetry.series import Grid, moment

MARGIN = timedelta(minutes=10)
"""How much more than the span is read before it: a server looks five minutes back for what it takes to be there."""
_RESOLUTIONS = (60, 300, 900)  # seconds, from fine to coarse: how exactly the last sample of a pod is timed
_SILENCE = 180.0  # seconds without a sample that are an outage, unless three scrapes take longer
_IDENTITY = ("namespace", "pod", "uid")
_OUTCOMES = {"Succeeded": "Completed", "Failed": "Failed"}
_Key = tuple[str, str, str]
_FEW = 300  # names that a query lists
_HASH = re.compile(r"-[0-9a-z]{5,10}$")  # of a ReplicaSet
_SCHEDULED = re.compile(r"-[0-9]{8,}$")  # a CronJob's Job: the minute that it was for


class PastRun(NamedTuple):
    """One run that is over. ``manager`` is kind and name of what managed the pod, ``above`` the CronJob of that Job."""

    namespace: str
    pod: str
    uid: str
    node: str
    start: float
    end: float
    outcome: str | None
    manager: tuple[str, str] | None
    above: tuple[str, str] | None


@dataclass(frozen=True, slots=True)
class Past:
    """What was read of a span: the runs that ended in it, newest first, the namespaces that had pods, and the outages, in seconds."""

    runs: list[PastRun]
    namespaces: frozenset[str]
    outages: list[tuple[float, float]]


class _Owned(NamedTuple):
    """What owns ReplicaSets, or Jobs, by namespace and name."""

    owners: Mapping[tuple[str, str], tuple[str, str] | None]

    def of(self, namespace: str, name: str, pattern: re.Pattern[str], kind: str) -> tuple[str, str] | None:
        """Return what owns a ReplicaSet or Job, by its name where the server says nothing of it; None: nothing does."""
        if (namespace, name) in self.owners:
            return self.owners[namespace, name]
        return (kind, pattern.sub("", name)) if pattern.search(name) else None


def read(client: Prometheus, state: KubeState, start: datetime, at: datetime) -> Past:
    """Read the runs that ended from ``start`` to ``at``, as it was then. Raises what the client raises."""
    day = _Day(client, state, start, at)
    found, unsure = _runs(day)
    told = day.ask(f"count by ({state.by('namespace')}) ({day.last(POD_INFO)})")
    namespaces = {labels["namespace"] for labels, _ in told if labels.get("namespace")}
    return Past(
        sorted(found, key=lambda run: (-run.end, run.uid)),
        frozenset(namespaces - unsure),
        _outages(client, state, start, at),
    )


class _Day(NamedTuple):
    """What is asked at the end of a span for what happened in it."""

    client: Prometheus
    state: KubeState
    start: datetime
    at: datetime

    @property
    def span(self) -> str:
        """The length of the span, with a margin before it."""
        return f"{int((self.at - self.start + MARGIN).total_seconds())}s"

    @property
    def unit(self) -> str:
        """The labels of one run."""
        return self.state.by(*_IDENTITY)

    @property
    def pods(self) -> str:
        """The pods that are on a node."""
        return self.state.select(POD_INFO, Matcher("node", "!=", ""))

    @property
    def over(self) -> str:
        """What leaves those out of a query that are there at the end."""
        return f"unless on ({self.unit}) {self.pods}"

    def last(self, metric: str, *matchers: Matcher) -> str:
        """Write the last value of each series."""
        return f"last_over_time({self.state.select(metric, *matchers)}[{self.span}])"

    def ask(self, query: str) -> list[tuple[dict[str, str], float]]:
        """Return labels, under their own names, and value of each point."""
        found, _ = self.client.instant(query, self.at)
        return [(self.state.plain(labels), value) for labels, value in found if math.isfinite(value)]

    def by_pod(self, query: str) -> dict[_Key, tuple[dict[str, str], float]]:
        """Return the points of a query that has one for each run."""
        told = self.ask(query)
        return {
            (labels["namespace"], labels["pod"], labels["uid"]): (labels, value)
            for labels, value in told
            if all(map(labels.get, _IDENTITY))
        }


def _runs(day: _Day) -> tuple[list[PastRun], set[str]]:
    """Return the runs that are over, and the namespaces in which some has no start, so that they are not all known."""
    unit, over, state = day.unit, day.over, day.state
    who = state.by(*_IDENTITY, "node", "created_by_kind", "created_by_name")
    found = day.by_pod(f"max by ({who}) ({day.last(POD_INFO, Matcher('node', '!=', ''))}) {over}")
    if not found:
        return [], set()
    starts = day.by_pod(f"max by ({unit}) ({day.last(POD_START)}) {over}")
    ends = _ends(day)
    finished = day.by_pod(f"max by ({unit}) ({day.last('kube_pod_completion_time')}) {over}")
    phases = day.last("kube_pod_status_phase", Matcher("phase", "=~", "|".join(_OUTCOMES)))
    ended = day.by_pod(f"(max by ({unit}, phase) ({phases}) == 1) {over}")
    sets = _owners(day, "kube_replicaset_owner", "replicaset", _names(found, "ReplicaSet"))
    jobs = _owners(day, "kube_job_owner", "job_name", _names(found, "Job"))
    runs: list[PastRun] = []
    for key in found.keys() & starts.keys() & ends.keys():
        labels, begun = found[key][0], starts[key][1]
        outcome = _OUTCOMES[ended[key][0]["phase"]] if key in ended else None
        until = finished[key][1] if outcome and key in finished else ends[key][1]
        manager, above = _manager(labels, sets, jobs)
        runs.append(PastRun(*key, labels.get("node", ""), begun, max(begun, until), outcome, manager, above))
    return runs, {key[0] for key in found.keys() - starts.keys()}


def _ends(day: _Day) -> dict[_Key, tuple[dict[str, str], float]]:
    """Return the time of the last sample of each pod that is over, as finely as the server's limits allow."""
    finest = int(day.client.datasource.scrape_interval.total_seconds())
    resolutions = sorted({max(each, min(finest, _RESOLUTIONS[-1])) for each in _RESOLUTIONS})
    for resolution in resolutions:
        last = f"max_over_time(timestamp({day.pods})[{day.span}:{resolution}s])"
        try:
            return day.by_pod(f"max by ({day.unit}) ({last}) {day.over}")
        except TooHeavy:
            if resolution == resolutions[-1]:
                raise
    return {}


def _names(found: Mapping[_Key, tuple[dict[str, str], float]], kind: str) -> frozenset[str]:
    created = (labels for labels, _ in found.values() if labels.get("created_by_kind") == kind)
    return frozenset(labels.get("created_by_name", "") for labels in created)


def _owners(day: _Day, metric: str, label: str, names: frozenset[str]) -> _Owned:
    """Return what owned each ReplicaSet, or Job, by namespace and name."""
    if not names:
        return _Owned({})
    listed = (Matcher(label, "=~", any_of(names)),) if len(names) <= _FEW else ()
    owners: dict[tuple[str, str], tuple[str, str] | None] = {}
    for labels in day.client.labels_of(day.state.select(metric, *listed), day.start - MARGIN, day.at):
        plain = day.state.plain(labels)
        if plain.get("owner_is_controller") == "false":
            continue
        owner = (plain.get("owner_kind", ""), plain.get("owner_name", ""))
        key = (plain.get("namespace", ""), plain.get(label, ""))
        owners[key] = owners.get(key) or (None if owner[1] in NO_OWNER else owner)
    return _Owned(owners)


def _manager(
    labels: Mapping[str, str], sets: _Owned, jobs: _Owned
) -> tuple[tuple[str, str] | None, tuple[str, str] | None]:
    """Return what managed a pod, as the exporter says it: a Deployment in the place of its ReplicaSet, a Job and the CronJob above."""
    kind, name, namespace = (labels.get(key, "") for key in ("created_by_kind", "created_by_name", "namespace"))
    if name in NO_OWNER:
        return None, None
    if kind == "ReplicaSet":
        return sets.of(namespace, name, _HASH, "Deployment") or (kind, name), None
    if kind == "Job":
        return (kind, name), jobs.of(namespace, name, _SCHEDULED, "CronJob")
    return (kind, name), None


def _outages(client: Prometheus, state: KubeState, start: datetime, end: datetime) -> list[tuple[float, float]]:
    """Return the spans without any sample: from the last one before to the first one after."""
    step = max(60, min(int(client.datasource.scrape_interval.total_seconds()), 300))  # a server looks 300 s back
    first, last = int(start.timestamp()) // step * step, int(end.timestamp()) // step * step
    grid = Grid(first, max(first, last), step)
    seen: list[float] = []
    for part in client.series(f"max(timestamp({state.select(POD_INFO)}))", grid).parts:
        seen += part.values.to_pylist()
    times = sorted(set(seen))
    scrape = statistics.median([later - earlier for earlier, later in pairwise(times)]) if len(times) > 1 else 0.0
    most = max(_SILENCE, 3 * scrape)
    edges = [start.timestamp(), *times, end.timestamp()]
    return [(earlier, later) for earlier, later in pairwise(edges) if later - earlier > most]


def lacking(client: Prometheus, state: KubeState, start: datetime, end: datetime) -> str | None:
    """Return what a server lacks, so that runs cannot be read from its series; None when it has all that is needed."""
    if not state.with_uid:
        return f"{POD_INFO} has no label uid"
    return None if client.label_names(state.select(POD_START), start, end) else f"there is no {POD_START}"


def before(client: Prometheus, state: KubeState, at: datetime) -> bool:
    """Return whether the server has any of it before a time."""
    return bool(client.label_names(state.select(POD_INFO), moment(0), at))
