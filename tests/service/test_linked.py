"""Linked data over a listening server: names, documents, the ontology, the dataset's description."""

from __future__ import annotations

import httpx
import pytest

from drumlin.kg import rdf

CHECKOUT = "prod/payments/deployment/checkout"


def test_a_name_leads_to_its_document(http: httpx.Client) -> None:
    """/id answers 303 with /doc; a part of an entity leads to the entity's document; a name that is none is refused."""
    for path in (CHECKOUT, f"{CHECKOUT}/container/checkout", f"{CHECKOUT}/metric/cpu_usage/at/prometheus-main"):
        answer = http.get(f"/id/{path}")
        assert (answer.status_code, answer.headers["Location"]) == (
            303,
            f"{'../' * (path.count('/') + 1)}doc/{CHECKOUT}",
        )
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


VOID = "http://rdfs.org/ns/void#"
ODD = """<http://example.org/odd> a [] , "no class" , <http://example.org/Person> , <http://other.example/x#Node> ."""


def _described(http: httpx.Client, path: str, dataset: str) -> tuple[dict[str, str], dict[str, str]]:
    """Read what VoID says of a dataset: its own values by name, and the number of things by class."""
    answer = http.get(path, headers={"Accept": "text/turtle"})
    said: dict[str, dict[str, list[str]]] = {}
    for subject, predicate, value in map(rdf.terms, rdf.parse(answer.content, rdf.TURTLE)[None]):
        said.setdefault(subject.value, {}).setdefault(predicate.value.removeprefix(VOID), []).append(value.value)
    parts = [said[each] for each in said[dataset].pop("classPartition")]
    assert all(len(each["class"]) == len(each["entities"]) == 1 for each in parts), "two classes under one name"
    return {name: values[0] for name, values in said[dataset].items()}, {
        each["class"][0]: each["entities"][0] for each in parts
    }


def test_the_description_of_the_dataset_is_true(http: httpx.Client) -> None:
    """What VoID counts, here and in the service description, is what SPARQL counts, whatever classes there are."""
    http.put("/store?graph=http://example.org/odd", content=ODD, headers={"Content-Type": "text/turtle"})

    def asked(query: str) -> list[list[str]]:
        return [row.split(",") for row in http.get("/sparql", params={"query": query, "format": "csv"}).text.split()][
            1:
        ]

    ((triples, subjects, properties),) = asked(
        "SELECT (COUNT(*) AS ?t) (COUNT(DISTINCT ?s) AS ?n) (COUNT(DISTINCT ?p) AS ?m) { ?s ?p ?o }"
    )
    classes = asked("SELECT ?c (COUNT(DISTINCT ?s) AS ?n) { ?s a ?c FILTER(ISIRI(?c)) } GROUP BY ?c")
    assert {"http://example.org/Person", "http://other.example/x#Node"} < {name for name, _ in classes}
    for path, dataset in (
        ("/.well-known/void", "https://kg.example/.well-known/void#dataset"),
        ("/sparql", "https://kg.example/sparql#union"),
    ):
        told, parts = _described(http, path, dataset)
        assert (told["triples"], told["distinctSubjects"], told["properties"]) == (triples, subjects, properties)
        assert told["classes"] == str(len(parts))
        assert parts == dict(classes)
    told, _ = _described(http, "/.well-known/void", "https://kg.example/.well-known/void#dataset")
    assert (told["sparqlEndpoint"], told["dataDump"]) == ("https://kg.example/sparql", "https://kg.example/export")
    assert "example.org" not in http.get("/").text  # the front page lists entities
    assert http.delete("/store?graph=http://example.org/odd").status_code == 204


def test_the_description_is_had_as_every_document_is(http: httpx.Client) -> None:
    """HEAD, ``format`` and a misspelt parameter mean there what they mean elsewhere; a link of a document is no end."""
    path = "/.well-known/void"
    head = http.head(path)
    assert (head.status_code, head.content) == (200, b"")
    assert http.get(path, params={"format": "nt"}).headers["Content-Type"].startswith("application/n-triples")
    assert http.get(path, params={"formt": "nt"}).json()["hint"] == "did you mean format?"
    assert http.get(f"/doc/{CHECKOUT}", params={"formt": "nt"}).status_code == 422
    assert http.get(f"/doc/{CHECKOUT}?format=nt&format=ttl").status_code == 422


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
