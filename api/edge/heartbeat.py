"""``POST /agents/{guid}/heartbeat`` in front of FastAPI: a heartbeat is a look into a table, and a thousand come a second."""

from __future__ import annotations

from drumlin.api.edge.exchange import Exchange
from drumlin.api.http.asgi import Application
from drumlin.api.http.representations import Whole
from drumlin.exporters.agents.heartbeats import Heartbeats

ROUTE = "/agents/{guid}/heartbeat"
_BEFORE, _AFTER = "/agents/", "/heartbeat"
_HEARD = Whole(status_code=204)


class HeartbeatEndpoint:
    """Notes heartbeats of agents that are known; FastAPI's route answers those of any other."""

    def __init__(self, heartbeats: Heartbeats, others: Application) -> None:
        self._heartbeats, self._others = heartbeats, others

    @staticmethod
    def takes(exchange: Exchange) -> bool:
        """Return whether a request is a heartbeat of one agent: without a body."""
        path, sent = exchange.scope["path"], exchange.headers
        alone = sent.get(b"content-length", b"0") == b"0" and b"transfer-encoding" not in sent
        return exchange.method == "POST" and alone and path.startswith(_BEFORE) and path.endswith(_AFTER)

    async def __call__(self, exchange: Exchange) -> Application:
        """Answer."""
        guid = exchange.scope["path"][len(_BEFORE) : -len(_AFTER)]
        if not self._heartbeats.beat(guid):
            return self._others
        exchange.route = ROUTE
        return _HEARD
