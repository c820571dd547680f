"""What the engine passes and the service does not, each with its reason; docs/conformance.md says the same for users."""

from __future__ import annotations

from fnmatch import fnmatchcase
from typing import NamedTuple


class Excepted(NamedTuple):
    """Cases by a pattern of their names, what the failure says, and why it is meant."""

    name: str
    says: str
    reason: str


EXCEPTIONS = (
    Excepted("sparql*", "SERVICE is not allowed", "nothing is fetched because a text says so"),
    Excepted("sparql*", "LOAD is not allowed", "nothing is fetched because a text says so"),
    Excepted("*", "has a triple term (RDF 1.2), and none is stored", "decision 0043: graphs hold RDF 1.1 triples"),
    Excepted(
        "sparql/sparql12/eval-triple-terms/expr-1", "another result",
        "its data is a dataset with triple terms, whose graphs share a blank node: as documents of their own they do not",
    ),
    Excepted(
        "sparql/sparql12/eval-triple-terms/graphs-2", "another result",
        "its data is a dataset with triple terms, whose graphs share a blank node: as documents of their own they do not",
    ),
    Excepted(
        "toRdf/twf0*", "ill-formed",
        "JSON-LD leaves a statement with an ill-formed IRI out; here the writer is told instead of losing it",
    ),
)  # fmt: skip


def reason_of(name: str, failure: str) -> str | None:
    """Return why a case may fail so, None when it is not listed."""
    return next((each.reason for each in EXCEPTIONS if fnmatchcase(name, each.name) and each.says in failure), None)
