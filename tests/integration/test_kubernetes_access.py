"""The connection to an API server: where it comes from, how credentials are renewed, what its errors say."""

from __future__ import annotations

import json
import shutil
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import pytest

from exporters.kubernetes.access import Access, ApiRefused, StreamBroken, StreamSilent
from exporters.kubernetes.informer import KubernetesSource
from kg.errors import SourceUnavailable
from tests.fake_apiserver import FakeApiServer, Fault
from tests.fake_apiserver.clusters import access_to
from tests.fake_apiserver.following import FAST, PODS, Following


@pytest.fixture
def fake() -> Iterator[FakeApiServer]:
    """A fake API server over plain HTTP."""
    with FakeApiServer() as server:
        yield server


@dataclass(frozen=True, slots=True)
class Secure:
    """A fake API server over TLS and the file that holds its certificate."""

    fake: FakeApiServer
    ca_file: Path


@pytest.fixture
def secure(tmp_path: Path) -> Iterator[Secure]:
    """A fake API server over TLS with a certificate made for this test."""
    if shutil.which("openssl") is None:
        pytest.skip("openssl is not installed; `apt-get install openssl`")
    key, certificate = tmp_path / "tls.key", tmp_path / "tls.crt"
    subprocess.run(
        ["openssl", "req", "-x509", "-newkey", "ec", "-pkeyopt", "ec_paramgen_curve:P-256", "-nodes", "-days", "2",
         "-subj", "/CN=fake", "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(certificate)],
        check=True, capture_output=True,
    )  # fmt: skip
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(certificate, key)
    with FakeApiServer(tls=context) as server:
        server.bookmark_every = 0.2
        yield Secure(server, certificate)


def kubeconfig(directory: Path, servers: dict[str, str], user: dict[str, object]) -> str:
    """Write a kubeconfig with one context per server; the first is current. Return its path."""
    config = {
        "apiVersion": "v1", "kind": "Config", "current-context": next(iter(servers)),
        "clusters": [{"name": name, "cluster": {"server": url}} for name, url in servers.items()],
        "users": [{"name": "me", "user": user}],
        "contexts": [{"name": name, "context": {"cluster": name, "user": "me"}} for name in servers],
    }  # fmt: skip
    file = directory / "config"
    file.write_text(json.dumps(config), encoding="utf-8")
    return str(file)


# -- where it comes from ------------------------------------------------------------------------------------------------------


def test_a_kubeconfigs_current_context_is_used(fake: FakeApiServer, tmp_path: Path) -> None:
    """Without a context the kubeconfig's current one names the server and the token."""
    fake.token = "abc"
    file = kubeconfig(tmp_path, {"here": fake.url, "there": "https://192.0.2.1"}, {"token": "abc"})
    access = Access.connect(kubeconfig=file)

    assert access.server == fake.url
    assert json.loads(access.get("/version"))["major"] == "1"


def test_a_named_context_is_used(fake: FakeApiServer, tmp_path: Path) -> None:
    """A context that is named wins over the current one."""
    file = kubeconfig(tmp_path, {"there": "https://192.0.2.1", "here": fake.url}, {"token": "abc"})

    assert Access.connect("here", file).server == fake.url


_UNUSABLE = (
    None,
    "",
    "canary-in-file: [",
    '{"kind": "Config"}',
    "- canary-in-file",
    '{"current-context": "a", "contexts": 7, "clusters": [], "users": []}',
    '{"current-context": "a", "contexts": [{"name": "a", "context": "canary"}], "clusters": [], "users": []}',
    json.dumps(
        {
            "current-context": "a",
            "contexts": [{"name": "a", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": 7}}],
            "users": [{"name": "u", "user": "canary"}],
        }
    ),
)


@pytest.mark.parametrize("content", _UNUSABLE)
def test_an_unusable_kubeconfig_is_named_as_such(tmp_path: Path, content: str | None) -> None:
    """Missing, empty, broken or incomplete: the error says what is wrong and never quotes the file."""
    file = tmp_path / "config"
    if content is not None:
        file.write_text(content, encoding="utf-8")
    with pytest.raises(SourceUnavailable) as caught:
        Access.connect(kubeconfig=str(file))

    assert caught.value.hint
    assert "canary" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_an_unknown_context_is_refused(fake: FakeApiServer, tmp_path: Path) -> None:
    """A context that the kubeconfig does not hold is named in the error."""
    file = kubeconfig(tmp_path, {"here": fake.url}, {"token": "abc"})
    with pytest.raises(SourceUnavailable, match="elsewhere") as caught:
        Access.connect("elsewhere", file)
    assert "kubectl config get-contexts" in str(caught.value.hint)


def test_inside_a_cluster_the_service_account_is_used(
    secure: Secure, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In a pod, the mounted token and certificate and the environment say where and who."""
    host, _, port = secure.fake.url.removeprefix("https://").partition(":")
    token = tmp_path / "token"
    token.write_text("abc", encoding="utf-8")
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("KUBERNETES_SERVICE_HOST", host)
    monkeypatch.setenv("KUBERNETES_SERVICE_PORT", port)
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_TOKEN_FILENAME", str(token))
    monkeypatch.setattr("kubernetes.config.incluster_config.SERVICE_CERT_FILENAME", str(secure.ca_file))

    assert Access.connect().get("/version")


# -- credentials ----------------------------------------------------------------------------------------------------------------


def test_a_rotated_token_file_is_read_again(fake: FakeApiServer, tmp_path: Path) -> None:
    """kubernetes-client/python#1768: the server wants the new token; one reload gets it."""
    fake.token = "old"
    token = tmp_path / "token"
    token.write_text("old", encoding="utf-8")
    access = Access.connect(kubeconfig=kubeconfig(tmp_path, {"here": fake.url}, {"tokenFile": str(token)}))
    assert access.get("/version")
    fake.token = "new"
    token.write_text("new", encoding="utf-8")

    assert access.get("/version")
    assert len(fake.requests) == 3


def test_an_exec_plugin_is_run_again(fake: FakeApiServer, tmp_path: Path) -> None:
    """airflow#61737: a token that a plugin made is made anew when the server refuses it."""
    made, plugin = tmp_path / "made", tmp_path / "plugin.py"
    plugin.write_text(
        "import json, sys, pathlib\n"
        f"token = pathlib.Path({str(made)!r}).read_text()\n"
        'json.dump({"apiVersion": "client.authentication.k8s.io/v1", "kind": "ExecCredential",'
        ' "status": {"token": token}}, sys.stdout)\n',
        encoding="utf-8",
    )
    run = {"apiVersion": "client.authentication.k8s.io/v1", "command": sys.executable, "args": [str(plugin)]}
    fake.token = "old"
    made.write_text("old", encoding="utf-8")
    access = Access.connect(kubeconfig=kubeconfig(tmp_path, {"here": fake.url}, {"exec": run}))
    assert access.get("/version")
    fake.token = "new"
    made.write_text("new", encoding="utf-8")

    assert access.get("/version")


def test_many_threads_that_are_refused_reload_once(fake: FakeApiServer) -> None:
    """A rotation makes every reflector's request fail at once; the credentials are read once for all."""
    loads: list[str] = []

    def load(configuration: object) -> None:
        loads.append("load")
        configuration.host = fake.url
        configuration.api_key["BearerToken"] = f"Bearer {'new' if len(loads) > 1 else 'old'}"

    fake.token = "new"
    access = Access(load)
    threads = [threading.Thread(target=access.get, args=["/version"]) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert len(loads) == 2


def test_a_token_that_stays_wrong_is_refused_after_one_reload(fake: FakeApiServer) -> None:
    """Two requests, then an error with a hint; the token is in neither."""
    fake.token = "right"
    with pytest.raises(ApiRefused, match="401") as caught:
        access_to(fake.url, token="wrong-token").get("/version")

    assert len(fake.requests) == 2
    assert caught.value.hint
    assert "wrong-token" not in f"{caught.value} {caught.value.hint} {caught.value.detail}"


# -- answers ----------------------------------------------------------------------------------------------------------------------


def test_the_servers_own_words_are_passed_on(fake: FakeApiServer) -> None:
    """A Status' message says who may not do what; the hint says what to grant."""
    fake.forbidden.add("pods")
    with pytest.raises(ApiRefused) as caught:
        access_to(fake.url).get("/api/v1/pods")

    assert caught.value.status == 403
    assert 'User "viewer" cannot list resource "pods"' in str(caught.value)
    assert "rbac.yaml" in str(caught.value.hint)


def test_a_body_that_is_no_status_is_not_quoted(fake: FakeApiServer) -> None:
    """What a proxy says in its own format is not the API server's word."""
    with pytest.raises(ApiRefused) as caught:
        access_to(fake.url).get("/apis/none/v1/things")

    assert str(caught.value) == "GET /apis/none/v1/things: the API server answered 404"


def test_a_redirect_is_not_followed(fake: FakeApiServer) -> None:
    """A token is sent to the configured server and nowhere else."""
    fake.faults.inject(Fault("refuse", status=302))
    with pytest.raises(ApiRefused) as caught:
        access_to(fake.url, token="abc").get("/api/v1/pods")

    assert caught.value.status == 302


def test_retry_after_is_read_from_the_header(fake: FakeApiServer) -> None:
    """The server's own wait is kept in seconds."""
    fake.faults.inject(Fault("refuse", status=429, retry_after=7))
    with pytest.raises(ApiRefused) as caught:
        access_to(fake.url).get("/api/v1/pods")

    assert caught.value.retry_after == 7


def test_a_server_that_is_not_there_is_named(fake: FakeApiServer) -> None:
    """A refused connection tells the address, what was asked, and what to check."""
    access = access_to(fake.url)
    fake.stop()
    try:
        with pytest.raises(SourceUnavailable, match="does not answer") as caught:
            access.get("/version")
    finally:
        fake.start()

    assert fake.url in str(caught.value)
    assert str(caught.value).endswith("does not answer: nobody listens there")
    assert "kubectl version" in str(caught.value.hint)


def test_silence_and_loss_are_told_apart(fake: FakeApiServer) -> None:
    """Nothing for too long is one thing, a connection that is lost another."""
    access = access_to(fake.url)
    fake.faults.inject(Fault("silence", on="list"))
    with pytest.raises(StreamSilent):
        access.get("/api/v1/pods", timeout=0.2)
    fake.faults.inject(Fault("drop", on="list"))
    with pytest.raises(StreamBroken):
        access.get("/api/v1/pods")


# -- TLS --------------------------------------------------------------------------------------------------------------------------


def test_a_certificate_is_checked(secure: Secure) -> None:
    """A server whose certificate is not trusted is not spoken to."""
    with pytest.raises(SourceUnavailable) as caught:
        access_to(secure.fake.url).get("/version")

    assert "certificate" in str(caught.value.hint)
    assert not secure.fake.requests


def test_a_stop_takes_effect_at_once_over_tls(secure: Secure) -> None:
    """A read that blocks inside the TLS layer is ended too, without an error."""
    access = access_to(secure.fake.url, ca_file=str(secure.ca_file))
    with Following(KubernetesSource(access, [PODS], "prod", timing=FAST)) as seen:
        seen.until_synced(PODS)
        time.sleep(0.1)
        before = threading.active_count()
        assert seen.stop() < 0.45

    assert seen.error is None
    assert threading.active_count() < before
