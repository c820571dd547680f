"""Telemetry of a Kuscia network on a real Prometheus: each route's figures are its own, those of ``expected.json``."""

from __future__ import annotations

import json
import math
import re
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from drumlin.api.demo import prometheus as servers
from drumlin.exporters.pipeline.hosting_domain import ensure
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import InvalidInput, ResourceNotFound
from drumlin.kg.telemetry import logs
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.prometheus import Prometheus
from drumlin.kg.telemetry.resolution import Resolution
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Grid, Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.contract.test_kuscia_run import EXPECTED, ROOT, RUN, SETTINGS, job, pod, pytestmark, route, sink, task
from tests.integration.conftest import T0, OpenMetrics, RealPrometheus, need
from tests.integration.test_loki import FakeLoki
from tests.listening import listening
from tests.memory_sink import MemorySink
from tests.unit.rendering import around
from tests.unit.telemetry_store import IRIS, GraphStore

__all__ = ["pytestmark"]

AT = datetime(2026, 11, 29, 9, 10, tzinfo=UTC)
WINDOW = timedelta(minutes=5)
ROUTES = EXPECTED.get("routes", {})
AT_9091 = (
    "rtt", "retransmission_rate", "connections", "request_rate", "error_rate", "bytes_sent", "bytes_received", "health_check_failures",
)  # fmt: skip
KEYS = {"error_rate": "error_rate_9091", "health_check_failures": "health_check_failure_share"}


RUNS = EXPECTED.get("runs", [])
CADVISOR = {"job": "kubelet", "metrics_path": "/metrics/cadvisor"}


def cores(row: dict[str, Any]) -> float:
    """Return the cores that a pod is made to use: another number for each."""
    return 0.5 + RUNS.index(row) / 4


def usage() -> OpenMetrics:
    """Return what a cAdvisor would have told of the pods of the run, and of a stranger with the name of one in a third namespace."""
    samples, begin = OpenMetrics(), datetime(2026, 11, 29, 9, 0, tzinfo=UTC).timestamp() - T0.timestamp()
    for row in [*RUNS, {**RUNS[0], "namespace": "carol"}]:
        ends = [datetime.fromisoformat(row[key]).timestamp() - T0.timestamp() for key in ("start", "end")]
        labels = {**CADVISOR, "namespace": row["namespace"], "pod": row["pod"], "container": "engine"}
        speed = cores(row) if row in RUNS else 100
        seconds = [at for at in range(int(begin), int(begin) + 601, 5) if ends[0] <= at <= ends[1]]
        samples.add_at("container_cpu_usage_seconds_total", labels, {at: speed * (at - ends[0]) for at in seconds})
    return samples


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """A Prometheus with what both nodes show at :9091, and what their Envoys would show themselves."""
    need("prometheus", "prometheus")
    need("promtool", "prometheus")
    directory = tmp_path_factory.mktemp("kuscia")
    usage().write(directory / "usage.om")
    for file in (RUN / "metrics.om", RUN / "metrics-envoy-direct.om", directory / "usage.om"):
        servers.backfill(file, directory)
    with servers.start_prometheus(directory) as running:
        yield RealPrometheus(running.url)


def datasource(url: str, name: str, **more: Any) -> Datasource:
    """Return the server as a datasource of the configuration."""
    given = {"name": name, "kind": "prometheus", "url": url, "scrape_interval": "15s", **more}
    return Datasource.from_settings(DatasourceSettings.model_validate(given), IRIS, None)


def store() -> GraphStore:
    """Return the graphs at the end of the run, with those of the hosting domain."""
    graphs = MemorySink()
    surroundings = around(SETTINGS)
    ensure(graphs, surroundings.settings, surroundings.iris, surroundings.catalogue, surroundings.datasources)
    found = GraphStore([])
    found.add_graphs(graphs.graphs)
    found.add_graphs(sink().graphs)
    return found


def resolver(*datasources: Datasource, exporters: tuple[str, ...] = ("cadvisor", "kuscia")) -> Resolver:
    """Return what resolves the entities of the run."""
    return Resolver(store(), IRIS, datasources, TemplateCatalogue.shipped(frozenset(exporters)))  # type: ignore[arg-type]


def value(found: Resolution, server: Datasource) -> float | None:
    """Ask a resolution for its last point; None when the server has nothing."""
    with Prometheus(server) as client:
        parts = client.series(found.query, Grid(int(AT.timestamp()), int(AT.timestamp()), 300)).parts
    values = [each for part in parts for each in part.values.to_pylist() if not math.isnan(each)]
    return values[-1] if values else None


@pytest.mark.parametrize("metric", AT_9091)
@pytest.mark.parametrize("name", ROUTES)
def test_a_route_has_its_own_figures(server: RealPrometheus, name: str, metric: str) -> None:
    """Each metric of each direction at 09:10 over five minutes is what the network did: no sum, and not the other side's."""
    own = datasource(server.url, "prometheus-main", matchers={"instance": "{domain}-gw.internal:9091"})

    found = resolver(own).resolve(route(name), metric, Window(AT - WINDOW, AT), step=WINDOW)

    assert value(found, own) == pytest.approx(ROUTES[name][KEYS.get(metric, metric)], rel=1e-9, abs=1e-12)
    assert f"{name.partition('-')[0]}-gw.internal:9091" in found.query
    assert found.warnings == ()


@pytest.mark.parametrize("metric", ["error_rate", "members_healthy"])
@pytest.mark.parametrize("name", ROUTES)
def test_where_envoy_itself_is_scraped_there_are_response_codes_and_members(
    server: RealPrometheus, name: str, metric: str
) -> None:
    """The exporter envoy replaces Kuscia's error rate by that of response codes, and adds the members."""
    own = datasource(
        server.url,
        "prometheus-envoy",
        matchers={"instance": "{domain}-gw.internal:10000"},
        jobs={"envoy": "kuscia-envoy"},
    )

    found = resolver(own, exporters=("kuscia", "envoy")).resolve(
        route(name), metric, Window(AT - WINDOW, AT), step=WINDOW
    )

    key = {"error_rate": "error_rate_direct"}.get(metric, metric)
    assert value(found, own) == pytest.approx(ROUTES[name][key], rel=1e-9, abs=1e-12)


@pytest.mark.parametrize("name", ROUTES)
def test_there_is_no_retransmission_time_out(server: RealPrometheus, name: str) -> None:
    """A metric that Kuscia never exported is refused with what there is; it is not 0."""
    assert ROUTES[name]["rto"] is None
    with pytest.raises(ResourceNotFound, match="has no metric 'rto'") as refused:
        resolver(datasource(server.url, "prometheus-main", domains=["alice"])).resolve(
            route(name), "rto", Window(AT - WINDOW, AT)
        )
    assert set(AT_9091) <= set(refused.value.detail["metrics"])


def test_a_datasource_that_tells_no_domain_is_refused_with_the_lines_to_write(server: RealPrometheus) -> None:
    """Only the scrape target tells whose series they are: an unbound datasource would answer with another domain's."""
    with pytest.raises(InvalidInput, match="bound to no domain") as refused:
        resolver(datasource(server.url, "prometheus-main")).resolve(route("alice-bob"), "rtt", Window(AT - WINDOW, AT))

    assert 'domains = ["alice"]' in refused.value.detail["configuration"]


def test_a_datasource_of_one_domain_needs_no_matcher(server: RealPrometheus) -> None:
    """A table for one domain holds its series alone, so the query names no instance."""
    own = datasource(server.url, "prometheus-alice", domains=["alice"])

    found = resolver(own).resolve(route("alice-bob"), "request_rate", Window(AT - WINDOW, AT), step=WINDOW)

    assert "instance" not in found.query
    assert value(found, own) == pytest.approx(ROUTES["alice-bob"]["request_rate"])


def test_the_graph_describes_what_is_resolved() -> None:
    """The stored query of a route's metric is the resolved one, and names its source's target and cluster."""
    text = "\n".join(sink().graphs[ROOT + route("bob-alice")])

    (stored,) = re.findall(r'metric/request_rate/at/prometheus-main> <[^>]*query> "(.*)" \.', text)
    query = json.loads(f'"{stored}"')
    assert 'envoy_cluster_name=~"bob-to-alice-http"' in query
    assert 'instance="bob-gw.internal:9091"' in query


@pytest.mark.parametrize(("domain", "rtt", "sent"), [("alice", 2.5, 52000.0), ("bob", 41.0, 7000.0)])
def test_a_domain_has_its_own_figures(server: RealPrometheus, domain: str, rtt: float, sent: float) -> None:
    """What a domain's own node shows, not the greatest of all domains."""
    own = datasource(
        server.url,
        "prometheus-main",
        matchers={"instance": "{domain}-gw.internal:9091"},
        jobs={"ss": "kuscia-node", "envoy": "kuscia-node"},
    )
    found = resolver(own, exporters=("ss", "envoy"))
    window = Window(AT - WINDOW, AT)

    assert value(found.resolve(f"domain/{domain}", "peer_rtt", window, step=WINDOW), own) == pytest.approx(rtt)
    transmitted = value(found.resolve(f"domain/{domain}", "gateway_transmit", window, step=WINDOW), own)
    assert transmitted is not None
    assert transmitted > sent  # its gateway also serves its own services and the master


def test_two_routes_to_one_host_are_said_to_be_told_apart_by_envoy_only() -> None:
    """Socket statistics have only the host: a second route of the same source to it is warned of, and the hosts' case does not matter."""
    own = datasource("http://127.0.0.1:9", "prometheus-main", matchers={"instance": "{domain}-gw.internal:9091"})
    found = resolver(own)
    other = IRIS.object("prod", None, "ClusterDomainRoute", "alice-carol", "kuscia.secretflow")
    ends = {each: f"{ROOT}domain/{name}" for each, name in (("source", "alice"), ("destination", "carol"))}
    graphs = store()
    graphs.add(
        [
            {
                "id": other,
                "type": "DomainRoute",
                "name": "alice-carol",
                **ends,
                "host": ["BOB-gw.example"],
                "port": ["http"],
            }
        ]
    )
    found = Resolver(graphs, IRIS, [own], TemplateCatalogue.shipped(frozenset({"kuscia"})))  # type: ignore[arg-type]

    rtt = found.resolve(route("alice-bob"), "rtt", Window(AT - WINDOW, AT))
    rate = found.resolve(route("alice-bob"), "request_rate", Window(AT - WINDOW, AT))

    assert 'remote_domain="bob_gw__example"' in rtt.query
    assert any("alice-carol" in each for each in rtt.warnings)
    assert rate.warnings == ()


def test_a_route_through_a_transit_is_asked_for_as_the_route_to_it() -> None:
    """A route by a third domain has no cluster of its own: its series are those from the source to the transit."""
    own = datasource("http://127.0.0.1:9", "prometheus-main", matchers={"instance": "{domain}-gw.internal:9091"})
    graphs = store()
    ends = {"source": f"{ROOT}domain/alice", "destination": f"{ROOT}domain/dave"}
    documents: list[dict[str, Any]] = [
        {"id": IRIS.object("prod", None, "ClusterDomainRoute", f"alice-dave{number}", "kuscia.secretflow"), "type": "DomainRoute", "name": "alice-dave", **ends, "via": f"{ROOT}domain/{via}"}
        for number, via in enumerate(("bob", "nobody"))
    ]  # fmt: skip
    graphs.add(documents)
    found = Resolver(graphs, IRIS, [own], TemplateCatalogue.shipped(frozenset({"kuscia"})))  # type: ignore[arg-type]

    query = found.resolve(documents[0]["id"], "bytes_sent", Window(AT - WINDOW, AT)).query

    assert 'envoy_cluster_name=~"alice-to-bob-http"' in query
    with pytest.raises(ResourceNotFound, match="no route from alice to nobody"):
        found.resolve(documents[1]["id"], "bytes_sent", Window(AT - WINDOW, AT))


# -- jobs, tasks and parties ----------------------------------------------------------------------------------------------


def used(rows: list[dict[str, Any]]) -> float:
    """Return the CPU seconds that pods were made to use, as far as samples every 5 s show."""
    total = 0.0
    for row in rows:
        begin, end = (datetime.fromisoformat(row[key]).timestamp() for key in ("start", "end"))
        first, last = -(-begin // 5) * 5, end // 5 * 5
        total += cores(row) * (last - first)
    return total


CASES = [
    *((job(name), [row for row in RUNS if row["job"] == name]) for name in EXPECTED.get("jobs", ())),
    *((task(name), [row for row in RUNS if row["task"] == name]) for name in sorted({row["task"] for row in RUNS})),
    *((f"{task(row['task'])}/party/{row['party']}", [row]) for row in RUNS),
]


@pytest.mark.parametrize(("entity", "rows"), CASES, ids=[each for each, _ in CASES])
def test_a_job_a_task_and_a_party_use_what_their_pods_used(
    server: RealPrometheus, entity: str, rows: list[dict[str, Any]]
) -> None:
    """CPU of each is the sum over the pods that ran for it, the deleted ones too, and of no other pod of the same name."""
    own = datasource(server.url, "prometheus-main", language="promql", doubled=False, scrape_interval="5s")
    window = Window(AT - timedelta(minutes=10), AT)

    found = resolver(own).resolve(entity, "cpu_usage", window, step=timedelta(seconds=30))

    with Prometheus(own) as client:
        grid = Grid(int(window.start.timestamp()), int(window.end.timestamp()), 30)
        parts = [part for each in found.question.parts(grid) for part in client.series(each.query, each.grid).parts]  # type: ignore[union-attr]
    seconds = sum(value * 30 for part in parts for value in part.values.to_pylist() if not math.isnan(value))
    assert seconds == pytest.approx(used(rows), rel=0.1)  # a rate reaches beyond the first and last sample
    assert set(found.pods) == {f"{row['namespace']}/{row['pod']}" for row in rows}
    assert "carol" not in found.query


def test_the_logs_of_a_job_are_those_of_all_its_pods() -> None:
    """The selector names the pods that ran and their namespaces; a party's only its own."""
    loki = Datasource.from_settings(
        DatasourceSettings.model_validate({"name": "loki", "kind": "loki", "url": "http://loki.example:3100"}),
        IRIS,
        None,
    )
    window = Window(AT - timedelta(minutes=10), AT)
    why = EXPECTED["whyFailed"]

    of_job = resolver(loki).resolve_logs(job(why["job"]), window)
    of_party = resolver(loki).resolve_logs(f"{task(why['task'])}/party/{why['party']}", window)

    assert 'namespace=~"alice|bob"' in of_job.query
    assert set(of_job.pods) == {row["pod"] for row in RUNS if row["job"] == why["job"]}
    assert of_party.query == f'{{namespace="bob",pod=~"{why["pod"].partition("/")[2]}"}}'


def test_the_last_lines_of_the_pod_that_failed_are_read() -> None:
    """From the cause to its log: the pod that why-failed names, and the party's own logs, give the lines that it wrote last."""
    why = EXPECTED["whyFailed"]
    with listening(FakeLoki()) as loki:
        for stream in json.loads((RUN / "logs.json").read_text())["streams"]:
            loki.lines += [(int(at), stream["stream"], line) for at, line in stream["values"]]
        own = Datasource.from_settings(
            DatasourceSettings.model_validate(
                {"name": "loki", "kind": "loki", "url": f"http://127.0.0.1:{loki.server_port}"}
            ),
            IRIS,
            None,
        )
        window = Window(AT - timedelta(minutes=10), AT)
        for entity in (pod(why["pod"]), f"{task(why['task'])}/party/{why['party']}", job(why["job"])):
            found = logs.fetch(resolver(own), entity, window, limit=3, direction="backward")
            assert [line.text for line in found.lines][::-1] == why["lastLogLines"]


def test_what_never_ran_has_no_figures(server: RealPrometheus) -> None:
    """A task of which no pod ran in the window is refused by name, not answered with 0."""
    early = Window(AT - timedelta(hours=9), AT - timedelta(hours=8))
    with pytest.raises(ResourceNotFound, match="no pod of .* is known to have run"):
        resolver(datasource(server.url, "prometheus-main")).resolve(job("job-risk"), "cpu_usage", early)
