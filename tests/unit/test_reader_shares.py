"""Shares of the readers: long queries and heavy clients leave one to others."""

from __future__ import annotations

import time
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.kg.store.delta import Delta
from drumlin.kg.store.query_workers import pool
from drumlin.kg.store.query_workers.pool import HEAVY, LONG, LONG_OF_HEAVY, Pool, Promise

HOSTILE = ("a", "b", "c")


class Reader:
    """Stands for a process: what a pool knows of it."""

    def __init__(self) -> None:
        self.generation, self.replayed, self.fate = 0, 0, ""
        self.began: float | None = None
        self.client, self.long, self.reniced, self.spoke = "", False, False, True
        self.reap = self.bury = print

    def begin(self, *_: object) -> None:
        """Begin a query."""
        self.began, self.long, self.spoke = time.monotonic(), False, False

    def kill(self, fate: str) -> None:
        """Note why it ended."""
        self.fate = fate


class Desk:
    """A pool of ``count`` readers that are all there, and the readers that they asked to have started."""

    def __init__(self, count: int) -> None:
        self.started = 0
        self.pool: Any = Pool(0, count, self._start, lambda _: None)
        self.pool.idle = [Reader() for _ in range(count)]
        self.pool.readers = set(self.pool.idle)

    def _start(self) -> None:
        self.started += 1

    def ask(self, who: str, *, long: bool = False) -> Any:
        """Return a reader for a client, None when it must wait."""
        return self.pool.lend_idle(0, 9.0, who, long=long)

    def end(self, reader: Any) -> None:
        """Let the query of a reader end."""
        reader.began, reader.long, reader.spoke = None, False, True
        self.pool.offer(reader)

    def wait(self, who: str) -> Promise:
        """Let a client wait for a reader."""
        promise = Promise(0, 9.0, who, long=False)
        self.pool.waiting.put(who, promise)
        return promise


def desk(count: int, *heavy: str) -> Desk:
    """Return readers, of which some clients have used much, and another one a little."""
    made = Desk(count)
    for who in heavy:
        made.pool.usage.charge(who, 100 * HEAVY)
    made.pool.usage.charge("good", 0.01)
    return made


@given(st.integers(2, 5), st.lists(st.tuples(st.sampled_from(HOSTILE), st.booleans(), st.booleans()), max_size=30))
def test_a_client_that_has_used_little_never_waits_for_heavy_ones(
    count: int, actions: list[tuple[str, bool, bool]]
) -> None:
    """Whatever heavy clients ask and however their queries end, together they leave a reader, and make use of all others."""
    shared = desk(count, *HOSTILE)
    held: list[Any] = []
    for who, long, ends in actions:
        if ends and held:
            shared.end(held.pop())
        elif (reader := shared.ask(who, long=long)) is not None:
            held.append(reader)
        good = shared.ask("good")
        assert good is not None
        shared.end(good)
    while (reader := shared.ask("a")) is not None:
        held.append(reader)
    assert len(held) == count - 1


def test_a_heavy_client_that_waits_gets_its_share_and_no_more() -> None:
    """A reader that is free is kept when heavy clients have the others, and lent to the one that waits when it has not."""
    shared = desk(3, "a", "b")
    held = [shared.ask("a"), shared.ask("b")]
    waiting = shared.wait("a")
    shared.end(shared.ask("good"))
    assert not waiting.done()
    shared.end(held[0])
    assert waiting.result(0) is held[0]
    assert shared.ask("good") is not None


def test_a_client_that_is_alone_has_all_readers() -> None:
    """Nothing is kept for clients that are not there, however much one uses."""
    alone = Desk(3)
    alone.pool.usage.charge("a", 100 * HEAVY)
    assert None not in [alone.ask("a") for _ in range(3)]


def test_no_client_takes_all_readers_from_another() -> None:
    """Not even one that has used nothing so far: what its first queries take nobody knows."""
    shared = desk(3)
    assert None not in [shared.ask("new") for _ in range(2)]
    assert shared.ask("new") is None
    assert shared.ask("good") is not None


def test_the_only_reader_that_is_open_is_lent_once() -> None:
    """While others start, a heavy client that has none gets the one that is there, and no client a second."""
    shared = desk(3, "a")
    for reader in shared.pool.idle[1:]:
        reader.spoke = False
    del shared.pool.idle[1:]
    reader = shared.ask("a")
    assert reader is not None
    shared.end(reader)
    shared.pool.idle.append(Reader())
    shared.pool.readers |= set(shared.pool.idle)
    assert shared.ask("a") is not None
    assert shared.ask("a") is None


def test_a_heavy_client_stands_in_no_line_of_the_reader_that_is_kept() -> None:
    """Behind the query of another client there is no place for it once it has its share; behind its own there is."""
    shared = desk(3, "a")
    own = [shared.ask("a"), shared.ask("a")]
    other = shared.ask("good")
    assert not shared.pool.join(other, 1000, "a")
    assert shared.pool.join(own[0], 1000, "a")
    assert shared.pool.join(own[0], 1000, "good")


def test_the_newest_query_of_the_heaviest_client_gives_way() -> None:
    """Not that of the client that has used little, though it came last; and a heavy one's counts as long much sooner."""
    shared = desk(3, "a")
    now = time.monotonic()
    old, new = shared.ask("a"), shared.ask("a")
    long = shared.ask("good")
    long.began, old.began, new.began = now - 2 * LONG, now - 3 * LONG_OF_HEAVY, now - 2 * LONG_OF_HEAVY
    shared.pool.give_way(now)
    assert [each.fate for each in (old, new, long)] == ["", "gave way", ""]
    assert shared.started == 1


@pytest.mark.parametrize("waits", [True, False])
def test_one_reader_more_answers_while_all_send_results(*, waits: bool) -> None:
    """Results that have begun are not ended: who waits gets a reader beyond the number, which ends when it is idle."""
    shared = desk(2)
    for who in ("x", "y"):
        reader = shared.ask(who)
        reader.began, reader.spoke = time.monotonic() - 2 * LONG, True
    promise = shared.wait("good") if waits else None
    for _ in range(2):
        shared.pool.give_way(time.monotonic())
    assert shared.started == waits
    if promise is not None:
        more: Any = Reader()
        shared.pool.readers.add(more)
        shared.pool.starting -= 1
        shared.pool.offer(more)
        assert promise.result(0) is more
        shared.end(more)
        assert more.fate == "resting"
        successor: Any = Reader()
        shared.pool.readers.add(successor)
        shared.pool.worn.add(reader)
        shared.pool.offer(successor)
        assert not successor.fate
        shared.pool.forget(reader, "worn")
        assert len(shared.pool.readers) == 2


def test_the_readers_come_back_before_a_query_waits_for_one() -> None:
    """When all that are left work on what takes long, the others are started though nobody waits."""
    shared = desk(3, "a")
    del shared.pool.idle[1:]
    shared.pool.readers, shared.pool.size = set(shared.pool.idle), 1
    shared.pool.follow(Delta(1, "INSERT DATA {}", (), bulk=False))
    reader = shared.ask("a")
    shared.pool.give_way(reader.began + LONG_OF_HEAVY / 2)
    assert not shared.started
    shared.pool.give_way(reader.began + LONG_OF_HEAVY * 2)
    assert shared.started == 2


@pytest.mark.parametrize(("flooded", "busy", "waiting", "started"), [(True, 0, 1, 1), (True, 1, 1, 1), (True, 0, 9, 3), (False, 0, 1, 3)])  # fmt: skip
def test_a_flood_of_writes_starts_no_more_readers_than_are_waited_for(
    flooded: bool, busy: int, waiting: int, started: int
) -> None:
    """Readers do not outlast a flood, so each query that waits gets one, and none is started besides; else all come back."""
    made = Desk(busy)
    made.pool.size, made.pool.most = 0, 3
    for reader in made.pool.readers:
        reader.generation = 1
        reader.begin()
    made.pool.idle.clear()
    made.pool.follow(Delta(1, "", (), bulk=True))
    if not flooded:
        made.pool._flood_at = 0.0
    for number in range(waiting):
        made.wait(f"client {number}")
    made.pool.maintain()

    assert made.started == started


@pytest.mark.parametrize("ask", ["grow", "give_way", "maintain"])
def test_in_a_flood_of_writes_nothing_is_started_for_queries_that_may_come(ask: str) -> None:
    """Its replica would be outdated before, and each copy has the engine apply what it would collect; soon after the flood all come."""
    made = Desk(1)
    made.pool.size, made.pool.most = 1, 3
    (reader,) = made.pool.readers
    made.pool.follow(Delta(1, "", (), bulk=True))
    if ask == "give_way":
        made.pool.idle.clear()
        reader.begin()
    act = (lambda: made.pool.give_way(time.monotonic() + LONG)) if ask == "give_way" else getattr(made.pool, ask)
    act()
    assert made.started == 0
    made.pool._flood_at -= pool._QUIET
    act()
    assert made.started == {"grow": 3, "give_way": 3, "maintain": 1}[ask]
