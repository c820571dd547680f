"""What a client asks of the graph as a whole: search, saved queries, and its changes as they happen.

A mixin for each kind of client; what is sent and how it is read is one definition for both (``kg.client.calls``).
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Iterator, Sequence
from typing import Any, TypeVar

import httpx
import msgspec

from kg.client import calls
from kg.client.calls import Call, raise_for_problem
from kg.errors import SourceUnavailable, StoreUnavailable

T = TypeVar("T")
Values = str | Sequence[str] | None

_SILENCE = 60.0  # seconds without a byte; the service says something every 15
_TRIES = 8  # connections in a row that bring nothing


class Following:
    """Reads a stream of events, whatever carries it: remembers the last id, and decides when a lost connection is given up."""

    def __init__(self, since: str | int | None, filters: dict[str, Values], *, quads: bool) -> None:
        self.last = None if since is None else str(since)
        self._filters = {**filters, "quads": "true" if quads else None}
        self._failures = 0

    @property
    def call(self) -> Call[None]:
        """The request that goes on where the last one ended."""
        return calls.changes(self.last, self._filters)

    def line(self, line: str) -> dict[str, Any] | None:
        """Take one line; returns the event that it carries, if any."""
        self._failures = 0
        if line.startswith("id: "):
            self.last = line[4:]
        elif line.startswith("data: "):
            event: dict[str, Any] = msgspec.json.decode(line[6:])
            return event
        return None

    def lost(self, url: httpx.URL, error: Exception | None) -> float:
        """Return how long to wait before connecting again, in seconds; raises ``SourceUnavailable`` when it is no use."""
        self._failures += 1
        if self._failures == _TRIES:
            raise SourceUnavailable(
                f"the change feed of {url} does not come back", hint="is the service running?"
            ) from error
        return float(min(10, 0.1 * 2**self._failures))


def _options(call: Call[Any]) -> dict[str, Any]:
    timeout = httpx.Timeout(_SILENCE, connect=5.0)
    return {"params": dict(call.params), "headers": dict(call.headers), "timeout": timeout}


class Finding:
    """Search, saved queries and changes, synchronously."""

    _http: httpx.Client

    def changes(
        self,
        since: str | int | None = None,
        *,
        type: Values = None,
        domain: Values = None,
        namespace: Values = None,
        owner: Values = None,
        quads: bool = False,
    ) -> Iterator[dict[str, Any]]:
        """Yield committed changes as CloudEvents, each once and in order, for ever: from now on, or after the event ``since``.

        A lost connection is taken up again. Keep an event's ``id`` to go on after it in another life; ``since=0`` is the beginning. With
        ``quads`` their data has the N-Quads ``removed`` and ``added``, or ``leftOut`` says why not. Raises
        ``EventsGone`` when the log does not reach so far, ``SourceUnavailable`` when the service stays away.
        """
        following = Following(
            since, {"type": type, "domain": domain, "namespace": namespace, "owner": owner}, quads=quads
        )
        while True:
            error = None
            call = following.call
            try:
                with self._http.stream(call.method, call.path, **_options(call)) as answer:
                    if answer.status_code >= 400:
                        answer.read()
                    raise_for_problem(answer)
                    for line in answer.iter_lines():
                        if (event := following.line(line)) is not None:
                            yield event
            except (httpx.TransportError, StoreUnavailable) as lost:
                error = lost
            time.sleep(following.lost(self._http.base_url, error))


class AsyncFinding:
    """The asynchronous twin of ``Finding``."""

    _http: httpx.AsyncClient

    async def changes(
        self,
        since: str | int | None = None,
        *,
        type: Values = None,
        domain: Values = None,
        namespace: Values = None,
        owner: Values = None,
        quads: bool = False,
    ) -> AsyncIterator[dict[str, Any]]:
        """Yield committed changes as CloudEvents; see ``Finding.changes``."""
        following = Following(
            since, {"type": type, "domain": domain, "namespace": namespace, "owner": owner}, quads=quads
        )
        while True:
            error = None
            call = following.call
            try:
                async with self._http.stream(call.method, call.path, **_options(call)) as answer:
                    if answer.status_code >= 400:
                        await answer.aread()
                    raise_for_problem(answer)
                    async for line in answer.aiter_lines():
                        if (event := following.line(line)) is not None:
                            yield event
            except (httpx.TransportError, StoreUnavailable) as lost:
                error = lost
            await asyncio.sleep(following.lost(self._http.base_url, error))
