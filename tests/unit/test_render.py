"""Renderers by example: each golden is changes, settings and the document that the graph must be, line for line."""

from __future__ import annotations

import json
from decimal import Decimal
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.exporters.kubernetes.manifests import Container, Demand, PodSpec
from drumlin.exporters.kubernetes.render.demand import effective
from drumlin.exporters.kubernetes.render.images import digest_in, tag_in
from drumlin.kg.rdf.jsonld import compact
from drumlin.kg.rdf.jsonld_loader import inline
from drumlin.kg.rdf.syntax import JSONLD, Lines, parse
from drumlin.kg.validation.validate import validate
from tests.unit.rendering import CONTRACT, around, follow, gone, manifest, upserted, without_queries

GOLDEN = sorted((Path(__file__).parents[1] / "golden" / "render").glob("*.json"))
OURS = [path for path in GOLDEN if not path.stem.startswith("contract-")]
THEIRS = [path for path in GOLDEN if path.stem.startswith("contract-")]


def name_of(path: Path) -> str:
    """Name a case after its file."""
    return path.stem


def rendered(golden: dict[str, Any]) -> Lines:
    """Run the golden's changes, and return the lines of its graph."""
    changes = [upserted(each) if kind == "ADDED" else gone(each) for kind, each in golden["changes"]]
    sink, _ = follow(changes, None, around({**CONTRACT, **golden["settings"]}, golden["templates"]))
    return sink.graphs["https://kg.example/id/" + golden["graph"]]


def lines_of(document: Any) -> Lines:
    """Read a document as any caller's would be read."""
    return parse(inline(json.dumps(document).encode()), JSONLD)[None]


@pytest.mark.parametrize("case", GOLDEN, ids=name_of)
def test_changes_render_to_their_golden_document(case: Path) -> None:
    """Each recorded sequence of changes gives exactly the graph stored beside it, and never a value that is not named."""
    golden = json.loads(case.read_text())

    found = rendered(golden)

    assert sorted(found) == sorted(lines_of(golden["document"]))
    assert "never read" not in "".join(found)


@pytest.mark.parametrize("case", GOLDEN, ids=name_of)
def test_every_golden_document_is_valid(case: Path) -> None:
    """What the renderers write satisfies the shapes that callers' documents must satisfy."""
    golden = json.loads(case.read_text())
    surroundings = around()

    validate(rendered(golden), surroundings.iris.root + golden["graph"], surroundings.iris)


@pytest.mark.parametrize("case", THEIRS, ids=name_of)
def test_contract_goldens_are_the_contract(case: Path, contract: dict[str, bytes]) -> None:
    """The documents of the contract's goldens are the contract's own, but for the text of queries."""
    theirs = json.loads(contract[case.stem.removeprefix("contract-")])
    assert without_queries(json.loads(case.read_text())["document"]) == without_queries(theirs)


@pytest.mark.parametrize(
    ("path", "value"),
    [
        (("metadata", "resourceVersion"), "8"),
        (("metadata", "managedFields"), [{"manager": "kubelet", "time": "2026-11-27T22:00:00Z"}]),
        (("metadata", "annotations"), {"kubectl.kubernetes.io/last-applied-configuration": "never read"}),
        (("status", "readyReplicas"), 3),
        (
            ("status", "conditions"),
            [{"type": "Progressing", "status": "True", "lastUpdateTime": "2026-11-27T22:00:00Z"}],
        ),
        (("spec", "progressDeadlineSeconds"), 60),
    ],
)
def test_immaterial_changes_write_nothing(path: tuple[str, str], value: object) -> None:
    """Versions, managed fields, annotations, readiness and condition times are no reason to write a graph again."""
    golden = json.loads((Path(__file__).parents[1] / "golden/render/contract-deployment.json").read_text())
    changed = json.loads(json.dumps(golden["changes"][1][1]))
    changed[path[0]][path[1]] = value

    sink, run = follow([upserted(each) for _, each in golden["changes"]])
    generation = sink.generation
    run.take(upserted(changed))
    run.flush(everything=True)

    assert sink.generation == generation


@pytest.mark.parametrize(
    ("labels", "annotations", "group"),
    [
        ({"app.kubernetes.io/part-of": "shop"}, {"meta.helm.sh/release-name": "r"}, "shop"),
        (
            {},
            {"argocd.argoproj.io/tracking-id": "store:apps/Deployment:shop/web", "meta.helm.sh/release-name": "r"},
            "store",
        ),
        ({"argocd.argoproj.io/instance": "store"}, {}, "store"),
        ({"kustomize.toolkit.fluxcd.io/name": "site"}, {}, "site"),
        ({"helm.toolkit.fluxcd.io/name": "shop"}, {"meta.helm.sh/release-name": "shop-shop"}, "shop"),
        ({}, {"meta.helm.sh/release-name": "r", "meta.helm.sh/release-namespace": "never read"}, "r"),
        ({}, {"argocd.argoproj.io/tracking-id": ""}, None),
        ({}, None, None),
    ],
)
def test_an_application_is_part_of_what_its_installer_says(
    labels: dict[str, str], annotations: dict[str, str] | None, group: str | None
) -> None:
    """The part-of label decides, then the Argo CD application, what Flux applies, and the Helm release."""
    metadata = {"name": "web", "namespace": "shop", "uid": "w", "labels": labels, "annotations": annotations}
    sink, _ = follow([upserted({"kind": "Deployment", "metadata": metadata, "spec": {"template": {}}})])

    found = [
        line.split('"')[1]
        for line in sink.graphs["https://kg.example/id/prod/shop/deployment/web"]
        if "#applicationGroup>" in line
    ]
    assert found == ([group] if group else [])
    assert "never read" not in sink.text()


@pytest.mark.parametrize(
    ("written", "revision"), [("7", "7"), ("0", "0"), ("", None), ("-1", None), ("٣", None), ("9" * 40, None)]
)
def test_a_deployment_bears_its_revision(written: str, revision: str | None) -> None:
    """The number of the ReplicaSet that stands for its template; a text that is none is left out and ends nothing."""
    metadata = {
        "name": "web",
        "namespace": "shop",
        "uid": "w",
        "annotations": {"deployment.kubernetes.io/revision": written},
    }
    sink, _ = follow([upserted({"kind": "Deployment", "metadata": metadata, "spec": {"template": {}}})])

    lines = sink.graphs["https://kg.example/id/prod/shop/deployment/web"]
    assert [line.split('"')[1] for line in lines if "#revision>" in line] == ([revision] if revision else [])


def test_old_revisions_cost_no_more_than_their_names() -> None:
    """opentelemetry-collector-contrib#44407: hundreds of thousands of old ReplicaSets are kept without their templates."""
    owner = {"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "u-web", "controller": True}
    document = {
        "kind": "ReplicaSet",
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "u-1"},
        "spec": {"replicas": 2, "template": {"spec": {"containers": [{"name": "main", "image": "shop:1"}]}}},
    }
    revision = manifest({**document, "metadata": {**document["metadata"], "ownerReferences": [owner]}})

    assert manifest(document).spec.template.spec.containers
    assert revision.spec == type(revision.spec)()


AMOUNT = st.none() | st.integers(0, 4000).map(lambda milli: f"{milli}m")
CONTAINER = st.builds(
    lambda request, limit, policy: Container("c", None, Demand({"cpu": request}, {"cpu": limit}), policy),
    AMOUNT,
    AMOUNT,
    st.sampled_from([None, "Always"]),
)


def reference(spec: PodSpec, overhead: str | None, whole_pod: str | None) -> Decimal | None:
    """The CPU request in millicores by a plain reading of the scheduler's rules, independent of the code under test."""

    def millis(container: Container) -> int | None:
        demand = container.resources
        written = (demand.requests["cpu"], demand.limits["cpu"])
        found = [int(str(each)[:-1]) for each in written if each is not None]
        return found[0] if found else None

    init = spec.initContainers or ()
    moments = [
        [each, *(other for other in init[:index] if other.restartPolicy == "Always")] for index, each in enumerate(init)
    ]
    moments.append([*spec.containers, *(each for each in init if each.restartPolicy == "Always")])
    totals = [sum(known) for moment in moments if (known := [each for each in map(millis, moment) if each is not None])]
    asked = int(whole_pod[:-1]) if whole_pod else max(totals, default=None)
    extra = int(overhead[:-1]) if overhead else None
    parts = [each for each in (asked, extra) if each is not None]
    return Decimal(sum(parts)) if parts else None


@given(st.lists(CONTAINER, max_size=4), st.lists(CONTAINER, max_size=4), AMOUNT, AMOUNT)
def test_effective_cpu_request_follows_the_schedulers_rules(
    containers: list[Container], init: list[Container], overhead: str | None, whole_pod: str | None
) -> None:
    """Whatever the mix of containers, sidecars, overhead and pod-level amounts, the request is the scheduler's, exactly."""
    plain = tuple(msgspec.structs.replace(each, restartPolicy=None) for each in containers)
    spec = PodSpec(plain, tuple(init))

    requests, _ = effective(spec, {"cpu": overhead}, Demand({"cpu": whole_pod}))

    found = requests.get("cpu")
    assert (None if found is None else found * 1000) == reference(spec, overhead, whole_pod)


@pytest.mark.parametrize(
    ("reference", "tag", "digest"),
    [
        ("nginx", None, None),
        ("nginx:1.27", "1.27", None),
        ("registry.example:5000/team/app", None, None),
        ("registry.example:5000/team/app:v2", "v2", None),
        ("registry.example:5000/team/app:v2@sha256:" + "0" * 64, "v2", "sha256:" + "0" * 64),
        ("app@sha256:" + "a" * 64, None, "sha256:" + "a" * 64),
        ("sha256:" + "0" * 64, "0" * 64, None),
    ],
)
def test_image_references_are_taken_apart(reference: str, tag: str | None, digest: str | None) -> None:
    """A port is not a tag, and the id of a local image is not a digest of a reference."""
    assert (tag_in(reference), digest_in(reference)) == (tag, digest)


TEMPLATE: dict[str, Any] = {
    "serviceAccountName": "shop",
    "imagePullSecrets": [{"name": "registry"}],
    "initContainers": [
        {"name": "init", "env": [{"name": "A", "valueFrom": {"configMapKeyRef": {"name": "init", "key": "canary"}}}]}
    ],
    "containers": [
        {
            "name": "web",
            "env": [
                {"name": "LOG", "value": "canary"},
                {"name": "NODE", "valueFrom": {"fieldRef": {"fieldPath": "spec.nodeName"}}},
                {"name": "PASSWORD", "valueFrom": {"secretKeyRef": {"name": "login", "key": "canary"}}},
            ],
            "envFrom": [
                {"configMapRef": {"name": "settings"}},
                {"secretRef": {"name": "tokens"}},
                {"prefix": "canary"},
            ],
        }
    ],
    "volumes": [
        {"name": "a", "configMap": {"name": "files", "items": [{"key": "canary", "path": "canary"}]}},
        {"name": "b", "secret": {"secretName": "tls"}},
        {"name": "c", "projected": {"sources": [{"secret": {"name": "both"}}, {"configMap": {"name": "both"}}]}},
        {"name": "d", "emptyDir": {}},
    ],
}


def test_a_workload_names_what_its_pods_refer_to_and_nothing_of_its_content() -> None:
    """From every place of a template; values, keys and paths are never parsed. A pod's own manifest is not looked through."""
    metadata = {"name": "web", "namespace": "shop", "uid": "w"}
    deployment = {"kind": "Deployment", "metadata": metadata, "spec": {"template": {"spec": TEMPLATE}}}
    sink, _ = follow([upserted(deployment), upserted({"kind": "Pod", "metadata": metadata, "spec": TEMPLATE})])
    graph = "https://kg.example/id/prod/shop/deployment/web"
    found = compact(sink.graphs[graph], graph)

    assert found["configMap"] == ["both", "files", "init", "settings"]
    assert found["secret"] == ["both", "login", "registry", "tls", "tokens"]
    assert found["serviceAccount"] == "shop"
    assert "canary" not in str(sink.graphs)
    assert "canary" not in repr(upserted(deployment).manifest)
    assert "login" not in repr(upserted({"kind": "Pod", "metadata": metadata, "spec": TEMPLATE}).manifest)
