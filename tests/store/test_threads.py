"""Long-lived threads: a callback that raises ends none; a thread that dies turns ``/livez`` red and leaves nobody waiting."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from datetime import timedelta
from pathlib import Path
from types import SimpleNamespace
from typing import TypeVar

import httpx
import pytest

from drumlin.api.probes import Probes
from drumlin.api.routes.operations import death
from drumlin.exporters.jobs import PeriodicJob
from drumlin.exporters.kubernetes.backlog import Backlog
from drumlin.exporters.kubernetes.cluster_identity import ClusterIdentity
from drumlin.exporters.kubernetes.reflector import Reflector
from drumlin.exporters.kubernetes.timing import Timing
from drumlin.exporters.protocol import Kind
from drumlin.kg import threads
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.events.feed import ChangeFeed
from drumlin.kg.model.iris import Iris
from drumlin.kg.search.index import Index
from drumlin.kg.store.embedded.engine_applier import EngineApplier
from drumlin.kg.store.embedded.retention import EVERY, Kept
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.embedded.writer import Writer
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.store.query_workers.client import QueryExecutor
from drumlin.kg.store.query_workers.pool import Pool
from drumlin.kg.store.query_workers.supervisor import Readers
from drumlin.kg.threads import ServiceThread
from tests.store_behaviours import NOON, A, B, line, values, write

PATIENCE = 20.0
T = TypeVar("T")
ERRORS = [RuntimeError("a fault"), SystemExit(3), KeyboardInterrupt(), StoreUnavailable("no disk"), GeneratorExit()]
"""Whatever a callback may raise."""


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Open a store in a directory of its own; afterwards no thread counts as dead."""
    opened = EmbeddedStore(tmp_path / "store", clock=lambda: NOON)
    yield opened
    opened.close()
    assert threads.dead() == []


def within(work: Callable[[], T]) -> T:
    """Run ``work`` in a thread and return its result; fail when it does not end."""
    found: list[T | BaseException] = []

    def run() -> None:
        try:
            found.append(work())
        except BaseException as error:  # noqa: BLE001 - raised in the test
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(PATIENCE)
    assert found, "it waits for ever"
    if isinstance(found[0], BaseException):
        raise found[0]
    return found[0]


class Raising:
    """A callback that counts its calls and raises."""

    def __init__(self, error: BaseException) -> None:
        self.calls = 0
        self._error = error

    def __call__(self, *_: object) -> int:
        """Raise."""
        self.calls += 1
        raise self._error


# -- callbacks --------------------------------------------------------------------------------------------------------
@pytest.mark.parametrize("error", ERRORS, ids=repr)
@pytest.mark.parametrize(
    "register", [EmbeddedStore.observe, EmbeddedStore.follow_deltas], ids=lambda each: each.__name__
)
def test_a_callback_that_raises_does_not_end_writing(
    store: EmbeddedStore, register: Callable[[EmbeddedStore, object], None], error: BaseException
) -> None:
    """Each write succeeds, and the callbacks after the faulty one are called."""
    faulty, told = Raising(error), list[object]()
    register(store, faulty)
    register(store, told.append)
    for number in (1, 2):
        assert within(lambda: store.apply([write(A, number)]))[0].generation == number  # noqa: B023
    store.close()
    assert (faulty.calls, len(told)) == (2, 2)
    assert threads.dead() == []


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_an_answer_that_raises_leaves_the_other_writes_of_its_batch_answered(
    store: EmbeddedStore, error: BaseException
) -> None:
    """Two writes become one batch; the first one's callback raises, and the second one's is called all the same."""
    begun, go_on, answered = threading.Event(), threading.Event(), threading.Event()
    store.follow_deltas(lambda _: (begun.set(), go_on.wait(PATIENCE)))
    store.ask(write(A, 1), lambda: None)
    assert begun.wait(PATIENCE)  # the next two come together
    store.ask(write(A, 2), Raising(error))
    outcome = store.ask(write(B, 1), answered.set)
    go_on.set()
    assert answered.wait(PATIENCE)
    assert outcome()[0].outcome == "created"
    assert within(lambda: store.apply([write(B, 2)]))[0].outcome == "replaced"


@pytest.mark.parametrize("error", [RuntimeError("a fault"), StoreUnavailable("no disk")], ids=repr)
def test_pruning_that_fails_does_not_end_writing(tmp_path: Path, error: Exception) -> None:
    """A follower's position that cannot be had keeps the log, and the writes go on."""
    store = EmbeddedStore(tmp_path / "store", clock=lambda: NOON, kept=Kept(timedelta(0), 0))
    faulty = Raising(error)
    store.keep_log_after(faulty)
    many = [GraphWrite.of(f"https://kg.example/id/x{n}", frozenset({line(A, n)}), "user") for n in range(EVERY)]
    within(lambda: store.apply(many))
    within(lambda: store.apply([write(A, 1)]))
    assert within(lambda: store.apply([write(A, 2)]))[0].outcome == "replaced"
    assert faulty.calls
    store.close()


def test_a_replica_that_missed_a_delta_is_never_asked(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """When the readers cannot take a delta, the write succeeds and the next query sees it, by a new replica."""
    asking = QueryExecutor(Readers(store, store.directory / "readers", count=1))
    store.answer_through(asking)
    query = "SELECT ?v { GRAPH ?g { ?s ?p ?v } }"
    store.apply([write(A, 1)])
    assert values(store, query) == ["1"]
    with monkeypatch.context() as patched:
        patched.setattr(Pool, "follow", Raising(MemoryError()))
        assert within(lambda: store.apply([write(A, 2)]))[0].outcome == "replaced"
    assert values(store, query) == ["2"]


def test_a_reader_that_cannot_be_started_is_reported_to_the_query(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever the start raises, the query that waits gets an error at once, and later ones a reader."""
    with monkeypatch.context() as patched:
        patched.setattr(EmbeddedStore, "checkpoint", Raising(RuntimeError("a fault")))
        asking = QueryExecutor(Readers(store, store.directory / "readers", count=1), timeout=600)
        store.answer_through(asking)
        with pytest.raises(StoreUnavailable, match="a fault"):
            within(lambda: values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }"))
    store.apply([write(A, 1)])
    assert within(lambda: values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }")) == ["1"]


def test_a_query_s_observer_that_raises_does_not_spoil_the_answer(store: EmbeddedStore) -> None:
    """The answer is whole, and the other observers are called."""
    asking = QueryExecutor(Readers(store, store.directory / "readers", count=1))
    store.answer_through(asking)
    faulty, told = Raising(RuntimeError("a fault")), list[object]()
    asking.observe(faulty)
    asking.observe(told.append)
    store.apply([write(A, 1)])
    assert values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }") == ["1"]
    assert (faulty.calls, len(told)) == (1, 1)


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_feed_s_listener_that_raises_silences_no_other(store: EmbeddedStore, error: BaseException) -> None:
    """The listeners after it are called for each piece of news."""
    iris = Iris("https://kg.example")
    index = Index(store, iris, None)
    feed = ChangeFeed(store, iris, index)
    store.follow_deltas(lambda _: feed.wake())
    feed.readers += 1
    rung = threading.Event()
    feed.on_news(Raising(error))
    feed.on_news(rung.set)
    feed.start()
    for number in (1, 2):
        rung.clear()
        store.apply([write("https://kg.example/id/domain/x", number)])
        assert rung.wait(PATIENCE)
    feed.stop()
    index.close()


# -- deaths -----------------------------------------------------------------------------------------------------------
def test_the_writer_s_death_fails_all_writes_at_once(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """The write under way, those that wait and those that come later raise; reading goes on, and the process is not alive."""
    store.apply([write(A, 1)])
    taken, go_on = threading.Event(), threading.Event()

    def dying(*_: object) -> None:
        taken.set()
        go_on.wait(PATIENCE)
        raise SystemExit(3)

    monkeypatch.setattr(Writer, "_write", dying)
    first, second = threading.Event(), threading.Event()
    under_way = store.ask(write(A, 2), first.set)
    assert taken.wait(PATIENCE)
    waiting = store.ask(write(B, 1), second.set)
    go_on.set()
    assert first.wait(PATIENCE)
    assert second.wait(PATIENCE)
    for outcome in (under_way, waiting, lambda: within(lambda: store.apply([write(B, 2)]))):
        with pytest.raises(StoreUnavailable, match="thread that writes has ended by an error: SystemExit") as refused:
            outcome()
        assert "restart" in (refused.value.hint or "")
    assert threads.dead() == ["writer"]
    assert store.read(A).lines == {line(A, 1)}


def test_the_applier_s_death_fails_what_needs_the_engine_at_once(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A query that waits and later ones raise; so do writes, and the process is not alive; reading from the log goes on."""
    monkeypatch.setattr(EngineApplier, "_as_one", Raising(RuntimeError("a fault")))
    store.apply([write(A, 1)])
    for work in (store.optimize, store.optimize, lambda: store.apply([write(A, 2)])):
        with pytest.raises(StoreUnavailable, match="ended by an error: RuntimeError: a fault"):
            within(work)
    assert threads.dead() == ["applier"]
    assert store.read(A).lines == {line(A, 1)}


def test_tidying_that_cannot_begin_does_not_end_the_applier(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A system that has no thread left for it refuses only that; the engine follows the log."""
    monkeypatch.setattr(EngineApplier, "_tidy_when_due", Raising(RuntimeError("can't start new thread")))
    for number in (1, 2):
        store.apply([write(A, number)])
        assert within(lambda: values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }")) == [str(number)]


def test_the_feed_s_death_ends_its_readers(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are woken and see that no more will come; the process is not alive until the feed is stopped."""
    iris = Iris("https://kg.example")
    index = Index(store, iris, None)
    feed = ChangeFeed(store, iris, index)
    rung = threading.Event()
    feed.on_news(rung.set)
    monkeypatch.setattr(ChangeFeed, "_follow", Raising(SystemExit(3)))
    feed.start()
    assert rung.wait(PATIENCE)
    assert feed.ended
    assert threads.dead() == ["feed"]
    feed.stop()
    index.close()


@pytest.mark.parametrize("method", ["_look", "_run_errands"])
def test_the_death_of_the_readers_supervisor_fails_queries_at_once(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, method: str
) -> None:
    """A query raises instead of waiting for a reader that nobody starts or watches; the process is not alive."""
    monkeypatch.setattr(Readers, method, Raising(SystemExit(3)))
    asking = QueryExecutor(Readers(store, store.directory / "readers", count=1), timeout=600)
    store.answer_through(asking)
    for _ in range(2):
        with pytest.raises(StoreUnavailable):
            within(lambda: values(store, "SELECT ?v { GRAPH ?g { ?s ?p ?v } }"))
    assert [each.partition("-")[0] for each in threads.dead()] == ["readers"]


def test_a_job_that_dies_is_counted_until_it_is_stopped() -> None:
    """Only what is no ``Exception`` ends a job; it says so."""

    class Dying(PeriodicJob):
        def turn(self) -> bool:
            raise SystemExit(3)

    job = Dying("dying", 3600.0)
    job.start()
    job._thread._started.wait(PATIENCE)
    threading.Thread.join(job._thread, PATIENCE)
    assert threads.dead() == ["dying"]
    assert job.failure == "the job has ended by an error (SystemExit); see the log"
    job.stop()
    assert threads.dead() == []


@pytest.mark.parametrize("error", ERRORS, ids=repr)
def test_a_reflector_that_dies_ends_its_source(monkeypatch: pytest.MonkeyPatch, error: BaseException) -> None:
    """Whatever ends the thread of one kind is raised where the changes of all are taken: no kind is left dead in silence."""
    backlog = Backlog(10)
    monkeypatch.setattr(Reflector, "_turn", Raising(error))
    kind = Kind("Pod", "", "v1", "pods", namespaced=True, projection=dict)
    options = {"path": "/", "label_selector": None, "page_size": 1, "identity": ClusterIdentity()}
    made = Reflector(SimpleNamespace(served=True), kind, backlog, lambda: NOON, Timing(), **options)
    made.run()
    with pytest.raises(type(error)):
        backlog.take(PATIENCE)


# -- what is told -----------------------------------------------------------------------------------------------------
def test_a_dead_thread_turns_liveness_red() -> None:
    """``/livez`` of ``drumlin follow`` answers 503 with a problem that names the thread, and 200 again once its owner has let go of it."""
    thread = ServiceThread(Raising(SystemExit(3)), "needed")
    thread.start()
    threading.Thread.join(thread, PATIENCE)
    with Probes(Settings.load(metrics={"port": 0}), []) as probes:
        answer = httpx.get(f"{probes.url}/livez")
        assert (answer.status_code, answer.headers["Content-Type"]) == (503, "application/problem+json")
        assert (answer.json()["threads"], "restart" in answer.json()["hint"]) == (["needed"], True)
        thread.join()
        assert death() is None
        assert httpx.get(f"{probes.url}/livez").status_code == 200


def test_a_thread_that_ends_by_itself_is_not_dead() -> None:
    """Only an error counts."""
    thread = ServiceThread(lambda: None, "done")
    thread.start()
    threading.Thread.join(thread, PATIENCE)
    assert threads.dead() == []
