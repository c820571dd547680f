"""Opening a store directory: afterwards change log and engine agree, or there is no store.

The change log is what the store is; the engine's files are made from it. So the log is proven first (``kg.store.embedded.inspection``),
and compared with the marks (``kg.store.embedded.marks``) of what was acknowledged and of what the engine holds: a log that is behind one
of them has lost writes. It is refused, and left as it was found. Then the engine is brought up to the log
(``kg.store.embedded.recovery``) and compared with it: ids, generations, names of graphs, numbers of graphs and quads, and the content of
those that changed last. An engine that is missing, damaged, older than the log says, or of another store is built anew
(``kg.store.embedded.rebuilding``).
"""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

import structlog

from drumlin.kg.disk import sync
from drumlin.kg.errors import RESTORE, StoreDamaged
from drumlin.kg.store.embedded.change_log import ChangeLog
from drumlin.kg.store.embedded.engine import EmbeddedEngine, held_by
from drumlin.kg.store.embedded.engine_folder import HELD, settle
from drumlin.kg.store.embedded.inspection import LogInspection, has_names, prove, prove_history
from drumlin.kg.store.embedded.marks import MarkFile, StoreMark, read_mark
from drumlin.kg.store.embedded.rebuilding import Progress, rebuild
from drumlin.kg.store.embedded.recovery import recover
from drumlin.kg.store.embedded.wal import unavailable
from drumlin.kg.store.graph_text import statements_of
from drumlin.kg.store.run_archive import RUNS

LOG, WITNESS, QUADS, BASE = "changes.sqlite", "witness", "quads", "base"
REPAIRED = "repaired"
"""Subdirectory of a store whose repair did not end (``kg.store.embedded.repairing``)."""
_WAL = f"{LOG}-wal"
_TRACES = (_WAL, QUADS, WITNESS, RUNS, "search.sqlite")  # of a store: none is there before the change log
_NEWEST = 256  # changes that are looked up in the engine
_LOOKED_AT = 20_000  # statements after which no more of them are

log = structlog.get_logger(__name__)


class Opened(NamedTuple):
    """The parts of a store, which agree."""

    changes: ChangeLog
    engine: EmbeddedEngine
    witness: MarkFile


def is_store(directory: Path) -> bool:
    """Return whether there is a store in a directory, be it damaged."""
    return any(_is_there(directory / each) for each in (LOG, *_TRACES))


def open_parts(directory: Path, progress: Progress | None) -> Opened:
    """Open the store in ``directory``, made when absent; without ``progress`` an engine that would have to be built anew is refused.

    Raises ``StoreDamaged``, naming the file that is missing or wrong, and ``StoreUnavailable`` when the disk does.
    """
    try:
        settle(directory / QUADS)
    except OSError as error:
        raise unavailable(f"{directory / QUADS} cannot be put in place", error) from error
    held = held_by(directory / QUADS)
    proven = proven_log(directory, held)
    changes = ChangeLog(directory / LOG)
    try:
        if not proven.whole:
            proven = prove(directory / LOG)
        engine = _agreeing(directory, changes, proven, held, progress)
        try:
            return Opened(changes, engine, _witness(directory, changes))
        except BaseException:
            engine.close()
            raise
    except BaseException:
        changes.close()
        raise


# -- the log --------------------------------------------------------------------------------------------------------------
def proven_log(directory: Path, held: StoreMark | None) -> LogInspection:
    """Prove the log that there is, and compare it with what was noted beside it; writes nothing. Raises as ``open_parts`` does."""
    path = directory / LOG
    if not _is_there(path):  # SQLite would begin an empty log, and remove the -wal of the one that was here
        found = [each for each in _TRACES if _is_there(directory / each)]
        if found:
            state = "empty" if path.exists() else "missing"
            raise StoreDamaged(f"{path} is {state}, and {found[0]} shows that there was a store", hint=RESTORE)
        return LogInspection(None, 0)
    with_wal = _is_there(directory / _WAL)
    proven = prove(path)
    witness = read_mark(directory / WITNESS)
    if witness:
        _compare(path, proven, witness, WITNESS, with_wal=with_wal)
    if held and (
        held.store == proven.id or proven.id is None or witness is None
    ):  # else it is the engine that is another's
        _compare(path, proven, held, f"{QUADS}/{HELD}", with_wal=with_wal)
    _compare_base(directory, proven)
    return proven


def _compare_base(directory: Path, proven: LogInspection) -> None:
    """Raise ``StoreDamaged`` when the log names another base than the file beside it, and graphs are named as the file says."""
    try:
        told = (directory / BASE).read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError):  # the log alone says it
        return
    path = directory / LOG
    if told and proven.base and told != proven.base and has_names(path, told) and not has_names(path, proven.base):
        raise StoreDamaged(
            f"{path} says that all names are below {proven.base}, and they are below {told}, as {BASE} says",
            hint=RESTORE,
        )


def _compare(path: Path, proven: LogInspection, mark: StoreMark, name: str, *, with_wal: bool) -> None:
    """Raise ``StoreDamaged`` when the mark in the file ``name`` names another store, or more than the log holds."""
    older = f"{LOG} or {_WAL} is an older copy" if with_wal else f"{_WAL} is missing, or {LOG} is an older copy"
    if proven.id is None:
        raise StoreDamaged(f"{path} does not have the id of the store, which {name} has: {older}", hint=RESTORE)
    if mark.store != proven.id:
        raise StoreDamaged(
            f"{path} is of another store than {name} beside it: of {proven.id}, not of {mark.store}", hint=RESTORE
        )
    if mark.generation > proven.generation:
        raise StoreDamaged(
            f"{path} ends at generation {proven.generation:,}, but generation {mark.generation:,} was written ({name}): {older}",
            hint=RESTORE,
            detail={"generation": proven.generation, "expected": mark.generation},
        )


def _is_there(path: Path) -> bool:
    """Return whether there is a file with something in it, or such a directory."""
    if path.is_dir():
        return any(path.iterdir())
    return path.exists() and path.stat().st_size > 0


def _witness(directory: Path, changes: ChangeLog) -> MarkFile:
    """Begin to bear witness of what the log has from now on."""
    try:
        witness = MarkFile(directory / WITNESS, changes.store_id)
        witness.write(changes.last(), durable=True)
        sync(directory)
    except OSError as error:
        raise unavailable(f"{directory / WITNESS} cannot be written", error) from error
    return witness


# -- the engine -----------------------------------------------------------------------------------------------------------
def _agreeing(
    directory: Path, changes: ChangeLog, proven: LogInspection, held: StoreMark | None, progress: Progress | None
) -> EmbeddedEngine:
    """Return an engine that agrees with the log, built anew if need be."""
    folder = directory / QUADS
    settled = changes.settled()
    reason = _unusable(folder, proven, held, settled)
    if not reason:
        engine, reason = _brought_up(directory, changes, proven, settled)
        if engine:
            return engine
    if progress is None:
        raise StoreDamaged(reason, hint=RESTORE)
    if proven.statements is None:
        raise StoreDamaged(
            f"{reason}; {LOG} is of an earlier version, and does not hold all graphs, so it cannot be built anew",
            hint=RESTORE,
        )
    prove_history(directory / LOG)
    log.warning("engine_rebuilding", reason=reason, graphs=proven.graphs)
    rebuild(folder, changes, proven.graphs, progress)
    engine, reason = _brought_up(directory, changes, proven, changes.last())
    if engine is None:
        raise StoreDamaged(f"no engine can be made from {LOG}: {reason}", hint=RESTORE)
    log.warning("engine_rebuilt", graphs=proven.graphs, quads=proven.statements)
    return engine


def _unusable(folder: Path, proven: LogInspection, held: StoreMark | None, settled: int) -> str:
    """Return why the engine's files need not even be opened; nothing of a new store, or where they may be right."""
    if not (folder / "CURRENT").exists():  # RocksDB would begin anew
        return f"{folder} is missing, or not whole" if proven.generation or _is_there(folder) else ""
    if held and held.store != proven.id:
        return f"{folder} is of another store, {held.store}"
    if held and held.generation < settled:
        return f"{folder} is an older copy: it holds generation {held.generation:,}, not {settled:,}"
    return ""


def _brought_up(
    directory: Path, changes: ChangeLog, proven: LogInspection, settled: int
) -> tuple[EmbeddedEngine | None, str]:
    """Open the engine and bring it up to the log; when that cannot be, or they differ all the same, no engine and the reason."""
    try:
        engine = EmbeddedEngine(directory / QUADS, changes.store_id)
    except StoreDamaged as damage:
        return None, str(damage)
    try:
        if recover(engine, changes):
            proven = prove(directory / LOG)
        reason = _difference(engine, changes, proven, settled)
    except StoreDamaged as damage:
        reason = str(damage)
    except BaseException:
        engine.close()
        raise
    if not reason:
        return engine, ""
    engine.close()
    return None, reason


def _difference(engine: EmbeddedEngine, changes: ChangeLog, proven: LogInspection, settled: int) -> str:
    """Return in what the engine differs from the log, nothing when they agree.

    ``settled`` is the generation that the engine held before it was brought up to the log: what changed last until then is lost first.
    """
    graphs, names = engine.names()
    if graphs != proven.graphs:
        return f"{engine.folder} has {graphs:,} graphs, and the log {proven.graphs:,}"
    if names != proven.names:
        return f"{engine.folder} has other graphs than the log"
    quads = engine.quads()
    if proven.statements is not None and quads != proven.statements:
        return f"{engine.folder} has {quads:,} quads, and the log {proven.statements:,}"
    looked_at = 0
    for graph in dict.fromkeys(each.graph for each in changes.newest(settled, _NEWEST)):
        entry = changes.entry(graph)
        if engine.digest(graph) != (entry.digest if entry else None):
            return f"{engine.folder} lacks the last change of {graph}"
        looked_at += statements_of(changes.text(graph) or "")
        if looked_at > _LOOKED_AT:
            break
    return ""
