"""What tests look at: a source that is followed in a thread, and the state its changes amount to."""

from __future__ import annotations

import threading
import time
from collections import Counter
from collections.abc import Callable
from typing import Self

import msgspec

from drumlin.exporters.kubernetes.informer import KindStatus, KubernetesSource, Timing
from drumlin.exporters.protocol import (
    Change,
    Gone,
    Kind,
    KindUnavailable,
    Manifest,
    Metadata,
    Rejected,
    Synced,
    Upserted,
)
from tests.fake_apiserver.clusters import Cluster
from tests.fake_apiserver.server import FakeApiServer

FAST = Timing(
    watch=(20, 30),
    silence=(0.8, 1.0),
    page=0.8,
    backoff=(0.01, 0.05),
    asked=0.05,
    forbidden=(0.2, 0.3),
    absent=(0.05, 0.1),
    forgiven=0.2,
)


class PodSpec(msgspec.Struct, frozen=True):
    """Where a pod runs."""

    nodeName: str | None = None


class PodStatus(msgspec.Struct, frozen=True):
    """How a pod is."""

    phase: str | None = None


class Pod(msgspec.Struct, frozen=True):
    """What is taken from a pod here."""

    metadata: Metadata
    spec: PodSpec = PodSpec()
    status: PodStatus = PodStatus()


class ScaleSpec(msgspec.Struct, frozen=True):
    """How many are wanted."""

    replicas: int = 1


class Scaled(msgspec.Struct, frozen=True):
    """What is taken from a kind with replicas here."""

    metadata: Metadata
    spec: ScaleSpec = ScaleSpec()


class Bare(msgspec.Struct, frozen=True):
    """What is taken from any other kind here."""

    metadata: Metadata


PODS = Kind("Pod", "", "v1", "pods", namespaced=True, projection=Pod)
NAMESPACES = Kind("Namespace", "", "v1", "namespaces", namespaced=False, projection=Bare)
NODES = Kind("Node", "", "v1", "nodes", namespaced=False, projection=Bare)
CONFIG_MAPS = Kind("ConfigMap", "", "v1", "configmaps", namespaced=True, projection=Bare)
DEPLOYMENTS = Kind("Deployment", "apps", "v1", "deployments", namespaced=True, projection=Scaled)
JOBS = Kind("Job", "batch", "v1", "jobs", namespaced=True, projection=Bare)
REPLICA_SETS = Kind("ReplicaSet", "apps", "v1", "replicasets", namespaced=True, projection=Scaled)
STATEFUL_SETS = Kind("StatefulSet", "apps", "v1", "statefulsets", namespaced=True, projection=Scaled)
DOMAINS = Kind("Domain", "kuscia.secretflow", "v1alpha1", "domains", namespaced=False, projection=Bare)
KUSCIA_JOBS = Kind("KusciaJob", "kuscia.secretflow", "v1alpha1", "kusciajobs", namespaced=True, projection=Bare)


class Following:
    """Follows ``source`` until the block is left; ``pause`` makes it a consumer that does not keep up."""

    def __init__(self, source: KubernetesSource, *, pause: float = 0.0) -> None:
        self.source = source
        self.changes: list[Change] = []
        self.error: BaseException | None = None
        self._pause = pause
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        took = self.stop()
        assert took < 1.0, f"the source needed {took:.2f} s to stop"

    def _run(self) -> None:
        try:
            for change in self.source.changes(self._stop):
                self.changes.append(change)
                time.sleep(self._pause)
        except Exception as error:  # noqa: BLE001 — handed to the test
            self.error = error

    def stop(self) -> float:
        """Stop and return how many seconds it took."""
        began = time.monotonic()
        self._stop.set()
        self._thread.join(5)
        return time.monotonic() - began

    def until(self, reached: Callable[[], bool], within: float = 5.0) -> None:
        """Wait until ``reached``; fail with what has come so far."""
        deadline = time.monotonic() + within
        while not reached():
            assert time.monotonic() < deadline, f"not reached in {within} s: {self.told()[-20:]} {self.source.status()}"
            time.sleep(0.005)

    def until_synced(self, *kinds: Kind) -> None:
        """Wait until each of ``kinds`` has yielded ``Synced``."""
        self.until(lambda: {*kinds} <= {each.kind for each in self.changes if isinstance(each, Synced)})

    def known(self, kind: Kind) -> dict[tuple[str | None, str], Manifest]:
        """Return the objects that exist by the changes so far, as the pipeline would apply them."""
        found: dict[tuple[str | None, str], Manifest] = {}
        for each in list(self.changes):
            if isinstance(each, Upserted) and each.kind == kind:
                found[each.manifest.metadata.namespace, each.manifest.metadata.name] = each.manifest
            elif isinstance(each, Gone) and each.kind == kind:
                key = (each.manifest.metadata.namespace, each.manifest.metadata.name)
                if key in found and found[key].metadata.uid == each.manifest.metadata.uid:
                    del found[key]
        return found

    def names(self, kind: Kind = PODS) -> set[str]:
        """Return the names of the objects that exist by the changes so far."""
        return {name for _, name in self.known(kind)}

    def uid(self, name: str, kind: Kind = PODS) -> str | None:
        """Return the uid of the object of that name that exists by the changes so far."""
        return next((each.metadata.uid for (_, known), each in self.known(kind).items() if known == name), None)

    def told(self) -> list[str]:
        """Return the changes so far as ``Upserted web``, ``Gone web``, ``Synced Pod`` …, for short assertions."""
        return [_told(each) for each in list(self.changes)]

    def gone(self) -> list[Gone]:
        """Return the ends so far."""
        return [each for each in list(self.changes) if isinstance(each, Gone)]

    def count(self, what: str) -> int:
        """Return how often ``what`` was told."""
        return Counter(self.told())[what]

    def status(self, kind: Kind = PODS) -> KindStatus:
        """Return how ``kind`` is doing."""
        return next(each for each in self.source.status() if each.kind == kind)


def _told(change: Change) -> str:
    if isinstance(change, Synced | KindUnavailable):
        return f"{type(change).__name__} {change.kind.name}"
    if isinstance(change, Rejected):
        return f"Rejected {change.where}"
    return f"{type(change).__name__} {change.manifest.metadata.name}"


def source(cluster: Cluster, *kinds: object, **options: object) -> KubernetesSource:
    """Return a source with short waits."""
    return KubernetesSource(cluster.access(), kinds or (PODS,), "prod", **({"timing": FAST} | options))


def following(cluster: Cluster, *kinds: object, **options: object) -> Following:
    """Follow ``kinds`` with short waits."""
    return Following(source(cluster, *kinds, **options))


def watches(fake: FakeApiServer) -> int:
    """Return how many watches were asked for."""
    return sum(each.watch for each in fake.requests)


def lists(fake: FakeApiServer) -> int:
    """Return how often the whole was asked for, as a watch-list or as a first page; a page of one only looks at the version."""
    return sum(
        "sendInitialEvents" in each.params
        or not (each.watch or "continue" in each.params or each.params.get("limit") == "1")
        for each in fake.requests
        if each.method == "GET"
    )


def restart(fake: FakeApiServer, meanwhile: Callable[[], None] = lambda: None) -> None:
    """Let the server go away, let things happen, and let it come back."""
    fake.stop()
    meanwhile()
    fake.start()
