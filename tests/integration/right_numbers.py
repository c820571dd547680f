"""What a history is off by: installations of a cluster whose truth is known, on real servers, asked for as a user asks.

``python -m tests.integration.right_numbers`` prints the table of docs/telemetry.md: 31 days, scrapes of 15 to 60 s.
"""

from __future__ import annotations

import logging
import sys
import tempfile
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import httpx
import numpy as np
import structlog
from rich.console import Console
from rich.table import Table

from drumlin.api.demo import prometheus as servers
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.history import History, SeriesTable
from drumlin.kg.telemetry.intervals import Intervals
from drumlin.kg.telemetry.resolve import Resolver
from tests.integration import known_truth as known
from tests.integration.conftest import need, start_influxdb
from tests.integration.known_truth import DAY, ClusterLoad, Installation, Scraper
from tests.integration.remote_write import STALE, samples, write
from tests.unit.telemetry_store import IRIS, GraphStore
from tests.waiting import until

ENTITIES = {
    "cpu_usage": (known.WEB, known.CPU),
    "mem_usage": (known.WEB, known.MEMORY),
    "network_receive": (known.WEB, known.NETWORK),
    "energy_joules": (known.WEB, known.ENERGY),
    "node": (known.NODE, known.NODE_CPU),
}
"""What is asked for → the entity, and the series that it comes from."""
LIMITS = {metric: 0.005 if metric == "mem_usage" else 0.001 for metric in ENTITIES}
POINT = 0.05
"""What one point may be off by, but within one window of an edge."""

_KUBELET = {"job": "kubelet", "metrics_path": "/metrics/cadvisor", "instance": "10.0.0.1:10250"}
_ALONE = (Scraper(_KUBELET, 17.4),)
DOWN = (6 * DAY + 555.0, 6 * DAY + 7777.0)
"""When the second of two replicas is down."""


def _twice(label: str, first: str, second: str, down: tuple[float, float] = (0.0, 0.0)) -> tuple[Scraper, ...]:
    return Scraper({**_KUBELET, label: first}, 3.2), Scraper({**_KUBELET, label: second}, 19.7, down)


def installations(scrape: int) -> list[Installation]:
    """Return the installations, scraped every so many seconds."""
    return [
        Installation("plain", scrape, _ALONE),
        Installation("ends marked", scrape, _ALONE, markers=True),
        Installation("scrapes on the grid", scrape, (Scraper(_KUBELET),), jitter=0),
        Installation("second kubelet Service", scrape, _twice("service", "kubelet", "kps-kubelet")),
        Installation("two jobs", scrape, _twice("job", "kubelet", "cadvisor")),
        Installation("dual-stack", scrape, _twice("instance", "10.0.0.1:10250", "[fd00::1]:10250")),
        Installation("replicas", scrape, _twice("prometheus_replica", "a", "b", DOWN)),
    ]


def failing(scrape: int) -> Installation:
    """Return an installation of which every fiftieth scrape fails."""
    return Installation("scrapes that fail", scrape, _ALONE, failing=0.02)


class Span(NamedTuple):
    """A window of a history, in seconds since the first sample, and its step."""

    name: str
    first: float
    last: float
    step: str


def spans(days: int) -> list[Span]:
    """Return the windows that are asked for: all, a day and hours in which a pod is replaced, hours in which nothing happens."""
    return [
        Span("whole", 0, days * DAY, "auto"),
        Span("whole", 0, days * DAY, "1h"),
        Span("a rollout's day", 2.8 * DAY, 3.8 * DAY, "5m"),
        Span("a rollout's hours", 2.95 * DAY, 3.2 * DAY, "auto"),
        Span("six quiet hours", 2.2 * DAY, 2.45 * DAY, "auto"),
    ]


class Off(NamedTuple):
    """What a history is off by: in total, and at the worst point that is not near an edge."""

    total: float
    point: float


def measure(
    server: Datasource, load: ClusterLoad, installation: Installation, metric: str, span: Span, *, means: bool = False
) -> Off:
    """Ask for a history and hold it to the truth; ``means``: a point of a gauge is the mean of its step (InfluxDB)."""
    entity, series = ENTITIES[metric]
    with History(Resolver(GraphStore(load.documents()), IRIS, [server], intervals=Intervals())) as history:
        name = "cpu_usage" if metric == "node" else metric
        start, end = (known.T0 + known.timedelta(seconds=each) for each in (span.first, span.last))
        found = history.fetch(entity, name, start=start, end=end, step=span.step)
    points, values = _points(found)
    step = found.grid.step
    window = max(step, 4 * installation.scrape)
    first = found.grid.start - step - known.SECOND
    near = np.zeros(len(points), bool)
    for edge in load.edges(installation, series):
        near |= (points >= edge - 1) & (points <= edge + window + installation.scrape)
    if series == known.MEMORY:
        true = _mean_level(load, points, step) if means else load.level(points)
        total = values.sum() / true.sum() - 1
    else:
        counted = values.sum() * (1 if metric == "energy_joules" else step)
        total = counted / load.total(installation, series, first, points[-1]) - 1
        true = load.rate(series, points, window) * (step if metric == "energy_joules" else 1)
    return Off(float(total), float(np.abs(values[~near] / true[~near] - 1).max()))


def _mean_level(load: ClusterLoad, points: known.Floats, step: int) -> known.Floats:
    """Return the mean memory of the step that ends at each point, without the outage."""
    moments = np.arange(points[0] - step, points[-1], 15.0)
    counts = (moments < known.OUTAGE[0]) | (moments >= known.OUTAGE[1])
    sums = np.concatenate([[0.0], np.cumsum(load.level(moments) * counts)])
    numbers = np.concatenate([[0], np.cumsum(counts)])
    last = np.round((points - moments[0]) / 15).astype(int)
    first = last - step // 15
    return (sums[last] - sums[first]) / np.maximum(numbers[last] - numbers[first], 1)


def _points(found: SeriesTable) -> tuple[known.Floats, known.Floats]:
    """Return the points that have a value, in seconds since the first sample, and their values."""
    table = found.table.filter(found.table["y"].is_valid())
    stamps = table["ds"].cast("int64").to_numpy() / 1000 - known.SECOND
    return stamps, table["y"].to_numpy()


# -- servers ----------------------------------------------------------------------------------------------------------
@contextmanager
def filled(
    kind: str, directory: Path, load: ClusterLoad, written: Iterable[Installation]
) -> Iterator[Mapping[str, Datasource]]:
    """Start a real server with installations, and yield the datasource of each."""
    directory.mkdir(parents=True, exist_ok=True)
    with _STARTS[kind](directory) as server:
        for each in written:
            _WRITE[kind](server.url, load, each)
        yield {each.name: _datasource(kind, server.url, each) for each in written}


def _prometheus(directory: Path) -> servers.Server:
    need("prometheus", "prometheus")
    block = "3000h"  # one block in memory takes samples of any time in any order
    return servers.start_prometheus(
        directory,
        arguments=[
            "--web.enable-remote-write-receiver",
            f"--storage.tsdb.min-block-duration={block}",
            f"--storage.tsdb.max-block-duration={block}",
        ],
    )


def _victoria(directory: Path) -> servers.Server:
    binary = need("victoria-metrics", "victoria-metrics")
    options = [f"-storageDataPath={directory / 'data'}", "-retentionPeriod=100y", "-search.disableCache"]
    return servers.start([str(binary), *options], "-httpListenAddr=127.0.0.1:{port}", "/health", directory / "log")


def _influxdb(directory: Path) -> servers.Server:
    server = start_influxdb(directory)
    httpx.post(f"{server.url}/query", params={"q": "CREATE DATABASE telegraf"}).raise_for_status()
    return server


def _write_remotely(url: str, load: ClusterLoad, installation: Installation) -> None:
    written: set[frozenset[tuple[str, str]]] = set()
    for series in load.written(installation, _metrics(installation)):
        labels = {"__name__": series.metric, "cluster": installation.name, **series.labels}
        ended = [] if series.marker is None else [samples(np.array([series.marker]), np.array([STALE]))]
        write(url, labels, [samples(series.stamps, series.values), *ended])
        written.add(frozenset(labels.items()))
    httpx.get(
        f"{url}/internal/force_flush", verify=False
    )  # VictoriaMetrics shows what is flushed; of Prometheus it is 404
    match = {"match[]": f'{{cluster="{installation.name}"}}', "start": known.SECOND - 1, "end": known.SECOND + 40 * DAY}

    def shown() -> bool:
        answer = httpx.get(f"{url}/api/v1/series", params=match, verify=False).raise_for_status()
        return len(answer.json()["data"]) == len(written)

    until(shown)


def _metrics(installation: Installation) -> frozenset[str]:
    """Return the series of an installation; the node's, whose labels are its own, only where the scrapers' differ all the same."""
    found = frozenset({known.CPU, known.MEMORY, known.NETWORK, known.ENERGY})
    return found | ({known.NODE_CPU} if installation.name in ("plain", "replicas") else set())


_FIELDS = {
    known.CPU: ("kubernetes_pod_container", "cpu_usage_core_nanoseconds", 1e9),
    known.MEMORY: ("kubernetes_pod_container", "memory_working_set_bytes", 1),
    known.NETWORK: ("kubernetes_pod_network", "rx_bytes", 1),
    known.ENERGY: ("kepler", "joules", 1),
}
"""Where Telegraf's inputs keep what the series say, and how many of its units one is."""


def _write_lines(url: str, load: ClusterLoad, installation: Installation) -> None:
    for series in load.written(installation, frozenset(_FIELDS)):
        measurement, field, factor = _FIELDS[series.metric]
        pod = series.labels.get("pod") or series.labels["pod_name"]
        head = f"{measurement},namespace={known.NAMESPACE},pod_name={pod},cluster={installation.name} {field}="
        pairs = zip((series.values * factor).tolist(), series.stamps.tolist(), strict=True)
        lines = [f"{head}{value!r} {stamp}" for value, stamp in pairs]
        for at in range(0, len(lines), 20_000):
            given = {"db": "telegraf", "precision": "ms"}
            content = "\n".join(lines[at : at + 20_000])
            httpx.post(f"{url}/write", params=given, content=content, timeout=60, verify=False).raise_for_status()


_STARTS = {"prometheus": _prometheus, "victoriametrics": _victoria, "influxdb": _influxdb}
_WRITE = {"prometheus": _write_remotely, "victoriametrics": _write_remotely, "influxdb": _write_lines}


def _datasource(kind: str, url: str, installation: Installation) -> Datasource:
    """Return a server as a user configures it for one installation."""
    given: dict[str, Any] = {
        "name": "main",
        "url": url,
        "scrape_interval": f"{installation.scrape}s",
        "matchers": {"cluster": installation.name},
    }
    if kind == "influxdb":
        series = {
            "workload.cpu_usage": _place(known.CPU) | {"read": "rate", "scale": 1e-9},
            "workload.mem_usage": _place(known.MEMORY),
            "workload.network_receive": _place(known.NETWORK) | {"read": "rate"},
            "workload.energy_joules": _place(known.ENERGY) | {"read": "increase"},
        }
        given |= {"kind": "influxdb", "database": "telegraf", "labels": {"pod": "pod_name"}, "series": series}
    else:
        language = "metricsql" if kind == "victoriametrics" else "promql"
        given |= {"kind": "prometheus", "language": language}
        given |= {"jobs": {"kubelet": ""}} if installation.name == "two jobs" else {}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def _place(series: str) -> dict[str, str]:
    measurement, field, _ = _FIELDS[series]
    return {"measurement": measurement, "field": field}


def rows(days: int, scrape: int, directory: Path) -> Iterator[tuple[str, str, str, str, Off]]:
    """Yield server, installation, metric, window and what it is off by, of everything."""
    load = ClusterLoad(days)
    with ExitStack() as stack:
        for kind in _STARTS:
            written = installations(scrape)[: 1 if kind == "influxdb" else None]
            found = stack.enter_context(filled(kind, directory / kind, load, written))
            for each in written:
                for metric, (_, series) in ENTITIES.items():
                    if series not in (_FIELDS if kind == "influxdb" else _metrics(each)):
                        continue
                    for span in spans(days):
                        off = measure(found[each.name], load, each, metric, span, means=kind == "influxdb")
                        yield kind, each.name, metric, f"{span.name}, {span.step}", off


def main() -> None:
    """Print the worst of each installation over all windows and scrape intervals (arguments: seconds), in percent."""
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.ERROR))
    worst: dict[tuple[str, str], dict[str, float]] = {}
    for scrape in [int(each) for each in sys.argv[1:]] or [15, 30, 60]:
        with tempfile.TemporaryDirectory() as name:
            for kind, installation, metric, _, off in rows(31, scrape, Path(name)):
                found = worst.setdefault((kind, installation), {})
                found[metric] = max(abs(off.total), found.get(metric, 0))
                found["point"] = max(off.point, found.get("point", 0))
    table = Table("server", "installation", *ENTITIES, "worst point", box=None)
    for (kind, installation), found in worst.items():
        shown = [f"{found[each]:.3%}" if each in found else "" for each in ENTITIES]
        table.add_row(kind, installation, *shown, f"{found['point']:.1%}")
    Console(width=140).print(table)


if __name__ == "__main__":
    main()
