"""Generated history for the sample's pods and nodes: OpenMetrics text for promtool's backfill, and then an exporter that goes on.

Each series has a daily and a weekly season, noise and, where it is a counter, only ever grows; the same seed gives the same history.
Names and labels are those of cAdvisor, kube-state-metrics, node-exporter and Kepler, as the shipped templates ask for them.
"""

from __future__ import annotations

import math
import random
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from datetime import datetime
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from typing import Any

from drumlin.api.demo import sample

STEP = 300
"""Seconds between samples."""

_DAY, _WEEK = 86_400, 7 * 86_400
_MB = 1_000_000.0


class GeneratedHistory:
    """All series from ``start`` (epoch seconds) on: first what was, then, to be scraped, what is. Not for use by several threads.

    Those of the pods that were ``scaled_down`` end then; without that time there are none.
    """

    def __init__(self, start: int, scaled_down: datetime | None = None) -> None:
        gone = sample.scaled_down(scaled_down) if scaled_down else []
        names = tuple(f'"{each["metadata"]["name"]}"' for each in gone)
        end = int(scaled_down.timestamp()) if scaled_down else None

        def generated(name: str, level: float, swing: float) -> _GeneratedSeries:
            return _GeneratedSeries(name, start, level, swing, end if any(each in name for each in names) else None)

        self._families = [
            (family, kind, [generated(_name(family, kind, labels), *rest) for labels, *rest in found])
            for family, kind, found in _families([*sample.collection("pods"), *gone])
        ]

    def write(self, path: Path, end: int) -> int:
        """Write the samples of the past, every ``STEP`` seconds up to ``end``, as OpenMetrics; return how many there are."""
        count = 0
        with path.open("w", encoding="utf-8", buffering=1 << 20) as out:
            for family, kind, found in self._families:
                out.write(f"# TYPE {family} {kind}\n")
                for series in found:
                    times = range(series.time, min(end, series.end or end), STEP)
                    for time in times:
                        out.write(f"{series.name} {series.sample(time, kind)} {time}\n")
                    count += len(times)
            out.write("# EOF\n")
        return count

    def text(self, time: float) -> str:
        """Return what each series is at ``time``, not before what was written or returned last, in Prometheus' text format."""
        lines = []
        for family, kind, found in self._families:
            name = _name(family, kind, "").removesuffix("{}")
            lines.append(f"# TYPE {name} {kind}")
            lines += [f"{series.name} {series.sample(time, kind)}" for series in found if series.end is None]
        return "\n".join(lines) + "\n"


def write_history(path: Path, *, start: int, end: int) -> int:
    """Write samples from ``start`` to ``end`` (epoch seconds, aligned to ``STEP``) and return how many there are."""
    return GeneratedHistory(start).write(path, end)


@contextmanager
def scraped(found: GeneratedHistory, clock: Callable[[], float]) -> Iterator[str]:
    """Serve what goes on to be generated on a free port of loopback; yield host:port."""

    class Scrape(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            body = found.text(clock()).encode()
            self.send_response(200)
            self.send_header("Content-Type", "text/plain; version=0.0.4")
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            """Say nothing of each scrape."""

    with HTTPServer(("127.0.0.1", 0), Scrape) as server:
        thread = threading.Thread(target=server.serve_forever, name="generated", daemon=True)
        thread.start()
        try:
            yield f"127.0.0.1:{server.server_port}"
        finally:
            server.shutdown()
            thread.join()


Series = tuple[str, float, float]  # labels, level (per second for counters), share of the level that swings


def _name(family: str, kind: str, labels: str) -> str:
    return f"{family}{'_total' if kind == 'counter' else ''}{{{labels}}}"


class _GeneratedSeries:
    def __init__(self, name: str, start: int, level: float, swing: float, end: int | None) -> None:
        self.name, self.time, self.end, self._level, self._swing = name, start, end, level, swing
        self._random = random.Random(name)  # noqa: S311 - a reproducible picture, not a secret
        self._shift = self._random.random() * _DAY
        self._last, self._total = float(start - STEP), 0.0

    def sample(self, time: float, kind: str) -> str:
        """Return the value at a time, which is not before the last one that was asked for."""
        season = math.sin(2 * math.pi * (time + self._shift) / _DAY) * 0.7 + math.sin(2 * math.pi * time / _WEEK) * 0.3
        swing = self._swing * season + self._swing * 0.3 * (self._random.random() - 0.5)
        value = max(0.0, self._level * (1 + swing))
        self._total += value * (time - self._last)
        self._last = time
        return f"{self._total:.3f}" if kind == "counter" else f"{value:.6g}"


def _families(manifests: Iterable[dict[str, Any]]) -> Iterator[tuple[str, str, list[Series]]]:
    pods = [_Pod(each) for each in manifests]
    containers = [(pod, name, limit) for pod in pods for name, limit in pod.containers]
    cadvisor = 'job="kubelet",metrics_path="/metrics/cadvisor"'

    def in_pod(pod: _Pod, container: str | None = None) -> str:
        labels = f'{cadvisor},namespace="{pod.namespace}",pod="{pod.name}"'
        return f'{labels},container="{container}"' if container else labels

    yield (
        "container_cpu_usage_seconds",
        "counter",
        [(in_pod(p, c), _level(p.name, c, limit), 0.5) for p, c, limit in containers],
    )
    yield (
        "container_memory_working_set_bytes",
        "gauge",
        [(in_pod(p, c), _level(p.name, c, 0.5) * 400 * _MB, 0.15) for p, c, _ in containers],
    )
    yield (
        "container_fs_usage_bytes",
        "gauge",
        [(in_pod(p, c), _level(p.name, c, 0.5) * 90 * _MB, 0.05) for p, c, _ in containers],
    )
    yield (
        "container_network_receive_bytes",
        "counter",
        [(in_pod(p), _level(p.name, "rx", 0.5) * _MB / 8, 0.6) for p in pods],
    )
    yield (
        "container_network_transmit_bytes",
        "counter",
        [(in_pod(p), _level(p.name, "tx", 0.5) * _MB / 10, 0.6) for p in pods],
    )
    yield (
        "kepler_pod_cpu_joules",
        "counter",
        [
            (f'pod_namespace="{p.namespace}",pod_name="{p.name}",zone="package"', _level(p.name, "j", 0.5) * 20, 0.5)
            for p in pods
        ],
    )
    limits = 'job="kube-state-metrics",resource="cpu",unit="core"'
    yield (
        "kube_pod_container_resource_limits",
        "gauge",
        [
            (f'{limits},namespace="{p.namespace}",pod="{p.name}",container="{c}"', limit, 0.0)
            for p, c, limit in containers
        ],
    )
    yield from _node_families()


def _node_families() -> Iterator[tuple[str, str, list[Series]]]:
    nodes = [(each["metadata"]["name"], int(each["status"]["capacity"]["cpu"])) for each in sample.collection("nodes")]
    job = 'job="node-exporter"'
    cpu = [
        (
            f'{job},instance="{node}",cpu="{core}",mode="{mode}"',
            share * (0.8 + 0.4 * _level(node, f"{core}{mode}", 0.5)),
            0.3,
        )
        for node, cores in nodes
        for core in range(min(cores, 4))
        for mode, share in (("user", 0.3), ("system", 0.1), ("idle", 0.55))
    ]
    yield "node_cpu_seconds", "counter", cpu
    yield (
        "node_memory_MemTotal_bytes",
        "gauge",
        [(f'{job},instance="{node}"', cores * 4000 * _MB, 0.0) for node, cores in nodes],
    )
    yield (
        "node_memory_MemAvailable_bytes",
        "gauge",
        [(f'{job},instance="{node}"', cores * 2200 * _MB, 0.2) for node, cores in nodes],
    )
    disk = ',device="/dev/vda1",fstype="ext4",mountpoint="/"'
    yield (
        "node_filesystem_size_bytes",
        "gauge",
        [(f'{job},instance="{node}"{disk}', 200_000 * _MB, 0.0) for node, _ in nodes],
    )
    yield (
        "node_filesystem_avail_bytes",
        "gauge",
        [(f'{job},instance="{node}"{disk}', 120_000 * _MB, 0.05) for node, _ in nodes],
    )
    for way in ("receive", "transmit"):
        yield (
            f"node_network_{way}_bytes",
            "counter",
            [(f'{job},instance="{node}",device="eth0"', _level(node, way, 0.5) * _MB, 0.5) for node, _ in nodes],
        )
    yield (
        "kepler_node_cpu_joules",
        "counter",
        [(f'node_name="{node}",zone="package"', cores * 6.0, 0.4) for node, cores in nodes],
    )


class _Pod:
    def __init__(self, manifest: dict[str, Any]) -> None:
        self.name: str = manifest["metadata"]["name"]
        self.namespace: str = manifest["metadata"]["namespace"]
        self.containers = [(each["name"], _cores(each)) for each in manifest["spec"]["containers"]]


def _cores(container: dict[str, Any]) -> float:
    text = str(container.get("resources", {}).get("limits", {}).get("cpu", "200m"))
    return float(text[:-1]) / 1000 if text.endswith("m") else float(text)


def _level(name: str, part: str, top: float) -> float:
    """Return a level between a fifth and three fifths of ``top``, the same on every run."""
    return top * (0.2 + 0.4 * random.Random(f"{name}/{part}").random())  # noqa: S311 - a reproducible picture
