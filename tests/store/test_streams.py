"""Streams: how they begin, fail and end; a silent subscriber is told that nothing is new (tests/service/test_stalled.py: stalled ones)."""

from __future__ import annotations

import asyncio
import socket
import threading
import time
from collections.abc import Iterator
from contextlib import suppress
from pathlib import Path

import pytest
from starlette.types import Message
from structlog.testing import capture_logs

from drumlin.api.http import tcp_info
from drumlin.api.http.streaming import BodyStream, _Begun
from drumlin.api.routes import events
from drumlin.api.routes.events import Subscribers
from drumlin.kg.errors import SourceUnavailable, TooLarge
from drumlin.kg.events.feed import ChangeFeed, EventFilter, Position
from drumlin.kg.search.index import Index
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite
from tests.store.test_search import IRIS, lines

PATIENCE = 30


@pytest.fixture
def store(tmp_path: Path) -> Iterator[EmbeddedStore]:
    """Open an empty store."""
    opened = EmbeddedStore(tmp_path / "store")
    yield opened
    opened.close()


@pytest.fixture
def feed(store: EmbeddedStore) -> Iterator[ChangeFeed]:
    """Follow the store."""
    index = Index(store, IRIS, None)
    following = ChangeFeed(store, IRIS, index)
    store.follow_deltas(lambda _: following.wake())
    following.start()
    yield following
    following.stop()
    index.close()


def write(store: EmbeddedStore, id: str) -> None:
    """Write a pod."""
    store.apply([GraphWrite.of(IRIS.expand(id), lines(id, "Pod"), "user")])


def test_a_silent_subscriber_is_told_where_it_is(
    store: EmbeddedStore, feed: ChangeFeed, monkeypatch: pytest.MonkeyPatch
) -> None:
    """After a time without a wanted event a comment comes with the place that has been reached, also after events came: it goes on from there."""
    monkeypatch.setattr(events, "HEARTBEAT", 0.05)

    async def follow() -> list[str]:
        stream = events._stream(feed, Subscribers(feed), Position(0), EventFilter(namespace=frozenset({"n"})))
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


def test_the_first_piece_is_made_before_the_answer_begins() -> None:
    """What goes wrong before it is raised, so that it has a status."""

    def pieces() -> Iterator[bytes]:
        raise TooLarge("more than there is room for")
        yield b""

    with pytest.raises(TooLarge):
        BodyStream(pieces(), "text/plain")


async def sent_of(pieces: Iterator[bytes], leaves_after: int | None = None) -> list[Message]:
    """Return what is sent of a stream to a client that may leave."""
    sent: list[Message] = []
    gone = asyncio.Event()

    async def receive() -> Message:
        await gone.wait()
        return {"type": "http.disconnect"}

    async def send(message: Message) -> None:
        sent.append(message)
        if len(sent) == leaves_after:
            gone.set()
            await asyncio.Event().wait()

    await BodyStream(pieces, "text/plain")({"type": "http", "method": "GET"}, receive, send)
    return sent


def test_pieces_are_closed_with_the_answer() -> None:
    """When the last was sent and when the client leaves: not by the garbage collector, and not on the event loop."""
    closed: list[str] = []

    def pieces() -> Iterator[bytes]:
        try:
            for number in range(3):
                yield b"%d" % number
        finally:
            closed.append(threading.current_thread().name)

    sent = asyncio.run(asyncio.wait_for(sent_of(pieces()), PATIENCE))
    assert b"".join(each.get("body", b"") for each in sent) == b"012"
    assert not sent[-1]["more_body"]
    kept = pieces()
    asyncio.run(asyncio.wait_for(sent_of(kept, leaves_after=2), PATIENCE))
    assert len(closed) == 2
    assert threading.current_thread().name not in closed


def test_an_answer_that_fails_on_the_way_has_no_end() -> None:
    """A 200 was said already, so the client is told by a body without an end, and the log why."""

    def pieces() -> Iterator[bytes]:
        yield b"a"
        raise SourceUnavailable("prometheus does not answer")

    with capture_logs() as logged:
        sent = asyncio.run(asyncio.wait_for(sent_of(pieces()), PATIENCE))
    assert [each.get("body") for each in sent] == [None, b"a"]
    assert sent[-1]["more_body"]
    assert logged == [{"event": "result_cut", "log_level": "warning", "error": "prometheus does not answer"}]


def test_a_piece_in_the_making_is_waited_for() -> None:
    """Who closes pieces while a thread still makes one does not fail with it."""
    making, made = threading.Event(), threading.Event()

    def pieces() -> Iterator[bytes]:
        yield b"a"
        making.set()
        made.wait(PATIENCE)
        yield b"b"

    begun = _Begun(pieces())
    next(begun)
    thread = threading.Thread(target=next, args=(begun,))
    thread.start()
    making.wait(PATIENCE)
    closing = threading.Thread(target=begun.close)
    closing.start()
    made.set()
    for each in (thread, closing):
        each.join(PATIENCE)
    with pytest.raises(StopIteration):
        next(begun)


def test_older_events_wait_for_the_index(store: EmbeddedStore, tmp_path: Path) -> None:
    """While everything is listed anew, what an older event is filtered by is not known: it is told when it is, not left out."""
    write(store, "prod/n/pod/a")
    index = Index(store, IRIS, None)
    feed = ChangeFeed(store, IRIS, index)
    index._whole.clear()

    async def follow() -> bytes:
        stream = events._stream(feed, Subscribers(feed), Position(0), EventFilter(type=frozenset({"Pod"})))
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


def loopbacks() -> Iterator[tuple[str, socket.AddressFamily, str]]:
    """Yield where one may listen on this machine, and from where that is reached: not each has IPv6."""
    yield "127.0.0.1", socket.AF_INET, "127.0.0.1"
    with suppress(OSError), socket.create_server(("::1", 0), family=socket.AF_INET6):
        yield "::1", socket.AF_INET6, "::1"
        yield "::", socket.AF_INET6, "127.0.0.1"


@pytest.mark.parametrize(("listens", "family", "at"), list(loopbacks()))
def test_a_connection_is_found_by_who_is_at_its_other_end(listens: str, family: socket.AddressFamily, at: str) -> None:
    """What it has acknowledged is told, and the connection is cut for both, though it is held elsewhere; one that is closed tells nothing."""
    with (
        socket.create_server((listens, 0), family=family, dualstack_ipv6=listens == "::") as server,
        socket.create_connection((at, server.getsockname()[1])) as client,
        server.accept()[0] as held,
    ):
        descriptor = tcp_info.connections()[held.getpeername()[:2]]
        assert descriptor == held.fileno()
        before = tcp_info.acknowledged(descriptor)
        held.sendall(bytes(1000))
        assert len(client.recv(1000, socket.MSG_WAITALL)) == 1000
        while tcp_info.acknowledged(descriptor) < before + 1000:
            time.sleep(0.001)
        tcp_info.cut(descriptor)
        assert client.recv(1) == b""
        with pytest.raises(BrokenPipeError):
            held.send(b"more")
    assert tcp_info.acknowledged(descriptor) == 0
