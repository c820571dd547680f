"""Kubernetes quantities → exact decimals in base units: CPU in cores, memory and storage in bytes.

The grammar is that of ``resource.Quantity``: a signed decimal number, then a binary suffix (Ki … Ei), a decimal one (n u m k
M G T P E), or an exponent (e3, E-2); ``12E`` is exa, ``12E3`` an exponent. Nothing is rounded here.
https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/
"""

from __future__ import annotations

import re
from decimal import ROUND_CEILING, Context, Decimal
from functools import lru_cache

from drumlin.kg.errors import InvalidManifest

Written = str | int | float
"""A quantity as manifests write it: text, or a bare number in hand-written YAML."""

_GRAMMAR = re.compile(
    r"(?P<number>[+-]?(?:[0-9]+(?:\.[0-9]*)?|\.[0-9]+))(?:(?P<suffix>[KMGTPE]i|[numkMGTPE])|[eE](?P<exponent>[+-]?[0-9]{1,3}))?"
)
_SCALE = {
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("num", -3)},
    **{suffix: Decimal(10) ** (3 * power) for power, suffix in enumerate("kMGTPE", 1)},
    **{f"{suffix}i": Decimal(1024) ** power for power, suffix in enumerate("KMGTPE", 1)},
}
_MAX_LENGTH = 64
_MAX_EXPONENT = 30  # what Kubernetes can hold ends at 2^63; a larger one would only fill memory with zeros
EXACT = Context(prec=256)
"""Arithmetic that rounds no quantity the grammar allows."""


@lru_cache(maxsize=4096, typed=True)  # a cluster has few different ones
def quantity(written: Written) -> Decimal:
    """Return the exact value of a quantity in its base unit (cores, bytes, pieces).

    Raises ``InvalidManifest`` for what is not one; the message does not repeat it, as it may be anything.
    """
    text = str(written)
    match = _GRAMMAR.fullmatch(text) if len(text) <= _MAX_LENGTH else None
    exponent = int(match["exponent"] or 0) if match else 0
    if match is None or abs(exponent) > _MAX_EXPONENT:
        raise InvalidManifest("a quantity is malformed", hint="write it as Kubernetes does: 250m, 1.5Gi, 2, 1e3")
    number = Decimal(match["number"])
    if match["suffix"]:
        return EXACT.multiply(number, _SCALE[match["suffix"]])
    return EXACT.scaleb(number, exponent)


def pieces(written: Written) -> int:
    """Return a quantity of bytes or devices as a whole number, rounded up as Kubernetes does (``Quantity.Value``)."""
    return whole(quantity(written))


@lru_cache(maxsize=4096)  # replicas ask for the same
def whole(value: Decimal) -> int:
    """Round up to a whole number of bytes or devices."""
    return int(value.to_integral_value(ROUND_CEILING))
