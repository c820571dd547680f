"""The cookbook: every question in ``queries/`` is asked of the recorded cluster and answered from its manifests by other code."""

from __future__ import annotations

import json
import os
import re
from collections import Counter
from copy import deepcopy
from decimal import Decimal
from functools import cache
from pathlib import Path
from typing import Any

import pyoxigraph as ox
import pytest

from drumlin.exporters.pipeline.hosting_domain import ensure
from drumlin.kg.sparql import gate
from tests.contract.cookbook_answers import ANSWERS, KINDS, NS, B, concept, iri, workloads
from tests.contract.test_cluster import CLUSTER, OBSERVED, SHARED, change, objects, replayed
from tests.memory_sink import MemorySink
from tests.unit.rendering import CONTRACT, around, following, synced

QUERIES = Path(__file__).parents[2] / "queries"
NAMES = sorted(path.stem for path in QUERIES.glob("*.rq"))
SETTINGS = {
    **CONTRACT,
    "discover": False,
    "datasource": [
        {"name": "prometheus-main", "kind": "prometheus", "url": "http://prometheus.monitoring.svc:9090"},
        {"name": "loki-main", "kind": "loki", "url": "http://loki.monitoring.svc:3100"},
        {
            "name": "grafana-main",
            "kind": "grafana",
            "url": "https://grafana.example",
            "dashboards": {"workload": "https://grafana.example/d/{namespace}/{name}"},
        },
    ],
}
ASKED: dict[str, list[dict[str, str]]] = {
    "metrics-of-quantity": [{"quantity": concept(each)} for each in ("energy", "cpu", "network", "gpu")],
    "pods-on-node": [{"node": f"{B}prod/-/node/{each}"} for each in ("edge-a-1", "edge-b-1", "edge-b-arm-1", "none")],
    "pods-of-workload": [
        {"workload": f"{B}prod/{each}"} for each in ("payments/deployment/checkout", "search/cronjob/reindex")
    ],
    "users-of-configuration": [
        {"namespace": "payments", "name": each} for each in ("ledger", "other", "shared", "checkout-secret", "none")
    ],
    "users-of-data": [
        {"asset": f"{B}{each}"}
        for each in ("prod/ml/persistentvolumeclaim/training-data", "external/postgres~db.example~ledger")
    ],
    "blast-radius": [
        {"entity": f"{B}{each}"}
        for each in (
            "prod/ml/persistentvolumeclaim/training-data",
            "external/postgres~db.example~ledger",
            "external/s3~lake~raw",
        )
    ],
    "release": [{"name": each} for each in ("helm:payments/shop", "gateway", "none")],
    "receivers": [{"service": f"{B}prod/payments/service/{each}"} for each in ("ledger", "checkout", "none")],
    "who-may-reach": [{"workload": f"{B}prod/payments/deployment/{each}"} for each in ("checkout", "ledger", "none")],
    "who-may-read-secret": [{"namespace": "payments", "name": each} for each in ("other", "checkout-secret", "none")],
    "workloads-with-image": [{"text": each} for each in ("fluentd", "checkout:2.3", 'no"such\\image')],
    "workloads-with-label": [
        {"label": each} for each in ("app.kubernetes.io/name=checkout", "app.kubernetes.io/name=none")
    ],
    "targets-hosts": [{"port": "9100"}, {"port": "9256"}],
    "application": [{"application": each} for each in ("checkout", "shop", "web")],
    "workloads-of-domain": [{"domain": f"{B}domain/{each}"} for each in ("glaciation-node1", "alice")],
}
"""What the questions with parameters are asked with."""

KUSCIA = {"domain-board", "grants-of", "job-dag", "lineage", "who-may-read", "why-failed"}
"""Questions about a network of domains, answered in test_kuscia_run.py from what its run is known to be."""
AGENTS = {"agents-of", "agents-by-tag", "managed-by", "silent-agents"}
"""Questions about what agents register, answered in tests/store/test_agents.py."""
CALLS = {"calls", "callers", "functions", "scaling"}
"""Questions about functions and calls, of which the recorded cluster has none: test_functions.py."""
OF_OTHERS = {"rollouts", "run-annotations", "targets-agents", "targets-pods"}
"""Questions of Grafana and Prometheus, answered in test_kuscia_run.py and tests/integration/test_dashboards.py."""
OTHERWISE = (
    {
        "alerts",
        "runs",
        "runs-on-node",
        "runs-of-workload",
        "requests-on-node",
        "classes",
        "what-is",
        "why-failing",
        "restarts",
    }
    | KUSCIA
    | AGENTS
    | CALLS
    | OF_OTHERS
)
"""Questions that are answered from something else than the manifests of one moment."""

pytestmark = pytest.mark.skipif(
    not CLUSTER.is_dir() and os.environ.get("CI") != "true", reason="no recorded cluster at ../shared/data/cluster"
)


def trouble(found: dict[str, list[dict[str, Any]]]) -> None:
    """Break what can break, so that the questions about it have an answer."""

    def one(kind: str, name: str) -> dict[str, Any]:
        return next(each for each in found[kind] if each["metadata"]["name"] == name)

    one("Node", "edge-a-2")["spec"]["unschedulable"] = True
    one("Node", "edge-a-2")["spec"]["taints"] = [
        {"key": "node.kubernetes.io/unschedulable", "effect": "NoSchedule"},
        {"key": "gpu", "value": "yes", "effect": "NoExecute"},
    ]
    one("Node", "edge-a-2")["metadata"]["labels"]["cloud.google.com/gke-nodepool"] = "gpu-pool"
    one("Node", "edge-b-2")["status"]["conditions"] = [{"type": "Ready", "status": "False"}]
    one("Node", "edge-b-1")["status"]["conditions"] = [{"type": "Ready", "status": "Unknown"}]
    one("Deployment", "grafana")["spec"]["replicas"] = 0
    one("Deployment", "feature-store")["status"]["conditions"] = [{"type": "Progressing", "status": "False"}]
    one("CronJob", "reindex")["spec"]["suspend"] = True
    one("DaemonSet", "node-exporter")["spec"]["template"]["spec"]["hostNetwork"] = True
    one("Deployment", "ledger")["spec"]["template"]["spec"]["containers"][0]["resources"] = {
        "requests": {"cpu": "1500m"}
    }
    uses = one("Deployment", "ledger")["spec"]["template"]["spec"]
    uses |= {"serviceAccountName": "ledger", "imagePullSecrets": [{"name": "ledger"}]}
    uses["volumes"] = [
        {"name": "a", "configMap": {"name": "ledger"}},
        {"name": "b", "projected": {"sources": [{"secret": {"name": "other"}}, {"configMap": {"name": "other"}}]}},
    ]
    uses["containers"][0]["envFrom"] = [{"configMapRef": {"name": "shared"}}, {"secretRef": {"name": "shared"}}]
    one("Deployment", "ledger")["metadata"]["annotations"] |= {
        "drumlin.io/depends-on": "postgres://ledger:canary@db.example/ledger, s3://lake/raw"
    }
    one("Deployment", "checkout")["metadata"]["annotations"] |= {"drumlin.io/depends-on": "s3://lake/raw"}
    slice_ = next(each for each in found["EndpointSlice"] if each["metadata"]["name"].startswith("ledger"))
    slice_["endpoints"][0]["conditions"]["ready"] = False
    found |= guards()
    one("Job", "reindex-29930272")["status"] = {
        "conditions": [{"type": "Failed", "status": "True", "lastTransitionTime": "2026-11-27T21:52:09Z"}]
    }
    pending = one("Pod", "inference-5f9576cb9-dx4wh")
    del pending["spec"]["nodeName"], pending["status"]["startTime"]
    pending["status"]["phase"] = "Pending"


def guards() -> dict[str, list[dict[str, Any]]]:
    """A policy that lets the pods of ledger and some addresses reach those of checkout, and a role by which ledger reads a Secret."""

    def meta(name: str) -> dict[str, Any]:
        return {"name": name, "namespace": "payments", "uid": name}

    def pods(name: str) -> dict[str, Any]:
        return {"podSelector": {"matchLabels": {"app.kubernetes.io/name": name}}}

    peers = [pods("ledger"), {"ipBlock": {"cidr": "10.0.0.0/8"}}]
    rule = {"apiGroups": [""], "resources": ["secrets"], "resourceNames": ["other"], "verbs": ["get"]}
    binding = {
        "kind": "RoleBinding",
        "metadata": meta("readers"),
        "roleRef": {"kind": "Role", "name": "readers"},
        "subjects": [{"kind": "ServiceAccount", "name": "ledger"}],
    }
    return {
        "NetworkPolicy": [
            {
                "kind": "NetworkPolicy",
                "metadata": meta("checkout"),
                "spec": {**pods("checkout"), "ingress": [{"from": peers}]},
            }
        ],
        "Role": [{"kind": "Role", "metadata": meta("readers"), "rules": [rule]}],
        "RoleBinding": [binding],
    }


@cache
def state(name: str) -> tuple[dict[str, list[dict[str, Any]]], ox.Store]:
    """Give the manifests of a moment and the graph that the exporter makes of them."""
    found: dict[str, list[dict[str, Any]]] = {}
    for each in objects("before" if name == "before" else "after"):
        found.setdefault(each["kind"], []).append(deepcopy(each))
    if name == "troubled":
        trouble(found)
    surroundings, sink = around(SETTINGS), MemorySink()
    ensure(sink, surroundings.settings, surroundings.iris, surroundings.catalogue, surroundings.datasources)
    run = following(sink, surroundings)
    changes = [change(each) for listed in found.values() for each in listed]
    for each in [*changes, *synced(observed=OBSERVED)]:
        run.take(each)
    run.flush(everything=True)
    return found, engine(sink)


def engine(sink: MemorySink) -> ox.Store:
    """Put the graphs of a sink into an engine."""
    store = ox.Store()
    for graph, lines in sink.graphs.items():
        triples = ox.parse("\n".join(lines).encode(), format=ox.RdfFormat.N_TRIPLES)
        store.extend(ox.Quad(each.subject, each.predicate, each.object, ox.NamedNode(graph)) for each in triples)
    return store


HEADER = re.compile(r"# (title|description|param|column|fetch)(?: (\w+)(?: (\w+))?(?: ([^:\s]+))?)?: (.+)")
TYPES = {"id", "concept", "string", "integer", "dateTime"}


def header(text: str) -> list[tuple[str, str, str]]:
    """Read the comments that say what a query is: (what, name, type) each."""
    comments = [line for line in text.splitlines() if line.startswith("#")]
    found = [HEADER.fullmatch(line) for line in comments]
    assert all(found), comments
    return [(each[1], each[2] or "", each[3] or "") for each in found if each]


def ask(store: ox.Store, name: str, values: dict[str, str]) -> list[tuple[Any, ...]]:
    """Ask a question with its parameters bound to terms, and return its rows as the answers are written."""
    text = (QUERIES / f"{name}.rq").read_text(encoding="utf-8")
    kinds = {param: kind for what, param, kind in header(text) if what == "param"}
    assert kinds.keys() == values.keys()
    bound = "".join(f" VALUES ?{param} {{ {_term(values[param], kind)} }}" for param, kind in kinds.items())
    found = store.query(text.replace("WHERE {", f"WHERE {{{bound}", 1), use_default_graph_as_union=True)
    assert isinstance(found, ox.QuerySolutions)
    return [tuple(_value(term) for term in row) for row in found]


def _term(value: str, kind: str) -> ox.NamedNode | ox.Literal:
    if kind in ("id", "concept"):
        return ox.NamedNode(value)
    datatype = ox.NamedNode("http://www.w3.org/2001/XMLSchema#dateTime") if kind == "dateTime" else None
    return ox.Literal(value, datatype=datatype)


def _value(term: Any) -> Any:
    if isinstance(term, ox.Literal) and term.datatype.value.rpartition("#")[2] in ("decimal", "integer"):
        return Decimal(term.value)
    return None if term is None else term.value


def masked(rows: list[tuple[Any, ...]], like: list[tuple[Any, ...]]) -> Counter[tuple[Any, ...]]:
    """Leave out the columns that the answers leave out, and count equal rows."""
    hidden = {place for row in like[:1] for place, cell in enumerate(row) if cell is ...}
    return Counter(tuple(... if place in hidden else cell for place, cell in enumerate(row)) for row in rows)


CASES = [
    pytest.param(name, values, moment, id=f"{name}-{number}-{moment}")
    for name in sorted(ANSWERS)
    for number, values in enumerate(ASKED.get(name, [{}]))
    for moment in ("before", "after", "troubled")
]


@pytest.mark.parametrize(("name", "values", "moment"), CASES)
def test_the_answer_is_what_the_manifests_say(name: str, values: dict[str, str], moment: str) -> None:
    """Code that never touches the graph computes the same rows, before, after, and when things are broken."""
    found, store = state(moment)
    expected = list(ANSWERS[name](found, **values))

    assert masked(ask(store, name, values), expected) == Counter(expected)


@pytest.mark.parametrize("name", sorted(ANSWERS))
def test_no_question_has_only_empty_answers(name: str) -> None:
    """A question that the recorded cluster cannot answer is not tested by it."""
    assert any(
        list(ANSWERS[name](state(moment)[0], **values))
        for values in ASKED.get(name, [{}])
        for moment in ("before", "after", "troubled")
    )


@pytest.fixture(scope="module")
def past() -> ox.Store:
    """The graph after everything that was recorded, with what is gone."""
    return engine(replayed())


def listed(kind: str) -> list[dict[str, Any]]:
    """Return the runs of a kind that the contract lists; an end that only the watcher saw is when it saw it."""
    found = json.loads((SHARED / "contract" / "runs.json").read_text())
    observed = f"{OBSERVED:%Y-%m-%dT%H:%M:%SZ}"
    return [
        {**each, "end": observed if each["end"] == "observed" else each["end"]}
        for each in found
        if each["kind"] == kind
    ]


def run_row(run: dict[str, Any]) -> tuple[Any, ...]:
    """Write a listed run as the row of the question ``runs``."""
    pod = f"{B}prod/{run['namespace']}/pod/{run['name']}"
    node = f"{B}prod/-/node/{run['node']}" if run.get("node") else None
    return pod, node, run["start"], run["end"], run["outcome"] and concept(run["outcome"])


@pytest.mark.parametrize(
    ("begin", "until"),
    [
        ("2026-11-27T21:00:00Z", "2026-11-27T23:00:00Z"),
        ("2026-11-27T21:51:00Z", "2026-11-27T21:51:30Z"),
        ("2026-11-27T21:52:00Z", "2026-11-27T21:52:01Z"),
        ("2026-11-26T00:00:00Z", "2026-11-26T01:00:00Z"),
    ],
)
def test_runs_of_a_window_are_those_of_the_contract(past: ox.Store, begin: str, until: str) -> None:
    """What ran where and when is known for pods that are gone too."""
    expected = [
        run_row(each)
        for each in listed("Pod")
        if each["start"] < until and (each["end"] is None or each["end"] > begin)
    ]

    assert Counter(ask(past, "runs", {"from": begin, "until": until})) == Counter(expected)


@pytest.mark.parametrize("node", ["edge-a-1", "edge-b-1", "edge-b-arm-1"])
def test_runs_on_a_node_are_those_of_the_contract(past: ox.Store, node: str) -> None:
    """Also of a node that is itself gone."""
    expected = [(row[0], *row[2:]) for row in map(run_row, listed("Pod")) if row[1] == f"{B}prod/-/node/{node}"]

    assert expected
    assert Counter(ask(past, "runs-on-node", {"node": f"{B}prod/-/node/{node}"})) == Counter(expected)


@pytest.mark.parametrize("workload", ["payments/deployment/checkout", "search/cronjob/reindex"])
def test_runs_of_a_workload_are_those_of_its_pods(past: ox.Store, workload: str) -> None:
    """Of a Deployment itself, and of a CronJob through its Jobs; the newest first, also of pods that are gone."""
    namespace, _, name = workload.split("/")
    expected = [run_row(each) for each in listed("Pod") if f"/{namespace}/pod/{name}-" in run_row(each)[0]]
    found = ask(past, "runs-of-workload", {"workload": f"{B}prod/{workload}"})

    assert expected
    assert Counter(found) == Counter(expected)
    assert [row[2] for row in found] == sorted((row[2] for row in found), reverse=True)


def test_requests_on_a_node_are_its_row_of_all_nodes(past: ox.Store) -> None:
    """One node alone has the sums that it has among all."""
    rows = ask(past, "requests-per-node", {})

    assert rows
    for node, *sums in rows:
        ((cpu, memory, pods, *allocatable),) = ask(past, "requests-on-node", {"node": node})
        assert [cpu, memory, *allocatable] == sums
        assert int(pods) > 0


def test_classes_are_counted_as_the_manifests_are() -> None:
    """As many nodes, pods, services and workloads of each kind as there are objects."""
    found, store = state("after")
    expected = Counter(kind for _, kind, _ in workloads(found))
    expected.update({kind: len(found[kind]) for kind in ("Node", "Pod", "Service", "Namespace")})

    answer = {row[0].removeprefix(NS): row[1] for row in ask(store, "classes", {})}

    assert {kind: answer.get(kind, 0) for kind in expected} == expected
    assert set(KINDS) & answer.keys() == set(KINDS) & expected.keys()


def test_what_is_tells_what_the_manifest_does() -> None:
    """A node's row of properties has its name, version, architecture, zone and size."""
    found, store = state("after")
    node = next(each for each in found["Node"] if each["metadata"]["name"] == "edge-a-gpu-1")

    answer = dict(ask(store, "what-is", {"entity": iri(node, "Node")}))

    assert answer[f"{NS}name"] == "edge-a-gpu-1"
    assert answer[f"{NS}kubeletVersion"] == node["status"]["nodeInfo"]["kubeletVersion"]
    assert answer[f"{NS}architecture"] == node["metadata"]["labels"]["kubernetes.io/arch"]
    assert answer[f"{NS}gpuCapacity"] == Decimal(node["status"]["capacity"]["nvidia.com/gpu"])


# -- the files ------------------------------------------------------------------------------------------------------------


def test_every_question_is_answered_and_there_are_enough() -> None:
    """At least 25 questions, none without an answer that is computed elsewhere."""
    assert len(NAMES) >= 25
    assert set(NAMES) == ANSWERS.keys() | OTHERWISE


@pytest.mark.parametrize("name", NAMES)
def test_a_query_says_what_it_asks_and_passes_the_gate(name: str) -> None:
    """Title, description, typed parameters, and each column in the order of the result; nothing that callers may not send."""
    text = (QUERIES / f"{name}.rq").read_text(encoding="utf-8")
    found = header(text)

    gate.check(text, max_bytes=10_000)
    assert [what for what, _, _ in found[:2]] == ["title", "description"]
    assert {kind for what, _, kind in found if what == "param"} <= TYPES
    solutions = ox.Store().query(text)
    assert isinstance(solutions, ox.QuerySolutions)
    assert [column for what, column, _ in found if what == "column"] == [each.value for each in solutions.variables]
    assert re.search(r"\?\s*$", next(line for line in text.splitlines() if line.startswith("# title:")))


def test_the_cookbook_page_lists_every_question() -> None:
    """The page cannot fall behind."""
    page = (QUERIES.parent / "docs" / "cookbook.md").read_text(encoding="utf-8")

    for name in NAMES:
        title = re.search(r"^# title: (.+)$", (QUERIES / f"{name}.rq").read_text(encoding="utf-8"), re.MULTILINE)
        assert title
        assert f"| `{name}` | {title[1]} |" in page, name
