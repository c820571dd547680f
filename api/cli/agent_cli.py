"""``drumlin agents`` and ``drumlin agent``: who reports from outside Kubernetes, and the reference agent itself."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from drumlin.api.cli.options import Entities, Url, connect, id_option, time_limit

_COLUMNS = ("guid", "name", "platform", "origin", "tags", "parent", "silent", "lastSeen")
_WIDE = (*_COLUMNS, "interval", "version", "id")
_MANAGED = ("id", "type", "name", "namespace", "phase")


def agents(
    guid: Annotated[str | None, typer.Argument(help="GUID of one agent: shows what it manages.")] = None,
    platform: Annotated[
        str | None, typer.Option(help="docker, kubernetes, kvm or bare-metal.", show_default=False)
    ] = None,
    tag: Annotated[str | None, typer.Option(help="A tag, or the beginning of one: eu/lab.", show_default=False)] = None,
    origin: Annotated[str | None, typer.Option(help="Site that agents report from.", show_default=False)] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of an agent, or of what it manages.", show_default=False)
    ] = None,
    managing: Annotated[
        str | None, id_option("--managing", help="Id of a thing: the agents above it, the root agent last.")
    ] = None,
    url: Url = None,
    output: Entities = "table",
) -> None:
    """List agents, and which of them are silent.

    **Examples**: `drumlin agents --tag eu/lab` · `drumlin agents --managing edge-lab/-/container/redis-1`
    """
    from drumlin.api.cli.output import STRUCTURED, Output, emit_rows, emit_value

    form = Output(output)
    items: list[dict[str, Any]] = []
    with connect(url) as client:
        if guid is not None:
            found = client.agent(guid)
            if form in STRUCTURED:
                emit_value(found, form)
            else:
                emit_rows(_MANAGED, [[each.get(name) for name in _MANAGED] for each in found["entities"]], form)
            return
        after = None
        while True:
            page = client.agents(platform=platform, tag=tag, origin=origin, name=name, managing=managing, after=after)
            items += page["items"]
            after = page["next"]
            if after is None:
                break
    if form in STRUCTURED:
        emit_value(items, form)
        return
    columns = _WIDE if form is Output.wide else _COLUMNS
    rows = [{**each, "tags": " ".join(each["tags"]), "silent": "yes" if each["silent"] else ""} for each in items]
    emit_rows(columns, [[each.get(name) for name in columns] for each in rows], form, name="guid")


def mcp(url: Url = None) -> None:
    """Serve the graph to an agent over stdin and stdout (Model Context Protocol); it asks the service, and only reads (docs/mcp.md).

    **Example**: `drumlin mcp --url https://drumlin.example --token-file reader.token`
    """
    from drumlin.api.cli.logs import configure_logging
    from drumlin.api.mcp import stdio

    configure_logging()
    stdio.serve(url, time_limit())


def agent(
    guid: Annotated[
        str | None, typer.Option(help="GUID of this agent [made from the machine's id].", show_default=False)
    ] = None,
    name: Annotated[
        str | None, typer.Option(help="Name of this machine in node-exporter's series [host name].", show_default=False)
    ] = None,
    origin: Annotated[
        str | None, typer.Option(help="Site of this machine [the service's].", show_default=False)
    ] = None,
    tag: Annotated[
        list[str] | None, typer.Option(help="Tag, as eu/lab/rack-3; may be repeated.", show_default=False)
    ] = None,
    parent: Annotated[str | None, typer.Option(help="GUID of the agent above.", show_default=False)] = None,
    interval: Annotated[int, typer.Option(help="Seconds between two heartbeats.", min=1, max=86_400)] = 30,
    docker: Annotated[
        Path, typer.Option(help="Docker's socket; where there is none, only the machine is registered.")
    ] = Path("/var/run/docker.sock"),
    once: Annotated[bool, typer.Option("--once", help="Register, then exit.")] = False,
    url: Url = None,
) -> None:
    """Register this machine and its Docker containers, and say that they are alive, until it is stopped.

    **Examples**: `drumlin agent --url http://drumlin.example:8080 --origin edge-lab --tag eu/lab --token-file agent.token`
    """
    import signal
    import threading

    from drumlin.api.cli.logs import configure_logging
    from drumlin.exporters.agents import reference
    from drumlin.exporters.agents.registration import AgentRegistration

    configure_logging()
    ended = threading.Event()
    for each in (signal.SIGINT, signal.SIGTERM):
        signal.signal(each, lambda *_: ended.set())
    own = guid or reference.guid_of_machine()

    def look() -> AgentRegistration:
        found = reference.containers(docker)
        return reference.describe_machine(found, name=name, origin=origin, tags=tag, parent=parent, interval=interval)

    with connect(url) as client:
        reference.run(client, own, look, (lambda _: True) if once else ended.wait)
    print(own)
