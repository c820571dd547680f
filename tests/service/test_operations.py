"""Operating a store: backup while it serves, restore, check, optimize, its metrics; and many clients that write at once."""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from pathlib import Path
from typing import Any

import httpx
import pytest

import drumlin
from drumlin.kg.errors import EventsGone
from drumlin.kg.graphs.owners import HEADER
from drumlin.kg.rdf import jsonld
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.disks import small_disk
from tests.service.conftest import BASE, SAMPLE, Service, drumlin_asks, serving, until_ready
from tests.service.test_readers import readers, until

NODE = "prod/-/node/odd"
ROOT = Path(__file__).parents[2]
COUNTED = "domain/counted"
EVENTS = {"Accept": "application/cloudevents-batch+json"}
LD = {"Content-Type": "application/ld+json"}


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store directory with the sample cluster, that nobody has open."""
    directory = tmp_path_factory.mktemp("operations") / "store"
    loaded = drumlin_asks("load", str(SAMPLE), "--store", str(directory), "--base", BASE, "--cluster", "prod")
    assert loaded.returncode == 0, loaded.stderr
    return directory


def test_threads_share_the_arenas_of_the_allocator(service: Service) -> None:
    """However many threads have worked, their memory comes from few arenas: what one has freed is of use to the next."""
    with ThreadPoolExecutor(30) as clients:
        found = list(clients.map(lambda _: httpx.get(f"{service.url}/subgraphs", timeout=60).status_code, range(60)))
    assert set(found) == {200}
    arena = 64 << 20  # which glibc reserves for each arena but the first, at a multiple of that
    rest = [
        [int(each, 16) for each in line.split()[0].split("-")]
        for line in Path(f"/proc/{service.process.pid}/maps").read_text().splitlines()
        if line.split()[1] == "---p" and len(line.split()) == 5
    ]
    begins = {end - arena for start, end in rest if end % arena == 0 and end - start < arena}
    assert len(begins) <= 1
    assert len(list(Path(f"/proc/{service.process.pid}/task").iterdir())) > 10


def test_a_backup_of_a_service_is_restored_and_served(tmp_path: Path) -> None:
    """What a service held when it was backed up, another one started on the restored directory exports byte by byte."""
    with serving("--store", str(tmp_path / "store"), "--source", f"dump:{SAMPLE}") as service:
        until_ready(service)
        taken = drumlin_asks("backup", str(tmp_path / "backup"), "--url", service.url, "-o", "json")
        assert taken.returncode == 0, taken.stderr
        exported = httpx.get(service.url + "/export").content
    restored = drumlin_asks("restore", str(tmp_path / "backup"), "--store", str(tmp_path / "new"), "-o", "json")
    assert restored.returncode == 0, restored.stderr
    with serving("--store", str(tmp_path / "new")) as again:
        assert httpx.get(again.url + "/export").content == exported

    note = json.loads(taken.stdout)
    assert json.loads(restored.stdout) == note
    assert note["quads"] == exported.count(b"\n")


def test_a_store_directory_is_backed_up_checked_and_optimized_without_a_service(store: Path, tmp_path: Path) -> None:
    """Each command works on a directory too, and the sample cluster has no fault."""
    taken = drumlin_asks("backup", str(tmp_path / "backup"), "--store", str(store), "-o", "json")
    checked = drumlin_asks("check", "--store", str(store), "-o", "json")
    optimized = drumlin_asks("optimize", "--store", str(store), "-o", "json")

    assert (taken.returncode, checked.returncode, optimized.returncode) == (0, 0, 0), checked.stdout + taken.stderr
    report = json.loads(checked.stdout)
    assert report["whole"] is True
    assert (report["graphs"], report["digest"]) == (
        json.loads(taken.stdout)["graphs"],
        json.loads(taken.stdout)["digest"],
    )
    assert json.loads(optimized.stdout)["after"] > 0


def test_a_check_that_finds_something_wrong_exits_with_1(tmp_path: Path) -> None:
    """An ill-typed literal is told with its place, and never its value."""
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "base").write_text(BASE)
    opened = EmbeddedStore(tmp_path / "store")
    node = f"{BASE}/id/{NODE}"
    line = f'<{node}> <http://purl.org/dc/terms/modified> "sometime"^^<http://www.w3.org/2001/XMLSchema#dateTime> .'
    opened.apply([GraphWrite.of(node, frozenset({line}), "user")])
    opened.close()
    checked = drumlin_asks("check", "--store", str(tmp_path / "store"))

    assert checked.returncode == 1
    assert f"{node} http://purl.org/dc/terms/modified" in checked.stdout
    assert "sometime" not in checked.stdout


def test_what_is_no_store_or_backup_is_named(tmp_path: Path) -> None:
    """A directory without a store is not made one, and a restore wants a backup."""
    for command in (
        ("check", "--store", str(tmp_path / "no")),
        ("restore", str(tmp_path), "--store", str(tmp_path / "s")),
    ):
        failed = drumlin_asks(*command)
        assert failed.returncode == 1
        assert failed.stderr.startswith("drumlin: ")
    assert list(tmp_path.iterdir()) == []


def test_a_shortened_log_is_told_to_who_follows_it() -> None:
    """Before its beginning 410 says where it begins; from there on every change comes; a check finds no fault."""
    environment = {"DRUMLIN_LOG_RETENTION": "0.0000001"}
    with (
        serving(environment=environment) as service,
        httpx.Client(base_url=service.url, timeout=60) as http,
        drumlin.connect(service.url) as client,
    ):
        gone: dict[str, Any] = {}
        deadline = time.monotonic() + 60
        while gone.get("status") != 410 or gone["oldest"] < gone["newest"]:  # then no more can be given up
            assert time.monotonic() < deadline, gone
            put = [{"op": "put", "id": f"domain/d{n}", "document": domain(n, time.time())} for n in range(150)]
            http.post("/subgraphs", content="\n".join(map(json.dumps, put))).raise_for_status()
            answer = http.get("/events", params={"since": 0}, headers=EVENTS)
            gone = answer.json() if answer.status_code >= 400 else {}

        assert gone["type"].endswith("/events-gone")
        with pytest.raises(EventsGone):
            next(client.changes(since=0))
        assert next(client.changes(since=gone["newest"] - 1))["id"].startswith(f"{gone['newest']}.")
        report = http.get("/admin/check").json()
        assert (report["whole"], report["oldest"]) == (True, gone["oldest"])


def domain(number: int, value: object) -> dict[str, object]:
    """Make a document that says something of a domain."""
    return {
        "@context": jsonld.CONTEXT_IRI,
        "id": f"{BASE}/id/domain/d{number}",
        "type": "Domain",
        "name": f"{number} {value}",
    }


def test_a_service_checks_and_optimizes_itself(http: httpx.Client) -> None:
    """The same over HTTP, while it serves."""
    report = http.get("/admin/check").json()
    optimized = http.post("/admin/optimize").json()

    assert report["whole"] is True
    assert report["graphs"] > 10
    assert optimized["after"] > 0


def test_metrics_tell_of_the_stores_writes_and_sizes() -> None:
    """Outcomes are counted, times and batches measured, and the files have sizes."""
    with serving() as service:
        for value in (1, 2, 2):
            httpx.put(f"{service.url}/subgraph/{COUNTED}", json=counting(value), headers=LD).raise_for_status()
        line = json.dumps({"op": "put", "id": COUNTED, "document": counting(3)})
        httpx.post(f"{service.url}/subgraphs", content=line, headers={HEADER: "other"}).raise_for_status()
        lines = httpx.get(f"{service.url}/metrics").text.splitlines()
    told = dict(line.rsplit(" ", 1) for line in lines if line.startswith("drumlin_"))
    types = {line.split()[2] for line in lines if line.startswith("# TYPE drumlin_")}
    for page in (ROOT / "docs" / name for name in ("operations.md", "readers.md")):
        assert set(re.findall(r"`(drumlin_\w+)", page.read_text())) <= types

    outcomes = {
        name: float(told[f'drumlin_store_writes_total{{outcome="{name}"}}']) for name in ("replaced", "unchanged")
    }
    assert outcomes == {"replaced": 1, "unchanged": 1}
    assert float(told['drumlin_store_writes_total{outcome="refused"}']) >= 1
    assert float(told["drumlin_store_write_seconds_count"]) >= 4
    assert float(told["drumlin_store_batch_size_sum"]) >= 4
    assert float(told["drumlin_store_wal_bytes"]) > 0
    assert float(told["drumlin_store_bytes"]) > 1000


def test_a_full_disk_is_507_until_there_is_room(tmp_path: Path) -> None:
    """Writes say that the disk is full, reads go on; with room alone writes, and queries whose readers were lost, go through again."""
    with (
        small_disk(tmp_path / "disk", 32) as disk,
        serving("--store", str(disk / "store")) as service,
        httpx.Client(base_url=service.url, timeout=60) as http,
    ):
        put_some(http, 0).raise_for_status()
        free = os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(free - (1 << 20)))
        answers = [put_some(http, 1)]
        while answers[-1].status_code in (201, 204):
            answers.append(put_some(http, len(answers) + 1))
        assert answers[-1].status_code == 507, answers[-1].text
        assert answers[-1].json()["type"].endswith("/store-full")
        assert put_some(http, 0).status_code in (204, 507)
        assert http.get("/subgraph/domain/full-0").status_code == 200
        assert http.get(f"/subgraph/domain/full-{len(answers)}").status_code == 404

        rest = disk / "rest"
        with suppress(OSError):  # the service may take of it meanwhile
            rest.write_bytes(bytes(os.statvfs(disk).f_bavail * os.statvfs(disk).f_frsize))
        for pid in readers(service):
            os.kill(pid, signal.SIGKILL)
        query = {"query": "SELECT (RAND() AS ?never_kept) {}", "timeout": "1"}
        assert {http.get("/sparql", params=query).status_code for _ in range(3)} <= {200, 500, 503, 504}
        assert http.get("/subgraph/domain/full-0").status_code == 200

        ballast.unlink()
        rest.unlink()
        until(
            lambda: http.get("/sparql", params=query).status_code == 200
        )  # without a write, which would mend the store
        assert put_some(http, len(answers)).status_code == 201
        assert all(http.get(f"/subgraph/domain/full-{n}").status_code == 200 for n in range(len(answers) + 1))


def test_output_that_nobody_reads_ends_a_command_quietly(store: Path) -> None:
    """As in ``drumlin check | head -0``: no traceback, however little is printed."""
    command = [sys.executable, "-m", "drumlin.api.cli.main", "check", "--store", str(store)]
    with subprocess.Popen(command, cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        process.stdout.close()
        assert process.stderr is not None
        said = process.stderr.read()
    assert (process.returncode, "Traceback" in said, "BrokenPipe" in said) == (1, False, False), said


def put_some(http: httpx.Client, number: int) -> httpx.Response:
    """PUT a graph of about 50 kB."""
    name = f"domain/full-{number}"
    document = {"@context": jsonld.CONTEXT_IRI, "id": f"{BASE}/id/{name}", "type": "Domain", "name": "x" * 50_000}
    return http.put(f"/subgraph/{name}", json=document, headers=LD)


def test_sixteen_clients_count_through_if_match_and_lose_nothing() -> None:
    """Each reads, adds one and writes with the ETag it read; the end is the number of writes that were acknowledged."""
    clients, each_adds = 16, 8
    refused = [0] * clients
    with serving() as service:
        httpx.put(f"{service.url}/subgraph/{COUNTED}", json=counting(0), headers=LD).raise_for_status()

        def count(number: int) -> None:
            with httpx.Client(base_url=service.url, timeout=60) as http:
                for _ in range(each_adds):
                    while True:
                        read = http.get(f"/subgraph/{COUNTED}", headers={"Accept": "application/ld+json"})
                        value = int(read.json()["name"])
                        headers = {**LD, "If-Match": read.headers["ETag"]}
                        wrote = http.put(f"/subgraph/{COUNTED}", json=counting(value + 1), headers=headers)
                        if wrote.status_code == 204:
                            break
                        assert wrote.status_code == 412, wrote.text
                        refused[number] += 1

        threads = [threading.Thread(target=count, args=(number,)) for number in range(clients)]
        for each in threads:
            each.start()
        for each in threads:
            each.join()
        end = httpx.get(f"{service.url}/subgraph/{COUNTED}", headers={"Accept": "application/ld+json"}).json()

    assert end["name"] == str(clients * each_adds)
    assert sum(refused) > 0


def counting(value: int) -> dict[str, object]:
    """Make a document with a number in it."""
    return {"@context": jsonld.CONTEXT_IRI, "id": f"{BASE}/id/{COUNTED}", "type": "Domain", "name": str(value)}
