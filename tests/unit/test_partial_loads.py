"""A dump of a part of a cluster: it adds and updates, and what the graph knows by the rest of the cluster stays."""

from __future__ import annotations

import json
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.api.exporting import Exporting
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.pipeline.completeness import Completeness
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.exporters.pipeline.reconciler import Reconciler
from drumlin.exporters.protocol import Change
from drumlin.kg.errors import DrumlinError, InvalidInput, SourceUnavailable
from tests.memory_sink import MemorySink
from tests.thoroughness import examples
from tests.unit.rendering import BY_NAME, CONTRACT, KINDS, around, follow, now, synced, upserted
from tests.unit.test_pipeline import (
    BASE,
    CLUSTER,
    deployment,
    gone,
    meta,
    namespace,
    owned,
    pod,
    service,
    shown,
)
from tests.unit.test_pipeline_telemetry import monitor, operated, prometheus

OTHER = "b" * 64
MONITORED = {"app": "checkout"}
SURROUNDINGS = around(
    {
        **CONTRACT,
        "datasource": [
            {
                "name": name,
                "kind": "prometheus",
                "url": f"http://{name}.example",
                "metrics": "scraped",
                "service": f"monitoring/prom-{name}",
            }
            for name in ("main", "other")
        ],
    }
)


def running(digest: str) -> list[dict[str, Any]]:
    """The status of a container ``web`` that runs an image of a digest."""
    return [{"name": "web", "imageID": f"web@sha256:{digest}"}]


def workload(name: str, labels: dict[str, str], uid: str, **more: Any) -> dict[str, Any]:
    """A StatefulSet whose pods bear labels."""
    template = {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "web", "image": "web:1"}]}}
    return {"kind": "StatefulSet", "metadata": meta(name, uid, **more), "spec": {"template": template}}


def member(name: str, uid: str, owner: str, owner_uid: str, digest: str) -> dict[str, Any]:
    """A pod of a StatefulSet."""
    return pod(name, uid, owner=owned("StatefulSet", owner, owner_uid), containerStatuses=running(digest))


def slice_of(name: str, service_name: str, *pods: str) -> dict[str, Any]:
    """An EndpointSlice of a Service."""
    return {
        "kind": "EndpointSlice",
        "metadata": {**meta(name, f"e-{name}"), "labels": {"kubernetes.io/service-name": service_name}},
        "endpoints": [{"targetRef": {"kind": "Pod", "name": each}} for each in pods],
    }


def data(name: str, where: str) -> dict[str, Any]:
    """A DomainData of Kuscia."""
    return {
        "kind": "DomainData",
        "metadata": {"name": name, "namespace": where, "uid": f"data-{where}-{name}"},
        "spec": {},
    }


JOB = {
    "kind": "KusciaJob",
    "metadata": {**meta("psi", "j1"), "namespace": "cross-domain"},
    "spec": {
        "initiator": "alice",
        "tasks": [
            {
                "taskID": name,
                "alias": name,
                "dependencies": dependencies,
                "taskInputConfig": '{"sf_input_ids": ["table"], "sf_output_ids": ["out"]}',
                "parties": [{"domainID": "alice"}, {"domainID": "shop"}],
            }
            for name, dependencies in (("psi-1", []), ("psi-2", ["psi-1"]))
        ],
    },
}
ROLLOUT = [{"apiVersion": "argoproj.io/v1", "kind": "Rollout", "name": "site", "uid": "o1", "controller": True}]
RICH = [
    *CLUSTER,
    {"kind": "ReplicaSet", "metadata": meta("site-x", "r2", ownerReferences=ROLLOUT)},
    pod("site-x-1", "p10", owner=owned("ReplicaSet", "site-x", "r2")),
    workload("agreed", {"app": "agreed"}, "w1"),
    member("agreed-0", "p11", "agreed", "w1", OTHER),
    member("agreed-1", "p12", "agreed", "w1", OTHER),
    workload("divided", {"app": "divided"}, "w2"),
    member("divided-0", "p13", "divided", "w2", "a" * 64),
    member("divided-1", "p14", "divided", "w2", OTHER),
    workload("checkout", MONITORED, "w3"),
    workload("annotated", {"app": "annotated"}, "w4"),
    slice_of("web-s1", "web", "web-x-1", "web-x-2"),
    slice_of("agreed-s1", "agreed", "agreed-0"),
    service("agreed"),
    service("checkout", selector=MONITORED) | {"metadata": meta("checkout", "s-checkout", labels=MONITORED)},
    {
        "kind": "Service",
        "metadata": meta("annotated", "s-annotated", annotations={"prometheus.io/scrape": "true"}),
        "spec": {"selector": {"app": "annotated"}},
    },
    {"kind": "PodDisruptionBudget", "metadata": meta("all", "b1"), "spec": {"selector": {}, "minAvailable": 1}},
    monitor(),
    {**monitor("PodMonitor"), "metadata": {**monitor("PodMonitor")["metadata"], "name": "pods", "uid": "m2"}},
    *prometheus(serviceMonitorNamespaceSelector={"matchLabels": {"kuscia.secretflow/domain-name": "alice"}}),
    *prometheus("other"),
    *prometheus("third"),
    operated(),
    {
        **service("prometheus", "prometheus"),
        "metadata": {**service("prometheus", "prometheus")["metadata"], "namespace": "ops", "uid": "s-ops"},
    },
    {**operated(), "metadata": {**operated()["metadata"], "namespace": "ops", "uid": "o-ops"}},
    {**operated(), "metadata": {**operated()["metadata"], "namespace": "alone", "uid": "o-alone"}},
    JOB,
    {"kind": "KusciaTask", "metadata": {**meta("psi-1", "t1"), "namespace": "cross-domain"}, "spec": {}},
    {"kind": "KusciaTask", "metadata": {**meta("psi-2", "t2"), "namespace": "cross-domain"}, "spec": {}},
    data("table", "alice"),
    {"kind": "Domain", "metadata": {"name": "alice", "uid": "dom-a"}},
]
NAMES = [f"{each['kind']}-{each['metadata'].get('namespace')}-{each['metadata']['name']}" for each in RICH]


def complete(documents: list[dict[str, Any]] = RICH, sink: MemorySink | None = None) -> MemorySink:
    """The graphs of a cluster that is told as a whole."""
    changes: list[Change] = [*map(upserted, documents), *synced()]
    return follow(changes, sink, SURROUNDINGS)[0]


def part(sink: MemorySink, *documents: dict[str, Any], also: list[Change] | None = None) -> Any:
    """Load a part of a cluster into a store, and return what was done."""
    _, run = follow([*map(upserted, documents), *(also or [])], sink, SURROUNDINGS)
    assert run.summary.rejected == []
    return run.summary


def holders(sink: MemorySink, name: str) -> set[str]:
    """The datasources that hold metrics of a StatefulSet."""
    found = [each for each in shown(sink, f"prod/shop/statefulset/{name}")["telemetry"] if each["signal"] == "metrics"]
    queries = [query for telemetry in found for metric in telemetry["hasPart"] for query in metric["distribution"]]
    return {query["accessService"].rpartition("/")[2] for query in queries}


def test_the_rich_cluster_has_what_other_objects_tell() -> None:
    """The cluster of these tests has every relation that depends on another object than the one that states it."""
    sink = complete()

    assert shown(sink, "prod/shop/pod/site-x-1")["managedBy"] == BASE + "prod/shop/rollout.argoproj.io/site"
    assert shown(sink, "prod/shop/pod/web-x-1")["domain"] == BASE + "domain/alice"
    assert shown(sink, "prod/shop/statefulset/agreed")["container"][0]["imageDigest"] == f"sha256:{OTHER}"
    assert "imageDigest" not in shown(sink, "prod/shop/statefulset/divided")["container"][0]
    assert len(shown(sink, "prod/shop/service/web")["selects"]) == 3
    assert len(shown(sink, "prod/shop/poddisruptionbudget/all")["selects"]) == 5
    for name, kind in (("m", "servicemonitor"), ("pods", "podmonitor")):
        found = shown(sink, f"prod/shop/{kind}.monitoring.coreos.com/{name}")
        assert (len(found["selects"]), found["scrapedBy"]) == (1, [BASE + "datasource/main"])
    discovered = {"prometheus.shop.prod", "prometheus.ops.prod", "prometheus-operated.alone.prod"}
    assert holders(sink, "checkout") == {"main", *discovered}
    assert holders(sink, "annotated") == {"main", "other", *discovered}
    assert holders(sink, "agreed") == discovered
    assert shown(sink, "prod/cross-domain/kusciajob.kuscia.secretflow/psi")["dependsOn"] == [
        BASE + "prod/alice/domaindata.kuscia.secretflow/table"
    ]
    assert shown(sink, "prod/cross-domain/kusciatask.kuscia.secretflow/psi-2")["dependsOn"] == [
        BASE + "prod/cross-domain/kusciatask.kuscia.secretflow/psi-1"
    ]


@pytest.mark.parametrize("document", RICH, ids=NAMES)
def test_any_object_loaded_alone_changes_nothing(document: dict[str, Any]) -> None:
    """Each object of a cluster that is in the store, loaded without the others, leaves the store as it was."""
    sink = complete()
    before, generation = dict(sink.graphs), sink.generation

    summary = part(sink, document)

    assert sink.graphs == before
    assert sink.generation == generation
    assert (summary.added, summary.updated, summary.removed) == (0, 0, 0)


@given(st.lists(st.sampled_from(RICH), max_size=len(RICH), unique_by=id))
@settings(max_examples=examples(25), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_any_part_of_a_cluster_changes_nothing(documents: list[dict[str, Any]]) -> None:
    """Any objects of a cluster that is in the store, loaded together without the rest, leave the store as it was."""
    sink = complete()
    before = dict(sink.graphs)

    part(sink, *documents)

    assert sink.graphs == before


def test_what_is_missing_lives_on() -> None:
    """A dump of one pod leaves all others alive, and their runs open."""
    sink = complete()
    summary = part(sink, pod("web-x-1", "p1", owner=owned("ReplicaSet", "web-x", "r1"), phase="Failed"))

    assert (summary.updated, summary.removed) == (1, 0)
    assert shown(sink, "prod/shop/pod/web-x-1")["phase"] == "Failed"
    assert shown(sink, "prod/shop/pod/web-x-1")["managedBy"] == BASE + "prod/shop/deployment/web"
    assert not [graph for graph, lines in sink.graphs.items() if any(line.endswith("#Tombstone> .") for line in lines)]


def test_a_new_object_finds_what_the_graph_knows() -> None:
    """A pod that is loaded alone, for the first time, belongs to the domain of its namespace and to its workload."""
    sink = complete()
    labels = {"pod-template-hash": "x"}
    part(sink, pod("web-x-9", "p99", owner=owned("ReplicaSet", "web-x", "r1"), labels=labels))
    found = shown(sink, "prod/shop/pod/web-x-9")

    assert found["domain"] == BASE + "domain/alice"
    assert found["managedBy"] == BASE + "prod/shop/deployment/web"


def test_what_a_part_does_tell_is_taken() -> None:
    """Relations between objects that are both in the part are those of the part, new ones and ended ones."""
    sink = complete()
    part(sink, deployment(labels={"app": "moved"}), service("web", selector={"app": "web"}))
    assert shown(sink, "prod/shop/service/web")["selects"] == [
        BASE + "prod/shop/pod/web-x-1",
        BASE + "prod/shop/pod/web-x-2",
    ]

    part(
        sink,
        workload("agreed", {"app": "web"}, "w1"),
        service("web", selector={"app": "web"}),
        slice_of("web-s1", "web", "web-x-1"),
        CLUSTER[4],
        CLUSTER[5],
    )
    assert shown(sink, "prod/shop/service/web")["selects"] == [
        BASE + "prod/shop/pod/web-x-1",
        BASE + "prod/shop/statefulset/agreed",
    ]

    part(sink, namespace(), pod("site-x-1", "p10"))
    assert shown(sink, "prod/shop/pod/site-x-1")["domain"] == BASE + "domain/glaciation-node1"
    assert "managedBy" not in shown(sink, "prod/shop/pod/site-x-1")


def test_a_digest_changes_when_all_pods_of_the_workload_are_told() -> None:
    """Some pods cannot say which digest all of them run; all of them can, and so can those of a new image."""
    sink = complete()
    new = "c" * 64
    pods = [member(f"agreed-{n}", f"p1{n + 1}", "agreed", "w1", new) for n in (0, 1)]
    agreed = workload("agreed", {"app": "agreed"}, "w1")
    part(sink, agreed, pods[0])
    assert shown(sink, "prod/shop/statefulset/agreed")["container"][0]["imageDigest"] == f"sha256:{OTHER}"
    part(sink, agreed, *pods)
    assert shown(sink, "prod/shop/statefulset/agreed")["container"][0]["imageDigest"] == f"sha256:{new}"

    agreed["spec"]["template"]["spec"]["containers"][0]["image"] = "web:2"
    pods[0]["spec"]["containers"][0]["image"] = "web:2"
    pods[0]["status"]["containerStatuses"] = running("d" * 64)
    part(sink, agreed, pods[0])
    assert shown(sink, "prod/shop/statefulset/agreed")["container"][0]["imageDigest"] == f"sha256:{'d' * 64}"


def test_only_what_is_complete_is_removed() -> None:
    """A kind that is complete in a namespace loses what the part lacks there, and what other objects said because of it."""
    sink = complete()
    elsewhere = pod("else", "p98") | {"metadata": {"name": "else", "namespace": "ops", "uid": "p98"}}
    part(sink, elsewhere)
    (scope,) = synced("Pod")
    scope = type(scope)(scope.kind, scope.observed, "shop")
    summary = part(sink, CLUSTER[4], service("web", selector={"app": "web"}), also=[scope])

    assert summary.removed == 7
    assert shown(sink, "prod/shop/pod/web-x-2")["type"] == "Tombstone"
    assert shown(sink, "prod/ops/pod/else")["type"] == "Pod"
    assert shown(sink, "prod/shop/service/web")["selects"] == [
        BASE + "prod/shop/deployment/web",
        BASE + "prod/shop/pod/web-x-1",
    ]


def test_a_discovered_datasource_goes_when_the_services_of_its_namespace_are_complete() -> None:
    """A datasource stays until it is said that its Service is missing; those of other namespaces stay all the same."""
    sink = complete()
    part(sink, service("web", selector={"app": "web"}), CLUSTER[2])
    assert shown(sink, "datasource/prometheus.shop.prod")["type"] == "Datasource"

    (scope,) = synced("Service")
    part(sink, service("web", selector={"app": "web"}), also=[type(scope)(scope.kind, scope.observed, "shop")])
    assert shown(sink, "datasource/prometheus.shop.prod")["type"] == "Tombstone"
    assert shown(sink, "datasource/prometheus.ops.prod")["type"] == "Datasource"


def test_a_kind_that_completes_late_takes_what_was_kept_because_of_it() -> None:
    """What was kept for an object of which nothing was told goes when it turns out to be gone, or is told and does not fit."""
    sink = complete()
    web = service("web", selector={"app": "web"})
    _, run = follow([upserted(web)], sink, SURROUNDINGS)
    assert BASE + "prod/shop/deployment/web" in shown(sink, "prod/shop/service/web")["selects"]
    run.take(upserted(deployment(labels={"app": "moved"})))
    run.flush(everything=True)
    assert BASE + "prod/shop/deployment/web" not in shown(sink, "prod/shop/service/web")["selects"]

    part(sink, deployment(), web)
    _, run = follow([upserted(web)], sink, SURROUNDINGS)
    for change in (*synced("Deployment", "EndpointSlice"), gone(pod("web-x-1", "p1"))):
        run.take(change)
    run.flush(everything=True)
    assert "selects" not in shown(sink, "prod/shop/service/web")


def test_pods_that_are_kept_for_a_service_go_as_the_source_tells_more() -> None:
    """A pod that a Service was linked to goes when it is told beside slices that lack it, when it ends, and when slices are complete."""
    sink = complete()
    web, pods = service("web", selector={"app": "web"}), ["web-x-1", "web-x-2"]

    def linked() -> list[str]:
        found = shown(sink, "prod/shop/service/web").get("selects", [])
        return [each.rpartition("/")[2] for each in found if "/pod/" in each]

    def begin(*documents: dict[str, Any]) -> Reconciler:
        part(sink, *CLUSTER, *(each for each in RICH if each["kind"] == "EndpointSlice"))
        _, run = follow([upserted(each) for each in documents], sink, SURROUNDINGS)
        assert linked() == pods
        return run

    for told, change in (
        ((web, slice_of("web-s1", "web", "web-x-1")), upserted(CLUSTER[5])),
        ((web, CLUSTER[5]), gone(CLUSTER[5])),
    ):
        run = begin(*told)
        run.take(change)
        run.flush(everything=True)
        assert linked() == ["web-x-1"]

    run = begin(web)
    run.take(*synced("EndpointSlice"))
    run.flush(everything=True)
    assert linked() == []


# -- dumps that change ------------------------------------------------------------------------------------------------------


def dump_of(place: Path, *documents: dict[str, Any]) -> None:
    """Write objects as a dump."""
    items = [{"apiVersion": BY_NAME[each["kind"]].api_version, **each} for each in documents]
    place.write_text(json.dumps({"kind": "List", "apiVersion": "v1", "items": items}))


def flow(sink: MemorySink) -> Pipeline:
    """A pipeline into a store."""
    found = around()
    return Pipeline(sink, KINDS, found.settings, found.iris, found.catalogue, (), clock=now)


@pytest.mark.parametrize("complete", [False, True])
def test_a_dump_is_read_again_when_it_changes(*, complete: bool, tmp_path: Path) -> None:
    """A turn of a served dump exports only what is new; what is missing goes only where the dump is complete."""
    place, sink = tmp_path / "pods.json", MemorySink()
    dump_of(place, pod("a", "1"), pod("b", "2"))
    source = DumpSource([place], KINDS, clock=now, complete=Completeness(seen=complete))
    exporting = Exporting(flow(sink), source)

    assert not exporting.turn()
    assert exporting.ready
    applies = sink.applies
    assert not exporting.turn()
    assert sink.applies == applies

    dump_of(place, pod("b", "2"), pod("c", "3"), pod("d", "4"))
    exporting.turn()
    kinds = {name: shown(sink, f"prod/shop/pod/{name}")["type"] for name in "abcd"}
    assert kinds == {"a": "Tombstone" if complete else "Pod", "b": "Pod", "c": "Pod", "d": "Pod"}


def test_a_dump_is_never_followed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Not even between its last object and its end: the backfill would note that all that runs now is known."""
    place, followed = tmp_path / "pods.json", []
    dump_of(place, pod("a", "1"))
    pipeline = flow(MemorySink())
    exporting = Exporting(pipeline, DumpSource([place], KINDS, clock=now, complete=Completeness(seen=True)))
    run = pipeline.run

    def run_and_look(*arguments: Any) -> Any:
        summary = run(*arguments)
        followed.append((pipeline.synced, exporting.is_following))
        return summary

    monkeypatch.setattr(pipeline, "run", run_and_look)
    exporting.turn()
    assert followed == [(True, False)]
    assert not exporting.is_following


@pytest.mark.parametrize(
    "content", [None, "", '{"kind": "List", "items": [', "[", json.dumps({"kind": "List", "items": []})]
)
def test_a_dump_that_cannot_be_read_removes_nothing(content: str | None, tmp_path: Path) -> None:
    """A complete dump that vanishes, or is empty, cut or no dump, leaves the store as it is, and is read again when it is back."""
    place, sink = tmp_path / "pods.json", MemorySink()
    dump_of(place, pod("a", "1"), pod("b", "2"))
    exporting = Exporting(flow(sink), DumpSource([place], KINDS, clock=now, complete=Completeness(seen=True)))
    exporting.turn()
    before = dict(sink.graphs)

    if content is None:
        place.unlink()
    else:
        place.write_text(content)
    with suppress(SourceUnavailable, InvalidInput):
        exporting.turn()
    assert sink.graphs == before

    dump_of(place, pod("b", "2"))
    exporting.turn()
    assert shown(sink, "prod/shop/pod/a")["type"] == "Tombstone"
    assert shown(sink, "prod/shop/pod/b")["type"] == "Pod"


def test_nothing_is_written_before_removals_are_approved(tmp_path: Path) -> None:
    """Who is asked sees what would go, sorted, and nothing was written; when they raise, nothing will be."""
    place, sink = tmp_path / "pods.json", MemorySink()
    dump_of(place, *(pod(name, name) for name in "abc"), service("prometheus", "prometheus"))
    complete = Completeness.parse(["pods,services"], KINDS)
    flow(sink).run(DumpSource([place], KINDS, clock=now), threading.Event())
    before, generation = dict(sink.graphs), sink.generation
    dump_of(place, pod("b", "b"), pod("new", "new"))
    asked: list[list[str]] = []

    def refuse(removals: list[str]) -> None:
        asked.append(removals)
        raise DrumlinError("no")

    source = DumpSource([place], KINDS, clock=now, complete=complete)
    with pytest.raises(DrumlinError, match="no"):
        flow(sink).run(source, threading.Event(), approve=refuse)
    assert (sink.graphs, sink.generation) == (before, generation)
    assert [each.removeprefix(BASE) for each in asked[0]] == [
        "datasource/prometheus.shop.prod",
        "prod/shop/pod/a",
        "prod/shop/pod/c",
        "prod/shop/service/prometheus",
    ]

    reports: list[str] = []
    summary = flow(sink).run(source, threading.Event(), lambda done: reports.append(str(done)), asked.append)
    assert asked[1] == asked[0]
    assert str(summary) == "2 objects: 1 added, 0 updated, 1 unchanged, 4 removed, 0 rejected"
    assert reports[-1] == str(summary)
    assert len(set(reports)) > 1
