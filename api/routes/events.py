"""``/events``: the change feed, as Server-Sent Events or as a batch that is waited for.

Server-Sent Events: https://html.spec.whatwg.org/multipage/server-sent-events.html. Each event is a CloudEvent in JSON
(https://github.com/cloudevents/spec); its id goes into ``Last-Event-ID``. Nothing is buffered for a subscriber: it gets the next
events when it has taken the last ones, and one that takes none for ``STALLED`` seconds is let go.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import AsyncIterator, Sequence
from typing import Annotated

from fastapi import APIRouter, Depends, Header, Query
from starlette.concurrency import run_in_threadpool
from starlette.responses import Response, StreamingResponse

from api.assembly import Parts, parts
from api.negotiation import choose
from kg.errors import EventsGone
from kg.feed import Event, Feed, Position, Wanted

router = APIRouter(tags=["events"])
Service = Annotated[Parts, Depends(parts)]
Values = Annotated[list[str] | None, Query()]

STREAM = "text/event-stream"
BATCH = "application/cloudevents-batch+json"
HEARTBEAT = 15.0
"""Seconds of silence after which a comment is sent, so that proxies keep the connection and a lost one is noticed."""
STALLED = 30.0
"""Seconds that a subscriber may leave what it was sent."""
MAX_WAIT = 60.0
CATCHING_UP = 10.0
"""Seconds that a batch waits for the feed to have taken in what was committed before."""


def wanted(
    type: Annotated[list[str] | None, Query(description="Class: Deployment; Workload stands for all kinds.")] = None,
    domain: Annotated[list[str] | None, Query(description="Id of a domain.")] = None,
    namespace: Annotated[list[str] | None, Query(description="Kubernetes namespace.")] = None,
    owner: Annotated[list[str] | None, Query(description="Who writes the graph.")] = None,
) -> Wanted:
    """Read which events a subscriber wants (FastAPI dependency)."""
    return Wanted(*(frozenset(values or ()) for values in (type, domain, namespace, owner)))


@router.get(
    "/events",
    summary="Follow the changes of the graph",
    response_class=Response,
    responses={200: {"content": {STREAM: {"schema": {"type": "string"}}, BATCH: {"schema": {"type": "array"}}}}},
)
async def events(
    service: Service,
    chosen: Annotated[Wanted, Depends(wanted)],
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
    ``X-Drumlin-Last-Event-Id`` is what to name next. 410 when the log does not reach the event named. ``deleted`` is told as long as the
    tombstone is what the graph is now, else ``replaced``.
    """
    feed = service.feed
    media_type = choose(accept, (STREAM, BATCH, "application/json"))
    named = last_event_id or since
    position = Position.read(named) if named is not None else Position(service.store.generation)
    await run_in_threadpool(feed.check, position)
    if media_type == STREAM:
        headers = {"Cache-Control": "no-store", "X-Accel-Buffering": "no"}
        return StreamingResponse(_stream(feed, position, chosen), media_type=STREAM, headers=headers)
    reached, found = await _batch(feed, position, chosen, wait, limit)
    content = b"[" + b",".join(each.content for each in found) + b"]"
    headers = {"X-Drumlin-Last-Event-Id": str(reached), "Cache-Control": "no-store"}
    return Response(content, media_type=media_type, headers=headers)


class _Bell:
    """Lets coroutines of this loop wait for news from the feed's thread."""

    def __init__(self, feed: Feed) -> None:
        self._loop = asyncio.get_running_loop()
        self._rung = asyncio.Event()
        self._off = feed.on_news(self._tell)

    def _tell(self) -> None:
        if not self._loop.is_closed():
            self._loop.call_soon_threadsafe(self._rung.set)

    async def wait(self, seconds: float) -> bool:
        """Wait for news, at most ``seconds``; tells whether there are any."""
        try:
            await asyncio.wait_for(self._rung.wait(), seconds)
        except TimeoutError:
            return False
        self._rung.clear()
        return True

    def close(self) -> None:
        self._off()


async def _next(feed: Feed, position: Position, limit: int) -> Sequence[Event]:
    if feed.remembers(position):
        return feed.after(position, limit)
    return await run_in_threadpool(feed.after, position, limit)


async def _stream(feed: Feed, position: Position, chosen: Wanted) -> AsyncIterator[bytes]:
    """Yield what comes after ``position`` until the client leaves, the service ends, or nobody takes what is sent."""
    bell = _Bell(feed)
    feed.readers += 1
    try:
        yield f"retry: 2000\nid: {position}\n: from here on\n\n".encode()
        while not feed.ended:
            try:
                found = await _next(feed, position, 500)
            except EventsGone:  # too slow; it is told so, by 410, when it comes again
                return
            if found:
                position = found[-1].position
                frames = [_frame(each) for each in found if chosen.takes(each)]
                sent = time.monotonic()
                if frames:
                    yield b"".join(frames)
                if time.monotonic() - sent > STALLED:
                    return
            elif not await bell.wait(HEARTBEAT):
                yield f"id: {position}\n: nothing new\n\n".encode()
    finally:
        feed.readers -= 1
        bell.close()


def _frame(event: Event) -> bytes:
    return b"id: %s\ndata: %s\n\n" % (str(event.position).encode(), event.content)


async def _batch(
    feed: Feed, position: Position, chosen: Wanted, wait: float, limit: int
) -> tuple[Position, list[Event]]:
    """Return the next wanted events, waiting for a first one, and the place that has been reached."""
    bell = _Bell(feed)
    begun = time.monotonic()
    newest = feed.newest
    try:
        while True:
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
            await bell.wait(left)
    finally:
        bell.close()
