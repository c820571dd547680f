"""Ids and documents as a client sends them: whole, or not at all. Apart because every operation on one graph needs both."""

from __future__ import annotations

from collections.abc import Mapping
from math import isfinite
from typing import Any
from urllib.parse import quote

import msgspec

from drumlin.kg.errors import InvalidDocument, InvalidIdentifier, InvalidInput


def in_path(id_or_iri: str) -> str:
    """Write an id into a URL's path: an IRI as one segment; a short id is encoded text already, but for what would end or leave the path.

    Raises ``InvalidIdentifier``.
    """
    whole = "://" in id_or_iri
    text = id_or_iri if whole else id_or_iri.lstrip("/")
    if not {".", ".."}.isdisjoint(text.split("/")):
        raise InvalidIdentifier(f"{id_or_iri!r} has a segment that leads elsewhere")
    try:
        return quote(text, safe="" if whole else "/%")
    except UnicodeEncodeError as error:
        raise InvalidIdentifier(f"{id_or_iri!r} is not valid Unicode") from error


def encoded(text: str | bytes) -> bytes:
    """Write a text as UTF-8; raises ``InvalidInput`` when it is not valid Unicode."""
    try:
        return text.encode() if isinstance(text, str) else text
    except UnicodeEncodeError as error:
        raise InvalidInput("the text is not valid Unicode", hint="it holds half of a surrogate pair") from error


def as_json(document: Mapping[str, Any]) -> bytes:
    """Write a document, or a patch; raises ``InvalidDocument`` for a number that JSON has not, which would go as null."""
    try:
        text = msgspec.json.encode(document)
    except UnicodeEncodeError as error:
        raise InvalidDocument("a text in the document is not valid Unicode") from error
    if b"null" in text and not _is_finite(document):
        raise InvalidDocument("a number in the document is not finite, which JSON has not", hint="leave it out")
    return text


def _is_finite(value: Any) -> bool:
    if isinstance(value, Mapping):
        return all(map(_is_finite, value.values()))
    if isinstance(value, list | tuple):
        return all(map(_is_finite, value))
    return not isinstance(value, float) or isfinite(value)
