"""A client of a service in its own process: answers are streamed and bounded, and what nobody waits for is ended."""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import pytest

from drumlin.kg.client import client_within
from drumlin.kg.errors import SourceUnavailable, TooLarge

Send = Callable[[dict[str, Any]], Awaitable[None]]


class App:
    """An application that sends ``pieces`` of its answer and notes what it was asked; ``ending`` says what it does in the end."""

    def __init__(self, pieces: int = 1, ending: Any = None, *, silent: bool = False) -> None:
        self.pieces, self.ending, self.silent = pieces, ending, silent
        self.sent, self.cancelled = 0, False
        self.scope: dict[str, Any] = {}
        self.left: dict[str, Any] | None = None

    async def __call__(self, scope: Any, receive: Any, send: Send) -> None:
        """Answer (ASGI)."""
        self.scope = scope
        assert (await receive())["type"] == "http.request"
        try:
            if self.silent:
                self.left = await receive()
                return
            if self.ending is not None:
                raise self.ending
            await send({"type": "http.response.start", "status": 200, "headers": [(b"content-type", b"text/plain")]})
            for number in range(self.pieces):
                await send({"type": "http.response.body", "body": b"x" * 1000, "more_body": number + 1 < self.pieces})
                self.sent += 1
        except asyncio.CancelledError:
            self.cancelled = True
            raise


def asked(app: App, *, limit: float = 5.0, most: int = 10_000) -> str:
    """Return what a client within the process of an application reads of its metrics."""

    async def ask() -> str:
        async with client_within(app, {"authorization": "Bearer t"}, "10.0.0.1", limit=limit, max_bytes=most) as client:
            return await client.metrics_text()

    return asyncio.run(ask())


def test_an_answer_comes_whole_for_its_caller() -> None:
    """Credentials and address are those of the caller, and nothing is compressed on the way."""
    app = App(9)
    assert asked(app) == "x" * 9000
    assert app.scope["client"] == ("10.0.0.1", 0)
    headers = dict(app.scope["headers"])
    assert (headers[b"authorization"], headers[b"accept-encoding"]) == (b"Bearer t", b"identity")


def test_an_answer_that_is_too_large_is_ended() -> None:
    """Not much more of it is made than may be read: the application is cancelled."""
    app = App(1_000_000)
    with pytest.raises(TooLarge, match="more than 10,000 bytes"):
        asked(app)
    assert app.cancelled
    assert app.sent < 30


def test_silence_is_bounded() -> None:
    """An application that says nothing is ended after the limit, and the error is about time."""
    app = App(silent=True)
    with pytest.raises(SourceUnavailable, match="nothing came for 0.05 s, which is the time limit"):
        asked(app, limit=0.05)


@pytest.mark.parametrize("ending", [ValueError("broken"), asyncio.CancelledError()], ids=["error", "cancelled"])
def test_what_ends_an_application_does_not_end_its_client(ending: BaseException) -> None:
    """An error of the application is raised; when the service ends a request, its caller learns that there is no answer."""
    with pytest.raises(ValueError if isinstance(ending, ValueError) else SourceUnavailable):
        asked(App(ending=ending))
