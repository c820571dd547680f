"""The connection to one API server: address, authentication and TLS by the official client, bytes by us.

The client's configuration loaders know kubeconfig contexts, exec plugins, rotating service-account tokens, client certificates
and proxies; that is all that is taken from it. Its models, ``Watch`` and ``SharedInformer`` are 20 times slower than a typed
projection and give up on a second 410, so answers leave here as raw bytes.

Specification: https://kubernetes.io/docs/reference/using-api/api-concepts/
"""

from __future__ import annotations

import os
import threading
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from typing import Any, Self
from urllib.parse import urlencode

import msgspec
import urllib3
import urllib3.exceptions

from kg.connecting import Reason, reason_of
from kg.errors import SourceUnavailable

CONNECT_TIMEOUT = 10.0
"""Seconds until a connection attempt is given up."""

_CHUNK = 64 * 1024
_STATUS_BYTES = 64 * 1024  # a Status is small; what is longer is not one
_POOL = 64  # one connection per kind stays open; a smaller pool would log and discard them
_CHOOSE = (
    "name a kubeconfig in KUBECONFIG and one of its contexts with --context: `kubectl config get-contexts` lists them"
)
_SIGN_IN = "check the kubeconfig context, or the service account's token; `kubectl auth whoami` uses the same"


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


class Stream:
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


class _Status(msgspec.Struct):
    """meta/v1 Status: the body of a refusal."""

    message: str = ""


class _Connection:
    """One reading of the credentials: headers by the client's configuration, connections by its pool."""

    def __init__(self, load: Callable[[Any], None]) -> None:
        from kubernetes.client import Configuration
        from kubernetes.client.rest import RESTClientObject

        configuration = Configuration()
        load(configuration)
        configuration.keep_alive = True
        configuration.connection_pool_maxsize = _POOL
        self._configuration: Any = configuration
        self._lock = threading.Lock()
        self.host: str = configuration.host.rstrip("/")
        self.pool: urllib3.PoolManager = RESTClientObject(configuration).pool_manager

    def headers(self) -> dict[str, str]:
        """Return the headers of a request; a token that is about to expire is renewed by the client's hook."""
        with self._lock:  # the hook may run an exec plugin; once is enough
            settings = self._configuration.auth_settings()
        signed = {each["key"]: each["value"] for each in settings.values()}
        return {"accept": "application/json", "user-agent": "drumlin", **signed}


class Access:
    """One API server with its credentials; all methods block and may be called from any thread."""

    def __init__(self, load: Callable[[Any], None]) -> None:
        self._load = load
        self._lock = threading.Lock()
        self._connection = self._connected()

    @classmethod
    def connect(cls, context: str | None = None, kubeconfig: str | None = None) -> Access:
        """Use a kubeconfig's ``context`` (default: its current one); inside a pod that names none, its own service account.

        Raises ``SourceUnavailable`` when there is nothing to connect with.
        """
        from kubernetes import config

        loaders: Any = config  # its functions are not typed
        named = context or kubeconfig or os.environ.get("KUBECONFIG")

        def load(configuration: Any) -> None:
            if not named and "KUBERNETES_SERVICE_HOST" in os.environ:
                loaders.load_incluster_config(client_configuration=configuration)
            else:
                loaders.load_kube_config(kubeconfig, context, client_configuration=configuration, persist_config=False)

        return cls(load)

    @property
    def server(self) -> str:
        """The address of the API server."""
        return self._connection.host

    def get(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float = 60.0) -> bytes:
        """Return the body of ``GET path``; ``timeout`` is in seconds without a byte. Raises as ``stream`` does."""
        with self.stream(path, params, timeout=timeout) as answer:
            return b"".join(answer)

    def stream(self, path: str, params: Mapping[str, str] | None = None, *, timeout: float) -> Stream:
        """Open ``GET path``; ``timeout`` is in seconds without a byte, also while the answer is read.

        A 401 reloads the credentials once. Raises ``ApiRefused`` for any status but 200, ``SourceUnavailable`` when the server
        cannot be reached.
        """
        connection = self._connection
        response = self._send(connection, path, params, timeout)
        if response.status == 401:
            response.close()
            response = self._send(self._renewed(connection), path, params, timeout)
        if response.status != 200:
            with Stream(response, f"GET {path}") as answer:
                raise _refusal(path, response, answer)
        return Stream(response, f"GET {path}")

    def _send(
        self, connection: _Connection, path: str, params: Mapping[str, str] | None, timeout: float
    ) -> urllib3.BaseHTTPResponse:
        query = f"?{urlencode(params)}" if params else ""
        with _configuring():
            headers = connection.headers()
        try:
            return connection.pool.request(
                "GET",
                f"{connection.host}{path}{query}",
                headers=headers,
                preload_content=False,
                redirect=False,  # an API server never redirects; following one would carry the token elsewhere
                retries=False,
                timeout=urllib3.Timeout(connect=CONNECT_TIMEOUT, read=timeout),
            )
        except (urllib3.exceptions.HTTPError, OSError) as error:
            reason = reason_of(error) or Reason(type(error).__name__, "check the address and the network")
            raise SourceUnavailable(
                f"GET {path}: the API server at {connection.host} does not answer: {reason.text}",
                hint=f"{reason.hint}; `kubectl version` asks the same server",
            ) from error

    def _connected(self) -> _Connection:
        with _configuring():
            return _Connection(self._load)

    def _renewed(self, refused: _Connection) -> _Connection:
        """Reload the credentials, once for all threads that were refused with the same ones."""
        with self._lock:
            if self._connection is refused:
                self._connection = self._connected()
            return self._connection


@contextmanager
def _configuring() -> Iterator[None]:
    """Translate what the client's configuration loaders raise; their texts may quote the file, but for ConfigException's."""
    from kubernetes.config import ConfigException
    from yaml import YAMLError

    try:
        yield
    except ConfigException as error:
        said = " ".join(str(error).split())
        raise SourceUnavailable(f"no Kubernetes cluster to connect to: {said}", hint=_CHOOSE) from error
    except (OSError, ValueError, LookupError, TypeError, AttributeError, YAMLError) as error:
        raise SourceUnavailable(
            f"the Kubernetes configuration cannot be read ({type(error).__name__})", hint=_SIGN_IN
        ) from error


def _refusal(path: str, response: urllib3.BaseHTTPResponse, answer: Stream) -> ApiRefused:
    asked = response.headers.get("retry-after", "")
    return ApiRefused(
        f"GET {path}: the API server answered {response.status}{_said(response, answer)}",
        response.status,
        retry_after=float(asked) if asked.isdecimal() else None,
        hint=_HINTS.get(response.status),
    )


_HINTS = {
    401: _SIGN_IN,
    403: "grant get, list and watch on it (deploy/rbac.yaml), or leave the kind out",
    404: "install its CRD, or leave the kind out",
}


def _said(response: urllib3.BaseHTTPResponse, answer: Stream) -> str:
    """Return the message of a Status body, on one line; empty for any other body, which may be a proxy's page."""
    if "json" not in response.headers.get("content-type", ""):
        return ""
    body = b""
    try:
        for chunk in answer:
            body += chunk
            if len(body) > _STATUS_BYTES:
                return ""
        message = msgspec.json.decode(body, type=_Status).message
    except (StreamBroken, StreamSilent, msgspec.MsgspecError):
        return ""  # the status code alone decides what happens next
    return f": {' '.join(message.split())[:300]}" if message else ""
