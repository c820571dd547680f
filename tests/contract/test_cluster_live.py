"""The whole exporter on the recorded cluster: an API server over HTTP, the live source, the pipeline, a store on disk."""

from __future__ import annotations

import os
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.kubernetes.informer import KubernetesSource
from drumlin.exporters.pipeline.hosting_domain import OWNER, ensure
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.kg.rdf.tombstones import is_tombstone
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import Lines
from drumlin.kg.validation.validate import validate
from tests.contract.test_cluster import relisted
from tests.fake_apiserver.clusters import Cluster, fake_cluster
from tests.fake_apiserver.following import FAST
from tests.fake_apiserver.state import ApiState
from tests.unit.rendering import BY_NAME, KINDS, around
from tests.waiting import until

CLUSTER = Path(__file__).parents[2].parent / "shared" / "data" / "cluster"
OBSERVED = datetime(2026, 11, 27, 21, 53, tzinfo=UTC)

pytestmark = pytest.mark.skipif(
    not CLUSTER.is_dir() and os.environ.get("CI") != "true", reason="no recorded cluster at ../shared/data/cluster"
)


def observed() -> datetime:
    """The time at which everything is observed."""
    return OBSERVED


def pipeline(store: EmbeddedStore) -> Pipeline:
    """The pipeline as the service builds it, with a short window."""
    base = around()
    return Pipeline(store, KINDS, base.settings, base.iris, base.catalogue, (), clock=observed, window=0.02)


@contextmanager
def exporting(flow: Pipeline, cluster: Cluster) -> Iterator[None]:
    """Follow the cluster while the block runs."""
    stop = threading.Event()
    source = KubernetesSource(cluster.access(), KINDS, "prod", clock=observed, timing=FAST)
    thread = threading.Thread(target=flow.run, args=(source, stop))
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join(10)
    assert not thread.is_alive()


def relist(state: ApiState) -> None:
    """Let what changed in kinds that were not recorded happen, as newer versions."""
    for each in relisted():
        found = each["object"]
        resource = state.named(BY_NAME[found["kind"]].plural)
        version = {"resourceVersion": str(state.version + 1)}
        state.record(each["type"], resource, found | {"metadata": found["metadata"] | version})


def settled(store: EmbeddedStore) -> None:
    """Wait until nothing has been written for a while."""
    seen = (-1, 0.0)

    def quiet() -> bool:
        nonlocal seen
        if store.generation != seen[0]:
            seen = (store.generation, time.monotonic())
        return time.monotonic() - seen[1] > 0.7

    until(quiet)


def living(store: EmbeddedStore) -> dict[str, Lines]:
    """The graphs that are not tombstones, without the runs that ended by deletion."""
    found: dict[str, Lines] = {}
    for graph, lines in store.export():
        ended = {
            line.split(" ", 1)[0] for line in lines if line.endswith("outcome> <https://w3id.org/drumlin/ns#Deleted> .")
        }
        if not is_tombstone(lines, graph):
            found[graph] = frozenset(line for line in lines if line.split(" ", 1)[0] not in ended)
    return found


def test_the_live_exporter_ends_where_a_dump_of_the_end_does(tmp_path: Path) -> None:
    """Followed over HTTP with duplicated events, the recorded cluster gives the graphs of ``after``, all of them valid."""
    live, fresh = EmbeddedStore(tmp_path / "live"), EmbeddedStore(tmp_path / "fresh")
    try:
        with fake_cluster() as cluster:
            assert cluster.fake
            cluster.fake.load(CLUSTER / "before")
            flow = pipeline(live)
            with exporting(flow, cluster):
                until(lambda: flow.synced)
                cluster.fake.replay(CLUSTER / "watch", duplicates=True)
                relist(cluster.fake.state)
                settled(live)
        pipeline(fresh).run(DumpSource([CLUSTER / "after"], KINDS, clock=observed), threading.Event())

        assert living(live) == living(fresh)
        assert {each.owner for each in live.entries()} == {"kubernetes:prod", OWNER}
        surroundings = around()
        for graph, lines in live.export():
            validate(lines, graph, surroundings.iris)
    finally:
        live.close()
        fresh.close()


def test_a_restart_against_an_unchanged_cluster_writes_nothing(tmp_path: Path) -> None:
    """Neither the hosting graphs nor the objects' are written again by a second life on the same store."""
    base = around()
    generations: list[int] = []
    with fake_cluster() as cluster:
        assert cluster.fake
        cluster.fake.load(CLUSTER / "before")
        for _ in range(2):
            store = EmbeddedStore(tmp_path)
            ensure(store, base.settings, base.iris, base.catalogue, ())
            flow = pipeline(store)
            with exporting(flow, cluster):
                until(lambda: flow.synced)  # noqa: B023  called before the loop goes on
                settled(store)
            generations.append(store.generation)
            store.close()

    assert generations[0] > 0
    assert generations[1] == generations[0]
