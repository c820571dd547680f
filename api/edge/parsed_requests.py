"""Requests to ``/sparql`` read: parameters, gate, format; one that came before is not read again."""

from __future__ import annotations

from collections import OrderedDict
from typing import Any, NamedTuple

from starlette.concurrency import run_in_threadpool

from drumlin.api import querying
from drumlin.api.edge.result_cache import Key
from drumlin.api.http.asgi import HeaderValues, text_of
from drumlin.kg.config.settings import Settings
from drumlin.kg.store.query_workers.client import QueryExecutor
from drumlin.kg.store.query_workers.request import QueryRequest

_REMEMBERED = 4096  # requests
_SHORT = 8192  # bytes of a request that is read on the event loop, in a millisecond or two, and worth remembering


class ParsedRequest(NamedTuple):
    """What a request asks. ``key`` is None when the result may not be kept."""

    question: QueryRequest
    key: Key | None


class ParsedRequests:
    """The requests read last."""

    def __init__(self, settings: Settings, asking: QueryExecutor) -> None:
        self._settings, self._asking = settings, asking
        self._found: OrderedDict[tuple[Any, ...], ParsedRequest] = OrderedDict()

    async def parse(self, method: str, query_string: bytes, headers: HeaderValues, body: bytes) -> ParsedRequest:
        """Read a request; raises ``QueryRejected``, ``UnsupportedSyntax`` and ``NotAcceptable``."""
        sent = method == "POST", query_string, headers.get(b"accept"), headers.get(b"content-type"), body
        found = self._found.get(sent)
        if found is not None:
            self._found.move_to_end(sent)
            return found
        if sum(len(each) for each in sent[1:] if each is not None) > _SHORT:
            return await run_in_threadpool(self._parse, method, query_string, headers, body)
        found = self._found[sent] = self._parse(method, query_string, headers, body)
        if len(self._found) > _REMEMBERED:
            self._found.popitem(last=False)
        return found

    def _parse(self, method: str, query_string: bytes, headers: HeaderValues, body: bytes) -> ParsedRequest:
        settings = self._settings
        query = querying.parse(
            method,
            query_string,
            text_of(headers, b"accept"),
            text_of(headers, b"content-type"),
            body,
            max_bytes=settings.query_bytes,
        )
        question = self._asking.question(
            query.text,
            media_type=query.media_type,
            dataset=query.dataset,
            base=settings.base,
            timeout=query.timeout,
        )
        if query.volatile:
            return ParsedRequest(question, None)
        dataset = query.dataset
        key = query.text, (dataset.default_graphs, dataset.named_graphs, query.media_type)
        return ParsedRequest(question, key)
