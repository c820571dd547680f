"""Drumlin's client: ``import kg; client = kg.connect("http://localhost:8080")``.

Everything heavy is imported on first use, so that ``import kg`` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from kg.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "connect", "connect_async"]


def connect(url: str | None = None, **options: Any) -> Client:
    """Connect to a Drumlin service; without ``url``, ``DRUMLIN_URL`` or http://localhost:8080 is taken."""
    from kg.client import Client

    return Client(url, **options)


def connect_async(url: str | None = None, **options: Any) -> AsyncClient:
    """Connect to a Drumlin service from asynchronous code; the twin of ``connect``."""
    from kg.client import AsyncClient

    return AsyncClient(url, **options)


def __getattr__(name: str) -> Any:
    if name in ("Client", "AsyncClient"):
        from kg import client

        return getattr(client, name)
    raise AttributeError(f"module 'kg' has no attribute {name!r}")
