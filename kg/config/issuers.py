"""Who else may say who a caller is: issuers of signed tokens (OpenID Connect), and what their claims grant."""

from __future__ import annotations

from collections.abc import Mapping
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self, get_args
from urllib.parse import urlsplit

from pydantic import BaseModel, ConfigDict, Field, model_validator

Algorithm = Literal["RS256", "RS384", "RS512", "PS256", "PS384", "PS512", "ES256", "ES384", "ES512", "EdDSA"]
ALGORITHMS: tuple[Algorithm, ...] = get_args(Algorithm)
"""Signatures with a pair of keys; a shared secret (HS256) could be the public key itself, and ``none`` is no signature."""

_FROZEN = ConfigDict(frozen=True, extra="forbid")


class GrantSettings(BaseModel):
    """The role of callers whose tokens claim something. The first grant that fits decides."""

    model_config = _FROZEN
    claim: str = Field(
        "sub", min_length=1, description="Claim that is looked at; dots lead into objects (`realm.roles`)."
    )
    value: str = Field(min_length=1, description="What it is, or one of its values is; `*` stands for anything.")
    role: Literal["reader", "writer", "admin", "exporter", "agent", "peer"] = Field(description="Role that it grants.")
    owners: tuple[str, ...] = Field((), description="Names under which an exporter writes.")
    guid: str | None = Field(None, description="GUID of an agent.")
    domains: tuple[str, ...] = Field((), description="Domains that the callers are limited to [all].")
    domain_claim: str | None = Field(
        None, description="Claim that names the domains instead; without it in a token, the grant does not fit."
    )

    @model_validator(mode="after")
    def _says_whose(self) -> Self:
        if (self.role == "exporter") != bool(self.owners):
            raise ValueError("owners are for the role exporter, which needs them")
        if (self.role == "agent") != (self.guid is not None):
            raise ValueError("guid is for the role agent, which needs it")
        if self.domains and self.domain_claim is not None:
            raise ValueError("say either domains or domain_claim")
        return self

    def fits(self, claims: Mapping[str, Any]) -> bool:
        """Return whether a token with these claims gets the role."""
        if self.domain_claim is not None and not _values(claims, self.domain_claim):
            return False
        return any(fnmatchcase(each, self.value) for each in _values(claims, self.claim))

    def limits(self, claims: Mapping[str, Any]) -> frozenset[str] | None:
        """Return the domains that a token with these claims is limited to; None: it is for all."""
        if self.domain_claim is not None:
            return frozenset(_values(claims, self.domain_claim))
        return frozenset(self.domains) or None


def _values(claims: Mapping[str, Any], name: str) -> list[str]:
    """Return the texts that a claim has; dots in its name lead into objects."""
    found: Any = claims.get(name)
    if found is None:
        found = claims
        for part in name.split("."):
            found = found.get(part) if isinstance(found, Mapping) else None
    return [each for each in (found if isinstance(found, list) else [found]) if isinstance(each, str) and each]


class IssuerSettings(BaseModel):
    """An issuer of signed tokens that are accepted as bearer tokens (OpenID Connect Core 1.0, RFC 7519)."""

    model_config = _FROZEN
    issuer: str = Field(description="Its address: what its tokens have as `iss`.")
    audience: str = Field(min_length=1, description="What the tokens for this service have as `aud`.")
    keys: str | None = Field(
        None, description="Address of its public keys (JWKS) [what its `/.well-known/openid-configuration` names]."
    )
    algorithms: tuple[Algorithm, ...] = Field(ALGORITHMS, min_length=1, description="Signatures that are accepted.")
    leeway: float = Field(60.0, ge=0, le=600, description="Seconds by which its clock may differ.")
    name: str = Field("sub", min_length=1, description="Claim that names the caller in logs (`email`).")
    client: str | None = Field(None, description="Client by which people sign in to the pages (code flow with PKCE).")
    client_secret: Path | None = Field(None, description="File with the secret of that client, where it has one.")
    scopes: tuple[str, ...] = Field(("openid", "profile", "email"), description="Scopes that a sign-in asks for.")
    grant: tuple[GrantSettings, ...] = Field(min_length=1, description="Which claims grant which role.")

    @model_validator(mode="after")
    def _signs_in(self) -> Self:
        if self.client_secret is not None and self.client is None:
            raise ValueError("client_secret is the secret of a client: say which one")
        if self.client is not None and "openid" not in self.scopes:
            raise ValueError("scopes must have openid, else a sign-in says nothing of who it is")
        return self

    @model_validator(mode="after")
    def _cannot_be_overheard(self) -> Self:
        for address in filter(None, (self.issuer, self.keys)):
            if can_be_overheard(address):
                raise ValueError(f"{address} is not an https address: whoever answers for it could sign in as anybody")
        return self


class TokenReviewSettings(BaseModel):
    """A cluster whose API server says whose the tokens of its service accounts are (TokenReview)."""

    model_config = _FROZEN
    context: str | None = Field(None, description="Context of the kubeconfig [the cluster that the service runs in].")
    audience: str = Field("drumlin", min_length=1, description="Audience that the tokens must be for.")
    grant: tuple[GrantSettings, ...] = Field(
        min_length=1, description="Which `sub` (`system:serviceaccount:NAMESPACE:NAME`) or `groups` get which role."
    )


def can_be_overheard(address: str) -> bool:
    """Return whether what is fetched from an address could come from somebody else: all but https, and http on this machine."""
    parts = urlsplit(address)
    return parts.scheme != "https" and not (
        parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
    )
