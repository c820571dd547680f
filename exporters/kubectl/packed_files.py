"""Files as they lie about: plain, compressed or archives; unpacked in bounded memory, recognised by what they begin with.

A name says only which files of a directory or an archive are meant (``is_meant``). Formats: gzip, bzip2, xz, zstd, tar.
"""

from __future__ import annotations

import bz2
import gzip
import io
import lzma
import tarfile
import zlib
from collections.abc import Iterator
from pathlib import PurePath
from typing import Protocol

import zstandard

_TEXTS = (".json", ".yaml", ".yml")
_PACKED = (".gz", ".bz2", ".xz", ".zst")
_ARCHIVES = (".tar", ".tgz", ".tbz2", ".txz", ".tzst")
_WINDOW = 128 * 1024 * 1024  # bytes of memory that a compressed file may ask for to be unpacked
_TAR_END = bytes(1024)  # two empty blocks
_TAR_MAGIC = slice(257, 262)
_DAMAGED = (OSError, EOFError, ValueError, zlib.error, lzma.LZMAError, zstandard.ZstdError)


class _Readable(Protocol):
    """A file that can be read."""

    def read(self, size: int, /) -> bytes:
        """Return at most so many bytes."""


class TooMuch(Exception):
    """It is larger, unpacked, than is read; never leaves the package."""


class Damaged(Exception):
    """It is compressed or an archive, and breaks off or cannot be unpacked; never leaves the package."""


def is_meant(name: str) -> bool:
    """Return whether a file of a directory or archive holds manifests, by its name."""
    path = PurePath(name.lower())
    if path.suffix in _PACKED:
        path = path.with_suffix("")
    return path.suffix in _TEXTS or path.suffix in _ARCHIVES


def unpacked(name: str, content: bytes, most: int) -> Iterator[tuple[str, bytes]]:
    """Yield the name and the plain content of what a file holds: itself, or the meant members of an archive, one after the other.

    ``most`` is how many bytes are unpacked in all. Raises ``TooMuch`` and ``Damaged``.
    """
    try:
        plain = _decompressed(content, most)
        if plain[_TAR_MAGIC] != b"ustar":
            yield name, plain
            return
        if not plain.endswith(_TAR_END):
            raise Damaged
        left = most
        with tarfile.open(fileobj=io.BytesIO(plain), mode="r:") as archive:
            for member in archive:
                found = archive.extractfile(member) if member.isfile() and is_meant(member.name) else None
                if found is None:
                    continue
                text = _decompressed(found.read(), left)
                left -= len(text)
                yield f"{name}: {member.name}", text
    except tarfile.TarError as error:
        raise Damaged from error


def _decompressed(content: bytes, most: int) -> bytes:
    """Return the plain bytes of a file that may be compressed."""
    try:
        if content.startswith(b"\x1f\x8b"):
            return _read(gzip.GzipFile(fileobj=io.BytesIO(content)), most)
        if content.startswith(b"BZh"):
            return _read(bz2.BZ2File(io.BytesIO(content)), most)
        if content.startswith(b"\xfd7zXZ\0"):
            return _unxz(content, most)
        if content.startswith(b"\x28\xb5\x2f\xfd"):
            return _unzstd(content, most)
    except _DAMAGED as error:
        raise Damaged from error
    return _read(io.BytesIO(content), most)


def _read(stream: _Readable, most: int) -> bytes:
    found = stream.read(most + 1)
    if len(found) > most:
        raise TooMuch
    return found


def _unxz(content: bytes, most: int) -> bytes:
    """Return what one or several xz streams hold; the library's own file takes as much memory as they ask for."""
    found = bytearray()
    while content := content.lstrip(b"\0"):  # padding between streams
        unpacker = lzma.LZMADecompressor(lzma.FORMAT_XZ, memlimit=_WINDOW)
        found += unpacker.decompress(content, most + 1 - len(found))
        if len(found) > most:
            raise TooMuch
        if not unpacker.eof:
            raise EOFError
        content = unpacker.unused_data
    return bytes(found)


def _unzstd(content: bytes, most: int) -> bytes:
    """Return what one or several zstd frames hold."""
    unpacker = zstandard.ZstdDecompressor(max_window_size=_WINDOW)
    return _read(unpacker.stream_reader(io.BytesIO(content), read_across_frames=True), most)
