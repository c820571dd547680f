"""Sessions of browsers: a random cookie stands for who has signed in, so that no token lies in a browser.

Sessions are in memory: after a restart of the service people sign in again. A cookie is never valid for longer than what it stands for.
"""

from __future__ import annotations

import hashlib
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from http.cookies import CookieError, SimpleCookie

from drumlin.api.access.issued_tokens import Verified
from drumlin.api.http.asgi import Headers

SECONDS = 8 * 3600.0
"""Seconds that a session lasts at most: a working day."""
_MOST = 10_000
ID = "session:"
"""What the id of a caller that has signed in at an issuer begins with; the SHA-256 of its cookie follows."""


@dataclass(frozen=True, slots=True)
class Session:
    """Who has signed in: the holder of a token, which is verified with each request, or a caller whom an issuer has named."""

    holder: bytes | Verified
    ends: float


class Sessions:
    """The sessions of a service with ``base``. For one thread."""

    def __init__(self, base: str, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._sessions: OrderedDict[str, Session] = OrderedDict()  # by the SHA-256 of the cookie, the oldest first
        self.cookie = f"drumlin_{hashlib.sha256(base.encode()).hexdigest()[:8]}"  # cookies know no ports

    def begin(self, holder: bytes | Verified, value: str | None = None) -> str:
        """Begin a session and return its cookie's value, ``value`` when there is one already (``new_value``)."""
        value = value or new_value()
        self._sessions[_digest(value)] = Session(holder, self._clock() + SECONDS)
        if len(self._sessions) > _MOST:
            self._sessions.popitem(last=False)
        return value

    def of(self, headers: Headers) -> Session | None:
        """Return the session of a request, None when it has none or it is over. A request that brings a token is its holder's."""
        if any(name == b"authorization" for name, _ in headers):
            return None
        value = self.value_of(headers, self.cookie)
        found = self._sessions.get(_digest(value)) if value else None
        return found if found is not None and self._clock() < found.ends else None

    def holds(self, id: str) -> bool:
        """Return whether a session goes on, by the id that its caller has."""
        found = self._sessions.get(id.removeprefix(ID))
        return found is not None and self._clock() < found.ends

    def end(self, headers: Headers) -> None:
        """End the session of a request, if it has one."""
        if value := self.value_of(headers, self.cookie):
            self._sessions.pop(_digest(value), None)

    @staticmethod
    def value_of(headers: Headers, name: str) -> str:
        """Return the value of a cookie of a request, empty when it has none (RFC 6265 §5.4)."""
        for header, sent in headers:
            if header != b"cookie":
                continue
            try:
                found = SimpleCookie(sent.decode("latin-1")).get(name)
            except CookieError:
                continue
            if found is not None:
                return found.value
        return ""


def new_value() -> str:
    """Return the value of a new cookie."""
    return secrets.token_urlsafe(32)


def id_of(value: str) -> str:
    """Return the id of a caller whom an issuer has named, within a session."""
    return ID + _digest(value)


def _digest(value: str) -> str:
    return hashlib.sha256(value.encode()).hexdigest()
