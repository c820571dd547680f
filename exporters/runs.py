"""Runs: the incarnations (Kubernetes uids) of an entity, how they begin, how they end, and that they are never forgotten.

Pure. The rules are the contract's: a pod's run starts at ``status.startTime``; what finished by itself keeps its outcome when its object
is deleted later; what was found missing has an estimated end (docs/decisions/0004-runs.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime

from exporters.protocol import Clock, Life, Metadata
from kg.errors import InvalidManifest
from kg.iris import Iris
from kg.jsonld import NodeDocument

DELETED = "Deleted"
LOST = "Lost"
_BY_ITSELF = frozenset({"Completed", "Failed", "Evicted", "OOMKilled"})
_KEPT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}Z")  # as Kubernetes writes, too
_HINT = "write it in RFC 3339: 2026-11-27T21:50:28Z"


@dataclass(frozen=True, slots=True)
class Run:
    """One incarnation. Times are UTC in RFC 3339 to the second; ``node`` is the IRI of the node it was scheduled on."""

    uid: str
    start: str
    end: str | None = None
    outcome: str | None = None
    estimated: bool = False
    node: str | None = None

    def document(self, entity: str) -> NodeDocument:
        """Describe the run as a part of its entity."""
        document: dict[str, object] = {"id": Iris.run(entity, self.uid), "type": "Run", "startedAt": self.start}
        if self.end:
            document["endedAt"] = self.end
        if self.outcome:
            document["outcome"] = self.outcome
        if self.estimated:
            document["endEstimated"] = True
        if self.node:
            document["scheduledOn"] = self.node
        return document


def text(moment: datetime) -> str:
    """Write a moment as the graph keeps it: UTC, to the second."""
    return moment.astimezone(UTC).replace(tzinfo=None).isoformat(timespec="seconds") + "Z"


def moment(written: str) -> str:
    """Return a manifest's time in the form the graph keeps; raises ``InvalidManifest`` for what is not a time with a zone."""
    try:
        read = datetime.fromisoformat(written)
        if _KEPT.fullmatch(written):
            return written
        if read.tzinfo is not None:
            return text(read)
    except (ValueError, OverflowError) as error:
        raise InvalidManifest("a time is malformed", hint=_HINT) from error
    raise InvalidManifest("a time has no zone", hint=_HINT)


def advance(prior: Run | None, uid: str, life: Life, node: str | None, clock: Clock) -> Run | None:
    """Return the run as its manifest, which exists, tells it; None while it has not begun.

    What finished by itself stays as it was first told. ``clock`` stands in for an end that the manifest does not tell.
    """
    start = moment(life.start) if life.start else (prior.start if prior else None)
    if not start:
        return None
    if prior and prior.outcome in _BY_ITSELF:
        return prior
    run = Run(uid, start, node=node or (prior.node if prior else None))
    if not life.outcome:
        return run
    return _ended(run, moment(life.end) if life.end else text(clock()), life.outcome, estimated=not life.end)


def close(run: Run, metadata: Metadata, observed: datetime, *, estimated: bool) -> Run:
    """End the run of an object that is gone; ``estimated``: it was found missing, not seen to go."""
    if run.end:
        return run
    if metadata.deletionTimestamp:
        return _ended(run, moment(metadata.deletionTimestamp), DELETED, estimated=False)
    return _ended(run, text(observed), LOST if estimated else DELETED, estimated=estimated)


def supersede(run: Run, successor: Metadata, observed: datetime) -> Run:
    """End a run whose name another object bears now: it was over, at the latest, when that was created."""
    if run.end:
        return run
    born = successor.creationTimestamp
    return _ended(run, moment(born) if born else text(observed), DELETED, estimated=True)


def _ended(run: Run, end: str, outcome: str, *, estimated: bool) -> Run:
    # A pod deleted while it starts bears a deletion time before its start.
    return replace(run, end=max(end, run.start), outcome=outcome, estimated=estimated)


def documents(entity: str, runs: Iterable[Run]) -> list[NodeDocument]:
    """Describe runs in the order in which they started."""
    return [run.document(entity) for run in sorted(runs, key=lambda run: (run.start, run.uid))]
