"""``multipart/form-data`` with RDF documents in it (RFC 7578): each part has a Content-Type, or a file name that tells its syntax.

``application/octet-stream`` is none: curl says it of every file whose ending it does not know, as ``.ttl``.
"""

from __future__ import annotations

from email.errors import MessageError
from email.parser import BytesParser
from email.policy import HTTP
from typing import NamedTuple

from api.negotiation import sent_syntax
from kg.errors import InvalidDocument, UnsupportedSyntax
from kg.rdf import SYNTAXES, Syntax

MAX_PARTS = 100


class Part(NamedTuple):
    """One document of a request."""

    syntax: Syntax
    content: bytes


def parts_of(content_type: str, body: bytes) -> list[Part]:
    """Take a form apart; raises ``InvalidDocument`` when it is none, ``UnsupportedSyntax`` for a part that is not RDF."""
    head = f"Content-Type: {content_type}\r\n\r\n".encode("latin-1")
    try:
        message = BytesParser(policy=HTTP).parsebytes(head + body)
    except MessageError as error:
        raise InvalidDocument(f"the form cannot be read: {error}") from error
    if not message.is_multipart() or message.defects:
        raise InvalidDocument("the form has no parts, or its boundary is missing")
    found = list(message.iter_parts())
    if len(found) > MAX_PARTS:
        raise InvalidDocument(f"a form has at most {MAX_PARTS} parts")
    return [
        Part(_syntax(each.get("Content-Type"), each.get_filename()), _content(each.get_payload(decode=True)))
        for each in found
    ]


def _content(payload: object) -> bytes:
    if not isinstance(payload, bytes):
        raise InvalidDocument("a part of the form has parts itself")
    return payload


def _syntax(content_type: str | None, name: str | None) -> Syntax:
    if content_type and content_type != "application/octet-stream":
        return sent_syntax(content_type)
    found = next((each for each in SYNTAXES if name and name.lower().endswith(each.suffix)), None)
    if found is None:
        raise UnsupportedSyntax(
            "a part of the form has neither a Content-Type nor a file name that tells its syntax",
            detail={"offered": [each.media_type for each in SYNTAXES]},
        )
    return found
