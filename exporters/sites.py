"""The sites of one cluster: several GNodes, told apart by a label of the nodes. The nodes without it are the hosting domain's own.

Each site is a domain with a graph of its own, whose telemetry is that of its nodes; it is written when its nodes, the datasources or the
configuration change.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Iterator, Mapping, Sequence

from drumlin.exporters.pipeline.context import ClusterContext
from drumlin.exporters.pipeline.sink import Sink
from drumlin.exporters.protocol import Topic, without_nulls
from drumlin.kg.config.settings import DomainSettings, SiteSettings
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import Subject, describe
from drumlin.kg.telemetry.inventory import Inventory

NODES: Topic = ("nodes",)
"""The topic on which each node publishes its name and labels."""
Sites = Mapping[str, tuple[str, ...]]
"""The names of the nodes of each domain, by its id, sorted; empty where no label says so."""


def of_nodes(nodes: Iterable[tuple[str, Mapping[str, str]]], domain: DomainSettings) -> Sites:
    """Return the sites of nodes by their labels, with those that are configured and have no node."""
    if domain.node_label is None:
        return {}
    found: defaultdict[str, set[str]] = defaultdict(set)
    for name, labels in nodes:
        found[domain.of_node(labels)].add(name)
    for each in (domain.id, *(site.id for site in domain.site)):
        _ = found[each]
    return {site: tuple(sorted(names)) for site, names in sorted(found.items())}


def in_graph(sink: Sink, around: ClusterContext) -> Sites:
    """Return the sites of the cluster as the graph knows them."""
    domain, cluster = around.settings.domain, around.settings.cluster
    if domain.node_label is None:
        return {}
    members = [each for each in Inventory(sink, around.iris).members if each.kind == "node" and each.cluster == cluster]
    return of_nodes(((each.name, {domain.node_label: each.domain}) for each in members), domain)


def joined(one: Sites, other: Sites) -> Sites:
    """Return sites with the nodes of both; where both know a node, ``one`` decides."""
    known = {name for names in one.values() for name in names}
    more = {site: (name for name in names if name not in known) for site, names in other.items()}
    return {
        site: tuple(sorted({*one.get(site, ()), *more.get(site, ())})) for site in sorted(one.keys() | other.keys())
    }


def documents(around: ClusterContext, sites: Sites, datasources: Sequence[Datasource]) -> Iterator[NodeDocument]:
    """Yield the documents of the sites other than the hosting domain itself."""
    domain, cluster = around.settings.domain, around.settings.cluster
    configured = {each.id: each for each in domain.site}
    for id, nodes in sites.items():
        if id == domain.id:
            continue
        said = configured.get(id, SiteSettings(id=id))
        place = Place((cluster,), id)
        subject = Subject(around.iris.domain(id), "Domain", cluster, None, said.type, id, place=place, nodes=nodes)
        yield without_nulls(
            {
                "id": subject.iri,
                "type": said.type,
                "name": id,
                "url": str(said.url) if said.url else None,
                "role": list(said.role),
                "telemetry": describe(subject, around.catalogue, around.describable(place, datasources), around.iris),
            }
        )
