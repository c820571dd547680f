"""Who may reach pods and who may read Secrets: network policies and role bindings, optional, by name only."""

from __future__ import annotations

import json
from typing import Any

import pytest

from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.kubernetes.rbac import manifests
from drumlin.kg.config.settings import Settings
from drumlin.kg.rdf.jsonld import compact
from drumlin.kg.validation.validate import validate
from drumlin.queries.catalogue import QueryCatalogue
from tests.memory_sink import MemorySink
from tests.unit.rendering import around, follow, synced, upserted
from tests.unit.test_pipeline import BASE

PREFIX = f"{BASE}prod/"


def space(name: str, **labels: str) -> dict[str, Any]:
    """A namespace with labels."""
    return {
        "kind": "Namespace",
        "metadata": {"name": name, "uid": f"n-{name}", "labels": {"kubernetes.io/metadata.name": name, **labels}},
    }


def workload(name: str, namespace: str = "shop", account: str | None = None, **labels: str) -> dict[str, Any]:
    """A Deployment whose pods have labels, by default ``app``."""
    template = {
        "metadata": {"labels": {"app": name, **labels}},
        "spec": {"containers": [{"name": "web"}], "serviceAccountName": account},
    }
    return {
        "kind": "Deployment",
        "metadata": {"name": name, "namespace": namespace, "uid": f"d-{namespace}-{name}"},
        "spec": {"template": template},
    }


def policy(spec: dict[str, Any], name: str = "web") -> dict[str, Any]:
    """A policy of the namespace shop."""
    return {"kind": "NetworkPolicy", "metadata": {"name": name, "namespace": "shop", "uid": name}, "spec": spec}


CLUSTER = [
    space("shop"), space("ops", team="ops"), space("lab", team="lab"), workload("web"), workload("api"), workload("other"),
    workload("scraper", "ops"), workload("web", "lab"),
]  # fmt: skip
WEB = {"matchLabels": {"app": "web"}}


def asked(sink: MemorySink, name: str, /, **values: str) -> set[tuple[str, ...]]:
    """Ask a saved query and return its rows, IRIs without what all have."""
    iris = around().iris
    query = QueryCatalogue.load(iris).get(name)
    rows = sink.look_up(query.bound(values, iris))
    return {tuple(row.get(column.name, "").removeprefix(PREFIX) for column in query.columns) for row in rows}


@pytest.mark.parametrize(
    ("ingress", "expected"),
    [
        ([], {("", "")}),
        (None, {("", "")}),
        ([{}], {("", "*")}),
        ([{"from": []}], {("", "*")}),
        ([{"from": [{"podSelector": {"matchLabels": {"app": "api"}}}], "ports": [{"port": 80}]}], {("shop/deployment/api", "")}),
        ([{"from": [{"podSelector": {}}]}], {("-/namespace/shop", "")}),
        ([{"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]}], {("-/namespace/ops", "")}),
        ([{"from": [{"namespaceSelector": {}}]}], {(f"-/namespace/{each}", "") for each in ("shop", "ops", "lab")}),
        ([{"from": [{"namespaceSelector": {"matchLabels": {"team": "lab"}}, "podSelector": WEB}]}], {("lab/deployment/web", "")}),
        ([{"from": [{"ipBlock": {"cidr": "10.0.0.0/8", "except": ["10.1.0.0/16", "10.2.0.0/16"]}}]}],
         {("", "10.0.0.0/8 except 10.1.0.0/16, 10.2.0.0/16")}),
        ([{"from": [{"podSelector": WEB}, {"ipBlock": {"cidr": "::/0"}}]}], {("shop/deployment/web", ""), ("", "::/0")}),
        ([{"from": [{}]}], {("", "")}),
    ],
)  # fmt: skip
def test_who_may_reach_a_workload(ingress: Any, expected: set[tuple[str, str]]) -> None:
    """Every form of a peer, as the API documents it; a policy without rules admits nobody, one with an empty rule everybody."""
    sink, run = follow([*map(upserted, [*CLUSTER, policy({"podSelector": WEB, "ingress": ingress})]), *synced()])
    graph = f"{PREFIX}shop/networkpolicy/web"

    validate(sink.graphs[graph], graph, around().iris)
    assert compact(sink.graphs[graph], graph)["selects"] == [f"{PREFIX}shop/deployment/web"]
    assert {row[1:] for row in asked(sink, "who-may-reach", workload="prod/shop/deployment/web")} == expected
    assert asked(sink, "who-may-reach", workload="prod/lab/deployment/web") == {("", "", "*")}
    assert run.summary.rejected == []


def test_a_policy_for_what_pods_send_restricts_nobody_who_reaches_them() -> None:
    """It is no entity; where no policy is for a workload, everybody may reach it."""
    sink, _ = follow([*map(upserted, [*CLUSTER, policy({"podSelector": WEB, "policyTypes": ["Egress"]})]), *synced()])

    assert f"{PREFIX}shop/networkpolicy/web" not in sink.graphs
    assert asked(sink, "who-may-reach", workload="prod/shop/deployment/web") == {("", "", "*")}


def test_a_namespace_that_is_labelled_later_is_admitted_then() -> None:
    """The order in which objects arrive does not matter."""
    rule = {"podSelector": WEB, "ingress": [{"from": [{"namespaceSelector": {"matchLabels": {"team": "ops"}}}]}]}
    sink, run = follow([*synced(), *map(upserted, [*CLUSTER, policy(rule)])])
    run.take(upserted(space("lab", team="ops")))
    run.flush()

    peers = {row[1] for row in asked(sink, "who-may-reach", workload="prod/shop/deployment/web")}
    assert peers == {"-/namespace/ops", "-/namespace/lab"}


# -- roles ------------------------------------------------------------------------------------------------------------------


def role(rules: list[dict[str, Any]], kind: str = "Role", name: str = "reader") -> dict[str, Any]:
    """A role of the namespace shop, or of the cluster."""
    place = {"namespace": "shop"} if kind == "Role" else {}
    return {"kind": kind, "metadata": {"name": name, "uid": f"{kind}-{name}", **place}, "rules": rules}


def binding(
    *subjects: dict[str, str], role: str = "Role/reader", kind: str = "RoleBinding", name: str = "b"
) -> dict[str, Any]:
    """A binding of that role."""
    place = {"namespace": "shop"} if kind == "RoleBinding" else {}
    of, _, named = role.partition("/")
    return {
        "kind": kind,
        "metadata": {"name": name, "uid": f"{kind}-{name}", **place},
        "roleRef": {"apiGroup": "rbac.authorization.k8s.io", "kind": of, "name": named},
        "subjects": list(subjects),
    }


def account(name: str, namespace: str = "shop") -> dict[str, str]:
    """A service account as the subject of a binding."""
    return {"kind": "ServiceAccount", "name": name, "namespace": namespace}


def group(name: str) -> dict[str, str]:
    """A group as the subject of a binding."""
    return {"kind": "Group", "name": name, "apiGroup": "rbac.authorization.k8s.io"}


SECRETS = {"apiGroups": [""], "resources": ["secrets"], "verbs": ["get"]}
TLS = [{**SECRETS, "resourceNames": ["tls"]}]
APPS = [workload("web", account="web"), workload("api"), workload("web", "lab", account="web")]


@pytest.mark.parametrize(
    ("objects", "expected"),
    [
        ([role(TLS), binding(account("web"))], {("shop/web", "shop/deployment/web", "shop/rolebinding/b", "Role/reader")}),
        ([role([{**SECRETS, "resourceNames": ["other"]}]), binding(account("web"))], set()),
        ([role([{**SECRETS, "verbs": ["create", "delete"]}]), binding(account("web"))], set()),
        ([role([{**SECRETS, "apiGroups": ["apps"]}]), binding(account("web"))], set()),
        ([role([{"apiGroups": ["*"], "resources": ["*"], "verbs": ["*"]}]), binding(account("default"))],
         {("shop/default", "shop/deployment/api", "shop/rolebinding/b", "Role/reader")}),
        ([role([SECRETS], "ClusterRole", "view"), binding(account("web", "lab"), role="ClusterRole/view")],
         {("lab/web", "lab/deployment/web", "shop/rolebinding/b", "ClusterRole/view")}),
        ([role([SECRETS], "ClusterRole", "view"), binding(group("system:serviceaccounts:lab"), role="ClusterRole/view", kind="ClusterRoleBinding")],
         {("lab/*", "lab/deployment/web", "-/clusterrolebinding/b", "ClusterRole/view")}),
        ([role([SECRETS], "ClusterRole", "view"), binding(group("system:authenticated"), role="ClusterRole/view", kind="ClusterRoleBinding")],
         {("*/*", each, "-/clusterrolebinding/b", "ClusterRole/view")
          for each in ("lab/deployment/web", "shop/deployment/web", "shop/deployment/api")}),
        ([role([SECRETS]), binding({"kind": "User", "name": "canary@example.org"}, group("canary"))], set()),
        ([binding(account("web"), role="Role/missing")], set()),
        ([role([SECRETS]), binding(account("gone"))], {("shop/gone", "", "shop/rolebinding/b", "Role/reader")}),
    ],
)  # fmt: skip
def test_who_may_read_a_secret(objects: list[dict[str, Any]], expected: set[tuple[str, ...]]) -> None:
    """By each form of rule, role, binding and subject; people are left out, also by name."""
    for order in (objects, objects[::-1]):
        sink, run = follow([*map(upserted, [*APPS, *order]), *synced()])

        assert asked(sink, "who-may-read-secret", namespace="shop", name="tls") == expected
        assert "canary" not in json.dumps([*map(sorted, sink.graphs.values())])
        assert run.summary.rejected == []
        for graph in sink.graphs:
            validate(sink.graphs[graph], graph, around().iris)


def test_a_binding_of_another_namespace_and_a_pod_that_takes_the_secret() -> None:
    """A RoleBinding holds in its namespace alone; the kubelet gives a pod the Secret that it takes, whatever its role."""
    web = workload("web", account="web")
    web["spec"]["template"]["spec"]["imagePullSecrets"] = [{"name": "tls"}]
    sink, _ = follow([*map(upserted, [web, role(TLS), binding(account("web"))]), *synced()])

    assert asked(sink, "who-may-read-secret", namespace="lab", name="tls") == set()
    found = asked(sink, "who-may-read-secret", namespace="shop", name="tls")
    assert found == {
        ("shop/web", "shop/deployment/web", "shop/rolebinding/b", "Role/reader"),
        ("shop/web", "shop/deployment/web", "", ""),
    }


def test_these_kinds_and_their_rights_follow_the_configuration() -> None:
    """Nothing of them is listed or allowed without the setting, and no Secret with it."""
    plain, full = (
        manifests(kinds_of(Settings(optional_kinds=each))) for each in ((), ("networkpolicies", "rolebindings"))
    )

    for each in ("networkpolicies", "clusterrolebindings, clusterroles, rolebindings, roles"):
        assert each not in plain
        assert each in full
    assert "secrets" not in full.replace("No secrets", "")
