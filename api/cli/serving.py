"""Long-running commands: the service itself, and an exporter that writes to a service elsewhere."""

from __future__ import annotations

import asyncio
import errno
import gc
import ipaddress
import os
import re
import resource
import signal
import socket
import ssl
import sys
import threading
from collections.abc import Callable, Coroutine, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import replace
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import structlog

from drumlin.api.access import tokens
from drumlin.api.access.tokens import TokenFile
from drumlin.api.cli.logs import configure_logging
from drumlin.api.cli.output import progress
from drumlin.api.http.tcp_info import cannot_listen
from drumlin.kg.config.settings import CertificateSettings, Settings
from drumlin.kg.errors import InvalidSettings, StoreUnavailable, WrongUsage
from drumlin.kg.processes import give_memory_back, limit_arenas

log = structlog.get_logger()

LOOPBACK = ("localhost",)
_LABEL_KEY = re.compile(
    r"\s*!?\s*([A-Za-z0-9][A-Za-z0-9._/-]*)"
)  # at the beginning of a requirement: team=shop, !tier, tier in (a)
_AGAIN_SECONDS = 1.0
_DESCRIPTORS = 65_536
_GIVING_BACK = 20.0
"""Seconds after which memory that was freed is given back: that takes 6 ms for 250 MB, in which nobody gets any."""
_ARENAS = 2  # of the allocator; by default each thread may have one, and memory grows by what they keep
HEAD_MILLISECONDS = 10_000
"""Milliseconds in which the head of a request must have come."""
FINISH_SECONDS, CUT_SECONDS, EXIT_SECONDS = 4.0, 2.0, 9.0
"""Seconds after a signal in which requests may finish, those that were cut may say so, and the process ends in any case."""
AT_ONCE = 4096
"""Connections that the server has at once; the rest waits. Idle ones end after 30 s. Each subscriber of ``/events`` has one: far fewer."""


def sources_named(name: str, settings: Settings, complete: Any) -> dict[str, Any]:
    """Return the sources that ``none``, ``dump:PATH`` or ``kubernetes`` means, by cluster.

    Raises ``InvalidSettings``, and ``SourceUnavailable`` for a path that does not exist or a kubeconfig that leads nowhere.
    ``complete`` is what a dump holds in full (``exporters.pipeline.completeness``); ``WrongUsage`` is raised when it is said of another
    source.
    """
    from drumlin.api.bootstrap import now
    from drumlin.exporters.kubernetes.custom_kinds import kinds_of

    if complete and not name.startswith("dump:"):
        raise WrongUsage(f"--complete is for dumps, not for source {name!r}", hint="say dump:PATH, or leave it out")
    if name == "none":
        return {}
    if name.startswith("dump:"):
        from drumlin.exporters.kubectl.dump import DumpSource

        dump = DumpSource([name.removeprefix("dump:")], kinds_of(settings), clock=now, complete=complete)
        dump.check_paths()
        return {settings.cluster: dump}
    if name == "kubernetes":
        note_unkept_labels(settings)
        from drumlin.exporters.kubernetes.access import ApiServer
        from drumlin.exporters.kubernetes.informer import KubernetesSource, Timing

        kinds = kinds_of(settings)
        return {
            cluster: KubernetesSource(
                ApiServer.connect(context=each.name),
                kinds,
                cluster,
                namespace=each.namespace,
                label_selector=each.label_selector,
                timing=Timing.relisting(settings.relist_minutes),
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


def _has_tokens(settings: Settings, store: str | None) -> bool:
    """Return whether a token would be accepted by a service with these settings."""
    path = settings.tokens
    if path is None and store is not None and not store.startswith("sparql+"):
        path = Path(store) / tokens.FILE
    return path is not None and bool(TokenFile(path).active())


@contextmanager
def listening_address(host: str, port: int) -> Iterator[int]:
    """Yield the port to listen on, a free one for 0, and keep other services off it; raises ``InvalidSettings`` when it is taken.

    The server's own socket shares its port with any other that asks to (``SO_REUSEPORT``): two services that begin at the same moment
    would each get half of the requests. So each claims its address by a name that only one process can have.
    """
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(socket.AF_UNIX) as claim:
        while True:
            with socket.socket(family) as probe:
                probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
                try:
                    probe.bind((host, port))
                    chosen = int(probe.getsockname()[1])
                    _claim(claim, host, chosen)
                except OSError as error:
                    if port == 0 and error.errno == errno.EADDRINUSE:
                        continue  # another service has just been given the same one
                    raise cannot_listen(host, port, error, "--") from error
            break
        yield chosen


def _claim(claim: socket.socket, host: str, port: int) -> None:
    """Bind a name of Linux's abstract namespace, which ends with the socket; elsewhere two services must not begin at the same moment."""
    if sys.platform == "linux":
        claim.bind(f"\0drumlin {host} {port}")


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
    """Serve until interrupted. Beyond loopback only with tokens, or where the operator sets what callers may do without them.

    Raises ``SourceRefused`` when a source refuses our credentials at the first contact.
    """
    from drumlin.api.bootstrap import assemble
    from drumlin.kg.telemetry.durations import parse_duration

    every = parse_duration(export_every)
    if settings.tls:
        _check_certificate(settings.tls)

    guarded = settings.takes_signed_tokens or settings.anonymous is not None or insecure
    if not guarded and not _is_loopback(host) and not _has_tokens(settings, store):
        raise InvalidSettings(
            f"{host} is reachable from other machines, and there are no tokens",
            hint=f"make one: drumlin token create admin --role admin --store {store or 'DIR'}; or set anonymous, or say --insecure",
        )
    limit_arenas(_ARENAS)
    configure_logging()
    with listening_address(host, port) as chosen:
        warn_of_base(settings, chosen)
        parts = assemble(settings, directory=store, source=sources)
        if export_to is not None:
            parts = _exporting_files(parts, export_to, every)
        shown = f"[{host}]" if ":" in host else host

        def announce() -> None:
            # print would write the line's end apart, after a line of the log
            sys.stderr.write(f"Drumlin at {'https' if settings.tls else 'http'}://{shown}:{chosen}\n")

        try:
            run_server(parts, host, chosen, listening=announce, insecure=insecure)
        finally:
            parts.close()
    for each in parts.exporting:
        if each.refused:
            raise each.refused


def warn_of_base(settings: Settings, port: int) -> None:
    """Say that names lead elsewhere, where the base was left as it is and the port was not."""
    if "base" not in settings.model_fields_set and urlsplit(settings.base).port != port:
        meant = f"{'https' if settings.tls else 'http'}://localhost:{port}"
        progress.print(
            f"note: names say {settings.base}, and the service listens on port {port}; say --base {meant}, "
            "or the address that clients use: it is fixed for the life of a store",
            highlight=False,
        )


def note_unkept_labels(settings: Settings) -> None:
    """Name the labels that choose what is followed and are not kept: no query finds them."""
    selectors = [each.label_selector or "" for each in settings.clusters.values()]
    parts = [part for selector in selectors for part in re.split(r",(?![^()]*\))", selector)]
    keys = dict.fromkeys(found[1] for part in parts if (found := _LABEL_KEY.match(part)))
    if unkept := [each for each in keys if not settings.keeps_label(each)]:
        progress.print(
            f"note: what is followed is chosen by labels that are not kept, so no query finds them: {', '.join(unkept)}; "
            "add them to the setting labels to keep them",
            highlight=False,
        )


def _check_certificate(tls: CertificateSettings) -> None:
    """Raise ``InvalidSettings`` for a certificate that cannot be served."""
    try:
        ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER).load_cert_chain(tls.certificate, tls.key, password="")
    except (OSError, ValueError) as error:  # ssl.SSLError is an OSError
        named = f": {error.strerror}" if isinstance(error, FileNotFoundError | PermissionError) else ""
        raise InvalidSettings(
            f"the certificate {tls.certificate} and the key {tls.key} cannot be served{named}",
            hint="name the certificate with those above it, and its private key without a password, as PEM files",
        ) from error


def _exporting_files(parts: Any, directory: Path, every: timedelta) -> Any:
    """Begin to export into a directory; what is open is closed when that cannot be."""
    from drumlin.exporters.kubectl.files import Files
    from drumlin.kg.rdf.syntax import NQUADS

    try:
        files = Files(parts.store, parts.iris, directory, NQUADS, every)
    except InvalidSettings:
        parts.close()
        raise
    files.start()
    return replace(parts, files=files)


def run_server(
    parts: Any,
    host: str,
    port: int,
    stop: threading.Event | None = None,
    listening: Callable[[], None] | None = None,
    *,
    insecure: bool = False,
) -> None:
    """Run the HTTP server in this thread until a signal, or until ``stop`` is set; ``listening`` is called once it answers."""
    import uvloop
    from granian.constants import HTTPModes, Interfaces
    from granian.http import HTTP1Settings
    from granian.log import LogLevels
    from granian.server.embed import Server

    from drumlin.api.app import create_app
    from drumlin.api.edge.connection_guard import ConnectionGuard

    app = create_app(parts, host, insecure=insecure)
    tls = parts.settings.tls
    guard = ConnectionGuard(parts.settings.connections_per_address, parts.settings.proxies)
    server = Server(
        app,
        address=host,
        port=port,
        interface=Interfaces.ASGI,
        http=HTTPModes.http1,
        http1_settings=HTTP1Settings(header_read_timeout=HEAD_MILLISECONDS),
        log_level=LogLevels.error,
        websockets=False,
        backlog=1024,
        backpressure=AT_ONCE,
        ssl_cert=tls and tls.certificate,
        ssl_key=tls and tls.key,
    )

    guarding = [guard.watch(), app.watch_access(), _give_memory_back()]
    if listening:
        guarding.append(_announce(host, port, listening))
    _collect_seldom()
    _allow_descriptors()
    uvloop.run(_serve_until_ended(server, app, parts, guarding, stop))


async def _serve_until_ended(
    server: Any, app: Any, parts: Any, guarding: Sequence[Coroutine[Any, Any, None]], stop: threading.Event | None
) -> None:
    """Serve until a signal, ``stop``, or the server's own end; then let requests finish, and cut what is left in time."""
    guards = [asyncio.create_task(each) for each in guarding]
    loop = asyncio.get_running_loop()
    ending = asyncio.Event()
    if threading.current_thread() is threading.main_thread():
        for each in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(each, ending.set)
    for each in parts.exporting:
        each.when_refused(partial(_wake, loop, ending))
    serving = asyncio.create_task(server.serve())
    waiting = [serving, asyncio.create_task(ending.wait())]
    if stop is not None:
        waiting.append(asyncio.create_task(asyncio.to_thread(stop.wait)))
    await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    parts.ending.set()  # not ready any more
    if stop is None:
        _exit_in_time()
    await asyncio.to_thread(parts.feed.stop)  # subscribers first: the server waits for open answers
    if not serving.done():
        server.stop()
    done, _ = await asyncio.wait([serving], timeout=FINISH_SECONDS)
    if not done:
        log.warning("requests_cut", requests=app.cut())
        await asyncio.wait([serving], timeout=CUT_SECONDS)
    for task in (*waiting, *guards):
        task.cancel()


def _wake(loop: asyncio.AbstractEventLoop, ending: asyncio.Event) -> None:
    """End the service from another thread."""
    with suppress(RuntimeError):  # the loop has ended already
        loop.call_soon_threadsafe(ending.set)


def _exit_in_time() -> None:
    """Let the process end in time whatever a thread still waits for: all that was acknowledged is on disk."""

    def end() -> None:
        log.warning("exit_forced", seconds=EXIT_SECONDS)
        sys.stderr.flush()
        os._exit(0)  # its documented name

    timer = threading.Timer(EXIT_SECONDS, end)
    timer.daemon = True
    timer.start()


def _allow_descriptors() -> None:
    """Take as many descriptors as the system grants, within reason: each client that is connected is one, idle ones too."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    most = _DESCRIPTORS if hard == resource.RLIM_INFINITY else min(hard, _DESCRIPTORS)
    if soft != resource.RLIM_INFINITY and soft < most:
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, hard))


async def _give_memory_back() -> None:
    """Give the system what the allocator keeps of freed memory, again and again: else it holds the most that ever was in use at once."""
    while True:
        await asyncio.sleep(_GIVING_BACK)
        await asyncio.to_thread(give_memory_back)


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
    from drumlin.api.bootstrap import configured, now
    from drumlin.api.exporting import Candidate, Exporter
    from drumlin.api.probes import telling
    from drumlin.exporters.kubernetes.custom_kinds import kinds_of
    from drumlin.exporters.pipeline.hosting_domain import followers_of
    from drumlin.exporters.pipeline.pipeline import Pipeline
    from drumlin.exporters.remote import MOST, RemoteSink
    from drumlin.kg.client import Client
    from drumlin.kg.model.iris import Iris
    from drumlin.kg.telemetry.templates import TemplateCatalogue

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
        catalogue, known = TemplateCatalogue.shipped(frozenset(settings.exporters)), configured(settings, iris)
        for cluster, source in sources.items():
            own, home = settings.of_cluster(cluster), cluster == settings.cluster
            candidate = Candidate.of(own, source, sink, iris, (source.name, followers_of(cluster)))
            pipeline = Pipeline(
                candidate.sink if candidate else sink,
                kinds,
                own,
                iris,
                catalogue,
                known,
                clock=now,
                most=MOST - 1 if candidate else MOST,  # the term goes with each
                home=home,
                follower=True,
            )
            exporters.append(Exporter(pipeline, source, candidate))
        with ThreadPoolExecutor(len(sources), thread_name_prefix="follow") as threads:
            running = [threads.submit(_run_on, each, stop) for each in exporters]
        for exporter in exporters:
            exporter.retire()
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
