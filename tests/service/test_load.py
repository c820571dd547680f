"""``drumlin load``: it adds and updates; it removes only what ``--complete`` names, and only after a yes."""

from __future__ import annotations

import json
import os
import pty
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import httpx
import pytest

from drumlin.api.bootstrap import open_store
from drumlin.kg.config.settings import Settings
from tests.service.conftest import BASE, NS, ROOT, SAMPLE, Service, drumlin_asks, serving, until_ready

PODS = [{"apiVersion": "v1", "kind": "Pod", **each} for each in json.loads((SAMPLE / "pods.json").read_text())["items"]]
PAYMENTS = [each for each in PODS if each["metadata"]["namespace"] == "payments"]
NAME = f"payments/{PAYMENTS[0]['metadata']['name']}"
PATIENCE = 60.0


def listed(*documents: dict[str, Any]) -> str:
    """A list as kubectl prints it."""
    return json.dumps({"apiVersion": "v1", "kind": "List", "items": documents})


def content(directory: Path) -> dict[str, str]:
    """The digests of all graphs of a store, by id."""
    store = open_store(Settings.load(base=BASE), str(directory))
    try:
        return {each.graph.removeprefix(f"{BASE}/id/"): each.digest for each in store.entries()}
    finally:
        store.close()


def tombstones(directory: Path) -> set[str]:
    """The ids of the tombstones of a store."""
    store = open_store(Settings.load(base=BASE), str(directory))
    try:
        rows = store.look_up(f"SELECT ?entity WHERE {{ ?entity a <{NS}Tombstone> }}")
    finally:
        store.close()
    return {row["entity"].removeprefix(f"{BASE}/id/") for row in rows}


@pytest.fixture(scope="module")
def full(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with the sample cluster; nobody writes to it."""
    directory = tmp_path_factory.mktemp("full") / "store"
    answer = load(directory, str(SAMPLE))
    assert answer.returncode == 0, answer.stderr
    assert "107 objects: 97 added, 0 updated, 0 unchanged, 0 removed, 0 rejected" in answer.stderr
    return directory


@pytest.fixture
def store(full: Path, tmp_path: Path) -> Path:
    """A copy of it."""
    return Path(shutil.copytree(full, tmp_path / "store"))


def load(directory: Path, *arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
    """Load into a store, with nobody at a terminal."""
    return drumlin_asks("load", "--store", str(directory), "--base", BASE, "--cluster", "prod", *arguments, input=input)


def test_one_pod_loaded_into_a_full_store_buries_nothing(store: Path, tmp_path: Path) -> None:
    """A single pod is unchanged; no graph of the others, nor of the cluster around them, is touched."""
    before = content(store)
    (tmp_path / "pod.json").write_text(json.dumps(PODS[0]))

    answer = load(store, str(tmp_path / "pod.json"), "-o", "json")

    account = json.loads(answer.stdout)
    assert (account["added"], account["updated"], account["unchanged"], account["removed"]) == (0, 0, 1, 0)
    assert content(store) == before


@pytest.mark.parametrize("kinds", ["", "=pods", "=po/payments,services/payments"])
def test_what_is_complete_is_removed_after_a_yes_only(kinds: str, store: Path, tmp_path: Path) -> None:
    """Without a terminal and ``--yes`` the removals are listed and nothing is written; with it they become tombstones."""
    before = content(store)
    rest = PODS if kinds == "=pods" else PAYMENTS
    changed = {**rest[1], "status": {**rest[1]["status"], "phase": "Failed"}}
    dump = listed(changed, *(each for each in rest[2:] if each is not PAYMENTS[0]))
    gone = {f"prod/payments/pod/{PAYMENTS[0]['metadata']['name']}"}
    if kinds == "=pods":
        gone |= {f"prod/{PODS[0]['metadata']['namespace']}/pod/{PODS[0]['metadata']['name']}"}
    if "services" in kinds:
        gone |= {each for each in before if each.startswith("prod/payments/service/")}
    place = tmp_path / "pods.json"
    place.write_text(dump)

    refused = load(store, f"--complete{kinds}", str(place))

    assert refused.returncode == 1
    assert f"  pod ({1 + (kinds == '=pods')}): " in refused.stderr
    assert NAME in refused.stderr
    assert "hint: say --yes" in refused.stderr
    assert content(store) == before

    account = json.loads(load(store, str(place), f"--complete{kinds}", "--yes", "-o", "json").stdout)

    assert (account["removed"], account["updated"]) == (len(gone), 1)
    assert NAME in account["removals"]["pod"]
    assert tombstones(store) == gone


def test_long_lists_of_removals_are_cut(store: Path) -> None:
    """Of each kind the first twenty names are shown, with the number of all; JSON has every name."""
    answer = load(store, "-", "--complete=pods", "-o", "json", input=listed(PODS[0]))

    assert answer.returncode == 1
    assert "  pod (37): " in answer.stderr
    assert ", +17 more" in answer.stderr
    told = json.loads(answer.stdout)
    assert told["loaded"] is False
    assert len(told["removals"]["pod"]) == 37


@pytest.mark.parametrize(("reply", "code"), [("n", 1), ("", 1), ("y", 0)])
def test_a_person_at_a_terminal_is_asked(reply: str, code: int, store: Path, tmp_path: Path) -> None:
    """A yes removes; a no, and no answer, leave the store as it was."""
    before = content(store)
    place = tmp_path / "pods.json"
    place.write_text(listed(*PAYMENTS[1:]))
    command = ["load", str(place), "--complete", "--store", str(store), "--base", BASE, "--cluster", "prod"]
    person, terminal = pty.openpty()
    with subprocess.Popen(
        [sys.executable, "-m", "drumlin.api.cli.main", *command],
        cwd=ROOT,
        stdin=terminal,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        os.close(terminal)
        os.write(person, f"{reply}\n".encode())
        _, said = process.communicate(timeout=60)
    os.close(person)

    assert process.returncode == code, said
    assert "Remove 1?" in said
    assert (content(store) == before) is (code == 1)
    assert len(tombstones(store)) == (code == 0)


def test_an_empty_list_needs_its_kind(store: Path) -> None:
    """``kubectl get pods -o json`` without pods names no kind: what it is complete for has to be named."""
    before = content(store)
    alone = load(store, "-", "--complete", "--yes", input=listed())
    assert alone.returncode == 1
    assert "holds no object" in alone.stderr
    assert "--complete=pods/NAMESPACE" in alone.stderr
    assert content(store) == before

    named = load(store, "-", "--complete=pods/payments", "--yes", "-o", "json", input=listed())
    assert json.loads(named.stdout)["removed"] == len(PAYMENTS)


def test_an_empty_list_beside_others_is_told(store: Path) -> None:
    """Of a dump with an empty list it is said that nothing was removed because of it."""
    answer = load(store, "-", "--complete", "--yes", input=listed(*PODS) + listed())

    assert answer.returncode == 0
    assert "standard input: document 2 is an empty list, which names no kind" in answer.stderr


def test_what_cannot_be_read_removes_nothing(store: Path) -> None:
    """A dump that breaks off loads as far as it goes, removes nothing even with ``--yes``, and says so."""
    before = content(store)
    answer = load(store, "-", "--complete=pods", "--yes", input=listed(*PODS[:9])[:-40])

    assert answer.returncode == 3
    assert "nothing was removed" in answer.stderr
    assert content(store) == before


@pytest.mark.parametrize(
    ("said", "error", "hint"),
    [
        ("podz", "'podz' is not a kind", "did you mean pods?"),
        ("pods,secrets", "'secrets' is not a kind", "name it as kubectl does"),
        ("deployments.app", "'deployments.app' is not a kind", "did you mean deployments?"),
        ("nodes/payments", "nodes are not in namespaces", "--complete=nodes"),
        ("pods/", "names no namespace", "--complete=pods"),
        ("", "'' is not a kind", "name it as kubectl does"),
    ],
)
def test_a_kind_that_is_not_followed_is_wrong_usage(said: str, error: str, hint: str, tmp_path: Path) -> None:
    """The error is one line with a hint and exit code 2, before a store is made."""
    answer = drumlin_asks("load", "-", "--store", str(tmp_path / "store"), f"--complete={said}")

    assert answer.returncode == 2
    assert len(answer.stderr.splitlines()) == 2
    assert error in answer.stderr
    assert hint in answer.stderr
    assert not (tmp_path / "store").exists()


@pytest.mark.parametrize(
    "arguments",
    [("serve",), ("serve", "--source", "kubernetes"), ("follow", "kubernetes", "--to", "http://127.0.0.1:9")],
)
def test_only_a_dump_can_be_complete(arguments: tuple[str, ...]) -> None:
    """``--complete`` is refused for any other source."""
    answer = drumlin_asks(*arguments, "--complete")

    assert answer.returncode == 2
    assert "--complete is for dumps" in answer.stderr


# -- serve ----------------------------------------------------------------------------------------------------------------


def until(service: Service, id: str, status: int) -> None:
    """Wait until an entity is answered with a status."""
    deadline = time.monotonic() + PATIENCE
    while (found := httpx.get(f"{service.url}/subgraph/{id}").status_code) != status:
        assert time.monotonic() < deadline, f"{id}: {found}\n{''.join(service.log)}"
        time.sleep(0.2)


def until_logged(service: Service, text: str, count: int = 1) -> None:
    """Wait until the service has logged a text so many times."""
    deadline = time.monotonic() + PATIENCE
    while "".join(service.log).count(text) < count:
        assert time.monotonic() < deadline, "".join(service.log)
        time.sleep(0.1)


@pytest.fixture
def served(tmp_path: Path) -> Path:
    """A file with the pods of a namespace."""
    place = tmp_path / "served.json"
    place.write_text(listed(*PAYMENTS))
    return place


def id_of(pod: dict[str, Any]) -> str:
    """The short id of a pod."""
    return f"prod/{pod['metadata']['namespace']}/pod/{pod['metadata']['name']}"


def test_a_service_follows_its_dump_and_keeps_what_it_lacks(store: Path, served: Path) -> None:
    """A store that holds more keeps it at the start, and when the file changes; what is new in the file is added."""
    new = {**PAYMENTS[0], "metadata": {**PAYMENTS[0]["metadata"], "name": "new", "uid": "new"}}
    with serving("--store", str(store), "--source", f"dump:{served}") as service:
        until_ready(service)
        generation = httpx.get(service.url + "/readyz").json()["generation"]
        served.write_text(listed(new))
        until(service, id_of(new), 200)

        assert httpx.get(service.url + "/readyz").json()["generation"] == generation + 1
        assert httpx.get(f"{service.url}/subgraph/{id_of(PAYMENTS[1])}").status_code == 200
    assert tombstones(store) == set()


def test_a_service_whose_dump_is_complete_removes_what_it_lacks(store: Path, served: Path) -> None:
    """With ``--complete`` what is missing goes at the start and when the file changes, but not when that is cut, empty or away."""
    served.write_text(listed(*PAYMENTS[1:]))
    with serving("--store", str(store), "--source", f"dump:{served}", "--complete") as service:
        until_ready(service)
        until(service, id_of(PAYMENTS[0]), 410)
        for broken in (listed(PAYMENTS[2])[:-9], "", listed()):
            finished = "".join(service.log).count("export_finished") + "".join(service.log).count("job_failed")
            served.write_text(broken)
            deadline = time.monotonic() + PATIENCE
            while "".join(service.log).count("export_finished") + "".join(service.log).count("job_failed") == finished:
                assert time.monotonic() < deadline, "".join(service.log)
                time.sleep(0.1)
        served.unlink()
        until_logged(service, "does not exist")
        assert httpx.get(f"{service.url}/subgraph/{id_of(PAYMENTS[1])}").status_code == 200

        served.write_text(listed(*PAYMENTS[2:]))
        until(service, id_of(PAYMENTS[1]), 410)
        assert httpx.get(service.url + "/readyz").status_code == 200
    assert tombstones(store) == {id_of(each) for each in PAYMENTS[:2]}


def test_following_a_dump_keeps_and_removes_by_the_same_rule(tmp_path: Path) -> None:
    """``drumlin follow dump:PATH`` reads once; it removes only with ``--complete``."""
    place = tmp_path / "pods.json"
    with serving("--store", str(tmp_path / "store")) as service:
        for pods, complete in ((PAYMENTS, ()), (PAYMENTS[1:], ()), (PAYMENTS[1:], ("--complete=po/payments",))):
            place.write_text(listed(*pods))
            answer = drumlin_asks(
                "follow", f"dump:{place}", "--to", service.url, "--base", BASE, "--cluster", "prod", *complete
            )
            assert answer.returncode == 0, answer.stderr
            status = httpx.get(f"{service.url}/subgraph/{id_of(PAYMENTS[0])}").status_code
            assert status == (410 if complete else 200), answer.stderr + "".join(service.log)
            assert httpx.get(f"{service.url}/subgraph/{id_of(PAYMENTS[1])}").status_code == 200
