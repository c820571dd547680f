"""SPARQL Update, and any graph by its name (Graph Store Protocol), in a client's hands; each operation is one definition for both clients.

https://www.w3.org/TR/sparql11-protocol/#update-operation, https://www.w3.org/TR/sparql11-http-rdf-update/. An entity's graph keeps its
rules here too; ``client.subgraph`` is made for those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import httpx

from drumlin.kg.client.calls import Call
from drumlin.kg.client.encoding import encoded
from drumlin.kg.client.endpoint import AwaitingHandle, BlockingHandle, operation, operation_on, rdflib_graph_on
from drumlin.kg.client.rdf_text import RdfText
from drumlin.kg.errors import InvalidInput
from drumlin.kg.rdf.syntax import syntax_named

_DEFAULT = ""  # stands for the default graph, which has no name


def _update(
    text: str, *, using: Sequence[str] = (), using_named: Sequence[str] = (), seconds: float | None = None
) -> Call[int]:
    """Run a SPARQL Update, all of it or nothing, and return the generation that holds it.

    ``using`` and ``using_named`` are the graphs that WHERE parts read; ``seconds`` can only shorten the service's own deadline. Raises
    ``QueryRejected`` (``detail``: line, column), what the rules of each graph raise, and ``Conflict``. It is not repeated by itself.
    """
    params: dict[str, object] = {}
    if using:
        params["using-graph-uri"] = list(using)
    if using_named:
        params["using-named-graph-uri"] = list(using_named)
    if seconds is not None:
        params["timeout"] = seconds
    headers = {"Content-Type": "application/sparql-update; charset=utf-8"}
    return Call("POST", "/sparql/update", _generation, params=params, headers=headers, content=encoded(text), repeatable=False)  # fmt: skip


def _generation(response: httpx.Response) -> int:
    return int(response.headers["X-Drumlin-Generation"])


def graph_name(iri: str | None) -> str:
    """Return what a handle of a graph has as its id, also of the default graph (None); raises ``InvalidInput`` for an empty IRI."""
    if iri == _DEFAULT:
        raise InvalidInput("the IRI of a graph is empty", hint="leave it out for the default graph")
    return _DEFAULT if iri is None else iri


def _named(graph: str) -> Mapping[str, str]:
    return {"default": ""} if graph == _DEFAULT else {"graph": graph}


def _text(graph: str, syntax: str = "turtle") -> Call[RdfText]:
    """Return the graph as text of an RDF syntax; raises ``ResourceNotFound``."""
    headers = {"Accept": syntax_named(syntax).media_type}
    return Call("GET", "/store", RdfText.from_response, params=_named(graph), headers=headers)


def _put(graph: str, text: str | bytes, *, syntax: str = "turtle") -> Call[bool]:
    """Make the graph hold exactly what a document says; return whether it is new. Raises ``InvalidDocument`` (``detail``: line, column)."""
    return _send("PUT", graph, text, syntax)


def _post(graph: str, text: str | bytes, *, syntax: str = "turtle") -> Call[bool]:
    """Add what a document says to the graph; return whether it is new. Raises ``InvalidDocument`` (``detail``: line, column)."""
    return _send("POST", graph, text, syntax)


def _send(method: str, graph: str, text: str | bytes, syntax: str) -> Call[bool]:
    content = encoded(text)
    headers = {"Content-Type": syntax_named(syntax).media_type}
    return Call(
        method, "/store", lambda response: response.status_code == 201, params=_named(graph), headers=headers, content=content,
        repeatable=method == "PUT",
    )  # fmt: skip


def _delete(graph: str) -> Call[None]:
    """Remove the graph; raises ``ResourceNotFound``."""
    return Call("DELETE", "/store", lambda _: None, params=_named(graph), repeatable=False)


class _UpdateOperations:
    text = operation_on(_text)
    to_rdflib = rdflib_graph_on(_text)
    put = operation_on(_put)
    post = operation_on(_post)
    delete = operation_on(_delete)


class Graph(BlockingHandle, _UpdateOperations):
    """Any graph of a service, by its IRI."""


class AsyncGraph(AwaitingHandle, _UpdateOperations):
    """The asynchronous twin of ``Graph``."""


class Updating:
    """SPARQL Update."""

    update = operation(_update)
