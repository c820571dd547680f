"""Live clusters of 5,000 and 30,000 pods: cold sync, restart, memory and latency, against bare parts and a typed list.

The fake API server and each measured exporter are processes of their own, so that their memory and time are theirs. The bare
parts are the same bytes in pages from the same server, decoded, and the same quads loaded in bulk, with nothing in between.
"""

from __future__ import annotations

import json
import re
import statistics
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyoxigraph as ox

from drumlin.kg.store.protocol import GraphEntry, GraphWrite, Row, Written
from tests.bench.running import phase, sized

Rows = list[tuple[str, str, str, str, str]]
EVENTS, RATE = sized(1000, 20), 200


def run() -> Rows:
    """Measure 5,000 pods on 100 nodes, then 30,000 pods of 3,000 workloads on 1,000 nodes, over HTTP."""
    clusters = sized(((5_000, 500, 100), (30_000, 3_000, 1_000)), ((60, 6, 4),))
    return [row for each in clusters for row in _measure(*each)]


def _measure(pods: int, workloads: int, nodes: int) -> Rows:
    from tests.bench.load import write_cluster

    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        write_cluster(directory / "cluster", pods, workloads, nodes)
        for file in (directory / "cluster").iterdir():
            file.write_text(json.dumps({**json.loads(file.read_text()), "metadata": {"resourceVersion": "1"}}))
        with child("serve", directory / "cluster") as server:
            url = server.stdout.readline().strip()
            cold = measured("export", url, directory / "store", 0)
            bare = measured("bare", url, directory / "store", directory / "bare")
            again = measured("export", url, directory / "store", 0)
            alone = measured("discard", url)
            typed = measured("typed", url)
            live = measured("export", url, directory / "store", EVENTS, server=server)
    ratio, work = cold["seconds"] / bare["seconds"], cold["cpu"] / bare["cpu"]
    late = live["latencies"]
    return [
        (f"{pods:,} pods live: cold sync → queryable", f"{cold['seconds']:.1f} s", f"{bare['seconds']:.1f} s bare ({bare['parts']})", f"{ratio:.2f}", "≤ 2, ≤ 20 s"),
        ("  processor time of it", f"{cold['cpu']:.1f} s", f"{bare['cpu']:.1f} s bare", f"{work:.2f}", ""),
        ("  against the typed client's list alone", f"{cold['seconds']:.1f} s", f"{typed['seconds']:.1f} s typed", f"{cold['seconds'] / typed['seconds']:.2f}", "< 1"),
        ("  restart, nothing changed", f"{again['seconds']:.1f} s ({again['cpu']:.1f} s CPU), {again['written']} writes", "", "", "≤ 8 s, 0"),
        ("  peak memory without a store", f"{alone['rss']:.0f} MB", f"{typed['rss']:.0f} MB typed", f"{alone['rss'] / typed['rss']:.2f}", "≤ 350 MB"),
        (f"  event → visible, {RATE}/s: p50 / p99", f"{late[0]:.0f} / {late[1]:.0f} ms", "", "", "≤ 30 / 150 ms"),
    ]  # fmt: skip


@contextmanager
def child(*arguments: object) -> Iterator[Any]:
    """Run a part of this module as a process."""
    command = [sys.executable, "-m", "tests.bench.kubernetes", *map(str, arguments)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


def measured(*arguments: object, server: Any = None) -> dict[str, Any]:
    """Run a part and return what it printed; ``server`` is told when it is ready for events."""
    phase(f"{arguments[0]}{' and events' if server else ''}")
    with child(*arguments) as process:
        if server:
            assert process.stdout.readline().strip() == "ready"
            server.stdin.write("go\n")
            server.stdin.flush()
            sent: dict[str, float] = json.loads(server.stdout.readline())
            process.stdin.write(json.dumps(sent) + "\n")
            process.stdin.flush()
        found: dict[str, Any] = json.loads(process.stdout.readline())
        return found


# -- the parts ------------------------------------------------------------------------------------------------------------


def serve(directory: str) -> None:
    """Serve the cluster; on a line of input, let pods change and say when each did."""
    from tests.fake_apiserver.server import FakeApiServer

    with FakeApiServer() as fake:
        fake.load(Path(directory))
        pods = fake.state.named("pods")
        say(fake.url)
        for _ in sys.stdin:
            sent = {}
            for each in fake.state.objects(pods)[:EVENTS]:
                name, namespace = each["metadata"]["name"], each["metadata"]["namespace"]
                sent[f"{namespace}/{name}"] = time.monotonic()
                fake.state.patch(pods, namespace, name, {"status": {"phase": "Unknown"}})
                time.sleep(1 / RATE)
            say(json.dumps(sent))


class Noting:
    """A sink that notes when each graph is visible; without a store it drops what it is given."""

    def __init__(self, store: Any = None) -> None:
        self.seen: dict[str, float] = {}
        self.written = 0
        self._store = store

    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write, and note the time."""
        dropped = [Written(each.graph, "created", "", 0) for each in writes]
        written: list[Written] = self._store.apply(writes) if self._store else dropped
        now = time.monotonic()
        self.seen.update({each.graph: now for each in written if each.outcome != "unchanged"})
        self.written += sum(each.outcome != "unchanged" for each in written)
        return written

    def entries(self, **filters: Any) -> list[GraphEntry]:
        """List what is stored."""
        return list(self._store.entries(**filters)) if self._store else []

    def look_up(self, query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        """Ask the store."""
        return list(self._store.look_up(query, values)) if self._store else []


def export(url: str, directory: str | None, events: int) -> None:
    """Follow the cluster until it is synced, then for so many events beside queries."""
    from drumlin.api.bootstrap import now
    from drumlin.exporters.kubernetes.access import ApiServer
    from drumlin.exporters.kubernetes.informer import KubernetesSource
    from drumlin.exporters.kubernetes.kinds import KINDS
    from drumlin.exporters.pipeline.hosting_domain import ensure
    from drumlin.exporters.pipeline.pipeline import Pipeline
    from drumlin.kg.config.settings import Settings
    from drumlin.kg.model.iris import Iris
    from drumlin.kg.store.embedded.store import EmbeddedStore
    from drumlin.kg.telemetry.templates import TemplateCatalogue

    settings = Settings(base="https://kg.example", cluster="prod")
    iris, catalogue = Iris(settings.base), TemplateCatalogue.shipped()
    sink = Noting(EmbeddedStore(Path(directory)) if directory else None)
    began, worked = time.monotonic(), time.process_time()
    ensure(sink, settings, iris, catalogue, ())
    flow = Pipeline(sink, KINDS, settings, iris, catalogue, (), clock=now)
    stop = threading.Event()
    source = KubernetesSource(ApiServer(lambda configuration: setattr(configuration, "host", url)), KINDS, "prod")
    thread = threading.Thread(target=flow.run, args=(source, stop))
    thread.start()
    while not flow.synced and thread.is_alive():
        time.sleep(0.02)
    found: dict[str, Any] = {"seconds": time.monotonic() - began, "cpu": time.process_time() - worked}
    found |= {"written": sink.written, "rss": rss()}
    if events:
        say("ready")
        asking = threading.Thread(target=_ask, args=(sink, stop))
        asking.start()
        sent: dict[str, float] = json.loads(sys.stdin.readline())
        found["latencies"] = _latencies(sink, sent)
    stop.set()
    thread.join()
    say(json.dumps(found))


def _ask(sink: Noting, stop: threading.Event) -> None:
    while not stop.wait(0.05):
        sink.look_up("SELECT ?p WHERE { ?p a <https://w3id.org/drumlin/ns#Node> } LIMIT 10")


def _latencies(sink: Noting, sent: dict[str, float]) -> tuple[float, float]:
    """Return p50 and p99 in milliseconds; fails when an event was lost."""
    graphs = {}
    for name, at in sent.items():
        namespace, _, pod = name.partition("/")
        graphs[f"https://kg.example/id/prod/{namespace}/pod/{pod}"] = at
    deadline = time.monotonic() + 60
    while not all(sink.seen.get(graph, 0.0) >= at for graph, at in graphs.items()):
        assert time.monotonic() < deadline, "an event was lost"
        time.sleep(0.05)
    late = sorted(1000 * (sink.seen[graph] - at) for graph, at in graphs.items())
    return statistics.median(late), late[int(0.99 * len(late))]


def bare(url: str, directory: str, target: str) -> None:
    """List the same objects, decode their bytes and load the same quads into an empty engine, with nothing else."""
    from drumlin.kg.rdf.syntax import to_nquads
    from drumlin.kg.store.embedded.store import EmbeddedStore

    store = EmbeddedStore(Path(directory))
    quads = [b"".join(to_nquads(lines, graph)) for graph, lines in store.export()]
    store.close()
    began, worked = time.monotonic(), time.process_time()
    kept = _listed(url)
    listed = time.monotonic()
    engine = ox.Store(target)
    for start in range(0, len(quads), 1000):
        engine.bulk_load(b"".join(quads[start : start + 1000]), format=ox.RdfFormat.N_QUADS)
    ended = time.monotonic()
    parts = f"{listed - began:.1f} list and decode, {ended - listed:.1f} load"
    found = {"seconds": ended - began, "cpu": time.process_time() - worked, "parts": parts, "objects": len(kept)}
    say(json.dumps(found))


def _listed(url: str) -> list[Any]:
    """Return all objects of our kinds, in pages of 1,000, in the projections that are rendered."""
    from drumlin.exporters.kubernetes.access import ApiServer
    from drumlin.exporters.kubernetes.kinds import KINDS
    from drumlin.exporters.kubernetes.wire import ManifestDecoder

    access, kept = ApiServer(lambda configuration: setattr(configuration, "host", url)), list[Any]()
    for name in ("namespaces", "nodes", "replicasets", "deployments", "pods"):
        kind = next(each for each in KINDS if each.plural == name)
        reader, token = ManifestDecoder(kind), ""
        while token is not None:
            page = reader.page(access.get(kind.path, {"limit": "1000"} | ({"continue": token} if token else {})))
            kept += page.objects
            token = page.token or None
    return kept


def typed(url: str) -> None:
    """List pods, deployments and nodes by the official client's typed models, in pages."""
    import kubernetes

    configuration = kubernetes.client.Configuration(host=url)
    api = kubernetes.client.ApiClient(configuration)
    core, apps = kubernetes.client.CoreV1Api(api), kubernetes.client.AppsV1Api(api)
    began, kept = time.monotonic(), []
    for listing in (core.list_pod_for_all_namespaces, core.list_node, apps.list_deployment_for_all_namespaces):
        token = None
        while token != "":
            page = listing(limit=1000, _continue=token)
            kept += page.items
            token = page.metadata._continue or ""
    say(json.dumps({"seconds": time.monotonic() - began, "objects": len(kept), "rss": rss()}))


def rss() -> float:
    """Peak memory of this process, in MB; what getrusage tells begins with the memory of the process that started it."""
    peak = re.search(r"VmHWM:\s+(\d+) kB", Path("/proc/self/status").read_text())
    assert peak
    return int(peak[1]) / 1024


def say(text: str) -> None:
    """Print a line at once."""
    sys.stdout.write(text + "\n")
    sys.stdout.flush()


def main() -> None:
    """Run one part."""
    import structlog

    structlog.configure(
        wrapper_class=structlog.make_filtering_bound_logger(40), logger_factory=structlog.PrintLoggerFactory(sys.stderr)
    )
    part, *rest = sys.argv[1:]
    match part:
        case "serve":
            serve(rest[0])
        case "export":
            export(rest[0], rest[1], int(rest[2]))
        case "discard":
            export(rest[0], None, 0)
        case "bare":
            bare(*rest)
        case "typed":
            typed(rest[0])


if __name__ == "__main__":
    main()
