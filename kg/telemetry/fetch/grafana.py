"""Datasources of a Grafana, by its HTTP API: https://grafana.com/docs/grafana/latest/developers/http_api/data_source/.

Only uid, name, type, address and interval are taken of what it tells; users, header names and everything it calls secure are not read.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping

import msgspec

from drumlin.kg.config.datasources import DatasourceKind
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.fetch.connection import UNREADABLE, DatasourceRequest, Fetcher, ServerMessage

KINDS: Mapping[str, DatasourceKind] = {
    "prometheus": "prometheus",  # Thanos, Mimir and VictoriaMetrics too
    "grafana-amazonprometheus-datasource": "prometheus",
    "victoriametrics-metrics-datasource": "prometheus",
    "loki": "loki",
    "influxdb": "influxdb",
    "jaeger": "jaeger",
    "tempo": "tempo",
    "grafana-pyroscope-datasource": "pyroscope",
}
"""Grafana's type → what it is here; other types are not imported."""


class _Options(msgspec.Struct):
    timeInterval: str = ""


class GrafanaDatasource(msgspec.Struct):
    """One datasource as Grafana lists it."""

    uid: str
    name: str
    type: str
    url: str = ""
    jsonData: _Options | None = None

    @property
    def interval(self) -> str:
        """How often it is scraped, or nothing when Grafana does not say."""
        return self.jsonData.timeInterval if self.jsonData else ""


class _Refusal(msgspec.Struct):
    message: str = ""


class Grafana(Fetcher):
    """One configured Grafana. Raises ``SourceUnavailable`` (no answer) and ``DatasourceRefused`` (an error as answer)."""

    def __init__(self, datasource: Datasource, *, sleep: Callable[[float], None] = time.sleep) -> None:
        super().__init__(datasource, _told, sleep=sleep)

    def version(self) -> str:
        """Return the server's version; it answers that without a credential too."""
        body = self._connection.ask(DatasourceRequest("GET", "/api/health", {}, "its health"))
        try:
            said = msgspec.json.decode(body, type=dict[str, object])
        except UNREADABLE as error:
            raise self._connection.not_its_api("something that is not Grafana's JSON", "its health") from error
        return str(said.get("version", "unknown"))

    def datasources(self) -> list[GrafanaDatasource]:
        """Return all datasources that the credential may see."""
        body = self._connection.ask(DatasourceRequest("GET", "/api/datasources", {}, "its datasources"))
        try:
            return msgspec.json.decode(body, type=list[GrafanaDatasource])
        except UNREADABLE as error:
            raise self._connection.not_its_api("something that is not Grafana's JSON", "its datasources") from error


def _told(_status: int, body: bytes) -> ServerMessage:
    try:
        return ServerMessage(msgspec.json.decode(body, type=_Refusal).message)
    except UNREADABLE:
        return ServerMessage(body[:300].decode(errors="replace"))
