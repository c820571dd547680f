"""The folders of engines: where one is, and which of several is the store's.

The engine of a store is in ``quads``. One that is built while the store is open (``kg.store.embedded.engine_renewal``) has a folder of its
own beside it, ``quads.1``, and is used there from the moment that it takes the place: RocksDB finds its files by their path, so a folder in
use cannot be renamed. The next start renames it. Each folder that is whole has a mark (``kg.store.embedded.marks``); of several, which only
a kill leaves, the one that holds the newest generation is the engine: whichever it is, it can be brought up to the log.
"""

from __future__ import annotations

import shutil
from pathlib import Path

from drumlin.kg.store.embedded.marks import read_mark

HELD = "held"
"""Name of the mark among RocksDB's files, which leaves alone what it does not know."""
REBUILT, REPLACED = "new", "old"
"""What the names of the folders end with that a start which builds the engine anew has beside it."""


def newest(folder: Path) -> Path:
    """Return which of the folders beside ``folder`` is the engine: itself, unless one that is whole holds as much."""
    held = {each: mark.generation for each in _beside(folder) if (mark := read_mark(each / HELD))}
    found = max(held, key=lambda each: (held[each], int(each.suffix[1:])), default=folder)
    mine = read_mark(folder / HELD)
    return folder if found not in held or (mine and mine.generation > held[found]) else found


def settle(folder: Path) -> None:
    """Leave one engine, in ``folder``, of those that a killed process left. Raises ``OSError``; the next start goes on from there."""
    if (found := newest(folder)) != folder:
        shutil.rmtree(folder, ignore_errors=True)
        found.rename(folder)
    clear(folder)


def clear(folder: Path) -> None:
    """Remove the folders of engines beside ``folder``."""
    for each in (*_beside(folder), folder.with_suffix(f".{REBUILT}"), folder.with_suffix(f".{REPLACED}")):
        shutil.rmtree(each, ignore_errors=True)


def another(folder: Path) -> Path:
    """Return the name of a folder that another engine may be built in."""
    return folder.with_suffix(
        f".{1 + max((int(each.suffix[1:]) for each in (folder, *_beside(folder)) if each.suffix), default=0)}"
    )


def _beside(folder: Path) -> list[Path]:
    return [each for each in folder.parent.glob(f"{folder.stem}.*") if each.suffix[1:].isdigit() and each != folder]


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
