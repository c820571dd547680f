"""Which pods behind a Service receive requests: readiness that lasts is stated, readiness that flaps writes nothing."""

from __future__ import annotations

from datetime import datetime, timedelta
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.exporters.pipeline.hysteresis import LASTS, Hysteresis
from drumlin.exporters.pipeline.reconciler import Reconciler
from drumlin.kg.rdf.jsonld import compact
from drumlin.queries.catalogue import QueryCatalogue
from tests.memory_sink import MemorySink
from tests.unit.rendering import KINDS, NOW, around, gone, synced, upserted
from tests.unit.test_pipeline import BASE, pod

SERVICE = f"{BASE}prod/shop/service/web"


class Time:
    """A clock that the test moves."""

    def __init__(self) -> None:
        self.now = NOW

    def __call__(self) -> datetime:
        """Return the time."""
        return self.now

    def passes(self, seconds: float) -> None:
        """Let time pass."""
        self.now += timedelta(seconds=seconds)


def slice_(**ready: bool | None) -> dict[str, Any]:
    """The slice of the Service web, with pods and whether they are ready."""
    endpoints = [
        {
            "targetRef": {"kind": "Pod", "name": name.replace("_", "-")},
            "conditions": {} if each is None else {"ready": each},
        }
        for name, each in ready.items()
    ]
    labels = {"kubernetes.io/service-name": "web"}
    return {
        "kind": "EndpointSlice",
        "metadata": {"name": "web-1", "namespace": "shop", "uid": "s1", "labels": labels},
        "endpoints": endpoints,
    }


@pytest.fixture
def clock() -> Time:
    """The time of the run."""
    return Time()


@pytest.fixture
def sink() -> MemorySink:
    """The store."""
    return MemorySink()


@pytest.fixture
def run(sink: MemorySink, clock: Time) -> Reconciler:
    """A run that has read a Service with two pods that are ready."""
    following = Reconciler(sink, around(), "test", frozenset(kind.segment for kind in KINDS), clock, window=0.0)
    service = {"kind": "Service", "metadata": {"name": "web", "namespace": "shop", "uid": "s"}, "spec": {}}
    for each in (
        *map(upserted, (service, pod("web-0"), pod("web-1", "p2"), slice_(web_0=True, web_1=None))),
        *synced(),
    ):
        following.take(each)
    following.flush()
    return following


def said(run: Reconciler, sink: MemorySink, **ready: bool | None) -> list[str]:
    """Have the slice say something, and return the pods that the Service states not to be ready."""
    if ready:
        run.take(upserted(slice_(**ready)))
    run.flush()
    return [each.rpartition("/")[2] for each in compact(sink.graphs[SERVICE], SERVICE).get("unready", [])]


def receivers(sink: MemorySink) -> list[str]:
    """Ask which pods receive requests."""
    iris = around().iris
    query = QueryCatalogue.load(iris).get("receivers").bound({"service": SERVICE}, iris)
    return [row["pod"].rpartition("/")[2] for row in sink.look_up(query)]


def test_a_pod_that_stays_unready_is_stated_after_a_minute_and_one_that_comes_back_no_longer(
    run: Reconciler, sink: MemorySink, clock: Time
) -> None:
    """The question which pods receive requests has the answer of a minute ago at most."""
    assert receivers(sink) == ["web-0", "web-1"]
    assert said(run, sink, web_0=False, web_1=True) == []
    clock.passes(59)
    assert said(run, sink) == []
    clock.passes(1)
    assert said(run, sink) == ["web-0"]
    assert receivers(sink) == ["web-1"]

    assert said(run, sink, web_0=True, web_1=True) == ["web-0"]
    clock.passes(60)
    assert said(run, sink) == []
    assert receivers(sink) == ["web-0", "web-1"]


def test_readiness_that_flaps_writes_nothing(run: Reconciler, sink: MemorySink, clock: Time) -> None:
    """An hour of a probe that fails every 30 seconds leaves the store as it is."""
    generation = sink.generation
    for _ in range(60):
        for ready in (False, True):
            assert said(run, sink, web_0=ready, web_1=True) == []
            clock.passes(30)
            run.flush()

    assert sink.generation == generation


def test_pods_turn_each_for_itself(run: Reconciler, sink: MemorySink, clock: Time) -> None:
    """One that flaps does not hold up another that has been unready for long."""
    for number in range(5):
        said(run, sink, web_0=False, web_1=bool(number % 2))
        clock.passes(20)

    assert said(run, sink) == ["web-0"]


def test_what_is_gone_from_the_slice_is_not_unready(run: Reconciler, sink: MemorySink, clock: Time) -> None:
    """A pod that the slice no longer has, or a slice that is gone, leaves nothing."""
    said(run, sink, web_0=False, web_1=True)
    clock.passes(60)
    assert said(run, sink) == ["web-0"]
    assert said(run, sink, web_1=True) == []
    assert said(run, sink, web_0=False, web_1=True) == ["web-0"]
    run.take(gone(slice_()))
    assert said(run, sink) == []


def test_a_start_takes_readiness_as_it_is_found_and_writes_nothing_twice(sink: MemorySink) -> None:
    """Nobody knows since when it is so; an unchanged cluster writes nothing after a restart."""
    clock = Time()
    service = {"kind": "Service", "metadata": {"name": "web", "namespace": "shop", "uid": "s"}, "spec": {}}
    first = 0
    for _ in range(2):
        following = Reconciler(sink, around(), "test", frozenset(kind.segment for kind in KINDS), clock, window=0.0)
        for each in (*map(upserted, (service, pod("web-0"), slice_(web_0=False))), *synced()):
            following.take(each)
        following.flush()
        assert said(following, sink) == ["web-0"]
        generation = sink.generation
        first = first or generation
        clock.passes(60)
        following.flush()
        assert sink.generation == generation
    assert generation == first


@given(st.lists(st.tuples(st.integers(1, 50), st.frozensets(st.sampled_from("abc"))), max_size=30))
def test_a_member_changes_only_after_it_has_lasted(steps: list[tuple[int, frozenset[str]]]) -> None:
    """Held to a model that looks back over the whole past of each member."""
    found, now = Hysteresis(), NOW
    settled: frozenset[str] = frozenset()
    past: list[tuple[datetime, frozenset[str]]] = [(NOW, frozenset())]
    for seconds, members in steps:
        found.offer("x", members, now)
        past.append((now, members))
        now += timedelta(seconds=seconds)
        settled = dict(found.settle(now)).get("x", settled)
        for each in "abc":
            since = now
            for at, before in reversed(past):
                if (each in before) != (each in past[-1][1]):
                    break
                since = at
            if now - since >= LASTS:
                assert (each in settled) == (each in past[-1][1])
