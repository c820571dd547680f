"""Backups: a store directory of its own, with a note of what is in it, proven by opening it and reading all of it.

A backup holds ``quads/``, ``changes.sqlite``, the ``base``, ``backup.json`` and, where there is a run archive, ``runs.sqlite``.
Restoring is a copy that is proven in the same way.
Both are made in the subdirectory ``unfinished``; while that is there, the directory is neither a backup nor a store: so what a kill
leaves is refused.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import closing, contextmanager
from datetime import datetime
from pathlib import Path

import msgspec

from drumlin.kg.disk import sync
from drumlin.kg.errors import InvalidInput, StoreFull, StoreUnavailable
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import digest
from drumlin.kg.store.embedded.change_log import give_new_id
from drumlin.kg.store.embedded.consistency import check
from drumlin.kg.store.embedded.engine_folder import HELD
from drumlin.kg.store.embedded.opening import LOG, QUADS
from drumlin.kg.store.embedded.store import UNFINISHED, EmbeddedStore
from drumlin.kg.store.embedded.wal import is_full, unavailable
from drumlin.kg.store.run_archive import RUNS, RUNS_MARK, take_over

NOTE = "backup.json"
_PARTS = (QUADS, LOG, "base", NOTE)


class Note(msgspec.Struct, frozen=True):
    """What a backup says of itself."""

    taken: datetime
    base: str
    generation: int
    graphs: int
    quads: int
    digest: str
    runs: int = 0


def take(store: EmbeddedStore, base: str, folder: Path, taken: datetime) -> None:
    """Write a backup of ``store`` into ``folder``, an empty one, while others write; ``verify`` proves it."""
    with store.snapshot(folder / QUADS) as snapshot:
        snapshot.copy_log(folder / LOG)
        (folder / "base").write_text(base + "\n", encoding="utf-8")
        recorded = [f"{each.graph} {each.digest}" for each in snapshot.entries()]
        runs = store.archive.copy(folder / RUNS)
        note = Note(taken, base, snapshot.generation, len(recorded), snapshot.quads(), digest(recorded), runs)
        (folder / NOTE).write_bytes(msgspec.json.format(msgspec.json.encode(note)))


def verify(folder: Path) -> Note:
    """Open a backup as the store that it is, read all of it, and return its note; raises ``StoreUnavailable`` when it differs."""
    note = read_note(folder)
    with closing(EmbeddedStore(folder, rebuild=False)) as store, store.snapshot() as snapshot:
        report = check(snapshot, Iris(note.base))
        runs, _ = store.archive.counts()
    (folder / RUNS_MARK).unlink(missing_ok=True)
    (folder / "checkpoints").rmdir()
    (folder / "lock").unlink()
    if not report.whole:
        found = ", ".join(f"{name} {each.count:,}" for name, each in report.faults.items() if each.count)
        raise StoreUnavailable(f"the backup {folder} has faults: {found}", hint="drumlin check --store says where")
    if (report.generation, report.graphs, report.quads, report.digest) != (
        note.generation,
        note.graphs,
        note.quads,
        note.digest,
    ):
        raise StoreUnavailable(
            f"the backup {folder} does not hold what its note says: {report.graphs:,} graphs and {report.quads:,} quads"
            f" of generation {report.generation:,} instead of {note.graphs:,}, {note.quads:,} and {note.generation:,}",
            hint="take another backup",
        )
    if runs != note.runs:
        raise StoreUnavailable(
            f"the backup {folder} does not hold what its note says: {runs:,} archived runs instead of {note.runs:,}",
            hint="take another backup",
        )
    return note


def restore(folder: Path, directory: Path) -> Note:
    """Make ``directory``, which must be empty or absent, the store that was backed up in ``folder``."""
    read_note(folder)
    with filling(directory) as made:
        try:
            for name in (*_PARTS, *([RUNS] if (folder / RUNS).exists() else [])):
                copy = shutil.copytree if (folder / name).is_dir() else shutil.copy2
                copy(folder / name, made / name)
        except OSError as error:
            raise unavailable(f"the backup {folder} cannot be copied", error) from error
        id = give_new_id(made / LOG)  # its history is another one from now on
        if id and (made / RUNS).exists():
            take_over(made / RUNS, id)
        (made / QUADS / HELD).unlink(missing_ok=True)
        note = verify(made)
        (made / NOTE).unlink()
    return note


def read_note(folder: Path) -> Note:
    """Return what a backup says of itself; raises ``InvalidInput`` when it is none."""
    if (folder / UNFINISHED).exists():
        raise InvalidInput(f"{folder} is not a backup: its making did not end", hint="remove it and take another one")
    try:
        return msgspec.json.decode((folder / NOTE).read_bytes(), type=Note)
    except (OSError, msgspec.DecodeError) as error:
        raise InvalidInput(f"{folder} is not a backup", hint=f"a backup holds a file {NOTE}") from error


@contextmanager
def filling(folder: Path) -> Iterator[Path]:
    """Yield a directory whose content becomes that of ``folder``, which must be empty or absent, durably and all at once.

    What was begun and failed is removed. Raises ``InvalidInput`` for a folder in use.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise InvalidInput(f"{folder} is not empty", hint="name a new directory")
    made = folder / UNFINISHED
    try:
        made.mkdir(parents=True, exist_ok=True)
        yield made
        _sync(made)
        for each in made.iterdir():
            each.rename(folder / each.name)
        sync(folder)
        made.rmdir()
        sync(folder)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if is_full(error):
            raise StoreFull(
                f"{folder} cannot be written, and what was there of it was removed: {error}",
                hint=f"make room on the disk of {folder}, or name a directory on another one",
            ) from error
        if isinstance(error, OSError):
            raise unavailable(f"{folder} cannot be written", error) from error
        raise


def _sync(folder: Path) -> None:
    """Wait until all files are on disk, and the folders that name them."""
    for each in (folder, *folder.rglob("*")):
        sync(each)
