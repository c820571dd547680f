"""The W3C's cases for SPARQL 1.1 Protocol and Graph Store Protocol, sent to a listening service, and some suites of SPARQL 1.1 too.

The cases speak of ``/sparql/`` and ``/gsp``, which stand for the endpoints of whoever is tested: here ``/sparql``, ``/sparql/update`` and
``/store``. Each case begins with an empty foreign part of the store and with the graphs that it needs.
"""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from typing import Any

import httpx
import pyoxigraph as ox
import pytest

from tests.service.conftest import BASE, ROOT, serving
from tests.w3c.__main__ import outcome
from tests.w3c.manifests import cases
from tests.w3c.service import ServiceTarget

CASES = ROOT.parent / "shared" / "data" / "w3c" / "protocol-gsp-cases.json"
FOLDER = CASES.parent
SKIPPED: dict[str, str] = {}
"""Name of a case → why it cannot pass."""

_STATUS = {
    "OK": {200},
    "Created": {201},
    "NoContent": {204},
    "NotFound": {404},
    "StatusCode2xx": set(range(200, 300)),
    "StatusCode3xx": set(range(300, 400)),
    "StatusCode4xx": set(range(400, 500)),
}


def _cases() -> list[Any]:
    if not CASES.exists():
        if os.environ.get("CI") == "true":
            raise AssertionError(f"{CASES} is missing")
        return [pytest.param(None, marks=pytest.mark.skip(reason="the W3C's cases are not at ../shared/data/w3c"))]
    cases = json.loads(CASES.read_text(encoding="utf-8"))
    return [
        pytest.param(
            case,
            id=case["name"],
            marks=[pytest.mark.skip(reason=SKIPPED[case["name"]])] if case["name"] in SKIPPED else [],
        )
        for case in cases
    ]


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Iterator[httpx.Client]:
    """A client of a service that listens, with a store of its own."""
    store = tmp_path_factory.mktemp("store")
    with serving("--store", str(store)) as service, httpx.Client(base_url=service.url, timeout=60) as client:
        yield client


def test_suites_end_as_in_the_engine(client: httpx.Client) -> None:
    """The suites of results that stand beside the repository pass over HTTP; ``make conformance`` runs all of clones."""
    if not FOLDER.joinpath("sparql11").exists():
        pytest.skip("the W3C's suites are not at ../shared/data/w3c")
    service = ServiceTarget(client, BASE)
    found = {case.name: outcome(case, service) for case in cases(FOLDER) if "Update" not in case.kind}

    assert len(found) == 10
    assert {name: failure for name, failure in found.items() if failure} == {}


def _path(request: dict[str, Any], location: str | None) -> str:
    path: str = request["path"].replace("$LOCATION$", location or "$LOCATION$")
    if path.startswith("/gsp"):
        return "/store" + path.removeprefix("/gsp")
    is_update = request["headers"].get("content-type", "").startswith("application/sparql-update") or (
        (request["body"] or "").startswith("update=")
    )
    return path.replace("/sparql/", "/sparql/update" if is_update else "/sparql", 1)


def _send(client: httpx.Client, request: dict[str, Any], location: str | None) -> httpx.Response:
    body = request["body"]
    return client.request(
        request["method"],
        _path(request, location),
        headers=request["headers"],
        content=None if body is None else body.encode(request["body_encoding"] or "utf-8"),
    )


def _isomorphic(first: bytes, second: bytes, base: str) -> bool:
    found = [ox.Dataset(ox.parse(each, format=ox.RdfFormat.TURTLE, base_iri=base)) for each in (first, second)]
    for each in found:
        each.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return found[0] == found[1]


def _holds(answer: httpx.Response, expected: dict[str, Any]) -> None:
    assert answer.status_code in set().union(*(_STATUS[each] for each in expected["status"])), answer.text
    media_type = answer.headers.get("content-type", "").partition(";")[0]
    for value in expected["boolean"]:
        assert answer.json()["boolean"] is (value == "true")
    for kind in expected["format"]:
        if kind == "RDF":
            assert media_type in ("text/turtle", "application/ld+json", "application/n-triples", "application/rdf+xml")
        else:
            assert media_type == "application/sparql-results+json"
            assert ("boolean" in answer.json()) == (kind == "boolean")
    for name, value in expected["headers"].items():
        assert answer.headers[name] == value
    if expected["rdf_body"] is not None:
        assert _isomorphic(answer.content, expected["rdf_body"].encode(), BASE)


@pytest.mark.parametrize("case", _cases())
def test_a_case_of_the_w3c_passes(client: httpx.Client, case: dict[str, Any]) -> None:
    """Every request of the case gets the status, headers and content that the suite expects."""
    assert client.delete("/store").status_code == 204
    for graph in case["preload"]:
        content = (FOLDER / graph["file"]).read_bytes()
        loaded = client.put(
            "/store",
            params={"graph": graph["graph"]},
            content=content,
            headers={"content-type": "application/n-triples"},
        )
        assert loaded.status_code == 201, loaded.text
    location = None
    for request in case["requests"]:
        answer = _send(client, request, location)
        location = answer.headers.get("location", location)
        _holds(answer, request["expect"])
