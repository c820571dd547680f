"""What a renderer may ask: names, the settings that shape documents, and the facts that other objects have published.

A renderer stays pure: with equal facts, an equal manifest gives an equal document. The context notes which facts were read,
so that the pipeline renders again when one of them changes.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Container, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from fnmatch import fnmatchcase
from typing import Any

from drumlin.exporters.pipeline.dependencies import DependencyGraph
from drumlin.exporters.pipeline.restore import Memory, home_in
from drumlin.exporters.pipeline.sink import Sink
from drumlin.exporters.protocol import Topic
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.config.settings import Settings, kept
from drumlin.kg.errors import Violation
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry import binding
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import Subject, describe
from drumlin.kg.telemetry.graph import TelemetryGraph
from drumlin.kg.telemetry.inventory import Inventory
from drumlin.kg.telemetry.templates import TemplateCatalogue

DATASOURCES: Topic = ("datasources",)
"""The topic of discovered datasources; every entity with telemetry reads it."""


def object_topic(graph: str) -> Topic:
    """The topic of whether an object exists; nobody publishes anything on it, but its readers are rendered again."""
    return ("object", graph)


def whole_topic(home: str) -> Topic:
    """The topic of whether all objects of a kind have come, likewise."""
    return ("whole", home)


@dataclass(frozen=True, slots=True)
class ClusterContext:
    """What is configured: it is the same for all entities of a cluster. Of it only ``catalogue`` changes: users override templates."""

    settings: Settings
    iris: Iris
    catalogue: TemplateCatalogue
    datasources: tuple[Datasource, ...]
    home: bool = True  # whether it is the hosting domain's own cluster, by whose telemetry the domain is described
    known: frozenset[str] = frozenset()  # all clusters whose entities share the store
    hosted: frozenset[str] = frozenset()  # those of them that are the hosting domain's
    follower: bool = False  # whether the graphs are those of a service elsewhere, which has hosting graphs of its own
    functions: frozenset[str] = frozenset()  # the kinds, as ids name them, whose objects are functions

    def among(self, sink: Sink) -> ClusterContext:
        """Return the surroundings with the clusters and templates that the store and the settings know by now."""
        inventory = Inventory(sink, self.iris)
        own = {self.settings.cluster, *self.settings.clusters}
        return replace(
            self,
            known=inventory.declared | own,
            hosted=inventory.clusters_of(self.settings.domain.id) | own,
            catalogue=self.catalogue.overridden_by(TelemetryGraph(sink, self.iris).templates()),
        )

    def describable(self, place: Place, datasources: Iterable[Datasource]) -> list[Datasource]:
        """Return the datasources that hold the telemetry of what is in a place and distinguish it from other clusters'."""
        return binding.described(datasources, place, self.known | {self.settings.cluster})

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
        return self.prefix_of(self.settings.cluster)

    @property
    def function_prefix(self) -> str:
        """What the IRIs of all functions of the cluster begin with."""
        return self.iris.object(self.settings.cluster, None, "Function", "-").removesuffix("-/-")

    def prefix_of(self, cluster: str) -> str:
        """What the IRIs of all objects of another cluster begin with."""
        return self.iris.object(cluster, None, "Node", "-").removesuffix("-/node/-")

    def object(self, namespace: str | None, kind: str, name: str, group: str = "") -> str:
        """Return the IRI of an object of the cluster."""
        if f"{kind.lower()}.{group}" in self.functions:
            kind, group = "Function", ""
        return self.iris.object(self.settings.cluster, namespace, kind, name, group)


@dataclass(frozen=True, slots=True)
class RenderContext:
    """The surroundings of one entity while it is rendered.

    ``present`` has the IRIs of the objects that the source reported; ``discovered`` are the datasources that the cluster holds beside the
    configured ones; ``runs`` are the documents of the entity's incarnations. A renderer adds to ``left_out`` what it has to leave out.
    """

    entity: str
    around: ClusterContext
    facts: DependencyGraph
    memory: Memory
    present: Container[str]
    discovered: Sequence[Datasource] = ()
    runs: Sequence[NodeDocument] = ()
    left_out: list[Violation] = field(default_factory=list)

    @property
    def cluster_name(self) -> str:
        """The plain name of the cluster."""
        return self.around.settings.cluster

    def told(self, topic: Topic) -> list[Any]:
        """Return what other objects have published on ``topic``."""
        return self.facts.read(self.entity, topic)

    # -- what the graph said, where the source does not report ---------------------------------------------------------
    def linked(self, term: str) -> list[str]:
        """Return the IRIs that the entity was linked to by ``term`` when the run began."""
        return self.memory.links(self.entity, term)

    def is_complete(self, home: str, namespace: str | None = None) -> bool:
        """Return whether the source has reported all objects of a kind, in ``namespace`` (None: anywhere), so that others do not exist."""
        self.told(whole_topic(home))
        return self.memory.is_complete(home, namespace)

    def awaits(self, iri: str) -> bool:
        """Return whether the graph has an object of which the source has reported nothing yet."""
        self.told(object_topic(iri))
        return self.memory.awaits(iri)

    def awaits_any(self, home: str, namespace: str | None = None) -> bool:
        """Return whether that is so of any object of a kind, in ``namespace`` (None: anywhere)."""
        self.told(whole_topic(home))
        return self.memory.awaits_any(home, namespace)

    def exists(self, iri: str) -> bool:
        """Return whether there is such an object, reported by the source or known to the graph."""
        return self.awaits(iri) or iri in self.present

    def kept(self, term: str, homes: Collection[str]) -> list[str]:
        """Return what the entity stays linked to by ``term``: objects of the kinds ``homes`` that the source has not reported yet."""
        return [iri for iri in self.linked(term) if self.home(iri) in homes and self.awaits(iri)]

    def home(self, iri: str) -> str:
        """Return what names the kind in the IRI of an object (``Kind.home``)."""
        return home_in(self.around.iris.short(iri))

    def labels(self, labels: Mapping[str, str] | None) -> list[str]:
        """Return the labels that the settings keep, as ``key=value``."""
        return [f"{key}={value}" for key, value in (labels or {}).items() if kept(key, self.around.settings.labels)]

    def telemetry(
        self, subject: Subject, scrapers: Container[str] = (), only: Callable[[Datasource], bool] | None = None
    ) -> list[NodeDocument]:
        """Return the telemetry of the entity in every datasource that holds some by its rules.

        ``scrapers`` are the datasources (IRIs) that scrape its pods; it matters to those that hold what is scraped and nothing else.
        ``only``: those that it is described in at all.
        """
        self.told(DATASOURCES)
        around = self.around
        rules = {each.name: each for each in around.settings.datasource}
        place = subject.place or Place((self.cluster_name,), self._domain(subject))
        known = around.describable(place, (*around.datasources, *self.discovered))
        known = [each for each in known if only is None or only(each)]
        holders = [each for each in known if _holds(rules.get(each.name), each.iri, subject, scrapers)]
        return describe(replace(subject, place=place), around.catalogue, holders, around.iris)

    def _domain(self, subject: Subject) -> str:
        """Return the id of the domain of what is in the subject's namespace, else of the hosting one."""
        own = self.told(("domain", subject.namespace)) if subject.namespace else []
        return next(iter(own), self.around.settings.domain.id)


def _holds(rule: DatasourceSettings | None, datasource: str, subject: Subject, scrapers: Container[str]) -> bool:
    """Return whether a datasource has telemetry of an entity; one that was discovered has no rules."""
    if rule is None or subject.namespace is None:
        return True
    if rule.metrics == "scraped" and datasource not in scrapers:
        return False
    return not rule.namespaces or any(fnmatchcase(subject.namespace, each) for each in rule.namespaces)


def domain_topic(namespace: str) -> Topic:
    """The topic on which a Namespace publishes the domain it belongs to."""
    return ("domain", namespace)
