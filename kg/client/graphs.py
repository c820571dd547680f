"""One entity's graph at a service, in a client's hands."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from kg.client import calls

if TYPE_CHECKING:
    from kg.client import AsyncClient, Client


class Subgraph:
    """One entity's graph at a service."""

    def __init__(self, client: Client, id: str) -> None:
        self._client = client
        self.id = id

    def get(self) -> dict[str, Any]:
        """Return the graph as a nested JSON-LD document."""
        return self._client.run(calls.get_subgraph(self.id))

    def text(self, syntax: str = "turtle") -> str:
        """Return the graph as text of an RDF syntax (``turtle``, ``nquads`` …)."""
        return self._client.run(calls.get_subgraph_text(self.id, syntax))

    def put(
        self, document: Mapping[str, Any] | str | bytes, *, syntax: str = "jsonld", if_match: str | None = None
    ) -> str:
        """Create or replace the graph and return its ETag; ``if_match`` is the ETag it must have now."""
        return self._client.run(calls.put_subgraph(self.id, document, syntax, if_match))

    def create(self, document: Mapping[str, Any] | str | bytes, *, syntax: str = "jsonld") -> str:
        """Create the graph and return its ETag; raises ``Conflict`` when it is there."""
        return self._client.run(calls.create_subgraph(self.id, document, syntax))

    def delete(self, *, if_match: str | None = None) -> None:
        """Delete the entity; a tombstone remains."""
        self._client.run(calls.delete_subgraph(self.id, if_match))

    def patch(self, patch: Mapping[str, Any] | str, *, if_match: str | None = None) -> str:
        """Change a part of the graph and return its ETag: a merge-patch (None removes, lists replace) or ground SPARQL Update."""
        return self._client.run(calls.patch_subgraph(self.id, patch, if_match))

    def frame(self, frame: str | Mapping[str, Any], *, depth: int = 0) -> dict[str, Any]:
        """Return the graph, with those up to ``depth`` links away, in the shape of a frame: a class's by name, or one's own."""
        return self._client.run(calls.frame_subgraph(self.id, frame, depth))

    def around(self, depth: int = 1, *, include: str | None = None) -> list[dict[str, Any]]:
        """Return the graph and those up to ``depth`` links away (0 to 3), each as a nested document; the own one comes first."""
        return self._client.run(calls.around_subgraph(self.id, depth, include))


class AsyncSubgraph:
    """The asynchronous twin of ``Subgraph``."""

    def __init__(self, client: AsyncClient, id: str) -> None:
        self._client = client
        self.id = id

    async def get(self) -> dict[str, Any]:
        """Return the graph as a nested JSON-LD document."""
        return await self._client.run(calls.get_subgraph(self.id))

    async def text(self, syntax: str = "turtle") -> str:
        """Return the graph as text of an RDF syntax (``turtle``, ``nquads`` …)."""
        return await self._client.run(calls.get_subgraph_text(self.id, syntax))

    async def put(
        self, document: Mapping[str, Any] | str | bytes, *, syntax: str = "jsonld", if_match: str | None = None
    ) -> str:
        """Create or replace the graph and return its ETag; ``if_match`` is the ETag it must have now."""
        return await self._client.run(calls.put_subgraph(self.id, document, syntax, if_match))

    async def create(self, document: Mapping[str, Any] | str | bytes, *, syntax: str = "jsonld") -> str:
        """Create the graph and return its ETag; raises ``Conflict`` when it is there."""
        return await self._client.run(calls.create_subgraph(self.id, document, syntax))

    async def delete(self, *, if_match: str | None = None) -> None:
        """Delete the entity; a tombstone remains."""
        await self._client.run(calls.delete_subgraph(self.id, if_match))

    async def patch(self, patch: Mapping[str, Any] | str, *, if_match: str | None = None) -> str:
        """Change a part of the graph and return its ETag: a merge-patch (None removes, lists replace) or ground SPARQL Update."""
        return await self._client.run(calls.patch_subgraph(self.id, patch, if_match))

    async def frame(self, frame: str | Mapping[str, Any], *, depth: int = 0) -> dict[str, Any]:
        """Return the graph, with those up to ``depth`` links away, in the shape of a frame: a class's by name, or one's own."""
        return await self._client.run(calls.frame_subgraph(self.id, frame, depth))

    async def around(self, depth: int = 1, *, include: str | None = None) -> list[dict[str, Any]]:
        """Return the graph and those up to ``depth`` links away (0 to 3), each as a nested document; the own one comes first."""
        return await self._client.run(calls.around_subgraph(self.id, depth, include))
