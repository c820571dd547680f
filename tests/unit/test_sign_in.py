"""Sessions of browsers and the code flow, without a network: what begins, what it is bound to, what ends it."""

from __future__ import annotations

import base64
import hashlib
from datetime import timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, parse_qsl, urlsplit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from drumlin.api.access.callers import Role
from drumlin.api.access.code_flow import SECONDS as FLOW_SECONDS
from drumlin.api.access.code_flow import CodeFlow
from drumlin.api.access.issued_tokens import IssuedTokens
from drumlin.api.access.sessions import SECONDS, Sessions, id_of
from drumlin.kg.config.issuers import IssuerSettings
from drumlin.kg.errors import Forbidden, IdentityUnavailable, ResourceNotFound, Unauthenticated
from tests.unit.test_issued_tokens import ISSUER, NOW, Provider, token

BACK = "https://kg.example/signin/callback"
GRANTS = [{"claim": "groups", "value": "sre", "role": "admin"}]


class _Flow:
    """A flow at an issuer in memory, which remembers what it was sent; ``claims`` change its ID tokens."""

    def __init__(self, secret: Path | None = None, **claims: Any) -> None:
        self.provider, self.claims, self.seconds = Provider(), claims, 0.0
        self.sent: list[dict[str, str]] = []
        self.document = {
            "issuer": ISSUER,
            "authorization_endpoint": f"{ISSUER}/auth",
            "token_endpoint": f"{ISSUER}/token",
        }
        settings = IssuerSettings.model_validate(
            {"issuer": ISSUER, "audience": "drumlin", "grant": GRANTS, "client": "pages", "client_secret": secret}
        )
        tokens = IssuedTokens([settings], self.provider.fetch, now=lambda: NOW, clock=lambda: self.seconds)
        self.flow = CodeFlow(
            (settings,), tokens, BACK, self._send, fetch=lambda _: self.document, clock=lambda: self.seconds
        )

    def _send(self, address: str, form: bytes) -> Any:
        assert address == f"{ISSUER}/token"
        self.sent.append(dict(parse_qsl(form.decode())))
        return {"id_token": token({"aud": "pages", "nonce": self.asked["nonce"], **self.claims}).decode()}

    def begin(self) -> str:
        """Begin; return the state."""
        address, state = self.flow.begin(0, "/doc/x?y=1")
        self.asked = {name: values[0] for name, values in parse_qs(urlsplit(address).query).items()}
        return state


def test_a_sign_in_is_bound_to_its_verifier_its_nonce_and_its_browser(tmp_path: Path) -> None:
    """The challenge is the verifier's hash, the secret comes from its file, and who signs in goes on to where it wanted."""
    (tmp_path / "secret").write_text("of the client\n")
    flow = _Flow(tmp_path / "secret")
    state = flow.begin()
    assert flow.asked["redirect_uri"] == BACK
    assert flow.asked["code_challenge_method"] == "S256"
    assert state == flow.asked["state"]
    found, next = flow.flow.finish(state, state, "the code", "session:1")
    assert (found.caller.name, found.caller.role, found.caller.token) == ("ada", Role.admin, "session:1")
    assert next == "/doc/x?y=1"
    (sent,) = flow.sent
    challenge = base64.urlsafe_b64encode(hashlib.sha256(sent["code_verifier"].encode()).digest()).rstrip(b"=").decode()
    assert challenge == flow.asked["code_challenge"]
    assert (sent["code"], sent["client_secret"], sent["client_id"]) == ("the code", "of the client", "pages")


def test_a_state_is_good_once_for_one_browser_and_ten_minutes() -> None:
    """Replayed, of another browser, made up or old, it is refused before anything is sent to the issuer."""
    flow = _Flow()
    state = flow.begin()
    flow.flow.finish(state, state, "code", "id")
    for kept in (state, ""):
        with pytest.raises(Unauthenticated, match="not begun by this browser"):
            flow.flow.finish(state, kept, "code", "id")
    other = flow.begin()
    with pytest.raises(Unauthenticated):
        flow.flow.finish(other, "another", "code", "id")
    with pytest.raises(Unauthenticated):  # and is over by that
        flow.flow.finish(other, other, "code", "id")
    mixed = flow.begin()
    with pytest.raises(Unauthenticated, match="another issuer has answered"):
        flow.flow.finish(mixed, mixed, "code", "id", "https://evil.example")
    late = flow.begin()
    flow.seconds += FLOW_SECONDS
    with pytest.raises(Unauthenticated):
        flow.flow.finish(late, late, "code", "id")
    assert len(flow.sent) == 1


@pytest.mark.parametrize(
    ("claims", "error"),
    [
        ({"nonce": "of another"}, Unauthenticated),
        ({"nonce": None}, Unauthenticated),
        ({"aud": "drumlin"}, Unauthenticated),
        ({"iss": "https://evil.example"}, Unauthenticated),
        ({"exp": NOW - timedelta(hours=1)}, Unauthenticated),
        ({"groups": []}, Forbidden),
    ],
)
def test_an_id_token_of_another_sign_in_is_refused(claims: dict[str, Any], error: type[Exception]) -> None:
    """Another nonce, audience, issuer or time; and one that grants no role."""
    flow = _Flow(**claims)
    state = flow.begin()
    with pytest.raises(error):
        flow.flow.finish(state, state, "code", "id")


def test_where_nobody_can_sign_in_is_told() -> None:
    """An issuer that is not there, and one whose document names an address that can be overheard."""
    flow = _Flow()
    with pytest.raises(ResourceNotFound):
        flow.flow.begin(1, "/")
    flow.document["authorization_endpoint"] = "http://login.example/auth"
    with pytest.raises(IdentityUnavailable, match="https address"):
        flow.flow.begin(0, "/")


def test_a_session_lasts_until_it_is_ended_or_over() -> None:
    """Its cookie is looked at only when no token is sent; another service's cookie has another name."""
    seconds = [0.0]
    sessions = Sessions("https://kg.example", lambda: seconds[0])
    value = sessions.begin(b"drumlin_x")
    headers = [(b"cookie", f"a=b; {sessions.cookie}={value}".encode())]
    found = sessions.of(headers)
    assert found is not None
    assert found.holder == b"drumlin_x"
    assert sessions.of([*headers, (b"authorization", b"Bearer y")]) is None
    assert sessions.holds(id_of(value))
    assert Sessions("https://other.example").cookie != sessions.cookie
    seconds[0] = SECONDS
    assert sessions.of(headers) is None
    assert not sessions.holds(id_of(value))
    seconds[0] = 0.0
    sessions.end(headers)
    assert sessions.of(headers) is None


@given(st.binary(max_size=60))
def test_no_cookie_is_an_accident(sent: bytes) -> None:
    """Whatever a browser sends: nobody's session."""
    sessions = Sessions("https://kg.example")
    sessions.begin(b"drumlin_x")
    assert sessions.of([(b"cookie", sent)]) is None
    assert sessions.of([(b"cookie", sessions.cookie.encode() + b"=" + sent)]) is None
