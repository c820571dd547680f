"""A service whose disk takes no writes, from the start or from some moment on: it answers those who read, and says why writes fail."""

from __future__ import annotations

import subprocess
import sys
import tarfile
from contextlib import closing
from io import BytesIO
from pathlib import Path

import httpx
import pytest

from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld
from drumlin.kg.store.embedded.consistency import check
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.disks import failing_disk, fill, small_disk
from tests.service.conftest import BASE, Service, drumlin_asks, run_drumlin, serving, until_ready

NAMES = {f"domain/d{number}": f"site{number}" for number in range(5)}
QUERY = "SELECT ?n { ?d a <https://w3id.org/drumlin/ns#Domain> ; <https://w3id.org/drumlin/ns#name> ?n }"


def put(service: Service, id: str, name: str) -> httpx.Response:
    """Write a domain."""
    document = {"@context": jsonld.CONTEXT_IRI, "id": f"{BASE}/id/{id}", "type": "Domain", "name": name}
    headers = {"Content-Type": "application/ld+json"}
    return httpx.put(f"{service.url}/subgraph/{id}", json=document, headers=headers, timeout=30)


def assert_read(service: Service) -> None:
    """Check that REST, SPARQL and the search tell all domains."""
    with httpx.Client(base_url=service.url, timeout=30) as http:
        for id, name in NAMES.items():
            assert http.get(f"/subgraph/{id}", headers={"Accept": "application/ld+json"}).json()["name"] == name
        rows = http.get("/sparql", params={"query": QUERY}).raise_for_status().json()["results"]["bindings"]
        assert {row["n"]["value"] for row in rows} >= set(NAMES.values())
        assert http.get("/search", params={"q": "site3"}).raise_for_status().json()["items"][0]["id"] == "domain/d3"


def test_a_service_that_starts_on_a_full_disk_answers_who_reads(tmp_path: Path) -> None:
    """Entities, queries and search are answered; writes are 507 with a hint; `/readyz` and the log say so; with room, the next start writes."""
    with small_disk(tmp_path / "disk", 24) as disk:
        store = ("--store", str(disk / "store"))
        with serving(*store) as service:
            until_ready(service)
            for id, name in NAMES.items():
                put(service, id, name).raise_for_status()
            service.stop()
        ballast = fill(disk)
        with serving(*store) as service:
            until_ready(service)
            assert_read(service)
            ready = httpx.get(f"{service.url}/readyz").json()
            assert ready["status"] == "read-only"
            assert "no room" in ready["reason"]
            for refused in (
                put(service, "domain/d1", "other"),
                httpx.delete(f"{service.url}/subgraph/domain/d1"),
                httpx.post(
                    f"{service.url}/sparql/update",
                    content="INSERT DATA { GRAPH <http://foreign/g> { <http://foreign/g> <http://foreign/p> 1 } }",
                    headers={"Content-Type": "application/sparql-update"},
                    timeout=60,
                ),
            ):
                assert refused.status_code == 507, refused.text
                assert refused.json()["type"].endswith("store-full")
                assert "restart the service" in refused.json()["hint"]
            with tarfile.open(fileobj=BytesIO(httpx.post(f"{service.url}/admin/backup", timeout=60).content)) as tar:
                assert any(each.name.endswith(".sst") and each.isreg() for each in tar)
            assert "store_read_only" in "".join(service.log)
            service.stop()
        ballast.unlink()
        with serving(*store) as service:
            until_ready(service)
            assert httpx.get(f"{service.url}/readyz").json()["status"] == "ready"
            put(service, "domain/d1", "other").raise_for_status()


def test_a_disk_that_turns_read_only_under_a_service_loses_nothing(tmp_path: Path) -> None:
    """Reading goes on and writes are 503 with a hint; on the disk as it is then, and on the one that was mended, all that was acknowledged is there."""
    with failing_disk(tmp_path / "disk", 48) as disk:
        store = ("--store", str(disk.folder / "store"))
        with serving(*store) as service:
            until_ready(service)
            for id, name in NAMES.items():
                put(service, id, name).raise_for_status()
            assert_read(service)
            disk.fail()
            for number in range(3):
                refused = put(service, "domain/d1", f"other{number}")
                assert refused.status_code == 503, refused.text
                assert refused.json()["type"].endswith("store-unavailable")
                assert "disk" in refused.json()["hint"]
            assert_read(service)
            assert httpx.get(f"{service.url}/livez").status_code == 200
            service.stop()
        disk.unmount()
        disk.mount("ro")
        with closing(EmbeddedStore(disk.folder / "store")) as opened:
            assert_stored(opened)
            with pytest.raises(StoreUnavailable, match="its disk is mounted so"):
                opened.apply([GraphWrite.of("http://g", frozenset(), "user")])
        disk.unmount()
        disk.mount()
        with closing(EmbeddedStore(disk.folder / "store")) as opened:
            assert_stored(opened)
            assert opened.apply([GraphWrite.of("http://g", frozenset(), "user")])[0].outcome == "created"


def assert_stored(store: EmbeddedStore) -> None:
    """Check that a store has all domains, that its parts agree, and that nothing of what was refused is there."""
    for id, name in NAMES.items():
        assert f'"{name}"' in "".join(store.read(f"{BASE}/id/{id}").lines)
    with store.snapshot() as snapshot:
        assert check(snapshot, Iris(BASE)).whole


def test_a_backup_or_dump_onto_a_disk_without_room_is_no_backup(tmp_path: Path) -> None:
    """One line says which disk is full, the exit code is 1, and no part of a backup is left; the service goes on, and so does a backup elsewhere."""
    with serving("--store", str(tmp_path / "store")) as service, small_disk(tmp_path / "disk", 1) as disk:
        until_ready(service)
        for id, name in NAMES.items():
            put(service, id, name).raise_for_status()
        for target in (("--url", service.url), ("--store", str(tmp_path / "copy"))):
            if target[0] == "--store":
                assert drumlin_asks("backup", str(tmp_path / "copy"), "--url", service.url).returncode == 0
            (disk / "ballast").write_bytes(bytes(700_000))
            failed = run_drumlin("backup", str(disk / "backup"), *target)
            assert failed.returncode == 1, failed
            assert "Traceback" not in failed.stderr
            lines = failed.stderr.splitlines()
            assert "disk/backup cannot be written" in lines[-2]
            assert "make room on the disk of" in lines[-1]
            assert not (disk / "backup").exists()
        with Path("/dev/full").open("w") as full:
            command = [sys.executable, "-m", "drumlin.api.cli.main", "dump", "--url", service.url]
            cut = subprocess.run(command, stdout=full, stderr=subprocess.PIPE, text=True, check=False)
        assert cut.returncode == 1, cut.stderr
        assert cut.stderr.splitlines()[0].startswith("drumlin: the result cannot be written whole: No space left")
        assert "Traceback" not in cut.stderr
        assert "Exception" not in cut.stderr
        put(service, "domain/d1", "other").raise_for_status()
        assert drumlin_asks("backup", str(tmp_path / "backup"), "--url", service.url).returncode == 0
