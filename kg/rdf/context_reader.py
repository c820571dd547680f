"""A client's document read without a JSON-LD processor, N-Triples without a parser, where both surely come to the same.

Most documents that are sent look like those that are served: they use the terms of our context and nothing else. Reading such a one takes
a tenth of what the processor takes. Whatever is not certain (another context, a key that may occur twice, what ``kg.rdf.jsonld`` is not
certain of) is left to the processor, which also says what is wrong. Likewise N-Triples in canonical form are lines already.

JSON-LD 1.1, https://www.w3.org/TR/json-ld11/; canonical N-Triples, https://www.w3.org/TR/n-triples/#canonical-ntriples.
"""

from __future__ import annotations

from typing import Any

import msgspec

from drumlin.kg.rdf import jsonld
from drumlin.kg.rdf.canonical import surely_canonical
from drumlin.kg.rdf.syntax import Facts, Lines, facts_of

_LOOSE = (b" :", b"\t:", b"\n:", b"\r:")


def triples(data: bytes) -> tuple[Lines, Facts] | None:
    """Read N-Triples as lines in the form of the engine, with what they say by subject, or return None where that is not certain."""
    try:
        text = data.decode()
    except UnicodeDecodeError:
        return None
    if not text or not surely_canonical(text):
        return None
    found = text[:-1].split("\n")
    return frozenset(found), facts_of(found)


def lines(
    data: bytes, served: str = jsonld.CONTEXT_IRI, default: str | None = jsonld.CONTEXT_IRI
) -> tuple[Lines, Facts] | None:
    """Read a document as lines in the form of the engine, with what they say by subject, or return None where that is not certain.

    ``served`` is the address of our context (``Iris.context``), which a document may name instead of the well-known one; ``default``
    is the context of a document that has none.
    """
    try:
        document = msgspec.json.decode(data)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        return None
    if not isinstance(document, dict):
        return None
    # No key came twice when it is as long as it was, written anew: nothing but a float gets longer, and none is read here.
    tight = len(msgspec.json.encode(document)) == len(data)
    if document.pop("@context", default) not in (served, jsonld.CONTEXT_IRI, jsonld.context_value()):
        return None
    said = jsonld.read_certain(document)
    return said if tight or (said and _once(data, document)) else None


def _once(data: bytes, document: dict[str, Any]) -> bool:
    """Return whether a document surely has no more keys than were read: one may have come twice."""
    if any(map(data.__contains__, _LOOSE)):
        return False
    return data.count(b'":') == _keys(document) + data.count(b'"@context":')


def _keys(value: Any) -> int:
    """Count the keys of all objects."""
    if type(value) is dict:
        return len(value) + sum(map(_keys, value.values()))
    return sum(map(_keys, value)) if type(value) is list else 0
