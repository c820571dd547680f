"""Time that the service has observed: what retention counts, since the clock of a machine may jump.

A span of the clock counts when the service ran through it, or missed an hour of it at most. A clock that is put ahead by 100 days makes
nothing older, and neither does time in which the service was not there. The spans are kept in a file beside the store's; what was
before the first look is taken as observed. Standard library only, below everything else of ``kg``.
"""

from __future__ import annotations

import json
import math
import os
import time
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from itertools import pairwise
from pathlib import Path

import structlog

from drumlin.kg.errors import StoreUnavailable

FILE = "observed.json"
"""Name of the file in the directory of a store."""
EARLIEST, LATEST = datetime(2020, 1, 1, tzinfo=UTC), datetime(2200, 1, 1, tzinfo=UTC)
"""Between these the clock of a machine may be right."""
_BRIDGED = 3600  # seconds between two spans that count as observed: of a restart, and between two looks
_MOST = 1000  # spans; of more, the oldest two become one

Span = tuple[int, int]
"""Begin and end, in seconds since the epoch."""

log = structlog.get_logger(__name__)


def check_clock(now: datetime) -> None:
    """Raise ``StoreUnavailable`` when the clock says what cannot be: all that is written, and all that is removed, goes by it."""
    if not EARLIEST <= now < LATEST:
        raise StoreUnavailable(
            f"the clock of this machine says {now:%Y-%m-%d %H:%M}, which cannot be right",
            hint="set the clock, for example by a time service (NTP); a service that runs goes on by itself then, else start again",
        )


class ObservedTime:
    """The spans that were observed, kept in ``path`` (None: as long as this object). ``monotonic`` counts seconds while this runs.

    One thread may ``observe`` while others ask for a ``cutoff``.
    """

    def __init__(
        self, path: Path | None, clock: Callable[[], datetime], *, monotonic: Callable[[], float] = time.monotonic
    ) -> None:
        self._path, self._clock, self._monotonic = path, clock, monotonic
        self._looked_at: float | None = None
        self._spans: tuple[Span, ...] = _read(path) if path is not None else ()

    def observe(self) -> None:
        """Count the time since the last call, once an hour at least. Raises ``StoreUnavailable`` when the file cannot be written."""
        self._spans = self._until_now()
        self._looked_at = self._monotonic()
        if self._path is not None:
            _write(self._path, self._spans)

    def cutoff(self, age: timedelta) -> datetime:
        """Return the moment since which ``age`` was observed: what is from before is older than that.

        Before anything was observed the clock alone decides; when less than ``age`` was, nothing is so old.
        """
        now = self._clock()
        left = age.total_seconds()
        spans = self._spans if self._looked_at is None else self._until_now()
        for begin, end in reversed(spans):
            if end - begin >= left:
                return min(datetime.fromtimestamp(end - left, UTC), now - age)
            left -= end - begin
        return datetime.fromtimestamp(0, UTC) if spans else now - age

    def _until_now(self) -> tuple[Span, ...]:
        """Return the spans with the time since the last look, which the clock may have jumped in."""
        now, looked_at = int(self._clock().timestamp()), self._looked_at
        elapsed = 0 if looked_at is None else int(self._monotonic() - looked_at)
        return _joined([*self._spans, (now - elapsed if self._spans else 0, now)])


def _joined(spans: Sequence[Span]) -> tuple[Span, ...]:
    """Return spans in order, those that touch or nearly do as one."""
    found: list[Span] = []
    for begin, end in sorted(spans):
        if found and begin - found[-1][1] <= _BRIDGED:
            found[-1] = found[-1][0], max(found[-1][1], end)
        else:
            found.append((begin, end))
    if len(found) > _MOST:
        found[:2] = [(found[0][0], found[1][1])]
    return tuple(found)


def _read(path: Path) -> tuple[Span, ...]:
    """Read the file; of one that is damaged nothing counts, so that all is kept for longer."""
    try:
        return _spans(json.loads(path.read_bytes()))
    except FileNotFoundError:
        return ()
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be read: {error.strerror}") from error
    except (ValueError, TypeError) as error:
        log.warning("observed_time_lost", path=str(path), reason=str(error), consequence="retention begins anew")
        return ((0, 0),)


def _spans(read: list[list[int]]) -> tuple[Span, ...]:
    """Return the spans of a file; raises ``ValueError`` and ``TypeError`` for what is not spans in order."""
    limits = [limit for begin, end in read for limit in (begin, end)]
    if not limits or any(type(each) is not int or later < each for each, later in pairwise([*limits, math.inf])):
        raise ValueError("it holds no spans of time")
    return tuple((begin, end) for begin, end in read)


def _write(path: Path, spans: Sequence[Span]) -> None:
    """Replace the file as a whole; a power cut leaves the old one or the new one."""
    new = path.with_name(f"{path.name}.new")
    try:
        with new.open("wb") as file:
            file.write(json.dumps(spans).encode())
            file.flush()
            os.fsync(file.fileno())
        new.replace(path)
    except OSError as error:
        raise StoreUnavailable(f"{path} cannot be written: {error.strerror}") from error
