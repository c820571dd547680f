"""/subgraphs, /export and the operations routes over a listening server."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pytest

from drumlin.kg import rdf
from drumlin.kg.graphs.owners import HEADER, USER
from drumlin.kg.rdf import jsonld, jsonld_loader
from tests.service.test_subgraph import BASE, forecast


def _bulk(http: httpx.Client, *lines: Any, owner: str = USER, **params: str) -> httpx.Response:
    content = b"\n".join(each if isinstance(each, bytes) else json.dumps(each).encode() for each in lines)
    headers = {"Content-Type": "application/x-ndjson", HEADER: owner}
    return http.post("/subgraphs", content=content, params=params, headers=headers)


def _results(answer: httpx.Response) -> list[dict[str, Any]]:
    assert answer.status_code == 200, answer.text
    return [json.loads(line) for line in answer.text.splitlines()]


def _put(name: str, **changes: Any) -> dict[str, Any]:
    return {"op": "put", "id": f"forecast/{name}", "document": forecast(name, **changes)}


def test_listing_pages_through_everything_in_order(http: httpx.Client) -> None:
    """Cursors visit every entity once, in the order of their ids, whatever the page's size."""
    seen: list[str] = []
    after = ""
    while True:
        page = http.get("/subgraphs", params={"limit": 17, "after": after, "prefix": "prod/"}).json()
        seen += [item["id"] for item in page["items"]]
        if "next" not in page:
            break
        after = page["next"]
    assert seen == sorted(set(seen))
    whole = http.get("/subgraphs", params={"limit": 10_000, "prefix": "prod/"}).json()["items"]
    assert seen == [item["id"] for item in whole]


@pytest.mark.parametrize(
    ("filters", "count"),
    [
        ({"type": "Deployment"}, 10),
        ({"type": "Workload"}, 20),
        ({"type": "Deployment", "namespace": "payments"}, 2),
        ({"type": "Pod", "owner": "user"}, 0),
    ],
)
def test_listing_filters(http: httpx.Client, filters: dict[str, str], count: int) -> None:
    """Class (all workload kinds under one name), namespace and owner narrow a listing."""
    items = http.get("/subgraphs", params=filters).json()["items"]
    assert len(items) == count


def test_bulk_results_come_in_order_and_a_bad_line_stops_no_other(http: httpx.Client) -> None:
    """Each line gets its own outcome or problem, in the order sent."""
    first, second = uuid.uuid4().hex, uuid.uuid4().hex
    results = _results(
        _bulk(
            http,
            _put(first),
            b"not json",
            _put(second, modle="x"),
            _put(second),
            _put(first),
            {"op": "delete", "id": f"forecast/{first}"},
            {"op": "fly", "id": f"forecast/{first}"},
        )
    )
    outcomes = [each.get("outcome") or each["problem"]["status"] for each in results]
    assert outcomes[:4] == ["created", 422, 422, "created"]
    assert outcomes[4:] == ["unchanged", "deleted", 422]
    assert http.get(f"/subgraph/forecast/{first}").status_code == 410
    assert http.get(f"/subgraph/forecast/{second}").status_code == 200


def test_an_atomic_bulk_is_all_or_nothing(http: httpx.Client) -> None:
    """With atomic, one bad line means that nothing was written, and its problem is the answer."""
    names = [uuid.uuid4().hex for _ in range(3)]
    refused = _bulk(http, _put(names[0]), _put(names[1], modle="x"), atomic="true")
    assert refused.status_code == 422
    assert http.get(f"/subgraph/forecast/{names[0]}").status_code == 404
    twice = _bulk(http, _put(names[0]), _put(names[0], model="y"), atomic="true")
    assert twice.status_code == 422
    before = http.get("/readyz").json()["generation"]
    assert [each["outcome"] for each in _results(_bulk(http, *[_put(each) for each in names], atomic="true"))] == [
        "created"
    ] * 3
    assert http.get("/readyz").json()["generation"] == before + 1


def test_bulk_honours_digests_and_owners(http: httpx.Client) -> None:
    """A line with a stale digest is refused with 412, one on another's graph with 409."""
    name = uuid.uuid4().hex
    digest = _results(_bulk(http, _put(name)))[0]["digest"]
    assert _results(_bulk(http, {**_put(name, model="b"), "digest": "0" * 32}))[0]["problem"]["status"] == 412
    assert _results(_bulk(http, {**_put(name, model="b"), "digest": digest}))[0]["outcome"] == "replaced"
    assert _results(_bulk(http, _put(name, model="c"), owner="kubernetes:prod"))[0]["problem"]["owner"] == "user"


def test_an_oversized_line_is_refused(http: httpx.Client) -> None:
    """A line beyond the document limit ends the request; the service goes on."""
    try:
        answer = _bulk(http, _put(uuid.uuid4().hex, model="x" * 3_000_000), atomic="true")
        assert answer.status_code == 413
    finally:
        assert http.get("/livez").status_code == 200


def test_export_holds_the_same_graph_in_both_syntaxes(http: httpx.Client) -> None:
    """N-Quads and JSON-LD exports parse to the same quads; two exports of one state are the same bytes."""
    nquads = http.get("/export", headers={"Accept": "application/n-quads"})
    assert nquads.content == http.get("/export", params={"format": "nquads"}).content
    document = http.get("/export", headers={"Accept": "application/ld+json"})
    inline = jsonld_loader.inline(document.content, max_bytes=1 << 30)
    found = (rdf.parse(inline, rdf.JSONLD), rdf.parse(nquads.content, rdf.NQUADS))
    # What other tests have left may have blank nodes, which have other labels in each syntax.
    one, other = ({graph: lines for graph, lines in each.items() if "_:" not in "".join(lines)} for each in found)
    assert one == other
    assert found[0].keys() == found[1].keys()
    assert http.get("/export", params={"format": "rdfxml"}).status_code == 406


def test_operations_routes_answer(http: httpx.Client) -> None:
    """Liveness says who the service is, readiness what it has seen, metrics count requests, the front page shows the classes."""
    assert http.get("/livez").json()["base"] == BASE.removesuffix("/id/")
    assert http.get("/readyz").json()["status"] == "ready"
    metrics = http.get("/metrics").text
    assert 'drumlin_http_requests_total{method="GET",route="/livez",status="200"}' in metrics
    assert "drumlin_generation" in metrics
    page = http.get("/")
    assert "Deployment" in page.text
    assert "http://" not in page.text.replace("http://127.0.0.1", "")
    assert json.loads(http.get("/context/v1.jsonld").content) == json.loads(jsonld.context_document())


def test_request_ids_are_kept_or_made(http: httpx.Client) -> None:
    """A sane request id comes back, an insane one is replaced, and problems carry it."""
    assert http.get("/livez", headers={"X-Request-Id": "abc-1"}).headers["X-Request-Id"] == "abc-1"
    made = http.get("/subgraph/domain/none", headers={"X-Request-Id": "a b\tc"})
    assert made.json()["requestId"] == made.headers["X-Request-Id"] != "a b\tc"


@pytest.mark.parametrize(
    ("path", "status"), [("/nothing", 404), ("/subgraphs?limit=0", 422), ("/resolve?metric=cpu_usage", 422)]
)
def test_wrong_addresses_and_parameters_are_problems(http: httpx.Client, path: str, status: int) -> None:
    """Even what no route takes is answered as problem+json."""
    answer = http.get(path)
    assert (answer.status_code, answer.headers["Content-Type"]) == (status, "application/problem+json")
