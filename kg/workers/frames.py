"""The frames between the service and its child processes: one letter, a length and that many bytes.

To a worker: ``J`` a job (``JobHeader``), then ``P``, what it works on. From a worker, for each job: ``B`` (it has begun), any number of
``D`` (a part of the result), then ``E`` (the end), ``X`` (an error of ours, as a ``Refusal``) or ``L`` (a limit that the job exceeded).
Readers use the same framing for messages of their own (``kg.store.query_workers.frames``). What can become of a job is defined here too.
"""

from __future__ import annotations

import socket
import struct
from dataclasses import dataclass
from typing import Any, Literal

import msgspec

from drumlin.kg import errors
from drumlin.kg.errors import DrumlinError, QueryRejected, ShapeViolation, StoreUnavailable, Violation

_HEAD = struct.Struct("!cI")
CHUNK = 65_536
"""Bytes that are taken from a socket at a time."""
LimitKind = Literal["time", "memory", "output"]


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """Write one frame."""
    return head(kind, len(payload)) + payload


def head(kind: bytes, size: int) -> bytes:
    """Write what stands before the payload of a frame, for one that is too large to be copied."""
    return _HEAD.pack(kind, size)


class FrameTooLarge(Exception):
    """The other side announces a frame that is larger than it may be."""


class Frames:
    """Cuts the bytes that arrive into frames; raises ``FrameTooLarge`` for a payload of more than ``most`` bytes."""

    def __init__(self, most: int = 1 << 32) -> None:
        self.most = most
        self._waiting = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what arrived."""
        self._waiting += data

    def wait(self, channel: socket.socket, size: int = CHUNK) -> tuple[bytes, bytes] | None:
        """Return the next frame, taking up to ``size`` bytes at a time from ``channel``; None when the other side is gone."""
        while (found := self.next()) is None:
            data = channel.recv(size)
            if not data:
                return None
            self.feed(data)
        return found

    def next(self) -> tuple[bytes, bytes] | None:
        """Return the next frame, None while it is not all there."""
        waiting = self._waiting
        if len(waiting) < _HEAD.size:
            return None
        kind, size = _HEAD.unpack_from(waiting)
        if size > self.most:
            raise FrameTooLarge(f"a frame of {size:,} bytes")
        end = _HEAD.size + size
        if len(waiting) < end:
            return None
        payload = bytes(waiting[_HEAD.size : end])
        del waiting[:end]
        return kind, payload


@dataclass(frozen=True, slots=True)
class Limits:
    """The most that a job may take: seconds, bytes of address space, bytes of its result."""

    seconds: float
    memory: int
    output: int

    def scaled(self, factor: float) -> Limits:
        """Return as much more for something so many times as large."""
        return Limits(self.seconds * factor, int(self.memory * factor), int(self.output * factor))


class JobFailed(Exception):
    """A job has no result. Its subclasses say why."""


class LimitExceeded(JobFailed):
    """The job exceeded a limit: ``kind``, with ``limits`` that it was held to."""

    def __init__(self, kind: LimitKind, limits: Limits) -> None:
        super().__init__(f"the job exceeded its limit on {kind}")
        self.kind, self.limits = kind, limits


class WorkerDied(JobFailed):
    """The process ended within the job, by its own doing; ``exit_reason`` is a signal or an exit code."""

    def __init__(self, exit_reason: str, last_words: str) -> None:
        super().__init__(f"the worker ended: {exit_reason}")
        self.exit_reason, self.last_words = exit_reason, last_words


class NoWorker(JobFailed):
    """The job was not run to its end, which is not its fault: all are busy, none can be started, or something else ended it."""


class JobHeader(msgspec.Struct, array_like=True):
    """One job: the function that it runs, the bytes of memory that it may take, the bytes that it may return."""

    target: str
    memory: int
    output: int


class Refusal(msgspec.Struct, array_like=True):
    """An error of ours on its way between two processes."""

    error: str
    message: str
    hint: str | None
    reason: str | None
    detail: dict[str, Any]
    violations: list[Violation]

    @classmethod
    def of(cls, error: DrumlinError) -> Refusal:
        """Describe an error."""
        reason = error.reason if isinstance(error, QueryRejected) else None
        violations = [*error.violations] if isinstance(error, ShapeViolation) else []
        return cls(type(error).__name__, str(error), error.hint, reason, error.detail, violations)

    def again(self) -> DrumlinError:
        """Return the error, to be raised on this side; ``StoreUnavailable`` for one that cannot be made of this."""
        if self.error == ShapeViolation.__name__ and self.violations:
            return ShapeViolation(tuple(self.violations))
        if self.error == QueryRejected.__name__:
            return QueryRejected(self.message, reason=self.reason or "syntax", hint=self.hint, detail=self.detail)
        kind = getattr(errors, self.error, None)
        if not (isinstance(kind, type) and issubclass(kind, DrumlinError) and kind.__init__ is DrumlinError.__init__):
            kind = StoreUnavailable
        return kind(self.message, hint=self.hint, detail=self.detail)
