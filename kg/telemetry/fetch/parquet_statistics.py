"""The least and the greatest value of each column in each row group of a Parquet file, read from its footer without pyarrow.

pyarrow reads them too, but ends the process for a footer whose statistics contradict one another: an exception of its C++ library passes
through a method that does not expect one. Format: https://parquet.apache.org/docs/file-format/metadata/, encoded as in
https://github.com/apache/thrift/blob/master/doc/specs/thrift-compact-protocol.md.
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Mapping
from typing import Any, BinaryIO

MAX_FOOTER = 4 << 20
"""Bytes of the longest footer that is looked at: a longer one has no statistics here, and all of its row groups are read."""
_DEEPEST = 32  # structs and lists inside one another; a footer has ten

Range = tuple[bytes, bytes]
"""The least and the greatest value as the file writes them."""


def ranges(file: BinaryIO) -> list[Mapping[str, Range]]:
    """Return what each row group says of its columns, by their dotted paths; raises ``OSError`` and ``ValueError``.

    Columns without statistics are absent. The list is empty for a footer longer than ``MAX_FOOTER``.
    """
    file.seek(-8, 2)
    (size,) = struct.unpack("<I", file.read(8)[:4])
    if size > MAX_FOOTER:
        return []
    file.seek(-8 - size, 2)
    try:
        footer = _ThriftReader(file.read(size)).struct(0)
        return [_of_group(group) for group in footer.get(4, ())]
    except (IndexError, AttributeError, TypeError, struct.error) as error:
        raise ValueError("the footer is cut or malformed") from error


def _of_group(group: Mapping[int, Any]) -> Mapping[str, Range]:
    found = {}
    for chunk in group[1]:
        column = chunk.get(3, {})
        said = column.get(12, {})
        least, greatest = said.get(6, said.get(2)), said.get(5, said.get(1))
        if least is not None and greatest is not None:
            found[b".".join(column[3]).decode()] = (least, greatest)
    return found


class _ThriftReader:
    """The compact protocol of Thrift: a struct as a mapping from field numbers to values."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self._at = 0
        self._readers: Mapping[int, Callable[[int], Any]] = {
            3: lambda _: self._byte(),
            **dict.fromkeys((4, 5, 6), lambda _: self._signed()),
            7: lambda _: self._bytes(8),
            8: lambda _: self._bytes(self._unsigned()),
            **dict.fromkeys((9, 10), self._list),
            11: self._map,
            12: self.struct,
            13: lambda _: self._bytes(16),
        }

    def struct(self, depth: int) -> dict[int, Any]:
        found: dict[int, Any] = {}
        field = 0
        while (head := self._byte()) != 0:
            field = field + (head >> 4) if head >> 4 else self._signed()
            kind = head & 15
            found[field] = kind == 1 if kind in (1, 2) else self._value(kind, depth)
        return found

    def _value(self, kind: int, depth: int) -> Any:
        if depth > _DEEPEST:
            raise struct.error("the footer is nested too deeply")
        read = self._readers.get(kind)
        if read is None:
            raise struct.error("the footer has a value of an unknown type")
        return read(depth + 1)

    def _byte(self) -> int:
        self._at += 1
        return self._data[self._at - 1]

    def _unsigned(self) -> int:
        value = shift = 0
        while shift < 70:
            part = self._byte()
            value |= (part & 127) << shift
            if part < 128:
                return value
            shift += 7
        raise struct.error("a number is longer than 64 bits")

    def _signed(self) -> int:
        value = self._unsigned()
        return (value >> 1) ^ -(value & 1)

    def _bytes(self, size: int) -> bytes:
        found = self._data[self._at : self._at + size]
        if len(found) < size:
            raise struct.error("the footer ends in the middle of a value")
        self._at += size
        return found

    def _list(self, depth: int) -> list[Any]:
        head = self._byte()
        count = head >> 4 if head >> 4 < 15 else self._unsigned()
        if count > len(self._data):
            raise struct.error("a list is longer than its footer")
        kind = head & 15
        if kind in (1, 2):
            return [self._byte() == 1 for _ in range(count)]
        return [self._value(kind, depth) for _ in range(count)]

    def _map(self, depth: int) -> None:
        count = self._unsigned()
        if count > len(self._data):
            raise struct.error("a map is longer than its footer")
        kinds = self._byte() if count else 0
        for _ in range(count):
            self._value(kinds >> 4, depth)
            self._value(kinds & 15, depth)
