"""The entry of the service: each request becomes an exchange, passes the guard, and goes to the endpoint that answers it.

``/livez``, queries to ``/sparql``, plain reads and writes of ``/subgraph/{id}`` and heartbeats are answered here; FastAPI's routing, its
injection and its thread for a request take 0.5 ms of processor time, more than reading a graph. FastAPI answers everything else, and
documents all of it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from contextlib import suppress
from functools import lru_cache
from urllib.parse import quote

import msgspec
from starlette.middleware.cors import CORSMiddleware

from drumlin.api.access.authentication import LOOK
from drumlin.api.access.callers import Role
from drumlin.api.bootstrap import Services
from drumlin.api.edge.access_guard import AccessGuard
from drumlin.api.edge.exchange import Exchange
from drumlin.api.edge.heartbeat import HeartbeatEndpoint
from drumlin.api.edge.leader import LeaderEndpoint
from drumlin.api.edge.request_guard import PUBLIC, RequestGuard
from drumlin.api.edge.slow_clients import SlowClientGuard
from drumlin.api.edge.subgraph import SubgraphEndpoint
from drumlin.api.http import problems
from drumlin.api.http.asgi import Application, Receive, Scope, Send
from drumlin.api.http.problems import MEDIA_TYPE
from drumlin.api.http.relative_addresses import prefix_of, root_from, without_prefix
from drumlin.api.http.representations import Whole
from drumlin.api.metrics import Metrics
from drumlin.api.pages.addresses import SUFFIX, has_page, to_page, wants_page
from drumlin.api.routes import operations
from drumlin.api.views import DomainViews, View
from drumlin.kg.errors import DrumlinError, StoreUnavailable, Unauthenticated
from drumlin.kg.threads import call_safely

EXPOSED = ("ETag", "Link", "Location", "X-Request-Id", "X-Drumlin-Generation", "X-Drumlin-Owner", "X-Drumlin-Graphs",
           "X-Drumlin-Left-Out", "X-Drumlin-Last-Event-Id", "X-Drumlin-History", "WWW-Authenticate")  # fmt: skip
"""Headers that scripts of other origins may read."""
_REFUSED = "refused"
_WEBSOCKET_REFUSED = 1008
_ALIVE = Whole(b'{"status":"alive"}', media_type="application/json")  # what a caller that is not known learns

Endpoint = Callable[[Exchange], Awaitable[Application]]
"""Answers a request: returns the answer as ASGI, or raises what becomes a problem document."""


def is_page_request(exchange: Exchange) -> bool:
    """Return whether a person waits for a page: a browser asks for HTML, brings no token, and it is no part of a page."""
    accept = exchange.headers.get(b"accept") or b""
    scope = exchange.scope
    return (
        exchange.method == "GET"
        and accept.startswith(b"text/html")
        and b"authorization" not in exchange.headers
        and b"fragment=" not in scope["query_string"]
    )


def sign_in_address(scope: Scope) -> str:
    """Return the address of the page to sign in, relative to what was asked for, which it leads back to."""
    raw: bytes = (scope.get("raw_path") or quote(scope["path"]).encode()).partition(b"?")[0]
    asked = raw.removesuffix(SUFFIX.encode()) if scope.get("negotiated_page") else raw
    query = b"?" + scope["query_string"] if scope["query_string"] else b""
    return f"{root_from(raw.count(b'/') - 1)}signin?next={quote((asked + query).decode('latin-1'), safe='')}"


class EdgeApplication:
    """The whole service as one application (ASGI); ``app`` is FastAPI's part of it."""

    def __init__(
        self,
        app: Application,
        parts: Services,
        views: DomainViews,
        guard: RequestGuard,
        access: AccessGuard,
        metrics: Metrics,
    ) -> None:
        self.app, self._views, self._guard, self._access, self._metrics = app, views, guard, access, metrics
        self._slow_clients = SlowClientGuard(metrics)
        # Liveness is answered as long as the event loop turns, without a thread or the store: a service that is restarted for a
        # late answer is worse off than one that is slow.
        self._running: dict[Exchange, asyncio.Task[None] | None] = {}
        self._ended: set[Exchange] = set()
        self._cut = False
        self._alive = Whole(msgspec.json.encode(operations.alive(parts.settings)), media_type="application/json")
        self._subgraph = SubgraphEndpoint(parts)
        self._heartbeat = HeartbeatEndpoint(parts.agents.heartbeats, app)
        self._leader = LeaderEndpoint(parts)
        self._signed = parts.settings.takes_signed_tokens
        self._learning: set[asyncio.Task[None]] = set()
        self._prefix = prefix_of(parts.settings.base)
        self._origins = parts.settings.cors
        self._cross_origin = lru_cache(64)(self._allowing)

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Answer (ASGI); there are no WebSockets here."""
        if scope["type"] == "http":
            self._strip_prefix(scope)
            exchange = Exchange(scope, receive, send, self._metrics, self._slow_clients)
            self._running[exchange] = asyncio.current_task()
            try:
                await exchange.run(self._guarded)
            except asyncio.CancelledError:
                if exchange.status and exchange in self._ended:
                    return  # without an end, so that the server cuts the connection
                if exchange.status or not (self._cut or exchange in self._ended):
                    raise
                await exchange.problem(self._reason_to_cut())(scope, receive, exchange.send)
            finally:
                del self._running[exchange]
                self._ended.discard(exchange)
                self._access.note(exchange)
        elif scope["type"] == "websocket":
            await send({"type": "websocket.close", "code": _WEBSOCKET_REFUSED})
        else:
            await self.app(scope, receive, send)

    def _strip_prefix(self, scope: Scope) -> None:
        """Take the path of the base off, where a proxy in front has left it there."""
        if self._prefix and scope["path"] != self._prefix and not self._access.has_route(scope["path"]):
            without_prefix(scope, self._prefix)

    def cut(self) -> int:
        """End the requests that are being answered, those that have not begun with a problem (503); return how many."""
        self._cut = True
        running = [each for each in self._running.values() if each is not None]
        for each in running:
            each.cancel()
        return len(running)

    async def watch_access(self) -> None:
        """End the requests of callers that are not accepted any more, again and again."""
        while True:
            await asyncio.sleep(LOOK)
            call_safely(self.cut_ended)

    def cut_ended(self) -> int:
        """End the requests of tokens that have expired or were revoked, streams above all; return how many."""
        authenticator = self._access.authenticator
        authenticator.refresh()
        count = 0
        for exchange, task in tuple(self._running.items()):
            if exchange.caller is not None and authenticator.is_due(exchange.caller):
                self._verify_again(exchange.scope)
            known = exchange.caller is None or self._access.is_accepted(exchange.caller)
            if task is None or known or not exchange.may_be_cut or exchange in self._ended:
                continue
            self._ended.add(exchange)
            exchange.refusal = "token-ended"
            task.cancel()
            count += 1
        return count

    def _verify_again(self, scope: Scope) -> None:
        """Verify the token of a request that is being answered, so that a stream ends with it."""

        async def verify() -> None:
            with suppress(DrumlinError):  # that nobody could be asked now says nothing of the token
                await self._access.learn(scope)

        task = asyncio.ensure_future(verify())
        self._learning.add(task)
        task.add_done_callback(self._learning.discard)

    def _reason_to_cut(self) -> DrumlinError:
        if self._cut:
            return StoreUnavailable("the service is stopping", hint="ask again in a moment")
        return Unauthenticated("the token has expired or was revoked", detail={"error": "invalid_token"})

    async def _guarded(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["exchange"]
        try:
            self._guard.check(scope)
        except DrumlinError as error:
            await self._refuse(exchange, error, send)
            return
        if scope["path"] == self._prefix and not self._access.has_route(self._prefix):
            # Relative addresses are right from the slash on.
            exchange.route = self._prefix
            location = f"{self._prefix.rpartition('/')[2]}/"
            await Whole(status_code=308, headers={"Location": location})(scope, receive, send)
            return
        # A public answer says itself that every origin may read it.
        closed = not self._origins or scope["path"] in PUBLIC
        app = self._answer if closed else self._cross_origin(self._access.methods_at(scope["path"]))
        await app(scope, receive, send)

    def _allowing(self, methods: tuple[str, ...]) -> Application:
        """Return what lets a browser know that pages of the listed origins may use ``methods``, those of an address."""
        return CORSMiddleware(
            self._answer,
            allow_origins=self._origins,
            allow_methods=methods,
            allow_headers=["*"],
            expose_headers=EXPOSED,
        )

    async def _refuse(self, exchange: Exchange, error: DrumlinError, send: Send) -> None:
        exchange.route, exchange.refusal = _REFUSED, problems.slug_of(error)
        await exchange.problem(error)(exchange.scope, exchange.receive, send)

    async def _answer(self, scope: Scope, receive: Receive, send: Send) -> None:
        exchange: Exchange = scope["exchange"]
        if has_page(exchange.method, scope["path"]):
            exchange.has_page = True
            if wants_page(scope["path"], exchange.headers.get(b"accept"), scope["query_string"]):
                to_page(scope)
        try:
            if self._signed:
                await self._access.learn(scope)
            closed = self._access.check(exchange)
        except DrumlinError as error:
            if isinstance(error, Unauthenticated) and is_page_request(exchange):
                exchange.route, exchange.refusal = _REFUSED, problems.slug_of(error)
                await Whole(status_code=303, headers={"Location": sign_in_address(scope)})(scope, receive, send)
                return
            await self._refuse(exchange, error, send)
            return
        if closed is not None:
            await closed(scope, receive, send)
            return
        domains = exchange.caller.domains if exchange.caller else None
        if exchange.caller is None or domains is None:
            await self._reply(exchange, self._views.whole, receive, send)
            return
        try:
            async with self._views.lent(domains, to_peer=exchange.caller.role is Role.peer) as view:
                await self._reply(exchange, view, receive, send)
        except DrumlinError as error:  # there is no view to answer from
            if exchange.status:
                raise
            await exchange.problem(error)(scope, receive, send)

    async def _reply(self, exchange: Exchange, view: View, receive: Receive, send: Send) -> None:
        exchange.scope["view"] = view
        endpoint = self._endpoint(exchange, view)
        try:
            answer = self.app if endpoint is None else await endpoint(exchange)
            await answer(exchange.scope, receive, send)
        except Exception as error:
            if endpoint is None and exchange.ended:
                return  # FastAPI has answered and logged it (``problems.register``), and raises it all the same
            if exchange.status:
                raise  # which cuts the answer that has begun
            await exchange.problem(error)(exchange.scope, receive, send)

    def _endpoint(self, exchange: Exchange, view: View) -> Endpoint | None:
        """Return what answers a request here, None when FastAPI does; ``exchange.route`` is the route that documents it."""
        path, method, query = exchange.scope["path"], exchange.method, exchange.scope["query_string"]
        reads = method in ("GET", "HEAD")
        if path == "/livez" and reads:
            exchange.route = path
            return self._livez
        if (
            path == "/sparql"
            and view.sparql
            and (method == "POST" or (reads and b"query=" in query))
            and b"explain=" not in query
        ):
            exchange.route = path
            return view.sparql
        if self._leader.takes(exchange):
            return self._leader
        if not query and self._heartbeat.takes(exchange):
            return self._heartbeat
        is_plain = path.startswith("/subgraph/") and not query and method in self._subgraph.methods
        if is_plain and view is self._views.whole:
            exchange.route = "/subgraph/{id:path}"
            return self._subgraph
        return None

    async def _livez(self, exchange: Exchange) -> Application:
        if problem := operations.death():
            if exchange.caller is None:
                problem = {"title": problem["title"], "status": problem["status"]}
            return Whole(msgspec.json.encode(problem), status_code=503, media_type=MEDIA_TYPE)
        return _ALIVE if exchange.caller is None else self._alive
