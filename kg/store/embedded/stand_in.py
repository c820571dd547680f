"""A stand-in for a store whose disk takes no writes: full, or mounted for reading only. It is opened in its place, to be read.

Opening writes: the engine rolls its log into tables, SQLite needs its shared memory, readers need replicas. So where the store's own disk
has no room, what would be written to is copied into a temporary directory on another one (``TMPDIR``): the change log, the run archive,
the search index, and the engine's small files. Its tables, which nobody changes, are linked to. The store itself is left as it is. Writes
are refused, since what the stand-in took would be lost with it.
"""

from __future__ import annotations

import os
import shutil
import tempfile
from pathlib import Path

from drumlin.kg.errors import StoreFull, StoreUnavailable
from drumlin.kg.store.embedded.engine_folder import newest
from drumlin.kg.store.embedded.opening import BASE, LOG, QUADS, WITNESS
from drumlin.kg.store.embedded.wal import READ_ONLY, is_full
from drumlin.kg.store.run_archive import RUNS, RUNS_MARK

_COPIED = (LOG, f"{LOG}-wal", WITNESS, BASE, RUNS, f"{RUNS}-wal", RUNS_MARK, "search.sqlite", "search.sqlite-wal")
_ROOM = 1 << 20  # bytes that opening writes beside what stands in the logs


def why_unwritable(directory: Path) -> StoreUnavailable | None:
    """Return why a store cannot be opened for writing where it is; None when there is room for what opening writes."""
    needed = _ROOM + sum(
        each.stat().st_size for each in (*newest(directory / QUADS).glob("*.log"), *directory.glob(f"{LOG}-wal"))
    )
    try:
        with tempfile.TemporaryFile(dir=directory) as probe:
            os.posix_fallocate(probe.fileno(), 0, needed)
    except OSError as error:
        if is_full(error):
            return StoreFull(
                f"the store in {directory} is open for reading only: its disk had no room when it was opened",
                hint="make room on the disk of the store's directory and open it again: restart the service",
            )
        if error.errno == READ_ONLY:
            return StoreUnavailable(
                f"the store in {directory} is open for reading only: its disk is mounted so",
                hint="have the disk of the store's directory mounted for writing and open it again: restart the service",
            )
    return None


def stand_in(directory: Path) -> Path:
    """Make the stand-in of a store in a new temporary directory and return that; raises ``StoreFull`` when that has no room either."""
    made: Path | None = None
    try:
        made = Path(tempfile.mkdtemp(prefix="drumlin-"))
        for name in _COPIED:
            if (directory / name).is_file():
                shutil.copyfile(directory / name, made / name)
        if (quads := newest(directory / QUADS)).is_dir():
            (made / QUADS).mkdir()
            for each in quads.iterdir():
                if each.suffix == ".sst":
                    (made / QUADS / each.name).symlink_to(each.absolute())
                elif each.is_file():
                    shutil.copyfile(each, made / QUADS / each.name)
    except OSError as error:
        if made:
            shutil.rmtree(made, ignore_errors=True)
        raise StoreFull(
            f"the store in {directory} cannot be opened: its disk takes no writes, and to be opened for reading only it needs room"
            f" for its change log in {made.parent if made else 'a temporary directory'}: {error.strerror}",
            hint="make room on the disk of the store's directory, or set TMPDIR to a directory on another disk",
        ) from error
    return made


def without_links(folder: Path) -> None:
    """Replace links to files in a folder by the files: what is to remain must not depend on the store. Raises ``OSError``."""
    for each in folder.iterdir():
        if each.is_symlink():
            target = each.resolve()
            each.unlink()
            shutil.copyfile(target, each)
