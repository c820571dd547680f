"""One entity's graph at a service, in a client's hands; each operation is one definition for both kinds of handle."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MethodType
from typing import Any, Concatenate, ParamSpec, TypeVar

from drumlin.kg.client import calls
from drumlin.kg.client.calls import Call, Moment
from drumlin.kg.client.endpoint import AwaitingHandle, BlockingHandle, method, operation_on, rdflib_graph_on
from drumlin.kg.client.rdf_text import RdfText
from drumlin.kg.client.transport import ClientTransport

P = ParamSpec("P")
T = TypeVar("T")
Document = Mapping[str, Any] | str | bytes


def _text(id: str, syntax: str = "turtle") -> Call[RdfText]:
    """Return the graph as text of an RDF syntax (``turtle``, ``nquads`` …); raises as ``get``, and ``UnsupportedSyntax``."""
    return calls.get_subgraph_text(id, syntax)


def _put(id: str, document: Document, *, syntax: str = "jsonld", if_match: str | None = None) -> Call[str]:
    """Create or replace the graph and return its ETag; ``if_match`` is the ETag it must have now.

    Raises ``InvalidDocument`` (``detail``: line, column), ``ShapeViolation``, ``GraphOwned``, ``PreconditionFailed``,
    ``PreconditionRequired`` when the service wants ``if_match``, ``TooLarge``. With ``if_match`` it is not repeated by itself.
    """
    return calls.put_subgraph(id, document, syntax, if_match)


def _create(id: str, document: Document, *, syntax: str = "jsonld") -> Call[str]:
    """Create the graph and return its ETag; raises ``AlreadyExists``, a ``Conflict``, and what ``put`` raises for the document."""
    return calls.create_subgraph(id, document, syntax)


def _delete(id: str, *, if_match: str | None = None) -> Call[None]:
    """Delete the entity; a tombstone remains. Raises ``ResourceNotFound``, ``GraphOwned``, ``PreconditionFailed``."""
    return calls.delete_subgraph(id, if_match)


def _patch(id: str, patch: Mapping[str, Any] | str, *, if_match: str | None = None) -> Call[str]:
    """Change a part of the graph and return its ETag: a merge-patch (None removes, lists replace) or ground SPARQL Update.

    Raises ``ResourceNotFound``, ``QueryRejected`` for an update that is not ground, and what ``put`` raises for what comes of it.
    """
    return calls.patch_subgraph(id, patch, if_match)


def _frame(id: str, frame: str | Mapping[str, Any], *, depth: int = 0) -> Call[dict[str, Any]]:
    """Return the graph, with those up to ``depth`` links away, in the shape of a frame: a class's by name, or one's own.

    ``frame="seed"`` is the flat document of an entity with telemetry: application, data, metrics and logs with their datasources.

    Raises ``ResourceNotFound`` (also for a class without a frame), ``InvalidDocument`` for a frame that is none, ``TooLarge``.
    """
    return calls.frame_subgraph(id, frame, depth)


def _around(id: str, depth: int = 1, *, include: str | None = None) -> Call[list[dict[str, Any]]]:
    """Return the graph and those up to ``depth`` links away (0 to 3), each as a nested document; the own one comes first.

    ``include`` names the links that are followed (``partOf``), or ``incoming``. Raises ``ResourceNotFound``, ``InvalidInput``.
    """
    return calls.around_subgraph(id, depth, include)


def _compare(id: str, begin: Moment | None = None, end: Moment | None = None) -> Call[dict[str, Any]]:
    """Return what differs between two moments (generations, or times): ``from``, ``to``, ``removed`` and ``added`` (N-Quads).

    Without ``end`` it is now, without ``begin`` before its last change then. ``was`` and ``is`` say whether it was there. Raises
    ``ResourceNotFound``, ``EventsGone`` when the change log does not reach so far, ``CapabilityMissing`` where no past is kept.
    """
    return calls.compare_subgraph(id, begin, end)


def _past_get(past: tuple[str, Moment], *, inline_context: bool = False) -> Call[dict[str, Any]]:
    """Return the graph as it was, as a nested JSON-LD document (with its context when ``inline_context``).

    Raises ``ResourceNotFound`` when it was not there, ``ResourceGone`` when it was deleted then, ``EventsGone`` when the change log does
    not reach so far, ``InvalidInput`` for a generation that is not written yet, ``CapabilityMissing`` where the service keeps no past.
    """
    return calls.get_subgraph(past[0], inline_context=inline_context, at=past[1])


def _past_text(past: tuple[str, Moment], syntax: str = "turtle") -> Call[RdfText]:
    """Return the graph as it was, as text of an RDF syntax; raises as ``get``, and ``UnsupportedSyntax``."""
    return calls.get_subgraph_text(past[0], syntax, past[1])


def _operation_on_past(call: Callable[Concatenate[tuple[str, Moment], P], Call[T]]) -> method[P, T]:
    return method(call, lambda handle: MethodType(call, (handle.id, handle.at)))


class _PastOperations:
    get = _operation_on_past(_past_get)
    text = _operation_on_past(_past_text)


class PastSubgraph(BlockingHandle, _PastOperations):
    """One entity's graph at a service as it was ``at`` a generation or a time; it cannot be written."""

    def __init__(self, carrier: ClientTransport, id: str, at: Moment) -> None:
        super().__init__(carrier, id)
        self.at = at


class AsyncPastSubgraph(AwaitingHandle, _PastOperations):
    """The asynchronous twin of ``PastSubgraph``."""

    def __init__(self, carrier: ClientTransport, id: str, at: Moment) -> None:
        super().__init__(carrier, id)
        self.at = at


class _SubgraphOperations:
    get = operation_on(calls.get_subgraph)
    read = operation_on(calls.read_subgraph)
    text = operation_on(_text)
    to_rdflib = rdflib_graph_on(_text)
    put = operation_on(_put)
    create = operation_on(_create)
    delete = operation_on(_delete)
    patch = operation_on(_patch)
    frame = operation_on(_frame)
    around = operation_on(_around)
    compare = operation_on(_compare)


class Subgraph(BlockingHandle, _SubgraphOperations):
    """One entity's graph at a service."""


class AsyncSubgraph(AwaitingHandle, _SubgraphOperations):
    """The asynchronous twin of ``Subgraph``."""
