"""The configuration, as one frozen tree: defaults < ``drumlin.toml`` < environment (``DRUMLIN_*``) < command line.

Credentials are never values here, only references (``env:NAME`` or ``file:PATH``), read again on every use.
"""

from __future__ import annotations

import os
import tomllib
from collections.abc import Mapping
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    FileUrl,
    StringConstraints,
    ValidationError,
    field_validator,
    model_validator,
)
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from kg.errors import InvalidIdentifier, InvalidSettings
from kg.iris import RESERVED, Iris
from kg.resources import ResourceSettings

DatasourceKind = Literal["prometheus", "loki", "grafana", "influxdb", "jaeger", "parquet"]
Reference = Annotated[str, StringConstraints(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$")]
_FROZEN = ConfigDict(frozen=True, extra="forbid")

_FILE: ContextVar[Mapping[str, Any]] = ContextVar("drumlin_toml", default=MappingProxyType({}))

DEFAULT_LABELS = (
    "app.kubernetes.io/name",
    "app.kubernetes.io/instance",
    "app.kubernetes.io/component",
    "app.kubernetes.io/part-of",
    "topology.kubernetes.io/zone",
    "team",
)


DEFAULT_EXPORTERS = ("cadvisor", "node-exporter", "kepler")


class DomainSettings(BaseModel):
    """The hosting domain: the participant whose cluster this is. A GlaciationNode is a domain with a url."""

    model_config = _FROZEN
    id: str = Field("local", min_length=1, description="Id of the hosting domain; becomes {base}/id/domain/{id}.")
    type: Literal["Domain", "GlaciationNode"] = Field("Domain", description="Class of the hosting domain.")
    url: AnyHttpUrl | None = Field(None, description="Address of the site; needed for a GlaciationNode.")
    role: tuple[Literal["Master", "Lite", "Autonomy"], ...] = Field(
        (), description="Roles of the domain (Kuscia's words)."
    )


class ContextSettings(BaseModel):
    """A Kubernetes cluster to follow: how it is reached, how its entities are named, what of it is followed."""

    model_config = _FROZEN
    name: str | None = Field(None, min_length=1, description="The kubeconfig's context [the current one].")
    cluster: str | None = Field(
        None,
        min_length=1,
        description="Name of the cluster, second segment of its objects' ids [`cluster` for the first, else the context].",
    )
    namespace: str | None = Field(None, min_length=1, description="Follow this namespace only.")
    label_selector: str | None = Field(
        None,
        min_length=1,
        description="Follow objects of namespaces with these labels only, in the API's syntax (`team=shop,tier!=test`).",
    )


class RetentionSettings(BaseModel):
    """How long tombstones stay, in days after the deletion."""

    model_config = _FROZEN
    days: float = Field(90.0, ge=0, description="Days that a tombstone is kept.")
    classes: dict[str, Annotated[float, Field(ge=0)]] = Field(
        {"Pod": 14.0}, description="Days for entities of a class, where they differ: pods come and go."
    )


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


class Settings(BaseSettings):
    """All of it. Every field can be set as ``DRUMLIN_<NAME>``; nested ones with ``__`` (``DRUMLIN_DOMAIN__ID``)."""

    model_config = SettingsConfigDict(
        frozen=True, extra="forbid", env_prefix="DRUMLIN_", env_nested_delimiter="__", validate_default=True
    )
    base: str = Field(
        "http://localhost:8080",
        description="Base of all IRIs; fixed for the life of a store, never taken from a request.",
    )
    cluster: str = Field("local", min_length=1, description="Name of the cluster; second segment of its objects' ids.")
    domain: DomainSettings = Field(DomainSettings(), description="The hosting domain.")
    datasource: tuple[DatasourceSettings, ...] = Field((), description="Servers that hold telemetry.")
    discover: bool = Field(
        True,
        description="Add a datasource for each Service named prometheus, loki or grafana (app.kubernetes.io/name).",
    )
    exporters: tuple[str, ...] = Field(
        DEFAULT_EXPORTERS,
        description="Exporters that Prometheus scrapes; entities get the metrics of these and no others (docs/reference/metrics.md).",
    )
    labels: tuple[str, ...] = Field(
        DEFAULT_LABELS,
        description="Labels that are kept (exact keys, or a prefix ending in *); all others are dropped.",
    )
    context: tuple[ContextSettings, ...] = Field(
        (), description="Clusters that `--source kubernetes` follows, each a `[[context]]` table (docs/kubernetes.md)."
    )
    retention: RetentionSettings = Field(RetentionSettings(), description="How long tombstones stay.")
    mappings: tuple[str, ...] = Field(
        (), description="Custom resources to follow: `kuscia`, or paths of TOML files of `[[resource]]` tables."
    )
    resource: tuple[ResourceSettings, ...] = Field(
        (), description="Custom resources to follow, each a `[[resource]]` table (docs/kubernetes.md)."
    )
    store: StoreSettings = Field(StoreSettings(), description="The engine behind --store sparql+http(s)://…")
    log_retention: float = Field(
        7.0,
        gt=0,
        le=36500,
        description="Days that the change log reaches back, for those who follow it (embedded store).",
    )
    log_bytes: int = Field(
        1024 * 1024 * 1024,
        ge=1024 * 1024,
        description="Bytes that the change log may take (about 230 a write); then its oldest changes go before their time.",
    )
    query_timeout: float = Field(30.0, gt=0, le=3600, description="Seconds until a SPARQL query is given up.")
    query_memory: int = Field(
        1024 * 1024 * 1024, ge=64 * 1024 * 1024, description="Bytes of memory that one SPARQL query may take."
    )
    query_concurrency: int = Field(64, ge=1, description="SPARQL queries of one client that may run at one time.")
    query_kills: int = Field(
        20,
        ge=1,
        description="SPARQL queries of one client, within a minute, that may run into their time or memory limit.",
    )
    readers: int | None = Field(
        None, ge=1, le=256, description="Processes that answer SPARQL queries [processors + 1]."
    )
    slow_query: float = Field(1.0, gt=0, description="Seconds from which a SPARQL query is logged, by its digest.")
    series_cache_bytes: int = Field(
        512 * 1024 * 1024,
        ge=0,
        description="Bytes of finished days of series that are kept beside the store; 0 keeps none.",
    )
    document_bytes: int = Field(1024 * 1024, ge=1024, description="Largest document accepted, in bytes.")
    queries: Path | None = Field(
        None, description="Directory of more saved queries (*.rq), beside those that come along."
    )
    cors: tuple[str, ...] = Field(
        (), description="Origins whose web pages may call the service (https://grafana.example, or *); none when empty."
    )
    require_if_match: bool = Field(
        False, description="Refuse (428) a write to a graph without If-Match or If-None-Match."
    )
    query_bytes: int = Field(1024 * 1024, ge=1024, description="Longest SPARQL text accepted, in bytes.")

    @field_validator("base")
    @classmethod
    def _base_mints(cls, base: str) -> str:
        try:
            return Iris(base).base
        except InvalidIdentifier as error:
            raise ValueError(str(error)) from error

    @field_validator("cluster")
    @classmethod
    def _cluster_not_reserved(cls, cluster: str) -> str:
        if cluster in RESERVED:
            raise ValueError(f"{cluster!r} is reserved; give the cluster another name")
        return cluster

    @field_validator("datasource")
    @classmethod
    def _names_differ(cls, found: tuple[DatasourceSettings, ...]) -> tuple[DatasourceSettings, ...]:
        names = [each.name for each in found]
        if len(set(names)) < len(names):
            raise ValueError("two datasources have the same name")
        return found

    @property
    def clusters(self) -> dict[str, ContextSettings]:
        """The clusters to follow, by name; the first one is the hosting domain's own."""
        first, *others = self.context or (ContextSettings.model_validate({}),)
        return {first.cluster or self.cluster: first} | {each.cluster or each.name or "": each for each in others}

    def of_cluster(self, name: str) -> Self:
        """Return the same settings for another cluster."""
        return self.model_copy(update={"cluster": name})

    @model_validator(mode="after")
    def _clusters_have_names(self) -> Self:
        names = [self.cluster, *(each.cluster or each.name for each in self.context[1:])]
        names[0] = self.context[0].cluster or self.cluster if self.context else self.cluster
        if None in names:
            raise ValueError("a second cluster has neither a name nor a context")
        if len(set(names)) < len(names):
            raise ValueError("two contexts name the same cluster")
        if reserved := [each for each in names if each in RESERVED]:
            raise ValueError(f"{reserved[0]!r} is reserved; give the cluster another name")
        return self

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],
        init_settings: PydanticBaseSettingsSource,
        env_settings: PydanticBaseSettingsSource,
        dotenv_settings: PydanticBaseSettingsSource,
        file_secret_settings: PydanticBaseSettingsSource,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        """Order of precedence: command line, environment, file (the one that ``load`` reads)."""
        del dotenv_settings, file_secret_settings  # credentials and configuration come from nowhere else
        return (init_settings, env_settings, InitSettingsSource(settings_cls, init_kwargs=dict(_FILE.get())))

    @classmethod
    def load(cls, path: Path | None = None, **overrides: Any) -> Self:
        """Read the configuration; ``overrides`` are the command line's (None means not given).

        Without ``path``, ``DRUMLIN_CONFIG`` or ``./drumlin.toml`` is taken where it exists. Raises ``InvalidSettings`` naming the
        field and what is wrong with it.
        """
        given = path or (Path(os.environ["DRUMLIN_CONFIG"]) if os.environ.get("DRUMLIN_CONFIG") else None)
        file = given or Path("drumlin.toml")
        content: dict[str, Any] = {}
        if given or file.is_file():
            try:
                content = tomllib.loads(file.read_text(encoding="utf-8"))
            except (OSError, UnicodeDecodeError, tomllib.TOMLDecodeError) as error:
                raise InvalidSettings(f"{file}: {error}") from error
        reading = _FILE.set(content)
        try:
            return cls(**{name: value for name, value in overrides.items() if value is not None})
        except ValidationError as error:
            first = error.errors(include_url=False, include_input=False)[0]
            where = ".".join(str(part) for part in first["loc"])
            raise InvalidSettings(
                f"{file}: {where}: {first['msg']}" if content else f"{where}: {first['msg']}"
            ) from error
        finally:
            _FILE.reset(reading)
