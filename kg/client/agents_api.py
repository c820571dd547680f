"""Agents in a client's hands: registered, kept alive, found; one definition, two clients."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from urllib.parse import quote

import httpx
import msgspec

from drumlin.kg.client.calls import Call
from drumlin.kg.client.encoding import as_json
from drumlin.kg.client.endpoint import operation


def _json(response: httpx.Response) -> Any:
    return msgspec.json.decode(response.content)


def _unknown(response: httpx.Response) -> list[str]:
    return list(_json(response)["unknown"]) if response.content else []


def _path(guid: str, more: str = "") -> str:
    return f"/agents/{quote(guid, safe='')}{more}"


def _agents(
    *,
    platform: str | None = None,
    tag: str | None = None,
    origin: str | None = None,
    name: str | None = None,
    namespace: str | None = None,
    managing: str | None = None,
    after: str | None = None,
    limit: int = 1000,
) -> Call[dict[str, Any]]:
    """List agents by GUID: ``items`` and ``next``, which is ``after`` of the next page. ``tag`` finds finer ones too (``eu/lab``).

    ``name`` is an agent's or that of something it manages. ``managing`` (an id) returns the chain above one thing instead: the agent that
    manages it first, the root agent last; raises ``ResourceNotFound`` when there is none.
    """
    given = {"platform": platform, "tag": tag, "origin": origin, "name": name, "namespace": namespace}
    given |= {"managing": managing, "after": after, "limit": str(limit)}
    return Call("GET", "/agents", _json, params={key: value for key, value in given.items() if value is not None})


def _agent(guid: str) -> Call[dict[str, Any]]:
    """Return an agent and its ``entities``; raises ``ResourceNotFound``."""
    return Call("GET", _path(guid), _json)


def _register_agent(guid: str, registration: Mapping[str, Any]) -> Call[dict[str, Any]]:
    """Register an agent and all that it manages (docs/agents.md): ``outcome``, an outcome per entity, and what was ``removed``.

    Raises ``InvalidDocument``, ``ShapeViolation``, ``Conflict`` (another agent has it; ``detail["keys"]``) and ``Forbidden``.
    """
    headers = {"Content-Type": "application/json"}
    return Call("PUT", _path(guid), _json, headers=headers, content=as_json(registration))


def _heartbeat(guid: str, below: Sequence[str] = ()) -> Call[list[str]]:
    """Say that an agent is alive, and those ``below`` it; returns those of them that are not registered or not below it.

    Raises ``ResourceNotFound`` when the agent itself is not registered.
    """
    content, headers = (as_json({"agents": list(below)}), {"Content-Type": "application/json"}) if below else (None, {})
    return Call("POST", _path(guid, "/heartbeat"), _unknown, headers=headers, content=content)


def _remove_agent(guid: str) -> Call[list[str]]:
    """Remove an agent and all that it manages; returns their ids. Raises ``ResourceNotFound``."""
    return Call("DELETE", _path(guid), lambda response: list(_json(response)["removed"]), repeatable=False)


class AgentOperations:
    """Operations on agents."""

    agents = operation(_agents)
    agent = operation(_agent)
    register_agent = operation(_register_agent)
    heartbeat = operation(_heartbeat)
    remove_agent = operation(_remove_agent)
