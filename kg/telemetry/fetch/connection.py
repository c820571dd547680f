"""One configured datasource over HTTP: slots, retries, credentials, TLS, limits. What is sent and read is its callers' business.

Redirects are not followed, since they would turn a POST into a GET and carry a credential elsewhere.
Retry-After: https://www.rfc-editor.org/rfc/rfc9110#section-10.2.3.
"""

from __future__ import annotations

import base64
import math
import os
import random
import ssl
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import NamedTuple, Self
from urllib.parse import urlencode

import msgspec
import structlog

from drumlin.kg.errors import DatasourceRefused, SourceUnavailable
from drumlin.kg.model.connection_errors import reason_of
from drumlin.kg.telemetry.datasources import Datasource, DatasourceAccess
from drumlin.kg.telemetry.fetch.transport import BROKEN, HttpResponse, Oversized, Transport, UnreadableBody

_log = structlog.get_logger()

ATTEMPTS = 3
"""Tries per request; a busy server (429, 502, 503, 504) or a broken connection is asked again."""
MAX_BYTES = 32 * 1024 * 1024
"""Largest answer that is read."""
UNREADABLE = (msgspec.MsgspecError, UnicodeDecodeError, RecursionError)
"""What decoding an answer raises: another shape, not UTF-8, or nested without end."""
SILENT = 3
"""Time-outs in a row after which a server counts as silent."""
PAUSE = 10.0
"""Seconds that a silent server is left alone: requests to it fail at once, so that none of them waits in vain."""
_LONGEST_WAIT = 30.0  # seconds between two tries, whatever Retry-After says
_BUSY = frozenset({429, 502, 503, 504})
_HINTS = {
    400: "the query is not accepted by this server; run it there by hand",
    401: "check the credential of the datasource in drumlin.toml",
    403: "check the credential and the tenant header of the datasource in drumlin.toml",
    404: "check the url of the datasource: Mimir's ends in /prometheus, VictoriaMetrics' in /select/<account>/prometheus",
    422: "take a shorter window or a longer step, or fewer entities",
    429: "the server limits its callers; lower concurrency of the datasource, or ask later",
    500: "the server failed at this query; its log says why (Loki takes several tenants with multi_tenant_queries_enabled only)",
    503: "the server is overloaded or starting; take a longer step or ask later",
}
_CREDENTIAL_HINT = (
    "the log names the reference; set the variable or file that credential.secret in drumlin.toml points to"
)

Form = Mapping[str, str | Sequence[str]]


class TooHeavy(DatasourceRefused):
    """The query reads too much for the server; half of its range may be answered."""


class ServerMessage(NamedTuple):
    """What a server said in an answer that is no success: its words, and whether less of the same may be answered."""

    words: str
    heavy: bool = False


@dataclass(frozen=True, slots=True)
class DatasourceRequest:
    """One request. ``asked`` is what errors say was asked for; ``content`` is sent as the body instead of the form."""

    method: str
    path: str
    form: Form
    asked: str = ""
    content: bytes | None = None
    headers: Mapping[str, str] | None = None


class DatasourceConnection:
    """Kept-alive connections to one datasource, for many threads. ``told`` reads a refusal in the server's own form.

    Raises ``SourceUnavailable`` (no answer) and ``DatasourceRefused`` (an error as answer).
    """

    def __init__(
        self,
        datasource: Datasource,
        told: Callable[[int, bytes], ServerMessage],
        *,
        sleep: Callable[[float], None] = time.sleep,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        if datasource.access is None:
            raise SourceUnavailable(
                f"datasource {datasource.name} can be resolved against, but it is not configured, so nothing is fetched from it",
                hint="add to drumlin.toml: " + configuration(datasource),
                detail={"datasource": datasource.name},
            )
        self.datasource = datasource
        self.access: DatasourceAccess = datasource.access
        self._told = told
        self._slots = threading.BoundedSemaphore(self.access.concurrency)
        self._sleep, self._clock = sleep, clock
        self._silences, self._again = 0, 0.0  # time-outs in a row, and when the next request may be sent
        self._transport = Transport(datasource.url, self.access.timeout, self._trust())

    def close(self) -> None:
        """Close the connections."""
        self._transport.close()

    def ask(self, request: DatasourceRequest) -> bytes:
        """Send a request, again while the server is busy, and return the body of its success (200 or 204)."""
        attempt = 0
        while True:
            attempt += 1
            last = attempt == ATTEMPTS
            try:
                with self._slots:
                    self._refuse_in_vain(request)
                    answer = self._send(request)
                    self._silences = 0
            except TimeoutError as error:
                self._silences += 1
                self._again = self._clock() + PAUSE
                raise self.unavailable(f"did not answer within {self.access.timeout:g} s", request.asked) from error
            except BROKEN as error:
                if last or isinstance(error, ssl.SSLCertVerificationError):
                    raise self._unreachable(error, request.asked) from error
                wait = _backoff(attempt)
            except UnreadableBody as error:
                raise self.refused(f"answered with {error}", request.asked) from error
            except Oversized as error:
                raise self.refused(
                    f"answered with more than {MAX_BYTES >> 20} MB", request.asked, hint=_HINTS[422]
                ) from error
            else:
                if answer.status in (200, 204):
                    return answer.body
                refusal = self._refusal(answer.status, answer.body, request.asked)
                if last or answer.status not in _BUSY or isinstance(refusal, TooHeavy):
                    raise refusal
                wait = _retry_after(answer.headers.get("Retry-After")) or _backoff(attempt)
            _log.info("datasource_asked_again", datasource=self.datasource.name, attempt=attempt, wait=wait)
            self._sleep(wait)

    def _refuse_in_vain(self, request: DatasourceRequest) -> None:
        """Raise ``SourceUnavailable`` while the server is silent; one request in each pause finds out whether it still is."""
        if self._silences < SILENT:
            return
        if (left := self._again - self._clock()) > 0:
            raise self.unavailable(
                f"has not answered {self._silences} requests in a row, so it is asked again in {math.ceil(left)} s",
                request.asked,
            )
        self._again = self._clock() + PAUSE

    def _send(self, request: DatasourceRequest) -> HttpResponse:
        """Send one request and read its answer within the time and size that are allowed."""
        form = urlencode({**request.form, **self.access.parameters}, doseq=True)
        headers = {"Accept-Encoding": "identity", **self.access.headers, **self._headers(), **(request.headers or {})}
        if request.method == "POST" and request.content is None:
            headers["Content-Type"] = "application/x-www-form-urlencoded"
            return self._transport.send("POST", request.path, headers, form.encode(), MAX_BYTES)
        target = f"{request.path}?{form}" if form else request.path
        return self._transport.send(request.method, target, headers, request.content, MAX_BYTES)

    def _headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if header := self.access.tenant_header:
            found[header.name] = header.value
        if credential := self.access.credential:
            secret = self._secret(credential.secret)
            if credential.username is None:
                found["Authorization"] = f"Bearer {secret}"
            else:
                pair = f"{credential.username}:{secret}".encode()
                found["Authorization"] = f"Basic {base64.b64encode(pair).decode()}"  # RFC 7617
        return found

    def _secret(self, reference: str) -> str:
        """Read a credential where the reference says it is, each time anew, so that it can be rotated."""
        kind, _, place = reference.partition(":")
        try:
            secret = os.environ[place] if kind == "env" else Path(place).read_text(encoding="utf-8").strip()
        except (KeyError, OSError, UnicodeDecodeError) as error:
            _log.warning("credential_unreadable", datasource=self.datasource.name, reference=reference)
            raise self.unavailable(
                "was not asked, because its credential cannot be read", "", hint=_CREDENTIAL_HINT
            ) from error
        if not secret or not secret.isascii() or not secret.isprintable():
            raise self.unavailable(
                "was not asked, because its credential is empty or not printable", "", hint=_CREDENTIAL_HINT
            )
        return secret

    def _trust(self) -> ssl.SSLContext | None:
        """Return whom to trust and as whom to come: the configured CA (else the system's), the configured client certificate."""
        access = self.access
        if access.ca is None and access.certificate is None:
            return None
        try:
            context = ssl.create_default_context(cafile=access.ca)
            if access.certificate:
                context.load_cert_chain(access.certificate, access.key)
        except (OSError, ssl.SSLError) as error:
            _log.warning("certificates_unreadable", datasource=self.datasource.name, reason=type(error).__name__)
            raise self.unavailable(
                "was not asked, because its ca, certificate or key cannot be read",
                "",
                hint="check that tls.ca, tls.certificate and tls.key in drumlin.toml are PEM files that belong together",
            ) from error
        return context

    # -- errors -------------------------------------------------------------------------------------------------------
    def _unreachable(self, error: Exception, asked: str) -> SourceUnavailable:
        if isinstance(error, ssl.SSLCertVerificationError):
            return self.unavailable(
                "shows a certificate that is not trusted here",
                asked,
                hint="set tls.ca of the datasource to its CA's PEM file",
            )
        if reason := reason_of(error):
            return self.unavailable(
                f"cannot be reached: {reason.text}", asked, f"{reason.hint}; its url is in drumlin.toml"
            )
        return self.unavailable(f"cannot be reached ({type(error).__name__})", asked)

    def _refusal(self, status: int, body: bytes, asked: str) -> DatasourceRefused:
        if 300 <= status < 400:
            return self.refused(
                f"redirects ({status}), which is not followed", asked, status, "set its url to the final address"
            )
        said = self._told(status, body)
        words = _one_line(said.words)
        message = f"refused the query ({status}): {words}" if words else f"answered {status}"
        return self.refused(
            message, asked, status, _HINTS.get(status), kind=TooHeavy if said.heavy else DatasourceRefused
        )

    def refused(
        self,
        what: str,
        asked: str,
        status: int = 200,
        hint: str | None = None,
        *,
        kind: type[DatasourceRefused] = DatasourceRefused,
    ) -> DatasourceRefused:
        """Return the error that the server answered with something that is no use."""
        detail = {"datasource": self.datasource.name, "query": asked, "status": status}
        told = f"datasource {self.datasource.name} {_one_line(what)}; asked for {brief(asked)}"
        return kind(told, hint=hint, detail=detail)

    def not_its_api(self, what: str, asked: str) -> DatasourceRefused:
        """Return the error that something else than the expected API answered."""
        hint = (
            _HINTS[404]
            if self.datasource.kind == "prometheus"
            else "check the url of the datasource: its API is not there"
        )
        return self.refused(f"answered with {what}", asked, hint=hint)

    def unavailable(self, what: str, asked: str, hint: str | None = None) -> SourceUnavailable:
        """Return the error that there was no answer."""
        after = f"; asked for {brief(asked)}" if asked else ""
        return SourceUnavailable(
            f"datasource {self.datasource.name} ({self.datasource.url}) {what}{after}",
            hint=hint
            or "check that it runs and that its url in drumlin.toml is right; a slow one needs a longer timeout or step",
            detail={"datasource": self.datasource.name, "query": asked},
        )


class Fetcher:
    """Fetches from one configured datasource, over connections that are kept until it is closed."""

    def __init__(
        self,
        datasource: Datasource,
        told: Callable[[int, bytes], ServerMessage],
        *,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self.datasource = datasource
        self._connection = DatasourceConnection(datasource, told, sleep=sleep)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._connection.close()


def configuration(datasource: Datasource) -> str:
    """Return the lines for ``drumlin.toml`` that make a datasource one that is fetched from."""
    return f'[[datasource]] name = "{datasource.name}" kind = "{datasource.kind}" url = "{datasource.url}" (one setting per line)'


def brief(text: str) -> str:
    """Return a text as errors show it."""
    return text if len(text) <= 300 else f"{text[:299]}…"


def _backoff(attempt: int) -> float:
    return random.uniform(0.1, 0.2) * float(2**attempt)  # noqa: S311  spread, no secret


def _retry_after(header: str | None) -> float | None:
    """Read Retry-After in seconds (RFC 9110 §10.2.3); a date is left to the backoff."""
    return min(float(header), _LONGEST_WAIT) if header and header.isascii() and header.isdigit() else None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]
