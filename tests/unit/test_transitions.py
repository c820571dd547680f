"""What befell runs: reasons, counts and last times of containers, bounded, kept through restarts and after the end."""

from __future__ import annotations

from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.exporters.pipeline.transitions import MOST, Transition, merged
from drumlin.exporters.protocol import Trouble
from drumlin.kg.validation.validate import validate
from drumlin.queries.catalogue import QueryCatalogue
from tests.memory_sink import MemorySink
from tests.unit.rendering import around, follow, gone, upserted
from tests.unit.test_pipeline import BASE, pod, run_of, shown

NOW, LATER = "2026-11-27T22:00:00Z", "2026-11-27T22:05:00Z"
ID = "prod/shop/pod/web-0"


def container(**status: Any) -> list[dict[str, Any]]:
    """The status of the container web."""
    return [{"name": "web", **status}]


def killed(minute: int, state: str = "lastState") -> dict[str, Any]:
    """The status of a container that ran out of memory at a minute, before or now."""
    end = {"reason": "OOMKilled", "exitCode": 137, "finishedAt": f"2026-11-27T21:{minute}:00Z"}
    return {state: {"terminated": end}}


BACKOFF = {"state": {"waiting": {"reason": "CrashLoopBackOff", "message": "canary: back-off 5m0s restarting"}}}
RUNNING = {"state": {"running": {"startedAt": "2026-11-27T21:55:00Z"}}}


def transitions(sink: MemorySink, id: str = ID) -> dict[str, dict[str, Any]]:
    """Return what befell the only run of an entity, by reason."""
    return {each["reason"]: each for each in run_of(sink, id).get("transition", [])}


def why(sink: MemorySink, entity: str) -> list[tuple[str, ...]]:
    """Ask the saved query: pod, container, reason, whether it lasts, and how often."""
    iris = around().iris
    query = QueryCatalogue.load(iris).get("why-failing").bound({"entity": entity}, iris)
    return [
        (
            row["pod"].removeprefix(BASE),
            row.get("container", ""),
            row["reason"],
            row.get("ongoing", ""),
            row.get("occurrences", ""),
        )
        for row in sink.look_up(query)
    ]


def test_a_crash_loop_is_a_reason_a_count_and_a_last_time() -> None:
    """OOMKilled counts each end, CrashLoopBackOff each beginning; messages are never read, and the graph keeps the rules."""
    sink, run = follow([upserted(pod(containerStatuses=container(**killed(51), **BACKOFF)))], one_by_one=True)
    assert transitions(sink)["OOMKilled"] == {
        "id": f"{BASE}{ID}/run/p1/transition/web.OOMKilled",
        "type": "Transition",
        "reason": "OOMKilled",
        "containerName": "web",
        "occurrences": 1,
        "lastSeen": "2026-11-27T21:51:00Z",
        "ongoing": False,
        "exitCode": 137,
    }
    assert transitions(sink)["CrashLoopBackOff"]["ongoing"] is True

    for status in (RUNNING, {**RUNNING, **killed(53)}, {**killed(53), **BACKOFF}):
        run.take(upserted(pod(containerStatuses=container(**status))))
        run.flush()
    found = transitions(sink)
    assert (found["OOMKilled"]["occurrences"], found["OOMKilled"]["lastSeen"]) == (2, "2026-11-27T21:53:00Z")
    assert (found["CrashLoopBackOff"]["occurrences"], found["CrashLoopBackOff"]["ongoing"]) == (2, True)
    validate(sink.graphs[BASE + ID], BASE + ID, around().iris)
    assert "canary" not in str(sink.graphs)


def test_a_state_that_lasts_writes_nothing() -> None:
    """The kubelet reports an image that cannot be pulled again and again; the graph stays as it is."""
    waits = container(state={"waiting": {"reason": "ImagePullBackOff"}})
    sink, run = follow([upserted(pod(containerStatuses=waits))], one_by_one=True)
    generation = sink.generation
    for number in range(5):
        run.take(upserted(pod(containerStatuses=waits, labels={"number": str(number)})))
        run.flush()

    assert sink.generation == generation
    assert transitions(sink)["ImagePullBackOff"]["occurrences"] == 1


def test_a_restart_of_the_exporter_forgets_and_counts_nothing_twice() -> None:
    """What an earlier process counted goes on; an unchanged pod writes nothing."""
    first = upserted(pod(containerStatuses=container(**killed(51), **BACKOFF)))
    sink, _ = follow([first])
    generation = sink.generation
    follow([first], sink)
    assert sink.generation == generation
    follow([upserted(pod(containerStatuses=container(**killed(58), **BACKOFF)))], sink)

    assert transitions(sink)["OOMKilled"]["occurrences"] == 2
    assert transitions(sink)["CrashLoopBackOff"]["occurrences"] == 1


def test_what_befell_a_pod_is_known_after_its_end() -> None:
    """A tombstone keeps the transitions of its runs; none of them lasts any longer."""
    failing = pod(containerStatuses=container(**killed(51), **BACKOFF))
    sink, _ = follow([upserted(failing), gone(failing)])

    assert shown(sink, ID)["type"] == "Tombstone"
    assert {reason: each["ongoing"] for reason, each in transitions(sink).items()} == {
        "OOMKilled": False,
        "CrashLoopBackOff": False,
    }


def test_why_is_one_query_for_a_pod_and_for_its_workload() -> None:
    """What lasts comes first; a pod that cannot be placed, one that was evicted, and pods that are gone are told too."""
    owner = [{"apiVersion": "apps/v1", "kind": "StatefulSet", "name": "db", "uid": "s1", "controller": True}]
    lost = pod("web-3", "p4", owner=owner, containerStatuses=container(**killed(50)))
    unplaced = [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "canary 0/3 nodes"}]
    sink, _ = follow(
        [
            upserted(pod(owner=owner, containerStatuses=container(**killed(51), **BACKOFF))),
            upserted(pod("web-1", "p2", owner=owner, phase="Pending", startTime=None, conditions=unplaced)),
            upserted(pod("web-2", "p3", owner=owner, phase="Failed", reason="Evicted")),
            upserted(pod("well", "p5", owner=owner, containerStatuses=container(**RUNNING))),
            upserted(lost),
            gone(lost),
        ]
    )
    expected = {
        (ID, "web", "CrashLoopBackOff", "true", "1"),
        (ID, "web", "OOMKilled", "false", "1"),
        ("prod/shop/pod/web-1", "", "Unschedulable", "true", ""),
        ("prod/shop/pod/web-2", "", "Evicted", "true", ""),
        ("prod/shop/pod/web-2", "", "Evicted", "false", ""),
        ("prod/shop/pod/web-3", "web", "OOMKilled", "false", "1"),
    }
    found = why(sink, "prod/shop/statefulset/db")

    assert set(found) == expected
    assert len(found) == len(expected)
    assert [each[3] for each in found] == sorted((each[3] for each in found), reverse=True)
    assert set(why(sink, ID)) == {each for each in expected if each[0] == ID}
    assert why(sink, "prod/shop/pod/well") == []
    follow([upserted({"kind": "Namespace", "metadata": {"name": "shop", "uid": "n1"}})], sink)
    assert set(why(sink, "prod/-/namespace/shop")) == expected
    assert "canary" not in str(sink.graphs)


@pytest.mark.parametrize("reason", ["ContainerCreating", "PodInitializing"])
def test_a_pod_that_starts_is_in_no_trouble(reason: str) -> None:
    """What every container waits for at its start is not worth a word."""
    sink, _ = follow([upserted(pod(containerStatuses=container(state={"waiting": {"reason": reason}})))])

    assert transitions(sink) == {}


def test_readiness_is_no_change() -> None:
    """Conditions other than of placement are not taken, so that they cannot make a write."""
    ready, unready = (
        upserted(pod(conditions=[{"type": "Ready", "status": status, "reason": "ContainersNotReady"}]))
        for status in ("True", "False")
    )

    assert msgspec.structs.replace(ready.manifest) == unready.manifest


TROUBLES = st.lists(
    st.builds(
        Trouble,
        st.sampled_from([f"R{number}" for number in range(30)]),
        st.sampled_from(["a", "b", None]),
        st.sampled_from([None, "2026-11-27T21:00:00Z", "2026-11-27T21:30:00Z"]),
        st.booleans(),
    ),
    max_size=60,
)


@given(st.lists(TROUBLES, max_size=6))
def test_a_run_has_few_transitions_whatever_comes(manifests: list[list[Trouble]]) -> None:
    """However many reasons there are, a run keeps so many, each once, and what lasts rather than what is over."""
    known: tuple[Transition, ...] = ()
    for troubles in manifests:
        known = merged(known, troubles, NOW)
        assert len(known) <= MOST
        assert len({each.key for each in known}) == len(known)
        if any(not each.ongoing for each in known) and len(known) == MOST:
            lasting = {
                f"{each.container}:{each.reason}" if each.container else each.reason
                for each in troubles
                if each.ongoing
            }
            assert len({each.key for each in known if each.ongoing}) <= len(lasting)
    assert merged(known, [], LATER) == merged(merged(known, [], LATER), [], LATER)
