"""Two followers, one Lease: whichever is killed, stopped or cut off, the other writes on, and never do both."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import groupby
from pathlib import Path

import httpx
import msgspec
import pytest

from drumlin.api.demo.prometheus import free_port
from drumlin.kg.graphs.owners import HEADER
from tests.fake_apiserver.server import FakeApiServer
from tests.integration.engines import engine
from tests.listening import listening
from tests.service.conftest import BASE, ROOT, Service, run_drumlin, serving
from tests.service.test_clusters import add, write_kubeconfig

PATIENCE = 45.0
_PASSED_ON = ("Content-Type", "Accept", HEADER)
_HTTP = httpx.Client(timeout=60, trust_env=False, verify=False)  # one for all: a client is costly to make


@pytest.fixture(scope="module", autouse=True)
def _closed() -> Iterator[None]:
    """Close the client of all."""
    yield
    _HTTP.close()


class Door(ThreadingHTTPServer):
    """One follower's way to the service: notes which generations it wrote, and can hold its next write back."""

    daemon_threads = True

    def __init__(self, upstream: str, wrote: Callable[[int], None]) -> None:
        super().__init__(("127.0.0.1", 0), _Through)
        self.upstream = upstream
        self.wrote = wrote
        self.url = f"http://127.0.0.1:{self.server_address[1]}"
        self.open = threading.Event()
        self.open.set()
        self.held = threading.Event()
        self.refused: list[int] = []


class _Through(BaseHTTPRequestHandler):
    server: Door
    protocol_version = "HTTP/1.1"

    def _forward(self) -> None:
        content = self.rfile.read(int(self.headers.get("Content-Length", 0)))
        writes = self.path.startswith("/subgraphs?atomic")
        if writes and not self.server.open.is_set():
            self.server.held.set()
            self.server.open.wait(PATIENCE)
        headers = {name: value for name, value in self.headers.items() if name.title() in _PASSED_ON}
        answer = _HTTP.request(
            self.command, self.server.upstream + self.path, content=content, headers=headers, timeout=60
        )
        if writes:
            self._note(answer)
        self.send_response(answer.status_code)
        self.send_header("Content-Type", answer.headers.get("Content-Type", ""))
        self.send_header("Content-Length", str(len(answer.content)))
        self.end_headers()
        self.wfile.write(answer.content)

    def _note(self, answer: httpx.Response) -> None:
        if answer.status_code != 200:
            self.server.refused.append(answer.status_code)
            return
        for line in answer.content.splitlines():
            each = msgspec.json.decode(line)
            if each["outcome"] != "unchanged":
                self.server.wrote(each["generation"])

    do_GET = do_POST = _forward

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


class Follower:
    """A follower in a process of its own, with its door and its place for probes."""

    def __init__(self, name: str, door: Door, api: FakeApiServer, directory: Path) -> None:
        self.name = name
        self.door = door
        self._probes = f"http://127.0.0.1:{(port := free_port())}"
        kubeconfig = directory / name
        environment = write_kubeconfig(kubeconfig, {"main": api.url})
        kubeconfig.write_text(kubeconfig.read_text().replace("only-for-this-test", name))
        command = [sys.executable, "-m", "drumlin.api.cli.main", "follow", "kubernetes", "--to", door.url]
        options = ["--base", BASE, "--cluster", "prod", "--metrics-port", str(port)]
        elected = {"DRUMLIN_ELECTION__LEASE": "drumlin", "DRUMLIN_ELECTION__SECONDS": "2"}
        self.process = subprocess.Popen(
            [*command, *options],
            cwd=ROOT,
            env={"PATH": "/usr/bin:/bin", **environment, **elected},
            stderr=subprocess.DEVNULL,
        )

    def get(self, path: str) -> httpx.Response:
        """Ask its probes."""
        return _HTTP.get(self._probes + path)

    @property
    def leads(self) -> bool:
        """Whether it says that it leads."""
        try:
            return 'drumlin_export_leader{source="kubernetes:prod"} 1.0' in self.get("/metrics").text
        except httpx.TransportError:
            return False

    @property
    def is_ready(self) -> bool:
        """Whether it says that it is ready."""
        try:
            return self.get("/readyz").status_code == 200
        except httpx.TransportError:
            return False

    def end(self) -> None:
        """Kill it."""
        if self.process.poll() is None:
            self.process.kill()
        self.process.wait()


def until(holds: Callable[[], bool], what: str) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + PATIENCE
    while not holds():
        assert time.monotonic() < deadline, what
        time.sleep(0.05)


@contextmanager
def changing(api: FakeApiServer) -> Iterator[Callable[[], str]]:
    """Have pods come all the while; what is yielded returns the name of the newest."""
    stop, names = threading.Event(), ["db-0"]

    def change() -> None:
        while not stop.wait(0.1):
            name = f"p-{len(names)}"
            add(api, "pods", name, {})
            names.append(name)

    thread = threading.Thread(target=change)
    thread.start()
    try:
        yield lambda: names[-1]
    finally:
        stop.set()
        thread.join()


def test_of_two_followers_one_writes_whatever_happens(tmp_path: Path) -> None:
    """Stopped with a write on its way, cut off from the API server, killed, ended: the other takes over, nothing is lost or mixed."""
    log: list[tuple[int, str]] = []
    with FakeApiServer() as api, serving("--store", str(tmp_path / "store")) as service:
        add(api, "namespaces", "shop", {})
        add(api, "pods", "db-0", {})
        api.bookmark_every = 0.2
        doors = [
            Door(service.url, lambda generation, name=name: log.append((generation, name)))  # type: ignore[misc]
            for name in ("one", "two")
        ]
        with listening(doors[0]), listening(doors[1]), changing(api) as newest:
            one = Follower("one", doors[0], api, tmp_path)
            two = None
            try:
                until(lambda: one.leads and one.is_ready, "the first leader")
                two = Follower("two", doors[1], api, tmp_path)
                _sequence(api, service.url, newest, one, two)
            finally:
                for each in filter(None, (one, two)):
                    each.end()
    writers = [name for _, name in sorted(log)]
    assert [name for name, _ in groupby(writers)] == ["one", "two", "one", "two"]
    generations = [generation for generation, _ in log]
    assert len(set(log)) == len(set(generations))


def _sequence(api: FakeApiServer, url: str, newest: Callable[[], str], one: Follower, two: Follower) -> None:
    def is_followed(what: str) -> None:
        """Wait until something that came just now is written."""
        name = newest()
        until(lambda: _HTTP.get(f"{url}/subgraph/prod/shop/pod/{name}").status_code == 200, what)

    until(lambda: two.is_ready, "that the other is ready to take over")
    assert not two.leads
    [said] = two.get("/readyz").json()["leaders"]
    assert (said["source"], said["leading"]) == ("kubernetes:prod", False)
    is_followed("what the first writes")

    one.door.open.clear()  # a write of the leader is on its way, and it is stopped
    assert one.door.held.wait(PATIENCE)
    os.kill(one.process.pid, signal.SIGSTOP)
    until(lambda: two.leads, "that a stopped leader is followed")
    is_followed("what the second writes")
    one.door.open.set()
    until(lambda: bool(one.door.refused), "the refusal of what was on its way")
    assert one.door.refused == [412]
    os.kill(one.process.pid, signal.SIGCONT)
    until(lambda: one.is_ready and not one.leads, "that it stands by when it goes on")
    is_followed("what the second goes on to write")

    api.cut_off.add("two")  # its watches go on; its right does not
    until(lambda: one.leads, "that a leader that cannot renew is followed")
    assert not two.leads
    is_followed("what the first writes again")
    api.cut_off.clear()
    until(lambda: two.is_ready, "that it stands by when it is back")

    one.process.kill()
    one.process.wait()
    until(lambda: two.leads, "that a killed leader is followed")
    is_followed("what the second writes again")
    two.process.terminate()
    assert two.process.wait(PATIENCE) == 0
    assert "holderIdentity" not in api.state.read(api.state.named("leases"), "drumlin", "drumlin")["spec"]


def test_of_two_services_before_one_engine_one_follows_the_cluster(tmp_path: Path) -> None:
    """Both answer alike and are ready; when the one that follows is killed amid its writes, the other goes on."""
    with FakeApiServer() as api, engine("oxigraph", tmp_path / "engine") as running, changing(api) as newest:
        add(api, "namespaces", "shop", {})
        add(api, "pods", "db-0", {})
        environment = write_kubeconfig(tmp_path / "kubeconfig", {"main": api.url})
        environment |= {"DRUMLIN_ELECTION__LEASE": "drumlin", "DRUMLIN_ELECTION__SECONDS": "2"}
        environment |= {"DRUMLIN_ELECTION__ADDRESS": "http://{host}"}
        options = ("--store", running.url, "--source", "kubernetes")

        def beginning() -> AbstractContextManager[Service]:
            port = str(free_port())
            named = {**environment, "DRUMLIN_ELECTION__IDENTITY": f"127.0.0.1:{port}"}
            return serving(*options, "--port", port, environment=named)

        with beginning() as one, beginning() as two:

            def leading(service: Service) -> bool:
                told = _HTTP.get(f"{service.url}/readyz")
                return told.status_code == 200 and told.json()["leaders"][0]["leading"]

            until(lambda: leading(one) or leading(two), "a leader")
            leader, other = (one, two) if leading(one) else (two, one)
            until(lambda: _HTTP.get(f"{other.url}/readyz").status_code == 200, "that the other is ready")
            assert not leading(other)
            name = newest()
            for each in (leader, other):
                path = f"{each.url}/subgraph/prod/shop/pod/{name}"
                until(lambda path=path: _HTTP.get(path).status_code == 200, "what the leader writes")  # type: ignore[misc]
            agent = {
                "name": "agent of edge-7",
                "platform": "docker",
                "origin": "edge-lab",
                "interval": 30,
                "entities": [],
            }
            assert _HTTP.put(f"{other.url}/agents/a-1", json=agent).status_code == 201
            assert _HTTP.post(f"{other.url}/agents/a-1/heartbeat").status_code == 204
            relayed = _HTTP.post(f"{other.url}/agents/a-1/heartbeat", json={"agents": ["a-2"]})
            assert relayed.json() == {"unknown": ["a-2"]}
            assert _HTTP.post(f"{other.url}/agents/a-3/heartbeat").status_code == 404
            assert "lastSeen" in _HTTP.get(f"{leader.url}/agents/a-1").json()
            leader.process.kill()
            leader.process.wait()
            refused = _HTTP.post(f"{other.url}/agents/a-1/heartbeat")
            assert refused.status_code in (502, 503, 204), refused.text
            until(lambda: leading(other), "that a killed leader is followed")
            name = newest()
            path = f"{other.url}/subgraph/prod/shop/pod/{name}"
            until(lambda: _HTTP.get(path).status_code == 200, "what the other writes")
            assert _HTTP.post(f"{other.url}/agents/a-1/heartbeat").status_code == 204
            term = _HTTP.get(f"{other.url}/subgraph/agent/kubernetes%3Aprod", headers={"Accept": "application/ld+json"})
            assert term.json()["revision"] == 2


def test_an_election_before_a_directory_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One process has the directory, so nothing is to be elected: the command says what to do instead."""
    with FakeApiServer() as api:
        for name, value in write_kubeconfig(tmp_path / "kubeconfig", {"main": api.url}).items():
            monkeypatch.setenv(name, value)
        monkeypatch.setenv("DRUMLIN_ELECTION__LEASE", "drumlin")
        answer = run_drumlin("serve", "--store", str(tmp_path / "store"), "--source", "kubernetes", "--port", "0")

    assert answer.returncode != 0
    assert "a directory has one process" in answer.stderr
    assert "drumlin follow" in answer.stderr
