"""What a process says of itself that stands by, while another one follows the cluster, and while nobody does."""

from __future__ import annotations

import json
from typing import Any, cast

import pytest
from prometheus_client import CollectorRegistry, generate_latest

from drumlin.api.bootstrap import now
from drumlin.api.export_metrics import ExportMetrics
from drumlin.api.exporting import Candidate, Exporter, Exporting, leaders_of, stale_of
from drumlin.exporters.kubernetes.access import ApiServer
from drumlin.exporters.kubernetes.election import Election, LeaseName
from drumlin.exporters.kubernetes.informer import KubernetesSource
from drumlin.exporters.kubernetes.kinds import KINDS
from drumlin.exporters.pipeline.fencing import FencedSink
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import SourceUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.memory_sink import MemorySink


class Api:
    """An API server with one Lease, which another process holds; ``away`` makes it silent."""

    def __init__(self) -> None:
        self.away = False

    def get(self, path: str, *, timeout: float) -> bytes:
        """Return the Lease."""
        del path, timeout
        if self.away:
            raise SourceUnavailable("the API server does not answer")
        return json.dumps({"metadata": {"resourceVersion": "7"}, "spec": {"holderIdentity": "another"}}).encode()


class Clock:
    """Seconds that only a test moves on."""

    now = 100.0

    def __call__(self) -> float:
        """Return the time."""
        return self.now


@pytest.fixture
def clock() -> Clock:
    """A clock."""
    return Clock()


def standing_by(api: Api, clock: Clock, kind: type[Exporter]) -> tuple[Exporter, Election]:
    """Return an exporter that looked at the Lease once, and its election."""
    settings = Settings(base="https://kg.example", cluster="prod")
    access = cast("ApiServer", cast("Any", api))
    election = Election(access, LeaseName("drumlin", "drumlin", 10, "this"), clock=clock)
    sink = FencedSink(MemorySink(), election, Iris(settings.base), ("kubernetes:prod",))
    source = KubernetesSource(access, KINDS, "prod")
    pipeline = Pipeline(sink, KINDS, settings, Iris(settings.base), TemplateCatalogue.shipped(), (), clock=now)
    exporter = kind(pipeline, source, Candidate(election, sink))
    election.turn()
    return exporter, election


@pytest.mark.parametrize("kind", [Exporter, Exporting])
def test_who_stands_by_is_ready_while_another_leads(clock: Clock, kind: type[Exporter]) -> None:
    """It is ready, nothing is stale, no kind is reported as its own, and it says who leads."""
    exporter, _ = standing_by(Api(), clock, kind)
    registry = CollectorRegistry()
    registry.register(ExportMetrics([exporter]))
    metrics = generate_latest(registry).decode()

    assert exporter.ready
    assert exporter.missing is None
    assert stale_of([exporter]) == []
    assert leaders_of([exporter]) == [{"source": "kubernetes:prod", "leader": "another", "leading": False}]
    assert 'drumlin_export_leader{source="kubernetes:prod"} 0.0' in metrics
    assert "drumlin_kind_objects{" not in metrics


def test_without_a_leader_the_graph_is_stale_and_the_reason_is_said(clock: Clock) -> None:
    """A service that was ready stays so, as through every outage; a follower waits for a leader."""
    api = Api()
    service, followed = standing_by(api, clock, Exporting)
    assert service.ready
    follower, waiting = standing_by(api, clock, Exporter)
    api.away, clock.now = True, clock.now + 11
    for each in (followed, waiting):
        each.turn()
    [stale] = stale_of([service])

    assert service.ready
    assert stale["reason"] == "the API server does not answer"
    assert stale["kinds"] == []
    assert not follower.ready
    assert follower.missing == {
        "source": "kubernetes:prod",
        "waiting": ["an elected leader"],
        "failure": "the API server does not answer",
    }
