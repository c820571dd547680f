"""How much there is: counted when somebody asks, by the same bounded means as any query, and kept until something is written."""

from __future__ import annotations

import csv
import io
import threading
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from urllib.parse import quote

from drumlin.kg.rdf.jsonld import NAMESPACE
from drumlin.kg.sparql.protocol import RESULTS
from drumlin.kg.store.protocol import Store

_STATEMENTS = """SELECT (COUNT(*) AS ?triples) (COUNT(DISTINCT ?s) AS ?distinctSubjects) (COUNT(DISTINCT ?p) AS ?properties)
 (COUNT(DISTINCT ?o) AS ?distinctObjects) { ?s ?p ?o }"""
_CLASSES = "SELECT ?class (COUNT(DISTINCT ?s) AS ?n) { ?s a ?class FILTER(ISIRI(?class)) } GROUP BY ?class"
_ENTITIES = """SELECT ?class (COUNT(?entity) AS ?n) { GRAPH ?entity { ?entity a ?class }
 FILTER(ISIRI(?class) && STRSTARTS(STR(?entity), "%s")) } GROUP BY ?class"""
VOID = "http://rdfs.org/ns/void#"
"""Namespace of what is counted (https://www.w3.org/TR/void/#statistics)."""


@dataclass(frozen=True, slots=True)
class StoreStatistics:
    """Counts of a store: ``statements`` by VoID's names, subjects by class, entities (which have a graph) by class."""

    graphs: int
    statements: Mapping[str, int]
    subjects: Mapping[str, int]
    entities: Mapping[str, int]

    def described(self, dataset: str) -> Iterator[str]:
        """Yield the counts as VoID says them of ``dataset``, an IRI in brackets; each class is a part with a name of its own."""
        for name, count in {**self.statements, "classes": len(self.subjects)}.items():
            yield f"{dataset} <{VOID}{name}> {number(count)} ."
        for kind, count in self.subjects.items():
            part = f"{dataset[:-1]}-class-{quote(kind.removeprefix(NAMESPACE), safe='')}>"
            yield f"{dataset} <{VOID}classPartition> {part} ."
            yield f"{part} <{VOID}class> <{kind}> ."
            yield f"{part} <{VOID}entities> {number(count)} ."


def number(value: int) -> str:
    """Return a whole number as N-Triples has it."""
    return f'"{value}"^^<http://www.w3.org/2001/XMLSchema#integer>'


class Counting:
    """Counts one store; what has a graph below ``root`` is an entity."""

    def __init__(self, store: Store, root: str) -> None:
        self._store = store
        self._entities = _ENTITIES % root
        self._counting = threading.Lock()
        self._known: tuple[int, StoreStatistics] | None = None

    def counts(self) -> StoreStatistics:
        """Return the counts of now; those who ask at the same time wait for the same counting. Raises what queries raise."""
        with self._counting:
            generation = self._store.generation
            if self._known is None or self._known[0] != generation:
                self._known = generation, self._counted()
            return self._known[1]

    def _counted(self) -> StoreStatistics:
        (statements,) = self._asked(_STATEMENTS)
        return StoreStatistics(
            len(self._store.entries()),
            {name: int(count) for name, count in statements.items()},
            self._by_class(_CLASSES),
            self._by_class(self._entities),
        )

    def _by_class(self, query: str) -> dict[str, int]:
        return {row["class"]: int(row["n"]) for row in sorted(self._asked(query), key=lambda row: row["class"])}

    def _asked(self, query: str) -> list[dict[str, str]]:
        answer = self._store.answer(query, media_type=RESULTS[2])
        return list(csv.DictReader(io.StringIO(b"".join(answer.chunks).decode())))
