"""What brought an object into the cluster, from labels and annotations of Helm, Argo CD and Flux, copies and other odd ones included."""

from __future__ import annotations

from typing import Any

import pytest

from drumlin.kg.rdf.jsonld import compact
from drumlin.queries.catalogue import QueryCatalogue
from tests.memory_sink import MemorySink
from tests.unit.rendering import around, follow, upserted
from tests.unit.test_pipeline import BASE, deployment, pod, replicaset

HELM = {"app.kubernetes.io/managed-by": "Helm"}
RELEASE, SPACE = "meta.helm.sh/release-name", "meta.helm.sh/release-namespace"
TRACKING, INSTANCE = "argocd.argoproj.io/tracking-id", "argocd.argoproj.io/instance"


def flux(tool: str, name: str, namespace: str | None) -> dict[str, str]:
    """The labels of what Flux applies."""
    named = {f"{tool}.toolkit.fluxcd.io/name": name}
    return named | ({f"{tool}.toolkit.fluxcd.io/namespace": namespace} if namespace else {})


CASES: dict[str, tuple[dict[str, str], dict[str, str], list[str]]] = {
    "helm": (HELM, {RELEASE: "web", SPACE: "shop"}, ["helm:shop/web"]),
    "helm of another namespace": (HELM, {RELEASE: "web", SPACE: "ci"}, ["helm:ci/web"]),
    "helm before 3.2 wrote a namespace": (HELM, {RELEASE: "web"}, ["helm:shop/web"]),
    "annotations that were copied by hand": ({}, {RELEASE: "web", SPACE: "shop"}, []),
    "a chart rendered by argo cd": (HELM, {TRACKING: "shop:apps/Deployment:shop/web"}, ["argocd:shop"]),
    "argo cd in any namespace": ({}, {TRACKING: "team-a_shop:apps/Deployment:shop/web"}, ["argocd:team-a/shop"]),
    "a tracking id copied from another object": ({}, {TRACKING: "shop:apps/Deployment:shop/other"}, []),
    "a tracking id copied to another namespace": ({}, {TRACKING: "shop:apps/Deployment:prod/web"}, []),
    "a tracking id that is none": ({}, {TRACKING: "shop"}, []),
    "an empty tracking id": ({}, {TRACKING: ":apps/Deployment:shop/web"}, []),
    "argo cd by label": ({INSTANCE: "shop"}, {}, ["argocd:shop"]),
    "the annotation wins over a label": ({INSTANCE: "old"}, {TRACKING: "new:apps/Deployment:shop/web"}, ["argocd:new"]),
    "an empty label": ({INSTANCE: ""}, {}, []),
    "flux by helm": (
        HELM | flux("helm", "web", "flux-system"),
        {RELEASE: "shop-web", SPACE: "shop"},
        ["helm:shop/shop-web", "helmrelease:flux-system/web"],
    ),
    "flux by kustomize": (flux("kustomize", "apps", "flux-system"), {}, ["kustomization:flux-system/apps"]),
    "flux without a namespace": (flux("kustomize", "apps", None), {}, ["kustomization:apps"]),
    "managed by something else": ({"app.kubernetes.io/managed-by": "kustomize"}, {RELEASE: "web", SPACE: "shop"}, []),
    "nothing": ({}, {}, []),
}


@pytest.mark.parametrize("case", CASES)
def test_what_brought_a_workload(case: str) -> None:
    """Several tools may be true of one object; what was copied from another is not taken for its own."""
    labels, annotations, expected = CASES[case]
    written = deployment(annotations=annotations)
    written["metadata"]["labels"] = labels
    sink, _ = follow([upserted(written)])
    graph = f"{BASE}prod/shop/deployment/web"

    assert compact(sink.graphs[graph], graph).get("release", []) == expected


def _meta(name: str, kind: str, **more: Any) -> dict[str, Any]:
    said = {"annotations": {RELEASE: "web", SPACE: "shop"}, "labels": HELM}
    return {"kind": kind, "metadata": {"name": name, "namespace": "shop", "uid": f"{kind}-{name}", **said}, **more}


def _release(sink: MemorySink, name: str) -> set[str]:
    iris = around().iris
    query = QueryCatalogue.load(iris).get("release").bound({"name": name}, iris)
    return {row["thing"].removeprefix(f"{BASE}prod/shop/") for row in sink.look_up(query)}


def test_what_a_release_brought_is_one_question() -> None:
    """Its workloads with their pods, services, ingresses, claims, autoscalers and budgets, and nothing of others."""
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-x", "uid": "r1", "controller": True}]
    target = {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 3}
    objects = [
        _meta("web", "Deployment", spec=deployment()["spec"]),
        _meta("web", "Service", spec={}),
        _meta("web", "Ingress", spec={}),
        _meta("data", "PersistentVolumeClaim", spec={}),
        _meta("web", "HorizontalPodAutoscaler", spec=target),
        _meta("web", "PodDisruptionBudget", spec={}),
    ]
    objects[0]["metadata"]["uid"] = "d1"
    other = {"kind": "Service", "metadata": {"name": "other", "namespace": "shop", "uid": "o"}, "spec": {}}
    sink, _ = follow([*map(upserted, [*objects, other, replicaset(), pod(owner=owner)])])

    expected = {
        "deployment/web", "pod/web-0", "service/web", "ingress/web", "persistentvolumeclaim/data",
        "horizontalpodautoscaler/web", "poddisruptionbudget/web",
    }  # fmt: skip
    assert _release(sink, "helm:shop/web") == expected
    assert _release(sink, "web") == expected
    assert _release(sink, "eb") == set()
    (row,) = sink.look_up(QueryCatalogue.load(around().iris).get("releases").bound({}, around().iris))
    assert (row["release"], row["things"]) == ("helm:shop/web", "6")
