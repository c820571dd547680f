"""A stream of many series: who leaves ends the work, what fails is listed beside what came, and memory stays bounded by the parts."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

import drumlin
from drumlin.kg.errors import DatasourceRefused, MetricMissing
from drumlin.kg.rdf.jsonld import NodeDocument, lines
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry import history as histories
from drumlin.kg.telemetry.gathering import DECODING
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.resolve import Resolver
from tests.integration.conftest import at
from tests.integration.test_prometheus_faults import FaultServer, Reply, _datasource, _one, server  # noqa: F401  # a fixture
from tests.listening import listening
from tests.service.conftest import Service, serving
from tests.unit.telemetry_store import CLUSTER, IRIS, GraphStore

NODES = [f"prod/-/node/n-{number:03}" for number in range(400)]
LONG = 600_000
"""Seconds that at a point a minute make fifty of the nodes a part."""
WINDOW = {"start": at(0), "end": at(9), "step": "1m"}


def _documents() -> list[NodeDocument]:
    return [
        {"id": IRIS.expand(each), "type": "Node", "name": each.rpartition("/")[2], "partOf": CLUSTER} for each in NODES
    ]


@pytest.fixture(scope="module")
def graph() -> GraphStore:
    """Four hundred nodes."""
    return GraphStore(_documents())


def _wait(until: Any) -> bool:
    deadline = time.monotonic() + 60
    while not until():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.01)
    return True


def test_who_stops_reading_ends_the_requests(
    server: FaultServer,  # noqa: F811  a fixture
    graph: GraphStore,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """After the first part the iterator is closed: what waits is not asked, only what was on its way."""
    monkeypatch.setattr(histories, "PART_VALUES", 20)  # two series a part
    server.replies = [_one]
    resolver = Resolver(graph, IRIS, [_datasource(server.server_port, timeout=20)])
    with History(resolver) as history:
        with closing(history.stream(history.plan(NODES, "mem_usage", **WINDOW))) as parts:
            assert len(next(parts).queries) == 2
        asked = len(server.forms)
        assert asked < 2 + 2 * histories._AHEAD
        settled = asked + 4 + DECODING
    assert len(server.forms) <= settled


def test_many_callers_ask_a_server_no_more_than_one_may(server: FaultServer, graph: GraphStore) -> None:  # noqa: F811  a fixture
    """Five streams at one time share the datasource's number of requests, and its threads."""
    counting, now, most = threading.Lock(), [0], [0]

    def answer(form: dict[str, str]) -> Reply:
        with counting:
            now[0] += 1
            most[0] = max(most[0], now[0])
        time.sleep(0.005)
        with counting:
            now[0] -= 1
        return _one(form)

    server.replies = [answer]
    resolver = Resolver(graph, IRIS, [_datasource(server.server_port, timeout=20)])
    with History(resolver) as history, ThreadPoolExecutor(5) as callers:
        found = list(callers.map(lambda _: history.fetch(NODES[:20], "mem_usage", **WINDOW), range(5)))
        threads = sum(each.name.startswith("history") for each in threading.enumerate())

    assert [(each.table.num_rows, each.failures) for each in found] == [(200, ())] * 5
    assert 2 <= most[0] <= 4
    assert threads <= 4 + DECODING


def test_what_fails_in_the_middle_is_listed_beside_what_came(
    server: FaultServer,  # noqa: F811  a fixture
    graph: GraphStore,
) -> None:
    """A refusal, a half body, no data and a redirect, each for its series: the other series are whole, none is short."""

    def answer(form: dict[str, str]) -> Reply:
        if "match[]" in form or "query" not in form:  # why there is nothing is asked of the index
            return 200, {}, b'{"status":"success","data":[]}'
        odd: dict[str, Reply] = {
            "n-001": (400, {}, b'{"status":"error","errorType":"bad_data","error":"no"}'),
            "n-002": (200, {}, _one(form)[2][:-40]),
            "n-003": (200, {}, b'{"status":"success","data":{"resultType":"matrix","result":[]}}'),
            "n-004": (302, {"Location": "http://127.0.0.1:1/"}, b""),
        }
        return next((reply for name, reply in odd.items() if name in form["query"]), _one(form))

    server.replies = [answer]
    resolver = Resolver(graph, IRIS, [_datasource(server.server_port, timeout=20)])
    with History(resolver, sleep=lambda _: None) as history:
        found = history.fetch(NODES[:8], "mem_usage", **WINDOW)

    assert {each.key.unique_id[-5:]: type(each.error) for each in found.failures} == {
        "n-001": DatasourceRefused,
        "n-002": DatasourceRefused,
        "n-003": MetricMissing,
        "n-004": DatasourceRefused,
    }
    assert found.table.num_rows == 4 * 10
    assert found.table["y"].to_pylist() == [1.0] * 40
    assert set(found.coverage.values()) == {1.0}
    assert sum("is missing" in warning for warning in found.warnings) == 4


def test_nothing_at_all_is_the_first_ones_error(server: FaultServer, graph: GraphStore) -> None:  # noqa: F811  a fixture
    """When no series can be had there is no table of nulls but an error."""
    server.replies = [(503, {"Retry-After": "1"}, b"starting")]
    waits: list[float] = []
    resolver = Resolver(graph, IRIS, [_datasource(server.server_port, timeout=20)])
    with History(resolver, sleep=waits.append) as history, pytest.raises(DatasourceRefused, match="503"):
        history.fetch(NODES[:3], "mem_usage", **WINDOW)
    assert set(waits) == {1.0}


@pytest.fixture(scope="module")
def upstream() -> Iterator[FaultServer]:
    """A server that answers each query with the same ones."""
    with listening(FaultServer()) as running:
        running.replies = [_one({"start": "0", "end": str(LONG), "step": "60"})]
        yield running


@pytest.fixture(scope="module")
def service(upstream: FaultServer, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that knows the nodes and that server."""
    directory: Path = tmp_path_factory.mktemp("streams")
    (directory / "drumlin.toml").write_text(
        f'[[datasource]]\nname = "p"\nkind = "prometheus"\nurl = "http://127.0.0.1:{upstream.server_port}"\nscrape_interval = "60s"\n'
    )
    with (
        serving("--store", str(directory / "s"), "--config", str(directory / "drumlin.toml")) as running,
        drumlin.connect(running.url) as client,
    ):
        client.apply([GraphWrite.of(str(each["id"]), lines(each), "test") for each in _documents()], atomic=True)
        yield running


@pytest.mark.parametrize("form", ["arrow", "csv"])
def test_a_client_that_leaves_ends_the_services_requests(service: Service, upstream: FaultServer, form: str) -> None:
    """The first bytes are read and the connection dropped: the service stops asking long before the four hundred."""
    upstream.forms.clear()
    body = {"entities": NODES, "metrics": ["mem_usage"], "start": "0", "end": str(LONG), "step": "60s"}
    with (
        httpx.Client(timeout=60) as http,
        http.stream("POST", f"{service.url}/history", json=body, params={"format": form}) as answer,
    ):
        assert answer.status_code == 200, answer.read()
        next(answer.iter_raw())
    seen = [-1]

    def quiet() -> bool:
        """Return whether nothing was asked for half a second."""
        before = len(upstream.forms)
        time.sleep(0.5)
        seen.append(len(upstream.forms))
        return before == seen[-1]

    assert _wait(quiet)
    assert 0 < seen[-1] < 200
