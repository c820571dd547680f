"""The service's hold on one reader process: its pid, its socket, what its replica has seen, and why it was killed if it was."""

from __future__ import annotations

import json
import mmap
import os
import shutil
import signal
import socket
import struct
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any, Literal

from drumlin.kg import errors, processes
from drumlin.kg.errors import DrumlinError, QueryRejected, ReaderLost, StoreUnavailable
from drumlin.kg.store.delta import Delta
from drumlin.kg.store.query_workers.frames import BEGUN
from drumlin.kg.workers.frames import CHUNK, Frames, frame

Fate = Literal["", "timeout", "memory", "abandoned", "crash", "worn", "stale", "resting", "gave way", "closed"]
"""Why a reader ended: its query's deadline, its memory, nobody wanted the result, its own doing, it was replaced, not needed, or needed
for shorter queries."""

_SEND_SECONDS = 10  # an idle reader takes what it is sent at once
_HEADROOM = 4  # address space over the memory cap: threads' stacks, allocator and files take room that is no memory
_PAGE = os.sysconf("SC_PAGE_SIZE")


class QueryWorker:
    """One reader process on the replica in ``folder``, which holds at least ``generation``."""

    def __init__(self, folder: Path, generation: int, memory: int) -> None:
        """Start the process; ``memory`` (bytes) is what its queries may take. It answers once its replica is open."""
        self.folder, self.generation, self._memory = folder, generation, memory
        self.owed: Sequence[Delta] = ()
        self.replayed = 0  # bytes of deltas
        self.fate: Fate = ""
        self.began: float | None = None
        self.client = ""  # for which it works
        self.long = False  # it works on what takes long
        self.spoke = False  # a part of the result has come
        self.opened = False  # its replica is open, so it has been of use
        self.lent = time.monotonic()  # when a query came to it last
        self.deadline = 0.0
        self.answers = 1  # that are still to come, when it is tended
        self.listener: object = None  # called when it has sent something
        self.reniced = False
        self.arrived = Frames()
        self._asked = 0
        shared = os.memfd_create("begun")
        try:
            os.ftruncate(shared, BEGUN.size)
            self._begun = mmap.mmap(shared, BEGUN.size)
            self._process, self.socket = processes.start(
                "drumlin.kg.store.query_workers.main",
                str(folder),
                f"--address-space={memory * _HEADROOM}",
                f"--begun={shared}",
                descriptors=[shared],
            )
        finally:
            os.close(shared)
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", _SEND_SECONDS, 0))

    @property
    def pid(self) -> int:
        """The process's id."""
        return int(self._process.pid)

    def begin(self, deadline: float, owed: Sequence[Delta]) -> None:
        """Note that it works from now, until ``deadline`` (``time.monotonic``) at most, and must replay ``owed`` first."""
        self.began, self.deadline, self.owed = time.monotonic(), deadline, owed
        self.lent = self.began
        self.long = self.spoke = False

    def request(self, query: bytes) -> bytes:
        """Return what to send: the deltas that it is owed, in one transaction of the engine, then the query frame."""
        deltas, self.owed = self.owed, ()
        if not deltas:
            return query
        texts = [each.update for each in deltas if each.update]
        self.generation = deltas[-1].generation
        text = ";\n".join(texts).encode()
        self.replayed += len(text)
        return (frame(b"U", text) if text else b"") + query

    def number(self) -> int:
        """Count a query that is sent next, and return its number."""
        self._asked += 1
        return self._asked

    @property
    def begun(self) -> int:
        """How many queries it has begun in its life."""
        (count,) = BEGUN.unpack_from(self._begun)
        return int(count)

    def never_began(self, number: int) -> bool:
        """Return whether it ended, by nobody's decision here, before it began the query of that number: another may be asked."""
        return self.fate == "crash" and number > self.begun

    def gave_way(self, *, begun: bool) -> bool:
        """Return whether it was ended for shorter queries before the result had ``begun``: the query may be asked again."""
        return self.fate == "gave way" and not begun

    def kill(self, fate: Fate) -> None:
        """Kill the process; a caller that waits for its answer finds the socket closed. The first reason given stands."""
        self.fate = self.fate or fate
        with suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGKILL)

    def renice(self) -> None:
        """Let other work go first: this reader is busy for long."""
        self.reniced = True
        processes.lower_priority(self.pid)

    def restore(self) -> bool:
        """Give it its priority back; False when the system does not allow that."""
        self.reniced = not processes.restore_priority(self.pid)
        return not self.reniced

    def over_memory(self) -> bool:
        """Return whether it takes more memory of its own than it may."""
        try:
            fields = Path(f"/proc/{self.pid}/statm").read_bytes().split()
        except OSError:  # it has ended
            return False
        return len(fields) > 2 and (int(fields[1]) - int(fields[2])) * _PAGE > self._memory

    def alive(self) -> bool:
        """Return whether the process runs."""
        return self._process.poll() is None

    def reap(self) -> None:
        """Wait for the killed process and remove its replica; its socket stays, so that a query that waits there ends."""
        self.kill("closed")
        self._process.wait()
        shutil.rmtree(self.folder, ignore_errors=True)

    def bury(self) -> None:
        """Reap it and let go of its socket: nobody waits for it."""
        self.reap()
        self.socket.close()

    # -- its answers --------------------------------------------------------------------------------------------------
    def poll(self) -> tuple[bytes, bytes] | None:
        """Return the next frame if it is there, without waiting; None if not. Raises what ``receive`` raises."""
        while (found := self.arrived.next()) is None:
            try:
                data = self.socket.recv(CHUNK, socket.MSG_DONTWAIT)
            except BlockingIOError:
                return None
            except ConnectionResetError:
                data = b""
            self._take(data)
        return found

    def receive(self) -> tuple[bytes, bytes]:
        """Wait for the next frame. Raises ``ReaderLost``, or ``QueryRejected`` when it was killed for its query."""
        while (found := self.arrived.next()) is None:
            try:
                data = self.socket.recv(CHUNK)
            except ConnectionResetError:
                data = b""
            self._take(data)
        return found

    def _take(self, data: bytes) -> None:
        if not data:
            self.fate = self.fate or "crash"
            raise self.obituary()
        self.spoke = True
        self.arrived.feed(data)

    def obituary(self) -> DrumlinError:
        """Say why it ended, to whom waits for its answer."""
        if self.fate == "timeout":
            return QueryRejected(
                f"the query was stopped after {time.monotonic() - (self.began or 0):.1f} s, its time limit (deadline)",
                reason="timeout",
                hint="ask for less at a time (LIMIT, fewer unbound patterns), or give it longer: timeout=SECONDS, --timeout",
            )
        if self.fate == "memory":
            return QueryRejected(
                f"the query was stopped: it needs more memory than {self._memory // 2**20:,} MB",
                reason="memory",
                hint="ask for less at a time: sorting, grouping and DISTINCT keep all rows in memory",
            )
        if self.fate == "closed":
            return StoreUnavailable("the service is stopping")
        return ReaderLost(
            "the engine ended while it ran this query; other queries are not affected",
            hint="write the query differently",
        )


def failure(payload: bytes) -> DrumlinError:
    """Read the error that a reader sent instead of a result."""
    said: dict[str, Any] = json.loads(payload)
    kind = getattr(errors, said["type"])
    if issubclass(kind, QueryRejected):
        return QueryRejected(said["message"], reason=said["reason"], hint=said["hint"], detail=said["detail"])
    error: DrumlinError = kind(said["message"], hint=said["hint"], detail=said["detail"])
    return error
