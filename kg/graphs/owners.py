"""The owners of graphs: who writes one, and how a request names the owner that it writes as.

An owner stands in a header, never in a body: a web page's form can send any body, and no header of its own.
"""

from __future__ import annotations

import re
from collections.abc import Sequence
from functools import lru_cache
from urllib.parse import quote, unquote_to_bytes

from drumlin.kg.errors import InvalidInput

USER = "user"
"""The owner of a write that names none."""
HOSTING = "drumlin"
"""The owner of the graphs that Drumlin itself writes; those of a follower begin with it and a colon."""
HEADER = "X-Drumlin-Owner"
HINT = f"name the owner of all writes of a request in its header {HEADER}"
_OWNER = re.compile(r"[^\x00-\x1f\x7f]{1,200}")
_AS_IT_IS = "!#$&'()*+,/:;=?@[]"  # all else of an owner's name, which may be any text, is percent-encoded in a header


def agent_owner(guid: str) -> str:
    """Return the owner of what an agent writes."""
    return f"agent:{guid}"


def is_hosting(owner: str) -> bool:
    """Return whether an owner is one of hosting graphs: Drumlin itself, or a follower."""
    return owner == HOSTING or owner.startswith(f"{HOSTING}:")


def check_owner(owner: str) -> None:
    """Raise ``InvalidInput`` when a name cannot be that of an owner."""
    if not _OWNER.fullmatch(owner):
        raise InvalidInput(
            f"{owner[:64]!r} is no owner", hint="1 to 200 characters, and none of them a control character"
        )


@lru_cache(256)
def to_header(owner: str) -> str:
    """Write an owner as the value of ``HEADER``."""
    return quote(owner, safe=_AS_IT_IS)


def from_headers(values: Sequence[bytes]) -> str:
    """Return the owner that the ``HEADER`` lines of a request name, ``USER`` when there is none; raises ``InvalidInput``."""
    if not values:
        return USER
    if len(values) > 1:
        raise InvalidInput(f"{HEADER} is given {len(values)} times", hint="one request writes for one owner")
    try:
        owner = unquote_to_bytes(values[0]).decode()
    except UnicodeDecodeError as error:
        raise InvalidInput(f"{HEADER} is not UTF-8", hint="percent-encode it as UTF-8") from error
    check_owner(owner)
    return owner
