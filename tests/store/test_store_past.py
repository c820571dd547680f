"""What graphs were: changes of the log undone, after any writes, prunings and removals, compared with a list of what was written."""

from __future__ import annotations

import sqlite3
import tempfile
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg.errors import EventsGone, InvalidInput, StoreDamaged, TooLarge
from drumlin.kg.rdf.syntax import text_of
from drumlin.kg.store.embedded import graph_history
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.graph_text import pack_patch, unpack_patch
from drumlin.kg.store.protocol import GraphWrite
from tests.store_behaviours import NOON, A, B, line, remove, write

LINES = st.frozensets(st.text(max_size=12).map(lambda text: line(A, text.replace("\n", "n"))), max_size=6)
WRITES = st.lists(
    st.tuples(st.sampled_from([A, B]), st.one_of(st.none(), st.frozensets(st.integers(0, 9), max_size=4))),
    min_size=1,
    max_size=14,
)


@given(before=LINES, after=LINES)
def test_a_patch_gives_back_what_was(before: frozenset[str], after: frozenset[str]) -> None:
    """Whatever both texts are, also empty ones."""
    assert unpack_patch(pack_patch(text_of(before), text_of(after)), text_of(after)) == text_of(before)


@settings(max_examples=12, deadline=None)
@given(written=WRITES)
def test_every_graph_is_found_as_it_was_at_every_generation(written: list[tuple[str, frozenset[int] | None]]) -> None:
    """Created, replaced, removed and created again: each state is found by generation and by time, and each change is listed."""
    clock = [NOON]
    with tempfile.TemporaryDirectory() as folder, closing(EmbeddedStore(Path(folder), clock=lambda: clock[0])) as store:
        states: list[dict[str, frozenset[str] | None]] = [{A: None, B: None}]
        for graph, values in written:
            clock[0] += timedelta(seconds=2)
            lines = None if values is None else frozenset(line(graph, value) for value in values)
            store.apply([GraphWrite.of(graph, lines, "user")])
            if store.generation == len(states):
                states.append({**states[-1], graph: lines})
        for generation, state in enumerate(states):
            for graph, lines in state.items():
                found = store.read_at(graph, generation)
                assert (None if found is None else found.lines) == lines
        for graph in (A, B):
            changes = [each.generation for each in store.log(0) if each.graph == graph]
            assert [each.generation for each in store.changes_of(graph, 1 << 62)] == changes[::-1]
            assert [each.generation for each in store.changes_of(graph, 3)] == [n for n in changes[::-1] if n < 3]
        for entry in store.log(0):
            assert store.generation_at(entry.at) == entry.generation
            assert store.generation_at(entry.at - timedelta(seconds=1)) == entry.generation - 1


def test_the_past_ends_where_the_log_was_given_up(tmp_path: Path) -> None:
    """What is older is refused with how far the log reaches, what is not written yet as such; what follows is found."""
    with closing(EmbeddedStore(tmp_path, clock=lambda: NOON)) as store:
        for number in range(6):
            store.apply([write(A, number)])
        with store._writer.lock:
            store._changes.give_up(3, 6)
            store._changes.sweep((0, ""), 100, 6)
        assert [store.read_at(A, n).lines for n in (3, 4, 6)] == [{line(A, n)} for n in (2, 3, 5)]
        with pytest.raises(EventsGone, match="reaches back to 3") as gone:
            store.read_at(A, 2)
        assert gone.value.detail == {"oldest": 3, "newest": 6}
        with pytest.raises(InvalidInput, match="the newest is 6"):
            store.read_at(A, 7)
        with pytest.raises(EventsGone, match="begins at"):
            store.generation_at(NOON - timedelta(days=1))
        with pytest.raises(InvalidInput, match="zone"):
            store.generation_at(datetime(2026, 1, 1))  # noqa: DTZ001 - the one that is refused
        assert store.generation_at(datetime(2027, 1, 1, tzinfo=UTC)) == 6
        assert store.read_at(B, 5) is None
        store.apply([write(B, 1)])
        unchanged = store.read_at(A, 7)
        assert (unchanged.entry.generation, unchanged.entry.changed, unchanged.lines) == (7, NOON, {line(A, 5)})
        with store._writer.lock:
            store._changes.give_up(7, 7)
        with pytest.raises(EventsGone, match="after generation 7"):
            store.generation_at(NOON)
        assert store.read_at(A, 7).lines == {line(A, 5)}


def test_what_an_earlier_version_wrote_is_not_known_before_its_last_change(tmp_path: Path) -> None:
    """A change without a patch cannot be undone: it is said, and never answered with what came later."""
    with closing(EmbeddedStore(tmp_path, clock=lambda: NOON)) as store:
        store.apply([write(A, 1)])
        store.apply([write(A, 2)])
    with closing(sqlite3.connect(tmp_path / "changes.sqlite")) as log, log:
        log.execute("UPDATE log SET earlier = NULL, undo = NULL")
    with closing(EmbeddedStore(tmp_path, clock=lambda: NOON)) as store:
        store.apply([write(A, 3)])
        assert store.read_at(A, 2).lines == {line(A, 2)}
        with pytest.raises(EventsGone, match="an earlier version"):
            store.read_at(A, 1)
        assert [each.generation for each in store.changes_of(A, 9)] == [3, 2, 1]


def test_a_graph_that_changed_too_often_is_not_gone_back(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The number of changes that one request undoes, or lists, is bounded, and said."""
    monkeypatch.setattr(graph_history, "MOST", 3)
    with closing(EmbeddedStore(tmp_path, clock=lambda: NOON)) as store:
        for number in range(6):
            store.apply([write(A, number)])
        assert store.read_at(A, 3).lines == {line(A, 2)}
        with pytest.raises(TooLarge, match="more than 3 times"):
            store.read_at(A, 2)
        with pytest.raises(TooLarge):
            list(store.changes_of(A, 9))


def test_a_patch_that_is_damaged_is_no_past(tmp_path: Path) -> None:
    """What is found must have the digest that the log has of it."""
    with closing(EmbeddedStore(tmp_path, clock=lambda: NOON)) as store:
        store.apply([write(A, 1), write(B, 1)])
        store.apply([write(A, 2)])
        store.apply([remove(B)])
        with closing(sqlite3.connect(tmp_path / "changes.sqlite")) as log, log:
            log.execute("UPDATE log SET undo = ? WHERE generation = 2", (pack_patch(line(A, 7), line(A, 2)),))
            log.execute("UPDATE log SET undo = x'00' WHERE generation = 3")
        for graph in (A, B):
            with pytest.raises(StoreDamaged):
                store.read_at(graph, 1)
