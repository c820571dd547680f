"""The proof over HTTP: a live exporter on an API server that fails in every way it knows ends as a fresh look at the final state."""

from __future__ import annotations

import random
import threading
import time

import pytest

from drumlin.exporters.kubernetes.informer import KubernetesSource
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.kg.rdf.syntax import Lines
from tests.fake_apiserver.clusters import fake_cluster
from tests.fake_apiserver.faults import Fault
from tests.fake_apiserver.following import FAST
from tests.fake_apiserver.server import FakeApiServer
from tests.fake_apiserver.state import Resource
from tests.memory_sink import MemorySink
from tests.unit.rendering import KINDS, around, now
from tests.unit.test_pipeline_proof import Cluster, Document, assert_ended_rightly, fresh, parts

STEPS, WITHIN = 120, 90.0


def served(fake: FakeApiServer) -> None:
    """Serve every kind, custom ones too."""
    for kind in KINDS:
        if kind.path not in fake.state.resources:
            fake.state.register(
                Resource(kind.group, kind.version, kind.plural, kind.name, namespaced=kind.namespaced, custom=True)
            )


def happen(fake: FakeApiServer, event: str, document: Document) -> None:
    """Let an event of the model happen on the server, as its newest version."""
    with fake.state.changed:
        resource = next(each for each in fake.state.resources.values() if each.kind == document["kind"])
        version = {"resourceVersion": str(fake.state.version + 1)}
        fake.state.record(event, resource, {**document, "metadata": {**document["metadata"], **version}})


def misfortune(fake: FakeApiServer, chance: random.Random) -> None:
    """Sometimes let the server fail, or forget its log."""
    actions = ["drop", "truncate", "empty", "garble", "error", "refuse"]
    if chance.random() < 0.2:
        fake.faults.inject(
            Fault(chance.choice(actions), after=chance.randrange(3), status=chance.choice([410, 500, 503]))
        )
    if chance.random() < 0.05:
        fake.state.compact()


def graphs(sink: MemorySink) -> dict[str, Lines]:
    """A copy of what is stored now."""
    return dict(sink.graphs)


@pytest.mark.parametrize("seed", range(3))
def test_a_live_exporter_ends_where_a_fresh_look_does(seed: int) -> None:
    """Connections drop, streams break off, versions expire: no ghost, none missing, every run open or ended as it was."""
    chance = random.Random(seed)
    cluster, sink, base, stop = Cluster(chance), MemorySink(), around(), threading.Event()
    with fake_cluster() as server:
        assert server.fake
        served(server.fake)
        flow = Pipeline(
            sink, KINDS, base.settings, base.iris, base.catalogue, (), clock=lambda: cluster.now, window=0.01
        )
        thread = threading.Thread(
            target=flow.run, args=(KubernetesSource(server.access(), KINDS, "prod", clock=now, timing=FAST), stop)
        )
        thread.start()
        try:
            for _ in range(STEPS):
                for event in cluster.step():
                    happen(server.fake, *event)
                misfortune(server.fake, chance)
                time.sleep(0.01)
            server.fake.faults.clear()
            expected, _, truth = parts(fresh(cluster))
            deadline = time.monotonic() + WITHIN
            while parts(graphs(sink))[0] != expected and time.monotonic() < deadline:
                time.sleep(0.1)
        finally:
            stop.set()
            thread.join(20)
    living, buried, runs = parts(graphs(sink))

    assert living == expected
    assert not buried & expected.keys()
    assert {uid: run for uid, run in runs.items() if uid in truth} == truth
    for uid in runs.keys() - truth.keys():
        assert_ended_rightly(runs[uid], cluster.finished.get(uid), told=False)
