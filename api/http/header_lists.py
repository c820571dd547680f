"""Lists in headers (RFC 9110 §5.6.1), whose quoted parts may hold the signs that part them (§5.6.4)."""

from __future__ import annotations

import re


def _parts(sign: str) -> re.Pattern[str]:
    return re.compile(rf'(?:[^"{sign}]|"(?:[^"\\]|\\(?:.|\Z))*+(?:"|\Z))++', re.DOTALL)


_ELEMENT, _PARAMETER = _parts(","), _parts(";")


def elements(header: str) -> list[str]:
    """Return the elements of a list, without the empty ones: a comma within quotes is a part of its element."""
    return [found for each in _ELEMENT.findall(header) if (found := each.strip())]


def parameters(element: str) -> list[str]:
    """Return what an element begins with, and its parameters, which semicolons part; one text at least."""
    return [each.strip() for each in _PARAMETER.findall(element)] or [""]
