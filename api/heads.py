"""HEAD wherever there is GET (RFC 9110 §9.1): who looks whether something is there, or works, need not take it."""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from contextlib import suppress

from fastapi import APIRouter
from fastapi.routing import APIRoute

from api.compression import Message, Receive, Scope, Send
from api.hot import Application


def with_head(routers: Sequence[APIRouter]) -> None:
    """Let HEAD be asked wherever GET is (RFC 9110 §9.1); the server leaves out the body."""
    for route in (each for router in routers for each in router.routes):
        if isinstance(route, APIRoute) and route.methods and "GET" in route.methods:
            route.methods.add("HEAD")


class Headed:
    """Ends the answer to HEAD where a body would be streamed: nobody takes it, and a feed never ends."""

    def __init__(self, app: Application) -> None:
        self._app = app

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Pass a request on (ASGI)."""
        if scope["type"] != "http" or scope["method"] != "HEAD":
            await self._app(scope, receive, send)
            return
        begun = asyncio.Event()

        async def tell(message: Message) -> None:
            if begun.is_set():
                return
            if message.get("more_body"):
                begun.set()
                message = {**message, "body": b"", "more_body": False}
            await send(message)

        answering = asyncio.ensure_future(self._app(scope, receive, tell))
        ended = asyncio.ensure_future(begun.wait())
        await asyncio.wait((answering, ended), return_when=asyncio.FIRST_COMPLETED)
        (ended if answering.done() else answering).cancel()
        with suppress(asyncio.CancelledError):
            await answering
