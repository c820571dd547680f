"""Making the engine's commits survive: RocksDB hands its write-ahead log to the kernel at commit, but never to the disk.

The engine offers no fsync, so its log files are synced from here after each commit (about 0.3 ms); and it never flushes its
memory by size, so that is asked of it when the log has grown (else memory, log and start grow without end).
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable
from pathlib import Path

FLUSH_BYTES = 8 * 1024 * 1024
"""Size of the write-ahead log at which the engine's memory is flushed to its tables."""


class Wal:
    """The write-ahead log of the RocksDB in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: frozenset[str] = frozenset()
        self._size = 0
        self._flushing = threading.Lock()

    def sync(self) -> None:
        """Wait until all that was committed is on disk. Every log file is synced, since one commit can rotate them."""
        with os.scandir(self._folder) as files:
            names = frozenset(file.name for file in files if file.name.endswith(".log"))
        size = 0
        for name in names:
            try:
                file = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
            except FileNotFoundError:  # flushed to a table meanwhile, which the engine syncs itself
                continue
            try:
                os.fdatasync(file)
                size += os.fstat(file).st_size
            finally:
                os.close(file)
        if not names <= self._known:  # a new file is lost with its directory entry
            folder = os.open(self._folder, os.O_RDONLY | os.O_DIRECTORY | os.O_CLOEXEC)
            try:
                os.fsync(folder)
            finally:
                os.close(folder)
        self._known, self._size = names, size

    def flush_when_large(self, flush: Callable[[], None]) -> None:
        """Call ``flush`` when the log has reached ``FLUSH_BYTES``; one at a time, the others go on."""
        if self._size < FLUSH_BYTES or not self._flushing.acquire(blocking=False):
            return
        try:
            flush()
        finally:
            self._flushing.release()
