"""The same document through every door: the same verdict, the same bytes, the same digest."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import httpx
import pytest

from drumlin.kg.errors import DrumlinError
from drumlin.kg.graphs.ingest import Statements, accept
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import lines
from drumlin.kg.rdf.jsonld_loader import inline
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, parse
from drumlin.kg.store.embedded.store import EmbeddedStore
from tests.service.conftest import BASE, Service, drumlin_asks, serving

GRAPH = f"{BASE}/id/prod/shop/deployment/web"
SHORT = GRAPH.removeprefix(f"{BASE}/id/")
WEB = {"id": GRAPH, "type": "Deployment", "name": "web", "namespace": "shop"}
RUN = {"id": f"{GRAPH}/run/1", "type": "Run", "startedAt": "2026-11-27T21:49:43+00:00"}
OTHER = {"@id": f"{BASE}/id/prod/shop/pod/x", "https://x.example/p": 1}

VALID: dict[str, dict[str, Any]] = {
    "plain": WEB,
    "numbers": {**WEB, "cpuRequest": "0.250", "replicas": 3},
    "escapes": {**WEB, "version": 'a"b\\c\n\t\u007f\u2028é😀', "label": ["team=ü", "a=b"]},
    "nested": {**WEB, "runs": [RUN]},
    "foreign words": {**WEB, "https://x.example/p": [{"@value": "x", "@language": "EN-gb"}, True, 1.5, {"@id": "urn:x:y"}]},
    "own context": {"@context": {"n": "https://w3id.org/drumlin/ns#name"}, "@id": GRAPH, "@type": "https://w3id.org/drumlin/ns#Deployment", "n": "web",
                    "https://w3id.org/drumlin/ns#namespace": "shop"},
}  # fmt: skip
INVALID: dict[str, dict[str, Any]] = {
    "phase": {**WEB, "phase": "Weird"},
    "negative": {**WEB, "replicas": -3},
    "undeclared": {**WEB, "https://w3id.org/drumlin/ns#colour": "red"},
    "no class": {"id": GRAPH, "name": "web"},
    "another subject": {**WEB, "@included": [OTHER]},
    "blank node": {**WEB, "https://x.example/p": {"https://x.example/q": 1}},
    "ill-typed": {**WEB, "cpuRequest": "many"},
}


def _nquads(document: dict[str, Any]) -> str:
    """The document as N-Quads of its graph, as a processor reads it: not through the doors that are compared."""
    found = parse(inline(json.dumps(document).encode()), JSONLD, base=GRAPH)[None]
    return "".join(f"{line[:-1]}<{GRAPH}> .\n" for line in sorted(found))


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """An empty service."""
    with serving("--store", str(tmp_path_factory.mktemp("doors"))) as running:
        yield running


@pytest.fixture
def http(service: Service) -> Iterator[httpx.Client]:
    """A client of it, with the graph gone for good afterwards."""
    with httpx.Client(base_url=service.url, timeout=30) as client:
        yield client
        client.post("/subgraphs", content=json.dumps({"op": "remove", "id": SHORT}))


def put(http: httpx.Client, document: dict[str, Any], _: Path) -> bool:
    """PUT of JSON-LD."""
    return http.put(f"/subgraph/{SHORT}", json=document, headers={"Content-Type": "application/ld+json"}).is_success


def put_triples(http: httpx.Client, document: dict[str, Any], _: Path) -> bool:
    """PUT of N-Quads."""
    headers = {"Content-Type": NQUADS.media_type}
    return http.put(f"/subgraph/{SHORT}", content=_nquads(document), headers=headers).is_success


def post(http: httpx.Client, document: dict[str, Any], _: Path) -> bool:
    """POST of a new graph."""
    return http.post(f"/subgraph/{SHORT}", json=document, headers={"Content-Type": "application/ld+json"}).is_success


def patch(http: httpx.Client, document: dict[str, Any], _: Path) -> bool:
    """PATCH of a graph that is there: the ground update that makes it say what the document does."""
    assert put(http, WEB, _)
    before, after = (set(_nquads(each).split("\n")) - {""} for each in (WEB, document))
    gone, come = (
        " ".join(line.replace(f" <{GRAPH}> .", " .") for line in found) for found in (before - after, after - before)
    )
    update = f"DELETE DATA {{ {gone} }} ; INSERT DATA {{ {come} }}"
    headers = {"Content-Type": "application/sparql-update"}
    return http.patch(f"/subgraph/{SHORT}", content=update.encode(), headers=headers).is_success


def bulk(http: httpx.Client, document: dict[str, Any], _: Path) -> bool:
    """One line of many."""
    answer = http.post("/subgraphs", content=json.dumps({"op": "put", "id": SHORT, "document": document}))
    return "problem" not in answer.json()


def atomic(http: httpx.Client, document: dict[str, Any], _: Path) -> bool:
    """One line of an atomic request."""
    line = json.dumps({"op": "put", "id": SHORT, "document": document})
    return http.post("/subgraphs", params={"atomic": "true"}, content=line).is_success


def store(http: httpx.Client, document: dict[str, Any], _: Path) -> bool:
    """The Graph Store Protocol."""
    headers = {"Content-Type": "application/ld+json"}
    return http.put("/store", params={"graph": GRAPH}, json=document, headers=headers).is_success


def update(http: httpx.Client, document: dict[str, Any], _: Path) -> bool:
    """SPARQL Update."""
    body = "".join(line.replace(f" <{GRAPH}> .", " .") for line in _nquads(document).split("\n"))
    text = f"INSERT DATA {{ GRAPH <{GRAPH}> {{ {body} }} }}"
    headers = {"Content-Type": "application/sparql-update"}
    return http.post("/sparql/update", content=text.encode(), headers=headers).is_success


def imported(http: httpx.Client, document: dict[str, Any], directory: Path) -> bool:
    """``drumlin import`` of an export."""
    file = directory / "export.nq"
    file.write_text(_nquads(document), encoding="utf-8")
    return drumlin_asks("import", str(file), "--base", BASE, "--url", str(http.base_url)).returncode == 0


Door = Callable[[httpx.Client, dict[str, Any], Path], bool]
DOORS: list[Door] = [put, put_triples, post, patch, bulk, atomic, store, update, imported]


def _expected(document: dict[str, Any]) -> tuple[str, str] | None:
    """The text and digest that the door of exporters gives, to documents in our words as they render them; None when it refuses."""
    rendered = "id" in document and "@included" not in document and not any("://" in key for key in document)
    found = lines(document) if rendered else None
    try:
        said = found or parse(inline(json.dumps(document).encode()), JSONLD, base=GRAPH)[None]
        content = accept(Statements(said), GRAPH, Iris(BASE))
    except DrumlinError:
        return None
    return content.text, content.digest


@pytest.mark.parametrize("name", VALID)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_a_valid_document_is_the_same_through_every_door(
    http: httpx.Client, door: Door, name: str, tmp_path: Path
) -> None:
    """What is written has the same statements, byte for byte, and the same digest."""
    expected = _expected(VALID[name])
    assert expected is not None

    assert door(http, VALID[name], tmp_path)

    answer = http.get(f"/subgraph/{SHORT}", headers={"Accept": "application/n-triples"})
    assert answer.text.removesuffix("\n") == expected[0]
    assert answer.headers["ETag"].startswith(f'"{expected[1]}-')


@pytest.mark.parametrize("name", INVALID)
@pytest.mark.parametrize("door", DOORS, ids=lambda door: door.__name__)
def test_an_invalid_document_is_refused_at_every_door(
    http: httpx.Client, door: Door, name: str, tmp_path: Path
) -> None:
    """The verdict does not depend on the way, and nothing of it is written."""
    assert _expected(INVALID[name]) is None

    assert not door(http, INVALID[name], tmp_path)

    kept = http.get(f"/subgraph/{SHORT}", headers={"Accept": "application/n-triples"})
    if door is patch:
        assert kept.text.removesuffix("\n") == (_expected(WEB) or ("",))[0]
    else:
        assert kept.status_code == 404


@pytest.mark.parametrize("name", [*VALID, *INVALID])
def test_an_import_into_a_store_directory_gives_the_same_verdict(name: str, tmp_path: Path) -> None:
    """Without a service the rules are the same: what breaks one is listed, and nothing of it is written."""
    document = {**VALID, **INVALID}[name]
    file, place = tmp_path / "export.nq", tmp_path / "store"
    file.write_text(_nquads(document), encoding="utf-8")

    done = drumlin_asks("import", str(file), "--base", BASE, "--store", str(place), "-o", "json")

    expected = _expected(document)
    with closing(EmbeddedStore(place)) as opened:
        stored = opened.read(GRAPH)
    assert (stored and (stored.content.text, stored.content.digest)) == expected
    assert done.returncode == (0 if expected else 3)
    assert [each["graph"] for each in json.loads(done.stdout)["left"]] == ([] if expected else [GRAPH])
