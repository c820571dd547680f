"""The graphs that stand around the objects: the hosting domain, its cluster, the datasources and the metric templates.

They follow from the configuration and from the datasources discovered in the cluster, so they are rewritten only when one of
these changes. Their owner is Drumlin itself, whichever source runs. A follower (``drumlin follow``) writes those that the service
does not have, under a name of its own: the service's are the service's.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace

import structlog

from drumlin.exporters.discovery import Discovered, is_service
from drumlin.exporters.pipeline.context import ClusterContext
from drumlin.exporters.pipeline.sink import Sink, write
from drumlin.exporters.protocol import without_nulls
from drumlin.exporters.sites import Sites, in_graph
from drumlin.exporters.sites import documents as site_documents
from drumlin.kg.config.datasources import DatasourceKind
from drumlin.kg.config.settings import Settings
from drumlin.kg.graphs.ingest import Statements, accept
from drumlin.kg.graphs.owners import HOSTING, USER, is_hosting
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf.jsonld import NAMESPACE, NodeDocument, read
from drumlin.kg.store.protocol import GraphWrite, Written
from drumlin.kg.telemetry import binding
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import Subject, describe
from drumlin.kg.telemetry.templates import TemplateCatalogue

log = structlog.get_logger()

OWNER = HOSTING
_FOLLOWERS = f"{OWNER}:"
_HOSTING = ("cluster/", "domain/", "datasource/", "template/")
_FOUND_EARLIER = f"""
SELECT ?name ?kind ?url ?domain WHERE {{
  ?datasource a <{NAMESPACE}Datasource> ; <{NAMESPACE}name> ?name ; <{NAMESPACE}datasourceType> ?kind ;
    <http://www.w3.org/ns/dcat#endpointURL> ?url .
  OPTIONAL {{ ?datasource <{NAMESPACE}domain> ?domain }}
}}"""
_UNBOUND = 'its series of these clusters cannot be told apart: add clusters or matchers = { cluster = "{cluster}" } to its table'
_KINDS: dict[str, DatasourceKind] = {"prometheus": "prometheus", "loki": "loki", "grafana": "grafana"}


def discovered(
    found: Iterable[Discovered],
    settings: Settings,
    iris: Iris,
    domain_of: Callable[[str], str | None],
    reached: Iterable[str] = (),
) -> tuple[Datasource, ...]:
    """Turn Services into datasources that can be resolved against but are never fetched from.

    ``domain_of`` names the domain of a namespace that has one of its own. Those that are configured already are left out, as is
    everything when ``discover`` is off; and a Prometheus object's own Service where another leads to it: one of ``found``, or any in
    the namespaces ``reached``.
    """
    if not settings.discover:
        return ()
    found = list(found)
    configured = {each for each in found if any(is_service(own, each, found) for own in settings.datasource)}
    reached = {*reached, *(each.namespace for each in configured if each.kind == "prometheus")}
    reached = {*reached, *(each.namespace for each in found if each.kind == "prometheus" and not each.operated)}
    reached |= {(each.service or "").partition("/")[0] for each in settings.datasource if each.kind == "prometheus"}
    return tuple(
        Datasource.discovered(
            f"{each.service}.{each.namespace}.{settings.cluster}",
            each.kind,
            each.url,
            iris,
            iris.domain(domain_of(each.namespace) or settings.domain.id),
            settings.cluster,
        )
        for each in sorted(found, key=lambda each: (each.namespace, each.service))
        if each not in configured and not (each.operated and each.namespace in reached)
    )


def owner_of(around: ClusterContext) -> str:
    """Return the owner of the hosting graphs that are written for one cluster."""
    return followers_of(around.settings.cluster) if around.follower else OWNER


def followers_of(cluster: str) -> str:
    """Return the owner of the hosting graphs that a follower of a cluster writes."""
    return f"{_FOLLOWERS}{cluster}"


def theirs(sink: Sink, around: ClusterContext) -> frozenset[str]:
    """Return the hosting graphs that are left to others who wrote them: of a service users' templates, of a follower all."""
    if not around.follower:
        templates = sink.entries(owner=USER, prefix=f"{around.iris.root}template/")
        return frozenset(each.graph for each in templates)
    own = owner_of(around)
    listed = (each for prefix in _HOSTING for each in sink.entries(prefix=around.iris.root + prefix))
    return frozenset(each.graph for each in listed if each.owner != own)


def writes(around: ClusterContext, found: Sequence[Datasource], sites: Sites) -> list[GraphWrite]:
    """Return the writes that make the hosting graphs what they should be, with ``found`` beside what is configured.

    They are those of the hosting domain, its ``sites`` and the cluster with their telemetry, the configured datasources and the
    templates. Of several clusters the first, the domain's home, tells the domain's telemetry.
    """
    telemetry = (*around.datasources, *found)
    documents = [
        *([_domain(around, telemetry, sites)] if around.home else []),
        *site_documents(around, sites, telemetry),
        _cluster(around, telemetry),
        *(each.document(around.iris) for each in around.datasources),
        *around.catalogue.documents(around.iris),
    ]
    return [write_of(document, owner_of(around), around.iris) for document in documents]


def write_of(document: NodeDocument, owner: str, iris: Iris) -> GraphWrite:
    """Return the write of a document of ours, accepted as any client's document is."""
    graph: str = document["id"]
    return GraphWrite(graph, accept(Statements(*read(document)), graph, iris), owner)


def ensure(
    sink: Sink,
    settings: Settings,
    iris: Iris,
    catalogue: TemplateCatalogue,
    datasources: Sequence[Datasource],
    *,
    home: bool = True,
) -> list[Written]:
    """Write the hosting graphs; called at every start, with the configured ``datasources``.

    Datasources discovered in an earlier life still count, so that a restart against an unchanged cluster writes nothing.
    """
    around = ClusterContext(settings, iris, catalogue, tuple(datasources), home).among(sink)
    if len(around.known) > 1:
        for each in datasources:
            if not binding.is_bound(each):
                log.warning("datasource_unbound", datasource=each.name, clusters=sorted(around.known), hint=_UNBOUND)
    left = theirs(sink, around)
    wanted = writes(around, list(found_earlier(sink, around)), in_graph(sink, around))
    ours = [each for each in wanted if each.graph not in left]
    written, refused = write(sink, ours)
    for error in refused:
        log.warning("graph_owned", graph=error.detail["graph"], owner=error.detail["owner"], writer=OWNER)
    return written


def found_earlier(sink: Sink, around: ClusterContext, owner: str | None = None) -> Iterable[Datasource]:
    """Read back what was discovered in this cluster, by the source ``owner`` or by any.

    The name of a discovered datasource ends in the cluster's; what users have written is not one, whatever its name.
    """
    iris, settings = around.iris, around.settings
    entries = sink.entries(owner=owner, prefix=f"{iris.root}datasource/") if settings.discover else []
    by_exporters = {each.graph for each in entries if each.owner != USER and not is_hosting(each.owner)}
    if not by_exporters:
        return
    for row in sorted(sink.look_up(_FOUND_EARLIER), key=lambda row: row["name"]):
        kind = _KINDS.get(row["kind"].removeprefix(NAMESPACE))
        if kind and row["name"].endswith(f".{settings.cluster}") and iris.datasource(row["name"]) in by_exporters:
            yield Datasource.discovered(row["name"], kind, row["url"], iris, row.get("domain"), settings.cluster)


def _domain(around: ClusterContext, datasources: Sequence[Datasource], sites: Sites) -> NodeDocument:
    domain = around.settings.domain
    cluster = around.settings.cluster
    place = Place(tuple(sorted(around.hosted | {cluster})), domain.id)
    subject = Subject(around.hosting_domain, "Domain", cluster, None, domain.type, domain.id, place=place)
    if len(sites) > 1:
        subject = replace(subject, nodes=sites.get(domain.id, ()))
    return without_nulls(
        {
            "id": subject.iri,
            "type": domain.type,
            "name": domain.id,
            "url": str(domain.url) if domain.url else None,
            "role": list(domain.role),
            "telemetry": describe(subject, around.catalogue, around.describable(place, datasources), around.iris),
        }
    )


def _cluster(around: ClusterContext, datasources: Sequence[Datasource]) -> NodeDocument:
    name = around.settings.cluster
    place = Place((name,), around.settings.domain.id)
    subject = Subject(around.cluster, "Cluster", name, None, "Cluster", name, place=place)
    return without_nulls(
        {
            "id": subject.iri,
            "type": "Cluster",
            "name": name,
            "domain": around.hosting_domain,
            "telemetry": describe(subject, around.catalogue, around.describable(place, datasources), around.iris),
        }
    )
