"""Which graphs a query reads: the values. Readers, which are started often, need no more of SPARQL.

RDF datasets: https://www.w3.org/TR/sparql11-query/#rdfDataset.
"""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Dataset:
    """Which graphs a query reads: None leaves it to the query's FROM clauses, else to the union of all graphs."""

    default_graphs: tuple[str, ...] | None = None
    named_graphs: tuple[str, ...] | None = None


UNION = Dataset()
"""The dataset of a request that names none."""


@dataclass(frozen=True, slots=True)
class Chosen:
    """A query and the graphs that it reads: the union of all, or those listed (None, None: those of its FROM clauses)."""

    text: str
    union: bool = True
    default: tuple[str, ...] | None = None
    named: tuple[str, ...] | None = None
