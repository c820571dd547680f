"""Linked data over a listening server: names, documents, the ontology, the dataset's description."""

from __future__ import annotations

import httpx
import pytest

from kg import rdf

CHECKOUT = "prod/payments/deployment/checkout"


def test_a_name_leads_to_its_document(http: httpx.Client) -> None:
    """/id answers 303 with /doc; a part of an entity leads to the entity's document; a name that is none is refused."""
    for path in (CHECKOUT, f"{CHECKOUT}/container/checkout", f"{CHECKOUT}/metric/cpu_usage/at/prometheus-main"):
        answer = http.get(f"/id/{path}")
        assert (answer.status_code, answer.headers["Location"]) == (303, f"/doc/{CHECKOUT}")
    assert http.get(f"/id/{CHECKOUT}", follow_redirects=True).json()["name"] == "checkout"
    assert http.get("/id/x").status_code == 400


def test_a_document_links_to_the_thing_and_its_other_forms(http: httpx.Client) -> None:
    """/doc says the same as /subgraph; each alternate link can be followed and is what its type says."""
    answer = http.get(f"/doc/{CHECKOUT}")
    assert answer.content == http.get(f"/subgraph/{CHECKOUT}").content
    links = answer.headers["Link"]
    assert f'<https://kg.example/id/{CHECKOUT}>; rel="describes"' in links
    for syntax in rdf.SYNTAXES[1:]:
        assert (
            f'<https://kg.example/doc/{CHECKOUT}{syntax.suffix}>; rel="alternate"; type="{syntax.media_type}"' in links
        )
        form = http.get(f"/doc/{CHECKOUT}{syntax.suffix}")
        assert form.headers["Content-Type"].startswith(syntax.media_type)
    plain = http.get(f"/doc/{CHECKOUT}", headers={"Accept": "application/json"})
    assert "json-ld#context" in plain.headers["Link"]


@pytest.mark.parametrize("syntax", rdf.SYNTAXES, ids=lambda syntax: syntax.name)
def test_what_the_graph_is_made_of_is_told_in_every_syntax(http: httpx.Client, syntax: rdf.Syntax) -> None:
    """The description of the dataset parses in each syntax that is accepted; Turtle when nothing is said."""
    path = "/.well-known/void"
    answer = http.get(path, headers={"Accept": syntax.media_type})
    assert answer.headers["Content-Type"].startswith(syntax.media_type)
    assert len(rdf.parse(answer.content, syntax)[None]) > 10
    assert http.get(path, headers={"Accept": ""}).headers["Content-Type"].startswith("text/turtle")


def test_the_description_counts_the_entities(http: httpx.Client) -> None:
    """VoID names the end point and how many entities of a class there are."""
    text = http.get("/.well-known/void", headers={"Accept": "application/n-triples"}).text
    assert "<http://rdfs.org/ns/void#sparqlEndpoint> <https://kg.example/sparql>" in text
    assert 'void#Deployment> <http://rdfs.org/ns/void#entities> "10"' in text


def test_a_frame_shapes_the_document(http: httpx.Client) -> None:
    """A class's frame or one's own gives one document about the entity; other syntaxes and bad frames are refused."""
    path = f"/subgraph/{CHECKOUT}"
    framed = http.get(path, params={"frame": "Deployment"})
    assert (framed.status_code, framed.json()["name"]) == (200, "checkout")
    assert framed.headers["ETag"].startswith('W/"')
    assert (
        http.get(path, params={"frame": "Deployment"}, headers={"If-None-Match": framed.headers["ETag"]}).status_code
        == 304
    )
    own = http.get(
        path, params={"frame": '{"@explicit": true, "name": {}, "partOf": {"name": {}}}', "include": "partOf"}
    ).json()
    assert own["partOf"]["name"] == "payments"
    assert set(own) == {"@context", "id", "type", "name", "partOf"}
    assert http.get(path, params={"frame": "Deploymnt"}).status_code == 404
    assert http.get(path, params={"frame": "{"}).status_code == 422
    assert http.get(path, params={"frame": "Deployment", "format": "turtle"}).status_code == 406
