"""The skeleton of a SPARQL text: what is left when the contents of strings, IRIs, integers and comments are taken out.

Two texts with one skeleton have the same tokens but for those contents, so what the gate found for one holds for the other: a job
that sends one query for a thousand entities is scanned once. The masking is one pass of one regular expression, which must begin
and end these tokens where ``kg.sparql.lexer`` does. Where that is not certain there is no skeleton: a backslash (escapes in
strings, IRIs and names), long strings, ``<<`` (which is not ``<`` and an IRI), the marks themselves.
"""

from __future__ import annotations

import re

LONGEST = 8192
"""Characters of the longest text that has a skeleton."""

_MASKED = re.compile(
    r'#[^\r\n]*+|"[^"\r\n]*+"|'
    r"'[^'\r\n]*+'|"
    r'<[^<>"{}|^`\x00-\x20]*+>|'
    # An integer only where a token surely begins and ends: behind a blank or a sign that is in no other token, before one.
    r"(?<=[ \t\r\n(,={])[0-9]++(?=[ \t\r\n),}])"
)
_MARKS = {"#": "\x01", '"': "\x02", "'": "\x02", "<": "\x03"}
_INTEGER = "\x04"
_UNCERTAIN = ("\\", '"""', "'''", "<<", "\x01", "\x02", "\x03", "\x04")


def skeleton(text: str) -> str | None:
    """Return the skeleton of a text, None when there is none."""
    if len(text) > LONGEST or any(each in text for each in _UNCERTAIN):
        return None
    return _MASKED.sub(_mark, text)


def _mark(match: re.Match[str]) -> str:
    return _MARKS.get(match[0][0], _INTEGER)
