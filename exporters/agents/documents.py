"""An agent's registration as node documents: the agent, what it manages, and its site. Pure."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import timedelta
from types import MappingProxyType
from typing import Any

from drumlin.exporters.agents.registration import KINDS, AgentRegistration, EntityRegistration
from drumlin.exporters.protocol import without_nulls
from drumlin.kg.config.settings import Settings, kept
from drumlin.kg.errors import InvalidDocument
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import Scope, Subject, describe
from drumlin.kg.telemetry.durations import iso_duration
from drumlin.kg.telemetry.templates import TemplateCatalogue

_SCOPES: Mapping[str, Scope] = {
    "Host": "Node",
    "VirtualMachine": "VirtualMachine",
    "ContainerInstance": "ContainerInstance",
}


@dataclass(frozen=True, slots=True)
class Surrounding:
    """What documents of one site are made with; ``datasources`` are those that distinguish the site's series from others'."""

    settings: Settings
    iris: Iris
    catalogue: TemplateCatalogue
    datasources: Sequence[Datasource]
    site: str

    @property
    def cluster(self) -> str:
        """IRI of the site."""
        return self.iris.cluster(self.site)

    @property
    def domain(self) -> str:
        """IRI of the hosting domain."""
        return self.iris.domain(self.settings.domain.id)

    def entity(self, said: EntityRegistration) -> str:
        """Mint the IRI of an entity."""
        return self.iris.object(self.site, said.namespace, KINDS[said.type], said.name)


def site_document(around: Surrounding) -> NodeDocument:
    """Describe a site: a cluster without a Kubernetes."""
    return {"id": around.cluster, "type": "Cluster", "name": around.site, "domain": around.domain}


def agent_document(guid: str, said: AgentRegistration, around: Surrounding) -> NodeDocument:
    """Describe an agent that has just been heard."""
    return without_nulls(
        {
            "id": around.iris.of_class("agent", guid),
            "type": "Agent",
            "name": said.name,
            "platform": said.platform,
            "origin": around.site,
            "version": said.version,
            "tag": sorted(set(said.tags)),
            "cluster": around.cluster,
            "domain": around.domain,
            "managedBy": around.iris.of_class("agent", said.parent) if said.parent else None,
            "heartbeatInterval": iso_duration(timedelta(seconds=said.interval)) if said.interval else None,
            "phase": "Ready",
        }
    )


def entity_documents(
    guid: str,
    entities: Sequence[EntityRegistration],
    around: Surrounding,
    marks: Mapping[str, Sequence[str]] = MappingProxyType({}),
) -> dict[str, NodeDocument]:
    """Describe what an agent manages, by key; ``marks`` are labels that the service itself adds, by key.

    Raises ``InvalidDocument`` for two of one id, and for parents in a circle.
    """
    by_key = {each.key: each for each in entities}
    found: dict[str, NodeDocument] = {}
    taken: dict[str, str] = {}
    for each in entities:
        _check_parents(each, by_key)
        iri = around.entity(each)
        if (other := taken.setdefault(iri, each.key)) != each.key:
            raise InvalidDocument(
                f"the entities {other!r} and {each.key!r} have the same id {around.iris.short(iri)}",
                hint="give one of them another name or namespace",
                detail={"key": each.key},
            )
        found[each.key] = _entity(guid, each, by_key, around, marks.get(each.key, ()))
    return found


def _entity(
    guid: str,
    said: EntityRegistration,
    by_key: Mapping[str, EntityRegistration],
    around: Surrounding,
    marks: Sequence[str],
) -> NodeDocument:
    iri, scope = around.entity(said), _SCOPES[said.type]
    place = Place((around.site,), around.settings.domain.id)
    subject = Subject(iri, scope, around.site, said.namespace, said.type, said.name, place=place)
    labels = [f"{key}={value}" for key, value in said.labels.items() if kept(key, around.settings.labels)]
    document: dict[str, Any] = {
        "id": iri,
        "type": said.type,
        "name": said.name,
        "namespace": said.namespace,
        "platform": said.platform,
        "managedBy": around.iris.of_class("agent", guid),
        "partOf": _parent(said, by_key, around),
        "cluster": around.cluster,
        "domain": around.domain,
        "phase": said.phase,
        "image": said.image,
        "architecture": said.architecture,
        "kernelVersion": said.kernelVersion,
        "cpuCapacity": said.cpuCapacity,
        "memoryCapacity": said.memoryCapacity,
        "label": sorted({*labels, *marks}),
        "telemetry": describe(subject, around.catalogue, around.datasources, around.iris),
    }
    return without_nulls(document)


def _parent(said: EntityRegistration, by_key: Mapping[str, EntityRegistration], around: Surrounding) -> str:
    """Return the IRI of what an entity is part of: another of the registration, any entity by its id, else the site."""
    if said.parent is None:
        return around.cluster
    if (other := by_key.get(said.parent)) is not None:
        return around.entity(other)
    return around.iris.expand(said.parent)


def _check_parents(said: EntityRegistration, by_key: Mapping[str, EntityRegistration]) -> None:
    seen, at = {said.key}, said
    while at.parent is not None and (above := by_key.get(at.parent)) is not None:
        if above.key in seen:
            raise InvalidDocument(
                f"the entity {said.key!r} is below itself: {' → '.join((*sorted(seen), above.key))[:200]}",
                hint="parents lead upwards: container → host",
                detail={"key": said.key},
            )
        seen.add(above.key)
        at = above
