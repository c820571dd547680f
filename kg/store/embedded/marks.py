"""Marks: small files that say which store a part belongs to, and which generation that part had reached.

The *witness* of a store is the newest generation that was acknowledged; it is written after the change log has the generation durably, so
it never exceeds the log of a whole store, whatever was killed or lost power. The engine's mark is the generation that its files hold.
A mark ahead of the log proves that the log has lost something; a mark behind proves nothing, or that the part is an older copy.
"""

from __future__ import annotations

import os
import zlib
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple


class StoreMark(NamedTuple):
    """The id of a store and a generation of it."""

    store: str
    generation: int


def read_mark(path: Path) -> StoreMark | None:
    """Return what a mark says; None when there is none, or when it cannot be read: a part without one is judged by its content."""
    try:
        store, generation, check = path.read_text(encoding="ascii").split()
    except (OSError, ValueError):
        return None
    mark = StoreMark(store, int(generation)) if generation.isascii() and generation.isdigit() else None
    return mark if mark and check == _check(mark) else None


class MarkFile:
    """Writes the mark of one part of the store ``store``. Raises ``OSError``.

    The line always has the same length and is written over in place, by one call: it needs no room, and a killed process leaves the
    old line or the new one.
    """

    def __init__(self, path: Path, store: str) -> None:
        self._store = store
        self._file = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)

    def write(self, generation: int, *, durable: bool = False) -> None:
        """Note a generation; it outlives a kill at once, and a loss of power when ``durable``."""
        mark = StoreMark(self._store, generation)
        os.pwrite(self._file, f"{mark.store} {generation:020d} {_check(mark)}\n".encode(), 0)
        if durable:
            os.fdatasync(self._file)

    def close(self) -> None:
        """Close the file, once."""
        file, self._file = self._file, -1
        with suppress(OSError):
            os.close(file)


def _check(mark: StoreMark) -> str:
    return f"{zlib.crc32(f'{mark.store} {mark.generation}'.encode()):08x}"
