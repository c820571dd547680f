"""Tokens and a running service: commands beside it, rotation, streams that end, followers, and where no token may appear."""

from __future__ import annotations

import json
import threading
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest

import drumlin
from drumlin.api.access.callers import Role
from drumlin.api.access.tokens import PATTERN, TokenFile
from drumlin.kg.errors import Forbidden, InvalidSettings, Unauthenticated
from tests.agents import sent
from tests.service.conftest import BASE, SAMPLE, Service, drumlin_asks, run_drumlin, serving
from tests.service.test_guard import _raw
from tests.waiting import until

END = b"\r\nConnection: close\r\n\r\n"


class Guarded:
    """A service that asks for tokens, and the file of its tokens."""

    def __init__(self, service: Service, store: Path) -> None:
        self.service, self.store = service, store
        self.file = TokenFile(store / "tokens.json")
        self.url = service.url

    def status(self, token: str, path: str = "/search") -> int:
        """Return what a request with a token gets."""
        return httpx.get(self.url + path, headers={"Authorization": f"Bearer {token}"}, timeout=30).status_code


@pytest.fixture(scope="module")
def guarded(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Guarded]:
    """A service on all addresses with an empty store and the token of an operator."""
    store = tmp_path_factory.mktemp("guarded")
    made = drumlin_asks("token", "create", "operator", "--role", "admin", "--store", str(store))
    assert made.returncode == 0, made.stderr
    with serving("--store", str(store), "--host", "0.0.0.0") as service:
        service.url = service.url.replace("0.0.0.0", "127.0.0.1")
        yield Guarded(service, store)


def test_a_service_beyond_loopback_needs_tokens(tmp_path: Path) -> None:
    """Without one it does not start, and says which command makes one; so do tokens that have ended."""
    file = TokenFile(tmp_path / "tokens.json")
    for _ in range(2):
        refused = run_drumlin("serve", "--host", "0.0.0.0", "--port", "0", "--store", str(tmp_path))
        assert refused.returncode == 1
        assert "there are no tokens" in refused.stderr
        assert f"drumlin token create admin --role admin --store {tmp_path}" in refused.stderr
        assert not (tmp_path / "changes.sqlite").exists()
        if file.stamp() is None:
            file.create("a", Role.admin)
            file.revoke("a")


def test_a_token_is_made_rotated_and_revoked_while_the_service_runs(guarded: Guarded) -> None:
    """Each is noticed within seconds; during the overlap both tokens are accepted, and others are not affected."""
    store = ("--store", str(guarded.store))
    made = drumlin_asks("token", "create", "grafana", "--role", "reader", "--expires", "90d", *store)
    first = made.stdout.strip()
    assert PATTERN.fullmatch(first)
    assert "shown once" in made.stderr
    until(lambda: guarded.status(first) == 200)
    second = json.loads(drumlin_asks("token", "rotate", "grafana", "--overlap", "1h", *store, "-o", "json").stdout)[
        "token"
    ]
    until(lambda: guarded.status(second) == 200)
    assert guarded.status(first) == 200
    third = drumlin_asks("token", "rotate", "grafana", *store).stdout.strip()
    until(lambda: guarded.status(third) == 200)
    assert (guarded.status(first), guarded.status(second)) == (401, 401)
    listed = json.loads(drumlin_asks("token", "list", *store, "-o", "json").stdout)
    assert [each["state"] for each in listed if each["name"] == "grafana"] == ["expired", "expired", "active"]
    shown = drumlin_asks("token", "list", *store).stdout
    assert "grafana" in shown
    assert not PATTERN.search(shown)
    assert drumlin_asks("token", "revoke", "grafana", *store).returncode == 0
    until(lambda: guarded.status(third) == 401)
    again = drumlin_asks("token", "revoke", "grafana", *store)
    assert (again.returncode, "operator" in again.stderr) == (4, True)


def test_commands_say_what_they_lack(tmp_path: Path) -> None:
    """No store, two of them, an engine elsewhere, a role or a form that is none, a name that has a token."""
    store = ("--store", str(tmp_path))
    create = ("token", "create", "a", "--role", "reader")
    configured = tmp_path / "drumlin.toml"
    configured.write_text('tokens = "elsewhere.json"')
    assert drumlin_asks(*create, *store).returncode == 0
    for arguments, code, said in (
        (create, 2, "--store DIR"),
        ((*create, *store, "--tokens", str(tmp_path / "x")), 2, "two files"),
        ((*create, "--store", "sparql+http://x.example/"), 2, "--tokens FILE"),
        (("token", "create", "b", "--role", "boss", *store), 2, "reader"),
        ((*create, *store, "-o", "csv"), 2, "table"),
        ((*create, *store), 1, "token rotate a"),
        (("token", "create", "b", "--role", "exporter", *store), 1, "--source"),
        (("token", "create", "b", "--role", "reader", "--expires", "soon", *store), 1, "soon"),
        (("token", "create", "b", "--role", "reader", "--expires", "0", *store), 1, "0"),
        (("token", "create", "b", "--role", "reader", "--expires", "9999999d", *store), 1, "9999"),
        (("token", "rotate", "a", "--overlap", "9999999d", *store), 1, "9999"),
        (("token", "list", "--tokens", str(tmp_path)), 1, "cannot be used"),
        (("token", "list", *store, "--config", str(configured)), 2, "elsewhere.json"),
    ):
        told = drumlin_asks(*arguments)
        assert (told.returncode, said in told.stderr, told.stdout) == (code, True, ""), (arguments, told.stderr)


def test_a_revoked_token_ends_its_stream(guarded: Guarded) -> None:
    """The feed of a token that is revoked is cut within seconds."""
    token = guarded.file.create("feed", Role.reader)[1]
    until(lambda: guarded.status(token) == 200)
    began, ended = threading.Event(), threading.Event()

    def follow() -> None:
        headers = {"Authorization": f"Bearer {token}", "Accept": "text/event-stream"}
        try:
            with httpx.stream("GET", f"{guarded.url}/events", headers=headers, timeout=60) as feed:
                for _ in feed.iter_raw():
                    began.set()
        except httpx.RemoteProtocolError:
            pass  # the connection was cut without an end
        ended.set()

    reading = threading.Thread(target=follow)
    reading.start()
    assert began.wait(30)
    assert not ended.is_set()
    guarded.file.revoke("feed")
    assert ended.wait(30)
    reading.join()


def test_clients_send_their_token(guarded: Guarded, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Given, from a file that is read again, or from the environment; without one the service's own error is raised."""
    token = guarded.file.create("client", Role.reader)[1]
    until(lambda: guarded.status(token) == 200)
    for name in ("DRUMLIN_TOKEN", "DRUMLIN_TOKEN_FILE"):
        monkeypatch.delenv(name, raising=False)
    file = tmp_path / "token"
    with drumlin.connect(guarded.url) as client, pytest.raises(Unauthenticated) as told:
        client.sparql("ASK {}")
    assert "drumlin token create" in str(told.value.hint)
    with drumlin.connect(guarded.url, token=token) as client:
        assert client.sparql("ASK {}") is True
        with pytest.raises(Forbidden, match="client has the role reader") as refused:
            client.update("CLEAR ALL")
    assert refused.value.detail["needs"] == ["writer", "admin"]
    with drumlin.connect(guarded.url, token_file=file) as client:
        with pytest.raises(InvalidSettings, match="cannot read the token file"):
            client.sparql("ASK {}")
        for content, accepted in ((token, True), ("drumlin_other", False), (f"{token}\n", True)):
            file.write_text(content)
            if accepted:
                assert client.sparql("ASK {}") is True
            else:
                with pytest.raises(Unauthenticated):
                    client.sparql("ASK {}")
    for both in ({"token": "a b"}, {"token": ""}, {"token": token, "token_file": file}):
        with pytest.raises(InvalidSettings):
            drumlin.connect(guarded.url, **both)
    asking = ("sparql", "ASK {}", "--url", guarded.url)
    assert drumlin_asks(*asking).returncode == 1
    assert drumlin_asks(*asking, "--token-file", str(file)).returncode == 0
    assert drumlin_asks(*asking).returncode == 1
    monkeypatch.setenv("DRUMLIN_TOKEN", token)
    assert drumlin_asks(*asking).returncode == 0


def test_odd_bytes_on_the_wire_let_nobody_in(guarded: Guarded) -> None:
    """Folded, doubled, very long and binary headers are refused by the server or by the service, and are no error of either."""
    token = guarded.file.create("wire", Role.reader)[1].encode()
    until(lambda: guarded.status(token.decode()) == 200)
    odd = (
        b"Authorization: Bearer\r\n " + token,
        b"Authorization : Bearer " + token,
        b"Authorization: Bearer " + token + b"\x00",
        b"Authorization: Bearer " + token + b"\x80",
        b"Authorization: Bearer " + token + b", Bearer x",
        b"Authorization: Bearer " + token + b"\r\nauthorization: Bearer " + token,
        b'Authorization: Bearer "' + token + b'"',
        b"Authorization: Bearer " + b"a" * 60_000,
        b"Authorization: Bear er " + token,
        b"Authorization: " + token,
        b"Authorization=Bearer " + token,
        b"Proxy-Authorization: Bearer " + token,
        b"Cookie: Authorization=Bearer " + token,
        b"X-Forwarded-Authorization: Bearer " + token,
        b"X-Forwarded-For: 127.0.0.1\r\nForwarded: for=127.0.0.1",
        b"\xff\xfe: Bearer " + token,
    )
    statuses = [_raw(guarded.service, b"GET /search HTTP/1.1\r\nHost: localhost\r\n" + each + END)[0] for each in odd]
    assert set(statuses) <= {400, 401, 431}
    good = b"GET /search HTTP/1.1\r\nHost: localhost\r\naUTHORIZATION:   bEARER " + token + END
    assert _raw(guarded.service, good)[0] == 200


def test_a_follower_writes_with_the_token_of_its_source(guarded: Guarded, tmp_path: Path) -> None:
    """Its graphs are those of its source; a token of another source is refused, and no token is named at once."""
    file = tmp_path / "token"
    follow = ("follow", f"dump:{SAMPLE}", "--to", guarded.url, "--base", BASE, "--cluster", "prod")
    nothing = drumlin_asks(*follow)
    assert (nothing.returncode, "--role exporter" in nothing.stderr) == (1, True), nothing.stderr
    file.write_text(guarded.file.create("other", Role.exporter, owners=("kubernetes:prod",))[1])
    refused = drumlin_asks(*follow, "--token-file", str(file))
    assert (refused.returncode, "other (exporter) writes as kubernetes:prod" in refused.stderr) == (1, True), (
        refused.stderr
    )
    made = drumlin_asks(
        "token",
        "create",
        "dump",
        "--role",
        "exporter",
        "--source",
        "dump",
        "--cluster",
        "prod",
        "--store",
        str(guarded.store),
    )
    file.write_text(made.stdout)
    until(lambda: guarded.status(made.stdout.strip()) == 200)
    done = drumlin_asks(*follow, "--token-file", str(file))
    assert done.returncode == 0, done.stderr
    with drumlin.connect(guarded.url, token_file=file) as client:
        owners = {each.owner for each in client.subgraphs()}
    assert owners == {"drumlin", "dump"}


def test_no_token_appears_anywhere(guarded: Guarded) -> None:
    """Neither in the log, nor in metrics, answers, the audit log or the file of tokens; in the address neither."""
    token = guarded.file.create("secret", Role.admin)[1]
    until(lambda: guarded.status(token) == 200)
    headers = {"Authorization": f"Bearer {token}"}
    bodies = []
    with httpx.Client(base_url=guarded.url, timeout=60) as http:
        for method, path in (
            ("GET", "/metrics"),
            ("GET", "/nothing"),
            ("PUT", "/subgraph/x"),
            ("POST", "/sparql/update"),
            ("GET", "/sparql?query=SELECT"),
            ("DELETE", "/search"),
            ("GET", "/events?since=x"),
        ):
            bodies.append(http.request(method, path, headers=headers).text)
            bodies.append(http.request(method, path, headers={"Authorization": f"Bearer {token}x"}).text)
            bodies.append(http.request(method, path, headers=[*headers.items(), *headers.items()]).text)
        wrong = http.get(f"/search?access_token={token}")
        assert wrong.status_code == 401
        bodies.append(wrong.text)
        http.delete(f"/subgraph/{token}", headers=headers)
        bodies.append(http.get("/metrics", headers=headers).text)
    audit = guarded.store / "access.jsonl"
    until(lambda: "drumlin_…" in audit.read_text())
    for text in (*bodies, "".join(guarded.service.log), audit.read_text(), guarded.file.path.read_text()):
        assert token not in text
    assert 'route="refused",status="401"' in bodies[-1]


def test_an_agent_may_what_its_token_may(guarded: Guarded) -> None:
    """Tools ask with the caller's own token: a reader reads, an agent's token and none are refused, a revoked one ends."""
    tokens = {
        role: guarded.file.create(f"mcp-{role}", role, **bound)[1]
        for role, bound in ((Role.reader, {}), (Role.agent, {"guid": "m-1"}))
    }
    until(lambda: guarded.status(tokens[Role.reader]) == 200)
    call = {"jsonrpc": "2.0", "id": 3, "method": "tools/call", "params": {"name": "search", "arguments": {}}}

    def asked(token: str | None) -> httpx.Response:
        return sent(guarded.url, call, **({"Authorization": f"Bearer {token}"} if token else {}))

    assert asked(None).status_code == 401
    assert asked("drumlin_wrong").status_code == 401
    assert asked(tokens[Role.agent]).status_code == 403
    found = asked(tokens[Role.reader])
    assert found.status_code == 200
    assert not found.json()["result"]["isError"], found.text
    guarded.file.revoke("mcp-reader")
    until(lambda: asked(tokens[Role.reader]).status_code == 401)
