"""History of 1,000 workloads against prometheus-api-client and the bare transfer, on one real Prometheus in one run; and resolve.

Each workload had two pods, one after the other, so that every query joins a churn. The measured calls run in processes of their own:
what one leaves in memory is not counted for the next.
"""

from __future__ import annotations

import json
import os
import random
import resource
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import httpx
import structlog
from prometheus_api_client import MetricRangeDataFrame

from drumlin.api.demo import prometheus
from drumlin.kg.client.resolve_api import Resolved
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.prometheus import decode_values
from drumlin.kg.telemetry.formats import as_parquet
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.intervals import Intervals
from drumlin.kg.telemetry.resolution import Resolution
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.bench.running import Row, phase, sized

WORKLOADS, DAYS, STEP = *sized((1000, 30), (12, 2)), 300
PEER_QUERIES = sized(60, 2)  # of the incumbent's; scaled, it would take minutes
IRIS = Iris("https://kg.example")
CONCURRENCY = 4


def names(number: int) -> tuple[str, str]:
    """Return the names of a workload's two pods."""
    return f"wl-{number:04}-86b96c86dc-aaaaa", f"wl-{number:04}-77c5d8f9b-bbbbb"


def prepare(directory: Path, end: int) -> None:
    """Fill a Prometheus storage and a store with the same workloads."""
    _write_samples(directory / "load.om", end)
    prometheus.backfill(directory / "load.om", directory / "prometheus")
    (directory / "load.om").unlink()
    with closing(EmbeddedStore(directory / "store")) as store:
        found = [GraphWrite.of(str(each["id"]), lines(each), "bench") for each in _documents(end)]
        for at in range(0, len(found), 500):
            store.apply(found[at : at + 500])


def _write_samples(path: Path, end: int) -> None:
    """Write the pods' CPU counters as OpenMetrics, one scrape every five minutes."""
    draw = random.Random(7)
    stamps = [f" {second}\n" for second in range(end - DAYS * 86_400, end + 1, STEP)]
    half = len(stamps) // 2
    with path.open("w", encoding="utf-8") as out:
        out.write("# TYPE container_cpu_usage_seconds counter\n")
        for number in range(WORKLOADS):
            for pod, part in zip(names(number), (stamps[:half], stamps[half:]), strict=True):
                name = f'container_cpu_usage_seconds_total{{job="kubelet",metrics_path="/metrics/cadvisor",namespace="load",container="c",pod="{pod}"}} '
                value, written = 0.0, []
                for stamp in part:
                    value += draw.random() * STEP
                    written.append(f"{name}{value:.3f}{stamp}")
                out.write("".join(written))
        out.write("# EOF\n")


def _documents(end: int) -> Iterator[dict[str, Any]]:
    def moment(second: int) -> str:
        return datetime.fromtimestamp(second, UTC).isoformat().replace("+00:00", "Z")

    start, middle = end - DAYS * 86_400, end - DAYS * 43_200
    for number in range(WORKLOADS * 3 // 2):  # half as many again, for resolve alone
        iri = IRIS.object("prod", "load", "Deployment", f"wl-{number:04}")
        common = {"namespace": "load", "cluster": IRIS.cluster("prod")}
        run = {"id": IRIS.run(iri, "w"), "type": "Run", "startedAt": moment(start)}
        yield {"id": iri, "type": "Deployment", "name": f"wl-{number:04}", "runs": [run], **common}
        for pod, (began, ended) in zip(names(number), ((start, middle), (middle, None)), strict=True):
            name = IRIS.object("prod", "load", "Pod", pod)
            lived = {"id": IRIS.run(name, "r"), "type": "Run", "startedAt": moment(began)}
            lived |= {"endedAt": moment(ended)} if ended else {}
            yield {"id": name, "type": "Pod", "name": pod, "managedBy": iri, "runs": [lived], **common}


def datasource(url: str) -> Datasource:
    """Return the server as a configured datasource."""
    given = {"name": "p", "kind": "prometheus", "url": url, "scrape_interval": "5m", "concurrency": CONCURRENCY}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def ids(count: int) -> list[str]:
    """Return the short ids of the first workloads."""
    return [f"prod/load/deployment/wl-{number:04}" for number in range(count)]


def run() -> list[Row]:
    """Measure everything on one server; `make bench ARGS=telemetry`. Takes about two minutes and 2 GB of disk."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(os.environ.get("DRUMLIN_BENCH_TELEMETRY") or name)
        end = int(time.time()) // 86_400 * 86_400
        if not (directory / "end").exists():
            phase("filling a Prometheus and a store")
            prepare(directory, end)
            (directory / "end").write_text(str(end))
        end = int((directory / "end").read_text())
        with prometheus.start_prometheus(directory / "prometheus") as server:
            _apart("bare", directory, server.url, end)  # the page cache is warm for everybody
            found = {
                what: _apart(what, directory, server.url, end)
                for what in ("peer", "bare", "history", "parquet", "bare again", "history again", "resolve", "decode")
            }
    return _rows(found)


def _rows(found: dict[str, dict[str, float]]) -> list[Row]:
    ours = min(found["history"]["wall"], found["history again"]["wall"])
    bare = min(found["bare"]["wall"], found["bare again"]["wall"])
    peer = found["peer"]["wall"] * WORKLOADS / PEER_QUERIES
    what = f"history of {WORKLOADS:,} workloads × {DAYS} d × 5 min ({found['history']['rows'] / 1e6:.1f}M rows)"
    peak = found["parquet"]["rss"]
    return [
        (
            what,
            f"{ours:.1f} s",
            f"{peer:.0f} s prometheus-api-client ({PEER_QUERIES} measured)",
            f"{peer / ours:.1f} × faster",
            "≥ 8 ×",
        ),
        (
            "  against the bare transfer, 4 at a time",
            f"{ours:.1f} s",
            f"{bare:.1f} s bare",
            f"{ours / bare:.2f} ×",
            "≤ 1.3 ×",
        ),
        ("  its own processor time", f"{found['history']['cpu']:.1f} s", f"{found['bare']['cpu']:.1f} s bare", "", ""),
        (
            "  streamed to Parquet: time, peak RSS",
            f"{found['parquet']['wall']:.1f} s, {peak:.0f} MB",
            "",
            "",
            "≤ 400 MB",
        ),
        (
            f"resolve of {int(found['resolve']['rows']):,} entity × metric pairs",
            f"{found['resolve']['wall']:.2f} s",
            "",
            "",
            "≤ 2 s",
        ),
        (
            f"decode of {found['decode']['rows'] / 1e6:.1f}M samples",
            f"{found['decode']['wall']:.2f} s",
            "",
            "",
            "≤ 0.35 s",
        ),
        ("import drumlin", f"{_import_seconds() * 1000:.0f} ms", "", "", "≤ 150 ms"),
    ]


def _import_seconds() -> float:
    def once(code: str) -> float:
        began = time.perf_counter()
        subprocess.run([sys.executable, "-c", code], check=True)
        return time.perf_counter() - began

    return statistics.median(once("import drumlin") - once("pass") for _ in range(5))


def _apart(what: str, directory: Path, url: str, end: int) -> dict[str, float]:
    """Run one measurement in a process of its own and return its figures."""
    phase(what)
    command = [
        sys.executable,
        "-m",
        "tests.bench.telemetry",
        what.removesuffix(" again"),
        str(directory),
        url,
        str(end),
    ]
    done = subprocess.run(command, check=True, capture_output=True, text=True)
    found: dict[str, float] = json.loads(done.stdout.splitlines()[-1])
    return found


def _measured(work: Callable[[], int]) -> dict[str, float]:
    wall, cpu = time.perf_counter(), time.process_time()
    rows = work()
    figures = {"wall": time.perf_counter() - wall, "cpu": time.process_time() - cpu, "rows": rows}
    return figures | {"rss": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024}


class _Bench:
    """The measurements, over one store and one server."""

    def __init__(self, directory: Path, url: str, end: int) -> None:
        self.url = url
        self.window = Window(datetime.fromtimestamp(end - DAYS * 86_400, UTC), datetime.fromtimestamp(end, UTC))
        self.store = EmbeddedStore(directory / "store")
        self.resolver = Resolver(self.store, IRIS, [datasource(url)], intervals=Intervals())  # as the service's is
        self.out = directory / "out.parquet"

    def queries(self, count: int) -> list[Resolution]:
        pairs = [(each, "cpu_usage") for each in ids(count)]
        found = self.resolver.resolve_many(pairs, self.window, step="5m")
        return [each for each in found if isinstance(each, Resolution)]

    def forms(self) -> list[dict[str, str]]:
        first, last = (str(int(at.timestamp())) for at in (self.window.start, self.window.end))
        queries = self.queries(WORKLOADS)
        return [{"query": each.query, "start": first, "end": last, "step": str(STEP)} for each in queries]

    def bare(self) -> dict[str, float]:
        """Transfer the same answers, read and thrown away."""
        forms = self.forms()

        def work() -> int:
            headers = {"Accept-Encoding": "identity"}
            with httpx.Client(timeout=60, headers=headers) as client, ThreadPoolExecutor(CONCURRENCY) as pool:

                def one(form: dict[str, str]) -> int:
                    with client.stream("POST", self.url + "/api/v1/query_range", data=form) as answer:
                        return len(b"".join(answer.iter_bytes()))

                return sum(pool.map(one, forms))

        return _measured(work)

    def peer(self) -> dict[str, float]:
        """The same queries by prometheus-api-client, as its users write it."""
        queries = [Resolved(each.to_dict()).prometheus() for each in self.queries(PEER_QUERIES)]

        def work() -> int:
            rows = 0
            for connection, arguments in queries:
                got = connection.custom_query_range(**arguments)
                rows += len(
                    MetricRangeDataFrame([{**one, "metric": {"__name__": "x", **one["metric"]}} for one in got])
                )
            return rows

        return _measured(work)

    def history(self) -> dict[str, float]:
        """Ours, resolving included, into one table."""
        with History(self.resolver) as history:
            return _measured(lambda: history.fetch(ids(WORKLOADS), "cpu_usage", **self._span()).table.num_rows)

    def parquet(self) -> dict[str, float]:
        """Ours, streamed into a Parquet file."""

        def work() -> int:
            plan = history.plan(ids(WORKLOADS), "cpu_usage", **self._span())
            with self.out.open("wb") as out:
                for chunk in as_parquet(history.stream(plan)):
                    out.write(chunk)
            return plan.grid.points

        with History(self.resolver) as history:
            return _measured(work)

    def resolve(self) -> dict[str, float]:
        """Seven metrics of 1,429 workloads."""
        metrics = [each.metric for each in TemplateCatalogue.shipped().for_scope("Workload")][:7]
        pairs = [(each, metric) for each in ids(min(1429, WORKLOADS * 3 // 2)) for metric in metrics]
        return _measured(lambda: len(list(self.resolver.resolve_many(pairs, self.window, step="5m"))))

    def decode(self) -> dict[str, float]:
        """128 answers with all samples of a series each, the best of three."""
        form = self.forms()[0]
        body = httpx.post(self.url + "/api/v1/query_range", data=form).content
        raw = body[body.index(b'"values":') + 9 : body.rindex(b"]") - 1]

        def work() -> int:
            return sum(len(decode_values(raw).values) for _ in range(128))

        return min((_measured(work) for _ in range(3)), key=lambda each: each["wall"])

    def _span(self) -> dict[str, Any]:
        return {"start": self.window.start, "end": self.window.end, "step": "5m"}


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(30))
    name, place, address, until = sys.argv[1:]
    sys.stdout.write(json.dumps(getattr(_Bench(Path(place), address, int(until)), name)()) + "\n")
