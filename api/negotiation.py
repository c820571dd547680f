"""Which representation a client gets: Accept headers (RFC 9110 §12.5.1), ``format=`` and suffixes, Prefer after a write (RFC 7240)."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from functools import lru_cache

from api.problems import NotAcceptable
from kg.errors import UnsupportedSyntax
from kg.rdf import JSONLD, SYNTAXES, Syntax, syntax_named

MAX_ACCEPT = 4096


@dataclass(frozen=True, slots=True)
class _Range:
    type: str
    subtype: str
    quality: float

    def matches(self, media_type: str) -> bool:
        kind, _, sub = media_type.partition("/")
        return self.type in ("*", kind) and self.subtype in ("*", sub)

    @property
    def specificity(self) -> int:
        return (self.type != "*") + (self.subtype != "*")


def _ranges(accept: str) -> list[_Range]:
    found: list[_Range] = []
    for part in accept[:MAX_ACCEPT].split(","):
        name, *parameters = (piece.strip() for piece in part.split(";"))
        kind, slash, subtype = name.lower().partition("/")
        if not slash:
            continue
        quality = 1.0
        for parameter in parameters:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "q":
                try:
                    quality = min(1.0, max(0.0, float(value)))
                except ValueError:
                    quality = 0.0
        found.append(_Range(kind, subtype, quality))
    return found


def choose(accept: str | None, offered: Sequence[str]) -> str:
    """Return the media type of ``offered`` (best first) that the Accept header likes most; raises ``NotAcceptable``.

    The most specific range decides a type's quality; among equals the order of ``offered`` does.
    """
    if not accept or not accept.strip():
        return offered[0]
    ranges = _ranges(accept)
    best, best_quality = None, 0.0
    for media_type in offered:
        matching = [each for each in ranges if each.matches(media_type)]
        if not matching:
            continue
        quality = max(matching, key=lambda each: each.specificity).quality
        if quality > best_quality:
            best, best_quality = media_type, quality
    if best is None:
        raise NotAcceptable(
            f"none of {accept[:200]!r} is offered here",
            hint=f"accept one of {', '.join(offered)}",
            detail={"offered": list(offered)},
        )
    return best


# application/json is JSON-LD under its plain name, for clients that do not care.
JSON_OFFERED = (JSONLD.media_type, "application/json")
"""Media types of JSON-LD."""
_RDF_OFFERED = (*JSON_OFFERED, *(each.media_type for each in SYNTAXES if each is not JSONLD))


def rdf_syntax(accept: str | None, wanted: str | None = None) -> tuple[Syntax, str]:
    """Return the RDF syntax to write and its media type; ``wanted`` (``format=`` or a suffix) wins over Accept."""
    if wanted:
        syntax = named(wanted)
        return syntax, syntax.media_type
    return _known_syntax(accept) if len(accept or "") < _USUAL else _chosen_syntax(accept)


def _chosen_syntax(accept: str | None) -> tuple[Syntax, str]:
    media_type = choose(accept, _RDF_OFFERED)
    return (JSONLD if media_type == "application/json" else syntax_named(media_type)), media_type


_known_syntax = lru_cache(256)(_chosen_syntax)  # clients send few different headers, each again and again
_USUAL = 256  # characters


def named(wanted: str, offered: Sequence[Syntax] = SYNTAXES, *, also: str = "") -> Syntax:
    """Return the RDF syntax that ``format=`` or a suffix names, ``json`` and ``xml`` for short; raises ``NotAcceptable``.

    A blank stands for a + that a client did not percent-encode. ``also`` is another form that is offered there.
    """
    try:
        found = syntax_named({"json": "jsonld", "xml": "rdfxml"}.get(wanted.lower(), wanted.replace(" ", "+")))
    except UnsupportedSyntax:
        found = None
    if found is None or found not in offered:
        names = [*([also] if also else ()), *(each.name for each in offered)]
        raise unnamed(wanted, names, [each.media_type for each in offered])
    return found


def unnamed(wanted: str, names: Iterable[str], offered: Sequence[str]) -> NotAcceptable:
    """Return the error of a ``format=`` that is none of ``names``, which stand for the media types ``offered``."""
    return NotAcceptable(
        f"the format {wanted[:64]!r} is not offered here",
        hint=f"it is one of {', '.join(names)}",
        detail={"offered": list(offered)},
    )


def sent_syntax(content_type: str | None) -> Syntax:
    """Return the RDF syntax of a request's body (``application/json`` is JSON-LD); raises ``UnsupportedSyntax`` (415)."""
    name, _, parameters = (content_type or "").partition(";")
    name = name.strip().lower()
    if not name:
        raise UnsupportedSyntax("the request has no Content-Type", detail={"offered": list(_RDF_OFFERED)})
    charset = [
        part.partition("=")[2].strip(' "').lower()
        for part in parameters.split(";")
        if part.strip().lower().startswith("charset")
    ]
    if charset and charset[0] not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedSyntax(
            f"charset {charset[0]!r} is not offered; send UTF-8", detail={"offered": list(_RDF_OFFERED)}
        )
    return JSONLD if name == "application/json" else syntax_named(name)


@dataclass(frozen=True, slots=True)
class Reply:
    """How a write is answered: with headers alone, or with what the graph holds now. Known before anything is written."""

    wish: str
    syntax: Syntax
    media_type: str

    @classmethod
    def of(cls, prefer: str | None, accept: str | None, sent: Syntax) -> Reply:
        """Read the headers; raises ``NotAcceptable`` when what is preferred cannot be written as what is accepted."""
        wishes = [each.partition(";")[0].partition("=") for each in (prefer or "").split(",")]
        returned = (value.strip(' "').lower() for name, _, value in wishes if name.strip().lower() == "return")
        wish = next(returned, "")
        return cls(wish, *(rdf_syntax(accept) if wish == "representation" else (sent, "")))
