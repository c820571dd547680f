"""Addresses relative to the one that was asked for: they are right behind any proxy, whatever prefix it adds or strips (RFC 3986 §5)."""

from __future__ import annotations

from urllib.parse import quote, urlsplit

from starlette.requests import Request

from drumlin.api.http.asgi import Scope

MAX_DEPTH = 64
"""Folders that a page may lie below the root."""


def root_of(request: Request) -> str:
    """Return the relative address of the service's root, seen from what a request is for."""
    raw: bytes = request.scope.get("raw_path") or quote(request.scope["path"]).encode()
    return root_from(raw.partition(b"?")[0].count(b"/") - 1)


def root_from(depth: int) -> str:
    """Return the relative address of the root for what lies ``depth`` folders below it."""
    return "../" * min(max(depth, 0), MAX_DEPTH) or "./"


def prefix_of(base: str) -> str:
    """Return the path of a base without its last slash: /kg for https://x.example/kg, empty for most."""
    return urlsplit(base).path.rstrip("/")


def without_prefix(scope: Scope, prefix: str) -> bool:
    """Take a prefix that a proxy has left there off the path of a request; return whether it was there."""
    raw: bytes = (scope.get("raw_path") or quote(scope["path"]).encode()).partition(b"?")[0]
    path = scope["path"]
    if not raw.startswith(f"{prefix}/".encode()) or not path.startswith(f"{prefix}/"):
        return False
    scope["raw_path"], scope["path"] = raw[len(prefix) :], path[len(prefix) :]
    return True
