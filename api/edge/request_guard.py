"""The check in front of everything else: is the request for this service, and does it come from a page that may send it.

Any web page that a browser shows can send requests to a service on loopback, a form also without asking first. A request that may
change something is refused when the browser says that a page of another origin sends it (``Origin``, ``Sec-Fetch-Site``, which
no page can set); the setting ``cors`` lists origins that may. Clients that are no browsers send neither header.
https://developer.mozilla.org/en-US/docs/Web/HTTP/Reference/Headers/Sec-Fetch-Site
"""

from __future__ import annotations

from drumlin.api.http.asgi import SAFE_METHODS, Headers, Scope
from drumlin.api.http.hosts import Hosts, base_origin
from drumlin.api.http.problems import OriginRefused
from drumlin.kg.config.settings import Settings
from drumlin.kg.model.authority import Authority, is_loopback, parse_authority, parse_origin
from drumlin.kg.model.iris import CONTEXT_PATH

PUBLIC = frozenset({CONTEXT_PATH})
"""Paths that pages of every origin may read: documents of this service name them wherever they are read."""
_KNOWN_HOSTS = 256  # spellings of hosts, with their ports, that need not be parsed again


class RequestGuard:
    """Refuses requests for other hosts, and those that may change something and come from pages of other origins."""

    def __init__(self, settings: Settings, hosts: Hosts) -> None:
        self._hosts = hosts
        self._any_origin = "*" in settings.cors
        base = base_origin(settings)
        # A base on loopback is also what other services of this machine have; the Host header says which port is ours.
        self._origins = {*settings.cors, *([str(base)] if base and not is_loopback(base.host) else [])}
        self._known_hosts: set[bytes] = set()

    def check(self, scope: Scope) -> None:
        """Raise ``HostInvalid``, ``HostRefused`` or ``OriginRefused``. Most requests are GETs of a host that is known."""
        headers: Headers = scope["headers"]
        hosts = [value for name, value in headers if name == b"host"]
        if len(hosts) != 1 or hosts[0] not in self._known_hosts:
            self._hosts.check(hosts)
            if len(self._known_hosts) >= _KNOWN_HOSTS:
                self._known_hosts.clear()
            self._known_hosts.add(hosts[0])
        method = scope["method"]
        asks = method == "OPTIONS" and scope["path"] not in PUBLIC and _is_preflight(headers)
        if asks or method not in SAFE_METHODS:
            self._check_origin(headers, hosts[0])

    def _check_origin(self, headers: Headers, host: bytes) -> None:
        origins = [value.decode("latin-1") for name, value in headers if name == b"origin"]
        if len(origins) > 1:
            raise _refused(", ".join(origins))
        if origins and self._is_listed(origins[0]):
            return
        if origins and not _is_own(origins[0], parse_authority(host.decode("latin-1"))):
            raise _refused(origins[0])
        for name, value in headers:
            if name == b"sec-fetch-site" and value not in (b"same-origin", b"none"):
                raise OriginRefused(
                    f"a web page elsewhere sent this request (Sec-Fetch-Site: {value.decode('latin-1')[:40]})",
                    hint="list the page's origin in the setting cors, where it may change something here",
                )

    def _is_listed(self, origin: str) -> bool:
        return self._any_origin or origin in self._origins


def _is_preflight(headers: Headers) -> bool:
    """Return whether a browser asks whether a page may send what it is about to send (CORS)."""
    return any(name == b"access-control-request-method" for name, _ in headers)


def _is_own(origin: str, host: Authority) -> bool:
    """Return whether a page of ``origin`` is one that this service, asked as ``host``, has served."""
    try:
        return parse_origin(origin).serves(host)
    except ValueError:  # null: a page without an origin, as of a file or in a sandbox
        return False


def _refused(origin: str) -> OriginRefused:
    try:
        hint = f'if its pages may, add it to drumlin.toml: cors = ["{parse_origin(origin)}"]'
    except ValueError:
        hint = "send it from a page of an origin that the setting cors lists, or from no page"
    return OriginRefused(f"pages of the origin {origin[:80]} may not change anything here", hint=hint)
