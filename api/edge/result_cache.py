"""Results of queries, kept while nothing is written: bounded in bytes, the one used longest ago goes first."""

from __future__ import annotations

import hashlib
from collections import OrderedDict
from collections.abc import Hashable

from drumlin.api.http.asgi import HeaderValues
from drumlin.api.http.compression import MINIMUM, coded, wanted
from drumlin.api.http.etags import CODINGS, Coding, matches
from drumlin.api.http.representations import Whole
from drumlin.api.querying import headers_of

MAX_RESULT = 64 * 1024
"""Bytes of the largest result that is kept; larger ones are streamed."""
_OVERHEAD = 1024  # bytes that a result takes beside its body and its query's text: headers, objects


class CachedResult:
    """A whole result. Its ETag is strong: it names these bytes; one that is not kept has none (it would never be the same again)."""

    def __init__(self, body: bytes, media_type: str, generation: int, *, keep: bool) -> None:
        headers = {**headers_of(generation), **({} if keep else {"Cache-Control": "no-store"})}
        self._etag: str | None = None
        if keep:
            digest = hashlib.blake2b(body, key=media_type.encode()[:64], digest_size=12).hexdigest()
            self._etag = headers["ETag"] = f'"{digest}"'
        self._unchanged = Whole(b"", 304, headers)
        self._forms: dict[Coding | None, Whole] = {None: Whole(body, 200, headers, media_type)}
        self.size = len(body) * (1 + len(CODINGS))
        """Bytes that it takes at most, compressed forms included."""

    def answer(self, asked: HeaderValues) -> Whole:
        """Return the answer to a request with the headers ``asked``; each compressed form is made once."""
        known = asked.get(b"if-none-match")
        if known is not None and self._etag is not None and matches(known.decode("latin-1"), self._etag):
            return self._unchanged
        accepted = asked.get(b"accept-encoding")
        whole = self._forms[None]
        if accepted is None or len(whole.body) < MINIMUM or (coding := wanted(accepted)) is None:
            return whole
        if coding not in self._forms:
            form = self._forms[coding] = Whole()
            form.raw_headers, form.body = coded(whole.raw_headers, bytes(whole.body), coding)
        return self._forms[coding]


Key = tuple[str, Hashable]
"""The text of a query, and what else decides about its result."""


class ResultCache:
    """Results of one generation, up to ``limit`` bytes with the texts of their queries. For one thread."""

    def __init__(self, limit: int) -> None:
        self._limit = limit
        self._results: OrderedDict[Key, CachedResult] = OrderedDict()
        self._generation = -1
        self.bytes = 0

    def get(self, generation: int, key: Key) -> CachedResult | None:
        """Return the result of a query at a generation."""
        if generation != self._generation or (found := self._results.get(key)) is None:
            return None
        self._results.move_to_end(key)
        return found

    def put(self, generation: int, key: Key, result: CachedResult) -> None:
        """Keep a result. Those of older generations go: nobody can ask for them again."""
        if generation < self._generation:
            return
        if generation > self._generation:
            self._results.clear()
            self._generation, self.bytes = generation, 0
        if (old := self._results.pop(key, None)) is not None:
            self.bytes -= _size(key, old)
        self._results[key] = result
        self.bytes += _size(key, result)
        while self.bytes > self._limit:
            self.bytes -= _size(*self._results.popitem(last=False))


def _size(key: Key, result: CachedResult) -> int:
    return len(key[0]) + result.size + _OVERHEAD
