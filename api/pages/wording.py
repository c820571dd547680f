"""Values as people read them: numbers with units, times, names of classes and properties. Pure."""

from __future__ import annotations

import re
from datetime import UTC, datetime
from decimal import Decimal, InvalidOperation
from urllib.parse import unquote

_HUMPS = re.compile(r"(?<=[a-z0-9])(?=[A-Z])")
_BYTES = ("B", "KiB", "MiB", "GiB", "TiB", "PiB")
_SHORT = ((1e12, "T"), (1e9, "G"), (1e6, "M"), (1e3, "k"))
_UNITS = {"{cpu}": "cores", "1": "", "By": "B", "By/s": "B/s", "J": "J", "W": "W", "%": "%", "s": "s"}


def count(value: int) -> str:
    """Write a whole number with separators: 12,345."""
    return f"{value:,}"


def percent(share: float) -> str:
    """Write a share of 1 as a percentage, never 100 % of what is not whole."""
    return f"{share * 100:.0f} %" if share >= 1 else f"{min(share * 100, 99.9):.1f} %"


def number(value: float | None, unit: str = "") -> str:
    """Write a number in four characters or so, with its UCUM unit as people write it; – for none."""
    if value is None:
        return "–"
    shown = _UNITS.get(unit, unit)
    if unit in ("By", "By/s"):
        return f"{in_bytes(value)}{shown.removeprefix('B')}"
    size, mark = next(((size, mark) for size, mark in _SHORT if abs(value) >= size), (1.0, ""))
    scaled = value / size
    digits = 0 if abs(scaled) >= 100 or scaled == int(scaled) else 1 if abs(scaled) >= 10 else 2
    text = f"{scaled:.{digits}f}" if scaled == 0 or abs(scaled) >= 0.01 else f"{scaled:.2g}"
    return f"{text}{mark} {shown}".strip() if shown or mark else text


def in_bytes(value: float) -> str:
    """Write bytes with a binary prefix: 256 MiB."""
    place = 0
    while abs(value) >= 1024 and place < len(_BYTES) - 1:
        value, place = value / 1024, place + 1
    return f"{value:.0f} {_BYTES[place]}" if value == int(value) else f"{value:.1f} {_BYTES[place]}"


def moment(at: datetime | str | float | None) -> str:
    """Write a time in UTC to the second: 2026-11-29 14:03:11Z; a text that is no time stays as it is."""
    if at is None:
        return "–"
    if isinstance(at, str):
        text = at
        try:
            at = datetime.fromisoformat(text)
        except ValueError:
            return text
    elif not isinstance(at, datetime):
        at = datetime.fromtimestamp(at, UTC)
    return at.astimezone(UTC).strftime("%Y-%m-%d %H:%M:%SZ")


def span(seconds: float) -> str:
    """Write a length of time in its two largest units: 3 d 4 h."""
    left, parts = int(max(seconds, 0)), []
    for size, mark in ((86_400, "d"), (3_600, "h"), (60, "min"), (1, "s")):
        if left >= size:
            parts.append(f"{left // size} {mark}")
            left %= size
    return " ".join(parts[:2]) or "0 s"


def label(term: str) -> str:
    """Write the name of a property as words: cpuRequest → cpu request."""
    return _HUMPS.sub(" ", term).lower()


def kind(name: str) -> str:
    """Write the name of a class as words: StatefulSet → Stateful Set."""
    return _HUMPS.sub(" ", name)


def name_of(short: str) -> str:
    """Return the name in a short id: its last segment, decoded."""
    return unquote(short.rstrip("/").rpartition("/")[2]) or short


def amount(term: str, text: str) -> str:
    """Write the value of a property that is an amount of bytes as people do; others stay as they are."""
    if not re.search(r"memory|storage|bytes", term, re.IGNORECASE):
        return text
    try:
        return in_bytes(float(Decimal(text)))
    except (InvalidOperation, ValueError, OverflowError):
        return text
