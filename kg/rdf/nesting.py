"""Limits on what RDF text may ask of the engine's parsers: nesting, and XML document types.

The parsers are native code. A few thousand triple terms inside one another overflow their stack, which ends the process; elements of
RDF/XML take time quadratic in their depth; entities of a document type expand to any size. So text is scanned before a parser gets it, in
linear time. The scan cuts text into the tokens of the engine's lexer (strings, IRIs, comments and escapes can hold brackets). Wherever
the two disagree, the text is malformed and the parser stops there. JSON-LD is limited by ``kg.rdf.jsonld_loader``.
"""

from __future__ import annotations

import re
from typing import Protocol
from xml.parsers import expat

from drumlin.kg.errors import InvalidDocument

MAX_NESTING = 100
"""Triple terms, collections, blank nodes, annotations and graphs inside one another; for RDF/XML, elements."""
MAX_ATTRIBUTES = 1000
"""Attributes of one XML element: the engine takes time quadratic in them."""
LONGEST_TOKEN = 16 << 20
"""Bytes of the longest literal, IRI or comment in a stream: the engine's own limit."""
_PIECE = 256 << 10  # bytes read from a stream at once

_LONG = rb'"""(?:[^"\\]++|\\.|"(?!""))*+"""|' + rb"'''(?:[^'\\]++|\\.|'(?!''))*+'''"
_SHORT = rb'"(?!"")(?:[^"\\]++|\\.)*+"|' + rb"'(?!'')(?:[^'\\]++|\\.)*+'"
_TOKEN = re.compile(
    b"|".join(
        (
            rb"(?P<opens><<\(?|\{\|?|[(\[])",
            rb"(?P<closes>\)>>|>>|\|\}|[)\]}])",
            # ``<=`` and ``<-`` are operators of N3, where they do not begin an IRI
            rb'<(?![=-])[^<>"{}|^`\x00-\x20]*+>',
            _LONG,
            _SHORT,
            rb"#[^\r\n]*+",
            rb"\\.",
            rb"(?P<unclosed>[\"'])",
        )
    ),
    re.DOTALL,
)
_JSON_TOKEN = re.compile(rb'(?P<opens>[\[{])|(?P<closes>[\]}])|"(?:[^"\\]++|\\.)*+"|(?P<unclosed>")', re.DOTALL)
_TRIPLE_TERM = b"<<("
_OPENING = (b"<<", b"(", b"[", b"{")
_ONE_LINE = ("ntriples", "nquads")  # syntaxes with a statement a line, in which nothing but triple terms can be nested
_DEEPEST_JSON = 5 + 2 * MAX_NESTING  # levels around a term of a SPARQL result, and those of a triple term


class Readable(Protocol):
    """What a parser reads a stream from."""

    def read(self, size: int = -1, /) -> bytes:
        """Return up to ``size`` bytes; none at the end."""
        ...


def check(data: bytes, syntax: str) -> None:
    """Raise ``InvalidDocument`` when a document of a syntax (its short name) is nested too deeply, or has a document type."""
    if syntax == "rdfxml":
        _check_xml(data)
    elif syntax != "jsonld" and _may_nest(data, syntax):
        _scan(data, 0, 1)


def check_results(data: bytes) -> None:
    """Raise ``InvalidDocument`` when terms in SPARQL Results JSON are nested too deeply."""
    if b'"triple"' in data or b"\\" in data:  # which may be written with escapes
        _scan_results(data, 0, 1)


def checked(stream: Readable, syntax: str) -> CheckedStream:
    """Return a stream of RDF text whose ``read`` raises ``InvalidDocument`` before it gives out what is nested too deeply."""
    return CheckedStream(stream, one_line=syntax in _ONE_LINE)


def checked_results(stream: Readable) -> CheckedStream:
    """Return a stream of SPARQL Results JSON whose ``read`` raises ``InvalidDocument`` likewise."""
    return CheckedStream(stream, json=True)


class CheckedStream:
    """A stream that hands out nothing before it was scanned. A token that is not whole yet waits for the rest of it."""

    def __init__(self, stream: Readable, *, one_line: bool = False, json: bool = False) -> None:
        self._stream = stream
        self._one_line = one_line
        self._json = json
        self._depth = 0
        self._line = 1
        self._scanned = b""
        self._left = b""
        self._ended = False

    def read(self, size: int = -1) -> bytes:
        """Return up to ``size`` bytes (all that were scanned for -1); none at the end."""
        while not self._scanned and not self._ended:
            self._more()
        given = self._scanned if size < 0 else self._scanned[:size]
        self._scanned = self._scanned[len(given) :]
        return given

    def _more(self) -> None:
        # As much again as waits, so that a long token is not scanned anew for each piece of it.
        piece = self._stream.read(max(_PIECE, len(self._left)))
        self._ended = not piece
        data = self._left + piece
        end = len(data) if self._ended or self._json else max(data.rfind(b"\n"), data.rfind(b"\r")) + 1
        text = data[:end]  # ends between two tokens, unless a string goes on
        if self._json:
            stop, self._depth = _scan_results(text, self._depth, self._line)
        elif self._one_line and _TRIPLE_TERM not in text:
            stop = end
        else:
            stop, self._depth = _scan(text, self._depth, self._line)
        if self._ended:
            stop = end  # what is not closed now never will be: the parser says so
        self._scanned, self._left = data[:stop], data[stop:]
        self._line += self._scanned.count(b"\n")
        if len(self._left) > LONGEST_TOKEN:
            raise InvalidDocument(f"a line or a literal is longer than {LONGEST_TOKEN >> 20} MB", hint="split it")


def _may_nest(data: bytes, syntax: str) -> bool:
    """Return whether there are brackets enough; counting them takes a hundredth of the time of a scan."""
    opening = (_TRIPLE_TERM,) if syntax in _ONE_LINE else _OPENING
    return sum(map(data.count, opening)) > MAX_NESTING


def _scan(data: bytes, depth: int, line: int) -> tuple[int, int]:
    """Scan text of the Turtle family, which begins at a depth and on a line.

    Returns where a string begins that does not end in it (else its length), and the depth there.
    """
    return _follow(_TOKEN, data, depth, MAX_NESTING, ("terms are nested", line))


def _scan_results(data: bytes, depth: int, line: int) -> tuple[int, int]:
    return _follow(_JSON_TOKEN, data, depth, _DEEPEST_JSON, ("triple terms are nested", line))


def _follow(token: re.Pattern[bytes], data: bytes, depth: int, deepest: int, what: tuple[str, int]) -> tuple[int, int]:
    for match in token.finditer(data):
        kind = match.lastgroup
        if kind is None:
            continue
        if kind == "unclosed":
            return match.start(), depth
        if kind == "closes":
            depth = max(0, depth - 1)
        else:
            depth += 1
            if depth > deepest:
                raise _too_deep(what[0], what[1] + data.count(b"\n", 0, match.start()))
    return len(data), depth


def _too_deep(what: str, line: int) -> InvalidDocument:
    return InvalidDocument(
        f"{what} more than {MAX_NESTING} levels deep at line {line}",
        hint=f"at most {MAX_NESTING} levels: name the inner nodes with IRIs or labels, and say each by itself",
        detail={"line": line, "limit": MAX_NESTING},
    )


# -- RDF/XML --------------------------------------------------------------------------------------------------------------
def _check_xml(data: bytes) -> None:
    """Read the elements with expat, as UTF-8 whatever the document declares: the engine reads nothing else.

    https://www.w3.org/TR/xml/: a document that expat accepts is well-formed, so that the engine cannot read another one out of it.
    """
    if not data.strip():
        return  # an empty document has no statements, in any syntax
    _refuse_other_encodings(data)
    reader = expat.ParserCreate("utf-8")
    depth = 0

    def begins(_name: str, attributes: list[str]) -> None:
        nonlocal depth
        depth += 1
        if depth > MAX_NESTING:
            raise _too_deep("elements are nested", reader.CurrentLineNumber)
        if len(attributes) > 2 * MAX_ATTRIBUTES:
            raise InvalidDocument(
                f"an element has more than {MAX_ATTRIBUTES:,} attributes at line {reader.CurrentLineNumber}",
                hint="write properties as elements",
            )

    def ends(_name: str) -> None:
        nonlocal depth
        depth -= 1

    reader.ordered_attributes = True
    reader.StartElementHandler = begins
    reader.EndElementHandler = ends
    reader.StartDoctypeDeclHandler = lambda *_: _refuse_document_type(reader.CurrentLineNumber)
    reader.XmlDeclHandler = lambda _version, encoding, _standalone: _refuse_encoding(encoding)
    try:
        reader.Parse(data, True)
    except expat.ExpatError as error:
        said = expat.errors.messages[error.code] if error.code in expat.errors.messages else str(error)
        where = {"line": error.lineno, "column": error.offset + 1}
        raise InvalidDocument(
            f"the rdfxml document does not parse at line {where['line']}, column {where['column']}: {said}",
            detail=where,
        ) from error


def _refuse_other_encodings(data: bytes) -> None:
    # With these marks or a zero byte among the first four: UTF-16 or UTF-32 (https://www.w3.org/TR/xml/#sec-guessing).
    if data.startswith((b"\xff\xfe", b"\xfe\xff")) or b"\0" in data[:4]:
        raise _not_utf8()


def _refuse_encoding(declared: str | None) -> None:
    if declared is not None and declared.lower() not in ("utf-8", "utf8"):
        raise _not_utf8()


def _not_utf8() -> InvalidDocument:
    return InvalidDocument(
        "an rdfxml document is read in UTF-8 only", hint="send it in UTF-8, and declare no other encoding"
    )


def _refuse_document_type(line: int) -> None:
    raise InvalidDocument(
        f"the rdfxml document declares a document type (DOCTYPE) at line {line}, which is not allowed:"
        " its entities could expand to any size",
        hint="leave <!DOCTYPE …> out, and write what its entities stand for",
        detail={"line": line},
    )
