"""What is asked of a reader, what became of it, and what every way to ask has in common."""

from __future__ import annotations

import hashlib
import time
from collections.abc import Callable
from contextvars import copy_context
from typing import NamedTuple

import structlog

from drumlin.kg.errors import DrumlinError, QueryRejected, ReaderLost
from drumlin.kg.sparql.dataset import Chosen
from drumlin.kg.sparql.lexer import token_at
from drumlin.kg.store.query_workers import frames
from drumlin.kg.store.query_workers.frames import Options
from drumlin.kg.store.query_workers.handle import failure

log = structlog.get_logger(__name__)


class QueryRequest(NamedTuple):
    """A query, how its result is written, the seconds that it may take, and the client that it is for."""

    chosen: Chosen
    media_type: str
    base: str | None
    timeout: float
    client: str = ""


class QueryOutcome(NamedTuple):
    """What became of a query: seconds it waited for a reader and ran, and the size of its result in bytes.

    ``outcome``: answered, rejected, busy (no reader in time), timeout, memory, abandoned (the client left), crashed or unavailable.
    """

    outcome: str
    waited: float
    ran: float
    size: int
    client: str = ""


class QueryExecution:
    """One question and its times, until ``tell`` is told how it ended; one that took ``slow`` seconds is logged by its digest."""

    def __init__(self, question: QueryRequest, tell: Callable[[QueryOutcome], None], slow: float) -> None:
        self._question, self._tell, self._slow = question, tell, slow
        self._arrived = time.monotonic()
        self._lent_at = 0.0
        self._size = 0
        self._long = False  # it gave way once to shorter ones
        self._told = False
        self._context = copy_context()  # with the id of the request, for the log: the end may come elsewhere
        self.deadline = self._arrived + question.timeout
        self.generation = 0
        self.number = 0  # among those of its reader

    def request(self) -> bytes:
        """Return the frame to send; a reader is there now."""
        self._lent_at = time.monotonic()
        chosen, media_type, base = self._question[:3]
        return frames.asked(chosen.text, Options(chosen.union, chosen.default, chosen.named, media_type, base))

    def remaining(self) -> float:
        """Return the seconds until the deadline."""
        return self.deadline - time.monotonic()

    def too_late(self) -> QueryRejected:
        """Note that no reader became free in time."""
        self.end("busy")
        return QueryRejected(
            f"no reader became free within {self._question.timeout:g} s",
            reason="busy",
            hint="other queries keep all readers busy; ask again later",
        )

    def refused(self, payload: bytes) -> DrumlinError:
        """Read what the reader says instead of a result."""
        error = failure(payload)
        if "line" in error.detail:
            text = self._question.chosen.text
            error.detail["token"] = token_at(text, error.detail["line"], error.detail["column"])
        self.end("rejected")
        return error

    def failed(self, error: DrumlinError) -> None:
        """Note that the reader is lost."""
        if isinstance(error, QueryRejected):
            self.end(error.reason)
        else:
            self.end("crashed" if isinstance(error, ReaderLost) else "unavailable")

    def end(self, outcome: str) -> None:
        """Note how it ended; the first outcome stands."""
        if self._told:
            return
        self._told = True
        now = time.monotonic()
        lent_at = self._lent_at or now
        self._tell(QueryOutcome(outcome, lent_at - self._arrived, now - lent_at, self._size, self._question.client))
        if now - self._arrived >= self._slow:
            self._context.run(
                log.warning,
                "query_slow",
                query=hashlib.blake2b(self._question.chosen.text.encode(), digest_size=8).hexdigest(),
                outcome=outcome,
                waited=round(lent_at - self._arrived, 3),
                ran=round(now - lent_at, 3),
                bytes=self._size,
                generation=self.generation,
            )
