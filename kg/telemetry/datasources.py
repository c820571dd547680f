"""Datasources: the servers that hold telemetry, and which of them this service may fetch from.

A datasource with *access* stands in the configuration; one without (discovered in the cluster, or written as a document) can
only be resolved against, so that a document can never make the service send a credential somewhere (design §5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Literal, Self
from urllib.parse import urlsplit, urlunsplit

from kg.errors import InvalidInput
from kg.iris import Iris
from kg.jsonld import CONTEXT_IRI, NodeDocument
from kg.servers import Credential, DatasourceKind, DatasourceSettings, SeriesSettings, TenantHeader
from kg.telemetry.durations import iso_duration, parse_duration

DEFAULT_SCRAPE_INTERVAL = timedelta(seconds=30)
"""Assumed where nobody says how often targets are scraped."""


@dataclass(frozen=True, slots=True)
class Access:
    """How to fetch from a configured datasource; ``timeout`` is in seconds, ``concurrency`` counts requests at one time."""

    tenant_header: TenantHeader | None = None
    credential: Credential | None = None
    timeout: float = 30.0
    concurrency: int = 4
    max_samples: int = 50_000_000
    parameters: Mapping[str, str] = field(default_factory=dict)
    headers: Mapping[str, str] = field(default_factory=dict)
    ca: Path | None = None
    certificate: Path | None = None
    key: Path | None = None

    @classmethod
    def from_settings(cls, settings: DatasourceSettings) -> Self:
        """Take it from the configuration."""
        return cls(
            settings.tenant_header,
            settings.credential,
            settings.timeout,
            settings.concurrency,
            settings.max_samples,
            settings.parameters,
            settings.headers,
            **dict(settings.tls),
        )


@dataclass(frozen=True, slots=True)
class Datasource:
    """One server that holds telemetry. ``url`` has no trailing slash and no credentials; ``access`` None: resolve only.

    ``labels`` and ``jobs`` map a template's label and job names to this server's ('' drops the job matcher). ``logs`` tells
    which pods' logs a Loki holds, ``metrics`` whose metrics a Prometheus does, ``namespaces`` whose telemetry at all (patterns; empty:
    everybody's); ``dashboards`` are a Grafana's URL templates per scope; ``database`` is an InfluxDB's, and
    ``series`` tells where in it a template's metric is. ``learns``: the scrape interval is not configured, so the server is asked for it.
    """

    name: str
    iri: str
    kind: DatasourceKind
    url: str
    domain: str | None = None
    scrape_interval: timedelta = DEFAULT_SCRAPE_INTERVAL
    learns: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    jobs: Mapping[str, str] = field(default_factory=dict)
    logs: Literal["all", "injected"] = "all"
    metrics: Literal["all", "scraped"] = "all"
    namespaces: tuple[str, ...] = ()
    dashboards: Mapping[str, str] = field(default_factory=dict)
    database: str | None = None
    series: Mapping[str, SeriesSettings] = field(default_factory=dict)
    access: Access | None = None

    @classmethod
    def from_settings(cls, settings: DatasourceSettings, iris: Iris, domain_iri: str | None) -> Self:
        """Take a datasource from the configuration: the only way to one that is fetched from."""
        return cls(
            name=settings.name,
            iri=iris.datasource(settings.name),
            kind=settings.kind,
            url=clean_url(str(settings.url)),
            domain=domain_iri,
            scrape_interval=(
                DEFAULT_SCRAPE_INTERVAL
                if settings.scrape_interval == "auto"
                else parse_duration(settings.scrape_interval)
            ),
            learns=settings.scrape_interval == "auto" and settings.kind == "prometheus",
            labels=settings.labels,
            jobs=settings.jobs,
            logs=settings.logs,
            metrics=settings.metrics,
            namespaces=settings.namespaces,
            dashboards={str(scope): url for scope, url in settings.dashboards.items()},
            database=settings.database,
            series=settings.series,
            access=Access.from_settings(settings),
        )

    @classmethod
    def discovered(cls, name: str, kind: DatasourceKind, url: str, iris: Iris, domain_iri: str | None) -> Self:
        """Take a datasource found in the cluster; it has default label names and is never fetched from."""
        return cls(name=name, iri=iris.datasource(name), kind=kind, url=clean_url(url), domain=domain_iri)

    def covers(self, namespace: str) -> bool:
        """Tell whether it holds telemetry of a namespace."""
        return not self.namespaces or any(fnmatchcase(namespace, each) for each in self.namespaces)

    def document(self) -> NodeDocument:
        """Describe the datasource; how to get in (tenant, credential) is not part of it."""
        document: dict[str, object] = {
            "@context": CONTEXT_IRI,
            "id": self.iri,
            "type": "Datasource",
            "name": self.name,
            "datasourceType": self.kind,
            "endpointURL": self.url,
        }
        if self.domain:
            document["domain"] = self.domain
        if self.kind == "prometheus":
            document["scrapeInterval"] = iso_duration(self.scrape_interval)
        renamed = (f"{usual}={own}" for usual, own in sorted(self.labels.items()))
        if self.kind in ("prometheus", "loki") and (written := [each for each in renamed if _RENAMED.fullmatch(each)]):
            document["labelName"] = written
        return document


def label_names(written: Iterable[str]) -> dict[str, str]:
    """Read what a datasource's document says of its labels: template's label → its own; what is no label name is left out."""
    return {match[1]: match[2] for each in written if (match := _RENAMED.fullmatch(each))}


_RENAMED = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=([A-Za-z_][A-Za-z0-9_]*)")


def clean_url(url: str) -> str:
    """Return an http(s) or file URL without userinfo, query, fragment and trailing slashes; raises ``InvalidInput`` for others.

    The message does not repeat the URL: it may hold a password.
    """
    try:
        parts = urlsplit(url)
        host = parts.netloc.rpartition("@")[2]
        usable = (parts.scheme in ("http", "https") and bool(parts.hostname)) or (
            parts.scheme == "file" and not host and parts.path.startswith("/")
        )
        _ = parts.port  # out of range raises
    except ValueError as error:
        raise InvalidInput("the url of a datasource cannot be read") from error
    if not usable or any(character.isspace() for character in url):
        raise InvalidInput("the url of a datasource must be http(s)://host[:port][/path], or file:///path for Parquet")
    return urlunsplit((parts.scheme, host, parts.path.rstrip("/"), "", ""))
