"""The id of a request: the client's own when it is sane, else one that no other request has."""

from __future__ import annotations

import itertools
import re
import uuid

_SANE = re.compile(rb"[A-Za-z0-9._-]{1,64}")
_numbers = itertools.count(1)
_process = uuid.uuid4().hex[:20]


def request_id(sent: bytes | None) -> str:
    """Return the id of a request that came with ``sent`` (X-Request-Id)."""
    if sent is not None and _SANE.fullmatch(sent):
        return sent.decode()
    return f"{_process}{next(_numbers):012x}"
