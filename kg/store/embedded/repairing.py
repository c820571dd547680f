"""Repairs a store directory: what is provably whole is kept, the rest is listed; nothing is destroyed.

A change log that is whole stays as it is. Of a damaged one a new log is made (``kg.store.embedded.salvage``), which begins a history of
its own: it has another id, and holds no change before the repair, so that followers read everything anew. The engine is always built
anew, and the search index with the next start of a service, since damage in them may not show until a query meets it.

The new log is made in the subdirectory ``repaired``. Once it is whole and durable, a note there says so; then what it replaces is moved
into a subdirectory ``damaged-…``, and it takes that place. A repair that is killed begins again before the note, and goes on after it;
while the subdirectory is there, the directory is no store.
"""

from __future__ import annotations

import os
import shutil
from collections.abc import Callable, Iterable
from contextlib import closing, suppress
from dataclasses import dataclass, field
from datetime import datetime
from pathlib import Path

import msgspec
import pyoxigraph as ox
import structlog

from drumlin.kg.disk import sync
from drumlin.kg.errors import BACKUP, InvalidInput, StoreDamaged
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.syntax import digest_of, text_of
from drumlin.kg.store.embedded.change_log import ChangeLog
from drumlin.kg.store.embedded.consistency import ConsistencyReport, check
from drumlin.kg.store.embedded.engine import held_by, lines_of, translated
from drumlin.kg.store.embedded.engine_folder import HELD, settle
from drumlin.kg.store.embedded.inspection import prove, prove_history
from drumlin.kg.store.embedded.marks import StoreMark, read_mark
from drumlin.kg.store.embedded.opening import BASE, LOG, QUADS, REPAIRED, WITNESS, is_store, proven_log
from drumlin.kg.store.embedded.rebuilding import Progress
from drumlin.kg.store.embedded.salvage import OUTDATED, KeptGraph, LostGraph, Salvage
from drumlin.kg.store.embedded.stand_in import why_unwritable
from drumlin.kg.store.embedded.store import EmbeddedStore, claim
from drumlin.kg.store.embedded.wal import unavailable
from drumlin.kg.store.protocol import GraphEntry
from drumlin.kg.store.run_archive import RUNS, RUNS_MARK, RunArchive, take_over

log = structlog.get_logger(__name__)

_WRITABLE = "make room on the disk of the store's directory, or copy the store to another one and repair the copy"
_NOTE = "note.json"
_LOG_FILES = (LOG, f"{LOG}-wal", f"{LOG}-shm", WITNESS)
_RUN_FILES = (RUNS, f"{RUNS}-wal", f"{RUNS}-shm", RUNS_MARK)
_INDEX_FILES = ("search.sqlite", "search.sqlite-wal", "search.sqlite-shm")


@dataclass
class RepairReport:
    """What a repair found and did. ``damage``: why each part could not be used; ``aside``: where what was replaced is, None for nothing.

    ``lost`` are the graphs that could not be proven, ``unsure`` those that are kept and why they are in doubt.
    ``first`` and ``last`` are generations: the first that the log holds from now on, and the newest. ``missing`` are those whose
    changes may be lost, as spans.
    """

    damage: dict[str, str] = field(default_factory=dict)
    graphs: int = 0
    quads: int = 0
    lost: list[LostGraph] = field(default_factory=list)
    unsure: dict[str, str] = field(default_factory=dict)
    missing: list[tuple[int, int]] = field(default_factory=list)
    first: int = 0
    last: int = 0
    runs: int = 0
    runs_lost: bool = False
    aside: str | None = None

    @property
    def whole(self) -> bool:
        """True when nothing was lost."""
        return not (self.lost or self.unsure or self.missing or self.runs_lost)


class _Note(msgspec.Struct, frozen=True):
    """What stands beside a new log that is whole: where the old files go, and what the report says of it."""

    aside: str
    id: str
    previous: str | None
    reason: str
    lost: list[LostGraph]
    unsure: dict[str, str]
    missing: list[tuple[int, int]]


Entity = tuple[str, str, str, int, str]
"""What an index that follows the store says of an entity: short id, owner, digest, generation and time of its last change."""


def repair(
    directory: Path, clock: Callable[[], datetime], progress: Progress, entities: Callable[[], Iterable[Entity]] = tuple
) -> RepairReport:
    """Repair the store in ``directory``, which no process may have open; ``progress`` is of the engine's build.

    ``entities`` are further records of graphs, which are believed where the graph's content has the digest; read when the log is damaged.

    Raises ``InvalidInput`` where there is no store, ``StoreUnavailable`` while a process has it open, ``StoreFull`` without room for what
    is built anew, ``StoreDamaged`` when nothing of it can be kept: then all is left as it was.
    """
    if not is_store(directory) and not (directory / REPAIRED).exists():
        raise InvalidInput(f"{directory} holds no store", hint="name the directory given to serve or load")
    file = claim(directory, repairing=True)
    try:
        repairing = _Repair(directory, _free(directory / f"damaged-{clock():%Y%m%dT%H%M%SZ}"))
        if why := why_unwritable(directory):
            raise type(why)(f"{directory} cannot be repaired: its disk takes no writes", hint=_WRITABLE)
        settle(directory / QUADS)
        repairing.log(entities)
        repairing.runs()
        repairing.derived()
    except OSError as error:
        raise unavailable(f"{directory} cannot be repaired", error) from error
    finally:
        os.close(file)
    return repairing.proven(progress)


class _Repair:
    """One repair, step by step; ``report`` grows with it."""

    def __init__(self, directory: Path, aside: Path) -> None:
        self._directory = directory
        self._aside = aside
        self.report = RepairReport()

    # -- the change log -----------------------------------------------------------------------------------------------
    def log(self, entities: Callable[[], Iterable[Entity]]) -> None:
        """Leave a log that is whole, and make another one from what is whole of one that is not."""
        made = self._directory / REPAIRED
        if not (made / _NOTE).exists():
            shutil.rmtree(made, ignore_errors=True)
            held = held_by(self._directory / QUADS)
            try:
                if proven_log(self._directory, held).whole:
                    prove_history(self._directory / LOG)
                return
            except StoreDamaged as damage:
                reason = str(damage)
            self._make(made, reason, held, entities())
        note = msgspec.json.decode((made / _NOTE).read_bytes(), type=_Note)
        self._aside = self._directory / note.aside
        self.report.damage[LOG] = note.reason
        self.report.lost, self.report.unsure, self.report.missing = note.lost, note.unsure, note.missing
        if (made / LOG).exists():  # else a repair was killed after this
            self._move(*_LOG_FILES, QUADS)
            (made / LOG).rename(self._directory / LOG)
            sync(self._directory)
        self._hand_over_runs(note)
        shutil.rmtree(made)
        sync(self._directory)

    def _make(self, made: Path, reason: str, held: StoreMark | None, entities: Iterable[Entity]) -> None:
        """Write a new log with what is proven, and the note that it is whole."""
        found = Salvage(self._directory / LOG)
        base = _base_of(found, self._directory)
        found.add(entities, base)
        witness = read_mark(self._directory / WITNESS)
        id = _id_of(found, witness, held, self._directory)
        kept: list[KeptGraph] = []
        note = _Note(self._aside.name, "", id, reason, [], {}, [])
        engine = _Engine(self._directory / QUADS)
        for each in found.judged(engine.text, engine.names()):
            if isinstance(each, LostGraph):
                note.lost.append(each)
                continue
            kept.append(each)
            if each.doubts:
                note.unsure[each.entry.graph] = "; ".join(each.doubts)
        if not kept:
            raise StoreDamaged(f"nothing of the store in {self._directory} can be proven whole: {reason}", hint=BACKUP)
        acknowledged = max((each.generation for each in (witness, held) if each and each.store == id), default=0)
        newest = max(acknowledged, *(each.entry.generation for each in kept))
        note.missing.extend(found.missing(newest))
        if note.missing and held and held.store == id:
            later = (each.entry for each in kept if each.entry.generation <= held.generation)
            note.unsure.update({each.graph: OUTDATED for each in later if not engine.agrees(each)})
        try:
            made.mkdir()
            new_id = _write_log(made / LOG, kept, newest + 1, base)
            sync(made / LOG)
            (made / _NOTE).write_bytes(msgspec.json.encode(msgspec.structs.replace(note, id=new_id)))
            for name in (_NOTE, ".", ".."):
                sync(made / name)
        except BaseException:
            shutil.rmtree(made, ignore_errors=True)
            raise

    def _hand_over_runs(self, note: _Note) -> None:
        """Make the run archive that of the new log, if it was that of the old one and is whole."""
        try:
            RunArchive(self._directory, note.previous or "").close()
        except StoreDamaged:  # ``runs`` says what is to be done
            return
        if (self._directory / RUNS).exists():
            take_over(self._directory / RUNS, note.id)
            (self._directory / RUNS_MARK).unlink(missing_ok=True)

    # -- what stands beside it ----------------------------------------------------------------------------------------
    def runs(self) -> None:
        """Move a run archive aside that is not whole; one that only lacks its last runs stays."""
        id = prove(self._directory / LOG).id
        if id is None:  # a log of a version that had no archive
            return
        try:
            RunArchive(self._directory, id).close()
            return
        except StoreDamaged as damage:
            self.report.damage[RUNS] = str(damage)
        self.report.runs_lost = True
        self._move(RUNS_MARK)
        try:
            RunArchive(self._directory, id).close()
        except StoreDamaged:
            self._move(*_RUN_FILES)

    def derived(self) -> None:
        """Move aside what is made from the log, unless the engine is the only place of some graph."""
        self._move(*_INDEX_FILES)
        if prove(self._directory / LOG).statements is not None:
            self._move(QUADS)

    def proven(self, progress: Progress) -> RepairReport:
        """Open the store, which builds the engine, read all of it and return the report; raises ``StoreDamaged`` for a fault."""
        with closing(EmbeddedStore(self._directory, progress=progress)) as store:
            if store.unwritable:
                raise store.unwritable.again()
            with store.snapshot() as snapshot:
                found = check(snapshot, Iris(store.base or "http://localhost"))
            self.report.runs, _ = store.archive.counts()
            self.report.first, self.report.last = store.oldest, store.generation
        if faults := _faults(found):
            raise StoreDamaged(f"{self._directory} is not whole after its repair: {faults}", hint=BACKUP)
        self.report.graphs, self.report.quads = found.graphs, found.quads
        self.report.aside = str(self._aside) if self._aside.exists() else None
        return self.report

    def _move(self, *names: str) -> None:
        """Move parts of the store into the folder for what is replaced, durably."""
        for name in names:
            part = self._directory / name
            if part.exists() or part.is_symlink():
                self._aside.mkdir(exist_ok=True)
                part.rename(_free(self._aside / name))
        if self._aside.exists():
            sync(self._aside)
        sync(self._directory)


class _Engine:
    """The engine's files as a second place of texts, if they can still be read; they are left as they are."""

    def __init__(self, folder: Path) -> None:
        self._store: ox.Store | None = None
        if (folder / "CURRENT").exists():
            try:
                with translated("read"):
                    self._store = ox.Store.read_only(str(folder))
            except (StoreDamaged, RuntimeError):
                self._store = None

    def names(self) -> list[str]:
        """Return the names of its graphs, as far as they can be read."""
        found: list[str] = []
        if self._store is not None:
            try:
                with translated("read"):
                    found.extend(each.value for each in self._store.named_graphs() if isinstance(each, ox.NamedNode))
            except (StoreDamaged, RuntimeError) as error:
                log.warning("engine_unreadable", reason=str(error))
        return found

    def agrees(self, entry: GraphEntry) -> bool:
        """Return whether a graph holds here what is recorded of it, or nothing can be read here."""
        return self._store is None or self.text(entry.graph, entry.digest) is not None

    def text(self, graph: str, digest: str) -> str | None:
        """Return the text of a graph that has the digest here, else None."""
        if self._store is None:
            return None
        try:
            with translated("read"):
                found = text_of(lines_of(self._store, graph))
        except (StoreDamaged, RuntimeError, ValueError):  # it cannot be read, or its name is damaged
            return None
        return found if digest_of(found) == digest else None


def _free(path: Path) -> Path:
    """Return a path that names nothing yet: this one, or it with a number."""
    number = 1
    found = path
    while found.exists():
        number += 1
        found = path.with_name(f"{path.name}-{number}")
    return found


def _id_of(found: Salvage, witness: StoreMark | None, held: StoreMark | None, directory: Path) -> str | None:
    """Return the id that the store has; raises ``StoreDamaged`` when the log is of another store than all that stands beside it."""
    ids = [id for id, _ in found.ids.most_common(1)]
    marks = [each.store for each in (witness, held) if each]
    if ids and marks and ids[0] not in marks:
        raise StoreDamaged(
            f"{directory / LOG} is of another store than {WITNESS} and {QUADS}/{HELD} beside it",
            hint=f"put back the {LOG} of this store; or remove {WITNESS} and {QUADS} to go on with the one that is there",
        )
    return next(iter([*ids, *marks]), None)


def _base_of(found: Salvage, directory: Path) -> str | None:
    """Return the base of all names: of what the log and the file say, the one that most graphs begin with."""
    told = [base for base, _ in found.bases.most_common()]
    with suppress(OSError, UnicodeDecodeError):  # it is for people; the log says it as well
        told.append((directory / BASE).read_text(encoding="utf-8").strip())
    return max(told, key=found.count_below, default=None)


def _write_log(path: Path, kept: Iterable[KeptGraph], generation: int, base: str | None) -> str:
    """Write a log that holds graphs, and no change up to ``generation``, its newest; return its id."""
    with closing(ChangeLog(path)) as log:
        log.begin_with([(each.entry, each.packed) for each in kept], generation)
        if base is not None:
            log.keep_base(base)
        id = log.store_id
    found = prove(path)
    assert found.whole
    return id


def _faults(found: ConsistencyReport) -> str:
    return ", ".join(
        f"{name} {each.count:,}" for name, each in found.faults.items() if each.count and name != "ill_typed"
    )
