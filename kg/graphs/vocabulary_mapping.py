"""Alignments: the graph in the terms of another vocabulary, made on request by rules that are data (``ontology/align``).

Each rule is a SPARQL CONSTRUCT in a Turtle file (https://www.w3.org/TR/shacl-af/#SPARQLRule). Nothing that they make is stored, so
our own graph stays small and another vocabulary can be added without touching it.
"""

from __future__ import annotations

from collections.abc import Iterator
from difflib import get_close_matches
from functools import cache
from importlib.resources import files

from drumlin.kg.errors import ResourceNotFound
from drumlin.kg.rdf.syntax import NTRIPLES, TURTLE, parse, terms
from drumlin.kg.store.protocol import Store

_CONSTRUCT = "http://www.w3.org/ns/shacl#construct"
_TITLE = "http://purl.org/dc/terms/title"


@cache
def alignments() -> dict[str, str]:
    """Return the alignments there are: name → title."""
    found: dict[str, str] = {}
    for file in files("drumlin.ontology").joinpath("align").iterdir():
        if file.name.endswith(".ttl"):
            found[file.name.removesuffix(".ttl")] = _values(file.read_bytes(), _TITLE)[0]
    return dict(sorted(found.items()))


def source(name: str) -> bytes:
    """Return an alignment's own Turtle; raises ``ResourceNotFound`` with what may have been meant."""
    if name not in alignments():
        close = get_close_matches(name[:64], alignments(), n=1)
        raise ResourceNotFound(
            f"there is no alignment {name[:64]!r}",
            hint=f"did you mean {close[0]}?" if close else f"there are {', '.join(alignments())}",
        )
    return files("drumlin.ontology").joinpath("align", f"{name}.ttl").read_bytes()


@cache
def rules(name: str) -> tuple[str, ...]:
    """Return the CONSTRUCT queries of an alignment, in a fixed order."""
    return tuple(sorted(_values(source(name), _CONSTRUCT)))


def aligned(store: Store, name: str) -> Iterator[bytes]:
    """Yield what an alignment's rules make of the graph, as N-Triples; a statement may come from two rules."""
    for rule in rules(name):
        yield from store.answer(rule, media_type=NTRIPLES.media_type).chunks


def _values(turtle: bytes, predicate: str) -> list[str]:
    found = (terms(line) for line in parse(turtle, TURTLE)[None])
    return [value.value for _, each, value in found if each.value == predicate]
