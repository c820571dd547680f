"""Ten thousand events in a burst, faster than anything can be written: nothing is lost, and what waits is bounded."""

from __future__ import annotations

import threading
import time

from drumlin.exporters.kubernetes.informer import KubernetesSource
from drumlin.exporters.kubernetes.kinds import KINDS
from drumlin.exporters.pipeline.pipeline import Pipeline
from tests.fake_apiserver.clusters import fake_cluster
from tests.fake_apiserver.following import FAST
from tests.fake_apiserver.state import Json
from tests.memory_sink import MemorySink
from tests.unit.rendering import around, now

PODS, ROUNDS = 1_000, 10
PHASES = ("Pending", "Running", "Unknown", "Running", "Succeeded")
WITHIN = 90.0


def pod(number: int) -> Json:
    """Return the least of a pod."""
    metadata = {"name": f"pod-{number}", "namespace": "shop", "uid": f"uid-{number}"}
    return {"metadata": metadata, "spec": {"containers": [{"name": "main"}], "nodeName": "node-0"}}


def test_ten_thousand_events_in_a_burst_lose_nothing() -> None:
    """Each of 1,000 pods changes ten times at once; every graph ends in its last form, and no more waits than there are objects."""
    sink, base, stop = MemorySink(), around(), threading.Event()
    kinds = [each for each in KINDS if each.plural == "pods"]
    with fake_cluster() as server:
        assert server.fake
        state, pods = server.fake.state, server.fake.state.named("pods")
        flow = Pipeline(sink, kinds, base.settings, base.iris, base.catalogue, (), clock=now, window=0.05)
        source = KubernetesSource(server.access(), kinds, "prod", clock=now, timing=FAST, capacity=200)
        thread = threading.Thread(target=flow.run, args=(source, stop))
        thread.start()
        try:
            for turn in range(ROUNDS):
                for number in range(PODS):
                    with state.changed:
                        found = pod(number)
                        found["metadata"] |= {"resourceVersion": str(state.version + 1)}
                        found["status"] = {"phase": PHASES[(turn + number) % len(PHASES)]}
                        state.record("MODIFIED" if turn else "ADDED", pods, found)
            wanted = {
                base.object("shop", "Pod", f"pod-{number}"): PHASES[(ROUNDS - 1 + number) % len(PHASES)]
                for number in range(PODS)
            }
            deadline = time.monotonic() + WITHIN
            while shown(sink) != wanted and time.monotonic() < deadline:
                time.sleep(0.1)
            assert (source.status()[0].objects, state.version >= PODS * ROUNDS) == (PODS, True)
        finally:
            stop.set()
            thread.join(20)

    assert shown(sink) == wanted


def shown(sink: MemorySink) -> dict[str, str]:
    """Return the phase of each pod in the graph."""
    return {
        graph: line.rpartition("#")[2].removesuffix("> .")
        for graph, lines in dict(sink.graphs).items()
        for line in lines
        if "ns#phase> " in line
    }
