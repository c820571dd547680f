"""Results of the suites, made comparable: literals in the engine's form, blank nodes by what is said of them."""

from __future__ import annotations

import csv
import re
from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

import pyoxigraph as ox

_RS = "http://www.w3.org/2001/sw/DataAccess/tests/result-set#"
_TYPE = ox.NamedNode("http://www.w3.org/1999/02/22-rdf-syntax-ns#type")
_BLANK = re.compile(r"_:\w+")
_NUMBER = re.compile(r"[+-]?[0-9]+(?:\.[0-9]+)?(?:[eE][+-]?[0-9]+)?")
RESULTS = {
    ".srx": ox.QueryResultsFormat.XML,
    ".srj": ox.QueryResultsFormat.JSON,
    ".tsv": ox.QueryResultsFormat.TSV,
}
Row = Mapping[str, Any]


@dataclass(frozen=True)
class Compared:
    """A result: a truth value, solutions (those without blank nodes counted), or quads."""

    truth: bool | None
    rows: Counter[frozenset[tuple[str, str]]]
    quads: frozenset[str]


def of_truth(value: bool) -> Compared:
    """Compare the result of an ASK."""
    return Compared(value, Counter(), frozenset())


def of_quads(quads: Iterable[ox.Quad]) -> Compared:
    """Compare a dataset."""
    store = ox.Store()
    store.extend(quads)
    return Compared(None, Counter(), _canonical(store))


def _canonical(quads: Iterable[ox.Quad]) -> frozenset[str]:
    found = ox.Dataset(quads)
    found.canonicalize(ox.CanonicalizationAlgorithm.UNSTABLE)
    return frozenset(map(str, found))


def of_rows(rows: Iterable[Row]) -> Compared:
    """Compare solutions, each a mapping from the names of its variables to terms."""
    plain: Counter[frozenset[tuple[str, str]]] = Counter()
    quads: list[ox.Quad] = []
    for row in rows:
        if not any("_:" in str(value) for value in row.values()):
            plain[frozenset((name, str(_normal(value))) for name, value in row.items())] += 1
            continue
        node = ox.BlankNode()
        quads.append(ox.Quad(node, _TYPE, ox.NamedNode("urn:row")))
        quads += [ox.Quad(node, ox.NamedNode(f"urn:variable:{name}"), _normal(value)) for name, value in row.items()]
    return Compared(None, plain, _canonical(quads))


def of_solutions(found: Any) -> Compared:
    """Compare what the engine reads or answers."""
    if isinstance(found, ox.QueryBoolean):
        return of_truth(bool(found))
    if isinstance(found, ox.QueryTriples):
        return of_quads(ox.Quad(each.subject, each.predicate, each.object) for each in found)
    names = [each.value for each in found.variables]
    return of_rows({name: term for name, term in zip(names, row, strict=True) if term is not None} for row in found)


def of_csv(text: bytes) -> Compared:
    """Compare solutions as CSV, in which a blank node is just that, and a number one of any type."""
    rows = csv.DictReader(text.decode().splitlines())
    return Compared(
        None, Counter(frozenset((name, _plain(value)) for name, value in row.items()) for row in rows), frozenset()
    )


def _plain(text: str) -> str:
    return str(float(text)) if _NUMBER.fullmatch(text) else _BLANK.sub("_:", text)


def _normal(term: Any) -> Any:
    if isinstance(term, ox.Triple):
        return ox.Triple(term.subject, term.predicate, _normal(term.object))
    return _kept(term) if isinstance(term, ox.Literal) else term


@cache
def _kept(term: ox.Literal) -> Any:
    store = ox.Store()
    store.add(ox.Quad(_TYPE, _TYPE, term))
    return next(iter(store)).object


def of_file(file: Path, base: str) -> Compared:
    """Read an expected result: SPARQL results, a graph, or solutions written as a graph (https://www.w3.org/2001/sw/DataAccess/tests/)."""
    if file.suffix == ".csv":
        return of_csv(file.read_bytes())
    if (form := RESULTS.get(file.suffix)) is not None:
        return of_solutions(ox.parse_query_results(file.read_bytes(), format=form))
    store = ox.Store()
    store.load(file.read_bytes(), format=form_of(file), base_iri=base)
    truth = store.query(f"SELECT ?value {{ ?set <{_RS}boolean> ?value }}")
    assert isinstance(truth, ox.QuerySolutions)
    for row in truth:
        return of_truth(row["value"].value == "true")
    if not store.query(f"ASK {{ ?set a <{_RS}ResultSet> }}"):
        return Compared(None, Counter(), _canonical(store))
    rows: dict[str, dict[str, Any]] = {}
    found = store.query(
        f"PREFIX rs: <{_RS}> SELECT ?row ?name ?value {{ ?set rs:solution ?row OPTIONAL {{ ?row rs:binding [ rs:variable ?name ; rs:value ?value ] }} }}"
    )
    assert isinstance(found, ox.QuerySolutions)
    for row in found:
        of_row = rows.setdefault(str(row["row"]), {})
        if row["name"] is not None:
            of_row[row["name"].value] = row["value"]
    return of_rows(rows.values())


def form_of(file: Path) -> ox.RdfFormat:
    """Return the format of a file by its suffix."""
    found = ox.RdfFormat.from_extension(file.suffix[1:])
    assert found is not None, file
    return found
