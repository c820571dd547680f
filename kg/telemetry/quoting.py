"""Go string literals and RE2 literals: how a value enters PromQL or LogQL without becoming part of the query.

Apart because both languages share the rule. It was proved on real servers with hundreds of odd values: a JSON string in plain
UTF-8 is a Go string literal (escaped surrogate pairs are not, so nothing beyond ASCII is escaped), and RE2 reads a value
literally once its meta characters are escaped (the set of Go's regexp.QuoteMeta, https://pkg.go.dev/regexp#QuoteMeta).
"""

from __future__ import annotations

import json
from collections.abc import Iterable

from drumlin.kg.errors import InvalidInput

_as_json = json.JSONEncoder(ensure_ascii=False).encode  # json.dumps would make an encoder for each text
_META = {ord(character): f"\\{character}" for character in r"\.+*?()|[]{}^$"}


def quote(text: str) -> str:
    """Write any text as a string literal; raises ``InvalidInput`` for a lone surrogate, which no server can be sent."""
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise InvalidInput("a value is not valid Unicode, so it cannot be part of a query") from error
    return _as_json(text)


def literally(text: str) -> str:
    """Write text as a regular expression that matches it alone."""
    return text.translate(_META)


def any_of(names: Iterable[str]) -> str:
    """Write names as a regular expression that matches exactly these, each once, in order."""
    return "|".join(literally(name) for name in sorted(set(names)))
