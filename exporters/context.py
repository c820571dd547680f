"""What a renderer may ask: names, the settings that shape documents, and the facts that other objects have told.

A renderer stays pure: with equal facts, an equal manifest gives an equal document. The context notes which facts were read,
so that the pipeline renders again when one of them changes.
"""

from __future__ import annotations

from collections.abc import Container, Mapping, Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from exporters.facts import Facts
from exporters.protocol import Topic
from kg.iris import Iris
from kg.jsonld import NodeDocument
from kg.servers import DatasourceSettings
from kg.settings import Settings
from kg.telemetry.datasources import Datasource
from kg.telemetry.describe import Subject, describe
from kg.telemetry.templates import Catalogue

DATASOURCES: Topic = ("datasources",)
"""The topic of discovered datasources; whoever has telemetry reads it."""


@dataclass(frozen=True, slots=True)
class Surroundings:
    """What is configured: it is the same for all entities of a cluster and does not change while the process lives."""

    settings: Settings
    iris: Iris
    catalogue: Catalogue
    datasources: tuple[Datasource, ...]
    home: bool = True  # whether it is the hosting domain's own cluster, by whose telemetry the domain is described

    @property
    def cluster(self) -> str:
        """IRI of the cluster."""
        return self.iris.cluster(self.settings.cluster)

    @property
    def hosting_domain(self) -> str:
        """IRI of the domain whose cluster this is."""
        return self.iris.domain(self.settings.domain.id)

    @property
    def prefix(self) -> str:
        """What the IRIs of all objects of the cluster begin with."""
        return self.object(None, "Node", "-").removesuffix("-/node/-")

    def object(self, namespace: str | None, kind: str, name: str, group: str = "") -> str:
        """Return the IRI of an object of the cluster."""
        return self.iris.object(self.settings.cluster, namespace, kind, name, group)


@dataclass(frozen=True, slots=True)
class Context:
    """The surroundings of one entity while it is rendered.

    ``discovered`` are the datasources that the cluster holds beside the configured ones; ``runs`` are the documents of the
    entity's incarnations.
    """

    entity: str
    around: Surroundings
    facts: Facts
    discovered: Sequence[Datasource] = ()
    runs: Sequence[NodeDocument] = ()

    @property
    def cluster_name(self) -> str:
        """The plain name of the cluster."""
        return self.around.settings.cluster

    def told(self, topic: Topic) -> list[Any]:
        """Return what other objects have told on ``topic``."""
        return self.facts.read(self.entity, topic)

    def labels(self, labels: Mapping[str, str] | None) -> list[str]:
        """Return the labels that the settings keep, as ``key=value``."""
        return [f"{key}={value}" for key, value in (labels or {}).items() if kept(key, self.around.settings.labels)]

    def telemetry(self, subject: Subject, scrapers: Container[str] = ()) -> list[NodeDocument]:
        """Return the telemetry of the entity in every datasource that holds some by its rules.

        ``scrapers`` are the datasources (IRIs) that scrape its pods; it matters to those that hold what is scraped and nothing else.
        """
        self.told(DATASOURCES)
        around = self.around
        rules = {each.name: each for each in around.settings.datasource}
        known = (*around.datasources, *self.discovered)
        holders = [each for each in known if _holds(rules.get(each.name), each.iri, subject, scrapers)]
        return describe(subject, around.catalogue, holders, around.iris)


def _holds(rule: DatasourceSettings | None, datasource: str, subject: Subject, scrapers: Container[str]) -> bool:
    """Tell whether a datasource has telemetry of an entity; one that was discovered has no rules."""
    if rule is None or subject.namespace is None:
        return True
    if rule.metrics == "scraped" and datasource not in scrapers:
        return False
    return not rule.namespaces or any(fnmatchcase(subject.namespace, each) for each in rule.namespaces)


def kept(key: str, allowed: Sequence[str]) -> bool:
    """Tell whether a label is on the allow-list: by its key, or by a prefix that ends in ``*``."""
    return any(key.startswith(each[:-1]) if each.endswith("*") else key == each for each in allowed)
