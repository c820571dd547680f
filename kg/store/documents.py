"""Queries over a few graphs that are given whole: a store in memory, for the time of one query, in a worker."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

import msgspec
import pyoxigraph as ox

from drumlin.kg.errors import TooLarge
from drumlin.kg.sparql.dataset import Chosen
from drumlin.kg.store import querying

MAX_ROWS = 10_000
"""Solutions of a group that take its place in a query."""


class DocumentQuery(msgspec.Struct, array_like=True):
    """A query that passed the gate, the statements of its graphs as N-Triples, its dataset, and the media type of the result.

    ``values`` as media type: a SELECT whose solutions are wanted as a block of ``VALUES``.
    """

    text: str
    base: str | None
    graphs: Mapping[str, str]
    default: tuple[str, ...]
    named: tuple[str, ...]
    media_type: str


def documents_job(payload: bytes) -> Iterator[bytes]:
    """Answer a ``DocumentQuery``."""
    query = msgspec.msgpack.decode(payload, type=DocumentQuery)
    engine = ox.Store()
    for graph, text in query.graphs.items():
        engine.bulk_load(text.encode(), format=ox.RdfFormat.N_TRIPLES, to_graph=ox.NamedNode(graph))
    chosen = Chosen(query.text, union=False, default=query.default, named=query.named)
    written = _Parts()
    media_type = "application/sparql-results+json" if query.media_type == "values" else query.media_type
    querying.work(engine, chosen, media_type, query.base)(written)
    yield _values(bytes(written.content)) if query.media_type == "values" else bytes(written.content)


class _Parts:
    """What a result is written to."""

    def __init__(self) -> None:
        self.content = bytearray()

    def write(self, data: bytes, /) -> int:
        """Take some bytes."""
        self.content += data
        return len(data)

    def flush(self) -> None:
        """Nothing is kept back."""


def _values(result: bytes) -> bytes:
    """Write the solutions of a SELECT as a block of VALUES; a blank node becomes an IRI, since a query cannot name one."""
    found = json.loads(result)
    names, rows = found["head"]["vars"], found["results"]["bindings"]
    if len(rows) > MAX_ROWS:
        raise TooLarge(
            f"what is asked of the document has {len(rows):,} solutions; {MAX_ROWS:,} can be joined with the graph",
            hint="narrow the pattern, or name all graphs that are read in FROM",
        )
    lines = [f"({' '.join(_term(row.get(name)) for name in names)})" for row in rows]
    return f"VALUES ({' '.join(f'?{name}' for name in names)}) {{ {' '.join(lines)} }}".encode()


def _term(value: Mapping[str, Any] | None) -> str:
    if value is None:
        return "UNDEF"
    if value["type"] == "uri":
        return f"<{value['value']}>"
    if value["type"] == "bnode":
        return f"<urn:drumlin:blank:{value['value']}>"
    if value["type"] == "triple":
        return f"<<( {' '.join(_term(value['value'][name]) for name in ('subject', 'predicate', 'object'))} )>>"
    direction = f"--{value['its:dir']}" if "its:dir" in value else ""
    suffix = f"@{value['xml:lang']}{direction}" if "xml:lang" in value else ""
    suffix = f"^^<{value['datatype']}>" if "datatype" in value else suffix
    return json.dumps(value["value"], ensure_ascii=False) + suffix
