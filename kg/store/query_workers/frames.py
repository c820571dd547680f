"""What the service and its reader processes say to each other, in the frames of ``kg.workers.frames``.

To a reader: ``U`` an update to replay, ``Q`` a query (``asked``), ``P`` nothing to do but to answer, ``C`` the queries before it that were
not begun are wanted no more. From a reader, for each ``Q`` or ``P``, in their order: any number of ``D`` (a part of the result),
then ``E`` (the end) or ``X`` (an error).
"""

from __future__ import annotations

import json
import struct
from functools import lru_cache
from typing import NamedTuple

from drumlin.kg.workers.frames import frame

_PREFIX = struct.Struct("!I")
BEGUN = struct.Struct("=Q")
"""How many queries a reader has begun: in memory that it shares with the service, which can read it when the reader has died."""


class Options(NamedTuple):
    """How a query is run: the graphs that it reads, what its result is written as, what relative IRIs are relative to."""

    union: bool
    default: tuple[str, ...] | None
    named: tuple[str, ...] | None
    media_type: str
    base: str | None


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
