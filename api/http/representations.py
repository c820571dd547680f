"""Graphs on the wire: one, or several together, as an RDF syntax, with the headers that say what they are.

An ETag is ``"{digest}-{syntax}"``: strong for one graph in one syntax, weak for what was put together (a neighbourhood, a framed document).
JSON-LD that carries its context has one of its own, ``"{digest}-jsonld-inline.{the context's}"``.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from functools import cache, lru_cache
from typing import Any

import msgspec
from starlette.responses import Response

from drumlin.api.http.compression import VARIES, VARIES_BY_CONTEXT
from drumlin.api.http.negotiation import ContextStyle
from drumlin.kg import rdf
from drumlin.kg.graphs import owners
from drumlin.kg.graphs.entities import EntityGraph
from drumlin.kg.graphs.neighbourhood import Neighbourhood
from drumlin.kg.rdf import framing, jsonld
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, NTRIPLES, TRIG, Lines, Syntax


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


def write_graph(text: str, iri: str, syntax: Syntax, context: str) -> bytes:
    """Write one graph (``kg.rdf.text_of``) as ``syntax``; JSON-LD is compacted with ``context`` (JSON text), which is ours."""
    if syntax is JSONLD:
        return _indented(jsonld.write(text, iri, context).encode())
    if syntax is NTRIPLES:
        return f"{text}\n".encode() if text else b""
    return rdf.serialize(rdf.lines_in(text), syntax, graph=iri)


def write_graphs(graphs: Iterable[tuple[str, Lines]], syntax: Syntax, context: str) -> bytes:
    """Write several graphs: each under its name where the syntax can name graphs, else their statements together."""
    if syntax is JSONLD:
        return pretty({"@context": _raw(context), "@graph": [named_graph(name, lines) for name, lines in graphs]})
    if syntax in (NQUADS, TRIG):
        return b"".join(rdf.serialize(lines, syntax, graph=name) for name, lines in graphs)
    return rdf.serialize(frozenset().union(*(lines for _, lines in graphs)), syntax)


def named_graph(name: str, lines: Lines) -> dict[str, Any]:
    """Return one graph as a member of a JSON-LD document's ``@graph``."""
    return {"id": name, "@graph": [msgspec.Raw(each.encode()) for each in jsonld.nodes(lines, name)]}


def _raw(context: str) -> msgspec.Raw:
    return msgspec.Raw(context.encode())


def context_of(served: str, form: ContextStyle) -> str:
    """Return our context in a form as the value of ``@context``, as JSON text; ``served`` is its address (``Iris.context``)."""
    return jsonld.inline() if form is ContextStyle.inline else jsonld.linked(served)


@cache
def _inline_tag() -> str:
    """Return what an ETag says of a context that is carried: which one, since a release may add to it."""
    return f"-inline.{rdf.digest_of(jsonld.inline())[:8]}"


def pretty(document: Mapping[str, Any]) -> bytes:
    """Write JSON for programs and people alike."""
    return _indented(msgspec.json.encode(document))


def _indented(document: bytes) -> bytes:
    return msgspec.json.format(document, indent=2)


def etag(digest: str, syntax: Syntax, context: ContextStyle = ContextStyle.link, *, weak: bool = False) -> str:
    """Return the ETag of a representation; ``context`` matters to JSON-LD alone."""
    form = _inline_tag() if context is ContextStyle.inline and syntax is JSONLD else ""
    return f'{"W/" if weak else ""}"{digest}-{syntax.name}{form}"'


def headers_of(subgraph: EntityGraph, syntax: Syntax, tag: str, links: str) -> dict[str, str]:
    """Return the headers of an entity's representation."""
    return {
        "ETag": tag,
        "Vary": VARIES_BY_CONTEXT if syntax is JSONLD else VARIES,
        "Cache-Control": "no-cache",
        owners.HEADER: owners.to_header(subgraph.owner),
        "Link": links,
    }


def neighbours(
    found: Neighbourhood,
    syntax: Syntax,
    media_type: str,
    headers: dict[str, str],
    frame: str | None,
    context: str,
    served: str,
) -> Response:
    """Answer with an entity and what it is linked to, and say how many graphs there are and how many were left out.

    ``context`` is the value of ``@context`` to write (JSON text), ``served`` the address of our context that a frame may name.
    """
    counts = {"X-Drumlin-Graphs": str(len(found.graphs)), "X-Drumlin-Left-Out": str(found.left_out)}
    graphs = [(each.entry.graph, each.lines) for each in found.graphs]
    content = _framed(found, frame, context, served) if frame else write_graphs(graphs, syntax, context)
    return Whole(content, media_type=media_type, headers={**headers, **counts})


def _framed(found: Neighbourhood, frame: str, context: str, served: str) -> bytes:
    """Shape the graphs together; a frame that names no thing is about the entity itself."""
    own = frame.lstrip().startswith("{")
    wanted = framing.read_frame(frame.encode(), served) if own else framing.frame_of(frame)
    if not own or not {"id", "@id", "type", "@type"} & wanted.keys():
        wanted = {**wanted, "id": found.graphs[0].entry.graph}
    lines = frozenset().union(*(each.lines for each in found.graphs))
    return pretty(framing.frame(lines, wanted, context=_raw(context)))
