"""The bearer token that a client sends: given, or read from a file for each request, so that it may be rotated there."""

from __future__ import annotations

import os
from collections.abc import Callable, Generator
from functools import partial
from pathlib import Path

import httpx

from drumlin.kg.errors import InvalidSettings

TOKEN, TOKEN_FILE = "DRUMLIN_TOKEN", "DRUMLIN_TOKEN_FILE"
"""Environment variables that hold a token, and the path of a file that holds one."""


class Bearer(httpx.Auth):
    """Sends the token that ``read`` returns, which is called for each request; raises ``InvalidSettings`` when it is no token."""

    def __init__(self, read: Callable[[], str]) -> None:
        self._read = read

    @classmethod
    def of(cls, token: str | None, file: Path | None) -> Bearer | None:
        """Return what sends ``token``, or the one in ``file``, or what the environment names; None where there is no token.

        Raises ``InvalidSettings`` when both are given, or when a token is not one.
        """
        if token is not None and file is not None:
            raise InvalidSettings("a token and a file of a token are given", hint="give one of them")
        if token is None and file is None:
            token, named = os.environ.get(TOKEN) or None, os.environ.get(TOKEN_FILE)
            file = Path(named) if named else None
        if file is not None:
            return cls(partial(_in_file, file))
        return None if token is None else cls(partial(str, _checked(token, "the token")))

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the token."""
        request.headers["Authorization"] = f"Bearer {self._read()}"
        yield request


def _in_file(file: Path) -> str:
    try:
        token = file.read_text(encoding="ascii")
    except (OSError, UnicodeDecodeError) as error:
        reason = error.strerror if isinstance(error, OSError) else "not a token"
        raise InvalidSettings(f"cannot read the token file {file}: {reason}") from error
    return _checked(token, f"the token file {file}")


def _checked(text: str, where: str) -> str:
    token = text.strip()
    if not token or not token.isascii() or not token.isprintable() or " " in token:
        raise InvalidSettings(f"{where} does not hold one token")
    return token
