"""The running service keeps to its OpenAPI document, for requests that the document allows and for those that it forbids; its examples are true."""

from __future__ import annotations

import importlib.util
from collections.abc import Iterator
from importlib.machinery import SourceFileLoader
from typing import Any

import httpx
import msgspec
import pytest

from drumlin.api import answers
from tests.conformance import faults, operations
from tests.service.conftest import ROOT, SAMPLE, Service, serving, until_ready


@pytest.fixture(scope="module")
def own(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Service]:
    """A service of these tests alone, since they write what they like; with the sample cluster."""
    store = tmp_path_factory.mktemp("conformance")
    with serving("--store", str(store), "--source", f"dump:{SAMPLE}") as running:
        until_ready(running)
        yield running


def document(own: Service) -> dict[str, Any]:
    """Read the document."""
    found: dict[str, Any] = httpx.get(own.url + "/openapi.json").json()
    return found


def test_what_comes_is_in_the_document(own: Service) -> None:
    """Schemathesis finds no undocumented status, content type or schema and no 500; ``python -m tests.bench conformance`` looks longer."""
    found = [fault for each in operations(document(own), own.url) for fault in faults(each, examples=2, seconds=0.2)]

    assert found == [], "\n".join(found)


def test_a_fault_would_be_found(own: Service) -> None:
    """A status that the document does not name is told, with the request that shows it."""
    told = document(own)
    responses = told["paths"]["/subgraph/{id}"]["get"]["responses"]
    for status in ("200", "400", "404", "410"):
        del responses[status]
    operation = next(each for each in operations(told, own.url) if each.label == "GET /subgraph/{id}")

    assert any("Undocumented" in each and "curl" in each for each in faults(operation, examples=1))


def test_every_example_is_what_comes(own: Service) -> None:
    """Each recorded request is answered as recorded: status, media type, and the members of a JSON object; sent anew in the same order."""
    with httpx.Client(base_url=own.url, timeout=30) as http:
        for each in (each for each in answers.examples() if each.replayed):
            body = each.body if isinstance(each.body, str) else msgspec.json.encode(each.body)
            method = each.route.partition(" ")[0]
            sent = None if each.body is None else body
            answer = http.request(method, each.path, headers=each.headers, content=sent)
            media_type = answer.headers.get("Content-Type", "").partition(";")[0]
            assert (answer.status_code, media_type) == (each.status, each.media_type), (each.route, answer.text[:300])
            if answers.is_json(media_type) and isinstance(each.answer, dict):
                assert answer.json().keys() == each.answer.keys(), each.route


def test_every_route_has_an_example(own: Service) -> None:
    """Each route of the document has a recorded request, and its success an example, unless it is empty or bytes."""
    shown = {each.route for each in answers.examples()}
    for path, item in document(own)["paths"].items():
        for method, operation in item.items():
            if path.startswith("/queries/") and path != "/queries/classes":
                continue
            route = answers.SAVED_QUERY if path.startswith("/queries/") else f"{method.upper()} {path}"
            assert route in shown
            told = [each.get("content", {}) for status, each in operation["responses"].items() if status < "400"]
            recorded = [each for each in answers.examples() if each.route == route and each.answer is not None]
            assert not recorded or any("example" in each for content in told for each in content.values()), route
            body = operation.get("requestBody", {}).get("content", {})
            assert not body or answers.ARROW in body or any("example" in each for each in body.values()), route


def test_the_table_of_answers_is_that_of_the_routes(own: Service) -> None:
    """No route is missing in the table, and none is in it that is not there."""
    there = {f"{method.upper()} {path}" for path, item in document(own)["paths"].items() for method in item}
    saved = {each for each in there if each.startswith("GET /queries/")}

    assert set(answers.ANSWERS) == there - saved | {answers.SAVED_QUERY}


def test_the_reference_is_current(own: Service) -> None:
    """docs/rest-reference.md is what the document of the running service makes; else run PYTHONPATH=. scripts/rest-reference."""
    loader = SourceFileLoader("rest_reference", str(ROOT / "scripts" / "rest-reference"))
    spec = importlib.util.spec_from_loader(loader.name, loader)
    assert spec
    module = importlib.util.module_from_spec(spec)
    loader.exec_module(module)

    assert (ROOT / "docs" / "rest-reference.md").read_text(encoding="utf-8") == module.reference(document(own))
