"""The service's hold on the process that takes in what is much (``kg.index_process``), which comes when it is wanted and goes when not."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import msgspec

from kg import processes
from kg.index_process import Asked
from kg.intake import Taken
from kg.iris import Iris
from kg.store.frames import Frames, frame

MUCH = 100
"""Changes from which on it is worth while to have them taken in elsewhere."""
REST = 30.0
"""Seconds without work after which the process ends."""
_ANSWER = 20.0  # seconds that an answer may take, for it may be of 10,000 graphs that were written as one: questions wait meanwhile
_AGAIN = 60.0  # seconds after a failure before another process is begun


class Lost(Exception):
    """The process does not do what is asked of it, and was ended; it may have taken in a chunk without having said so."""


class Helper:
    """Takes changes of the log in the file ``log`` into the index in the file ``index``, for one thread: the process ends with that.

    ``has_changed`` tells whether there are so many changes after a generation.
    """

    def __init__(self, log: Path, index: Path, iris: Iris, has_changed: Callable[[int, int], bool]) -> None:
        self._arguments = (str(log), str(index), iris.base)
        self._has_changed = has_changed
        self._process: subprocess.Popen[bytes] | None = None
        self._socket: socket.socket | None = None
        self._arrived = Frames()
        self._ready = False
        self._used = self._not_before = 0.0

    def take_in(self, position: int, until: int) -> Taken | None:
        """Have a chunk of the changes after ``position`` taken in; None when it is to be done here: not ready, or too little.

        Nobody else may write to the index meanwhile. Raises ``Lost``.
        """
        now = time.monotonic()
        if now < self._not_before or not self._has_changed(position, MUCH):
            return None
        self._used = now
        try:
            return self._asked(position, until) if self._is_ready() else None
        except (Lost, OSError, msgspec.MsgspecError) as error:
            self.end()
            self._not_before = time.monotonic() + _AGAIN
            raise Lost(f"{type(error).__name__}: {error}") from error

    def _is_ready(self) -> bool:
        if self._socket is None:
            self._process, self._socket = processes.start("kg.index_process", *self._arguments)
            self._arrived, self._ready = Frames(), False
        if not self._ready:
            self._socket.setblocking(False)
            try:
                self._next(self._socket)
                self._ready = True
            except BlockingIOError:
                return False
        return True

    def _asked(self, position: int, until: int) -> Taken:
        assert self._socket is not None
        self._socket.settimeout(_ANSWER)
        self._socket.sendall(frame(b"Q", msgspec.json.encode(Asked(position, until))))
        return msgspec.json.decode(self._next(self._socket), type=Taken)

    def _next(self, channel: socket.socket) -> bytes:
        found = self._arrived.wait(channel)
        if found is None:
            raise Lost("it has ended")
        kind, payload = found
        if kind == b"X":
            raise Lost(payload.decode())
        return payload

    def rest(self) -> None:
        """End the process when it was not asked for long."""
        if self._process is not None and time.monotonic() - self._used > REST:
            self.end()

    def end(self) -> None:
        """End the process; what it had begun to write is not there."""
        process, channel = self._process, self._socket
        self._process = self._socket = None
        if channel is not None:
            channel.close()
        if process is not None:
            process.kill()
            process.wait()
