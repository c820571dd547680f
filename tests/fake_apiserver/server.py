"""The fake API server's HTTP side: routing, writes, discovery, refusals; lists and watches are ``collection``'s.

Specification: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import ssl
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any, Self
from urllib.parse import parse_qsl, urlsplit

from tests.fake_apiserver import recordings
from tests.fake_apiserver.collection import NOT_FOUND, Collection, Dropped
from tests.fake_apiserver.faults import Faults
from tests.fake_apiserver.state import ApiError, ApiState, Json

_ROUTE = re.compile(
    r"(?P<root>/api/v1|/apis/[^/]+/[^/]+)(?:/namespaces/(?P<namespace>[^/]+)(?=/))?/(?P<plural>[^/]+)"
    r"(?:/(?P<name>[^/]+))?(?P<status>/status)?"
)
_VERBS = ["create", "delete", "deletecollection", "get", "list", "patch", "update", "watch"]


@dataclass(frozen=True, slots=True)
class Request:
    """One request that came in; ``at`` is ``time.monotonic()``."""

    method: str
    path: str
    params: dict[str, str]
    plural: str
    at: float
    headers: Message

    @property
    def watch(self) -> bool:
        """Whether a watch was asked for."""
        return self.params.get("watch") in {"1", "true"}


class FakeApiServer:
    """Serves ``state`` on a loopback port; the attributes below may be set at any time."""

    def __init__(self, *, seed: int = 0, tls: ssl.SSLContext | None = None) -> None:
        self.state = ApiState(seed)
        self.faults = Faults()
        self.requests: list[Request] = []
        self.token: str | None = None  # what callers must present; None: anybody may
        self.cut_off: set[str] = set()  # bearer tokens whose requests get no answer
        self.forbidden: set[str] = set()  # plurals that may not be listed
        self.user = "viewer"  # as which callers are known
        self.cold = 0  # requests for each collection that are 403 after a start, until the caches of RBAC are filled
        self.warmed: Counter[str] = Counter()  # of these, how many there were, by plural
        self.page: bytes | None = None  # what every request is answered with by another server than Kubernetes
        self.discovers = True  # whether there are discovery documents
        self.watch_list = True  # the feature gate
        self.bookmark_every = 60.0
        self.duplicates = False  # send each event twice
        self.closing = threading.Event()
        self._tls = tls
        self._port = 0
        self._http: _HttpServer | None = None

    def __enter__(self) -> Self:
        self.start()
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    @property
    def url(self) -> str:
        """Where it listens."""
        return f"{'https' if self._tls else 'http'}://127.0.0.1:{self._port}"

    def start(self) -> None:
        """Listen; after ``stop`` on the same port, as a restarted server does."""
        self.closing.clear()
        self.warmed.clear()
        self._http = _HttpServer(("127.0.0.1", self._port), self, self._tls)
        self._port = self._http.server_address[1]
        threading.Thread(target=self._http.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()

    def stop(self) -> None:
        """Refuse connections and drop the open ones; the state stays."""
        assert self._http is not None
        self.closing.set()
        with self.state.changed:
            self.state.changed.notify_all()
        self._http.shutdown()
        self._http.server_close()
        self._http.drop()

    def load(self, directory: Path) -> None:
        """Serve the recorded collections of ``directory``."""
        recordings.load(self.state, directory)

    def replay(self, directory: Path, *, duplicates: bool = False) -> None:
        """Let the recorded watch events of ``directory`` happen again."""
        recordings.replay(self.state, directory, duplicates=duplicates)


class _HttpServer(ThreadingHTTPServer):
    daemon_threads = True
    block_on_close = False
    allow_reuse_address = True

    def __init__(self, address: tuple[str, int], fake: FakeApiServer, tls: ssl.SSLContext | None) -> None:
        self.fake = fake
        self.open: set[socket.socket] = set()
        super().__init__(address, _Handler)
        if tls is not None:
            self.socket = tls.wrap_socket(self.socket, server_side=True)

    def drop(self) -> None:
        """Drop every open connection."""
        for each in list(self.open):
            with contextlib.suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)

    def handle_error(self, request: Any, client_address: Any) -> None:
        """Say nothing: a client that hangs up in the middle is what the tests do."""


class _Handler(BaseHTTPRequestHandler):
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True
    server: _HttpServer

    def setup(self) -> None:
        self.server.open.add(self.request)
        super().setup()

    def finish(self) -> None:
        self.server.open.discard(self.request)
        with contextlib.suppress(OSError):
            super().finish()

    def log_message(self, format: str, *args: Any) -> None:
        """Keep quiet."""

    def _serve(self) -> None:
        fake, address = self.server.fake, urlsplit(self.path)
        params = dict(parse_qsl(address.query, keep_blank_values=True))
        route = _ROUTE.fullmatch(address.path)
        plural = route["plural"] if route else ""
        fake.requests.append(Request(self.command, address.path, params, plural, time.monotonic(), self.headers))
        try:
            length = int(self.headers.get("content-length", 0))
            body = json.loads(self.rfile.read(length)) if length else {}
            self._route(fake, address.path, route, params, body)
        except ApiError as error:
            self.json(error.code, error.body)
        except (Dropped, ConnectionError, ssl.SSLError):
            self.close_connection = True
            with contextlib.suppress(OSError):
                self.connection.shutdown(socket.SHUT_RDWR)

    do_GET = do_POST = do_PUT = do_PATCH = do_DELETE = _serve

    def _route(
        self, fake: FakeApiServer, path: str, route: re.Match[str] | None, params: dict[str, str], body: Json
    ) -> None:
        if self.headers.get("authorization", "").removeprefix("Bearer ") in fake.cut_off:
            raise Dropped
        if fake.token and self.headers.get("authorization") != f"Bearer {fake.token}":
            raise ApiError(401, "Unauthorized", "Unauthorized")
        if fake.page is not None:
            return self.send(200, "text/html", fake.page)
        if path == "/version":
            return self.json(200, {"major": "1", "minor": "36", "gitVersion": "v1.36.2", "platform": "linux/amd64"})
        resource = fake.state.resources.get(f"{route['root']}/{route['plural']}") if route else None
        if route is None or resource is None:
            if not fake.discovers:
                return self.send(404, "text/plain; charset=utf-8", NOT_FOUND)
            return self._groups(fake.state) if path == "/apis" else self._discover(fake.state, path)
        namespace, name = route["namespace"] or "", route["name"] or ""
        if self.command == "GET" and not name:
            return Collection(self, fake, resource, namespace, params).serve()
        writes: dict[str, Callable[[], Json]] = {
            "GET": lambda: fake.state.read(resource, namespace, name),
            "POST": lambda: fake.state.create(resource, namespace, body),
            "PUT": lambda: fake.state.replace(resource, namespace, name, body),
            "PATCH": lambda: fake.state.patch(resource, namespace, name, body),
            "DELETE": lambda: fake.state.delete(
                resource, namespace, name, int(params["gracePeriodSeconds"]) if "gracePeriodSeconds" in params else None
            ),
        }
        return self.json(201 if self.command == "POST" else 200, writes[self.command]())

    def _groups(self, state: ApiState) -> None:
        """List the groups with their versions; the core group is not one of them."""
        groups: dict[str, list[Json]] = {}
        for group, version in dict.fromkeys(
            (each.group, each.version) for each in state.resources.values() if each.group
        ):
            groups.setdefault(group, []).append({"groupVersion": f"{group}/{version}", "version": version})
        listed = [
            {"name": name, "versions": versions, "preferredVersion": versions[0]} for name, versions in groups.items()
        ]
        self.json(200, {"kind": "APIGroupList", "apiVersion": "v1", "groups": listed})

    def _discover(self, state: ApiState, path: str) -> None:
        served = [each for each in state.resources.values() if path == each.path.rsplit("/", 1)[0]]
        if not served:
            return self.send(404, "text/plain; charset=utf-8", NOT_FOUND)
        group_version = served[0].api_version
        resources = [
            {"name": each.plural, "singularName": each.kind.lower(), "namespaced": each.namespaced, "kind": each.kind,
             "verbs": [verb for verb in _VERBS if (each.plural, verb) != ("namespaces", "deletecollection")]}
            for each in served
        ]  # fmt: skip
        listed = {"kind": "APIResourceList", "groupVersion": group_version, "resources": resources}
        return self.json(200, listed if group_version == "v1" else {"apiVersion": "v1"} | listed)

    # -- answers --------------------------------------------------------------------------------------------------------
    def json(self, status: int, body: Json, retry_after: int | None = None) -> None:
        self.send(status, "application/json", json.dumps(body).encode(), retry_after)

    def send(self, status: int, media_type: str, body: bytes, retry_after: int | None = None) -> None:
        self.send_response(status)
        self.send_header("content-type", media_type)
        self.send_header("content-length", str(len(body)))
        if retry_after is not None:
            self.send_header("retry-after", str(retry_after))
        self.end_headers()
        self.wfile.write(body)

    def begin(self) -> None:
        """Begin a chunked answer of JSON."""
        self.send_response(200)
        self.send_header("content-type", "application/json")
        self.send_header("transfer-encoding", "chunked")
        self.end_headers()

    def chunk(self, content: bytes) -> None:
        """Send one chunk; an empty one ends the answer."""
        self.wfile.write(b"%x\r\n%b\r\n" % (len(content), content))
