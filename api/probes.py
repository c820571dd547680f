"""``/metrics``, ``/readyz`` and ``/livez`` of ``drumlin follow``, which is no service: a small server for Prometheus and the kubelet.

What they report is written by the code that the service answers with; only readiness is a problem document (RFC 9457) until it is there.
"""

from __future__ import annotations

import socket
import socketserver
import sys
import threading
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler
from typing import Any, Self

import msgspec
import structlog
from prometheus_client import CONTENT_TYPE_LATEST, CollectorRegistry, generate_latest

from drumlin.api.export_metrics import ExportMetrics
from drumlin.api.exporting import Exporter, leaders_of, stale_of
from drumlin.api.http.hosts import Hosts
from drumlin.api.http.problems import MEDIA_TYPE, PROBLEM_BASE, problem_of
from drumlin.api.http.tcp_info import cannot_listen
from drumlin.api.routes.operations import alive, death
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import DrumlinError

log = structlog.get_logger()

_JSON = "application/json"
_POLL_SECONDS = 0.2
_PATIENCE_SECONDS = 10.0

Answer = tuple[int, str, bytes]
"""Status, media type, content."""


@contextmanager
def telling(settings: Settings, exporters: Sequence[Exporter]) -> Iterator[None]:
    """Serve the state of ``exporters``, at first none, while in the block; nothing where no port is set. Raises ``InvalidSettings``."""
    if settings.metrics.port is None:
        yield
        return
    with Probes(settings, exporters) as probes:
        sys.stderr.write(f"Metrics at {probes.url}/metrics\n")  # in one, as others log meanwhile
        yield


class Probes(socketserver.ThreadingTCPServer):
    """The server, from the beginning of its ``with`` block to the end. ``exporters`` may fill later: until then nothing is ready."""

    allow_reuse_address = True
    daemon_threads = True
    request_queue_size = 64

    def __init__(self, settings: Settings, exporters: Sequence[Exporter]) -> None:
        """Listen; raises ``InvalidSettings`` when the address cannot be had."""
        host, port = settings.metrics.host, settings.metrics.port or 0
        self.address_family = socket.AF_INET6 if ":" in host else socket.AF_INET
        try:
            super().__init__((host, port), _Answering)
        except OSError as error:
            raise cannot_listen(host, port, error, "--metrics-") from error
        shown = f"[{host}]" if ":" in host else host
        self.url = f"http://{shown}:{self.server_address[1]}"
        self._exporters = exporters
        self._strict = settings.strict_ready
        self._hosts = Hosts(settings, host)
        self._alive = msgspec.json.encode(alive(settings))
        self._registry = CollectorRegistry()
        self._registry.register(ExportMetrics(exporters))
        self._thread = threading.Thread(target=self.serve_forever, args=(_POLL_SECONDS,), name="probes", daemon=True)

    def __enter__(self) -> Self:
        """Begin to answer."""
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        """Let go of the port."""
        self.shutdown()
        self.server_close()

    def answer(self, path: str, hosts: Sequence[bytes]) -> Answer:
        """Return the answer at ``path`` to a request with these ``Host`` headers."""
        try:
            self._hosts.check(hosts)
        except DrumlinError as error:
            problem = problem_of(error)
            return problem["status"], MEDIA_TYPE, msgspec.json.encode(problem)
        match path.partition("?")[0]:
            case "/livez":
                if dead := death():
                    return dead["status"], MEDIA_TYPE, msgspec.json.encode(dead)
                return 200, _JSON, self._alive
            case "/readyz":
                return self._readiness()
            case "/metrics":
                return 200, CONTENT_TYPE_LATEST, generate_latest(self._registry)
            case _:
                detail = "there are /metrics, /readyz and /livez"
                return _problem(404, "about:blank", "Not Found", detail)

    def _readiness(self) -> Answer:
        missing = [found for each in self._exporters if (found := each.missing)]
        if self._exporters and not missing:
            stale = stale_of(self._exporters)
            if stale and self._strict:
                detail = "; ".join(f"{each['source']}: {each['reason']}" for each in stale)
                return _problem(503, f"{PROBLEM_BASE}stale", "Stale", detail, sources=stale)
            more = {"stale": stale, "leaders": leaders_of(self._exporters)}
            body = {"status": "ready"} | {name: found for name, found in more.items() if found}
            return 200, _JSON, msgspec.json.encode(body)
        detail = "; ".join(map(_said, missing)) or "the service has not been reached"
        return _problem(503, f"{PROBLEM_BASE}not-synced", "Not synced", detail, sources=missing)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Log what went wrong with one connection (it was left, mostly); the others are not affected."""
        del request, client_address
        log.warning("probe_failed", exc_info=sys.exception())


def _said(missing: dict[str, Any]) -> str:
    waiting = ", ".join(missing["waiting"]) or "what was read is not written"
    return f"{missing['source']}: {missing.get('failure') or waiting}"


def _problem(status: int, type: str, title: str, detail: str, **members: Any) -> Answer:
    body = {"type": type, "title": title, "status": status, "detail": detail, **members}
    return status, MEDIA_TYPE, msgspec.json.encode(body)


class _Answering(BaseHTTPRequestHandler):
    server: Probes
    protocol_version = "HTTP/1.1"
    timeout = _PATIENCE_SECONDS  # of a connection that says nothing

    def do_GET(self) -> None:
        status, media_type, content = self.server.answer(
            self.path, [each.encode("latin-1") for each in self.headers.get_all("Host", [])]
        )
        self.send_response(status)
        self.send_header("Content-Type", media_type)
        self.send_header("Content-Length", str(len(content)))
        self.send_header("X-Content-Type-Options", "nosniff")
        self.send_header("Content-Security-Policy", "default-src 'none'; frame-ancestors 'none'")
        if status == 503:
            self.send_header("Retry-After", "2")
        self.end_headers()
        if self.command == "GET":
            self.wfile.write(content)

    do_HEAD = do_GET

    def version_string(self) -> str:
        return "drumlin"

    def log_message(self, format: str, *args: object) -> None:
        """Log nothing: probes come every few seconds."""
