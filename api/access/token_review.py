"""Tokens of a cluster's service accounts, which its API server is asked about (TokenReview).

https://kubernetes.io/docs/reference/kubernetes-api/authentication-resources/token-review-v1/. The service needs the right to ask:
the ClusterRole ``system:auth-delegator``. A token is verified anew after a minute, so one whose pod or account is gone ends by then.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import UTC, datetime, timedelta

import msgspec

from drumlin.api.access.issued_tokens import Verified, granted, invalid_token
from drumlin.exporters.kubernetes.access import ApiRefused, ApiServer
from drumlin.kg.config.issuers import TokenReviewSettings
from drumlin.kg.errors import IdentityUnavailable, SourceUnavailable

PATH = "/apis/authentication.k8s.io/v1/tokenreviews"
_SECONDS = 5.0
_LASTS = timedelta(minutes=5)  # longer than a verification is remembered, which is what ends it


class _ReviewedUser(msgspec.Struct):
    username: str = ""
    groups: list[str] = []


class _ReviewStatus(msgspec.Struct):
    authenticated: bool = False
    audiences: list[str] = []
    user: _ReviewedUser = msgspec.field(default_factory=_ReviewedUser)


class _Review(msgspec.Struct):
    status: _ReviewStatus


class TokenReviewer:
    """Asks one API server. Methods block; callable from any thread."""

    def __init__(
        self,
        settings: TokenReviewSettings,
        connect: Callable[[str | None], ApiServer] = ApiServer.connect,
        *,
        now: Callable[[], datetime] = lambda: datetime.now(UTC),
    ) -> None:
        """``connect`` returns the server of a context of the kubeconfig, None for the one that this process runs in."""
        self._settings, self._connect, self._now = settings, connect, now
        self._server: ApiServer | None = None

    def verify(self, token: bytes, id: str) -> Verified:
        """Return whose a token is; ``id`` becomes the caller's.

        Raises ``Unauthenticated`` for a token that the server does not accept for our audience, ``Forbidden`` for one that grants no role,
        ``IdentityUnavailable`` when the server cannot be asked.
        """
        audience = self._settings.audience
        body = {
            "apiVersion": "authentication.k8s.io/v1",
            "kind": "TokenReview",
            "spec": {"token": token.decode("ascii", "replace"), "audiences": [audience]},
        }
        try:
            self._server = self._server or self._connect(self._settings.context)
            status = msgspec.json.decode(self._server.write("POST", PATH, body, timeout=_SECONDS), type=_Review).status
        except ApiRefused as error:
            hint = "let the service's account ask: bind it to the ClusterRole system:auth-delegator (docs/access.md)"
            raise IdentityUnavailable(
                f"the API server reviews no token for this service ({error.status})", hint=hint
            ) from error
        except (SourceUnavailable, msgspec.DecodeError) as error:
            raise IdentityUnavailable(
                "the API server that reviews tokens cannot be asked", hint="ask again later"
            ) from error
        if not status.authenticated or not status.user.username:
            raise invalid_token(
                "the cluster's API server does not accept it", f"ask for one with the audience {audience}"
            )
        if audience not in status.audiences:  # a server that does not know audiences says nothing of them
            raise invalid_token("it is for another audience", f"ask for one with the audience {audience}")
        claims = {"sub": status.user.username, "groups": status.user.groups}
        caller = granted(claims, self._settings.grant, status.user.username, "the cluster", id)
        return Verified(caller, self._now() + _LASTS)
