"""The connection to one API server: address, authentication and TLS by the official client, bytes by us.

The client's configuration loaders know kubeconfig contexts, exec plugins, rotating service-account tokens, client certificates
and proxies; that is all that is taken from it. Its models, ``Watch`` and ``SharedInformer`` are 20 times slower than a typed
projection and give up on a second 410, so answers leave here as raw bytes.

Specification: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import binascii
import os
import ssl
import threading
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Self
from urllib.parse import urlencode, urlsplit

import msgspec
import structlog
import urllib3
import urllib3.exceptions
from urllib3 import HTTPHeaderDict

from drumlin.exporters.kubernetes.kubeconfig import CHOOSE, SIGN_IN, load_kubeconfig
from drumlin.kg.errors import SourceUnavailable
from drumlin.kg.model.connection_errors import Reason, reason_of

log = structlog.get_logger()

CONNECT_TIMEOUT = 10.0
"""Seconds until a connection attempt is given up."""

_CHUNK = 64 * 1024
_STATUS_BYTES = 64 * 1024  # a Status is small; what is longer is not one
_DONE = (200, 201)
_POOL = 64  # one connection per kind stays open; a smaller pool would log and discard them
RENEW_SECONDS = 5.0
"""Credentials that stay refused, or cannot be renewed, are not asked for more often than this: a plugin may take a second."""

Load = Callable[[Any], HTTPHeaderDict | None]
"""Fills the official client's configuration; returns headers that go with each request beside the credentials."""


class ApiRefused(SourceUnavailable):
    """The API server answered with ``status``; ``retry_after`` is in seconds where it named one."""

    def __init__(self, message: str, status: int, *, retry_after: float | None = None, hint: str | None = None) -> None:
        super().__init__(message, hint=hint, detail={"status": status})
        self.status = status
        self.retry_after = retry_after


class StreamBroken(SourceUnavailable):
    """The answer ended in the middle: a dropped connection, a truncated line, half a page."""


class StreamSilent(SourceUnavailable):
    """Nothing arrived for longer than the watchdog allows, though the connection looks open."""


class WatchStream:
    """An open answer. Iterate it once for its chunks as they arrive; close it as a context manager."""

    def __init__(self, response: urllib3.BaseHTTPResponse, what: str) -> None:
        self._response = response
        self._what = what
        self._lock = threading.Lock()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        with self._lock:
            self._response.close()

    def __iter__(self) -> Iterator[bytes]:
        """Yield chunks of at most 64 KiB. Raises ``StreamBroken`` or ``StreamSilent``; a clean end just ends."""
        while chunk := self._read():
            yield chunk

    def _read(self) -> bytes:
        try:
            return self._response.read1(_CHUNK)
        except urllib3.exceptions.ReadTimeoutError as error:
            raise StreamSilent(f"{self._what}: nothing arrived in time") from error
        except (urllib3.exceptions.HTTPError, OSError, ValueError) as error:  # ValueError: TLS after an interruption
            raise StreamBroken(f"{self._what}: the connection was lost") from error

    def interrupt(self) -> None:
        """End a read that blocks in another thread, now; it sees ``StreamBroken`` or the end."""
        with self._lock:
            try:
                self._response.shutdown()
            except (ValueError, RuntimeError, OSError):
                return  # closed already, by us or by the server: nothing is left to interrupt


@dataclass(frozen=True, slots=True)
class _ApiRequest:
    """One request: what is asked for, and the JSON that goes with it."""

    method: str
    path: str
    params: Mapping[str, str] | None = None
    body: bytes | None = None

    def __str__(self) -> str:
        """Name it in messages."""
        return f"{self.method} {self.path}"


class _Status(msgspec.Struct):
    """meta/v1 Status: the body of a refusal."""

    message: str = ""


class _Connection:
    """One reading of the credentials: headers by the client's configuration, connections by its pool."""

    def __init__(self, load: Load) -> None:
        from kubernetes.client import Configuration
        from kubernetes.client.rest import RESTClientObject

        configuration = Configuration()
        self._more = load(configuration) or HTTPHeaderDict()
        configuration.keep_alive = True
        configuration.connection_pool_maxsize = _POOL
        _check_certificates(configuration)
        self._configuration: Any = configuration
        self._lock = threading.Lock()
        self._failure: tuple[float, SourceUnavailable] | None = None
        self.host: str = configuration.host.rstrip("/")
        self.proxy: str | None = configuration.proxy
        self.pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager

    def headers(self) -> HTTPHeaderDict:
        """Return the headers of a request; a token that is about to expire is renewed by the client's hook.

        A renewal that failed is not tried again by each of the threads that wait for it.
        """
        with self._lock:  # the hook may run an exec plugin; once is enough
            if self._failure and time.monotonic() - self._failure[0] < RENEW_SECONDS:
                raise self._failure[1].again()
            self._failure = None
            try:
                with _configuring():
                    settings = self._configuration.auth_settings()
            except SourceUnavailable as error:
                self._failure = time.monotonic(), error
                raise
        headers = HTTPHeaderDict({"accept": "application/json", "user-agent": "drumlin"})
        headers.extend({each["key"]: each["value"].strip() for each in settings.values()})
        headers.extend(self._more)
        return headers


def _check_certificates(configuration: Any) -> None:
    """Refuse certificates that no connection could use, by what they are for; without a check of the server, say so."""
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
    try:
        if configuration.ssl_ca_cert:
            context.load_verify_locations(cafile=configuration.ssl_ca_cert)
    except (ssl.SSLError, OSError) as error:
        raise SourceUnavailable(
            "the cluster's CA certificate (certificate-authority) is not a PEM certificate",
            hint="copy it anew from the cluster: certificate-authority-data is the PEM file in base64",
        ) from error
    try:
        if configuration.cert_file:
            context.load_cert_chain(configuration.cert_file, configuration.key_file)
    except (ssl.SSLError, OSError) as error:
        raise SourceUnavailable(
            "the user's client certificate and key (client-certificate, client-key) cannot be used together",
            hint=SIGN_IN,
        ) from error
    if not configuration.verify_ssl:
        urllib3.disable_warnings(urllib3.exceptions.SecurityWarning)  # it would warn at each request, beside the log
        log.warning("certificate_unchecked", server=configuration.host, hint="remove insecure-skip-tls-verify")


class ApiServer:
    """One API server with its credentials; all methods block and may be called from any thread.

    ``served`` is whether it has answered any request with 200.
    """

    def __init__(self, load: Load) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._connection = self._connected()
        self._served: set[str] = set()  # paths
        self._renewed_at: float | None = None
        self._renewal_failed: SourceUnavailable | None = None

    @classmethod
    def connect(cls, context: str | None = None, kubeconfig: str | None = None) -> ApiServer:
        """Use a kubeconfig's ``context`` (default: its current one); inside a pod that names none, its own service account.

        Raises ``SourceUnavailable`` when there is nothing to connect with.
        """
        from kubernetes import config

        loaders: Any = config  # its functions are not typed
        named = context or kubeconfig or os.environ.get("KUBECONFIG")

        def load(configuration: Any) -> HTTPHeaderDict | None:
            if named or "KUBERNETES_SERVICE_HOST" not in os.environ:
                return load_kubeconfig(configuration, kubeconfig, context)
            loaders.load_incluster_config(client_configuration=configuration)
            return None

        return cls(load)

    @property
    def served(self) -> bool:
        """Whether the server has answered any request with 200."""
        return bool(self._served)

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._connection.host

    def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 60.0) -> bytes:
        """Return the body of ``GET path``; ``timeout`` is in seconds without a byte. Raises as ``stream`` does."""
        with self.stream(path, params, timeout=timeout) as answer:
            return b"".join(answer)

    def stream(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float) -> WatchStream:
        """Open ``GET path``; ``timeout`` is in seconds without a byte, also while the answer is read.

        A 401, and a 403 for what was served before, reload the credentials, at most every ``RENEW_SECONDS``. Raises ``ApiRefused`` for
        any status but 200, ``SourceUnavailable`` when the server cannot be reached or there are no credentials.
        """
        return self._opened(_ApiRequest("GET", path, params), timeout)

    def write(self, method: str, path: str, body: Mapping[str, Any], *, timeout: float) -> bytes:
        """Send ``body`` as JSON (POST, PUT) and return the answer; raises as ``stream`` does, and is never sent again."""
        with self._opened(_ApiRequest(method, path, body=msgspec.json.encode(body)), timeout) as answer:
            return b"".join(answer)

    def _opened(self, asked: _ApiRequest, timeout: float) -> WatchStream:
        connection = self._connection
        response = self._send(connection, asked, timeout)
        if response.status == 401 or (response.status == 403 and asked.path in self._served):
            try:
                renewed = self._renewed(connection)
            except SourceUnavailable:
                response.close()
                raise
            if renewed is not connection:
                response.close()
                response = self._send(renewed, asked, timeout)
        if response.status not in _DONE:
            with WatchStream(response, str(asked)) as answer:
                raise _refusal(asked, response, answer)
        media_type = response.headers.get("content-type", "")
        if "json" not in media_type:
            response.close()
            raise SourceUnavailable(
                f"{asked}: {connection.host} is not a Kubernetes API: it answers in {media_type or 'no named format'}",
                hint="check the server's address; a proxy may show a login page instead",
            )
        self._served.add(asked.path)
        return WatchStream(response, str(asked))

    def _send(self, connection: _Connection, asked: _ApiRequest, timeout: float) -> urllib3.BaseHTTPResponse:
        query = f"?{urlencode(asked.params)}" if asked.params else ""
        headers = connection.headers()
        if asked.body is not None:
            headers["content-type"] = "application/json"
        try:
            return connection.pool.request(
                asked.method,
                f"{connection.host}{asked.path}{query}",
                body=asked.body,
                headers=headers,
                preload_content=False,
                redirect=False,  # an API server never redirects; following one would carry the token elsewhere
                retries=False,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=timeout),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            reason = reason_of(error) or Reason(type(error).__name__, "check the address and the network")
            if isinstance(error, urllib3.exceptions.ProxyError):
                raise SourceUnavailable(
                    f"{asked}: the proxy {_shown(connection.proxy)} on the way to {connection.host} cannot be used: {reason.text}",
                    hint="check proxy-url in the kubeconfig, and HTTPS_PROXY and NO_PROXY",
                ) from error
            raise SourceUnavailable(
                f"{asked}: the API server at {connection.host} does not answer: {reason.text}",
                hint=f"{reason.hint}; `kubectl version` asks the same server",
            ) from error

    def _connected(self) -> _Connection:
        with _configuring():
            return _Connection(self._load)

    def _renewed(self, refused: _Connection) -> _Connection:
        """Reload the credentials, once for all threads that were refused with the same ones, and not again and again."""
        with self._lock:
            if self._connection is not refused:
                return self._connection
            now = time.monotonic()
            if self._renewed_at is not None and now - self._renewed_at < RENEW_SECONDS:
                if self._renewal_failed:
                    raise self._renewal_failed.again()
                return refused
            self._renewed_at = now
            try:
                self._connection = self._connected()
                self._renewal_failed = None
            except SourceUnavailable as error:
                self._renewal_failed = error
                raise
            return self._connection


def _shown(proxy: str | None) -> str:
    """Return a proxy's address without the credentials that may stand in it."""
    parts = urlsplit(proxy or "")
    return f"{parts.scheme}://{parts.netloc.rpartition('@')[2]}"


@contextmanager
def _configuring() -> Iterator[None]:
    """Translate what the client's configuration loaders raise; their texts may quote the file, but for ConfigException's."""
    from kubernetes.config import ConfigException

    try:
        yield
    except ConfigException as error:
        said = " ".join(str(error).split())
        raise SourceUnavailable(f"no Kubernetes cluster to connect to: {said}", hint=CHOOSE) from error
    except binascii.Error as error:
        raise SourceUnavailable(
            "the kubeconfig holds certificate data that is not base64",
            hint="certificate-authority-data, client-certificate-data and client-key-data are PEM files in base64",
        ) from error
    except OSError as error:
        where = f" {error.filename}" if error.filename else ""
        raise SourceUnavailable(
            f"the Kubernetes configuration{where} cannot be read: {error.strerror}", hint=SIGN_IN
        ) from error
    except (ValueError, LookupError, TypeError, AttributeError) as error:
        raise SourceUnavailable(
            f"the Kubernetes configuration cannot be read ({type(error).__name__})", hint=SIGN_IN
        ) from error


def _refusal(asked: _ApiRequest, response: urllib3.BaseHTTPResponse, answer: WatchStream) -> ApiRefused:
    wait, said = response.headers.get("retry-after", ""), _said(response, answer)
    return ApiRefused(
        f"{asked}: the API server answered {response.status}{said}",
        response.status,
        retry_after=float(wait) if wait.isdecimal() else None,
        hint=_HINTS.get(response.status)
        if "HTTPS server" not in said
        else "write https:// before the server's address",
    )


_HINTS = {
    401: SIGN_IN,
    403: "grant get, list and watch on it (deploy/rbac.yaml), or leave the kind out",
    404: "install its CRD, or leave the kind out",
}


def _said(response: urllib3.BaseHTTPResponse, answer: WatchStream) -> str:
    """Return the message of a Status body, on one line; empty for any other body, which may be a proxy's page.

    Only a server's plain words about what was sent (400) are passed on: that plain HTTP came to a TLS port is said in no other way.
    """
    media_type = response.headers.get("content-type", "")
    plain = response.status == 400 and (not media_type or media_type.startswith("text/plain"))
    if "json" not in media_type and not plain:
        return ""
    body = b""
    try:
        for chunk in answer:
            body += chunk
            if len(body) > _STATUS_BYTES:
                return ""
        message = body.decode(errors="replace") if plain else msgspec.json.decode(body, type=_Status).message
    except (StreamBroken, StreamSilent, msgspec.MsgspecError):
        return ""  # the status code alone decides what happens next
    return f": {' '.join(message.split())[:300]}" if message else ""
