"""The time limit of a client: it holds for every request, and leaves no room for tries beyond it."""

from __future__ import annotations

import asyncio
from typing import Any

import httpx
import pytest

from drumlin.kg.client import calls, transport
from drumlin.kg.client.transport import ClientTransport
from drumlin.kg.errors import SourceUnavailable


class DeadWire:
    """Nobody answers: each try takes two seconds of a clock that only it moves."""

    address = httpx.URL("http://nobody.example")

    def __init__(self) -> None:
        self.now = 100.0
        self.sent: list[float | None] = []

    async def send(self, call: calls.Call[Any], **_: bool) -> httpx.Response:
        """Fail."""
        self.sent.append(call.seconds)
        self.now += 2
        raise httpx.ConnectTimeout("timed out", request=httpx.Request("GET", self.address))

    async def pause(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds

    async def aside(self, work: Any) -> Any:
        """Do nothing."""

    async def close(self) -> None:
        """Do nothing."""


@pytest.mark.parametrize(
    ("limit", "sent"), [(None, [900.0] * 6), (1.0, [1.0]), (4.0, [4.0, 4.0]), (60.0, [60.0] * 6)], ids=str
)
def test_a_limit_bounds_every_request_and_the_tries(
    monkeypatch: pytest.MonkeyPatch, limit: float | None, sent: list[float]
) -> None:
    """What is known to take long has it too; with a pause before it, a try that would begin after the end is not made."""
    wire: Any = DeadWire()
    monkeypatch.setattr(transport.time, "monotonic", lambda: wire.now)
    monkeypatch.setattr(transport.random, "random", lambda: 0.5)

    with pytest.raises(SourceUnavailable, match="no answer"):
        asyncio.run(ClientTransport(wire, 5, limit).run(calls.audit("text/turtle")))

    assert wire.sent == sent
