"""Asking readers on an event loop, several questions to one reader: they stand in line in its socket.

A reader that ends one query finds the next there, so that neither process sleeps and wakes for each. Only short queries gain from that, and
which are short nobody knows before: when the first in a line takes ``SHORT`` seconds, or has a large result, those behind it are
asked anew, of a reader of their own, and the reader is told to skip them. The same when the first ends its reader: it alone
failed. One look every ``SHORT`` seconds does for all lines what a timer per query would.
"""

from __future__ import annotations

import asyncio
import select
import socket
import time
from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import suppress

from drumlin.kg.errors import DrumlinError
from drumlin.kg.store.query_workers.handle import QueryWorker
from drumlin.kg.store.query_workers.request import QueryExecution, QueryOutcome, QueryRequest
from drumlin.kg.store.query_workers.supervisor import Readers
from drumlin.kg.workers.frames import CHUNK, frame

DEPTH = 8
"""Questions in one line, with the one that runs."""
SHORT = 0.02
"""Seconds that a query takes at most while others stand behind it."""
_SMALL = 8192  # bytes of a request that may stand in line: all of them fit into the socket's buffer
_AT_ONCE = 65_536  # bytes of a request that an idle reader takes without delay
_AHEAD = 2  # parts of a result that are taken from the socket before the client wants them
_LEFT = 0.5  # seconds that a query may go on whose client has left while it stood in line
_SKIP = frame(b"C")
_PIECE = 2 * CHUNK


class AsyncChunks(QueryExecution, AsyncIterator[bytes]):
    """A result, read on an event loop."""

    def __init__(self, lines: Lines, question: QueryRequest, tell: Callable[[QueryOutcome], None], slow: float) -> None:
        super().__init__(question, tell, slow)
        self._lines = lines
        self._line: QueryPipeline | None = None
        self._parts: deque[bytes] = deque()
        self._error: DrumlinError | None = None
        self._waiter: asyncio.Future[None] | None = None
        self._complete = False

    async def open(self) -> None:
        """Get a reader, or a place in its line, and wait for the first part of the result."""
        line = self._lines.place(self._question, self.deadline)
        try:
            while True:
                self._line = self._lines.begin(await self._reader()) if line is None else line
                await self._line.ask(self)
                if await self._wait():
                    break
                line = None  # it was sent away: once is enough, so the next reader is its own
        except BaseException:
            self.close()
            raise
        if self._error is not None:
            raise self._error

    async def _reader(self) -> QueryWorker:
        readers = self._lines.readers
        try:
            promise = readers.borrow(self.deadline, self._question.client, long=self._long)
        except DrumlinError as error:
            self.failed(error)
            raise
        if isinstance(promise, QueryWorker):
            return promise
        loop = asyncio.get_running_loop()
        kept = asyncio.Event()
        promise.add_done_callback(lambda _: loop.call_soon_threadsafe(kept.set))
        try:
            await asyncio.wait_for(kept.wait(), self.remaining())
        except TimeoutError:
            readers.leave(promise)
            raise self.too_late() from None
        except asyncio.CancelledError:
            readers.leave(promise)
            raise
        return promise.result()

    async def _wait(self) -> bool:
        """Wait for a part or the end; False when this was sent away from its line instead."""
        if self._line is not None and not self._parts:
            self._waiter = asyncio.get_running_loop().create_future()
            try:
                await self._waiter
            finally:
                self._waiter = None
        return self._line is not None or self._complete

    def whole(self) -> bytes | None:
        """Return the whole result when all of it is there; None when there is more to come."""
        if not self._complete or self._error is not None:
            return None
        part = b"".join(self._parts)
        self._parts.clear()
        return part

    async def __anext__(self) -> bytes:
        if not self._parts and self._line is not None:
            self._line.read()  # no event reports what came while this was not ready for it
            await self._wait()
        if self._parts:
            return self._parts.popleft()
        if self._error is not None:
            raise self._error
        raise StopAsyncIteration

    def close(self) -> None:
        """End the query when nobody wants the rest of its result."""
        line, self._line = self._line, None
        if line is not None:
            line.leave(self)
        self.end("abandoned")

    # -- what its line says -------------------------------------------------------------------------------------------
    @property
    def ahead(self) -> int:
        """How many parts wait for the client."""
        return len(self._parts)

    @property
    def client(self) -> str:
        """The client that asked."""
        return self._question.client

    @property
    def begun(self) -> bool:
        """Whether a part of the result has come."""
        return self._size > 0

    def take(self, part: bytes) -> None:
        """Take a part of the result."""
        self._size += len(part)
        self._parts.append(part)

    def complete(self, kind: bytes, payload: bytes) -> None:
        """Take the end of the result, or an error instead."""
        if kind == b"X":
            self._error = self.refused(payload)
        else:
            self.end("answered")
        self._complete = True
        self.send_away()

    def lose(self, error: DrumlinError) -> None:
        """Take the news that the reader ended."""
        self.failed(error)
        self._error, self._complete = error, True
        self.send_away()

    def send_away(self) -> None:
        """Leave the line: for a reader of its own, where the result is not complete."""
        self._line = None
        self.wake()

    def give_way(self) -> None:
        """Be asked anew, as a long one, of a reader that long ones may have."""
        self._long = True
        self.send_away()

    def wake(self) -> None:
        """Have the waiting query look again."""
        if self._waiter is not None and not self._waiter.done():
            self._waiter.set_result(None)


class _Nobody:
    """Takes the place of a query whose client has left: receives the answer and drops it."""

    ahead = 0
    client = ""

    def __init__(self) -> None:
        self.deadline = time.monotonic() + _LEFT

    def take(self, part: bytes) -> None:
        pass

    def complete(self, kind: bytes, payload: bytes) -> None:
        pass


class QueryPipeline:
    """The questions that one reader was sent and has not answered: the first one runs."""

    def __init__(self, lines: Lines, reader: QueryWorker) -> None:
        self.reader = reader
        self._lines = lines
        self._queue: deque[AsyncChunks | _Nobody] = deque()
        self._since = time.monotonic()  # when the first one began
        self._followed = False  # others were answered before the first one
        self._sending = False

    @property
    def length(self) -> int:
        """How many stand here."""
        return len(self._queue)

    def has_room(self, now: float) -> bool:
        """Return whether another question may stand here."""
        return len(self._queue) < DEPTH and now - self._since < SHORT and not self._sending and not self._queue[0].ahead

    async def ask(self, exchange: AsyncChunks) -> None:
        """Send a question."""
        reader, queue = self.reader, self._queue
        request, exchange.number = reader.request(exchange.request()), reader.number()
        exchange.generation = reader.generation
        queue.append(exchange)
        try:
            if len(request) <= _AT_ONCE:
                reader.socket.sendall(request)
            else:
                self._sending = True
                await asyncio.to_thread(reader.socket.sendall, request)
                self._sending = False
        except OSError:
            self._unsent(exchange)

    def _unsent(self, exchange: AsyncChunks) -> None:
        """The reader has ended. If it did while it was idle, no event reports it any more, and the query goes to another reader."""
        if self._queue and self._queue[0] is exchange:
            self.reader.fate = self.reader.fate or "crash"
            self._lines.end(self.reader)
            self._lines.readers.release(self.reader)
            exchange.send_away()

    def read(self) -> None:
        """Take what the reader has sent, but for what the first is not ready for."""
        queue = self._queue
        more = True
        while more and queue[0].ahead < _AHEAD:
            try:
                data = self.reader.socket.recv(_PIECE, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return
            except ConnectionResetError:
                data = b""
            if not data:
                self._lost()
                return
            self._take(data)
            more = bool(queue) and len(data) == _PIECE
        if not queue:
            self._lines.end(self.reader)
            self._lines.readers.release(self.reader)

    def _take(self, data: bytes) -> None:
        arrived, queue = self.reader.arrived, self._queue
        arrived.feed(data)
        while (found := arrived.next()) is not None:
            kind, payload = found
            if kind == b"D":
                self.reader.spoke = True
                queue[0].take(payload)
            else:
                queue.popleft().complete(kind, payload)
                if queue:
                    self._next()
        if queue and isinstance(first := queue[0], AsyncChunks) and first.ahead:
            self._disperse()
            first.wake()

    def _next(self) -> None:
        self._since, self._followed = time.monotonic(), True
        self._lines.readers.go_on(self.reader, self._queue[0].deadline, self._queue[0].client)

    def look(self, now: float) -> None:
        """Let nobody stand behind what takes long, and no reader work for nobody."""
        if now - self._since < SHORT:
            return
        if isinstance(self._queue[0], _Nobody):
            self._abandon()
        else:
            self._disperse()

    def _disperse(self) -> None:
        """Send away those behind the first, and have the reader skip what they asked."""
        behind = list(self._queue)[1:]
        if not any(isinstance(each, AsyncChunks) for each in behind):
            return
        with suppress(OSError):  # it has ended, or reads nothing: then it answers them in vain
            self.reader.socket.send(_SKIP, socket.MSG_DONTWAIT)
        for at, each in enumerate(behind, 1):
            if isinstance(each, AsyncChunks):
                self._queue[at] = _Nobody()
                each.send_away()

    def leave(self, exchange: AsyncChunks) -> None:
        """Let one go whose client has left."""
        if self._queue and self._queue[0] is exchange:
            self._abandon()
        elif exchange in self._queue:
            self._queue[self._queue.index(exchange)] = _Nobody()

    def _abandon(self) -> None:
        self._disperse()
        self._lines.end(self.reader)
        self._lines.readers.abandon(self.reader, answers=len(self._queue))

    def _lost(self) -> None:
        """The reader has ended. That is the first one's doing, unless it was not begun, or time had run out of one before it."""
        reader, first = self.reader, self._queue[0]
        reader.fate = reader.fate or "crash"
        error = reader.obituary()
        self._disperse()
        self._lines.end(reader)
        self._lines.readers.release(reader)
        if isinstance(first, AsyncChunks):
            too_late = reader.fate == "timeout" and self._followed and first.remaining() > 0 and not first.begun
            if reader.gave_way(begun=first.begun):
                first.give_way()
            elif too_late or reader.never_began(first.number):
                first.send_away()
            else:
                first.lose(error)


class Lines:
    """The lines of an event loop."""

    def __init__(self, readers: Readers) -> None:
        self.readers = readers
        self._lines: dict[int, QueryPipeline] = {}  # by the descriptor of the reader's socket
        # A poll of its own, of edges: a reader is registered once, and one that answers a thread meanwhile is no event.
        self._poll = select.epoll()
        self._loop: asyncio.AbstractEventLoop | None = None
        self._looking = False

    def place(self, question: QueryRequest, deadline: float) -> QueryPipeline | None:
        """Return an idle reader's new line, else the shortest that has room, else None."""
        reader = self.readers.take(deadline, question.client)
        if reader is not None:
            return self.begin(reader)
        now = time.monotonic()
        open_ = [each for each in self._lines.values() if each.has_room(now)]
        line = min(open_, key=lambda each: each.length, default=None)
        size = _SMALL - len(question.chosen.text)
        return line if line is not None and self.readers.join(line.reader, size, question.client) else None

    def begin(self, reader: QueryWorker) -> QueryPipeline:
        """Begin the line of a reader that was idle; its ``read`` is called whenever the reader has sent something."""
        self._attach()
        if reader.listener is not self:
            reader.listener = self
            self._poll.register(reader.socket.fileno(), select.EPOLLIN | select.EPOLLET)
        line = self._lines[reader.socket.fileno()] = QueryPipeline(self, reader)
        return line

    def end(self, reader: QueryWorker) -> None:
        """Forget a line."""
        self._lines.pop(reader.socket.fileno(), None)

    def _attach(self) -> None:
        loop = asyncio.get_running_loop()
        if self._loop is not loop:
            self._loop, self._looking = loop, False
            loop.add_reader(self._poll.fileno(), self._read)
        if not self._looking:
            self._looking = True
            loop.call_later(SHORT, self._look)

    def _read(self) -> None:
        for descriptor, _ in self._poll.poll(0):
            if (line := self._lines.get(descriptor)) is not None:
                line.read()

    def _look(self) -> None:
        self._looking = False
        now = time.monotonic()
        for each in list(self._lines.values()):
            each.look(now)
        if self._lines:
            self._attach()
