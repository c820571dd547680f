"""What the embedded store promises: every guarantee of ``kg.store.protocol`` (``tests.store_behaviours``), and what is its own."""

from __future__ import annotations

import sqlite3
import subprocess
import sys
import threading
import traceback
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from drumlin.kg.errors import (
    DrumlinError,
    GraphOwned,
    InvalidDocument,
    PreconditionFailed,
    QueryRejected,
    StoreFull,
    StoreUnavailable,
    UnsupportedSyntax,
)
from drumlin.kg.store.delta import Delta
from drumlin.kg.store.embedded import engine_applier, writer
from drumlin.kg.store.embedded.change_log import ChangeLog
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.embedded.wal import Wal
from drumlin.kg.store.embedded.writer import Batch
from drumlin.kg.store.protocol import GraphWrite, Store, Written
from tests.store_behaviours import (
    BEHAVIOURS,
    JSON,
    NOON,
    A,
    B,
    answered,
    line,
    read_increment_write_loses_nothing,
    remove,
    values,
    write,
)
from tests.waiting import until


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Open a store in a directory of its own."""
    opened = EmbeddedStore(tmp_path / "store", clock=lambda: NOON)
    yield opened
    opened.close()


# -- the protocol ---------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("behaviour", BEHAVIOURS, ids=lambda each: each.__name__)
def test_every_promise_is_kept(store: EmbeddedStore, behaviour: Callable[[Store], None]) -> None:
    """Each guarantee of the protocol holds; the function's own docstring says which."""
    behaviour(store)


def test_read_increment_write_loses_nothing(store: EmbeddedStore) -> None:
    """Writers that each read, add one and write with ``expected`` never lose an increment."""
    read_increment_write_loses_nothing(store, store)


def test_an_iri_that_only_the_engine_finds_illegal_is_refused(store: EmbeddedStore) -> None:
    """What looks like a statement and is none is told as the document's fault; nothing is half written."""
    with pytest.raises(InvalidDocument):
        store.apply([write(B, 1), GraphWrite.of(A, frozenset({"<http://s> <http://p> <http://[> ."}), "user")])
    assert (store.generation, store.entries()) == (0, [])
    assert store.apply([write(A, 1)])[0].generation == 1


# -- durability and opening -----------------------------------------------------------------------------------------------------


def test_everything_survives_a_restart(tmp_path: Path) -> None:
    """Graphs, entries, log and generation are what they were."""
    first = EmbeddedStore(tmp_path)
    first.apply([write(A, 1), write(B, 2, owner="dump")])
    before = (first.entries(), first.log(0), first.read(A), first.generation)
    first.close()
    second = EmbeddedStore(tmp_path)

    assert (second.entries(), second.log(0), second.read(A), second.generation) == before
    second.close()


def test_a_second_process_is_told_who_has_the_store(store: EmbeddedStore) -> None:
    """Opening an open directory fails with the pid of the process that has it."""
    with pytest.raises(StoreUnavailable, match=r"in use by process \d+") as refused:
        EmbeddedStore(store.directory)

    code = (
        "import sys; from pathlib import Path; from drumlin.kg.store.embedded.store import EmbeddedStore; from drumlin.kg.errors import StoreUnavailable\n"
        "try: EmbeddedStore(Path(sys.argv[1]))\nexcept StoreUnavailable as error: print(error.detail['pid'])"
    )
    root = Path(__file__).parents[2]
    other = subprocess.run(
        [sys.executable, "-c", code, str(store.directory)], cwd=root, capture_output=True, text=True, check=True
    )
    assert other.stdout.strip() == refused.value.detail["pid"]


def test_a_temporary_store_leaves_nothing() -> None:
    """Without a directory the store lives in a temporary one, gone after ``close``; a closed store says so."""
    store = EmbeddedStore()
    store.apply([write(A, 1)])
    assert store.directory.is_dir()
    store.close()
    store.close()

    assert not store.directory.exists()
    with pytest.raises(StoreUnavailable, match="closed"):
        store.apply([write(A, 2)])


def test_a_directory_that_cannot_be_used_is_named(tmp_path: Path) -> None:
    """A file in the place of the directory is reported, not overwritten."""
    (tmp_path / "file").write_text("x")

    with pytest.raises(StoreUnavailable, match="cannot be used"):
        EmbeddedStore(tmp_path / "file")


def test_the_engines_log_is_flushed_when_large(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write-ahead log does not grow for ever: unflushed, these writes would take four megabytes of it."""
    monkeypatch.setattr("drumlin.kg.store.embedded.engine_applier.FLUSH_BYTES", 64 * 1024)
    monkeypatch.setattr("drumlin.kg.store.embedded.engine_applier.CHUNK", 10)

    largest = 0
    for number in range(200):
        store.apply([write(A, *(f"{number}-{each}" for each in range(20)))])
        largest = max(largest, Wal(store.directory / "quads").measure())

    assert largest < 2 * 1024 * 1024  # how much is applied as one depends on the load of the machine


# -- many writers at once -------------------------------------------------------------------------------------------------------


def gathered(store: EmbeddedStore, *asked: list[GraphWrite]) -> list[list[Written] | BaseException]:
    """Ask for several writes while the writer is held up, so that they become one batch, and return what each gave."""
    found: list[list[Written] | BaseException] = [[]] * len(asked)

    def ask(place: int) -> None:
        try:
            found[place] = store.apply(asked[place])
        except DrumlinError as error:
            found[place] = error

    threads = [threading.Thread(target=ask, args=(place,)) for place in range(len(asked))]
    with store._writer.lock:
        holding = threading.Thread(target=store.apply, args=([write(f"{A}/hold", 1)],))
        holding.start()
        until(lambda: not store._writer._waiting)  # the writer has it, and waits for the lock
        for number, each in enumerate(threads):
            each.start()
            until(lambda number=number: len(store._writer._waiting) == number + 1)
    for each in [holding, *threads]:
        each.join()
    return found


def test_a_batch_is_one_commit_and_a_generation_each(store: EmbeddedStore) -> None:
    """Writes of different graphs that come together cost one delta; each has its own generation, in order, and log entry."""
    deltas: list[Delta] = []
    store.follow_deltas(deltas.append)
    found = gathered(store, [write(A, 1)], [write(B, 1), write(f"{B}2", 1)], [write(f"{B}3")], [remove(f"{B}4")])

    assert [[(each.outcome, each.generation) for each in one] for one in found] == [
        [("created", 2)],
        [("created", 3), ("created", 3)],
        [("created", 4)],
        [("unchanged", 1)],
    ]
    assert [(each.generation, each.graphs) for each in deltas[1:]] == [(4, (A, B, f"{B}2", f"{B}3"))]
    assert [(each.generation, each.graph) for each in store.log(1)] == [(2, A), (3, B), (3, f"{B}2"), (4, f"{B}3")]


def test_a_graph_asked_for_twice_waits_for_the_next_batch(store: EmbeddedStore) -> None:
    """Two writes of one graph both happen, in the order in which they came, and do not hold up others."""
    deltas: list[Delta] = []
    store.follow_deltas(deltas.append)
    gathered(store, [write(A, 1)], [write(A, 2)], [write(A, 3)], [write(B, 1)])

    assert [each.graphs for each in deltas[1:]] == [(A, B), (A,), (A,)]
    assert store.read(A).lines == {line(A, 3)}


def test_a_refused_write_leaves_its_batch_alone(store: EmbeddedStore) -> None:
    """An owner or a precondition is the error of that write only."""
    store.apply([write(B, 1, owner="dump")])
    found = gathered(store, [write(A, 1)], [write(B, 2)], [write(f"{A}2", 1, expected="0" * 32)], [write(f"{A}3", 1)])

    assert [type(each) for each in found] == [list, GraphOwned, PreconditionFailed, list]
    assert [each.generation for each in store.log(2)] == [3, 4]
    assert {each.graph for each in store.entries()} == {A, B, f"{A}3", f"{A}/hold"}


def full(*_: object) -> None:
    """Refuse as SQLite does."""
    raise sqlite3.OperationalError("database or disk is full")


def test_a_full_disk_fails_every_write_of_the_batch(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each caller gets an error of its own, and nothing of the batch is there."""
    with monkeypatch.context() as patched:
        patched.setattr(ChangeLog, "_insert_texts", full)
        found = _failing(store, [write(A, 1)], [write(B, 1)])

    assert [type(each) for each in found] == [StoreFull, StoreFull]
    assert found[0] is not found[1]
    assert store.entries() == []
    assert store.generation == 0


def _failing(store: EmbeddedStore, *asked: list[GraphWrite]) -> list[BaseException]:
    found: list[BaseException] = []

    def ask(writes: list[GraphWrite]) -> None:
        with pytest.raises(StoreFull) as refused:
            store.apply(writes)
        found.append(refused.value)

    threads = [threading.Thread(target=ask, args=(writes,)) for writes in asked]
    with store._writer.lock:
        for each in threads:
            each.start()
    for each in threads:
        each.join()
    return found


def test_batches_are_told_to_observers(store: EmbeddedStore) -> None:
    """Metrics learn what became of the graphs, of the writes that were refused, and how long each took."""
    batches: list[Batch] = []
    store.observe(batches.append)
    store.apply([write(A, 1), write(B, 1)])
    store.apply([write(A, 1), write(B, 2)])
    with pytest.raises(GraphOwned):
        store.apply([write(A, 2, owner="dump")])

    assert [dict(each.outcomes) for each in batches] == [
        {"created": 2},
        {"unchanged": 1, "replaced": 1},
        {"refused": 1},
    ]
    assert all(0 < each.seconds[0] < 30 for each in batches)


# -- bulk -----------------------------------------------------------------------------------------------------------------------


def many(count: int, value: object = 1) -> list[GraphWrite]:
    """Make many small graphs."""
    return [write(f"https://kg.example/id/prod/bulk/pod/p{number}", value) for number in range(count)]


def test_many_new_graphs_are_one_generation(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """A bulk load of several chunks, mixed with a replacement and a removal, is one write like any other."""
    monkeypatch.setattr(writer, "BULK", 5)
    monkeypatch.setattr(engine_applier, "LOADED", 5)
    monkeypatch.setattr(engine_applier, "CHUNK", 3)
    store.apply([write(A, 1), write(B, 1)])
    results = store.apply([*many(10), write(A, 2), remove(B)])

    assert [each.outcome for each in results] == ["created"] * 10 + ["replaced", "removed"]
    assert store.generation == 2
    assert dict(store.export()) == {
        A: {line(A, 2)},
        **{each.graph: each.lines for each in many(10)},
    }


# -- querying -------------------------------------------------------------------------------------------------------------------


def test_what_a_syntax_cannot_write_is_refused(store: EmbeddedStore) -> None:
    """A triple term has no JSON-LD; that is said, and is no error of the store."""
    store.apply([write(A, 1)])
    query = "CONSTRUCT { ?s ?p <<( ?s ?p ?o )>> } WHERE { ?s ?p ?o }"

    assert "<<(" in answered(store, query, "text/turtle")
    with pytest.raises(UnsupportedSyntax, match="JSON-LD") as refused:
        answered(store, query, "application/ld+json")
    cause = refused.value.__cause__
    assert cause is not None
    # The engine's iterator stays in its thread: freed here, it would be leaked and pin a snapshot.
    assert not any(
        frame.f_locals for frame, _ in traceback.walk_tb(cause.__traceback__) if frame.f_code.co_name == "_write"
    )


def test_an_unknown_function_is_refused(store: EmbeddedStore) -> None:
    """What the engine cannot evaluate is an error of the query, or of no row; never of the service."""
    store.apply([write(A, 1)])
    try:
        found = values(store, "SELECT ?v { ?s ?p ?o BIND(<http://unknown/f>(?o) AS ?v) FILTER(BOUND(?v)) }")
    except QueryRejected:
        return
    assert found == []


def test_an_answer_may_be_read_in_another_thread_or_dropped(store: EmbeddedStore) -> None:
    """Chunks cross threads, and an answer that nobody reads ends and frees the store."""
    store.apply([write(A, *range(3000))])
    query = "SELECT * { ?a ?b ?c . ?d ?e ?f }"
    first = store.answer(query, media_type=JSON)
    found: list[bytes] = []
    reader = threading.Thread(target=lambda: found.extend(next(first.chunks) for _ in range(3)))
    reader.start()
    reader.join()
    first.chunks.close()
    dropped = store.answer(query, media_type=JSON)
    thread = dropped.chunks._thread
    del dropped
    thread.join(10)

    assert len(found) == 3
    assert not thread.is_alive()
    with pytest.raises(StopIteration):
        next(first.chunks)


# -- followers ------------------------------------------------------------------------------------------------------------------


def test_a_checkpoint_and_the_deltas_after_it_are_the_store(store: EmbeddedStore, tmp_path: Path) -> None:
    """A copy that replays every delta, also those it holds already, ends with the quads of the store."""
    import pyoxigraph as ox

    deltas: list[Delta] = []
    store.follow_deltas(deltas.append)
    store.apply([write(A, 1, 2), write(B, 1)])
    store.apply([write(A, 2, 3)])
    generation = store.checkpoint(tmp_path / "copy")
    store.apply([remove(B)])
    store.apply([write(B)])

    assert generation == 2
    assert [(each.generation, each.graphs, each.bulk) for each in deltas] == [
        (1, (A, B), False),
        (2, (A,), False),
        (3, (B,), False),
        (4, (B,), False),
    ]
    copy = ox.Store(str(tmp_path / "copy"))
    for each in deltas:
        copy.update(each.update)
    assert set(copy) == set(store._engine.store)
    assert set(copy.named_graphs()) == set(store._engine.store.named_graphs())


def test_a_delta_is_told_before_its_generation_is_seen(store: EmbeddedStore) -> None:
    """Who sees a generation can rely on its delta having been told."""
    seen: list[tuple[int, int]] = []
    store.follow_deltas(lambda delta: seen.append((delta.generation, store.generation)))
    store.apply([write(A, 1)])
    store.apply([write(A, 1)])
    store.apply([write(A, 2)])

    assert seen == [(1, 0), (2, 1)]


def test_a_bulk_load_has_no_delta(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """Followers are told to take a new checkpoint."""
    monkeypatch.setattr(writer, "BULK", 5)
    deltas: list[Delta] = []
    store.follow_deltas(deltas.append)
    store.apply([*many(6), write(A, 1)])

    assert [(each.generation, each.update, len(each.graphs), each.bulk) for each in deltas] == [(1, "", 7, True)]


# -- asking without waiting -----------------------------------------------------------------------------------------------------


def test_a_write_can_be_asked_for_without_waiting(store: EmbeddedStore) -> None:
    """The caller is told in another thread when it is durable, and then gets the results, or the refusal."""
    told = threading.Event()
    outcome = store.ask(write(A, 1), told.set)
    assert told.wait(30)
    assert outcome()[0].generation == 1

    told.clear()
    refused = store.ask(write(A, 2, owner="dump"), told.set)
    assert told.wait(30)
    with pytest.raises(GraphOwned):
        refused()
