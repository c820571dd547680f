"""/subgraph/{id} over a listening server: the whole life of one graph, and everything that is refused."""

from __future__ import annotations

import json
import threading
import uuid
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any
from urllib.parse import quote

import httpx
import pytest

import drumlin
from drumlin.kg import rdf
from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.graphs.owners import HEADER
from drumlin.kg.rdf import jsonld
from tests.service.conftest import NS, Service, drumlin_asks, serving

BASE = "https://kg.example/id/"
LD = "application/ld+json"
JSONLD = {"Content-Type": LD}
CLIENTS = 6
CONTEXT = "https://kg.example/context/v1.jsonld"
"""Address of the context as documents of this service name it."""


def forecast(name: str, **changes: Any) -> dict[str, Any]:
    """Return a document that a user may write: the contract's forecast under another id."""
    iri = f"{BASE}forecast/{name}"
    return {
        "@context": CONTEXT,
        "id": iri,
        "type": "Forecast",
        "name": "energy_joules",
        "derivedFrom": [f"{BASE}prod/-/node/edge-a-1/metric/energy_joules"],
        "model": "seasonal-naive",
        "horizon": "P1D",
        "step": "PT5M",
        "trainedFrom": "2026-10-28T00:00:00Z",
        "trainedTo": "2026-11-27T00:00:00Z",
        "generatedAt": "2026-11-27T00:05:12Z",
        "distribution": [
            {
                "id": f"{iri}/at/forecasts",
                "type": "SeriesFile",
                "path": "a/b.parquet",
                "accessService": f"{BASE}datasource/forecasts",
            }
        ],
        **changes,
    }


@pytest.fixture
def name() -> str:
    """A forecast's id that no other test uses."""
    return uuid.uuid4().hex


def put(http: httpx.Client, name: str, document: Any, **headers: str) -> httpx.Response:
    """PUT a forecast."""
    content = document if isinstance(document, bytes) else json.dumps(document).encode()
    return http.put(f"/subgraph/forecast/{name}", content=content, headers={**JSONLD, **headers})


def test_a_graph_lives_from_put_to_tombstone(http: httpx.Client, name: str) -> None:
    """PUT creates, the same PUT changes nothing, DELETE leaves a tombstone that answers 410, PUT over it creates again."""
    created = put(http, name, forecast(name))
    assert (created.status_code, created.headers["Location"]) == (201, f"/subgraph/forecast/{name}")
    again = put(http, name, forecast(name))
    assert again.status_code == 204
    assert again.headers["ETag"] == created.headers["ETag"]
    read = http.get(f"/subgraph/forecast/{name}")
    assert read.json() == forecast(name)
    assert read.headers["ETag"] == created.headers["ETag"]
    assert http.delete(f"/subgraph/forecast/{name}").status_code == 204
    gone = http.get(f"/subgraph/forecast/{name}")
    assert gone.status_code == 410
    assert gone.headers["Content-Type"] == "application/problem+json"
    assert gone.json()["tombstone"]["formerType"] == "Forecast"
    assert http.delete(f"/subgraph/forecast/{name}").status_code == 410
    assert put(http, name, forecast(name)).status_code == 201
    assert http.get(f"/subgraph/forecast/{name}").status_code == 200


def test_the_same_put_makes_no_generation(http: httpx.Client, name: str) -> None:
    """A write that would not change the graph is not a write, whatever the order and form of its statements."""
    put(http, name, forecast(name))
    before = http.get("/readyz").json()["generation"]
    turtle = http.get(f"/subgraph/forecast/{name}", headers={"Accept": "text/turtle"}).content
    assert (
        http.put(f"/subgraph/forecast/{name}", content=turtle, headers={"Content-Type": "text/turtle"}).status_code
        == 204
    )
    assert http.get("/readyz").json()["generation"] == before


@pytest.mark.parametrize("syntax", rdf.SYNTAXES, ids=lambda syntax: syntax.name)
def test_every_syntax_goes_in_and_comes_out(http: httpx.Client, name: str, syntax: rdf.Syntax) -> None:
    """What is read in a syntax, by Accept or by suffix, can be written back in it and is the same graph."""
    put(http, name, forecast(name))
    by_accept = http.get(f"/subgraph/forecast/{name}", headers={"Accept": syntax.media_type})
    assert by_accept.headers["Content-Type"].startswith(syntax.media_type)
    assert f"-{syntax.name}" in by_accept.headers["ETag"]
    assert http.get(f"/subgraph/forecast/{name}{syntax.suffix}").content == by_accept.content
    assert http.get(f"/subgraph/forecast/{name}", params={"format": syntax.name}).content == by_accept.content
    back = http.put(
        f"/subgraph/forecast/{name}", content=by_accept.content, headers={"Content-Type": syntax.media_type}
    )
    assert back.status_code == 204


def test_an_id_that_exists_as_written_wins_over_its_suffix(http: httpx.Client, name: str) -> None:
    """An entity whose name ends like a suffix is read under its own name."""
    assert put(http, f"{name}.ttl", forecast(f"{name}.ttl")).status_code == 201
    assert http.get(f"/subgraph/forecast/{name}.ttl").json()["id"].endswith(f"{name}.ttl")


def test_a_problem_names_the_address_as_it_was_asked(http: httpx.Client) -> None:
    """``instance`` is the encoded path; an id with a slash too many is told so."""
    asked = http.get("/subgraph/domain/a%2Fb%20%E5%8D%97").json()
    assert (asked["status"], asked["instance"]) == (404, "/subgraph/domain/a%2Fb%20%E5%8D%97")
    for id in ("domain/x/", "prod/payments/deployment/checkout/"):
        told = http.get(f"/subgraph/{id}")
        assert (told.status_code, told.json()["detail"]) == (400, "the id ends in a slash")


@pytest.mark.parametrize("segment", ["a/b", "南京 1", "100%", "a%2Fb", "a+b?c#d", "x.ttl", "~-._", "a\nb", "a\n"])
def test_any_name_is_reached_by_its_id_and_its_iri(http: httpx.Client, segment: str) -> None:
    """A name is encoded once in an id; an id, or an IRI, sent as one segment is encoded once more as a whole; all lead to the same graph."""
    id = f"domain/{quote(segment, safe='-._~')}"
    document = {"id": BASE + id, "type": "Domain", "name": segment}
    assert http.put(f"/subgraph/{id}", content=json.dumps(document).encode(), headers=JSONLD).status_code == 201
    for path in (id, quote(id, safe=""), BASE + id, quote(BASE + id, safe="")):
        found = http.get(f"/subgraph/{path}")
        assert (found.status_code, found.json().get("id")) == (200, BASE + id), path
    turtle = http.get(f"/subgraph/{id}.ttl")
    assert (turtle.status_code, "text/turtle" in turtle.headers["Content-Type"]) == (200, True)
    assert http.get(f"/id/{id}").headers["Location"] == f"{'../' * (id.count('/') + 1)}doc/{id}"
    assert http.get(f"/doc/{id}").json()["id"] == BASE + id
    patch = {"Content-Type": "application/merge-patch+json"}
    assert http.patch(f"/subgraph/{id}", content=b'{"name": "other"}', headers=patch).status_code == 204
    assert http.get(f"/subgraph/{id}?depth=0").json()["name"] == "other"
    assert http.delete(f"/subgraph/{quote(BASE + id, safe='')}").status_code == 204
    assert http.get(f"/subgraph/{id}").status_code == 410


def test_full_iris_and_odd_names_are_encoded_once(http: httpx.Client) -> None:
    """An IRI is taken as one encoded segment or as it is; a percent-encoded name is kept, not decoded."""
    iri = f"{BASE}domain/{quote('南京')}"
    document = {"@context": jsonld.CONTEXT_IRI, "id": iri, "type": "Domain", "name": "南京"}
    content = json.dumps(document).encode()
    assert http.put(f"/subgraph/{quote(iri, safe='')}", content=content, headers=JSONLD).status_code == 201
    for path in (f"domain/{quote('南京')}", quote(iri, safe=""), quote(f"domain/{quote('南京')}", safe="")):
        assert http.get(f"/subgraph/{path}").json()["name"] == "南京", path


def test_conditional_writes_hold(http: httpx.Client, name: str) -> None:
    """If-Match guards against a lost update whatever the syntax it was read in; If-None-Match: * creates only."""
    first = put(http, name, forecast(name), **{"If-None-Match": "*"})
    assert first.status_code == 201
    assert put(http, name, forecast(name), **{"If-None-Match": "*"}).status_code == 412
    turtle_etag = http.get(f"/subgraph/forecast/{name}.ttl").headers["ETag"]
    second = put(http, name, forecast(name, model="a"), **{"If-Match": turtle_etag})
    assert second.status_code == 204
    stale = put(http, name, forecast(name, model="b"), **{"If-Match": first.headers["ETag"]})
    assert stale.status_code == 412
    assert http.get(f"/subgraph/forecast/{name}").json()["model"] == "a"
    assert http.delete(f"/subgraph/forecast/{name}", headers={"If-Match": first.headers["ETag"]}).status_code == 412
    assert http.delete(f"/subgraph/forecast/{name}", headers={"If-Match": second.headers["ETag"]}).status_code == 204
    assert put(http, name, forecast(name), **{"If-Match": "*"}).status_code == 412


@pytest.mark.parametrize("method", ["PUT", "PATCH", "DELETE"])
def test_of_many_clients_with_one_etag_one_writes(http: httpx.Client, name: str, method: str) -> None:
    """Clients that read the same state and write at once: one succeeds, the others get 412, and what is there is the one's; so again for creating."""
    path, kind = f"/subgraph/forecast/{name}", "application/merge-patch+json" if method == "PATCH" else LD
    together = threading.Barrier(CLIENTS)

    def write(model: str, how: str, condition: dict[str, str]) -> tuple[int, str]:
        body = {"model": model} if how == "PATCH" else forecast(name, model=model)
        content = None if how == "DELETE" else json.dumps(body).encode()
        with httpx.Client(base_url=http.base_url, timeout=30) as client:
            together.wait(30)
            answer = client.request(how, path, content=content, headers={"Content-Type": kind, **condition})
            return answer.status_code, model

    def race(how: str, condition: dict[str, str]) -> str:
        with ThreadPoolExecutor(CLIENTS) as clients:
            told = list(clients.map(lambda n: write(f"{n}-{uuid.uuid4().hex}", how, condition), range(CLIENTS)))
        (won,) = (model for status, model in told if status in (201, 204))
        assert {status for status, model in told if model != won} <= ({412, 410} if how == "DELETE" else {412}), told
        return won

    if method == "PUT":
        assert race("PUT", {"If-None-Match": "*"}) == http.get(path).json()["model"]
    else:
        put(http, name, forecast(name))
    for _ in range(1 if method == "DELETE" else 3):
        won = race(method, {"If-Match": http.get(path).headers["ETag"]})
        now = http.get(path)
        assert now.status_code == 410 if method == "DELETE" else now.json()["model"] == won


def test_conditional_reads_hold(http: httpx.Client, name: str) -> None:
    """If-None-Match with the representation's own ETag gives 304 without a body; HEAD gives headers alone."""
    put(http, name, forecast(name))
    etag = http.get(f"/subgraph/forecast/{name}").headers["ETag"]
    unchanged = http.get(f"/subgraph/forecast/{name}", headers={"If-None-Match": etag})
    assert (unchanged.status_code, unchanged.content) == (304, b"")
    other = http.get(f"/subgraph/forecast/{name}", headers={"If-None-Match": etag, "Accept": "text/turtle"})
    assert other.status_code == 200
    head = http.head(f"/subgraph/forecast/{name}")
    assert (head.status_code, head.content, head.headers["ETag"]) == (200, b"", etag)


def test_post_creates_once(http: httpx.Client, name: str) -> None:
    """POST answers 201 with Location, then 409 that says it is there."""
    content = json.dumps(forecast(name)).encode()
    assert http.post(f"/subgraph/forecast/{name}", content=content, headers=JSONLD).status_code == 201
    second = http.post(f"/subgraph/forecast/{name}", content=content, headers=JSONLD)
    assert second.status_code == 409
    assert second.json()["type"].endswith("/already-exists")


def _deep(levels: int) -> bytes:
    return b'{"a":' * levels + b"1" + b"}" * levels


BAD = {
    "unknown key": (lambda n: forecast(n, modle="x"), 422, "modle"),
    "ill-typed literal": (lambda n: forecast(n, trainedFrom="yesterday"), 422, "trainedFrom"),
    "remote context": (lambda n: {**forecast(n), "@context": "http://127.0.0.1:9/context"}, 422, "remote context"),
    "remote import": (lambda n: {**forecast(n), "@context": {"@import": "http://127.0.0.1:9/"}}, 422, "@import"),
    "blank node": (lambda n: forecast(n, derivedFrom=[{"name": "x"}]), 422, "blank"),
    "subject outside": (lambda n: forecast(n, derivedFrom=[{"id": f"{BASE}domain/x", "name": "x"}]), 422, "domain/x"),
    "another's id": (lambda _: forecast("another"), 422, "another"),
    "not JSON": (lambda _: b'{"id": ', 422, "JSON"),
    "not UTF-8": (lambda _: b'{"id": "\xff"}', 422, ""),
    "a number": (lambda _: b"5", 422, ""),
    "empty": (lambda _: b"", 422, ""),
    "100 levels": (lambda _: _deep(100), 422, "100 levels"),
    "100,000 levels": (lambda _: _deep(100_000), 422, "levels"),
    "duplicate key": (lambda _: b'{"id": "a", "id": "b"}', 422, "twice"),
    "10 MB": (lambda n: forecast(n, model="x" * 10_000_000), 413, "1,048,576"),
    "missing property": (lambda n: {k: v for k, v in forecast(n).items() if k != "derivedFrom"}, 422, "deriv"),
}


@pytest.mark.parametrize("case", BAD)
def test_a_bad_document_is_refused_and_nothing_of_it_stored(http: httpx.Client, name: str, case: str) -> None:
    """Each kind of bad document gets its status, a precise reason, and leaves no trace."""
    make, status, said = BAD[case]
    answer = put(http, name, make(name))
    assert answer.status_code == status, answer.text
    assert answer.headers["Content-Type"] == "application/problem+json"
    assert said in answer.text
    assert http.get(f"/subgraph/forecast/{name}").status_code == 404
    assert http.get("/subgraphs", params={"prefix": f"forecast/{name}"}).json()["items"] == []


def test_a_violation_says_where_and_what_was_meant(http: httpx.Client, name: str) -> None:
    """A misspelt key is named with its path, its rule and what may have been meant."""
    (violation,) = put(http, name, forecast(name, modle="x")).json()["violations"]
    assert violation["rule"] == "undeclared-term"
    assert violation["suggestion"] == "model"
    assert violation["focus"] == f"{BASE}forecast/{name}"


def test_an_exporters_graph_is_not_a_users_to_write(http: httpx.Client) -> None:
    """PUT and DELETE of a graph that an exporter owns give 409 naming the owner; the graph stays."""
    path = "/subgraph/prod/payments/deployment/checkout"
    before = http.get(path)
    document = {**before.json(), "version": "9"}
    refused = http.put(path, content=json.dumps(document).encode(), headers=JSONLD)
    assert (refused.status_code, refused.json()["owner"]) == (409, "dump")
    assert http.delete(path).status_code == 409
    assert http.get(path).content == before.content


@pytest.mark.parametrize(
    ("method", "headers", "status"),
    [
        ("GET", {"Accept": "image/png"}, 406),
        ("PUT", {"Content-Type": "image/png"}, 415),
        ("PUT", {}, 415),
        ("PUT", {"Content-Type": "text/turtle; charset=utf-16"}, 415),
        ("PATCH", JSONLD, 415),
    ],
)
def test_what_is_not_offered_is_named(http: httpx.Client, method: str, headers: dict[str, str], status: int) -> None:
    """A wrong media type or method gets its status; where there is a choice, the answer lists it."""
    answer = http.request(method, "/subgraph/prod/payments/deployment/checkout", content=b"x", headers=headers)
    assert answer.status_code == status
    offered = {"PATCH": "application/merge-patch+json"}.get(method, "text/turtle")
    assert offered in answer.json()["offered"]


@pytest.mark.parametrize(
    "id",
    [
        "x",
        "prod/payments/deployment",
        "prod/payments/Deployment/x",
        "domain/",
        "a/b/c/d%2x",
        "https://other/id/a/b/c/d",
    ],
)
def test_an_id_that_names_nothing_is_refused(http: httpx.Client, id: str) -> None:
    """A malformed id gives 400 and a hint, never a 500."""
    answer = http.get(f"/subgraph/{id}")
    assert answer.status_code in (400, 404)
    assert answer.headers["Content-Type"] == "application/problem+json"


def patch(http: httpx.Client, path: str, content: str, kind: str, **headers: str) -> httpx.Response:
    """PATCH a graph."""
    return http.patch(path, content=content.encode(), headers={"Content-Type": kind, **headers})


MERGE, UPDATE = "application/merge-patch+json", "application/sparql-update"


def test_a_merge_patch_changes_what_it_names(http: httpx.Client, name: str) -> None:
    """Null removes, a value replaces, the rest stays; the ETag is the new one, and the same patch again is no write."""
    put(http, name, forecast(name))
    path = f"/subgraph/forecast/{name}"
    changed = patch(http, path, '{"model": "arima", "trainedTo": null}', MERGE)
    assert (changed.status_code, changed.content) == (204, b"")
    document = http.get(path).json()
    assert document["model"] == "arima"
    assert "trainedTo" not in document
    assert document["horizon"] == "P1D"
    assert http.get(path).headers["ETag"] == changed.headers["ETag"]
    again = patch(http, path, '{"model": "arima"}', MERGE)
    assert again.headers["ETag"] == changed.headers["ETag"]


def test_a_ground_update_patches_this_graph_only(http: httpx.Client, name: str) -> None:
    """DELETE DATA and INSERT DATA apply in order; another graph, a pattern or a blank node is refused and changes nothing."""
    put(http, name, forecast(name))
    path = f"/subgraph/forecast/{name}"
    prefix = "PREFIX d: <https://w3id.org/drumlin/ns#> "
    good = prefix + 'DELETE DATA { <> d:model "seasonal-naive" } ; INSERT DATA { GRAPH <> { <> d:model "a;}" } }'
    assert patch(http, path, good, UPDATE).status_code == 204
    assert http.get(path).json()["model"] == "a;}"
    for bad, status in (
        (prefix + f'INSERT DATA {{ GRAPH <{BASE}domain/x> {{ <{BASE}domain/x> d:name "x" }} }}', 422),
        (prefix + "DELETE WHERE { ?s d:model ?o }", 403),
        ("CLEAR ALL", 403),
        (prefix + 'INSERT DATA { <> d:modle "x" }', 422),
        (prefix + 'DELETE DATA { _:x d:model "x" }', 422),
        ("INSERT DATA { <> ", 400),
    ):
        assert patch(http, path, bad, UPDATE).status_code == status, bad
    assert http.get(path).json()["model"] == "a;}"


@pytest.mark.parametrize(
    ("content", "status"),
    [
        ('{"modle": "x"}', 422),
        ('{"name": null}', 422),
        ('{"id": "https://kg.example/id/domain/x"}', 422),
        ("[1]", 422),
        ("{", 422),
        ('{"a": 1, "a": 2}', 422),
        ('{"@context": "https://evil.example/context"}', 422),
    ],
)
def test_a_patch_is_validated_whole(http: httpx.Client, name: str, content: str, status: int) -> None:
    """What a patch would break is refused, and the graph stays as it was."""
    put(http, name, forecast(name))
    before = http.get(f"/subgraph/forecast/{name}").content
    assert patch(http, f"/subgraph/forecast/{name}", content, MERGE).status_code == status
    assert http.get(f"/subgraph/forecast/{name}").content == before


def test_a_patch_needs_a_graph_that_lives(http: httpx.Client, name: str) -> None:
    """404 where there is none, 410 where one was, 412 where it is another than expected, 409 where an exporter owns it."""
    path = f"/subgraph/forecast/{name}"
    assert patch(http, path, "{}", MERGE).status_code == 404
    first = put(http, name, forecast(name)).headers["ETag"]
    put(http, name, forecast(name, model="b"))
    assert patch(http, path, '{"model": "c"}', MERGE, **{"If-Match": first}).status_code == 412
    assert patch(http, path, '{"model": "c"}', MERGE, **{"If-Match": "*"}).status_code == 204
    http.delete(path)
    assert patch(http, path, "{}", MERGE).status_code == 410
    owned = patch(http, "/subgraph/prod/payments/deployment/checkout", '{"version": "9"}', MERGE)
    assert (owned.status_code, owned.json()["owner"]) == (409, "dump")


def test_a_write_returns_the_representation_that_is_preferred(http: httpx.Client, name: str) -> None:
    """Prefer: return=representation answers a write with the graph in the syntax accepted; minimal with headers only."""
    wish = {"Prefer": "return=representation"}
    created = put(http, name, forecast(name), **wish)
    assert (created.status_code, created.json()) == (201, forecast(name))
    assert created.headers["Preference-Applied"] == "return=representation"
    path = f"/subgraph/forecast/{name}"
    patched = patch(http, path, '{"model": "x"}', MERGE, Accept="text/turtle", **wish)
    assert patched.status_code == 200
    assert patched.headers["ETag"] == http.get(path + ".ttl").headers["ETag"]
    assert 'drumlin:model "x"' in patched.text
    assert patched.headers["Content-Location"] == path
    assert patched.headers["X-Drumlin-Owner"] == "user"
    minimal = put(http, name, forecast(name), Prefer="return=minimal")
    assert (minimal.status_code, minimal.headers["Preference-Applied"]) == (204, "return=minimal")
    for preferred in ('respond-async, return="representation"', "Return = Representation; x=1, wait=5"):
        assert put(http, name, forecast(name), Prefer=preferred).json() == forecast(name)
    assert put(http, name, forecast(name), Prefer="return=minimal, return=representation").status_code == 204


@pytest.mark.parametrize("method", ["PUT", "PATCH", "POST"])
def test_what_cannot_be_answered_is_not_written(http: httpx.Client, name: str, method: str) -> None:
    """A write whose representation is wanted in a form that is not offered is 406, and the graph stays as it was."""
    path = f"/subgraph/forecast/{name}"
    if method != "POST":
        put(http, name, forecast(name))
    document = {"model": "x"} if method == "PATCH" else forecast(name, model="x")
    headers = {"Content-Type": MERGE if method == "PATCH" else LD, "Prefer": "return=representation"}
    content = json.dumps(document).encode()
    assert http.request(method, path, content=content, headers={**headers, "Accept": "image/png"}).status_code == 406
    now = http.get(path)
    assert now.status_code == 404 if method == "POST" else now.json()["model"] == "seasonal-naive"
    created = http.request(method, path, content=content, headers={**headers, "Accept": "application/n-quads"})
    assert created.status_code == (201 if method == "POST" else 200)
    assert created.content == http.get(f"{path}.nq").content


def test_conditions_guard_every_method(http: httpx.Client, name: str) -> None:
    """If-None-Match: * keeps a patch off what is there, If-Match a creation from what is not; a stale digest keeps off a ground patch."""
    path = f"/subgraph/forecast/{name}"
    content = json.dumps(forecast(name)).encode()
    assert http.post(path, content=content, headers={**JSONLD, "If-Match": "*"}).status_code == 412
    first = http.post(path, content=content, headers=JSONLD)
    assert http.post(path, content=content, headers={**JSONLD, "If-Match": first.headers["ETag"]}).status_code == 409
    assert patch(http, path, '{"model": "x"}', MERGE, **{"If-None-Match": "*"}).status_code == 412
    ground = 'PREFIX d: <https://w3id.org/drumlin/ns#> DELETE DATA { <> d:model "seasonal-naive" }'
    put(http, name, forecast(name, horizon="P2D"))
    assert patch(http, path, ground, UPDATE, **{"If-Match": first.headers["ETag"]}).status_code == 412
    assert http.get(path).json()["model"] == "seasonal-naive"
    now = http.get(f"{path}.ttl").headers["ETag"]
    assert patch(http, path, ground, UPDATE, **{"If-Match": f'"0", {now}'}).status_code == 204
    assert "model" not in http.get(path).json()
    assert http.delete(path, headers={"If-None-Match": "*"}).status_code == 412
    assert http.get(path).status_code == 200


def test_lines_of_one_header_are_one_list(http: httpx.Client, name: str) -> None:
    """What is accepted, or known, may be said in several lines."""
    put(http, name, forecast(name))
    path = f"/subgraph/forecast/{name}"
    turtle = http.get(path, headers=[("Accept", "image/png"), ("Accept", "text/turtle")])
    assert turtle.headers["Content-Type"].startswith("text/turtle")
    known = [("Accept", "text/turtle"), ("If-None-Match", '"0"'), ("If-None-Match", turtle.headers["ETag"])]
    assert http.get(path, headers=known).status_code == 304


@pytest.mark.parametrize(
    ("change", "becomes"),
    [
        ('{"derivedFrom": ["https://kg.example/id/domain/a", null]}', ["https://kg.example/id/domain/a"]),
        ('{"derivedFrom": "https://kg.example/id/domain/a"}', ["https://kg.example/id/domain/a"]),
        ('{"modle": null, "@context": "https://w3id.org/drumlin/context/v1.jsonld"}', None),
        ('{"distribution": null}', None),
        ('{"derivedFrom": []}', 422),
        ('{"derivedFrom": null}', 422),
        ('{"model": ["a", "b"]}', 422),
        ('{"model": {"name": "a"}}', 422),
        ('{"model": 5}', 422),
        ('{"horizon": "tomorrow"}', 422),
        ('{"type": null}', 422),
        ('{"type": "Deployment"}', 422),
        ('{"id": null}', 422),
        ('{"@id": "https://kg.example/id/domain/x"}', 422),
        ('{"@type": "Deployment"}', 422),
        ('{"@context": null}', 422),
        ('{"@graph": [{"id": "https://kg.example/id/domain/x", "name": "x"}]}', 422),
        ('{"@included": [{"id": "https://kg.example/id/domain/x", "name": "x"}]}', 422),
        ('{"@reverse": {"derivedFrom": "https://kg.example/id/domain/x"}}', 422),
        ('{"distribution": {"path": "x"}}', 422),
        ('{"model": "\\ud800"}', 422),
        ('{"model": NaN}', 422),
        ("null", 422),
        ("", 422),
    ],
)
def test_a_merge_patch_does_what_rfc_7396_says_or_nothing(
    http: httpx.Client, name: str, change: str, becomes: Any
) -> None:
    """Arrays replace, null removes, also what is not there; a change of type, identity or graph is refused and leaves no trace."""
    put(http, name, forecast(name))
    path = f"/subgraph/forecast/{name}"
    before = http.get(path).json()
    answer = patch(http, path, change, MERGE)
    after = http.get(path).json()
    if becomes == 422:
        assert (answer.status_code, after) == (422, before), answer.text
    elif becomes is None:
        gone = {key for key, value in json.loads(change).items() if value is None}
        assert (answer.status_code, after) == (204, {key: each for key, each in before.items() if key not in gone})
    else:
        assert (answer.status_code, after) == (204, {**before, "derivedFrom": becomes})


@pytest.mark.parametrize(
    ("text", "status"),
    [
        ("", 204),
        ("PREFIX d: <https://w3id.org/drumlin/ns#>", 204),
        ('INSERT DATA { <> <https://w3id.org/drumlin/ns#model> "seasonal-naive" }', 204),
        ('DELETE DATA { <> <https://w3id.org/drumlin/ns#model> "another" }', 204),
        ('DELETE DATA { <> <https://w3id.org/drumlin/ns#name> "energy_joules" }', 422),
        ('INSERT DATA { <> <https://w3id.org/drumlin/ns#model> "b" }', 422),
        ("INSERT DATA { <https://kg.example/id/domain/x> <http://example.org/p> 1 }", 422),
        ("INSERT DATA { <> <http://example.org/p> [] }", 422),
        ("INSERT DATA { <> <http://example.org/p> ?x }", 422),
        ("INSERT DATA { <> <http://example.org/p> 1 } ; DELETE WHERE { ?s ?p ?o }", 403),
        ("LOAD <http://127.0.0.1:9/>", 403),
        ("DROP GRAPH <https://kg.example/id/domain/x>", 403),
        ("SELECT * { ?s ?p ?o }", 400),
        ("\udcff", 422),
    ],
)
def test_a_ground_patch_is_whole_or_nothing(http: httpx.Client, name: str, text: str, status: int) -> None:
    """What adds what is there, or removes what is not, changes nothing; whatever is more than ground data of this graph is refused whole."""
    put(http, name, forecast(name))
    path = f"/subgraph/forecast/{name}"
    before = http.get(path)
    content = text.encode(errors="surrogateescape")
    answer = http.patch(path, content=content, headers={"Content-Type": UPDATE})
    assert answer.status_code == status, answer.text
    assert (http.get(path).content, http.get(path).headers["ETag"]) == (before.content, before.headers["ETag"])


def test_the_same_content_makes_no_event(http: httpx.Client, name: str) -> None:
    """PUT, PATCH and a line that say what is there already are answered as done, with the same ETag, and nobody is told of a change."""
    first = put(http, name, forecast(name))
    path, mark = f"/subgraph/forecast/{name}", http.get("/readyz").json()["generation"]
    again = put(http, name, forecast(name))
    patched = patch(http, path, '{"name": "energy_joules"}', MERGE)
    assert {(each.status_code, each.headers["ETag"]) for each in (again, patched)} == {(204, first.headers["ETag"])}
    line = json.dumps({"op": "put", "id": f"forecast/{name}", "document": forecast(name)}).encode()
    assert http.post("/subgraphs", content=line).json()["outcome"] == "unchanged"
    put(http, f"{name}-2", forecast(f"{name}-2"))
    batch = {"Accept": "application/cloudevents-batch+json"}
    events = http.get("/events", params={"since": mark}, headers=batch).json()
    assert [each["subject"] for each in events] == [f"forecast/{name}-2"]


def test_depth_brings_what_is_linked(http: httpx.Client) -> None:
    """Each step brings the graphs one link further, under their own names; the ETag is weak and is honoured."""
    path = "/subgraph/prod/payments/deployment/checkout"
    sizes = []
    for depth in range(4):
        answer = http.get(path, params={"depth": depth})
        sizes.append(int(answer.headers.get("X-Drumlin-Graphs", 1)))
        assert answer.headers["ETag"].startswith('W/"' if depth else '"')
        assert (
            http.get(path, params={"depth": depth}, headers={"If-None-Match": answer.headers["ETag"]}).status_code
            == 304
        )
    assert sizes[0] == 1 < sizes[1] <= sizes[2] <= sizes[3] <= 100
    near = http.get(path, params={"depth": 1}).json()["@graph"]
    assert near[0]["id"] == f"{BASE}prod/payments/deployment/checkout"
    assert f"{BASE}prod/-/namespace/payments" in {each["id"] for each in near}
    quads = http.get(path, params={"depth": 1, "format": "nquads"}).content
    assert set(rdf.parse(quads, rdf.NQUADS)) == {each["id"] for each in near}
    assert http.get(path, params={"depth": 4}).status_code == 422


def test_include_follows_only_what_it_names(http: httpx.Client) -> None:
    """A term follows that link alone, incoming shows what links here, notes shows users' remarks; a misspelt one is refused."""
    path = "/subgraph/prod/payments/deployment/checkout"

    def included(what: str) -> set[str]:
        return {each["id"].removeprefix(BASE) for each in http.get(path, params={"include": what}).json()["@graph"]}

    assert included("partOf") == {"prod/payments/deployment/checkout", "prod/-/namespace/payments"}
    assert any("/pod/" in each for each in included("incoming"))
    assert http.get(path, params={"include": "partoff"}).status_code == 422
    remark = {"id": f"{BASE}notes/prod/payments/deployment/checkout", "description": "owned by the shop team"}
    notes = http.put("/subgraph/notes/prod/payments/deployment/checkout", json=remark, headers=JSONLD)
    assert notes.status_code in (201, 204), notes.text
    assert "notes/prod/payments/deployment/checkout" in included("notes")
    assert "/doc/notes/prod/payments/deployment/checkout" in http.get(path).headers["Link"]


CHECKOUT = "/subgraph/prod/payments/deployment/checkout"
OWN_FRAME = '{"@explicit": true, "name": {}}'


@pytest.mark.parametrize("depth", [0, 1])
@pytest.mark.parametrize("include", ["", "notes", "partOf,incoming"])
@pytest.mark.parametrize(("frame", "form"), [("", ""), ("", "nquads"), ("Deployment", ""), (OWN_FRAME, "trig")])
def test_what_is_shown_around_is_one_representation(
    http: httpx.Client, depth: int, include: str, frame: str, form: str
) -> None:
    """Every combination has an ETag of its own, weak when it is put together, that HEAD tells and If-None-Match honours; a frame is JSON-LD."""
    asked = {"depth": depth, "include": include, "frame": frame, "format": form}
    params = {name: value for name, value in asked.items() if value}
    answer = http.get(CHECKOUT, params=params)
    if frame and form:
        assert (answer.status_code, answer.json()["offered"]) == (406, [LD])
        return
    assert answer.status_code == 200, answer.text
    etag = answer.headers["ETag"]
    assert etag.startswith('W/"') == bool(depth or include or frame)
    assert http.head(CHECKOUT, params=params).headers["ETag"] == etag
    assert http.get(CHECKOUT, params=params, headers={"If-None-Match": etag}).status_code == 304
    other = {**params, "format": "n3"} if not frame else {**params, "frame": '{"namespace": {}}'}
    assert http.get(CHECKOUT, params=other, headers={"If-None-Match": etag}).status_code == 200
    if form == "nquads":
        graphs = rdf.parse(answer.content, rdf.NQUADS)
        assert len(graphs) == int(answer.headers.get("X-Drumlin-Graphs", 1))


def test_a_frame_a_suffix_and_a_format_agree(http: httpx.Client) -> None:
    """A frame takes the JSON-LD among what is accepted; ``format`` wins over a suffix, and a suffix over Accept."""
    liked = {"Accept": "text/turtle, application/ld+json;q=0.5"}
    framed = http.get(CHECKOUT, params={"frame": "Deployment"}, headers=liked)
    assert (framed.status_code, framed.headers["Content-Type"]) == (200, LD)
    assert http.get(CHECKOUT, params={"frame": "Deployment"}, headers={"Accept": "text/turtle"}).status_code == 406
    assert http.get(f"{CHECKOUT}.ttl", params={"frame": "Deployment"}).status_code == 406
    assert (
        http.get(f"{CHECKOUT}.jsonld", params={"frame": "Deployment"}, headers={"Accept": "text/turtle"}).status_code
        == 200
    )
    named = http.get(f"{CHECKOUT}.ttl?format=nt", headers={"Accept": "application/trig"})
    assert (named.status_code, named.headers["Content-Type"].partition(";")[0]) == (200, "application/n-triples")
    assert (
        http.get(f"{CHECKOUT}.ttl", headers={"Accept": "application/trig"})
        .headers["Content-Type"]
        .startswith("text/turtle")
    )
    refused = http.get(CHECKOUT, headers={"Accept": "application/ld+json;q=0, application/*"})
    assert refused.headers["Content-Type"] == "application/json"


def test_a_tombstone_is_gone_however_it_is_asked_for(http: httpx.Client, name: str) -> None:
    """410 with the tombstone in every form; what was deleted around an entity is shown as what it is, its notes not at all."""
    neighbour, path = f"domain/{name}", f"/subgraph/forecast/{name}"
    http.put(f"/subgraph/{neighbour}", json={"id": BASE + neighbour, "type": "Domain", "name": "n"}, headers=JSONLD)
    put(http, name, forecast(name, derivedFrom=[BASE + neighbour]))
    notes = f"notes/forecast/{name}"
    http.put(f"/subgraph/{notes}", json={"id": BASE + notes, "description": "x"}, headers=JSONLD)
    assert f"/doc/{notes}>" in http.get(path).headers["Link"]
    assert http.get(path, params={"include": "notes"}).headers["X-Drumlin-Graphs"] == "2"
    assert http.delete(f"/subgraph/{notes}").status_code == 204
    assert http.get(f"/subgraph/{notes}").status_code == 404
    assert f"/doc/{notes}>" not in http.get(path).headers["Link"]
    assert http.get(path, params={"include": "notes"}).headers["X-Drumlin-Graphs"] == "1"
    http.delete(f"/subgraph/{neighbour}")
    (_, beside) = http.get(path, params={"depth": 1}).json()["@graph"]
    assert (beside["id"], beside["@graph"][0]["type"]) == (BASE + neighbour, "Tombstone")
    http.delete(path)
    for asked in ("", ".ttl", "?depth=2", "?include=notes", "?frame=Forecast", "?format=nquads"):
        for gone in (http.get(path + asked), http.get(path.replace("/subgraph/", "/doc/") + asked)):
            assert (gone.status_code, gone.json()["tombstone"]["formerType"]) == (410, "Forecast"), asked
        assert http.head(path + asked).status_code == 410


def test_notes_have_one_owner_and_one_subject(http: httpx.Client, name: str) -> None:
    """A user's notes are a user's: an exporter gets 409; they describe nothing but themselves, and notes have no notes."""
    notes = f"notes/prod/payments/deployment/{name}"
    document = {"id": BASE + notes, "description": "mine"}
    assert http.put(f"/subgraph/{notes}", json=document, headers=JSONLD).status_code == 201
    line = json.dumps({"op": "put", "id": notes, "document": document}).encode()
    assert http.post("/subgraphs", content=line, headers={HEADER: "other"}).json()["problem"]["owner"] == "user"
    assert patch(http, f"/subgraph/{notes}", '{"description": "still mine"}', MERGE).status_code == 204
    other = {**document, "@included": [{"id": f"{BASE}prod/payments/deployment/{name}", "description": "not mine"}]}
    assert http.put(f"/subgraph/{notes}", json=other, headers=JSONLD).status_code == 422
    assert http.put(f"/subgraph/notes/{notes}", json=document, headers=JSONLD).status_code == 400
    assert http.get(f"/subgraph/{notes}").json()["description"] == "still mine"


def test_notes_say_what_their_entity_depends_on_by_every_door(http: httpx.Client, name: str) -> None:
    """PUT, bulk and SPARQL: the question who needs the data finds the entity; data of any kind is described at its id."""
    notes, entity = "notes/prod/payments/deployment/ledger", f"{BASE}prod/payments/deployment/ledger"
    asset = {"type": "DataAsset", "name": name, "assetType": "ExternalData", "kind": "warehouse"}
    for number, door in enumerate(("put", "bulk", "update")):
        data = f"{BASE}external/{name}-{number}"
        assert (
            http.put(f"/subgraph/external/{name}-{number}", json={"id": data, **asset}, headers=JSONLD).status_code
            == 201
        )
        document = {"id": entity, "dependsOn": [data]}
        if door == "put":
            said = http.put(f"/subgraph/{notes}", json=document, headers=JSONLD)
        elif door == "bulk":
            said = http.post("/subgraphs", content=json.dumps({"op": "put", "id": notes, "document": document}))
        else:
            update = f"INSERT DATA {{ GRAPH <{BASE}{notes}> {{ <{entity}> <{jsonld.NAMESPACE}dependsOn> <{data}> }} }}"
            said = http.post("/sparql/update", content=update, headers={"Content-Type": "application/sparql-update"})
        assert said.is_success, said.text
        answer = http.get("/queries/users-of-data", params={"asset": data, "format": "csv"})
        assert answer.text.splitlines()[1:] == [f"{entity},{jsonld.NAMESPACE}Deployment"]
    wrong = {"id": entity, "phase": "Failed"}
    assert http.put(f"/subgraph/{notes}", json=wrong, headers=JSONLD).status_code == 422
    assert http.delete(f"/subgraph/{notes}").status_code == 204


def test_a_service_may_insist_on_conditions(tmp_path: Path) -> None:
    """With require_if_match a blind write, alone, in a line or by the Graph Store Protocol, is 428; one that says what it expects is taken."""
    with (
        serving("--store", str(tmp_path / "store"), environment={"DRUMLIN_REQUIRE_IF_MATCH": "true"}) as strict,
        httpx.Client(base_url=strict.url) as http,
    ):
        assert put(http, "a", forecast("a")).status_code == 428
        assert http.delete("/subgraph/forecast/a").status_code == 404
        created = put(http, "a", forecast("a"), **{"If-None-Match": "*"})
        assert created.status_code == 201
        assert http.delete("/subgraph/forecast/a").status_code == 428
        assert http.delete("/subgraph/forecast/a", headers={"If-Match": created.headers["ETag"]}).status_code == 204
        assert patch(http, "/subgraph/forecast/a", "{}", MERGE).status_code == 410
        line = {"op": "put", "id": "forecast/a", "document": forecast("a")}
        sent = [line, {**line, "digest": None}, {"op": "delete", "id": "forecast/a"}]
        content = b"\n".join(json.dumps(each).encode() for each in sent)
        answer = http.post("/subgraphs", content=content, headers={"Content-Type": "application/x-ndjson"})
        told = [json.loads(each) for each in answer.text.splitlines()]
        assert [each.get("outcome") or each["problem"]["status"] for each in told] == [428, "created", 428]
        other = http.post("/subgraphs", content=json.dumps(line).encode(), headers={HEADER: "other"})
        assert other.json()["problem"]["status"] == 409
        for method in ("PUT", "POST", "DELETE"):
            headers = {"Content-Type": "text/turtle"}
            blind = http.request(method, "/store?graph=http://example.org/g", content=b"", headers=headers)
            assert blind.status_code == 428, method


@pytest.mark.parametrize(
    ("method", "path", "headers"),
    [
        ("GET", "prod/payments/deployment/checkout", {}),
        ("GET", "prod/payments/deployment/checkout.ttl", {}),
        ("GET", "prod/payments/deployment/checkout", {"Accept": "application/n-triples", "Accept-Encoding": "gzip"}),
        ("GET", "prod/payments/deployment/checkout", {"If-None-Match": "*"}),
        ("GET", "prod/payments/deployment/checkout", {"Accept": "image/png"}),
        ("HEAD", "prod/payments/deployment/checkout", {"Accept": "text/turtle"}),
        ("GET", quote(f"{BASE}prod/payments/deployment/checkout", safe=""), {}),
        ("GET", "prod/payments/deployment/none", {}),
        ("GET", "prod", {}),
        ("PUT", "prod/payments/deployment/checkout", JSONLD),
        ("PUT", "prod/payments/deployment/checkout", {"Content-Type": "image/png"}),
        ("PUT", "forecast/a", {**JSONLD, "If-Match": '"0"'}),
        ("DELETE", "prod/payments/deployment/checkout", {"If-Match": '"0"'}),
        ("DELETE", "prod/payments/deployment/none", {}),
    ],
)
def test_the_short_way_answers_as_the_routes_do(
    http: httpx.Client, method: str, path: str, headers: dict[str, str]
) -> None:
    """A request without a query string never reaches the framework, and gets the status, headers and body that it would get there."""

    def told(query: str) -> tuple[int, dict[str, str], bytes]:
        content = b"{}" if method == "PUT" else None
        answer = http.request(
            method, f"/subgraph/{path}{query}", headers={**headers, "X-Request-Id": "1"}, content=content
        )
        return (
            answer.status_code,
            {name: value for name, value in answer.headers.items() if name not in ("date", "connection")},
            answer.content,
        )

    assert told("") == told("?&")


def test_a_graph_is_read_as_it_was(client: httpx.Client, own_service: Service) -> None:
    """By generation and by time, in every syntax, by the client and by the command line; what is not known is refused in words."""
    id = "prod/payments/deployment/past"
    iri = f"https://kg.example/id/{id}"
    generations = []
    for version in ("1", "2"):
        document = f'<{iri}> a <{NS}Deployment> ; <{NS}name> "past" ; <{NS}namespace> "payments" ; <{NS}version> "{version}" ; <{NS}cluster> <https://kg.example/id/cluster/prod> .'
        answer = client.put(f"/subgraph/{id}", content=document, headers={"Content-Type": "text/turtle"})
        assert answer.status_code in (201, 204), answer.text
        generations.append(int(answer.headers["X-Drumlin-Generation"]))
    first, second = generations
    present = client.get(f"/subgraph/{id}")
    then = client.get(f"/subgraph/{id}", params={"at": first})
    assert (then.json()["version"], then.headers["X-Drumlin-Generation"]) == ("1", str(first))
    assert then.headers["ETag"] != present.headers["ETag"]
    assert client.get(f"/doc/{id}", params={"at": second}).content == present.content
    known = client.get(f"/subgraph/{id}", params={"at": first}, headers={"If-None-Match": then.headers["ETag"]})
    assert known.status_code == 304
    assert '"1"' in client.get(f"/doc/{id}.nt", params={"at": first}).text
    assert client.get(f"/subgraph/{id}", params={"at": "2099-01-01T00:00:00Z"}).json()["version"] == "2"
    for at, status in ((first - 1, 404), (second + 10**6, 422), ("soon", 422), ("2001-01-01T00:00:00Z", 404)):
        refused = client.get(f"/subgraph/{id}", params={"at": at})
        assert (refused.status_code, refused.headers["Content-Type"]) == (status, "application/problem+json"), at
    assert client.get(f"/subgraph/{id}", params={"at": first, "depth": 1}).status_code == 422
    assert client.put(f"/subgraph/{id}", params={"at": first}, content="").status_code == 422
    with drumlin.connect(own_service.url) as connected:
        assert connected.subgraph(id, at=first).get()["version"] == "1"
        assert '"2"' in connected.subgraph(id, at=second).text()
        with pytest.raises(ResourceNotFound):
            connected.subgraph(id, at=first - 1).get()
        changed = connected.subgraph(id).compare()
        assert (changed["from"], changed["to"], changed["was"], changed["is"]) == (second - 1, second, True, True)
        assert [each.split()[2:] for each in (*changed["removed"], *changed["added"])] == [
            ['"1"', f"<{iri}>", "."],
            ['"2"', f"<{iri}>", "."],
        ]
        made = connected.subgraph(id).compare(0, first)
        assert (made["was"], len(made["added"])) == (False, 5)
        with pytest.raises(ResourceNotFound):
            connected.subgraph(f"{id}-never").compare()
    told = drumlin_asks("diff", id, "--from", str(first), "-u", own_service.url)
    assert (told.returncode, '"2"' in told.stdout) == (0, True)
    printed = drumlin_asks("get", id, "--at", str(first), "-u", own_service.url)
    assert printed.returncode == 0
    assert "version" in printed.stdout
    client.delete(f"/subgraph/{id}")
    assert client.get(f"/subgraph/{id}", params={"at": second}).json()["version"] == "2"
    gone = client.get(f"/subgraph/{id}", params={"at": second + 1})
    assert (gone.status_code, gone.json()["tombstone"]["formerType"]) == (410, "Deployment")
