"""Runs as bars on one line of time. Pure: times come in, places between 0 and 1,000 go out."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from drumlin.api.pages.values import ShownValue
from drumlin.api.pages.wording import moment, span

WIDTH = 1_000
"""Units of the whole line of time."""
_LEAST = 4  # units of a run that was short: it is seen all the same
_SHORTEST = timedelta(minutes=10)


@dataclass(frozen=True, slots=True)
class RanRun:
    """A run as the graph knows it; ``ended`` None: it still runs."""

    what: ShownValue
    where: ShownValue | None
    started: datetime
    ended: datetime | None
    outcome: str


@dataclass(frozen=True, slots=True)
class TimelineRow:
    """A run with its bar, from ``x`` on, ``width`` long; ``state`` names its colour: running, good, bad or over."""

    run: RanRun
    x: int
    width: int
    state: str
    lasted: str
    started: str
    ended: str


@dataclass(frozen=True, slots=True)
class Timeline:
    """Runs, the newest first, and the moments at which the line begins and ends."""

    rows: tuple[TimelineRow, ...]
    begin: str
    end: str
    running: int


def timeline(runs: Sequence[RanRun], now: datetime) -> Timeline | None:
    """Place runs on the line of time from the first start to ``now``; None when there are none."""
    if not runs:
        return None
    begin = min(each.started for each in runs)
    length = max(now - begin, _SHORTEST)

    def place(at: datetime) -> int:
        return min(max(round((at - begin) / length * WIDTH), 0), WIDTH)

    rows = []
    for run in sorted(runs, key=lambda run: (run.ended is None, run.started), reverse=True):
        ended = run.ended or now
        width = max(place(ended) - place(run.started), _LEAST)
        rows.append(
            TimelineRow(
                run,
                min(place(run.started), WIDTH - width),
                width,
                state_of(run),
                span((ended - run.started).total_seconds()),
                moment(run.started),
                moment(run.ended) if run.ended else "",
            )
        )
    running = sum(each.ended is None for each in runs)
    return Timeline(tuple(rows), moment(begin), moment(begin + length), running)


def state_of(run: RanRun) -> str:
    """Return how a run is doing: running, good (completed), bad, or over (it was deleted, or nothing is known)."""
    if run.ended is None:
        return "running"
    if run.outcome == "Completed":
        return "good"
    return "bad" if run.outcome in ("Failed", "Lost", "Evicted", "OOMKilled") else "over"
