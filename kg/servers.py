"""The servers elsewhere that the configuration names: those that hold telemetry, and the engine of a store that is not embedded.

Apart from ``kg.settings`` because those who talk to a server need only this of the configuration. Credentials are never values
here, only references (``env:NAME`` or ``file:PATH``), read again on every use.
"""

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    FileUrl,
    StringConstraints,
    field_validator,
    model_validator,
)

DatasourceKind = Literal["prometheus", "loki", "grafana", "influxdb", "jaeger", "parquet"]
Reference = Annotated[str, StringConstraints(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$")]
_FROZEN = ConfigDict(frozen=True, extra="forbid")


class TenantHeader(BaseModel):
    """The header by which a multi-tenant backend (Mimir, Cortex, Loki) knows whose data is asked for."""

    model_config = _FROZEN
    name: str = Field("X-Scope-OrgID", pattern=r"^[A-Za-z0-9-]+$", description="Name of the header.")
    value: str = Field(pattern=r"^[\x21-\x7e]+$", description="The tenant's id.")


class Credential(BaseModel):
    """How to authenticate: Bearer when only ``secret`` is given, Basic with ``username`` too."""

    model_config = _FROZEN
    secret: Reference = Field(description="Where the token or password is: env:NAME or file:PATH, read on every use.")
    username: str | None = Field(None, description="User name for Basic authentication; absent for a Bearer token.")


class TlsSettings(BaseModel):
    """Whom the connections to a server trust, and as whom they come; all are paths of PEM files."""

    model_config = _FROZEN
    ca: Path | None = Field(
        None, description="Certificates of the CA that signed the server's; the system's when absent."
    )
    certificate: Path | None = Field(None, description="Client certificate, for servers that ask for one.")
    key: Path | None = Field(None, description="Key of the client certificate, when it is not in the same file.")


class SeriesSettings(BaseModel):
    """Where an InfluxDB keeps one metric: a field of a measurement, one series per pod or node, told apart by tags."""

    model_config = _FROZEN
    measurement: str = Field(min_length=1, description="Name of the measurement.")
    field: str = Field(min_length=1, description="Name of the field.")
    read: Literal["gauge", "rate", "increase"] = Field(
        "gauge",
        description="gauge: the mean per step; rate, increase: of a counter, per second or per step, resets left out.",
    )
    across: Literal["sum", "mean", "max"] = Field("sum", description="How a gauge's series become one.")
    where: dict[str, str] = Field({}, description="Tags that the series have besides: tag → value.")
    scale: float = Field(1.0, description="What values are multiplied with to be in the metric's unit.")

    @model_validator(mode="after")
    def _counters_add_up(self) -> Self:
        if self.read != "gauge" and self.across != "sum":
            raise ValueError(f"a counter's series are added up; across = {self.across!r} is for gauges")
        return self


class DatasourceSettings(BaseModel):
    """One server that holds telemetry. Only datasources that stand here are ever fetched from."""

    model_config = _FROZEN
    name: str = Field(min_length=1, description="Name; becomes {base}/id/datasource/{name}.")
    kind: DatasourceKind = Field(description="What the server speaks.")
    url: Annotated[
        AnyHttpUrl | FileUrl, Field(description="Address that the API's path is appended to; no credentials inside.")
    ]
    service: str | None = Field(
        None,
        pattern=r"^[^/]+/[^/]+$",
        description="namespace/name of the Service that this is, so that discovery does not add it again.",
    )
    tenant_header: TenantHeader | None = Field(None, description="Header that names the tenant.")
    credential: Credential | None = Field(None, description="Reference to the credential.")
    tls: TlsSettings = Field(TlsSettings(), description="Certificates of its connections.")
    parameters: dict[str, str] = Field(
        {}, description="Sent with each query: dedup, partial_response (Thanos), nocache (VictoriaMetrics)."
    )
    headers: dict[
        Annotated[str, StringConstraints(pattern=r"^[A-Za-z0-9-]+$")],
        Annotated[str, StringConstraints(pattern=r"^[\x20-\x7e]*$")],
    ] = Field({}, description="Sent with each request; for what is no credential.")
    database: str | None = Field(None, min_length=1, description="InfluxDB: name of the database.")
    series: dict[str, SeriesSettings] = Field(
        {}, description='InfluxDB: where it keeps metrics, by template: [datasource.series."workload.mem_usage"].'
    )
    metrics: Literal["all", "scraped"] = Field(
        "all",
        description="Prometheus: whose metrics it holds; scraped = workloads that prometheus.io/scrape or a monitor names.",
    )
    namespaces: tuple[str, ...] = Field(
        (), description="Namespaces whose workloads it knows, as patterns (`team-*`); all when there are none."
    )
    labels: dict[str, str] = Field(
        {},
        description="Label names that differ here: template's label → this server's label; InfluxDB: tags (namespace, pod, node);"
        " Parquet: columns (unique_id, ds, y, metric).",
    )
    jobs: dict[str, str] = Field(
        {}, description="Job names that differ here: template's job → this server's job ('' drops the matcher)."
    )
    logs: Literal["all", "injected"] = Field(
        "all",
        description="Loki: which pods' logs it holds; injected = pods with the fluentd-sidecar-injector annotation.",
    )
    dashboards: dict[Literal["workload", "node", "domain", "cluster"], str] = Field(
        {},
        description="Grafana: URL template per scope; {cluster} {namespace} {kind} {name} {from} {to} are replaced, percent-encoded.",
    )
    scrape_interval: Annotated[str, StringConstraints(pattern=r"^(auto|[0-9]+(ms|s|m|h))$")] = Field(
        "auto",
        description="How often targets are scraped, on which rate windows depend; `auto` asks the server (30s where it does not say).",
    )
    timeout: float = Field(30.0, gt=0, le=600, description="Seconds until a request to it is given up.")
    concurrency: int = Field(4, ge=1, le=32, description="Requests to it at one time (Prometheus' own limit is 20).")
    max_samples: int = Field(
        50_000_000, ge=1000, description="Samples that one query may load there: Prometheus' --query.max-samples."
    )

    @field_validator("url")
    @classmethod
    def _no_credentials(cls, url: AnyHttpUrl | FileUrl) -> AnyHttpUrl | FileUrl:
        if url.username or url.password:
            raise ValueError("credentials inside a URL are not allowed; use 'credential'")
        return url

    @field_validator("headers")
    @classmethod
    def _no_secret_headers(cls, headers: dict[str, str]) -> dict[str, str]:
        if secret := {name.lower() for name in headers} & {"authorization", "cookie", "proxy-authorization"}:
            raise ValueError(f"{', '.join(sorted(secret))} is a credential; use 'credential'")
        return headers

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if (self.url.scheme == "file") != (self.kind == "parquet"):
            raise ValueError("a parquet datasource has a file:// url, and only such a one")
        if (self.database is None) == (self.kind == "influxdb"):
            raise ValueError("an influxdb datasource names its database, and only such a one")
        if self.series and self.kind != "influxdb":
            raise ValueError(f"series tell where an influxdb keeps metrics; this is {self.kind}")
        return self


class StoreSettings(BaseModel):
    """The engine that ``--store sparql+http(s)://…`` names. Nothing here concerns the embedded store."""

    model_config = _FROZEN
    engine: Literal["oxigraph", "virtuoso"] | None = Field(
        None, description="What the engine behaves like; without it the engine's own Server header says."
    )
    query: AnyHttpUrl | None = Field(None, description="Address of its query operation [the engine's usual one].")
    update: AnyHttpUrl | None = Field(None, description="Address of its update operation [the engine's usual one].")
    credential: Credential | None = Field(None, description="Reference to the credential.")
    authentication: Literal["basic", "digest"] | None = Field(
        None, description="How user name and secret are sent [Oxigraph: basic, Virtuoso: digest]."
    )
    tls: TlsSettings = Field(TlsSettings(), description="Certificates of its connections.")
    timeout: float = Field(30.0, gt=0, le=600, description="Seconds until a request to it is given up.")
    rows: int | None = Field(
        None, ge=1000, description="Virtuoso: its ResultSetMaxRows, the most rows that it answers [10,000]."
    )
