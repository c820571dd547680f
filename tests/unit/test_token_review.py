"""Tokens of service accounts, as a recorded API server reviews them."""

from __future__ import annotations

import json
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

import pytest

from drumlin.api.access.callers import Role
from drumlin.api.access.issued_tokens import IssuedTokens
from drumlin.api.access.token_review import PATH, TokenReviewer
from drumlin.exporters.kubernetes.access import ApiRefused
from drumlin.kg.config.issuers import TokenReviewSettings
from drumlin.kg.errors import Forbidden, IdentityUnavailable, SourceUnavailable, Unauthenticated
from tests.unit.test_issued_tokens import token

ACCOUNT = "system:serviceaccount:drumlin:drumlin"
AUDIENCE = "https://kubernetes.default.svc"
RECORDED = Path(__file__).resolve().parents[2].parent / "shared" / "data" / "k8s-recorded" / "tokenreview.json"
SENT = token({"iss": AUDIENCE, "aud": AUDIENCE, "sub": ACCOUNT})

pytestmark = pytest.mark.skipif(not RECORDED.exists(), reason="the recorded exchanges are not there")


class _Server:
    """Answers as it was recorded; ``asked`` are the bodies that it was sent."""

    def __init__(self, case: str) -> None:
        (self.exchange,) = [each for each in json.loads(RECORDED.read_text()) if each["case"] == case]
        self.asked: list[Mapping[str, Any]] = []

    def write(self, method: str, path: str, body: Mapping[str, Any], *, timeout: float) -> bytes:
        """Return the recorded body, or raise as the connection does."""
        assert (method, path) == ("POST", PATH)
        assert timeout < 30
        self.asked.append(body)
        if self.exchange["status"] != 201:
            raise ApiRefused(self.exchange["body"]["message"], self.exchange["status"])
        return json.dumps(self.exchange["body"]).encode()


def _reviewer(server: Any, **settings: Any) -> TokenReviewer:
    grants = [{"claim": "groups", "value": "system:serviceaccounts:drumlin", "role": "writer"}]
    found = TokenReviewSettings.model_validate({"audience": AUDIENCE, "grant": grants, **settings})
    return TokenReviewer(found, lambda _: server, now=lambda: datetime(2026, 11, 30, tzinfo=UTC))


@pytest.mark.parametrize("case", ["valid", "valid, wanted audience"])
def test_a_service_account_has_the_role_of_its_grant(case: str) -> None:
    """Its name and groups are what the API server says; the token and our audience are what it is asked."""
    server = _Server(case)
    caller = _reviewer(server).verify(SENT, "id").caller
    assert (caller.name, caller.role, caller.token) == (ACCOUNT, Role.writer, "id")
    assert server.asked[0]["spec"] == {"token": SENT.decode(), "audiences": [AUDIENCE]}


@pytest.mark.parametrize("case", ["other audience", "garbage"])
def test_what_the_api_server_does_not_accept_is_401(case: str) -> None:
    """It says so with 201 and an error; that quotes the token's audiences, so it is not passed on."""
    with pytest.raises(Unauthenticated, match="does not accept it") as told:
        _reviewer(_Server(case)).verify(SENT, "id")
    assert AUDIENCE in str(told.value.hint)


def test_a_server_that_does_not_look_at_audiences_is_not_believed() -> None:
    """One that answers for its own audience only would let tokens in that were made for others."""
    with pytest.raises(Unauthenticated, match="another audience"):
        _reviewer(_Server("valid"), audience="drumlin").verify(SENT, "id")


def test_an_account_without_a_grant_may_nothing() -> None:
    """That is 403."""
    grants = [{"value": "system:serviceaccount:other:*", "role": "reader"}]
    with pytest.raises(Forbidden, match=ACCOUNT):
        _reviewer(_Server("valid"), grant=grants).verify(SENT, "id")


def test_without_the_right_to_ask_nobody_can_know() -> None:
    """That is 503 and says which right is missing; so is a server that is away."""
    with pytest.raises(IdentityUnavailable, match="403") as told:
        _reviewer(_Server("caller without rights")).verify(SENT, "id")
    assert "system:auth-delegator" in str(told.value.hint)

    def away(_: str | None) -> Any:
        raise SourceUnavailable("nobody is there")

    settings = TokenReviewSettings.model_validate({"grant": [{"value": "*", "role": "reader"}]})
    with pytest.raises(IdentityUnavailable):
        TokenReviewer(settings, away).verify(SENT, "id")


def test_tokens_of_no_configured_issuer_are_reviewed() -> None:
    """Issuers of the configuration are asked first."""
    reviewer = _reviewer(_Server("valid"))
    assert IssuedTokens([], review=reviewer.verify).verify(SENT, "id").caller.name == ACCOUNT
