"""What the engine lacks of the change log when a store is opened: the last life ended before it had applied all.

Every graph that changed since the log was last told that the engine holds all (``settled``) is compared, and what differs is made what
its text beside its entry says. Stores of before (format 3) had no texts at first, and applied a batch before they acknowledged it: there
the batch in doubt is kept when the engine holds all of it, else taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from drumlin.kg.errors import RESTORE, StoreDamaged
from drumlin.kg.store.blank_nodes import holds_blanks
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.delta import Change, parted, update_text
from drumlin.kg.store.embedded import engine_applier
from drumlin.kg.store.embedded.change_log import ChangeLog
from drumlin.kg.store.embedded.engine import EmbeddedEngine
from drumlin.kg.store.protocol import LogEntry

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
        old = frozenset() if held is None else engine.lines(graph)
        content = None if said is None else GraphContent.of_text(said, row.after)
        blank = holds_blanks(old) or (content is not None and content.may_hold_blank_nodes)
        lacking.append(Change(graph, row.owner, held, row.after, old, content, blank))
    for start in range(0, len(lacking), engine_applier.CHUNK):
        part = lacking[start : start + engine_applier.CHUNK]
        new, rest = parted(part)
        engine_applier.write(engine, new, update_text(rest))
    engine.hold(changes.last())
    if in_doubt:
        changes.settle(in_doubt[-1].generation)
    if lacking:
        log.warning("engine_brought_up", graphs=len(lacking), generation=in_doubt[-1].generation)
    return False


def _take_back(engine: EmbeddedEngine, changes: ChangeLog, in_doubt: Sequence[LogEntry]) -> None:
    """Forget the one batch that a store without texts was killed in, which nobody was told of."""
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
