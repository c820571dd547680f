"""The one table of routes and roles: what is not in it is closed to everybody.

``api.edge.access_guard`` asks it before any route runs; a test compares it with the OpenAPI document, and another one its addresses with
those that FastAPI finds. docs/access.md shows it.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from starlette.routing import compile_path

from drumlin.api.access.callers import Caller, Role
from drumlin.kg.model.iris import CONTEXT_PATH

_OF_AGENTS = ("/subgraph/agent/{}", "/agents/{}", "/agents/{}/heartbeat")
"""What is an agent's own, by its GUID."""
_OF_ANY_AGENT = frozenset({"/v1/logs", "/v1/metrics", "/v1/traces"})  # a Collector's own: the GUID is that of its token


@dataclass(frozen=True, slots=True)
class Rule:
    """Who may use a route: ``roles``, and everybody when it is ``public``. ``changes``: what it does is a write.

    ``whole``: it is about the whole service, so callers that are limited to domains may not use it.
    """

    roles: frozenset[Role] = frozenset()
    public: bool = False
    changes: bool = False
    whole: bool = False

    def allows(self, caller: Caller, path: str) -> bool:
        """Return whether a caller may use the route at ``path``: an agent only for its own GUID."""
        if self.public:
            return True
        if caller.role not in self.roles or (self.whole and caller.domains is not None):
            return False
        if caller.role is not Role.agent or path in _OF_ANY_AGENT:
            return True
        return any(path == each.format(caller.guid) for each in _OF_AGENTS)


_READERS = frozenset(Role) - {Role.agent}
_PUBLIC = Rule(public=True)
_READ = Rule(_READERS)
_WRITE = Rule(frozenset({Role.writer, Role.admin}), changes=True)
_EXPORT = Rule(frozenset({Role.writer, Role.admin, Role.exporter}), changes=True)
_READ_OWN = Rule(frozenset(Role))
_WRITE_OWN = Rule(_EXPORT.roles | {Role.agent}, changes=True)
_REGISTER = Rule(frozenset({Role.admin, Role.agent}), changes=True)
_HEARTBEAT = Rule(frozenset({Role.admin, Role.agent}))  # it changes nothing
_INSPECT = Rule(frozenset({Role.admin}), whole=True)
_OPERATE = Rule(frozenset({Role.admin}), changes=True, whole=True)
_READ_WHOLE = Rule(_READERS, whole=True)
_WRITE_WHOLE = Rule(_WRITE.roles, changes=True, whole=True)

ROUTES: Mapping[str, Rule] = {
    "GET /livez": _PUBLIC,
    "GET /readyz": _PUBLIC,
    f"GET {CONTEXT_PATH}": _PUBLIC,
    f"OPTIONS {CONTEXT_PATH}": _PUBLIC,
    "GET /": _READ,
    "GET /openapi.json": _READ,
    "GET /search.html": _READ,  # the pages, which the plain addresses lead browsers to
    "GET /sparql.html": _READ,
    "GET /queries.html": _READ,
    "GET /queries/{name}.html": _READ,
    "GET /doc/{id:path}.html": _READ,
    "GET /compare": _READ,
    "GET /compare.html": _READ,
    "GET /measured": _READ,
    "GET /accuracy": _READ,
    "GET /history.html": _READ,
    "GET /logs.html": _READ,
    "GET /datasources.html": _READ,
    "GET /alerts.html": _READ,
    "GET /forecasts.html": _READ,
    "GET /changes": _READ,
    "GET /about": _READ,
    "GET /docs": _READ,
    "GET /docs/guide": _READ,
    "GET /docs/guide/{path:path}": _READ,
    "GET /static/{version}/{name}": _PUBLIC,  # the page to sign in needs them, and they say nothing of what there is
    "GET /signin": _PUBLIC,
    "POST /signin": _PUBLIC,
    "POST /signout": _PUBLIC,
    "GET /signin/with/{number}": _PUBLIC,
    "GET /signin/callback": _PUBLIC,
    "GET /metrics": _READ_WHOLE,
    "GET /subgraph/{id:path}": _READ_OWN,
    "PUT /subgraph/{id:path}": _WRITE_OWN,
    "POST /subgraph/{id:path}": _WRITE_OWN,
    "PATCH /subgraph/{id:path}": _WRITE_OWN,
    "DELETE /subgraph/{id:path}": _WRITE_OWN,
    "GET /subgraphs": _READ,
    "POST /subgraphs": _EXPORT,
    "GET /id/{id:path}": _READ,
    "GET /doc/{id:path}": _READ,
    "GET /.well-known/void": _READ,
    "GET /search": _READ,
    "GET /events": _READ,
    "GET /export": _READ,
    "GET /sparql": _READ,
    "POST /sparql": _READ,
    "POST /sparql/update": _WRITE,
    "GET /store": _READ,
    "PUT /store": _WRITE,
    "POST /store": _WRITE,
    "DELETE /store": _WRITE,
    "GET /store/{path:path}": _READ,  # graphs by their own address
    "PUT /store/{path:path}": _WRITE,
    "POST /store/{path:path}": _WRITE,
    "DELETE /store/{path:path}": _WRITE,
    "GET /graph": _READ,
    "PATCH /api/v0/graph": _WRITE_WHOLE,  # the public peer's interface
    "GET /api/v0/graph": _READ_WHOLE,
    "GET /api/v0/graph/update": _WRITE_WHOLE,
    "POST /api/v0/graph/update": _WRITE_WHOLE,
    "POST /api/v0/graph/compact": _WRITE_WHOLE,
    "GET /queries": _READ,
    "GET /queries/{name}": _READ,
    "GET /sd/{name}": _READ,
    "GET /resolve": _READ,
    "POST /resolve": _READ,
    "GET /history": _READ,
    "POST /history": _READ,
    "GET /values": _READ,
    "POST /values": _READ,
    "GET /alerts": _READ,
    "GET /logs": _READ,
    "GET /datasources": _READ,
    "POST /datasources/import": _WRITE_WHOLE,
    "GET /forecasts": _READ,
    "GET /forecasts/value": _READ,
    "POST /forecasts": _WRITE,
    "DELETE /forecasts": _WRITE,
    "GET /forecasts/points": _READ,
    "GET /agents": _READ,
    "GET /agents/{guid}": _READ_OWN,
    "PUT /agents/{guid}": _REGISTER,
    "DELETE /agents/{guid}": _REGISTER,
    "POST /agents/{guid}/heartbeat": _HEARTBEAT,
    "POST /v1/logs": _REGISTER,
    "POST /v1/metrics": _HEARTBEAT,  # these two only explain what to do instead
    "POST /v1/traces": _HEARTBEAT,
    "POST /mcp": _READ,  # its tools only read, and ask as the caller
    "GET /ns": _READ,
    "GET /ns/{part}": _READ,
    "GET /profiles": _READ,
    "GET /profiles/{name}": _READ,
    "GET /profiles/{name}/rules": _READ,
    "GET /admin/check": _INSPECT,
    "GET /admin/audit": _INSPECT,
    "POST /admin/backup": _OPERATE,
    "POST /admin/optimize": _OPERATE,
}
"""What each route needs, by its method and path; HEAD is GET, and OPTIONS of an address is for every role that may read."""


@dataclass(frozen=True, slots=True)
class RoutePath:
    """The path of some routes of the table, with their rules by method."""

    path: str
    rules: Mapping[str, Rule]

    def rule(self, method: str) -> Rule | None:
        """Return the rule for a method, None when the address does not have it."""
        if method == "OPTIONS" and method not in self.rules:
            return _READ
        return self.rules.get("GET" if method == "HEAD" else method)

    @property
    def methods(self) -> list[str]:
        """The methods that the address has (RFC 9110 §10.2.1)."""
        return sorted({*self.rules, "OPTIONS", *({"HEAD"} if "GET" in self.rules else ())})


class AccessRules:
    """Finds the address of a path; to be made once Starlette's convertors are what they will be."""

    def __init__(self, routes: Mapping[str, Rule] = ROUTES) -> None:
        by_path: dict[str, dict[str, Rule]] = {}
        for route, rule in routes.items():
            method, _, path = route.partition(" ")
            by_path.setdefault(path, {})[method] = rule
        self._fixed = {path: RoutePath(path, rules) for path, rules in by_path.items() if "{" not in path}
        self._patterns: list[tuple[re.Pattern[str], RoutePath]] = [
            (compile_path(path)[0], RoutePath(path, rules)) for path, rules in by_path.items() if "{" in path
        ]

    def find(self, path: str) -> RoutePath | None:
        """Return the address that a path leads to, None when nothing is there."""
        if (fixed := self._fixed.get(path)) is not None:
            return fixed
        for pattern, place in self._patterns:
            if pattern.match(path):
                return place
        return None


def rule_of(method: str, path: str) -> str:
    """Return the key in ``ROUTES`` of a route of the OpenAPI document, which writes paths without their convertors."""
    found = f"{method.upper()} {path}"
    if path.startswith("/queries/"):
        return "GET /queries/{name}"
    return found if found in ROUTES else found.replace("{id}", "{id:path}")


def needed(rule: Rule | None) -> list[str]:
    """Return the roles that may use a route, the least one first; those of a reader when there is no such route."""
    roles = _READ.roles if rule is None or rule.public else rule.roles
    return [each.value for each in Role if each in roles]


def table() -> str:
    """Return the rows of the table in docs/access.md."""
    rows = []
    for route, rule in ROUTES.items():
        roles = "everybody" if rule.public else ", ".join(f"`{each}`" for each in needed(rule))
        marks = ["yes" if rule.changes else "", "no" if rule.whole else ""]
        rows.append(f"| `{route.replace(':path', '')}` | {roles} | {' | '.join(marks)} |")
    return "\n".join(rows)
