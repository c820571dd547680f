"""HTTP to an engine: SPARQL 1.1 Protocol (https://www.w3.org/TR/sparql11-protocol/) by form POST, credentials, errors in our words.

Nothing is followed and nothing of the environment is used: the address is the operator's, a redirect or a proxy variable is not.
"""

from __future__ import annotations

import os
import ssl
from collections.abc import Generator, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from urllib.parse import urlsplit

import httpx
import structlog

from drumlin.kg.config.datasources import Credential, StoreSettings, TlsSettings
from drumlin.kg.errors import InvalidSettings, QueryRejected, StoreUnavailable
from drumlin.kg.model.connection_errors import Reason, reason_of
from drumlin.kg.store.remote.engine import ENGINES, RemoteEngine

log = structlog.get_logger(__name__)

_KEEPALIVE = 5.0  # seconds; Virtuoso drops an idle connection after 10
_SAID = 200  # characters of an engine's own words in an error
_PROBE = "ASK {}"
_SLOW = (httpx.ReadTimeout, httpx.WriteTimeout, httpx.PoolTimeout)
_UNSENT = (httpx.ConnectError, httpx.ConnectTimeout, httpx.PoolTimeout)


class UpdateFailed(StoreUnavailable):
    """An update was not acknowledged. ``refused`` is False when the engine may have done it all the same."""

    def __init__(self, message: str, *, refused: bool) -> None:
        super().__init__(message, hint="look at the engine's log; the write may be tried again")
        self.refused = refused


class _Authentication(httpx.Auth):
    """Basic, Bearer or Digest with a secret that is read again for every request, so that it can be rotated."""

    def __init__(self, credential: Credential, scheme: str) -> None:
        self._credential = credential
        self._scheme = scheme
        self._digest: tuple[str, httpx.DigestAuth] | None = None

    def auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response]:
        """Send a request with the credential (httpx)."""
        secret, username = secret_of(self._credential.secret), self._credential.username
        if username is None:
            request.headers["Authorization"] = f"Bearer {secret}"
            yield request
        elif self._scheme == "digest":
            if self._digest is None or self._digest[0] != secret:
                self._digest = secret, httpx.DigestAuth(username, secret)
            yield from self._digest[1].auth_flow(request)
        else:
            yield from httpx.BasicAuth(username, secret).auth_flow(request)


def secret_of(reference: str) -> str:
    """Read what a reference (env:NAME or file:PATH) points to; raises ``StoreUnavailable``, which never holds the secret."""
    kind, _, place = reference.partition(":")
    try:
        secret = os.environ[place] if kind == "env" else Path(place).read_text(encoding="utf-8").strip()
    except (KeyError, OSError, UnicodeDecodeError) as error:
        log.warning("credential_unreadable", reference=reference)
        raise StoreUnavailable(
            "the credential of the store cannot be read",
            hint="the log names the reference; set what store.credential.secret in drumlin.toml points to",
        ) from error
    if not secret.isascii() or not secret.isprintable() or not secret:
        raise StoreUnavailable("the credential of the store is empty or not printable")
    return secret


class EngineConnection:
    """One engine at one address. All methods block and may be called from any thread."""

    def __init__(self, url: str, settings: StoreSettings) -> None:
        self._settings = settings
        self._root = _root(url)
        self._client = httpx.Client(
            trust_env=False,
            follow_redirects=False,
            verify=self._root.startswith("https:") and _trust(settings.tls),
            timeout=httpx.Timeout(settings.timeout, connect=min(10.0, settings.timeout)),
            limits=httpx.Limits(max_connections=32, keepalive_expiry=_KEEPALIVE),
        )
        try:
            engine = ENGINES[settings.engine] if settings.engine else self._recognised()
        except BaseException:
            self._client.close()
            raise
        self.engine = replace(engine, rows=settings.rows) if engine.rows and settings.rows else engine
        if settings.credential:
            self._client.auth = _Authentication(settings.credential, settings.authentication or self.engine.scheme)
        self._query = str(settings.query or self._root + self.engine.query_path)
        self._update = str(settings.update or self._root + self.engine.update_path)

    @property
    def host(self) -> str:
        """Where the engine is, for messages."""
        return urlsplit(self._root).netloc

    @property
    def closed(self) -> bool:
        """True after ``close``."""
        return self._client.is_closed

    def close(self) -> None:
        """End all connections."""
        self._client.close()

    def _recognised(self) -> RemoteEngine:
        """Return what the server says that it is."""
        probes = (
            [str(self._settings.query)] if self._settings.query else [self._root + "/query", self._root + "/sparql"]
        )
        said = ""
        for probe in probes:
            with self._translated():
                said = self._client.get(probe, params={"query": _PROBE}).headers.get("Server", "")
            for name, engine in ENGINES.items():
                if said.lower().startswith(name):
                    return engine
        raise InvalidSettings(
            f"the server at {self.host} is none of {', '.join(ENGINES)}",
            hint="say store.engine in drumlin.toml when it behaves like one of them",
        )

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except _SLOW as error:
            raise StoreUnavailable(
                f"the engine at {self.host} did not answer within {self._settings.timeout:g} s",
                hint="look at its load, or raise store.timeout",
            ) from error
        except httpx.HTTPError as error:
            text, hint, _ = reason_of(error) or Reason(str(error) or type(error).__name__, "look at its log")
            if "CERTIFICATE_VERIFY_FAILED" in str(error):
                hint = "set store.tls.ca in drumlin.toml to its CA's PEM file, or give the name in its certificate"
            raise StoreUnavailable(f"the engine at {self.host} cannot be reached: {text}", hint=hint) from error
        except RuntimeError as error:
            if self.closed:
                raise StoreUnavailable("the store is closed") from error
            raise

    # -- update -------------------------------------------------------------------------------------------------------
    def update(self, text: str) -> None:
        """Run an update; raises ``UpdateFailed``."""
        try:
            with self._translated():
                response = self._client.post(self._update, data={"update": text})
        except StoreUnavailable as error:
            if self.closed:
                raise
            raise UpdateFailed(str(error), refused=isinstance(error.__cause__, _UNSENT)) from error
        if response.is_success:
            if self.engine.has_done(response.headers.get("Content-Type", ""), response.content):
                return
            raise UpdateFailed(
                f"what the engine at {self.host} answers to a write ({response.status_code}) is no acknowledgement",
                refused=False,
            )
        self._refuse_access(response.status_code)
        raise UpdateFailed(
            f"{self.engine.name} refuses a write ({response.status_code}): {_first_line(response.text)}", refused=True
        )

    # -- query --------------------------------------------------------------------------------------------------------
    @contextmanager
    def query(
        self, text: str, accept: str, given: Mapping[str, list[str]] | None = None, timeout: float | None = None
    ) -> Iterator[httpx.Response]:
        """Send a query and give the answer, its body not yet read.

        Raises ``QueryRejected`` for one that the engine refuses (reason ``timeout`` when it took longer than ``timeout`` seconds).
        """
        form: dict[str, str | list[str]] = {"query": text, **(given or {})}
        limit = httpx.USE_CLIENT_DEFAULT if timeout is None else httpx.Timeout(timeout, connect=10.0)
        try:
            with (
                self._translated(),
                self._client.stream(
                    "POST", self._query, data=form, headers={"Accept": accept}, timeout=limit
                ) as response,
            ):
                if not response.is_success:
                    response.read()
                    self._refuse_access(response.status_code)
                    raise self._rejected(response)
                yield response
        except StoreUnavailable as error:
            if timeout is not None and isinstance(error.__cause__, _SLOW):
                raise QueryRejected(
                    f"the query took longer than {timeout:g} s", reason="timeout", hint="narrow it, or raise the limit"
                ) from error
            raise

    def _rejected(self, response: httpx.Response) -> QueryRejected | StoreUnavailable:
        said = _first_line(response.text)
        if response.status_code in (400, 413, 414, 431, 500):
            return QueryRejected(f"{self.engine.name} refuses the query ({response.status_code}): {said}")
        return StoreUnavailable(f"the engine at {self.host} answers {response.status_code}: {said}")

    def _refuse_access(self, status: int) -> None:
        if status in (401, 403):
            raise StoreUnavailable(
                f"the engine at {self.host} refuses the credential ({status})",
                hint="set store.credential (and store.authentication) in drumlin.toml",
            )
        if 300 <= status < 400:
            raise StoreUnavailable(
                f"the engine at {self.host} answers with a redirect, which is not followed",
                hint="give its own address",
            )


def _trust(tls: TlsSettings) -> ssl.SSLContext:
    """Return whom to trust, and the certificate to show; raises ``InvalidSettings``."""
    try:
        context = ssl.create_default_context(cafile=tls.ca)
        if tls.certificate:
            context.load_cert_chain(tls.certificate, tls.key)
    except OSError as error:  # ssl.SSLError is one
        raise InvalidSettings(
            f"the certificates of the store cannot be used: {error.strerror or type(error).__name__}",
            hint="check that store.tls.ca, certificate and key in drumlin.toml are PEM files that belong together",
        ) from error
    return context


def _root(url: str) -> str:
    """Return the address of an engine from ``sparql+http(s)://host/path``; raises ``InvalidSettings``."""
    address = url.removeprefix("sparql+").rstrip("/")
    parts = urlsplit(address)
    if parts.scheme not in ("http", "https") or not parts.hostname or parts.query or parts.fragment:
        raise InvalidSettings(
            f"{parts.scheme}://{parts.hostname or ''} is not the address of an engine",
            hint="say sparql+http://host:port or sparql+https://host/path",
        )
    if parts.username or parts.password:
        raise InvalidSettings("credentials inside a URL are not allowed", hint="use store.credential in drumlin.toml")
    return address


def _first_line(text: str) -> str:
    return (text.strip().splitlines() or ["nothing said"])[0][:_SAID]
