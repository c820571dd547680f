"""May a graph be written: the owner and the digest that a write names, compared with what is recorded; the same for every store.

A batch that is refused reports the refusal of each of its writes at once (``DrumlinError.refusals``), so that a caller who wants the others
written (``apply_allowed``) needs two transactions, however many are refused.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import TypeVar

from drumlin.kg.errors import DrumlinError, GraphOwned, PreconditionFailed
from drumlin.kg.store.protocol import ANY, GraphEntry, GraphWrite, Written

T = TypeVar("T")
PEERS = "peer:"
"""What the owners of graphs begin with that came from a peer; its name follows. They yield to what describes the same thing here."""
_USER = "user"


def check(writes: Sequence[GraphWrite], entries: Mapping[str, GraphEntry]) -> None:
    """Raise when the owner or the precondition forbids one of ``writes``: the first refusal, with all of them in ``refusals``."""
    raise_refusals({each.graph: error for each in writes if (error := _refusal(each, entries.get(each.graph)))})


def leaves_as_it_is(write: GraphWrite, after: str | None, entry: GraphEntry | None) -> bool:
    """Return whether a write that gives a graph the digest ``after`` changes nothing: that it is a peer's no more is a change."""
    return (entry.digest if entry else None) == after and not (entry and _yields(entry, write))


def prepared(writes: Sequence[GraphWrite], prepare: Callable[[GraphWrite], T]) -> list[T]:
    """Prepare each of ``writes``; raises the first error of ``prepare``, with those of all writes in ``refusals``."""
    found: list[T] = []
    refused: dict[str, DrumlinError] = {}
    for each in writes:
        try:
            found.append(prepare(each))
        except DrumlinError as error:
            refused[each.graph] = error.with_traceback(None)  # its frames would hold what was read
    raise_refusals(refused)
    return found


def raise_refusals(refused: Mapping[str, DrumlinError]) -> None:
    """Raise the first of the refusals, by graph, if there are any; its ``refusals`` holds all."""
    for first in refused.values():
        error = first.again()
        error.__cause__ = None
        error.refusals = refused
        raise error


def apply_allowed(
    apply: Callable[[Sequence[GraphWrite]], Sequence[Written]], writes: Sequence[GraphWrite]
) -> tuple[Sequence[Written], dict[str, DrumlinError]]:
    """Write those of ``writes`` that are not refused, together; return what became of them, and the refusals of the others by graph.

    Raises what ``apply`` raises about all of them, as ``StoreUnavailable``; then nothing was written.
    """
    remaining, refused = list(writes), dict[str, DrumlinError]()
    while remaining:
        try:
            return apply(remaining), refused
        except DrumlinError as error:
            found = error.refusals or ({error.detail["graph"]: error} if isinstance(error, GraphOwned) else {})
            allowed = [each for each in remaining if each.graph not in found]
            if len(allowed) == len(remaining):
                raise
            remaining = allowed
            refused.update(found)
    return [], refused


def _yields(entry: GraphEntry, write: GraphWrite) -> bool:
    """Return whether a peer's graph is taken over: by a source or agent here, whichever was first; people do not do that in passing."""
    is_source = write.owner != _USER and not write.owner.startswith(PEERS)
    return entry.owner.startswith(PEERS) and is_source and write.content is not None


def _refusal(write: GraphWrite, entry: GraphEntry | None) -> DrumlinError | None:
    if entry is not None and entry.owner not in (write.owner, write.takes_from) and not _yields(entry, write):
        return GraphOwned(write.graph, entry.owner, write.owner)
    current = entry.digest if entry else None
    if write.expected is ANY or write.expected == current:
        return None
    now_there = "it does not exist" if current is None else "it is not what was expected"
    return PreconditionFailed(
        f"{write.graph} was not written: {now_there}", hint="read it again", detail={"digest": current}
    )
