"""SPARQL Update, and any graph by its name (Graph Store Protocol), in a client's hands.

https://www.w3.org/TR/sparql11-protocol/#update-operation, https://www.w3.org/TR/sparql11-http-rdf-update/. An entity's graph keeps its
rules here too; ``client.subgraph`` is made for those.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import TypeVar

import httpx

from kg.client.calls import Call
from kg.rdf import syntax_named

T = TypeVar("T")


def _update(text: str, using: Sequence[str], using_named: Sequence[str], seconds: float | None) -> Call[int]:
    params: dict[str, object] = {}
    if using:
        params["using-graph-uri"] = list(using)
    if using_named:
        params["using-named-graph-uri"] = list(using_named)
    if seconds is not None:
        params["timeout"] = seconds
    headers = {"Content-Type": "application/sparql-update; charset=utf-8"}
    return Call("POST", "/sparql/update", _generation, params=params, headers=headers, content=text.encode(), repeatable=False)  # fmt: skip


def _generation(response: httpx.Response) -> int:
    return int(response.headers["X-Drumlin-Generation"])


def _named(graph: str | None) -> Mapping[str, str]:
    return {"default": ""} if graph is None else {"graph": graph}


def _read(graph: str | None, syntax: str) -> Call[str]:
    headers = {"Accept": syntax_named(syntax).media_type}
    return Call("GET", "/store", lambda response: response.text, params=_named(graph), headers=headers)


def _send(method: str, graph: str | None, text: str | bytes, syntax: str) -> Call[bool]:
    content = text.encode() if isinstance(text, str) else text
    headers = {"Content-Type": syntax_named(syntax).media_type}
    return Call(
        method, "/store", lambda response: response.status_code == 201, params=_named(graph), headers=headers, content=content,
        repeatable=method == "PUT",
    )  # fmt: skip


def _delete(graph: str | None) -> Call[None]:
    return Call("DELETE", "/store", lambda _: None, params=_named(graph), repeatable=False)


class Graph:
    """Any graph of a service, by its IRI; None is the default graph."""

    def __init__(self, client: Updating, iri: str | None) -> None:
        self._client = client
        self.iri = iri

    def text(self, syntax: str = "turtle") -> str:
        """Return the graph as text of an RDF syntax; raises ``ResourceNotFound``."""
        return self._client.run(_read(self.iri, syntax))

    def put(self, text: str | bytes, *, syntax: str = "turtle") -> bool:
        """Make the graph hold exactly what a document says; tells whether it is new."""
        return self._client.run(_send("PUT", self.iri, text, syntax))

    def post(self, text: str | bytes, *, syntax: str = "turtle") -> bool:
        """Add what a document says to the graph; tells whether it is new."""
        return self._client.run(_send("POST", self.iri, text, syntax))

    def delete(self) -> None:
        """Remove the graph; raises ``ResourceNotFound``."""
        self._client.run(_delete(self.iri))


class Updating:
    """SPARQL Update and graphs by name, synchronously."""

    def run(self, call: Call[T]) -> T:
        """Carry out one call."""
        raise NotImplementedError

    def update(
        self,
        text: str,
        *,
        using: Sequence[str] = (),
        using_named: Sequence[str] = (),
        seconds: float | None = None,
    ) -> int:
        """Run a SPARQL Update, all of it or nothing, and return the generation that holds it.

        ``using`` and ``using_named`` are the graphs that WHERE parts read; ``seconds`` can only shorten the service's own deadline. Raises
        ``QueryRejected`` (``detail``: line, column), what the rules of each graph raise, and ``Conflict``. It is not repeated by itself.
        """
        return self.run(_update(text, using, using_named, seconds))

    def graph(self, iri: str | None = None) -> Graph:
        """Return a handle on any graph, the default graph when none is named; nothing is sent yet."""
        return Graph(self, iri)


class AsyncGraph:
    """The asynchronous twin of ``Graph``."""

    def __init__(self, client: AsyncUpdating, iri: str | None) -> None:
        self._client = client
        self.iri = iri

    async def text(self, syntax: str = "turtle") -> str:
        """Return the graph as text of an RDF syntax; raises ``ResourceNotFound``."""
        return await self._client.run(_read(self.iri, syntax))

    async def put(self, text: str | bytes, *, syntax: str = "turtle") -> bool:
        """Make the graph hold exactly what a document says; tells whether it is new."""
        return await self._client.run(_send("PUT", self.iri, text, syntax))

    async def post(self, text: str | bytes, *, syntax: str = "turtle") -> bool:
        """Add what a document says to the graph; tells whether it is new."""
        return await self._client.run(_send("POST", self.iri, text, syntax))

    async def delete(self) -> None:
        """Remove the graph; raises ``ResourceNotFound``."""
        await self._client.run(_delete(self.iri))


class AsyncUpdating:
    """The asynchronous twin of ``Updating``."""

    async def run(self, call: Call[T]) -> T:
        """Carry out one call."""
        raise NotImplementedError

    async def update(
        self,
        text: str,
        *,
        using: Sequence[str] = (),
        using_named: Sequence[str] = (),
        seconds: float | None = None,
    ) -> int:
        """Run a SPARQL Update; see ``Updating.update``."""
        return await self.run(_update(text, using, using_named, seconds))

    def graph(self, iri: str | None = None) -> AsyncGraph:
        """Return a handle on any graph; see ``Updating.graph``."""
        return AsyncGraph(self, iri)
