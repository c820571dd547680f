"""The client before a service that is slow, busy, away, cut off or none at all: time-outs, retries, and no change lost or told twice."""

from __future__ import annotations

import asyncio
import itertools
import socket
import ssl
import threading
import time
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from email.utils import format_datetime
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

import drumlin
from drumlin.kg.client import events_api
from drumlin.kg.errors import (
    AlreadyExists,
    EventsGone,
    InvalidSettings,
    PreconditionFailed,
    SourceUnavailable,
    StoreUnavailable,
    Throttled,
)
from drumlin.kg.store.protocol import GraphWrite
from tests.integration.test_prometheus_tls import certificate
from tests.listening import listening
from tests.service.conftest import Service
from tests.service.gateway import Gateway, cut, gateway, refused, silent
from tests.service.test_subgraph import forecast

CHECKOUT = "prod/payments/deployment/checkout"


@pytest.fixture
def between(service: Service) -> Iterator[Gateway]:
    """A gateway before the service."""
    with gateway(service.url) as running:
        yield running


@pytest.fixture
def client(between: Gateway) -> Iterator[drumlin.Client]:
    """A client behind the gateway, that does not wait between two tries."""
    with drumlin.connect(between.url) as connected:
        connected.waited = unhurried(connected)  # type: ignore[attr-defined]
        yield connected


def unhurried(client: Any) -> list[float]:
    """Have a client note how long it would wait instead of waiting."""
    waited: list[float] = []

    async def pause(seconds: float) -> None:
        waited.append(seconds)

    client._carrier.pause = pause
    return waited


def awaited(url: str, ask: Callable[[drumlin.AsyncClient], Any], **options: Any) -> Any:
    """Let an asynchronous client ask, which does not wait between two tries either."""

    async def run() -> Any:
        async with drumlin.connect_async(url, **options) as client:
            unhurried(client)
            return await ask(client)

    return asyncio.run(run())


def in_seconds(seconds: float) -> str:
    """Return that moment as HTTP writes it."""
    return format_datetime(datetime.now(UTC) + timedelta(seconds=seconds), usegmt=True)


def test_a_service_is_asked_again_when_it_says(between: Gateway, client: Any) -> None:
    """Retry-After counts in seconds or as a date, up to half a minute; without one it is 0.2 s and then twice that, give or take half."""
    for said in ("7", in_seconds(15), "3600", in_seconds(-60)):
        between.acts += [refused(503, Retry_After=said)]
        assert client.about()["status"] == "alive"
    assert client.waited[0] == 7
    assert 5 < client.waited[1] <= 15
    assert client.waited[2:] == [30, 0]
    between.acts += [refused(429), refused(503, Retry_After="soon")]
    assert client.about()["status"] == "alive"
    assert 0.1 <= client.waited[4] <= 0.3
    assert 0.2 <= client.waited[5] <= 0.6
    between.acts += [refused(429, Retry_After="1")] * 3
    with pytest.raises(Throttled) as refusal:
        client.about()
    assert (refusal.value.detail["status"], refusal.value.detail["retryAfter"]) == (429, 1)
    between.acts += [refused(503), cut(0), cut(30)]
    with pytest.raises(SourceUnavailable):
        awaited(between.url, lambda twin: twin.about())
    assert not between.acts


@pytest.mark.parametrize("after", [0, 40])
def test_what_may_have_been_done_is_not_done_twice(between: Gateway, client: drumlin.Client, after: int) -> None:
    """A connection that breaks after the request: what changes nothing, and a plain PUT, is sent again; a create, a guarded write is not."""
    handle = client.subgraph(f"forecast/{uuid.uuid4().hex}")
    name = handle.id.rpartition("/")[2]
    between.acts += [cut(after)]
    with pytest.raises(SourceUnavailable, match="the connection broke|without"):
        handle.create(forecast(name))
    with pytest.raises(AlreadyExists):
        handle.create(forecast(name))
    between.acts += [cut(after)]
    etag = handle.put(forecast(name, model="b"))
    between.acts += [cut(after)]
    with pytest.raises(SourceUnavailable):
        handle.put(forecast(name, model="c"), if_match=etag)
    with pytest.raises(PreconditionFailed):
        handle.put(forecast(name, model="c"), if_match=etag)
    between.acts += [cut(after)]
    with pytest.raises(SourceUnavailable):
        handle.delete()
    assert [each.partition(" ")[0] for each in between.asked] == ["POST", "POST", "PUT", "PUT", "PUT", "PUT", "DELETE"]


def test_what_was_surely_not_done_is_done_after_all(between: Gateway, client: drumlin.Client) -> None:
    """429 means that nothing was done, so even a create is sent again; 503 may mean anything."""
    handle = client.subgraph(f"forecast/{uuid.uuid4().hex}")
    between.acts += [refused(429, Retry_After="0")]
    handle.create(forecast(handle.id.rpartition("/")[2]))
    between.acts += [refused(503)]
    with pytest.raises(StoreUnavailable):
        handle.delete()
    handle.delete()
    write = GraphWrite.of("https://kg.example/id/" + handle.id, None, "user", expected="0" * 64)
    between.acts += [cut(0)]
    with pytest.raises(SourceUnavailable):
        client.apply([write])


def test_silence_is_given_up_in_time(between: Gateway) -> None:
    """``timeout`` bounds the silence: before the answer, and in the midst of one that has begun; neither is asked again."""
    between.acts += [silent, silent]
    with drumlin.connect(between.url, timeout=0.5) as client, pytest.raises(SourceUnavailable, match="0.5 s") as late:
        client.about()
    assert "timeout" in str(late.value.hint)
    with pytest.raises(SourceUnavailable, match="nothing came"):
        awaited(between.url, lambda twin: twin.about(), timeout=0.5)
    assert len(between.asked) == 2
    with socket.create_server(("127.0.0.1", 0), backlog=0) as full:
        port = full.getsockname()[1]
        waiting = [socket.socket() for _ in range(3)]
        for each in waiting:
            each.setblocking(False)
            each.connect_ex(("127.0.0.1", port))
        with (
            drumlin.connect(f"http://127.0.0.1:{port}", timeout=0.1, retries=0) as client,
            pytest.raises(SourceUnavailable, match="in time"),
        ):
            client.about()
        for each in waiting:
            each.close()


CUTS = (0, 190, 400, 700, 1_500)
"""Bytes of the feed's answers after which it breaks: nothing, within the head, its first lines, an event's id or its data, later."""


def test_changes_go_on_after_every_kind_of_break(service: Service, between: Gateway, client: drumlin.Client) -> None:
    """Cut anywhere, refused for a while, or answered by a proxy: each change comes once and in order, by either client."""
    with drumlin.connect(service.url) as straight:
        whole = list(itertools.islice(straight.changes(since=0), 40))
    trouble = [cut(each) for each in CUTS]
    trouble += [refused(503, Retry_After="1"), refused(429), refused(502), refused(504), cut(2_000)]
    between.acts += trouble
    changes = client.changes(since=0)
    assert [next(changes) for _ in whole] == whole
    assert not between.acts
    asked = [each.get("last-event-id") for each in between.headers]
    assert asked[0] == "0"
    assert asked[-1] not in ("0", None)
    changes.close()
    between.acts += trouble

    async def follow(twin: drumlin.AsyncClient) -> None:
        found: list[dict[str, Any]] = []
        async for change in twin.changes(since=0):
            found.append(change)
            if len(found) == len(whole):
                break
        assert found == whole

    awaited(between.url, follow)
    assert not between.acts


def test_following_from_now_on_begins_where_the_service_said(
    service: Service, between: Gateway, client: drumlin.Client
) -> None:
    """Without ``since`` the place that the first connection told counts, also when it breaks before any event has come."""
    name = uuid.uuid4().hex
    created, found = threading.Event(), list[dict[str, Any]]()

    def away(request: Any, _: bytes) -> None:
        assert created.wait(30)
        request.connection.close()

    between.acts += [cut(b"from here on\n\n"), away]
    reading = threading.Thread(target=lambda: found.append(next(client.changes(type="Forecast"))))
    reading.start()
    deadline = time.monotonic() + 30
    while len(between.asked) < 2:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    with drumlin.connect(service.url) as other:
        other.subgraph(f"forecast/{name}").create(forecast(name))
    created.set()
    reading.join(60)
    assert [each["subject"] for each in found] == [f"forecast/{name}"]


def test_a_feed_is_given_up_in_the_end(between: Gateway, client: Any) -> None:
    """After so many connections in a row that bring nothing, with pauses that grow; what cannot pass is told at once."""
    between.acts += [refused(502)] * events_api.TRIES
    with pytest.raises(SourceUnavailable, match="does not come back"):
        next(client.changes())
    assert len(between.asked) == events_api.TRIES
    assert client.waited[-1] > 2 * client.waited[0]
    assert 10 < sum(client.waited) < 35
    for trouble, error in ((refused(403), SourceUnavailable), (refused(302, Location="/login"), SourceUnavailable)):
        between.acts += [trouble]
        with pytest.raises(error):
            next(client.changes())
    with pytest.raises(EventsGone):
        next(client.changes(since=10**9))
    assert len(between.asked) == events_api.TRIES + 3


def test_a_stream_that_breaks_off_is_told(between: Gateway, client: drumlin.Client, tmp_path: Path) -> None:
    """An export that is cut raises after what had come, and is not begun again; a busy service is asked again before it begins."""
    between.acts += [refused(503, Retry_After="0"), cut(5_000)]
    chunks: list[bytes] = []
    with pytest.raises(SourceUnavailable, match="the connection broke|without"):
        chunks.extend(client.export())
    assert chunks
    assert len(between.asked) == 2
    between.acts += [cut(5_000)]

    async def export(twin: drumlin.AsyncClient) -> None:
        chunks.extend([chunk async for chunk in twin.export()])

    with pytest.raises(SourceUnavailable):
        awaited(between.url, export)
    with pytest.raises(SourceUnavailable):
        client.save_history(tmp_path / "x.csv", CHECKOUT, "cpu_usage")
    assert not list(tmp_path.iterdir())


def test_what_nobody_waits_for_any_more_ends(between: Gateway) -> None:
    """A history that is cancelled while the service says nothing leaves no request under way, in the loop or in a thread."""
    between.acts += [silent]

    async def give_up(twin: drumlin.AsyncClient) -> None:
        task = asyncio.ensure_future(twin.history(CHECKOUT, "cpu_usage"))
        await until(lambda: between.asked)
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task
        await until(lambda: asyncio.all_tasks() == {asyncio.current_task()})

    awaited(between.url, give_up)


async def until(true: Callable[[], object]) -> None:
    """Let others run until something is so."""
    async with asyncio.timeout(30):
        while not true():  # noqa: ASYNC110 - what is waited for sets no event
            await asyncio.sleep(0.01)


def test_each_way_of_not_being_reached_is_told_apart(tmp_path: Path) -> None:
    """A name that nobody knows, a port where nobody listens, a certificate of strangers, no TLS, no HTTP: each with what to do."""
    mine = certificate(tmp_path, "mine")
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(mine, f"{mine}.key")
    with web() as plain, web(context) as secret, socket.create_server(("127.0.0.1", 0)) as closed:
        nobody = closed.getsockname()[1]
        closed.close()
        told = {
            "http://somebody:s3cret@nobody.invalid": ("its name is not known", "host name"),
            f"http://127.0.0.1:{nobody}": ("nobody listens there", "drumlin serve"),
            f"http://localhost:{nobody}": ("nobody listens there", "drumlin serve"),
            f"https://127.0.0.1:{secret}": ("its certificate is not trusted", "CA"),
            f"https://127.0.0.1:{plain}": ("does not speak TLS", "http://"),
            f"http://127.0.0.1:{plain}": ("no service's answer", "address"),
        }
        for url, (reason, hint) in told.items():
            with drumlin.connect(url, retries=0) as client, pytest.raises(SourceUnavailable, match=reason) as failed:
                client.about()
            with pytest.raises(SourceUnavailable, match=reason) as twice:
                awaited(url, lambda twin: twin.about(), retries=0)
            assert hint in str(failed.value.hint)
            assert (str(twice.value), twice.value.hint) == (str(failed.value), failed.value.hint)
            assert "s3cret" not in str(failed.value) + client.url
            assert "somebody" not in str(failed.value) + client.url


@contextmanager
def web(context: ssl.SSLContext | None = None) -> Iterator[int]:
    """Run a web server that is no service; gives its port."""
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    if context:
        server.socket = context.wrap_socket(server.socket, server_side=True)
    with listening(server):
        yield server.server_port


class Page(BaseHTTPRequestHandler):
    """Answers everything with a page."""

    def do_GET(self) -> None:
        """Answer."""
        self.send_response(200)
        self.send_header("Content-Length", "6")
        self.end_headers()
        self.wfile.write(b"<html>")

    def log_message(self, format: str, *args: object) -> None:
        """Say nothing."""


@pytest.mark.parametrize("url", ["localhost:8080", "ftp://x", "http://", "http://[", "http://x:99999", "no"])
def test_an_address_that_is_none_is_refused(url: str) -> None:
    """Before anything is sent, with an example."""
    with pytest.raises(InvalidSettings, match="address") as refusal:
        drumlin.connect(url)
    assert "http://localhost:8080" in str(refusal.value.hint)


def test_numbers_that_cannot_be_are_refused() -> None:
    """A time-out that is over at once, or fewer retries than none."""
    for options in ({"timeout": 0}, {"timeout": float("nan")}, {"retries": -1}):
        with pytest.raises(InvalidSettings):
            drumlin.connect(**options)
