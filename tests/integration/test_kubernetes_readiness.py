"""Readiness: never with an empty graph that nobody could read, and never lost through an outage of the API server."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace

import pytest

from drumlin.api.exporting import Exporting, stale_of
from drumlin.exporters.kubernetes.informer import KubernetesSource
from drumlin.exporters.kubernetes.kinds import KINDS
from drumlin.exporters.pipeline.pipeline import Pipeline
from tests.fake_apiserver import FakeApiServer
from tests.fake_apiserver.clusters import Cluster, access_to
from tests.fake_apiserver.following import FAST, NODES, PODS, restart
from tests.memory_sink import MemorySink
from tests.unit.rendering import around, now

FOLLOWED = tuple(each for each in KINDS if each.name in {"Namespace", "Node", "Pod", "Deployment"})


@contextmanager
def exporting(
    cluster: Cluster, sink: MemorySink | None = None, *, path: str = "", **options: object
) -> Iterator[Exporting]:
    """Export a cluster as the service does, until the block is left."""
    base = around()
    access = access_to(cluster.url + path, token=cluster.token)
    source = KubernetesSource(access, FOLLOWED, "prod", **({"timing": FAST} | options))
    flow = Pipeline(
        sink or MemorySink(), FOLLOWED, base.settings, base.iris, base.catalogue, (), clock=now, window=0.01
    )
    job = Exporting(flow, source)
    job.start()
    try:
        yield job
    finally:
        job.stop()


def until(holds: Callable[[], object], within: float = 10.0) -> None:
    """Wait until something holds."""
    deadline = time.monotonic() + within
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.01)


def test_no_rights_at_all_is_not_ready(cluster: Cluster, fake: FakeApiServer) -> None:
    """Every kind is set aside and nothing was read: it waits, and says what is forbidden."""
    fake.forbidden |= {each.plural for each in FOLLOWED}
    with exporting(cluster) as job:
        until(lambda: all(each.forbidden for each in job.kinds) and job.kinds)
        time.sleep(0.7)  # longer than a turn of the pipeline, which gathers when all kinds are set aside
        assert not job.ready
        assert job.missing
        assert "forbidden" in job.missing["failure"]
        assert "Pod" in job.missing["waiting"]
        fake.forbidden.clear()
        until(lambda: job.ready)


@pytest.mark.parametrize("path", ["/wrong/prefix", ""])
def test_what_is_no_kubernetes_is_not_ready(cluster: Cluster, fake: FakeApiServer, path: str) -> None:
    """A wrong path, or a server that answers everything with a page of its own: it waits, and says so."""
    fake.page = None if path else b"<html>sign in</html>"
    with exporting(cluster, path=path) as job:
        until(lambda: job.trouble)
        time.sleep(0.7)
        assert not job.ready
        assert "is not a Kubernetes API" in str(job.trouble)


def test_one_forbidden_kind_beside_the_core_is_no_obstacle(cluster: Cluster, fake: FakeApiServer) -> None:
    """A right that is not given leaves the rest ready, and nothing of it is stale: the graph has none of it."""
    fake.forbidden.add("deployments")
    with exporting(cluster) as job:
        until(lambda: job.ready)
        assert job.staleness is None
        assert job.is_following


def test_within_one_namespace_pods_are_enough(cluster: Cluster, fake: FakeApiServer) -> None:
    """Nodes and namespaces stand in no namespace: a Role there gives no right to them."""
    fake.forbidden |= {"nodes", "namespaces"}
    with exporting(cluster, namespace="default") as job:
        until(lambda: job.ready)
    with exporting(cluster) as job:
        until(lambda: sum(each.synced for each in job.kinds) == 2)
        time.sleep(0.7)
        assert not job.ready


def test_an_outage_leaves_the_service_ready_and_says_what_is_stale(cluster: Cluster, fake: FakeApiServer) -> None:
    """While the API server is away it stays ready; since when and why is told, and no longer once it is back."""
    cluster.create(NODES, "n")
    with exporting(cluster) as job:
        until(lambda: job.ready)
        assert job.staleness is None
        assert set(job.stale_kinds.values()) == {0.0}
        fake.stop()
        until(lambda: job.staleness and set(job.staleness.kinds) == {each.name for each in FOLLOWED})
        assert job.ready
        until(lambda: "does not answer" in stale_of([job])[0]["reason"])
        (told,) = stale_of([job])
        assert (told["source"], told["cluster"]) == ("kubernetes:prod", "prod")
        assert min(job.stale_kinds.values()) > 0.0
        fake.start()
        until(lambda: job.staleness is None)


def test_a_restored_graph_is_ready_without_the_api_server(cluster: Cluster, fake: FakeApiServer) -> None:
    """What an earlier process wrote is served at once, as stale since the start, whether the server is away or forbids everything."""
    sink = MemorySink()
    cluster.create(PODS, "web")
    with exporting(cluster, sink) as job:
        until(lambda: job.ready)
    fake.stop()
    with exporting(cluster, sink) as job:
        until(lambda: job.ready and job.kinds)
        assert job.staleness
        assert not job.is_following  # so that nobody takes what is missing for over
        fake.forbidden |= {each.plural for each in FOLLOWED}
        fake.start()
        until(lambda: all(each.forbidden for each in job.kinds))
        assert job.ready
        assert job.staleness
        assert "Pod" in job.staleness.kinds
        assert "Deployment" not in job.staleness.kinds  # the graph has none
        fake.forbidden.clear()
        until(lambda: job.staleness is None)


def test_credentials_that_are_refused_are_told_to_whom_can_end_the_service(
    cluster: Cluster, fake: FakeApiServer
) -> None:
    """401 at the first contact cannot be waited out: the callback comes, also when it is registered late."""
    fake.token = "another"
    refusals: list[None] = []
    with exporting(replace(cluster, token="wrong-token")) as job:
        until(lambda: job.refused)
        job.when_refused(lambda: refusals.append(None))
        assert refusals
        assert not job.ready
        assert "401" in str(job.refused)


def test_a_user_that_is_nobody_is_refused(cluster: Cluster, fake: FakeApiServer) -> None:
    """A server that takes us for system:anonymous and serves nothing gets no credentials from us: that is the operator's to mend."""
    fake.user = "system:anonymous"
    fake.forbidden |= {each.plural for each in FOLLOWED}
    with exporting(cluster) as job:
        until(lambda: job.refused)
    assert job.refused
    assert "anonymous" in str(job.refused.hint)


def test_credentials_refused_later_are_waited_out(cluster: Cluster, fake: FakeApiServer) -> None:
    """A spell of 401 in a running service is no reason to end it."""
    with exporting(cluster) as job:
        until(lambda: job.ready)
        fake.token = "another"
        restart(fake)
        until(lambda: job.staleness)
        assert job.ready
        assert job.refused is None
