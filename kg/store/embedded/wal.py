"""Making the engine's commits survive: RocksDB hands its write-ahead log to the kernel at commit, but never to the disk.

The engine offers no fsync, so its log files are synced from here after each batch (about 0.3 ms); and it never flushes its
memory by size, so that is asked of it when the log has grown (``kg.store.embedded.writer``; else memory, log and start grow without end).
"""

from __future__ import annotations

import errno
import os
import resource
import sqlite3
import time
from contextlib import suppress
from pathlib import Path

from drumlin.kg.disk import sync
from drumlin.kg.errors import RESTORE, StoreDamaged, StoreFull, StoreUnavailable

_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)
READ_ONLY = errno.EROFS
"""The number of the error of a file system that is mounted for reading only."""
_COARSEST = 2_100_000_000  # nanoseconds between two ticks of a file system's clock, at most


def unavailable(what: str, error: Exception) -> StoreUnavailable:
    """Say that something failed for want of the disk.

    ``StoreFull`` when there is no room, ``StoreDamaged`` when SQLite cannot make sense of a file.
    """
    if is_full(error) or "disk is full" in str(error) or (_limited() and _unwritten(error)):
        return full(f"{what}: {error}")
    if _is_damage(error):
        return StoreDamaged(f"{what}: {error}", hint=RESTORE)
    return StoreUnavailable(f"{what}: {error}", hint="check the permissions and the disk of the store's directory")


def is_full(error: BaseException) -> bool:
    """Return whether an error says that there is no room on a disk: the engine says so in words, SQLite of its shared memory in a code."""
    return (
        isinstance(error, StoreFull)
        or getattr(error, "errno", None) in _FULL
        or any(os.strerror(each) in str(error) for each in _FULL)
        or getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_SHMSIZE"
    )


def _is_damage(error: Exception) -> bool:
    """Return whether SQLite cannot make sense of a file, or what it reads there is not what was written."""
    if getattr(error, "sqlite_errorcode", 0) & 0xFF in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        return True
    return isinstance(error, sqlite3.Error) and str(error).startswith(
        ("no such table", "no such column", "Could not decode")
    )


def _unwritten(error: Exception) -> bool:
    """Return whether SQLite could not write: it does not say that a file may not grow beyond a limit, only that there is no room."""
    return getattr(error, "sqlite_errorname", "") == "SQLITE_IOERR_WRITE"


def _limited() -> bool:
    return resource.getrlimit(resource.RLIMIT_FSIZE)[0] != resource.RLIM_INFINITY


def full(message: str) -> StoreFull:
    """Say that there is no room, and what to do."""
    return StoreFull(message, hint="make room on the disk of the store's directory; writing goes on by itself then")


class Wal:
    """The write-ahead log of the RocksDB in ``folder``.

    Its files are kept open, and the folder is listed again only when it has changed: each call of the system lets other threads run
    first, so a sync that makes forty of them waits for Python's lock forty times.
    """

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self._files: dict[str, int] = {}
        self._synced: dict[str, int] = {}
        self._listed: int | None = None  # when the folder changed last before it was listed; None: open everything anew

    @property
    def size(self) -> int:
        """Size in bytes when it was last synced."""
        return sum(self._synced.values())

    def sync(self) -> None:
        """Wait until all that was committed is on disk: one commit can rotate the files, so each one that has grown is synced."""
        new = self._list()
        before, sizes = self._synced, {}
        for name, file in self._files.items():
            sizes[name] = os.fstat(file).st_size
            if before.get(name) != sizes[name]:
                os.fdatasync(file)
        if new:  # a new file is lost with its directory entry
            sync(self._folder)
        self._synced = sizes

    def _list(self) -> bool:
        """Open what is new in the folder, let go of what is gone (written to a table, which the engine syncs); True for new files."""
        if self._listed is None:
            self.close()
        changed = self._folder.stat().st_mtime_ns
        if changed == self._listed:
            return False
        lately = time.time_ns() - changed < _COARSEST
        there = self._sizes().keys()
        for name in self._files.keys() - there:
            os.close(self._files.pop(name))
        new = sorted(there - self._files.keys())
        for name in new:
            with suppress(FileNotFoundError):
                self._files[name] = os.open(self._folder / name, os.O_RDONLY | os.O_CLOEXEC)
        self._listed = 0 if lately else changed  # what comes within one tick of the file system's clock would not show
        return bool(new)

    def measure(self) -> int:
        """Return the size of the log as it is now, in bytes."""
        return sum(self._sizes().values())

    def forget(self) -> None:
        """Take nothing for synced any more."""
        self._synced, self._listed = {}, None

    def close(self) -> None:
        """Let go of the files."""
        while self._files:
            os.close(self._files.popitem()[1])

    def _sizes(self) -> dict[str, int]:
        found: dict[str, int] = {}
        with os.scandir(self._folder) as files:
            for file in files:
                if file.name.endswith(".log"):
                    with suppress(FileNotFoundError):
                        found[file.name] = file.stat().st_size
        return found
