"""Graphs on the wire: one, or several together, as an RDF syntax, with the headers that say what they are.

An ETag is ``"{digest}-{syntax}"``: strong for one graph in one syntax, weak for what was put together (a neighbourhood, a framed document).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import lru_cache
from typing import Any
from urllib.parse import quote

import msgspec
from starlette.responses import Response

from api.compression import VARIES
from kg import framing, jsonld, rdf
from kg.neighbourhood import Neighbourhood
from kg.rdf import JSONLD, NQUADS, NTRIPLES, TRIG, Lines, Syntax
from kg.subgraphs import Subgraph

CONTEXT_LINK = f'<{jsonld.CONTEXT_IRI}>; rel="http://www.w3.org/ns/json-ld#context"; type="application/ld+json"'

_AS_IT_IS = "!#$&'()*+,/:;=?@[]"  # all else of an owner's name, which may be any text, is percent-encoded in a header


class Whole(Response):
    """A whole answer whose headers are right as they come: Starlette's making of them takes as long as writing N-Triples does."""

    def __init__(
        self,
        content: bytes = b"",
        status_code: int = 200,
        headers: Mapping[str, str] | None = None,
        media_type: str | None = None,
    ) -> None:
        self.status_code, self.body, self.background = status_code, content, None
        self.raw_headers = [(_name(name), value.encode("latin-1")) for name, value in (headers or {}).items()]
        if status_code not in (204, 304):
            self.raw_headers.append((b"content-length", b"%d" % len(content)))
        if media_type is not None:
            self.raw_headers.append((b"content-type", _content_type(media_type)))


@lru_cache(64)
def _name(header: str) -> bytes:
    return header.lower().encode()


@lru_cache(64)
def _content_type(media_type: str) -> bytes:
    return f"{media_type}{'; charset=utf-8' if media_type.startswith('text/') else ''}".encode()


def write_graph(text: str, iri: str, syntax: Syntax) -> bytes:
    """Write one graph (``kg.rdf.text_of``) as ``syntax``; JSON-LD is compacted with our context."""
    if syntax is JSONLD:
        return _indented(jsonld.write(text, iri).encode())
    if syntax is NTRIPLES:
        return f"{text}\n".encode() if text else b""
    return rdf.serialize(rdf.lines_in(text), syntax, graph=iri)


def write_graphs(graphs: Iterable[tuple[str, Lines]], syntax: Syntax) -> bytes:
    """Write several graphs: each under its name where the syntax can name graphs, else their statements together."""
    if syntax is JSONLD:
        return pretty({"@context": jsonld.CONTEXT_IRI, "@graph": [named_graph(name, lines) for name, lines in graphs]})
    if syntax in (NQUADS, TRIG):
        return b"".join(rdf.serialize(lines, syntax, graph=name) for name, lines in graphs)
    return rdf.serialize(frozenset().union(*(lines for _, lines in graphs)), syntax)


def named_graph(name: str, lines: Lines) -> dict[str, Any]:
    """Return one graph as a member of a JSON-LD document's ``@graph``."""
    return {"id": name, "@graph": [msgspec.Raw(each.encode()) for each in jsonld.nodes(lines, name)]}


def pretty(document: Mapping[str, Any]) -> bytes:
    """Write JSON for programs and people alike."""
    return _indented(msgspec.json.encode(document))


def _indented(document: bytes) -> bytes:
    return msgspec.json.format(document, indent=2)


def etag(digest: str, syntax: Syntax, *, weak: bool = False) -> str:
    """Return the ETag of a representation."""
    return f'{"W/" if weak else ""}"{digest}-{syntax.name}"'


def digests_of(header: str) -> list[str]:
    """Return the digests that an If-Match or If-None-Match header lists (weak marks and syntaxes are dropped)."""
    found = (part.strip().removeprefix("W/").strip('"') for part in header.split(","))
    return [each.partition("-")[0] for each in found if each]


def matches(header: str | None, tag: str) -> bool:
    """Tell whether If-None-Match lists ``tag`` (weak comparison, RFC 9110 §13.1.2)."""
    if not header:
        return False
    listed = [part.strip().removeprefix("W/") for part in header.split(",")]
    return "*" in listed or tag.removeprefix("W/") in listed


def headers_of(subgraph: Subgraph, tag: str, links: str) -> dict[str, str]:
    """Return the headers of an entity's representation."""
    return {
        "ETag": tag,
        "Vary": VARIES,
        "Cache-Control": "no-cache",
        "X-Drumlin-Owner": _owner(subgraph.owner),
        "Link": links,
    }


@lru_cache(256)
def _owner(name: str) -> str:
    return quote(name, safe=_AS_IT_IS)


def neighbours(
    found: Neighbourhood, syntax: Syntax, media_type: str, headers: dict[str, str], frame: str | None
) -> Response:
    """Answer with an entity and what it is linked to, and say how many graphs there are and how many were left out."""
    counts = {"X-Drumlin-Graphs": str(len(found.graphs)), "X-Drumlin-Left-Out": str(found.left_out)}
    graphs = [(each.entry.graph, each.lines) for each in found.graphs]
    content = _framed(found, frame) if frame else write_graphs(graphs, syntax)
    return Whole(content, media_type=media_type, headers={**headers, **counts})


def _framed(found: Neighbourhood, frame: str) -> bytes:
    """Shape the graphs together; a frame that names no thing is about the entity itself."""
    own = frame.lstrip().startswith("{")
    wanted = framing.read_frame(frame.encode()) if own else framing.frame_of(frame)
    if not own or not {"id", "@id", "type", "@type"} & wanted.keys():
        wanted = {**wanted, "id": found.graphs[0].entry.graph}
    return pretty(framing.frame(frozenset().union(*(each.lines for each in found.graphs)), wanted))
