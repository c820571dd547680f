"""Asking readers from threads: wait for one, send, read the result as it comes, give the reader back.

Nothing is read ahead of who takes the result: the reader waits in its socket meanwhile, so who is slow costs no memory and holds up only
the own query. ``Asking`` is also where an event loop begins (``kg.store.reader_lines``).
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from concurrent.futures import wait

from kg.errors import DrumlinError
from kg.sparql.dataset import choose
from kg.store.protocol import Answer, Dataset, Visible
from kg.store.questions import Ended, Exchange, Question
from kg.store.reader import Reader
from kg.store.reader_lines import AsyncChunks, Lines
from kg.store.reader_pools import Promise, listed
from kg.store.readers import Readers

_UNION = Dataset()


class Asking:
    """Asks readers. A query may take ``timeout`` seconds at most; one that takes ``slow`` seconds is logged by its digest."""

    def __init__(self, readers: Readers, *, timeout: float = 30.0, slow: float = 1.0) -> None:
        self.readers, self.timeout, self.slow = readers, timeout, slow
        self._observers: list[Callable[[Ended], None]] = []
        self._lines = Lines(readers)

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
        chunks = _Chunks(self, question)
        chunks.open()
        return Answer(question.media_type, chunks, chunks.generation)

    async def ask(self, question: Question) -> AsyncChunks:
        """Ask without blocking the event loop, which must be the same each time; the result's first part is there when this returns."""
        chunks = AsyncChunks(self._lines, question, self.tell, self.slow)
        await chunks.open()
        return chunks


class _Chunks(Exchange, Iterator[bytes]):
    """A result, read by a thread."""

    def __init__(self, asking: Asking, question: Question) -> None:
        super().__init__(question, asking.tell, asking.slow)
        self._readers = asking.readers
        self._reader: Reader | None = None
        self._first: bytes | None = None

    def open(self) -> None:
        while not self._sent(self._borrowed()):
            pass
        self._first = self._next()

    def _borrowed(self) -> Reader:
        """Wait for a reader."""
        reader = self._readers.borrow(self._question.visible, self.deadline)
        if isinstance(reader, Promise):
            wait([reader], max(0.0, self.remaining()))
            if not reader.done():
                self._readers.leave(reader)
                raise self.too_late()
            reader = reader.result()
        return reader

    def _sent(self, reader: Reader) -> bool:
        """Ask a reader; False when it has ended while it was idle, so that another must be asked."""
        request = reader.request(self.request())
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
            kind, payload = self._reader.receive()
        except DrumlinError as error:
            self._release()
            self.failed(error)
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
