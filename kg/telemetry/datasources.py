"""Datasources: the servers that hold telemetry, and which of them this service may fetch from.

A datasource with *access* stands in the configuration; one without (discovered in the cluster, or written as a document) can
only be resolved against, so that a document can never make the service send a credential somewhere (design §5).
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field, replace
from datetime import timedelta
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any, Literal, Self
from urllib.parse import urlsplit, urlunsplit

from drumlin.kg.config.datasources import (
    Credential,
    DatasourceKind,
    DatasourceSettings,
    NodeJoin,
    ProfileName,
    SeriesSettings,
    TenantHeader,
)
from drumlin.kg.errors import InvalidInput
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import CONTEXT_IRI, NodeDocument
from drumlin.kg.telemetry.durations import iso_duration, parse_duration

DEFAULT_SCRAPE_INTERVAL = timedelta(seconds=30)
"""Assumed where nobody says how often targets are scraped."""


Language = Literal["promql", "metricsql"]
"""What a Prometheus-like server computes counters with: MetricsQL is VictoriaMetrics'."""


@dataclass(frozen=True, slots=True)
class DatasourceAccess:
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

    ``profile`` is the installation whose names its series have (None: the templates' own). On top of it ``labels`` and ``jobs`` map a
    template's label and job names to this server's ('' drops the matcher, ``=~`` begins a regular expression of jobs),
    ``exporters`` those of one exporter's series, and ``nodes`` is how node-exporter's are matched to a node; ``recorded``: recording rules
    are asked where raw series are missing (``kg.telemetry.renaming``). ``logs`` tells
    which pods' logs a Loki holds, ``metrics`` whose metrics a Prometheus does, ``namespaces`` whose telemetry at all (patterns; empty:
    everybody's); ``dashboards`` are a Grafana's URL templates per scope; ``database`` is an InfluxDB's, and
    ``series`` says where in it a template's metric is. ``learns``: the scrape interval is not configured, so the server is asked for it;
    ``asks_language`` likewise: until it answered, it is taken for a Prometheus. ``doubled``: whether things are scraped more than
    once, so that queries make one of them (None: perhaps); ``asks_doubled``: it is looked whether that is so.
    ``clusters`` and ``domains`` (names; empty: any) say whose telemetry it holds; ``matchers`` (label → value with the holes
    ``{cluster}`` and ``{domain}``) pick theirs among its series (``kg.telemetry.binding``). ``shared``: it may hold what those who ask
    must not see, so that nothing is said of what else it has.
    """

    name: str
    iri: str
    kind: DatasourceKind
    url: str
    domain: str | None = None
    scrape_interval: timedelta = DEFAULT_SCRAPE_INTERVAL
    learns: bool = False
    language: Language = "promql"
    asks_language: bool = False
    doubled: bool | None = None
    asks_doubled: bool = False
    labels: Mapping[str, str] = field(default_factory=dict)
    jobs: Mapping[str, str] = field(default_factory=dict)
    logs: Literal["all", "injected"] = "all"
    metrics: Literal["all", "scraped"] = "all"
    namespaces: tuple[str, ...] = ()
    dashboards: Mapping[str, str] = field(default_factory=dict)
    database: str | None = None
    series: Mapping[str, SeriesSettings] = field(default_factory=dict)
    clusters: tuple[str, ...] = ()
    domains: tuple[str, ...] = ()
    matchers: Mapping[str, str] = field(default_factory=dict)
    access: DatasourceAccess | None = None
    profile: ProfileName | None = None
    exporters: Mapping[str, Mapping[str, str]] = field(default_factory=dict)
    nodes: NodeJoin | None = None
    recorded: bool = False
    shared: bool = False

    @classmethod
    def from_settings(cls, settings: DatasourceSettings, iris: Iris, domain_iri: str | None) -> Self:
        """Take a datasource from the configuration: the only way to one that is fetched from."""
        return cls(
            name=settings.name,
            iri=iris.datasource(settings.name),
            kind=settings.kind,
            url=clean_url(str(settings.url)),
            domain=iris.domain(settings.domains[0]) if len(settings.domains) == 1 else domain_iri,
            scrape_interval=(
                DEFAULT_SCRAPE_INTERVAL
                if settings.scrape_interval == "auto"
                else parse_duration(settings.scrape_interval)
            ),
            learns=settings.scrape_interval == "auto" and settings.kind == "prometheus",
            language="promql" if settings.language == "auto" else settings.language,
            asks_language=settings.language == "auto" and settings.kind == "prometheus",
            doubled=None if settings.doubled == "auto" else settings.doubled,
            asks_doubled=settings.doubled == "auto" and settings.kind == "prometheus",
            labels={usual: own for usual, own in settings.labels.items() if isinstance(own, str)},
            jobs=settings.jobs,
            logs=settings.logs,
            metrics=settings.metrics,
            namespaces=settings.namespaces,
            dashboards={str(scope): url for scope, url in settings.dashboards.items()},
            database=settings.database,
            series=settings.series,
            clusters=settings.clusters,
            domains=settings.domains,
            matchers=settings.matchers,
            access=DatasourceAccess.from_settings(settings),
            profile=settings.profile,
            exporters={exporter: own for exporter, own in settings.labels.items() if not isinstance(own, str)},
            nodes=settings.nodes,
            recorded=settings.recorded,
        )

    @classmethod
    def discovered(
        cls, name: str, kind: DatasourceKind, url: str, iris: Iris, domain_iri: str | None, cluster: str | None
    ) -> Self:
        """Take a datasource found in a cluster, which it holds (None: elsewhere); it has default label names and is never fetched from."""
        return cls(
            name=name,
            iri=iris.datasource(name),
            kind=kind,
            url=clean_url(url),
            domain=domain_iri,
            clusters=(cluster,) if cluster else (),
        )

    def covers(self, namespace: str) -> bool:
        """Return whether it holds telemetry of a namespace."""
        return not self.namespaces or any(fnmatchcase(namespace, each) for each in self.namespaces)

    def document(self, iris: Iris) -> NodeDocument:
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
        if self.profile:
            document["profile"] = self.profile
        if held := [*map(iris.cluster, self.clusters), *map(iris.domain, self.domains)]:
            document["holds"] = held
        if self.matchers:
            document["matcher"] = [f"{label}={value}" for label, value in sorted(self.matchers.items())]
        return document


class LearntDatasources:
    """Datasources with what was learnt of them, each made once: thousands of queries are written for one. For many threads."""

    def __init__(self) -> None:
        self._made: dict[tuple[object, ...], tuple[Datasource, Datasource]] = {}

    def get(
        self, datasource: Datasource, scrape_interval: timedelta, language: Language, *, doubled: bool | None
    ) -> Datasource:
        """Return a datasource of these properties."""
        key = (
            id(datasource),
            scrape_interval,
            language,
            doubled,
        )  # whose original is kept, so that no other gets its id
        if key not in self._made:
            if len(self._made) >= _MOST_LEARNT:
                self._made.clear()
            learnt = replace(datasource, scrape_interval=scrape_interval, language=language, doubled=doubled)
            self._made[key] = datasource, learnt
        return self._made[key][1]


_MOST_LEARNT = 1000


def with_settings(datasource: Datasource, settings: Mapping[str, Any]) -> Datasource:
    """Return a datasource with more settings of its naming (``profile``, ``labels``, ``jobs``, ``nodes``, ``recorded``)."""
    labels = settings.get("labels", {})
    return replace(
        datasource,
        profile=settings.get("profile", datasource.profile),
        labels={**datasource.labels, **{usual: own for usual, own in labels.items() if isinstance(own, str)}},
        exporters={**datasource.exporters, **{name: own for name, own in labels.items() if not isinstance(own, str)}},
        jobs={**datasource.jobs, **settings.get("jobs", {})},
        nodes=settings.get("nodes", datasource.nodes),
        recorded=settings.get("recorded", datasource.recorded),
    )


def label_names(written: Iterable[str]) -> dict[str, str]:
    """Read what a datasource's document says of its labels: template's label → its own; what is no label name is left out."""
    return {match[1]: match[2] for each in written if (match := _RENAMED.fullmatch(each))}


def matchers_of(written: Iterable[str]) -> dict[str, str]:
    """Read the matchers of a datasource's document: label → value, which may have holes; what is no label name is left out."""
    return {match[1]: match[2] for each in written if (match := _MATCHER.fullmatch(each))}


_MATCHER = re.compile(r"([A-Za-z_][A-Za-z0-9_]*)=(.*)", re.DOTALL)
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
