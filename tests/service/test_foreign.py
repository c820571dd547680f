"""Foreign documents: any vocabulary below ``x/``, kept and given back, read where a query names them, and never a part of the graph."""

from __future__ import annotations

import httpx
import pytest

from tests.service.conftest import BASE, NS, OWN, OWN_DOCUMENT

TURTLE = {"Content-Type": "text/turtle"}
DOC = f"{BASE}/x/seed/checkout"
SEED = f"""@prefix s: <https://seed.example/> .
<{OWN}> a s:WorkloadTelemetry ; s:has-metrics [ s:unit "mb" ; s:from-source <http://prom> ] ; s:owner "team-a" ."""
FORGED = f'<{OWN}> a <{NS}Domain> ; <{NS}name> "forged" .'


def put(client: httpx.Client, content: str = SEED, name: str = "seed/checkout", **headers: str) -> httpx.Response:
    """Write a document."""
    return client.put(f"/subgraph/x/{name}", content=content.encode(), headers={**TURTLE, **headers})


@pytest.fixture(autouse=True)
def _no_documents(client: httpx.Client) -> None:
    """Begin without documents of earlier tests, which `DELETE /store` leaves alone."""
    for name in ("seed/checkout", "a%20b/c", "a%20b"):
        assert client.delete(f"/subgraph/x/{name}").status_code in (204, 404)


def describe_own(client: httpx.Client) -> None:
    """Write the entity that the documents are about."""
    name = OWN.removeprefix(f"{BASE}/id/")
    answer = client.put(f"/subgraph/{name}", content=OWN_DOCUMENT, headers=TURTLE)
    assert answer.status_code in (201, 204), answer.text


def select(client: httpx.Client, query: str, **params: str) -> list[dict[str, str]]:
    """Return the solutions of a SELECT, each variable with its text."""
    answer = client.post(
        "/sparql", data={"query": query, **params}, headers={"Accept": "application/sparql-results+json"}
    )
    assert answer.status_code == 200, answer.text
    return [{key: each["value"] for key, each in row.items()} for row in answer.json()["results"]["bindings"]]


def test_a_document_of_any_vocabulary_goes_and_comes(client: httpx.Client) -> None:
    """201, then 204; every syntax gives the same statements back; an ETag guards a write; afterwards nothing is left."""
    first, second = put(client), put(client)
    assert (first.status_code, second.status_code) == (201, 204)
    read = client.get("/subgraph/x/seed/checkout", headers={"Accept": "application/n-triples"})
    assert read.status_code == 200
    assert len(read.text.splitlines()) == 5
    for syntax in ("application/ld+json", "application/trig", "application/rdf+xml"):
        body = client.get("/subgraph/x/seed/checkout", headers={"Accept": syntax})
        assert put(client, body.text, **{"Content-Type": syntax}).status_code == 204
        assert (
            client.get("/subgraph/x/seed/checkout", headers={"Accept": syntax}).headers["ETag"] == body.headers["ETag"]
        )
    assert (
        client.get(
            "/subgraph/x/seed/checkout",
            headers={"Accept": "application/n-triples", "If-None-Match": read.headers["ETag"]},
        ).status_code
        == 304
    )
    assert put(client, FORGED, **{"If-Match": '"other-turtle"'}).status_code == 412
    assert client.delete("/subgraph/x/seed/checkout").status_code == 204
    assert client.get("/subgraph/x/seed/checkout").status_code == 404
    assert client.delete("/subgraph/x/seed/checkout").status_code == 404


def test_a_document_cannot_forge_statements_about_entities(client: httpx.Client) -> None:
    """Neither a query of everything nor the entity's own page sees what a document says of it."""
    describe_own(client)
    before = select(client, f"SELECT ?p ?o WHERE {{ <{OWN}> ?p ?o }}")
    assert put(client, FORGED).status_code == 201

    assert select(client, f"SELECT ?p ?o WHERE {{ <{OWN}> ?p ?o }}") == before
    assert select(client, 'SELECT ?s WHERE { ?s ?p "forged" }') == []
    assert select(client, f"SELECT ?s WHERE {{ ?s a <{NS}Domain> ; <{NS}name> 'forged' }}") == []


QUERIES = [
    f"SELECT ?o FROM <{DOC}> WHERE {{ ?s <https://seed.example/owner> ?o }}",
    f"SELECT ?o FROM NAMED <{DOC}> WHERE {{ GRAPH ?g {{ ?s <https://seed.example/owner> ?o }} }}",
    f"PREFIX x: <{BASE}/x/seed/> SELECT ?o FROM x:checkout WHERE {{ ?s <https://seed.example/owner> ?o }}",
    f"SELECT ?o WHERE {{ GRAPH <{DOC}> {{ ?s <https://seed.example/owner> ?o }} }}",
    f"PREFIX x: <{BASE}/x/seed/> SELECT ?o WHERE {{ GRAPH x:checkout {{ ?s <https://seed.example/owner> ?o }} }}",
    f"SELECT ?o WHERE {{ ?w a <{NS}Deployment> . GRAPH <{DOC}> {{ ?w <https://seed.example/owner> ?o }} }}",
    f"SELECT ?o WHERE {{ ?w a <{NS}Deployment> OPTIONAL {{ GRAPH <{DOC}> {{ ?w <https://seed.example/owner> ?o }} }} FILTER(BOUND(?o)) }}",
]


@pytest.mark.parametrize("query", QUERIES)
def test_from_and_graph_reach_it(client: httpx.Client, query: str) -> None:
    """Alone as a dataset, and joined with the graph, however its name is written."""
    describe_own(client)
    put(client)

    assert select(client, query) == [{"o": "team-a"}]


def test_the_dataset_of_a_request_reaches_it_too(client: httpx.Client) -> None:
    """default-graph-uri of the protocol, other forms of queries, and a document that changes is read as it is now."""
    put(client)
    query = "SELECT ?o WHERE { ?s <https://seed.example/owner> ?o }"
    assert select(client, query, **{"default-graph-uri": DOC}) == [{"o": "team-a"}]
    put(client, SEED.replace("team-a", "team-b"))
    assert select(client, query, **{"default-graph-uri": DOC}) == [{"o": "team-b"}]
    built = client.get(
        "/sparql",
        params={"query": f"CONSTRUCT WHERE {{ GRAPH <{DOC}> {{ ?s <https://seed.example/owner> ?o }} }}"},
        headers={"Accept": "application/n-triples"},
    )
    assert built.status_code in (200, 400)  # CONSTRUCT WHERE takes no GRAPH by the grammar
    asked = client.get("/sparql", params={"query": f'ASK {{ GRAPH <{DOC}> {{ ?s ?p "team-b" }} }}'})
    assert asked.json()["boolean"] is True
    absent = select(client, f"SELECT ?o WHERE {{ GRAPH <{BASE}/x/none> {{ ?s ?p ?o }} }}")
    assert absent == []


def test_there_is_no_other_way_in(client: httpx.Client) -> None:
    """The graph store and updates cannot put statements under a document's name, and leave documents alone."""
    put(client)
    refused = client.put("/store", params={"graph": DOC}, content=FORGED, headers=TURTLE)
    assert (refused.status_code, "PUT /subgraph/x/seed/checkout" in refused.text) == (400, True)
    update = client.post("/sparql/update", data={"update": f"INSERT DATA {{ GRAPH <{DOC}> {{ {FORGED} }} }}"})
    assert update.status_code == 400
    assert client.get("/subgraph/x/seed/checkout").status_code == 200


@pytest.mark.parametrize("name", ["", "%zz", "a%20b/c", "a b"])
def test_names_are_paths_of_iris(client: httpx.Client, name: str) -> None:
    """What is no IRI is refused; what is one is a name as it is written."""
    answer = put(client, name=name)
    assert answer.status_code == (201 if name in {"a%20b/c", "a b"} else 400), answer.text


def test_a_document_is_bounded_and_what_is_no_rdf_is_refused(client: httpx.Client) -> None:
    """The limits of every document hold, and an error is one."""
    assert put(client, "this is no Turtle").status_code == 422
    assert client.put("/subgraph/x/a", content=b"x" * (40 << 20), headers=TURTLE).status_code == 413


def test_a_document_has_one_owner(client: httpx.Client) -> None:
    """Who wrote it is said with it; another one is refused until the owner has removed it."""
    owner = {"X-Drumlin-Owner": "export:seed"}
    assert put(client, name="owned", **owner).status_code == 201
    assert client.get("/subgraph/x/owned").headers["X-Drumlin-Owner"] == "export:seed"
    assert put(client, name="owned").status_code == 409
    assert client.delete("/subgraph/x/owned").status_code == 409
    assert client.delete("/subgraph/x/owned", headers=owner).status_code == 204
