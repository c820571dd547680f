"""Which cluster answers: the uid of its namespace ``kube-system``, as the reflector of namespaces sees it.

When it changes, another cluster stands behind the address: versions that were reached in the former mean nothing in it.
"""

from __future__ import annotations

import threading
from collections.abc import Callable

import structlog

from drumlin.exporters.protocol import Kind, Metadata

log = structlog.get_logger()


class ClusterIdentity:
    """The cluster behind one API server. ``epoch`` grows each time that it is another one; callable from any thread."""

    def __init__(self) -> None:
        self.epoch = 0
        self._uid: str | None = None
        self._lock = threading.Lock()
        self._followers: list[Callable[[], None]] = []

    def on_change(self, callback: Callable[[], None]) -> None:
        """Have ``callback`` called, in the thread that notices, when the cluster is another one."""
        self._followers.append(callback)

    def seen(self, kind: Kind, metadata: Metadata) -> None:
        """Take note of an object that exists; only the namespace ``kube-system`` says something."""
        if kind.name != "Namespace" or kind.group or metadata.name != "kube-system":
            return
        with self._lock:
            former, self._uid = self._uid, metadata.uid
            changed = former not in (None, metadata.uid)
            self.epoch += changed
        if changed:
            log.warning("cluster_replaced", former=former, now=metadata.uid)
            for each in self._followers:
                each()
