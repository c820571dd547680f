"""One definition of an operation for both clients: the function that makes its call is the method, awaited or not.

``search = operation(calls.search)`` in a class that both clients share gives ``client.search(…)`` the parameters, types and docstring of
``calls.search``; it returns what the call reads with ``Client``, and an awaitable of it with ``AsyncClient``.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from functools import update_wrapper
from typing import Any, Concatenate, Generic, ParamSpec, Protocol, TypeVar, overload

from kg.client.calls import Call

P = ParamSpec("P")
T = TypeVar("T")


class Blocking(Protocol):
    """What carries out a call and waits for it."""

    def run(self, call: Call[T]) -> T:
        """Carry out one call."""
        raise NotImplementedError


class Awaiting(Protocol):
    """What carries out a call when it is awaited."""

    async def run(self, call: Call[T]) -> T:
        """Carry out one call."""
        raise NotImplementedError


class operation(Generic[P, T]):  # noqa: N801 - it is used like property
    """A method of both clients, made of the function that makes its call."""

    def __init__(self, call: Callable[P, Call[T]]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __get__(self, client: Blocking, kind: type[Any]) -> Callable[P, T]: ...
    @overload
    def __get__(self, client: Awaiting, kind: type[Any]) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, client: None, kind: type[Any]) -> operation[P, T]: ...
    def __get__(self, client: Any, kind: type[Any]) -> Any:
        """Bind to a client."""
        if client is None:
            return self

        def carried_out(*given: P.args, **named: P.kwargs) -> Any:
            return client.run(self._call(*given, **named))

        return update_wrapper(carried_out, self._call)


class Handle:
    """One thing at a service, named by ``id``, in the hands of a client."""

    def __init__(self, client: Any, id: str) -> None:
        self._client = client
        self.id = id


class BlockingHandle(Handle):
    """A handle of ``Client``."""


class AwaitingHandle(Handle):
    """A handle of ``AsyncClient``."""


class operation_on(Generic[P, T]):  # noqa: N801 - it is used like property
    """A method of both kinds of handle, made of the function that makes its call, whose first parameter is the handle's id."""

    def __init__(self, call: Callable[Concatenate[str, P], Call[T]]) -> None:
        self._call = call
        self.__doc__ = call.__doc__

    @overload
    def __get__(self, handle: BlockingHandle, kind: type[Any]) -> Callable[P, T]: ...
    @overload
    def __get__(self, handle: AwaitingHandle, kind: type[Any]) -> Callable[P, Awaitable[T]]: ...
    @overload
    def __get__(self, handle: None, kind: type[Any]) -> operation_on[P, T]: ...
    def __get__(self, handle: Any, kind: type[Any]) -> Any:
        """Bind to a handle."""
        if handle is None:
            return self

        def carried_out(*given: P.args, **named: P.kwargs) -> Any:
            return handle._client.run(self._call(handle.id, *given, **named))  # noqa: SLF001 - the handle is the owner

        return update_wrapper(carried_out, self._call)
