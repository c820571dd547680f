"""Reads the rows of a damaged SQLite file page by page: what SQLite refuses as a whole may be whole in most of its pages.

Each leaf page of a b-tree lists its own rows, so a page that is lost takes only its own rows with it, or those whose overflow it held.
Rows are told apart by their shape, not by the tree that they were in; whether a row is right is for the caller to prove. Pages are those of
the file as its write-ahead log leaves them, then those that the log replaced: what is older may be all that is left.
Format: https://www.sqlite.org/fileformat2.html
"""

from __future__ import annotations

import mmap
import struct
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

Value = int | float | str | bytes | None

_PAGE = 4096
"""Bytes of a page, where the file does not say it: what SQLite makes by itself."""
_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR = 0x0D, 0x0A, 0x02
_INTEGERS = {1: 1, 2: 2, 3: 3, 4: 4, 5: 6, 6: 8}
_FILE_HEADER, _WAL_HEADER, _FRAME_HEADER = 100, 32, 24


class PageRow(NamedTuple):
    """One row as its page has it. ``current``: of a page that no newer one has replaced."""

    values: tuple[Value, ...]
    current: bool


def rows(path: Path) -> Iterator[PageRow]:
    """Yield every row that the pages of a file and of its ``-wal`` list, in no order; some may be of the past, or damaged.

    A file that is not there has no rows. Raises ``OSError``.
    """
    content = _bytes(path)
    size = _page_size(content)
    base = {number + 1: content[start : start + size] for number, start in enumerate(range(0, len(content), size))}
    frames = _frames(_bytes(path.with_name(f"{path.name}-wal")), size)
    newest = {**base, **dict(frames)}
    for number, page in newest.items():
        for values in _rows_of(number, page, newest, size):
            yield PageRow(values, current=True)
    for pages, older in ((base, base.items()), (newest, frames)):
        for number, page in older:
            if page is not newest[number]:
                for values in _rows_of(number, page, pages, size):
                    yield PageRow(values, current=False)


def _bytes(path: Path) -> memoryview:
    """Return the content of a file, which is not read into memory at once; empty where there is none."""
    if not path.is_file() or not path.stat().st_size:
        return memoryview(b"")
    with path.open("rb") as file:
        return memoryview(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ))


def _page_size(content: memoryview) -> int:
    size = int.from_bytes(content[16:18], "big")
    return size if size in (512, 1024, 2048, 4096, 8192, 16384, 32768) and size >= _PAGE else _PAGE


def _frames(wal: memoryview, size: int) -> list[tuple[int, memoryview]]:
    """Return the pages in a write-ahead log, oldest first, of its present round and up to the last end of a transaction.

    Of a frame that is damaged only that one is lost; that a row of it is right must be proven as that of any other.
    """
    found: list[tuple[int, memoryview]] = []
    ended = 0
    salts = bytes(wal[16:24])
    for start in range(_WAL_HEADER, len(wal) - size - _FRAME_HEADER + 1, size + _FRAME_HEADER):
        number, pages, *_ = struct.unpack(">II", wal[start : start + 8])
        if bytes(wal[start + 8 : start + 16]) != salts:
            continue
        found.append((number, wal[start + _FRAME_HEADER : start + _FRAME_HEADER + size]))
        if pages:
            ended = len(found)
    return found[:ended]


def _rows_of(number: int, page: memoryview, pages: Mapping[int, memoryview], size: int) -> Iterator[tuple[Value, ...]]:
    """Yield the rows that one page lists; one that cannot be what SQLite wrote is left out."""
    start = _FILE_HEADER if number == 1 else 0
    if len(page) < size or page[start] not in (_TABLE_LEAF, _INDEX_LEAF, _INDEX_INTERIOR):
        return
    kind, count = page[start], int.from_bytes(page[start + 3 : start + 5], "big")
    pointers = start + (12 if kind == _INDEX_INTERIOR else 8)
    for position in range(pointers, min(pointers + 2 * count, size - 1), 2):
        try:
            payload = _payload(page, int.from_bytes(page[position : position + 2], "big"), kind, pages, size)
            yield _values(payload)
        except (IndexError, ValueError, struct.error):  # not a row: the page is damaged here
            continue


def _payload(page: memoryview, at: int, kind: int, pages: Mapping[int, memoryview], size: int) -> bytes:
    """Return the bytes of the row that begins at a place in a page, with those on its overflow pages."""
    if kind == _INDEX_INTERIOR:
        at += 4
    length, at = _varint(page, at)
    if kind == _TABLE_LEAF:
        _, at = _varint(page, at)
    if not 0 < length <= len(pages) * size:
        raise ValueError(length)
    most = size - 35 if kind == _TABLE_LEAF else (size - 12) * 64 // 255 - 23
    least = (size - 12) * 32 // 255 - 23
    fitting = least + (length - least) % (size - 4)
    local = length if length <= most else fitting if fitting <= most else least
    found = bytes(page[at : at + local])
    following = int.from_bytes(page[at + local : at + local + 4], "big") if local < length else 0
    while len(found) < length:
        overflow = pages.get(following)
        if overflow is None or len(overflow) < size:
            raise ValueError(following)
        found += bytes(overflow[4 : 4 + min(size - 4, length - len(found))])
        following = int.from_bytes(overflow[:4], "big")
    if len(found) != length:
        raise ValueError(length)
    return found


def _values(payload: bytes) -> tuple[Value, ...]:
    """Return the values of a row; raises ``ValueError`` when its lengths do not add up, or its text is not UTF-8."""
    content = memoryview(payload)
    header, at = _varint(content, 0)
    found: list[Value] = []
    body = header
    while at < header:
        kind, at = _varint(content, at)
        value, body = _value(content, kind, body)
        found.append(value)
    if at != header or body != len(payload):
        raise ValueError(body)
    return tuple(found)


def _value(content: memoryview, kind: int, at: int) -> tuple[Value, int]:
    if kind in (0, 8, 9):
        return (None, 0, 1)[(0, 8, 9).index(kind)], at
    if kind == 7:
        return struct.unpack(">d", content[at : at + 8])[0], at + 8
    if length := _INTEGERS.get(kind):
        return int.from_bytes(content[at : at + length], "big", signed=True), at + length
    if kind in (10, 11):
        raise ValueError(kind)
    end = at + (kind - 12) // 2
    if end > len(content):
        raise ValueError(end)
    found = bytes(content[at:end])
    return (found if kind % 2 == 0 else found.decode()), end


def _varint(content: memoryview, at: int) -> tuple[int, int]:
    """Return the number that begins at a place, and where it ends; raises ``IndexError`` beyond the end."""
    value = 0
    for _ in range(8):
        byte = content[at]
        at += 1
        value = value << 7 | byte & 0x7F
        if byte < 0x80:
            return value, at
    return value << 8 | content[at], at + 1
