"""What an agent says of itself and of what it manages, as it comes over HTTP.

Only the fields named here are read. Whatever else a registration holds (environment, arguments, commands) is skipped by the decoder.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Annotated, Literal

import msgspec

from drumlin.kg.errors import InvalidDocument, InvalidIdentifier

MAX_ENTITIES = 1000
"""Entities of one registration; an agent with more of them registers through agents below it."""
MAX_BYTES = 4 << 20
"""Bytes of one registration."""
DEFAULT_INTERVAL = 30
"""Seconds between two heartbeats, where a registration does not say."""

EntityType = Literal["Host", "VirtualMachine", "ContainerInstance"]
Platform = Literal["docker", "kubernetes", "kvm", "bare-metal"]
EntityPhase = Literal[
    "Pending", "Running", "Succeeded", "Failed", "Unknown", "Ready", "NotReady", "Suspended", "Terminating"
]
KINDS: Mapping[str, str] = {"Host": "host", "VirtualMachine": "virtualmachine", "ContainerInstance": "container"}
"""Class → the kind in the entity's id."""

Name = Annotated[str, msgspec.Meta(min_length=1, max_length=253, pattern=r"^\S(.*\S)?$")]
_Text = Annotated[str, msgspec.Meta(min_length=1, max_length=1024)]
Tag = Annotated[str, msgspec.Meta(max_length=253, pattern=r"^[^/\s]+(/[^/\s]+)*$")]
_GUID = re.compile(r"[A-Za-z0-9_-][A-Za-z0-9._-]{0,127}")


class EntityRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """One thing that an agent manages. ``key`` names it within the registration; ``parent`` is a key, or the id of another entity."""

    key: Name
    type: EntityType
    name: Name
    namespace: Name | None = None
    labels: dict[str, str] = {}
    parent: Name | None = None
    platform: Platform | None = None
    phase: EntityPhase | None = None
    image: _Text | None = None
    architecture: _Text | None = None
    kernelVersion: _Text | None = None
    cpuCapacity: Annotated[str, msgspec.Meta(pattern=r"^[0-9]{1,6}(\.[0-9]{1,6})?$")] | None = None
    memoryCapacity: Annotated[int, msgspec.Meta(ge=0)] | None = None


class AgentRegistration(msgspec.Struct, frozen=True, kw_only=True):
    """An agent. ``origin`` is its site, the service's own cluster when absent; ``parent`` is the GUID of the agent above it.

    ``interval`` is how often it says that it is alive, in seconds; 0: it says so never, and nobody waits for it.
    """

    name: Name
    platform: Platform | None = None
    origin: Name | None = None
    version: _Text | None = None
    tags: Annotated[list[Tag], msgspec.Meta(max_length=100)] = []
    parent: Name | None = None
    interval: Annotated[int, msgspec.Meta(ge=0, le=86_400)] = DEFAULT_INTERVAL
    entities: list[EntityRegistration] = []


def decode(body: bytes) -> AgentRegistration:
    """Read a registration; raises ``InvalidDocument`` with the place of what is wrong."""
    try:
        said = msgspec.json.decode(body, type=AgentRegistration)
    except msgspec.DecodeError as error:  # a ValidationError too
        raise InvalidDocument(
            f"the registration cannot be read: {error}", hint="docs/agents.md has the fields of a registration"
        ) from error
    if len(said.entities) > MAX_ENTITIES:
        raise InvalidDocument(
            f"the registration has {len(said.entities):,} entities; the limit is {MAX_ENTITIES:,}",
            hint="register the rest through other agents, with this one as their parent",
        )
    seen: set[str] = set()
    for each in said.entities:
        if each.key in seen:
            raise InvalidDocument(f"two entities have the key {each.key!r}", detail={"key": each.key})
        seen.add(each.key)
    return said


class Relay(msgspec.Struct, frozen=True):
    """The body of a heartbeat that an agent sends for others below it, too."""

    agents: Annotated[list[Name], msgspec.Meta(max_length=10_000)] = []


def decode_relay(body: bytes) -> Relay:
    """Read the body of a heartbeat; raises ``InvalidDocument``."""
    try:
        return msgspec.json.decode(body or b"{}", type=Relay)
    except msgspec.DecodeError as error:
        raise InvalidDocument(
            f"the heartbeat cannot be read: {error}", hint='send nothing, or {"agents": [GUID, …]}'
        ) from error


def check_guid(guid: str) -> str:
    """Return a GUID; raises ``InvalidIdentifier`` for a text that is not one."""
    if not _GUID.fullmatch(guid):
        raise InvalidIdentifier(
            f"{guid[:64]!r} is no GUID of an agent", hint="1 to 128 letters, digits, dots, hyphens and underscores"
        )
    return guid
