"""``/ns``, the context and the profiles: one address for people and machines, cached by ETag."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
import rdflib
from rdflib import DCAT, RDF

from drumlin.kg import rdf
from tests.service.conftest import BASE, SAMPLE, serving

ROOT = Path(__file__).parents[2] / "ontology"


@pytest.fixture(scope="module")
def client() -> Iterator[httpx.Client]:
    """A client of a service with the sample cluster."""
    with (
        serving("--source", f"dump:{SAMPLE}", "--base", BASE, "--cluster", "prod") as service,
        httpx.Client(base_url=service.url, timeout=60) as opened,
    ):
        yield opened


@pytest.mark.parametrize(
    ("accept", "media_type"),
    [
        ("text/html,application/xhtml+xml,application/xml;q=0.9,*/*;q=0.8", "text/html"),
        ("text/turtle", "text/turtle"),
        ("application/ld+json", "application/ld+json"),
        ("application/json", "application/json"),
        ("application/n-triples, text/html;q=0.5", "application/n-triples"),
        ("application/rdf+xml", "application/rdf+xml"),
    ],
)
def test_the_namespace_answers_as_the_client_likes_it(client: httpx.Client, accept: str, media_type: str) -> None:
    """Browsers get a page, RDF clients their syntax, from one address."""
    answer = client.get("/ns", headers={"Accept": accept})

    assert answer.status_code == 200
    assert answer.headers["Content-Type"].split(";")[0] == media_type
    assert "Accept" in answer.headers["Vary"]


@pytest.mark.parametrize("path", ["/ns/shapes", "/ns/metrics", "/profiles/dcat/rules"])
def test_what_is_written_in_turtle_comes_so_unless_another_syntax_is_asked_for(client: httpx.Client, path: str) -> None:
    """Whoever takes anything gets the file, comments and all; JSON-LD is there for who wants it."""
    anything, json_ld = (client.get(path, headers={"Accept": accept}) for accept in ("*/*", "application/ld+json"))

    assert anything.headers["Content-Type"].startswith("text/turtle")
    assert anything.text.startswith("#")
    assert json_ld.headers["Content-Type"] == "application/ld+json"


@pytest.mark.parametrize("path", ["/ns", "/ns/shapes", "/context/v1.jsonld", "/profiles/dcat/rules"])
def test_headers_can_be_had_alone(client: httpx.Client, path: str) -> None:
    """HEAD tells type, ETag and how long to keep it, without the body."""
    head, get = client.head(path), client.get(path)

    assert (head.status_code, head.content) == (200, b"")
    for name in ("Content-Type", "ETag", "Cache-Control"):
        assert head.headers[name] == get.headers[name]


def test_a_terms_name_leads_to_its_place_in_the_reference(client: httpx.Client) -> None:
    """Who writes the namespace with a slash, as people do, still finds the term."""
    answer = client.get("/ns/scheduledOn")

    assert (answer.status_code, answer.headers["Location"]) == (303, "../ns#scheduledOn")


@pytest.mark.parametrize("term", ["scheduledOn", "Deployment", "Failed"])
def test_a_term_is_a_page_of_its_own_for_browsers(client: httpx.Client, term: str) -> None:
    """A property, a class, a concept: what it means, with links to the pages of the terms beside it, all of which are there."""
    answer = client.get(f"/ns/{term}", headers={"Accept": "text/html,*/*;q=0.8"})

    assert answer.status_code == 200
    assert answer.headers["Vary"].startswith("Accept,")
    assert f"<h1>{term}</h1>" in answer.text
    others = set(re.findall(r'<a href="\./([A-Za-z]+)">', answer.text))
    assert others or term == "Failed"
    for each in others:
        assert client.get(f"/ns/{each}", headers={"Accept": "text/html"}).status_code == 200


@pytest.mark.parametrize("form", ["turtle", "jsonld", "ntriples", "rdfxml"])
def test_every_syntax_says_the_same(client: httpx.Client, form: str) -> None:
    """What machines read is the ontology, statement by statement."""
    answer = client.get("/ns", params={"format": form})
    said = rdf.parse(answer.content, rdf.syntax_named(form))[None]

    assert said == rdf.parse((ROOT / "drumlin.ttl").read_bytes(), rdf.TURTLE)[None]


@pytest.mark.parametrize(
    "path", ["/ns", "/ns?format=turtle", "/ns/shapes", "/ns/metrics", "/context/v1.jsonld", "/profiles/dcat/rules"]
)
def test_an_unchanged_document_is_not_sent_again(client: httpx.Client, path: str) -> None:
    """Each has an ETag and a time to keep it; asking with the ETag gives 304 and no body."""
    first = client.get(path)
    again = client.get(path, headers={"If-None-Match": first.headers["ETag"]})

    assert first.status_code == 200, first.text
    assert "max-age" in first.headers["Cache-Control"]
    assert (again.status_code, again.content) == (304, b"")


def test_representations_have_tags_of_their_own(client: httpx.Client) -> None:
    """A cache never gives Turtle for a page."""
    tags = {client.get("/ns", params={"format": form}).headers["ETag"] for form in ("html", "turtle", "jsonld")}

    assert len(tags) == 3


def test_the_context_is_the_file_and_asked_for_again_after_an_hour(client: httpx.Client) -> None:
    """Clients keep it for an hour, since a release may add terms."""
    answer = client.get("/context/v1.jsonld")

    assert json.loads(answer.content) == json.loads((ROOT / "context.jsonld").read_bytes())
    assert answer.headers["Cache-Control"] == "public, max-age=3600"
    assert answer.headers["Content-Type"] == "application/ld+json"


def test_the_graph_can_be_had_as_dcat(client: httpx.Client) -> None:
    """The profile of the sample cluster is a catalogue; its name is listed; another name is 404 with a hint."""
    assert {each["name"] for each in client.get("/profiles").json()} == {"dcat", "glaciation", "opentelemetry"}
    graph = rdflib.Graph().parse(data=client.get("/profiles/dcat").text, format="nt")
    missing = client.get("/profiles/dact")

    assert list(graph.subjects(RDF.type, DCAT.Catalog))
    assert list(graph.subjects(RDF.type, DCAT.DataService))
    assert missing.status_code == 404
    assert "dcat" in missing.json()["hint"]


def test_what_is_not_there_is_refused(client: httpx.Client) -> None:
    """An unknown part is a client's mistake; a media type that is not offered is 406."""
    unknown = client.get("/ns/Deploymnt")
    assert (unknown.status_code, unknown.json()["hint"]) == (404, "did you mean Deployment?")
    assert client.get("/ns", headers={"Accept": "image/png"}).status_code == 406
    assert client.get("/profiles/dcat", headers={"Accept": "image/png"}).status_code == 406
