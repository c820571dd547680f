"""One gzip stream for each reader, of pieces that are compressed once for all (RFC 1952, RFC 1951).

Each piece is compressed as if nothing had come before it and ends on a whole byte, so it may stand in any stream; only the check at a
stream's end is of its own, and it is combined from those of the pieces. What several hundred readers take is then written to the network
at a tenth of its size, for the price of compressing it once.
"""

from __future__ import annotations

import zlib
from functools import cached_property

_HEADER = b"\x1f\x8b\x08\x00\x00\x00\x00\x00\x00\xff"  # deflated, no name, no time, of an unknown system
_END = b"\x03\x00"  # a last block, empty
_LEVEL = 1
_POLYNOMIAL = 0xEDB88320  # of CRC-32, the highest power in the lowest bit
_ONE = 1 << 31


class Piece:
    """Bytes that are sent together."""

    def __init__(self, data: bytes) -> None:
        self.data = data

    @cached_property
    def packed(self) -> bytes:
        """They as whole deflate blocks that refer to nothing before."""
        packer = zlib.compressobj(_LEVEL, wbits=-zlib.MAX_WBITS)
        return packer.compress(self.data) + packer.flush(zlib.Z_FULL_FLUSH)

    @cached_property
    def check(self) -> int:
        """Their CRC-32."""
        return zlib.crc32(self.data)

    @cached_property
    def shift(self) -> int:
        """What the check of all that comes before is multiplied by."""
        return _power(8 * len(self.data))


class Gzip:
    """One stream."""

    def __init__(self) -> None:
        self._head = _HEADER
        self._check = self._size = 0

    def add(self, piece: Piece) -> bytes:
        """Return what is to be sent of the next piece."""
        self._check = _times(piece.shift, self._check) ^ piece.check
        self._size += len(piece.data)
        head, self._head = self._head, b""
        return head + piece.packed if head else piece.packed

    def end(self) -> bytes:
        """Return what is to be sent last."""
        return self._head + _END + self._check.to_bytes(4, "little") + (self._size & 0xFFFFFFFF).to_bytes(4, "little")


def _times(a: int, b: int) -> int:
    """Multiply two polynomials modulo that of CRC-32."""
    product = 0
    while a:
        if a & _ONE:
            product ^= b
        a = (a << 1) & 0xFFFFFFFF
        b = (b >> 1) ^ _POLYNOMIAL if b & 1 else b >> 1
    return product


def _power(exponent: int) -> int:
    """Return x to a power, modulo the polynomial."""
    found, square = _ONE, _ONE >> 1
    while exponent:
        if exponent & 1:
            found = _times(square, found)
        square = _times(square, square)
        exponent >>= 1
    return found
