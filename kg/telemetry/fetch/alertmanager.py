"""Alerts of an Alertmanager, by its HTTP API v2: https://github.com/prometheus/alertmanager/blob/main/api/v2/openapi.yaml."""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Literal, TypeVar

import msgspec

from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.connection import UNREADABLE, DatasourceRequest, Fetcher, ServerMessage

T = TypeVar("T")


class AlertStatus(msgspec.Struct):
    """What the Alertmanager does about an alert: ``suppressed`` by silences or by other alerts."""

    state: Literal["active", "suppressed", "unprocessed"] = "active"
    silencedBy: list[str] = []
    inhibitedBy: list[str] = []


class ManagedAlert(msgspec.Struct):
    """An alert as the Alertmanager lists it; it is firing."""

    labels: dict[str, str]
    annotations: dict[str, str] = {}
    startsAt: str = ""
    generatorURL: str = ""
    status: AlertStatus = msgspec.field(default_factory=AlertStatus)


class _VersionInfo(msgspec.Struct):
    version: str = "unknown"


class _Server(msgspec.Struct):
    versionInfo: _VersionInfo


class Alertmanager(Fetcher):
    """One configured Alertmanager. Raises ``SourceUnavailable`` (no answer) and ``DatasourceRefused`` (an error as answer)."""

    def __init__(self, datasource: Datasource, *, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(datasource, _told, sleep=sleep)

    def version(self) -> str:
        """Return the server's version."""
        return self._read(DatasourceRequest("GET", "/api/v2/status", {}, "its status"), _Server).versionInfo.version

    def alerts(self) -> list[ManagedAlert]:
        """Return all alerts, silenced and inhibited ones too."""
        return self._read(DatasourceRequest("GET", "/api/v2/alerts", {}, "alerts"), list[ManagedAlert])

    def _read(self, request: DatasourceRequest, kind: type[T]) -> T:
        body = self._connection.ask(request)
        try:
            return msgspec.json.decode(body, type=kind)
        except UNREADABLE as error:
            raise self._connection.not_its_api(
                "something that is not the Alertmanager's JSON", request.asked
            ) from error


def _told(_status: int, body: bytes) -> ServerMessage:
    """Read a refusal: a JSON string, or an object with ``message``."""
    try:
        said = msgspec.json.decode(body)
    except UNREADABLE:
        return ServerMessage(body[:300].decode(errors="replace"))
    return ServerMessage(str(said.get("message", said) if isinstance(said, dict) else said)[:300])
