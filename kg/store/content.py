"""What a graph holds: the one type for it, from the reader of a document to the change log.

A content is the graph's canonical statements in their order, as one text; its digest and their number go with it. It is immutable,
and equal contents have equal digests. The statements as a set, and the text as the change log keeps it, are made on demand.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import Self

from drumlin.kg.rdf.canonical import canonical
from drumlin.kg.rdf.syntax import Lines, digest_of, lines_in, text_of
from drumlin.kg.store.graph_text import pack, statements_of, unpack


class GraphContent:
    """The content of one graph. ``digest`` is 128 bits in hex, ``statements`` their number."""

    __slots__ = ("_packed", "_text", "digest", "statements")

    def __init__(self, text: str | None, packed: bytes | None, digest: str, statements: int) -> None:
        """Take one of the two forms of the text, with what is known of it; ``of`` and its like are how contents are made."""
        self._text, self._packed = text, packed
        self.digest, self.statements = digest, statements

    @classmethod
    def of(cls, lines: Iterable[str], graph: str) -> Self:
        """Take statements in any spelling of their literals; raises ``InvalidDocument`` for one that cannot be stored in ``graph``."""
        return cls.of_canonical(canonical(frozenset(lines), graph))

    @classmethod
    def of_canonical(cls, lines: Iterable[str]) -> Self:
        """Take statements that are known to be canonical, each once, in any order."""
        return cls.of_text(text_of(lines))

    @classmethod
    def of_text(cls, text: str, digest: str | None = None) -> Self:
        """Take a graph's text (``kg.rdf.syntax.text_of``), with its digest where that is known."""
        return cls(text, None, digest_of(text) if digest is None else digest, statements_of(text))

    @classmethod
    def of_stored(cls, packed: bytes, digest: str) -> Self:
        """Take a text as the change log keeps it, for those who need both forms of it: it need not be packed again."""
        text = unpack(packed)
        return cls(text, packed, digest, statements_of(text))

    @classmethod
    def of_packed(cls, packed: bytes, digest: str, statements: int) -> Self:
        """Take a text as the change log keeps it; it is unpacked when somebody looks at it."""
        return cls(None, packed, digest, statements)

    @property
    def text(self) -> str:
        """The sorted statements with a line feed between two."""
        if self._text is None:
            return unpack(self._packed or b"")  # not kept: it is five times as large
        return self._text

    @property
    def packed(self) -> bytes:
        """The text as the change log keeps it."""
        return pack(self.text) if self._packed is None else self._packed

    @property
    def lines(self) -> Lines:
        """The statements."""
        return lines_in(self.text)

    @property
    def size(self) -> int:
        """About how many bytes of memory it takes."""
        return len(self._packed or b"") if self._text is None else len(self._text)

    @property
    def may_hold_blank_nodes(self) -> bool:
        """False when it surely has none; a literal that looks like one counts too."""
        return "_:" in self.text

    def __contains__(self, line: object) -> bool:
        """Return whether it has a statement, without taking it apart: no statement has a line feed within."""
        return f"\n{line}\n" in f"\n{self.text}\n"

    def __eq__(self, other: object) -> bool:
        return isinstance(other, GraphContent) and other.digest == self.digest

    def __hash__(self) -> int:
        return hash(self.digest)

    def __repr__(self) -> str:
        return f"<{type(self).__name__} {self.digest}, {self.statements} statements>"


EMPTY = GraphContent.of_text("")
"""A graph without statements."""
