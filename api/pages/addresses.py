"""Which requests get a page: those that prefer HTML, at an address that has one; the page is its representation ``.html``."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from urllib.parse import parse_qsl, urlencode

from drumlin.api.http.asgi import Scope
from drumlin.api.http.negotiation import JSON_OFFERED, choose
from drumlin.kg.errors import NotAcceptable
from drumlin.kg.rdf.syntax import SYNTAXES
from drumlin.kg.sparql.protocol import RESULTS

SUFFIX = ".html"
_PAGES: Mapping[str, frozenset[str] | None] = {
    "/search": None,
    "/sparql": None,
    "/queries": frozenset(),
    "/history": frozenset({"entity", "metric", "last"}),
    "/logs": frozenset({"entity", "last", "filter"}),
    "/datasources": frozenset({"name", "probe"}),
    "/forecasts": frozenset({"entity", "metric"}),
    "/alerts": frozenset({"entity"}),
    "/peers": frozenset(),
    "/compare": frozenset({"entity", "from", "to"}),
}
"""The parameters with which there is a page, None for all; with others there is only data."""
_BELOW = ("/doc/", "/queries/")
_HTML = "text/html"
_OFFERED = (*JSON_OFFERED, *(each.media_type for each in SYNTAXES), *RESULTS, _HTML)
_READS = ("GET", "HEAD")


def has_page(method: str, path: str) -> bool:
    """Return whether an address has a page beside its data, so that its answers depend on Accept."""
    return method in _READS and (path in _PAGES or path.startswith(_BELOW)) and not path.endswith(SUFFIX)


def wants_page(path: str, accept: bytes | None, query_string: bytes) -> bool:
    """Return whether a client prefers HTML to every form of data; ``format`` wins over Accept."""
    asked = b"format=" in query_string
    if not asked and (accept is None or b"html" not in accept):
        return False
    given = dict(parse_qsl(query_string.decode("latin-1"), keep_blank_values=True))
    known = _PAGES.get(path)
    if known is not None and not given.keys() <= known | {"format"}:
        return False
    if wanted := given.get("format"):
        return wanted == "html"
    try:
        return choose((accept or b"").decode("latin-1"), _OFFERED) == _HTML
    except NotAcceptable:
        return False


def to_page(scope: Scope) -> None:
    """Make a request one for the page of its address; the parameter ``format`` has done its part."""
    query = scope["query_string"]
    if b"format=" in query:
        pairs = parse_qsl(query.decode("latin-1"), keep_blank_values=True)
        query = urlencode([(name, value) for name, value in pairs if name != "format"]).encode()
    raw: bytes = scope.get("raw_path") or scope["path"].encode()
    scope["raw_path"] = raw.partition(b"?")[0] + SUFFIX.encode()
    scope["path"] += SUFFIX
    scope["query_string"] = query
    scope["negotiated_page"] = True


def search_address(text: str, filters: Mapping[str, Sequence[str]], sort: str, **more: str) -> str:
    """Return the address of a search, relative to the root; what is empty is left out of it, but for the text."""
    pairs = [("q", text), *((name, value) for name, values in filters.items() for value in values)]
    pairs += [("sort", sort)] if sort != "relevance" else []
    return f"search?{urlencode([*pairs, *((name, value) for name, value in more.items() if value)])}"


def without(filters: Mapping[str, Sequence[str]], field: str, value: str) -> dict[str, list[str]]:
    """Return filters without one value of one of them."""
    return {name: [each for each in values if (name, each) != (field, value)] for name, values in filters.items()}


def with_value(filters: Mapping[str, Sequence[str]], field: str, value: str) -> dict[str, list[str]]:
    """Return filters with one more value of one of them."""
    return {**{name: list(values) for name, values in filters.items()}, field: [*filters.get(field, ()), value]}
