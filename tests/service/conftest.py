"""A real service for the tests: ``drumlin serve`` in a process of its own, on loopback, asked over HTTP."""

from __future__ import annotations

import io
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path

import httpx
import pytest
import structlog

from drumlin.api.cli.main import main
from tests.service.prefork import Forked, prefork

ROOT = Path(__file__).resolve().parents[2]
BASE = "https://kg.example"
NS = "https://w3id.org/drumlin/ns#"
SAMPLE = ROOT / "api" / "demo" / "cluster"
READY_SECONDS = 30
_FROM_THE_START = ("LD_", "MALLOC_", "PYTHON")
"""Variables that the interpreter or the system reads before anything is imported."""


class Service:
    """A running service: its address, its process, and everything it has written to stderr."""

    def __init__(self, process: subprocess.Popen[str] | Forked) -> None:
        self.process = process
        self.log: list[str] = []
        self._announced = threading.Event()
        self.url = ""
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()
        if not self._announced.wait(READY_SECONDS) or not self.url:
            self.close()
            raise AssertionError("the service did not start:\n" + "".join(self.log))

    def _read(self) -> None:
        assert self.process.stderr is not None
        with self.process.stderr as lines:
            for line in lines:
                self.log.append(line)
                if line.startswith("Drumlin at "):
                    self.url = line.removeprefix("Drumlin at ").strip()
                    self._announced.set()
        self._announced.set()

    def close(self) -> None:
        """Kill the process if it still runs, and read what it had to say."""
        if self.process.poll() is None:
            self.process.kill()
            self.process.wait()
        self._reader.join(5)

    def stop(self) -> int:
        """End the process and return its exit code."""
        self.process.terminate()
        try:
            return self.process.wait(20)
        finally:
            self.close()


@contextmanager
def serving(*options: str, cluster: str = "prod", environment: Mapping[str, str] | None = None) -> Iterator[Service]:
    """Run ``drumlin serve`` on a free port, with more in its environment.

    In tests it is a copy of a process that has imported it already; a bench measures one that was started alone.
    """
    arguments = ["serve", "--port", "0", "--base", BASE, "--cluster", cluster, *options]
    more = environment or {}
    if "PYTEST_VERSION" not in os.environ or any(name.startswith(_FROM_THE_START) for name in more):
        process: subprocess.Popen[str] | Forked = subprocess.Popen(
            [sys.executable, "-m", "drumlin.api.cli.main", *arguments],
            cwd=ROOT,
            env={**os.environ, **more},
            stderr=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            text=True,
        )
    else:
        process = prefork().start(arguments, {**os.environ, **more})
    service = Service(process)
    try:
        yield service
    finally:
        service.stop()


def until_ready(service: Service, seconds: float = 30) -> None:
    """Wait until the service has read its source in full, and finds all of it."""
    deadline = time.monotonic() + seconds
    while not _is_ready(service):
        assert time.monotonic() < deadline, "".join(service.log)
        time.sleep(0.02)


def _is_ready(service: Service) -> bool:
    ready = httpx.get(service.url + "/readyz")
    if ready.status_code != 200:
        return False
    found = httpx.get(service.url + "/subgraphs", params={"limit": 1}).json()
    return bool(found["generation"] >= ready.json()["generation"])


def run_drumlin(*arguments: str, input: str | None = None) -> subprocess.CompletedProcess[str]:
    """Run the command line in a process of its own."""
    command: Sequence[str] = [sys.executable, "-m", "drumlin.api.cli.main", *arguments]
    return subprocess.run(command, cwd=ROOT, input=input, capture_output=True, text=True, check=False, timeout=120)


def drumlin_asks(*arguments: str, input: str = "") -> subprocess.CompletedProcess[str]:
    """Run a command that serves nothing in this process, which takes a tenth of the time of starting another."""
    handlers = {each: signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)}
    log = structlog.get_config()
    written = [io.TextIOWrapper(io.BytesIO(), "utf-8", write_through=True) for _ in range(2)]
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "argv", ["drumlin", *arguments])
        patch.setattr(sys, "stdin", io.TextIOWrapper(io.BytesIO(input.encode()), "utf-8"))
        patch.setattr(sys, "stdout", written[0])
        patch.setattr(sys, "stderr", written[1])
        with pytest.raises(SystemExit) as ended:
            main()
    for each, handler in handlers.items():
        signal.signal(each, handler)
    structlog.configure(**log)
    out, err = (each.buffer.getvalue().decode() for each in written)
    return subprocess.CompletedProcess(arguments, int(ended.value.code or 0), out, err)


@pytest.fixture(scope="session")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service with the sample cluster loaded, on a store of its own."""
    store = tmp_path_factory.mktemp("store")
    with serving("--store", str(store), "--source", f"dump:{SAMPLE}") as running:
        until_ready(running)
        yield running


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    """An HTTP client of the service."""
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client


OWN = f"{BASE}/id/prod/payments/deployment/own"
OWN_DOCUMENT = f"""<{OWN}> a <{NS}Deployment> ; <{NS}name> "own" ; <{NS}namespace> "payments" ;
    <{NS}cluster> <{BASE}/id/cluster/prod> ; <{NS}domain> <{BASE}/id/domain/local> . """
"""An entity in Turtle, and its name."""


@pytest.fixture(scope="module")
def own_service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of the module's own, with an empty store."""
    with serving("--store", str(tmp_path_factory.mktemp("store"))) as running:
        yield running


@pytest.fixture
def client(own_service: Service) -> Iterator[httpx.Client]:
    """A client of it; there are no foreign graphs."""
    with httpx.Client(base_url=own_service.url, timeout=60) as client:
        assert client.delete("/store").status_code == 204
        yield client
