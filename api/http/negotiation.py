"""Which representation a client gets: Accept headers (RFC 9110 §12.5.1), ``format=`` and suffixes, Prefer after a write (RFC 7240)."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from functools import lru_cache
from operator import attrgetter
from types import MappingProxyType

from drumlin.api.http.header_lists import elements, parameters
from drumlin.kg.errors import NotAcceptable, UnsupportedSyntax
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, SYNTAXES, TRIG, TURTLE, Syntax, syntax_named

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
    for element in elements(accept[:MAX_ACCEPT]):
        name, *others = parameters(element)
        kind, slash, subtype = name.lower().partition("/")
        if not slash:
            continue
        quality = 1.0
        for parameter in others:
            key, _, value = parameter.partition("=")
            if key.strip().lower() == "q":
                try:
                    quality = min(1.0, max(0.0, float(value)))
                except ValueError:
                    quality = 0.0
        found.append(_Range(kind, subtype, quality))
    return found


def choose(accept: str | None, offered: Sequence[str], worth: Mapping[str, float] = MappingProxyType({})) -> str:
    """Return the media type of ``offered`` (best first) that the Accept header likes most; raises ``NotAcceptable``.

    The most specific range decides a type's quality, which is multiplied by its ``worth`` here (1 when absent). Among equals a type
    that is named comes before one that only a wildcard covers, then the order of ``offered`` decides; but a client that names
    Turtle and other RDF syntaxes alike, as those do that list all they can read, gets Turtle, which every one of them reads whole.
    """
    if not accept or not accept.strip():
        return offered[0]
    ranges = _ranges(accept)
    ranked: dict[str, tuple[float, int]] = {}
    for media_type in offered:
        matching = max((each for each in ranges if each.matches(media_type)), key=_specificity, default=None)
        if matching is not None and matching.quality > 0:
            ranked[media_type] = (matching.quality * worth.get(media_type, 1.0), matching.specificity)
    if not ranked:
        raise NotAcceptable(
            f"none of {accept[:200]!r} is offered here",
            hint=f"accept one of {', '.join(offered)}",
            detail={"offered": list(offered)},
        )
    best = max(ranked, key=lambda each: ranked[each])
    turtle = TURTLE.media_type
    alike = best in _RDF and ranked[best][1] == _NAMED and ranked.get(turtle) == ranked[best]
    return turtle if alike else best


_specificity = attrgetter("specificity")
_NAMED = 2  # specificity of a range without a wildcard
_RDF = frozenset(each.media_type for each in SYNTAXES)


# application/json is JSON-LD under its plain name, for clients that do not care.
JSON_OFFERED = (JSONLD.media_type, "application/json")
"""Media types of JSON-LD."""
_RDF_OFFERED = (*JSON_OFFERED, *(each.media_type for each in SYNTAXES if each is not JSONLD))
_WORTH = MappingProxyType({NQUADS.media_type: 0.8, TRIG.media_type: 0.8})
"""What makes the statements of one graph stand in that graph is worth less here: a client that takes them in as they are and asks
its default graph finds nothing (Comunica, which likes N-Quads a little more than JSON-LD). One that wants the graph's name says so by
naming only these, or by liking the others a fifth less.
"""


def rdf_syntax(accept: str | None, wanted: str | None = None) -> tuple[Syntax, str]:
    """Return the RDF syntax to write and its media type; ``wanted`` (``format=`` or a suffix) wins over Accept."""
    if wanted:
        syntax = named(wanted)
        return syntax, syntax.media_type
    return _known_syntax(accept) if len(accept or "") < _USUAL else _chosen_syntax(accept)


def _chosen_syntax(accept: str | None) -> tuple[Syntax, str]:
    media_type = choose(accept, _RDF_OFFERED, _WORTH)
    return (JSONLD if media_type == "application/json" else syntax_named(media_type)), media_type


_known_syntax = lru_cache(256)(_chosen_syntax)  # clients send few different headers, each again and again
_USUAL = 256  # characters


_ALIASES = {
    "json": "jsonld",
    "xml": "rdfxml",
    "json-ld": "jsonld",  # this one and the next: SPARQLWrapper
    "rdf+xml": "rdfxml",
    "n-triples": "ntriples",
    "n-quads": "nquads",
}


def named(wanted: str, offered: Sequence[Syntax] = SYNTAXES, *, also: str = "") -> Syntax:
    """Return the RDF syntax that ``format=`` or a suffix names, also by a name of other libraries; raises ``NotAcceptable``.

    A blank stands for a + that a client did not percent-encode. ``also`` is another form that is offered there.
    """
    try:
        found = syntax_named(_ALIASES.get(wanted.lower().replace(" ", "+"), wanted.replace(" ", "+")))
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
    name, *others = parameters(content_type or "")
    name = name.lower()
    if not name:
        raise UnsupportedSyntax("the request has no Content-Type", detail={"offered": list(_RDF_OFFERED)})
    charset = [each.partition("=")[2].strip(' "').lower() for each in others if each.lower().startswith("charset")]
    if charset and charset[0] not in ("utf-8", "utf8", "us-ascii"):
        raise UnsupportedSyntax(
            f"charset {charset[0]!r} is not offered; send UTF-8", detail={"offered": list(_RDF_OFFERED)}
        )
    return JSONLD if name == "application/json" else syntax_named(name)


def _preferred(prefer: str | None, name: str) -> str:
    """Return the value of a preference in a Prefer header, the first of several; empty when it is not there."""
    wishes = (parameters(each)[0].partition("=") for each in elements(prefer or ""))
    return next((value.strip(' "').lower() for key, _, value in wishes if key.strip().lower() == name), "")


class ContextStyle(StrEnum):
    """How JSON-LD gives its context: by the address at which this service serves it, or whole."""

    link = "link"
    inline = "inline"


@dataclass(frozen=True, slots=True)
class ContextChoice:
    """The form that a client gets; ``preferred`` when its Prefer header decided that."""

    form: ContextStyle = ContextStyle.link
    preferred: bool = False

    @classmethod
    def of(cls, asked: ContextStyle | None, prefer: str | None) -> ContextChoice:
        """Read ``context=``, which wins, and Prefer, where a value that is not known is passed over (RFC 7240 §2)."""
        if asked is not None or not prefer:
            return cls(asked or ContextStyle.link)
        wish = _preferred(prefer, "context")
        return cls(ContextStyle(wish), preferred=True) if wish in _FORMS else cls()


_FORMS = frozenset(ContextStyle)


@dataclass(frozen=True, slots=True)
class Reply:
    """How a write is answered: with headers alone, or with what the graph holds now. Known before anything is written."""

    wish: str
    syntax: Syntax
    media_type: str
    context: ContextChoice

    @classmethod
    def of(cls, prefer: str | None, accept: str | None, sent: Syntax, context: ContextStyle | None = None) -> Reply:
        """Read the headers; raises ``NotAcceptable`` when what is preferred cannot be written as what is accepted."""
        wish = _preferred(prefer, "return")
        syntax, media_type = rdf_syntax(accept) if wish == "representation" else (sent, "")
        return cls(wish, syntax, media_type, ContextChoice.of(context, prefer))
