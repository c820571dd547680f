"""Streams beside a client that is slow or silent: it is told that nothing is new, and let go when it takes nothing."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterator
from pathlib import Path

import pytest
from starlette.types import Message

from api import streams
from api.routes import events
from api.routes.events import Subscribers
from kg.feed import Feed, Position, Wanted
from kg.indexing import Index
from kg.store.embedded import EmbeddedStore
from kg.store.protocol import GraphWrite
from tests.unit.test_search import IRIS, lines

PATIENCE = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Open an empty store."""
    opened = EmbeddedStore(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def feed(store: EmbeddedStore) -> Iterator[Feed]:
    """Follow the store."""
    index = Index(store, IRIS, None)
    following = Feed(store, IRIS, index)
    store.follow_deltas(lambda _: following.wake())
    following.start()
    yield following
    following.stop()
    index.close()


def write(store: EmbeddedStore, id: str) -> None:
    """Write a pod."""
    store.apply([GraphWrite(IRIS.expand(id), lines(id, "Pod"), "user")])


def test_a_silent_subscriber_is_told_where_it_is(
    store: EmbeddedStore, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a time without a wanted event a comment comes with the place that has been reached, also after events came: it goes on from there."""
    monkeypatch.setattr(events, "HEARTBEAT", 0.05)

    async def follow() -> list[str]:
        stream = events._stream(feed, Subscribers(feed), Position(0), Wanted(namespace=frozenset({"n"})))
        said = [(await anext(stream)).decode()]
        write(store, "prod/n/pod/a")
        while "data: " not in said[-1]:
            said.append((await anext(stream)).decode())
        write(store, "prod/other/pod/b")  # not wanted, but passed
        while "id: 2.0\n: nothing new" not in said[-1]:
            said.append((await anext(stream)).decode())
        await stream.aclose()  # type: ignore[attr-defined]
        return said

    said = asyncio.run(asyncio.wait_for(follow(), PATIENCE))
    assert said[0].startswith("retry: 2000\nid: 0\n")
    assert sum(each.count("data: ") for each in said) == 1
    assert feed.readers == 0


def test_a_subscriber_that_takes_nothing_is_let_go(
    store: EmbeddedStore, feed: Feed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One whose connection takes no more loses its place after a while, without an error; a slow one keeps it."""
    monkeypatch.setattr(streams, "STALLED", 0.3)
    sent: list[bytes] = []

    async def never(message: Message) -> None:
        sent.append(message.get("body", b""))
        if b"data: " in sent[-1]:
            await asyncio.Event().wait()

    async def follow() -> None:
        others = Subscribers(feed)
        response = streams.Stream(events._stream(feed, others, Position(0), Wanted()), media_type=events.STREAM)
        following = asyncio.create_task(response.stream_response(never))
        write(store, "prod/n/pod/a")
        await following
        assert feed.readers == 0

    asyncio.run(asyncio.wait_for(follow(), PATIENCE))
    assert sum(each.count(b"data: ") for each in sent) == 1


def test_pieces_come_one_by_one_to_a_slow_client(monkeypatch: pytest.MonkeyPatch) -> None:
    """What is limited is the time of a piece, not that of the whole."""
    monkeypatch.setattr(streams, "STALLED", 0.4)
    sent: list[bytes] = []

    async def pieces() -> AsyncIterator[bytes]:
        for number in range(8):
            yield b"%d" % number

    async def slow(message: Message) -> None:
        await asyncio.sleep(0.08)
        sent.append(message.get("body", b""))

    asyncio.run(asyncio.wait_for(streams.Stream(pieces()).stream_response(slow), PATIENCE))
    assert b"".join(sent) == b"01234567"


def test_older_events_wait_for_the_index(store: EmbeddedStore, tmp_path: Path) -> None:
    """While everything is listed anew, what an older event is filtered by is not known: it is told when it is, not left out."""
    write(store, "prod/n/pod/a")
    index = Index(store, IRIS, None)
    feed = Feed(store, IRIS, index)
    index._whole.clear()

    async def follow() -> bytes:
        stream = events._stream(feed, Subscribers(feed), Position(0), Wanted(type=frozenset({"Pod"})))
        await anext(stream)
        coming = asyncio.ensure_future(anext(stream))
        done, _ = await asyncio.wait({coming}, timeout=0.2)
        assert not done
        index._whole.set()
        index.catch_up()
        found = await coming
        await stream.aclose()  # type: ignore[attr-defined]
        return found

    assert b"prod/n/pod/a" in asyncio.run(asyncio.wait_for(follow(), PATIENCE))
    feed.stop()
    index.close()
