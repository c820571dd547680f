"""Lines of a bulk request read and validated by processes (``kg.proving_process``) that come when they are wanted and go when not."""

from __future__ import annotations

import os
import socket
import subprocess
import threading
import time
from collections.abc import Sequence
from dataclasses import dataclass, field

import msgspec
import structlog

from kg import processes
from kg.iris import Iris
from kg.proving_process import BYTES, PART, Proven
from kg.store.frames import Frames, frame

COUNT = 2
"""Processes; what is left to the service, writing what they have read, takes as long as one of them."""
REST = 120.0
"""Seconds without work after which a process ends."""
_ANSWER = 20.0  # seconds that one may take to begin, and to answer
_AGAIN = 60.0  # seconds after a failure before others are begun
_read = msgspec.msgpack.Decoder(list[Proven | None]).decode

log = structlog.get_logger()


@dataclass(slots=True, eq=False)
class _Prover:
    """One process, for one caller at a time."""

    process: subprocess.Popen[bytes]
    channel: socket.socket
    used: float = 0.0
    arrived: Frames = field(default_factory=Frames)

    def ask(self, lines: Sequence[bytes]) -> list[Proven | None]:
        self.channel.sendall(frame(b"Q", msgspec.msgpack.encode(lines)))
        return [each for _ in range(0, len(lines), PART) for each in _read(self.next())]

    def next(self) -> bytes:
        found = self.arrived.wait(self.channel, BYTES)
        if found is None:
            raise ConnectionResetError("the process has ended")
        return found[1]

    def end(self) -> None:
        self.channel.close()
        self.process.kill()
        self.process.wait()


class Provers:
    """The processes of one service, each begun and ended by a thread of its own; whoever asks talks to one directly."""

    def __init__(self, iris: Iris) -> None:
        self._iris = iris
        self._changed = threading.Condition()
        self._threads: list[threading.Thread] = []
        self._ready: list[_Prover] = []  # those that work are still among them
        self._idle: list[_Prover] = []
        self._waiting = 0
        self._closed = False
        self._not_before = 0.0

    def begin(self) -> None:
        """Have processes begun, unless there are some or only one processor; ``prove`` uses them once they are ready."""
        with self._changed:
            if self._threads or self._closed or time.monotonic() < self._not_before or os.cpu_count() == 1:
                return
            self._threads = [threading.Thread(target=self._keep, name="prover", daemon=True) for _ in range(COUNT)]
            for each in self._threads:
                each.start()

    def prove(self, lines: Sequence[bytes]) -> Sequence[Proven | None]:
        """Read lines and validate their documents; None for each that the caller has to read: no process does, or it puts none."""
        nothing = [None] * len(lines)
        prover = self._taken()
        if prover is None:
            return nothing
        answered = False
        try:
            found = prover.ask(lines)
            answered = True
        except (OSError, msgspec.MsgspecError) as error:
            self._failed(error)
            return nothing
        finally:
            self._return(prover, answered=answered)
        return found

    def close(self) -> None:
        """End the processes, once nobody asks them any more."""
        with self._changed:
            self._closed = True
            self._changed.notify_all()
            threads = list(self._threads)
        for each in threads:
            each.join()

    def _taken(self) -> _Prover | None:
        """Take one that is idle, waiting while all of them work; None when none is ready, or enough others wait."""
        with self._changed:
            if self._waiting < COUNT:
                self._waiting += 1
                self._changed.wait_for(lambda: self._idle or not self._ready)
                self._waiting -= 1
            return self._idle.pop() if self._idle else None

    def _return(self, prover: _Prover, *, answered: bool) -> None:
        with self._changed:
            prover.used = time.monotonic()
            if answered:
                self._idle.append(prover)
            else:
                self._ready.remove(prover)
            self._changed.notify_all()

    def _failed(self, error: Exception) -> None:
        self._not_before = time.monotonic() + _AGAIN
        log.warning("prover_lost", reason=f"{type(error).__name__}: {error}")

    # -- the thread of a process, which ends with it -------------------------------------------------------------------
    def _keep(self) -> None:
        try:
            prover = _Prover(*processes.start("kg.proving_process", self._iris.base))
            try:
                prover.channel.settimeout(_ANSWER)
                prover.next()
                self._serve(prover)
            finally:
                prover.end()
        except OSError as error:
            self._failed(error)
        finally:
            with self._changed:
                self._threads.remove(threading.current_thread())

    def _serve(self, prover: _Prover) -> None:
        """Let a process be asked until nobody has for long, it is lost, or the service ends."""
        with self._changed:
            prover.used = time.monotonic()
            self._ready.append(prover)
            self._idle.append(prover)
            self._changed.notify_all()
            while prover in self._ready and not (prover in self._idle and self._is_done(prover)):
                self._changed.wait(1.0)
            if prover in self._ready:
                self._ready.remove(prover)
                self._idle.remove(prover)

    def _is_done(self, prover: _Prover) -> bool:
        return self._closed or time.monotonic() - prover.used > REST
