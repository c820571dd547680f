"""What the service and its reader processes say to each other: frames of one letter, a length and that many bytes.

To a reader: ``U`` an update to replay, ``Q`` a query (``asked``), ``P`` nothing to do but to answer. From a reader, for each ``Q``
or ``P``: any number of ``D`` (a part of the result), then ``E`` (the end) or ``X`` (an error).
"""

from __future__ import annotations

import json
import struct
from typing import Any

_HEAD = struct.Struct("!cI")
_PREFIX = struct.Struct("!I")
CHUNK = 65_536
"""Bytes of a result that travel together."""


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """Write one frame."""
    return _HEAD.pack(kind, len(payload)) + payload


def asked(query: str, options: dict[str, Any]) -> bytes:
    """Write a query frame: the options as JSON, then the text as it is."""
    head = json.dumps(options).encode()
    return frame(b"Q", _PREFIX.pack(len(head)) + head + query.encode())


def read_asked(payload: bytes) -> tuple[str, dict[str, Any]]:
    """Read what ``asked`` wrote."""
    (size,) = _PREFIX.unpack_from(payload)
    text = _PREFIX.size + size
    options: dict[str, Any] = json.loads(payload[_PREFIX.size : text])
    return payload[text:].decode(), options


class Frames:
    """Cuts the bytes that arrive into frames."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what arrived."""
        self._waiting += data

    def peek(self) -> bytes | None:
        """Return the kind of the next frame, None while it is not all there."""
        if len(self._waiting) < _HEAD.size:
            return None
        kind, size = _HEAD.unpack_from(self._waiting)
        return bytes(kind) if len(self._waiting) >= _HEAD.size + size else None

    def next(self) -> tuple[bytes, bytes] | None:
        """Return the next frame, None while it is not all there."""
        waiting = self._waiting
        if len(waiting) < _HEAD.size:
            return None
        kind, size = _HEAD.unpack_from(waiting)
        end = _HEAD.size + size
        if len(waiting) < end:
            return None
        payload = bytes(waiting[_HEAD.size : end])
        del waiting[:end]
        return kind, payload
