"""One metric in several datasources: the graph marks the distribution that ``resolve`` takes, whatever the order and the kinds."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from importlib.resources import files
from typing import Any

from hypothesis import given, settings
from hypothesis import strategies as st

from drumlin.kg.client.entities import metrics_of
from drumlin.kg.config.datasources import DatasourceSettings
from drumlin.kg.rdf.jsonld import NodeDocument
from drumlin.kg.telemetry.binding import Place
from drumlin.kg.telemetry.datasources import Datasource
from drumlin.kg.telemetry.describe import Subject, describe, pod_names
from drumlin.kg.telemetry.resolve import Resolver
from drumlin.kg.telemetry.series import Window
from drumlin.kg.telemetry.templates import TemplateCatalogue
from tests.thoroughness import examples
from tests.unit.telemetry_store import IRIS, GraphStore

SITE, OTHER = IRIS.domain("site"), IRIS.domain("other")
DAY = Window(datetime(2026, 11, 27, tzinfo=UTC), datetime(2026, 11, 28, tzinfo=UTC))
DB = IRIS.object("prod", "shop", "StatefulSet", "db")
CATALOGUE = TemplateCatalogue(
    each for each in TemplateCatalogue.shipped().templates if each.metric in ("mem_usage", "cpu_usage")
)
SERIES = {"workload.mem_usage": {"measurement": "m", "field": "f"}}
METRIC = f"{DB}/metric/mem_usage"


def _configured(name: str, kind: str, domain: str) -> Datasource:
    given = {"name": name, "kind": kind, "url": f"http://{name}:9090"}
    more = {"database": "d", "series": SERIES} if kind == "influxdb" else {}
    return Datasource.from_settings(DatasourceSettings.model_validate({**given, **more}), IRIS, domain)


def _found(name: str, domain: str) -> Datasource:
    return Datasource.discovered(name, "prometheus", f"http://{name}:9090", IRIS, domain, "prod")


DATASOURCES = st.lists(
    st.tuples(
        st.sampled_from(["a", "b", "c", "d"]),
        st.sampled_from(["prometheus", "influxdb", "found", "imported"]),
        st.sampled_from([SITE, OTHER]),
    ),
    min_size=1,
    max_size=4,
    unique_by=lambda each: each[0],
).filter(lambda chosen: any(kind != "imported" for _, kind, _ in chosen))
"""Names, kinds and domains; ``imported`` ones stand in the graph, but no entity is described in them."""


def _workload(datasources: Sequence[Datasource]) -> NodeDocument:
    pods = pod_names("StatefulSet", "db")
    subject = Subject(DB, "Workload", "prod", "shop", "StatefulSet", "db", pods, place=Place(("prod",), "site"))
    about = {"id": DB, "type": "StatefulSet", "name": "db", "namespace": "shop", "domain": SITE}
    return {**about, "telemetry": describe(subject, CATALOGUE, datasources, IRIS)}


def _memory(document: NodeDocument) -> list[dict[str, Any]]:
    (metrics,) = document["telemetry"]
    (found,) = (part["distribution"] for part in metrics["hasPart"] if part["name"] == "mem_usage")
    return list(found)


@settings(deadline=None, max_examples=examples(40))
@given(chosen=DATASOURCES, data=st.data())
def test_the_graph_and_resolve_choose_the_same(chosen: list[tuple[str, str, str]], data: st.DataObject) -> None:
    """One distribution is marked where there are several, none where there is one, and it is the one that is asked."""
    configured = [_configured(*each) for each in chosen if each[1] in ("prometheus", "influxdb")]
    found, imported = (
        [_found(name, domain) for name, kind, domain in chosen if kind == wanted] for wanted in ("found", "imported")
    )
    document = _workload([*configured, *data.draw(st.permutations(found))])
    known = data.draw(st.permutations([*found, *imported]))
    graph = GraphStore([document, *(each.document(IRIS) for each in known)])

    resolution = Resolver(graph, IRIS, configured, CATALOGUE).resolve(DB, "mem_usage", DAY)

    held = _memory(document)
    marked = [each["accessService"] for each in held if each.get("preferred")]
    assert marked == ([resolution.datasource_iri] if len(held) > 1 else [])
    assert metrics_of(document)["mem_usage"].query == next(
        each["query"] for each in held if each["accessService"] == resolution.datasource_iri
    )


def test_the_saved_queries_return_the_preferred_one() -> None:
    """A metric that two datasources hold is one row, with the query that ``resolve`` would send."""
    configured = [_configured(name, "prometheus", domain) for name, domain in (("a", OTHER), ("b", SITE))]
    graph = GraphStore([_workload(configured), *(each.document(IRIS) for each in configured)])

    for name in ("workload-metrics", "metrics-of-quantity"):
        text = files("drumlin.queries").joinpath(f"{name}.rq").read_text(encoding="utf-8")
        asked = text.replace(":quantity ?quantity", ":quantity :memory")
        rows = [row for row in graph.look_up(asked) if row["metric"] == "mem_usage"]
        (query,) = (row["query"] for row in rows)
        assert "mem" in query
        if "datasource" in rows[0]:
            assert rows[0]["datasource"] == IRIS.datasource("b")


def test_one_holder_needs_no_mark() -> None:
    """Most metrics have one place: nothing is added to the graph for them."""
    document = _workload([_configured("a", "prometheus", SITE)])

    assert all("preferred" not in each for each in _memory(document))
