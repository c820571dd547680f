"""Telemetry whose integral is known: days of a cluster as exporters would show it, to be written to real servers.

A workload's pod is replaced every week; a container restarts every other day (cAdvisor then shows another ``id``, and the dead one no
more); an exporter restarts, so a counter begins again; for three hours nothing is scraped. An *installation* is how that is scraped: how
often, by how many scrapers (each with its own target's labels and moments), and whether a series that ends is marked as ended.

The truth of a counter is last - first of its written samples, resets joined, and what passed during the outage left out, since nothing was
measured then. The truth at one point comes from the load itself. None of it comes from a query.
"""

from __future__ import annotations

import zlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from functools import cached_property
from itertools import pairwise
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from drumlin.kg.rdf.jsonld import NodeDocument
from tests.unit.telemetry_store import CLUSTER, IRIS, pod, workload

Floats = NDArray[np.float64]

T0 = datetime(2026, 10, 1, tzinfo=UTC)
"""When the samples begin; the moments below are seconds since then."""
SECOND, DAY = int(T0.timestamp()), 86_400
OUTAGE = (5 * DAY + 7000.0, 5 * DAY + 7000.0 + 3 * 3600)
"""Between these nothing is scraped."""
NAMESPACE, WEB, NODE = "shop", "prod/shop/deployment/web", "prod/-/node/node-a"
CPU, MEMORY = "container_cpu_usage_seconds_total", "container_memory_working_set_bytes"
NETWORK, ENERGY = "container_network_receive_bytes_total", "kepler_pod_cpu_joules_total"
NODE_CPU = "node_cpu_seconds_total"
_RESOLUTION = 15  # seconds between two values of a load
_GRACE = 37.0  # seconds for which a pod outlives the coming of the next


class Scraper(NamedTuple):
    """One of those that scrape all targets: labels that it adds, when in the interval it comes, and a span in which it alone is down."""

    labels: Mapping[str, str]
    offset: float = 0.0
    down: tuple[float, float] = (0.0, 0.0)


@dataclass(frozen=True)
class Installation:
    """How the cluster is scraped, every ``scrape`` seconds give or take ``jitter``; ``markers``: a series that ends gets a staleness marker.

    ``failing`` is the share of scrapes that fail.
    """

    name: str
    scrape: int
    scrapers: tuple[Scraper, ...]
    markers: bool = False
    jitter: float = 0.004
    failing: float = 0.0


@dataclass(frozen=True)
class Source:
    """Something that is measured from ``begin`` to ``end``: a container's CPU, a pod's traffic.

    ``total`` is the counter (the gauge) itself, every few seconds from ``begin``; at ``resets`` the counter begins again.
    """

    metric: str
    labels: Mapping[str, str]
    begin: float
    end: float
    total: Floats = field(repr=False)
    resets: tuple[float, ...] = ()

    def at(self, moments: Floats) -> Floats:
        """Return what a scrape sees."""
        seen = self.truly(moments)
        if self.metric == MEMORY:
            return np.round(seen)
        for reset in self.resets:
            seen = np.where(moments >= reset, self.truly(moments) - self.truly(np.full(1, reset))[0], seen)
        return np.round(seen, 3)

    def truly(self, moments: Floats) -> Floats:
        """Return the counter as it would be without resets."""
        return np.interp(moments, self.begin + _RESOLUTION * np.arange(len(self.total)), self.total)


class Written(NamedTuple):
    """The samples of one series: milliseconds since the epoch and values; ``marker`` is when it is marked as ended."""

    metric: str
    labels: Mapping[str, str]
    stamps: NDArray[np.int64]
    values: Floats
    marker: int | None


@dataclass(frozen=True)
class ClusterLoad:
    """What happened in the cluster in so many days."""

    days: int
    seed: int = 7
    _counted: dict[tuple[str, int, str], tuple[Floats, Floats]] = field(default_factory=dict, repr=False, compare=False)

    @cached_property
    def pods(self) -> list[tuple[str, float, float | None]]:
        """The workload's pods: name, begin and end (None: it still runs). The next one comes before one goes."""
        starts = [0.0, *(float(day * DAY + 4321) for day in range(3, self.days - 1, 7))]
        ends = [*(each + _GRACE for each in starts[1:]), None]
        names = [f"web-{zlib.crc32(bytes([n])):08x}-{'bcdfghjkl'[n % 9] * 5}" for n in range(len(starts))]
        return list(zip(names, starts, ends, strict=True))

    def documents(self) -> list[NodeDocument]:
        """Describe the workload, its pods with their runs, and the node, as an exporter would."""
        web = IRIS.expand(WEB)
        pods = [
            pod(NAMESPACE, name, web, [(_iso(begin - 5), None if end is None else _iso(end))], gone=end is not None)
            for name, begin, end in self.pods
        ]
        node = {"id": IRIS.expand(NODE), "type": "Node", "name": "node-a", "partOf": CLUSTER}
        return [workload("Deployment", NAMESPACE, "web", began=_iso(-5)), *pods, node]

    @cached_property
    def sources(self) -> list[Source]:
        """Everything that is measured, each with noise of its own."""
        draw = np.random.default_rng(self.seed)
        reboot = (self.days * DAY * 0.4,)
        node = {"job": "node-exporter", "instance": "node-a", "cpu": "0", "mode": "user"}
        found = [_counter(draw, NODE_CPU, node, 0.0, self.days * DAY, 0.6, resets=reboot)]
        for number, (name, begin, last) in enumerate(self.pods):
            end = self.days * DAY + 3600.0 if last is None else last
            of_pod = {"namespace": NAMESPACE, "pod": name}
            slice_ = f"/kubepods.slice/kubepods-pod{number}.slice"
            for life, (born, died) in enumerate(pairwise([*np.arange(begin, end - DAY, 1.9 * DAY), end])):
                container = {**of_pod, "container": "app", "id": f"{slice_}/{life}", "name": f"c{number}-{life}"}
                start = born + (11.0 if life else 0.0)
                found.append(_counter(draw, CPU, {**container, "cpu": "total"}, start, died, 0.4))
                found.append(_gauge(draw, MEMORY, container, start, died))
            network = {**of_pod, "id": slice_, "interface": "eth0"}
            found.append(_counter(draw, NETWORK, network, begin, end, 9e5))
            kepler = {"pod_namespace": NAMESPACE, "pod_name": name, "pod_id": f"u{number}", "node_name": "node-a"}
            kepler |= {"zone": "package", "state": "running"}
            found.append(_counter(draw, ENERGY, kepler, begin, end, 9.0, resets=(begin + (end - begin) / 2,)))
        return found

    def written(self, installation: Installation, metrics: frozenset[str]) -> Iterator[Written]:
        """Yield the series that a server gets, those of one scraper after the other."""
        for number, scraper in enumerate(installation.scrapers):
            moments = self._moments(installation, number)
            for source in self.sources:
                seen = moments[(moments >= source.begin) & (moments < source.end)]
                if source.metric not in metrics or len(seen) < 2:
                    continue
                after = moments[moments >= source.end]
                marker = int(_stamps(after[:1])[0]) if installation.markers and len(after) else None
                yield Written(
                    source.metric, {**scraper.labels, **source.labels}, _stamps(seen), source.at(seen), marker
                )

    def _moments(self, installation: Installation, number: int) -> Floats:
        """Return when a scraper came."""
        scraper = installation.scrapers[number]
        draw = np.random.default_rng([self.seed, number])
        moments = np.arange(scraper.offset, self.days * DAY + 600, installation.scrape, dtype=np.float64)
        moments += draw.uniform(0, installation.jitter, len(moments)).round(3)
        moments = moments[draw.random(len(moments)) >= installation.failing]
        for first, end in (OUTAGE, scraper.down):
            moments = moments[(moments < first) | (moments >= end)]
        return moments

    # -- the truth ----------------------------------------------------------------------------------------------------
    def total(self, installation: Installation, metric: str, first: float, last: float) -> float:
        """Return what a counter counted from one moment to another: last - first of each series' samples, resets joined.

        Counted by the first scraper that was never down alone; what passed during the outage is left out.
        """
        moments, steps = self._steps(installation, metric)
        return float(steps[(moments > first) & (moments <= last)].sum())

    def _steps(self, installation: Installation, metric: str) -> tuple[Floats, Floats]:
        """Return what was counted between each two samples, at the moment of the later one."""
        key = installation.name, installation.scrape, metric
        if key not in self._counted:
            whole = next(each for each in installation.scrapers if each.down[0] == each.down[1])
            found = []
            for series in self.written(replace(installation, scrapers=(whole,)), frozenset({metric})):
                steps = np.diff(series.values)
                steps = np.where(steps < 0, series.values[1:], steps)  # a reset: counted from nothing
                counts = np.diff(series.stamps) < 3600_000
                found.append(np.stack([(series.stamps[1:] / 1000 - SECOND)[counts], steps[counts]]))
            moments, counted = np.concatenate(found, axis=1)
            self._counted[key] = moments, counted
        return self._counted[key]

    def rate(self, metric: str, points: Floats, window: float) -> Floats:
        """Return a counter's mean rate over the window that ends at each point, of all that lived in it."""
        found = np.zeros_like(points)
        for source in self.sources:
            if source.metric == metric:
                first, last = (np.clip(each, source.begin, source.end) for each in (points - window, points))
                found += source.truly(last) - source.truly(first)
        return found / window

    def level(self, points: Floats) -> Floats:
        """Return the memory of all that lives at each point."""
        found = np.zeros_like(points)
        for source in self.sources:
            if source.metric == MEMORY:
                lives = (points >= source.begin) & (points < source.end)
                found += np.where(lives, source.at(points), 0)
        return found

    def edges(self, installation: Installation, metric: str) -> list[float]:
        """Return when something of a metric was born or died, a counter began again, or a scraper stopped or went on."""
        own = (edge for each in self.sources if each.metric == metric for edge in (each.begin, each.end, *each.resets))
        return sorted({*own, *OUTAGE, *(edge for each in installation.scrapers for edge in each.down)})


def _counter(
    draw: np.random.Generator,
    metric: str,
    labels: Mapping[str, str],
    begin: float,
    end: float,
    mean: float,
    resets: tuple[float, ...] = (),
) -> Source:
    """Return a counter of a load with a day's wave, changes within the hour, and noise of every moment."""
    count = int((end - begin) // _RESOLUTION) + 2
    clock = begin + _RESOLUTION * np.arange(count)
    knots = np.arange(begin, end + 7200, 3600)
    slow = np.interp(clock, knots, draw.lognormal(0, 0.25, len(knots)))
    load = mean * (1 + 0.5 * np.sin(2 * np.pi * clock / DAY)) * slow * draw.lognormal(0, 0.03, count)
    total = np.concatenate([[0.0], np.cumsum(load[:-1]) * _RESOLUTION])
    return Source(metric, labels, begin, end, total, resets)


def _gauge(draw: np.random.Generator, metric: str, labels: Mapping[str, str], begin: float, end: float) -> Source:
    """Return memory that grows eightfold in a container's life and begins small again, with a little noise."""
    count = int((end - begin) // _RESOLUTION) + 2
    return Source(metric, labels, begin, end, np.linspace(1e8, 8e8, count) * draw.lognormal(0, 0.005, count))


def _stamps(moments: Floats) -> NDArray[np.int64]:
    return np.round((SECOND + moments) * 1000).astype(np.int64)


def _iso(moment: float) -> str:
    return (T0 + timedelta(seconds=moment)).isoformat().replace("+00:00", "Z")
