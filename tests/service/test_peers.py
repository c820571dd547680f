"""Exchange between services in processes of their own: what is shared comes over, also after one of them was killed, and is taken back."""

from __future__ import annotations

import json
import socket
from collections.abc import Callable
from pathlib import Path
from typing import Any

import httpx
import pytest

from drumlin.api.access.callers import Role
from drumlin.api.access.tokens import TokenFile
from drumlin.kg.model.iris import Iris
from tests.service.conftest import BASE, drumlin_asks, serving
from tests.waiting import until

IRIS = Iris(BASE)
TABLE = IRIS.object("alice", "ns", "Service", "table")
GRANT = IRIS.object("alice", "ns", "DomainDataGrant", "to-bob", "kuscia.secretflow")
PLACE = {"namespace": "ns", "cluster": IRIS.cluster("alice"), "domain": IRIS.domain("alice")}
DATA = {"id": TABLE, "type": "Service", "name": "table", **PLACE}
SHARED = {"id": GRANT, "type": "Grant", "name": "to-bob", **PLACE, "grants": TABLE, "grantedTo": IRIS.domain("bob")}


def writing(address: str, token: str) -> Callable[[dict[str, Any]], None]:
    """Return what puts a document at a service."""

    def put(document: dict[str, Any]) -> None:
        iri = document["id"]
        headers = {"Authorization": f"Bearer {token}", "Content-Type": "application/ld+json"}
        answer = httpx.put(f"{address}/subgraph/{IRIS.short(iri)}", content=json.dumps(document), headers=headers)
        assert answer.is_success, answer.text

    return put


def free_port() -> int:
    """Return a port that nobody listens on."""
    with socket.create_server(("127.0.0.1", 0)) as listener:
        return int(listener.getsockname()[1])


def test_two_services_share_what_is_granted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A grant brings data to the other service, its end takes it back, and a giver that was killed leaves what it gave."""
    alice, bob = tmp_path / "alice", tmp_path / "bob"
    tokens = TokenFile(alice / "tokens.json")
    (tmp_path / "token").write_text(tokens.create("bob", Role.peer, domains=["bob"])[1])
    admin, port = tokens.create("operator", Role.admin)[1], str(free_port())
    settings = tmp_path / "bob.toml"
    settings.write_text(
        f'domain = {{id = "bob"}}\n[[peer]]\nname = "alice"\nurl = "http://127.0.0.1:{port}"\n'
        f'token = "{tmp_path}/token"\ndomains = ["alice"]\n'
    )
    ours = ("--store", str(alice), "--domain", "alice", "--port", port)
    with (
        serving(*ours, cluster="alice") as giver,
        serving("--store", str(bob), "--config", str(settings), cluster="bob") as follower,
    ):
        put = writing(giver.url, admin)

        def here() -> httpx.Response:
            return httpx.get(f"{follower.url}/subgraph/{IRIS.short(TABLE)}")

        put(DATA)
        put(SHARED)
        until(lambda: here().status_code == 200)
        put({**SHARED, "expiresAt": "2020-01-01T00:00:00Z"})
        until(lambda: here().status_code == 404)
        put({**DATA, "label": "note=new"})
        put(SHARED)
        until(lambda: "note=new" in here().text)
        giver.process.kill()
        monkeypatch.setenv("DRUMLIN_URL", follower.url)
        until(lambda: json.loads(drumlin_asks("peers", "-o", "json").stdout)[0]["error"])
        assert here().status_code == 200
        told = drumlin_asks("peers").stdout
        assert told.split("\n")[1].startswith(f"alice  http://127.0.0.1:{port}/  alice ")
