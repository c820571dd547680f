"""ASGI's types (https://asgi.readthedocs.io/en/latest/specs/www.html), and headers as it carries them."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping, MutableMapping
from typing import Any

Scope = MutableMapping[str, Any]
Message = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[Message]]
Send = Callable[[Message], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]
Headers = list[tuple[bytes, bytes]]
HeaderValues = Mapping[bytes, bytes]
"""The headers of a request by their names in lower case: of several lines of one name the first, of a list all."""

SAFE_METHODS = frozenset({"GET", "HEAD", "OPTIONS"})
"""Methods that change nothing here; every other one, known or not, may."""
_LISTS = frozenset({b"accept", b"accept-encoding", b"if-match", b"if-none-match", b"prefer"})


def joined(headers: Headers) -> tuple[Headers, HeaderValues]:
    """Return headers with each that is a list in one line, since several lines mean the same (RFC 9110 §5.3), and their values."""
    values = dict(reversed(headers))
    if len(values) == len(headers):
        return headers, values
    lists = {name: b", ".join(value for key, value in headers if key == name) for name in _LISTS.intersection(values)}
    headers = [*((name, value) for name, value in headers if name not in lists), *lists.items()]
    return headers, {**values, **lists}


def text_of(headers: HeaderValues, name: bytes) -> str | None:
    """Return the value of a header as text, None when it is absent."""
    value = headers.get(name)
    return None if value is None else value.decode("latin-1")
