"""What the exporters' tests share: settings of the contract, changes from plain manifests, and a run over them."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

import msgspec

from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.pipeline.context import ClusterContext
from drumlin.exporters.pipeline.reconciler import Reconciler
from drumlin.exporters.pipeline.sink import BATCH
from drumlin.exporters.protocol import Change, Gone, Kind, Synced, Upserted
from drumlin.kg.config.settings import Settings
from drumlin.kg.model.iris import Iris
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.memory_sink import MemorySink

KINDS = kinds_of(Settings(mappings=("kuscia",), optional_kinds=("events", "networkpolicies", "rolebindings")))
"""Kubernetes' own kinds, the optional ones too, and Kuscia's by the mapping that is shipped."""
BY_NAME: Mapping[str, Kind] = {kind.name: kind for kind in KINDS}
NOW = datetime(2026, 11, 27, 21, 51, 39, tzinfo=UTC)
CONTRACT: Mapping[str, Any] = {
    "base": "https://kg.example",
    "cluster": "prod",
    "domain": {
        "id": "glaciation-node1",
        "type": "GlaciationNode",
        "url": "https://glaciation-node1.example/",
        "role": ["Autonomy"],
    },
    "datasource": [],
}


def now() -> datetime:
    """The time at which everything is observed."""
    return NOW


def around(settings: Mapping[str, Any] = CONTRACT, templates: Iterable[str] | None = None) -> ClusterContext:
    """Build what is configured; ``templates`` names those of the catalogue (all of them when None)."""
    read = Settings(**settings)
    iris = Iris(read.base)
    shipped = TemplateCatalogue.shipped(frozenset(read.exporters))
    wanted = None if templates is None else set(templates)
    scopes = ("Workload", "Node", "Domain", "Cluster", "DomainRoute", "Function")
    catalogue = TemplateCatalogue(
        each for scope in scopes for each in shipped.for_scope(scope) if wanted is None or each.name in wanted
    )
    domain = iris.domain(read.domain.id)
    return ClusterContext(
        read,
        iris,
        catalogue,
        tuple(Datasource.from_settings(each, iris, domain) for each in read.datasource),
        functions=frozenset(each.segment for each in kinds_of(read) if each.reserved == "function"),
    )


def manifest(document: Mapping[str, Any]) -> Any:
    """Read a plain manifest as its kind's projection, from JSON as a source does."""
    return msgspec.json.decode(json.dumps(document), type=BY_NAME[document["kind"]].projection)


def upserted(document: Mapping[str, Any]) -> Upserted:
    """The change that says an object exists."""
    return Upserted(BY_NAME[document["kind"]], manifest(document))


def gone(document: Mapping[str, Any], *, observed: datetime = NOW, estimated: bool = False) -> Gone:
    """The change that says an object is gone."""
    return Gone(BY_NAME[document["kind"]], manifest(document), observed, estimated)


def synced(*kinds: str, observed: datetime = NOW) -> list[Synced]:
    """The changes that say kinds are complete; all of them when none is named."""
    return [Synced(BY_NAME[kind], observed) for kind in kinds or BY_NAME]


def following(sink: MemorySink, surroundings: ClusterContext, owner: str = "test", most: int = BATCH) -> Reconciler:
    """Begin a run without windows, so that each flush writes everything, ``most`` graphs at once."""
    return Reconciler(sink, surroundings, owner, frozenset(kind.segment for kind in KINDS), now, window=0.0, most=most)


def follow(
    changes: Sequence[Change],
    sink: MemorySink | None = None,
    surroundings: ClusterContext | None = None,
    *,
    one_by_one: bool = False,
    most: int = BATCH,
) -> tuple[MemorySink, Reconciler]:
    """Run over ``changes``; ``one_by_one`` writes after each, as if they came slowly after everything was synced."""
    sink = MemorySink() if sink is None else sink
    run = following(sink, surroundings or around(), most=most)
    for change in [*(synced() if one_by_one else ()), *changes]:
        run.take(change)
        if one_by_one:
            run.flush()
    run.flush(everything=True)
    return sink, run


def without_queries(document: Any) -> Any:
    """Return a document without the text of its queries, which follows what servers were found to do, unlike the shape around it."""
    if isinstance(document, dict):
        return {key: "" if key == "query" else without_queries(value) for key, value in document.items()}
    return [without_queries(each) for each in document] if isinstance(document, list) else document
