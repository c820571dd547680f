"""Who may write to a remote store now, and how a write becomes one update; ``kg.store.remote.bookkeeping_graph`` says why and how."""

from __future__ import annotations

import random
import threading
import time
import uuid
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field

import structlog

from drumlin.kg.errors import StoreUnavailable
from drumlin.kg.store.remote import bookkeeping_graph as books
from drumlin.kg.store.remote import querying
from drumlin.kg.store.remote.connection import EngineConnection
from drumlin.kg.store.remote.engine import Capability

ABANDONED = 60.0
"""Seconds without a sign of life until a claim is taken for abandoned: longer than the engine may go on with a write whose writer died."""
QUICK = 3.0
"""The same of a claim for a quick write, which an engine has done in a fraction of that."""
BEAT = 1.0
"""Seconds between two signs of life."""
_QUICK = "-quick"  # ends the name of such a claim
_STEP = 1.0  # seconds that one look at the claims counts for at most: an engine that hangs lets nobody show life
_PAGE = 1000  # graphs asked for at once
_TOGETHER = 20  # operations in one request where a sequence is no transaction; Virtuoso compiles it as one program

log = structlog.get_logger(__name__)


@dataclass(slots=True)
class Claim:
    """The right to write, held by this process; ``beat`` changes to show that it lives."""

    name: str
    state: books.State
    beat: int = 0
    shown: float = field(default_factory=time.monotonic)
    ended: bool = False


class Claims:
    """The right to write to one engine. Threads of this process take turns without asking the engine."""

    def __init__(self, connection: EngineConnection) -> None:
        self._connection = connection
        self._writing = threading.Lock()

    def state(self, graphs: Sequence[str]) -> books.State:
        """Return what the books say now of the store and of some graphs."""
        found: list[books.Row] = []
        for start in range(0, max(len(graphs), 1), _PAGE):
            found += querying.rows(self._connection, books.state_query(graphs[start : start + _PAGE]))
        return books.state(found)

    @contextmanager
    def held(self, graphs: Sequence[str], *, quick: bool = False) -> Iterator[Claim]:
        """Hold the right to write, with what is known of ``graphs``; see ``kg.store.remote.bookkeeping_graph``.

        A ``quick`` write's claim is taken for abandoned sooner.
        """
        with self._writing:
            claim = self._claim(graphs, uuid.uuid4().hex + (_QUICK if quick else ""))
            try:
                if claim.state.pending:
                    self.redo(claim)
                    claim.state = self.state(graphs)
                yield claim
            finally:
                if not claim.ended:
                    self._withdraw(claim)

    def _claim(self, graphs: Sequence[str], name: str) -> Claim:
        seen: dict[str, float] = {}
        looked = time.monotonic()
        while True:
            claim = Claim(name, books.State())
            try:
                self._connection.update(books.claim(name))
                claim.state = self.state(graphs)
            except BaseException:
                self._withdraw(claim)
                raise
            if not (others := claim.state.claims - {f"{name} 0"}):
                return claim
            self._withdraw(claim)
            looked, passed = (now := time.monotonic()), min(_STEP, now - looked)
            self._wait(others, seen, passed)

    def _wait(self, others: frozenset[str], seen: dict[str, float], passed: float) -> None:
        """Wait a little for other writers; take a claim that has long shown no sign of life for abandoned."""
        for said in others:
            seen[said] = seen[said] + passed if said in seen else 0.0
            if seen[said] > (QUICK if said.partition(" ")[0].endswith(_QUICK) else ABANDONED):
                log.warning("claim_abandoned", claim=said)
                self._connection.update(books.withdraw(said))
        time.sleep(random.uniform(0.005, 0.05))  # noqa: S311 - so that two do not meet again and again

    def _withdraw(self, claim: Claim) -> None:
        try:
            self._connection.update(books.withdraw(f"{claim.name} {claim.beat}"))
        except StoreUnavailable as error:
            log.warning("claim_left_behind", detail=str(error), seconds=ABANDONED)

    def renew(self, claim: Claim) -> None:
        """Show that this writer lives, in a piece of work that takes long."""
        self._connection.update(books.renew(claim.name, claim.beat))
        claim.beat += 1
        claim.shown = time.monotonic()

    def commit(self, claim: Claim, steps: list[str]) -> None:
        """Run the operations of one write and end the claim: one transaction, or what can be done again after a crash."""
        if Capability.ISOLATION not in self._connection.engine.lacks:
            text = ";\n".join([books.fence(claim.name), *steps, books.release(claim.name, claim.beat)])
            with self._beating(claim):
                self._connection.update(text)
        else:
            noted = [books.forgotten(), *books.written_down(steps)]
            self._run([*noted, *steps, *books.struck_out(len(steps))], claim, fenced=True)
        claim.ended = True

    @contextmanager
    def _beating(self, claim: Claim) -> Iterator[None]:
        """Show that this writer lives while its one request runs; the claim that it ends may have been renewed meanwhile."""
        ended = threading.Event()
        before = claim.beat

        def beat() -> None:
            while not ended.wait(BEAT):
                try:
                    self.renew(claim)
                except StoreUnavailable as error:
                    log.info("claim_not_renewed", detail=str(error))

        thread = threading.Thread(target=beat, name="claim", daemon=True)
        thread.start()
        try:
            yield
        finally:
            ended.set()
            thread.join()
        if claim.beat != before:
            self._withdraw(claim)

    def redo(self, claim: Claim) -> None:
        """Run the operations that a writer had written down and did not finish."""
        steps = books.steps(querying.rows(self._connection, books.STEPS))
        self._run([*steps, *books.struck_out(len(steps))], claim)
        log.warning("write_redone", operations=len(steps), claim=claim.name)

    def _run(self, operations: list[str], claim: Claim, *, fenced: bool = False) -> None:
        """Run operations in order, as many in one request as fit, with a sign of life between.

        ``fenced``: no request of them is taken once the claim is gone, and the last one ends it.
        """
        for start in range(0, len(operations), _TOGETHER):
            if time.monotonic() - claim.shown > BEAT:
                self.renew(claim)
            together = operations[start : start + _TOGETHER]
            if fenced and start + _TOGETHER < len(operations):
                together = [books.fence(claim.name), books.fence_again(claim.name), *together]
            elif fenced:
                together = [books.fence(claim.name), *together, books.release(claim.name, claim.beat)]
            self._connection.update(";\n".join(together))
