"""Making the engine's commits survive: RocksDB hands its write-ahead log to the kernel at commit, but never to the disk.

The engine offers no fsync, so its log files are synced from here after each batch (about 0.3 ms); and it never flushes its
memory by size, so that is asked of it when the log has grown (``kg.store.writer``; else memory, log and start grow without end).
"""

from __future__ import annotations

import errno
import os
from contextlib import suppress
from pathlib import Path

from kg.errors import StoreFull, StoreUnavailable

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


def unavailable(what: str, error: Exception) -> StoreUnavailable:
    """Say that something failed for want of the disk: ``StoreFull`` when there is no room (the engine tells it in words only)."""
    full = getattr(error, "errno", None) in _FULL or any(os.strerror(each) in str(error) for each in _FULL)
    if full or "disk is full" in str(error):
        return StoreFull(
            f"{what}: {error}", hint="make room on the disk of the store's directory; writing goes on by itself then"
        )
    return StoreUnavailable(f"{what}: {error}", hint="check the permissions and the disk of the store's directory")


class Wal:
    """The write-ahead log of the RocksDB in ``folder``."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._known: frozenset[str] = frozenset()
        self.size = 0

    def sync(self) -> None:
        """Wait until all that was committed is on disk. Every log file is synced, since one commit can rotate them."""
        names = self._files()
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
        self._known, self.size = names, size

    def measure(self) -> int:
        """Return the size of the log as it is now, in bytes."""
        size = 0
        for name in self._files():
            with suppress(FileNotFoundError):  # flushed to a table meanwhile
                size += (self._folder / name).stat().st_size
        return size

    def _files(self) -> frozenset[str]:
        with os.scandir(self._folder) as files:
            return frozenset(file.name for file in files if file.name.endswith(".log"))
