"""Who may do what, at the edge of the whole application: every route, every role, odd headers, tokens that end."""

from __future__ import annotations

import asyncio
import random
import re
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest
from fastapi import FastAPI
from starlette.responses import Response
from starlette.routing import Match, Route

from drumlin.api.access.audit_log import AccessLog, AuditEntry
from drumlin.api.access.authentication import Authenticator
from drumlin.api.access.callers import Role
from drumlin.api.access.rules import ROUTES, AccessRules, rule_of, table
from drumlin.api.access.tokens import TokenFile
from drumlin.api.app import create_app
from drumlin.api.bootstrap import Services, assemble, token_file
from drumlin.api.edge.entry import EdgeApplication
from drumlin.api.http import tcp_info
from drumlin.kg import fairness
from drumlin.kg.config.settings import Settings
from drumlin.kg.graphs.owners import HEADER
from tests.service.test_guard import DOMAIN, LINE, UPDATE, WRITES, _with

ROOT = Path(__file__).resolve().parents[2]
BASE = "https://kg.example"
PROBLEM = "https://w3id.org/drumlin/problem/"
BOUND: dict[Role, dict[str, Any]] = {
    Role.exporter: {"owners": ("kubernetes:prod", "drumlin:prod")},
    Role.agent: {"guid": "g-1"},
}
HIDDEN = {
    *(f"{method} /store/{{path:path}}" for method in ("GET", "PUT", "POST", "DELETE")),
    "GET /",
    "GET /openapi.json",
    *(
        f"GET /{name}.html"
        for name in (
            "search",
            "sparql",
            "queries",
            "history",
            "logs",
            "datasources",
            "alerts",
            "peers",
            "forecasts",
            "compare",
        )
    ),
    "GET /queries/{name}.html",
    "GET /doc/{id:path}.html",
    *(f"GET /{name}" for name in ("changes", "about", "docs", "measured", "accuracy", "static/{version}/{name}")),
    *(f"GET /docs/guide{rest}" for rest in ("", "/{path:path}")),
    *(f"GET /signin{rest}" for rest in ("", "/with/{number}", "/callback")),
    "POST /signin",
    "POST /signout",
    "OPTIONS /context/v1.jsonld",
    *(f"POST /v1/{signal}" for signal in ("metrics", "traces")),
}
"""Routes that no document lists."""
OPEN = {
    "GET /static/{version}/{name}": 404,
    "GET /signin/with/{number}": 422,
    "GET /signin/callback": 404,
    "POST /signin": 401,
    "POST /signout": 303,
}
"""What everybody gets from public routes that answer something else than a success here: no such file, number or issuer, no token, signed out."""


class Access:
    """An application that asks for tokens, one of each role, with a clock that stands until it is moved."""

    def __init__(self, parts: Services, path: Path, **settings: Any) -> None:
        self.seconds, self.parts = 0.0, parts
        self.file = TokenFile(path, self._now)
        self.tokens = {role: self.file.create(f"the-{role}", role, **BOUND.get(role, {}))[1] for role in Role}
        self.app = create_app(parts)
        made = Settings.model_validate(settings)
        self.app._access.authenticator = Authenticator(
            made, self.file, unguarded=True, now=self._now, clock=lambda: self.seconds
        )

    def _now(self) -> datetime:
        return datetime(2026, 1, 1, tzinfo=UTC) + timedelta(seconds=self.seconds)

    def ask(self, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
        """Send requests one after the other."""

        async def ask() -> list[httpx.Response]:
            transport = httpx.ASGITransport(self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return [await client.request(method, path, **more) for method, path, more in requests]

        return asyncio.run(ask())

    def one(self, method: str, path: str, role: Role | None = None, **more: Any) -> httpx.Response:
        """Send one request with the token of a role."""
        headers = {**more.pop("headers", {}), **(self.bearing(role) if role else {})}
        return self.ask((method, path, {**more, "headers": headers}))[0]

    def bearing(self, role: Role) -> dict[str, str]:
        """Return the header with the token of a role."""
        return {"Authorization": f"Bearer {self.tokens[role]}"}


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """The parts of a service with an almost empty store."""
    made = assemble(Settings(base=BASE, cors=("https://grafana.example",)), directory=tmp_path_factory.mktemp("store"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def shared(parts: Services, tmp_path_factory: pytest.TempPathFactory) -> Access:
    """An application whose tokens no test ends."""
    return Access(parts, tmp_path_factory.mktemp("tokens") / "tokens.json")


@pytest.fixture
def access(parts: Services, tmp_path: Path) -> Access:
    """An application of the test's own."""
    return Access(parts, tmp_path / "tokens.json")


def fastapi_of(app: EdgeApplication) -> FastAPI:
    """Return FastAPI's part of the application."""
    assert isinstance(app.app, FastAPI)
    return app.app


def routes_of(app: EdgeApplication) -> list[Route]:
    """Return every route of FastAPI, in the order in which they are tried."""
    layer = fastapi_of(app)
    included = [getattr(each, "original_router", None) for each in layer.routes]
    found = (*layer.routes, *(route for each in included if each for route in each.routes))
    return [each for each in found if isinstance(each, Route) or hasattr(each, "methods")]


def address_of(path: str) -> str:
    """Return an address of a route."""
    return re.sub(r"\{id(:path)?\}", "domain/x", path).replace("{name}", "units").replace("{part}", "shapes")


def test_the_table_lists_the_routes_of_the_document(shared: Access) -> None:
    """No route is missing, and none is listed that is not there; docs/access.md shows the same table."""
    document = fastapi_of(shared.app).openapi()
    told = {rule_of(method, path) for path, item in document["paths"].items() for method in item}

    assert told | HIDDEN == set(ROUTES)
    assert table() in (ROOT / "docs" / "access.md").read_text(), "put what api.access.rules.table() returns there"
    for path, item in document["paths"].items():
        for method, each in item.items():
            public = ROUTES[rule_of(method, path)].public
            assert each["security"] == ([{}] if public else [{}, {"bearer": []}])
            assert "401" in each["responses"]


PATHS = (
    "", "/", "//", "/livez", "/livez/", "/sparql", "/sparql/", "/sparql/update", "/sparql/update/x", "/sparqlx", "/subgraph", "/subgraph/",
    "/subgraph/a/b.ttl", "/subgraph//admin/backup", "/subgraph/../admin/backup", "/subgraphs", "/subgraphs/", "/id/", "/id/a/b",
    "/doc/x", "/ns", "/ns/", "/ns/a", "/ns/a/b", "/ns/a\nb", "/queries", "/queries/units", "/queries/none", "/queries/a/b", "/profiles/dcat/rules",
    "/profiles/dcat/rules/", "/profiles//rules", "/admin/backup", "/admin/backup ", "/Admin/backup", "/admin//backup", "/admin/audit", "/store",
    "/openapi.json", "/docs", "/context/v1.jsonld", "/context/v2.jsonld", "/.well-known/void", "/events", "/export", "*", "/metrics", "/%61dmin",
)  # fmt: skip


@pytest.mark.parametrize("path", PATHS)
def test_the_table_finds_what_fastapi_finds(shared: Access, path: str) -> None:
    """For each path both lead to the same route, so that no spelling passes under another route's rule; else to none."""
    scope = {"type": "http", "path": path, "method": "GET", "headers": [], "root_path": ""}
    tried = [each for each in routes_of(shared.app) if each.matches(dict(scope))[0] is not Match.NONE]
    there = {re.sub(r"^/queries/[\w-]+$", "/queries/{name}", each.path) for each in tried}
    found = AccessRules().find(path)

    assert found is None or found.path in there or (found.path, there) == ("/queries/{name}", set())
    assert not there or found is not None


@pytest.mark.parametrize("role", [None, *Role])
def test_every_route_is_open_to_its_roles_and_closed_to_the_others(shared: Access, role: Role | None) -> None:
    """Without a token all but the public ones are 401; with one of another role 403, which names both; HEAD is as GET."""
    before = shared.parts.store.generation
    sent = []
    for route in ROUTES:
        method, _, path = route.partition(" ")
        sent += [(each, route, address_of(path)) for each in (("HEAD",) if method == "GET" else (method,))]
        if method == "GET" and path != "/events":
            sent.append((method, route, address_of(path)))
    headers = shared.bearing(role) if role else {}
    sent = [each for each in sent if each[0] != "GET" or role is None or role not in ROUTES[each[1]].roles]
    answers = shared.ask(*((method, address, {"headers": headers}) for method, _, address in sent))

    for (method, route, _), answer in zip(sent, answers, strict=True):
        rule = ROUTES[route]
        status = answer.status_code
        assert status < 500 or status == 503, (route, answer.text)
        if rule.public:
            assert (status == OPEN[route]) if route in OPEN else (status < 300), route
        elif role is None:
            assert (status, answer.headers["WWW-Authenticate"]) == (401, 'Bearer realm="drumlin"'), route
        elif role is Role.agent and route.startswith("POST /v1/"):  # an agent's own, whichever it is
            assert status in (415, 422), route
        elif role not in rule.roles or role is Role.agent:  # whose address is another agent's
            assert status == 403, route
            assert 'error="insufficient_scope"' in answer.headers["WWW-Authenticate"]
            if method != "HEAD":
                told = answer.json()
                assert (told["type"], told["identity"], told["role"]) == (f"{PROBLEM}forbidden", f"the-{role}", role)
                assert told["needs"] == [each.value for each in Role if each in rule.roles]
                assert told["hint"]
        else:
            assert status not in (401, 403), (route, answer.text)
    if role is None or role in (Role.reader, Role.peer, Role.agent):
        assert shared.parts.store.generation == before


HOST = {"name": "a", "entities": [{"key": "h", "type": "Host", "name": "node-17"}]}
OTLP = {"resourceLogs": [{"scopeLogs": [{"logRecords": [{"eventName": "entity.state", "attributes": [
    {"key": "entity.type", "value": {"stringValue": "host"}},
    {"key": "entity.id", "value": {"kvlistValue": {"values": [{"key": "host.name", "value": {"stringValue": "node-18"}}]}}},
]}]}]}]}  # fmt: skip


def test_an_agents_token_registers_its_own_guid_end_to_end(access: Access) -> None:
    """Registration, heartbeats, OTLP and reading are its own; any other GUID is 403; what it wrote is its own for others too."""
    made = access.one("PUT", "/agents/g-1", Role.agent, json=HOST)
    assert (made.status_code, made.json()["entities"]) == (
        201,
        [{"key": "h", "id": "local/-/host/node-17", "outcome": "created"}],
    )
    assert access.one("PUT", "/agents/g-1", Role.agent, json=HOST).json()["outcome"] == "unchanged"
    generation = access.parts.store.generation
    assert access.one("POST", "/agents/g-1/heartbeat", Role.agent).status_code == 204
    assert access.parts.store.generation == generation
    for method, path in (
        ("PUT", "/agents/g-2"),
        ("POST", "/agents/g-2/heartbeat"),
        ("GET", "/agents/g-2"),
        ("DELETE", "/agents/g-2"),
        ("GET", "/agents"),
    ):
        assert access.one(method, path, Role.agent, json=HOST).status_code == 403, path
    own = access.one("GET", "/agents/g-1", Role.agent).json()
    assert [each["id"] for each in own["entities"]] == ["local/-/host/node-17"]
    taken = access.one("POST", "/v1/logs", Role.agent, json=OTLP)
    assert (taken.status_code, taken.json()) == (200, {})
    assert len(access.one("GET", "/agents/g-1", Role.agent).json()["entities"]) == 2
    for signal in ("metrics", "traces"):
        refused = access.one("POST", f"/v1/{signal}", Role.agent, json={})
        assert (refused.status_code, refused.json()["detail"]) == (422, f"{signal} are not kept here")
    assert (
        access.one("POST", "/v1/logs", Role.agent, content=b"", headers={"Content-Type": "text/plain"}).status_code
        == 415
    )
    stolen = access.one("PUT", "/agents/thief", Role.admin, json=HOST)
    assert (stolen.status_code, list(stolen.json()["keys"])) == (409, ["h"])
    assert access.one("PUT", "/subgraph/local/-/host/node-17", Role.writer, json={}).status_code in (409, 422)
    assert access.one("GET", "/subgraph/agent/g-1", Role.agent).headers["X-Drumlin-Owner"] == "agent:g-1"
    gone = access.one("DELETE", "/agents/g-1", Role.agent).json()["removed"]
    assert sorted(gone) == ["agent/g-1", "local/-/host/node-17", "local/-/host/node-18"]


def test_agents_are_listed_in_pages_and_bad_questions_are_refused(access: Access) -> None:
    """Filters, pages, the chain above a thing; a stranger's heartbeat is 404."""
    for guid in ("p-1", "p-2", "p-3"):
        access.one(
            "PUT",
            f"/agents/{guid}",
            Role.admin,
            json={"name": guid, "tags": ["page/x"], "parent": None if guid == "p-1" else "p-1"},
        )
    first = access.one("GET", "/agents?tag=page&limit=2", Role.reader).json()
    rest = access.one("GET", f"/agents?tag=page&limit=2&after={first['next']}", Role.reader).json()
    assert ([each["guid"] for each in first["items"]], [each["guid"] for each in rest["items"]], rest["next"]) == (
        ["p-1", "p-2"],
        ["p-3"],
        None,
    )
    above = access.one("GET", "/agents?managing=agent/p-3", Role.reader).json()
    assert [each["guid"] for each in above["items"]] == ["p-3", "p-1"]
    assert access.one("GET", "/agents?managing=agent/p-3&tag=page", Role.reader).status_code == 422
    assert access.one("GET", "/agents?colour=red", Role.reader).status_code == 422
    relayed = access.one("POST", "/agents/p-1/heartbeat", Role.admin, json={"agents": ["p-2", "p-3", "nobody"]})
    assert (relayed.status_code, relayed.json()) == (200, {"unknown": ["nobody"]})
    assert access.one("POST", "/agents/p-1/heartbeat", Role.admin, json={"agents": "p-2"}).status_code == 422
    assert access.one("POST", "/agents/stranger/heartbeat", Role.admin).status_code == 404
    assert access.one("PUT", "/agents/a%20b", Role.admin, json=HOST).status_code in (400, 422)


@pytest.mark.parametrize("role", [None, Role.reader, Role.peer, Role.agent])
def test_who_may_only_read_changes_nothing(shared: Access, role: Role | None) -> None:
    """Whatever else is wrong or right with a request: methods that are overridden, updates sent to the query endpoint, forms, suffixes."""
    before = shared.parts.store.generation
    headers = shared.bearing(role) if role else {}
    update = {"update": UPDATE}
    tried: list[tuple[str, str, dict[str, Any]]] = [
        *(each for each in WRITES if each[1] not in ("/sparql", "/resolve")),
        ("POST", "/sparql", {"data": update}),
        ("POST", "/sparql", {"content": UPDATE, "headers": {"Content-Type": "application/sparql-update"}}),
        ("POST", "/sparql", {"data": {**update, "query": "ASK {}"}}),
        ("GET", "/sparql", {"params": update}),
        ("GET", "/sparql/update", {"params": update}),
        ("POST", "/sparql//update", {"data": update}),
        ("PUT", "/subgraph/domain/x.jsonld", {"json": DOMAIN}),
        ("PUT", "/subgraph/domain%2Fx", {"json": DOMAIN}),
        ("POST", "/search", {"headers": {"X-HTTP-Method-Override": "PUT"}}),
        ("GET", "/admin/optimize?_method=POST", {}),
        ("POST", "/subgraphs?atomic=true", {"content": LINE}),
    ]
    answers = shared.ask(*((method, path, _with(headers, more)) for method, path, more in tried))

    assert [each.status_code for each in answers if each.status_code < 400] == []
    assert shared.parts.store.generation == before


def test_a_route_without_an_entry_is_closed(shared: Access) -> None:
    """A route that somebody adds and forgets in the table is 404 to everybody, and an added method 405."""
    layer = fastapi_of(shared.app)
    layer.add_api_route("/forgotten", lambda: "secret", methods=["GET"])
    layer.add_api_route("/search", lambda: "secret", methods=["DELETE"])
    try:
        for role in (None, *Role):
            for method, path, status in (("GET", "/forgotten", 404), ("DELETE", "/search", 405)):
                answer = shared.one(method, path, role)
                assert answer.status_code == (status if role else 401)
                assert "secret" not in answer.text
    finally:
        del layer.router.routes[-2:]


CONDITIONS: tuple[dict[str, str], ...] = ({}, {"If-Match": '"x"'}, {"If-None-Match": "*"}, {"If-None-Match": '"x"'})


def test_without_a_token_nothing_is_learnt(access: Access) -> None:
    """What exists, what is gone and what never was get the same answer, with each method, suffix and condition."""
    document = {"id": f"{BASE}/id/domain/gone", "type": "Domain", "name": "gone"}
    writing = {"json": document, "headers": {"Content-Type": "application/ld+json"}}
    assert access.one("PUT", "/subgraph/domain/gone", Role.writer, **writing).status_code == 201
    assert access.one("DELETE", "/subgraph/domain/gone", Role.writer).status_code == 204
    assert access.one("GET", "/subgraph/domain/gone", Role.reader).status_code == 410
    for method in ("GET", "HEAD", "PUT", "POST", "PATCH", "DELETE", "OPTIONS", "TRACE", "BREW"):
        for suffix in ("", ".ttl", "?depth=1", "?x=1"):
            told = []
            for name in ("local", "gone", "none"):
                sent = [(method, f"/subgraph/domain/{name}{suffix}", {"headers": each}) for each in CONDITIONS]
                told += [(each.status_code, each.text.replace(f"domain/{name}", "")) for each in access.ask(*sent)]
            assert {status for status, _ in told} == {401}, (method, suffix)
            assert len({re.sub('"requestId":"[^"]*"', "", text) for _, text in told}) == 1
    for path in (
        "/queries/units",
        "/queries/none",
        "/store?graph=http://x.example/",
        "/none",
        "/id/domain/none",
        "/doc/domain/gone",
    ):
        assert access.one("GET", path).status_code == 401, path
    for path in ("/livez", "/readyz"):
        assert list(access.one("GET", path).json()) == ["status"]
        assert len(access.one("GET", path, Role.reader).json()) > 1
    assert access.one("GET", "/context/v1.jsonld").status_code == 200
    assert access.one("OPTIONS", "/context/v1.jsonld").status_code == 204


def test_a_page_of_a_listed_origin_may_ask_first_and_needs_a_token_then(shared: Access) -> None:
    """Browsers send no token before they know that they may; an address at which there is nothing answers them as much."""
    origin = {"Origin": "https://grafana.example"}
    asking = {**origin, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "authorization"}
    for path in ("/search", "/none"):
        assert shared.one("OPTIONS", path, headers=asking).status_code == 200
    refused = shared.one("GET", "/search", headers=origin)
    assert (refused.status_code, refused.headers["Access-Control-Allow-Origin"]) == (401, origin["Origin"])
    assert shared.one("GET", "/search", Role.reader, headers=origin).status_code == 200


async def raw(app: EdgeApplication, headers: list[tuple[bytes, bytes]], address: str = "192.0.2.9") -> int:
    """Send a request with these headers and return the status."""
    sent: list[int] = []

    async def send(message: Any) -> None:
        if message["type"] == "http.response.start":
            sent.append(message["status"])

    async def receive() -> dict[str, Any]:
        return {"type": "http.request", "body": b"", "more_body": False}

    scope = {
        "type": "http", "method": "GET", "path": "/subgraph/domain/local", "query_string": b"", "client": (address, 1),
        "headers": [(b"host", b"localhost"), *headers],
    }  # fmt: skip
    await app(scope, receive, send)
    return sent[0]


def odd_headers(token: str, seed: int) -> Iterator[list[tuple[bytes, bytes]]]:
    """Yield headers that are nearly right, and those that are noise; none of them holds the token."""
    chance, good = random.Random(seed), f"Bearer {token}".encode()
    while True:
        value = bytearray(good)
        for _ in range(chance.randint(1, 4)):
            where = chance.randrange(len(value) or 1)
            match chance.randrange(6):
                case 0:
                    value[where : where + 1] = bytes([chance.randrange(256)])
                case 1:
                    del value[where:]
                case 2:
                    value[where:where] = chance.choice(
                        (b" ", b"\t", b",", b"\x00", b"\xc3\xa9", b"=", b"Bearer ", b"\r\n")
                    )
                case 3:
                    value = bytearray(bytes(value).swapcase())
                case 4:
                    value = bytearray(chance.randbytes(chance.randrange(300)))
                case _:
                    value = bytearray(
                        chance.choice((b"Basic ", b"Digest ", b"Bearer\t", b"Token ", b"")) + token.encode()[:-1]
                    )
        name = chance.choice((b"authorization", b"proxy-authorization", b"x-authorization", b"authorisation"))
        found = [(name, bytes(value))]
        if chance.random() < 0.1:
            found.append((b"authorization", bytes(reversed(good))))
        if chance.random() < 0.1:
            found = [(b"authorization", good), (b"authorization", bytes(value))]
        scheme, _, rest = bytes(value).partition(b" ")
        if len(found) == 1 and scheme.lower() == b"bearer" and rest.strip(b" ") == token.encode():
            continue
        yield found


def test_no_odd_header_lets_anybody_in(parts: Services, tmp_path: Path) -> None:
    """10,000 of them: each is refused, none is an error of the service, and the real token works all the while."""
    access = Access(parts, tmp_path / "tokens.json", proxies=["192.0.2.9"])
    token = access.tokens[Role.reader]

    async def ask() -> Counter[int]:
        found: Counter[int] = Counter()
        headers = odd_headers(token, seed=4)
        for number in range(10_000):
            found[await raw(access.app, next(headers))] += 1
            if number % 1000 == 0:
                assert await raw(access.app, [(b"authorization", f"Bearer {token}".encode())]) == 200
        return found

    assert asyncio.run(ask()) == {401: 10_000}


def test_guessing_is_slowed_for_the_address_that_guesses(access: Access) -> None:
    """It gets 429 with Retry-After; those at other addresses, and its own token that worked before, are not affected."""
    good = [(b"authorization", access.bearing(Role.reader)["Authorization"].encode())]
    fresh = [(b"authorization", access.bearing(Role.writer)["Authorization"].encode())]

    async def ask() -> None:
        assert await raw(access.app, good) == 200
        statuses = [await raw(access.app, [(b"authorization", b"Bearer %d" % each)]) for each in range(30)]
        assert statuses == [401] * 20 + [429] * 10
        assert await raw(access.app, fresh) == 429
        assert await raw(access.app, good) == 200
        assert await raw(access.app, fresh, "192.0.2.10") == 200
        access.seconds = 61
        assert await raw(access.app, fresh) == 200

    asyncio.run(ask())


def test_a_stream_ends_with_its_token(access: Access) -> None:
    """Revoked or expired; the streams of others go on."""

    async def follow(role: Role, began: asyncio.Event) -> bytes:
        body = bytearray()

        async def send(message: Any) -> None:
            body.extend(message.get("body", b""))
            if body:
                began.set()

        async def receive() -> Any:
            await asyncio.Event().wait()

        headers = [(b"host", b"localhost"), (b"authorization", access.bearing(role)["Authorization"].encode())]
        scope = {"type": "http", "method": "GET", "path": "/events", "query_string": b"", "client": ("192.0.2.1", 1)}
        await access.app({**scope, "headers": headers}, receive, send)
        return bytes(body)

    async def run() -> None:
        began = [asyncio.Event() for _ in range(2)]
        gone, stays = (asyncio.create_task(follow(*each)) for each in zip((Role.reader, Role.peer), began, strict=True))
        await asyncio.gather(*(each.wait() for each in began))
        access.file.revoke("the-reader")
        access.seconds = 2
        assert access.app.cut_ended() == 1
        assert b"retry" in await gone
        assert access.app.cut_ended() == 0
        assert not stays.done()
        stays.cancel()
        await asyncio.gather(stays, return_exceptions=True)

    asyncio.run(run())


def test_an_upload_ends_with_its_token(access: Access, monkeypatch: pytest.MonkeyPatch) -> None:
    """A body that is still coming is not written any more; what has been read in full is finished."""
    monkeypatch.setattr(tcp_info, "STALLED", 0.05)
    document = {"id": f"{BASE}/id/domain/late", "type": "Domain", "name": "late"}
    line = msgspec.json.encode({"op": "put", "id": "domain/late", "document": document}) + b"\n"

    async def run() -> list[int]:
        sent: list[int] = []
        given = asyncio.Event()

        async def send(message: Any) -> None:
            if message["type"] == "http.response.start":
                sent.append(message["status"])

        async def receive() -> dict[str, Any]:
            if given.is_set():
                await asyncio.Event().wait()
            given.set()
            return {"type": "http.request", "body": line, "more_body": True}

        bearing = (b"authorization", access.bearing(Role.writer)["Authorization"].encode())
        scope = {
            "type": "http", "method": "POST", "path": "/subgraphs", "query_string": b"", "client": ("192.0.2.1", 1),
            "headers": [(b"host", b"localhost"), (b"content-type", b"application/x-ndjson"), bearing],
        }  # fmt: skip
        uploading = asyncio.create_task(access.app(scope, receive, send))
        await given.wait()
        access.file.revoke("the-writer")
        access.seconds = 2
        assert access.app.cut_ended() == 1
        await uploading
        return sent

    assert asyncio.run(run()) == [401]
    assert access.one("GET", "/subgraph/domain/late", Role.reader).status_code == 404


def test_the_file_of_tokens_is_beside_the_store_or_where_the_setting_says(parts: Services, tmp_path: Path) -> None:
    """A store in an engine elsewhere has no directory, so nobody has a token there unless the setting names a file."""
    remote = object()
    named = Settings(tokens=tmp_path / "named.json")
    for settings, store, expected in (
        (Settings(), parts.store, parts.store.directory / "tokens.json"),  # type: ignore[attr-defined]
        (named, parts.store, named.tokens),
        (named, remote, named.tokens),
        (Settings(), remote, None),
    ):
        found = token_file(settings, store)  # type: ignore[arg-type]
        assert (found and found.path) == expected


def test_an_exporter_writes_as_its_source_and_others_as_users(access: Access) -> None:
    """Without a header an exporter writes as the first of its owners; with one, as another of them; never as anybody else."""
    made = {"json": {"id": f"{BASE}/id/domain/own", "type": "Domain", "name": "own"}}
    path, sent = "/subgraph/domain/own", {"Content-Type": "application/ld+json"}
    assert access.one("PUT", path, Role.exporter, **made, headers=sent).status_code == 201
    assert access.one("GET", path, Role.reader).headers[HEADER] == "kubernetes:prod"
    for role, owner, status in (
        (Role.exporter, "kubernetes:other", 403),
        (Role.exporter, "user", 403),
        (Role.exporter, "drumlin:prod", 409),  # it is another owner's graph
        (Role.writer, "kubernetes:prod", 403),
        (Role.writer, "user", 409),
        (Role.admin, "drumlin", 409),
        (Role.admin, "kubernetes:prod", 204),
        (Role.exporter, "kubernetes:prod", 204),
    ):
        answer = access.one("PUT", path, role, **made, headers={**sent, HEADER: owner})
        assert answer.status_code == status, (role, owner, answer.text)
        assert status != 403 or answer.json()["identity"] == f"the-{role}"
    line = msgspec.json.encode({"op": "put", "id": "domain/own", "document": {**made["json"], "name": "new"}})
    written = access.one("POST", "/subgraphs", Role.exporter, content=line)
    assert written.json()["outcome"] == "replaced"
    assert access.one("POST", "/subgraphs", Role.writer, content=line, headers={HEADER: "x"}).status_code == 403
    assert access.one("DELETE", path, Role.exporter).status_code == 204


def test_a_caller_with_a_name_is_the_client_of_fair_turns(access: Access) -> None:
    """Behind one proxy two callers are two clients; without tokens the address is the client."""
    seen: list[str] = []

    async def noting(scope: Any, receive: Any, send: Any) -> None:
        seen.append(fairness.client.get())
        await Response()(scope, receive, send)

    access.app.app = noting
    for role in (Role.reader, Role.admin):
        access.one("GET", "/search", role)
    open_ = create_app(access.parts)
    open_.app = noting
    open_._access.authenticator._asks = False
    access.app = open_
    access.one("GET", "/search")
    assert seen == ["the-reader", "the-admin", "127.0.0.1"]


def test_every_answer_protects_browsers(shared: Access) -> None:
    """No sniffing, no frames; data loads nothing, and a page has scripts, styles and forms of this service alone."""
    for path, role in (
        ("/", Role.reader),
        ("/ns?format=html", Role.reader),
        ("/livez", None),
        ("/none", Role.reader),
        ("/search", None),
    ):
        answer = shared.one("GET", path, role)
        assert answer.headers.get_list("X-Content-Type-Options") == ["nosniff"]
        policy = answer.headers.get_list("Content-Security-Policy")
        assert len(policy) == 1
        assert "frame-ancestors 'none'" in policy[0]
        assert "default-src 'none'" in policy[0]
        page = answer.headers["Content-Type"].startswith("text/html")
        assert page == ("script-src 'self'" in policy[0]) == ("form-action 'self'" in policy[0])
        assert "unsafe" not in policy[0]
    tag = shared.one("GET", "/subgraph/domain/local", Role.reader).headers["ETag"]
    again = shared.one("GET", "/subgraph/domain/local", Role.reader, headers={"If-None-Match": tag})
    assert (again.status_code, again.headers["ETag"], again.content) == (304, tag, b"")


def test_writes_and_refusals_are_in_the_audit_log(tmp_path: Path) -> None:
    """Who, from where, what, how it ended and at which generation; no reads, no query strings, no bodies, no tokens."""
    parts = assemble(Settings(base=BASE), directory=tmp_path / "store")
    access = Access(parts, tmp_path / "tokens.json")
    secret = access.tokens[Role.reader]
    made = {"id": f"{BASE}/id/domain/x", "type": "Domain", "name": "in-the-body"}
    access.one("GET", "/subgraphs", Role.reader)
    access.one("PUT", "/subgraph/domain/x?ignored=in-the-query", Role.writer, json=made)
    access.one("PUT", "/subgraph/domain/x", Role.writer, json=made, headers={"Content-Type": "application/ld+json"})
    access.one("PUT", "/subgraph/domain/x", Role.reader)
    access.one("DELETE", f"/subgraph/{secret}")
    access.one("GET", "/search", headers={"Authorization": "Bearer wrong-token"})
    access.one("GET", "/subgraph/%ff%ed%a0%80", headers={"X-Request-Id": "mine"})
    access.one("POST", "/sparql", headers={"Host": "evil.example"})
    generation = parts.store.generation
    parts.close()
    text = (tmp_path / "store" / "access.jsonl").read_text()
    lines = [msgspec.json.decode(each) for each in text.splitlines()]

    assert [(each["identity"], each["role"], each["status"], each.get("error")) for each in lines] == [
        ("the-writer", "writer", 422, None),
        ("the-writer", "writer", 201, None),
        ("the-reader", "reader", 403, "forbidden"),
        ("anonymous", "none", 401, "unauthenticated"),
        ("anonymous", "none", 401, "unauthenticated"),
        ("anonymous", "none", 401, "unauthenticated"),
        ("anonymous", "none", 421, "host-refused"),
    ]
    assert lines[1].keys() == {
        "time",
        "identity",
        "role",
        "address",
        "method",
        "path",
        "status",
        "generation",
        "request",
    }
    assert (lines[1]["generation"], lines[1]["address"], lines[5]["request"]) == (generation, "127.0.0.1", "mine")
    for hidden in ("in-the-body", "in-the-query", "wrong-token", *access.tokens.values()):
        assert hidden not in text


def test_the_audit_log_is_rotated(tmp_path: Path) -> None:
    """Each file stays within its size, the newest entries are kept, in order, and no more files than were asked for."""
    log = AccessLog(tmp_path / "access.jsonl", size=2000, count=3)
    entry = AuditEntry(datetime(2026, 1, 1, tzinfo=UTC), "a", "admin", "192.0.2.1", "PUT", "/subgraph/x", 200, 0, "r")
    for number in range(100):
        log.record(msgspec.structs.replace(entry, generation=number))
    log.close()
    files = [tmp_path / f"access.jsonl{suffix}" for suffix in (".2", ".1", "")]
    assert sorted(tmp_path.iterdir()) == sorted(files)
    assert all(each.stat().st_size <= 2000 for each in files)
    kept = [msgspec.json.decode(line)["generation"] for each in files for line in each.read_bytes().splitlines()]
    assert kept == list(range(kept[0], 100))
    assert len(kept) > 25


MAKING = """
import sys
from pathlib import Path
from drumlin.api.access.callers import Role
from drumlin.api.access.tokens import TokenFile
for number in range(25):
    TokenFile(Path(sys.argv[1])).create(f"{sys.argv[2]}-{number}", Role.reader)
"""


def test_two_processes_make_tokens_at_once(tmp_path: Path) -> None:
    """None of either is lost."""
    path = tmp_path / "tokens.json"
    makers = [
        subprocess.Popen([sys.executable, "-c", MAKING, str(path), name], cwd=ROOT, stderr=subprocess.PIPE)
        for name in "ab"
    ]
    assert [each.communicate()[1] for each in makers] == [b"", b""]
    assert {each.name for each in TokenFile(path).read()} == {
        f"{name}-{number}" for name in "ab" for number in range(25)
    }
    assert sorted(each.name for each in tmp_path.iterdir()) == ["tokens.json", "tokens.json.lock"]
