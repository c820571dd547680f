"""The graphs that stand around the objects: the hosting domain, its cluster, the datasources and the metric templates.

They follow from the configuration and from the datasources discovered in the cluster, so they are rewritten only when one of
these changes. Their owner is Drumlin itself, whichever source runs.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence

import structlog

from exporters.context import Surroundings
from exporters.kubernetes.manifests import without_nulls
from exporters.kubernetes.render.service import Discovered
from exporters.sink import Sink, write
from kg.iris import Iris
from kg.jsonld import NAMESPACE, NodeDocument, lines
from kg.servers import DatasourceKind
from kg.settings import Settings
from kg.store.protocol import GraphWrite, Written
from kg.telemetry.datasources import Datasource
from kg.telemetry.describe import Subject, describe
from kg.telemetry.templates import Catalogue

log = structlog.get_logger()

OWNER = "drumlin"
_FOUND_EARLIER = f"""
SELECT ?name ?kind ?url ?domain WHERE {{
  ?datasource a <{NAMESPACE}Datasource> ; <{NAMESPACE}name> ?name ; <{NAMESPACE}datasourceType> ?kind ;
    <http://www.w3.org/ns/dcat#endpointURL> ?url .
  OPTIONAL {{ ?datasource <{NAMESPACE}domain> ?domain }}
}}"""
_KINDS: dict[str, DatasourceKind] = {"prometheus": "prometheus", "loki": "loki", "grafana": "grafana"}


def discovered(
    found: Iterable[Discovered], settings: Settings, iris: Iris, domain_of: Callable[[str], str | None]
) -> tuple[Datasource, ...]:
    """Turn Services into datasources that can be resolved against but are never fetched from.

    ``domain_of`` names the domain of a namespace that has one of its own. Those that the configuration names as ``service`` are
    left out, as is everything when ``discover`` is off; and a Prometheus object's own Service where another leads to it.
    """
    if not settings.discover:
        return ()
    found = list(found)
    configured = {each.service for each in settings.datasource}
    reached = {each.namespace for each in found if each.kind == "prometheus" and not each.operated}
    reached |= {(each.service or "").partition("/")[0] for each in settings.datasource if each.kind == "prometheus"}
    return tuple(
        Datasource.discovered(
            f"{each.service}.{each.namespace}.{settings.cluster}",
            each.kind,
            each.url,
            iris,
            iris.domain(domain_of(each.namespace) or settings.domain.id),
        )
        for each in sorted(found, key=lambda each: (each.namespace, each.service))
        if f"{each.namespace}/{each.service}" not in configured and not (each.operated and each.namespace in reached)
    )


def writes(around: Surroundings, found: Sequence[Datasource]) -> list[GraphWrite]:
    """Return the writes that make the hosting graphs what they should be, with ``found`` beside what is configured.

    They are those of the hosting domain and the cluster with their telemetry, the configured datasources and the templates. Of
    several clusters the first, the domain's home, tells the domain's telemetry.
    """
    telemetry = (*around.datasources, *found)
    documents = [
        *([_domain(around, telemetry)] if around.home else []),
        _cluster(around, telemetry),
        *(each.document() for each in around.datasources),
        *around.catalogue.documents(around.iris),
    ]
    return [GraphWrite(document["id"], lines(document), OWNER) for document in documents]


def ensure(
    sink: Sink,
    settings: Settings,
    iris: Iris,
    catalogue: Catalogue,
    datasources: Sequence[Datasource],
    *,
    home: bool = True,
) -> list[Written]:
    """Write the hosting graphs; called at every start, with the configured ``datasources``.

    Datasources discovered in an earlier life still count, so that a restart against an unchanged cluster writes nothing.
    """
    around = Surroundings(settings, iris, catalogue, tuple(datasources), home)
    written, refused = write(sink, writes(around, list(found_earlier(sink, around))))
    for error in refused:
        log.warning("graph_owned", graph=error.detail["graph"], owner=error.detail["owner"], writer=OWNER)
    return written


def found_earlier(sink: Sink, around: Surroundings, owner: str | None = None) -> Iterable[Datasource]:
    """Read back what was discovered in this cluster, by the source ``owner`` or by any.

    The name of a discovered datasource ends in the cluster's; what users have written is not one, whatever its name.
    """
    iris, settings = around.iris, around.settings
    entries = sink.entries(owner=owner, prefix=f"{iris.root}datasource/") if settings.discover else []
    by_exporters = {each.graph for each in entries if each.owner not in (OWNER, "user")}
    if not by_exporters:
        return
    for row in sorted(sink.look_up(_FOUND_EARLIER), key=lambda row: row["name"]):
        kind = _KINDS.get(row["kind"].removeprefix(NAMESPACE))
        if kind and row["name"].endswith(f".{settings.cluster}") and iris.datasource(row["name"]) in by_exporters:
            yield Datasource.discovered(row["name"], kind, row["url"], iris, row.get("domain"))


def _domain(around: Surroundings, datasources: Sequence[Datasource]) -> NodeDocument:
    domain = around.settings.domain
    cluster = around.settings.cluster
    subject = Subject(around.hosting_domain, "Domain", cluster, None, domain.type, domain.id)
    return without_nulls(
        {
            "id": subject.iri,
            "type": domain.type,
            "name": domain.id,
            "url": str(domain.url) if domain.url else None,
            "role": list(domain.role),
            "telemetry": describe(subject, around.catalogue, datasources, around.iris),
        }
    )


def _cluster(around: Surroundings, datasources: Sequence[Datasource]) -> NodeDocument:
    name = around.settings.cluster
    subject = Subject(around.cluster, "Cluster", name, None, "Cluster", name)
    return without_nulls(
        {
            "id": subject.iri,
            "type": "Cluster",
            "name": name,
            "domain": around.hosting_domain,
            "telemetry": describe(subject, around.catalogue, datasources, around.iris),
        }
    )
