"""The changes of the graph as they happen, followed through lost connections; and what else is read piece by piece.

The logic (where to go on, when to give up) is here once, for both clients; the stream is Server-Sent Events:
https://html.spec.whatwg.org/multipage/server-sent-events.html#event-stream-interpretation.
"""

from __future__ import annotations

import codecs
from collections.abc import AsyncGenerator, Iterator, Mapping, Sequence
from typing import Any

import msgspec

from drumlin.kg.client import calls
from drumlin.kg.client.calls import Call
from drumlin.kg.client.endpoint import iterated, operation
from drumlin.kg.client.entities import GraphSummary
from drumlin.kg.client.transport import ClientTransport, backoff, pause_before
from drumlin.kg.errors import DrumlinError, SourceUnavailable, StoreUnavailable, Throttled
from drumlin.kg.model.connection_errors import lasts

Values = str | Sequence[str] | None

TRIES = 8
"""Connections in a row that bring nothing before the feed is given up: some 20 s."""
_LONGEST_PAUSE = 10.0
_PASSING = (None, 429, 502, 503, 504)  # None: there was no answer at all


class Events:
    """Reads a stream of events, whatever carries it, and remembers after which one to go on.

    An event counts when the blank line that ends it has come: what a broken connection has cut is read again.
    """

    def __init__(self, since: str | None) -> None:
        self.last = since
        self._text = codecs.getincrementaldecoder("utf-8")()
        self._rest = ""
        self._id = since
        self._data: list[str] = []

    def fed(self, chunk: bytes) -> Iterator[dict[str, Any]]:
        """Take the next bytes, cut anywhere, and yield the events that they end."""
        *lines, self._rest = (self._rest + self._text.decode(chunk)).split("\n")
        for line in lines:
            if line.removesuffix("\r"):
                self._field(line.removesuffix("\r"))
                continue
            self.last, data = self._id, self._data
            self._data = []
            if data:
                yield msgspec.json.decode("\n".join(data))

    def _field(self, line: str) -> None:
        name, _, value = line.partition(":")
        if name == "id":
            self._id = value.removeprefix(" ")
        elif name == "data":
            self._data.append(value.removeprefix(" "))

    def anew(self) -> Events:
        """Return the reader of the next connection."""
        return Events(self.last)


class _Patience:
    """Decides whether, and when, to connect again."""

    def __init__(self) -> None:
        self._failures = 0

    def heard(self) -> None:
        """Begin to count anew: something has come."""
        self._failures = 0

    def pause(self, url: str, error: DrumlinError | None) -> float:
        """Return how long to wait, in seconds; raises what is no use to wait for, and ``SourceUnavailable`` in the end."""
        detail: Mapping[str, Any] = error.detail if error else {}
        if error and (detail.get("status") not in _PASSING or lasts(error)):
            raise error
        self._failures += 1
        if self._failures == TRIES:
            reason = f": {error}" if error else ""
            hint = error.hint if error else "check that the service runs"
            raise SourceUnavailable(f"the change feed of {url} does not come back{reason}", hint=hint) from error
        return pause_before(0, detail.get("retryAfter") or min(_LONGEST_PAUSE, backoff(self._failures - 1)))


class EventsOperations:
    """Operations whose answers come piece by piece."""

    _carrier: ClientTransport

    next_changes = operation(calls.next_changes)

    @iterated
    async def changes(
        self,
        since: str | int | None = None,
        *,
        type: Values = None,
        domain: Values = None,
        namespace: Values = None,
        owner: Values = None,
        quads: bool = False,
    ) -> AsyncGenerator[dict[str, Any], None]:
        """Yield committed changes as CloudEvents, each once and in order, for ever: from now on, or after the event ``since``.

        A lost connection is taken up again, as is a service that is busy or away, 8 times in a row at most. Keep an event's ``id`` to go on
        after it in another life; ``since=0`` is the beginning. With ``quads`` their data has the N-Quads ``removed`` and ``added``, or
        ``leftOut`` says why not. Raises ``EventsGone`` when the log does not reach so far, ``InvalidInput`` when ``since`` is no event's,
        ``SourceUnavailable`` when the service stays away.
        """
        filters = {"type": type, "domain": domain, "namespace": namespace, "owner": owner}
        wanted = {**filters, "quads": "true" if quads else None}
        events, patience = Events(None if since is None else str(since)), _Patience()
        while True:
            lost: DrumlinError | None = None
            try:
                async with self._carrier.opened(calls.changes(events.last, wanted), retries=0) as chunks:
                    async for chunk in chunks:
                        patience.heard()
                        for event in events.fed(chunk):
                            yield event
            except (SourceUnavailable, StoreUnavailable, Throttled) as error:
                lost = error
            events = events.anew()
            await self._carrier.pause(patience.pause(self._carrier.url, lost))

    @iterated
    async def subgraphs(
        self,
        *,
        type: Values = None,
        domain: Values = None,
        cluster: Values = None,
        namespace: Values = None,
        node: Values = None,
        phase: Values = None,
        quantity: Values = None,
        datasource: Values = None,
        tag: Values = None,
        owner: Values = None,
        prefix: str | None = None,
        tombstones: bool = False,
    ) -> AsyncGenerator[GraphSummary, None]:
        """Yield the entities that match, in the order of their ids, page by page; ``tombstones`` adds those that are gone.

        ``quantity`` is what is measured of them, ``datasource`` holds their telemetry, ``prefix`` begins their short ids. Raises
        ``InvalidInput`` for too many values.
        """
        about = {
            "type": type,
            "domain": domain,
            "cluster": cluster,
            "namespace": namespace,
            "node": node,
            "phase": phase,
        }
        more = {"quantity": quantity, "datasource": datasource, "tag": tag, "owner": owner, "prefix": prefix}
        call: Call[calls.Page] | None = calls.list_subgraphs(**about, **more, tombstones=tombstones or None)
        while call is not None:
            page = await self._carrier.run(call)
            for each in page.items:
                yield GraphSummary.read(each)
            call = page.following

    @iterated
    async def export(self, /, syntax: str = "nquads", **narrowed: str) -> AsyncGenerator[bytes, None]:
        """Yield graphs of one generation as nquads, jsonld, trig or turtle; ``narrowed`` by type, domain, namespace, owner, prefix.

        Raises ``UnsupportedSyntax`` for another one, ``InvalidInput`` for what does not narrow, and ``SourceUnavailable`` also when the
        answer breaks off: what has come is not whole then.
        """
        async for chunk in self._carrier.stream(calls.export(syntax, **narrowed)):
            yield chunk
