"""Graphs with blank nodes: written, changed, removed and read again under the labels they came with."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pyoxigraph as ox
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import InvalidDocument
from drumlin.kg.rdf.syntax import by_graph, digest
from drumlin.kg.store.blank_nodes import replay
from drumlin.kg.store.delta import Delta
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.embedded.writer import BULK
from drumlin.kg.store.protocol import GraphWrite, Lines
from tests.thoroughness import examples

GRAPH = "http://example.org/g"
_NODES = st.sampled_from(["<http://a>", "<http://b>", "_:b0", "_:C1", "_:00ab", "_:5a5cfa64b2bb15b9a5f23eb8f0c0c2e3"])
_OBJECTS = _NODES | st.sampled_from(
    [
        '"x> _:b0 ."',
        '"_:b0"',
        '"b0"^^<urn:drumlin:blank>',
        '"a\\"\\n"@en',
        '"1"^^<http://www.w3.org/2001/XMLSchema#integer>',
    ]
)
LINES = st.frozensets(st.builds("{} <http://p> {} .".format, _NODES, _OBJECTS), max_size=12)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """An empty store."""
    opened = EmbeddedStore(tmp_path / "store")
    yield opened
    opened.close()


def _written(store: EmbeddedStore, lines: Lines | None, graph: str = GRAPH) -> None:
    store.apply([GraphWrite.of(graph, lines, "user")])


@settings(deadline=None, max_examples=examples(15), suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(states=st.lists(st.none() | LINES, min_size=1, max_size=5))
def test_any_run_of_writes_leaves_the_last_lines_here_and_in_a_copy(
    store: EmbeddedStore, states: list[Lines | None]
) -> None:
    """Labels are kept through additions and removals, in the store and in what follows its deltas."""
    copy = ox.Store()
    told: list[Delta] = []
    _written(store, None)
    store.follow_deltas(told.append)

    for state in states:
        _written(store, state)

    for delta in told:
        replay(copy, delta.update)
    held = store.read(GRAPH)
    assert (held.lines if held else None) == states[-1]
    assert by_graph(copy.dump(format=ox.RdfFormat.N_QUADS) or b"").get(GRAPH, frozenset()) == (
        states[-1] or frozenset()
    )
    assert held is None or held.entry.digest == digest(states[-1] or frozenset())


def test_a_store_that_is_opened_again_has_the_same_labels(tmp_path: Path) -> None:
    """What is recorded and what the engine holds agree after a restart."""
    lines = frozenset({"_:b1 <http://p> _:b2 .", '_:b2 <http://p> "x" .'})
    first = EmbeddedStore(tmp_path / "store")
    _written(first, lines)
    first.close()

    second = EmbeddedStore(tmp_path / "store")
    held = second.read(GRAPH)
    second.close()

    assert held is not None
    assert held.lines == lines


def test_many_new_graphs_at_once_keep_their_labels(store: EmbeddedStore) -> None:
    """Graphs with blank nodes do not take the bulk load, which would give them other labels."""
    lines = frozenset({"_:b1 <http://p> _:b2 ."})
    plain = frozenset({"<http://s> <http://p> 'x' .".replace("'", '"')})
    store.apply([GraphWrite.of(f"{GRAPH}/{n}", lines if n % 2 else plain, "user") for n in range(2 * BULK + 2)])

    held = store.read(f"{GRAPH}/1")
    assert held is not None
    assert held.lines == lines


@pytest.mark.parametrize("label", ["", "a b", "a>", "a.", "é", "x" * 65])
def test_a_label_that_is_not_plain_is_refused(store: EmbeddedStore, label: str) -> None:
    """A label can break neither a statement nor a string."""
    with pytest.raises(InvalidDocument):
        _written(store, frozenset({f"_:{label} <http://p> <http://o> ."}))
