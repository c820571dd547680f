"""A caller's JSON-LD made safe to parse: bounded, our context in the place of each name that it has, and nothing is ever fetched.

Every other remote context is refused. Apart from ``kg.rdf.jsonld`` because it reads what anybody may send: no parser sees such a document
before it went through here or through ``kg.rdf.context_reader``, which takes nothing but plain ones.

Terms: JSON-LD 1.1, https://www.w3.org/TR/json-ld11/.
"""

from __future__ import annotations

import json
import math
import re
from functools import partial
from typing import Any

import msgspec

from drumlin.kg.errors import InvalidDocument, TooLarge
from drumlin.kg.model.iris import CONTEXT_PATH
from drumlin.kg.rdf import json_literals
from drumlin.kg.rdf.jsonld import CONTEXT_IRI, context_value

MAX_BYTES = 1024 * 1024
MAX_DEPTH = 32

# A string that never ends matches to the end of the text, so the scan stays linear whatever is sent.
_BRACKETS = re.compile(rb'"(?:[^"\\]|\\(?:.|\Z))*+(?:"|\Z)|([\[{])|([\]}])', re.DOTALL)


def inline(
    data: bytes, *, served: str = CONTEXT_IRI, max_bytes: int = MAX_BYTES, default: str | None = CONTEXT_IRI
) -> bytes:
    """Make a caller's JSON-LD safe to parse: bounded, with our context inline and no other remote one.

    ``served`` is the address of our context (``Iris.context``), read like its well-known name. A document without any
    ``@context`` is read with ``default``: ours, so plain JSON works; None for a foreign one, which means what JSON-LD says.
    Raises ``TooLarge`` (bytes), and ``InvalidDocument`` for depth, malformed JSON, a duplicate key or a remote context.
    """
    if len(data) > max_bytes:
        raise TooLarge(f"the document has {len(data):,} bytes; the limit is {max_bytes:,}")
    if (depth := nesting(data)) > MAX_DEPTH:
        raise InvalidDocument(f"the document is nested {depth} levels deep; the limit is {MAX_DEPTH}")
    try:
        # Decoded here: json would also take UTF-16, whose bytes ``nesting`` cannot read.
        document = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_finite, parse_float=_finite)
    except ValueError as error:
        raise InvalidDocument(f"the document is not JSON: {error}") from error
    if isinstance(document, dict) and default is not None and "@context" not in document:
        document = {"@context": default, **document}
    elif not isinstance(document, dict | list):
        raise InvalidDocument("a JSON-LD document is an object or an array of objects")
    # What may say that a value is a JSON literal: the keyword, or an escape that could be a part of it.
    if b"json" in data or b"\\u" in data:
        document = json_literals.replaced(document, partial(_local, served=served))
    else:
        document = _substitute(document, served)
    try:
        return msgspec.json.encode(document)
    except UnicodeEncodeError as error:  # half of a surrogate pair, written as an escape
        raise InvalidDocument("the document is not JSON: a string in it is not valid Unicode") from error


def _finite(text: str) -> float:
    """Read a number; what no JSON number can hold would silently become null."""
    number = float(text)
    if not math.isfinite(number):
        raise ValueError(f"{text} is not a number of JSON, or too large")
    return number


def nesting(data: bytes) -> int:
    """Return how deep JSON text is nested, without parsing it (strings are skipped)."""
    depth = deepest = 0
    for match in _BRACKETS.finditer(data):
        if match[1]:
            depth += 1
            deepest = max(deepest, depth)
        elif match[2]:
            depth -= 1
    return deepest


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    document = dict(pairs)
    if len(document) < len(pairs):
        seen: set[str] = set()
        double = next(key for key, _ in pairs if key in seen or seen.add(key))  # type: ignore[func-returns-value]  # that it returns None is meant
        raise InvalidDocument(f"the key {double!r} stands twice in one object")
    return document


def _substitute(value: Any, served: str) -> Any:
    if isinstance(value, list):
        return [_substitute(each, served) for each in value]
    if not isinstance(value, dict):
        return value
    return {
        key: _local(each, served) if key == "@context" else _substitute(each, served) for key, each in value.items()
    }


def _local(context: Any, served: str) -> Any:
    if isinstance(context, list):
        return [_local(each, served) for each in context]
    if context in (CONTEXT_IRI, served):
        return context_value()
    if isinstance(context, str):
        raise _remote(context, served)
    if isinstance(context, dict):
        if "@import" in context:
            raise InvalidDocument("@import in a context is not allowed: nothing is fetched because a document says so")
        return {key: _scoped(each, served) for key, each in context.items()}
    return context


def _remote(context: str, served: str) -> InvalidDocument:
    """Return the error of a context that would have to be fetched."""
    same = context.endswith(CONTEXT_PATH)  # the one that another service serves
    return InvalidDocument(
        f"the remote context {context[:200]!r} is not allowed: nothing is fetched because a document says so",
        hint=f"name {served}, the address of that context here"
        if same
        else f"use {served} or write the context into the document",
    )


def _scoped(meaning: Any, served: str) -> Any:
    if isinstance(meaning, dict) and "@context" in meaning:
        return {**meaning, "@context": _local(meaning["@context"], served)}
    return meaning
