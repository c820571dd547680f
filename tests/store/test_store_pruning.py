"""A change log that is shortened while it is written: what it still tells is whole, what it does not tell is refused, nothing else is lost."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import closing
from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest

from drumlin.kg.errors import EventsGone, StoreUnavailable
from drumlin.kg.events.feed import ChangeFeed, Position
from drumlin.kg.model.iris import Iris
from drumlin.kg.search.index import Index
from drumlin.kg.store.embedded import backups, retention
from drumlin.kg.store.embedded.consistency import check
from drumlin.kg.store.embedded.retention import Kept
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.killing import agree

BASE = "https://kg.example"
START = datetime(2026, 11, 28, 12, tzinfo=UTC)
Opener = Callable[[], EmbeddedStore]


class Clock:
    """A clock that moves on by a minute each time it is asked for a batch's time, and can be put forward."""

    def __init__(self) -> None:
        self.now = START

    def __call__(self) -> datetime:
        """Tell the time."""
        self.now += timedelta(minutes=1)
        return self.now


def name(number: int) -> str:
    """Name an entity's graph."""
    return f"{BASE}/id/prod/shop/pod/p{number:03}"


def write(number: int, value: object) -> GraphWrite:
    """Make a graph say something; None removes it."""
    lines = None if value is None else frozenset([f'<{name(number)}> <https://w3id.org/drumlin/ns#name> "{value}" .'])
    return GraphWrite.of(name(number), lines, "user")


@pytest.fixture
def small_steps(monkeypatch: pytest.MonkeyPatch) -> None:
    """Look at five rows after each two that are written."""
    monkeypatch.setattr(retention, "EVERY", 2)
    monkeypatch.setattr(retention, "STEP", 5)


@pytest.fixture
def clock() -> Clock:
    """A clock of the test's own."""
    return Clock()


@pytest.fixture
def store(tmp_path: Path, clock: Clock, small_steps: None) -> Iterator[EmbeddedStore]:
    """A store whose log reaches back about twenty writes."""
    del small_steps
    with closing(EmbeddedStore(tmp_path / "store", clock=clock, kept=Kept(timedelta(minutes=40), 1 << 30))) as opened:
        yield opened


def busy(store: EmbeddedStore, writes: int, graphs: int = 7) -> None:
    """Write again and again into some graphs, every fifth time removing one if it is there, until all steps are made."""
    begin = store.generation
    while (number := store.generation) < begin + writes:
        there = store.entry(name(number % graphs)) is not None
        store.apply([write(number % graphs, None if there and number % 5 == 4 else number)])
        store._applied()  # till then a row is not deleted
    quiet(store)


def quiet(store: EmbeddedStore) -> None:
    """Wait until the writer has made the steps that are due: it makes them after it has answered."""
    while True:
        store.apply([write(999, None)])
        if store._pruning._written < retention.EVERY:
            return


def rows(store: EmbeddedStore) -> int:
    """Count the rows of the log."""
    return int(store._changes._read("SELECT count(*) FROM log")[0][0])


def test_old_changes_are_given_up_and_the_rest_is_whole(store: EmbeddedStore) -> None:
    """The log stays short however much is written, begins where it says, and what it tells agrees with the store."""
    busy(store, 200)

    assert 200 - 60 < store.oldest < 200
    assert rows(store) < 60 + 7 + 20
    assert [each.generation for each in store.log(store.oldest - 1)] == list(range(store.oldest, 201))
    agree(store)


def test_who_asks_for_older_is_told_where_the_log_begins(store: EmbeddedStore) -> None:
    """Nothing is skipped silently: the error has the oldest and the newest generation."""
    busy(store, 100)

    for since in (0, store.oldest - 2):
        with pytest.raises(EventsGone) as gone:
            store.log(since, 5)
        assert gone.value.detail == {"oldest": store.oldest, "newest": 100}


def test_a_graph_that_is_at_rest_keeps_its_last_change_and_no_more(store: EmbeddedStore) -> None:
    """Of graphs that are not written one row is left each; written again, the old one goes; removed, none remains."""
    store.apply([write(100 + number, "still") for number in range(30)])
    busy(store, 120)
    assert rows(store) < 30 + 60 + 7 + 20
    store.apply([write(100 + number, "moved") for number in range(15)])
    store.apply([write(115 + number, None) for number in range(15)])
    busy(store, 120)

    left = store._changes._read("SELECT graph, count(*) FROM log WHERE graph >= ? GROUP BY graph", (name(100),))
    assert left == [(name(100 + number), 1) for number in range(15)]
    agree(store)


def test_too_many_bytes_shorten_the_log_before_its_time(tmp_path: Path, small_steps: None) -> None:
    """The file's used part stays about where it may be, though nothing is old."""
    del small_steps
    with closing(EmbeddedStore(tmp_path, kept=Kept(timedelta(days=7), 96 << 10))) as store:
        for number in range(30):
            store.apply([write(n, f"{number} {n}") for n in range(50)])
            store._applied()
        quiet(store)
        assert store._changes.used_bytes() < 130 << 10
        assert 1 < store.oldest <= 30
        agree(store)


def test_what_a_follower_has_not_read_is_kept(store: EmbeddedStore) -> None:
    """However old it is; once read, it goes with the next writes."""
    read = [3]
    store.keep_log_after(lambda: read[0])
    busy(store, 100)
    assert store.oldest <= 4
    assert store.log(3, 1)[0].generation == 4

    read[0] = 10**6
    busy(store, 40)
    assert store.oldest > 60


def test_without_limits_the_log_is_whole(tmp_path: Path, small_steps: None) -> None:
    """Nothing is given up by tools that only open the store."""
    del small_steps
    with closing(EmbeddedStore(tmp_path)) as store:
        busy(store, 60)
        assert (store.oldest, len(store.log(0))) == (1, 60)


def test_pruning_goes_on_where_it_ended_when_the_store_is_opened_again(
    tmp_path: Path, clock: Clock, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A pass that was cut leaves rows that no one can ask for; the next life deletes them."""
    monkeypatch.setattr(retention, "EVERY", 40)
    monkeypatch.setattr(retention, "STEP", 1)
    kept = Kept(timedelta(minutes=30), 1 << 30)
    with closing(EmbeddedStore(tmp_path, clock=clock, kept=kept)) as store:
        busy(store, 90)
        oldest = store.oldest
        assert oldest > 1
        assert rows(store) > 80
    monkeypatch.setattr(retention, "EVERY", 2)
    monkeypatch.setattr(retention, "STEP", 50)
    with closing(EmbeddedStore(tmp_path, clock=clock)) as store:
        assert store.oldest == oldest
        busy(store, 10)
        assert store.oldest == oldest
        assert rows(store) <= 100 - oldest + 1 + 7
        agree(store)


def test_a_disk_that_refuses_to_prune_does_not_refuse_to_write(
    store: EmbeddedStore, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The write is acknowledged; the log is shortened when the disk allows it."""

    def refuse(*_: object) -> None:
        raise StoreUnavailable("no")

    with monkeypatch.context() as patched:
        patched.setattr(store._changes, "give_up", refuse)
        busy(store, 80)
        assert (store.generation, store.oldest) == (80, 1)
    busy(store, 10)
    assert store.oldest > 1


def test_a_check_and_a_backup_know_where_the_log_begins(store: EmbeddedStore, tmp_path: Path) -> None:
    """A pruned log has no fault; restored, it begins at the same generation; a generation missing after that is a fault."""
    busy(store, 100)
    with store.snapshot() as snapshot:
        report = check(snapshot, Iris(BASE))
    assert (report.whole, report.oldest) == (True, store.oldest)

    with backups.filling(tmp_path / "backup") as made:
        backups.take(store, BASE, made, START)
    backups.restore(tmp_path / "backup", tmp_path / "restored")
    with closing(EmbeddedStore(tmp_path / "restored")) as restored:
        assert restored.log(restored.oldest - 1) == store.log(store.oldest - 1)
        agree(restored)
    store._changes._writer.execute("DELETE FROM log WHERE generation = ?", (store.oldest + 1,))
    with store.snapshot() as snapshot:
        assert check(snapshot, Iris(BASE)).faults["generations_missing"].count == 1


@pytest.mark.parametrize("known", [0, 5])
def test_an_index_that_the_log_does_not_reach_lists_what_there_is(
    store: EmbeddedStore, tmp_path: Path, known: int
) -> None:
    """Made anew, or left behind, it knows exactly the graphs that are there, and goes on with the log from then on."""
    path = tmp_path / "search.sqlite"
    busy(store, known)
    with closing(Index(store, Iris(BASE), path)) as index:
        index.catch_up()
        if known:  # in one life, as when another process has written
            busy(store, 100)
            assert index.position < store.oldest
            index.catch_up()
            _exact(index, store)
    busy(store, 100)
    with closing(Index(store, Iris(BASE), path)) as index:
        index.catch_up()
        _exact(index, store)
        busy(store, 3)
        index.catch_up()
        _exact(index, store)


def _exact(index: Index, store: EmbeddedStore) -> None:
    """Check that the index has what the store has, each once."""
    with index.reading() as connection:
        found = connection.execute("SELECT id, digest FROM entity WHERE NOT removed ORDER BY id").fetchall()
        (count,) = connection.execute("SELECT count(*) FROM found WHERE found MATCH 'prod'").fetchone()
    assert [(index.iri(id), digest) for id, digest in found] == [(each.graph, each.digest) for each in store.entries()]
    assert index.position == store.generation
    assert index.live == len(found)
    assert count == len(found)


def test_the_feed_holds_back_what_it_needs_and_refuses_what_is_gone(store: EmbeddedStore, tmp_path: Path) -> None:
    """A reader within the log gets every event; one before it is refused, at once or when it has fallen behind."""
    with closing(Index(store, Iris(BASE), tmp_path / "search.sqlite")) as index:
        feed = ChangeFeed(store, Iris(BASE), index)
        store.keep_log_after(lambda: feed.taken_in)
        busy(store, 50)
        assert store.oldest == 1  # it has not begun
        feed._follow()
        busy(store, 100)
        feed._follow()

        assert store.oldest > 1
        oldest = store.oldest
        feed.check(Position(oldest - 1))
        assert [each.position.generation for each in feed.after(Position(oldest - 1), 10**6)] == list(
            range(oldest, store.generation + 1)
        )
        for position in (Position(0), Position(oldest - 2), Position(oldest - 1, 0)):
            with pytest.raises(EventsGone) as gone:
                feed.check(position)
            assert gone.value.detail["oldest"] == oldest
