"""The servers elsewhere that the configuration names: those that hold telemetry, and the engine of a store that is not embedded.

Apart from ``kg.config.settings`` because those who talk to a server need only this of the configuration. Credentials are never values
here, only references (``env:NAME`` or ``file:PATH``), read again on every use.
"""

from __future__ import annotations

import re
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import (
    AnyHttpUrl,
    BaseModel,
    ConfigDict,
    Field,
    FileUrl,
    StringConstraints,
    ValidationInfo,
    field_validator,
    model_validator,
)

DatasourceKind = Literal[
    "prometheus", "loki", "grafana", "influxdb", "jaeger", "tempo", "pyroscope", "alertmanager", "parquet"
]
ProfileName = Literal[
    "kube-prometheus-stack",
    "kube-prometheus",
    "openshift",
    "prometheus-chart",
    "k8s-monitoring",
    "aks",
    "gke",
    "eks-amp",
    "otel-collector",
    "k3s",
]
"""The installations whose names are known; ``kg.telemetry.profiles`` has the table."""
NodeJoin = Literal["label", "node_uname_info", "kube_node_info"]
"""How node-exporter's series are matched to a node: by a label with its name, or by a join where their `instance` is an address."""
Reference = Annotated[str, StringConstraints(pattern=r"^(env:[A-Za-z_][A-Za-z0-9_]*|file:.+)$")]
EXPORTERS = ("cadvisor", "kubelet", "kube-state-metrics", "node-exporter", "kepler", "dcgm")
"""Exporters whose labels and jobs can be named apart from those of the others."""
_FROZEN = ConfigDict(frozen=True, extra="forbid")
HOLES = ("{cluster}", "{domain}")
"""What stands in a matcher's value for the entity's cluster and domain."""
_HOLE = re.compile(r"\{[^{}]*\}")
_LABEL = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")


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
        description="namespace/name of the Service that this is, where its url does not lead there (an ingress): discovery does not"
        " add it again.",
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
    clusters: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = Field(
        (),
        description="Clusters whose telemetry it holds, by Drumlin's names; any that `matchers` can tell apart when there are none.",
    )
    domains: tuple[Annotated[str, StringConstraints(min_length=1)], ...] = Field(
        (), description="Domains whose telemetry it holds, by id; all of those clusters when there are none."
    )
    matchers: dict[str, str] = Field(
        {},
        description="Labels that every selector sent to it has, by this server's names: `{cluster}` and `{domain}` stand for the"
        ' entity\'s (`cluster = "{cluster}"`); InfluxDB: tags.',
    )
    profile: ProfileName | None = Field(
        None,
        description="Prometheus: the installation whose names its series have (docs/installations.md); kube-prometheus's when absent."
        " `drumlin datasources` guesses it.",
    )
    labels: dict[str, str | dict[str, str]] = Field(
        {},
        description="Label names that differ here: template's label → this server's label ('' drops its matcher), also for one exporter"
        ' (`kube-state-metrics = { pod = "exported_pod" }`); InfluxDB: tags (namespace, pod, node); Parquet: columns (unique_id, ds, y,'
        " metric).",
    )
    jobs: dict[str, str] = Field(
        {},
        description="Job names that differ here: template's job, or exporter → this server's job ('' drops the matcher; a regular"
        " expression begins with `=~`).",
    )
    nodes: NodeJoin | None = Field(
        None,
        description="Prometheus: how node-exporter's series are matched to a node: by a label, or joined through `node_uname_info` or"
        " `kube_node_info` where their `instance` is an address [the profile's way].",
    )
    recorded: bool = Field(
        False,
        description="Prometheus: whether the mixins' recording rules are asked where raw series are missing.",
    )
    logs: Literal["all", "injected"] = Field(
        "all",
        description="Loki: which pods' logs it holds; injected = pods with the fluentd-sidecar-injector annotation.",
    )
    dashboards: dict[
        Literal["workload", "node", "namespace", "domain", "cluster", "logs", "virtualmachine", "containerinstance"],
        str,
    ] = Field(
        {},
        description="Grafana, Jaeger, Tempo, Pyroscope: URL template per scope, `logs` for logs; {cluster} {namespace} {kind} {name} {from}"
        " {to} are replaced, percent-encoded.",
    )
    scrape_interval: Annotated[str, StringConstraints(pattern=r"^(auto|[0-9]+(ms|s|m|h))$")] = Field(
        "auto",
        description="How often targets are scraped, on which rate windows depend; `auto` asks the server (30s where it does not say).",
    )
    language: Literal["auto", "promql", "metricsql"] = Field(
        "auto",
        description="Prometheus: what it computes counters with; metricsql = VictoriaMetrics, whose rate and increase are others;"
        " `auto` asks the server.",
    )
    doubled: bool | Literal["auto"] = Field(
        "auto",
        description="Prometheus: whether anything is scraped more than once (a second kubelet Service, replicas), so that queries make one"
        " of it, which costs the server twice the work; `auto` looks.",
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

    @field_validator("matchers")
    @classmethod
    def _matchers_can_be_filled(cls, matchers: dict[str, str]) -> dict[str, str]:
        for label, value in matchers.items():
            if not _LABEL.fullmatch(label):
                raise ValueError(f"matchers: {label!r} is not a label name")
            if unknown := [each for each in _HOLE.findall(value) if each not in HOLES]:
                raise ValueError(f"matchers: nothing fills {unknown[0]} of {label}; there are {' and '.join(HOLES)}")
        return matchers

    @field_validator("jobs")
    @classmethod
    def _jobs_can_be_matched(cls, jobs: dict[str, str]) -> dict[str, str]:
        for job, own in jobs.items():
            try:
                re.compile(own.removeprefix("=~"))
            except re.error as error:
                if own.startswith("=~"):
                    raise ValueError(f"{own!r} for {job} is not a regular expression: {error}") from error
        return jobs

    @field_validator("labels", mode="before")
    @classmethod
    def _labels_are_names(cls, labels: object, given: ValidationInfo) -> object:
        """Refuse what no selector can name; tags and columns are named more freely."""
        if isinstance(labels, dict):
            for usual, own in labels.items():
                _renamed(str(usual), own, given.data.get("kind"))
        return labels

    @model_validator(mode="after")
    def _naming_is_of_prometheus(self) -> Self:
        given = {"profile": self.profile, "nodes": self.nodes, "recorded": self.recorded or None}
        if self.kind != "prometheus" and (first := next((name for name, value in given.items() if value), None)):
            raise ValueError(f"{first} is for prometheus; this is {self.kind}")
        return self

    @model_validator(mode="after")
    def _clusters_are_told_apart(self) -> Self:
        holes = {hole for value in self.matchers.values() for hole in HOLES if hole in value}
        if len(self.clusters) > 1 and not holes and self.kind != "parquet":
            raise ValueError(
                "it holds several clusters, so a label has to tell them apart:"
                ' matchers = { cluster = "{cluster}" }, or a table for each cluster'
            )
        if self.matchers and self.kind not in ("prometheus", "loki", "influxdb", "alertmanager"):
            raise ValueError(f"matchers are for prometheus, loki, influxdb and alertmanager; this is {self.kind}")
        return self

    @model_validator(mode="after")
    def _fits_its_kind(self) -> Self:
        if (self.url.scheme == "file") != (self.kind == "parquet"):
            raise ValueError("a parquet datasource has a file:// url, and only such a one")
        if (self.database is None) == (self.kind == "influxdb"):
            raise ValueError("an influxdb datasource names its database, and only such a one")
        if self.language != "auto" and self.kind != "prometheus":
            raise ValueError(f"language is for a prometheus datasource; this is {self.kind}")
        if self.series and self.kind != "influxdb":
            raise ValueError(f"series tell where an influxdb keeps metrics; this is {self.kind}")
        return self


def _renamed(usual: str, own: object, kind: str | None) -> None:
    """Raise ``ValueError`` for a label that is renamed from or to something invalid; ``own`` is a name, empty, or an exporter's table."""
    if isinstance(own, dict):
        if kind != "prometheus":
            raise ValueError(f"labels of one exporter ({usual}) are for prometheus; this is {kind}")
        if usual not in EXPORTERS:
            raise ValueError(f"there is no exporter {usual!r}; there are {', '.join(EXPORTERS)}")
        for label, renamed in own.items():
            _named(f"{usual}: ", str(label), renamed)
    elif kind in ("prometheus", "loki"):
        _named("", usual, own)


def _named(where: str, usual: str, own: object) -> None:
    for name in (usual, own or usual):
        if not isinstance(name, str) or not _LABEL.fullmatch(name):
            raise ValueError(f"{where}{name!r} is not a label name: letters, digits and underscores, no digit first")


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
