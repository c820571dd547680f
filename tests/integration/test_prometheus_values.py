"""Current values of many entities on a real Prometheus: what was written, by one query for each metric, and why what is missing is."""

from __future__ import annotations

import csv
import io
import json
from collections.abc import Iterator
from datetime import timedelta
from typing import Any

import httpx
import pyarrow.csv
import pytest

import drumlin
from drumlin.kg.errors import InvalidInput, TooLarge
from drumlin.kg.rdf.jsonld import NodeDocument, lines
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry import wire
from drumlin.kg.telemetry.gathering import DatasourceClients
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from drumlin.kg.telemetry.values import CurrentValues, Values
from tests.integration.conftest import CADVISOR, OpenMetrics, RealPrometheus, at, minutes, serving
from tests.service.conftest import Service, drumlin_asks
from tests.service.conftest import serving as service_of
from tests.unit.telemetry_store import CLUSTER, IRIS, GraphStore, pod, workload

NOW = at(100)
NODES = {f"n{number}": number / 4 for number in range(1, 6)}
"""CPU of each node; n5 was scraped last two minutes before ``NOW``, n6 never."""
RATES = {**NODES, "n5": 0.9375}
"""What a rate over five minutes gives, which looks a scrape further back: Prometheus takes a series that lacks two minutes to have ended half a scrape after
its last sample."""
PODS = {"web-86b96c86dc-aaaaa": 0.25, "web-86b96c86dc-bbbbb": 0.5, "db-0": 1.0}
"""CPU of each pod: two of web, which has a limit of two cores, and one of db in two namespaces."""


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """A Prometheus with five nodes, three pods, and one that nobody asks for."""
    samples = OpenMetrics()
    for name, cores in NODES.items():
        own = {"job": "node-exporter", "instance": name}
        last = 99 if name == "n5" else 101
        for cpu in ("0", "1"):
            values = {m: 60 * cores / 2 * m for m in minutes(0, last)}
            samples.add("node_cpu_seconds_total", {**own, "cpu": cpu, "mode": "user"}, values)
            samples.add("node_cpu_seconds_total", {**own, "cpu": cpu, "mode": "idle"}, {m: m for m in minutes(0, last)})
        samples.add("node_memory_MemTotal_bytes", own, dict.fromkeys(minutes(0, last), 4_000_000))
        samples.add(
            "node_memory_MemAvailable_bytes",
            own,
            dict.fromkeys(minutes(0, last), 1_000_000 * int(4 * cores) % 4_000_000),
        )
    for name, cores in [*PODS.items(), ("old-0", 9.0)]:
        own = {**CADVISOR, "namespace": "shop", "pod": name, "container": "c"}
        samples.add("container_cpu_usage_seconds_total", own, {m: 60 * cores * m for m in minutes(0, 101)})
        samples.add("container_memory_working_set_bytes", own, dict.fromkeys(minutes(0, 101), int(cores * 1000)))
        if name.startswith("web"):
            limit = {"job": "kube-state-metrics", "namespace": "shop", "pod": name, "container": "c", "resource": "cpu"}
            samples.add("kube_pod_container_resource_limits", limit, dict.fromkeys(minutes(0, 101), 1))
    other = {**CADVISOR, "namespace": "core", "pod": "db-0", "container": "c"}
    samples.add("container_cpu_usage_seconds_total", other, {m: 6000 * m for m in minutes(0, 101)})
    with serving(samples, tmp_path_factory.mktemp("values")) as running:
        yield running


def _time(minute: int) -> str:
    return at(minute).isoformat().replace("+00:00", "Z")


def _documents() -> list[NodeDocument]:
    def iri(kind: str, name: str) -> str:
        return IRIS.object("prod", "shop", kind, name)

    web, database = iri("Deployment", "web"), iri("StatefulSet", "db")
    return [
        *(
            {"id": IRIS.object("prod", None, "Node", name), "type": "Node", "name": name, "partOf": CLUSTER}
            for name in [*NODES, "n6"]
        ),
        workload("Deployment", "shop", "web", began=_time(0)),
        *(pod("shop", name, web, [(_time(0), None)]) for name in list(PODS)[:2]),
        pod("shop", "old-0", web, [(_time(0), _time(60))], gone=True),
        workload("StatefulSet", "shop", "db", began=_time(0)),
        pod("shop", "db-0", database, [(_time(0), None)]),
        workload("Deployment", "shop", "idle", began=_time(0)),
        {"id": IRIS.object("prod", None, "Namespace", "shop"), "type": "Namespace", "name": "shop"},
        {"id": CLUSTER, "type": "Cluster", "name": "prod"},
    ]


@pytest.fixture(scope="module")
def resolver(server: RealPrometheus) -> Resolver:
    """A resolver over the graph and the real server."""
    catalogue = TemplateCatalogue.shipped(frozenset({"cadvisor", "node-exporter", "kube-state-metrics"}))
    return Resolver(GraphStore(_documents()), IRIS, [server.datasource()], catalogue)


@pytest.fixture(scope="module")
def values(resolver: Resolver) -> Iterator[Values]:
    """Current values as of ``NOW``."""
    clients = DatasourceClients(lambda _: None)
    yield Values(resolver, clients, clock=lambda: NOW)
    clients.close()


def _by_id(found: CurrentValues, metric: str) -> dict[str, float]:
    return {each.key.unique_id.rpartition("/")[2]: each.value for each in found.values if each.key.metric == metric}


NODE_IDS = [f"prod/-/node/{name}" for name in [*NODES, "n6"]]


def test_nodes_are_asked_for_together(values: Values) -> None:
    """One query for each metric gives every node its own value, with the age of its newest sample; one that has none is listed."""
    found = values.fetch(NODE_IDS, ["cpu_usage", "cpu_utilisation", "mem_usage"])

    assert len(found.queries) == 3
    assert _by_id(found, "cpu_usage") == pytest.approx(RATES)
    assert _by_id(found, "cpu_utilisation") == pytest.approx({name: 50 * cores for name, cores in RATES.items()})
    ages = {each.key.unique_id[-2:]: each.age for each in found.values if each.key.metric == "mem_usage"}
    assert ages == {"n1": 0, "n2": 0, "n3": 0, "n4": 0, "n5": 120}
    assert {key.unique_id for key, _ in found.missing} == {"prod/-/node/n6"}
    assert "no current sample" in str(found.missing[0][1])


def test_workloads_are_the_sums_of_their_running_pods(values: Values) -> None:
    """A pod that is gone, and one of the same name elsewhere, do not count; a workload without a pod says so."""
    wanted = [f"prod/shop/{each}" for each in ("deployment/web", "statefulset/db", "deployment/idle", "pod/db-0")]
    found = values.fetch([*wanted, "prod/-/namespace/shop"], ["cpu_usage"])

    assert len(found.queries) == 1
    assert _by_id(found, "cpu_usage") == pytest.approx({"web": 0.75, "db": 1.0, "db-0": 1.0, "shop": 10.75})
    assert [str(error) for _, error in found.missing] == ["no pod of prod/shop/deployment/idle is known to run"]


def test_shares_and_clusters_are_asked_for_by_themselves(values: Values) -> None:
    """What does not add up over pods is asked for of each workload, in one query all the same; units convert."""
    found = values.fetch(["prod/shop/deployment/web", "cluster/prod"], ["cpu_usage"], unit=["%", "millicores"])

    assert {each.key.metric for each in found.values} == {"cpu_utilisation"}
    assert found.values[0].value == pytest.approx(37.5)
    assert found.values[1].value == pytest.approx(50 * sum(RATES.values()) / 5)


@pytest.mark.parametrize(
    "metric", ["cpu_usage", "mem_usage", "cpu_utilisation", "disk_usage", "cpu_requested", "network_usage"]
)
def test_together_and_alone_are_the_same(
    resolver: Resolver, values: Values, server: RealPrometheus, metric: str
) -> None:
    """What is asked for together is, for each entity, what its own query gives."""
    wanted = [*NODE_IDS, "prod/shop/deployment/web", "prod/shop/statefulset/db", "prod/shop/pod/db-0"]
    found = values.fetch(wanted, [metric])
    told = {each.key.unique_id: each.value for each in found.values}

    for entity in wanted:
        query = resolver.resolve(entity, metric, Window(NOW - timedelta(minutes=5), NOW), step="5m").query
        answer = httpx.get(f"{server.url}/api/v1/query", params={"query": query, "time": NOW.timestamp()}).json()
        alone = [float(each["value"][1]) for each in answer["data"]["result"]]
        assert ([told[entity]] if entity in told else []) == pytest.approx(alone), entity


def test_nothing_stops_the_rest(values: Values) -> None:
    """An unknown entity, a metric that nobody has and one that the server lacks are missing, each with its reason."""
    found = values.fetch(["prod/-/node/n1", "prod/-/node/nope"], ["cpu_usage", "cpu_usge", "network_receive"])

    reasons = {key: str(error) for key, error in found.missing}
    assert [each.key for each in found.values] == [("prod/-/node/n1", "cpu_usage")]
    assert "there is no prod/-/node/nope" in reasons["prod/-/node/nope", "cpu_usage"]
    assert "cpu_usge" in reasons["prod/-/node/n1", "cpu_usge"]
    assert "no metric node_network_receive_bytes_total" in reasons["prod/-/node/n1", "network_receive"]


@pytest.mark.parametrize(
    ("options", "error"), [({"window": timedelta(days=2)}, InvalidInput), ({"metrics": []}, InvalidInput)]
)
def test_what_cannot_be_asked_is_refused(values: Values, options: dict[str, Any], error: type[Exception]) -> None:
    """No metric, and a window beyond a day."""
    with pytest.raises(error):
        values.fetch(["prod/-/node/n1"], **{"metrics": ["cpu_usage"], **options})
    with pytest.raises(TooLarge):
        values.fetch(["x"] * 5000, ["y"] * 50)


# -- over HTTP --------------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def service(server: RealPrometheus, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service that knows the nodes and workloads, and the server."""
    directory = tmp_path_factory.mktemp("service")
    config = directory / "drumlin.toml"
    config.write_text(
        f'[[datasource]]\nname = "prometheus-main"\nkind = "prometheus"\nurl = "{server.url}"\nscrape_interval = "60s"\n'
    )
    with (
        service_of("--store", str(directory / "store"), "--config", str(config)) as running,
        drumlin.connect(running.url) as client,
    ):
        documents = [each for each in _documents() if each["id"] != CLUSTER]
        client.apply([GraphWrite.of(str(each["id"]), lines(each), "test") for each in documents], atomic=True)
        yield running


def test_every_form_holds_the_same_values(service: Service) -> None:
    """JSON, CSV, NDJSON and Arrow: the rows alone, with what is missing beside them, in a header, or in a last line on request."""
    params = {"type": "Node", "metric": ["cpu_usage", "mem_usage"], "unit": ["MB", "cores"], "at": NOW.timestamp()}
    with httpx.Client(base_url=service.url) as http:
        body = http.get("/values", params=params).raise_for_status().json()
        answers = {form: http.get("/values", params={**params, "format": form}) for form in ("csv", "ndjson", "arrow")}
        with_status = http.get("/values", params={**params, "format": "ndjson", "status": True}).text.splitlines()
        pages = [http.get("/values", params={**params, "limit": 4}).json()]
        pages.append(http.get("/values", params={**params, "limit": 4, "after": pages[0]["next"]}).json())

    rows = body["values"]
    assert {(each["entity"][-2:], each["metric"], each["unit"]) for each in rows} == {
        (name, metric, unit) for name in NODES for metric, unit in (("cpu_usage", "{cpu}"), ("mem_usage", "MBy"))
    }
    assert len(body["missing"]) == 2
    assert len(body["queries"]) == 2
    assert {answer.headers["X-Drumlin-Missing"] for answer in answers.values()} == {"2"}
    assert [row["value"] for row in csv.DictReader(io.StringIO(answers["csv"].text))] != []
    assert pyarrow.csv.read_csv(io.BytesIO(answers["csv"].content))["value"].to_pylist() == [
        each["value"] for each in rows
    ]
    assert [json.loads(line) for line in answers["ndjson"].text.splitlines()] == rows
    table, account = wire.table_of(answers["arrow"].content)
    assert table["value"].to_pylist() == [each["value"] for each in rows]
    assert account["missing"] == body["missing"] == json.loads(with_status[-1])["missing"]
    assert [each for page in pages for each in page["values"]] == rows
    assert "next" not in pages[1]


def test_groups_and_the_flat_document_over_http(service: Service) -> None:
    """GET /resolve returns a query for each group, and errors that help; the cluster has a flat document with its datasource."""
    with httpx.Client(base_url=service.url) as http:
        window = {"start": at(10).timestamp(), "end": NOW.timestamp(), "metric": "cpu_usage"}
        items = http.get("/resolve", params={"group_by": "kind", **window}).json()["items"]
        of_web = http.get(
            "/resolve", params={"group_by": "kind", "entity": "prod/shop/deployment/web", **window}
        ).json()
        lines = http.post(
            "/resolve",
            json={"group_by": "namespace", "metrics": ["cpu_usage"], "last": "1d", "end": str(NOW.timestamp())},
        )
        refused = http.get("/resolve", params={"group_by": "knd", **window})
        nothing = http.get("/history", params={"metric": "cpu_usage"})
        flat = http.get("/subgraph/cluster/prod", params={"frame": "seed"})
        again = http.get(
            "/subgraph/cluster/prod", params={"frame": "seed"}, headers={"If-None-Match": flat.headers["ETag"]}
        )
        other = http.get("/subgraph/datasource/prometheus-main", params={"frame": "seed"})

    assert [each["entity"].rpartition("/id/")[2] for each in items] == ["kind/Deployment", "kind/StatefulSet"]
    assert [each["pods"] for each in of_web["items"]] == [["shop/old-0", *(f"shop/{name}" for name in list(PODS)[:2])]]
    assert [json.loads(line)["selector"] for line in lines.text.splitlines()] == ["namespace"]
    assert (refused.status_code, refused.json()["hint"]) == (422, "did you mean kind?")
    assert nothing.status_code == 422
    (metrics,) = flat.json()["telemetry"]["metrics"]
    assert metrics["dataSource"]["type"] == "prometheus"
    assert {"cpu_usage", "network_usage"} <= {each["name"] for each in metrics["metrics"]}
    assert (flat.headers["Content-Type"], again.status_code, other.status_code) == ("application/ld+json", 304, 422)


def test_the_client_and_the_command_line_ask_too(service: Service) -> None:
    """The client returns rows for data frames, the command a table; both report what is missing."""
    with drumlin.connect(service.url) as client:
        found = client.values("cpu_usage", type="Node", at=NOW.isoformat())
        named = client.values(["cpu_usage"], NODE_IDS[:2], at=NOW.isoformat(), unit="millicores")
        grouped = client.history(metrics="cpu_usage", group_by="kind", start=at(10).isoformat(), end=NOW.isoformat())
        with pytest.raises(InvalidInput, match="which entities"):
            client.values("cpu_usage")

    assert {row["entity"][-2:]: row["value"] for row in found} == pytest.approx(RATES)
    assert [each["entity"] for each in found.missing] == ["prod/-/node/n6"]
    assert found.to_pandas()["time"].dt.tz is not None
    assert [row["value"] for row in named] == pytest.approx([250, 500])
    assert set(grouped.coverage) == {("kind/Deployment", "cpu_usage"), ("kind/StatefulSet", "cpu_usage")}
    options = ("--at", str(NOW.timestamp()), "-u", service.url)
    printed = drumlin_asks("values", "cpu_usage", "--type", "Node", *options, "-o", "csv")
    assert {
        row["entity"][-2:]: float(row["value"]) for row in csv.DictReader(io.StringIO(printed.stdout))
    } == pytest.approx(RATES)
    assert "prod/-/node/n6" in printed.stderr
    window = ("--start", at(10).isoformat(), "--end", NOW.isoformat(), "-u", service.url)
    groups = drumlin_asks("resolve", "all", "cpu_usage", "--group-by", "kind", *window)
    assert "kind/StatefulSet" in groups.stdout
