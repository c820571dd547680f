"""Requests of web pages elsewhere, and for other hosts: none is executed, on whatever layer; clients that are no browsers notice nothing."""

from __future__ import annotations

import asyncio
import re
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from fastapi import FastAPI

from drumlin.api.app import create_app
from drumlin.api.bootstrap import Services, assemble
from drumlin.api.edge.entry import EdgeApplication
from drumlin.api.edge.request_guard import RequestGuard
from drumlin.api.http.asgi import SAFE_METHODS
from drumlin.api.http.hosts import Hosts
from drumlin.api.http.problems import OriginRefused
from drumlin.kg.config.settings import Settings
from drumlin.kg.graphs.owners import HEADER
from tests.service.conftest import BASE, Service, serving

LISTED, EVIL = "https://grafana.example", "https://evil.example"
PROBLEM = "https://w3id.org/drumlin/problem/"
ATTACKS: tuple[Mapping[str, str], ...] = (
    {"Origin": EVIL},
    {"Origin": EVIL, "Sec-Fetch-Site": "same-origin"},
    {"Origin": "null"},
    {"Origin": ""},
    {"Origin": "http://localhost:1"},
    {"Origin": "http://a.localhost"},
    {"Origin": "capacitor://localhost"},
    {"Origin": f"{LISTED}.evil.example"},
    {"Sec-Fetch-Site": "cross-site"},
    {"Sec-Fetch-Site": "same-site"},
    {"Sec-Fetch-Site": "unheard-of"},
    {"Origin": "http://localhost", "Sec-Fetch-Site": "same-site"},
    {"Origin": EVIL, "Content-Type": "application/x-www-form-urlencoded"},
    {"Origin": EVIL, "Content-Type": "multipart/form-data; boundary=x"},
    {"Origin": EVIL, "Content-Type": "text/plain"},
    {"Origin": EVIL, HEADER: "other"},
)
"""What browsers say of requests that pages elsewhere send; the service is asked as ``localhost``."""
DOMAIN = {"id": f"{BASE}/id/domain/x", "type": "Domain", "name": "x"}
LINE = (
    b'{"op":"put","id":"domain/y","document":{"id":"'
    + f"{BASE}/id/domain/y".encode()
    + b'","type":"Domain","name":"y"}}'
)
UPDATE = "INSERT DATA { GRAPH <http://example.org/g> { <http://example.org/a> <http://example.org/b> 1 } }"
WRITES: tuple[tuple[str, str, dict[str, Any]], ...] = (
    ("POST", "/sparql/update", {"data": {"update": UPDATE}}),
    ("POST", "/subgraphs", {"content": LINE}),
    ("POST", "/subgraphs", {"content": LINE, "headers": {"Content-Type": "application/json"}}),
    (
        "POST",
        "/store?graph=http://example.org/m",
        {"files": {"a": ("a.nt", b"<urn:a> <urn:b> <urn:c> .", "application/n-triples")}},
    ),
    ("PUT", "/subgraph/domain/x", {"json": DOMAIN, "headers": {"Content-Type": "application/ld+json"}}),
    ("PATCH", "/subgraph/domain/x", {"content": b"{}", "headers": {"Content-Type": "application/merge-patch+json"}}),
    ("DELETE", "/subgraph/domain/x", {}),
    ("DELETE", "/store?graph=http://example.org/m", {}),
    ("POST", "/admin/optimize", {}),
    ("POST", "/admin/backup", {}),
    ("POST", "/sparql", {"data": {"query": "ASK {}"}}),
    ("POST", "/resolve", {"json": {"entities": ["domain/local"], "metrics": ["cpu_usage"], "last": "1h"}}),
)
"""Requests that do something when nothing is wrong with them, in an order in which each succeeds."""


@pytest.fixture(scope="module")
def parts(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Services]:
    """The parts of a service with an empty store, which one other origin may call."""
    made = assemble(Settings(base=BASE, cors=(LISTED,)), directory=tmp_path_factory.mktemp("store"))
    yield made
    made.close()


@pytest.fixture(scope="module")
def guard(parts: Services) -> EdgeApplication:
    """The whole application, whose guard every request passes."""
    app = create_app(parts)
    assert isinstance(app, EdgeApplication)
    return app


def _ask(guard: EdgeApplication, *requests: tuple[str, str, dict[str, Any]]) -> list[httpx.Response]:
    """Send requests to ``localhost``, one after the other."""

    async def ask() -> list[httpx.Response]:
        transport = httpx.ASGITransport(guard, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
            return [await client.request(method, path, **more) for method, path, more in requests]

    return asyncio.run(ask())


def _with(headers: Mapping[str, str], more: dict[str, Any]) -> dict[str, Any]:
    return {**more, "headers": {**more.get("headers", {}), **headers}}


def _routes(guard: EdgeApplication) -> Iterator[tuple[str, str]]:
    """Yield every method of every route with an address that it has, also those that no document lists, and those of other layers."""
    layer = guard.app
    assert isinstance(layer, FastAPI)
    included = [getattr(each, "original_router", None) for each in layer.routes]
    for route in (*layer.routes, *(route for each in included if each for route in each.routes)):
        for method in sorted(getattr(route, "methods", None) or ()):
            yield method, re.sub(r"\{[^}]*\}", "x", route.path)
    for path in (
        "/livez",
        "/sparql",
        "/sparql?query=ASK%20%7B%7D",
        "/subgraph/domain/x",
        "/subgraph/domain/x?format=ttl",
        "/none",
        "*",
    ):
        yield from ((method, path) for method in ("GET", "PUT", "POST", "PATCH", "DELETE", "TRACE", "BREW"))


@pytest.mark.parametrize("attack", ATTACKS, ids=str)
def test_no_route_does_what_a_page_elsewhere_asks(
    guard: EdgeApplication, parts: Services, attack: Mapping[str, str]
) -> None:
    """Every method but GET, HEAD and OPTIONS of every route and layer is 403 and changes nothing."""
    unsafe = [each for each in _routes(guard) if each[0] not in SAFE_METHODS]
    assert len(unsafe) > 60
    before = parts.store.generation

    answers = _ask(guard, *((method, path, {"headers": attack}) for method, path in unsafe))

    for (method, path), answer in zip(unsafe, answers, strict=True):
        assert (answer.status_code, answer.json()["type"]) == (403, f"{PROBLEM}origin-refused"), (method, path)
    assert parts.store.generation == before


def test_what_is_refused_to_pages_works_for_clients(tmp_path: Path) -> None:
    """Each real write is refused with every attack and leaves no trace; without these headers each is done."""
    parts = assemble(Settings(base=BASE, cors=(LISTED,)), directory=tmp_path / "store")
    try:
        guard = create_app(parts)
        assert isinstance(guard, EdgeApplication)
        for method, path, more in WRITES:
            before = parts.store.generation
            attacks = [(method, path, _with(each, more)) for each in ATTACKS if "Content-Type" not in each]
            refused = _ask(guard, *attacks)
            assert {each.status_code for each in refused} == {403}, (method, path)
            assert parts.store.generation == before
            done = _ask(guard, (method, path, more))[0]
            assert done.status_code < 300, (method, path, done.text)
            assert path != "/subgraphs" or "outcome" in done.json()
    finally:
        parts.close()


@pytest.mark.parametrize(
    "headers",
    [
        {},
        {"Sec-Fetch-Site": "none"},
        {"Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://localhost", "Sec-Fetch-Site": "same-origin"},
        {"Origin": "http://LOCALHOST:80"},
        {"Origin": "https://localhost"},
        {"Origin": BASE},
        {"Origin": LISTED, "Sec-Fetch-Site": "cross-site"},
        {"Host": "localhost:9000", "Origin": "http://localhost:9000"},
        {"Host": "kg.example", "Origin": BASE, "Sec-Fetch-Site": "same-origin", "X-Forwarded-Host": "evil.example"},
    ],
    ids=str,
)
def test_own_pages_listed_origins_and_clients_may_write(guard: EdgeApplication, headers: Mapping[str, str]) -> None:
    """A page of the service itself, also behind a proxy, one of an origin in ``cors``, and requests of no page."""
    assert [each.status_code for each in _ask(guard, ("POST", "/admin/optimize", {"headers": headers}))] == [200]


def test_a_base_on_loopback_is_no_page_of_the_service() -> None:
    """Another service of this machine may listen there: only the port that was asked counts."""
    settings = Settings(base="http://localhost:8080")
    guard = RequestGuard(settings, Hosts(settings, "127.0.0.1"))
    headers = [(b"host", b"localhost:9000"), (b"origin", b"http://localhost:8080")]
    with pytest.raises(OriginRefused):
        guard.check({"method": "POST", "path": "/admin/optimize", "headers": headers})


def test_pages_elsewhere_may_lead_here_and_change_nothing_by_that(guard: EdgeApplication, parts: Services) -> None:
    """Links, images and scripts elsewhere ask with GET: it is answered, and no form of it writes."""
    before = parts.store.generation
    headers = {
        "Origin": EVIL,
        "Sec-Fetch-Site": "cross-site",
        "X-HTTP-Method-Override": "DELETE",
        "X-Method-Override": "PUT",
    }
    shown = ["/", "/subgraphs", "/sparql?query=ASK%20%7B%7D", "/livez", "/subgraph/domain/local", "/store"]
    answers = _ask(guard, *(("GET", path, {"headers": headers}) for path in shown))
    assert [each.status_code for each in answers] == [200] * len(shown)

    update = httpx.QueryParams({"update": UPDATE})
    tried = [
        f"/sparql?{update}",
        f"/sparql/update?{update}",
        f"/sparql?query=ASK%20%7B%7D&{update}",
        "/admin/optimize",
        "/admin/backup",
    ]
    tried += [
        "/subgraph/domain/local?_method=DELETE",
        "/store?_method=DELETE",
        "/datasources/import?name=x",
        "/forecasts?method=delete",
    ]
    sent = [(method, path, {"headers": headers}) for path in tried for method in ("GET", "HEAD", "OPTIONS")]
    for method, path in (
        (method, path) for method, path in _routes(guard) if method in SAFE_METHODS and path != "/events"
    ):
        sent.append((method, path, {"headers": headers}))
    assert all(each.status_code != 403 or "origin" not in each.text for each in _ask(guard, *sent))
    assert parts.store.generation == before


def test_a_preflight_tells_the_listed_origins_only(guard: EdgeApplication) -> None:
    """A listed origin may send what the address serves; another learns nothing, neither methods nor headers."""
    headers = f"{HEADER}, content-type"
    served = {
        "/subgraph/domain/x": "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT",
        "/sparql": "GET, HEAD, OPTIONS, POST",
        "/sparql/update": "OPTIONS, POST",
        "/livez": "GET, HEAD, OPTIONS",
        "/store": "DELETE, GET, HEAD, OPTIONS, POST, PUT",
    }
    for path, methods in served.items():
        method = "PUT" if "PUT" in methods else "POST" if "POST" in methods else "GET"
        asking = {"Access-Control-Request-Method": method, "Access-Control-Request-Headers": headers}
        taken, refused = _ask(
            guard, *(("OPTIONS", path, {"headers": {**asking, "Origin": origin}}) for origin in (LISTED, EVIL))
        )
        assert (taken.status_code, taken.headers["Access-Control-Allow-Origin"]) == (200, LISTED)
        assert taken.headers["Access-Control-Allow-Methods"] == methods
        assert refused.status_code == 403
        assert not [name for name in refused.headers if name.startswith(("access-control", "allow", "accept-post"))]


def test_every_path_refuses_other_hosts(guard: EdgeApplication) -> None:
    """On each layer, also where nothing is, and with each method; a forwarded host is not believed."""
    paths = (
        "/",
        "/livez",
        "/readyz",
        "/metrics",
        "/sparql?query=ASK%20%7B%7D",
        "/subgraph/domain/x",
        "/subgraphs",
        "/none",
    )
    headers = {
        "Host": "evil.example",
        "X-Forwarded-Host": "localhost",
        "Forwarded": "host=localhost",
        "X-Request-Id": "mine",
    }
    asked = [
        (method, path, {"headers": headers})
        for path in paths
        for method in ("GET", "HEAD", "OPTIONS", "POST", "DELETE")
    ]
    for (method, path, _), answer in zip(asked, _ask(guard, *asked), strict=True):
        assert (answer.status_code, answer.headers["X-Request-Id"]) == (421, "mine"), (method, path)
        assert answer.headers["Content-Type"] == "application/problem+json"
        if method == "HEAD":
            assert not answer.content
            continue
        told = answer.json()
        assert (told["type"], told["requestId"], told["instance"]) == (
            f"{PROBLEM}host-refused",
            "mine",
            path.partition("?")[0],
        )
        assert told["hint"].endswith('hosts = ["evil.example"]')


def test_refusals_are_counted(guard: EdgeApplication) -> None:
    """``/metrics`` tells how many requests were refused, by their status."""
    attack = {"headers": {"Origin": EVIL}}
    metrics = _ask(guard, ("POST", "/none", attack), ("GET", "/metrics", {}))[1].text
    assert re.search(r'drumlin_http_requests_total\{method="POST",route="refused",status="403"\} [1-9]', metrics)


def test_hosts_with_many_ports_take_no_memory(guard: EdgeApplication) -> None:
    """What is remembered of hosts is bounded, and what is refused is not remembered."""
    _ask(guard, *(("GET", "/livez", {"headers": {"Host": f"localhost:{port}"}}) for port in range(1, 600)))
    _ask(guard, ("GET", "/livez", {"headers": {"Host": "evil.example"}}))
    known = guard._guard._known_hosts
    assert 0 < len(known) <= 256
    assert b"evil.example" not in known


def test_there_are_no_websockets(guard: EdgeApplication) -> None:
    """A handshake is refused before anything looks at it: browsers ask no preflight for one."""
    sent: list[dict[str, Any]] = []

    async def send(message: Any) -> None:
        sent.append(message)

    async def connect() -> None:
        scope = {"type": "websocket", "path": "/events", "headers": [(b"host", b"localhost")]}
        await guard(scope, _nothing, send)

    asyncio.run(connect())
    assert sent == [{"type": "websocket.close", "code": 1008}]


async def _nothing() -> dict[str, Any]:
    return {"type": "websocket.connect"}


def _raw(service: Service, request: bytes) -> tuple[int, bytes]:
    """Send bytes and return the status and all that comes."""
    address = urlsplit(service.url)
    with socket.create_connection((address.hostname, address.port), timeout=20) as connection:
        connection.sendall(request)
        answer = b"".join(iter(lambda: connection.recv(1 << 16), b""))
    return int(answer.split(b" ", 2)[1]), answer


@pytest.mark.parametrize(
    ("head", "status"),
    [
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\n", 200),
        (b"GET /livez HTTP/1.1\r\nHost: [::1]:1\r\n", 200),
        (b"GET /livez HTTP/1.1\r\nHOST: LOCALHOST.\r\n", 200),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost\r\nX: y\r\nhost: evil.example\r\n", 400),
        (b"POST /subgraphs HTTP/1.1\r\nHost: localhost\r\nHost: localhost\r\nContent-Length: 0\r\n", 400),
        (b"GET /livez HTTP/1.1\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost:\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: a@localhost\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: localhost, evil.example\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: \xff\r\n", 400),
        (b"GET /livez HTTP/1.1\r\nHost: evil.example\r\n", 421),
        (b"GET /livez HTTP/1.1\r\nHost: 192.0.2.1\r\n", 421),
        (b"GET /livez HTTP/1.0\r\n", 400),
        (b"GET /livez HTTP/1.0\r\nHost: localhost\r\n", 200),
        (b"GET http://evil.example/livez HTTP/1.1\r\n", 421),
        (b"GET http://localhost/livez HTTP/1.1\r\n", 200),
        (b"GET /events HTTP/1.1\r\nHost: evil.example\r\nUpgrade: websocket\r\n", 421),
        (b"POST /admin/optimize HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\nContent-Length: 0\r\n", 403),
        (b"get /livez HTTP/1.1\r\nHost: localhost\r\nOrigin: null\r\n", 403),
        (
            b"POST /admin/optimize HTTP/1.1\r\nHost: localhost\r\nOrigin: http://localhost\r\nOrigin: http://localhost\r\n",
            403,
        ),
        (
            b"POST /admin/optimize HTTP/1.1\r\nHost: localhost\r\nSec-Fetch-Site: none\r\nSec-Fetch-Site: cross-site\r\n",
            403,
        ),
    ],
)
def test_bytes_on_the_wire(own_service: Service, head: bytes, status: int) -> None:
    """The server hands every header on as it came: two, empty and missing hosts are 400, others 421, each as a problem."""
    found, answer = _raw(own_service, head + b"Connection: close\r\n\r\n")
    assert found == status, answer
    assert status == 200 or b"application/problem+json" in answer


def test_a_refused_body_is_read_so_that_the_answer_is(own_service: Service) -> None:
    """A client that sends a megabyte before it looks gets the problem, not a broken connection."""
    answer = httpx.post(f"{own_service.url}/subgraphs", content=b"x" * 1_000_000, headers={"Origin": EVIL})
    assert (answer.status_code, answer.json()["title"]) == (403, "Origin refused")


def test_a_service_is_reached_by_the_hosts_of_its_configuration() -> None:
    """``DRUMLIN_HOSTS`` names those of a Service of Kubernetes; a service on all addresses is reached by its own."""
    environment = {"DRUMLIN_HOSTS": '["drumlin.monitoring.svc"]'}
    with serving("--host", "0.0.0.0", "--insecure", environment=environment) as service:
        for host, status in (("drumlin.monitoring.svc:8080", 200), ("drumlin", 421), ("192.0.2.1", 421)):
            assert httpx.get(f"{service.url}/livez", headers={"Host": host}).status_code == status
        assert httpx.get(f"{service.url}/readyz").status_code == 200
