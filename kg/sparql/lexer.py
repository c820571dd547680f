r"""SPARQL text → tokens, as the engine would cut it. Grammar: https://www.w3.org/TR/sparql11-query/#sparqlGrammar.

The engine's parser has no lexer of its own: it tries its grammar's alternatives in order and needs no blank between two keywords
(``SELECTDISTINCT``, ``?s ?p trueSERVICE <x> {…}``). A text is refused here wherever its reading could differ: a bare word
must be a known one, a prefix must not be readable as a keyword where the grammar wants one, and ``?a<b>`` is not allowed to
hide anything. So what the gate counts is what the engine sees. ``\uXXXX`` is decoded by the engine inside strings and IRIs
only, never before parsing, so it cannot spell a keyword or a bracket.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from drumlin.kg.errors import QueryRejected

_BASE = (
    r"A-Za-z\u00C0-\u00D6\u00D8-\u00F6\u00F8-\u02FF\u0370-\u037D\u037F-\u1FFF\u200C-\u200D\u2070-\u218F"
    r"\u2C00-\u2FEF\u3001-\uD7FF\uF900-\uFDCF\uFDF0-\uFFFD\U00010000-\U000EFFFF"
)
_CHARS = rf"{_BASE}_\-0-9\u00B7\u0300-\u036F\u203F-\u2040"
_PLX = r"%[0-9A-Fa-f]{2}|\\[_~.\-!$&'()*+,;=/?#@%]"
_PREFIX = (
    rf"(?:[{_BASE}](?:[{_CHARS}.]{{0,254}}[{_CHARS}])?)?"  # bounded: a text of dots must not be scanned again and again
)
_LOCAL = rf"(?:(?:[{_BASE}_:0-9]|{_PLX})(?:(?:[{_CHARS}.:]|{_PLX})*(?:[{_CHARS}:]|{_PLX}))?)?"
_ESCAPED = r"\\(?:[tbnrf\\\"']|u[0-9A-Fa-f]{4}|U[0-9A-Fa-f]{8})"
_LONG = rf'"""(?:"{{0,2}}(?:[^"\\]|{_ESCAPED}))*+"""|' + rf"'''(?:'{{0,2}}(?:[^'\\]|{_ESCAPED}))*+'''"
_SHORT = rf'(?!""")"(?:[^"\\\r\n]|{_ESCAPED})*+"|' + rf"(?!''')'(?:[^'\\\r\n]|{_ESCAPED})*+'"

# Alternatives in order: the longest reading of each place comes first. Every repetition is possessive or bounded by its
# last character, so that the scan is linear.
_TOKEN = re.compile(
    "|".join(
        (
            r"(?P<space>[ \t\r\n]++|#[^\r\n]*+)",
            rf"(?P<string>{_LONG}|{_SHORT})",
            r'(?P<iri><(?:[^<>"{}|^`\\\x00-\x20]|\\u[0-9A-Fa-f]{4}|\\U[0-9A-Fa-f]{8})*+>)',
            rf"(?P<variable>[?$][{_BASE}_0-9][{_BASE}_0-9\u00B7\u0300-\u036F\u203F-\u2040]*+)",
            rf"(?P<blank>_:[{_BASE}_0-9](?:[{_CHARS}.]*[{_CHARS}])?)",
            rf"(?P<name>(?P<prefix>{_PREFIX}):{_LOCAL})",
            r"(?P<tag>@[A-Za-z]+(?:-[A-Za-z0-9]+)*(?:--[A-Za-z]+)?)",
            r"(?P<number>(?:[0-9]+\.[0-9]*[eE][+-]?[0-9]+|\.?[0-9]+[eE][+-]?[0-9]+|[0-9]*\.[0-9]+|[0-9]+))",
            r"(?P<word>[A-Za-z][A-Za-z0-9_]*+)",
            r"(?P<sign>\{\||\|\}|<<|>>|&&|\|\||!=|<=|>=|\^\^|[{}()\[\].,;=<>!|/^*+?\-~])",
        )
    )
)

_WORDS = """
A BASE PREFIX VERSION SELECT DISTINCT REDUCED AS CONSTRUCT WHERE DESCRIBE ASK FROM NAMED GROUP BY HAVING ORDER ASC DESC LIMIT
OFFSET VALUES UNDEF OPTIONAL LATERAL GRAPH UNION MINUS FILTER BIND SERVICE SILENT EXISTS NOT IN TRUE FALSE COUNT SUM MIN
MAX AVG SAMPLE GROUP_CONCAT SEPARATOR STR LANG LANGMATCHES LANGDIR HASLANG HASLANGDIR STRLANGDIR DATATYPE BOUND IRI URI BNODE
RAND ABS CEIL FLOOR ROUND CONCAT SUBSTR STRLEN REPLACE UCASE LCASE ENCODE_FOR_URI CONTAINS STRSTARTS STRENDS STRBEFORE
STRAFTER YEAR MONTH DAY HOURS MINUTES SECONDS TIMEZONE TZ NOW UUID STRUUID MD5 SHA1 SHA256 SHA384 SHA512 COALESCE IF STRLANG STRDT
SAMETERM ISIRI ISURI ISBLANK ISLITERAL ISNUMERIC ISTRIPLE REGEX TRIPLE SUBJECT PREDICATE OBJECT ADJUST SAMEVALUE
LOAD CLEAR DROP CREATE ADD MOVE COPY TO INTO INSERT DELETE DATA WITH USING DEFAULT ALL
"""
WORDS = frozenset(_WORDS.split())
"""Every bare word of SPARQL 1.2 (https://www.w3.org/TR/sparql12-query/) and Update, in upper case."""

BRACKETS = {"{": "}", "(": ")", "[": "]", "<<": ">>", "{|": "|}"}
"""What opens, and what closes it."""
_CLOSING = frozenset(BRACKETS.values())


class Token(NamedTuple):
    """One token; ``text`` of a word is in upper case. ``kind`` is the group's name above."""

    kind: str
    text: str
    start: int
    prefix: str = ""


def tokens(text: str) -> Iterator[Token]:
    """Cut a text into tokens, blanks and comments left out; raises ``QueryRejected`` where no token begins."""
    position = 0
    for match in _TOKEN.finditer(text):
        if match.start() != position:
            break
        position = match.end()
        kind = match.lastgroup or ""
        if kind == "space":
            continue
        if kind == "word":
            yield Token(kind, match[0].upper(), match.start())
        else:
            yield Token(kind, match[0], match.start(), match["prefix"] or "")
    if position != len(text):
        raise rejected("the text cannot be read", text, position, text[position : position + 10])


def outermost(text: str) -> Iterator[Token]:
    """Cut a text that passed the gate into those tokens that stand in no bracket."""
    depth = 0
    for token in tokens(text):
        if token.kind == "sign" and token.text in BRACKETS:
            depth += 1
        elif token.kind == "sign" and token.text in _CLOSING:
            depth -= 1
        elif depth == 0:
            yield token


def place(text: str, position: int) -> tuple[int, int]:
    """Return line and column, both counted from 1."""
    return text.count("\n", 0, position) + 1, position - text.rfind("\n", 0, position)


def token_at(text: str, line: int, column: int) -> str:
    """Return the token at a place of a text that can be cut into tokens, the last one behind its end; 40 characters at most."""
    position = sum(len(each) + 1 for each in text.split("\n")[: line - 1]) + column - 1
    last = ""
    for token in tokens(text):
        last = token.text[:40]
        if token.start + len(token.text) > position:
            break
    return last


def rejected(
    message: str, text: str, position: int, token: str, *, reason: str = "syntax", hint: str | None = None
) -> QueryRejected:
    """Make the error for one place of a text; the message says where, ``detail`` too."""
    line, column = place(text, position)
    return QueryRejected(
        f"{message} at line {line}, column {column}",
        reason=reason,
        hint=hint,
        detail={"line": line, "column": column, "token": token[:40]},
    )
