"""The one door in: what a reader has sorted by subject is judged as it is, and gives the same content as the statements alone."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from drumlin.kg.errors import DrumlinError, ShapeViolation
from drumlin.kg.graphs.ingest import Statements, accept
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld
from drumlin.kg.validation import validate

FIXTURES = sorted((Path(__file__).parents[1] / "golden" / "shapes").glob("*.jsonld"))
IRIS = Iris("https://kg.example")


def outcome(said: Statements, graph: str) -> Any:
    """Return the content that is accepted, or what is refused and why."""
    try:
        return accept(said, graph, IRIS).text
    except ShapeViolation as error:
        return error.violations
    except DrumlinError as error:
        return type(error), str(error)


@pytest.mark.parametrize("path", FIXTURES, ids=lambda path: path.name)
def test_the_facts_of_a_reader_change_no_verdict(path: Path) -> None:
    """Valid or not, a document has the content or the report that its statements have without their facts."""
    document = json.loads(path.read_bytes())
    try:
        said = Statements(*jsonld.read(document))
    except (DrumlinError, TypeError):  # keywords and the like: no renderer of ours writes it
        return
    graph = IRIS.entity(document["id"])

    assert outcome(said, graph) == outcome(Statements(said.lines), graph)


def test_what_a_reader_has_sorted_is_not_taken_apart_again(monkeypatch: pytest.MonkeyPatch) -> None:
    """A valid document of ours is judged by the facts of its reader: nothing splits the lines that were just written."""
    taken: list[object] = []
    monkeypatch.setattr(validate, "facts_of", taken.append)
    monkeypatch.setattr(validate, "terms", taken.append)
    graph = "https://kg.example/id/prod/shop/deployment/web"
    document = {"id": graph, "type": "Deployment", "name": "web", "namespace": "shop", "replicas": 3}

    content = accept(Statements(*jsonld.read(document)), graph, IRIS)
    assert content.lines == jsonld.lines(document)
    assert taken == []
