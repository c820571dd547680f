"""The client of a Drumlin service, synchronous and asynchronous: the same operations, one definition.

``kg.client.calls`` says what is sent and read, ``kg.client.endpoint`` makes it a method of both, ``kg.client.transport`` carries it out.

It imports only ``kg`` and ``ontology``; errors are those of ``kg.errors``, the very ones that the service raised.
"""

from __future__ import annotations

import os
from collections.abc import AsyncGenerator, Generator, Mapping
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, TypeVar, overload
from urllib.parse import urlsplit

import httpx

from drumlin.kg.client import workloads
from drumlin.kg.client.admin_api import Operating
from drumlin.kg.client.agents_api import AgentOperations
from drumlin.kg.client.bearer import Bearer
from drumlin.kg.client.calls import Call, Moment
from drumlin.kg.client.endpoint import Awaiting, Blocking
from drumlin.kg.client.entities import GraphSummary, Metric
from drumlin.kg.client.events_api import EventsOperations
from drumlin.kg.client.graphs import AsyncPastSubgraph, AsyncSubgraph, PastSubgraph, Subgraph
from drumlin.kg.client.query_api import QueryOperations
from drumlin.kg.client.rdf_text import RdfText
from drumlin.kg.client.resolve_api import Resolved
from drumlin.kg.client.rows import Rows
from drumlin.kg.client.transport import AwaitingWire, BlockingWire, ClientTransport, finished, one_by_one, time_out
from drumlin.kg.client.update_api import AsyncGraph, Graph, Updating, graph_name
from drumlin.kg.client.within import AsgiApp, WithinTransport
from drumlin.kg.client.workloads import AsyncWorkload, Workload
from drumlin.kg.errors import InvalidSettings

if TYPE_CHECKING:
    from drumlin.kg.client.forecasts import AsyncForecasts, Forecasts

__all__ = [
    "AsyncClient",
    "AsyncGraph",
    "AsyncSubgraph",
    "AsyncWorkload",
    "Client",
    "Graph",
    "GraphSummary",
    "Metric",
    "RdfText",
    "Resolved",
    "Rows",
    "Subgraph",
    "Workload",
]

T = TypeVar("T")
DEFAULT_URL = "http://localhost:8080"


def _options(
    url: str | None, timeout: float, retries: int, token: str | None, token_file: Path | None
) -> dict[str, Any]:
    if not (timeout > 0 and retries >= 0):
        raise InvalidSettings("a client's timeout is more than 0 s, and its retries are 0 or more")
    return {
        "base_url": _address(url or os.environ.get("DRUMLIN_URL") or DEFAULT_URL),
        "timeout": time_out(timeout),
        "follow_redirects": False,
        "auth": Bearer.of(token, token_file),
    }


def _address(text: str) -> httpx.URL:
    wrong = InvalidSettings(
        "the address of the service is invalid", hint=f"it is like {DEFAULT_URL} or https://host/path"
    )
    try:
        parts = urlsplit(text)
        if parts.scheme not in ("http", "https") or not parts.hostname or parts.port == 0:
            raise wrong
        return httpx.URL(text.rstrip("/"))
    except (ValueError, httpx.InvalidURL):  # what it says may hold a password
        raise wrong from None


class _ClientOperations(EventsOperations, QueryOperations, AgentOperations, Updating, Operating):
    """What both clients do."""


class Client(Blocking, _ClientOperations):
    """A connection to a service at ``url``; use it as a context manager. Threads may share one.

    ``timeout`` is in seconds and bounds the silence within one request (connecting: 5 s at most; what is known to take long has a bound
    of its own, unless ``limit`` sets one for all requests). A request is repeated up to ``retries`` times, after what the service's
    ``Retry-After`` says (30 s at most), else after 0.2 s and twice as long each time: when the service was not reached or says 429, and,
    where that is safe, when it says 503 or the connection breaks; never when it is only slow. ``token`` is a bearer token, ``token_file``
    a file with one, which is read for each request, so it may be rotated; without them, ``DRUMLIN_TOKEN_FILE`` or ``DRUMLIN_TOKEN`` is
    taken. An answer that is read whole and has more than ``max_bytes`` raises ``TooLarge``.

    Raises ``InvalidSettings`` for an invalid address. Every operation may raise ``SourceUnavailable`` (no answer: the message says
    why), ``Unauthenticated`` (401), ``Forbidden`` (403), ``StoreUnavailable`` (503) and ``Throttled`` (429); each says what it raises
    besides.
    """

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        token_file: Path | None = None,
        timeout: float = 60.0,
        retries: int = 2,
        limit: float | None = None,
        max_bytes: int | None = None,
    ) -> None:
        wire = BlockingWire(**_options(url, timeout, retries, token, token_file))
        super().__init__(ClientTransport(wire, retries, limit, max_bytes))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        finished(self._carrier.close())

    @property
    def url(self) -> str:
        """The service's address."""
        return self._carrier.url

    def run(self, call: Call[T]) -> T:
        """Carry out one call; raises the service's own errors."""
        return finished(self._carrier.run(call))

    def stream(self, call: Call[Any]) -> Generator[bytes, None, None]:
        """Carry out one call and yield its body as it comes."""
        return one_by_one(finished, self._carrier.stream(call))

    @overload
    def subgraph(self, id: str) -> Subgraph: ...
    @overload
    def subgraph(self, id: str, *, at: Moment) -> PastSubgraph: ...
    def subgraph(self, id: str, *, at: Moment | None = None) -> Subgraph | PastSubgraph:
        """Return a handle on one entity's graph, as it is or as it was ``at`` a generation or a time; nothing is sent yet."""
        return Subgraph(self._carrier, id) if at is None else PastSubgraph(self._carrier, id, at)

    def graph(self, iri: str | None = None) -> Graph:
        """Return a handle on any graph, the default graph when none is named; nothing is sent yet."""
        return Graph(self._carrier, graph_name(iri))

    def workloads(self, *, kind: str = "Workload", namespace: str | None = None) -> list[Workload]:
        """Return the workloads, or those of one kind (``Deployment``) or namespace; raises ``InvalidInput`` for an unknown kind."""
        found = self.subgraphs(type=kind, namespace=namespace)
        return [Workload(self._carrier, each) for each in found]

    def workload(self, id: str) -> Workload:
        """Return one workload by short id or IRI; raises ``ResourceNotFound``."""
        return Workload(self._carrier, *finished(workloads.read(self._carrier, id)))

    @property
    def forecasts(self) -> Forecasts:
        """Forecasts: ``save``, ``list``, ``value``, ``delete``, ``points``, ``compare``, ``backtest``, ``seasonal``."""
        from drumlin.kg.client.forecasts import Forecasts

        return Forecasts(self._carrier)


class AsyncClient(Awaiting, _ClientOperations):
    """The asynchronous twin of ``Client``."""

    def __init__(
        self,
        url: str | None = None,
        *,
        token: str | None = None,
        token_file: Path | None = None,
        timeout: float = 60.0,
        retries: int = 2,
        limit: float | None = None,
        max_bytes: int | None = None,
    ) -> None:
        wire = AwaitingWire(**_options(url, timeout, retries, token, token_file))
        super().__init__(ClientTransport(wire, retries, limit, max_bytes))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connections."""
        await self._carrier.close()

    @property
    def url(self) -> str:
        """The service's address."""
        return self._carrier.url

    async def run(self, call: Call[T]) -> T:
        """Carry out one call; raises the service's own errors."""
        return await self._carrier.run(call)

    def stream(self, call: Call[Any]) -> AsyncGenerator[bytes, None]:
        """Carry out one call and yield its body as it comes."""
        return self._carrier.stream(call)

    @overload
    def subgraph(self, id: str) -> AsyncSubgraph: ...
    @overload
    def subgraph(self, id: str, *, at: Moment) -> AsyncPastSubgraph: ...
    def subgraph(self, id: str, *, at: Moment | None = None) -> AsyncSubgraph | AsyncPastSubgraph:
        """Return a handle on one entity's graph, as it is or as it was ``at`` a generation or a time; nothing is sent yet."""
        return AsyncSubgraph(self._carrier, id) if at is None else AsyncPastSubgraph(self._carrier, id, at)

    def graph(self, iri: str | None = None) -> AsyncGraph:
        """Return a handle on any graph, the default graph when none is named; nothing is sent yet."""
        return AsyncGraph(self._carrier, graph_name(iri))

    async def workloads(self, *, kind: str = "Workload", namespace: str | None = None) -> list[AsyncWorkload]:
        """Return the workloads; see ``Client.workloads``."""
        found = self.subgraphs(type=kind, namespace=namespace)
        return [AsyncWorkload(self._carrier, each) async for each in found]

    async def workload(self, id: str) -> AsyncWorkload:
        """Return one workload by short id or IRI; raises ``ResourceNotFound``."""
        return AsyncWorkload(self._carrier, *await workloads.read(self._carrier, id))

    @property
    def forecasts(self) -> AsyncForecasts:
        """Forecasts: ``save``, ``list``, ``value``, ``delete``, ``points``, ``compare``, ``backtest``, ``seasonal``."""
        from drumlin.kg.client.forecasts import AsyncForecasts

        return AsyncForecasts(self._carrier)


def client_within(
    app: AsgiApp, headers: Mapping[str, str], address: str, *, limit: float, max_bytes: int
) -> AsyncClient:
    """Return a client of a service that runs in this process (ASGI), for a caller with these ``headers`` at ``address``.

    ``limit`` is in seconds, ``max_bytes`` bounds an answer; nothing of the environment is sent.
    """
    client = AsyncClient.__new__(AsyncClient)
    own = {"Accept-Encoding": "identity", **headers}  # to compress for oneself costs time
    wire = AwaitingWire(
        base_url=DEFAULT_URL, transport=WithinTransport(app, address), headers=own, timeout=time_out(limit)
    )
    Awaiting.__init__(client, ClientTransport(wire, 0, limit, max_bytes))
    return client
