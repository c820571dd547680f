"""Source ``kubernetes``: the live objects of one cluster, as changes.

One reflector thread per kind feeds one bounded backlog; ``changes`` takes from it. A kind that is forbidden or not installed
is set aside and reported by ``status``; the others go on. Nothing is polled but for a slow relist, and nothing is remembered across
restarts.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator, Sequence
from datetime import UTC, datetime

from drumlin.exporters.kubernetes.access import ApiServer
from drumlin.exporters.kubernetes.backlog import Backlog
from drumlin.exporters.kubernetes.cluster_identity import ClusterIdentity
from drumlin.exporters.kubernetes.kind_status import KindStatus
from drumlin.exporters.kubernetes.reflector import Reflector
from drumlin.exporters.kubernetes.selectors import checked_namespace
from drumlin.exporters.kubernetes.timing import Timing
from drumlin.exporters.protocol import Change, Clock, Kind

__all__ = ["KindStatus", "KubernetesSource", "Timing"]

_POLL = 0.1  # seconds between looks at ``stop``
_JOIN = 0.5  # seconds for the threads to end; one that still connects is a daemon and ends by itself


def _now() -> datetime:
    return datetime.now(UTC)


class KubernetesSource:
    """The live objects of ``kinds`` in one cluster (``exporters.protocol.Source``).

    ``namespace`` limits namespaced kinds to one namespace, ``label_selector`` (the API's syntax) to objects with such labels; nodes
    and whatever else stands in no namespace is followed whole.
    ``page_size`` objects are asked for at a time where a server has no watch-list; ``capacity`` objects wait for the consumer
    before a watch is slowed down.
    """

    def __init__(
        self,
        access: ApiServer,
        kinds: Sequence[Kind],
        cluster: str,
        *,
        namespace: str | None = None,
        label_selector: str | None = None,
        clock: Clock = _now,
        timing: Timing = Timing(),  # noqa: B008 — frozen
        page_size: int = 1000,
        capacity: int = 10_000,
    ) -> None:
        self._access = access
        self._kinds = tuple(kinds)
        self._cluster = cluster
        self._namespace = None if namespace is None else checked_namespace(namespace)
        self._label_selector = label_selector
        self._clock = clock
        self._timing = timing
        self._page_size = page_size
        self._capacity = capacity
        self._backlog = Backlog(capacity)
        self._reflectors: tuple[Reflector, ...] = ()

    @property
    def name(self) -> str:
        """The owner recorded for graphs written from here."""
        return f"kubernetes:{self._cluster}"

    @property
    def access(self) -> ApiServer:
        """The connection to its API server."""
        return self._access

    @property
    def core(self) -> frozenset[str]:
        """The names of the kinds without which there is no map of a cluster; within one namespace, pods alone."""
        core = {"Pod"} if self._namespace else {"Namespace", "Node", "Pod"}
        return frozenset(core & {each.name for each in self._kinds})

    def changes(self, stop: threading.Event) -> Iterator[Change]:
        """Yield changes for ever; end within a second after ``stop`` is set. For one consumer at a time.

        A kind that is forbidden or not installed yields no ``Synced`` meanwhile. Raises ``SourceRefused`` when the server refuses
        the credentials or the request at the first contact; every later failure is waited out.
        """
        self._backlog = backlog = Backlog(self._capacity)
        identity = ClusterIdentity()
        self._reflectors = reflectors = tuple(self._reflector(kind, backlog, identity) for kind in self._kinds)
        threads = [
            threading.Thread(target=each.run, name=f"reflector-{each.kind.plural}", daemon=True) for each in reflectors
        ]
        for thread in threads:
            thread.start()
        try:
            while not stop.is_set():
                for change in backlog.take(_POLL):
                    if stop.is_set():
                        return
                    yield change
        finally:
            backlog.close()
            for each in reflectors:
                each.halt()
            deadline = time.monotonic() + _JOIN
            for thread in threads:
                thread.join(max(0.0, deadline - time.monotonic()))

    def status(self) -> tuple[KindStatus, ...]:
        """Return how each kind is doing; empty before ``changes`` began. Callable from any thread."""
        return tuple(each.status() for each in self._reflectors)

    def _reflector(self, kind: Kind, backlog: Backlog, identity: ClusterIdentity) -> Reflector:
        return Reflector(
            self._access,
            kind,
            backlog,
            self._clock,
            self._timing,
            path=self._path(kind),
            label_selector=self._label_selector if kind.namespaced and not kind.reports else None,
            page_size=self._page_size,
            identity=identity,
        )

    def _path(self, kind: Kind) -> str:
        """Return the collection's path: of one namespace where that is asked for and the kind has one."""
        if not (self._namespace and kind.namespaced):
            return kind.path
        return f"{kind.path.removesuffix(kind.plural)}namespaces/{self._namespace}/{kind.plural}"
