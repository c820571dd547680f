"""Standard streams as this command line uses them: UTF-8, or ASCII with escapes where the locale is another one; never an error.

Apart from ``output`` because every command needs it at once, and tables are drawn by few.
"""

from __future__ import annotations

import codecs
import io
import os
import re
import sys
from typing import TextIO

_CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u200e\u200f\u202a-\u202e\u2066-\u2069]")
"""What moves a terminal's cursor, begins an escape sequence (ESC, CSI, OSC), or turns the direction of text; not tab and line feed."""
ESCAPED, _PLAIN = "drumlin-escaped", "drumlin-plain"
_ASCII = {
    "…": "...",
    "·": "-",
    "→": "->",
    "×": "x",
    "–": "-",
    "—": "-",
    "≥": ">=",
    "≤": "<=",
    "’": "'",
    "“": '"',
    "”": '"',
}
"""What our own messages have beyond ASCII, and what stands for it there."""


def visible(text: str) -> str:
    r"""Write control characters as ``\u001b``: names, labels and log lines come from others, and may not command a terminal.

    Inside a JSON string the result means the same. ECMA-48: https://ecma-international.org/publications-and-standards/standards/ecma-48/
    """
    return _CONTROLS.sub(lambda found: f"\\u{ord(found[0]):04x}", text)


# -- encodings --------------------------------------------------------------------------------------------------------------


def _escaped(error: UnicodeError) -> tuple[str, int]:
    r"""Write what ASCII has not as JSON does (``\u2026``), half a surrogate pair too."""
    assert isinstance(error, UnicodeEncodeError)
    units = error.object[error.start : error.end].encode("utf-16-be", "surrogatepass")
    pairs = (units[place : place + 2] for place in range(0, len(units), 2))
    return "".join(f"\\u{each.hex()}" for each in pairs), error.end


def _plain(error: UnicodeError) -> tuple[str, int]:
    """Write the signs of our own messages as ASCII has them, and escape the rest."""
    assert isinstance(error, UnicodeEncodeError)
    known = _ASCII.get(error.object[error.start])
    return (known, error.start + 1) if known is not None else _escaped(_only_first(error))


def _only_first(error: UnicodeEncodeError) -> UnicodeEncodeError:
    return UnicodeEncodeError(error.encoding, error.object, error.start, error.start + 1, error.reason)


codecs.register_error(ESCAPED, _escaped)
codecs.register_error(_PLAIN, _plain)


def is_utf8(stream: TextIO) -> bool:
    """Return whether a stream is written in UTF-8."""
    return codecs.lookup(stream.encoding or "ascii").name == "utf-8"


def ready_streams() -> None:
    """Make stdout and stderr take every text: they are there, and are UTF-8, or ASCII where the locale is another one."""
    for name in ("stdin", "stdout", "stderr"):
        if getattr(sys, name) is None:  # closed by the caller: `drumlin list >&-`
            setattr(sys, name, open(os.devnull, "r" if name == "stdin" else "w", encoding="utf-8"))  # noqa: SIM115, PTH123
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper):
            if is_utf8(stream):
                stream.reconfigure(errors=ESCAPED)
            else:
                stream.reconfigure(encoding="ascii", errors=_PLAIN)
