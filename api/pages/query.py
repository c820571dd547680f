"""The page of a query: its result as a table, or why it is empty; saved queries with a form for their parameters."""

from __future__ import annotations

import time
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cache

import msgspec

from drumlin.api import querying
from drumlin.api.bootstrap import Services
from drumlin.api.pages import results
from drumlin.api.pages.results import ResultTable
from drumlin.api.querying import SOLUTIONS, ParsedQuery
from drumlin.api.routes import queries as saved_queries
from drumlin.kg.rdf.syntax import TURTLE
from drumlin.kg.sparql import gate, protocol
from drumlin.kg.sparql.absent_terms import AbsentTerm, UnkeptLabel
from drumlin.kg.sparql.dataset import Dataset
from drumlin.ontology.vocabulary import CLASSES, CONCEPTS, PROPERTIES
from drumlin.queries.catalogue import SavedQuery

MAX_TEXT = 64 * 1024
"""Bytes of a graph that are shown."""
EXAMPLE = """PREFIX : <https://w3id.org/drumlin/ns#>
SELECT ?workload ?namespace ?phase WHERE {
  ?workload a :Deployment ; :namespace ?namespace ; :phase ?phase
}"""
"""What the form holds at first."""
_UNION = Dataset()


@dataclass(frozen=True, slots=True)
class QueryView:
    """What a query found: a table, a truth, or a graph as Turtle; ``absent`` are its terms that occur nowhere."""

    text: str
    seconds: str
    form: str
    absent: tuple[AbsentTerm | UnkeptLabel, ...] = ()
    table: ResultTable | None = None
    truth: bool | None = None
    graph: str = ""
    cut: bool = False

    @property
    def empty(self) -> bool:
        """Whether nothing was found."""
        return not (self.truth or self.graph.strip() or (self.table and self.table.rows))


def run(service: Services, query_string: bytes) -> QueryView:
    """Run the query of a request to ``/sparql``; raises what that raises."""
    sent = protocol.read_query("GET", query_string, None, b"")
    return ask(service, sent.query, sent.dataset, sent.seconds)


def ask(service: Services, text: str, dataset: Dataset = _UNION, seconds: float | None = None) -> QueryView:
    """Run a query and read as much of its result as a page shows; raises ``QueryRejected``."""
    began = time.monotonic()
    gated = gate.check(text, max_bytes=service.settings.query_bytes)
    query = ParsedQuery(gated.text, dataset, SOLUTIONS["json"], seconds, gated.volatile)
    if gated.form == "select":
        table = results.table_of(service, query)
        return QueryView(
            text, _since(began), "select", () if table.rows else querying.absent_from(service, gated.text), table
        )
    if gated.form == "ask":
        with querying.chunks(service, query) as (pieces, _):
            truth = bool(msgspec.json.decode(b"".join(pieces))["boolean"])
        return QueryView(
            text, _since(began), "ask", () if truth else querying.absent_from(service, gated.text), truth=truth
        )
    shown, cut = _graph(service, query._replace(media_type=TURTLE.media_type))
    absent = () if shown.strip() else querying.absent_from(service, gated.text)
    return QueryView(text, _since(began), "graph", absent, graph=shown, cut=cut)


def _graph(service: Services, query: ParsedQuery) -> tuple[str, bool]:
    """Return the beginning of a graph as Turtle, and whether there is more of it."""
    shown = b""
    with querying.chunks(service, query) as (pieces, _):
        for piece in pieces:
            shown += piece
            if len(shown) > MAX_TEXT:
                break
    return shown[:MAX_TEXT].decode("utf-8", "replace"), len(shown) > MAX_TEXT


def _since(began: float) -> str:
    seconds = time.monotonic() - began
    return f"{seconds * 1000:.0f} ms" if seconds < 1 else f"{seconds:.1f} s"


def ask_saved(service: Services, saved: SavedQuery, given: Mapping[str, str]) -> QueryView:
    """Run a saved query with its parameters; raises what ``/queries/{name}`` raises."""
    return ask(service, saved_queries.bound(service, saved, given))


@cache
def vocabulary() -> tuple[str, ...]:
    """Return the terms of the ontology as a query writes them, for completion."""
    return tuple(f":{name}" for name in sorted(CLASSES | PROPERTIES | CONCEPTS))
