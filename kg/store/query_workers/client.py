"""Asking readers from threads: wait for one, send, read the result as it comes, give the reader back.

Nothing is read ahead of the client: the reader waits in its socket meanwhile, so a slow client costs no memory and holds up only its own
query. ``QueryExecutor`` is also where an event loop begins (``kg.store.query_workers.pipelined_client``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

from drumlin.kg import cancellation, fairness
from drumlin.kg.errors import Cancelled, DrumlinError, ReaderLost
from drumlin.kg.sparql.dataset import UNION, Dataset
from drumlin.kg.sparql.from_clauses import choose
from drumlin.kg.store.protocol import Answer
from drumlin.kg.store.query_workers.handle import QueryWorker
from drumlin.kg.store.query_workers.pipelined_client import AsyncChunks, Lines
from drumlin.kg.store.query_workers.pool import Promise
from drumlin.kg.store.query_workers.request import QueryExecution, QueryOutcome, QueryRequest
from drumlin.kg.store.query_workers.supervisor import Readers
from drumlin.kg.threads import call_safely


class QueryExecutor:
    """Asks readers. A query may take ``timeout`` seconds at most; one that takes ``slow`` seconds is logged by its digest."""

    def __init__(self, readers: Readers, *, timeout: float = 30.0, slow: float = 1.0) -> None:
        self.readers, self.timeout, self.slow = readers, timeout, slow
        self._observers: list[Callable[[QueryOutcome], None]] = []
        self._lines = Lines(readers)

    def observe(self, observer: Callable[[QueryOutcome], None]) -> None:
        """Call ``observer`` with the outcome of each query; it must be quick. What it raises is only logged."""
        self._observers.append(observer)

    def tell(self, ended: QueryOutcome) -> None:
        """Charge the client, and notify the observers."""
        self.readers.charge(ended.client, ended.ran)
        for each in self._observers:
            call_safely(each, ended)

    def question(
        self,
        query: str,
        *,
        media_type: str,
        dataset: Dataset = UNION,
        base: str | None = None,
        timeout: float | None = None,
    ) -> QueryRequest:
        """Prepare a query that passed the gate; ``timeout`` is cut to the cap."""
        chosen = choose(query, dataset)
        seconds = self.timeout if timeout is None else min(timeout, self.timeout)
        return QueryRequest(chosen, media_type, base, seconds, fairness.client.get())

    def answer(self, question: QueryRequest) -> Answer:
        """Ask and wait for the first part of the result. Raises what the query raises until then."""
        chunks = _Chunks(self, question)
        chunks.open()
        return Answer(question.media_type, chunks, chunks.generation)

    async def ask(self, question: QueryRequest) -> AsyncChunks:
        """Ask without blocking the event loop, which must be the same each time; the result's first part is there when this returns."""
        chunks = AsyncChunks(self._lines, question, self.tell, self.slow)
        await chunks.open()
        return chunks


class _Chunks(QueryExecution, Iterator[bytes]):
    """A result, read by a thread."""

    def __init__(self, asking: QueryExecutor, question: QueryRequest) -> None:
        super().__init__(question, asking.tell, asking.slow)
        self._readers = asking.readers
        self._reader: QueryWorker | None = None
        self._first: bytes | None = None

    def open(self) -> None:
        while not (self._sent(reader := self._borrowed()) and self._begun(reader)):
            pass

    def _begun(self, reader: QueryWorker) -> bool:
        """Wait for the first part; False when the reader has ended without beginning the query, so that another must be asked."""
        try:
            self._first = self._next()
        except ReaderLost:
            if reader.gave_way(begun=self._size > 0):
                self._long = True
                return False
            if reader.never_began(self.number):
                return False
            raise
        return True

    def _borrowed(self) -> QueryWorker:
        """Wait for a reader."""
        reader = self._readers.borrow(self.deadline, self._question.client, long=self._long)
        if isinstance(reader, Promise):
            try:
                if not cancellation.wait_for(reader, max(0.0, self.remaining())):
                    raise self.too_late()
            except DrumlinError:
                self._readers.leave(reader)
                raise
            reader = reader.result()
        return reader

    def _sent(self, reader: QueryWorker) -> bool:
        """Ask a reader; False when it has ended while it was idle, so that another must be asked."""
        request, self.number = reader.request(self.request()), reader.number()
        try:
            reader.socket.sendall(request)
        except OSError:
            reader.fate = reader.fate or "crash"
            self._readers.release(reader)
            return False
        self._reader, self.generation = reader, reader.generation
        return True

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
            with cancellation.ended_by(partial(self._reader.kill, "closed")):
                kind, payload = self._reader.receive()
        except Cancelled:  # before it was waited for: its answer is still to come, and must reach nobody else
            self.close()
            raise
        except DrumlinError as error:
            reader = self._reader
            self._release()
            if not reader.never_began(self.number) and not reader.gave_way(begun=self._size > 0):
                self.failed(error)
            cancellation.check()  # which has ended it
            raise
        if kind == b"D":
            self._size += len(payload)
            return payload
        self._release()
        if kind == b"X":
            raise self.refused(payload)
        self.end("answered")
        return None

    def _release(self) -> None:
        reader, self._reader = self._reader, None
        if reader is not None:
            self._readers.release(reader)

    def close(self) -> None:
        """End the query when nobody wants the rest of its result."""
        reader, self._reader = self._reader, None
        if reader is not None:
            self._readers.abandon(reader)
            self.end("abandoned")

    def __del__(self) -> None:
        reader = getattr(self, "_reader", None)
        if reader is not None:
            self._readers.orphan(reader)
