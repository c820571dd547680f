"""What a graph was at an earlier generation, and what became of it: its changes are undone, the newest first.

Each row of the change log leads to the graph's change before it and holds the patch that undoes it (``kg.store.embedded.change_log``), so
as many rows are read as the graph has had changes since. A row never changes: it is there whole, or was given up. What is found is
compared with the digest that the log has of it.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime

from drumlin.kg.errors import RESTORE, EventsGone, InvalidInput, StoreDamaged, TooLarge
from drumlin.kg.rdf.syntax import digest_of
from drumlin.kg.store.content import GraphContent
from drumlin.kg.store.embedded.change_log_reader import LogReader, UndoableChange
from drumlin.kg.store.graph_text import unpack, unpack_patch
from drumlin.kg.store.protocol import GraphEntry, LogEntry, StoredGraph

MOST = 20_000
"""Changes of a graph that one request goes back: less than a second."""


def content_at(log: LogReader, graph: str, present: StoredGraph | None, generation: int) -> StoredGraph | None:
    """Return what ``graph`` was after ``generation``, None when it was not there; ``present`` is what it is, None when it is gone.

    The entry has the ``generation`` that was asked for and when that was written; where the log lacks the row that says whose the graph
    was then, it has the owner of the change that came next. Raises ``EventsGone`` when the log does not reach so far back.
    """
    removal = log.removal_after(graph, generation)
    if removal is None and (present is None or present.entry.generation <= generation):
        return None if present is None else _unchanged(log, present, generation)
    change, text = removal, ""
    if change is None and present is not None:
        change, text = _row(log, graph, present.entry.generation), present.text
    for _ in range(MOST):
        if change is None:
            return None
        digest, owner = change.entry.before, change.entry.owner
        if digest is None:
            return None
        text = _undone(change, text, digest)
        if change.earlier is None:
            raise _not_kept(change)
        if change.earlier <= generation:
            last = log.undoable(graph, change.earlier)
            entry = GraphEntry(
                graph, digest, last.entry.owner if last else owner, generation, log.written_at(generation)
            )
            return StoredGraph(entry, GraphContent.of_text(text, digest))
        change = _row(log, graph, change.earlier)
    raise _too_many(graph)


def _unchanged(log: LogReader, present: StoredGraph, generation: int) -> StoredGraph:
    entry = present.entry
    at = log.written_at(generation) if generation > log.pruned() else entry.changed
    return StoredGraph(GraphEntry(entry.graph, entry.digest, entry.owner, generation, at), present.content)


def changes_of(log: LogReader, graph: str, present: GraphEntry | None, before: int) -> Iterator[LogEntry]:
    """Yield the changes of ``graph`` in generations below ``before``, the newest first, as far as the log has them."""
    change = log.last_removal(graph, _NEVER)
    last = None if present is None else log.undoable(graph, present.generation)
    if last and (change is None or last.entry.generation > change.entry.generation):
        change = last
    for _ in range(MOST):
        if change is None:
            return
        generation = change.entry.generation
        if generation < before:
            yield change.entry
        if change.earlier is not None:
            change = log.undoable(graph, change.earlier)
        elif change.entry.before is None:
            change = log.last_removal(graph, generation)
        else:  # an earlier version wrote it: all rows of the log are looked through
            change = log.last_change(graph, generation)
    raise _too_many(graph)


def generation_at(log: LogReader, moment: datetime, newest: int) -> int:
    """Return the newest generation that was written at ``moment`` or before it; times grow with generations.

    Raises ``EventsGone`` when the log begins later, ``InvalidInput`` for a time without a zone.
    """
    if moment.tzinfo is None:
        raise InvalidInput(f"{moment.isoformat()} has no zone", hint="end it with Z")
    low, high = log.pruned(), newest
    while low < high:
        middle = (low + high + 1) // 2
        if log.written_at(middle) <= moment:
            low = middle
        else:
            high = middle - 1
    if low and low == log.pruned():
        begins = f"at {log.written_at(low + 1).isoformat()}" if low < newest else f"after generation {low:,}"
        raise EventsGone(
            f"the change log begins {begins}: what there was at {moment.isoformat()} is not known any more",
            hint=_REACH,
            detail={"oldest": low, "newest": newest},
        )
    return low


def check_reach(log: LogReader, generation: int, newest: int) -> None:
    """Raise ``EventsGone`` when the log cannot say what there was after ``generation``, ``InvalidInput`` when it is not written yet."""
    if generation > newest or generation < 0:
        raise InvalidInput(
            f"there is no generation {generation:,}: the newest is {newest:,}", detail={"newest": newest}
        )
    if generation < (oldest := log.pruned()):
        raise EventsGone(
            f"what there was at generation {generation:,} is not known any more: the change log reaches back to {oldest:,}",
            hint=_REACH,
            detail={"oldest": oldest, "newest": newest},
        )


_NEVER = 1 << 62
_REACH = "ask for a later time; log_retention and log_bytes say how long changes are kept"


def _too_many(graph: str) -> TooLarge:
    return TooLarge(
        f"{graph} has changed more than {MOST:,} times since, which is more than one request goes back",
        hint="ask for a later generation",
        detail={"limit": MOST},
    )


def _row(log: LogReader, graph: str, generation: int) -> UndoableChange:
    if (found := log.undoable(graph, generation)) is None:  # given up since it was looked for
        check_reach(log, generation - 1, generation)
        raise StoreDamaged(f"the change log lacks the change of {graph} in generation {generation}", hint=RESTORE)
    return found


def _undone(change: UndoableChange, text: str, digest: str) -> str:
    if change.undo is None:
        raise _not_kept(change)
    found = unpack(change.undo) if change.entry.after is None else unpack_patch(change.undo, text)
    if digest_of(found) != digest:
        raise StoreDamaged(
            f"what {change.entry.graph} held before generation {change.entry.generation} is damaged in changes.sqlite",
            hint=RESTORE,
        )
    return found


def _not_kept(change: UndoableChange) -> EventsGone:
    generation = change.entry.generation
    return EventsGone(
        f"what {change.entry.graph} held before generation {generation:,} was not kept: an earlier version of drumlin wrote it",
        hint=f"ask for generation {generation:,} or later",
        detail={"oldest": generation},
    )
