"""``drumlin demo --system agents``: a site without Kubernetes, in which agents report what there is.

The host is this very machine, as the reference agent sees it; its series are those of a real node-exporter. The second agent and the
Collector are made up.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from drumlin.api.cli.output import emit_table
from drumlin.api.demo.sample import THIS_MACHINE
from drumlin.exporters.agents import reference
from drumlin.kg.client import Client
from drumlin.kg.client.calls import Call
from drumlin.kg.config.settings import Settings

SITE = "edge-lab"
HOST = f"{SITE}/-/host/{THIS_MACHINE}"
_ROOT, _GUEST, _COLLECTOR = "this-machine-agent", "hypervisor-agent", "collector-1"
_GUEST_INTERVAL = 1
_VM = f"{SITE}/-/virtualmachine/vm-3"
Until = Callable[[Callable[[], bool], float, str], None]


def settings(url: str | None, port: int) -> Settings:
    """Return the configuration of a service whose cluster is the site itself."""
    server = {"name": "prometheus-main", "kind": "prometheus", "url": url, "scrape_interval": "1s"}
    jaeger = {"name": "jaeger-main", "kind": "jaeger", "url": "https://jaeger.example"}
    return Settings.model_validate(
        {
            "base": f"http://localhost:{port}",
            "cluster": SITE,
            "domain": {"id": "lab", "type": "Domain"},
            "exporters": ["node-exporter", "cadvisor", "libvirt"],
            "datasource": [*([server] if url else []), jaeger],
        }
    )


def register(client: Client) -> None:
    """Register this machine by the reference agent, a virtual machine by an agent below it, and a host by OTLP."""
    machine = reference.describe_machine(None, name=THIS_MACHINE, tags=["eu/lab"])
    reference.run(client, _ROOT, lambda: machine, lambda _: True)
    guest = {"key": "vm", "type": "VirtualMachine", "name": "vm-3", "parent": HOST}
    redis = {"key": "redis", "type": "ContainerInstance", "name": "redis-1", "parent": "vm", "image": "redis:7"}
    client.register_agent(
        _GUEST,
        {
            "name": "agent of the hypervisor",
            "platform": "kvm",
            "parent": _ROOT,
            "tags": ["eu/lab/rack-3"],
            "interval": _GUEST_INTERVAL,
            "entities": [guest, redis],
            "environment": {"PASSWORD": "CANARY"},
        },
    )
    client.run(Call("POST", "/v1/logs", lambda _: None, headers={"Content-Type": "application/json"}, content=_event()))


def _event() -> bytes:
    """Return an entity event as a Collector sends it: the specification's shape."""

    def text(value: str) -> dict[str, Any]:
        return {"stringValue": value}

    def pairs(values: dict[str, dict[str, Any]]) -> list[dict[str, Any]]:
        return [{"key": key, "value": value} for key, value in values.items()]

    def of(**said: str) -> dict[str, Any]:
        return {"kvlistValue": {"values": pairs({key.replace("_", "."): text(value) for key, value in said.items()})}}

    event = {
        "eventName": "entity.state",
        "attributes": pairs(
            {
                "entity.type": text("host"),
                "entity.id": of(host_id="dfd2f1c6"),
                "entity.description": of(host_name="node-9", host_arch="arm64"),
                "entity.report.interval": {"intValue": "60"},
            }
        ),
    }
    resource = {"attributes": pairs({"service.instance.id": text(_COLLECTOR), "service.name": text("otelcol")})}
    return msgspec.json.encode({"resourceLogs": [{"resource": resource, "scopeLogs": [{"logRecords": [event]}]}]})


def chains(client: Client) -> bool:
    """Print the agents, and those above the container; return whether the chain is whole."""
    rows = client.agents()["items"]
    table = [(each["guid"], each["platform"], " ".join(each["tags"]), each["parent"]) for each in rows]
    emit_table(("guid", "platform", "tags", "parent"), table)
    chain = [each["guid"] for each in client.agents(managing=f"{SITE}/-/container/redis-1")["items"]]
    emit_table(("above redis-1",), [(each,) for each in chain])
    below = [each["guid"] for each in client.agents(tag="eu/lab")["items"]]
    things = client.query("agents-of", agent=f"agent/{_GUEST}")
    return chain == [_GUEST, _ROOT] and sorted(below) == [_GUEST, _ROOT] and len(list(things)) == 2


def fall_silent(client: Client, until: Until) -> bool:
    """Send heartbeats, which write nothing, then none, until the graph says that the agent is silent; print which are."""

    def generation() -> str:
        return str(client.subgraph(_VM).read().etag)

    before = generation()
    for _ in range(100):
        client.heartbeat(_GUEST)
    quiet = generation() == before and not client.agent(_GUEST)["silent"]
    until(lambda: bool(client.agent(_GUEST)["silent"]), 20 * _GUEST_INTERVAL, "the agent did not fall silent")
    rows = list(client.query("silent-agents"))
    emit_table(("agent", "name", "lastSeen"), [(each["agent"], each["name"], each.get("lastSeen")) for each in rows])
    client.heartbeat(_GUEST)
    client.heartbeat(_GUEST)
    until(lambda: not client.agent(_GUEST)["silent"], 20 * _GUEST_INTERVAL, "the agent was not heard again")
    return quiet and [each["name"] for each in rows] == ["agent of the hypervisor"]
