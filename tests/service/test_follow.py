"""``drumlin follow`` between real processes: whichever of them is killed, and whatever a proxy refuses, the graph ends as the cluster."""

from __future__ import annotations

import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack, contextmanager
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import httpx
import pytest

import drumlin
from drumlin.api.demo.prometheus import free_port
from drumlin.kg.errors import DrumlinError, InvalidSettings, SourceUnavailable
from drumlin.kg.graphs.owners import HEADER
from tests.fake_apiserver.server import FakeApiServer
from tests.listening import listening
from tests.service.conftest import BASE, ROOT, run_drumlin, serving
from tests.service.test_clusters import add, write_kubeconfig

PATIENCE = 45.0
_PASSED_ON = ("Content-Type", "Accept", HEADER)


class Proxy(ThreadingHTTPServer):
    """What stands before a service and asks for a token: ``upstream`` is the service, ``token`` the one that is taken."""

    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Forwarding)
        self.upstream = "http://127.0.0.1:9"
        self.token = "first"
        self.refusal = 401
        self.refused = 0
        self.url = f"http://127.0.0.1:{self.server_address[1]}"


class _Forwarding(BaseHTTPRequestHandler):
    server: Proxy
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        if self.headers["Authorization"] != f"Bearer {self.server.token}":
            self.server.refused += 1
            self._answer(
                self.server.refusal, b"<html>who are you?</html>", {"Location": "https://login.example/?state=1"}
            )
            return
        headers = {name: value for name, value in self.headers.items() if name.title() in _PASSED_ON}
        try:
            answer = httpx.request(
                self.command, self.server.upstream + self.path, content=content, headers=headers, timeout=60
            )
        except httpx.TransportError:
            self._answer(502, b"<html>bad gateway</html>", {})
            return
        self._answer(answer.status_code, answer.content, {"Content-Type": answer.headers.get("Content-Type", "")})

    do_GET = do_POST = _forward

    def _answer(self, status: int, content: bytes, headers: Mapping[str, str]) -> None:
        self.send_response(status)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.fixture
def proxy() -> Iterator[Proxy]:
    """A proxy that takes the token ``first``."""
    with listening(Proxy()) as running:
        yield running


@contextmanager
def followed(to: str, token: Path, environment: Mapping[str, str], port: int) -> Iterator[subprocess.Popen[bytes]]:
    """Run ``drumlin follow`` for two contexts until the block is left; whatever is still alive is killed. It tells of itself at ``port``."""
    options = ["--to", to, "--token-file", str(token), "--base", BASE, "--cluster", "prod", "--metrics-port", str(port)]
    command = [sys.executable, "-m", "drumlin.api.cli.main", "follow", "kubernetes", *options]
    process = subprocess.Popen(
        [*command, "--context", "main", "--context", "rim=edge"],
        cwd=ROOT,
        env={"PATH": "/usr/bin:/bin", **environment},
        stderr=subprocess.DEVNULL,
    )
    try:
        yield process
    finally:
        process.kill()
        process.wait()


def assert_told_by_kind(url: str) -> None:
    """What issue 4 asks of each kind is told of both clusters."""
    metrics = httpx.get(f"{url}/metrics").text
    for source in ("kubernetes:prod", "kubernetes:edge"):
        labels = f'{{kind="Pod",source="{source}"}}'
        assert f'drumlin_export_ready{{source="{source}"}} 1.0' in metrics
        for name, value in (
            ("synced", "1.0"),
            ("objects", "1.0"),
            ("relists", "0.0"),
            ("gone_410", "0.0"),
            ("writes_total", "1.0"),
            ("skipped_writes_total", "0.0"),
            ("render_errors_total", "0.0"),
        ):
            assert f"drumlin_kind_{name}{labels} {value}" in metrics
        assert f"drumlin_kind_event_age_seconds{labels}" in metrics
        assert f"drumlin_kind_queue_age_seconds{labels}" in metrics
        assert "# TYPE drumlin_kind_bookmark_age_seconds gauge" in metrics


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


def test_following_goes_on_exactly_after_either_side_is_killed(tmp_path: Path, proxy: Proxy) -> None:
    """Two clusters; the service killed, the follower killed, the token rotated: nothing lost, nothing written twice."""
    token, store = tmp_path / "token", ("--store", str(tmp_path / "store"))
    token.write_text("first\n")
    with ExitStack() as stack:
        main, edge = (stack.enter_context(FakeApiServer(seed=seed)) for seed in (1, 2))
        for server in (main, edge):
            add(server, "namespaces", "shop", {})
            add(server, "pods", "db-0", {})
        environment = write_kubeconfig(tmp_path / "kubeconfig", {"main": main.url, "rim": edge.url})

        def status(id: str) -> int:
            return httpx.get(f"{proxy.upstream}/subgraph/{id}").status_code

        def exists(id: str) -> bool:
            return status(id) == 200

        own = f"http://127.0.0.1:{(port := free_port())}"

        def readiness() -> int:
            return httpx.get(f"{own}/readyz").status_code

        def generation() -> int:
            return int(httpx.get(f"{proxy.upstream}/readyz").json()["generation"])

        with serving(*store) as service:
            proxy.upstream = service.url
            follower = stack.enter_context(followed(proxy.url, token, environment, port))
            for cluster in ("prod", "edge"):
                until(partial(exists, f"{cluster}/shop/pod/db-0"), f"the pod of {cluster}")
            until(lambda: readiness() == 200, "readiness")
            assert httpx.get(f"{own}/livez").json()["status"] == "alive"
            assert_told_by_kind(own)
            service.process.kill()
            service.process.wait()
            add(main, "pods", "while-the-service-was-away", {})
            edge.state.remove(edge.state.named("pods"), "shop", "db-0")
            until(lambda: readiness() == 503, "the service's absence")
            told = httpx.get(f"{own}/readyz")
            assert told.headers["Content-Type"] == "application/problem+json"
            assert {each["source"] for each in told.json()["sources"]} <= {"kubernetes:prod", "kubernetes:edge"}
            assert "HTTP 502" in told.json()["detail"]
        with serving(*store) as service:
            proxy.upstream = service.url
            until(lambda: status("prod/shop/pod/while-the-service-was-away") == 200, "what came meanwhile")
            until(lambda: status("edge/shop/pod/db-0") == 410, "what went meanwhile")
            until(lambda: readiness() == 200, "readiness once the service is back")

            proxy.token = "second"
            add(edge, "pods", "while-the-token-was-old", {})
            until(lambda: proxy.refused > 0, "a refusal")
            assert status("edge/shop/pod/while-the-token-was-old") == 404
            token.write_text("second\n")
            until(lambda: status("edge/shop/pod/while-the-token-was-old") == 200, "the rotated token")

            follower.kill()
            follower.wait()
            main.state.remove(main.state.named("pods"), "shop", "db-0")
            before = generation()
            follower = stack.enter_context(followed(proxy.url, token, environment, port))
            until(lambda: status("prod/shop/pod/db-0") == 410, "what went while nobody followed")
            assert generation() == before + 1
            follower.send_signal(signal.SIGTERM)
            assert follower.wait(PATIENCE) == 0


@pytest.mark.parametrize(
    ("content", "refusal", "error", "says"),
    [
        ("wrong-token", 401, SourceUnavailable, "HTTP 401"),
        ("wrong-token", 403, SourceUnavailable, "HTTP 403"),
        ("wrong-token", 302, SourceUnavailable, "leads elsewhere: https://login.example/"),
        ("two tokens", 401, InvalidSettings, "does not hold one token"),
        ("tökèn", 401, InvalidSettings, "not a token"),
        (None, 401, InvalidSettings, "cannot read the token file"),
    ],
)
def test_a_token_that_is_not_taken_is_told(
    tmp_path: Path, proxy: Proxy, content: str | None, refusal: int, error: type[DrumlinError], says: str
) -> None:
    """What a proxy refuses, and a file that holds no token, are told in one line, and never with the token."""
    proxy.refusal = refusal
    token = tmp_path / "token"
    if content:
        token.write_text(content)
    with drumlin.connect(proxy.url, token_file=token) as client, pytest.raises(error, match=says) as told:
        client.about()

    assert not content or content not in f"{told.value} {told.value.hint}"


def test_a_refused_follower_ends_at_the_first_contact(tmp_path: Path, proxy: Proxy) -> None:
    """At the start a refusal is the operator's: two lines and an exit code, not a wait."""
    token = tmp_path / "token"
    token.write_text("wrong-token")
    answer = run_drumlin("follow", f"dump:{tmp_path}", "--to", proxy.url, "--token-file", str(token))

    assert answer.returncode == 5
    assert "HTTP 401" in answer.stderr
    assert "proxy in front" in answer.stderr
    assert len(answer.stderr.splitlines()) == 2
