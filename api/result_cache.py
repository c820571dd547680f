"""Results of queries, kept while nothing is written: bounded in bytes, the one used longest ago goes first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable
from functools import cache
from typing import NamedTuple

from api.compression import CODINGS, MINIMUM, Coding, Headers, coded_headers, coded_tag, compress

MAX_ENTRY = 64 * 1024
"""Bytes of the largest result that is kept; larger ones are streamed."""
_OVERHEAD = 1024  # bytes that an entry takes beside its result: key, headers, objects


class Form(NamedTuple):
    """A result as it is sent: plain, or compressed."""

    body: bytes
    headers: Headers


class Entry:
    """A whole result. ``etag`` is strong: it names these bytes; a result that is not kept has none (it would never be the same again)."""

    def __init__(self, body: bytes, media_type: str, generation: int, *, keep: bool) -> None:
        self.body = body
        self.etag: bytes | None = None
        self.headers = head(media_type, generation, keep=keep)
        if keep:
            digest = hashlib.blake2b(body, key=media_type.encode()[:64], digest_size=12).hexdigest()
            self.etag = b'"' + digest.encode() + b'"'
            self.headers.append((b"etag", self.etag))
        self._forms: dict[Coding | None, Form] = {
            None: Form(body, [*self.headers, (b"content-length", b"%d" % len(body))])
        }

    def form(self, coding: Coding | None) -> Form:
        """Return the result in a coding, made at most once; a small one is plain in any."""
        if len(self.body) < MINIMUM:
            coding = None
        found = self._forms.get(coding)
        if found is None:
            assert coding is not None
            packed = compress(self.body, coding)
            found = self._forms[coding] = Form(packed, coded_headers(self.headers, coding, len(packed)))
        return found

    def unchanged(self, known: bytes) -> Headers | None:
        """Return the headers of a 304 to who knows ``known`` (If-None-Match), None when this is not among it."""
        if self.etag is None:
            return None
        listed = {each.strip().removeprefix(b"W/") for each in known.split(b",")}
        forms = (self.etag, *(coded_tag(self.etag, coding) for coding in CODINGS))
        held = next((each for each in forms if each in listed), self.etag if b"*" in listed else None)
        if held is None:
            return None
        return [(b"etag", held), *(each for each in self.headers if each[0] not in (b"content-type", b"etag"))]

    @property
    def size(self) -> int:
        """Bytes that it takes at most, compressed forms included."""
        return len(self.body) * (1 + len(CODINGS) if len(self.body) >= MINIMUM else 1) + _OVERHEAD


def head(media_type: str, generation: int, *, keep: bool) -> Headers:
    """Return what the headers of every form of a result begin with."""
    return [
        (b"content-type", _content_type(media_type)),
        (b"x-drumlin-generation", b"%d" % generation),
        (b"cache-control", b"no-cache" if keep else b"no-store"),
        (b"vary", b"Accept, Accept-Encoding"),
    ]


@cache  # of a media type that is offered
def _content_type(media_type: str) -> bytes:
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
            self.bytes -= old.size
        self._entries[key] = made
        self.bytes += made.size
        while self.bytes > self._limit:
            _, gone = self._entries.popitem(last=False)
            self.bytes -= gone.size
