"""What the engine lacks of the change log when a store is opened: the last life ended before it had applied all.

Every graph that changed since the log was last told that the engine holds all (``settled``) is compared, and what differs is made what
its text beside its entry says. Stores of before (format 3) had no texts at first, and applied a batch before they acknowledged it: there
the batch in doubt is kept when the engine holds all of it, else taken back.
"""

from __future__ import annotations

from collections.abc import Sequence

import structlog

from kg.errors import StoreUnavailable
from kg.rdf import lines_in
from kg.store import applying
from kg.store.blanks import holds_blanks
from kg.store.changes import ChangeLog
from kg.store.delta import Change, parted, update_text
from kg.store.engine import Engine
from kg.store.protocol import LogEntry
from kg.store.texts import PlainText

log = structlog.get_logger(__name__)


def recover(engine: Engine, changes: ChangeLog) -> None:
    """Make ``engine`` hold what ``changes`` says. Raises ``StoreUnavailable`` when that is impossible."""
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
            return
        old = frozenset() if held is None else engine.lines(graph)
        blank = holds_blanks(old) or holds_blanks(lines_in(said or ""))
        text = None if said is None else PlainText(said)
        lacking.append(Change(graph, row.owner, held, row.after, old, text, blank))
    for start in range(0, len(lacking), applying.CHUNK):
        part = lacking[start : start + applying.CHUNK]
        new, rest = parted(part)
        applying.write(engine, new, update_text(rest))
    if in_doubt:
        changes.settle(in_doubt[-1].generation)
    if lacking:
        log.warning("engine_brought_up", graphs=len(lacking), generation=in_doubt[-1].generation)


def _take_back(engine: Engine, changes: ChangeLog, in_doubt: Sequence[LogEntry]) -> None:
    """Forget the one batch that a store without texts was killed in, which nobody was told of."""
    held = {each.graph: engine.digest(each.graph) for each in in_doubt}
    for each in in_doubt:
        if each.before is not None and held[each.graph] != each.before:
            raise StoreUnavailable(
                f"{each.graph} is neither what it was before nor after the last write",
                hint="restore a backup of the directory, or load again into a new one",
                detail={"graph": each.graph, "generation": each.generation},
            )
    half = [each.graph for each in in_doubt if each.before is None and held[each.graph] is not None]
    if half:  # bulk loads of a write that was cut
        engine.update(";".join(f"DROP GRAPH <{graph}>" for graph in half))
        engine.sync()
    changes.take_back(in_doubt[0].generation - 1)
    log.warning("generation_taken_back", generation=in_doubt[0].generation, graphs=len(in_doubt), half=len(half))
