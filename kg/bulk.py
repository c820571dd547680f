"""One line of a bulk request (NDJSON): what shall become of one graph."""

from __future__ import annotations

import msgspec

from kg.errors import InvalidDocument
from kg.iris import Iris
from kg.subgraphs import USER, check_owner


class Head(msgspec.Struct, forbid_unknown_fields=True):
    """What of which graph. ``digest``: what it must be now, null when it must not exist, absent when it may be anything."""

    op: str
    id: str
    owner: str = USER
    digest: str | msgspec.UnsetType | None = msgspec.UNSET


class Line(Head):
    """A line as it is sent."""

    document: msgspec.Raw = msgspec.Raw()

    def head(self) -> Head:
        """Return it without the document."""
        return Head(self.op, self.id, self.owner, self.digest)


_decode = msgspec.json.Decoder(Line).decode


def read_line(text: bytes, iris: Iris) -> Line:
    """Read a line; its id becomes the full IRI. Raises ``InvalidDocument`` for what is none, ``InvalidInput`` for a wrong id or owner."""
    try:
        line = _decode(text)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise InvalidDocument(f"the line is not what is expected: {error}") from error
    except RecursionError as error:
        raise InvalidDocument("the line is nested too deeply to be read") from error
    check_owner(line.owner)
    line.id = iris.expand(line.id)
    return line
