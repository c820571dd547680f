"""The application with a part that fails or hangs, asked in this process: what nobody expects, and liveness beside it."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import httpx
import pytest
import structlog

from drumlin.api.app import create_app
from drumlin.api.bootstrap import Services, assemble
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.threads import ServiceThread
from tests.service.conftest import BASE

ORIGIN = "https://grafana.example"
BESIDE = 60
"""Requests that hang: more than there are worker threads (40)."""


class _Faulty:
    """Stands for a part: whatever is asked of it waits until ``free`` is set, then fails."""

    def __init__(self, error: Exception) -> None:
        self.error = error
        self.free = threading.Event()
        self.held = threading.Semaphore(0)

    def __getattr__(self, name: str) -> Any:
        def ask(*_: Any, **__: Any) -> None:
            self.held.release()
            self.free.wait(60)
            raise self.error

        return ask


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """The parts of a service with an empty store, which other origins may call."""
    settings = Settings(base=BASE, cluster="prod", cors=(ORIGIN,))
    made = assemble(settings, directory=tmp_path_factory.mktemp("store"))
    yield made
    made.close()


def _client(parts: Services) -> httpx.AsyncClient:
    transport = httpx.ASGITransport(create_app(parts), raise_app_exceptions=False)
    return httpx.AsyncClient(transport=transport, base_url="http://localhost", timeout=30)


@pytest.mark.parametrize("path", ["/search?q=a", "/subgraph/domain/x", "/subgraph/domain/x?depth=1"])
def test_what_nobody_expected_has_a_request_id_everywhere(parts: Services, path: str) -> None:
    """A fault in any path is a problem under the request's own id, in body, header and log, which scripts of other origins may read."""
    faulty = _Faulty(RuntimeError("the secret of the fault"))
    faulty.free.set()
    broken = replace(parts, search=faulty, subgraphs=faulty)

    async def ask() -> httpx.Response:
        async with _client(broken) as client:
            return await client.get(path, headers={"X-Request-Id": "mine-1", "Origin": ORIGIN})

    with structlog.testing.capture_logs(processors=[structlog.contextvars.merge_contextvars]) as logged:
        answer = asyncio.run(ask())
    assert (answer.status_code, answer.headers["Content-Type"]) == (500, "application/problem+json")
    assert answer.json()["requestId"] == answer.headers["X-Request-Id"] == "mine-1"
    assert answer.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert "secret" not in answer.text
    (crash,) = (each for each in logged if each["log_level"] == "error")
    assert (crash["event"], crash["request_id"], crash["exc_info"]) == ("request_crashed", "mine-1", faulty.error)


def test_liveness_needs_no_worker_thread(parts: Services) -> None:
    """While every worker thread hangs in the store, and more requests wait for one, /livez answers."""
    faulty = _Faulty(StoreUnavailable("the disk does not answer"))

    async def ask() -> tuple[httpx.Response, list[httpx.Response]]:
        async with _client(replace(parts, search=faulty)) as client:
            hanging = [asyncio.create_task(client.get("/search?q=a")) for _ in range(BESIDE)]
            try:
                for _ in range(40):
                    assert await asyncio.get_running_loop().run_in_executor(None, faulty.held.acquire, True, 30)
                other, _ = await asyncio.wait({asyncio.create_task(client.get("/subgraphs?limit=1"))}, timeout=0.1)
                assert not other, "there was a thread left"
                alive = await asyncio.wait_for(client.get("/livez", headers={"Origin": ORIGIN}), 20)
            finally:
                faulty.free.set()
            return alive, await asyncio.gather(*hanging)

    alive, others = asyncio.run(ask())
    assert (alive.status_code, alive.json()["status"]) == (200, "alive")
    assert alive.headers["X-Request-Id"]
    assert alive.headers["Access-Control-Allow-Origin"] == ORIGIN
    assert {each.status_code for each in others} == {503}


def test_a_thread_that_died_turns_liveness_red(parts: Services) -> None:
    """/livez answers 503 with a problem that names the thread, HEAD the same without it; a probe restarts the process then."""

    def fail() -> None:
        raise SystemExit(3)

    thread = ServiceThread(fail, "needed")
    thread.start()
    threading.Thread.join(thread, 20)

    async def ask() -> list[httpx.Response]:
        async with _client(parts) as client:
            red = [await client.get("/livez"), await client.head("/livez")]
            thread.join()
            return [*red, await client.get("/livez")]

    red, head, green = asyncio.run(ask())
    assert (red.status_code, red.headers["Content-Type"]) == (503, "application/problem+json")
    assert (red.json()["threads"], "restart" in red.json()["hint"]) == (["needed"], True)
    assert (head.status_code, head.content, head.headers["Content-Length"]) == (503, b"", red.headers["Content-Length"])
    assert (green.status_code, green.json()["status"]) == (200, "alive")
