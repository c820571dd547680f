"""Updates against a store on disk: evaluated again when others write, stopped at their deadline, lost when their process is."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime
from pathlib import Path

import pytest

from drumlin.kg import cancellation
from drumlin.kg.errors import Cancelled, GraphOwned, QueryRejected, ShapeViolation, StoreUnavailable, TooLarge
from drumlin.kg.graphs import updates as updates_module
from drumlin.kg.graphs.entities import EntityGraphs
from drumlin.kg.graphs.named import NamedGraphs
from drumlin.kg.graphs.updates import Updates
from drumlin.kg.model.iris import Iris
from drumlin.kg.sparql import gate
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import Answer, GraphWrite, Lines
from drumlin.kg.store.query_workers.client import QueryExecutor
from drumlin.kg.store.query_workers.supervisor import Readers
from drumlin.kg.workers.pool import WorkerPool
from tests.waiting import until

BASE = "https://kg.example"
COUNTER = "http://example.org/counter"
INCREMENT = f"WITH <{COUNTER}> DELETE {{ ?s ?p ?o }} INSERT {{ ?s ?p ?n }} WHERE {{ ?s ?p ?o BIND(?o + 1 AS ?n) }}"
RUNAWAY = "INSERT { <http://a> <http://p> ?n } WHERE { { SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l . ?m ?q ?r } } }"


class Interrupted(EmbeddedStore):
    """A store in which something else happens right after a query was answered."""

    then: Callable[[], None] | None = None

    def answer(self, query: str, **options: object) -> Answer:
        """Answer, and let the other one write."""
        answer = super().answer(query, **options)
        chunks = list(answer.chunks)
        if self.then is not None:
            then, self.then = self.then, None
            then()
        return Answer(answer.media_type, iter(chunks), answer.generation)


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Interrupted]:
    """An empty store."""
    opened = Interrupted(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def updates(store: Interrupted) -> Iterator[Updates]:
    """Updates of it."""
    iris = Iris(BASE)
    graphs = NamedGraphs(store, iris, EntityGraphs(store, iris, clock=lambda: datetime.now(UTC)))
    with closing(WorkerPool()) as workers:
        yield Updates(store, graphs, BASE, workers, seconds=60)


def run(updates: Updates, text: str, seconds: float | None = None) -> int:
    """Run an update as the route does."""
    return updates.run(gate.check(text, max_bytes=1 << 20, expect="update"), seconds=seconds)


def _lines(store: EmbeddedStore, graph: str) -> Lines | None:
    stored = store.read(graph)
    return stored.lines if stored else None


def _counter(value: int) -> Lines:
    return frozenset({f'<http://n> <http://v> "{value}"^^<http://www.w3.org/2001/XMLSchema#integer> .'})


def test_an_update_is_evaluated_again_when_its_graph_was_written_meanwhile(
    store: Interrupted, updates: Updates
) -> None:
    """A write between the query and the change is not lost: the update applies to what it left."""
    store.apply([GraphWrite.of(COUNTER, _counter(1), "user")])
    store.then = lambda: store.apply([GraphWrite.of(COUNTER, _counter(10), "user")]) and None

    run(updates, INCREMENT)

    assert _lines(store, COUNTER) == _counter(11)


def test_a_graph_that_was_removed_meanwhile_is_not_brought_back(store: Interrupted, updates: Updates) -> None:
    """The update sees the removal, and has nothing to do."""
    store.apply([GraphWrite.of(COUNTER, _counter(1), "user")])
    store.then = lambda: store.apply([GraphWrite.of(COUNTER, None, "user")]) and None

    run(updates, INCREMENT)

    assert _lines(store, COUNTER) is None


@pytest.mark.parametrize(
    "text", [INCREMENT, f"INSERT DATA {{ <http://a> <http://b> 1 }} ; {INCREMENT}"], ids=["reader", "apart"]
)
def test_increments_add_up(store: Interrupted, updates: Updates, text: str) -> None:
    """From several threads, each update sees all the others before it."""
    store.apply([GraphWrite.of(COUNTER, _counter(0), "user")])
    threads = [threading.Thread(target=lambda: [run(updates, text) for _ in range(4)]) for _ in range(3)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()

    assert _lines(store, COUNTER) == _counter(12)


def test_a_runaway_leaves_nothing(store: Interrupted, updates: Updates) -> None:
    """At the deadline the process is ended, its copy of the store is removed, and nothing was written."""
    lines = frozenset(f"<http://s{n}> <http://p> <http://o> ." for n in range(60))
    store.apply([GraphWrite.of(COUNTER, lines, "user")])
    before = store.generation

    with pytest.raises(QueryRejected) as caught:
        run(updates, f"INSERT DATA {{ <http://a> <http://b> 1 }} ; {RUNAWAY}", seconds=1.5)

    assert caught.value.reason == "timeout"
    assert store.generation == before
    assert list((store.directory / "checkpoints").iterdir()) == []


@pytest.mark.parametrize("before", ["", "CREATE GRAPH <http://g> ; "], ids=["reader", "apart"])
def test_an_update_that_nobody_waits_for_is_ended(store: Interrupted, updates: Updates, before: str) -> None:
    """Cancelled while it is evaluated, long before its deadline; nothing was written, and the next update finds room."""
    lines = frozenset(f"<http://s{n}> <http://p> <http://o> ." for n in range(60))
    store.apply([GraphWrite.of(COUNTER, lines, "user")])
    readers = Readers(store, store.directory / "readers", count=1)
    store.answer_through(QueryExecutor(readers, timeout=60))
    generation, of_this = store.generation, cancellation.Cancellation()

    def work() -> None:
        with cancellation.under(of_this), pytest.raises(Cancelled):
            run(updates, before + RUNAWAY)
        ended.set()

    ended, thread = threading.Event(), threading.Thread(target=work)
    thread.start()
    until(lambda: updates._pool._busy or any(each.began for each in readers._pool.readers))
    of_this.cancel()
    assert ended.wait(30)
    thread.join()
    assert store.generation == generation
    assert run(updates, "CREATE GRAPH <http://g> ; INSERT { <http://a> <http://p> 1 } WHERE {}") > generation


def test_a_process_that_dies_changes_nothing(
    store: Interrupted, updates: Updates, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One that gets too little memory ends without a result: the update fails, the store is as it was, the next one works."""
    text = "CREATE GRAPH <http://g> ; INSERT { <http://a> <http://p> 1 } WHERE {}"
    monkeypatch.setattr(updates_module, "MEMORY", 1 << 20)
    with pytest.raises(StoreUnavailable):
        run(updates, text)
    assert store.generation == 0

    monkeypatch.undo()
    assert run(updates, text) == 1


def test_a_worker_that_died_while_idle_is_not_used(store: Interrupted, updates: Updates) -> None:
    """An update is given to a process that lives when the system has killed the one that was kept for it."""
    text = f"INSERT DATA {{ GRAPH <{COUNTER}> {{ <http://n> <http://v> 1 }} }} ; {INCREMENT}"
    run(updates, text)
    for spare in updates._pool._idle:
        spare.kill()
    run(updates, INCREMENT + " ; " + INCREMENT)

    assert _lines(store, COUNTER) == _counter(4)


def test_too_many_solutions_are_refused(store: Interrupted, updates: Updates, monkeypatch: pytest.MonkeyPatch) -> None:
    """What a WHERE part may find is bounded in memory."""
    monkeypatch.setattr(updates_module, "MAX_SOLUTIONS_BYTES", 100)
    store.apply([GraphWrite.of(COUNTER, _counter(0), "user")])

    with pytest.raises(TooLarge):
        run(updates, "INSERT { ?s ?p ?o } WHERE { ?s ?p ?o }")


def test_an_entity_of_an_exporter_is_not_touched(store: Interrupted, updates: Updates) -> None:
    """Ownership comes before validity, and neither is passed by: all graphs of the request stay as they are."""
    entity = f"{BASE}/id/prod/payments/deployment/web"
    store.apply([GraphWrite.of(entity, frozenset({f"<{entity}> <http://p> <http://o> ."}), "kubernetes")])

    for text, error in (
        (
            f"INSERT DATA {{ <http://a> <http://b> 1 . GRAPH <{entity}> {{ <http://elsewhere> <http://p> 1 }} }}",
            GraphOwned,
        ),
        (
            f"INSERT DATA {{ <http://a> <http://b> 1 . GRAPH <{entity}2> {{ <http://elsewhere> <http://p> 1 }} }}",
            ShapeViolation,
        ),
    ):
        with pytest.raises(error):
            run(updates, text)
    assert store.generation == 1
