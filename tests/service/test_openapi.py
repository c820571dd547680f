"""The OpenAPI document is true and whole, and HTTP's own courtesies: compression, other origins, request ids."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import httpx
import msgspec
import pytest

from tests.service.conftest import serving


@pytest.fixture(scope="module")
def document(service: Any) -> dict[str, Any]:
    """Give the document of the service."""
    found: dict[str, Any] = httpx.get(service.url + "/openapi.json").json()
    return found


def operations(document: dict[str, Any]) -> list[tuple[str, str, dict[str, Any]]]:
    """List path, method and description of every operation."""
    return [(path, method, each) for path, item in document["paths"].items() for method, each in item.items()]


def test_every_route_tells_what_it_does_and_how_it_fails(document: dict[str, Any]) -> None:
    """Each has a summary, a description, a success and problem documents with an example; references lead somewhere."""
    assert document["openapi"].startswith("3.1")
    for path, method, each in operations(document):
        assert each.get("summary"), path
        assert each.get("description"), path
        statuses = {int(status) for status in each["responses"] if status.isdigit()}
        assert any(status < 400 for status in statuses), (path, method)
        assert {422, 503} <= statuses, (path, method)
        for status in statuses:
            if status >= 400:
                content = each["responses"][str(status)]["content"]["application/problem+json"]
                assert content["example"]["status"] == status
    for reference in re.findall(r'"#/components/schemas/(\w+)"', str(document).replace("'", '"')):
        assert reference in document["components"]["schemas"], reference


def test_parameters_and_operations_are_named_once(document: dict[str, Any]) -> None:
    """Operation ids are unique, and every parameter has a schema."""
    ids = [each["operationId"] for _, _, each in operations(document)]
    assert len(set(ids)) == len(ids)
    assert all("schema" in parameter for _, _, each in operations(document) for parameter in each.get("parameters", ()))


def test_head_is_answered_wherever_get_is(document: dict[str, Any], service: Any) -> None:
    """HEAD has the status of GET, its type and an id, and no body; a stream, even one without end, is not waited for."""
    paths = [path for path, item in document["paths"].items() if "get" in item and not path.startswith("/queries/")]
    asked = ["/", "/openapi.json", "/queries/units", "/events?since=0", "/export", *paths]
    with httpx.Client(base_url=service.url, timeout=20) as http:
        for path in asked:
            address = path.replace("{id}", "prod/payments/deployment/checkout").replace("{name}", "dcat")
            head = http.head(
                address.replace("{part}", "shapes"),
                params={"entity": "x", "metric": "x"} if "/forecasts" in path else None,
            )
            assert head.status_code < 500, path
            assert head.status_code != 405, path
            assert (head.content, bool(head.headers["X-Request-Id"])) == (b"", True), path
        export = http.head("/export")
        assert (export.status_code, export.headers["Content-Type"]) == (200, "application/n-quads")
        assert http.head("/readyz").status_code == 200
        assert http.head("/subgraph/forecast/none").status_code == 404
        assert http.head("/livez").headers["Content-Length"] == http.get("/livez").headers["Content-Length"]


RID = {"X-Request-Id": "asked-1"}
EVERYWHERE = [
    *(
        ("GET", each)
        for each in ("/livez", "/readyz", "/metrics", "/", "/openapi.json", "/nothing", "/subgraphs/", "/ns", "/export")
    ),
    *(("GET", f"/sparql?query={each}") for each in ("ASK%7B%7D", "x", "DESCRIBE%20%3Chttp://x%3E")),
    *(
        ("GET", f"/subgraph/{each}")
        for each in ("domain/local", "domain/none", "x", "domain/local?depth=9", "domain/local?depth=1")
    ),
    ("GET", "/events?since=99999999"),
    ("HEAD", "/id/domain/local"),
    ("PUT", "/subgraph/domain/x"),
    ("POST", "/subgraphs?atomic=true"),
    ("POST", "/sparql"),
    ("POST", "/sparql/update"),
    ("PATCH", "/store"),
    ("DELETE", "/resolve"),
    ("OPTIONS", "/subgraph/domain/x"),
    ("FOO", "/search"),
]


@pytest.mark.parametrize(("method", "path"), EVERYWHERE)
def test_every_answer_bears_the_id_of_its_request(service: Any, method: str, path: str) -> None:
    """Once, whatever answers and however it ends; a problem has it among its members, with all that RFC 9457 names."""
    answer = httpx.request(method, service.url + path, content=b"x" if method in ("PUT", "POST") else None, headers=RID)
    assert answer.headers.get_list("X-Request-Id") == ["asked-1"]
    if answer.status_code >= 400:
        assert answer.headers["Content-Type"] == "application/problem+json"
        told = answer.json()
        assert (told["requestId"], told["status"]) == ("asked-1", answer.status_code)
        assert {"type", "title", "detail", "instance"} <= told.keys()


LD, SPARQL, UPDATE = "application/ld+json", "application/sparql-query", "application/sparql-update"
CHECKOUT = "prod/payments/deployment/checkout"
REFUSED = [
    (400, "GET", "/subgraph/{id}", "x", None, ""),
    (400, "GET", "/sparql", "?query=SELECT", None, ""),
    (400, "POST", "/sparql/update", "", "INSERT", UPDATE),
    (403, "POST", "/sparql", "", "SELECT * { SERVICE <http://127.0.0.1:9/> { ?s ?p ?o } }", SPARQL),
    (403, "POST", "/sparql/update", "", "LOAD <http://127.0.0.1:9/>", UPDATE),
    (403, "PATCH", "/subgraph/{id}", CHECKOUT, "CLEAR ALL", UPDATE),
    (403, "POST", "/resolve", "", '{"sparql": "SELECT * { SERVICE <http://127.0.0.1:9/> { } }"}', "application/json"),
    (404, "GET", "/doc/{id}", "domain/none", None, ""),
    (404, "DELETE", "/subgraph/{id}", "domain/none", None, ""),
    (404, "GET", "/resolve", f"?entity={CHECKOUT}&metric=none", None, ""),
    (404, "GET", "/store", "?graph=http://example.org/none", None, ""),
    (404, "GET", "/profiles/{name}", "none", None, ""),
    (404, "GET", "/export", "?frame=None", None, ""),
    (406, "GET", "/export", "?format=foo", None, ""),
    (406, "GET", "/sparql", "?query=ASK%7B%7D&format=foo", None, ""),
    (406, "GET", "/queries/{}", "units?format=foo", None, ""),
    (409, "PUT", "/subgraph/{id}", CHECKOUT, f'{{"type": "Deployment", "id": "https://kg.example/id/{CHECKOUT}", "name": "checkout", "namespace": "payments"}}', LD),
    (409, "DELETE", "/subgraph/{id}", CHECKOUT, None, ""),
    (409, "DELETE", "/store", f"?graph=https://kg.example/id/{CHECKOUT}", None, ""),
    (410, "GET", "/events", "?since=999999999", None, ""),
    (413, "PUT", "/subgraph/{id}", "domain/x", " " * 1_048_577, LD),
    (413, "POST", "/sparql", "", "#" * 1_048_577, SPARQL),
    (413, "POST", "/resolve", "", " " * 4_194_305, "application/json"),
    (413, "POST", "/subgraphs", "?atomic=true", "{}\n" * 10_001, "application/x-ndjson"),
    (415, "PUT", "/subgraph/{id}", "domain/x", "x", "image/png"),
    (415, "POST", "/sparql", "", "x", "image/png"),
    (415, "POST", "/subgraphs", "", "x", "image/png"),
    (415, "PUT", "/store", "?default", "x", "image/png"),
    (422, "POST", "/resolve", "", "{", "application/json"),
    (422, "GET", "/search", "?limit=0", None, ""),
    (422, "GET", "/events", "?since=x", None, ""),
    (502, "GET", "/history", f"?entity={CHECKOUT}&metric=cpu_usage", None, ""),
    (502, "GET", "/logs", f"?entity={CHECKOUT}", None, ""),
    (504, "GET", "/sparql", "?timeout=0.001&query=" + "SELECT(COUNT(*)AS%3Fn)%7B%3Fa%3Fb%3Fc.%3Fd%3Fe%3Ff.%3Fg%3Fh%3Fi.%3Fj%3Fk%3Fl%7D", None, ""),
]  # fmt: skip
"""A status, and a request that gets it; ``Content-Type`` is the last."""


@pytest.mark.parametrize("case", REFUSED, ids=lambda case: f"{case[0]} {case[1]} {case[2]}")
def test_every_problem_that_comes_is_in_the_document(
    service: Any, document: dict[str, Any], case: tuple[int, str, str, str, str | None, str]
) -> None:
    """The status is as documented for the route, with an example that has the members of the real one."""
    status, method, path, rest, content, media_type = case
    template = "/queries/units" if path == "/queries/{}" else path
    address = path.partition("{")[0] + rest
    headers = {"Content-Type": media_type} if media_type else {}
    answer = httpx.request(method, service.url + address, content=content, headers=headers, timeout=30)
    assert answer.status_code == status, answer.text[:500]
    told = document["paths"][template][method.lower()]["responses"][str(status)]["content"]["application/problem+json"]
    assert {"type", "title", "status", "detail", "instance", "requestId"} <= told[
        "example"
    ].keys() & answer.json().keys()
    if status == 413:
        assert re.search(r"[0-9],[0-9]{3}", answer.json()["detail"])  # the limit


def test_an_address_tells_its_methods(service: Any) -> None:
    """OPTIONS, and a 405, list the methods of all routes of the address."""
    options = httpx.options(service.url + "/subgraph/forecast/x")
    assert (options.status_code, options.headers["Allow"]) == (204, "DELETE, GET, HEAD, OPTIONS, PATCH, POST, PUT")
    refused = httpx.delete(service.url + "/resolve")
    assert (refused.status_code, refused.headers["Allow"]) == (405, "GET, HEAD, OPTIONS, POST")
    lost = httpx.get(service.url + "/search/", headers={"Host": "other.localhost"})
    assert (lost.status_code, "other" in str(lost.headers)) == (404, False)


def test_a_wrong_moment_or_entity_is_a_problem_and_no_crash(service: Any) -> None:
    """A time that leaves the calendar in UTC is 422; an entity that is none is told in its line of the answer."""
    asked = {"entity": "prod/payments/deployment/checkout", "metric": "cpu_usage", "start": "0001-01-01T00:00:00+05:00"}
    assert httpx.get(service.url + "/resolve", params=asked).status_code == 422
    answer = httpx.post(service.url + "/resolve", json={"entities": ["not an id", asked["entity"]], "last": "1h"})
    first, second, *_ = (msgspec.json.decode(line) for line in answer.text.splitlines())
    assert (first["entity"], first["problem"]["status"]) == ("not an id", 400)
    assert second["entity"].endswith("checkout")


def test_large_answers_are_compressed_for_who_wants_it(service: Any) -> None:
    """Accept-Encoding: gzip gets gzip, nothing else does; the feed comes plain."""
    with httpx.Client(base_url=service.url) as http:
        plain = http.get("/subgraphs", headers={"Accept-Encoding": "identity"})
        packed = http.get("/subgraphs", headers={"Accept-Encoding": "gzip"})
        assert "Content-Encoding" not in plain.headers
        assert packed.headers["Content-Encoding"] == "gzip"
        assert packed.json() == plain.json()
        assert {"Accept", "Accept-Encoding"} & {each.strip() for each in plain.headers["Vary"].split(",")}
        with http.stream("GET", "/events", headers={"Accept": "text/event-stream", "Accept-Encoding": "gzip"}) as feed:
            assert "Content-Encoding" not in feed.headers
            assert next(feed.iter_lines()).startswith("retry:")


def test_a_compressed_graph_guards_and_validates_like_the_plain_one(service: Any) -> None:
    """The ETag of a compressed body is its own; If-None-Match gets 304 with either form, If-Match takes either."""
    path = "/subgraph/prod/payments/deployment/checkout"
    with httpx.Client(base_url=service.url) as http:
        tags = {}
        for coding in ("identity", "gzip", "zstd"):
            read = http.get(path, headers={"Accept-Encoding": coding})
            tags[coding] = read.headers["ETag"]
            again = http.get(path, headers={"Accept-Encoding": coding, "If-None-Match": tags[coding]})
            assert (again.status_code, again.headers["ETag"]) == (304, tags[coding])
        assert len(set(tags.values())) == 3
        assert http.get(path, headers={"If-None-Match": tags["identity"]}).status_code == 304
        patch = {"Content-Type": "application/merge-patch+json", "If-Match": tags["zstd"]}
        assert http.patch(path, content=b"{}", headers=patch).status_code != 412


def test_other_origins_may_call_only_when_configured(service: Any, tmp_path: Path) -> None:
    """Without a setting no origin is let in; with one it is, with the headers that a page needs."""
    asking = {"Origin": "https://grafana.example"}
    assert "Access-Control-Allow-Origin" not in httpx.get(service.url + "/livez", headers=asking).headers
    with serving(
        "--store", str(tmp_path / "s"), environment={"DRUMLIN_CORS": '["https://grafana.example"]'}
    ) as open_one:
        answer = httpx.get(open_one.url + "/livez", headers=asking)
        assert answer.headers["Access-Control-Allow-Origin"] == "https://grafana.example"
        assert "ETag" in answer.headers["Access-Control-Expose-Headers"]
        other = httpx.get(open_one.url + "/livez", headers={"Origin": "https://evil.example"})
        assert "Access-Control-Allow-Origin" not in other.headers
        preflight = httpx.options(
            open_one.url + "/subgraph/domain/x", headers={**asking, "Access-Control-Request-Method": "PATCH"}
        )
        assert preflight.status_code == 200
        for path in (
            "/sparql?query=x",
            "/subgraph/domain/none",
            "/nothing",
            "/search?limit=0",
            "/events?since=99999999",
        ):
            refused = httpx.get(open_one.url + path, headers=asking)
            assert refused.status_code >= 400
            assert refused.headers["Access-Control-Allow-Origin"] == "https://grafana.example", path
