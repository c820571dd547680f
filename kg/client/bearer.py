"""A bearer token from a file, for the authenticating proxy in front of a service: the service itself checks none."""

from __future__ import annotations

from collections.abc import Generator
from pathlib import Path

import httpx

from kg.errors import InvalidSettings


class BearerFrom(httpx.Auth):
    """Reads the file for each request, since tokens of service accounts are rotated there."""

    def __init__(self, file: Path) -> None:
        self._file = file

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        """Send the token; raises ``InvalidSettings`` when there is none that a header can hold."""
        request.headers["Authorization"] = f"Bearer {self._token()}"
        yield request

    def _token(self) -> str:
        try:
            token = self._file.read_text(encoding="ascii").strip()
        except (OSError, UnicodeDecodeError) as error:
            reason = error.strerror if isinstance(error, OSError) else "not a token"
            raise InvalidSettings(f"cannot read the token file {self._file}: {reason}") from error
        if not token or not token.isprintable() or " " in token:
            raise InvalidSettings(f"the token file {self._file} does not hold one token")
        return token
