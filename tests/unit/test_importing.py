"""Exports read back as they come: every graph once and whole, in bounded memory."""

from __future__ import annotations

import io
import tracemalloc
from collections.abc import Iterator

import pytest

from kg import exporting, importing
from kg.errors import InvalidDocument
from kg.rdf import JSONLD, NQUADS, TRIG, TURTLE, Lines, Syntax

ROOT = "https://kg.example/id/prod/-/node/n"


def graphs(count: int) -> Iterator[tuple[str, Lines]]:
    """Make graphs of five statements, whose texts need escapes."""
    for number in sorted(range(count), key=str):
        name = f"{ROOT}{number}"
        yield name, frozenset(f'<{name}> <http://p/{each}> "a\\"b\\n{number}" .' for each in range(5))


@pytest.mark.parametrize("syntax", [NQUADS, TRIG, JSONLD])
@pytest.mark.parametrize("window", [1, 12, importing.WINDOW])
def test_every_graph_comes_back_whole(monkeypatch: pytest.MonkeyPatch, syntax: Syntax, window: int) -> None:
    """However little is held at one time, an export gives its graphs back in order."""
    monkeypatch.setattr(importing, "WINDOW", window)
    monkeypatch.setattr(importing, "_DOCUMENTS", 7)
    data = b"".join(exporting.written(graphs(40), syntax))

    assert dict(importing.graphs(io.BytesIO(data), syntax)) == dict(graphs(40))


def test_statements_may_stand_in_any_order_within_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document sorted by its subjects is read as one sorted by its graphs; one whose graphs are torn too far is refused."""
    lines = sorted(
        b"".join(exporting.written(graphs(20), NQUADS)).splitlines(keepends=True), key=lambda line: line[::-1]
    )
    torn = b"".join(sorted(lines, key=lambda line: line.split(b" ")[1]))

    assert dict(importing.graphs(io.BytesIO(torn), NQUADS)) == dict(graphs(20))
    monkeypatch.setattr(importing, "WINDOW", 10)
    with pytest.raises(InvalidDocument, match="too far apart"):
        list(importing.graphs(io.BytesIO(torn), NQUADS))


def test_memory_does_not_grow_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file ten times as long takes no more memory."""
    monkeypatch.setattr(importing, "WINDOW", 500)

    def peak(count: int, syntax: Syntax) -> int:
        data = io.BytesIO(b"".join(exporting.written(graphs(count), syntax)))
        tracemalloc.start()
        assert sum(1 for _ in importing.graphs(data, syntax)) == count
        _, most = tracemalloc.get_traced_memory()
        tracemalloc.stop()
        return most

    for syntax in (NQUADS, JSONLD):
        assert peak(5000, syntax) < 2 * peak(600, syntax) + 1_000_000


@pytest.mark.parametrize(
    ("syntax", "data"),
    [
        (NQUADS, b"<http://s> <http://p> <http://o> .\n"),
        (NQUADS, b"<http://s> <http://p> "),
        (TRIG, b"<http://g> { <http://s> <http://p> } "),
        (
            JSONLD,
            b'{"@context":"https://w3id.org/drumlin/context/v1.jsonld","@graph":[\n{"id":"http://g","@graph":[]},\n',
        ),
        (JSONLD, b"nonsense"),
        (TURTLE, b""),
    ],
)
def test_what_is_no_export_is_refused(syntax: Syntax, data: bytes) -> None:
    """Statements outside a graph, half a document, a syntax without graphs: each is told as what it is."""
    with pytest.raises(InvalidDocument):
        list(importing.graphs(io.BytesIO(data), syntax))


def test_another_json_ld_document_is_read_whole() -> None:
    """A document that names its graphs but was not written by an export is read as well."""
    data = b'{"@context": "https://w3id.org/drumlin/context/v1.jsonld", "@graph": [{"id": "http://g", "@graph": [{"id": "http://s", "name": "a"}]}]}'

    assert dict(importing.graphs(io.BytesIO(data), JSONLD)) == {
        "http://g": frozenset({'<http://s> <https://w3id.org/drumlin/ns#name> "a" .'})
    }
