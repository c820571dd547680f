"""Reader processes over a store on disk: freshness, deadlines, containment, memory, and what they leave behind."""

from __future__ import annotations

import asyncio
import os
import re
import signal
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from drumlin.kg import fairness, processes
from drumlin.kg.cancellation import Cancellation, under
from drumlin.kg.errors import Cancelled, QueryRejected, ReaderLost, StoreFull, StoreUnavailable, UnsupportedSyntax
from drumlin.kg.store.delta import Delta
from drumlin.kg.store.embedded import writer
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite, Lines
from drumlin.kg.store.query_workers import pool
from drumlin.kg.store.query_workers.client import QueryExecutor, QueryOutcome
from drumlin.kg.store.query_workers.handle import QueryWorker
from drumlin.kg.store.query_workers.pool import Promise
from drumlin.kg.store.query_workers.supervisor import Readers
from tests.thoroughness import examples
from tests.waiting import until

JSON = "application/sparql-results+json"
CSV = "text/csv"
ALL = "SELECT ?g ?s ?p ?o WHERE { GRAPH ?g { ?s ?p ?o } }"
RUNAWAY = "SELECT (COUNT(*) AS ?n) { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i . ?j ?k ?l }"
BASE = "https://kg.example/id/prod/-/node/"
PATIENCE = 30.0


class Served:
    """A store whose queries are run by readers, and how each of them ended."""

    def __init__(self, directory: Path, *, memory: int = 1 << 30) -> None:
        self.store = EmbeddedStore(directory)
        self.store.apply([put(number, 10) for number in range(100)])
        self.readers = Readers(self.store, directory / "readers", count=2, memory=memory)
        self.asking = QueryExecutor(self.readers, timeout=PATIENCE)
        self.ended: list[QueryOutcome] = []
        self.asking.observe(self.ended.append)
        self.store.answer_through(self.asking)

    def rows(self, query: str, **options: object) -> list[str]:
        """Run a SELECT and return its rows, sorted."""
        answer = self.store.answer(query, media_type=CSV, **options)
        return sorted(b"".join(answer.chunks).decode().splitlines()[1:])


def put(number: int, size: int) -> GraphWrite:
    """Write a graph of ``size`` lines."""
    return GraphWrite.of(f"{BASE}n{number}", lines(number, size), "user")


def lines(number: int, size: int) -> Lines:
    """Give the lines of a graph."""
    return frozenset(f'<{BASE}n{number}> <https://kg.example/p> "{value}" .' for value in range(size))


@pytest.fixture(autouse=True)
def no_rest(monkeypatch: pytest.MonkeyPatch) -> None:
    """Readers stay, however long a busy machine makes them wait."""
    for name in ("RESTING", "RESTING_IN_FLOOD"):
        monkeypatch.setattr(pool, name, 1e9)


@pytest.fixture(scope="module")
def served(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    """A store with a hundred graphs of ten lines, and two readers."""
    made = Served(tmp_path_factory.mktemp("served"))
    yield made
    made.store.close()


@pytest.fixture
def alone(tmp_path: Path) -> Iterator[Served]:
    """Such a store of one test's own: while no other client is present, one may take all readers."""
    made = Served(tmp_path)
    yield made
    made.store.close()


def test_a_query_sees_every_write_acknowledged_before_it(served: Served) -> None:
    """Whoever wrote finds it in the next answer, from any reader, and the generation says so."""
    for size in range(1, 50):
        (written,) = served.store.apply([put(1000, size)])
        answer = served.store.answer(f"SELECT ?o {{ <{BASE}n1000> ?p ?o }}", media_type=CSV)
        assert len(b"".join(answer.chunks).splitlines()) == size + 1
        assert answer.generation >= written.generation


def test_readers_together_see_what_many_writers_wrote(served: Served) -> None:
    """Each of four threads that write and read finds its own last write every time, whole."""
    failures: list[str] = []

    def work(number: int) -> None:
        for size in range(1, 40):
            served.store.apply([put(number, size)])
            found = len(served.rows(f"SELECT ?o {{ <{BASE}n{number}> ?p ?o }}"))
            if found != size:
                failures.append(f"{number}: {found} of {size}")

    threads = [threading.Thread(target=work, args=(2000 + number,)) for number in range(4)]
    for each in threads:
        each.start()
    for each in threads:
        each.join()
    assert failures == []


WRITES = st.lists(
    st.tuples(st.integers(5000, 5012), st.none() | st.integers(0, 4)),
    min_size=1,
    max_size=8,
    unique_by=lambda each: each[0],
)


@settings(
    max_examples=examples(15),
    deadline=None,
    suppress_health_check=[HealthCheck.function_scoped_fixture],
)
@given(runs=st.lists(WRITES, min_size=1, max_size=6))
def test_a_replica_is_what_the_writer_is(
    served: Served, monkeypatch: pytest.MonkeyPatch, runs: list[list[tuple[int, int | None]]]
) -> None:
    """After any run of writes, small and bulk-loaded, readers hold exactly the writer's quads."""
    monkeypatch.setattr(writer, "BULK", 7)
    for run in runs:
        served.store.apply(
            [GraphWrite.of(f"{BASE}n{each}", None if size is None else lines(each, size), "user") for each, size in run]
        )
    held = served.store.look_up(ALL)
    assert served.rows(ALL) == sorted(",".join(row[name] for name in "gspo") for row in held)


def test_a_runaway_is_stopped_at_its_deadline_and_the_next_query_runs(served: Served) -> None:
    """The query, which would never end, fails as timed out; another one is answered meanwhile and afterwards."""
    assert len(served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10  # a reader is open
    with pytest.raises(QueryRejected, match="deadline") as caught:
        served.store.answer(RUNAWAY, media_type=JSON, timeout=0.3)
    assert caught.value.reason == "timeout"
    assert served.ended[-1].outcome == "timeout"
    assert len(served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10


def test_more_runaways_than_readers_wait_no_longer_than_their_deadline(served: Served) -> None:
    """Who gets no reader in time is told so, at the same time as who had one and was stopped."""
    reasons: list[str] = []

    def run() -> None:
        try:
            served.store.answer(RUNAWAY, media_type=JSON, timeout=1.0)
        except QueryRejected as error:
            reasons.append(error.reason)

    threads = [threading.Thread(target=run) for _ in range(5)]
    for each in threads:
        each.start()
    for each in threads:
        each.join(PATIENCE)
    assert len(reasons) == 5
    assert set(reasons) == {"timeout", "busy"}
    assert len(served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10


def test_a_query_that_crashes_the_engine_fails_alone(served: Served) -> None:
    """Nesting that overflows the engine's stack costs one reader; the store and other queries go on."""
    with pytest.raises(ReaderLost):
        served.store.answer("SELECT * " + "{" * 20_000 + "}" * 20_000, media_type=JSON)
    assert len(served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10
    assert served.readers.ended["crash"] >= 1


def test_what_a_reader_says_comes_back_as_the_error_it_is(served: Served) -> None:
    """Syntax errors keep their place, and an unwritable result its list of what is offered."""
    with pytest.raises(QueryRejected) as rejected:
        served.store.answer("SELECT * {\n ?s ?p }", media_type=JSON)
    assert (rejected.value.reason, rejected.value.detail["line"]) == ("syntax", 2)
    with pytest.raises(UnsupportedSyntax) as unsupported:
        served.store.answer("SELECT * { ?s ?p ?o }", media_type="text/turtle")
    assert JSON in unsupported.value.detail["offered"]


def test_a_query_over_its_memory_is_stopped(tmp_path: Path) -> None:
    """Sorting a product of all quads ends with the cap in the message, long before the deadline."""
    served = Served(tmp_path, memory=150 * 2**20)
    try:
        with pytest.raises(QueryRejected, match="150 MB") as caught:
            served.store.answer("SELECT ?a ?d { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i } ORDER BY ?c ?f ?i", media_type=JSON)
        assert caught.value.reason == "memory"
    finally:
        served.store.close()


def test_a_result_that_nobody_reads_is_held_back_and_then_given_up(alone: Served) -> None:
    """An unread result waits in the reader; closing it frees the reader, which is used again or replaced."""
    product = "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }"
    answers = [alone.store.answer(product, media_type=CSV) for _ in range(2)]
    for answer in answers:
        assert next(answer.chunks)
        answer.chunks.close()
    assert [each.outcome for each in alone.ended[-2:]] == ["abandoned", "abandoned"]
    assert len(alone.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10


def test_a_reader_whose_whole_result_has_come_outlives_one_who_reads_only_a_part(alone: Served) -> None:
    """What came with the part that was read is looked at, too: the reader has ended its query, and answers the next one."""
    until(lambda: len(alone.readers._pool.idle) == 2)
    before = set(alone.readers.pids)
    for _ in range(4):
        answer = alone.store.answer(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}", media_type=CSV)
        assert next(answer.chunks)
        answer.chunks.close()
    until(lambda: len(alone.readers._pool.idle) == 2)
    assert set(alone.readers.pids) == before
    assert alone.readers.ended["abandoned"] == 0


def test_a_result_ends_mid_stream_at_its_deadline(served: Served) -> None:
    """A result that takes too long is cut with an error, not ended as if it were whole."""
    answer = served.store.answer("SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }", media_type=CSV, timeout=0.5)
    with pytest.raises(QueryRejected, match="deadline"):
        for _ in answer.chunks:
            pass


def test_who_holds_a_result_without_reading_it_holds_up_nobody_beyond_its_deadline(alone: Served) -> None:
    """Readers killed under unread results are replaced at once, and whoever reads on is told."""
    product = "SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }"
    held = [alone.store.answer(product, media_type=CSV, timeout=2.5) for _ in range(2)]  # a reader may have to start
    assert len(alone.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10
    for answer in held:
        with pytest.raises(QueryRejected, match="deadline"):
            for _ in answer.chunks:
                pass


def test_a_result_that_is_forgotten_frees_its_reader(served: Served) -> None:
    """Answers that are neither read nor closed do not keep their readers."""
    for _ in range(4):
        served.store.answer("SELECT * { ?a ?b ?c . ?d ?e ?f . ?g ?h ?i }", media_type=CSV)
    assert len(served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10


def test_the_answer_to_who_has_left_reaches_nobody_else(served: Served) -> None:
    """A client leaves when its query was sent and nobody has waited for the answer yet: that is thrown away, not given to the next."""
    cancellation = Cancellation()
    sendall = QueryWorker.request

    def leaving(self: QueryWorker, query: bytes) -> bytes:
        cancellation.cancel()
        return sendall(self, query)

    with under(cancellation), pytest.MonkeyPatch.context() as patch:
        patch.setattr(QueryWorker, "request", leaving)
        with pytest.raises(Cancelled):
            served.store.answer('SELECT ("mine" AS ?x) {}', media_type=CSV)

    for number in range(4):
        assert served.rows(f'SELECT ("{number}" AS ?x) {{}}') == [str(number)]


def test_a_large_result_arrives_whole_and_in_order(served: Served) -> None:
    """Ten thousand ordered rows come as they are, in many parts."""
    query = "SELECT ?a ?d { ?a ?b '1' . ?d ?e '2' } ORDER BY ?a ?d"
    answer = served.store.answer(query, media_type=CSV, timeout=5 * PATIENCE)  # at low priority on a busy machine
    rows = b"".join(answer.chunks).decode().splitlines()[1:]
    assert len(rows) >= 100 * 100
    pairs = [tuple(row.split(",")) for row in rows]
    assert pairs == sorted(pairs)


def test_asking_on_an_event_loop_is_the_same(served: Served) -> None:
    """Whole results, streams, errors, deadlines and cancellation work without a thread."""

    async def run() -> None:
        asking = served.asking
        small = await asking.ask(asking.question(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}", media_type=CSV))
        assert (small.whole() or b"").count(b"\r\n") == 11
        large = await asking.ask(asking.question("SELECT * { ?a ?b '1' . ?d ?e '2' }", media_type=CSV))
        assert large.whole() is None
        assert b"".join([part async for part in large]).count(b"\r\n") >= 100 * 100
        with pytest.raises(QueryRejected):
            await asking.ask(asking.question("SELECT * { ?s ?p }", media_type=CSV))
        with pytest.raises(QueryRejected, match="deadline"):
            await asking.ask(asking.question(RUNAWAY, media_type=JSON, timeout=0.3))
        asked = asyncio.create_task(asking.ask(asking.question(RUNAWAY, media_type=JSON)))
        await asyncio.sleep(0.1)
        asked.cancel()
        with pytest.raises(asyncio.CancelledError):
            await asked
        assert served.ended[-1].outcome == "abandoned"

    asyncio.run(run())
    assert len(served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10


def test_an_idle_replica_follows_by_itself(served: Served) -> None:
    """Without any query, readers are as new as the store shortly after a write."""
    served.store.apply([put(3000, 3)])
    until(lambda: served.readers.lag == 0)


def test_who_waits_is_told_why_no_reader_can_be_started(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without room for a replica a query ends long before its deadline, with the reason; later all is as before."""
    until(lambda: len(served.readers.pids) == 2)
    with monkeypatch.context() as patched:

        def checkpoint(folder: Path) -> int:
            raise StoreFull(f"{folder.name} finds no room")

        patched.setattr(served.store, "checkpoint", checkpoint)

        def killed() -> bool:  # also one that was being started, whose copy had been made
            for pid in served.readers.pids:
                with suppress(ProcessLookupError):
                    os.kill(pid, signal.SIGKILL)
            return not served.readers.pids

        until(killed)
        with pytest.raises(StoreUnavailable, match="no reader can be started, and queries need one: .* finds no room"):
            served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}", timeout=PATIENCE)
    assert len(served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10


def refusal(served: Served) -> str:
    """Return why a query is refused, nothing when it is answered."""
    try:
        served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}", timeout=PATIENCE)
    except StoreUnavailable as error:
        return str(error)
    return ""


def test_who_waits_is_told_that_readers_end_at_their_start(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """Processes that exit before they are open are not started one after the other; later all is as before."""
    until(lambda: len(served.readers.pids) == 2)
    started: list[str] = []
    start = processes.start

    def end_at_once(module: str, *arguments: str, **options: Any) -> Any:
        started.append(module)
        return start("tests.jobs", *arguments, **options)

    with monkeypatch.context() as patched:
        patched.setattr(processes, "start", end_at_once)
        for pid in served.readers.pids:
            os.kill(pid, signal.SIGKILL)
        until(lambda: not any(Path(f"/proc/{pid}/fd").exists() for pid in served.readers.pids) or started)
        until(lambda: re.search("no reader can be started, and queries need one: the last . ended", refusal(served)))
        assert 1 <= len(started) <= 6
    until(lambda: not refusal(served))  # the last of these may not have ended yet
    assert len(served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10


def test_a_reader_killed_from_outside_is_replaced(served: Served) -> None:
    """Readers that the system kills while idle are noticed and others take their place."""
    until(lambda: len(served.readers.pids) == 2)
    before = set(served.readers.pids)
    for pid in before:
        os.kill(pid, signal.SIGKILL)
    until(lambda: len(served.readers.pids) == 2 and not before & set(served.readers.pids))
    assert len(served.rows(f"SELECT ?o {{ <{BASE}n1> ?p ?o }}")) == 10


def test_a_worn_replica_is_replaced_by_a_new_copy(served: Served, monkeypatch: pytest.MonkeyPatch) -> None:
    """After its share of deltas a reader gives way to a new one, and answers go on being fresh."""
    from drumlin.kg.store.query_workers import replica_deltas

    monkeypatch.setattr(replica_deltas, "LIMIT", 20_000)
    before = served.readers.ended["worn"]
    for size in range(1, 200):
        served.store.apply([put(4000, size)])
        assert len(served.rows(f"SELECT ?o {{ <{BASE}n4000> ?p ?o }}")) == size
    until(lambda: served.readers.ended["worn"] + served.readers.ended["stale"] > before)


def run_away(served: Served) -> None:
    """Keep a reader busy for two seconds."""
    with pytest.raises(QueryRejected):
        served.rows(RUNAWAY, timeout=2.0)


def test_readers_that_nobody_needs_go_while_there_are_writes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """One reader stays and sees every write; a query that finds it busy brings the others back."""
    served = Served(tmp_path)
    try:
        until(lambda: len(served.readers.pids) == 2)
        assert served.rows(ALL)
        monkeypatch.setattr(pool, "RESTING", 0.0)
        until(
            lambda: (
                bool(served.store.apply([put(5000, int(time.monotonic_ns() % 97) + 1)]))
                and served.readers.ended["resting"] == 1
            )
        )
        monkeypatch.setattr(pool, "RESTING", 1e9)
        until(lambda: len(served.readers.pids) == 1)
        served.store.apply([put(5000, 7)])
        assert len(served.rows(f"SELECT ?o {{ <{BASE}n5000> ?p ?o }}")) == 7
        busy = threading.Thread(target=run_away, args=(served,))
        busy.start()
        until(lambda: len(served.rows(f"SELECT ?o {{ <{BASE}n5000> ?p ?o }}")) == 7 and len(served.readers.pids) == 2)
        busy.join()
    finally:
        served.store.close()


def test_in_a_flood_of_writes_no_reader_is_fed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The last one goes too; a query amid the flood is answered, freshly, and when it ends there is a reader again."""
    monkeypatch.setattr(pool, "FLOOD", 100)
    served = Served(tmp_path)
    flooding = threading.Event()

    def flood() -> None:
        for size in range(1, 10**6):
            if flooding.is_set():
                return
            served.store.apply([put(6000, size % 50 + 1)])
            time.sleep(0.002)

    thread = threading.Thread(target=flood)
    try:
        until(lambda: len(served.readers.pids) == 2)
        monkeypatch.setattr(pool, "RESTING_IN_FLOOD", 0.0)
        thread.start()
        until(lambda: not served.readers.pids)
        served.store.apply([put(6001, 3)])
        assert len(served.rows(f"SELECT ?o {{ <{BASE}n6001> ?p ?o }}")) == 3
        until(lambda: not served.readers.pids)
    finally:
        flooding.set()
        thread.join()
    until(lambda: len(served.readers.pids) == 1)
    served.store.close()


def test_closing_leaves_no_process_and_no_folder(tmp_path: Path) -> None:
    """Readers and replicas go with the store; a query that comes later is told so."""
    served = Served(tmp_path)
    until(lambda: len(served.readers.pids) == 2)
    pids = served.readers.pids
    served.rows(ALL)
    served.store.close()
    assert not any(Path(f"/proc/{pid}").exists() for pid in pids)
    assert not (tmp_path / "readers").exists()
    with pytest.raises(StoreUnavailable):
        served.store.answer("ASK {}", media_type=JSON)


def test_what_an_earlier_life_left_is_removed(tmp_path: Path) -> None:
    """Replicas of a service that was killed are gone once the next one runs."""
    left = tmp_path / "readers" / "0"
    left.mkdir(parents=True)
    (left / "quads").write_text("x")
    served = Served(tmp_path)
    try:
        assert len(served.rows(ALL)) == 1000
        assert not (left / "quads").exists()
    finally:
        served.store.close()


def test_who_waits_is_not_held_up_by_what_was_written_since() -> None:
    """A reader that holds what a query needs answers it at once; what came later it replays when there is time."""
    pools = pool.Pool(0, 1, lambda: None, lambda _: None)
    for generation in range(1, 4):
        pools.follow(Delta(generation, "INSERT DATA {}", (), bulk=False))
    owed: list[list[int]] = []
    reader: Any = SimpleNamespace(
        generation=2, begin=lambda _, deltas: owed.append([each.generation for each in deltas])
    )
    for need in (1, 2, 3):
        assert pools.lend(reader, need, 9.0, "", long=False)
    assert owed == [[], [], [3]]


def test_long_queries_leave_a_reader_to_short_ones(tmp_path: Path) -> None:
    """With more runaways than readers, one of them gives way: a short query of another client is answered before any deadline."""
    served = Served(tmp_path)

    def ask(who: str, query: str) -> list[str]:
        fairness.client.set(who)
        return served.rows(query, timeout=PATIENCE)

    def run_away() -> None:
        with pytest.raises(StoreUnavailable):
            ask("hostile", RUNAWAY)

    runaways = [threading.Thread(target=run_away) for _ in range(4)]
    for each in runaways:
        each.start()
    until(lambda: served.readers.ended["gave way"] > 0)
    answers = [ask("good", f"SELECT (COUNT(*) AS ?n) {{ ?s ?p ?o }} # {number}") for number in range(3)]
    assert answers == [["1000"]] * 3
    assert not served.readers.ended["timeout"]
    served.store.close()
    for each in runaways:
        each.join()


def test_the_client_that_used_least_comes_first(tmp_path: Path) -> None:
    """Of those who wait for a reader, the one whose client used less time is served first, whoever came first."""
    served = Served(tmp_path)
    served.readers.charge("busy", 100.0)
    held = [served.readers.borrow(time.monotonic() + PATIENCE, who) for who in ("x", "y")]
    readers = [each if isinstance(each, QueryWorker) else each.result(30) for each in held]
    waiting = [served.readers.borrow(time.monotonic() + PATIENCE, who) for who in ("busy", "busy", "new")]
    served.readers.release(readers[0])
    assert [isinstance(each, Promise) and each.done() for each in waiting] == [False, False, True]
    served.readers.release(readers[1])
    assert [isinstance(each, Promise) and each.done() for each in waiting] == [True, False, True]
    served.store.close()
