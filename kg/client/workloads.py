"""Workloads in a client's hands: what the listing says at once, the rest when asked for."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kg.client.entities import Identity, Metric, metrics_of
from kg.client.resolving import Resolved
from kg.errors import ResourceNotFound

if TYPE_CHECKING:
    from kg.client import AsyncClient, Client
    from kg.client.series import Series


class Workload:
    """A workload: what the listing says at once, ``document`` and ``metrics`` when asked for, ``history`` as a table."""

    def __init__(self, client: Client, identity: Identity, document: dict[str, Any] | None = None) -> None:
        self._client = client
        self._document = document
        self.id, self.iri, self.name = identity.id, identity.iri, identity.name
        self.kind, self.namespace, self.phase = identity.type, identity.namespace, identity.phase

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id}>"

    @property
    def document(self) -> dict[str, Any]:
        """The whole graph as a nested JSON-LD document (fetched once)."""
        if self._document is None:
            self._document = self._client.subgraph(self.id).get()
        return self._document

    @property
    def metrics(self) -> dict[str, Metric]:
        """Its metrics by name, each with unit and query."""
        return metrics_of(self.document)

    def resolve(self, metric: str, **window: Any) -> Resolved:
        """Resolve one of its metrics; see ``Client.resolve``."""
        return self._client.resolve(self.id, _known(metric, self.metrics, self.id), **window)

    def history(self, *metrics: str, **window: Any) -> Series:
        """Fetch some of its metrics (all when none is named); see ``Client.history``."""
        names = [_known(metric, self.metrics, self.id) for metric in metrics] or list(self.metrics)
        return self._client.history(self.id, names, **window)


class AsyncWorkload:
    """The asynchronous twin of ``Workload``; ``load`` fetches the document."""

    def __init__(self, client: AsyncClient, identity: Identity, document: dict[str, Any] | None = None) -> None:
        self._client = client
        self._document = document
        self.id, self.iri, self.name = identity.id, identity.iri, identity.name
        self.kind, self.namespace, self.phase = identity.type, identity.namespace, identity.phase

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id}>"

    async def load(self) -> dict[str, Any]:
        """Return the whole graph as a nested JSON-LD document (fetched once)."""
        if self._document is None:
            self._document = await self._client.subgraph(self.id).get()
        return self._document

    async def metrics(self) -> dict[str, Metric]:
        """Return its metrics by name, each with unit and query."""
        return metrics_of(await self.load())

    async def resolve(self, metric: str, **window: Any) -> Resolved:
        """Resolve one of its metrics; see ``AsyncClient.resolve``."""
        return await self._client.resolve(self.id, _known(metric, await self.metrics(), self.id), **window)

    async def history(self, *metrics: str, **window: Any) -> Series:
        """Fetch some of its metrics (all when none is named); see ``AsyncClient.history``."""
        known = await self.metrics()
        names = [_known(metric, known, self.id) for metric in metrics] or list(known)
        return await self._client.history(self.id, names, **window)


def _known(metric: str, metrics: Mapping[str, Metric], id: str) -> str:
    if metric not in metrics:
        raise ResourceNotFound(f"{id} has no metric {metric!r}", hint=f"it has {', '.join(sorted(metrics)) or 'none'}")
    return metric
