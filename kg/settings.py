"""The configuration, as one frozen tree: defaults < ``drumlin.toml`` < environment (``DRUMLIN_*``) < command line."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Iterator, Mapping
from contextvars import ContextVar
from difflib import get_close_matches
from pathlib import Path
from types import MappingProxyType
from typing import Annotated, Any, Literal, Self

from pydantic import AnyHttpUrl, BaseModel, ConfigDict, Field, ValidationError, field_validator, model_validator
from pydantic_settings import BaseSettings, InitSettingsSource, PydanticBaseSettingsSource, SettingsConfigDict

from kg.errors import InvalidIdentifier, InvalidSettings
from kg.iris import RESERVED, Iris
from kg.resources import ResourceSettings
from kg.servers import DatasourceSettings, StoreSettings
from kg.telemetry import DEFAULT_EXPORTERS

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


class MetricsSettings(BaseModel):
    """Where ``drumlin follow`` tells how it is doing. A group, since ``DRUMLIN_METRICS_PORT`` is what Kubernetes sets for a Service."""

    model_config = _FROZEN
    port: int | None = Field(None, ge=0, le=65535, description="Port to listen on; 0 takes a free one, none is off.")
    host: str = Field("127.0.0.1", min_length=1, description="Address to listen on.")


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
    metrics: MetricsSettings = Field(
        MetricsSettings.model_validate({}),
        description="`port` and `host` of `drumlin follow`'s own `/metrics`, `/readyz`, `/livez` (docs/kubernetes.md).",
    )
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
            raise _told(error, f"{file}: " if content else "") from error
        finally:
            _FILE.reset(reading)


def _told(error: ValidationError, file: str) -> InvalidSettings:
    first = error.errors(include_url=False, include_input=False)[0]
    where = ".".join(str(part) for part in first["loc"])
    if first["type"] != "extra_forbidden":
        return InvalidSettings(f"{file}{where}: {first['msg']}")
    close = get_close_matches(str(first["loc"][-1])[:64], set(_names()), n=1)
    return InvalidSettings(
        f"{file}{where}: there is no such setting", hint=f"did you mean {close[0]}?" if close else None
    )


def _names() -> Iterator[str]:
    schema = Settings.model_json_schema()
    for each in (schema, *schema["$defs"].values()):
        yield from each.get("properties", {})
