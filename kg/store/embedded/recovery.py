"""What an engine lacks of the change log: after a life that ended before all was applied, or a build while the log was written.

When a store is opened, every graph that changed since the log was last told that the engine holds all (``settled``) is compared, and
what differs is made what its text beside its entry says. Stores of before (format 3) had no texts at first, and applied a batch before
they acknowledged it: there the batch in doubt is kept when the engine holds all of it, else taken back.
"""

from __future__ import annotations

import time
from collections.abc import Sequence

import structlog

from drumlin.kg.errors import RESTORE, StoreDamaged
from drumlin.kg.store.blank_nodes import holds_blanks
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.delta import Change, parted, update_text
from drumlin.kg.store.embedded import engine_applier
from drumlin.kg.store.embedded.change_log import ChangeLog
from drumlin.kg.store.embedded.change_log_reader import LogReader
from drumlin.kg.store.embedded.engine import EmbeddedEngine
from drumlin.kg.store.protocol import LogEntry

_SHORT = 0.1  # seconds
_ROUNDS = 10

log = structlog.get_logger(__name__)


def recover(engine: EmbeddedEngine, changes: ChangeLog) -> bool:
    """Make ``engine`` hold what ``changes`` says; True when instead a generation was taken back.

    Raises ``StoreDamaged`` when neither is possible.
    """
    in_doubt = changes.in_doubt()
    latest = {each.graph: each for each in in_doubt}
    lacking: list[Change] = []
    for graph, row in latest.items():
        held = engine.digest(graph)
        if held == row.after:
            continue
        said = None if row.after is None else changes.text(graph)
        if said is None and row.after is not None:
            _take_back(engine, changes, in_doubt)
            return True
        lacking.append(_change(engine, row.graph, row.owner, held, row.after, said))
    _write(engine, lacking)
    engine.hold(changes.last())
    if in_doubt:
        changes.settle(in_doubt[-1].generation)
    if lacking:
        log.warning("engine_brought_up", graphs=len(lacking), generation=in_doubt[-1].generation)
    return False


def catch_up(engine: EmbeddedEngine, changes: LogReader, since: int) -> int:
    """Make ``engine``, which holds the generation ``since``, hold what changed later; return the generation that it holds then.

    It is exactly that generation when ``changes`` stands still (``LogReader.still``), else it may hold later changes in part.
    """
    generation = changes.last()
    lacking: list[Change] = []
    for graph in changes.changed(since):
        entry, said = changes.stored(graph) or (None, None)
        held, after = engine.digest(graph), entry.digest if entry else None
        if held != after:
            lacking.append(_change(engine, graph, entry.owner if entry else "", held, after, said))
        if len(lacking) >= engine_applier.CHUNK:
            _write(engine, lacking)
            lacking.clear()
    _write(engine, lacking)
    return generation


def approach(engine: EmbeddedEngine, changes: LogReader, since: int) -> int:
    """Catch up with a log that is written meanwhile, again and again, until that takes little time or does not get shorter."""
    for _ in range(_ROUNDS):
        began = time.monotonic()
        since = catch_up(engine, changes, since)
        if time.monotonic() - began < _SHORT:
            break
    return since


def _change(
    engine: EmbeddedEngine, graph: str, owner: str, held: str | None, after: str | None, said: str | None
) -> Change:
    """Return what must become of a graph: from what the engine holds, of the digest ``held``, to what the log says."""
    old = frozenset() if held is None else engine.lines(graph)
    content = None if said is None or after is None else GraphContent.of_text(said, after)
    blank = holds_blanks(old) or (content is not None and content.may_hold_blank_nodes)
    return Change(graph, owner, held, after, old, content, blank)


def _write(engine: EmbeddedEngine, lacking: Sequence[Change]) -> None:
    for start in range(0, len(lacking), engine_applier.CHUNK):
        new, rest = parted(lacking[start : start + engine_applier.CHUNK])
        engine_applier.write(engine, new, update_text(rest))


def _take_back(engine: EmbeddedEngine, changes: ChangeLog, in_doubt: Sequence[LogEntry]) -> None:
    """Forget the one batch that a store without texts was killed in, which was never acknowledged."""
    held = {each.graph: engine.digest(each.graph) for each in in_doubt}
    for each in in_doubt:
        if each.before is not None and held[each.graph] != each.before:
            raise StoreDamaged(
                f"{each.graph} is neither what it was before nor after the last write",
                hint=RESTORE,
                detail={"graph": each.graph, "generation": each.generation},
            )
    half = [each.graph for each in in_doubt if each.before is None and held[each.graph] is not None]
    if half:  # bulk loads of a write that was cut
        engine.update(";".join(f"DROP GRAPH <{graph}>" for graph in half))
        engine.sync()
    changes.take_back(in_doubt[0].generation - 1)
    engine.hold(changes.last())
    log.warning("generation_taken_back", generation=in_doubt[0].generation, graphs=len(in_doubt), half=len(half))
