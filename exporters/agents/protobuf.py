"""The wire format of Protocol Buffers, read within bounds: numbered fields, no schema, nothing native.

https://protobuf.dev/programming-guides/encoding/. Groups (wire types 3 and 4) are not read: OTLP has none.
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import NamedTuple

from drumlin.kg.errors import InvalidDocument

MAX_FIELDS = 500_000
"""Fields that are read of one message, those of messages in it included."""
_VARINT, _FIXED64, _BYTES, _FIXED32 = 0, 1, 2, 5
_LONGEST_VARINT = 10  # bytes


class WireField(NamedTuple):
    """A field by its number: an unsigned number, or the bytes of a text, of a message, or of a double."""

    number: int
    value: int | bytes


class WireReader:
    """Reads messages; one reader for all messages of a request, so that the whole of it is bounded."""

    def __init__(self) -> None:
        self._left = MAX_FIELDS

    def fields(self, data: bytes) -> Iterator[WireField]:
        """Yield the fields of a message in their order; raises ``InvalidDocument`` for what is cut short or has too many."""
        at = 0
        while at < len(data):
            self._left -= 1
            if self._left < 0:
                raise InvalidDocument(f"the message has more than {MAX_FIELDS:,} fields", hint="send smaller batches")
            key, at = _varint(data, at)
            number, wire = key >> 3, key & 7
            if wire == _VARINT:
                value, at = _varint(data, at)
                yield WireField(number, value)
                continue
            length = 8 if wire == _FIXED64 else 4
            if wire == _BYTES:
                length, at = _varint(data, at)
            elif wire not in (_FIXED64, _FIXED32):
                raise InvalidDocument(f"the message has a field of the wire type {wire}", hint="send OTLP protobuf")
            if at + length > len(data):
                raise InvalidDocument("the message is cut short")
            yield WireField(number, data[at : at + length])
            at += length


def _varint(data: bytes, at: int) -> tuple[int, int]:
    found = 0
    for place in range(_LONGEST_VARINT):
        if at >= len(data):
            raise InvalidDocument("the message is cut short")
        byte = data[at]
        at += 1
        found |= (byte & 0x7F) << (7 * place)
        if byte < 0x80:
            return found & 0xFFFF_FFFF_FFFF_FFFF, at
    raise InvalidDocument("the message has a number of more than 64 bits")


def varint(number: int) -> bytes:
    """Write an unsigned number."""
    found = bytearray()
    while number > 0x7F:
        found.append(number & 0x7F | 0x80)
        number >>= 7
    found.append(number)
    return bytes(found)


def signed(value: int) -> int:
    """Read an unsigned number of 64 bits as int64."""
    return value - (1 << 64) if value >= 1 << 63 else value


def double(value: bytes) -> float:
    """Read the eight bytes of a double."""
    (found,) = struct.unpack("<d", value)
    return float(found)


def text(value: int | bytes) -> str:
    """Read a text; raises ``InvalidDocument`` for what is no UTF-8."""
    try:
        return bytes(value).decode() if isinstance(value, bytes) else ""
    except UnicodeDecodeError as error:
        raise InvalidDocument("the message has a text that is not UTF-8") from error
