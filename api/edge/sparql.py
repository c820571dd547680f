"""Queries to ``/sparql``, answered by reader processes in front of FastAPI.

A result of up to 64 KB is kept until the next write, under the query's text, its dataset and its format; asked for again it costs a
look-up. The same query asked by several clients at once runs once: the others wait for its first part and share a result that is
small. A larger one is streamed to each client by a run of its own, so nobody waits for another client to read. What cannot be kept
(NOW, RAND, …) always runs.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator
from contextlib import ExitStack
from typing import Any

from fastapi import Request
from starlette.concurrency import run_in_threadpool

from drumlin.api.bootstrap import Services
from drumlin.api.edge.exchange import Exchange
from drumlin.api.edge.parsed_requests import ParsedRequest, ParsedRequests
from drumlin.api.edge.rate_limit import RateLimiter
from drumlin.api.edge.result_cache import MAX_RESULT, CachedResult, ResultCache
from drumlin.api.http.asgi import Application
from drumlin.api.http.bodies import body_of
from drumlin.api.http.disconnects import unless_disconnected
from drumlin.api.http.representations import Whole
from drumlin.api.http.streaming import BodyStream
from drumlin.api.metrics import Metrics
from drumlin.api.querying import FORM_BYTES, ParsedQuery, headers_of, of_documents
from drumlin.kg import fairness
from drumlin.kg.errors import DrumlinError, Throttled
from drumlin.kg.graphs.foreign import may_name
from drumlin.kg.sparql.dataset import Dataset
from drumlin.kg.store.protocol import Answer
from drumlin.kg.store.query_workers.client import QueryExecutor
from drumlin.kg.store.query_workers.pipelined_client import AsyncChunks

_CACHE_BYTES = 64 * 1024 * 1024

_Flight = asyncio.Future[CachedResult | DrumlinError | None]
"""A query that runs: its result or its error; None when it cannot be shared."""


class SparqlEndpoint:
    """Answers queries through ``asking``."""

    def __init__(self, parts: Services, asking: QueryExecutor, metrics: Metrics) -> None:
        settings = parts.settings
        self._parts = parts
        self._store, self._asking, self._metrics = parts.store, asking, metrics
        self._max_bytes = settings.query_bytes + FORM_BYTES
        self._requests = ParsedRequests(settings, asking)
        self._cache = ResultCache(_CACHE_BYTES)
        self._limiter = RateLimiter(concurrent=settings.query_concurrency, kills=settings.query_kills)
        self._flights: dict[tuple[Any, ...], _Flight] = {}

    async def __call__(self, exchange: Exchange) -> Application:
        """Answer with a result that is kept, shared or streamed; raises what the query raises until its first part."""
        scope = exchange.scope
        body = b""
        if exchange.method == "POST":
            body = await body_of(Request(scope, exchange.receive), self._max_bytes)
        request = await self._requests.parse(exchange.method, scope["query_string"], exchange.headers, body)
        chosen = request.question.chosen
        if may_name(chosen.text, Dataset(chosen.default, chosen.named)):
            prepared = await run_in_threadpool(self._of_documents, request)
            if isinstance(prepared, Whole):
                return prepared
            request = prepared
        result: CachedResult | BodyStream | None = None
        if request.key is not None and (result := self._cache.get(self._store.generation, request.key)):
            self._metrics.cached("hit")
        else:
            result = await unless_disconnected(exchange.receive, self._shared(request, fairness.client.get()))
        if isinstance(result, CachedResult):
            return result.answer(exchange.headers)
        return result or Whole(status_code=499)  # which nobody reads: the client has left

    def _of_documents(self, request: ParsedRequest) -> Whole | ParsedRequest:
        """Answer a query of foreign documents; what reads the graph beside them is asked as any query, its documents' part answered."""
        question = request.question
        dataset = Dataset(question.chosen.default, question.chosen.named)
        query = ParsedQuery(question.chosen.text, dataset, question.media_type, question.timeout, volatile=True)
        prepared = of_documents(self._parts, query)
        if isinstance(prepared, Answer):
            return Whole(
                b"".join(prepared.chunks), media_type=prepared.media_type, headers=headers_of(prepared.generation)
            )
        if prepared is query:
            return request
        asked = self._asking.question(
            prepared.text, media_type=question.media_type, base=question.base, timeout=question.timeout
        )
        return ParsedRequest(asked, None)

    async def _shared(self, request: ParsedRequest, client: str) -> CachedResult | BodyStream:
        """Share the result of the same query that runs already and came at the same generation, else run it."""
        if request.key is None:
            return await self._run(request, client)
        name = (self._store.generation, request.key, request.question.timeout)
        if (flight := self._flights.get(name)) is not None:
            landed = await asyncio.shield(flight)
            if isinstance(landed, DrumlinError):
                raise landed.again()
            if landed is None:  # it is too large to share, or its client left
                return await self._run(request, client)
            self._metrics.cached("shared")
            return landed
        flight = self._flights[name] = asyncio.get_running_loop().create_future()
        shared: CachedResult | DrumlinError | None = None
        try:
            result = await self._run(request, client)
            shared = result if isinstance(result, CachedResult) else None
        except DrumlinError as error:
            shared = None if isinstance(error, Throttled) else error
            raise
        finally:
            del self._flights[name]
            flight.set_result(shared)
        return result

    async def _run(self, request: ParsedRequest, client: str) -> CachedResult | BodyStream:
        """Run a query until the first part of its result is there."""
        self._metrics.cached("miss" if request.key is not None else "uncacheable")
        question = request.question._replace(client=client)  # the text may be known from another one
        with ExitStack() as held:
            self._limiter.acquire(client)
            held.callback(self._limiter.release, client)
            try:
                chunks = await self._asking.ask(question)
            except DrumlinError as error:
                self._limiter.record(client, error)
                raise
            held.callback(chunks.close)
            body = chunks.whole()
            if body is None or len(body) > MAX_RESULT:
                headers = headers_of(chunks.generation)
                return BodyStream(_pieces(body, chunks), question.media_type, headers, on_close=held.pop_all().close)
            result = CachedResult(body, question.media_type, chunks.generation, keep=request.key is not None)
            if request.key is not None:
                self._cache.put(chunks.generation, request.key, result)
            return result


async def _pieces(whole: bytes | None, chunks: AsyncChunks) -> AsyncIterator[bytes]:
    if whole is not None:
        yield whole
    async for chunk in chunks:
        yield chunk
