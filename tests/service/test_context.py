"""The context that JSON-LD of a service names or carries, and the contexts that documents sent to it may name."""

from __future__ import annotations

import io
import json
import uuid
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import httpx
import pytest

from drumlin.kg import rdf
from drumlin.kg.graphs import loader
from drumlin.kg.rdf import jsonld
from drumlin.kg.rdf.jsonld import CONTEXT_IRI
from tests.service.conftest import BASE, NS, SAMPLE, drumlin_asks, serving, until_ready

CONTEXT = f"{BASE}/context/v1.jsonld"
FOREIGN = "https://other.example/kg/context/v1.jsonld"
OURS = json.loads(jsonld.context_document())["@context"]
CHECKOUT = "/subgraph/prod/payments/deployment/checkout"
LD = {"Content-Type": "application/ld+json"}
INLINE = {"Prefer": "context=inline"}


@pytest.fixture
def domain() -> dict[str, Any]:
    """A document without a context, under a name that no other test uses."""
    return {"id": f"{BASE}/id/domain/{uuid.uuid4().hex}", "type": "Domain", "name": "南京"}


def _path(document: Mapping[str, Any]) -> str:
    return f"/subgraph/{document['id'].removeprefix(f'{BASE}/id/')}"


def _put(http: httpx.Client, document: Mapping[str, Any], **headers: str) -> httpx.Response:
    return http.put(_path(document), content=json.dumps(document).encode(), headers={**LD, **headers})


# -- what is written ------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize(
    "path",
    [
        CHECKOUT,
        f"{CHECKOUT}.jsonld",
        f"{CHECKOUT}?format=jsonld",
        f"{CHECKOUT}?depth=1",
        f"{CHECKOUT}?include=managedBy",
        f"{CHECKOUT}?frame=Deployment",
        CHECKOUT.replace("subgraph", "doc"),
    ],
)
def test_a_document_names_the_context_of_its_service_or_carries_it(http: httpx.Client, path: str) -> None:
    """Both forms are the same graph under ETags of their own, which Vary tells apart; a parameter wins over Prefer."""
    with_parameter = f"{path}{'&' if '?' in path else '?'}context="
    link, inline = http.get(path), http.get(path, headers=INLINE)

    assert link.json()["@context"] == CONTEXT
    assert inline.json() == {**link.json(), "@context": OURS}
    assert "Preference-Applied" not in link.headers
    assert inline.headers["Preference-Applied"] == "context=inline"
    assert link.headers["ETag"] != inline.headers["ETag"]
    for answer in (link, inline):
        assert {"Accept", "Prefer"} <= {each.strip() for each in answer.headers["Vary"].split(",")}
    asked = http.get(f"{with_parameter}inline", headers={"Prefer": "context=link"})
    assert (asked.content, asked.headers["ETag"]) == (inline.content, inline.headers["ETag"])
    assert http.get(f"{with_parameter}link", headers=INLINE).content == link.content
    for tag, wish, status in (
        (link, {}, 304),
        (link, INLINE, 200),
        (inline, {}, 200),
        (inline, INLINE, 304),
    ):
        again = http.get(path, headers={"If-None-Match": tag.headers["ETag"], **wish})
        assert (again.status_code, "Prefer" in again.headers["Vary"]) == (status, True)


def test_other_syntaxes_have_no_context(http: httpx.Client) -> None:
    """Turtle is the same bytes under the same ETag whatever form of the context is wanted."""
    plain = http.get(CHECKOUT, headers={"Accept": "text/turtle"})
    wished = http.get(CHECKOUT, headers={"Accept": "text/turtle", **INLINE})
    asked = http.get(f"{CHECKOUT}?context=inline", headers={"Accept": "text/turtle"})

    assert plain.content == wished.content == asked.content
    assert plain.headers["ETag"] == wished.headers["ETag"] == asked.headers["ETag"]
    assert "Preference-Applied" not in wished.headers
    assert plain.headers["Vary"] == "Accept, Accept-Encoding"


@pytest.mark.parametrize("method", ["GET", "PUT", "POST", "PATCH"])
def test_a_form_that_does_not_exist_is_refused(http: httpx.Client, domain: dict[str, Any], method: str) -> None:
    """422 names the forms, and nothing is written; a preference of another form is passed over."""
    path = CHECKOUT if method == "GET" else _path(domain)
    refused = http.request(method, f"{path}?context=whole", content=json.dumps(domain).encode(), headers=LD)

    assert refused.status_code == 422
    assert "'link' or 'inline'" in refused.json()["detail"]
    assert method == "GET" or http.get(path).status_code == 404
    assert http.get("/export?context=link").status_code == 422
    assert http.get(CHECKOUT, headers={"Prefer": "context=whole"}).json()["@context"] == CONTEXT


@pytest.mark.parametrize("asked", ["", "?context=inline"])
def test_a_write_returns_the_form_that_is_preferred(http: httpx.Client, domain: dict[str, Any], asked: str) -> None:
    """PUT, PATCH and POST show the graph in either form; its ETag is that of the form, and guards the next write."""
    path, wish = f"{_path(domain)}{asked}", {"Prefer": "return=representation" + ("" if asked else ", context=inline")}
    applied = wish["Prefer"]
    put = http.put(path, content=json.dumps(domain), headers={**LD, **wish})
    read = http.get(_path(domain), headers=INLINE)

    assert (put.status_code, put.json()) == (201, {"@context": OURS, **domain})
    assert put.headers["Preference-Applied"] == applied
    assert put.headers["ETag"] == read.headers["ETag"] != http.get(_path(domain)).headers["ETag"]
    merge = {"Content-Type": "application/merge-patch+json", "If-Match": put.headers["ETag"], **wish}
    patched = http.patch(path, content='{"name": "b"}', headers=merge)
    assert (patched.status_code, patched.json()["@context"], patched.json()["name"]) == (200, OURS, "b")
    assert http.delete(_path(domain), headers={"If-Match": patched.headers["ETag"]}).status_code == 204
    posted = http.post(path, content=json.dumps(domain), headers={**LD, **wish})
    assert (posted.status_code, posted.json()["@context"]) == (201, OURS)


def test_a_tombstone_is_in_the_form_that_is_asked_for(http: httpx.Client, domain: dict[str, Any]) -> None:
    """The tombstone within a 410 names the context of the service, or carries it; a cache is told what that depends on."""
    _put(http, domain)
    http.delete(_path(domain))

    for path in (_path(domain), _path(domain).replace("subgraph", "doc")):
        assert http.get(path).json()["tombstone"]["@context"] == CONTEXT
        assert http.get(path, headers=INLINE).json()["tombstone"]["@context"] == OURS
        assert http.get(f"{path}?context=inline").json()["tombstone"]["@context"] == OURS
        assert "Prefer" in http.get(path).headers["Vary"]


def test_plain_json_links_to_the_context_that_it_names(http: httpx.Client) -> None:
    """The Link header of ``application/json`` leads to this service; the inline form needs no link."""
    json_ = {"Accept": "application/json"}
    link = f'<{CONTEXT}>; rel="http://www.w3.org/ns/json-ld#context"; type="application/ld+json"'

    assert link in http.get(CHECKOUT, headers=json_).headers["Link"]
    assert "json-ld#context" not in http.get(CHECKOUT, headers={**json_, **INLINE}).headers["Link"]


def test_an_export_carries_its_context(http: httpx.Client) -> None:
    """However it is shaped; one in a caller's own terms carries those."""
    own = {"@context": {"called": f"{NS}name"}, "@type": f"{NS}Deployment", "@explicit": True, "called": {}}

    for asked in ({}, {"frame": "each"}, {"frame": "Deployment"}, {"frame": '{"type": "Deployment"}'}):
        assert http.get("/export", params={"format": "jsonld", **asked}, timeout=60).json()["@context"] == OURS
    framed = http.get("/export", params={"frame": json.dumps(own)}, timeout=60)
    assert framed.json()["@context"] == own["@context"]
    predicates = {
        rdf.terms(line)[1].value.removeprefix(NS)
        for _, lines in loader.graphs(io.BytesIO(framed.content), rdf.JSONLD)
        for line in lines
    }
    assert predicates == {"http://www.w3.org/1999/02/22-rdf-syntax-ns#type", "name"}


def test_the_base_may_have_a_path(tmp_path: Path) -> None:
    """Behind a proxy that serves it below a path, the context's address is below the base too, and is read when it is sent."""
    base = f"{BASE}/kg"
    with serving("--base", base, "--store", str(tmp_path)) as running, httpx.Client(base_url=running.url) as http:
        document = {"@context": f"{base}/context/v1.jsonld", "id": f"{base}/id/domain/a", "type": "Domain", "name": "a"}
        assert http.put("/subgraph/domain/a", content=json.dumps(document), headers=LD).status_code == 201
        assert http.get("/subgraph/domain/a").json() == document
        refused = http.put("/subgraph/domain/a", content=json.dumps({**document, "@context": CONTEXT}), headers=LD)
        assert (refused.status_code, document["@context"] in refused.json()["hint"]) == (422, True)


# -- the context itself ---------------------------------------------------------------------------------------------------
@pytest.fixture(scope="module", params=[(), ("https://ui.example",)], ids=["no cors", "cors"])
def strict(request: pytest.FixtureRequest) -> Iterator[httpx.Client]:
    """A service that lets pages of no origin call, or of one."""
    environment = {"DRUMLIN_CORS": json.dumps(request.param)} if request.param else {}
    with serving(environment=environment) as running, httpx.Client(base_url=running.url) as client:
        yield client


@pytest.mark.parametrize("origin", [None, "https://ui.example", "https://elsewhere.example", "null"])
def test_pages_of_every_origin_may_read_the_context(strict: httpx.Client, origin: str | None) -> None:
    """GET, HEAD, 304 and a preflight say so whatever ``cors`` is; other routes are as closed as before."""
    headers = {"Origin": origin} if origin else {}
    path = "/context/v1.jsonld"
    get = strict.get(path, headers=headers)
    known = {**headers, "If-None-Match": get.headers["ETag"]}
    preflight = {**headers, "Access-Control-Request-Method": "GET", "Access-Control-Request-Headers": "accept"}
    asked = strict.options(path, headers=preflight)

    assert (get.status_code, get.json(), get.headers["Content-Type"]) == (
        200,
        {"@context": OURS},
        "application/ld+json",
    )
    assert strict.get(path, headers=known).status_code == 304
    for answer in (get, strict.head(path, headers=headers), strict.get(path, headers=known), asked):
        assert answer.headers["Access-Control-Allow-Origin"] == "*"
        assert "Accept" not in answer.headers.get("Vary", "").split(", ")
    assert (asked.status_code, asked.headers["Access-Control-Allow-Headers"]) == (204, "*")
    assert "GET" in asked.headers["Access-Control-Allow-Methods"]
    assert strict.get("/livez", headers=headers).headers.get("Access-Control-Allow-Origin") != "*"


# -- what is read ---------------------------------------------------------------------------------------------------------
CONTEXTS: Mapping[str, Any] = {
    "served": CONTEXT,
    "well-known": CONTEXT_IRI,
    "in a list": [CONTEXT],
    "with terms of its own": [CONTEXT, {"called": f"{NS}name"}],
    "carried": OURS,
}


@pytest.mark.parametrize("context", CONTEXTS.values(), ids=CONTEXTS.keys())
def test_the_context_is_known_by_either_address(http: httpx.Client, domain: dict[str, Any], context: Any) -> None:
    """PUT, POST, PATCH, a bulk line and the graph store read a document that names the context, without a fetch, as plain JSON is read."""
    _put(http, domain)
    digest = http.get(_path(domain)).headers["ETag"]
    named = {"@context": context, **domain}
    text = json.dumps(named).encode()

    assert _put(http, named).headers["ETag"] == digest
    patch = http.patch(_path(domain), content=text, headers={"Content-Type": "application/merge-patch+json"})
    assert patch.status_code == (422 if context == CONTEXTS["with terms of its own"] else 204), patch.text
    line = json.dumps({"op": "put", "id": domain["id"], "document": named})
    bulk = http.post("/subgraphs", content=line, headers={"Content-Type": "application/x-ndjson"})
    assert bulk.json()["outcome"] == "unchanged", bulk.text
    stored = http.put("/store", params={"graph": "http://example.org/named"}, content=text, headers=LD)
    assert stored.status_code in (201, 204), stored.text
    assert "南京" in http.get("/store", params={"graph": "http://example.org/named", "format": "nt"}).text
    both = http.post(
        "/store",
        content=json.dumps({"@context": context, "id": "http://example.org/named", "@graph": [domain]}),
        headers=LD,
    )
    assert both.status_code == 204, both.text
    assert http.delete("/store", params={"graph": "http://example.org/named"}).status_code == 204
    http.delete(_path(domain))
    assert http.post(_path(domain), content=text, headers=LD).status_code == 201


def test_a_frame_may_name_it_too(http: httpx.Client) -> None:
    """A frame that names the served context is read like one that names none; one that names another's is told which to use."""
    for context in (CONTEXT, CONTEXT_IRI, OURS):
        frame = json.dumps({"@context": context, "type": "Deployment", "@explicit": True, "name": {}})
        assert http.get(CHECKOUT, params={"frame": frame}).json()["@context"] == CONTEXT
    for path in (CHECKOUT, "/export"):
        refused = http.get(path, params={"frame": json.dumps({"@context": FOREIGN})})
        assert (refused.status_code, CONTEXT in refused.json()["hint"]) == (422, True)


@pytest.mark.parametrize(
    "context", [FOREIGN, [FOREIGN], [CONTEXT, FOREIGN], f"{CONTEXT_IRI}/context/v1.jsonld", "/context/v1.jsonld"]
)
def test_the_context_of_another_base_is_answered_with_the_one_to_use(
    http: httpx.Client, domain: dict[str, Any], context: Any
) -> None:
    """422 whose hint names the address here, on every way in; nothing is fetched and nothing is written."""
    named = {"@context": context, **domain}
    text = json.dumps(named).encode()
    line = json.dumps({"op": "put", "id": domain["id"], "document": named})
    ndjson = {"Content-Type": "application/x-ndjson"}

    refused = [
        _put(http, named),
        http.post(_path(domain), content=text, headers=LD),
        http.put("/store?graph=http://example.org/x", content=text, headers=LD),
        http.post("/store", content=text, headers=LD),
        http.post("/subgraphs?atomic=true", content=line, headers=ndjson),
    ]
    for each in refused:
        assert (each.status_code, CONTEXT in each.json()["hint"]) == (422, True), each.text
    problem = http.post("/subgraphs", content=line, headers=ndjson).json()["problem"]
    assert (problem["status"], CONTEXT in problem["hint"]) == (422, True)
    assert http.get(_path(domain)).status_code == 404


def test_an_export_of_another_base_is_imported_offline(tmp_path: Path) -> None:
    """What a service under another base exported fills a store made under that base, by its own context and by either address."""
    base = "https://other.example/kg"
    with serving("--base", base, "--source", f"dump:{SAMPLE}") as running:
        until_ready(running)
        export = httpx.get(f"{running.url}/export?format=jsonld").text
        around = httpx.get(f"{running.url}{CHECKOUT}?depth=1").text
    head, _, rest = export.partition("\n")
    assert json.loads(head + "]}")["@context"] == OURS
    for name, text in (
        ("whole", export),
        ("served", f'{{"@context":"{base}/context/v1.jsonld","@graph":[\n{rest}'),
        ("well-known", f'{{"@context":"{CONTEXT_IRI}","@graph":[\n{rest}'),
        ("around", around),
    ):
        file = tmp_path / f"{name}.jsonld"
        file.write_text(text)
        done = drumlin_asks("import", str(file), "--store", str(tmp_path / name), "--base", base)
        assert done.returncode == 0, done.stderr
    told = drumlin_asks("import", str(tmp_path / "served.jsonld"), "--store", str(tmp_path / "x"), "--base", BASE)
    assert (told.returncode != 0, CONTEXT in told.stderr) == (True, True)
