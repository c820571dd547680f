"""The flat document of an entity: what its graph says, in the shape that edge monitoring reads, and JSON-LD all the same."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pyld
import pytest

from drumlin.kg.errors import InvalidInput
from drumlin.kg.rdf.jsonld import NAMESPACE, NodeDocument
from drumlin.kg.telemetry import seed
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import describe
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.unit.telemetry_store import IRIS
from tests.unit.test_telemetry_documents import CHECKOUT, GRAFANA, LOKI, PROMETHEUS

LOGS = replace(
    GRAFANA, dashboards={**GRAFANA.dashboards, "logs": "https://grafana.example/logs?ns={namespace}&app={name}"}
)
SERVERS: list[Datasource] = [PROMETHEUS, LOKI, LOGS]


def _flat(**more: Any) -> dict[str, Any]:
    entity: NodeDocument = {
        "id": CHECKOUT.iri,
        "type": "Deployment",
        "name": "checkout",
        "dependsOn": ["https://kg.example/id/prod/shop/persistentvolumeclaim/x"],
        "telemetry": describe(CHECKOUT, TemplateCatalogue.shipped(), SERVERS, IRIS),
        **more,
    }
    return seed.document(entity, {each.iri: each for each in SERVERS})


def test_a_workload_is_flat() -> None:
    """Application, data, metrics with unit and datasource, logs with theirs, and the dashboards of both."""
    found = _flat(application="shop-checkout")

    assert (found["application"], found["data"]) == (
        "shop-checkout",
        ["https://kg.example/id/prod/shop/persistentvolumeclaim/x"],
    )
    (metrics,) = found["telemetry"]["metrics"]
    assert metrics["type"] == "timeseries/prometheus"
    assert metrics["dataSource"] == {"id": PROMETHEUS.iri, "type": "prometheus", "url": PROMETHEUS.url}
    units = {each["name"]: each["unit"] for each in metrics["metrics"]}
    assert (
        units.items()
        >= {"cpu_usage": "{cpu}", "mem_usage": "By", "energy_joules": "J", "network_usage": "By/s"}.items()
    )
    assert metrics["dashboard"].startswith("https://grafana.example/d/")
    (logs,) = found["telemetry"]["logs"]
    assert (logs["type"], logs["dataSource"]["url"]) == ("logs/loki", LOKI.url)
    assert logs["dashboard"].startswith("https://grafana.example/logs?ns=payments&app=checkout")
    assert _flat()["application"] == "checkout"


def test_it_is_json_ld() -> None:
    """A JSON-LD processor reads the terms of the vocabulary out of it, and no other."""
    quads = pyld.jsonld.to_rdf(_flat())["@default"]
    triples = {(each["subject"]["value"], each["predicate"]["value"], each["object"]["value"]) for each in quads}
    predicates = {predicate for _, predicate, _ in triples}

    assert (CHECKOUT.iri, f"{NAMESPACE}application", "checkout") in triples
    assert (PROMETHEUS.iri, "http://www.w3.org/ns/dcat#endpointURL", PROMETHEUS.url) in triples
    assert (PROMETHEUS.iri, f"{NAMESPACE}datasourceType", f"{NAMESPACE}prometheus") in triples
    own = {each.removeprefix(NAMESPACE) for each in predicates if each.startswith(NAMESPACE)}
    assert own == {"application", "datasourceType", "dependsOn", "name", "query", "telemetry", "unit"}


def test_other_classes_have_none() -> None:
    """A Service has no flat document, and an entity without telemetry empty lists."""
    with pytest.raises(InvalidInput, match="no flat document"):
        _flat(type="Service")
    assert _flat(telemetry=[])["telemetry"] == {"metrics": [], "logs": []}
