"""Warning events as transitions of runs: a reason, a count and a last time, coalesced, and nothing of their notes."""

from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.kubernetes.rbac import manifests
from drumlin.exporters.pipeline.transitions import MOST, Transition, reported
from drumlin.exporters.protocol import Trouble
from drumlin.kg.config.settings import Settings
from drumlin.kg.rdf.jsonld import compact
from drumlin.queries.catalogue import QueryCatalogue
from tests.memory_sink import MemorySink
from tests.unit.rendering import around, follow, gone, synced, upserted
from tests.unit.test_pipeline import BASE, deployment, owned, pod, replicaset, run_of
from tests.unit.test_transitions import ID, why

POD = {"kind": "Pod", "apiVersion": "v1", "namespace": "shop", "name": "web-0", "uid": "p1"}


def event(reason: str = "Unhealthy", minute: int = 0, about: dict[str, Any] = POD, **more: Any) -> dict[str, Any]:
    """A warning about the pod web-0 as API servers write it, with a note that may quote anything."""
    series = (
        {"count": more.pop("count"), "lastObservedTime": f"2026-11-27T22:{minute:02}:00.123456Z"}
        if "count" in more
        else None
    )
    return {
        "kind": "Event",
        "apiVersion": "events.k8s.io/v1",
        "metadata": {"name": f"web-0.{reason.lower()}", "namespace": "shop", "uid": f"e-{reason}"},
        "type": "Warning",
        "reason": reason,
        "note": "canary: Readiness probe failed: HTTP 503 with token=canary",
        "regarding": about,
        "eventTime": f"2026-11-27T22:{minute:02}:00.123456Z",
        "series": series,
        "reportingController": "kubelet",
        **more,
    }


def befell(sink: MemorySink, id: str = ID, uid: str = "p1") -> dict[str, tuple[int, str]]:
    """Return what befell the only run of an entity: count and last time by reason."""
    return {
        each["reason"]: (each["occurrences"], each["lastSeen"]) for each in run_of(sink, id, uid).get("transition", [])
    }


def test_a_warning_is_a_transition_of_the_run_that_it_is_about() -> None:
    """Whichever comes first; it answers why the pod fails, and no event is an entity or is quoted."""
    for changes in ([pod(), event(count=3)], [event(count=3), pod()]):
        sink, run = follow([*map(upserted, changes), *synced()])

        assert befell(sink) == {"Unhealthy": (3, "2026-11-27T22:00:00Z")}
        assert why(sink, ID) == [(ID, "", "Unhealthy", "false", "3")]
        assert not [graph for graph in sink.graphs if "/event/" in graph]
        assert "canary" not in json.dumps([*map(sorted, sink.graphs.values())])
        assert run.summary.rejected == []


def test_an_event_names_the_container() -> None:
    """By the path of the field; a path to anything else names none."""
    about = {**POD, "fieldPath": "spec.containers{web}"}
    sink, _ = follow(
        [upserted(pod()), upserted(event("BackOff", 1, about)), upserted(event("Failed", 1, {**POD, "fieldPath": "x"}))]
    )

    assert {(each["reason"], each.get("containerName")) for each in run_of(sink, ID)["transition"]} == {
        ("BackOff", "web"),
        ("Failed", None),
    }


def test_events_that_go_on_write_seldom() -> None:
    """A probe that fails every 10 seconds for an hour makes a dozen writes, and each states at least half of what was seen."""
    sink, run = follow([*synced(), upserted(pod())])
    before = sink.generation
    for number in range(360):
        last = f"2026-11-27T22:{number // 6:02}:{number % 6}0Z"
        run.take(upserted(event(series={"count": number + 1, "lastObservedTime": last})))
        run.flush()
        assert befell(sink)["Unhealthy"][0] * 2 > number + 1 or number == 0

    assert sink.generation - before <= 16


def test_a_restart_and_an_event_that_goes_change_nothing() -> None:
    """The API server drops events after an hour; what befell the run stays, and is not counted twice."""
    changes = [*map(upserted, (pod(), event(count=3))), *synced()]
    sink, _ = follow(changes)
    generation = sink.generation
    _, run = follow(changes, sink)
    run.take(gone(event(count=3)))
    run.flush()

    assert sink.generation == generation
    assert befell(sink) == {"Unhealthy": (3, "2026-11-27T22:00:00Z")}


def test_a_warning_about_a_replicaset_befalls_its_deployment() -> None:
    """FailedCreate: no pod was made, so that there is no other trace of it."""
    about = {"kind": "ReplicaSet", "apiVersion": "apps/v1", "namespace": "shop", "name": "web-x", "uid": "r1"}
    sink, _ = follow([*map(upserted, (deployment(), replicaset(), event("FailedCreate", 2, about))), *synced()])

    assert befell(sink, "prod/shop/deployment/web", "d1") == {"FailedCreate": (1, "2026-11-27T22:02:00Z")}


def test_a_warning_about_a_node_befalls_its_run() -> None:
    """The kubelet writes the node's name where the uid belongs; pressure stands in the node's conditions and needs no event."""
    node = {"kind": "Node", "metadata": {"name": "a", "uid": "n1", "creationTimestamp": "2026-11-01T00:00:00Z"}}
    about = {"kind": "Node", "apiVersion": "v1", "name": "a", "uid": "a"}
    pressed = {
        **node,
        "status": {
            "conditions": [{"type": "DiskPressure", "status": "True"}, {"type": "PIDPressure", "status": "False"}]
        },
    }
    sink, run = follow([*synced(), *map(upserted, (pressed, event("SystemOOM", 3, about)))])
    assert befell(sink, "prod/-/node/a", "n1") == {
        "SystemOOM": (1, "2026-11-27T22:03:00Z"),
        "DiskPressure": (1, "2026-11-27T21:51:39Z"),
    }
    assert {row[2:4] for row in why(sink, "prod/-/node/a")} == {("DiskPressure", "true"), ("SystemOOM", "false")}

    run.take(upserted(node))
    run.flush()
    assert {row[2:4] for row in why(sink, "prod/-/node/a")} == {("DiskPressure", "false"), ("SystemOOM", "false")}


@pytest.mark.parametrize(
    "wrong",
    [
        {"type": "Normal"}, {"reason": "see the password canary"}, {"reason": ""}, {"regarding": {}},
        {"regarding": {**POD, "uid": "other"}}, {"regarding": {**POD, "name": "other"}}, {"eventTime": None, "series": None},
    ],
)  # fmt: skip
def test_what_is_no_warning_about_a_run_befalls_nothing(wrong: dict[str, Any]) -> None:
    """Normal events, free text as a reason, runs that are not known, events without a time."""
    sink, run = follow([*synced(), upserted(pod()), upserted({**event(), **wrong})])

    assert befell(sink) == {}
    assert run.summary.rejected == []


def test_what_is_reported_of_a_run_that_has_not_begun_waits_for_it() -> None:
    """A pod that cannot be scheduled has no run yet; an older incarnation's troubles are not the new one's."""
    sink, run = follow(
        [
            *synced(),
            upserted(pod(startTime=None)),
            upserted(event("FailedScheduling")),
            upserted(event("Failed", 0, {**POD, "uid": "p0"})),
        ]
    )
    run.take(upserted(pod()))
    run.flush()

    assert befell(sink) == {"FailedScheduling": (1, "2026-11-27T22:00:00Z")}


def test_what_is_reported_of_things_without_runs_is_not_kept() -> None:
    """An autoscaler without metrics reports so every 15 seconds, and has no run that it could befall."""
    target = {"scaleTargetRef": {"kind": "Deployment", "name": "web", "apiVersion": "apps/v1"}, "maxReplicas": 3}
    scaler = {
        "kind": "HorizontalPodAutoscaler",
        "metadata": {"name": "web", "namespace": "shop", "uid": "h1"},
        "spec": target,
    }
    about = {
        "kind": "HorizontalPodAutoscaler",
        "apiVersion": "autoscaling/v2",
        "namespace": "shop",
        "name": "web",
        "uid": "h1",
    }
    sink, run = follow([*synced(), upserted(scaler)])
    generation = sink.generation
    run.take(upserted(event("FailedGetResourceMetric", 1, about)))
    run.flush()

    assert sink.generation == generation
    assert run.summary.rejected == []


def test_many_reasons_are_bounded() -> None:
    """Whatever a controller makes up, a run has twenty transitions."""
    sink, _ = follow([upserted(pod()), *(upserted(event(f"Reason{number}", number % 60)) for number in range(100))])

    assert len(befell(sink)) == MOST


def test_events_are_followed_only_where_the_configuration_says_so() -> None:
    """So are their rights; and only warnings are asked for."""
    for settings, there in ((Settings(), False), (Settings(optional_kinds=("events",)), True)):
        kinds = [each for each in kinds_of(settings) if each.name == "Event"]
        assert bool(kinds) == there
        assert all(each.fields == "type=Warning" for each in kinds)
        assert ("resources: [events]" in manifests(kinds_of(settings))) == there


@given(st.lists(st.tuples(st.sampled_from(["A", "B"]), st.integers(0, 59), st.integers(1, 9)), max_size=30))
def test_the_order_of_events_matters_little(events: list[tuple[str, int, int]]) -> None:
    """Counts and times never go back, and what is stated was reported."""
    transitions: tuple[Transition, ...] = ()
    for reason, minute, count in events:
        after = reported(transitions, Trouble(reason, None, f"2026-11-27T22:{minute:02}:00Z", count=count))
        for old, new in ((old, new) for old in transitions for new in after if old.key == new.key):
            assert new.count >= old.count
            assert new.last >= old.last
        transitions = after
    assert {each.reason for each in transitions} == {reason for reason, _, _ in events}
    assert {(each.reason, each.last) for each in transitions} <= {
        (r, f"2026-11-27T22:{m:02}:00Z") for r, m, _ in events
    }


# -- restarts ---------------------------------------------------------------------------------------------------------------


def restarted(number: int, **end: Any) -> dict[str, Any]:
    """The pod web-0 whose container web has been started again so many times, once a minute."""
    written = {
        "startedAt": f"2026-11-27T22:{number:02}:00Z",
        "finishedAt": f"2026-11-27T22:{number:02}:30Z",
        "exitCode": 1,
        "reason": "Error",
        **end,
    }
    state = {"running": {"startedAt": f"2026-11-27T22:{number + 1:02}:00Z"}}
    return pod(
        containerStatuses=[
            {"name": "web", "restartCount": number, "state": state, "lastState": {"terminated": written}}
        ]
    )


def lives(sink: MemorySink) -> list[tuple[str, str | None, str, int]]:
    """Return the lives of containers in the only run of the pod: the end of their ids, start, end, exit code."""
    found = run_of(sink, ID).get("containerRun", [])
    return [
        (each["id"].rpartition("/run/p1/")[2], each.get("startedAt"), each["endedAt"], each["exitCode"])
        for each in found
    ]


def test_restarts_are_lives_of_the_container_bounded_and_kept() -> None:
    """The kubelet tells of the last one; five are kept, over a restart of the exporter and after the pod is gone."""
    sink, run = follow([*synced(), upserted(pod())])
    assert lives(sink) == []
    for number in range(1, 4):
        run.take(upserted(restarted(number)))
        run.flush()
    sink, run = follow([upserted(restarted(4)), *synced()], sink)
    for number in range(5, 9):
        run.take(upserted(restarted(number)))
        run.flush()
    expected = [
        (f"container/web/{number - 1}", f"2026-11-27T22:{number:02}:00Z", f"2026-11-27T22:{number:02}:30Z", 1)
        for number in range(4, 9)
    ]
    assert lives(sink) == expected

    generation = sink.generation
    run.take(upserted(restarted(8)))
    run.flush()
    assert sink.generation == generation
    run.take(gone(restarted(8)))
    run.flush()
    assert compact(sink.graphs[BASE + ID], BASE + ID)["type"] == "Tombstone"
    assert lives(sink) == expected
    iris = around().iris
    rows = sink.look_up(QueryCatalogue.load(iris).get("restarts").bound({"entity": ID}, iris))
    assert [(row["container"], row["start"], row["end"], row["exitCode"], row["reason"]) for row in rows] == [
        ("web", start, end, "1", "Error") for _, start, end, _ in reversed(expected)
    ]


def test_a_clock_that_went_back_gives_a_life_that_does_not_end_before_it_starts() -> None:
    """Times are the kubelet's, and may be anything."""
    sink, _ = follow([upserted(restarted(1, startedAt="2026-11-27T23:00:00Z"))])

    assert lives(sink) == [("container/web/0", "2026-11-27T22:01:30Z", "2026-11-27T22:01:30Z", 1)]


def test_a_pod_without_restarts_has_no_lives_of_containers() -> None:
    """Its run says when it ran: nothing more is written of thousands of pods."""
    sink, _ = follow(
        [
            upserted(
                pod(
                    owner=owned("ReplicaSet", "web-x", "r1"),
                    containerStatuses=[{"name": "web", "restartCount": 0, "state": {"running": {}}}],
                )
            )
        ]
    )

    assert lives(sink) == []
