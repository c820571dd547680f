"""Signed tokens of issuers elsewhere, without a network: what is accepted, and every disguise that is not."""

from __future__ import annotations

import asyncio
import base64
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import Any

import jwt
import pytest
from cryptography.hazmat.primitives.asymmetric import ec, ed25519, rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.access.authentication import REFUSED_SECONDS, VERIFIED_SECONDS, Authenticator
from drumlin.api.access.callers import Caller, Role
from drumlin.api.access.issued_tokens import KEYS_KEPT, MAX_TOKEN, IssuedTokens, is_signed
from drumlin.kg.config.issuers import IssuerSettings
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import DrumlinError, Forbidden, IdentityUnavailable, InvalidSettings, Unauthenticated

ISSUER = "https://login.example"
NOW = datetime(2026, 11, 30, 12, tzinfo=UTC)
RSA = rsa.generate_private_key(public_exponent=65537, key_size=2048)
EC = ec.generate_private_key(ec.SECP256R1())
ED = ed25519.Ed25519PrivateKey.generate()
GRANTS = (
    {"claim": "groups", "value": "sre", "role": "admin"},
    {"claim": "realm.roles", "value": "look-*", "role": "reader"},
    {"value": "system:serviceaccount:edge:*", "role": "exporter", "owners": ["kubernetes"]},
)


def jwk(key: Any, name: str, algorithm: str) -> dict[str, Any]:
    """A public key as an issuer shows it."""
    made = {
        "RS256": jwt.algorithms.RSAAlgorithm,
        "ES256": jwt.algorithms.ECAlgorithm,
        "EdDSA": jwt.algorithms.OKPAlgorithm,
    }
    return {**json.loads(made[algorithm].to_jwk(key.public_key())), "kid": name, "alg": algorithm, "use": "sig"}


@dataclass
class Provider:
    """An issuer in memory. ``asked`` are the addresses that were fetched."""

    keys: list[dict[str, Any]] = field(default_factory=lambda: [jwk(RSA, "one", "RS256")])
    asked: list[str] = field(default_factory=list)
    away: bool = False
    seconds: float = 0.0
    now: datetime = NOW

    def fetch(self, address: str) -> Any:
        """Return what is at an address."""
        self.asked.append(address)
        if self.away:
            raise IdentityUnavailable(f"{address} cannot be read")
        if address.endswith("/.well-known/openid-configuration"):
            return {"issuer": ISSUER, "jwks_uri": f"{ISSUER}/keys"}
        return {"keys": self.keys}

    def tokens(self, **more: Any) -> IssuedTokens:
        """Return what verifies the tokens of this issuer, with other settings."""
        settings = IssuerSettings.model_validate({"issuer": ISSUER, "audience": "drumlin", "grant": GRANTS, **more})
        return IssuedTokens([settings], self.fetch, now=lambda: self.now, clock=lambda: self.seconds)


def token(
    claims: Mapping[str, Any] | None = None,
    *,
    key: Any = RSA,
    algorithm: str = "RS256",
    head: Mapping[str, Any] | None = None,
) -> bytes:
    """A token of an administrator, but for ``claims``; None leaves one out."""
    stated = {
        "iss": ISSUER,
        "aud": "drumlin",
        "sub": "ada",
        "groups": ["ops", "sre"],
        "exp": NOW + timedelta(minutes=5),
    }
    found = {name: value for name, value in {**stated, **(claims or {})}.items() if value is not None}
    return jwt.encode(found, key, algorithm, headers={"kid": "one", **(head or {})}).encode()


@pytest.mark.parametrize(
    ("claims", "caller"),
    [
        ({}, Caller("ada", Role.admin, token="id")),
        ({"aud": ["other", "drumlin"]}, Caller("ada", Role.admin, token="id")),
        ({"groups": "sre"}, Caller("ada", Role.admin, token="id")),
        ({"groups": None, "realm": {"roles": ["look-here"]}}, Caller("ada", Role.reader, token="id")),
        (
            {"groups": [], "sub": "system:serviceaccount:edge:follower"},
            Caller("system:serviceaccount:edge:follower", Role.exporter, ("kubernetes",), token="id"),
        ),
        ({"sub": "a\nb\x1b[31m" + "x" * 500}, Caller("ab[31m" + "x" * 194, Role.admin, token="id")),
    ],
)
def test_claims_grant_a_role(claims: dict[str, Any], caller: Caller) -> None:
    """The first grant that fits decides; a name keeps what can be printed."""
    assert Provider().tokens().verify(token(claims), "id").caller == caller


@pytest.mark.parametrize(("key", "algorithm"), [(RSA, "RS256"), (EC, "ES256"), (ED, "EdDSA")])
def test_each_kind_of_key_is_accepted_with_its_own_algorithm_only(key: Any, algorithm: str) -> None:
    """The key says by which algorithm it is used."""
    provider = Provider([jwk(key, "one", algorithm)])
    assert provider.tokens().verify(token(key=key, algorithm=algorithm), "id").caller.name == "ada"
    if algorithm == "RS256":
        with pytest.raises(Unauthenticated, match="is for RS256"):
            provider.tokens().verify(token(algorithm="PS256"), "id")


def _forged(head: Mapping[str, Any], claims: Mapping[str, Any] | None = None, signature: bytes = b"") -> bytes:
    payload = jwt.decode(token(claims), options={"verify_signature": False})
    pieces = (json.dumps(head).encode(), json.dumps(payload).encode(), signature)
    return b".".join(base64.urlsafe_b64encode(each).rstrip(b"=") for each in pieces)


PEM = RSA.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
_STRANGER = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def _confused() -> bytes:
    """A token whose shared secret is the public key (a package of today refuses to make one, so it is made by hand)."""
    import hashlib
    import hmac

    signed = _forged({"alg": "HS256", "kid": "one"}).rpartition(b".")[0]
    return signed + b"." + base64.urlsafe_b64encode(hmac.digest(PEM, signed, hashlib.sha256)).rstrip(b"=")


@pytest.mark.parametrize(
    ("sent", "reason"),
    [
        (_forged({"alg": "none"}), "'none', which is not accepted"),
        (_forged({"alg": "None", "kid": "one"}), "'None', which is not accepted"),
        (_confused(), "'HS256', which is not accepted"),
        (token(key=_STRANGER), "signature"),
        (token(key=_STRANGER, head={"jwk": jwk(_STRANGER, "one", "RS256")}), "signature"),
        (token(key=_STRANGER, head={"jku": "https://evil.example/keys", "kid": "two"}), "no such key"),
        (token(head={"kid": "../../one"}), "no such key"),
        (token(head={"crit": ["x"], "x": 1}), "no signed token"),
        (token({"exp": NOW - timedelta(minutes=2)}), "has expired"),
        (token({"exp": None}), "exp"),
        (token({"exp": "soon"}), "exp"),
        (token({"nbf": NOW + timedelta(minutes=5)}), "not valid yet"),
        (token({"iat": NOW + timedelta(minutes=5)}), "not valid yet"),
        (token({"aud": "grafana"}), "another audience"),
        (token({"aud": None}), "aud"),
        (token({"iss": "https://evil.example"}), "no issuer of the configuration"),
        (token({"iss": f"{ISSUER}/"}), "no issuer of the configuration"),
        (token({"sub": None}), "sub"),
        (token()[:-4] + b"AAAA", "signature"),
        (b"eyJ.eyJ.x", "no signed token"),
    ],
)
def test_a_token_in_disguise_is_refused(sent: bytes, reason: str) -> None:
    """No signature, another key, confused algorithms, other times, audiences and issuers: 401, with the reason."""
    provider = Provider()
    with pytest.raises(Unauthenticated, match=reason):
        provider.tokens().verify(sent, "id")
    assert not any("evil" in each for each in provider.asked)


def test_clocks_may_differ_by_the_leeway() -> None:
    """A minute by default, both ways."""
    tokens = Provider().tokens()
    assert tokens.verify(token({"exp": NOW - timedelta(seconds=50)}), "id").expires == NOW + timedelta(seconds=10)
    assert tokens.verify(token({"nbf": NOW + timedelta(seconds=50)}), "id")


def test_without_a_grant_the_caller_is_known_and_may_nothing() -> None:
    """That is 403, and says what an operator can do."""
    with pytest.raises(Forbidden, match="ada is known to .* none of its claims grants a role") as told:
        Provider().tokens().verify(token({"groups": ["ops"]}), "id")
    assert "adds a grant" in str(told.value.hint)


def test_keys_are_rotated_and_withdrawn() -> None:
    """A new key is fetched when a token names it, one that is withdrawn is refused after five minutes, and nobody makes us ask at will."""
    provider = Provider()
    tokens = provider.tokens()
    tokens.verify(token(), "id")
    assert provider.asked == [f"{ISSUER}/.well-known/openid-configuration", f"{ISSUER}/keys"]
    provider.keys = [jwk(EC, "two", "ES256")]
    new = token(key=EC, algorithm="ES256", head={"kid": "two"})
    with pytest.raises(Unauthenticated, match="no such key"):
        tokens.verify(new, "id")  # asked a moment ago
    provider.seconds += 11
    assert tokens.verify(new, "id")
    with pytest.raises(Unauthenticated, match="withdrawn"):
        tokens.verify(token(), "id")

    provider.keys = []
    provider.seconds += KEYS_KEPT - 1
    assert tokens.verify(new, "id")
    provider.seconds += 2
    with pytest.raises(Unauthenticated, match="withdrawn"):
        tokens.verify(new, "id")
    asked = len(provider.asked)
    for _ in range(50):
        with pytest.raises(Unauthenticated):
            tokens.verify(token(head={"kid": "made-up"}), "id")
    assert len(provider.asked) == asked


def test_an_issuer_that_is_away_is_borne_for_a_while() -> None:
    """Its keys stay in use for ten minutes in all; then, or without any, nobody can know, which is no 401."""
    provider = Provider(away=True)
    tokens = provider.tokens()
    with pytest.raises(IdentityUnavailable):
        tokens.verify(token(), "id")
    provider.away = False
    tokens.verify(token(), "id")
    provider.away = True
    provider.seconds += 1.5 * KEYS_KEPT
    assert tokens.verify(token(), "id")
    provider.seconds += KEYS_KEPT
    with pytest.raises(IdentityUnavailable):
        tokens.verify(token(), "id")


def test_a_discovered_address_of_keys_must_be_safe() -> None:
    """What the issuer's own document names must be https, and the document must be that issuer's."""
    for found in (
        {"issuer": ISSUER, "jwks_uri": "http://login.example/keys"},
        {"issuer": "https://x.example", "jwks_uri": f"{ISSUER}/k"},
    ):
        settings = IssuerSettings.model_validate({"issuer": ISSUER, "audience": "drumlin", "grant": GRANTS})
        with pytest.raises(IdentityUnavailable, match="does not name the keys"):
            IssuedTokens([settings], lambda _, found=found: found).verify(token(), "id")  # type: ignore[misc]


@pytest.mark.parametrize(
    "wrong",
    [
        {"issuer": "http://login.example"},
        {"keys": "ftp://login.example/keys"},
        {"algorithms": ["HS256"]},
        {"algorithms": ["none"]},
        {"grant": []},
        {"grant": [{"value": "x", "role": "exporter"}]},
        {"grant": [{"value": "x", "role": "reader", "owners": ["a"]}]},
        {"leeway": 86_400},
    ],
)
def test_an_issuer_that_would_let_anybody_in_is_refused(wrong: dict[str, Any]) -> None:
    """No shared secrets, no plain http, no exporter without a source, no clock that may be a day wrong."""
    with pytest.raises(InvalidSettings):
        Settings.load(issuer=[{"issuer": ISSUER, "audience": "drumlin", "grant": list(GRANTS), **wrong}])


class _Signed:
    """An authenticator with an issuer."""

    def __init__(self, provider: Provider) -> None:
        self.verified = 0
        tokens = provider.tokens()

        def verify(sent: bytes, id: str, inner: Callable[..., Any] = tokens.verify) -> Any:
            self.verified += 1
            return inner(sent, id)

        tokens.verify = verify  # type: ignore[method-assign]
        self.authenticator = Authenticator(
            Settings(base="https://kg.example"),
            None,
            unguarded=True,
            issued=tokens,
            now=lambda: provider.now,
            clock=lambda: provider.seconds,
        )

    def ask(self, *sent: bytes, address: str = "10.0.0.1") -> Caller | None:
        """Return who sends a request with these headers."""
        headers = [(b"authorization", each) for each in sent]

        async def asked() -> Caller | None:
            await self.authenticator.learn(headers, address)
            return self.authenticator.caller_of(headers, address)

        return asyncio.run(asked())


def test_a_token_is_verified_once_a_minute_and_ends_in_time() -> None:
    """In between it costs a look-up; when it expires, requests and streams end; a refusal is remembered for a shorter while."""
    provider = Provider()
    signed = _Signed(provider)
    first = signed.ask(b"Bearer " + token())
    assert first is not None
    assert first.role is Role.admin
    assert signed.ask(b"bearer  " + token()) == first
    assert signed.verified == 1
    assert not signed.authenticator.is_due(first)
    provider.seconds += VERIFIED_SECONDS
    assert signed.authenticator.is_due(first)
    signed.ask(b"Bearer " + token())
    assert signed.verified == 2
    assert signed.authenticator.is_accepted(first)
    provider.now += timedelta(minutes=7)
    assert not signed.authenticator.is_accepted(first)
    with pytest.raises(Unauthenticated, match="expired"):
        signed.ask(b"Bearer " + token())
    provider.seconds += REFUSED_SECONDS
    with pytest.raises(Unauthenticated, match="expired"):
        signed.ask(b"Bearer " + token())


def test_with_an_issuer_nobody_is_let_in_without_a_token() -> None:
    """Also on loopback; and tokens that are neither ours nor the issuer's are refused."""
    signed = _Signed(Provider())
    assert signed.authenticator.anonymous is None
    assert signed.ask() is None
    with pytest.raises(Unauthenticated, match="not known here"):
        signed.ask(b"Bearer drumlin_" + b"A" * 43)
    with pytest.raises(Unauthenticated, match="2 Authorization headers"):
        signed.ask(b"Bearer " + token(), b"Bearer " + token())


_PIECES = st.sampled_from(
    [
        b"Bearer",
        b"bearer",
        b"Basic",
        b" ",
        b"\t",
        b"eyJ",
        b".",
        token(),
        token(key=_STRANGER),
        b"drumlin_",
        b"\x00",
        b"\xff",
        b"=",
        b",",
        b"A" * MAX_TOKEN,
    ]
)


@given(st.lists(st.lists(_PIECES | st.binary(max_size=20), max_size=8).map(b"".join), max_size=2))
def test_no_header_is_an_accident(sent: list[bytes]) -> None:
    """Whatever stands in Authorization: a caller, nobody, or an error of ours; and only the whole token lets somebody in."""
    signed = _Signed(Provider())
    try:
        found = signed.ask(*sent)
    except DrumlinError:
        return
    assert found is None or (len(sent) == 1 and sent[0].partition(b" ")[2].strip(b" ") == token())


def test_only_what_looks_like_one_is_a_signed_token() -> None:
    """Ours never do; longer ones are not looked at."""
    assert is_signed(token())
    assert not is_signed(b"drumlin_" + b"A" * 43)
    assert not is_signed(token() + b"A" * MAX_TOKEN)
