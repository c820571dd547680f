"""``/events``: the change feed, as Server-Sent Events or as a batch that is waited for.

Server-Sent Events: https://html.spec.whatwg.org/multipage/server-sent-events.html. Each event is a CloudEvent in JSON
(https://github.com/cloudevents/spec); its id goes into ``Last-Event-ID``. Nothing is buffered for a subscriber: it gets the next
events when it has taken the last ones, and one that takes none is disconnected (``api.edge.slow_clients``). A stream is not compressed.
"""

from __future__ import annotations

import asyncio
import time
from collections import OrderedDict
from collections.abc import AsyncIterator, Iterator, Sequence
from contextlib import contextmanager, suppress
from functools import partial
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query, Request
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response

from drumlin.api.bootstrap import Services, parts
from drumlin.api.http import filter_validation
from drumlin.api.http.disconnects import unless_disconnected
from drumlin.api.http.negotiation import choose
from drumlin.api.http.streaming import BodyStream
from drumlin.kg.errors import EventsGone, Throttled
from drumlin.kg.events.feed import ChangeFeed, Event, EventFilter, Position
from drumlin.kg.store.embedded.store import EmbeddedStore

router = APIRouter(tags=["events"])
Service = Annotated[Services, Depends(parts)]
Values = Annotated[list[str] | None, Query()]

STREAM = "text/event-stream"
BATCH = "application/cloudevents-batch+json"
HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent, so that proxies keep the connection and a lost one is noticed."""
MAX_WAIT = 60.0
MAX_READERS = 1_000
"""Subscribers, and batches that are waited for, at once."""
_WRITTEN = 32  # batches of events, as they were written for somebody, that are kept for the others
CATCHING_UP = 10.0
"""Seconds that a batch waits for the feed to have taken in what was committed before."""


async def wanted(
    type: Annotated[list[str] | None, Query(description="Class: Deployment; Workload stands for all kinds.")] = None,
    domain: Annotated[list[str] | None, Query(description="Id of a domain.")] = None,
    namespace: Annotated[list[str] | None, Query(description="Kubernetes namespace.")] = None,
    owner: Annotated[list[str] | None, Query(description="Who writes the graph.")] = None,
    quads: Annotated[
        bool,
        Query(
            description="Also the N-Quads that each change removed and added, in data; leftOut says why they are not told."
        ),
    ] = False,
) -> EventFilter:
    """Read which events a subscriber wants (FastAPI dependency)."""
    types, domains, namespaces, owners = (frozenset(values or ()) for values in (type, domain, namespace, owner))
    return EventFilter(types, domains, namespaces, owners, quads)


@router.get(
    "/events",
    summary="Follow the changes of the graph",
    response_class=Response,
    responses={200: {"content": {STREAM: {"schema": {"type": "string"}}, BATCH: {"schema": {"type": "array"}}}}},
)
async def events(
    request: Request,
    service: Service,
    others: Annotated[Subscribers, Depends(subscribers)],
    chosen: Annotated[EventFilter, Depends(wanted)],
    accept: Annotated[str | None, Header()] = None,
    last_event_id: Annotated[
        str | None, Header(description="Id of the last event seen; the stream goes on after it.")
    ] = None,
    since: Annotated[
        str | None,
        Query(
            description="The same as a parameter: an event's id, or a generation; 0 is the beginning.", examples=["0"]
        ),
    ] = None,
    wait: Annotated[
        float, Query(ge=0, le=MAX_WAIT, description="Batch only: seconds to wait for a first event.")
    ] = 0.0,
    limit: Annotated[int, Query(ge=1, le=1000, description="Batch only: events at most.")] = 1000,
) -> Response:
    """Stream every committed change in order, each once: from now on, or after the event that is named.

    With ``Accept: application/cloudevents-batch+json`` the answer is an array of the next events, empty when none came within ``wait``;
    ``X-Drumlin-Last-Event-Id`` is what to name next, ``X-Drumlin-Generation`` the newest generation, and ``X-Drumlin-History`` changes
    when ids begin anew: the store was restored, or replaced. 410 when the log does not reach the event named, 429 when there are too many
    subscribers. ``deleted`` is reported as long as the tombstone is what the graph is now, else ``replaced``.
    """
    feed = service.feed
    media_type = choose(accept, (STREAM, BATCH, "application/json"))
    if feed.readers >= MAX_READERS:
        raise Throttled(f"{feed.readers:,} subscribers are the most that there may be", detail={"retryAfter": 5})
    named = last_event_id or since
    position = Position.read(named) if named is not None else Position(service.store.generation)
    await run_in_threadpool(filter_validation.check, service, {"type": chosen.type})
    await run_in_threadpool(feed.check, position)
    if media_type == STREAM:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no", "Vary": "Accept"}
        return BodyStream(_stream(feed, others, position, chosen), STREAM, headers)
    batch = await unless_disconnected(request.receive, _batch(feed, others, position, chosen, wait, limit))
    if batch is None:
        return Response(status_code=499)  # which nobody reads: its place is free for another
    reached, found = batch
    content = b"[" + b",".join(chosen.form(each) for each in found) + b"]"
    headers = {
        "X-Drumlin-Last-Event-Id": str(reached),
        "X-Drumlin-Generation": str(feed.newest),
        "Cache-Control": "no-store",
    }
    if isinstance(service.store, EmbeddedStore):
        headers["X-Drumlin-History"] = service.store.id
    return Response(content, media_type=media_type, headers=headers)


class Subscribers:
    """All readers of a feed on one event loop: woken together, and given the same bytes where they ask for the same.

    One timer and one call from the feed's thread serve all, however many there are.
    """

    def __init__(self, feed: ChangeFeed) -> None:
        self._feed = feed
        self._news = asyncio.Event()
        self._written: OrderedDict[tuple[Position, Position, EventFilter], bytes] = OrderedDict()

    @contextmanager
    def reading(self) -> Iterator[None]:
        """Be one of them."""
        loop = asyncio.get_running_loop()
        if not self._feed.readers:
            self._off = self._feed.on_news(partial(self._tell, loop))
            self._timer = loop.call_later(HEARTBEAT, self._beat, loop)
        self._feed.readers += 1
        try:
            yield
        finally:
            self._feed.readers -= 1
            if not self._feed.readers:
                self._off()
                self._timer.cancel()
                self._written.clear()

    @property
    def news(self) -> asyncio.Event:
        """What is set by the next news, or heartbeat: take it before looking at the feed, and nothing is missed."""
        return self._news

    def _tell(self, loop: asyncio.AbstractEventLoop) -> None:
        if not loop.is_closed():
            loop.call_soon_threadsafe(self._ring)

    def _ring(self) -> None:
        rung, self._news = self._news, asyncio.Event()
        rung.set()

    def _beat(self, loop: asyncio.AbstractEventLoop) -> None:
        self._timer = loop.call_later(HEARTBEAT, self._beat, loop)
        self._ring()

    def frames(self, after: Position, found: Sequence[Event], chosen: EventFilter) -> bytes:
        """Write what is wanted of the events found after a place as Server-Sent Events, once for all who ask."""
        key = (after, found[-1].position, chosen)
        if (frames := self._written.get(key)) is None:
            frames = b"".join(_frame(each, chosen) for each in found if chosen.takes(each))
            self._written[key] = frames
            if len(self._written) > _WRITTEN:
                self._written.popitem(last=False)
        return frames


async def subscribers(request: Request) -> Subscribers:
    """Return those of what the caller sees (FastAPI dependency)."""
    found: Subscribers = request.scope["view"].subscribers
    return found


def _frame(event: Event, chosen: EventFilter) -> bytes:
    return b"id: %s\ndata: %s\n\n" % (str(event.position).encode(), chosen.form(event))


async def _next(feed: ChangeFeed, position: Position, limit: int) -> Sequence[Event]:
    if feed.remembers(position):
        return feed.after(position, limit)
    while feed.learning and not feed.ended:  # noqa: ASYNC110 - nobody reports it; rather late than without what it is filtered by
        await asyncio.sleep(0.1)
    return await run_in_threadpool(feed.after, position, limit)


async def _stream(
    feed: ChangeFeed, others: Subscribers, position: Position, chosen: EventFilter
) -> AsyncIterator[bytes]:
    """Yield what comes after ``position``, until the client leaves or falls too far behind, or the service ends."""
    with others.reading():
        yield f"retry: 2000\nid: {position}\n: from here on\n\n".encode()
        spoken = time.monotonic()
        while not feed.ended:
            news = others.news
            try:
                found = await _next(feed, position, 500)
            except EventsGone:  # too slow; it gets 410 when it comes again
                break
            if found:
                frames = others.frames(position, found, chosen)
                position = found[-1].position
            else:
                await news.wait()
                silent = time.monotonic() - spoken >= 0.9 * HEARTBEAT
                frames = f"id: {position}\n: nothing new\n\n".encode() if silent else b""
            if frames:
                spoken = time.monotonic()
                yield frames


async def _batch(
    feed: ChangeFeed, others: Subscribers, position: Position, chosen: EventFilter, wait: float, limit: int
) -> tuple[Position, list[Event]]:
    """Return the next wanted events, waiting for a first one, and the place that has been reached."""
    begun = time.monotonic()
    newest = feed.newest
    with others.reading():
        while True:
            news = others.news
            found = await _next(feed, position, limit)
            if found:
                position = found[-1].position
                if taken := [each for each in found if chosen.takes(each)]:
                    return position, taken
                continue
            # What was committed before the question is in the answer, also when the feed is a moment behind.
            seconds = wait if feed.head.generation >= newest else max(wait, CATCHING_UP)
            left = begun + seconds - time.monotonic()
            if left <= 0 or feed.ended:
                return position, []
            with suppress(TimeoutError):
                await asyncio.wait_for(news.wait(), left)
