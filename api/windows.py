"""Windows of time as requests give them."""

from __future__ import annotations

import re
from datetime import UTC, datetime

from kg.errors import InvalidInput
from kg.telemetry.series import Window

DEFAULT_LAST = "1h"
_EPOCH = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,3})?")


def moment(text: str) -> datetime:
    """Read an RFC 3339 time with its zone, or seconds since the epoch; raises ``InvalidInput``."""
    if _EPOCH.fullmatch(text):
        return datetime.fromtimestamp(float(text), UTC)
    try:
        found = datetime.fromisoformat(text)
    except ValueError as error:
        raise InvalidInput(
            f"{text[:40]!r} is not a time", hint="write 2026-11-27T00:00:00Z or seconds since the epoch"
        ) from error
    if found.tzinfo is None:
        raise InvalidInput(f"{text[:40]!r} has no time zone", hint="write 2026-11-27T00:00:00Z: a + in a URL is %2B")
    return found.astimezone(UTC)


def window(last: str | None, start: str | None, end: str | None, now: datetime) -> Window:
    """Return the window that was asked for: ``start`` to ``end`` (now), or the ``last`` so much before ``end``."""
    until = moment(end) if end else now
    if start and last:
        raise InvalidInput("give either start or last, not both")
    return Window(moment(start), until) if start else Window.last(last or DEFAULT_LAST, until)
