"""Graphs read from the text beside their entry: it is the same graph, it spares the engine, and one of another digest is not believed."""

from __future__ import annotations

import sqlite3
import zlib
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import lines_in, text_of
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.embedded import writer
from drumlin.kg.store.embedded.consistency import check
from drumlin.kg.store.embedded.engine import EmbeddedEngine
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.graph_text import pack, unpack
from drumlin.kg.store.protocol import GraphEntry, GraphWrite, Lines, StoredGraph

BASE = "https://kg.example"


def name(number: int) -> str:
    """Name an entity's graph."""
    return f"{BASE}/id/prod/shop/pod/p{number}"


def said(number: int, value: str) -> Lines:
    """Return what a graph says."""
    return frozenset([f'<{name(number)}> <https://w3id.org/drumlin/ns#name> "{value}" .'])


def put(store: EmbeddedStore, value: str, *numbers: int) -> None:
    """Write some graphs at once."""
    store.apply([GraphWrite.of(name(each), said(each, value), "user") for each in numbers])


def held(store: EmbeddedStore, number: int) -> Lines | None:
    """Read what a graph holds."""
    found = store.read(name(number))
    return found and found.lines


@pytest.fixture
def directory(tmp_path: Path) -> Path:
    """Make a store that holds five graphs, some bulk-loaded, one written over, and is closed."""
    with pytest.MonkeyPatch.context() as patch, closing(EmbeddedStore(tmp_path / "store")) as store:
        patch.setattr(writer, "BULK", 3)
        put(store, "first", 1)
        put(store, "loaded", 2, 3, 4, 5)
        put(store, "second", 1)
    return tmp_path / "store"


@pytest.fixture
def reads(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the graphs that the engine is asked for."""
    asked: list[str] = []
    real = EmbeddedEngine.lines

    def lines(engine: EmbeddedEngine, graph: str) -> Lines:
        asked.append(graph)
        return real(engine, graph)

    monkeypatch.setattr(EmbeddedEngine, "lines", lines)
    return asked


def spoil(directory: Path, statement: str) -> None:
    """Change the change log's file behind the store's back."""
    with closing(sqlite3.connect(directory / "changes.sqlite")) as log, log:
        log.execute(statement)


@given(st.frozensets(st.text(st.characters(codec="utf-8", exclude_characters="\n"), min_size=1)))
def test_a_packed_graph_is_the_same_graph(lines: Lines) -> None:
    """Whatever lines are packed come back, from what an earlier version packed too, and their order makes no difference."""
    text = text_of(lines)
    assert unpack(pack(text)) == unpack(zlib.compress(text.encode())) == text  # stores of before hold it deflated
    assert lines_in(text) == lines
    assert text_of(frozenset(sorted(lines, reverse=True))) == text


@given(st.frozensets(st.text("ab", min_size=1)), st.text("ab", min_size=1))
def test_a_stored_graph_has_its_lines_and_no_parts_of_them(lines: Lines, line: str) -> None:
    """What is looked for in the text is a whole line."""
    entry = GraphEntry("https://kg.example/id/x", "", "user", 1, datetime.now(UTC))
    stored = StoredGraph(entry, GraphContent.of_canonical(lines))

    assert stored.lines == lines
    assert (line in stored) == (line in lines)


def test_graphs_are_read_without_the_engine(directory: Path, reads: list[str]) -> None:
    """Single writes and bulk loads leave their text, which another life of the store reads and compares with."""
    with closing(EmbeddedStore(directory)) as store:
        assert held(store, 1) == said(1, "second")
        assert held(store, 5) == said(5, "loaded")
        put(store, "third", 5)
        assert held(store, 5) == said(5, "third")
    assert reads == []


@pytest.mark.parametrize("spoiling", ["UPDATE texts SET digest = 'of another'", "DELETE FROM texts"])
def test_the_engine_is_asked_where_no_text_of_the_digest_is(directory: Path, reads: list[str], spoiling: str) -> None:
    """A store of before reads and writes as ever."""
    spoil(directory, spoiling)
    with closing(EmbeddedStore(directory)) as store:
        assert held(store, 1) == said(1, "second")
        put(store, "third", 5)
        assert held(store, 5) == said(5, "third")
    assert reads == [name(1), name(5)]


def test_graphs_are_read_together_where_some_have_no_text(directory: Path) -> None:
    """A store of before gives several graphs in one read, those without a text from the engine."""
    spoil(directory, f"DELETE FROM texts WHERE graph = '{name(2)}'")
    with closing(EmbeddedStore(directory)) as store:
        found = store.read_each([name(each) for each in range(4)])
    assert {graph: each.lines for graph, each in found.items()} == {
        name(1): said(1, "second"),
        name(2): said(2, "loaded"),
        name(3): said(3, "loaded"),
    }


def test_a_removed_graph_leaves_no_text(directory: Path) -> None:
    """Removing takes the text along, and what is written again is read again."""
    with closing(EmbeddedStore(directory)) as store:
        store.apply([GraphWrite.of(name(1), None, "user")])
        with closing(sqlite3.connect(directory / "changes.sqlite")) as log:
            assert log.execute("SELECT count(*) FROM texts").fetchone() == (4,)
        put(store, "again", 1)
        assert held(store, 1) == said(1, "again")


def test_a_check_finds_a_text_that_says_something_else(directory: Path) -> None:
    """What is read must be what is queried: a text that differs from the engine's quads is a fault."""
    with closing(EmbeddedStore(directory)) as store:
        spoil(directory, f"UPDATE texts SET packed = (SELECT packed FROM texts WHERE graph = '{name(2)}')")
        with store.snapshot() as snapshot:
            found = check(snapshot, Iris(BASE)).faults["differs"]
    assert found.examples == [name(each) for each in (1, 3, 4, 5)]
