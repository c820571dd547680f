"""A cluster of 150,000 pods before one service: cold sync, restart, memory of all its processes, 1,000 events/s for five minutes.

The service is the real one, with its store, search index and readers; the fake API server is a process of its own. An event is visible when
a subscriber of the change feed gets it. A number limits the seconds of events.
"""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import threading
import time
from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from itertools import count
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import httpx
import msgspec

from tests.bench.rest import _cpu
from tests.bench.running import phase, sized, wait_for
from tests.bench.siege import _children
from tests.service import conftest
from tests.service.conftest import Service, serving
from tests.service.test_clusters import write_kubeconfig

Rows = list[tuple[str, str, str, str, str]]
PODS, WORKLOADS, NODES = sized((150_000, 15_000, 5_000), (600, 60, 20))
RATE, SECONDS, CHANGING = sized((1_000, 300, 20_000), (100, 2, 100))
SECONDS = next((int(each) for each in sys.argv[1:] if each.isdigit()), SECONDS)
_TOGETHER = 20  # events at once, so that the watches of the fake do not wake for each
_PATIENCE = 600.0


def run(seconds: int = SECONDS) -> Rows:
    """Measure a cold start, a restart, and events."""
    conftest.READY_SECONDS = _PATIENCE  # type: ignore[assignment]  # of a service to listen, on a busy machine
    with TemporaryDirectory() as name:
        directory = Path(name)
        _make_cluster(directory / "cluster")
        with _api(directory / "cluster") as api:
            environment = write_kubeconfig(directory / "kubeconfig", {"main": str(api.stdout.readline().strip())})
            options = ("--store", str(directory / "store"), "--source", "kubernetes")
            phase("cold start")
            with serving(*options, environment=environment) as service, _watched(service) as memory:
                cold = _synced(service)
                phase(f"  {cold[0]:.1f} s, {cold[1]:.1f} s CPU, {max(memory):.0f} MB")
                found = _found(service)
                phase(f"  found by search after {found:.1f} s")
                phase("saved queries")
                asked = _asked(service)
                generation, cold_memory = _generation(service), max(memory)
            phase("restart")
            with serving(*options, environment=environment) as service, _watched(service) as memory:
                again = _synced(service)
                phase(f"  {again[0]:.1f} s, {again[1]:.1f} s CPU, {max(memory):.0f} MB")
                writes, again_memory = _generation(service) - generation, max(memory)
                phase("events")
                live = _events(service, api, seconds, memory)
    return _rows(cold, found, asked, cold_memory, again, again_memory, writes, live)


def _make_cluster(directory: Path) -> None:
    from tests.bench.load import write_cluster

    write_cluster(directory, PODS, WORKLOADS, NODES)
    for file in directory.iterdir():
        file.write_text(json.dumps({**json.loads(file.read_text()), "metadata": {"resourceVersion": "1"}}))


def _rows(
    cold: tuple[float, float],
    found: float,
    asked: list[tuple[float, str]],
    cold_memory: float,
    again: tuple[float, float],
    again_memory: float,
    writes: int,
    live: dict[str, float],
) -> Rows:
    grown = live["last"] - live["first"]
    slowest = ", ".join(f"{name} {seconds:.1f} s" for seconds, name in asked[:3])
    return [
        (f"{PODS:,} pods, {WORKLOADS:,} workloads, {NODES:,} nodes: start → all written", f"{cold[0]:.1f} s, {cold[1]:.1f} s CPU", "", "", "≤ 45 s"),
        ("  → all found by search", f"{found:.1f} s", "", "", ""),
        (f"  each of {len(asked)} saved queries once: median, slowest", f"{1000 * statistics.median([each[0] for each in asked]):.0f} ms, {slowest}", "", "", ""),
        ("  memory of all processes with the store, at most", f"{cold_memory:.0f} MB", "", "", "≤ 1,500 MB"),
        ("restart → all compared", f"{again[0]:.1f} s, {again[1]:.1f} s CPU, {writes} writes", "", "", "≤ 15 s, 0"),
        ("  memory, at most", f"{again_memory:.0f} MB", "", "", "≤ 1,500 MB"),
        (f"events: {live['count']:,.0f} in {live['seconds']:.0f} s, event → subscriber p50 / p99", f"{live['p50']:.0f} / {live['p99']:.0f} ms", "", "", "p99 ≤ 1,000 ms"),
        ("  processor time of all processes", f"{1000 * live['cpu'] / live['count']:.2f} ms an event", "", "", ""),
        ("  memory, first and last fifth", f"{live['first']:.0f}, {live['last']:.0f} MB ({grown:+.0f})", "", "", "no growth"),
    ]  # fmt: skip


@contextmanager
def _api(cluster: Path) -> Iterator[Any]:
    command = [sys.executable, "-m", "tests.bench.scale", str(cluster)]
    with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.terminate()


@contextmanager
def _watched(service: Service) -> Iterator[list[float]]:
    """Look at the memory of a service's processes every half second, its readers at work: MB, what they share counted once."""
    looks, stop = [memory(service.process.pid)], threading.Event()

    def look() -> None:
        with httpx.Client(timeout=60) as http:
            for number in count():
                if stop.wait(0.5):
                    return
                query = f"ASK {{ <https://kg.example/id/prod/-/node/{number}> ?p ?o }}"
                http.get(f"{service.url}/sparql", params={"query": query}).raise_for_status()
                looks.append(memory(service.process.pid))

    thread = threading.Thread(target=look)
    thread.start()
    try:
        yield looks
    finally:
        stop.set()
        thread.join()


def memory(pid: int) -> float:
    """Return the memory of a process and its children in MB, what they share counted once."""
    total = 0
    for each in [pid, *_children(pid)]:
        with suppress(OSError):
            lines = Path(f"/proc/{each}/smaps_rollup").read_text().splitlines()
            total += sum(int(line.split()[1]) for line in lines if line.startswith("Pss:"))
    return total / 1024


def _synced(service: Service) -> tuple[float, float]:
    """Wait until every pod has been written or compared; return the seconds since the process began, and of processor time."""
    pid = service.process.pid
    with httpx.Client() as http:

        def compared() -> bool:
            lines = http.get(f"{service.url}/metrics", timeout=60).text.splitlines()
            names = ("drumlin_kind_writes_total", "drumlin_kind_skipped_writes_total")
            return sum(float(each.split()[1]) for each in lines if each.startswith(names) and '"Pod"' in each) >= PODS

        wait_for(compared, "the pods", _PATIENCE, every=0.2)
    return _age(pid), _cpu(pid)


def _found(service: Service) -> float:
    """Wait until all that is written is found by search, too; return the seconds since the process began.

    A service that has run for a while is there; one that is stopped before has it to do after the restart, beside all else.
    """
    generation = _generation(service)
    with httpx.Client(timeout=_PATIENCE) as http:
        wait_for(
            lambda: http.get(f"{service.url}/subgraphs?limit=1").json()["generation"] >= generation, "search", _PATIENCE
        )
    return _age(service.process.pid)


def _asked(service: Service) -> list[tuple[float, str]]:
    """Ask every saved query once, of a workload or about what is not there; return the seconds of each, the slowest first."""
    values = {"id": "prod/ns-0/deployment/app-0", "dateTime": "2026-01-01T00:00:00Z", "string": "absent"}
    taken: list[tuple[float, str]] = []
    with httpx.Client(base_url=service.url, timeout=_PATIENCE) as http:
        for query in http.get("/queries").json()["items"]:
            needed = [each for each in query["parameters"] if each["default"] is None]
            given = {each["name"]: values.get(each["type"], "absent") for each in needed}
            began = time.monotonic()
            answer = http.get(f"/queries/{query['name']}", params=given)
            if answer.is_server_error:  # 4xx are answers, too: too many rows, or no such job
                answer.raise_for_status()
            taken.append((time.monotonic() - began, query["name"]))
    return sorted(taken, reverse=True)


def _age(pid: int) -> float:
    """Return the seconds since a process was started."""
    began = int(Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[19]) / 100
    return time.clock_gettime(time.CLOCK_BOOTTIME) - began


def _generation(service: Service) -> int:
    return int(httpx.get(f"{service.url}/readyz", timeout=60).json()["generation"])


def _events(service: Service, api: Any, seconds: int, memory: list[float]) -> dict[str, float]:
    """Let pods change for so long; return how late the feed was with them, and what that cost."""
    seen: defaultdict[str, list[float]] = defaultdict(list)
    wanted, stop = seconds * RATE, threading.Event()
    subscriber = threading.Thread(target=_subscribe, args=(service.url, seen, stop), daemon=True)
    subscriber.start()
    time.sleep(2.0)
    began, worked, looked = time.monotonic(), _cpu(service.process.pid), len(memory)
    api.stdin.write(f"{wanted}\n")
    api.stdin.flush()
    sent: dict[str, list[float]] = json.loads(api.stdout.readline())
    took = time.monotonic() - began
    wait_for(
        lambda: all(seen[pod] and seen[pod][-1] >= times[-1] for pod, times in sent.items()), "the last event", 300
    )
    stop.set()
    # A change that comes while an earlier one of the same pod waits is written together with it.
    late = sorted(
        1000 * (seen[pod][bisect_left(seen[pod], then)] - then) for pod, times in sent.items() for then in times
    )
    looks = memory[looked:]
    fifth = max(1, len(looks) // 5)
    return {
        "count": wanted,
        "seconds": took,
        "p50": statistics.median(late),
        "p99": late[int(0.99 * len(late))],
        "cpu": _cpu(service.process.pid) - worked,
        "first": statistics.median(looks[:fifth]),
        "last": statistics.median(looks[-fifth:]),
    }


def _subscribe(url: str, seen: dict[str, list[float]], stop: threading.Event) -> None:
    """Note when each event comes; a subscriber that is cut goes on after the last one."""
    headers = {"Accept": "text/event-stream"}
    with httpx.Client(timeout=60) as http:
        while not stop.is_set():
            with suppress(httpx.TransportError), http.stream("GET", f"{url}/events", headers=headers) as answer:
                for line in answer.iter_lines():
                    if line.startswith("id: "):
                        headers["Last-Event-ID"] = line[4:]
                    elif line.startswith("data: "):
                        seen[msgspec.json.decode(line[6:], type=_Subject).subject].append(time.monotonic())
                    if stop.is_set():
                        return


class _Subject(msgspec.Struct):
    subject: str


def serve(directory: str) -> None:
    """Serve the cluster; on a number, let as many events happen at ``RATE`` and say when each did, by short id of the pod."""
    from tests.fake_apiserver.server import FakeApiServer

    with FakeApiServer() as fake:
        fake.load(Path(directory))
        sys.stdout.write(fake.url + "\n")
        sys.stdout.flush()
        for line in sys.stdin:
            sys.stdout.write(json.dumps(_changed(fake.state, int(line))) + "\n")
            sys.stdout.flush()


def _changed(state: Any, wanted: int) -> dict[str, list[float]]:
    pods, sent = state.named("pods"), defaultdict[str, list[float]](list)
    names = [(each["metadata"]["namespace"], each["metadata"]["name"]) for each in state.objects(pods)[:CHANGING]]
    began = time.monotonic()
    for number in range(0, wanted, _TOGETHER):
        time.sleep(max(0.0, began + number / RATE - time.monotonic()))
        with state.changed:
            for place in range(number, min(number + _TOGETHER, wanted)):
                namespace, name = names[place % len(names)]
                state.patch(pods, namespace, name, {"status": {"reason": f"Number{place}"}})  # as never before
                sent[f"prod/{namespace}/pod/{name}"].append(time.monotonic())
    return sent


if __name__ == "__main__":
    serve(sys.argv[1])
