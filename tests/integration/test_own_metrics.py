"""A workload's own metrics: a real Prometheus scrapes a pod, and the service lists, resolves and fetches what it exposes."""

from __future__ import annotations

import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from urllib.parse import quote

import httpx
import pyarrow as pa
import pytest

import drumlin
from drumlin.api.demo import prometheus as servers
from drumlin.exporters.own_metrics import OWNER, OwnMetrics
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.scraped import Discovery
from tests.integration.conftest import need
from tests.listening import listening
from tests.service.conftest import serving
from tests.unit.telemetry_store import IRIS, pod, workload

EXPOSED = """# HELP orders_total Orders that were taken.
# TYPE orders_total counter
orders_total{shop="a"} %d
orders_total{shop="b"} 7
# HELP queue_bytes What waits.
# TYPE queue_bytes gauge
queue_bytes 2048
# TYPE wait_seconds histogram
wait_seconds_bucket{le="+Inf"} 3
wait_seconds_sum 6
wait_seconds_count 3
"""
WEB = IRIS.object("prod", "shop", "StatefulSet", "web")
ADMIN = IRIS.object("prod", "shop", "StatefulSet", "web-admin")


class _Pod(ThreadingHTTPServer):
    daemon_threads = True

    def __init__(self) -> None:
        super().__init__(("127.0.0.1", 0), _Metrics)


class _Metrics(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        content = (EXPOSED % int(10 * time.time())).encode()  # ten a second
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Length", str(len(content)))
        self.end_headers()
        self.wfile.write(content)

    def log_message(self, *args: object) -> None:
        """Keep quiet."""


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """A Prometheus that scrapes the pod ``web-0`` each second, by two jobs."""
    need("prometheus", "prometheus")
    with listening(_Pod()) as exposing:
        labels = {"namespace": "shop", "pod": "web-0"}
        target = servers.ScrapeTarget(f"127.0.0.1:{exposing.server_port}", labels)
        directory = tmp_path_factory.mktemp("own")
        with servers.start_prometheus(
            directory, targets={"shop": target, "again": target}, scrape_interval="1s"
        ) as server:
            deadline = time.monotonic() + 60
            query = f"{server.url}/api/v1/query?query={quote('min(count_over_time(orders_total[1m])) > 4')}"
            while not httpx.get(query).json()["data"]["result"]:
                assert time.monotonic() < deadline
                time.sleep(0.2)
            yield server.url


def _documents() -> list[dict[str, object]]:
    began = f"{datetime.now(UTC) - timedelta(hours=1):%Y-%m-%dT%H:%M:%SZ}"
    return [
        workload("StatefulSet", "shop", "web", began=began),
        workload("StatefulSet", "shop", "web-admin", began=began),
        pod("shop", "web-0", WEB, [(began, None)]),
    ]


def _datasource(url: str) -> Datasource:
    given = {"name": "prometheus-main", "kind": "prometheus", "url": url, "scrape_interval": "1s"}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def test_what_pods_expose_is_listed_and_fetched_like_any_metric(url: str, tmp_path: Path) -> None:
    """Names, types and units of the server's metadata; history of exactly its pods, each series once; gone with the workload."""
    server = _datasource(url)
    clock = [datetime.now(UTC)]
    store = EmbeddedStore(tmp_path)
    try:
        store.apply([GraphWrite.of(str(each["id"]), lines(each), "test") for each in _documents()])
        job = OwnMetrics(store, IRIS, Discovery(store, IRIS, [server], 10), lambda: clock[0])
        assert job.turn() is False
        assert [each.graph for each in store.entries(owner=OWNER)] == [IRIS.scraped(WEB)]
        resolver = Resolver(store, IRIS, [server])
        assert {"orders_total", "queue_bytes", "wait_seconds_sum", "wait_seconds_count"} <= set(
            resolver.metrics_of(WEB)
        )
        assert "wait_seconds_bucket" not in resolver.metrics_of(WEB)
        assert "orders_total" not in resolver.metrics_of(ADMIN)
        assert resolver.meaning(WEB, "queue_bytes")[:3] == ("By", "activity", "gauge")
        with History(resolver) as history:
            orders = history.fetch(WEB, "orders_total", last="20s", step=timedelta(seconds=1))
            queue = history.fetch("prod/shop/pod/web-0", "queue_bytes", last="5s", step=timedelta(seconds=1))
        assert orders.queries[0].selector == "exact"
        assert orders.unit == "/s"
        # one of two jobs counts, and both label sets of the series do: ten a second
        assert [each for each in orders.table["y"].to_pylist() if each is not None][-1] == pytest.approx(10, abs=3)
        assert [each for each in queue.table["y"].to_pylist() if each is not None][-1] == 2048
        generation = store.generation
        clock[0] += timedelta(hours=2)
        job.turn()
        clock[0] += timedelta(hours=23)
        job.turn()
        assert store.generation == generation + 1  # a day later it has not been scraped for a day: removed
        with pytest.raises(ResourceNotFound, match="has no metric 'orders_total'"):
            resolver.meaning(WEB, "orders_total")
        clock[0] -= timedelta(hours=25)
        again = OwnMetrics(store, IRIS, Discovery(store, IRIS, [server], 2), lambda: clock[0])
        again.turn()
        assert {"orders_total", "queue_bytes"} <= set(resolver.metrics_of(WEB))
        assert "wait_seconds_sum" not in resolver.metrics_of(WEB)
        store.apply([GraphWrite(WEB, None, "test")])
        again.turn()
        assert not store.entries(owner=OWNER)
    finally:
        store.close()


def test_a_server_that_does_not_answer_changes_nothing(tmp_path: Path) -> None:
    """What was found out before stays until somebody knows better."""
    store = EmbeddedStore(tmp_path)
    try:
        store.apply([GraphWrite.of(str(each["id"]), lines(each), "test") for each in _documents()])
        kept = {"id": IRIS.scraped(WEB), "partOf": [WEB], "description": "found earlier"}
        store.apply([GraphWrite.of(IRIS.scraped(WEB), lines({"@context": {}, **kept}), OWNER)])
        server = _datasource(f"http://127.0.0.1:{servers.free_port()}")
        OwnMetrics(store, IRIS, Discovery(store, IRIS, [server], 10), lambda: datetime.now(UTC)).turn()
        assert [each.graph for each in store.entries(owner=OWNER)] == [IRIS.scraped(WEB)]
    finally:
        store.close()


def test_a_service_finds_them_by_itself_and_its_clients_list_them(url: str, tmp_path: Path) -> None:
    """Without a command: the workload's metrics have them, with the query, and history fetches them."""
    config = tmp_path / "drumlin.toml"
    config.write_text(
        f'[[datasource]]\nname = "prometheus-main"\nkind = "prometheus"\nurl = "{url}"\nscrape_interval = "1s"\n'
        f'[[datasource]]\nname = "forecasts"\nkind = "parquet"\nurl = "{(tmp_path / "forecasts").as_uri()}"\n'
    )
    store = tmp_path / "store"
    opened = EmbeddedStore(store)
    opened.apply([GraphWrite.of(str(each["id"]), lines(each), "test") for each in _documents()])
    opened.close()
    with serving("--store", str(store), "--config", str(config)) as service, drumlin.connect(service.url) as client:
        deadline = time.monotonic() + 30
        while "orders_total" not in client.workload("prod/shop/statefulset/web").metrics:
            assert time.monotonic() < deadline
            time.sleep(0.1)
        found = client.workload("prod/shop/statefulset/web").metrics["orders_total"]
        assert (found.type, found.unit) == ("counter", "/s")
        assert 'orders_total{namespace="shop",pod=~"web-[0-9]+"}' in found.query
        series = client.workload("prod/shop/statefulset/web").history("queue_bytes", last="1m", step="1s")
        assert 2048.0 in series.table["y"].to_pylist()
        table = pa.table({"ds": [datetime.now(UTC).replace(microsecond=0)], "y": [1.0]})
        of = ("prod/shop/statefulset/web", "orders_total")
        saved = client.forecasts.save(table, of, model="mine", horizon="1m", step="1m")
        assert saved["derivedFrom"] == IRIS.metric(IRIS.scraped(WEB), "orders_total")
        assert client.forecasts.list(of) == client.forecasts.list(of[0]) == [saved]
        query = f"SELECT ?m WHERE {{ ?own <http://purl.org/dc/terms/isPartOf> <{WEB}> ; <http://purl.org/dc/terms/hasPart> ?m }}"
        assert {"m": saved["derivedFrom"]} in client.sparql(query)
