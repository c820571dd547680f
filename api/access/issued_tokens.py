"""Signed tokens of issuers elsewhere (JWT, RFC 7519, RFC 8725; OpenID Connect Discovery 1.0): whose they are, and for how long.

The public keys of an issuer are fetched when the first of its tokens comes, again every five minutes, and when a token names a key that is
not among them. So keys may be rotated at any time, and one that the issuer withdraws is refused within five minutes.
"""

from __future__ import annotations

import hmac
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from typing import Any
from urllib.parse import urlsplit

import jwt
import msgspec
import structlog

from drumlin.api.access.callers import Caller, Role
from drumlin.kg.config.issuers import GrantSettings, IssuerSettings, can_be_overheard
from drumlin.kg.errors import DrumlinError, Forbidden, IdentityUnavailable, Unauthenticated
from drumlin.kg.telemetry.fetch.transport import BROKEN, Oversized, Transport, UnreadableBody

MAX_TOKEN = 16 * 1024
"""Bytes of a token that is looked at."""
KEYS_KEPT = 300.0
"""Seconds after which the keys of an issuer are fetched again."""
_AGAIN = 10.0  # seconds between fetches because of an unknown key, or a failure
_SECONDS = 5.0  # for an answer of an issuer
_MOST = 1 << 20  # bytes of it
_MOST_KEYS = 100
_LETTERS = 200  # of a name in logs

log = structlog.get_logger()


@dataclass(frozen=True, slots=True)
class Verified:
    """The holder of a token that was verified, and when the token ends."""

    caller: Caller
    expires: datetime


def is_signed(token: bytes) -> bool:
    """Return whether a token looks like a signed one: three parts of base64url (RFC 7515 §7.1)."""
    return token.count(b".") == 2 and token.startswith(b"eyJ") and len(token) <= MAX_TOKEN


class IssuedTokens:
    """Verifies the tokens of ``issuers``. Methods block while keys are fetched; callable from any thread."""

    def __init__(
        self,
        issuers: Sequence[IssuerSettings],
        fetch: Callable[[str], Any] | None = None,
        *,
        review: Callable[[bytes, str], Verified] | None = None,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        """``fetch`` returns the JSON at an address, and raises ``IdentityUnavailable``; ``now`` is the time, ``clock`` counts seconds.

        ``review`` verifies the tokens of all other issuers, as ``verify`` does.
        """
        self._review = review
        self._now = now
        self._issuers = {each.issuer: each for each in issuers}
        self._keys = {each.issuer: _IssuerKeys(each, fetch or fetch_json, clock) for each in issuers}

    def verify(self, token: bytes, id: str) -> Verified:
        """Return whose a token is; ``id`` becomes the caller's.

        Raises ``Unauthenticated`` for a token that is not valid, ``Forbidden`` for one that grants no role, ``IdentityUnavailable`` when
        the keys of its issuer cannot be had.
        """
        text = token.decode("ascii", "replace")
        if self._review is not None and _issuer_named(text) not in self._issuers:
            return self._review(token, id)
        issuer = self._issuer_of(text)
        return _verified(self._claims(text, issuer, issuer.audience), issuer, id)

    def verify_sign_in(self, token: bytes, id: str, issuer: IssuerSettings, nonce: str) -> Verified:
        """Return who has signed in, by an ID token for the client of ``issuer``, which was asked with ``nonce``.

        OpenID Connect Core 1.0 §3.1.3.7. Raises what ``verify`` raises.
        """
        text = token.decode("ascii", "replace")
        if not issuer.client or self._issuer_of(text) is not issuer:
            raise invalid_token("another issuer has made it", hint="sign in again")
        claims = self._claims(text, issuer, issuer.client)
        if not hmac.compare_digest(str(claims.get("nonce")).encode(), nonce.encode()):
            raise invalid_token("it is for another sign-in", hint="sign in again")
        return _verified(claims, issuer, id)

    def _issuer_of(self, text: str) -> IssuerSettings:
        """Return the issuer that a token names: nothing of it is believed before its signature is."""
        named = _issuer_named(text)
        issuer = self._issuers.get(named) if isinstance(named, str) else None
        if issuer is None:
            raise invalid_token("no issuer of the configuration has made it", hint="the setting issuer names them")
        return issuer

    def _claims(self, text: str, issuer: IssuerSettings, audience: str) -> dict[str, Any]:
        key = self._keys[issuer.issuer].find(*_head_of(text, issuer))
        try:
            claims: dict[str, Any] = jwt.decode(
                text,
                key,
                algorithms=[key.algorithm_name],
                audience=audience,
                issuer=issuer.issuer,
                leeway=issuer.leeway,
                options={
                    "require": ["exp", "iss", "aud", "sub"],
                    "verify_exp": False,
                    "verify_nbf": False,
                    "verify_iat": False,
                },
            )
            self._check_times(claims, issuer.leeway)
        except jwt.InvalidAudienceError as error:
            raise invalid_token("it is for another audience", hint=f"ask the issuer for one for {audience}") from error
        except (jwt.InvalidTokenError, jwt.PyJWTError) as error:
            raise invalid_token(f"{error}"[:200].lower()) from error
        return claims

    def _check_times(self, claims: Mapping[str, Any], leeway: float) -> None:
        """Hold its times against our clock; raises ``Unauthenticated``. The package would take the wall clock, which tests cannot set."""
        now = self._now().timestamp()
        for name in ("exp", "nbf", "iat"):
            if name in claims and not (isinstance(claims[name], int | float) and abs(claims[name]) < 1e12):
                raise invalid_token(f"its {name} is no time")
        if claims["exp"] + leeway <= now:
            raise invalid_token("it has expired", hint="sign in again, or have the token renewed")
        if max(claims.get("nbf", now), claims.get("iat", now)) - leeway > now:
            raise invalid_token("it is not valid yet", hint="compare the clocks of this machine and of the issuer")


class _IssuerKeys:
    """The public keys of one issuer, by their names."""

    def __init__(self, issuer: IssuerSettings, fetch: Callable[[str], Any], clock: Callable[[], float]) -> None:
        self._issuer, self._fetch, self._clock = issuer, fetch, clock
        self._lock = threading.Lock()
        self._keys: Mapping[str | None, jwt.PyJWK] | None = None
        self._asked_at = 0.0
        self._fetched_at = 0.0

    def find(self, name: str | None, algorithm: str) -> jwt.PyJWK:
        with self._lock:
            now = self._clock()
            old = self._keys is None or now - self._fetched_at >= KEYS_KEPT
            if old or (self._named(name) is None and now - self._asked_at >= _AGAIN):
                self._renew(now)
            key = self._named(name)
        if key is None:
            raise invalid_token("its issuer has no such key, or has withdrawn it")
        if key.algorithm_name != algorithm:
            raise invalid_token(f"it is signed by {algorithm}, and its key is for {key.algorithm_name}")
        return key

    def _named(self, name: str | None) -> jwt.PyJWK | None:
        """Return the key of a name; of a token that names none, the only one."""
        keys = self._keys or {}
        if name is None and len(keys) == 1:
            return next(iter(keys.values()))
        return keys.get(name)

    def _renew(self, now: float) -> None:
        """Fetch the keys. Those that are known stay in use for as long again when that fails."""
        self._asked_at = now
        try:
            address = self._issuer.keys or self._discovered()
            self._keys = _keys_in(self._fetch(address), address)
            self._fetched_at = now
        except IdentityUnavailable as error:
            if self._keys is None or now - self._fetched_at >= 2 * KEYS_KEPT:
                self._keys = None
                raise
            log.warning("issuer_keys_unread", issuer=self._issuer.issuer, reason=str(error))

    def _discovered(self) -> str:
        address = f"{self._issuer.issuer.rstrip('/')}/.well-known/openid-configuration"
        found = self._fetch(address)
        named = found.get("jwks_uri") if isinstance(found, dict) else None
        if not isinstance(named, str) or can_be_overheard(named) or found.get("issuer") != self._issuer.issuer:
            raise IdentityUnavailable(
                f"{address} does not name the keys of {self._issuer.issuer} by an https address",
                hint="set keys of the issuer in drumlin.toml",
            )
        return named


def _verified(claims: Mapping[str, Any], issuer: IssuerSettings, id: str) -> Verified:
    name = str(claims.get(issuer.name) or claims["sub"])
    caller = granted(claims, issuer.grant, name, issuer.issuer, id)
    return Verified(caller, datetime.fromtimestamp(claims["exp"] + issuer.leeway, UTC))


def granted(claims: Mapping[str, Any], grants: Sequence[GrantSettings], name: str, known_to: str, id: str) -> Caller:
    """Return the caller that claims make, with the ``name`` that it has where it is ``known_to``.

    Raises ``Forbidden`` when none of the grants fits.
    """
    name = "".join(filter(str.isprintable, name))[:_LETTERS]
    grant = next((each for each in grants if each.fits(claims)), None)
    if grant is None:
        raise Forbidden(
            f"{name} is known to {known_to}, and none of its claims grants a role here",
            hint="an operator adds a grant in drumlin.toml (docs/access.md)",
            detail={"identity": name, "issuer": known_to},
        )
    return Caller(name, Role(grant.role), grant.owners, grant.guid, id, grant.limits(claims))


def _issuer_named(text: str) -> Any:
    try:
        return jwt.decode(text, options={"verify_signature": False}).get("iss")
    except jwt.InvalidTokenError as error:
        raise invalid_token("it is no signed token") from error


def _head_of(text: str, issuer: IssuerSettings) -> tuple[str | None, str]:
    """Return the name of the key and the algorithm that a token names."""
    try:
        head = jwt.get_unverified_header(text)
    except jwt.InvalidTokenError as error:
        raise invalid_token("it is no signed token") from error
    if head.get("alg") not in issuer.algorithms or "crit" in head:
        raise invalid_token(f"it is signed by {str(head.get('alg'))[:20]!r}, which is not accepted")
    name = head.get("kid")
    return (name if isinstance(name, str) else None), head["alg"]


def _keys_in(found: Any, address: str) -> dict[str | None, jwt.PyJWK]:
    """Return the public keys for signatures in a set of keys (RFC 7517 §5); those of unknown kinds are left out."""
    listed = found.get("keys") if isinstance(found, dict) else None
    if not isinstance(listed, list):
        raise IdentityUnavailable(f"{address} is no set of keys (JWKS)", hint="check the address of the issuer's keys")
    keys: dict[str | None, jwt.PyJWK] = {}
    for each in listed[:_MOST_KEYS]:
        if not isinstance(each, dict) or each.get("use", "sig") != "sig" or each.get("kty") not in ("RSA", "EC", "OKP"):
            continue
        try:
            key = jwt.PyJWK(each)
        except (jwt.PyJWTError, ValueError, TypeError):
            continue
        keys[key.key_id] = key
    return keys


def fetch_json(address: str) -> Any:
    """Return the JSON at an address, without following redirects; raises ``IdentityUnavailable``."""
    return _asked("GET", address, None)


def send_form(address: str, form: bytes) -> Any:
    """Post a form and return the JSON of the answer; raises ``Unauthenticated`` when it is refused, and ``IdentityUnavailable``."""
    return _asked("POST", address, form)


def _asked(method: str, address: str, form: bytes | None) -> Any:
    server = Transport(address, _SECONDS, ssl.create_default_context() if address.startswith("https:") else None)
    target = f"?{query}" if (query := urlsplit(address).query) else ""
    headers = {"Accept": "application/json"}
    if form is not None:
        headers |= {"Content-Type": "application/x-www-form-urlencoded", "Content-Length": str(len(form))}
    try:
        answer = server.send(method, target, headers, form, _MOST)
        if form is not None and answer.status in (400, 401, 403):
            raise Unauthenticated(
                "the issuer has refused this sign-in", hint="sign in again; check the client's secret"
            )
        if answer.status != 200:
            raise IdentityUnavailable(f"{address} answered {answer.status}", hint="check the issuer's address")
        return msgspec.json.decode(answer.body)
    except (*BROKEN, Oversized, UnreadableBody, msgspec.DecodeError) as error:
        raise IdentityUnavailable(
            f"{address} cannot be read: {type(error).__name__}",
            hint="check the address, the network and its certificate",
        ) from error
    finally:
        server.close()


def invalid_token(reason: str, hint: str = "ask its issuer for a new one") -> DrumlinError:
    """Return the error of a token that is not valid."""
    return Unauthenticated(f"the token is not valid: {reason}", hint=hint, detail={"error": "invalid_token"})
