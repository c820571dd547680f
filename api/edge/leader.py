"""What agents send, in a process that does not lead: it goes on to the leader, which keeps the heartbeats of all.

Heartbeats are in the memory of one process, so of several before one store the holder of the Lease gets them, with whatever else changes
agents. The answer is the leader's. A request is forwarded once: one that finds no leader there either is refused.
"""

from __future__ import annotations

from collections.abc import Sequence

from fastapi import Request

from drumlin.api.bootstrap import Services
from drumlin.api.edge.exchange import Exchange
from drumlin.api.http.asgi import Application
from drumlin.api.http.bodies import body_of
from drumlin.api.http.representations import Whole
from drumlin.exporters.agents.registration import MAX_BYTES
from drumlin.exporters.kubernetes.election import Election
from drumlin.kg.errors import SourceUnavailable, StoreUnavailable
from drumlin.kg.telemetry.fetch.transport import BROKEN, Transport

SECONDS = 10.0
"""Until the leader must have answered."""
FORWARDED = "X-Drumlin-Forwarded"
_PASSED_ON = (b"authorization", b"content-type", b"x-request-id")
_MOST = 1 << 20


class LeaderEndpoint:
    """Forwards what changes agents to the process that is elected."""

    def __init__(self, parts: Services) -> None:
        elections: Sequence[Election] = [each.election for each in parts.exporting if each.election is not None]
        self._election = elections[0] if elections else None
        self._address = parts.settings.election.address
        self._threads = parts.bulkheads.bulk
        self._transports: dict[str, Transport] = {}

    def takes(self, exchange: Exchange) -> bool:
        """Return whether a request is the leader's business, and this process is not the leader."""
        if self._election is None or exchange.method not in ("POST", "PUT", "DELETE"):
            return False
        path = exchange.scope["path"]
        return (path.startswith("/agents/") or path == "/v1/logs") and not self._election.leads

    async def __call__(self, exchange: Exchange) -> Application:
        """Answer as the leader does. Raises ``StoreUnavailable`` where there is none to ask, or it does not answer."""
        leader = self._election.leader if self._election else None
        if leader is None or exchange.headers.get(FORWARDED.lower().encode()):
            raise StoreUnavailable("no process leads at the moment", hint="ask again in a few seconds")
        if self._address is None:
            raise StoreUnavailable(
                f"heartbeats are kept by the leader, {leader}, and this process does not know its address",
                hint="set election.address, such as http://{host}.drumlin:8080 (docs/agents.md)",
            )
        scope = exchange.scope
        body = await body_of(Request(scope, exchange.receive), MAX_BYTES)
        headers = {name.decode(): value.decode("latin-1") for name, value in scope["headers"] if name in _PASSED_ON}
        headers[FORWARDED] = "1"
        query = f"?{scope['query_string'].decode('latin-1')}" if scope["query_string"] else ""
        transport = self._transport(self._address.replace("{host}", leader.rpartition("_")[0]))
        target = (scope.get("raw_path") or scope["path"].encode()).decode("latin-1") + query
        try:
            answer = await self._threads.run(
                lambda: transport.send(exchange.method, target, headers, body or None, _MOST)
            )
        except BROKEN as error:
            raise SourceUnavailable(
                f"the leader, {leader}, does not answer: {error}", hint="ask again in a few seconds"
            ) from error
        return Whole(answer.body, status_code=answer.status, media_type=answer.headers.get("Content-Type"))

    def _transport(self, url: str) -> Transport:
        if url not in self._transports:
            for each in self._transports.values():
                each.close()
            self._transports = {url: Transport(url, SECONDS, None)}
        return self._transports[url]
