"""A blocking client of an application in this process: requests go straight to it, on one event loop of its own."""

from __future__ import annotations

import asyncio
import threading
from collections.abc import AsyncGenerator, Callable
from typing import Any, TypeVar

import httpx

from drumlin.api.edge.entry import EdgeApplication
from drumlin.kg.client import Client
from drumlin.kg.client.calls import Call
from drumlin.kg.client.transport import CarryMode, ClientTransport, finished

T = TypeVar("T")


class AppWire:
    """The acts of a client's wire (``kg.client.transport.Wire``), carried out by an application; ``cut`` parts it from its clients."""

    def __init__(self, app: EdgeApplication, loop: asyncio.AbstractEventLoop, lock: threading.Lock, token: str) -> None:
        self._loop, self._lock, self.cut = loop, lock, False
        self._http = httpx.AsyncClient(
            transport=httpx.ASGITransport(app),  # type: ignore[arg-type]
            base_url="http://localhost",
            headers={"Authorization": f"Bearer {token}"},
            timeout=60,
        )

    @property
    def address(self) -> httpx.URL:
        """The service's address."""
        return self._http.base_url

    async def send(self, call: Call[Any], *, whole: bool) -> httpx.Response:  # noqa: ARG002 - it is always whole
        """Send a request, and have the whole answer."""
        request = self._http.build_request(
            call.method, call.path, params=dict(call.params), headers=dict(call.headers), content=call.content
        )
        if self.cut:
            raise httpx.ConnectError("the network is parted", request=request)
        with self._lock:
            return self._loop.run_until_complete(self._http.send(request))

    async def read(self, response: httpx.Response) -> None:
        """Do nothing: it has been read."""

    async def chunks(self, response: httpx.Response) -> AsyncGenerator[bytes, None]:
        """Yield the body."""
        yield response.content

    async def leave(self, response: httpx.Response) -> None:
        """Do nothing: nothing is open."""

    async def pause(self, seconds: float) -> None:
        """Go on at once."""

    async def aside(self, work: Callable[[CarryMode], T]) -> T:
        """Do the work here."""
        return work(finished)

    async def close(self) -> None:
        """Leave the application as it is: others have it too."""


def client_of(wire: AppWire) -> Client:
    """Return a client whose requests go over a wire."""
    made = Client("http://localhost", token="unused")
    made._carrier = ClientTransport(wire, 0)
    return made
