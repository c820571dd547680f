"""Workloads in a client's hands: what the listing says at once, the rest when asked for; one definition, two clients."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from drumlin.kg.client import calls, notebook
from drumlin.kg.client.endpoint import Awaiting, Blocking, composed
from drumlin.kg.client.entities import EntityMetrics, Identity, Metric, metrics_of
from drumlin.kg.client.resolve_api import Resolved
from drumlin.kg.client.transport import ClientTransport, finished
from drumlin.kg.errors import ResourceNotFound

if TYPE_CHECKING:
    from drumlin.kg.client.series import Series


async def read(carrier: ClientTransport, id: str) -> tuple[Identity, dict[str, Any]]:
    """Return who a workload is, and its document; raises ``ResourceNotFound``."""
    document = await carrier.run(calls.get_subgraph(id))
    return Identity.of(document), document


class _Workload:
    """What both are."""

    _carrier: ClientTransport
    _own: dict[str, Metric] | None = None  # metrics that its pods expose themselves

    def _is(self, identity: Identity, document: dict[str, Any] | None) -> None:
        self._document = document
        self.id, self.iri, self.name = identity.id, identity.iri, identity.name
        self.kind, self.namespace, self.phase = identity.type, identity.namespace, identity.phase

    def __repr__(self) -> str:
        return f"<{self.kind} {self.id}>"

    def _repr_html_(self) -> str:
        if self._document is not None:
            return notebook.EntityDocument(self._document)._repr_html_()
        return notebook.facts(self.name, self.kind, self.id, self.phase or "", [("namespace", self.namespace)])

    async def _loaded(self) -> dict[str, Any]:
        if self._document is None:
            self._document = await self._carrier.run(calls.get_subgraph(self.id))
        return self._document

    async def _metrics(self) -> EntityMetrics:
        """Return its metrics: what every workload has, and what its pods expose themselves."""
        if self._own is None:
            try:
                document: dict[str, Any] = await self._carrier.run(calls.get_subgraph(f"scraped/{self.id}"))
                self._own = metrics_of(document)
            except ResourceNotFound:
                self._own = {}
        return EntityMetrics(self.id, self._own | metrics_of(await self._loaded()))

    @composed
    async def resolve(self, /, metric: str, **window: str | None) -> Resolved:
        """Resolve one of its metrics; see ``Client.resolve``. Raises ``ResourceNotFound`` for one that it does not have."""
        name = (await self._metrics())[metric].name
        return await self._carrier.run(calls.resolve(self.id, name, **window))

    @composed
    async def history(self, /, *metrics: str, progress: Callable[[int], None] | None = None, **options: str) -> Series:
        """Fetch some of its metrics (all when none is named); see ``Client.history``.

        Raises ``ResourceNotFound`` for a metric that it does not have.
        """
        from drumlin.kg.client import telemetry

        known = await self._metrics()
        names = [known[metric].name for metric in metrics] or list(known)
        return await telemetry.history(self._carrier, [self.id], names, options, progress)


class Workload(Blocking, _Workload):
    """A workload: what the listing says at once, ``document`` and ``metrics`` when asked for, ``history`` as a table."""

    def __init__(self, carrier: ClientTransport, identity: Identity, document: dict[str, Any] | None = None) -> None:
        super().__init__(carrier)
        self._is(identity, document)

    @property
    def document(self) -> dict[str, Any]:
        """The whole graph as a nested JSON-LD document (fetched once); raises ``ResourceGone`` when it is not there any more."""
        return finished(self._loaded())

    @property
    def metrics(self) -> EntityMetrics:
        """Its metrics by name, each with unit and query; those that its pods expose themselves too (fetched once)."""
        return finished(self._metrics())


class AsyncWorkload(Awaiting, _Workload):
    """The asynchronous twin of ``Workload``; ``load`` fetches the document."""

    def __init__(self, carrier: ClientTransport, identity: Identity, document: dict[str, Any] | None = None) -> None:
        super().__init__(carrier)
        self._is(identity, document)

    async def load(self) -> dict[str, Any]:
        """Return the whole graph as a nested JSON-LD document (fetched once); see ``Workload.document``."""
        return await self._loaded()

    async def metrics(self) -> EntityMetrics:
        """Return its metrics by name, each with unit and query; see ``Workload.metrics``."""
        return await self._metrics()
