"""An engine that has outgrown its graphs is built anew while the store is open: nobody notices, and nothing that happens meanwhile is lost."""

from __future__ import annotations

import os
import shutil
import socket
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import closing, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
from structlog.testing import capture_logs

from drumlin.kg.errors import StoreFull, StoreUnavailable
from drumlin.kg.store.embedded import engine_builder, engine_folder, engine_renewal, retention
from drumlin.kg.store.embedded.engine import EmbeddedEngine
from drumlin.kg.store.embedded.engine_builder import BuildOutcome, build_when_outgrown
from drumlin.kg.store.embedded.engine_renewal import EngineRenewal
from drumlin.kg.store.embedded.retention import Kept
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.store.query_workers.client import QueryExecutor
from drumlin.kg.store.query_workers.supervisor import Readers
from tests.killing import agree
from tests.store_behaviours import JSON, A, B, remove, values, write
from tests.waiting import until

ALL = "SELECT ?v { GRAPH ?g { ?s ?p ?v } }"
HUGE = 1 << 50


@pytest.fixture
def store(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[EmbeddedStore]:
    """Open a store whose engine is built anew in this process, always; it holds some graphs, one of them with a blank node."""
    monkeypatch.setattr(EngineRenewal, "_built", built_here)
    monkeypatch.setattr(engine_builder, "_SPARE", 0)
    opened = EmbeddedStore(tmp_path / "store")
    opened.apply([write(A, 1), write(B, 1), *others(20), blank(1)])
    yield opened
    opened.close()


def built_here(self: EngineRenewal, folder: Path, size: int) -> BuildOutcome:
    """Build without a process of its own, as if the engine were huge."""
    return build_when_outgrown(folder, self._changes.path, HUGE)


def others(count: int, value: object = 1) -> list[GraphWrite]:
    """Make writes of some more graphs."""
    return [write(f"http://g/{number}", value, "same") for number in range(count)]


def blank(value: int) -> GraphWrite:
    """Make a write of a graph with a blank node."""
    name = "http://blank"
    return GraphWrite.of(name, frozenset({f"<{name}> <http://p> _:b .", f'_:b <http://p> "{value}" .'}), "user")


def tables(store: EmbeddedStore) -> set[str]:
    """Name the engine's tables, by what no two of them share."""
    return {str(each.stat().st_ino) for each in store._engine.folder.glob("*.sst")}


def test_a_process_builds_an_engine_that_has_outgrown_its_graphs(tmp_path: Path) -> None:
    """The strings that were ever written are gone from the files, every graph is there, and what is written later too."""
    with closing(EmbeddedStore(tmp_path / "store")) as store:
        for _ in range(3):
            store.apply([write(f"http://g/{number}", os.urandom(2000).hex()) for number in range(50)])
            store.optimize()
        store.apply([*(remove(f"http://g/{number}") for number in range(49)), blank(1)])
        store.optimize()
        before = engine_folder.table_bytes(store._engine.folder)

        assert store.renewal.renew()
        assert engine_folder.table_bytes(store._engine.folder) < before / 3
        agree(store)
        store.apply([write(A, 1), blank(2)])
        agree(store)
        assert not store.renewal.renew(HUGE)
        assert (store.renewal.renewed, store.renewal.failed) == (1, 0)
        assert [each.name for each in store.directory.glob("quads*")] == ["quads.1"]
    with closing(EmbeddedStore(tmp_path / "store", rebuild=False)) as again:
        agree(again)
        assert again.renewal.renew()
        agree(again)
    assert [each.name for each in (tmp_path / "store").glob("quads*")] == ["quads"]


def test_an_engine_of_its_graphs_size_is_left_alone(tmp_path: Path) -> None:
    """It is compared with what the graphs need, and not again before it has twice the size."""
    with closing(EmbeddedStore(tmp_path / "store")) as store:
        store.apply(others(2000))
        store.optimize()
        found = tables(store)

        assert not store.renewal.renew()
        assert tables(store) == found
        needed = build_when_outgrown(tmp_path / "new", store.directory / "changes.sqlite", 0).needed
        assert needed / 4 < engine_folder.table_bytes(store._engine.folder) < needed * 2


def test_the_store_looks_at_its_engine_by_itself(
    store: EmbeddedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What is larger than small is built anew without being asked for, then there is a rest; a failure does not end that."""
    store.close()
    monkeypatch.setattr(engine_renewal, "EVERY", 0.01)
    monkeypatch.setattr(engine_renewal, "SMALL", 1)
    monkeypatch.setattr(engine_renewal, "_AGAIN", 0.0)
    failing = [StoreFull("no room"), RuntimeError("a fault")]

    def built(self: EngineRenewal, folder: Path, size: int) -> BuildOutcome:
        if failing:
            raise failing.pop(0)
        return built_here(self, folder, size)

    monkeypatch.setattr(EngineRenewal, "_built", built)
    with capture_logs() as logs, closing(EmbeddedStore(tmp_path / "store")) as again:
        again.optimize()
        until(lambda: again.renewal.renewed)
        assert again.renewal.failed == 2
        agree(again)
    assert [each["event"] for each in logs if each["event"].startswith("engine_")] == [
        "engine_not_renewed",
        "engine_not_renewed",
        "engine_renewed",
    ]


def test_writers_and_readers_notice_nothing(store: EmbeddedStore) -> None:
    """While engines take one another's place, no write or read fails, each reads what was acknowledged, and all of a write or none."""
    ending, failures = threading.Event(), []
    acknowledged = [1]

    def again(work: Callable[[], object]) -> None:
        try:
            while not ending.is_set():
                work()
        except Exception as error:  # noqa: BLE001 - it is what the test looks for
            failures.append(error)

    def writing() -> None:
        value = acknowledged[0] + 1
        store.apply([write(A, value), write(B, value)])
        acknowledged[0] = value

    def removing() -> None:
        store.apply([*others(20, "other"), blank(2)])
        store.apply([*(remove(f"http://g/{number}") for number in range(20)), blank(3)])

    def reading() -> None:
        least = acknowledged[0]
        one, other = (int(each["v"]) for each in store.look_up(f"SELECT ?v {{ VALUES ?g {{ <{A}> <{B}> }} ?g ?p ?v }}"))
        assert one == other >= least
        assert int(values(store, f"SELECT ?v {{ GRAPH <{A}> {{ ?s ?p ?v }} }}")[0]) >= least

    def exporting() -> None:
        found = dict(store.export())
        assert found[A] == {each.replace(B, A) for each in found[B]}

    threads = [threading.Thread(target=again, args=(each,)) for each in (writing, removing, reading, exporting)]
    for each in threads:
        each.start()
    try:
        for _ in range(6):
            store.renewal.renew()
    finally:
        ending.set()
        for each in threads:
            each.join()
    assert not failures
    assert store.renewal.renewed == 6
    agree(store)


def files(directory: Path) -> list[tuple[str, int]]:
    """List all files below a directory with their sizes."""
    return sorted((str(each), each.stat().st_size) for each in directory.rglob("*") if each.exists())


def copied(file: str, target: str) -> None:
    """Copy a file, unless RocksDB, which has merged it into another, removes it meanwhile."""
    with suppress(FileNotFoundError):
        shutil.copy2(file, target)


def test_a_kill_at_any_step_leaves_a_store_that_is_whole(
    store: EmbeddedStore, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As the files are before and after each step, a start takes them for no damage: engine and log agree, and nothing is left behind."""
    images: list[Path] = []
    renewing = threading.current_thread()

    def image() -> None:
        if threading.current_thread() is not renewing:  # the applier notes what it holds, too
            return
        images.append(tmp_path / f"image{len(images)}")
        while True:  # until nothing was merged meanwhile: a kill is one moment
            before = files(store.directory)
            shutil.copytree(store.directory, images[-1], copy_function=copied)
            if files(store.directory) == before:
                return
            shutil.rmtree(images[-1])

    def seen(owner: Any, name: str) -> None:
        done = getattr(owner, name)

        def step(*arguments: Any) -> Any:
            image()
            result = done(*arguments)
            image()
            return result

        monkeypatch.setattr(owner, name, step)

    caught_up = engine_renewal.catch_up

    def writing(*arguments: Any) -> int:
        store.apply([write(A, len(images)), remove(f"http://g/{len(images)}"), blank(len(images))])
        return caught_up(*arguments)

    store._applied()
    for owner, name in ((engine_renewal, "catch_up"), (EmbeddedEngine, "hold"), (EmbeddedEngine, "close"),
                        (EmbeddedEngine, "flush"), (EmbeddedEngine, "exchange"), (EmbeddedEngine, "remove")):  # fmt: skip
        seen(owner, name)
    monkeypatch.setattr(engine_renewal, "catch_up", writing)
    seen(engine_renewal, "catch_up")
    store.renewal.renew()
    monkeypatch.undo()
    image()

    agree(store)
    assert len(images) > 15
    newest = 0
    for each in images:
        with closing(EmbeddedStore(each, rebuild=False)) as again:
            agree(again)
            assert again.generation >= newest
            newest = again.generation
        assert [found.name for found in each.glob("quads*")] == ["quads"]
    assert newest == store.generation


@pytest.mark.parametrize("step", ["room", "fill", "catch up", "hold", "open"])
def test_a_full_disk_leaves_the_engine_that_there_is(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    """Whatever cannot be written, it is said, what was built is removed, and the store goes on; it succeeds once there is room."""
    store._applied()
    with monkeypatch.context() as patched:
        fail(patched, step)
        with pytest.raises(StoreUnavailable) as refused:
            store.renewal.renew()
        assert isinstance(refused.value, StoreFull)
    assert (store.renewal.renewed, store.renewal.failed) == (0, 1)
    store.apply([write(A, 2), *others(3, "other")])
    agree(store)
    assert [each.name for each in store.directory.glob("quads*")] == ["quads"]

    assert store.renewal.renew()
    agree(store)


def fail(patched: pytest.MonkeyPatch, step: str) -> None:
    """Have one step fail as on a full disk."""
    match step:
        case "room":
            patched.setattr(engine_builder, "_SPARE", HUGE)
        case "fill":
            patched.setattr(EmbeddedEngine, "load", lambda *_: raise_full())
        case "hold":
            patched.setattr(EmbeddedEngine, "hold", lambda *_: raise_full())
        case "catch up":
            patched.setattr(engine_renewal, "approach", lambda *_: raise_full())
        case "open":
            patched.setattr(engine_renewal, "EmbeddedEngine", lambda *_: raise_full())


def raise_full() -> None:
    """Fail as the engine does on a full disk."""
    raise StoreFull("no room")


def test_a_read_that_takes_long_goes_on_in_the_engine_in_which_it_began(store: EmbeddedStore) -> None:
    """Its files stay until it has ended; meanwhile the new engine is read and written."""
    assert values(store, ALL)  # the engine has taken over what is in the log
    with store._engine.using():
        old = store._engine.store
        renewing = threading.Thread(target=store.renewal.renew)
        renewing.start()
        until(lambda: store._engine.folder.name == "quads.1")
        store.apply([write(A, 2)])
        assert "2" in values(store, ALL)
        old.optimize()
        assert len(old) == len(store._engine.store) == 44
        assert renewing.is_alive()
        del old
    renewing.join()
    agree(store)
    assert [each.name for each in store.directory.glob("quads*")] == ["quads.1"]


def test_a_stream_that_nobody_reads_does_not_hold_up_the_end(store: EmbeddedStore) -> None:
    """It pins the files of the engine in which it runs; a store that is closed ends it, and the renewal that waits for it."""
    answer = store.answer(
        "SELECT * { GRAPH ?g { ?a ?b ?c } GRAPH ?h { ?d ?e ?f } GRAPH ?i { ?j ?k ?l } }", media_type=JSON
    )
    next(iter(answer.chunks))
    renewing = threading.Thread(target=store.renewal.renew)
    renewing.start()
    until(lambda: store._engine.folder.name == "quads.1")
    renewing.join(0.1)
    assert renewing.is_alive()
    store.close()
    renewing.join()
    assert store.renewal.renewed == 1


def test_the_log_is_not_shortened_by_what_a_build_needs(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A graph that goes while an engine with it is being built is gone afterwards, although the log may forget it at once."""
    monkeypatch.setattr(retention, "EVERY", 1)

    def built(self: EngineRenewal, folder: Path, size: int) -> BuildOutcome:
        outcome = built_here(self, folder, size)
        store.apply([remove(A)])
        store._applied()
        for number in range(20):
            store.apply([write(B, number)])
        return outcome

    monkeypatch.setattr(EngineRenewal, "_built", built)
    monkeypatch.setattr(engine_builder, "_SPARE", 0)
    with closing(EmbeddedStore(tmp_path / "store", kept=Kept(timedelta(0), 1 << 30))) as store:
        store.apply([write(A, 1)])
        store.apply([write(B, 1)])
        assert store.renewal.renew()
        assert store.oldest > 3
        agree(store)


def test_readers_go_on_beside_the_exchange(store: EmbeddedStore, tmp_path: Path) -> None:
    """Their replicas are of the engine before, and follow what is written; those that are made later are of the new one."""
    readers = Readers(store, tmp_path / "store" / "readers", count=1)
    store.answer_through(QueryExecutor(readers))
    assert len(values(store, ALL)) == 44
    store.renewal.renew()
    store.apply([write(A, 2)])
    assert "2" in values(store, ALL)
    (pid,) = readers.pids
    os.kill(pid, 9)
    until(lambda: readers.pids not in ([], [pid]))
    assert "2" in values(store, ALL)


def test_a_builder_that_fails_or_is_in_the_way_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It is said what came of it; a store that is closed meanwhile ends it, and does not wait for it."""
    with closing(EmbeddedStore(tmp_path / "store")) as store:
        store.apply([write(A, 1)])
        store.optimize()
        started = starting(monkeypatch, "raise SystemExit(3)")
        with pytest.raises(StoreUnavailable, match="ended with 3"):
            store.renewal.renew()
        agree(store)

        monkeypatch.setattr(engine_renewal, "_LOOK", 0.01)
        starting(monkeypatch, "import time; time.sleep(600)", started)
        renewing = threading.Thread(target=failing, args=(store.renewal.renew,))
        renewing.start()
        until(lambda: len(started) == 2)
    renewing.join()
    assert started[1].returncode == -9


def failing(work: Callable[[], object]) -> None:
    """Do what fails."""
    with pytest.raises(StoreUnavailable, match="ended with -9"):
        work()


def starting(
    monkeypatch: pytest.MonkeyPatch, code: str, started: list[subprocess.Popen[bytes]] | None = None
) -> list[subprocess.Popen[bytes]]:
    """Have processes run ``code`` instead of what they are started for, and return those."""
    found = [] if started is None else started

    def start(*_: str) -> tuple[subprocess.Popen[bytes], socket.socket]:
        ours, theirs = socket.socketpair()
        with theirs:
            found.append(subprocess.Popen([sys.executable, "-c", code], stdin=theirs.fileno()))
        return found[-1], ours

    monkeypatch.setattr("drumlin.kg.processes.start", start)
    return found
