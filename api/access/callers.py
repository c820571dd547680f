"""The caller of a request: its name, its role, and what it may write as.

A caller is known by its bearer token (``api.access.tokens``); one without a token is anonymous.
"""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum

from drumlin.kg.graphs.owners import USER, agent_owner


class Role(StrEnum):
    """What a caller may do; ``api.access.rules`` has the routes of each role."""

    reader = "reader"
    writer = "writer"
    admin = "admin"
    exporter = "exporter"
    agent = "agent"
    peer = "peer"


ANONYMOUS = "anonymous"
"""The name of a caller without a token."""


@dataclass(frozen=True, slots=True)
class Caller:
    """Who sends a request.

    ``owners`` are the names under which an exporter writes, ``guid`` is the agent's own. ``token`` is the id of the token's record,
    None for an anonymous caller. ``domains`` (ids) are those that it is limited to; None: it sees everything.
    """

    name: str
    role: Role
    owners: tuple[str, ...] = ()
    guid: str | None = None
    token: str | None = None
    domains: frozenset[str] | None = None

    @property
    def default_owner(self) -> str:
        """The owner of a write that names none."""
        return self.owns[0]

    @property
    def owns(self) -> tuple[str, ...]:
        """The owners that it writes as: an exporter's sources, an agent itself, else users."""
        return (agent_owner(self.guid),) if self.guid is not None else self.owners or (USER,)

    def may_own(self, owner: str) -> bool:
        """Return whether this caller may write as ``owner``: an exporter as its own sources, an admin as anybody."""
        return self.role is Role.admin or owner in self.owns


ANYBODY = Caller(ANONYMOUS, Role.admin)
"""The caller of a service that asks for no tokens."""
