"""The check of who may do what, in front of every endpoint: those of the edge and FastAPI's alike.

A caller that is not known is refused before anything else is looked at, so that it cannot find out what exists. What ``api.access.rules``
does not list is closed.
"""

from __future__ import annotations

from fastapi import Request

from drumlin.api.access import sessions
from drumlin.api.access.audit_log import AccessLog, AuditEntry, utc_now
from drumlin.api.access.authentication import Authenticator
from drumlin.api.access.callers import ANONYMOUS, Caller, Role
from drumlin.api.access.issued_tokens import Verified
from drumlin.api.access.rules import AccessRules, Rule, needed
from drumlin.api.access.sessions import Sessions
from drumlin.api.edge.exchange import CLIENT_LEFT, Exchange
from drumlin.api.http import problems
from drumlin.api.http.asgi import SAFE_METHODS, Application, Headers, Scope
from drumlin.api.http.problems import OriginRefused
from drumlin.kg import fairness
from drumlin.kg.errors import DrumlinError, Forbidden, Unauthenticated
from drumlin.kg.store.protocol import Store

_SIGN_IN = frozenset(
    {"/signin", "/signin/with/{number}", "/signin/callback"}
)  # where a token that has ended must not be in the way
_HINT = "send Authorization: Bearer TOKEN; an operator makes one: drumlin token create NAME --role {role} --store DIR"


class AccessGuard:
    """Names the caller of each request, and refuses what it may not do. ``audit`` gets writes and refusals."""

    def __init__(self, authenticator: Authenticator, sessions: Sessions, store: Store, audit: AccessLog | None) -> None:
        self.authenticator, self._sessions, self._store, self._audit = authenticator, sessions, store, audit
        self._rules = AccessRules()

    def has_route(self, path: str) -> bool:
        """Return whether there is a route at a path."""
        return self._rules.find(path) is not None

    def methods_at(self, path: str) -> tuple[str, ...]:
        """Return the methods that the address at a path has; those of reading where there is no route, which a read then reports."""
        place = self._rules.find(path)
        return tuple(sorted(SAFE_METHODS)) if place is None else tuple(place.methods)

    async def learn(self, scope: Scope) -> None:
        """Have the token of a request verified by its issuer where that is needed; raises ``GuessesThrottled`` and ``Busy``."""
        await self.authenticator.learn(self._credentials(scope), address_of(scope))

    def is_accepted(self, caller: Caller) -> bool:
        """Return whether a caller that was named earlier would still be."""
        if caller.token is not None and caller.token.startswith(sessions.ID):
            return self._sessions.holds(caller.token)
        return self.authenticator.is_accepted(caller)

    def _credentials(self, scope: Scope) -> Headers:
        """Return the headers of a request, in which the token of its session stands in the place of the cookie."""
        session = self._sessions.of(scope["headers"])
        if session is None or isinstance(session.holder, Verified):
            return list(scope["headers"])
        return [(b"authorization", b"Bearer " + session.holder)]

    def _caller_of(self, scope: Scope) -> Caller | None:
        session = self._sessions.of(scope["headers"])
        if session is not None:
            scope["session"] = True
            _check_sender(scope)
            if isinstance(session.holder, Verified):
                return session.holder.caller
        return self.authenticator.caller_of(self._credentials(scope), address_of(scope))

    def check(self, exchange: Exchange) -> Application | None:
        """Set ``exchange.caller`` and return None when the request may pass, else what answers it.

        Raises ``Unauthenticated``, ``Forbidden`` and ``GuessesThrottled``.
        """
        scope = exchange.scope
        place = self._rules.find(scope["path"])
        rule = place.rule(exchange.method) if place is not None else None
        caller = None if rule is not None and place is not None and place.path in _SIGN_IN else self._caller_of(scope)
        if caller is not None and caller.domains is not None and rule is not None and rule.public:
            caller = None  # what is said to those who are known is about the whole service
        if caller is None:
            if rule is not None and rule.public:
                return None
            raise _unknown(rule)
        exchange.caller = scope["caller"] = caller
        if caller.token is not None:
            fairness.client.set(caller.name)  # which ``Exchange.run`` takes back
        if place is None:
            return problems.no_such_route(Request(scope))
        if rule is None:
            exchange.route = place.path
            return problems.method_refused(Request(scope), place.methods)
        if not rule.allows(caller, scope["path"]):
            raise _forbidden(caller, rule, f"{exchange.method} {place.path.replace(':path', '')}")
        exchange.changes = rule.changes
        return None

    def note(self, exchange: Exchange) -> None:
        """Write a request that has been answered into the audit log, when it was a write or was refused."""
        if self._audit is None or not (exchange.changes or exchange.refusal):
            return
        caller, scope = exchange.caller, exchange.scope
        self._audit.record(
            AuditEntry(
                utc_now(),
                caller.name if caller else ANONYMOUS,
                caller.role.value if caller else "none",
                address_of(scope),
                exchange.method,
                scope["path"],
                exchange.status or CLIENT_LEFT,
                self._store.generation,
                exchange.id,
                exchange.refusal,
            )
        )


def _check_sender(scope: Scope) -> None:
    """Refuse what may change something and comes with a cookie alone: a browser says which page sends it (``api.edge.request_guard``)."""
    if scope["method"] in SAFE_METHODS or any(name in (b"origin", b"sec-fetch-site") for name, _ in scope["headers"]):
        return
    raise OriginRefused(
        "a session changes something only from a page of this service", hint="programs send Authorization: Bearer TOKEN"
    )


def address_of(scope: Scope) -> str:
    """Return the address that a request comes from, empty when that is not known."""
    return scope["client"][0] if scope.get("client") else ""


def _unknown(rule: Rule | None) -> Unauthenticated:
    role = needed(rule)[0]
    return Unauthenticated(
        "this service asks for a bearer token, and the request has none",
        hint=_HINT.format(role=role),
        detail={"identity": ANONYMOUS, "needs": needed(rule)},
    )


def _forbidden(caller: Caller, rule: Rule, route: str) -> DrumlinError:
    roles = needed(rule)
    if caller.token is None:
        return Unauthenticated(
            f"{caller.name} callers have the role {caller.role}, and {route} takes {' or '.join(roles)}",
            hint=_HINT.format(role=roles[0]),
            detail={"identity": caller.name, "role": caller.role.value, "needs": roles},
        )
    if caller.domains is not None and rule.whole and caller.role in rule.roles:
        return Forbidden(
            f"{caller.name} is limited to {', '.join(sorted(caller.domains))}, and {route} is about the whole service",
            hint="a token that is not limited to domains may use it",
            detail={"identity": caller.name, "role": caller.role.value, "domains": sorted(caller.domains)},
        )
    own = caller.role is Role.agent and Role.agent in rule.roles
    if own:
        return Forbidden(
            f"{caller.name} is the agent {caller.guid} and may not use {route} for anything else",
            hint="use the id that ends in the GUID of the token",
            detail={"identity": caller.name, "role": caller.role.value, "needs": roles},
        )
    return Forbidden(
        f"{caller.name} has the role {caller.role}, and {route} takes {' or '.join(roles)}",
        hint=f"an operator grants it: drumlin token create NAME --role {roles[0]} --store DIR",
        detail={"identity": caller.name, "role": caller.role.value, "needs": roles},
    )
