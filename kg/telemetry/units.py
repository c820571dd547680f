"""Units of values: UCUM, and the words that people write instead (``MB``, ``cores``); which can be converted, and by what factor.

A part of UCUM, https://ucum.org/ucum: what is measured here, with prefixes, products and quotients, no brackets. Annotations name what is
counted: ``{cpu}`` is neither ``{pod}`` nor ``1``, so a number of cores is never taken for a share. Factors are exact. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from fractions import Fraction
from functools import lru_cache
from typing import NamedTuple

from drumlin.kg.errors import InvalidInput

_ATOMS: Mapping[str, tuple[Fraction, Mapping[str, int]]] = {
    "1": (Fraction(1), {}),
    "%": (Fraction(1, 100), {}),
    "By": (Fraction(1), {"By": 1}),
    "bit": (Fraction(1, 8), {"By": 1}),
    "s": (Fraction(1), {"s": 1}),
    "min": (Fraction(60), {"s": 1}),
    "h": (Fraction(3600), {"s": 1}),
    "d": (Fraction(86_400), {"s": 1}),
    "Hz": (Fraction(1), {"s": -1}),
    "J": (Fraction(1), {"J": 1}),
    "W": (Fraction(1), {"J": 1, "s": -1}),
    "Cel": (Fraction(1), {"Cel": 1}),
    "{cpu}": (Fraction(1), {"{cpu}": 1}),
    "{millicpu}": (Fraction(1, 1000), {"{cpu}": 1}),
}
_LARGE = {letter: Fraction(1000) ** power for power, letter in enumerate(("k", "M", "G", "T", "P", "E"), 1)}
_BINARY = {f"{letter}i": Fraction(1024) ** power for power, letter in enumerate(("K", "M", "G", "T", "P", "E"), 1)}
_SMALL = {letter: Fraction(1, 1000**power) for power, letter in enumerate(("m", "u", "n"), 1)}
_PREFIXES: Mapping[str, Mapping[str, Fraction]] = {
    **{each: {**_LARGE, **_BINARY} for each in ("By", "bit")},  # no part of a byte: mb is meant to be MBy
    **{each: {**_LARGE, **_SMALL} for each in ("s", "Hz", "J", "W")},
}
_ANNOTATION = re.compile(r"\{[!-z|~]+\}")
_PARTS = re.compile(r"[./]|(?:\{[^{}]*\}|[^./{}])+")
_WORDS: Mapping[str, str] = {
    **dict.fromkeys(("b", "byte", "bytes"), "By"),
    **{f"{prefix.lower()}b": f"{prefix}By" for prefix in (*_LARGE, *_BINARY)},
    **{f"{prefix.lower()}bit": f"{prefix}bit" for prefix in _LARGE},
    **{f"{prefix.lower()}bps": f"{prefix}bit/s" for prefix in _LARGE},
    **dict.fromkeys(("bits",), "bit"),
    **dict.fromkeys(("bps",), "bit/s"),
    **dict.fromkeys(("cpu", "cpus", "core", "cores", "vcpu"), "{cpu}"),
    **dict.fromkeys(("millicpu", "millicore", "millicores", "mcpu"), "{millicpu}"),
    **dict.fromkeys(("percent", "pct"), "%"),
    **dict.fromkeys(("ratio", "share"), "1"),
    **dict.fromkeys(("joule", "joules"), "J"),
    **dict.fromkeys(("watt", "watts"), "W"),
    **dict.fromkeys(("kw",), "kW"),
    **dict.fromkeys(("wh",), "W.h"),
    **dict.fromkeys(("kwh",), "kW.h"),
    **dict.fromkeys(("mwh",), "MW.h"),
    **dict.fromkeys(("sec", "second", "seconds"), "s"),
    **dict.fromkeys(("minute", "minutes"), "min"),
    **dict.fromkeys(("hour", "hours"), "h"),
    **dict.fromkeys(("day", "days"), "d"),
}
"""What people write, in lower case, where it is no unit of UCUM that is known here."""
_OFFERED = (
    "{cpu}", "{millicpu}", "%", "1", "By", "kBy", "MBy", "GBy", "TBy", "KiBy", "MiBy", "GiBy", "TiBy", "bit", "Mbit",
    "By/s", "kBy/s", "MBy/s", "GBy/s", "MiBy/s", "bit/s", "kbit/s", "Mbit/s", "Gbit/s", "J", "kJ", "MJ", "W.h", "kW.h",
    "W", "kW", "us", "ms", "s", "min", "h", "d", "Hz", "kHz", "MHz", "GHz",
)  # fmt: skip
"""What an error proposes."""
MAX_LENGTH = 40


class ParsedUnit(NamedTuple):
    """A unit as UCUM writes it, how much of the base units it is, and the powers of these, sorted."""

    text: str
    size: Fraction
    powers: tuple[tuple[str, int], ...]


class Conversion(NamedTuple):
    """The unit that values are given in, in UCUM, and what they are multiplied with."""

    unit: str
    factor: Fraction


@lru_cache(maxsize=1024)
def parse_unit(text: str) -> ParsedUnit:
    """Read a unit, in UCUM or as people write it (``MB``, ``kWh``, ``cores``); raises ``InvalidInput``."""
    written = text.strip()
    if not 0 < len(written) <= MAX_LENGTH or "".join(_PARTS.findall(written)) != written:
        raise _unknown(written)
    size, powers, sign, texts = Fraction(1), dict[str, int](), 1, list[str]()
    for number, part in enumerate(_PARTS.findall(written)):
        if number % 2 != (part in "./") or (part in "./" and number == 0):
            raise _unknown(written)
        if part in "./":
            sign = -1 if part == "/" else 1
            texts.append(part)
            continue
        for name, inner_size, inner_powers, inner_sign in _simple(part, written):
            size *= inner_size ** (sign * inner_sign)
            for base, power in inner_powers.items():
                powers[base] = powers.get(base, 0) + power * sign * inner_sign
            texts.append(name)
    if texts[-1] in ("/", "."):
        raise _unknown(written)
    return ParsedUnit("".join(texts), size, tuple(sorted((base, power) for base, power in powers.items() if power)))


def convert(own: str, wanted: str) -> Conversion | None:
    """Return how values in the unit ``own`` (UCUM) become values in ``wanted``; None when they measure different things.

    Raises ``InvalidInput`` when ``wanted`` is no unit.
    """
    target = parse_unit(wanted)
    if target.text == own:
        return Conversion(own, Fraction(1))
    try:
        source = parse_unit(own)
    except InvalidInput:  # a unit that somebody gave a metric of their own
        return None
    return Conversion(target.text, source.size / target.size) if source.powers == target.powers else None


def possible(own: str) -> tuple[str, ...]:
    """Return the usual units into which values in the unit ``own`` can be converted, itself first."""
    others = (each for each in _OFFERED if each != own and convert(own, each) is not None)
    return (own, *others)


def impossible(metric: str, own: str, wanted: Iterable[str]) -> InvalidInput:
    """Return the error that a metric in the unit ``own`` cannot be given in any of the units ``wanted``."""
    offered = possible(own)
    listed = " or ".join(wanted)
    return InvalidInput(
        f"{metric} is in {own}, which cannot be converted to {listed}",
        hint=f"it can be given in {', '.join(offered)}",
        detail={"metric": metric, "unit": own, "possible": list(offered)},
    )


def scaled(query: str, factor: Fraction) -> str:
    """Return PromQL or LogQL whose values are multiplied with a factor; exact, since whole numbers are written."""
    if factor == 1:
        return query
    times = f" * {factor.numerator}" if factor.numerator != 1 else ""
    by = f" / {factor.denominator}" if factor.denominator != 1 else ""
    return f"({query}){times}{by}"


def _simple(part: str, written: str) -> list[tuple[str, Fraction, Mapping[str, int], int]]:
    """Read what stands between dots and slashes: name, size, powers, sign; a word may stand for a product or a quotient."""
    if found := _atom(part):
        return [(part, *found, 1)]
    word = _WORDS.get(part.lower())
    if word is None:
        raise _unknown(written)
    pieces = _PARTS.findall(word)
    read: list[tuple[str, Fraction, Mapping[str, int], int]] = []
    for number, piece in enumerate(pieces):
        if number % 2 == 0:
            before = pieces[number - 1] if number else ""
            found = _atom(piece)
            assert found is not None
            read.append((before + piece, *found, -1 if before == "/" else 1))
    return read


def _atom(text: str) -> tuple[Fraction, Mapping[str, int]] | None:
    """Read an atom with its prefix, or an annotation; None when it is unknown."""
    if text in _ATOMS:
        return _ATOMS[text]
    if _ANNOTATION.fullmatch(text):
        return Fraction(1), {text: 1}
    for name, prefixes in _PREFIXES.items():
        if text.endswith(name) and (prefix := prefixes.get(text.removesuffix(name))):
            size, powers = _ATOMS[name]
            return prefix * size, powers
    return None


def _unknown(text: str) -> InvalidInput:
    return InvalidInput(
        f"{text[:MAX_LENGTH]!r} is not a unit that is known here",
        hint="write UCUM (%, {cpu}, MBy, MiBy/s, kW.h), or MB, GiB/s, cores, kWh",
    )
