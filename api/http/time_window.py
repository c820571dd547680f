"""Windows of time as requests give them."""

from __future__ import annotations

from datetime import datetime

from drumlin.kg.errors import InvalidInput
from drumlin.kg.telemetry.durations import parse_moment
from drumlin.kg.telemetry.series import Window

DEFAULT_LAST = "1h"


def window(last: str | None, start: str | None, end: str | None, now: datetime) -> Window:
    """Return the window that was asked for: ``start`` to ``end`` (now), or the ``last`` so much before ``end``."""
    until = parse_moment(end) if end else now
    if start and last:
        raise InvalidInput("give either start or last, not both")
    return Window(parse_moment(start), until) if start else Window.last(last or DEFAULT_LAST, until)
