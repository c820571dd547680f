"""What every answer has in common, asked over the wire of each group of routes: id, metrics, HEAD, ETags, codings, problems.

The groups are answered by different code (``/livez``, queries and plain graphs in front of the framework, the others by FastAPI's
routes); a client must not be able to tell.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import httpx
import pytest

from tests.service.conftest import BASE, Service
from tests.service.test_readers import until

CHECKOUT = "prod/payments/deployment/checkout"
ROWS = "SELECT%20*%20%7B%20%3Fs%20%3Fp%20%3Fo%20%7D%20ORDER%20BY%20%3Fs%20%3Fp%20%3Fo%20LIMIT%20100"
MANY = "SELECT%20*%20%7B%20%3Fs%20%3Fp%20%3Fo%20.%20%3Fa%20%3Fb%20%3Fc%20%7D%20LIMIT%20900"
BATCH = "application/cloudevents-batch+json"
OF_ONE_REQUEST = frozenset({"date", "x-request-id", "connection", "transfer-encoding"})


class Case(NamedTuple):
    """One address: the label under which its requests are counted; ``changes`` when two answers need not be the same."""

    path: str
    route: str
    accept: str = "*/*"
    changes: bool = False
    tagged: bool = False


CASES = [
    Case("/livez", "/livez"),
    Case("/readyz", "/readyz"),
    Case("/metrics", "/metrics", changes=True),
    Case("/openapi.json", "unmatched"),
    Case("/", "/"),
    Case(f"/sparql?query={ROWS}", "/sparql", tagged=True),
    Case(f"/sparql?query={ROWS}", "/sparql", "text/csv", tagged=True),
    Case(f"/sparql?query={MANY}", "/sparql"),
    Case("/sparql?query=DESCRIBE%20%3Fs%20%7B%20%3Fs%20%3Fp%201%20%7D", "/sparql", tagged=True),
    Case("/sparql?format=turtle", "/sparql", changes=True),  # the service description, its counts in no order
    Case(f"/subgraph/{CHECKOUT}", "/subgraph/{id:path}", tagged=True),
    Case(f"/subgraph/{CHECKOUT}.ttl", "/subgraph/{id:path}", tagged=True),
    Case(f"/subgraph/{CHECKOUT}?context=inline", "/subgraph/{id:path}", tagged=True),
    Case(f"/subgraph/{CHECKOUT}?depth=1", "/subgraph/{id:path}", tagged=True),
    Case(f"/doc/{CHECKOUT}", "/doc/{id:path}", tagged=True),
    Case(f"/id/{CHECKOUT}", "/id/{id:path}"),
    Case("/subgraphs?limit=50", "/subgraphs"),
    Case("/search?q=checkout", "/search"),
    Case("/queries", "/queries"),
    Case("/queries/classes", "/queries/classes", changes=True),
    Case("/queries/classes?format=csv", "/queries/classes", changes=True),
    Case(f"/store?graph={BASE}/id/{CHECKOUT}", "/store", tagged=True),
    Case("/store", "/store"),
    Case("/export?format=nquads", "/export"),
    Case("/ns", "/ns", tagged=True),
    Case("/ns/shapes", "/ns/{part}", tagged=True),
    Case("/context/v1.jsonld", "/context/v1.jsonld", tagged=True),
    Case("/events?since=0&limit=20", "/events", BATCH),
]
PROBLEMS = [
    ("GET", "/none", "unmatched", 404),
    ("GET", "/subgraph/domain/nobody", "/subgraph/{id:path}", 404),
    ("GET", "/subgraph/domain/nobody?depth=1", "/subgraph/{id:path}", 404),
    ("PUT", "/subgraph/domain/x", "/subgraph/{id:path}", 415),
    ("PUT", "/subgraph/domain/x?context=link", "/subgraph/{id:path}", 415),
    ("DELETE", "/subgraph/domain/nobody", "/subgraph/{id:path}", 404),
    ("GET", "/doc/domain/nobody", "/doc/{id:path}", 404),
    ("GET", "/sparql?query=SELECT", "/sparql", 400),
    ("POST", "/sparql", "/sparql", 415),
    ("GET", "/sparql", "/sparql", 400),
    ("DELETE", "/sparql", "/sparql", 405),
    ("GET", "/store?graph=http://example.org/nothing", "/store", 404),
    ("GET", "/queries/nothing", "/queries/{name}", 404),
    ("GET", "/ns/Nothing", "/ns/{part}", 404),
    ("GET", "/export?format=none", "/export", 406),
    ("GET", "/subgraphs?limit=none", "/subgraphs", 422),
    ("GET", "/events?since=none", "/events", 422),
    ("POST", "/resolve", "/resolve", 422),
    ("GET", "/livez", "refused", 421),
    ("GET", f"/subgraph/{CHECKOUT}", "refused", 421),
    ("POST", "/subgraphs", "refused", 421),
]
by_address = pytest.mark.parametrize("case", CASES, ids=lambda case: f"{case.path[:40]} {case.accept}")


def get(http: httpx.Client, case: Case, method: str = "GET", **headers: str) -> httpx.Response:
    """Ask for an address; plain where no coding is named."""
    asked = {"Accept": case.accept, "Accept-Encoding": "identity", **headers}
    return http.request(method, case.path, headers=asked)


def counted(http: httpx.Client, route: str) -> float:
    """Return how many requests were counted under a route, whatever their method and status."""
    lines = http.get("/metrics").text.splitlines()
    return sum(
        float(each.rpartition(" ")[2])
        for each in lines
        if each.startswith("drumlin_http_requests_total") and f'route="{route}"' in each
    )


@by_address
def test_a_request_has_the_clients_id_or_one_of_its_own(http: httpx.Client, case: Case) -> None:
    """A sane ``X-Request-Id`` comes back as it was sent; else each answer has another one."""
    assert get(http, case, **{"X-Request-Id": "mine-1.a_b"}).headers["X-Request-Id"] == "mine-1.a_b"
    minted = [get(http, case, **{"X-Request-Id": sent}).headers["X-Request-Id"] for sent in ("in sane", "a" * 65)]
    assert all(re.fullmatch("[0-9a-f]{32}", each) for each in minted)
    assert minted[0] != minted[1]


@by_address
def test_a_request_is_counted_once_under_its_route(http: httpx.Client, case: Case) -> None:
    """The label is the route's path, the same in front of the framework and within."""
    own = case.route == "/metrics"
    before = counted(http, case.route)
    assert get(http, case).status_code < 400
    until(lambda: counted(http, case.route) > before + own)  # a stream is counted when its last piece was sent
    assert counted(http, case.route) == before + 1 + own + own


@by_address
def test_head_is_get_without_a_body(http: httpx.Client, case: Case) -> None:
    """The headers are equal, compressed or not; there is no body."""
    for coding in ("identity", "gzip"):
        whole, head = (get(http, case, method, **{"Accept-Encoding": coding}) for method in ("GET", "HEAD"))
        assert (head.status_code, head.content) == (whole.status_code, b"")
        varying = OF_ONE_REQUEST | ({"content-length"} if case.changes else set())
        shown = [{name: value for name, value in each.headers.items() if name not in varying} for each in (whole, head)]
        assert shown[0] == shown[1]


@by_address
@pytest.mark.parametrize("coding", ["gzip", "zstd"])
def test_a_coded_body_is_the_plain_one_under_a_tag_of_its_own(http: httpx.Client, case: Case, coding: str) -> None:
    """Decoded it is the same; its strong ETag ends in the coding; a small body stays plain, and so does what has no text."""
    plain, packed = get(http, case), get(http, case, **{"Accept-Encoding": coding})
    if not case.changes:
        assert packed.content == plain.content
    if "Content-Encoding" not in packed.headers:
        assert len(plain.content) < 1024
        return
    assert packed.headers["Content-Encoding"] == coding
    assert "Accept-Encoding" in packed.headers["Vary"]
    if "ETag" in plain.headers and not plain.headers["ETag"].startswith("W/"):
        assert packed.headers["ETag"] == f'{plain.headers["ETag"][:-1]}-{coding}"'


@by_address
def test_what_a_client_has_is_not_sent_again(http: httpx.Client, case: Case) -> None:
    """An ETag is known again in each of its forms, in a list and as ``*``: 304 without a body, with the tag that the client holds."""
    tag = get(http, case).headers.get("ETag")
    assert (tag is not None) == case.tagged
    if tag is None:
        return
    strong = tag.removeprefix("W/")
    for known in (tag, f"W/{strong}", f'"other", {tag}', "*"):
        for method in ("GET", "HEAD"):
            answer = get(http, case, method, **{"If-None-Match": known})
            assert (answer.status_code, answer.content, answer.headers["ETag"]) == (304, b"", tag), known
            assert "Accept-Encoding" in answer.headers["Vary"]
            assert "Content-Type" not in answer.headers
    assert get(http, case, **{"If-None-Match": '"other"'}).status_code == 200
    if not tag.startswith("W/"):
        coded = f'{strong[:-1]}-gzip"'
        answer = get(http, case, **{"If-None-Match": coded, "Accept-Encoding": "gzip"})
        assert (answer.status_code, answer.headers["ETag"]) == (304, coded)


@pytest.mark.parametrize(("method", "path", "route", "status"), PROBLEMS)
def test_an_error_is_a_problem_document(http: httpx.Client, method: str, path: str, route: str, status: int) -> None:
    """RFC 9457 with the request's own id and address, counted once; HEAD in the place of GET has the same headers."""
    headers = {"X-Request-Id": "mine", "Accept-Encoding": "identity"}
    if route == "refused":
        headers["Host"] = "evil.example"
    before = counted(http, route)
    answer = http.request(method, path, headers=headers)
    assert answer.status_code == status
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert int(answer.headers["Content-Length"]) == len(answer.content)
    told = answer.json()
    assert {"type", "title", "status", "detail", "instance", "requestId"} <= told.keys()
    assert (told["status"], told["instance"], told["requestId"]) == (status, path.partition("?")[0], "mine")
    assert answer.headers["X-Request-Id"] == "mine"
    assert counted(http, route) == before + 1
    if method == "GET" and route != "unmatched":  # which names the method
        head = http.head(path, headers=headers)
        assert (head.status_code, head.content) == (status, b"")
        assert head.headers["Content-Length"] == answer.headers["Content-Length"]


@pytest.mark.parametrize("query", ["", "?&"])
@pytest.mark.parametrize("method", ["PUT", "DELETE"])
def test_a_write_holds_to_its_condition(http: httpx.Client, method: str, query: str) -> None:
    """In front of the framework and within: 412 for another ETag, in each form of it; the graph stays as it is."""
    path = f"/subgraph/{CHECKOUT}"
    before = http.get(path)
    for condition in ({"If-Match": '"0-jsonld"'}, {"If-Match": 'W/"0-jsonld-gzip"'}, {"If-None-Match": "*"}):
        headers = {"Content-Type": "application/ld+json", **condition}
        answer = http.request(method, path + query, headers=headers, content=before.content)
        assert (answer.status_code, answer.json()["title"]) == (412, "Precondition failed")
    assert http.get(path).content == before.content


@pytest.mark.parametrize("query", ["?graph=http://example.org/exchange"])
def test_a_graph_by_name_holds_to_its_condition(http: httpx.Client, query: str) -> None:
    """``/store`` reads If-Match and If-None-Match as ``/subgraph`` does."""
    path = f"/store{query}"
    content, kind = b"<http://example.org/a> <http://example.org/b> 1 .", {"Content-Type": "text/turtle"}
    assert http.put(path, content=content, headers={**kind, "If-None-Match": "*"}).status_code == 201
    tag = http.get(path, headers={"Accept": "text/turtle"}).headers["ETag"]
    for condition in ({"If-Match": '"0"'}, {"If-None-Match": "*"}):
        assert http.put(path, content=content, headers={**kind, **condition}).status_code == 412
    assert http.put(path, content=content, headers={**kind, "If-Match": f'"x", {tag}'}).status_code == 204
    assert http.delete(path, headers={"If-Match": tag}).status_code == 204


def _refused_by_reading(url: str) -> Iterator[tuple[str, str, dict[str, str]]]:
    """Yield requests that are answered before their body is read."""
    yield "POST", f"{url}/subgraphs", {"Content-Type": "image/png"}
    yield "PUT", f"{url}/subgraph/domain/x", {"Content-Type": "image/png"}
    yield "PUT", f"{url}/subgraph/domain/x?context=link", {"Content-Type": "image/png"}
    yield "POST", f"{url}/none", {}
    yield "POST", f"{url}/livez", {"Host": "evil.example"}


def test_what_an_error_leaves_of_a_body_is_read(service: Service) -> None:
    """A client that sends 8 MB before it reads gets the answer, wherever the error is found."""
    for method, url, headers in _refused_by_reading(service.url):
        answer = httpx.request(method, url, headers=headers, content=bytes(8 << 20), timeout=60)
        assert answer.headers["Content-Type"] == "application/problem+json", url
