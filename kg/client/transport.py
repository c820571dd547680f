"""Carrying out calls: sent, sent again where that is safe, read or streamed. Written once, as coroutines, for both clients.

``AsyncClient`` awaits them. ``Client`` runs the very same ones over a wire whose acts block: nothing in them ever waits for an event
loop, so that one ``send`` runs each to its end (``finished``). The two wires are all that is twofold.
"""

from __future__ import annotations

import asyncio
import random
import re
import threading
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Coroutine, Generator
from concurrent.futures import CancelledError, Future
from contextlib import aclosing, asynccontextmanager
from dataclasses import replace
from typing import Any, Protocol, TypeVar

import httpx
import msgspec

from drumlin.kg.client.calls import Call
from drumlin.kg.client.problems import raise_for_problem, retry_after
from drumlin.kg.errors import InvalidInput, SourceUnavailable, TooLarge
from drumlin.kg.model.connection_errors import REFUSED, Reason, lasts, reason_of

T = TypeVar("T")

_LONGEST_PAUSE = 30.0  # seconds between two tries, whatever Retry-After says
CONNECT_SECONDS = 5.0
_OF_THE_BODY = frozenset({"content-encoding", "content-length", "transfer-encoding"})  # as it came
_ENDED = re.compile("disconnected|closed connection|connection closed", re.IGNORECASE)  # what httpx's two parsers say


class CarryMode(Protocol):
    """Runs a coroutine to its end and returns what it returns."""

    def __call__(self, steps: Coroutine[Any, Any, T], /) -> T:
        """Run it."""


def finished(steps: Coroutine[Any, Any, T]) -> T:
    """Run a coroutine over a blocking wire: it never waits, so it ends in one go."""
    try:
        steps.send(None)
    except StopIteration as end:
        answer: T = end.value
        return answer
    raise AssertionError("nothing is awaited over a blocking wire")


def one_by_one(carry: CarryMode, items: AsyncGenerator[T, None]) -> Generator[T, None, None]:
    """Yield the items of an asynchronous generator, and close it at the end, or as soon as nobody wants more."""
    try:
        while True:
            try:
                item = carry(items.__anext__())
            except StopAsyncIteration:
                return
            yield item
    finally:
        carry(items.aclose())


class Wire(Protocol):
    """The acts of I/O, each as a coroutine."""

    @property
    def address(self) -> httpx.URL:
        """The service's address."""

    async def send(self, call: Call[Any], *, whole: bool) -> httpx.Response:
        """Send a request; the answer's body is there when it is wanted ``whole``."""

    async def read(self, response: httpx.Response) -> None:
        """Read the rest of a body."""

    def chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield a body as it comes."""

    async def leave(self, response: httpx.Response) -> None:
        """Let go of an answer that may not have been read."""

    async def pause(self, seconds: float) -> None:
        """Wait."""

    async def aside(self, work: Callable[[CarryMode], T]) -> T:
        """Do work that blocks where it keeps nobody waiting; it is given what carries out coroutines from there."""

    async def close(self) -> None:
        """Close all connections."""


class BlockingWire:
    """The wire of ``Client``: its acts are done when they return."""

    def __init__(self, **options: Any) -> None:
        self._http = httpx.Client(**options)

    @property
    def address(self) -> httpx.URL:
        """The service's address."""
        return self._http.base_url

    async def send(self, call: Call[Any], *, whole: bool) -> httpx.Response:
        """Send a request."""
        return self._http.send(_request(self._http, call), stream=not whole)

    async def read(self, response: httpx.Response) -> None:
        """Read the rest of a body."""
        response.read()

    async def chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield a body as it comes."""
        for chunk in response.iter_bytes():
            yield chunk

    async def leave(self, response: httpx.Response) -> None:
        """Let go of an answer."""
        response.close()

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        time.sleep(seconds)  # noqa: ASYNC251 - no event loop runs this

    async def aside(self, work: Callable[[CarryMode], T]) -> T:
        """Do the work here: there is nobody else."""
        return work(finished)

    async def close(self) -> None:
        """Close all connections."""
        self._http.close()


class AwaitingWire:
    """The wire of ``AsyncClient``: its acts let others run meanwhile."""

    def __init__(self, **options: Any) -> None:
        self._http = httpx.AsyncClient(**options)

    @property
    def address(self) -> httpx.URL:
        """The service's address."""
        return self._http.base_url

    async def send(self, call: Call[Any], *, whole: bool) -> httpx.Response:
        """Send a request."""
        return await self._http.send(_request(self._http, call), stream=not whole)

    async def read(self, response: httpx.Response) -> None:
        """Read the rest of a body."""
        await response.aread()

    async def chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield a body as it comes."""
        async for chunk in response.aiter_bytes():
            yield chunk

    async def leave(self, response: httpx.Response) -> None:
        """Let go of an answer."""
        await response.aclose()

    async def pause(self, seconds: float) -> None:
        """Sleep."""
        await asyncio.sleep(seconds)

    async def aside(self, work: Callable[[CarryMode], T]) -> T:
        """Do the work in a thread, which has its coroutines run here; when nobody waits for it any more it ends at this one or the next."""
        loop, left, running = asyncio.get_running_loop(), threading.Event(), set[Future[Any]]()

        def carry(steps: Coroutine[Any, Any, Any]) -> Any:
            if left.is_set():
                steps.close()
                raise CancelledError
            future = asyncio.run_coroutine_threadsafe(steps, loop)
            running.add(future)
            try:
                return future.result()
            finally:
                running.discard(future)

        try:
            return await asyncio.to_thread(work, carry)
        finally:
            left.set()
            for each in tuple(running):
                each.cancel()

    async def close(self) -> None:
        """Close all connections."""
        await self._http.aclose()


def _request(http: httpx.Client | httpx.AsyncClient, call: Call[Any]) -> httpx.Request:
    timeout = httpx.USE_CLIENT_DEFAULT if call.seconds is None else time_out(call.seconds)
    try:
        return http.build_request(
            call.method,
            call.path,
            params=dict(call.params),
            headers=dict(call.headers),
            content=call.content,
            timeout=timeout,
        )
    except UnicodeEncodeError as error:  # half a surrogate pair
        raise InvalidInput(f"a parameter of {call.method} {call.path} is not valid Unicode") from error
    except httpx.InvalidURL as error:  # parameters of 64 KB
        raise InvalidInput(f"{call.method} {call.path} cannot be sent as it is: {error}") from error


def time_out(seconds: float) -> httpx.Timeout:
    """Return a time-out for silence within a request; connecting may take 5 s of it."""
    return httpx.Timeout(seconds, connect=min(CONNECT_SECONDS, seconds))


class ClientTransport:
    """Carries calls to one service over a wire; each is tried ``retries`` times more when it is safe and may help.

    ``limit``: seconds of silence within a request, whatever its call says, and in which it may be tried again; None: as the call or
    the wire says. ``max_bytes``: of an answer that is read whole; None: any number.
    """

    def __init__(self, wire: Wire, retries: int, limit: float | None = None, max_bytes: int | None = None) -> None:
        self._wire = wire
        self._retries = retries
        self._limit = limit
        self._max_bytes = max_bytes
        self.pause = wire.pause
        self.aside = wire.aside
        self.close = wire.close

    @property
    def url(self) -> str:
        """The service's address, without a user's name and password."""
        return str(self._wire.address.copy_with(userinfo=b""))

    async def run(self, call: Call[T]) -> T:
        """Carry out one call; raises the service's own errors, and ``SourceUnavailable`` when there is no answer, or none of a service."""
        bounded = self._max_bytes is not None
        response = await self._answer(call, self._retries, whole=not bounded)
        if self._max_bytes is not None:
            response = await self._bounded(call, response, self._max_bytes)
        try:
            return call.read(response)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError, LookupError) as error:
            raise SourceUnavailable(
                f"what {self.url} answers to {call.path} is no service's answer", hint="check the address"
            ) from error

    async def _bounded(self, call: Call[Any], response: httpx.Response, most: int) -> httpx.Response:
        """Read an answer whole; raises ``TooLarge`` as soon as it has more than ``most`` bytes."""
        body = bytearray()
        try:
            async with aclosing(self._wire.chunks(response)) as chunks:
                async for chunk in chunks:
                    body += chunk
                    if len(body) > most:
                        raise TooLarge(
                            f"the answer to {call.path} has more than {most:,} bytes", hint="ask for less at a time"
                        )
        except httpx.RequestError as error:
            raise self._unanswered(call, error) from error
        finally:
            await self._wire.leave(response)
        plain = [(name, value) for name, value in response.headers.items() if name not in _OF_THE_BODY]
        return httpx.Response(response.status_code, headers=plain, content=bytes(body), request=response.request)

    async def stream(self, call: Call[Any]) -> AsyncGenerator[bytes, None]:
        """Carry out one call and yield its body as it comes; once it has begun it is not begun again."""
        async with self.opened(call) as chunks:
            async for chunk in chunks:
                yield chunk

    @asynccontextmanager
    async def opened(self, call: Call[Any], *, retries: int | None = None) -> AsyncIterator[AsyncIterator[bytes]]:
        """Carry out one call and give its body as it comes; raises ``SourceUnavailable`` also when that breaks off."""
        response = await self._answer(call, self._retries if retries is None else retries, whole=False)
        try:
            async with aclosing(self._wire.chunks(response)) as chunks:
                yield chunks
        except httpx.RequestError as error:
            raise self._unanswered(call, error) from error
        finally:
            await self._wire.leave(response)

    async def _answer(self, call: Call[Any], retries: int, *, whole: bool) -> httpx.Response:
        call = call if self._limit is None else replace(call, seconds=self._limit)
        ends = None if self._limit is None else time.monotonic() + self._limit
        attempt = 0
        while True:
            try:
                response = await self._wire.send(call, whole=whole)
            except httpx.RequestError as error:
                wait = backoff(attempt)
                if attempt >= retries or not _may_help(call, error) or _is_late(wait, ends):
                    raise self._unanswered(call, error) from error
            else:
                wait = pause_before(attempt, retry_after(response))
                if attempt >= retries or not _is_busy(call, response.status_code) or _is_late(wait, ends):
                    return await self._checked(call, response)
                await self._wire.leave(response)
            await self.pause(wait)
            attempt += 1

    async def _checked(self, call: Call[Any], response: httpx.Response) -> httpx.Response:
        if response.status_code < 300:
            return response
        try:
            await self._wire.read(response)
            raise_for_problem(response)
        except httpx.RequestError as error:
            raise self._unanswered(call, error) from error
        finally:
            await self._wire.leave(response)
        return response

    def _unanswered(self, call: Call[Any], error: httpx.RequestError) -> SourceUnavailable:
        if isinstance(error, httpx.ReadTimeout | httpx.WriteTimeout):
            seconds = error.request.extensions["timeout"]["read"]
            text = f"nothing came for {seconds:g} s, which is the time limit"
            hint = "it is busy, or this takes long: give it a longer timeout (drumlin … --timeout SECONDS)"
        else:
            text, hint, _ = reason_of(error) or _unexplained(error)
        hint += "; start one with: drumlin serve" if text == REFUSED.text else ""
        return SourceUnavailable(
            f"no answer from the service at {self.url} to {call.method} {call.path}: {text}", hint=hint
        )


def _unexplained(error: httpx.RequestError) -> Reason:
    """Return why there is no answer, where none of the standard library's errors says it: the connection ended, or no HTTP came."""
    if isinstance(error, httpx.RemoteProtocolError) and _ENDED.search(str(error)):
        return Reason(
            "the connection ended without a whole answer",
            "ask again; a proxy in between may have a time limit of its own",
        )
    return Reason(str(error) or type(error).__name__, "check that it is a Drumlin service")


def _is_late(wait: float, ends: float | None) -> bool:
    """Return whether a time limit (by the monotonic clock) leaves no room for another try after a pause."""
    return ends is not None and time.monotonic() + wait >= ends


def _is_busy(call: Call[Any], status: int) -> bool:
    """Return whether to try again for a status: Throttled is surely not done, what was Unavailable may be."""
    return status == 429 or (status == 503 and call.repeatable)


def _may_help(call: Call[Any], error: httpx.RequestError) -> bool:
    """Return whether to try again: not what is only slow, may have been done, or stays as it is."""
    if lasts(error):
        return False
    if isinstance(error, httpx.ConnectError | httpx.ConnectTimeout):
        return True
    return call.repeatable and isinstance(error, httpx.NetworkError | httpx.RemoteProtocolError | httpx.WriteTimeout)


def backoff(attempt: int) -> float:
    """Return how long to wait before the next try, in seconds: twice as long each time, with jitter."""
    return float(0.2 * 2**attempt * (0.5 + random.random()))  # noqa: S311 - jitter


def pause_before(attempt: int, asked: float | None) -> float:
    """Return how long to wait before the next try, in seconds: what the service asks for, at most half a minute, else ``backoff``."""
    return backoff(attempt) if asked is None else min(asked, _LONGEST_PAUSE)
