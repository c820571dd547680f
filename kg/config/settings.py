"""The configuration, as one frozen tree: defaults < ``drumlin.toml`` < environment (``DRUMLIN_*``) < command line."""

from __future__ import annotations

import os
import re
import tomllib
from collections.abc import Mapping, Sequence
from contextvars import ContextVar
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import (
    BaseSettings,
    InitSettingsSource,
    PydanticBaseSettingsSource,
    SettingsConfigDict,
    SettingsError,
)

from drumlin.kg.config.custom_resources import ResourceSettings
from drumlin.kg.config.datasources import DatasourceSettings, StoreSettings
from drumlin.kg.config.depends_on import DependsOnSettings
from drumlin.kg.config.explaining import explained, meant, model_in, place
from drumlin.kg.config.issuers import IssuerSettings, TokenReviewSettings
from drumlin.kg.config.peers import PeerSettings
from drumlin.kg.errors import InvalidIdentifier, InvalidSettings
from drumlin.kg.model.authority import parse_address, parse_authority, parse_origin
from drumlin.kg.model.iris import RESERVED, Iris, is_plain_segment

DEFAULT_EXPORTERS = ("cadvisor", "node-exporter", "kepler")
"""What Prometheus is taken to scrape, unless the configuration says otherwise."""

KUSCIA_NODE_LABEL = "kuscia.secretflow/namespace"
"""Label of nodes by which Kuscia says whose they are; a domain and its namespace have one name."""

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


class SiteSettings(BaseModel):
    """One of several sites (GNodes) in the cluster, to which a label of the nodes assigns them."""

    model_config = _FROZEN
    id: str = Field(min_length=1, description="Value of the label; becomes {base}/id/domain/{id}.")
    type: Literal["Domain", "GlaciationNode"] = Field("Domain", description="Class of the site.")
    url: AnyHttpUrl | None = Field(None, description="Address of the site; needed for a GlaciationNode.")
    role: tuple[Literal["Master", "Lite", "Autonomy"], ...] = Field((), description="Roles of the site.")

    @model_validator(mode="after")
    def _glaciation_nodes_have_urls(self) -> Self:
        if self.type == "GlaciationNode" and self.url is None:
            raise ValueError(f"the GlaciationNode {self.id} needs a url")
        return self


class DomainSettings(BaseModel):
    """The hosting domain: the participant whose cluster this is. A GlaciationNode is a domain with a url."""

    model_config = _FROZEN
    id: str = Field("local", min_length=1, description="Id of the hosting domain; becomes {base}/id/domain/{id}.")
    type: Literal["Domain", "GlaciationNode"] = Field("Domain", description="Class of the hosting domain.")
    url: AnyHttpUrl | None = Field(None, description="Address of the site; needed for a GlaciationNode.")
    role: tuple[Literal["Master", "Lite", "Autonomy"], ...] = Field(
        (), description="Roles of the domain (Kuscia's words)."
    )
    node_label: str | None = Field(
        None,
        min_length=1,
        description="Label of nodes whose value is the id of the domain (GNode) that a node belongs to; without it, this one.",
    )
    site: tuple[SiteSettings, ...] = Field(
        (), description="What those domains are, each a `[[domain.site]]` table; one without a table is a Domain."
    )

    def of_node(self, labels: Mapping[str, str]) -> str:
        """Return the id of the domain that a node with these labels belongs to: without sites, the one that Kuscia's label names."""
        return labels.get(self.node_label or KUSCIA_NODE_LABEL) or self.id

    @model_validator(mode="after")
    def _sites_are_told_apart(self) -> Self:
        ids = [each.id for each in self.site]
        if len(set(ids)) < len(ids) or self.id in ids:
            raise ValueError("two sites have the same id, or that of the hosting domain")
        if self.site and self.node_label is None:
            raise ValueError("sites need node_label: the label of nodes that tells them apart")
        return self


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


class LegacySettings(BaseModel):
    """The HTTP interface of the public peer's metadata service, for clients that speak it."""

    model_config = _FROZEN
    enabled: bool = Field(False, description="Serve `/api/v0/graph` to clients of the public peer (docs/legacy.md).")


class MetricsSettings(BaseModel):
    """Where ``drumlin follow`` reports how it is doing. A group, since ``DRUMLIN_METRICS_PORT`` is what Kubernetes sets for a Service."""

    model_config = _FROZEN
    port: int | None = Field(None, ge=0, le=65535, description="Port to listen on; 0 takes a free one, none is off.")
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")


class ElectionSettings(BaseModel):
    """Of several processes that could follow a cluster one does: the holder of a Lease in that cluster."""

    model_config = _FROZEN
    lease: str | None = Field(
        None,
        pattern=r"^[a-z0-9]([-a-z0-9.]{0,251}[a-z0-9])?$",
        description="Name of the Lease, the same for all processes before one store [no election].",
    )
    namespace: str = Field(
        "drumlin", pattern=r"^[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?$", description="Its namespace, in each cluster."
    )
    seconds: int = Field(
        8, ge=2, le=60, description="Seconds without a renewal after which another process takes over."
    )
    identity: str | None = Field(
        None, pattern=r"^[^\s_{}]{1,200}$", description="Name of this process in the Lease [its host name]."
    )
    address: str | None = Field(
        None,
        pattern=r"^https?://.*\{host\}",
        description="Address at which a process is reached, `{host}` being its name in the Lease: what agents send goes on to the leader.",
    )


class CertificateSettings(BaseModel):
    """The certificate that the service itself shows; where an ingress or a proxy does, nobody needs it."""

    model_config = _FROZEN
    certificate: Path = Field(description="File with its certificate and those above it (PEM); read when it starts.")
    key: Path = Field(description="File with the private key (PEM, without a password).")


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
    own_metrics: int = Field(
        100,
        ge=0,
        le=1000,
        description="Most metrics that a workload's pods expose themselves and that are listed, looked for once a day; 0: none.",
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
    strict_ready: bool = Field(
        False,
        description="Whether `/readyz` is 503 while a cluster that was read once cannot be followed, not only until then.",
    )
    relist_minutes: float = Field(
        30.0,
        ge=0,
        le=10_080,
        description="Minutes, about, after which a kind of a live cluster is listed anew and compared; 0 never.",
    )
    retention: RetentionSettings = Field(RetentionSettings(), description="How long tombstones stay.")
    backfill_days: float = Field(
        90.0,
        ge=0,
        le=3650,
        description="Days before the first start for which past runs are read from kube-state-metrics; 0 reads none (docs/telemetry.md).",
    )
    legacy: LegacySettings = Field(LegacySettings(), description="The interface of the public peer.")
    metrics: MetricsSettings = Field(
        MetricsSettings.model_validate({}),
        description="`port` and `host` of `drumlin follow`'s own `/metrics`, `/readyz`, `/livez` (docs/kubernetes.md).",
    )
    election: ElectionSettings = Field(
        ElectionSettings.model_validate({}),
        description="Which of several processes follows a cluster, a table `[election]` (docs/kubernetes.md).",
    )
    mappings: tuple[str, ...] = Field(
        (),
        description="Custom resources to follow: `kuscia`, `argo`, `argo-events`, `tekton`, `knative`, `openfaas`, or paths of TOML"
        " files of `[[resource]]` tables.",
    )
    resource: tuple[ResourceSettings, ...] = Field(
        (), description="Custom resources to follow, each a `[[resource]]` table (docs/kubernetes.md)."
    )
    depends_on: tuple[DependsOnSettings, ...] = Field(
        (), description="Data that workloads depend on, each a `[[depends_on]]` table (docs/kubernetes.md)."
    )
    optional_kinds: tuple[Literal["events", "networkpolicies", "rolebindings"], ...] = Field(
        (),
        description="What else of a live cluster is followed: Warning events, network policies, role bindings.",
    )
    store: StoreSettings = Field(StoreSettings(), description="The engine behind --store sparql+http(s)://…")
    log_retention: float = Field(
        7.0,
        gt=0,
        le=36500,
        description="Days that the change log reaches back: for those who follow it, and for what graphs were (embedded store).",
    )
    log_bytes: int = Field(
        1024 * 1024 * 1024,
        ge=1024 * 1024,
        description="Bytes that the change log may take (about 280 a write); then its oldest changes go before their time.",
    )
    query_timeout: float = Field(30.0, gt=0, le=3600, description="Seconds until a SPARQL query is given up.")
    query_memory: int = Field(
        1024 * 1024 * 1024, ge=64 * 1024 * 1024, description="Bytes of memory that one SPARQL query may take."
    )
    query_concurrency: int = Field(64, ge=1, description="SPARQL queries of one client that may run at one time.")
    connections_per_address: int = Field(
        1024, ge=16, description="Connections that one address may have; beyond it, those that send least are cut."
    )
    proxies: tuple[str, ...] = Field(
        (), description="Addresses of proxies in front of the service, which bring the clients of many addresses."
    )
    query_kills: int = Field(
        20,
        ge=1,
        description="SPARQL queries of one client, within a minute, that may run into their time or memory limit.",
    )
    readers: int | None = Field(
        None, ge=1, le=256, description="Processes that answer SPARQL queries [processors + 1]."
    )
    tls: CertificateSettings | None = Field(
        None, description="Serve https with this certificate, a table `[tls]` [http] (docs/access.md)."
    )
    domain_views: int = Field(
        16,
        ge=1,
        le=1000,
        description="Sets of domains, to which callers are limited, whose graphs are kept open at once.",
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
    hosts: tuple[str, ...] = Field(
        (),
        description="Names under which the service is reached, beside loopback, its address and the base's host; `*.x` takes all below.",
    )
    tokens: Path | None = Field(
        None, description="File of the bearer tokens [`tokens.json` in the directory of the store] (docs/access.md)."
    )
    anonymous: Literal["none", "reader", "writer", "admin"] | None = Field(
        None,
        description="Role of callers without a token [`admin` on loopback as long as there are no tokens, else `none`].",
    )
    issuer: tuple[IssuerSettings, ...] = Field(
        (), description="Issuers of signed tokens (OpenID Connect) that are accepted beside our own (docs/access.md)."
    )
    token_review: TokenReviewSettings | None = Field(
        None,
        description="Cluster whose service accounts' tokens are accepted, a table `[token_review]` (docs/access.md).",
    )
    peer: tuple[PeerSettings, ...] = Field(
        (), description="Other Drumlins whose graphs are taken over, each a `[[peer]]` table (docs/federation.md)."
    )
    audit_log: Path | None = Field(
        None, description="File of the audit log [`access.jsonl` in the directory of the store]."
    )
    audit_bytes: int = Field(
        16 * 1024 * 1024, ge=1024, description="Bytes from which a file of the audit log is rotated."
    )
    audit_files: int = Field(8, ge=0, le=1000, description="Files of the audit log that are kept; 0 writes none.")
    require_if_match: bool = Field(
        False,
        description="Refuse (428) a user's write to a graph without If-Match, If-None-Match or, in bulk, a digest.",
    )
    query_bytes: int = Field(1024 * 1024, ge=1024, description="Longest SPARQL text accepted, in bytes.")

    @field_validator("base")
    @classmethod
    def _base_mints(cls, base: str) -> str:
        try:
            return Iris(base).base
        except InvalidIdentifier as error:
            raise ValueError(str(error)) from error

    @field_validator("cors")
    @classmethod
    def _origins(cls, cors: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(each if each == "*" else str(parse_origin(each)) for each in cors)

    @field_validator("hosts")
    @classmethod
    def _hosts(cls, hosts: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(map(_host, hosts))

    @field_validator("cluster")
    @classmethod
    def _cluster_not_reserved(cls, cluster: str) -> str:
        return _nameable(cluster)

    @field_validator("datasource")
    @classmethod
    def _names_differ(cls, found: tuple[DatasourceSettings, ...]) -> tuple[DatasourceSettings, ...]:
        names = [each.name for each in found]
        if len(set(names)) < len(names):
            raise ValueError("two datasources have the same name")
        return found

    @field_validator("issuer")
    @classmethod
    def _issuers_differ(cls, found: tuple[IssuerSettings, ...]) -> tuple[IssuerSettings, ...]:
        if len({each.issuer for each in found}) < len(found):
            raise ValueError("an issuer is named twice")
        return found

    @field_validator("peer")
    @classmethod
    def _peers_differ(cls, found: tuple[PeerSettings, ...]) -> tuple[PeerSettings, ...]:
        if len({each.name for each in found}) < len(found):
            raise ValueError("two peers have the same name")
        return found

    @property
    def limits_callers(self) -> bool:
        """Whether a grant of an issuer, or of a cluster's service accounts, limits to domains."""
        reviewed = self.token_review.grant if self.token_review else ()
        grants = (*reviewed, *(grant for issuer in self.issuer for grant in issuer.grant))
        return any(each.domains or each.domain_claim for each in grants)

    @property
    def takes_signed_tokens(self) -> bool:
        """Whether callers may have tokens that are not of the service's own file."""
        return bool(self.issuer) or self.token_review is not None

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
        for number, given in enumerate(self.context):
            _nameable(given.cluster or (number and given.name) or self.cluster, given.name)
        return self

    def keeps_label(self, key: str) -> bool:
        """Return whether labels with a key are kept."""
        return kept(key, self.labels)

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
            raise _told(error, f"{file}: " if content else "") from error
        except SettingsError as error:
            raise _unreadable(error) from error
        finally:
            _FILE.reset(reading)


def kept(key: str, allowed: Sequence[str]) -> bool:
    """Return whether a label is on the allow-list: by its key, or by a prefix that ends in ``*``."""
    return any(key.startswith(each[:-1]) if each.endswith("*") else key == each for each in allowed)


_EKS = re.compile(r"arn:[^:]*:eks:[^:]*:[^:]*:cluster/(.+)")


def _nameable(cluster: str, context: str | None = None) -> str:
    """Return the name of a cluster; raises ``ValueError``, with a proposal, for what cannot be a segment of an id."""
    if cluster in RESERVED:
        raise ValueError(f"{cluster!r} is reserved; give the cluster another name")
    if cluster and not is_plain_segment(cluster):
        eks = _EKS.fullmatch(cluster)
        proposal = re.sub(r"[^A-Za-z0-9._~-]+", "-", eks[1] if eks else cluster).strip("-.") or "prod"
        proposal += "-cluster" if proposal in RESERVED else ""
        say = f"--context {context}={proposal}" if context else f"--cluster {proposal}"
        raise ValueError(
            f"{cluster!r} cannot name a cluster in ids, which have letters, digits, '-', '.', '_' and '~'; say {say}"
        )
    return cluster


def _host(written: str) -> str:
    """Return a host as the Host header is compared with it; ``*.`` stays before it. Raises ``ValueError``."""
    name = written.removeprefix("*.")
    address = parse_address(name)
    host, port = parse_authority(f"[{name}]" if address and address.version == 6 else name)
    if port is not None:
        raise ValueError(f"{written!r} has a port; write the host alone, which is taken with any port")
    if name != written and parse_address(host) is not None:
        raise ValueError(f"{written!r}: there are no names below an address")
    return written[: len(written) - len(name)] + host


def _told(error: ValidationError, file: str) -> InvalidSettings:
    first = error.errors(include_url=False)[0]
    parts = place(first)
    variable = _variable(parts)
    where = variable or f"{file}{'.'.join(parts)}"
    separator = ": " if parts else ""
    if first["type"] != "extra_forbidden":
        return InvalidSettings(f"{where}{separator}{explained(first)}")
    hint = meant(parts, Settings)
    if variable and hint:
        hint = hint.upper().replace(".", "__")
    return InvalidSettings(f"{where}: there is no such setting", hint=f"did you mean {hint}?" if hint else None)


def _unreadable(error: SettingsError) -> InvalidSettings:
    """Return the error of a variable whose value is to be JSON and is not; what the library says names only the field."""
    found = re.search(r'field "(\w+)"', str(error))
    name = found[1] if found else "…"
    field = Settings.model_fields.get(name)
    example = '{"id": "…"}' if field and model_in(field.annotation) is field.annotation else '["…"]'
    return InvalidSettings(
        f"{_variable([name]) or name}: a setting with parts is written as JSON", hint=f"such as {example}"
    )


def _variable(parts: Sequence[str]) -> str | None:
    """Return the variable of the environment that sets what stands at a place; None where none does."""
    known = {each.upper(): each for each in os.environ}
    names = ("__".join(parts[:depth]).upper() for depth in range(len(parts), 0, -1))
    return next((known[f"DRUMLIN_{each}"] for each in names if f"DRUMLIN_{each}" in known), None)
