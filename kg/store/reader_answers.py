"""One query's life with a reader: wait for one, send, read the result as it comes, give the reader back.

Twice, for callers in threads (``answer``) and on an event loop (``ask``); what they share is ``_Exchange``. Nothing is read ahead of
who takes the result: the reader waits in its socket meanwhile, so a slow client costs no memory and holds up only its query.
"""

from __future__ import annotations

import asyncio
import hashlib
import socket
import time
from collections.abc import AsyncIterator, Callable, Iterator
from concurrent.futures import wait
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import structlog

from kg.errors import DrumlinError, QueryRejected, ReaderLost
from kg.sparql.dataset import choose
from kg.sparql.lexer import token_at
from kg.store import frames
from kg.store.protocol import Answer, Dataset, Visible
from kg.store.querying import Chosen
from kg.store.reader import Reader, failure
from kg.store.readers import Promise, Readers, listed

_SENT_AT_ONCE = 65_536  # bytes: fits the socket's buffer, so that sending does not wait

_UNION = Dataset()

log = structlog.get_logger(__name__)


@dataclass(frozen=True, slots=True)
class Question:
    """A query, how its result is written, what it may see, and the seconds that it may take."""

    chosen: Chosen
    media_type: str
    base: str | None
    visible: Visible | None
    timeout: float


@dataclass(frozen=True, slots=True)
class Ended:
    """What became of a query: seconds it waited for a reader and ran, and the size of its result in bytes.

    ``outcome``: answered, rejected, timeout, memory, abandoned (the client left), crashed or unavailable.
    """

    outcome: str
    waited: float
    ran: float
    size: int


class Asking:
    """Asks readers. A query may take ``timeout`` seconds at most; one that takes ``slow`` seconds is logged by its digest."""

    def __init__(self, readers: Readers, *, timeout: float = 30.0, slow: float = 1.0) -> None:
        self.readers, self.timeout, self.slow = readers, timeout, slow
        self._observers: list[Callable[[Ended], None]] = []

    def observe(self, observer: Callable[[Ended], None]) -> None:
        """Have ``observer`` told how each query ended; it must be quick and must not raise."""
        self._observers.append(observer)

    def tell(self, ended: Ended) -> None:
        """Tell the observers."""
        for each in self._observers:
            each(ended)

    def question(
        self,
        query: str,
        *,
        media_type: str,
        dataset: Dataset = _UNION,
        base: str | None = None,
        visible: Visible | None = None,
        timeout: float | None = None,
    ) -> Question:
        """Prepare a query that passed the gate; ``timeout`` is cut to the cap."""
        chosen = choose(query, dataset, base, visible if listed(visible) else None)
        seconds = self.timeout if timeout is None else min(timeout, self.timeout)
        return Question(chosen, media_type, base, visible, seconds)

    def answer(self, question: Question) -> Answer:
        """Ask and wait for the first part of the result. Raises what the query raises until then."""
        exchange = _Chunks(self, question)
        exchange.open()
        return Answer(question.media_type, exchange, exchange.generation)

    async def ask(self, question: Question) -> AsyncChunks:
        """Ask without blocking the event loop; the result's first part is there when this returns."""
        exchange = AsyncChunks(self, question)
        await exchange.open()
        return exchange


class _Exchange:
    """What both kinds share: the reader, the times, and how it ends."""

    def __init__(self, asking: Asking, question: Question) -> None:
        self._asking, self._question = asking, question
        self._arrived = time.monotonic()
        self._lent_at: float | None = None
        self._reader: Reader | None = None
        self._first: bytes | None = None
        self._size = 0
        self.generation = 0

    def _borrow(self) -> Reader | Promise:
        question = self._question
        return self._asking.readers.borrow(question.visible, self._arrived + question.timeout)

    def _request(self, reader: Reader) -> bytes:
        self._reader, self._lent_at = reader, time.monotonic()
        chosen = self._question.chosen
        options: dict[str, Any] = {"union": chosen.union, "default": chosen.default, "named": chosen.named}
        options |= {"media_type": self._question.media_type, "base": self._question.base}
        request = reader.request(frames.asked(chosen.text, options))
        self.generation = reader.generation
        return request

    def _remaining(self) -> float:
        return self._arrived + self._question.timeout - time.monotonic()

    def _too_late(self) -> QueryRejected:
        error = QueryRejected(
            f"no reader became free within {self._question.timeout:g} s",
            reason="timeout",
            hint="other queries keep all readers busy; ask again later",
        )
        self._end("timeout")
        return error

    def _took(self, found: tuple[bytes, bytes]) -> bytes | None:
        """Return a part of the result, None at its end; raises what the reader says instead."""
        kind, payload = found
        if kind == b"D":
            self._size += len(payload)
            return payload
        if kind == b"X":
            error = failure(payload)
            if "line" in error.detail:
                error.detail["token"] = token_at(
                    self._question.chosen.text, error.detail["line"], error.detail["column"]
                )
            self._end("rejected")
            raise error
        self._end("answered")
        return None

    def _failed(self, error: BaseException) -> None:
        """Note that the reader is lost."""
        if isinstance(error, QueryRejected):
            self._end(error.reason)
        else:
            self._end("crashed" if isinstance(error, ReaderLost) else "unavailable")

    def _end(self, outcome: str) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            give_back = self._asking.readers.abandon if outcome == "abandoned" else self._asking.readers.release
            give_back(reader)
        now = time.monotonic()
        lent_at = self._lent_at or now
        ended = Ended(outcome, lent_at - self._arrived, now - lent_at, self._size)
        self._asking.tell(ended)
        if now - self._arrived >= self._asking.slow:
            digest = hashlib.blake2b(self._question.chosen.text.encode(), digest_size=8).hexdigest()
            log.warning(
                "query_slow",
                query=digest,
                outcome=outcome,
                waited=round(ended.waited, 3),
                ran=round(ended.ran, 3),
                bytes=self._size,
                generation=self.generation,
            )

    def close(self) -> None:
        """End the query when nobody wants the rest of its result."""
        if self._reader is not None:
            self._end("abandoned")

    def __del__(self) -> None:
        reader = getattr(self, "_reader", None)
        if reader is not None:
            self._asking.readers.orphan(reader)


class _Chunks(_Exchange, Iterator[bytes]):
    """A result, read by a thread."""

    def open(self) -> None:
        reader = self._borrow()
        if isinstance(reader, Promise):
            wait([reader], max(0.0, self._remaining()))
            if not reader.done():
                self._asking.readers.leave(reader)
                raise self._too_late()
            reader = reader.result()
        request = self._request(reader)
        with suppress(OSError):  # it has ended; receiving says why
            reader.socket.sendall(request)
        self._first = self._next()

    def __next__(self) -> bytes:
        part, self._first = self._first, None
        if part is None:
            part = self._next()
        if part is None:
            raise StopIteration
        return part

    def _next(self) -> bytes | None:
        if self._reader is None:
            return None
        try:
            found = self._reader.receive()
        except DrumlinError as error:
            self._failed(error)
            raise
        return self._took(found)


class AsyncChunks(_Exchange, AsyncIterator[bytes]):
    """A result, read on an event loop."""

    async def open(self) -> None:
        """Get a reader, send the query and wait for the first part."""
        reader = self._borrow()
        if isinstance(reader, Promise):
            reader = await self._kept(reader)
        request = self._request(reader)
        try:
            await _send(reader, request)
            self._first = await self._next()
        except BaseException:
            self.close()
            raise

    async def _kept(self, promise: Promise) -> Reader:
        loop = asyncio.get_running_loop()
        kept = asyncio.Event()
        promise.add_done_callback(lambda _: loop.call_soon_threadsafe(kept.set))
        try:
            await asyncio.wait_for(kept.wait(), self._remaining())
        except TimeoutError:
            self._asking.readers.leave(promise)
            raise self._too_late() from None
        except asyncio.CancelledError:
            self._asking.readers.leave(promise)
            self._end("abandoned")
            raise
        return promise.result()

    def whole(self) -> bytes | None:
        """Return the whole result when it came in one part; None when there is more to come."""
        if self._reader is not None:
            if self._reader.arrived.peek() != b"E":
                return None
            self._took(self._reader.receive())
        part, self._first = self._first, None
        return part or b""

    async def __anext__(self) -> bytes:
        part, self._first = self._first, None
        if part is None:
            part = await self._next()
        if part is None:
            raise StopAsyncIteration
        return part

    async def _next(self) -> bytes | None:
        reader = self._reader
        if reader is None:
            return None
        try:
            while (found := reader.poll()) is None:
                await _readable(reader.socket)
        except DrumlinError as error:
            self._failed(error)
            raise
        return self._took(found)


async def _readable(channel: socket.socket) -> None:
    loop = asyncio.get_running_loop()
    arrived: asyncio.Future[None] = loop.create_future()
    descriptor = channel.fileno()  # asyncio looks at a socket object more closely, and slowly
    loop.add_reader(descriptor, _set, arrived)
    try:
        await arrived
    finally:
        loop.remove_reader(descriptor)


def _set(arrived: asyncio.Future[None]) -> None:
    if not arrived.done():
        arrived.set_result(None)


async def _send(reader: Reader, request: bytes) -> None:
    with suppress(OSError):  # it has ended; receiving says why
        if len(request) <= _SENT_AT_ONCE:
            reader.socket.sendall(request)
        else:
            await asyncio.to_thread(reader.socket.sendall, request)
