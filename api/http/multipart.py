"""``multipart/form-data`` with RDF documents in it (RFC 7578): each part has a Content-Type, or a file name that shows its syntax.

``application/octet-stream`` names no syntax: curl sends it for every file whose ending it does not know, as ``.ttl``. Parts are cut at
their delimiters and counted before anything looks at them.
"""

from __future__ import annotations

import binascii
import quopri
import re
from collections.abc import Mapping
from typing import NamedTuple
from urllib.parse import unquote

from drumlin.api.http.negotiation import sent_syntax
from drumlin.kg.errors import InvalidDocument, TooLarge, UnsupportedSyntax
from drumlin.kg.rdf.syntax import SYNTAXES, Syntax

MAX_PARTS = 100
_HEADERS_BYTES = 8192
_BOUNDARY = re.compile(r';\s*boundary=(?:"([^"]{1,70})"|([^\s;"]{1,70})(?=[\s;]|\Z))', re.IGNORECASE)


class DocumentPart(NamedTuple):
    """One document of a request."""

    syntax: Syntax
    content: bytes


def parts_of(content_type: str, body: bytes) -> list[DocumentPart]:
    """Take a form apart; raises ``InvalidDocument`` when it is malformed, ``UnsupportedSyntax`` for a part that is not RDF.

    Raises ``TooLarge`` for more than ``MAX_PARTS`` parts, and for one whose headers are too long.
    """
    return [_part(each) for each in _cut(body, _boundary(content_type))]


def _boundary(content_type: str) -> bytes:
    found = _BOUNDARY.search(content_type)
    if found is None:
        raise _malformed()
    return (found[1] or found[2]).encode("latin-1", "replace")


def _cut(body: bytes, boundary: bytes) -> list[bytes]:
    """Return the parts between the delimiters (https://www.rfc-editor.org/rfc/rfc2046#section-5.1.1), each with its headers."""
    delimiter = re.compile(rb"(?:\A|\r?\n)--" + re.escape(boundary) + rb"(--)?[ \t]*+(?=\r?\n|\Z)")
    parts: list[bytes] = []
    start: int | None = None
    for match in delimiter.finditer(body):
        if start is not None:
            parts.append(body[start : match.start()])
        if match[1] and parts:
            return parts
        if match[1]:
            break
        if len(parts) == MAX_PARTS:
            raise TooLarge(
                f"a form has at most {MAX_PARTS} parts", hint="send several requests", detail={"limit": MAX_PARTS}
            )
        start = match.end()
    raise _malformed()


def _malformed() -> InvalidDocument:
    return InvalidDocument("the form has no parts, or its boundary is missing")


def _part(sent: bytes) -> DocumentPart:
    """Read one part: the end of its delimiter's line, its headers, an empty line and its content."""
    found = re.match(rb"\r?\n(?:(?=\r?\n)|((?s:.)*?)(?=\r?\n\r?\n)\r?\n)", sent[: _HEADERS_BYTES + 8])
    if found is None:
        if len(sent) > _HEADERS_BYTES:
            raise TooLarge(f"a part of the form has headers of more than {_HEADERS_BYTES:,} bytes")
        raise _malformed()
    headers = _headers(found[1] or b"")
    content = re.sub(rb"\A\r?\n", b"", sent[found.end() :])
    content_type = headers.get("content-type")
    if content_type and content_type.lower().startswith("multipart/"):
        raise InvalidDocument("a part of the form has parts itself")
    return DocumentPart(
        _syntax(content_type, _file_name(headers.get("content-disposition", ""))), _decoded(headers, content)
    )


def _headers(text: bytes) -> dict[str, str]:
    """Return header fields by their names in lower case; a line that begins with white space continues the one before it."""
    found: dict[str, str] = {}
    for line in re.split(r"\r?\n(?![ \t])", text.decode("utf-8", "replace")):
        name, _, value = line.partition(":")
        found[name.strip().lower()] = " ".join(value.split())
    return found


def _file_name(disposition: str) -> str | None:
    """Return the file name of a Content-Disposition (RFC 6266)."""
    if extended := re.search(r";\s*filename\*\s*=\s*[A-Za-z0-9-]*'[^']*'([^;\s]*)", disposition, re.IGNORECASE):
        return unquote(extended[1])
    found = re.search(r';\s*filename\s*=\s*(?:"((?:[^"\\]|\\.)*+)"|([^;\s]*))', disposition, re.IGNORECASE)
    return (found[1] or found[2]) if found else None


def _decoded(headers: Mapping[str, str], content: bytes) -> bytes:
    """Return the content without its Content-Transfer-Encoding, which RFC 7578 deprecates and some clients still send."""
    encoding = headers.get("content-transfer-encoding", "binary").lower()
    if encoding == "quoted-printable":
        return quopri.decodestring(content)
    if encoding != "base64":
        return content
    try:
        return binascii.a2b_base64(content)
    except binascii.Error as error:
        raise InvalidDocument("a part of the form is not base64, as its Content-Transfer-Encoding says") from error


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
