"""Exports read back as they come: every graph once and whole, in bounded memory."""

from __future__ import annotations

import io
import json
import tracemalloc
from collections.abc import Iterator

import pytest

from drumlin.kg.errors import InvalidDocument
from drumlin.kg.graphs import dump, loader
from drumlin.kg.rdf import framing, jsonld, jsonld_loader
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, TRIG, TURTLE, Lines, Syntax

ROOT = "https://kg.example/id/prod/-/node/n"
SERVED = "https://kg.example/context/v1.jsonld"


def graphs(count: int) -> Iterator[tuple[str, Lines]]:
    """Make graphs of five statements, whose texts need escapes."""
    for number in sorted(range(count), key=str):
        name = f"{ROOT}{number}"
        yield name, frozenset(f'<{name}> <http://p/{each}> "a\\"b\\n{number}" .' for each in range(5))


@pytest.mark.parametrize("syntax", [NQUADS, TRIG, JSONLD])
@pytest.mark.parametrize("window", [1, 12, loader.WINDOW])
def test_every_graph_comes_back_whole(monkeypatch: pytest.MonkeyPatch, syntax: Syntax, window: int) -> None:
    """However little is held at one time, an export gives its graphs back in order."""
    monkeypatch.setattr(loader, "WINDOW", window)
    monkeypatch.setattr(loader, "_DOCUMENTS", 7)
    data = b"".join(dump.written(graphs(40), syntax))

    assert dict(loader.graphs(io.BytesIO(data), syntax)) == dict(graphs(40))


def test_statements_may_stand_in_any_order_within_the_window(monkeypatch: pytest.MonkeyPatch) -> None:
    """A document sorted by its subjects is read as one sorted by its graphs; one whose graphs are torn too far is refused."""
    lines = sorted(b"".join(dump.written(graphs(20), NQUADS)).splitlines(keepends=True), key=lambda line: line[::-1])
    torn = b"".join(sorted(lines, key=lambda line: line.split(b" ")[1]))

    assert dict(loader.graphs(io.BytesIO(torn), NQUADS)) == dict(graphs(20))
    monkeypatch.setattr(loader, "WINDOW", 10)
    with pytest.raises(InvalidDocument, match="too far apart"):
        list(loader.graphs(io.BytesIO(torn), NQUADS))


def test_memory_does_not_grow_with_the_file(monkeypatch: pytest.MonkeyPatch) -> None:
    """A file ten times as long takes no more memory."""
    monkeypatch.setattr(loader, "WINDOW", 500)

    def peak(count: int, syntax: Syntax) -> int:
        data = io.BytesIO(b"".join(dump.written(graphs(count), syntax)))
        tracemalloc.start()
        assert sum(1 for _ in loader.graphs(data, syntax)) == count
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
        list(loader.graphs(io.BytesIO(data), syntax))


@pytest.mark.parametrize(
    "context",
    [
        f'"{jsonld.CONTEXT_IRI}"',
        f'"{SERVED}"',
        jsonld.inline(),
        f"[{jsonld.inline()}]",
        '{"called":"https://w3id.org/drumlin/ns#name","id":"@id"}',
    ],
)
def test_an_export_is_read_by_the_context_that_it_has(monkeypatch: pytest.MonkeyPatch, context: str) -> None:
    """Each piece is read with the context of the first line, by either name or as it stands there, and nothing is read whole."""
    monkeypatch.setattr(loader, "_DOCUMENTS", 2)
    sizes: list[int] = []
    inline = jsonld_loader.inline
    monkeypatch.setattr(
        jsonld_loader, "inline", lambda data, **more: (sizes.append(len(data)), inline(data, **more))[1]
    )
    key = "called" if "called" in context else "name"
    rows = ",\n".join(f'{{"id":"http://g/{each}","@graph":[{{"id":"http://s","{key}":"a"}}]}}' for each in range(9))
    data = f'{{"@context":{context},"@graph":[\n{rows}\n]}}\n'.encode()

    found = dict(loader.graphs(io.BytesIO(data), JSONLD, SERVED))

    said = frozenset({'<http://s> <https://w3id.org/drumlin/ns#name> "a" .'})
    assert found == {f"http://g/{each}": said for each in range(9)}
    assert len(sizes) == 5


def test_a_first_line_that_says_more_is_no_head() -> None:
    """What stands beside the context before the graphs is read once, with the document; half a document is refused."""
    head = '{"@context":{"a":{"@id":"http://a"}},"x":{"a":1},"@graph":[\n'
    deep = f'{{"@context":{{{"[" * 100_000}}},"@graph":[\n'

    for data in (head, deep):
        with pytest.raises(InvalidDocument):
            list(loader.graphs(io.BytesIO(data.encode()), JSONLD))


@pytest.mark.parametrize("most", [20_000, 0])
def test_a_framed_export_keeps_the_meaning_of_its_terms(monkeypatch: pytest.MonkeyPatch, most: int) -> None:
    """In a caller's own terms an export carries those, and what is too large to be framed says the same without them."""
    monkeypatch.setattr(framing, "MAX_LINES", most)
    frame = json.dumps({"@context": {"zero": "http://p/0"}, "@id": f"{ROOT}0"})
    data = b"".join(dump.written(graphs(1), JSONLD, frame))

    assert json.loads(data)["@context"] == {"zero": "http://p/0"}
    assert dict(loader.graphs(io.BytesIO(data), JSONLD)) == dict(graphs(1))


def test_another_json_ld_document_is_read_whole() -> None:
    """A document that names its graphs but was not written by an export is read as well."""
    data = b'{"@context": "https://w3id.org/drumlin/context/v1.jsonld", "@graph": [{"id": "http://g", "@graph": [{"id": "http://s", "name": "a"}]}]}'

    assert dict(loader.graphs(io.BytesIO(data), JSONLD)) == {
        "http://g": frozenset({'<http://s> <https://w3id.org/drumlin/ns#name> "a" .'})
    }
