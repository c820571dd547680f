"""What the service and its reader processes say to each other: frames of one letter, a length and that many bytes.

To a reader: ``U`` an update to replay, ``Q`` a query (``asked``), ``P`` nothing to do but to answer, ``C`` the queries before it that were
not begun are wanted no more. From a reader, for each ``Q`` or ``P``, in their order: any number of ``D`` (a part of the result),
then ``E`` (the end) or ``X`` (an error).
"""

from __future__ import annotations

import json
import socket
import struct
from functools import lru_cache
from typing import NamedTuple

_HEAD = struct.Struct("!cI")
_PREFIX = struct.Struct("!I")
CHUNK = 65_536
"""Bytes of a result that travel together."""


class Options(NamedTuple):
    """How a query is run: the graphs that it reads, what its result is written as, what relative IRIs are relative to."""

    union: bool
    default: tuple[str, ...] | None
    named: tuple[str, ...] | None
    media_type: str
    base: str | None


def frame(kind: bytes, payload: bytes = b"") -> bytes:
    """Write one frame."""
    return _HEAD.pack(kind, len(payload)) + payload


def asked(query: str, options: Options) -> bytes:
    """Write a query frame: the options as JSON, then the text as it is."""
    return frame(b"Q", _written(options) + query.encode())


def read_asked(payload: bytes) -> tuple[str, Options]:
    """Read what ``asked`` wrote."""
    (size,) = _PREFIX.unpack_from(payload)
    text = _PREFIX.size + size
    return payload[text:].decode(), _read(payload[_PREFIX.size : text])


@lru_cache(64)  # nearly all queries have the same
def _written(options: Options) -> bytes:
    head = json.dumps(options).encode()
    return _PREFIX.pack(len(head)) + head


@lru_cache(64)
def _read(head: bytes) -> Options:
    union, default, named, media_type, base = json.loads(head)
    return Options(union, _graphs(default), _graphs(named), media_type, base)


def _graphs(listed: list[str] | None) -> tuple[str, ...] | None:
    return None if listed is None else tuple(listed)


class Frames:
    """Cuts the bytes that arrive into frames."""

    def __init__(self) -> None:
        self._waiting = bytearray()

    def feed(self, data: bytes) -> None:
        """Take what arrived."""
        self._waiting += data

    def wait(self, channel: socket.socket, size: int = CHUNK) -> tuple[bytes, bytes] | None:
        """Return the next frame, taking up to ``size`` bytes at a time from ``channel``; None when the other side is gone."""
        while (found := self.next()) is None:
            data = channel.recv(size)
            if not data:
                return None
            self.feed(data)
        return found

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
