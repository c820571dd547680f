"""HTTP, RDF and SPARQL to the letter, where clients and other engines rely on it: each test names what it holds the service to."""

from __future__ import annotations

import json
import uuid
from typing import Any

import httpx
import pytest

from tests.service.conftest import BASE
from tests.service.test_subgraph import forecast, put

LD, NQ = "application/ld+json", "application/n-quads"
TRIPLE_TERM = "<urn:s> <urn:p> <<( <urn:a> <urn:b> <urn:c> )>> ."


@pytest.fixture
def name() -> str:
    """A name that no other test uses."""
    return uuid.uuid4().hex


@pytest.fixture
def graph() -> str:
    """A foreign graph that no other test uses."""
    return f"http://example.org/{uuid.uuid4().hex}"


def update(http: httpx.Client, text: str, **parameters: str) -> httpx.Response:
    """Send an update."""
    return http.post("/sparql/update", data={"update": text, **parameters})


# -- conditional requests -------------------------------------------------------------------------------------------------


def test_a_weak_tag_never_lets_a_write_pass(http: httpx.Client, name: str) -> None:
    """RFC 9110 §13.1.1: If-Match compares strongly, so that only the strong tag of a list counts."""
    etag = put(http, name, forecast(name)).headers["ETag"]
    assert put(http, name, forecast(name, model="a"), **{"If-Match": f"W/{etag}"}).status_code == 412
    assert put(http, name, forecast(name, model="a"), **{"If-Match": f"W/{etag}, {etag}"}).status_code == 204


def test_another_tag_in_if_none_match_lets_a_write_pass(http: httpx.Client, name: str) -> None:
    """RFC 9110 §13.1.2: the condition fails for a listed tag alone, weak or not."""
    etag = put(http, name, forecast(name), **{"If-None-Match": '"other"'}).headers["ETag"]
    assert put(http, name, forecast(name, model="a"), **{"If-None-Match": '"other", "a,b"'}).status_code == 204
    now = http.get(f"/subgraph/forecast/{name}").headers["ETag"]
    assert now != etag
    for listed in (now, f'"other", W/{now}', "*"):
        assert put(http, name, forecast(name, model="b"), **{"If-None-Match": listed}).status_code == 412, listed


@pytest.mark.parametrize(
    "path",
    ["/subgraph/{}", "/doc/{}", "/subgraph/{}?depth=1", "/store?graph=" + BASE + "/id/{}", "/ns", "/context/v1.jsonld"],
)
def test_a_read_holds_if_match(http: httpx.Client, path: str) -> None:
    """A read passes with the strong tag of what would be sent, and with *; else it is 412, before 304."""
    path = path.format("prod/payments/deployment/checkout")
    etag = http.get(path).headers["ETag"]
    weak = etag.startswith("W/")
    assert http.get(path, headers={"If-Match": f'"other", {etag}'}).status_code == (412 if weak else 200)
    assert http.get(path, headers={"If-Match": "*"}).status_code == 200
    changed = http.get(path, headers={"If-Match": '"other"', "If-None-Match": etag})
    assert (changed.status_code, changed.json()["title"]) == (412, "Precondition failed")
    assert http.head(path, headers={"If-Match": '"other"'}).status_code == 412


# -- negotiation ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("method", "path", "header"),
    [
        ("PATCH", "/subgraph/prod/payments/deployment/checkout", "Accept-Patch"),
        ("POST", "/subgraph/prod/payments/deployment/checkout", "Accept-Post"),
        ("PUT", "/subgraph/prod/payments/deployment/checkout", "Accept"),
        ("POST", "/store", "Accept-Post"),
        ("POST", "/sparql", "Accept-Post"),
        ("POST", "/sparql/update", "Accept-Post"),
        ("POST", "/subgraphs", "Accept-Post"),
    ],
)
def test_a_415_and_options_say_what_is_taken(http: httpx.Client, method: str, path: str, header: str) -> None:
    """Media types stand in Accept-Patch, Accept-Post or Accept, codings in Accept-Encoding; OPTIONS has the same."""
    refused = http.request(method, path, content=b"x", headers={"Content-Type": "image/png"})
    assert refused.status_code == 415
    taken = set(refused.headers[header].split(", "))
    coding = http.request(method, path, content=b"x", headers={"Content-Type": LD, "Content-Encoding": "br"})
    if coding.json()["detail"].startswith(
        "the Content-Encoding"
    ):  # where the type is looked at first, it is named first
        assert coding.headers["Accept-Encoding"] == "gzip, zstd, identity"
    offers = http.options(path)
    assert (offers.status_code, offers.headers["Accept-Encoding"]) == (204, "gzip, zstd, identity")
    assert method in offers.headers["Allow"]
    if header != "Accept":
        assert taken <= set(offers.headers[header].split(", ")) | {
            "application/ndjson",
            "application/jsonl",
            "application/json",
        }


def test_options_of_a_route_with_a_json_body_say_so(http: httpx.Client) -> None:
    """What FastAPI reads is named as what routes read themselves."""
    assert http.options("/resolve").headers["Accept-Post"] == "application/json"


@pytest.mark.parametrize("path", ["/sparql", "/sparql/update", "/store", "/subgraphs", "/search"])
def test_only_methods_that_are_served_are_named(http: httpx.Client, path: str) -> None:
    """TRACE is refused with the methods of the address, each of which is no 405."""
    refused = http.request("TRACE", path)
    allowed = refused.headers["Allow"].split(", ")
    assert refused.status_code == 405
    for method in ("GET", "HEAD", "POST", "PUT", "PATCH", "OPTIONS"):
        assert (http.request(method, path).status_code != 405) == (method in allowed), method


def test_a_comma_in_quotes_parts_nothing(http: httpx.Client) -> None:
    """A parameter's value may hold any sign (RFC 9110 §5.6.4)."""
    accept = 'application/ld+json;profile="text/turtle, a;b";q=0.5, application/n-triples'
    answer = http.get("/subgraph/prod/payments/deployment/checkout", headers={"Accept": accept})
    assert answer.headers["Content-Type"] == "application/n-triples"


@pytest.mark.parametrize(
    ("form", "media_type"),
    [
        ("rdf+xml", "application/rdf+xml"),
        ("json-ld", LD),
        ("n3", "text/n3"),
        ("turtle", "text/turtle"),
        ("xml", "application/rdf+xml"),
    ],
)
def test_format_takes_the_names_of_sparqlwrapper(http: httpx.Client, form: str, media_type: str) -> None:
    """A graph comes in the format that SPARQLWrapper names so, its + sent as it is or encoded."""
    query = "CONSTRUCT { <urn:s> <urn:p> 1 } {}"
    for address in (f"/sparql?query={query}&format={form}", f"/sparql?query={query}&format={form.replace('+', '%2B')}"):
        answer = http.get(address)
        assert answer.headers["Content-Type"].partition(";")[0] == media_type, answer.text


def test_a_result_that_the_format_cannot_say_is_406(http: httpx.Client, name: str) -> None:
    """JSON-LD has no triple terms: not of a query, not of a document."""
    query = "CONSTRUCT { <urn:s> <urn:p> ?t } { BIND(TRIPLE(<urn:a>, <urn:b>, 1) AS ?t) }"
    assert http.get("/sparql", params={"query": query}, headers={"Accept": LD}).status_code == 406
    assert "<<(" in http.get("/sparql", params={"query": query}, headers={"Accept": "text/turtle"}).text
    assert http.get("/sparql", params={"query": "ASK {}", "format": "turtle"}).status_code == 406
    path = f"/subgraph/x/{name}"
    assert http.put(path, content=TRIPLE_TERM, headers={"Content-Type": "text/turtle"}).status_code == 201
    assert http.get(path, headers={"Accept": LD}).status_code == 406
    assert "<<(" in http.get(path, headers={"Accept": "text/turtle"}).text


# -- SPARQL ---------------------------------------------------------------------------------------------------------------


def test_an_unknown_function_is_no_syntax_error(http: httpx.Client) -> None:
    """It is named with a reason of its own, in a query and in an update."""
    query = http.get("/sparql", params={"query": "SELECT * { BIND(<urn:f>(1) AS ?x) }"})
    changed = update(http, "INSERT { ?x <urn:p> 1 } WHERE { BIND(<urn:f>(1) AS ?x) }")
    for answer in (query, changed):
        assert (answer.status_code, answer.json()["reason"]) == (422, "unknown_function")
        assert "urn:f" in answer.json()["detail"]


def test_parentheses_of_a_path_are_no_collections(http: httpx.Client) -> None:
    """As many as brackets may be; collections stay bounded."""
    nested = "(" * 60 + "<urn:p>" + ")" * 60
    assert http.get("/sparql", params={"query": f"ASK {{ ?s {nested} ?o }}"}).status_code == 200
    steps = "/".join(["(<urn:p>|^<urn:q>)*"] * 20)
    assert http.get("/sparql", params={"query": f"ASK {{ ?s {steps} ?o ; {steps} ?n }}"}).status_code == 200
    for text in ("?s <urn:p> {}", "{} <urn:p> ?o", "?s <urn:p> 1 ; FILTER(1) {} <urn:p> ?o"):
        list_ = "(" * 20 + "1" + ")" * 20
        refused = http.get("/sparql", params={"query": f"ASK {{ {text.format(list_)} }}"})
        assert refused.status_code == 413, text


def test_triple_terms_are_computed_and_never_stored(http: httpx.Client, graph: str) -> None:
    """By each way in the message says that, and where they may be kept; a query and an update that store none pass."""
    answers = [
        http.put("/store", params={"graph": graph}, content=TRIPLE_TERM, headers={"Content-Type": "text/turtle"}),
        http.post("/store", content=f"{TRIPLE_TERM[:-1]} <{graph}> .", headers={"Content-Type": NQ}),
        update(http, f"INSERT DATA {{ GRAPH <{graph}> {{ <urn:a> <urn:b> 1 {{| <urn:c> 2 |}} }} }}"),
        update(
            http, f"INSERT {{ GRAPH <{graph}> {{ << ?x <urn:b> ?x >> <urn:c> 2 }} }} WHERE {{ BIND(<urn:a> AS ?x) }}"
        ),
    ]
    for answer in answers:
        assert answer.status_code == 422
        assert answer.json()["detail"] == f"a statement of {graph} has a triple term (RDF 1.2), and none is stored"
        assert "/subgraph/x/" in answer.json()["hint"]
    assert update(http, "INSERT { << ?s <urn:b> 1 >> <urn:c> 2 } WHERE { ?s <urn:none> 1 }").status_code == 204
    query = 'VERSION "1.2" ASK { VALUES ?t { <<( <urn:a> <urn:b> "x"@en--ltr )>> } FILTER(isTRIPLE(?t)) }'
    assert http.get("/sparql", params={"query": query}).json()["boolean"] is True


def test_a_foreign_document_keeps_its_triple_terms(http: httpx.Client, name: str) -> None:
    """A query that names the document finds them, as its dataset and beside the graph, directions of texts too."""
    path, document = f"/subgraph/x/{name}", f"<{BASE}/x/{name}>"
    content = '<urn:s> <urn:p> <<( <urn:a> <urn:b> "x"@ar--rtl )>> .'
    assert http.put(path, content=content, headers={"Content-Type": "text/turtle"}).status_code == 201
    found = []
    for text in (f"SELECT ?t FROM {document} {{ ?s ?p ?t }}", f"SELECT ?t {{ GRAPH {document} {{ ?s ?p ?t }} }}"):
        (row,) = http.get("/sparql", params={"query": text}).json()["results"]["bindings"]
        found.append(row["t"])
    assert found[0] == found[1]
    assert found[0]["value"]["object"] == {"type": "literal", "value": "x", "xml:lang": "ar", "its:dir": "rtl"}


def test_one_label_in_two_operations_is_refused(http: httpx.Client, graph: str) -> None:
    """SPARQL 1.1 Query §19.6: it would look like one node and be two."""
    insert = f"INSERT DATA {{ GRAPH <{graph}> {{ _:a <urn:p> 1 }} }}"
    refused = update(http, f"{insert} ; {insert}")
    assert (refused.status_code, refused.json()["reason"]) == (400, "syntax")
    assert http.get("/store", params={"graph": graph}).status_code == 404


# -- RDF ------------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("media_type", "document"),
    [
        (NQ, '_:s <urn:p> _:g _:g .\n<urn:s> <urn:q> "{}" _:g .\n'),
        ("application/trig", '_:g {{ _:s <urn:p> _:g . <urn:s> <urn:q> "{}" }}'),
        (
            LD,
            '{{"@id": "_:g", "@graph": [{{"@id": "_:s", "urn:p": {{"@id": "_:g"}}}}, {{"@id": "urn:s", "urn:q": "{}"}}]}}',
        ),
    ],
)
def test_a_blank_node_may_name_a_graph(http: httpx.Client, name: str, media_type: str, document: str) -> None:
    """It becomes an IRI that says so (RDF 1.1 Concepts §3.5), one and the same wherever the node stands."""
    sent = http.post("/store", content=document.format(name), headers={"Content-Type": media_type})
    assert sent.status_code == 204, sent.text
    query = f'SELECT ?g ?o {{ GRAPH ?g {{ <urn:s> <urn:q> "{name}" . ?s <urn:p> ?o }} }}'
    (row,) = http.get("/sparql", params={"query": query}).json()["results"]["bindings"]
    assert row["g"] == row["o"]
    assert row["g"]["value"].startswith(f"{BASE}/.well-known/genid/")
    assert http.get("/store", params={"graph": row["g"]["value"]}).status_code == 200


VALID: dict[str, Any] = {
    "a key below a term that means nothing": {"@context": {"Foo": {"@id": "urn:Foo", "@context": {"known": "urn:known"}}},
                                             "@type": "Foo", "known": 1, "nested": {"known": 2}},
    "a reverse key that means nothing": {"@id": "urn:s", "urn:p": 1, "@reverse": {"unknown": {"@id": "urn:o", "urn:p": 2}}},
    "a term like a keyword": {"@context": {"ignored": {"@reverse": "@ignored"}}, "urn:p": 1, "ignored": {"urn:p": 2}},
    "relative IRIs without a base": {"@context": {"@base": None}, "@id": "urn:s", "urn:p": [1, {"@id": "../relative"}]},
    "a key that makes no IRI": {"@context": {"@vocab": "http://example.org/v#"}, "@id": "urn:s", "urn:p": 1, "#no": 2},
}  # fmt: skip


@pytest.mark.parametrize("case", VALID)
def test_what_means_nothing_in_jsonld_is_left_out(http: httpx.Client, graph: str, case: str) -> None:
    """The document is valid, and the rest of it is stored."""
    sent = http.put("/store", params={"graph": graph}, content=json.dumps(VALID[case]), headers={"Content-Type": LD})
    assert sent.status_code == 201, sent.text
    stored = http.get("/store", params={"graph": graph, "format": "nt"}).text
    assert "1" in stored
    assert '"2"' not in stored


@pytest.mark.parametrize(
    "document",
    [
        {"@id": "urn:s", "http://example.org/a b": 1},
        {"@context": {"@vocab": "http://example.org/my words/"}, "@id": "urn:s", "name": 1},
        {"@id": "urn:s", "urn:p": {"@id": "http://example.org/a b"}},
        {"@id": "urn:s", "urn:p": {"@value": "x", "@language": "a_b"}},
        {"@id": "urn:s", "urn:p": {"@value": "x", "@type": "http://example.org/a b"}},
    ],
)
def test_what_a_writer_would_lose_unseen_is_refused(http: httpx.Client, graph: str, document: dict[str, Any]) -> None:
    """An ill-formed IRI or language tag is reported: JSON-LD itself would leave the statement out."""
    sent = http.put("/store", params={"graph": graph}, content=json.dumps(document), headers={"Content-Type": LD})
    assert sent.status_code == 422


def test_a_key_of_our_context_that_makes_no_iri_is_refused(http: httpx.Client, name: str) -> None:
    """What is misspelt in an entity's document is reported, never dropped."""
    assert put(http, name, {**forecast(name), "cpu usage": 1}).status_code == 422


def test_json_without_a_context_is_ours_for_entities_only(http: httpx.Client, graph: str, name: str) -> None:
    """A foreign graph or document gets what JSON-LD says, which is nothing for keys that are no IRIs."""
    plain = json.dumps({"id": "urn:s", "name": "x", "urn:p": 1})
    for path in (f"/store?graph={graph}", f"/subgraph/x/{name}"):
        assert http.put(path, content=plain, headers={"Content-Type": LD}).status_code == 201
        stored = http.get(path, headers={"Accept": "application/n-triples"}).text
        assert stored.count("\n") == 1
        assert "<urn:p>" in stored
    assert (
        put(http, name, {key: value for key, value in forecast(name).items() if key != "@context"}).status_code == 201
    )


def test_the_service_description_says_that_empty_graphs_are_kept(http: httpx.Client) -> None:
    """SPARQL 1.1 Service Description §3.2.4."""
    said = http.get("/sparql", headers={"Accept": "application/n-triples"}).text
    assert said.count("sparql-service-description#EmptyGraphs>") == 2


def test_the_version_iri_leads_to_the_ontology(http: httpx.Client) -> None:
    """/ns/ and the number of the version is the same document as /ns, in each syntax."""
    for accept in ("text/turtle", "text/html"):
        whole = http.get("/ns", headers={"Accept": accept})
        version = http.get("/ns/0.1.0", headers={"Accept": accept})
        assert (version.status_code, version.headers["Content-Type"]) == (200, whole.headers["Content-Type"])
        assert accept == "text/html" or version.content == whole.content
