"""Energy and cost per team, application, kind, namespace and node on a real Prometheus: what was written, to the joule, gone pods too."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from drumlin.kg.errors import InvalidInput, ResourceNotFound
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry.history import History
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from tests.integration.conftest import CADVISOR, OpenMetrics, RealPrometheus, at, minutes, serving
from tests.unit.telemetry_store import CLUSTER, IRIS, GraphStore, pod, workload

END = 230
ASKED: dict[str, Any] = {"start": at(10), "end": at(END), "step": "10m"}
"""Whole steps from the first sample on: every joule before ``END`` is in one point."""
POWER = {  # joules a minute, and between which minutes
    ("shop", "web-86b96c86dc-aaaaa"): (10, 0, 120),
    ("shop", "web-86b96c86dc-bbbbb"): (10, 120, 240),
    ("shop", "db-0"): (5, 0, 240),
    ("core", "db-0"): (100, 0, 240),
    ("core", "gateway-86b96c86dc-ccccc"): (3, 0, 240),
    ("shop", "batch-1-ddddd"): (60, 0, 60),
    ("core", "nightly-29930271-eeeee"): (7, 60, 120),
    ("core", "lone"): (1, 0, 240),
    ("shop", "stranger"): (2, 0, 240),
}
"""``stranger`` is in no graph; ``db-0`` is in two namespaces, and that of shop moves from n1 to n2."""


def _energy(*pods: tuple[str, str]) -> float:
    return float(sum(power * (min(end, END) - start) for power, start, end in (POWER[each] for each in pods)))


WEB = [("shop", "web-86b96c86dc-aaaaa"), ("shop", "web-86b96c86dc-bbbbb")]
BATCH, NIGHTLY = ("shop", "batch-1-ddddd"), ("core", "nightly-29930271-eeeee")
GATEWAY, LONE = ("core", "gateway-86b96c86dc-ccccc"), ("core", "lone")
SHOP_DB, CORE_DB = ("shop", "db-0"), ("core", "db-0")
TRUTH = {
    "applicationGroup": {
        "applicationGroup/shop": _energy(*WEB, SHOP_DB, GATEWAY, BATCH),
        "applicationGroup/platform": _energy(CORE_DB, NIGHTLY),
        "applicationGroup/-": _energy(LONE),
    },
    "application": {
        "application/web": _energy(*WEB),
        "application/db": _energy(SHOP_DB, CORE_DB),
        "application/batch%20job": _energy(BATCH),
        "application/-": _energy(GATEWAY, NIGHTLY, LONE),
    },
    "team": {
        "team/red": _energy(*WEB, BATCH),
        "team/blue": _energy(SHOP_DB),
        "team/infra": _energy(CORE_DB, GATEWAY, NIGHTLY, LONE),
    },
    "kind": {
        "kind/Deployment": _energy(*WEB, GATEWAY),
        "kind/StatefulSet": _energy(SHOP_DB, CORE_DB),
        "kind/Job": _energy(BATCH),
        "kind/CronJob": _energy(NIGHTLY),
        "kind/Pod": _energy(LONE),
    },
    "node": {
        "node/prod/n1": _energy(*WEB, BATCH) + 5 * 120,
        "node/prod/n2": _energy(CORE_DB, GATEWAY, NIGHTLY, LONE) + 5 * (END - 120),
    },
    "namespace": {
        "prod/-/namespace/shop": _energy(*WEB, SHOP_DB, BATCH, ("shop", "stranger")),
        "prod/-/namespace/core": _energy(CORE_DB, GATEWAY, NIGHTLY, LONE),
    },
}


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RealPrometheus]:
    """A Prometheus with Kepler's counters, and the traffic of two pods, one of them on its node's network."""
    samples = OpenMetrics()
    for (namespace, name), (power, start, end) in POWER.items():
        labels = {"pod_namespace": namespace, "pod_name": name, "zone": "package"}
        reset = 120 if (namespace, name) == SHOP_DB else 0  # it begins anew on the other node
        # Past 0: a server reads a counter that is near it as one that began then, and gives its first window a scrape less.
        values = {m: power * (m - reset) if 0 < reset < m else 1000 + power * m for m in minutes(start, end + 1)}
        samples.add("kepler_pod_cpu_joules_total", labels, values)
    for name, rate in ((WEB[1][1], 600), ("agent-fffff", 60_000)):
        labels = {**CADVISOR, "namespace": "shop", "pod": name}
        for direction in ("receive", "transmit"):
            metric = f"container_network_{direction}_bytes_total"
            samples.add(metric, labels, {m: rate * m for m in minutes(120, 241)})
    with serving(samples, tmp_path_factory.mktemp("groups")) as running:
        yield running


def _time(minute: int) -> str:
    return at(minute).isoformat().replace("+00:00", "Z")


def _gone(document: NodeDocument, minute: int) -> NodeDocument:
    return document | {"type": "Tombstone", "formerType": document["type"], "invalidatedAt": _time(minute)}


def _pod(where: tuple[str, str], manager: str | None, node: str, *, gone: bool = False) -> NodeDocument:
    _, start, end = POWER[where]
    found = dict(pod(*where, manager or "", [(_time(start), _time(end) if end < 240 else None)], gone=gone))
    if manager is None:
        del found["managedBy"]
    for run in found["runs"]:
        run["scheduledOn"] = IRIS.object("prod", None, "Node", node)
    return found


def _graph() -> GraphStore:
    def iri(kind: str, namespace: str, name: str) -> str:
        return IRIS.object("prod", namespace, kind, name)

    def member(kind: str, namespace: str, name: str, **more: Any) -> NodeDocument:
        return workload(kind, namespace, name, began=_time(0), **more)

    web, batch = iri("Deployment", "shop", "web"), iri("Job", "shop", "batch-1")
    job = iri("Job", "core", "nightly-29930271")
    moved = _pod(SHOP_DB, iri("StatefulSet", "shop", "db"), "n1")
    first, second = dict(moved["runs"][0]), dict(moved["runs"][0])
    first["endedAt"] = second["startedAt"] = _time(120)
    second |= {"id": f"{second['id']}-again", "scheduledOn": IRIS.object("prod", None, "Node", "n2")}
    named = {"label": ["app.kubernetes.io/name=batch job", "team=red"]}
    traffic = [
        {"id": IRIS.metric(iri("DaemonSet", "shop", "agent"), each), "type": "Metric", "name": each}
        for each in ("cpu_usage",)
    ]
    telemetry = {
        "id": IRIS.telemetry(iri("DaemonSet", "shop", "agent"), "metrics"),
        "type": "Telemetry",
        "hasPart": traffic,
    }
    shop = IRIS.object("prod", None, "Namespace", "shop")
    return GraphStore(
        [
            {"id": shop, "type": "Namespace", "name": "shop"},
            {
                "id": IRIS.object("prod", None, "Namespace", "core"),
                "type": "Namespace",
                "name": "core",
                "label": ["team=infra"],  # of what in it says nothing itself
                "domain": IRIS.domain("bob"),
            },
            {"id": IRIS.domain("bob"), "type": "Domain", "name": "bob"},
            member("Deployment", "shop", "web", application="web", applicationGroup="shop", label=["team=red"]),
            _pod(WEB[0], web, "n1", gone=True),
            _pod(WEB[1], web, "n1"),
            member("StatefulSet", "shop", "db", application="db", applicationGroup="shop", label=["team=blue"]),
            moved | {"runs": [first, second]},
            member("StatefulSet", "core", "db", application="db", applicationGroup="platform"),
            _pod(CORE_DB, iri("StatefulSet", "core", "db"), "n2"),
            member("Deployment", "core", "gateway", applicationGroup="shop"),
            _pod(GATEWAY, iri("Deployment", "core", "gateway"), "n2"),
            _gone(member("Job", "shop", "batch-1", applicationGroup="shop", **named), 60),
            _pod(BATCH, batch, "n1", gone=True),
            member("CronJob", "core", "nightly", applicationGroup="platform"),
            _gone(member("Job", "core", "nightly-29930271", managedBy=iri("CronJob", "core", "nightly")), 120),
            _pod(NIGHTLY, job, "n2", gone=True),
            _pod(LONE, None, "n2"),
            member("DaemonSet", "shop", "agent", telemetry=[telemetry], partOf=shop),
            {
                "id": IRIS.template("workload.energy_cost"),
                "type": "MetricTemplate",
                "name": "energy_cost",
                "scope": "Workload",
                "title": "What the energy costs",
                "signal": "metrics",
                "quantity": "energy",
                "unit": "{EUR}",
                "metricType": "counter",
                "exporter": "kepler",
                "datasourceType": "prometheus",
                "query": "sum(increase(kepler_pod_cpu_joules_total{pod_namespace={{namespace}},pod_name=~{{pods}},"
                'zone="package"}[{{window}}])) * 0.25 / 3600000',
            },
            {"id": CLUSTER, "type": "Cluster", "name": "prod"},
        ]
    )


@pytest.fixture(scope="module")
def resolver(server: RealPrometheus) -> Resolver:
    """A resolver over the graph and the real server."""
    return Resolver(_graph(), IRIS, [server.datasource()])


def _sums(resolver: Resolver, wanted: list[str], metric: str, **more: Any) -> dict[str, float]:
    with History(resolver) as history:
        rows = history.fetch(wanted, metric, **{**ASKED, **more}).table.to_pylist()
    found: dict[str, float] = {}
    for row in rows:
        found[row["unique_id"]] = found.get(row["unique_id"], 0) + (row["y"] or 0)
    return found


@pytest.mark.parametrize("by", TRUTH)
def test_the_energy_of_each_group_is_what_was_written(resolver: Resolver, by: str) -> None:
    """Every joule is in one group and none is in two: of pods that are gone, of deleted jobs, of names that are in two namespaces."""
    groups = resolver.groups(by, Window(at(0), at(END)))

    assert groups == list(TRUTH[by]) or set(groups) == set(TRUTH[by])
    assert _sums(resolver, groups, "energy_joules") == pytest.approx(TRUTH[by], rel=1e-9)


def test_only_what_is_selected_counts(resolver: Resolver) -> None:
    """Of one namespace, or of some workloads, the groups have only those pods."""
    core = frozenset({IRIS.object("prod", None, "Namespace", "core")})
    of_domain = resolver.groups("kind", Window(at(0), at(END)), frozenset({IRIS.domain("bob")}))
    assert of_domain == resolver.groups("kind", Window(at(0), at(END)), core)

    groups = resolver.groups("application_group", Window(at(0), at(END)), core)
    found = _sums(resolver, groups, "energy_joules", among=core)

    assert found == pytest.approx(
        {
            "applicationGroup/platform": _energy(CORE_DB, NIGHTLY),
            "applicationGroup/shop": _energy(GATEWAY),
            "applicationGroup/-": _energy(LONE),
        }
    )


def test_cost_is_a_template_away(resolver: Resolver) -> None:
    """A template of one's own with a price gives the cost of each team; a unit converts energy."""
    team = "team/red"

    assert _sums(resolver, [team], "energy_cost")[team] == pytest.approx(_energy(*WEB, BATCH) * 0.25 / 3.6e6)
    assert _sums(resolver, [team], "energy_joules", unit="kWh")[team] == pytest.approx(_energy(*WEB, BATCH) / 3.6e6)


def test_one_query_asks_for_one_group(resolver: Resolver) -> None:
    """The query is one line that can be run, with the pods that ran; a near name is suggested for a group that there is not."""
    found = resolver.resolve("applicationGroup/shop", "energy_joules", Window(at(10), at(END)), step="10m")

    assert found.entity == "https://kg.example/id/applicationGroup/shop"
    assert found.query.count("kepler_pod_cpu_joules_total") == 2
    assert "shop/batch-1-ddddd" in found.pods
    with pytest.raises(ResourceNotFound, match="no pod with applicationGroup 'shp'") as error:
        resolver.resolve("applicationGroup/shp", "energy_joules", Window(at(10), at(END)))
    assert error.value.hint == "did you mean shop?"
    with pytest.raises(ResourceNotFound, match="cpu_utilisation"):
        resolver.resolve("applicationGroup/shop", "cpu_utilisation", Window(at(10), at(END)))
    with pytest.raises(InvalidInput, match="nothing to group by"):
        resolver.groups("applicaton", Window(at(10), at(END)))


def test_the_traffic_of_nodes_is_no_namespaces(resolver: Resolver) -> None:
    """A pod that uses its node's network reports the node's traffic, which does not count for its namespace."""
    found = _sums(resolver, ["prod/-/namespace/shop"], "network_usage", start=at(130), end=at(200))

    assert found["prod/-/namespace/shop"] == pytest.approx(8 * 2 * 10.0)
