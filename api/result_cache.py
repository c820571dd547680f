"""Results of queries, kept while nothing is written: bounded in bytes, the one used longest ago goes first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from dataclasses import dataclass

MAX_ENTRY = 64 * 1024
"""Bytes of the largest result that is kept; larger ones are streamed."""
_OVERHEAD = 1024  # bytes that an entry takes beside its result: key, headers, objects


@dataclass(frozen=True, slots=True)
class Entry:
    """A whole result with the headers that it is sent with. ``etag`` is strong: it names these bytes."""

    body: bytes
    etag: bytes
    headers: list[tuple[bytes, bytes]]


def entry(body: bytes, media_type: str, generation: int, *, keep: bool) -> Entry:
    """Make an entry; a result that is not kept (``keep``) has no ETag, since it would never be the same again."""
    etag = b'"%s"' % hashlib.blake2b(body, key=media_type.encode()[:64], digest_size=12).hexdigest().encode()
    headers = [
        (b"content-type", content_type(media_type)),
        (b"x-drumlin-generation", str(generation).encode()),
        (b"cache-control", b"no-cache" if keep else b"no-store"),
        (b"vary", b"Accept"),
    ]
    return Entry(body, etag, [*headers, (b"etag", etag)] if keep else headers)


def content_type(media_type: str) -> bytes:
    """Return the Content-Type header; text says its charset."""
    return f"{media_type}; charset=utf-8".encode() if media_type.startswith("text/") else media_type.encode()


class ResultCache:
    """Entries of one generation, up to ``limit`` bytes. For one thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._entries: OrderedDict[Hashable, Entry] = OrderedDict()
        self._generation = -1
        self.bytes = 0

    def get(self, generation: int, key: Hashable) -> Entry | None:
        """Return the result of a query at a generation."""
        if generation != self._generation or (found := self._entries.get(key)) is None:
            return None
        self._entries.move_to_end(key)
        return found

    def put(self, generation: int, key: Hashable, made: Entry) -> None:
        """Keep a result. Those of older generations go: nobody can ask for them again."""
        if len(made.body) > MAX_ENTRY or generation < self._generation:
            return
        if generation > self._generation:
            self._entries.clear()
            self._generation, self.bytes = generation, 0
        if (old := self._entries.pop(key, None)) is not None:
            self.bytes -= _size(old)
        self._entries[key] = made
        self.bytes += _size(made)
        while self.bytes > self._limit:
            _, gone = self._entries.popitem(last=False)
            self.bytes -= _size(gone)


def _size(made: Entry) -> int:
    return len(made.body) + _OVERHEAD
