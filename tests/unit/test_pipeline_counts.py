"""What can be said of a run while it goes on: what became of the changes of each kind, and how long they wait."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Mapping

import pytest
import structlog

from drumlin.exporters.pipeline.source_thread import SourceThread
from drumlin.exporters.protocol import Change, Rejected
from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.store.protocol import Row
from tests.unit.rendering import BY_NAME, follow, synced, upserted
from tests.unit.test_pipeline import deployment, pod


def test_an_object_that_can_never_be_read_is_told_once() -> None:
    """What is rejected at each of its changes stands in the log and the summary once."""
    misfit = Rejected("/api/v1/namespaces/shop/pods/bad", "Expected `int`", BY_NAME["Pod"], "shop", "bad")
    with structlog.testing.capture_logs() as logs:
        _, run = follow([misfit, upserted(pod()), misfit, misfit], one_by_one=True)

    assert run.summary.rejected == [misfit]
    assert len([each for each in logs if each["event"] == "object_rejected"]) == 1


def test_writes_and_what_gave_none_are_counted_by_kind() -> None:
    """A pod that is told again in another version is one write and one that was skipped; others are not touched."""
    again = pod()
    again["metadata"] = {**again["metadata"], "resourceVersion": "12345"}
    _, run = follow([upserted(pod()), upserted(again), upserted(deployment())], one_by_one=True)

    counts = run.counts
    assert counts.written["pod"] >= 1
    assert counts.written["deployment"] >= 1
    assert counts.skipped["pod"] >= 1
    assert "deployment" not in counts.skipped
    assert counts.failed == {}


def test_a_store_that_is_away_is_no_fault_of_an_object() -> None:
    """When what was written earlier cannot be looked up, the run ends: a change that is passed over would be lost."""
    sink, run = follow([upserted(pod()), *synced()])

    def away(query: str, values: Mapping[str, str] | None = None) -> list[Row]:
        raise StoreUnavailable(f"no answer to {len(query)} characters about {values}")

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sink, "look_up", away)
        with pytest.raises(StoreUnavailable):
            run.take(upserted(pod("late", "p9")))
    assert run.summary.rejected == []


def test_what_waits_has_an_age_by_kind_until_it_is_dealt_with() -> None:
    """A change is waiting from when it comes to when the next are asked for, so that a store that hangs is seen."""

    class Two:
        name = "test"

        def changes(self, stop: threading.Event) -> Iterator[Change]:
            del stop
            yield upserted(pod())
            yield upserted(deployment())

    feed = SourceThread(Two())
    taken: list[Change] = []
    while len(taken) < 2:
        taken += feed.take(5)
        first = feed.ages()
    assert BY_NAME["Deployment"] in first
    time.sleep(0.01)
    assert feed.ages()[BY_NAME["Deployment"]] - first[BY_NAME["Deployment"]] >= 0.01
    while not feed.ended:
        feed.take(1)
    feed.take(0)  # whoever asks has dealt with what came before
    assert feed.ages() == {}
    feed.close()
