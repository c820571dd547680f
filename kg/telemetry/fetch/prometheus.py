"""Fetching from Prometheus and what speaks like it: one client per datasource, blocking, for use by many threads.

Queries go as POST forms (a long list of pods does not fit into a URL), with whole seconds, over kept-alive connections;
redirects are not followed, since they would turn a POST into a GET. Values are decoded by msgspec and pyarrow without ever
becoming Python objects. API: https://prometheus.io/docs/prometheus/latest/querying/api/.
"""

from __future__ import annotations

import base64
import os
import random
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any, Self, TypeVar
from urllib.parse import quote

import httpx
import msgspec
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.csv
import structlog

from kg.errors import DatasourceRefused, SourceUnavailable
from kg.telemetry.datasources import Access, Datasource
from kg.telemetry.series import Grid, Samples

_log = structlog.get_logger()

RANGE_PATH = "/api/v1/query_range"
ATTEMPTS = 3
"""Tries per request; a busy server (429, 502, 503, 504) or a broken connection is asked again."""
MAX_HALVINGS = 4
MAX_BYTES = 32 * 1024 * 1024
"""Largest answer that is read."""
_LONGEST_WAIT = 30.0  # seconds between two tries, whatever Retry-After says
_BUSY = frozenset({429, 502, 503, 504})
_HINTS = {
    400: "the query is not accepted by this server; run it there by hand",
    401: "check the credential of the datasource in drumlin.toml",
    403: "check the credential and the tenant header of the datasource in drumlin.toml",
    404: "check the url of the datasource: Mimir's ends in /prometheus, VictoriaMetrics' in /select/<account>/prometheus",
    422: "take a shorter window or a longer step, or fewer entities",
    429: "the server limits its callers; lower concurrency of the datasource, or ask later",
    503: "the server is overloaded or starting; take a longer step or ask later",
}

T = TypeVar("T")


class _RangeSeries(msgspec.Struct):
    metric: dict[str, str]
    values: msgspec.Raw = msgspec.Raw(b"[]")
    histograms: msgspec.Raw = msgspec.Raw(b"[]")


class _Matrix(msgspec.Struct):
    resultType: str
    result: list[_RangeSeries]


class _BuildInfo(msgspec.Struct):
    version: str = "unknown"


class _Error(msgspec.Struct):
    error: str = ""
    errorType: str = ""


class _Answer(msgspec.Struct):
    status: str
    data: msgspec.Raw = msgspec.Raw(b"null")
    error: str = ""
    warnings: list[str] = []


class TooHeavy(DatasourceRefused):
    """The query reads too much for the server; half of its range may be answered."""


@dataclass(frozen=True, slots=True)
class Fetched:
    """One series as it came, in parts of ascending time; empty when the server has no point of it."""

    parts: tuple[Samples, ...]
    warnings: tuple[str, ...] = ()


class Prometheus:
    """One configured datasource. Raises ``SourceUnavailable`` (no answer) and ``DatasourceRefused`` (an error as answer)."""

    def __init__(self, datasource: Datasource, *, sleep: Callable[[float], None] = time.sleep) -> None:
        if datasource.access is None:
            raise SourceUnavailable(
                f"datasource {datasource.name} can be resolved against, but it is not configured, so nothing is fetched from it",
                hint="add to drumlin.toml: " + configuration(datasource),
                detail={"datasource": datasource.name},
            )
        self.datasource = datasource
        self._access: Access = datasource.access
        self._slots = threading.BoundedSemaphore(self._access.concurrency)
        self._sleep = sleep
        self._client = httpx.Client(
            timeout=self._access.timeout,
            follow_redirects=False,
            trust_env=False,
            headers={"Accept-Encoding": "identity"},
        )

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exception: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the connections."""
        self._client.close()

    def series(self, query: str, grid: Grid) -> Fetched:
        """Fetch the one series of a query on a grid of any length, in chunks that the server's limit of points allows.

        A chunk that is too heavy for the server is halved, a few times at most.
        """
        parts: list[Samples] = []
        warnings: dict[str, None] = {}
        pending = [(chunk, 0) for chunk in grid.chunks()][::-1]
        while pending:
            chunk, halvings = pending.pop()
            try:
                samples, said = self._range(query, chunk)
            except TooHeavy:
                if halvings == MAX_HALVINGS or chunk.points < 2:
                    raise
                first, second = chunk.halves()
                pending += [(second, halvings + 1), (first, halvings + 1)]
                continue
            warnings.update(dict.fromkeys(said))
            if samples is not None:
                parts.append(samples)
        return Fetched(tuple(parts), tuple(warnings))

    def label_names(self, match: str, start: datetime, end: datetime) -> list[str]:
        """Return the label names of the series that a selector matches; empty when it matches none."""
        form = {"match[]": match, "start": str(int(start.timestamp())), "end": str(int(end.timestamp()))}
        return self._decode(self._ask("POST", "/api/v1/labels", form, match), list[str], match)

    def label_values(self, label: str, start: datetime, end: datetime, match: str | None = None) -> list[str]:
        """Return the values of one label, of the series that ``match`` selects when it is given."""
        form = {"start": str(int(start.timestamp())), "end": str(int(end.timestamp()))}
        if match:
            form["match[]"] = match
        return self._decode(
            self._ask("GET", f"/api/v1/label/{quote(label, safe='')}/values", form, match or label),
            list[str],
            match or label,
        )

    def probe(self) -> str:
        """Return the server's version; raises when it does not answer like a Prometheus."""
        answer = self._ask("GET", "/api/v1/status/buildinfo", {}, "buildinfo")
        return self._decode(answer, _BuildInfo, "buildinfo").version

    # -- one answer ---------------------------------------------------------------------------------------------------
    def _range(self, query: str, grid: Grid) -> tuple[Samples | None, list[str]]:
        form = {"query": query, "start": str(grid.start), "end": str(grid.end), "step": str(grid.step)}
        answer = self._ask("POST", RANGE_PATH, {**form, "timeout": f"{self._access.timeout:g}"}, query)
        result = self._decode(answer, _Matrix, query).result
        if len(result) > 1:
            raise self._refused(
                f"answered with {len(result)} series where one was expected", query, hint="aggregate with sum()"
            )
        if not result:
            return None, answer.warnings
        if bytes(result[0].histograms) != b"[]":
            raise self._refused(
                "answered with native histograms", query, hint="wrap the query in histogram_quantile() or -_sum()"
            )
        try:
            return decode_values(bytes(result[0].values)), answer.warnings
        except pa.ArrowException as error:
            raise self._refused("answered with values that are no numbers", query) from error

    def _decode(self, answer: _Answer, kind: type[T], query: str) -> T:
        try:
            return msgspec.json.decode(answer.data, type=kind)
        except msgspec.MsgspecError as error:
            raise self._refused(
                "answered with JSON that is not the Prometheus API's", query, hint=_HINTS[404]
            ) from error

    def _ask(self, method: str, path: str, form: Mapping[str, str], query: str) -> _Answer:
        """Send a request, again while the server is busy, and return its successful answer."""
        attempt = 0
        while True:
            attempt += 1
            last = attempt == ATTEMPTS
            try:
                with self._slots:
                    status, headers, body = self._send(method, path, form)
            except httpx.TimeoutException as error:
                raise self._unavailable(f"did not answer within {self._access.timeout:g} s", query) from error
            except httpx.TransportError as error:
                if last:
                    raise self._unavailable(f"cannot be reached ({type(error).__name__})", query) from error
                wait = _backoff(attempt)
            else:
                if status == 200:
                    return self._success(body, query)
                refusal = self._refusal(status, body, query)
                if last or status not in _BUSY or isinstance(refusal, TooHeavy):
                    raise refusal
                wait = _retry_after(headers.get("Retry-After")) or _backoff(attempt)
            _log.info("datasource_asked_again", datasource=self.datasource.name, attempt=attempt, wait=wait)
            self._sleep(wait)

    def _send(self, method: str, path: str, form: Mapping[str, str]) -> tuple[int, httpx.Headers, bytes]:
        """Send one request and read its answer within the time and size that are allowed."""
        given: dict[str, Any] = {"params": form} if method == "GET" else {"data": form}
        deadline = time.monotonic() + self._access.timeout
        body = bytearray()
        with self._client.stream(method, self.datasource.url + path, headers=self._headers(), **given) as response:
            for part in response.iter_bytes():
                body += part
                if time.monotonic() > deadline:
                    raise httpx.ReadTimeout("the answer trickles")
                if len(body) > MAX_BYTES:
                    raise self._refused(
                        f"answered with more than {MAX_BYTES >> 20} MB", form.get("query", path), hint=_HINTS[422]
                    )
            return response.status_code, response.headers, bytes(body)

    def _headers(self) -> dict[str, str]:
        found: dict[str, str] = {}
        if header := self._access.tenant_header:
            found[header.name] = header.value
        if credential := self._access.credential:
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
            raise self._unavailable(
                "was not asked, because its credential cannot be read", "", hint=_CREDENTIAL_HINT
            ) from error
        if not secret or not secret.isascii() or not secret.isprintable():
            raise self._unavailable(
                "was not asked, because its credential is empty or not printable", "", hint=_CREDENTIAL_HINT
            )
        return secret

    # -- errors -------------------------------------------------------------------------------------------------------
    def _success(self, body: bytes, query: str) -> _Answer:
        try:
            answer = msgspec.json.decode(body, type=_Answer)
        except msgspec.MsgspecError as error:
            raise self._refused(
                "answered with something that is not the Prometheus API's JSON", query, hint=_HINTS[404]
            ) from error
        if answer.status != "success":
            raise self._refused(f"answered with an error: {_one_line(answer.error)}", query)
        return answer

    def _refusal(self, status: int, body: bytes, query: str) -> DatasourceRefused:
        if 300 <= status < 400:
            return self._refused(
                f"redirects ({status}), which is not followed", query, status, "set its url to the final address"
            )
        try:
            said = msgspec.json.decode(body, type=_Error)
        except msgspec.MsgspecError:
            said = _Error(error=body[:300].decode(errors="replace"))
        heavy = (status == 422 and "too many samples" in said.error) or (status == 503 and said.errorType == "timeout")
        message = (
            f"refused the query ({status}): {_one_line(said.error)}" if said.error.strip() else f"answered {status}"
        )
        return self._refused(message, query, status, _HINTS.get(status), kind=TooHeavy if heavy else DatasourceRefused)

    def _refused(
        self,
        what: str,
        query: str,
        status: int = 200,
        hint: str | None = None,
        *,
        kind: type[DatasourceRefused] = DatasourceRefused,
    ) -> DatasourceRefused:
        detail = {"datasource": self.datasource.name, "query": query, "status": status}
        return kind(f"datasource {self.datasource.name} {what}; asked for {_brief(query)}", hint=hint, detail=detail)

    def _unavailable(self, what: str, query: str, hint: str | None = None) -> SourceUnavailable:
        asked = f"; asked for {_brief(query)}" if query else ""
        return SourceUnavailable(
            f"datasource {self.datasource.name} ({self.datasource.url}) {what}{asked}",
            hint=hint
            or "check that it runs and that its url in drumlin.toml is right; a slow one needs a longer timeout or step",
            detail={"datasource": self.datasource.name, "query": query},
        )


_CREDENTIAL_HINT = (
    "the log names the reference; set the variable or file that credential.secret in drumlin.toml points to"
)


def configuration(datasource: Datasource) -> str:
    """Return the lines for ``drumlin.toml`` that make a datasource one that is fetched from."""
    return f'[[datasource]] name = "{datasource.name}" kind = "{datasource.kind}" url = "{datasource.url}" (one setting per line)'


def decode_values(raw: bytes) -> Samples:
    """Decode the API's ``[[seconds, "value"], …]`` into arrays, as CSV: ten times faster than by way of Python objects."""
    text = raw.translate(None, b'[" \n\r\t').replace(b"],", b"\n").rstrip(b"]")
    if not text:
        return Samples(pa.array([], pa.int64()), pa.array([], pa.float64()))
    table = pyarrow.csv.read_csv(
        pa.BufferReader(text),
        read_options=pyarrow.csv.ReadOptions(use_threads=False, block_size=len(text) + 1, column_names=["t", "y"]),
        parse_options=pyarrow.csv.ParseOptions(quote_char=False),
        convert_options=pyarrow.csv.ConvertOptions(column_types={"t": pa.float64(), "y": pa.float64()}, null_values=[]),
    ).combine_chunks()
    seconds = pc.round(table["t"].chunk(0)).cast(pa.int64())
    return Samples(seconds, table["y"].chunk(0))


def _backoff(attempt: int) -> float:
    return random.uniform(0.1, 0.2) * float(2**attempt)  # noqa: S311


def _retry_after(header: str | None) -> float | None:
    """Read Retry-After in seconds (RFC 9110 §10.2.3); a date is left to the backoff."""
    return min(float(header), _LONGEST_WAIT) if header and header.isascii() and header.isdigit() else None


def _one_line(text: str) -> str:
    return " ".join(text.split())[:300]


def _brief(query: str) -> str:
    return query if len(query) <= 300 else f"{query[:299]}…"
