"""Long-running commands: the service itself, and an exporter that writes to a service elsewhere."""

from __future__ import annotations

import asyncio
import gc
import ipaddress
import resource
import signal
import socket
import sys
import threading
from collections.abc import Callable, Mapping
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from datetime import timedelta
from pathlib import Path
from typing import Any

import structlog

from api.cli.logs import configure_logging
from api.listening import cannot_listen
from kg.errors import InvalidSettings, StoreUnavailable
from kg.settings import Settings

log = structlog.get_logger()

LOOPBACK = ("localhost",)
_AGAIN_SECONDS = 1.0
_DESCRIPTORS = 65_536
AT_ONCE = 4096
"""Connections that the server has at once; the rest waits. Idle ones end after 30 s. Each subscriber of ``/events`` has one: far fewer."""


def sources_named(name: str, settings: Settings) -> dict[str, Any]:
    """Return the sources that ``none``, ``dump:PATH`` or ``kubernetes`` means, by cluster; raises ``InvalidSettings``."""
    from api.assembly import now
    from exporters.kubernetes.mappings import kinds_of

    if name == "none":
        return {}
    if name.startswith("dump:"):
        from exporters.dump import DumpSource

        return {settings.cluster: DumpSource([name.removeprefix("dump:")], kinds_of(settings), clock=now)}
    if name == "kubernetes":
        from exporters.kubernetes.access import Access
        from exporters.kubernetes.informer import KubernetesSource

        kinds = kinds_of(settings)
        return {
            cluster: KubernetesSource(
                Access.connect(context=each.name),
                kinds,
                cluster,
                namespace=each.namespace,
                label_selector=each.label_selector,
            )
            for cluster, each in settings.clusters.items()
        }
    raise InvalidSettings(f"source {name!r} is not one of none, dump:PATH, kubernetes")


def _is_loopback(host: str) -> bool:
    if host in LOOPBACK:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


def listening_address(host: str, port: int) -> int:
    """Return the port to listen on (a free one for 0); raises ``InvalidSettings`` when it is taken or not allowed."""
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((host, port))
        except OSError as error:
            raise cannot_listen(host, port, error, "--") from error
        return int(probe.getsockname()[1])


def serve(
    settings: Settings,
    store: str | None,
    sources: Mapping[str, Any],
    host: str,
    port: int,
    *,
    insecure: bool,
    export_to: Path | None = None,
    export_every: str = "1h",
) -> None:
    """Serve until interrupted. Beyond loopback only with ``insecure``: there is no authentication yet."""
    from api.assembly import assemble
    from kg.telemetry.durations import parse_duration

    every = parse_duration(export_every)

    if not insecure and not _is_loopback(host):
        raise InvalidSettings(
            f"{host} is reachable from other machines, and there is no authentication",
            hint="put an authenticating proxy in front and listen on 127.0.0.1, or say --insecure",
        )
    configure_logging()
    port = listening_address(host, port)
    parts = assemble(settings, directory=store, source=sources)
    if export_to is not None:
        parts = _exporting_files(parts, export_to, every)
    shown = f"[{host}]" if ":" in host else host

    def announce() -> None:
        # print would write the line's end apart, after a line of the log
        sys.stderr.write(f"Drumlin at http://{shown}:{port}\n")

    try:
        run_server(parts, host, port, listening=announce)
    finally:
        parts.close()


def _exporting_files(parts: Any, directory: Path, every: timedelta) -> Any:
    """Begin to export into a directory; what is open is closed when that cannot be."""
    from exporters.files import Files
    from kg.rdf import NQUADS

    try:
        files = Files(parts.store, parts.iris, directory, NQUADS, every)
    except InvalidSettings:
        parts.close()
        raise
    files.start()
    return replace(parts, files=files)


def run_server(
    parts: Any, host: str, port: int, stop: threading.Event | None = None, listening: Callable[[], None] | None = None
) -> None:
    """Run the HTTP server in this thread until a signal, or until ``stop`` is set; ``listening`` is called once it answers."""
    import uvloop
    from granian.constants import HTTPModes, Interfaces
    from granian.log import LogLevels
    from granian.server.embed import Server

    from api.app import create_app

    server = Server(
        create_app(parts),
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        log_level=LogLevels.error,
        websockets=False,
        backlog=1024,
        backpressure=AT_ONCE,
    )

    async def run() -> None:
        loop = asyncio.get_running_loop()
        ending = asyncio.Event()
        if threading.current_thread() is threading.main_thread():
            for each in (signal.SIGINT, signal.SIGTERM):
                loop.add_signal_handler(each, ending.set)
        serving = asyncio.create_task(server.serve())
        waiting = [serving, asyncio.create_task(ending.wait())]
        if listening:
            announcing = asyncio.create_task(_announce(host, port, listening))
            announcing.add_done_callback(lambda task: task.cancelled() or task.result())
        if stop is not None:
            waiting.append(asyncio.create_task(asyncio.to_thread(stop.wait)))
        await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
        await asyncio.to_thread(parts.feed.stop)  # subscribers first: the server waits for open answers
        if not serving.done():
            server.stop()  # type: ignore[no-untyped-call]  # granian has no types
        await serving
        for task in waiting:
            task.cancel()

    _collect_seldom()
    _allow_descriptors()
    uvloop.run(run())


def _allow_descriptors() -> None:
    """Take as many descriptors as the system grants, within reason: each client that is connected is one, idle ones too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


def _collect_seldom() -> None:
    """Look for garbage in cycles seldom, and not among what the start has made: else a tenth of the time goes into that."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 20)


async def _announce(host: str, port: int, listening: Callable[[], None]) -> None:
    """Call ``listening`` as soon as a connection is taken; the server itself does not say when."""
    while True:
        try:
            _, writer = await asyncio.open_connection(host, port)
        except OSError:
            await asyncio.sleep(0.02)  # not listening yet
            continue
        writer.close()
        listening()
        return


def follow(settings: Settings, sources: Mapping[str, Any], to: str, token_file: Path | None) -> None:
    """Export ``sources`` into the service at ``to`` until all have ended, one fails or a signal comes.

    A service that cannot be written to is waited for, once it has answered; then its graph is compared and what is missing written.
    """
    from api.assembly import configured, now
    from api.exporting import Exporter
    from api.probes import telling
    from exporters.kubernetes.mappings import kinds_of
    from exporters.pipeline import Pipeline
    from exporters.remote import MOST, RemoteSink
    from kg.client import Client
    from kg.iris import Iris
    from kg.telemetry.templates import Catalogue

    if not sources:
        raise InvalidSettings("there is nothing to follow in source 'none'", hint="drumlin follow kubernetes --to URL")
    configure_logging()
    iris, kinds = Iris(settings.base), kinds_of(settings)
    stop = threading.Event()
    exporters: list[Exporter] = []
    with telling(settings, exporters), Client(to, timeout=120.0, token_file=token_file) as client:
        for each in (signal.SIGINT, signal.SIGTERM):
            signal.signal(each, lambda *_: stop.set())
        sink = RemoteSink(client, settings.base)
        catalogue, known = Catalogue.shipped(frozenset(settings.exporters)), configured(settings, iris)
        for cluster, source in sources.items():
            own, home = settings.of_cluster(cluster), cluster == settings.cluster
            pipeline = Pipeline(sink, kinds, own, iris, catalogue, known, clock=now, most=MOST, home=home)
            exporters.append(Exporter(pipeline, source))
        with ThreadPoolExecutor(len(sources), thread_name_prefix="follow") as threads:
            running = [threads.submit(_run_on, each, stop) for each in exporters]
        for ended in running:
            ended.result()


def _run_on(exporter: Any, stop: threading.Event) -> None:
    """Export to the end, and anew as often as nothing could be written for a while; an error ends the others too."""
    try:
        while not stop.is_set():
            try:
                exporter.run(stop)
            except StoreUnavailable as error:
                exporter.failure = str(error)
                log.warning("follow_waits", source=exporter.source.name, reason=str(error), hint=error.hint)
                stop.wait(_AGAIN_SECONDS)
            else:
                return
    except BaseException:
        stop.set()
        raise
