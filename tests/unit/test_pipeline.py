"""The pipeline: order does not show, runs are never lost, what is gone leaves a tombstone, and one bad object ends nothing."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import timedelta
from typing import Any

import pytest
import structlog
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.exporters.kubernetes.kinds import KINDS
from drumlin.exporters.pipeline.hosting_domain import ensure
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.exporters.protocol import Change, Rejected
from drumlin.kg.errors import SourceUnavailable, StoreUnavailable
from drumlin.kg.rdf.jsonld import NAMESPACE, compact
from drumlin.kg.store.protocol import GraphWrite, Written
from tests.memory_sink import MemorySink
from tests.thoroughness import examples
from tests.unit.rendering import BY_NAME, CONTRACT, NOW, around, follow, following, gone, now, synced, upserted
from tests.waiting import until

BASE = "https://kg.example/id/"
LATER = NOW + timedelta(seconds=60)


def meta(name: str, uid: str, **more: Any) -> dict[str, Any]:
    """Metadata of an object in namespace ``shop``."""
    created = {"namespace": "shop", "creationTimestamp": "2026-11-27T21:50:00Z"}
    return {"name": name, "uid": uid, **created, **more}


def owned(kind: str, name: str, uid: str) -> list[dict[str, Any]]:
    """An owner reference to a controller."""
    version = "v1" if kind == "Node" else "apps/v1"
    return [{"apiVersion": version, "kind": kind, "name": name, "uid": uid, "controller": True}]


def pod(name: str = "web-0", uid: str = "p1", *, owner: Any = (), **status: Any) -> dict[str, Any]:
    """A pod that runs since 21:50:10 on node a."""
    extra = {
        key: status.pop(key) for key in ("deletionTimestamp", "deletionGracePeriodSeconds", "labels") if key in status
    }
    return {
        "kind": "Pod",
        "metadata": meta(name, uid, ownerReferences=list(owner), **extra),
        "spec": {"nodeName": "a", "containers": [{"name": "web", "image": "web:1"}]},
        "status": {"phase": "Running", "startTime": "2026-11-27T21:50:10Z", **status},
    }


def deployment(uid: str = "d1", *, replicas: int = 1, labels: Any = None, **more: Any) -> dict[str, Any]:
    """A Deployment ``web`` whose pods are labelled app=web."""
    template = {
        "metadata": {"labels": labels or {"app": "web"}},
        "spec": {"containers": [{"name": "web", "image": "web:1"}]},
    }
    return {
        "kind": "Deployment",
        "metadata": meta("web", uid, **more),
        "spec": {"replicas": replicas, "template": template},
    }


def replicaset() -> dict[str, Any]:
    """The ReplicaSet of Deployment ``web``."""
    return {"kind": "ReplicaSet", "metadata": meta("web-x", "r1", ownerReferences=owned("Deployment", "web", "d1"))}


def namespace(domain: str | None = None) -> dict[str, Any]:
    """The namespace ``shop``."""
    labels = {"kuscia.secretflow/domain-name": domain} if domain else {}
    return {"kind": "Namespace", "metadata": {"name": "shop", "uid": "n1", "labels": labels}}


def service(name: str, application: str | None = None, **spec: Any) -> dict[str, Any]:
    """A Service on port 9090."""
    labels = {"app.kubernetes.io/name": application} if application else {}
    return {
        "kind": "Service",
        "metadata": meta(name, f"s-{name}", labels=labels),
        "spec": {"ports": [{"port": 9090}], **spec},
    }


CLUSTER = [
    namespace("alice"),
    {"kind": "Node", "metadata": {"name": "a", "uid": "node-a", "creationTimestamp": "2026-11-27T21:49:00Z"}},
    deployment(),
    replicaset(),
    pod("web-x-1", "p1", owner=owned("ReplicaSet", "web-x", "r1")),
    pod(
        "web-x-2",
        "p2",
        owner=owned("ReplicaSet", "web-x", "r1"),
        containerStatuses=[{"name": "web", "imageID": "web@sha256:" + "a" * 64}],
    ),
    pod("static-a", "p3", owner=owned("Node", "a", "node-a"), phase="Succeeded"),
    service("web", selector={"app": "web"}),
    service("prometheus", "prometheus"),
    service("loki", "loki"),
    service("loki-headless", "loki", clusterIP="None"),
]


def shown(sink: MemorySink, short: str) -> dict[str, Any]:
    """One graph as a document."""
    return compact(sink.graphs[BASE + short], BASE + short)


def run_of(sink: MemorySink, short: str, uid: str = "p1") -> dict[str, Any]:
    """What one run says beside its id and type."""
    found = next(each for each in shown(sink, short)["runs"] if each["id"].endswith(f"/run/{uid}"))
    return {key: value for key, value in found.items() if key not in ("id", "type")}


@given(st.permutations(CLUSTER), st.lists(st.sampled_from(CLUSTER), max_size=5), st.booleans())
@settings(max_examples=examples(20), deadline=None, suppress_health_check=[HealthCheck.too_slow])
def test_order_and_duplicates_do_not_show_in_the_graphs(
    order: list[dict[str, Any]], again: list[dict[str, Any]], slowly: bool
) -> None:
    """Any order of arrival, with repetitions, at once or one by one, gives the same graphs."""
    expected, _ = follow([upserted(each) for each in CLUSTER])

    found, _ = follow([upserted(each) for each in [*order, *again]], one_by_one=slowly)

    assert found.graphs == expected.graphs


def test_what_arrives_late_is_rendered_into_what_was_there() -> None:
    """A pod gets its workload, domain and digest when ReplicaSet and Namespace are told after it."""
    sink, run = follow([upserted(CLUSTER[4]), upserted(deployment())], one_by_one=True)
    before = shown(sink, "prod/shop/pod/web-x-1")
    for document in (replicaset(), namespace("alice"), CLUSTER[5], service("prometheus", "prometheus")):
        run.take(upserted(document))
        run.flush()
    workload = shown(sink, "prod/shop/deployment/web")

    assert "managedBy" not in before
    assert before["domain"] == BASE + "domain/glaciation-node1"
    assert shown(sink, "prod/shop/pod/web-x-1")["managedBy"] == BASE + "prod/shop/deployment/web"
    assert shown(sink, "prod/shop/pod/web-x-1")["domain"] == BASE + "domain/alice"
    assert workload["container"][0]["imageDigest"] == "sha256:" + "a" * 64
    assert workload["telemetry"][0]["hasPart"]


def test_a_deployments_pod_names_its_workload_without_a_replicaset() -> None:
    """Where only pods were dumped, the pod-template-hash tells the Deployment's name; other ReplicaSets stay unknown."""
    owner = owned("ReplicaSet", "web-5f9576cb9", "r9")
    sink, _ = follow(
        [upserted(pod(owner=owner, labels={"pod-template-hash": "5f9576cb9"})), upserted(pod("x", "p2", owner=owner))]
    )

    assert shown(sink, "prod/shop/pod/web-0")["managedBy"] == BASE + "prod/shop/deployment/web"
    assert "managedBy" not in shown(sink, "prod/shop/pod/x")


def test_what_a_replicaset_told_outlives_it_while_its_pods_need_it() -> None:
    """Pods that end after their ReplicaSet keep their workload, also one whose name no label tells; then it is forgotten."""
    rollout = [{"apiVersion": "argoproj.io/v1", "kind": "Rollout", "name": "web", "uid": "o1", "controller": True}]
    revision = {"kind": "ReplicaSet", "metadata": meta("web-x", "r1", ownerReferences=rollout)}
    owner = owned("ReplicaSet", "web-x", "r1")
    sink, run = follow([upserted(revision), upserted(pod(owner=owner)), gone(revision)], one_by_one=True)
    for change in (upserted(pod(owner=owner, phase="Failed")), gone(pod(owner=owner, phase="Failed"))):
        run.take(change)
        run.flush()
        assert shown(sink, "prod/shop/pod/web-0")["managedBy"] == BASE + "prod/shop/rollout.argoproj.io/web"

    run.take(upserted(pod("web-1", "p2", owner=owner)))
    run.flush()
    assert "managedBy" not in shown(sink, "prod/shop/pod/web-1")


def test_services_select_the_workloads_that_match_now() -> None:
    """A Service follows its workloads' labels, and lets go of a workload that is gone."""
    sink, run = follow([upserted(each) for each in CLUSTER], one_by_one=True)
    assert shown(sink, "prod/shop/service/web")["selects"] == [BASE + "prod/shop/deployment/web"]

    run.take(upserted(deployment(labels={"app": "other"})))
    run.flush()
    assert "selects" not in shown(sink, "prod/shop/service/web")

    run.take(upserted(deployment()))
    run.flush()
    run.take(gone(deployment()))
    run.flush()
    assert "selects" not in shown(sink, "prod/shop/service/web")


# -- runs -------------------------------------------------------------------------------------------------------------------

SELF_ENDED = [
    ({"phase": "Succeeded"}, "Completed"),
    ({"phase": "Failed"}, "Failed"),
    ({"phase": "Failed", "reason": "Evicted"}, "Evicted"),
]


@pytest.mark.parametrize(("status", "outcome"), SELF_ENDED)
def test_a_pod_that_finished_keeps_end_and_outcome_when_deleted(status: dict[str, Any], outcome: str) -> None:
    """Deletion after the end is the object's, not the run's."""
    ends = [{"name": "a", "state": {"terminated": {"reason": "Completed", "finishedAt": f"2026-11-27T21:50:{second}Z"}}}
            for second in (20, 40, 30)]  # fmt: skip
    finished = pod(**status, containerStatuses=ends)
    deleted = pod(
        **status, containerStatuses=ends, deletionTimestamp="2026-11-27T21:51:00Z", deletionGracePeriodSeconds=0
    )
    expected = {
        "startedAt": "2026-11-27T21:50:10Z",
        "endedAt": "2026-11-27T21:50:40Z",
        "outcome": outcome,
        "scheduledOn": BASE + "prod/-/node/a",
    }

    sink, run = follow([upserted(finished)], one_by_one=True)
    assert run_of(sink, "prod/shop/pod/web-0") == expected
    run.take(upserted(deleted))
    run.take(gone(deleted))
    run.flush()

    assert shown(sink, "prod/shop/pod/web-0")["type"] == "Tombstone"
    assert run_of(sink, "prod/shop/pod/web-0") == expected


def test_a_container_killed_for_memory_names_the_outcome() -> None:
    """A failed pod one of whose containers ran out of memory was OOMKilled."""
    killed = [{"name": "web", "state": {"terminated": {"reason": "OOMKilled", "finishedAt": "2026-11-27T21:50:20Z"}}}]
    sink, _ = follow([upserted(pod(phase="Failed", containerStatuses=killed))])

    assert run_of(sink, "prod/shop/pod/web-0")["outcome"] == "OOMKilled"


def test_a_pod_that_ends_because_it_is_deleted_was_deleted() -> None:
    """Containers that stop after the deletion was asked for did not finish by themselves."""
    stopped = [{"name": "web", "state": {"terminated": {"reason": "Completed", "finishedAt": "2026-11-27T21:50:35Z"}}}]
    dying = pod(
        phase="Succeeded",
        containerStatuses=stopped,
        deletionTimestamp="2026-11-27T21:51:00Z",
        deletionGracePeriodSeconds=30,
    )
    sink, _ = follow([upserted(pod()), upserted(dying), gone(dying)])

    found = run_of(sink, "prod/shop/pod/web-0")
    assert (found["endedAt"], found["outcome"]) == ("2026-11-27T21:51:00Z", "Deleted")


def test_a_run_begins_when_the_pod_has_started() -> None:
    """A pod that waits to be scheduled has no run yet, and one that never started leaves none."""
    waiting = pod(phase="Pending", startTime=None)
    sink, run = follow([upserted(waiting)], one_by_one=True)
    assert "runs" not in shown(sink, "prod/shop/pod/web-0")
    run.take(gone(waiting))
    run.flush()

    assert "runs" not in shown(sink, "prod/shop/pod/web-0")


@pytest.mark.parametrize("estimated", [False, True])
def test_what_goes_without_a_time_ends_when_it_was_missed(*, estimated: bool) -> None:
    """The deletion's time is the observation's; found missing at a relist, it is lost and its end an estimate."""
    sink, run = follow([upserted(pod())], one_by_one=True)
    run.take(gone(pod(), estimated=estimated))
    run.flush()

    found = run_of(sink, "prod/shop/pod/web-0")
    assert found["endedAt"] == "2026-11-27T21:51:39Z"
    assert found["outcome"] == ("Lost" if estimated else "Deleted")
    assert found.get("endEstimated", False) is estimated


def test_a_new_uid_under_the_same_name_ends_the_old_run() -> None:
    """The new object alone is enough; a late word of the old one, or its late end, changes nothing."""
    new = pod(uid="p2", startTime="2026-11-27T21:51:10Z")
    new["metadata"]["creationTimestamp"] = "2026-11-27T21:51:05Z"
    sink, run = follow([upserted(pod()), upserted(new)], one_by_one=True)
    settled = dict(sink.graphs)
    for late in (upserted(pod()), gone(pod()), gone(pod(), estimated=True), upserted(new)):
        run.take(late)
        run.flush()

    assert run_of(sink, "prod/shop/pod/web-0")["endedAt"] == "2026-11-27T21:51:05Z"
    assert run_of(sink, "prod/shop/pod/web-0")["outcome"] == "Deleted"
    assert "endedAt" not in run_of(sink, "prod/shop/pod/web-0", "p2")
    assert sink.graphs == settled


def test_late_duplicates_do_not_revive_what_is_gone() -> None:
    """After its end, nothing said of a uid brings it back."""
    sink, run = follow([upserted(pod()), gone(pod())], one_by_one=True)
    settled = dict(sink.graphs)
    for late in (upserted(pod()), upserted(pod(phase="Pending")), gone(pod())):
        run.take(late)
        run.flush()

    assert sink.graphs == settled


def test_a_name_that_comes_back_keeps_its_past() -> None:
    """A tombstone's runs stand beside the new run, in the same life and after a restart."""
    again, third = pod(uid="p2", startTime="2026-11-27T21:52:00Z"), pod(uid="p3", startTime="2026-11-27T21:53:00Z")
    sink, run = follow([upserted(pod()), gone(pod())], one_by_one=True)
    run.take(upserted(again))
    run.flush()
    run.take(gone(again))
    run.flush()
    follow([upserted(third)], sink)

    assert shown(sink, "prod/shop/pod/web-0")["type"] == "Pod"
    assert len(shown(sink, "prod/shop/pod/web-0")["runs"]) == 3


def test_what_is_missing_after_a_restart_is_lost() -> None:
    """When a kind is complete, what an earlier life wrote of it and nobody told is a tombstone with an estimated end."""
    sink, _ = follow([upserted(each) for each in CLUSTER])
    kept = [each for each in CLUSTER if each["metadata"]["name"] not in ("web-x-1", "web", "web-x")]
    follow([*map(upserted, kept), *synced("Pod", observed=LATER)], sink)

    found = run_of(sink, "prod/shop/pod/web-x-1")
    assert (found["outcome"], found["endedAt"]) == ("Lost", "2026-11-27T21:52:39Z")
    assert shown(sink, "prod/shop/pod/web-x-1")["managedBy"] == BASE + "prod/shop/deployment/web"
    assert shown(sink, "prod/shop/deployment/web")["type"] == "Deployment", "Deployments were not said to be complete"

    generation = sink.generation
    follow([*map(upserted, kept), *synced("Pod", observed=LATER + timedelta(days=1))], sink)
    assert sink.generation == generation, "a tombstone stays as it is"


def test_what_cannot_be_read_any_more_is_not_taken_for_gone() -> None:
    """An object that the source rejects exists; its graph stays as an earlier life wrote it."""
    sink, _ = follow([upserted(pod()), upserted(pod("web-1", "p2"))])
    before = sink.graphs[BASE + "prod/shop/pod/web-0"]
    follow([Rejected("/api/v1/…", "Expected `str`, got `int`", BY_NAME["Pod"], "shop", "web-0"), *synced()], sink)

    assert sink.graphs[BASE + "prod/shop/pod/web-0"] == before
    assert shown(sink, "prod/shop/pod/web-1")["type"] == "Tombstone"


def test_a_restart_against_the_same_objects_writes_nothing() -> None:
    """Nothing is written again, whatever was discovered, and the runs are those of before."""
    sink, _ = follow([*map(upserted, CLUSTER), *synced()])
    generation, graphs = sink.generation, dict(sink.graphs)
    surroundings = around()
    ensure(sink, surroundings.settings, surroundings.iris, surroundings.catalogue, ())
    _, run = follow([*map(upserted, CLUSTER), *synced(observed=LATER)], sink)

    assert (sink.generation, sink.graphs) == (generation, graphs)
    assert (run.summary.added, run.summary.updated, run.summary.removed) == (0, 0, 0)
    assert run.summary.unchanged == len([graph for graph in graphs if graph.startswith(BASE + "prod/")])


@pytest.mark.parametrize("most", [2, 1000])
def test_what_is_unchanged_is_counted_whether_it_is_much_or_little(most: int) -> None:
    """The summary of many graphs that stay as they are counts them, as that of few does."""
    sink, first = follow([*map(upserted, CLUSTER), *synced()], most=most)
    _, second = follow([*map(upserted, CLUSTER), *synced()], sink, most=most)

    assert first.summary.added == second.summary.unchanged > 0


def test_live_changes_are_seen_batch_by_batch(monkeypatch: pytest.MonkeyPatch) -> None:
    """What existed at the start is written at once; of many changes that come later the first is seen before the last is written."""
    monkeypatch.setattr("drumlin.exporters.pipeline.reconciler.LIVE_BATCH", 2)
    pods = [pod(f"web-{number}", f"p{number}") for number in range(7)]
    sink, run = follow([*map(upserted, pods), *synced()])
    begun = sink.applies
    for each in pods:
        run.take(upserted({**each, "status": {**each["status"], "phase": "Failed"}}))
    run.flush()

    assert begun <= 3  # hosting graphs, objects, external data
    assert sink.applies - begun == 4


# -- datasources ------------------------------------------------------------------------------------------------------------


def test_discovered_datasources_come_and_go_with_their_services() -> None:
    """A Prometheus that appears gives every workload its metrics, one that goes takes them; headless twins do not count."""
    sink, run = follow([upserted(each) for each in CLUSTER], one_by_one=True)
    found = {graph.removeprefix(BASE) for graph in sink.graphs if graph.startswith(BASE + "datasource/")}
    assert found == {"datasource/prometheus.shop.prod", "datasource/loki.shop.prod"}
    assert sink.owners[BASE + "datasource/loki.shop.prod"] == "test"
    assert "telemetry" in shown(sink, "domain/glaciation-node1")

    run.take(gone(service("prometheus", "prometheus")))
    run.flush()

    assert shown(sink, "datasource/prometheus.shop.prod")["type"] == "Tombstone"
    assert [each["signal"] for each in shown(sink, "prod/shop/deployment/web")["telemetry"]] == ["logs"]
    assert "telemetry" not in shown(sink, "domain/glaciation-node1")


def test_a_discovered_datasource_that_is_missing_after_a_restart_is_gone() -> None:
    """Only when Services are complete is one that was found earlier taken for gone."""
    sink, _ = follow([*map(upserted, CLUSTER), *synced()])
    rest = [each for each in CLUSTER if each["metadata"]["name"] != "prometheus"]
    others = [kind.name for kind in KINDS if kind.name != "Service"]
    follow([*map(upserted, rest), *synced(*others)], sink)
    assert shown(sink, "datasource/prometheus.shop.prod")["type"] == "Datasource"

    follow([*map(upserted, rest), *synced()], sink)
    assert shown(sink, "datasource/prometheus.shop.prod")["type"] == "Tombstone"


def test_a_configured_datasource_is_not_discovered_again() -> None:
    """The Service that the configuration names stays the configured datasource; discovery can be off altogether."""
    entry = {
        "name": "main",
        "kind": "prometheus",
        "url": "http://prometheus.shop.svc:9090",
        "service": "shop/prometheus",
    }
    sink, _ = follow(list(map(upserted, CLUSTER)), None, around({**CONTRACT, "datasource": [entry]}))
    assert BASE + "datasource/prometheus.shop.prod" not in sink.graphs
    assert BASE + "datasource/loki.shop.prod" in sink.graphs

    silent, _ = follow(list(map(upserted, CLUSTER)), None, around({**CONTRACT, "discover": False}))
    assert not [graph for graph in silent.graphs if graph.startswith(BASE + "datasource/")]


# -- trouble ----------------------------------------------------------------------------------------------------------------


def test_an_object_that_cannot_be_rendered_is_reported_once_and_ends_nothing() -> None:
    """A malformed amount is named by its object, never by its value; the others of its kind are written."""
    bad = pod("bad", "p9")
    bad["spec"]["containers"][0]["resources"] = {"limits": {"cpu": "secret-amount"}}
    with structlog.testing.capture_logs() as logs:
        sink, run = follow([upserted(bad), upserted(pod())], one_by_one=True)
        run.take(upserted(namespace("alice")))  # renders both again
        run.flush()

    assert BASE + "prod/shop/pod/web-0" in sink.graphs
    assert BASE + "prod/shop/pod/bad" not in sink.graphs
    assert [each.where for each in run.summary.rejected] == [BASE + "prod/shop/pod/bad"]
    assert "secret-amount" not in str(logs) + str(run.summary)
    assert len([each for each in logs if each["event"] == "object_rejected"]) == 1
    assert run.counts.failed["pod"] > 1


def test_an_unforeseen_error_is_logged_without_its_message(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of a renderer names the object and the frames, not what the exception says; its kind goes on."""

    def broken(metadata: Any, kind: str, context: Any) -> Any:
        raise KeyError(f"secret of {metadata.name}")

    monkeypatch.setattr("drumlin.exporters.kubernetes.render.pod.placed", broken)
    with structlog.testing.capture_logs() as logs:
        sink, run = follow([upserted(pod()), upserted(deployment())])

    assert BASE + "prod/shop/deployment/web" in sink.graphs
    assert len(run.summary.rejected) == 1
    crash = next(each for each in logs if each["event"] == "render_crashed")
    assert crash["error"] == "KeyError"
    assert "broken" in crash["frames"]
    assert "secret of web-0" not in str(logs)


def test_a_graph_of_a_user_is_left_alone() -> None:
    """An entity that a user has written is reported, and the others are written."""
    sink = MemorySink()
    theirs = BASE + "prod/shop/pod/web-0"
    sink.apply([GraphWrite.of(theirs, frozenset({f'<{theirs}> <{NAMESPACE}name> "web-0" .'}), "user")])
    before = sink.graphs[theirs]
    _, run = follow([upserted(pod()), upserted(deployment()), upserted(pod(phase="Pending"))], sink, one_by_one=True)

    assert sink.graphs[theirs] == before
    assert BASE + "prod/shop/deployment/web" in sink.graphs
    assert [each.where for each in run.summary.rejected] == [theirs]


def test_a_replicaset_that_is_adopted_is_no_entity_any_more() -> None:
    """Its graph goes without a tombstone: it lives on as a link between its pods and their workload."""
    alone = {**replicaset(), "metadata": meta("web-x", "r1")}
    sink, run = follow([upserted(alone)], one_by_one=True)
    assert BASE + "prod/shop/replicaset/web-x" in sink.graphs
    run.take(upserted(replicaset()))
    run.flush()

    assert BASE + "prod/shop/replicaset/web-x" not in sink.graphs


# -- the loop ---------------------------------------------------------------------------------------------------------------


class Script:
    """A source that yields what it is given and calls what can be called."""

    name = "test"

    def __init__(self, *steps: Any) -> None:
        self.steps = steps

    def changes(self, stop: threading.Event) -> Iterator[Change]:
        """Yield the changes; a callable step is called instead, and an exception raised."""
        for step in self.steps:
            if stop.is_set():
                return
            if isinstance(step, Exception):
                raise step
            if callable(step):
                step()
            else:
                yield step


class Clock:
    """A clock that a test sets."""

    now = 1000

    def monotonic(self) -> float:
        """Return the time, in seconds."""
        return self.now


class Noted(MemorySink):
    """Notes when each graph was written."""

    def __init__(self, clock: Clock) -> None:
        super().__init__()
        self._clock = clock
        self.times: dict[str, list[float]] = {}

    def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
        """Write and note the time."""
        for each in writes:
            self.times.setdefault(each.graph, []).append(self._clock.monotonic())
        return super().apply(writes)


def pipeline(sink: MemorySink, window: float = 0.3) -> Pipeline:
    """A pipeline with the contract's settings."""
    surroundings = around()
    return Pipeline(
        sink, KINDS, surroundings.settings, surroundings.iris, surroundings.catalogue, (), clock=now, window=window
    )


def test_the_first_change_is_written_at_once_and_a_burst_once_more(monkeypatch: pytest.MonkeyPatch) -> None:
    """A change to an idle object does not wait; those that follow within its window are one write, the latest."""
    clock = Clock()
    monkeypatch.setattr("drumlin.exporters.pipeline.reconciler.time", clock)
    sink = Noted(clock)
    graph = BASE + "prod/shop/deployment/web"

    def window_over() -> None:
        clock.now += 10
        until(lambda: len(sink.times[graph]) == 2)

    steps = [
        *synced(),
        upserted(deployment(replicas=1)),
        lambda: until(lambda: graph in sink.times),
        *(upserted(deployment(replicas=replicas)) for replicas in range(2, 9)),
        window_over,
    ]

    summary = pipeline(sink, window=10).run(Script(*steps), threading.Event())

    assert sink.times[graph] == [1000, 1010]
    assert shown(sink, "prod/shop/deployment/web")["replicas"] == 8
    assert summary.objects == {"Deployment": 1}


def test_what_exists_is_written_when_all_is_told() -> None:
    """Nothing is written before every kind is complete, then everything at once; progress is told on the way."""
    sink = MemorySink()
    seen: list[int] = []
    flow = pipeline(sink)

    def not_yet() -> None:
        time.sleep(0.1)
        seen.append(len(sink.graphs))
        assert not flow.synced

    summary = flow.run(Script(*map(upserted, CLUSTER), not_yet, *synced()), threading.Event(), progress=lambda _: None)

    assert seen == [0]
    assert sink.applies == 2, "the hosting graphs, then all others"
    assert flow.synced
    assert "11 objects" in str(summary)


def test_what_the_source_raises_is_raised() -> None:
    """A source that cannot go on ends the run with its own error."""
    with pytest.raises(SourceUnavailable, match="no more"):
        pipeline(MemorySink()).run(Script(upserted(pod()), SourceUnavailable("no more")), threading.Event())


def test_a_store_that_fails_ends_the_run_and_its_thread() -> None:
    """When nothing can be written the error is raised, and the source is not left running."""

    class Failing(MemorySink):
        def apply(self, writes: Sequence[GraphWrite]) -> list[Written]:
            raise StoreUnavailable(f"the disk is full: {len(writes)} graphs were not written")

    with pytest.raises(StoreUnavailable):
        pipeline(Failing()).run(Script(upserted(pod()), *synced(), *[upserted(pod())] * 20_000), threading.Event())
    assert not [thread for thread in threading.enumerate() if thread.name == "feed test"]


def test_stop_ends_the_source_and_what_it_has_said_is_written() -> None:
    """A run that is stopped writes what it has taken, and its source's thread is gone when it returns."""
    sink, stop = MemorySink(), threading.Event()

    class Endless(Script):
        def changes(self, stop: threading.Event) -> Iterator[Change]:
            yield from self.steps
            stop.wait()

    threading.Timer(0.1, stop.set).start()
    pipeline(sink).run(Endless(*synced(), upserted(pod())), stop)

    assert BASE + "prod/shop/pod/web-0" in sink.graphs
    assert not [thread for thread in threading.enumerate() if thread.name == "feed test"]


def test_rejected_objects_are_listed() -> None:
    """What the source could not read stands in the summary."""
    rejected = Rejected("file.yaml: document 3", "is not YAML from here on")
    summary = pipeline(MemorySink()).run(Script(rejected, upserted(pod())), threading.Event())

    assert summary.rejected == [rejected]


def test_a_kind_that_never_completes_does_not_hold_up_the_others(monkeypatch: pytest.MonkeyPatch) -> None:
    """When one kind stays silent, for instance forbidden, the rest is written after some patience."""
    monkeypatch.setattr("drumlin.exporters.pipeline.reconciler.PATIENCE_SECONDS", 0.05)
    sink = MemorySink()
    run = following(sink, around())
    others = [kind.name for kind in KINDS if kind.name != "Node"]
    for each in [upserted(pod()), *synced(*others)]:
        run.take(each)
    run.flush()
    assert not run.gathered
    time.sleep(0.06)
    run.flush()

    assert run.gathered
    assert BASE + "prod/shop/pod/web-0" in sink.graphs
