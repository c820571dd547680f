"""Manifest list → queryable, against a bare decode plus a bulk load of the same quads."""

from __future__ import annotations

import json
import resource
import tempfile
import threading
import time
import uuid
from pathlib import Path
from typing import Any

import msgspec
import pyoxigraph as ox

from drumlin.api.bootstrap import configured, now
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.kubernetes.kinds import KINDS
from drumlin.exporters.pipeline.pipeline import Pipeline
from drumlin.kg.config.settings import Settings
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import to_nquads
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.bench.running import phase, sized

PODS, WORKLOADS, NODES = sized((30_000, 3_000, 1_000), (60, 6, 4))
SAMPLE = Path(__file__).resolve().parents[2] / "api" / "demo" / "cluster"


def run() -> list[tuple[str, str, str, str, str]]:
    """Measure 30,000 pods, 3,000 workloads and 1,000 nodes."""
    with tempfile.TemporaryDirectory() as name:
        directory = Path(name)
        phase("writing the cluster")
        write_cluster(directory / "cluster")
        phase("ours")
        ours, store = _ours(directory)
        rss = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        phase("bare")
        bare = _bare(directory, store)
        store.close()
    return [
        (
            f"{PODS:,} pods + {WORKLOADS:,} workloads + {NODES:,} nodes: list → queryable",
            f"{ours:.1f} s",
            f"{bare:.1f} s bare",
            f"{ours / bare:.2f}",
            "≤ 2, ≤ 20 s",
        ),
        ("  peak RSS of the whole process", f"{rss:.0f} MB", "", "", ""),
    ]


def _ours(directory: Path) -> tuple[float, EmbeddedStore]:
    settings = Settings(base="https://kg.example", cluster="prod")
    iris = Iris(settings.base)
    store = EmbeddedStore(directory / "store")
    catalogue = TemplateCatalogue.shipped(frozenset(settings.exporters))
    pipeline = Pipeline(store, KINDS, settings, iris, catalogue, configured(settings, iris), clock=now)
    began = time.perf_counter()
    pipeline.run(DumpSource([directory / "cluster"], KINDS, clock=now), threading.Event())
    store.look_up("SELECT (COUNT(*) AS ?n) WHERE { ?pod a <https://w3id.org/drumlin/ns#Pod> }")
    return time.perf_counter() - began, store


def _bare(directory: Path, store: EmbeddedStore) -> float:
    """Decode the same files and bulk-load the same quads, with nothing in between."""
    quads = [b"".join(to_nquads(lines, graph)) for graph, lines in store.export()]
    began = time.perf_counter()
    for file in (directory / "cluster").iterdir():
        msgspec.json.decode(file.read_bytes(), type=dict[str, msgspec.Raw])
    kinds = {f"{kind.plural}.json": kind.projection for kind in KINDS}
    for file in (directory / "cluster").iterdir():
        items = msgspec.json.decode(file.read_bytes(), type=dict[str, msgspec.Raw])["items"]
        msgspec.json.decode(items, type=list[kinds[file.name]])
    engine = ox.Store(str(directory / "bare"))
    for start in range(0, len(quads), 1000):
        engine.bulk_load(b"".join(quads[start : start + 1000]), format=ox.RdfFormat.N_QUADS)
    return time.perf_counter() - began


def write_cluster(directory: Path, count: int = PODS, workloads: int = WORKLOADS, machines: int = NODES) -> None:
    """Write a synthetic cluster made of the sample's own objects under other names."""
    directory.mkdir(parents=True)
    pod, deployment, replicaset, node = (_first(name) for name in ("pods", "deployments", "replicasets", "nodes"))
    namespaces = [_named(_first("namespaces"), f"ns-{n}") for n in range(50)]
    nodes = [_named(node, f"node-{n}") for n in range(machines)]
    deployments, replicasets, pods = [], [], []
    for n in range(workloads):
        space, name = f"ns-{n % 50}", f"app-{n}"
        owner = _named(deployment, name, space)
        between = _owned(_named(replicaset, f"{name}-86b96c86dc", space), "Deployment", owner)
        deployments.append(owner)
        replicasets.append(between)
        for m in range(count // workloads):
            each = _owned(_named(pod, f"{name}-86b96c86dc-{m:05d}", space), "ReplicaSet", between)
            each["spec"] = {**pod["spec"], "nodeName": f"node-{(n * 10 + m) % machines}"}
            pods.append(each)
    for name, items in {
        "namespaces": namespaces,
        "nodes": nodes,
        "deployments": deployments,
        "replicasets": replicasets,
        "pods": pods,
    }.items():
        listed = {
            "kind": f"{_KINDS[name]}List",
            "apiVersion": "apps/v1" if name in ("deployments", "replicasets") else "v1",
            "items": items,
        }
        (directory / f"{name}.json").write_bytes(msgspec.json.encode(listed))


_KINDS = {
    "namespaces": "Namespace",
    "nodes": "Node",
    "deployments": "Deployment",
    "replicasets": "ReplicaSet",
    "pods": "Pod",
}


def _first(name: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((SAMPLE / f"{name}.json").read_text())["items"][0]
    return found


def _named(manifest: dict[str, Any], name: str, namespace: str | None = None) -> dict[str, Any]:
    uid = str(uuid.uuid5(uuid.NAMESPACE_DNS, f"{namespace}/{name}"))
    place = {"namespace": namespace} if namespace else {}
    return {**manifest, "metadata": {**manifest["metadata"], "name": name, "uid": uid, **place}}


def _owned(manifest: dict[str, Any], kind: str, owner: dict[str, Any]) -> dict[str, Any]:
    reference = {
        "apiVersion": "apps/v1",
        "kind": kind,
        "name": owner["metadata"]["name"],
        "uid": owner["metadata"]["uid"],
        "controller": True,
    }
    return {**manifest, "metadata": {**manifest["metadata"], "ownerReferences": [reference]}}
