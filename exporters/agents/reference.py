"""The reference agent: it registers this machine, and its Docker containers where there is a Docker, and says that it is alive.

Nothing but the standard library and what Linux reports of itself. Of a container only id, name, image, state and labels are read; of the
labels the service keeps those that its settings name.
"""

from __future__ import annotations

import http.client
import os
import platform
import socket
import uuid
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import msgspec
import structlog

from drumlin.exporters.agents.registration import AgentRegistration, EntityPhase, EntityRegistration
from drumlin.kg.client import Client
from drumlin.kg.errors import DrumlinError, ResourceNotFound, SourceUnavailable

log = structlog.get_logger()

DOCKER = Path("/var/run/docker.sock")
"""Docker's API, where it is."""
MACHINE_ID = Path("/etc/machine-id")
_MEMINFO = Path("/proc/meminfo")
_PHASES: Mapping[str, EntityPhase] = {
    "created": "Pending",
    "running": "Running",
    "restarting": "Pending",
    "paused": "Suspended",
    "removing": "Terminating",
    "exited": "Succeeded",
    "dead": "Failed",
}
_MAX_ANSWER = 16 << 20


class DockerContainer(msgspec.Struct, frozen=True):
    """What is read of a container: https://docs.docker.com/reference/api/engine/ (GET /containers/json)."""

    Id: str
    Names: list[str] = []
    Image: str = ""
    State: str = ""
    Labels: dict[str, str] | None = None


class _DockerConnection(http.client.HTTPConnection):
    def __init__(self, path: Path) -> None:
        super().__init__("localhost", timeout=10)
        self._path = path

    def connect(self) -> None:
        self.sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.sock.settimeout(10)
        self.sock.connect(str(self._path))


def guid_of_machine(machine_id: Path = MACHINE_ID) -> str:
    """Return a GUID that stays this machine's: a hash of its id, which must not leave it as it is (machine-id(5)), or of its name."""
    try:
        known = machine_id.read_text(encoding="ascii").strip()
    except (OSError, UnicodeDecodeError):
        known = ""
    return uuid.uuid5(uuid.NAMESPACE_DNS, f"drumlin-agent.{known or socket.gethostname()}").hex


def containers(path: Path = DOCKER) -> list[DockerContainer] | None:
    """List Docker's containers, stopped ones too; None where there is no Docker. Raises ``SourceUnavailable``."""
    if not path.exists():
        return None
    connection = _DockerConnection(path)
    try:
        connection.request("GET", "/containers/json?all=true")
        answer = connection.getresponse()
        body = answer.read(_MAX_ANSWER)
        if answer.status != 200:
            raise SourceUnavailable(
                f"Docker at {path} answers {answer.status}", hint="is this user in the group docker?"
            )
        return msgspec.json.decode(body, type=list[DockerContainer])
    except (OSError, http.client.HTTPException, msgspec.DecodeError) as error:
        raise SourceUnavailable(f"Docker at {path} does not answer: {error}", hint="leave --docker out") from error
    finally:
        connection.close()


def describe_machine(
    found: list[DockerContainer] | None,
    *,
    name: str | None = None,
    origin: str | None = None,
    tags: list[str] | None = None,
    parent: str | None = None,
    interval: int = 30,
) -> AgentRegistration:
    """Describe this machine and its containers; ``name`` is what node-exporter's series call it [the host name]."""
    machine = name or socket.gethostname()
    host = EntityRegistration(
        key="host",
        type="Host",
        name=machine,
        platform="bare-metal",
        phase="Ready",
        architecture=platform.machine() or None,
        kernelVersion=platform.release() or None,
        cpuCapacity=str(os.cpu_count() or 1),
        memoryCapacity=_memory(),
    )
    return AgentRegistration(
        name=f"agent of {machine}",
        platform="bare-metal" if found is None else "docker",
        origin=origin,
        version=version("drumlin"),
        tags=tags or [],
        parent=parent,
        interval=interval,
        entities=[host, *map(_container, found or ())],
    )


def _container(found: DockerContainer) -> EntityRegistration:
    names = sorted(each.lstrip("/") for each in found.Names if each.lstrip("/"))
    return EntityRegistration(
        key=found.Id[:64],
        type="ContainerInstance",
        name=names[0] if names else found.Id[:12],
        labels=found.Labels or {},
        parent="host",
        platform="docker",
        phase=_PHASES.get(found.State, "Unknown"),
        image=found.Image or None,
    )


def _memory() -> int | None:
    """Return the bytes of memory of this machine, as Linux reports them."""
    try:
        lines = _MEMINFO.read_text(encoding="ascii").splitlines()
    except OSError:
        return None
    found = next((line.split() for line in lines if line.startswith("MemTotal:")), None)
    return int(found[1]) * 1024 if found else None


def run(
    client: Client,
    guid: str,
    look: Callable[[], AgentRegistration],
    wait: Callable[[float], bool],
) -> None:
    """Register what ``look`` finds, then say that the agent is alive, until ``wait`` (seconds) returns True.

    What has changed is registered again. A service that does not answer is asked again after the interval; one that no longer knows the
    agent gets it anew. Raises what the first registration raises.
    """
    said = look()
    client.register_agent(guid, _plain(said))
    log.info("agent_registered", guid=guid, entities=len(said.entities))
    while not wait(said.interval or 30):
        try:
            now = look()
            if now != said:
                client.register_agent(guid, _plain(now))
                said = now
            else:
                _beat(client, guid, said)
        except DrumlinError as error:
            log.error("agent_not_heard", guid=guid, detail=str(error), hint=error.hint)


def _beat(client: Client, guid: str, said: AgentRegistration) -> None:
    try:
        client.heartbeat(guid)
    except ResourceNotFound:
        client.register_agent(guid, _plain(said))


def _plain(said: AgentRegistration) -> dict[str, Any]:
    """Return a registration as JSON has it, without what is not said."""
    found: dict[str, Any] = msgspec.to_builtins(said)
    found["entities"] = [{key: value for key, value in each.items() if value is not None} for each in found["entities"]]
    return {key: value for key, value in found.items() if value is not None}
