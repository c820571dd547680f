"""The engine built anew while the store is open, once its files have outgrown the graphs that it holds.

The engine keeps every string that was ever written, and merging its files does not remove them: so ``quads/`` grows with the writes,
however few graphs there are. A process of low priority builds another engine from the change log beside it
(``kg.store.embedded.engine_builder``). What was written meanwhile is caught up with twice: first while the old engine goes on following
the log, then, for some milliseconds, while it does not; then the new one takes its place. Until then nothing depends on it: a build
that fails, or is killed, is removed. What reads the old one goes on, and its files are removed afterwards.

When: the tables are looked at every few seconds. From ``SMALL`` bytes on, the process compares them with what the graphs need; when
that is not much less, not again before they are twice as large. After a build the next one waits for ``REST`` times its processor time.
"""

from __future__ import annotations

import shutil
import threading
import time
from contextlib import closing
from pathlib import Path

import msgspec
import structlog

from drumlin.kg import processes
from drumlin.kg.disk import sync
from drumlin.kg.errors import DrumlinError, StoreUnavailable
from drumlin.kg.store.embedded import engine_folder
from drumlin.kg.store.embedded.change_log import ChangeLog
from drumlin.kg.store.embedded.engine import EmbeddedEngine, translated
from drumlin.kg.store.embedded.engine_applier import EngineApplier
from drumlin.kg.store.embedded.engine_builder import BuildOutcome
from drumlin.kg.store.embedded.recovery import approach, catch_up
from drumlin.kg.threads import ServiceThread

SMALL = 8 << 20
"""Bytes of tables from which on an engine may be built anew."""
SMALLEST = 1 << 20
"""Bytes from which on it may when an operator asks for it (``optimize``)."""
EVERY = 5.0
"""Seconds between two looks at the tables."""
REST = 20
"""For how many times the processor time of a build, or of a look at the graphs, no other follows: a twentieth of a processor."""
_AGAIN = 600.0  # seconds after a build that failed: the disk may have room by then
_BUILDER = "drumlin.kg.store.embedded.engine_builder"
_LOOK = 1.0  # seconds between two looks whether a builder is to be ended

log = structlog.get_logger(__name__)


class EngineRenewal:
    """Watches the files of ``engine``, which follows ``changes`` by ``applier``, in a thread of its own, until ``close``.

    ``renewed`` and ``failed`` count builds.
    """

    def __init__(self, engine: EmbeddedEngine, changes: ChangeLog, applier: EngineApplier) -> None:
        self.renewed = self.failed = 0
        self._engine, self._changes, self._applier = engine, changes, applier
        self._large = SMALL  # bytes from which on the files are compared with the graphs
        self._not_before = 0.0
        self._one = threading.Lock()
        self._ending = threading.Event()
        self._thread = ServiceThread(self._run, "renewal")

    def start(self) -> None:
        """Begin to look at the files; without it they are built anew by ``renew`` alone."""
        self._thread.start()

    def _run(self) -> None:
        while not self._ending.wait(EVERY):
            try:
                if time.monotonic() >= self._not_before and self._bytes() >= self._large:
                    self.renew()
            except DrumlinError as error:
                if not self._ending.is_set():
                    log.warning("engine_not_renewed", error=str(error), hint=error.hint)
            except Exception:  # the store goes on with the engine that it has
                log.exception("engine_not_renewed")

    def _bytes(self) -> int:
        return engine_folder.table_bytes(self._engine.folder)

    def renew(self, smallest: int = 0) -> bool:
        """Build the engine anew if it has outgrown its graphs, and ``smallest`` bytes of tables; return whether it had.

        Raises ``StoreUnavailable`` when that fails: the engine is the one that it was then.
        """
        with self._one:
            began, size = time.monotonic(), self._bytes()
            if size < smallest or self._ending.is_set():
                return False
            self._applier.building_from = self._changes.last()
            folder = engine_folder.another(self._engine.folder)
            try:
                outcome = self._built(folder, size)
                if outcome.generation is not None:
                    self._put_in_place(folder, outcome.generation)
            except BaseException:
                self.failed += not self._ending.is_set()
                self._not_before = time.monotonic() + _AGAIN
                if self._engine.folder != folder:
                    shutil.rmtree(folder, ignore_errors=True)
                raise
            finally:
                self._applier.building_from = None
            now, seconds = self._bytes(), time.monotonic() - began
            self._large = max(SMALL, 2 * now)
            self._not_before = max(self._not_before, time.monotonic() + REST * outcome.processor)
            if outcome.generation is None:
                return False
            self.renewed += 1
            log.info("engine_renewed", bytes=now, before=size, needed=outcome.needed, seconds=round(seconds, 1))
            return True

    def _built(self, folder: Path, size: int) -> BuildOutcome:
        """Have a process build in ``folder``; it ends with this thread, and when the store is closed."""
        try:
            process, channel = processes.start(_BUILDER, str(folder), str(self._changes.path), str(size))
        except OSError as error:
            raise StoreUnavailable(f"no process can be started that builds an engine: {error}") from error
        with process, channel:
            said = b""
            channel.settimeout(_LOOK)
            while True:
                try:
                    part = channel.recv(1 << 16)
                except TimeoutError:
                    if self._ending.is_set():
                        process.kill()
                    continue
                if not part:
                    break
                said += part
        if not said:
            raise StoreUnavailable(f"the process that builds an engine ended with {process.returncode}")
        outcome = msgspec.json.decode(said, type=BuildOutcome)
        if outcome.error:
            raise StoreUnavailable(f"quads/ cannot be built anew: {outcome.error}", hint="the engine is used as it is")
        return outcome

    def _put_in_place(self, folder: Path, generation: int) -> None:
        """Bring what was built, which holds a generation, up to the log, and have it take the engine's place."""
        with closing(EmbeddedEngine(folder, self._changes.store_id)) as built:
            generation = approach(built, self._changes, generation)
            with translated("written"):
                sync(folder.parent)  # or the folder might be lost, and the other one is removed
            with self._applier.paused() as exchanged:
                with self._changes.still() as still:
                    generation = catch_up(built, still, generation)
                built.hold(generation)
                self._engine.exchange(built)
                exchanged(generation)
            built.remove()

    def close(self) -> None:
        """End the thread, and the build that is under way, whoever waits for it."""
        self._ending.set()
        if self._thread.ident is not None:  # it was started
            self._thread.join()
        with self._one:  # of another thread
            pass
