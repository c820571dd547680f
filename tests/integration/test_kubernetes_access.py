"""The connection to an API server: where it comes from, how credentials are renewed, what its errors say."""

from __future__ import annotations

import base64
import json
import os
import shutil
import socket
import ssl
import subprocess
import sys
import threading
import time
import warnings
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest
import structlog

from drumlin.exporters.kubernetes.access import ApiRefused, ApiServer, StreamBroken, StreamSilent
from drumlin.exporters.kubernetes.informer import KubernetesSource
from drumlin.kg.errors import SourceUnavailable
from tests.fake_apiserver import FakeApiServer, Fault
from tests.fake_apiserver.clusters import access_to
from tests.fake_apiserver.following import FAST, PODS, Following
from tests.listening import listening


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
    access = ApiServer.connect(kubeconfig=file)

    assert access.server == fake.url
    assert json.loads(access.get("/version"))["major"] == "1"


def test_a_named_context_is_used(fake: FakeApiServer, tmp_path: Path) -> None:
    """A context that is named wins over the current one."""
    file = kubeconfig(tmp_path, {"there": "https://192.0.2.1", "here": fake.url}, {"token": "abc"})

    assert ApiServer.connect("here", file).server == fake.url


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
        ApiServer.connect(kubeconfig=str(file))

    assert caught.value.hint
    assert "canary" not in str(caught.value)
    assert "\n" not in str(caught.value)


def test_a_broken_kubeconfig_is_named_with_its_place(tmp_path: Path) -> None:
    """YAML that breaks off is named by file, line and column, and not quoted."""
    file = tmp_path / "broken"
    file.write_text("apiVersion: v1\nusers:\n  - name: canary\n bad: [\n", encoding="utf-8")
    with pytest.raises(SourceUnavailable, match=rf"{file}, line 4, column \d+ is not YAML") as caught:
        ApiServer.connect(kubeconfig=str(file))
    assert "canary" not in str(caught.value)


def test_missing_paths_are_named(fake: FakeApiServer, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A KUBECONFIG that names what is not there says which path; of several, those that exist are read."""
    missing = str(tmp_path / "missing")
    monkeypatch.setenv("KUBECONFIG", missing)
    with pytest.raises(SourceUnavailable, match=f"KUBECONFIG is {missing}, which does not exist"):
        ApiServer.connect()
    file = kubeconfig(tmp_path, {"here": fake.url}, {"token": "abc"})
    monkeypatch.setenv("KUBECONFIG", f"{missing}{os.pathsep}{file}")
    assert ApiServer.connect().server == fake.url
    with pytest.raises(SourceUnavailable, match="the kubeconfig is /nowhere, which does not exist"):
        ApiServer.connect(kubeconfig="/nowhere")


@pytest.mark.parametrize(
    ("cluster", "user", "said"),
    [
        ({"certificate-authority": "/nowhere/ca.crt"}, {"token": "a"}, "File does not exist: /nowhere/ca.crt"),
        ({"certificate-authority-data": "canary!"}, {"token": "a"}, "certificate data that is not base64"),
        (
            {"certificate-authority-data": "Y2FuYXJ5"},
            {"token": "a"},
            "CA certificate (certificate-authority) is not a PEM",
        ),
        ({}, {"client-certificate-data": "Y2FuYXJ5", "client-key-data": "Y2FuYXJ5"}, "client certificate and key"),
        ({}, {"tokenFile": "/nowhere/token"}, "/nowhere/token cannot be read: No such file"),
        ({"server": "canary.example:6443"}, {"token": "a"}, "has no server that begins with https://"),
    ],
)
def test_what_a_kubeconfig_leads_to_is_checked_at_the_start(
    tmp_path: Path, cluster: dict[str, str], user: dict[str, object], said: str
) -> None:
    """Certificates, keys and files that no connection could use are named, before any request, and not quoted."""
    file = Path(kubeconfig(tmp_path, {"here": "https://192.0.2.1"}, user))
    config = json.loads(file.read_text(encoding="utf-8"))
    config["clusters"][0]["cluster"] |= cluster
    file.write_text(json.dumps(config), encoding="utf-8")
    with pytest.raises(SourceUnavailable) as caught:
        ApiServer.connect(kubeconfig=str(file))

    assert said in str(caught.value)
    assert caught.value.hint
    assert "canary" not in str(caught.value)


def test_a_context_must_name_what_there_is(fake: FakeApiServer, tmp_path: Path) -> None:
    """A user or cluster that the kubeconfig does not have is an error; a context without any user is a warning, as for a local proxy."""
    file = Path(kubeconfig(tmp_path, {"here": fake.url}, {"token": "abc"}))
    config = json.loads(file.read_text(encoding="utf-8"))
    for context, said in (
        ({"cluster": "here", "user": "you"}, "names the user 'you', which"),
        ({"cluster": "there", "user": "me"}, "names the cluster 'there', which"),
    ):
        file.write_text(json.dumps(config | {"contexts": [{"name": "here", "context": context}]}), encoding="utf-8")
        with pytest.raises(SourceUnavailable, match=said):
            ApiServer.connect(kubeconfig=str(file))
    file.write_text(
        json.dumps(config | {"contexts": [{"name": "here", "context": {"cluster": "here"}}]}), encoding="utf-8"
    )
    with structlog.testing.capture_logs() as logs:
        assert ApiServer.connect(kubeconfig=str(file)).get("/version")
    assert [each["event"] for each in logs] == ["context_without_user"]
    assert "authorization" not in fake.requests[0].headers


def test_a_dead_proxy_is_called_the_proxy(tmp_path: Path) -> None:
    """What does not answer is named: the proxy, without its password, and not the API server behind it."""
    with socket.socket() as nobody:
        nobody.bind(("127.0.0.1", 0))
        proxy = f"127.0.0.1:{nobody.getsockname()[1]}"
        file = Path(kubeconfig(tmp_path, {"here": "https://192.0.2.1"}, {"token": "abc"}))
        config = json.loads(file.read_text(encoding="utf-8"))
        config["clusters"][0]["cluster"]["proxy-url"] = f"http://me:secret@{proxy}"
        file.write_text(json.dumps(config), encoding="utf-8")
        with pytest.raises(SourceUnavailable) as caught:
            ApiServer.connect(kubeconfig=str(file)).get("/version")

    assert f"the proxy http://{proxy} on the way to https://192.0.2.1 cannot be used: nobody listens" in str(
        caught.value
    )
    assert "secret" not in str(caught.value)
    assert "HTTPS_PROXY" in str(caught.value.hint)


def test_an_unknown_context_is_refused(fake: FakeApiServer, tmp_path: Path) -> None:
    """A context that the kubeconfig does not hold is named in the error."""
    file = kubeconfig(tmp_path, {"here": fake.url}, {"token": "abc"})
    with pytest.raises(SourceUnavailable, match="elsewhere") as caught:
        ApiServer.connect("elsewhere", file)
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

    assert ApiServer.connect().get("/version")


# -- credentials ----------------------------------------------------------------------------------------------------------------


def test_a_rotated_token_file_is_read_again(fake: FakeApiServer, tmp_path: Path) -> None:
    """kubernetes-client/python#1768: the server wants the new token; one reload gets it."""
    fake.token = "old"
    token = tmp_path / "token"
    token.write_text("old", encoding="utf-8")
    access = ApiServer.connect(kubeconfig=kubeconfig(tmp_path, {"here": fake.url}, {"tokenFile": str(token)}))
    assert access.get("/version")
    fake.token = "new"
    token.write_text("new", encoding="utf-8")

    assert access.get("/version")
    assert len(fake.requests) == 3


V1 = "client.authentication.k8s.io/v1"


class ExecPlugin:
    """A plugin that prints what stands in a file; without the file it fails and says so on stderr."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.made = directory / "made"
        self.log = directory / "runs"
        self.script = directory / "plugin.py"
        self.script.write_text(
            "import pathlib, sys\n"
            f"made, log = pathlib.Path({str(self.made)!r}), pathlib.Path({str(self.log)!r})\n"
            "log.open('a').write('run\\n')\n"
            "if not made.exists(): sys.exit('the session has expired: sign in')\n"
            "print(made.read_text())\n",
            encoding="utf-8",
        )

    def gives(self, token: str | None, *, version: str = V1, **status: str) -> None:
        """Have it print a token from now on, or fail."""
        if token is None:
            self.made.unlink()
            return
        answer = {"apiVersion": version, "kind": "ExecCredential", "status": {"token": token, **status}}
        self.made.write_text(json.dumps(answer), encoding="utf-8")

    @property
    def runs(self) -> int:
        """How often it was run."""
        return self.log.read_text(encoding="utf-8").count("run") if self.log.exists() else 0

    def access(self, fake: FakeApiServer, **more: object) -> ApiServer:
        """Connect with a kubeconfig whose user has this plugin."""
        settings = {"apiVersion": V1, "command": sys.executable, "args": [str(self.script)], **more}
        return ApiServer.connect(kubeconfig=kubeconfig(self.directory, {"here": fake.url}, {"exec": settings}))


@pytest.fixture
def plugin(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> ExecPlugin:
    """An exec plugin; what it fails to give is asked for again at once."""
    monkeypatch.setattr("drumlin.exporters.kubernetes.access.RENEW_SECONDS", 0.0)
    return ExecPlugin(tmp_path)


def test_an_exec_plugin_is_run_again(fake: FakeApiServer, plugin: ExecPlugin) -> None:
    """airflow#61737: a token that a plugin made is made anew when the server refuses it."""
    fake.token = "old"
    plugin.gives("old")
    access = plugin.access(fake)
    assert access.get("/version")
    fake.token = "new"
    plugin.gives("new")

    assert access.get("/version")


def test_a_plugin_that_fails_once_is_asked_again(fake: FakeApiServer, plugin: ExecPlugin) -> None:
    """An expired token is never replaced by none: the plugin's message is the error, and once it works the next request does."""
    fake.token = "old"
    plugin.gives("old", expirationTimestamp="2026-01-01T00:00:00Z")
    access = plugin.access(fake)
    plugin.gives(None)
    before = len(fake.requests)
    with pytest.raises(SourceUnavailable, match="the session has expired: sign in") as caught:
        access.get("/version")
    assert "run it in a shell" in str(caught.value.hint)
    assert len(fake.requests) == before  # nothing was asked as nobody
    plugin.gives("old", expirationTimestamp="2036-01-01T00:00:00Z")

    assert access.get("/version")


def test_a_plugin_that_fails_before_the_token_ends_changes_nothing(fake: FakeApiServer, plugin: ExecPlugin) -> None:
    """A token is renewed some minutes early; if that fails, the one that is still valid is used."""
    fake.token = "old"
    soon = (datetime.now(UTC) + timedelta(minutes=2)).strftime("%Y-%m-%dT%H:%M:%SZ")
    plugin.gives("old", expirationTimestamp=soon)
    access = plugin.access(fake)
    plugin.gives(None)

    assert access.get("/version")
    assert plugin.runs == 2


def test_a_failing_plugin_is_not_run_for_each_kind(
    fake: FakeApiServer, plugin: ExecPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Twenty kinds that are refused at once run the plugin once, and all learn why it failed."""
    fake.token = "old"
    plugin.gives("old")
    access = plugin.access(fake)
    assert access.get("/version")
    monkeypatch.setattr("drumlin.exporters.kubernetes.access.RENEW_SECONDS", 60.0)
    fake.token = "new"
    plugin.gives(None)
    for _ in range(5):
        with pytest.raises(SourceUnavailable, match="sign in"):
            access.get("/version")

    assert plugin.runs == 2


def test_a_sudden_403_reloads_the_credentials(fake: FakeApiServer, plugin: ExecPlugin) -> None:
    """A server that takes an ended session for a stranger says 403: for what was served before the credentials are reloaded."""
    plugin.gives("old")
    access = plugin.access(fake)
    assert access.get("/api/v1/pods")
    fake.faults.inject(Fault("refuse", status=403))
    assert access.get("/api/v1/pods")
    assert plugin.runs == 2
    fake.forbidden.add("nodes")
    with pytest.raises(ApiRefused, match="403"):
        access.get("/api/v1/nodes")

    assert plugin.runs == 2


@pytest.mark.parametrize(
    ("settings", "said"),
    [
        ({"command": "no-such-plugin"}, "'no-such-plugin' is not installed"),
        ({"command": "no-such-plugin", "installHint": "get it there"}, "is not installed"),
        ({"apiVersion": "client.authentication.k8s.io/v1alpha1"}, "which does not exist any more"),
        (
            {"apiVersion": "client.authentication.k8s.io/v1beta1"},
            "speaks client.authentication.k8s.io/v1, the kubeconfig asks for",
        ),
        ({"command": ""}, "has no command"),
        ({"interactiveMode": "Always"}, "wants to ask questions"),
        ({"args": ["-c", "print('canary')"]}, "printed what is not an ExecCredential"),
        ({"args": ["-c", f'print(\'{{"apiVersion": "{V1}"}}\')']}, "printed neither a token nor"),
    ],
)
def test_a_plugin_that_cannot_work_ends_the_start(
    fake: FakeApiServer, plugin: ExecPlugin, settings: dict[str, object], said: str
) -> None:
    """Missing, of another version or without an answer: the error names the plugin and what to do, before any request."""
    plugin.gives("token")
    with pytest.raises(SourceUnavailable) as caught:
        plugin.access(fake, **settings)

    assert said in str(caught.value)
    assert caught.value.hint == settings.get("installHint", caught.value.hint)
    assert caught.value.hint
    assert "canary" not in str(caught.value)
    assert not fake.requests


def test_a_plugin_that_waits_for_somebody_is_given_up(
    fake: FakeApiServer, plugin: ExecPlugin, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A plugin that never ends cannot hold up the service."""
    monkeypatch.setattr("drumlin.exporters.kubernetes.exec_plugin.TIMEOUT_SECONDS", 0.1)
    with pytest.raises(SourceUnavailable, match=r"gave nothing within 0\.1 s"):
        plugin.access(fake, args=["-c", "import time; time.sleep(60)"])


def test_a_user_with_a_password_is_sent_as_kubectl_does(fake: FakeApiServer, tmp_path: Path) -> None:
    """User name and password go as basic authentication; a server that takes none says 401."""
    access = ApiServer.connect(
        kubeconfig=kubeconfig(tmp_path, {"here": fake.url}, {"username": "me", "password": "secret"})
    )
    assert access.get("/version")
    assert fake.requests[0].headers["authorization"] == f"Basic {base64.b64encode(b'me:secret').decode()}"
    fake.token = "x"
    with pytest.raises(ApiRefused, match="401"):
        access.get("/version")


def test_impersonation_is_sent(fake: FakeApiServer, tmp_path: Path) -> None:
    """What a user acts as is what it reads as: ``as``, its groups, uid and extra fields go with every request."""
    user = {
        "token": "abc",
        "as": "viewer",
        "as-uid": "7",
        "as-groups": ["a", "b"],
        "as-user-extra": {"scopes": ["x", "y"]},
    }
    assert ApiServer.connect(kubeconfig=kubeconfig(tmp_path, {"here": fake.url}, user)).get("/version")
    headers = fake.requests[0].headers

    assert (headers["impersonate-user"], headers["impersonate-uid"]) == ("viewer", "7")
    assert headers.get_all("impersonate-group") == ["a", "b"]
    assert headers.get_all("impersonate-extra-scopes") == ["x", "y"]
    assert headers["authorization"] == "Bearer abc"


def test_groups_without_a_user_are_refused(fake: FakeApiServer, tmp_path: Path) -> None:
    """Groups to act in without a user to act as are an error, as for kubectl, not the full rights of the user."""
    with pytest.raises(SourceUnavailable, match="without as"):
        ApiServer.connect(kubeconfig=kubeconfig(tmp_path, {"here": fake.url}, {"token": "a", "as-groups": ["b"]}))


def test_many_threads_that_are_refused_reload_once(fake: FakeApiServer) -> None:
    """A rotation makes every reflector's request fail at once; the credentials are read once for all."""
    loads: list[str] = []

    def load(configuration: object) -> None:
        loads.append("load")
        configuration.host = fake.url
        configuration.api_key["BearerToken"] = f"Bearer {'new' if len(loads) > 1 else 'old'}"

    fake.token = "new"
    access = ApiServer(load)
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


def test_plain_http_to_a_tls_port_shows_the_servers_words() -> None:
    """An API server says so itself, in an answer without any header; the hint is the scheme."""

    class TlsPort(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.wfile.write(b"HTTP/1.0 400 Bad Request\r\n\r\nClient sent an HTTP request to an HTTPS server.\n")

        def log_message(self, *_: object) -> None:
            """Say nothing."""

    with listening(ThreadingHTTPServer(("127.0.0.1", 0), TlsPort)) as server, pytest.raises(ApiRefused) as caught:
        access_to(f"http://127.0.0.1:{server.server_address[1]}").get("/version")

    assert "answered 400: Client sent an HTTP request to an HTTPS server." in str(caught.value)
    assert caught.value.hint == "write https:// before the server's address"


def test_an_unchecked_certificate_is_logged_once_and_not_beside_the_log(
    secure: Secure, tmp_path: Path, recwarn: pytest.WarningsRecorder
) -> None:
    """Without a check of the certificate there is one event in the log, and no warning of a library at each request."""
    file = Path(kubeconfig(tmp_path, {"here": secure.fake.url}, {"token": "abc"}))
    config = json.loads(file.read_text(encoding="utf-8"))
    config["clusters"][0]["cluster"]["insecure-skip-tls-verify"] = True
    file.write_text(json.dumps(config), encoding="utf-8")
    with warnings.catch_warnings(), structlog.testing.capture_logs() as logs:
        warnings.simplefilter("always")
        access = ApiServer.connect(kubeconfig=str(file))
        for _ in range(2):
            assert access.get("/version")

    assert [each["event"] for each in logs] == ["certificate_unchecked"]
    assert not recwarn.list


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
