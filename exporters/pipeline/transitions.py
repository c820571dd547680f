"""Transitions: what befell a run, as reason, count and last time, bounded; never a statement for each event.

Pure. A manifest says what is so now; what it no longer says stays with the run, so that "why did it fail?" is answered afterwards too.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timedelta

from drumlin.exporters.protocol import Trouble, without_nulls
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NodeDocument

MOST = 20
"""Transitions of one run; of more, those that were seen last are kept."""
_QUIET = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class Transition:
    """One reason that befell a run, of one container or (None) the whole; ``last`` is UTC in RFC 3339 to the second."""

    reason: str
    container: str | None
    count: int
    last: str
    ongoing: bool = False
    exit_code: int | None = None

    @property
    def key(self) -> str:
        """What distinguishes it from the others of its run."""
        return f"{self.container}.{self.reason}" if self.container else self.reason

    def document(self, run: str) -> NodeDocument:
        """Describe it as a part of its run (an IRI)."""
        return without_nulls(
            {
                "id": Iris.transition(run, self.key),
                "type": "Transition",
                "reason": self.reason,
                "containerName": self.container,
                "occurrences": self.count,
                "lastSeen": self.last,
                "ongoing": self.ongoing,
                "exitCode": self.exit_code,
            }
        )


def merged(prior: Iterable[Transition], troubles: Iterable[Trouble], now: str) -> tuple[Transition, ...]:
    """Return the transitions of a run as they are after a manifest says ``troubles`` at the time ``now``, sorted by their keys.

    An end counts once for each time that it has; a state counts once each time that it begins, and writes nothing while it lasts.
    """
    known = {each.key: replace(each, ongoing=False) for each in prior}
    lasting = {each.key for each in prior if each.ongoing}
    for trouble in troubles:
        found = Transition(trouble.reason, trouble.container, 1, trouble.at or now, trouble.ongoing, trouble.exit_code)
        if before := known.get(found.key):
            begins = found.last > before.last if trouble.at else found.key not in lasting
            found = replace(found, count=before.count + begins, last=found.last if begins else before.last)
        known[found.key] = found
    return _kept(known.values())


def reported(prior: tuple[Transition, ...], trouble: Trouble) -> tuple[Transition, ...]:
    """Return the transitions of a run after another object reports ``trouble``, which has a time; ``prior`` when that changes nothing.

    What goes on for hours is not written each time: only when it has been seen twice as often as stated, or ten minutes later.
    """
    last = trouble.at or ""
    found = Transition(trouble.reason, trouble.container, trouble.count, last)
    known = {each.key: each for each in prior}
    if before := known.get(found.key):
        count = max(before.count + 1, trouble.count)
        if last <= before.last or (count < 2 * before.count and _moment(last) - _moment(before.last) < _QUIET):
            return prior
        found = replace(before, count=count, last=last)
    return _kept({**known, found.key: found}.values())


def _moment(written: str) -> datetime:
    return datetime.fromisoformat(written)


def _kept(transitions: Iterable[Transition]) -> tuple[Transition, ...]:
    kept = sorted(transitions, key=lambda each: (each.ongoing, each.last), reverse=True)[:MOST]
    return tuple(sorted(kept, key=lambda each: each.key))


def transition_of(row: Mapping[str, str]) -> Transition:
    """Return what a look-up found of one (``exporters.pipeline.restore``)."""
    code = row.get("code")
    return Transition(
        row["reason"],
        row.get("container"),
        int(row.get("count") or 1),
        row["last"],
        row.get("ongoing") in ("true", "1"),
        int(code) if code else None,
    )
