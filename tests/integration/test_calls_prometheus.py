"""Calls observed in a real Prometheus: every service graph and mesh with generated series whose truth is known."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import pytest

from drumlin.api.demo import prometheus as servers
from drumlin.api.demo.function_calls import BOUNDS, Counters, GeneratedCall, service_graph, write_counters
from drumlin.exporters.observed_calls import OWNER, ObservedCalls
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.telemetry.calls import CallReader
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from drumlin.kg.telemetry.values import Values

IRIS = Iris("https://kg.example")
START = 1_795_000_000 // 60 * 60
END = START + 3600
NOW = datetime.fromtimestamp(END, UTC)
WEB, CART, DB = (f"prod/shop/{each}" for each in ("deployment/web", "deployment/cart", "statefulset/db"))
SHARES = (0.5, 0.9, 0.95, 1.0, 1.0)  # 95 of 100 end within the third bound: half a second
P95 = 0.5
Truth = Mapping[tuple[str, str], tuple[float, float]]
"""Caller and callee by short id → requests per second, share of errors."""


def buckets(labels: Mapping[str, str], rate: float, scale: int = 1) -> Counters:
    """Return the series of a histogram whose bounds are ``scale`` times those in seconds."""
    bounds = [each if each == "+Inf" else f"{float(each) * scale:g}" for each in BOUNDS]
    return [({**labels, "le": bound}, rate * share) for bound, share in zip(bounds, SHARES, strict=True)]


def tempo() -> tuple[dict[str, Counters], Truth]:
    """Names without namespaces: unique ones are workloads, ``dup`` is two and so none; a dimension tells one of them."""
    calls = [
        GeneratedCall("web", "cart", 4.0, 0.25, SHARES),
        GeneratedCall("cart", "dup", 1.0, 0.0, SHARES),
        GeneratedCall("user", "web", 8.0, 0.0, SHARES),
    ]
    metrics = service_graph(calls)
    labels = {"client": "web", "server": "dup", "server_k8s_namespace_name": "b", "connection_type": ""}
    metrics["traces_service_graph_request_total"] = [
        *metrics["traces_service_graph_request_total"],
        # OpenTelemetry's connector has `failed` on every series; the two add up.
        ({**labels, "failed": "false"}, 1.5),
        ({**labels, "failed": "true"}, 0.5),
    ]
    failed = "traces_service_graph_request_failed_total"
    metrics[failed] = [*metrics[failed], ({**labels, "failed": "true"}, 0.5)]
    seconds = "traces_service_graph_request_server_seconds_bucket"
    metrics[seconds] = [*metrics[seconds], *buckets({**labels, "failed": "false"}, 2.0)]
    return metrics, {
        (WEB, CART): (4.0, 0.25),
        (CART, "external/dup"): (1.0, 0.0),
        ("external/user", WEB): (8.0, 0.0),
        (WEB, "prod/b/deployment/dup"): (2.0, 0.25),
    }


def istio() -> tuple[dict[str, Counters], Truth]:
    """Each call is counted at both ends; of two pods and codes the sum counts; a destination without workload is named by its service."""
    total, duration = "istio_requests_total", "istio_request_duration_milliseconds_bucket"
    pair = {
        "source_workload": "web", "source_workload_namespace": "shop", "destination_workload": "cart",
        "destination_workload_namespace": "shop", "destination_service": "cart.shop.svc.cluster.local",
    }  # fmt: skip
    out = {
        **pair,
        "destination_workload": "unknown",
        "destination_workload_namespace": "unknown",
        "destination_service": "api.example.org",
    }
    counted = [
        ({**pair, "reporter": reporter, "response_code": code, "pod": pod}, rate)
        for reporter in ("source", "destination")
        for code, rate in (("200", 1.5), ("503", 0.5))
        for pod in ("a", "b")
    ]
    return {
        total: [*counted, ({**out, "reporter": "source", "response_code": "0"}, 1.0)],
        duration: [
            *buckets({**pair, "reporter": "source"}, 4.0, 1000),
            *buckets({**out, "reporter": "source"}, 1.0, 1000),
        ],
    }, {(WEB, CART): (4.0, 0.25), (WEB, "external/api.example.org"): (1.0, 1.0)}


def linkerd() -> tuple[dict[str, Counters], Truth]:
    """The source is the target's labels; inbound series are the other end of the same calls."""
    pair = {
        "namespace": "shop",
        "deployment": "cart",
        "dst_namespace": "shop",
        "dst_statefulset": "db",
        "authority": "db:80",
    }
    out = {"namespace": "shop", "deployment": "cart", "authority": "api.example.org:443"}
    counted, answered = "request_total", "response_total"
    metrics: dict[str, Counters] = {
        counted: [({**pair, "direction": "outbound"}, 3.0), ({**pair, "direction": "inbound"}, 3.0), ({**out, "direction": "outbound"}, 1.0)],
        answered: [
            ({**pair, "direction": "outbound", "classification": "success"}, 2.4),
            ({**pair, "direction": "outbound", "classification": "failure"}, 0.6),
            ({**out, "direction": "outbound", "classification": "success"}, 1.0),
        ],
        "response_latency_ms_bucket": [
            *buckets({**pair, "direction": "outbound"}, 3.0, 1000),
            *buckets({**out, "direction": "outbound"}, 1.0, 1000),
        ],
    }  # fmt: skip
    return metrics, {(CART, DB): (3.0, 0.2), (CART, "external/api.example.org"): (1.0, 0.0)}


def hubble() -> tuple[dict[str, Counters], Truth]:
    """Workloads by the labels context; ingress is the other end of the same calls."""
    pair = {
        "source_namespace": "shop", "source_workload": "web", "source_workload_kind": "Deployment",
        "destination_namespace": "shop", "destination_workload": "db", "destination_workload_kind": "StatefulSet",
    }  # fmt: skip
    return {
        "hubble_http_requests_total": [
            ({**pair, "traffic_direction": direction, "status": code}, rate)
            for direction in ("egress", "ingress")
            for code, rate in (("200", 4.5), ("500", 0.5))
        ],
        "hubble_http_request_duration_seconds_bucket": list(buckets({**pair, "traffic_direction": "egress"}, 5.0)),
    }, {(WEB, DB): (5.0, 0.1)}


MESHES = {"service-graph": tempo(), "istio": istio(), "linkerd": linkerd(), "hubble": hubble()}
ENVOY = {"envoy_cluster_upstream_rq_total": [({"job": "kuscia-node", "envoy_cluster_name": "alice-to-bob-http"}, 2.0)]}


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    """The address of a Prometheus with the series of all of them."""
    if not servers.find_binary("prometheus"):
        pytest.skip("no prometheus: apt-get install prometheus")
    home = tmp_path_factory.mktemp("calls")
    metrics = {name: series for found, _ in MESHES.values() for name, series in found.items()} | ENVOY
    write_counters(home / "calls.om", metrics, START, END)
    servers.backfill(home / "calls.om", home)
    with servers.start_prometheus(home) as server:
        yield server.url


def workload(id: str) -> dict[str, Any]:
    """Describe a workload by its short id."""
    _, namespace, kind, name = id.split("/")
    types = {"deployment": "Deployment", "statefulset": "StatefulSet"}
    return {
        "id": IRIS.expand(id),
        "type": types[kind],
        "name": name,
        "namespace": namespace,
        "cluster": IRIS.cluster("prod"),
    }


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """A store with a cluster and its workloads, two of one name."""
    documents = [
        {"id": IRIS.cluster("prod"), "type": "Cluster", "name": "prod", "domain": IRIS.domain("alice")},
        *map(workload, (WEB, CART, DB, "prod/a/deployment/dup", "prod/b/deployment/dup")),
    ]
    opened = EmbeddedStore(tmp_path / "store")
    opened.apply([GraphWrite.of(str(each["id"]), lines(each), "test") for each in documents])
    yield opened
    opened.close()


def observing(
    store: EmbeddedStore, url: str, *exporters: str, at: datetime = NOW, **more: Any
) -> tuple[ObservedCalls, Resolver]:
    """Return the job that reads the calls of some exporters, and what resolves their metrics."""
    settings = DatasourceSettings.model_validate(
        {"name": "main", "kind": "prometheus", "url": url, "scrape_interval": "15s", **more}
    )
    server = Datasource.from_settings(settings, IRIS, IRIS.domain("alice"))
    catalogue = TemplateCatalogue.shipped(frozenset(exporters))
    job = ObservedCalls(store, IRIS, CallReader(store, IRIS, [server], exporters), catalogue, lambda: at)
    return job, Resolver(store, IRIS, [server], catalogue)


def seen(store: EmbeddedStore) -> dict[tuple[str, str], str]:
    """Return the invocations of a store by the short ids of caller and callee."""
    rows = store.look_up(
        "PREFIX : <https://w3id.org/drumlin/ns#> SELECT ?i ?a ?b WHERE { ?i a :Invocation ; :caller ?a ; :callee ?b }"
    )
    return {(IRIS.short(row["a"]), IRIS.short(row["b"])): row["i"] for row in rows}


def figures(resolver: Resolver, invocations: list[str]) -> dict[tuple[str, str], float]:
    """Fetch the figures of invocations at the end of the generated hour, by IRI and metric."""
    history = History(resolver)
    metrics = ("request_rate", "error_rate", "latency_p95")
    found = Values(resolver, history.clients, clock=lambda: NOW).fetch(
        invocations, metrics, window=timedelta(minutes=5)
    )
    history.close()
    assert not found.missing
    return {(IRIS.expand(each.key.unique_id), each.key.metric): each.value for each in found.values}


@pytest.mark.parametrize("exporter", list(MESHES))
def test_a_mesh_tells_each_pair_its_rate_errors_and_latency(store: EmbeddedStore, url: str, exporter: str) -> None:
    """Exactly the generated pairs, matched to workloads where a name can mean one only; each call counts once, and p95 is exact at a bound."""
    _, truth = MESHES[exporter]
    job, resolver = observing(store, url, exporter)

    job.turn()

    found = seen(store)
    assert found.keys() == truth.keys()
    told = figures(resolver, list(found.values()))
    for pair, (rate, errors) in truth.items():
        iri = found[pair]
        assert told[iri, "request_rate"] == pytest.approx(rate, rel=1e-3), pair
        assert told[iri, "error_rate"] == pytest.approx(errors, abs=1e-3), pair
        assert told[iri, "latency_p95"] == pytest.approx(P95, rel=1e-3), pair


def test_nothing_is_written_again_on_the_same_day(store: EmbeddedStore, url: str) -> None:
    """A reading that sees the same calls changes no graph; on the next day each is written once, with the first day as it was."""
    job, _ = observing(store, url, "istio")
    job.turn()
    before = store.generation
    job.turn()

    assert store.generation == before

    # Of the generated hour a part is on the day before: what is seen in it is as of that day.
    later, _ = observing(store, url, "istio", at=NOW - timedelta(minutes=30))
    later.turn()
    assert store.generation == before


def test_calls_are_gone_after_a_week_and_with_them_their_externals(store: EmbeddedStore, url: str) -> None:
    """What nobody sees any more stays for seven days, and goes only in a reading in which the servers answered."""
    observing(store, url, "istio")[0].turn()
    kept, _ = observing(store, url, "istio", at=NOW + timedelta(days=6, hours=20))
    kept.turn()
    assert len(seen(store)) == 2

    unreachable, _ = observing(store, "http://127.0.0.1:9", "istio", at=NOW + timedelta(days=9))
    unreachable.turn()
    assert len(seen(store)) == 2

    gone, _ = observing(store, url, "istio", at=NOW + timedelta(days=9))
    gone.turn()
    assert seen(store) == {}
    assert store.entries(owner=OWNER) == []


def test_a_callee_that_comes_to_be_known_is_external_no_more(store: EmbeddedStore, url: str) -> None:
    """The calls of the external are removed at once, not after a week, and so is the external."""
    cart = store.entry(IRIS.expand(CART))
    assert cart
    store.apply([GraphWrite(IRIS.expand(CART), None, "test")])
    job, _ = observing(store, url, "istio")
    job.turn()
    assert (WEB, "external/cart.shop") in seen(store)

    store.apply([GraphWrite.of(IRIS.expand(CART), lines(workload(CART)), "test")])
    job.turn()

    assert seen(store).keys() == {(WEB, CART), (WEB, "external/api.example.org")}
    assert store.entry(IRIS.external("cart.shop")) is None


def test_what_a_user_describes_is_left_to_them(store: EmbeddedStore, url: str) -> None:
    """An invocation that somebody wrote by hand is not written over."""
    graph = IRIS.invocation(IRIS.expand(WEB), IRIS.expand(CART))
    ends = {"caller": IRIS.expand(WEB), "callee": IRIS.expand(CART)}
    store.apply([GraphWrite.of(graph, lines({"id": graph, "type": "Invocation", "name": "by hand", **ends}), "user")])

    job, resolver = observing(store, url, "istio")
    job.turn()

    with pytest.raises(ResourceNotFound, match="nothing tells which series"):  # else it would have the calls of all
        resolver.resolve(graph, "request_rate", Window(NOW - timedelta(minutes=30), NOW))
    entry = store.entry(graph)
    assert entry
    assert entry.owner == "user"
    assert len(seen(store)) == 2


def test_a_server_that_cannot_tell_clusters_apart_tells_no_calls(store: EmbeddedStore, url: str) -> None:
    """With a second cluster its series could be anybody's, as for every other metric."""
    store.apply(
        [
            GraphWrite.of(
                IRIS.cluster("edge"), lines({"id": IRIS.cluster("edge"), "type": "Cluster", "name": "edge"}), "test"
            )
        ]
    )
    observing(store, url, "istio")[0].turn()
    assert seen(store) == {}

    observing(store, url, "istio", clusters=["prod"])[0].turn()
    assert len(seen(store)) == 2


def test_kuscias_gateways_tell_the_calls_between_domains(store: EmbeddedStore, url: str) -> None:
    """By the route that they take, whose telemetry the invocation has; a server that is bound to no domain tells none."""
    route = IRIS.object("prod", None, "ClusterDomainRoute", "alice-bob", "kuscia.secretflow")
    ends = {
        "source": IRIS.domain("alice"),
        "destination": IRIS.domain("bob"),
        "host": ["bob.example"],
        "port": ["http"],
    }
    store.apply(
        [GraphWrite.of(route, lines({"id": route, "type": "DomainRoute", "name": "alice-bob", **ends}), "test")]
    )
    observing(store, url, "kuscia")[0].turn()
    assert seen(store) == {}

    job, resolver = observing(store, url, "kuscia", domains=["alice"])
    job.turn()

    (invocation,) = seen(store).values()
    assert seen(store).keys() == {("domain/alice", "domain/bob")}
    hour = Window(NOW - timedelta(minutes=30), NOW)
    resolution = resolver.resolve(invocation, "request_rate", hour)
    assert 'envoy_cluster_name=~"alice-to-bob-http"' in resolution.query
