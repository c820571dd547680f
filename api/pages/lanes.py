"""What each party did and when: a lane for each, in it a bar for each piece of work, on one line of time. Pure."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

WIDTH = 760
"""Units of the picture."""
_LABEL, _ROW, _HEAD, _MARGIN = 200, 22, 26, 8
_LEAST = 4  # units of what was short: it is seen all the same
_SHORTEST = timedelta(seconds=10)


@dataclass(frozen=True, slots=True)
class LaneWork:
    """A piece of work of one party; ``ended`` None: it still runs. ``state`` names its colour, ``said`` describes all of it in words."""

    party: str
    name: str
    started: datetime
    ended: datetime | None
    state: str
    said: str


@dataclass(frozen=True, slots=True)
class LaneBar:
    """A bar and its label."""

    name: str
    x: int
    y: int
    width: int
    state: str
    said: str


@dataclass(frozen=True, slots=True)
class Lane:
    """A party's lane: where it begins and how high it is."""

    party: str
    y: int
    height: int
    bars: tuple[LaneBar, ...]


@dataclass(frozen=True, slots=True)
class LanesDrawing:
    """All lanes, in the order of their parties, and the moments at which the line of time begins and ends."""

    lanes: tuple[Lane, ...]
    begin: datetime
    end: datetime
    height: int
    width: int = WIDTH
    label: int = _LABEL


def lanes_of(work: Sequence[LaneWork], now: datetime) -> LanesDrawing | None:
    """Draw what was done, by party and then by start; None when nothing has begun."""
    if not work:
        return None
    begin = min(each.started for each in work)
    end = max(*(each.ended or now for each in work), begin + _SHORTEST)
    room = WIDTH - _LABEL - _MARGIN

    def place(at: datetime) -> int:
        return _LABEL + min(max(round((at - begin) / (end - begin) * room), 0), room)

    lanes: list[Lane] = []
    top = 0
    for party in sorted({each.party for each in work}):
        own = sorted((each for each in work if each.party == party), key=lambda each: (each.started, each.name))
        bars = []
        for index, each in enumerate(own):
            x, until = place(each.started), place(max(each.ended or now, each.started))
            width = max(until - x, _LEAST)
            y = top + _HEAD + index * _ROW
            bars.append(LaneBar(each.name, min(x, WIDTH - _MARGIN - width), y, width, each.state, each.said))
        height = _HEAD + len(own) * _ROW
        lanes.append(Lane(party, top, height, tuple(bars)))
        top += height
    return LanesDrawing(tuple(lanes), begin, end, top + _MARGIN)
