"""Runs: the incarnations (Kubernetes uids) of an entity, how they begin, how they end, and that they are never forgotten.

Pure. The rules are the contract's: a pod's run starts at ``status.startTime``; what finished by itself keeps its outcome when its object
is deleted later; what was found missing has an estimated end (docs/decisions/0004-runs.md).
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import dataclass, replace
from datetime import UTC, datetime
from typing import Any

from drumlin.exporters.pipeline.restarts import ContainerRun, remembered
from drumlin.exporters.pipeline.transitions import Transition, merged, reported
from drumlin.exporters.protocol import Clock, ContainerEnd, Life, Metadata, Trouble
from drumlin.kg.errors import InvalidManifest
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NodeDocument

DELETED = "Deleted"
LOST = "Lost"
_BY_ITSELF = frozenset({"Completed", "Failed", "Evicted", "OOMKilled"})
_KEPT = re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T(?:[01][0-9]|2[0-3]):[0-9]{2}:[0-9]{2}Z")  # as Kubernetes writes, too
_HINT = "write it in RFC 3339: 2026-11-27T21:50:28Z"


@dataclass(frozen=True, slots=True)
class Run:
    """One incarnation. Times are UTC in RFC 3339 to the second; ``node`` is the IRI of the node it was scheduled on.

    ``observed`` is the IRI of the datasource in whose series it was found afterwards; None: its source reported it.
    """

    uid: str
    start: str
    end: str | None = None
    outcome: str | None = None
    estimated: bool = False
    node: str | None = None
    observed: str | None = None
    transitions: tuple[Transition, ...] = ()
    restarts: tuple[ContainerRun, ...] = ()

    def document(self, entity: str) -> NodeDocument:
        """Describe the run as a part of its entity."""
        document: dict[str, Any] = {"id": Iris.run(entity, self.uid), "type": "Run", "startedAt": self.start}
        if self.end:
            document["endedAt"] = self.end
        if self.outcome:
            document["outcome"] = self.outcome
        if self.estimated:
            document["endEstimated"] = True
        if self.node:
            document["scheduledOn"] = self.node
        if self.observed:
            document["observedIn"] = self.observed
        if self.transitions:
            document["transition"] = [each.document(document["id"]) for each in self.transitions]
        if self.restarts:
            document["containerRun"] = [each.document(document["id"]) for each in self.restarts]
        return document


@dataclass(frozen=True, slots=True)
class Observed:
    """An entity of which a datasource remembers more than its source reports: runs that are over, and what managed it.

    ``graph`` and ``manager`` are IRIs, ``type`` a class of the ontology. ``runs`` is empty for what is only a manager of others;
    ``until`` (UTC) is when it was seen last. What the source has reported of it stands.
    """

    graph: str
    type: str
    runs: tuple[Run, ...]
    manager: str | None
    until: datetime


_STAND_IN = "at-"


def stand_in(start: str, end: str, outcome: str, node: str | None) -> Run:
    """Return a run that another object remembers, whose uid nobody knows: its end lies before that of all runs that it remembers."""
    began = moment(start)
    return Run(f"{_STAND_IN}{began}", began, max(moment(end), began), outcome, estimated=True, node=node)


def without_stand_ins(runs: dict[str, Run], real: Run) -> None:
    """Drop what stood in for a run that is known by its uid now."""
    for uid in [uid for uid, run in runs.items() if uid.startswith(_STAND_IN) and run.start == real.start]:
        if uid != real.uid:
            del runs[uid]


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

    What finished by itself stays as it was first reported. ``clock`` stands in for an end that the manifest does not state, until it does.
    """
    start = moment(life.start) if life.start else (prior.start if prior else None)
    if not start:
        return None
    if prior and prior.outcome in _BY_ITSELF and not (prior.estimated and life.end):
        return prior
    before = prior.transitions if prior else ()
    befell = merged(before, [_dated(each) for each in life.troubles], text(clock())) if life.troubles or before else ()
    known = prior.restarts if prior else ()
    restarts = remembered(known, map(_timed, life.restarts)) if life.restarts else known
    run = Run(uid, start, node=node or (prior.node if prior else None), transitions=befell, restarts=restarts)
    if not life.outcome:
        return run
    return _ended(run, moment(life.end) if life.end else text(clock()), life.outcome, estimated=not life.end)


def _dated(trouble: Trouble) -> Trouble:
    return replace(trouble, at=moment(trouble.at)) if trouble.at else trouble


def _timed(end: ContainerEnd) -> ContainerEnd:
    return replace(end, start=moment(end.start) if end.start else None, end=moment(end.end))


def befallen(run: Run, trouble: Trouble) -> Run:
    """Return a run after another object has reported a trouble of it, which has a time; the same run when nothing is to be written."""
    after = reported(run.transitions, _dated(trouble))
    return run if after is run.transitions else replace(run, transitions=after)


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
    # Nothing lasts beyond the end, but that it was never placed or could not start is why it ended so.
    befell = tuple(replace(each, ongoing=False) for each in run.transitions)
    return replace(run, end=max(end, run.start), outcome=outcome, estimated=estimated, transitions=befell)


def merge(known: Run | None, found: Run) -> Run:
    """Return what is known of a run (of the same uid) after it was found in a datasource as well: what its source reported stands.

    Of two findings the earlier start and the later end hold.
    """
    if known is None:
        return found
    if known.observed is None:
        return known
    latest = max(known, found, key=lambda run: run.end or "9")
    return replace(latest, start=min(known.start, found.start), node=latest.node or known.node or found.node)


def documents(entity: str, runs: Iterable[Run]) -> list[NodeDocument]:
    """Describe runs in the order in which they started."""
    return [run.document(entity) for run in sorted(runs, key=lambda run: (run.start, run.uid))]
