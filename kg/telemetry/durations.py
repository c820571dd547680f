"""Lengths and points of time as people, Prometheus and xsd:duration write them.

Apart because datasources, queries and grids all need them. Only exact lengths are known here: a month or a year is none.
xsd:dayTimeDuration: https://www.w3.org/TR/xmlschema11-2/#dayTimeDuration.
"""

from __future__ import annotations

import re
from datetime import UTC, datetime, timedelta

from drumlin.kg.errors import InvalidInput

_UNITS = {"ms": 0.001, "s": 1, "m": 60, "h": 3600, "d": 86_400, "w": 604_800}
_SHORT = re.compile(r"(?:[0-9]+(?:ms|[smhdw]))+")
_PART = re.compile(r"([0-9]+)(ms|[smhdw])")
_EPOCH = re.compile(r"[0-9]{1,11}(?:\.[0-9]{1,3})?")
_ISO = re.compile(
    r"P(?!$)(?:(?P<w>[0-9]+)W)?(?:(?P<d>[0-9]+)D)?(?:T(?!$)(?:(?P<h>[0-9]+)H)?(?:(?P<m>[0-9]+)M)?(?:(?P<s>[0-9]+(?:\.[0-9]{1,6})?)S)?)?"
)


def parse_duration(text: str) -> timedelta:
    """Read ``30d``, ``1h30m``, ``500ms`` or ISO 8601 ``P1DT12H``; raises ``InvalidInput`` for anything else and for zero."""
    written = text.strip()
    try:
        if match := _ISO.fullmatch(written):
            length = timedelta(seconds=sum(float(n) * _UNITS[unit] for unit, n in match.groupdict().items() if n))
        elif _SHORT.fullmatch(written):
            length = timedelta(seconds=sum(int(n) * _UNITS[unit] for n, unit in _PART.findall(written)))
        else:
            length = timedelta(0)
    except OverflowError:
        length = timedelta(0)
    if not length:
        raise InvalidInput(
            f"{text[:40]!r} is not a duration",
            hint="write for example 30d, 5m, 1h30m, P1D or PT5M; months and years vary",
        )
    return length


def parse_moment(text: str) -> datetime:
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
    try:
        return found.astimezone(UTC)
    except OverflowError as error:
        raise InvalidInput(f"{text[:40]!r} is outside the calendar in UTC") from error


def iso_duration(length: timedelta) -> str:
    """Write a length as xsd:duration in the canonical form that the store keeps: ``PT30S``, ``P1DT12H``, ``PT0.5S``."""
    minutes, seconds = divmod(length.seconds, 60)
    hours, minutes = divmod(minutes, 60)
    exact = f"{seconds}.{length.microseconds:06d}".rstrip("0").rstrip(".") if length.microseconds else str(seconds)
    clock = "".join(f"{n}{unit}" for n, unit in ((hours, "H"), (minutes, "M"), (exact, "S")) if n not in (0, "0"))
    days = f"{length.days}D" if length.days else ""
    return f"P{days}T{clock}" if clock else f"P{days}" if days else "PT0S"


def promql_duration(length: timedelta) -> str:
    """Write a length as PromQL does, in the one largest unit that is exact: ``5m``, ``90s``, ``1500ms``."""
    milliseconds = length // timedelta(milliseconds=1)
    for unit, size in (("d", 86_400_000), ("h", 3_600_000), ("m", 60_000), ("s", 1000)):
        if milliseconds % size == 0:
            return f"{milliseconds // size}{unit}"
    return f"{milliseconds}ms"
