"""Exports read back, a few graphs at a time: a file of any size takes bounded memory.

What ``kg.graphs.dump`` writes has the statements of a graph together. A document whose statements stand in any order is read too,
as long as those of one graph are not farther apart than ``WINDOW``.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from itertools import islice
from typing import BinaryIO

from drumlin.kg import rdf
from drumlin.kg.errors import InvalidDocument
from drumlin.kg.parsers import HERE, Parsers
from drumlin.kg.rdf.jsonld import CONTEXT_IRI
from drumlin.kg.rdf.syntax import JSONLD, Lines, Syntax

WINDOW = 100_000
"""Statements that are held at one time, about 40 MB."""
_DOCUMENTS = 500  # graphs of a JSON-LD export that are parsed together
_HEAD = re.compile(rb'\{"@context":(?:"[^"]*"|\{.*\}|\[.*\]),"@graph":\[\n')
"""First line of a JSON-LD export: its context, by name or whole, is read with each piece of what follows."""


def graphs(
    stream: BinaryIO, syntax: Syntax, served: str = CONTEXT_IRI, parsers: Parsers = HERE
) -> Iterator[tuple[str, Lines]]:
    """Yield the graphs of an export, each once; ``served`` is the address of our context (``Iris.context``), which it may name.

    JSON-LD is read by ``parsers``; N-Quads and TriG are read here as they come, and never wait for the end of the file.

    Raises ``InvalidDocument`` where it does not parse, for statements that stand in no graph, and for a graph that comes again after
    ``WINDOW`` others; what was yielded before stands.
    """
    if not syntax.quads:
        raise InvalidDocument(
            f"{syntax.name} has no graphs, so an export in it cannot be read back",
            hint="export as nquads, trig or jsonld",
        )
    return _together(_documents(stream, served, parsers) if syntax is JSONLD else rdf.statements(stream, syntax))


def _together(statements: Iterator[tuple[str | None, str]]) -> Iterator[tuple[str, Lines]]:
    held: dict[str, set[str]] = {}
    done: set[str] = set()
    count = 0
    for graph, line in statements:
        if graph is None or graph.startswith("_:"):
            raise InvalidDocument(
                "some statements stand in no named graph", hint="import what drumlin dump has written"
            )
        if graph not in held:
            if graph in done:
                raise InvalidDocument(f"the statements of {graph} stand too far apart", hint="sort them by their graph")
            if count >= WINDOW:
                yield from ((name, frozenset(lines)) for name, lines in held.items())
                done |= held.keys()
                held, count = {}, 0
        held.setdefault(graph, set()).add(line)
        count += 1
    yield from ((name, frozenset(lines)) for name, lines in held.items())


def _documents(stream: BinaryIO, served: str, parsers: Parsers) -> Iterator[tuple[str | None, str]]:
    """Read an export, which has a graph a line, in pieces; any other JSON-LD document as a whole."""
    head = stream.readline()
    if not _begins_export(head):
        yield from _parsed(head + stream.read(), served, parsers)
        return
    rows = (row.rstrip(b",\n") for row in stream)
    while piece := list(islice(rows, _DOCUMENTS)):
        ended = piece[-1] == b"]}"
        yield from _parsed(head + b",".join(piece[:-1] if ended else piece) + b"]}", served, parsers)
        if ended:
            return
    raise InvalidDocument("the document ends before its end", hint="dump it again")


def _begins_export(line: bytes) -> bool:
    """Return whether a document's first line is that of an export: a context and nothing else before its graphs."""
    if not _HEAD.fullmatch(line):
        return False
    try:
        return set(json.loads(line + b"]}")) == {"@context", "@graph"}
    except (ValueError, RecursionError):
        return False


def _parsed(document: bytes, served: str, parsers: Parsers) -> Iterator[tuple[str | None, str]]:
    for graph, lines in parsers.rdf(document, JSONLD, base=None, served=served, max_bytes=len(document)).items():
        for line in lines:
            yield graph, line
