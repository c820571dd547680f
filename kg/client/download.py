"""What a service streams, as a file: for libraries that read files (Arrow, tar)."""

from __future__ import annotations

import io
from collections.abc import Iterator
from typing import Any


def file_of(chunks: Iterator[bytes]) -> io.BufferedReader:
    """Return a body as a file whose reads give all that they are asked for, however it comes: Arrow and tar take less for the end."""
    return io.BufferedReader(_Incoming(chunks))


class _Incoming(io.RawIOBase):
    """A response's body as a file, read as it comes."""

    def __init__(self, chunks: Iterator[bytes]) -> None:
        super().__init__()
        self._chunks = chunks
        self._rest = b""

    def readable(self) -> bool:
        """Return that it can be read."""
        return True

    def readinto(self, buffer: Any) -> int:
        """Fill ``buffer`` with what has come; 0 at the end."""
        while not self._rest:
            chunk = next(self._chunks, None)
            if chunk is None:
                return 0
            self._rest = chunk
        size = min(len(buffer), len(self._rest))
        buffer[:size] = self._rest[:size]
        self._rest = self._rest[size:]
        return size
