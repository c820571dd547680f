"""The audit log: one JSON line for each write and each refusal. It never holds a token, a query string or a body.

A thread writes the lines, so that no request waits for the disk. A file that has reached its size becomes ``NAME.1``, and so on; the oldest
one is removed.
"""

from __future__ import annotations

import os
import threading
from collections import deque
from datetime import UTC, datetime
from pathlib import Path
from typing import BinaryIO

import msgspec
import structlog

from drumlin.api.access.tokens import PATTERN
from drumlin.kg.errors import InvalidSettings
from drumlin.kg.threads import ServiceThread

FILE = "access.jsonl"
"""Name of the file in the directory of a store."""
_LONGEST_PATH = 512
_PAUSE = 0.05  # seconds that a line may wait for others
_WAITING = 100_000  # lines; more come only when the disk hangs

log = structlog.get_logger()


class AuditEntry(msgspec.Struct, omit_defaults=True):
    """One line: when, who, from where, what, and how it ended. ``generation`` is the store's after it; ``error`` is a problem's type."""

    time: datetime
    identity: str
    role: str
    address: str
    method: str
    path: str
    status: int
    generation: int
    request: str
    error: str = ""


class AccessLog:
    """Appends entries to ``path``; ``size`` is the bytes of one file, ``count`` the number of files.

    Raises ``InvalidSettings`` when it cannot be written, unless it is not ``needed``: then that is logged, and tried again with each line.
    """

    def __init__(self, path: Path, *, size: int, count: int, needed: bool = True) -> None:
        self._path, self._size, self._count = path, size, count
        self._waiting: deque[AuditEntry] = deque()
        self._news, self._closing = threading.Event(), threading.Event()
        self._failing = False
        self._encode = msgspec.json.Encoder().encode
        try:
            self._open().close()
        except OSError as error:
            if needed:
                raise InvalidSettings(
                    f"the audit log {path} cannot be written: {error.strerror}",
                    hint="set audit_log, or audit_files = 0",
                ) from error
            self._failed(str(error.strerror))
        self._thread = ServiceThread(self._run, "audit-log")
        self._thread.start()

    def record(self, entry: AuditEntry) -> None:
        """Have an entry written; it is lost, and that is logged, when the disk has hung for long."""
        if len(self._waiting) >= _WAITING:
            self._failed("too many lines wait for the disk")
            return
        self._waiting.append(entry)
        if not self._news.is_set():
            self._news.set()

    def close(self) -> None:
        """Write what waits, and end."""
        self._closing.set()
        self._news.set()
        self._thread.join()

    def _run(self) -> None:
        while not self._closing.is_set():
            self._news.wait()
            self._closing.wait(_PAUSE)  # for more: each turn of this thread holds up the others
            self._news.clear()
            self._write_all()
        self._write_all()

    def _write_all(self) -> None:
        try:
            self._write([self._line(self._waiting.popleft()) for _ in range(len(self._waiting))])
            self._failing = False
        except OSError as error:
            self._failed(str(error.strerror))

    def _write(self, lines: list[bytes]) -> None:
        file = self._open()
        try:
            used = file.tell()
            for line in lines:
                if used and used + len(line) > self._size:
                    file.close()
                    self._rotate()
                    file, used = self._open(), 0
                used += file.write(line)
        finally:
            file.close()

    def _open(self) -> BinaryIO:
        file = os.open(self._path, os.O_WRONLY | os.O_APPEND | os.O_CREAT | os.O_CLOEXEC, 0o600)
        opened = os.fdopen(file, "ab")
        opened.seek(0, os.SEEK_END)
        return opened

    def _rotate(self) -> None:
        for number in range(self._count - 1, 0, -1):
            older = self._named(number - 1)
            if older.exists():
                older.replace(self._named(number))
        if self._count == 1:
            self._path.unlink()

    def _named(self, number: int) -> Path:
        return self._path.with_name(f"{self._path.name}.{number}") if number else self._path

    def _line(self, entry: AuditEntry) -> bytes:
        path = PATTERN.sub("drumlin_…", entry.path)[:_LONGEST_PATH]
        entry.path = path.encode(errors="backslashreplace").decode()
        return self._encode(entry) + b"\n"

    def _failed(self, reason: str) -> None:
        if not self._failing:
            log.error("audit_log_failed", path=str(self._path), reason=reason)
        self._failing = True


def utc_now() -> datetime:
    """Return the time in UTC, to the millisecond."""
    now = datetime.now(UTC)
    return now.replace(microsecond=now.microsecond // 1000 * 1000)
