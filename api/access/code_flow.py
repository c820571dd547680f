"""Sign-in at an issuer: the authorization code flow of OpenID Connect with PKCE (OpenID Connect Core 1.0 §3.1, RFC 7636).

What the issuer hands to the browser is a code that is good for one exchange, by this service, for the browser that began: the state
stands in a cookie of it, the verifier never leaves this process.
"""

from __future__ import annotations

import base64
import hashlib
import hmac
import secrets
import time
from collections import OrderedDict
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

from drumlin.api.access.issued_tokens import IssuedTokens, Verified, fetch_json
from drumlin.kg.config.issuers import IssuerSettings, can_be_overheard
from drumlin.kg.errors import IdentityUnavailable, ResourceNotFound, Unauthenticated

SECONDS = 600.0
"""Seconds that a sign-in may take."""
_MOST = 1_000  # sign-ins that are under way

Send = Callable[[str, bytes], Any]
"""Posts a form to an address and returns the JSON of its answer; raises ``IdentityUnavailable``, ``Unauthenticated`` when it is refused."""


@dataclass(frozen=True, slots=True)
class Begun:
    """A sign-in that is under way; ``next`` is where the browser wants to go afterwards."""

    issuer: IssuerSettings
    verifier: str
    nonce: str
    next: str
    ends: float


class CodeFlow:
    """Sign-ins at the ``issuers`` that have a client; they send browsers back to the address ``redirect``. Callable from any thread."""

    def __init__(
        self,
        issuers: tuple[IssuerSettings, ...],
        tokens: IssuedTokens,
        redirect: str,
        send: Send,
        *,
        fetch: Callable[[str], Any] = fetch_json,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.issuers = tuple(each for each in issuers if each.client)
        self._tokens, self._redirect, self._send, self._fetch, self._clock = tokens, redirect, send, fetch, clock
        self._begun: OrderedDict[str, Begun] = OrderedDict()

    def begin(self, number: int, next: str) -> tuple[str, str]:
        """Return the address of the issuer's sign-in page, and the state that the browser keeps as a cookie.

        Raises ``ResourceNotFound`` and ``IdentityUnavailable``.
        """
        if not 0 <= number < len(self.issuers):
            raise ResourceNotFound("there is no such issuer to sign in at", hint="choose one on the page to sign in")
        issuer = self.issuers[number]
        address = self._endpoint(issuer, "authorization_endpoint")
        state, verifier, nonce = (secrets.token_urlsafe(32) for _ in range(3))
        self._begun[state] = Begun(issuer, verifier, nonce, next, self._clock() + SECONDS)
        while len(self._begun) > _MOST:
            self._begun.popitem(last=False)
        challenge = base64.urlsafe_b64encode(hashlib.sha256(verifier.encode()).digest()).rstrip(b"=").decode()
        asked = {
            "response_type": "code",
            "client_id": issuer.client,
            "redirect_uri": self._redirect,
            "scope": " ".join(issuer.scopes),
            "state": state,
            "nonce": nonce,
            "code_challenge": challenge,
            "code_challenge_method": "S256",
        }
        return f"{address}{'&' if '?' in address else '?'}{urlencode(asked)}", state

    def finish(self, state: str, kept: str, code: str, id: str, issuer: str | None = None) -> tuple[Verified, str]:
        """Exchange a code; return who has signed in, with ``id``, and where the browser wants to go.

        ``kept`` is the state in the browser's cookie, ``issuer`` the one that says to have answered (RFC 9207), if it does. Raises
        ``Unauthenticated``, ``Forbidden`` and ``IdentityUnavailable``.
        """
        begun = self._begun.pop(state, None)
        if begun is None or self._clock() >= begun.ends or not hmac.compare_digest(state.encode(), kept.encode()):
            raise Unauthenticated(
                "this sign-in was not begun by this browser, has taken too long, or is over", hint="sign in again"
            )
        asked = begun.issuer
        if issuer is not None and issuer != asked.issuer:
            raise Unauthenticated("another issuer has answered than the one that was asked", hint="sign in again")
        form = {
            "grant_type": "authorization_code",
            "code": code,
            "redirect_uri": self._redirect,
            "client_id": asked.client,
            "code_verifier": begun.verifier,
        }
        if asked.client_secret is not None:
            form["client_secret"] = _secret_in(asked.client_secret)
        answer = self._send(self._endpoint(asked, "token_endpoint"), urlencode(form).encode())
        token = answer.get("id_token") if isinstance(answer, dict) else None
        if not isinstance(token, str):
            raise IdentityUnavailable(f"{asked.issuer} has answered without an id_token", hint="add openid to scopes")
        return self._tokens.verify_sign_in(token.encode(), id, asked, begun.nonce), begun.next

    def _endpoint(self, issuer: IssuerSettings, name: str) -> str:
        found = self._fetch(f"{issuer.issuer.rstrip('/')}/.well-known/openid-configuration")
        address = found.get(name) if isinstance(found, dict) else None
        if not isinstance(address, str) or can_be_overheard(address) or found.get("issuer") != issuer.issuer:
            raise IdentityUnavailable(f"{issuer.issuer} names no {name} with an https address", hint="check the issuer")
        return address


def _secret_in(file: Path) -> str:
    try:
        return file.read_text(encoding="utf-8").strip()
    except (OSError, UnicodeDecodeError) as error:
        raise IdentityUnavailable(
            "the secret of this service's client at the issuer cannot be read", hint=f"make {file} readable"
        ) from error
