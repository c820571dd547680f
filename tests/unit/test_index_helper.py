"""A process takes into the search index what is much: as the service would have, or not at all."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

from kg import index_helper
from kg.index_helper import Helper, Lost
from kg.indexing import Index
from kg.intake import Taken
from kg.store.embedded import EmbeddedStore
from kg.store.protocol import GraphWrite
from tests.unit.test_search import IRIS, NOON, contents, lines
from tests.waiting import until

ROOT = Path(__file__).parents[2]


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Open an empty store."""
    with closing(EmbeddedStore(tmp_path / "s", clock=lambda: NOON)) as opened:
        yield opened


@pytest.fixture
def index(store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch) -> Iterator[Index]:
    """Open its index, with a helper for three changes or more, which has begun."""
    monkeypatch.setattr(index_helper, "MUCH", 3)
    write(store, *[pod(number) for number in range(5)])
    with closing(index_of(store)) as made:
        made.catch_up()  # what is not there yet is listed, by the service itself
        write(store, *[pod(number, "Pending") for number in range(5)])
        until(lambda: caught_up_by_helper(store, made))
        yield made


def index_of(store: EmbeddedStore) -> Index:
    """Open an index that may be helped."""
    file = store.directory / "search.sqlite"
    return Index(store, IRIS, file, helper=Helper(store.log_file, file, IRIS, store.has_changed))


def write(store: EmbeddedStore, *writes: GraphWrite) -> None:
    """Write each alone: a generation for each."""
    for each in writes:
        store.apply([each])


def pod(number: int, phase: str = "Running", **more: Any) -> GraphWrite:
    """Make a write of a pod."""
    id = f"prod/a/pod/p{number}"
    return GraphWrite(IRIS.expand(id), lines(id, "Pod", phase=phase, **more), "user")


def helper(index: Index) -> Helper:
    """Return the helper of an index."""
    assert index._helper
    return index._helper


def caught_up_by_helper(store: EmbeddedStore, index: Index) -> bool:
    """Write three changes more and have them taken in; tell whether the process did it."""
    position = index.position
    write(store, *[pod(number, f"At{store.generation}") for number in range(3)])
    taken = helper(index).take_in(position, store.generation)
    index.catch_up()  # the same again, by the service: it changes nothing
    return taken is not None


def pid(index: Index) -> int:
    """Return the id of the process."""
    process = helper(index)._process
    assert process
    return process.pid


def same_as_anew(store: EmbeddedStore, index: Index) -> bool:
    """Tell whether an index holds and counts what one that is made anew does."""
    with closing(Index(store, IRIS, None)) as fresh:
        return contents(index) == contents(fresh) and sorted(index.facets.values()) == sorted(fresh.facets.values())


def test_what_the_process_takes_in_is_what_the_service_would(store: EmbeddedStore, index: Index) -> None:
    """Entities that come, change in words, change in nothing that is found, go and come again; graphs that are no entities."""
    write(
        store,
        *[pod(number) for number in range(4, 9)],
        *[pod(number, label=["app=shop"]) for number in range(3)],
        pod(3, restarts=7),
        *[GraphWrite(IRIS.expand(f"prod/a/pod/p{number}"), None, "user") for number in (4, 5, 2)],
        pod(2, "Failed"),
        GraphWrite(
            "https://elsewhere.example/g", frozenset({'<https://a.example/x> <https://a.example/y> "1" .'}), "user"
        ),
    )
    before = pid(index)
    index.catch_up(helped=True)
    assert index.position == store.generation
    assert pid(index) == before
    assert helper(index)._not_before == 0
    assert same_as_anew(store, index)
    write(store, pod(7, "Late"))
    index.catch_up()
    assert same_as_anew(store, index)


def test_it_is_graphs_that_are_counted_and_not_writes(store: EmbeddedStore, index: Index) -> None:
    """Many graphs that were written as one are much; one that is written is not."""
    position = index.position
    store.apply([pod(0, "Alone")])
    assert helper(index).take_in(position, store.generation) is None
    store.apply([pod(number, "Together") for number in range(1, 4)])
    taken = helper(index).take_in(position, store.generation)
    assert taken
    assert (taken.position, taken.changes) == (store.generation, 4)


@pytest.mark.parametrize("fault", ["killed", "unheard", "stopped", "no text", "no index"])
def test_what_the_process_cannot_take_in_the_service_does(
    store: EmbeddedStore, index: Index, monkeypatch: pytest.MonkeyPatch, fault: str
) -> None:
    """Whatever becomes of the process, nothing is missing; it is not begun again at once."""
    write(store, *[pod(number, "Other") for number in range(6)])
    if fault == "killed":
        os.kill(pid(index), signal.SIGKILL)
    elif fault == "unheard":
        asked = Helper._asked

        def lost(self: Helper, *given: int) -> Taken:
            asked(self, *given)
            raise ConnectionResetError

        monkeypatch.setattr(Helper, "_asked", lost)
    elif fault == "stopped":
        os.kill(pid(index), signal.SIGSTOP)
        monkeypatch.setattr(index_helper, "_ANSWER", 0.2)
    elif fault == "no text":
        with closing(sqlite3.connect(store.log_file)) as connection, connection:
            connection.execute("DELETE FROM texts WHERE graph LIKE '%p3'")
    else:
        helper(index).end()
        helper(index)._arguments = (str(store.log_file), str(store.directory), IRIS.base)

        def refused() -> bool:
            try:
                return helper(index).take_in(index.position, store.generation) is not None
            except Lost:
                return True

        until(refused)
    index.catch_up(helped=True)
    assert index.position == store.generation
    assert same_as_anew(store, index)
    assert helper(index)._process is None
    write(store, *[pod(number, "Again") for number in range(6)])
    index.catch_up(helped=True)
    assert helper(index)._process is None
    assert same_as_anew(store, index)


def test_the_process_goes_when_it_is_not_needed(
    store: EmbeddedStore, index: Index, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a rest it is ended, and with the index in any case; it comes again when there is much."""
    process = pid(index)
    index.rest()
    assert alive(process)
    monkeypatch.setattr(index_helper, "REST", 0.0)
    write(store, pod(1, "Other"))
    index.catch_up(helped=True)  # too little to ask for
    index.rest()
    assert not alive(process)
    until(lambda: caught_up_by_helper(store, index))
    process = pid(index)
    index.close()
    assert not alive(process)


def test_a_damaged_index_takes_the_process_along(store: EmbeddedStore, index: Index) -> None:
    """It would go on writing into the file that is not there any more."""
    process = pid(index)
    with closing(sqlite3.connect(store.directory / "search.sqlite")) as connection:
        connection.execute("DROP TABLE entity")
    write(store, *[pod(number, "Other") for number in range(6)])
    index.catch_up(helped=True)
    index.wait_listed(30)
    index.catch_up(helped=True)
    assert not alive(process)
    assert same_as_anew(store, index)


BEGINNING = """
import sys
from pathlib import Path
from kg import index_helper
from kg.index_helper import Helper
from kg.iris import Iris

index_helper.MUCH = 1
helper = Helper(Path(sys.argv[1]), Path(sys.argv[2]), Iris("https://kg.example"), lambda *_: True)
helper.take_in(0, 5)
print(helper._process.pid, flush=True)
sys.stdin.read()
"""


def test_the_process_dies_with_the_service(store: EmbeddedStore, index: Index) -> None:
    """``kill -9`` leaves nobody who writes into an index that the next life has opened."""
    command = [sys.executable, "-c", BEGINNING, str(store.log_file), str(store.directory / "search.sqlite")]
    with subprocess.Popen(command, cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as service:
        assert service.stdout
        process = int(service.stdout.readline())
        assert alive(process)
        service.kill()
    until(lambda: not alive(process))


def alive(process: int) -> bool:
    """Tell whether a process runs."""
    try:
        return Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()[0] not in "ZX"
    except FileNotFoundError:
        return False
