"""The folder of an engine, the one that is built beside it, and how that takes its place: whatever is killed in between, one is whole.

A folder is built under a name of its own and is complete once it has its mark (``kg.store.embedded.marks``). It takes the place by two
renames; between them there is none, and a start goes on from there.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from drumlin.kg.disk import sync
from drumlin.kg.store.embedded.marks import read_mark

HELD = "held"
"""Name of the mark among RocksDB's files, which leaves alone what it does not know."""
_BUILT, _REPLACED = ".new", ".old"  # what the names of both folders end with


def built_beside(folder: Path) -> Path:
    """Return where another engine is built that is to take the place of ``folder``."""
    return folder.with_name(folder.name + _BUILT)


def put_in_place(folder: Path) -> None:
    """Put what was built beside ``folder`` in its place, durably; nothing may have either open. ``clear`` removes what was replaced.

    Raises ``OSError``; then what was there is there again, unless the system refuses that too.
    """
    built, replaced = built_beside(folder), _replaced(folder)
    sync(built)
    shutil.rmtree(replaced, ignore_errors=True)
    if folder.is_dir() and not folder.is_symlink():
        folder.rename(replaced)
    else:
        folder.unlink(missing_ok=True)
    try:
        built.rename(folder)
    except OSError:
        if replaced.is_dir():
            replaced.rename(folder)
        raise
    sync(folder.parent)


def restore(folder: Path) -> None:
    """Put a whole engine in the place of ``folder`` where two renames left none: only one was made. Raises ``OSError``."""
    built, replaced = built_beside(folder), _replaced(folder)
    if not folder.exists() and replaced.is_dir():
        (built if read_mark(built / HELD) else replaced).rename(folder)


def clear(folder: Path) -> None:
    """Remove what was built beside ``folder`` and did not take its place, and what it has replaced."""
    shutil.rmtree(built_beside(folder), ignore_errors=True)
    if folder.exists():
        shutil.rmtree(_replaced(folder), ignore_errors=True)


def size(folder: Path, pattern: str = "*") -> int:
    """Return the bytes of the files in ``folder`` whose names match, those that go meanwhile or not."""
    total = 0
    for each in folder.glob(pattern):
        try:
            total += each.stat().st_size
        except FileNotFoundError:  # merged into another
            continue
    return total


def table_bytes(folder: Path) -> int:
    """Return the bytes of the tables in ``folder``, into which its log, whose size is bounded, is written sooner or later."""
    return size(folder, "*.sst")


def _replaced(folder: Path) -> Path:
    return folder.with_name(folder.name + _REPLACED)
