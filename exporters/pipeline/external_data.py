"""The graphs of data outside of the cluster that workloads depend on: one for each URL that is stated, as long as something links to it.

Several clusters may state one URL; like the hosting domain's, its graph belongs to Drumlin itself, whichever source names it. A graph that
a user has written is the user's.
"""

from __future__ import annotations

from collections.abc import Iterable

from drumlin.exporters.pipeline.context import ClusterContext
from drumlin.exporters.pipeline.hosting_domain import owner_of, write_of
from drumlin.exporters.pipeline.sink import Sink
from drumlin.kg.model.data_urls import kind_of, url_of
from drumlin.kg.rdf.jsonld import NAMESPACE, NodeDocument
from drumlin.kg.store.protocol import GraphWrite

_USED = f"SELECT ?user ?asset WHERE {{ ?user <{NAMESPACE}dependsOn> ?asset }} LIMIT 1"


def writes(sink: Sink, around: ClusterContext, stated: Iterable[str]) -> list[GraphWrite]:
    """Return the writes that give each asset of ``stated`` (IRIs) its graph, and remove those of ours that nothing links to any more."""
    iris, owner = around.iris, owner_of(around)
    owners = {each.graph: each.owner for each in sink.entries(prefix=f"{iris.root}external/")}
    wanted = [_document(each, around) for each in sorted(stated) if owners.get(each, owner) == owner]
    named = set(stated)
    left = [graph for graph, of in owners.items() if of == owner and graph not in named and _is_url(graph, around)]
    unused = [graph for graph in left if not sink.look_up(_USED, {"asset": graph})]
    return [*(write_of(each, owner, iris) for each in wanted), *(GraphWrite(each, None, owner) for each in unused)]


def _is_url(graph: str, around: ClusterContext) -> bool:
    return url_of(around.iris.parse(graph).name.name) is not None


def _document(iri: str, around: ClusterContext) -> NodeDocument:
    url = url_of(around.iris.parse(iri).name.name) or iri
    return {"id": iri, "type": "DataAsset", "name": url, "assetType": "ExternalData", "kind": kind_of(url)}
