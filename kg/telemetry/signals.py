"""Traces and profiles: what a Jaeger, Tempo or Pyroscope is asked for by the name of a service. Pure.

OpenTelemetry calls what a program reports as ``service.name``; unless somebody sets another, that is the name of the workload or
container. Nothing is fetched here: traces are looked at where they are.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple
from urllib.parse import urlencode

from drumlin.kg.config.datasources import DatasourceKind
from drumlin.kg.telemetry.quoting import quote
from drumlin.kg.telemetry.series import Window

KINDS: Mapping[str, Sequence[DatasourceKind]] = {"traces": ("jaeger", "tempo"), "profiles": ("pyroscope",)}
"""Signal → the datasources that hold it."""
CLASSES: Mapping[str, str] = {"traces": "TraceQuery", "profiles": "ProfileQuery"}
"""Signal → the class of its distributions."""
SCOPES = frozenset({"Workload", "ContainerInstance"})
"""Scopes of entities that are services."""
_LIMIT = "20"  # traces of one answer, as each of the servers gives by default


class Request(NamedTuple):
    """What is sent to a server for a window: a GET of ``path`` with ``form``."""

    path: str
    form: Mapping[str, str]


def query(kind: DatasourceKind, service: str) -> str:
    """Return the query for a service in the language of a server: TraceQL for Tempo, a profile selector for Pyroscope."""
    if kind == "jaeger":
        return urlencode({"service": service})
    if kind == "tempo":
        return f"{{ resource.service.name = {quote(service)} }}"
    return f"process_cpu:cpu:nanoseconds:cpu:nanoseconds{{service_name={quote(service)}}}"


def request(kind: DatasourceKind, service: str, window: Window) -> Request:
    """Return what a server is sent for a service in a window: Jaeger takes microseconds, Tempo seconds, Pyroscope milliseconds."""
    start, end = (int(each.timestamp()) for each in (window.start, window.end))
    if kind == "jaeger":
        form = {"service": service, "start": f"{start}000000", "end": f"{end}000000", "limit": _LIMIT}
        return Request("/api/traces", form)
    if kind == "tempo":
        form = {"q": query(kind, service), "start": str(start), "end": str(end), "limit": _LIMIT}
        return Request("/api/search", form)
    form = {"query": query(kind, service), "from": f"{start}000", "until": f"{end}000", "format": "json"}
    return Request("/pyroscope/render", form)
