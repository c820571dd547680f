"""Drumlin: the semantic map of Kubernetes clusters and their telemetry. ``import drumlin; client = drumlin.connect("http://localhost:8080")``.

The only package that an installation has; ``drumlin.kg``, ``drumlin.api`` and so on are the folders beside it in the repository. Everything
heavy is imported on first use, so that ``import drumlin`` stays fast.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from drumlin.kg.client import AsyncClient, Client

__all__ = ["AsyncClient", "Client", "connect", "connect_async"]


def connect(url: str | None = None, **options: Any) -> Client:
    """Connect to a Drumlin service; without ``url``, ``DRUMLIN_URL`` or http://localhost:8080 is taken.

    ``token`` is a bearer token, ``token_file`` a file with one; without them, ``DRUMLIN_TOKEN_FILE`` or ``DRUMLIN_TOKEN`` is taken.
    """
    from drumlin.kg.client import Client

    return Client(url, **options)


def connect_async(url: str | None = None, **options: Any) -> AsyncClient:
    """Connect to a Drumlin service from asynchronous code; the twin of ``connect``."""
    from drumlin.kg.client import AsyncClient

    return AsyncClient(url, **options)


def __getattr__(name: str) -> Any:
    if name in ("Client", "AsyncClient"):
        from drumlin.kg import client

        return getattr(client, name)
    raise AttributeError(f"module 'drumlin' has no attribute {name!r}")
