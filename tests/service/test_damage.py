"""A service on a damaged store: ready with all that was acknowledged, told alike by SPARQL and REST, or not started, in words."""

from __future__ import annotations

import json
import shutil
import signal
import sqlite3
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import httpx
import pytest

from drumlin.api.access.callers import Role
from drumlin.api.access.tokens import TokenFile
from drumlin.kg.rdf import jsonld
from tests.service.conftest import BASE, Service, run_drumlin, serving, until_ready

LD = {"Content-Type": "application/ld+json"}
NAMES = 30


@pytest.fixture(scope="module")
def killed(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store whose service was killed right after its last write was acknowledged."""
    directory = tmp_path_factory.mktemp("damage") / "store"
    with serving("--store", str(directory)) as service:
        until_ready(service)
        for number in range(NAMES):
            put(service, number, "first").raise_for_status()
        for number in range(0, NAMES, 3):
            put(service, number, "second").raise_for_status()
        service.process.send_signal(signal.SIGKILL)
        service.process.wait()
    assert (directory / "changes.sqlite-wal").stat().st_size > 0
    return directory


def put(service: Service, number: int, name: str) -> httpx.Response:
    """Write a domain."""
    id = f"domain/d{number}"
    document = {"@context": jsonld.CONTEXT_IRI, "id": f"{BASE}/id/{id}", "type": "Domain", "name": name}
    return httpx.put(f"{service.url}/subgraph/{id}", json=document, headers=LD)


def told(service: Service) -> tuple[dict[str, str], dict[str, str], set[str]]:
    """Return the names of the domains as SPARQL tells them, as REST does, and which of them the search finds."""
    ids = [f"domain/d{number}" for number in range(NAMES)]
    query = "SELECT ?d ?n { ?d a <https://w3id.org/drumlin/ns#Domain> ; <https://w3id.org/drumlin/ns#name> ?n }"
    with httpx.Client(base_url=service.url, timeout=60) as http:
        rows = http.get("/sparql", params={"query": query}).json()["results"]["bindings"]
        sparql = {row["d"]["value"].removeprefix(f"{BASE}/id/"): row["n"]["value"] for row in rows}
        rest = {
            id: str(found.json()["name"])
            for id in ids
            if (found := http.get(f"/subgraph/{id}", headers={"Accept": "application/ld+json"})).status_code == 200
        }
        listed = {each["id"] for each in http.get("/subgraphs", params={"prefix": "domain/d"}).json()["items"]}
    return {id: name for id, name in sparql.items() if id in ids}, rest, listed


def without_quads(store: Path) -> None:
    """Take the engine's files away."""
    shutil.rmtree(store / "quads")


def without_index(store: Path) -> None:
    """Take the search index away."""
    for each in store.glob("search.sqlite*"):
        each.unlink()


def with_garbage(store: Path) -> None:
    """Overwrite everything that is made from the change log."""
    for each in (*store.glob("search.sqlite"), store / "quads" / "CURRENT", store / "series.db", store / "witness"):
        each.write_bytes(b"garbage " * 1000)


@pytest.mark.parametrize("spoil", [without_quads, without_index, with_garbage])
def test_what_can_be_made_from_the_log_is_there_when_the_service_is_ready(
    killed: Path, tmp_path: Path, spoil: Callable[[Path], None]
) -> None:
    """SPARQL, REST and the lists tell every acknowledged write, and a check finds no fault."""
    store = tmp_path / "store"
    shutil.copytree(killed, store)
    spoil(store)
    with serving("--store", str(store)) as service:
        until_ready(service)
        sparql, rest, listed = told(service)
        report = httpx.get(f"{service.url}/admin/check").json()
        log = "".join(service.log)
    expected = {f"domain/d{number}": "first" if number % 3 else "second" for number in range(NAMES)}
    assert sparql == rest == expected
    assert listed == expected.keys()
    assert report["whole"] is True
    assert ("engine_rebuilding" in log) == (spoil is not without_index)


def test_a_service_does_not_start_without_what_cannot_be_made(killed: Path, tmp_path: Path) -> None:
    """One line names the file that is missing and one the command that restores; with the file put back it starts."""
    store = tmp_path / "store"
    shutil.copytree(killed, store)
    for name in ("changes.sqlite-wal", "changes.sqlite"):
        (store / name).rename(tmp_path / name)
        for command in (("serve", "--port", "0", "--base", BASE), ("check",), ("backup", str(tmp_path / "copy"))):
            failed = run_drumlin(*command, "--store", str(store))
            assert failed.returncode == 1, failed
            last = failed.stderr.splitlines()[-2:]
            assert last[0].startswith("drumlin: "), failed.stderr
            assert f"{name} is missing" in last[0]
            assert "drumlin restore" in last[1]
            assert "Traceback" not in failed.stderr
            assert "Drumlin at" not in failed.stderr
        (tmp_path / name).rename(store / name)
    with serving("--store", str(store)) as service:
        until_ready(service)
        sparql, rest, _ = told(service)
    assert sparql == rest
    assert len(rest) == NAMES


def test_a_command_shows_how_far_it_builds_anew(killed: Path, tmp_path: Path) -> None:
    """A store directory whose engine is gone is checked all the same, and says on stderr what it had to do first."""
    store = tmp_path / "store"
    shutil.copytree(killed, store)
    shutil.rmtree(store / "quads")
    checked = run_drumlin("check", "--store", str(store))

    assert checked.returncode == 0, checked.stderr
    assert "rebuilding quads/" in checked.stderr
    assert "rebuilding" not in run_drumlin("check", "--store", str(store)).stderr


def test_a_damaged_store_is_repaired_and_served(killed: Path, tmp_path: Path) -> None:
    """The command says what it did and what is lost, and its exit code whether anything is; the service then serves what is left."""
    store = tmp_path / "store"
    shutil.copytree(killed, store)
    TokenFile(store / "tokens.json").create("boss", Role.admin)
    with closing(sqlite3.connect(store / "changes.sqlite")) as log, log:
        log.execute("UPDATE texts SET packed = zeroblob(20) WHERE graph LIKE '%/d3'")
        log.execute("UPDATE graphs SET digest = 'damaged' WHERE graph LIKE '%/d3'")
        log.execute("UPDATE texts SET packed = zeroblob(20) WHERE graph LIKE '%/d4'")
    shutil.rmtree(store / "quads")
    refused = run_drumlin("serve", "--port", "0", "--base", BASE, "--store", str(store))
    assert refused.returncode == 1
    assert "drumlin repair" in refused.stderr.splitlines()[-1]

    repaired = run_drumlin("repair", str(store), "-o", "json")
    assert repaired.returncode == 3, repaired.stderr
    report = json.loads(repaired.stdout)
    assert report["whole"] is False
    assert [each["graph"] for each in report["lost"]] == [f"{BASE}/id/domain/d3", f"{BASE}/id/domain/d4"]
    assert report["missing"] == []
    assert report["tokens"] == 1
    assert Path(report["aside"], "changes.sqlite").exists()

    again = run_drumlin("repair", str(store))
    assert again.returncode == 0, again.stderr
    assert f"{report['graphs']:,}" in again.stdout
    assert "lost" not in again.stdout
    with serving("--store", str(store), "--insecure") as service:
        busy = run_drumlin("repair", str(store))
        assert busy.returncode == 1
        assert f"in use by process {service.process.pid}" in busy.stderr
        service.stop()
    (store / "tokens.json").unlink()
    with serving("--store", str(store)) as service:
        until_ready(service)
        sparql, rest, listed = told(service)
        expected = {
            f"domain/d{number}": "first" if number % 3 else "second" for number in range(NAMES) if number not in (3, 4)
        }
        assert sparql == rest == expected
        assert listed == expected.keys()
        put(service, 3, "anew").raise_for_status()


def test_repair_teaches_and_refuses_what_is_no_store(tmp_path: Path) -> None:
    """`--help` says what is kept, where the old files are and what the exit codes mean; a directory without a store is named."""
    taught = " ".join(run_drumlin("repair", "--help").stdout.split())
    for said in ("provably whole", "damaged-TIME", "Exit code 0", "drumlin repair /var/lib/drumlin"):
        assert said in taught
    refused = run_drumlin("repair", str(tmp_path))
    assert refused.returncode == 1
    assert "holds no store" in refused.stderr
