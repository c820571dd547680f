"""One definition of an operation for both clients, as a function; with ``Client`` it answers at once, with ``AsyncClient`` it is awaited.

``search = operation(calls.search)`` in a class that both clients share gives ``client.search(…)`` the parameters, types and docstring of
``calls.search``; ``operation_on`` passes a handle's id. What takes several calls is an ``async def`` with ``@composed``, what comes piece
by piece one that yields, with ``@iterated``; with ``Client`` they are a plain method and a plain iterator.
"""

from __future__ import annotations

from collections.abc import AsyncGenerator, Callable, Coroutine, Generator
from functools import update_wrapper
from types import MethodType
from typing import TYPE_CHECKING, Any, Concatenate, Generic, ParamSpec, TypeVar, overload

from drumlin.kg.client.calls import Call
from drumlin.kg.client.rdf_text import RdfText
from drumlin.kg.client.transport import ClientTransport, finished, one_by_one

if TYPE_CHECKING:
    import rdflib

P = ParamSpec("P")
T = TypeVar("T")


class Blocking:
    """``Client``, and what it hands out: operations answer at once."""

    def __init__(self, carrier: ClientTransport) -> None:
        self._carrier = carrier


class Awaiting:
    """``AsyncClient``, and what it hands out: operations are awaited."""

    def __init__(self, carrier: ClientTransport) -> None:
        self._carrier = carrier


class BlockingHandle(Blocking):
    """One thing at a service, named by ``id``, in the hands of a ``Client``."""

    def __init__(self, carrier: ClientTransport, id: str) -> None:
        super().__init__(carrier)
        self.id = id


class AwaitingHandle(Awaiting):
    """One thing at a service, named by ``id``, in the hands of an ``AsyncClient``."""

    def __init__(self, carrier: ClientTransport, id: str) -> None:
        super().__init__(carrier)
        self.id = id


class method(Generic[P, T]):  # noqa: N801 - it is used like property
    """A method of both clients, or of both kinds of handle; ``bind`` gives the function that makes its call, or its steps."""

    def __init__(self, defined: Callable[..., Any], bind: Callable[[Any], Callable[P, Any]]) -> None:
        self._bind = bind
        self.__doc__ = defined.__doc__

    @overload
    def __get__(self, owner: Blocking, kind: type[Any]) -> Callable[P, T]: ...
    @overload
    def __get__(self, owner: Awaiting, kind: type[Any]) -> Callable[P, Coroutine[Any, Any, T]]: ...
    @overload
    def __get__(self, owner: None, kind: type[Any]) -> method[P, T]: ...
    def __get__(self, owner: Any, kind: type[Any]) -> Any:
        """Bind to its owner."""
        if owner is None:
            return self
        bound = self._bind(owner)

        def carried_out(*given: P.args, **named: P.kwargs) -> Any:
            made = bound(*given, **named)
            steps = owner._carrier.run(made) if isinstance(made, Call) else made  # noqa: SLF001 - it is a part of its owner
            return finished(steps) if isinstance(owner, Blocking) else steps

        return update_wrapper(carried_out, bound)


def operation(call: Callable[P, Call[T]]) -> method[P, T]:
    """Make a method of the function that makes its call."""
    return method(call, lambda _: call)


def operation_on(call: Callable[Concatenate[str, P], Call[T]]) -> method[P, T]:
    """Make a handle's method of the function that makes its call, whose first parameter is the handle's id."""
    return method(call, lambda handle: MethodType(call, handle.id))


def composed(steps: Callable[Concatenate[Any, P], Coroutine[Any, Any, T]]) -> method[P, T]:
    """Make a method of a coroutine that carries out several calls by its owner's carrier."""
    return method(steps, lambda owner: MethodType(steps, owner))


def rdflib_graph_on(text: Callable[[str, str], Call[RdfText]]) -> method[[], rdflib.Graph]:
    """Make the ``to_rdflib`` of a handle from the function that makes the call for its text in a syntax."""

    async def to_rdflib(handle: Any) -> rdflib.Graph:
        """Return the graph as an ``rdflib.Graph``; blank nodes keep their labels. Raises ``ResourceNotFound``.

        ``AsyncClient`` parses it in a thread.
        """
        found = await handle._carrier.run(text(handle.id, "ntriples"))  # noqa: SLF001 - it is a part of the handle
        graph: rdflib.Graph = await handle._carrier.aside(lambda _: found.to_rdflib())  # noqa: SLF001
        return graph

    return composed(to_rdflib)


class iterated(Generic[P, T]):  # noqa: N801 - it is used like property
    """A method of both clients whose answer comes piece by piece, made of an asynchronous generator over its owner's carrier."""

    def __init__(self, items: Callable[Concatenate[Any, P], AsyncGenerator[T, None]]) -> None:
        self._items = items
        self.__doc__ = items.__doc__

    @overload
    def __get__(self, owner: Blocking, kind: type[Any]) -> Callable[P, Generator[T, None, None]]: ...
    @overload
    def __get__(self, owner: Awaiting, kind: type[Any]) -> Callable[P, AsyncGenerator[T, None]]: ...
    @overload
    def __get__(self, owner: None, kind: type[Any]) -> iterated[P, T]: ...
    def __get__(self, owner: Any, kind: type[Any]) -> Any:
        """Bind to a client."""
        if owner is None:
            return self
        bound = MethodType(self._items, owner)

        def carried_out(*given: P.args, **named: P.kwargs) -> Any:
            items = bound(*given, **named)
            return one_by_one(finished, items) if isinstance(owner, Blocking) else items

        return update_wrapper(carried_out, bound)
