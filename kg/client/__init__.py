"""The client of a Drumlin service, synchronous and asynchronous: the same operations, one definition (``kg.client.calls``).

It imports only ``kg`` and ``ontology``; errors are those of ``kg.errors``, the very ones that the service raised.
"""

from __future__ import annotations

import asyncio
import os
import random
import time
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from pathlib import Path
from types import TracebackType
from typing import TYPE_CHECKING, Any, Literal, Self, TypeVar

import httpx

from kg.client import calls
from kg.client.asking import Asking, many
from kg.client.bearer import BearerFrom
from kg.client.calls import Call, raise_for_problem
from kg.client.entities import Identity, Metric, Summary
from kg.client.finding import AsyncFinding, Finding
from kg.client.graphs import AsyncSubgraph, Subgraph
from kg.client.operating import Operating
from kg.client.rows import Rows
from kg.client.updating import AsyncGraph, AsyncUpdating, Graph, Updating
from kg.client.workloads import AsyncWorkload, Workload
from kg.errors import SourceUnavailable

if TYPE_CHECKING:
    from kg.client.forecasts import AsyncForecasts, Forecasts
    from kg.client.series import Series

__all__ = [
    "AsyncClient",
    "AsyncGraph",
    "AsyncSubgraph",
    "AsyncWorkload",
    "Client",
    "Graph",
    "Metric",
    "Rows",
    "Subgraph",
    "Workload",
]

T = TypeVar("T")
DEFAULT_URL = "http://localhost:8080"
_BUSY = (429, 503)


def _options(url: str | None, timeout: float, token_file: Path | None) -> dict[str, Any]:
    address = (url or os.environ.get("DRUMLIN_URL") or DEFAULT_URL).rstrip("/")
    auth = BearerFrom(token_file) if token_file else None
    return {
        "base_url": address,
        "timeout": httpx.Timeout(timeout, connect=5.0),
        "follow_redirects": False,
        "auth": auth,
    }


def _timeout(call: Call[Any]) -> Any:
    return httpx.USE_CLIENT_DEFAULT if call.seconds is None else httpx.Timeout(call.seconds, connect=5.0)


def _pause(attempt: int, response: httpx.Response | None) -> float:
    """Return how long to wait before the next try, in seconds: what the server asks for, else backoff with jitter."""
    asked = response.headers.get("Retry-After", "") if response is not None else ""
    return min(float(asked), 30.0) if asked.isdigit() else 0.2 * 2**attempt * (0.5 + random.random())  # noqa: S311 - jitter


def _unreachable(url: httpx.URL, error: httpx.HTTPError) -> SourceUnavailable:
    reason = str(error) or type(error).__name__
    return SourceUnavailable(
        f"no answer from the service at {url}: {reason}", hint="is it running? start it with: drumlin serve"
    )


class Client(Finding, Updating, Asking, Operating):
    """A connection to a service at ``url``; use it as a context manager.

    ``timeout`` is in seconds and bounds the silence within one request (connecting: 5 s; what is known to take long has a bound of its
    own). A request that is safe to repeat is repeated up to ``retries`` times when the service is busy (429, 503: after what its
    ``Retry-After`` says) or the connection breaks, never when it is only slow. ``token_file`` holds a bearer token for a proxy in
    front of the service; it is read for each request, so it may be rotated.
    """

    def __init__(
        self, url: str | None = None, *, timeout: float = 60.0, retries: int = 2, token_file: Path | None = None
    ) -> None:
        self._retries = retries
        self._http = httpx.Client(**_options(url, timeout, token_file))

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the connection."""
        self._http.close()

    @property
    def url(self) -> str:
        """The service's address."""
        return str(self._http.base_url)

    def run(self, call: Call[T]) -> T:
        """Carry out one call; repeats it when the service is busy or the connection breaks, if that is safe."""
        for attempt in range(self._retries + 1):
            last = attempt == self._retries or not call.repeatable
            response = None
            try:
                response = self._http.request(
                    call.method,
                    call.path,
                    params=dict(call.params),
                    headers=dict(call.headers),
                    content=call.content,
                    timeout=_timeout(call),
                )
            except httpx.TransportError as error:
                if last or isinstance(error, httpx.ReadTimeout):
                    raise _unreachable(self._http.base_url, error) from error
            if response is not None and (response.status_code not in _BUSY or last):
                raise_for_problem(response)
                return call.read(response)
            time.sleep(_pause(attempt, response))
        raise AssertionError("unreachable")

    def subgraph(self, id: str) -> Subgraph:
        """Return a handle on one entity's graph; nothing is sent yet."""
        return Subgraph(self, id)

    def subgraphs(
        self,
        *,
        type: str | None = None,
        namespace: str | None = None,
        owner: str | None = None,
        prefix: str | None = None,
        tombstones: bool = False,
    ) -> Iterator[Summary]:
        """Iterate over the entities that match, in the order of their ids, page by page."""
        after: str | None = None
        while True:
            page = self.run(
                calls.list_subgraphs(
                    type=type,
                    namespace=namespace,
                    owner=owner,
                    prefix=prefix,
                    tombstones=tombstones or None,
                    after=after,
                )
            )
            yield from (Summary.read(item) for item in page["items"])
            if (after := page.get("next")) is None:
                return

    def workloads(self, *, kind: str = "Workload", namespace: str | None = None) -> list[Workload]:
        """Return the workloads, or those of one kind (``Deployment``) or namespace."""
        return [Workload(self, summary) for summary in self.subgraphs(type=kind, namespace=namespace)]

    def workload(self, id: str) -> Workload:
        """Return one workload by short id or IRI; raises ``ResourceNotFound``."""
        document = self.subgraph(id).get()
        return Workload(self, Identity.of(document), document)

    def history(
        self,
        entities: str | Sequence[str] | None = None,
        metrics: str | Sequence[str] = (),
        *,
        last: str | None = None,
        start: str | None = None,
        end: str | None = None,
        step: str = "auto",
        gaps: str = "null",
        datasource: str | None = None,
        via: Literal["service", "direct"] = "service",
        progress: Callable[[int], None] | None = None,
        **selection: str,
    ) -> Series:
        """Fetch series: a long table with ``.queries .coverage .gaps .warnings``; ``progress`` is told how many have come.

        Without ``entities``, ``type`` (and ``namespace``) or ``sparql`` selects them; ``query`` is PromQL of your own, limited to each.
        ``kind="forecast"`` returns what was predicted: in the window, or the whole newest forecast when there is none.
        ``via="direct"``: the service only resolves, and this process asks the datasources that stand in its own ``drumlin.toml``.
        """
        from kg.client import telemetry

        window = {"last": last, "start": start, "end": end, "step": step, "gaps": gaps, "datasource": datasource}
        fetch = telemetry.direct if via == "direct" else telemetry.through_service
        return fetch(self, entities and many(entities), many(metrics), progress, {**window, **selection})

    def save_history(
        self,
        path: str | Path,
        entities: str | Sequence[str] | None,
        metrics: str | Sequence[str],
        *,
        progress: Callable[[int], None] | None = None,
        **options: Any,
    ) -> None:
        """Fetch series into a file (.parquet, .arrow, .csv, .ndjson) as they come, however many there are; options as for ``history``.

        ``progress`` is told how many bytes have been written.
        """
        from kg.client import telemetry

        telemetry.save(self, Path(path), entities and many(entities), many(metrics), progress, options)

    @property
    def forecasts(self) -> Forecasts:
        """Forecasts: ``save``, ``list``, ``points``, ``compare``, ``seasonal``."""
        from kg.client.forecasts import Forecasts

        return Forecasts(self)

    def export(self, syntax: str = "nquads", **narrowed: str) -> Iterator[bytes]:
        """Stream graphs of one generation as nquads, jsonld, trig or turtle; ``narrowed`` by type, domain, namespace, owner, prefix."""
        return self.stream(calls.export(syntax, **narrowed))

    def stream(self, call: Call[Any]) -> Iterator[bytes]:
        """Carry out one call and yield its body as it comes."""
        timeout = _timeout(call)
        try:
            with self._http.stream(
                call.method,
                call.path,
                params=dict(call.params),
                headers=dict(call.headers),
                content=call.content,
                timeout=timeout,
            ) as response:
                if response.status_code >= 400:
                    response.read()
                raise_for_problem(response)
                yield from response.iter_bytes()
        except httpx.TransportError as error:
            raise _unreachable(self._http.base_url, error) from error


class AsyncClient(AsyncFinding, AsyncUpdating, Asking, Operating):
    """The asynchronous twin of ``Client``."""

    def __init__(
        self, url: str | None = None, *, timeout: float = 60.0, retries: int = 2, token_file: Path | None = None
    ) -> None:
        self._retries = retries
        self._http = httpx.AsyncClient(**_options(url, timeout, token_file))

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self.close()

    async def close(self) -> None:
        """Close the connection."""
        await self._http.aclose()

    @property
    def url(self) -> str:
        """The service's address."""
        return str(self._http.base_url)

    async def run(self, call: Call[T]) -> T:
        """Carry out one call; repeats it when the service is busy or the connection breaks, if that is safe."""
        for attempt in range(self._retries + 1):
            last = attempt == self._retries or not call.repeatable
            response = None
            try:
                response = await self._http.request(
                    call.method,
                    call.path,
                    params=dict(call.params),
                    headers=dict(call.headers),
                    content=call.content,
                    timeout=_timeout(call),
                )
            except httpx.TransportError as error:
                if last or isinstance(error, httpx.ReadTimeout):
                    raise _unreachable(self._http.base_url, error) from error
            if response is not None and (response.status_code not in _BUSY or last):
                raise_for_problem(response)
                return call.read(response)
            await asyncio.sleep(_pause(attempt, response))
        raise AssertionError("unreachable")

    def subgraph(self, id: str) -> AsyncSubgraph:
        """Return a handle on one entity's graph; nothing is sent yet."""
        return AsyncSubgraph(self, id)

    async def subgraphs(
        self,
        *,
        type: str | None = None,
        namespace: str | None = None,
        owner: str | None = None,
        prefix: str | None = None,
        tombstones: bool = False,
    ) -> AsyncIterator[Summary]:
        """Iterate over the entities that match, in the order of their ids, page by page."""
        after: str | None = None
        while True:
            page = await self.run(
                calls.list_subgraphs(
                    type=type,
                    namespace=namespace,
                    owner=owner,
                    prefix=prefix,
                    tombstones=tombstones or None,
                    after=after,
                )
            )
            for item in page["items"]:
                yield Summary.read(item)
            if (after := page.get("next")) is None:
                return

    async def workloads(self, *, kind: str = "Workload", namespace: str | None = None) -> list[AsyncWorkload]:
        """Return the workloads, or those of one kind (``Deployment``) or namespace."""
        return [AsyncWorkload(self, summary) async for summary in self.subgraphs(type=kind, namespace=namespace)]

    async def workload(self, id: str) -> AsyncWorkload:
        """Return one workload by short id or IRI; raises ``ResourceNotFound``."""
        document = await self.subgraph(id).get()
        return AsyncWorkload(self, Identity.of(document), document)

    async def history(
        self,
        entities: str | Sequence[str] | None = None,
        metrics: str | Sequence[str] = (),
        *,
        last: str | None = None,
        start: str | None = None,
        end: str | None = None,
        step: str = "auto",
        gaps: str = "null",
        datasource: str | None = None,
        **selection: str,
    ) -> Series:
        """Fetch series through the service; see ``Client.history``. Fetching directly is the synchronous client's."""
        window: dict[str, Any] = {
            "last": last,
            "start": start,
            "end": end,
            "step": step,
            "gaps": gaps,
            "datasource": datasource,
        }
        call = calls.history(entities and many(entities), many(metrics), **{**window, **selection})
        return _series(await self.run(call))

    @property
    def forecasts(self) -> AsyncForecasts:
        """Forecasts: ``save``, ``list``, ``points``, ``compare``, ``seasonal``."""
        from kg.client.forecasts import AsyncForecasts

        return AsyncForecasts(self)

    async def export(self, syntax: str = "nquads", **narrowed: str) -> AsyncIterator[bytes]:
        """Stream graphs of one generation as nquads, jsonld, trig or turtle; ``narrowed`` by type, domain, namespace, owner, prefix."""
        call = calls.export(syntax, **narrowed)
        timeout = _timeout(call)
        try:
            async with self._http.stream(call.method, call.path, params=dict(call.params), timeout=timeout) as response:
                if response.status_code >= 400:
                    await response.aread()
                raise_for_problem(response)
                async for chunk in response.aiter_bytes():
                    yield chunk
        except httpx.TransportError as error:
            raise _unreachable(self._http.base_url, error) from error


def _series(data: bytes) -> Series:
    from kg.client.series import Series

    return Series.from_ipc(data)
