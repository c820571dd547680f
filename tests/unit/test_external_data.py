"""Data outside of the cluster that workloads depend on: stated by an annotation or the configuration, or noted by a user."""

from __future__ import annotations

import json
from dataclasses import replace
from typing import Any

import pytest

from drumlin.exporters.pipeline.reconciler import Reconciler
from drumlin.kg.config.settings import Settings
from drumlin.kg.errors import InvalidSettings
from drumlin.kg.rdf.jsonld import compact
from drumlin.kg.store.protocol import GraphWrite
from drumlin.kg.validation.validate import validate
from drumlin.queries.catalogue import QueryCatalogue
from tests.memory_sink import MemorySink
from tests.unit.rendering import CONTRACT, around, follow, gone, synced, upserted
from tests.unit.test_pipeline import BASE, deployment, pod, replicaset

WEB = f"{BASE}prod/shop/deployment/web"
ORDERS, RAW = f"{BASE}external/postgres~db.payments~orders", f"{BASE}external/s3~lake~raw"
ANNOTATION = "drumlin.io/depends-on"


def stating(text: str) -> dict[str, Any]:
    """The Deployment web with an annotation."""
    return deployment(annotations={ANNOTATION: text, "secret": "canary"})


def web(sink: MemorySink) -> list[str]:
    """Return what the Deployment web depends on."""
    return list(compact(sink.graphs[WEB], WEB).get("dependsOn", []))


def external(sink: MemorySink) -> set[str]:
    """Return the graphs of external data."""
    return {graph for graph in sink.graphs if graph.startswith(f"{BASE}external/")}


def asked(sink: MemorySink, name: str, **values: str) -> list[dict[str, str]]:
    """Ask a saved query."""
    iris = around().iris
    return list(sink.look_up(QueryCatalogue.load(iris).get(name).bound(values, iris)))


def test_an_annotation_states_data_without_its_credentials() -> None:
    """Each URL is a data asset with a graph of its own; passwords, parameters and other annotations come nowhere."""
    text = "postgresql://app:canary@db.payments/orders?password=canary, s3://lake/raw/ , lakehouse://w"
    sink, run = follow([upserted(stating(text))])

    assert web(sink) == [f"{BASE}external/lakehouse~w", ORDERS, RAW]
    assert "canary" not in json.dumps([*map(sorted, sink.graphs.values())])
    assert run.summary.left_out == run.summary.rejected == []
    asset = compact(sink.graphs[ORDERS], ORDERS)
    assert (asset["type"], asset["name"], asset["assetType"], asset["kind"]) == (
        "DataAsset",
        "postgres://db.payments/orders",
        "ExternalData",
        "database",
    )
    assert compact(sink.graphs[f"{BASE}external/lakehouse~w"], f"{BASE}external/lakehouse~w")["kind"] == "lakehouse"
    for graph in (WEB, ORDERS, RAW):
        validate(sink.graphs[graph], graph, around().iris)


def test_an_entry_that_is_no_url_is_left_out_and_reported_by_its_place() -> None:
    """The workload and the good entries stay; the report does not say what stood there."""
    sink, run = follow([upserted(stating("s3://lake/raw, postgres://app:can/ary@db/x, orders"))])

    assert web(sink) == [RAW]
    (found,) = run.summary.left_out
    assert found.where == WEB
    assert "entry 2, 3" in found.reason
    assert "ary" not in found.reason
    assert run.summary.rejected == []


def test_the_configuration_states_data_of_the_workloads_that_it_selects() -> None:
    """By patterns of namespaces and names, and by labels; all that are given have to fit."""
    rules = [
        {"namespaces": ["sh*"], "labels": {"team": "a"}, "data": ["s3://u:canary@lake/raw?x=canary"]},
        {"names": ["other"], "data": ["kafka://orders"]},
        {"namespaces": ["shop"], "names": ["w?b"], "data": ["postgres://db.payments/orders"]},
    ]
    surroundings = around({**CONTRACT, "depends_on": rules})
    sink, _ = follow(
        [upserted({**deployment(), "metadata": {**deployment()["metadata"], "labels": {"team": "a"}}})],
        None,
        surroundings,
    )

    assert web(sink) == [ORDERS, RAW]
    assert external(sink) == {ORDERS, RAW}


def test_a_rule_with_what_is_no_url_ends_the_start_and_quotes_nothing() -> None:
    """The message names the place of the entry, since a password may stand in it."""
    with pytest.raises(InvalidSettings, match="entry 2 is no URL of data") as raised:
        Settings.load(depends_on=[{"data": ["s3://a", "postgres://u:can/ary@db"]}])

    assert "ary@" not in str(raised.value)


def test_data_that_nothing_links_to_any_more_has_no_graph() -> None:
    """A graph goes with the last workload that states it, also over a restart; what a user notes keeps it."""
    sink, run = follow([*synced(), upserted(stating("s3://lake/raw, postgres://db.payments/orders"))])
    _note(sink, ORDERS)
    run.take(upserted(stating("postgres://db.payments/orders")))
    run.flush(everything=True)
    assert external(sink) == {ORDERS}

    run.take(upserted(deployment()))
    run.flush(everything=True)
    assert external(sink) == {ORDERS}

    del sink.graphs[f"{BASE}notes/prod/shop/deployment/web"]
    sink._engine = None  # as a write would
    follow([upserted(deployment()), *synced()], sink)
    assert external(sink) == set()


def test_a_restart_writes_nothing_and_a_users_graph_is_the_users() -> None:
    """The exporter leaves a graph of external data alone that somebody has described better."""
    sink = MemorySink()
    mine = frozenset(
        {
            f"<{RAW}> <http://www.w3.org/1999/02/22-rdf-syntax-ns#type> <https://w3id.org/drumlin/ns#DataAsset> .",
            f'<{RAW}> <https://w3id.org/drumlin/ns#name> "Raw events" .',
        }
    )
    sink.apply([GraphWrite.of(RAW, mine, "user")])
    _, run = follow([upserted(stating("s3://lake/raw, kafka://orders")), *synced()], sink)
    assert sink.graphs[RAW] == mine
    assert run.summary.rejected == []

    generation = sink.generation
    follow([upserted(stating("s3://lake/raw, kafka://orders")), *synced()], sink)
    assert sink.generation == generation


def _note(sink: MemorySink, asset: str) -> None:
    notes = f"{BASE}notes/prod/shop/deployment/web"
    lines = frozenset({f"<{WEB}> <https://w3id.org/drumlin/ns#dependsOn> <{asset}> ."})
    validate(lines, notes, around().iris)
    sink.apply([GraphWrite.of(notes, lines, "user")])


def test_the_questions_about_data_read_the_graph_and_the_notes() -> None:
    """Who needs it, which data does it need, and what would feel its loss: pods, services and ingresses too."""
    service = {
        "kind": "Service",
        "metadata": {"name": "web", "namespace": "shop", "uid": "s"},
        "spec": {"selector": {"app": "web"}},
    }
    owner = [{"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "web-x", "uid": "r1", "controller": True}]
    sink, _ = follow([*map(upserted, (stating("s3://lake/raw"), replicaset(), pod(owner=owner), service)), *synced()])
    _note(sink, ORDERS)
    follow(
        [
            *map(
                upserted,
                (stating("s3://lake/raw, postgres://db.payments/orders"), replicaset(), pod(owner=owner), service),
            )
        ],
        sink,
    )
    follow([*map(upserted, (stating("s3://lake/raw"), replicaset(), pod(owner=owner), service)), *synced()], sink)

    for asset in (RAW, ORDERS):
        assert [row["user"] for row in asked(sink, "users-of-data", asset=asset)] == [WEB]
        found = {row["affected"].removeprefix(f"{BASE}prod/shop/") for row in asked(sink, "blast-radius", entity=asset)}
        assert found == {"deployment/web", "pod/web-0", "service/web"}
    assert {(row["asset"], row["kind"]) for row in asked(sink, "data-dependencies")} == {
        (RAW, "objectstore"),
        (ORDERS, "database"),
    }
    node = asked(sink, "blast-radius", entity="prod/-/node/a")
    assert {row["affected"].removeprefix(f"{BASE}prod/shop/") for row in node} == {"pod/web-0"}


def test_a_workload_that_is_gone_needs_no_data() -> None:
    """Notes on it remain; it is no user of the data any more."""
    sink, run = follow([*synced(), upserted(stating("s3://lake/raw"))])
    _note(sink, RAW)
    assert isinstance(run, Reconciler)
    run.take(gone(deployment()))
    run.flush(everything=True)

    assert asked(sink, "users-of-data", asset=RAW) == []


def test_two_followers_state_the_same_data() -> None:
    """The graph is the first one's; it stays as long as either cluster's workloads link to it."""
    settings = ({**CONTRACT, "cluster": name} for name in ("prod", "edge"))
    first, second = (replace(around(each), follower=True) for each in settings)
    sink = MemorySink()
    for each in (first, second):
        _, run = follow([upserted(stating("s3://lake/raw")), *synced()], sink, each)
        assert run.summary.rejected == []
    assert sink.owners[RAW] == "drumlin:prod"

    follow([upserted(deployment()), *synced()], sink, first)
    assert external(sink) == {RAW}
    follow([upserted(deployment()), *synced()], sink, second)
    follow([upserted(deployment()), *synced()], sink, first)
    assert external(sink) == set()
