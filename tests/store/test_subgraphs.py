"""CRUD of subgraphs: owners, conditions, tombstones, validation, listing."""

from __future__ import annotations

import json
from collections.abc import Iterator
from datetime import UTC, datetime
from typing import Any

import pytest

from drumlin.kg import rdf
from drumlin.kg.errors import (
    AlreadyExists,
    GraphOwned,
    InvalidDocument,
    InvalidIdentifier,
    PreconditionFailed,
    ResourceGone,
    ResourceNotFound,
    ShapeViolation,
    TooLarge,
)
from drumlin.kg.graphs.entities import EntityGraphs
from drumlin.kg.graphs.ingest import Statements
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld
from drumlin.kg.rdf.syntax import JSONLD, NQUADS, TRIG, TURTLE
from drumlin.kg.store.embedded.store import EmbeddedStore
from drumlin.kg.store.protocol import GraphWrite

IRIS = Iris("https://kg.example")
NOON = datetime(2026, 11, 27, 12, tzinfo=UTC)
CHECKOUT = "prod/payments/deployment/checkout"


def document(id: str = CHECKOUT, kind: str = "Deployment", **more: Any) -> dict[str, Any]:
    """Describe an entity."""
    name = id.rpartition("/")[2]
    return {
        "id": IRIS.expand(id),
        "type": kind,
        "name": name,
        "namespace": id.split("/")[1],
        "cluster": IRIS.cluster("prod"),
        **more,
    }


def lines(id: str = CHECKOUT, kind: str = "Deployment", **more: Any) -> rdf.Lines:
    """Describe an entity, as lines."""
    return jsonld.lines(document(id, kind, **more))


def said(*of: Any, **more: Any) -> Statements:
    """Return the same as what somebody wants the graph to say."""
    return Statements(lines(*of, **more))


@pytest.fixture
def store() -> Iterator[EmbeddedStore]:
    """Open an empty store."""
    opened = EmbeddedStore(clock=lambda: NOON)
    yield opened
    opened.close()


@pytest.fixture
def graphs(store: EmbeddedStore) -> EntityGraphs:
    """Give the subgraphs of an empty store."""
    return EntityGraphs(store, IRIS, clock=lambda: NOON)


# -- one graph ----------------------------------------------------------------------------------------------------------------


def test_what_is_put_is_read(graphs: EntityGraphs) -> None:
    """A graph is written by short id and read by IRI, with owner and digest."""
    written = graphs.put(CHECKOUT, said(replicas=3))
    found = graphs.read(IRIS.expand(CHECKOUT))

    assert written.outcome == "created"
    assert (found.lines, found.digest, found.owner, found.tombstone) == (
        lines(replicas=3),
        written.digest,
        "user",
        False,
    )
    assert graphs.put(CHECKOUT, said(replicas=3)).outcome == "unchanged"
    assert graphs.put(CHECKOUT, said(replicas=4)).outcome == "replaced"


def test_an_unknown_id_is_not_found(graphs: EntityGraphs) -> None:
    """Reading and deleting what is not there say so; what is no id is another error."""
    for attempt in (graphs.read, graphs.delete):
        with pytest.raises(ResourceNotFound) as caught:
            attempt(CHECKOUT)
        assert not isinstance(caught.value, ResourceGone)
    with pytest.raises(InvalidIdentifier):
        graphs.read("checkout")
    assert graphs.live_entry(CHECKOUT) is None
    assert not graphs.exists(CHECKOUT)


def test_creating_what_exists_is_refused(graphs: EntityGraphs) -> None:
    """Create is for what is not there."""
    first = graphs.create(CHECKOUT, said())

    with pytest.raises(AlreadyExists) as caught:
        graphs.create(CHECKOUT, said(replicas=1))
    assert caught.value.detail["digest"] == first.digest


def test_a_write_holds_only_for_what_was_read(graphs: EntityGraphs) -> None:
    """With the digest of what was read, a write or a deletion in between is not overwritten."""
    first = graphs.put(CHECKOUT, said(replicas=1), expected=None)
    second = graphs.put(CHECKOUT, said(replicas=2), expected=first.digest)

    for attempt in (
        lambda: graphs.put(CHECKOUT, said(replicas=3), expected=first.digest),
        lambda: graphs.put(CHECKOUT, said(replicas=3), expected=None),
        lambda: graphs.delete(CHECKOUT, expected=first.digest),
    ):
        with pytest.raises(PreconditionFailed) as caught:
            attempt()
        assert caught.value.detail["digest"] == second.digest


# -- deletion -----------------------------------------------------------------------------------------------------------------


def test_a_deleted_graph_is_gone_but_remembered(graphs: EntityGraphs) -> None:
    """Deletion leaves the tombstone at once, readable only for those who ask for it; deleting again says gone."""
    graphs.put(CHECKOUT, said(replicas=3))
    graphs.delete(CHECKOUT)

    for attempt in (graphs.read, graphs.delete):
        with pytest.raises(ResourceGone):
            attempt(CHECKOUT)
    found = graphs.read(CHECKOUT, allow_gone=True)
    assert found.tombstone
    assert jsonld.compact(found.lines, found.iri) == {
        "@context": jsonld.CONTEXT_IRI,
        **document(),
        "type": "Tombstone",
        "formerType": "Deployment",
        "invalidatedAt": "2026-11-27T12:00:00Z",
    }
    assert graphs.live_entry(CHECKOUT) is None
    assert graphs.exists(CHECKOUT)


@pytest.mark.parametrize("how", ["put", "put as absent", "create"])
def test_writing_over_a_tombstone_creates(graphs: EntityGraphs, how: str) -> None:
    """A tombstone counts as absent: PUT, conditional PUT and POST all create."""
    graphs.put(CHECKOUT, said())
    graphs.delete(CHECKOUT)
    written = {
        "put": lambda: graphs.put(CHECKOUT, said(replicas=1)),
        "put as absent": lambda: graphs.put(CHECKOUT, said(replicas=1), expected=None),
        "create": lambda: graphs.create(CHECKOUT, said(replicas=1)),
    }[how]()

    assert written.outcome == "created"
    assert graphs.read(CHECKOUT).lines == lines(replicas=1)


def test_an_exporters_graph_is_the_exporters(graphs: EntityGraphs, store: EmbeddedStore) -> None:
    """A user neither replaces nor deletes what an exporter writes, and is told who does and where remarks go."""
    store.apply([GraphWrite.of(IRIS.expand(CHECKOUT), lines(), "kubernetes:prod")])

    for attempt in (lambda: graphs.put(CHECKOUT, said(replicas=1)), lambda: graphs.delete(CHECKOUT)):
        with pytest.raises(GraphOwned) as caught:
            attempt()
        assert caught.value.detail["owner"] == "kubernetes:prod"
        assert caught.value.hint
        assert "notes" in caught.value.hint
    assert graphs.read(CHECKOUT).lines == lines()


# -- documents ----------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("syntax", rdf.SYNTAXES, ids=lambda syntax: syntax.name)
def test_a_document_comes_in_any_syntax(graphs: EntityGraphs, syntax: rdf.Syntax) -> None:
    """Triples, or quads of the graph itself, are its content."""
    iri = IRIS.expand(CHECKOUT)

    assert graphs.parse(rdf.serialize(lines(), syntax, graph=iri), syntax, iri).lines == lines()
    assert graphs.parse(json.dumps(document()).encode(), JSONLD, iri).lines == lines()


def test_relative_iris_are_below_the_graph(graphs: EntityGraphs) -> None:
    """The base of a document is the graph it is put to."""
    iri = IRIS.expand(CHECKOUT)

    assert graphs.parse(b"<> <http://x.example/p> <> .", TURTLE, iri).lines == {
        f"<{iri}> <http://x.example/p> <{iri}> ."
    }


def test_statements_of_another_graph_are_refused(graphs: EntityGraphs) -> None:
    """A document cannot write to a graph that was not asked for."""
    other = rdf.serialize(lines(), NQUADS, graph=IRIS.domain("alice"))

    with pytest.raises(InvalidDocument, match="domain/alice"):
        graphs.parse(other, NQUADS, IRIS.expand(CHECKOUT))
    with pytest.raises(InvalidDocument):
        graphs.parse(b"_:g { <http://s> <http://p> 1 }", TRIG, IRIS.expand(CHECKOUT))


def test_a_large_document_is_refused(store: EmbeddedStore) -> None:
    """The cap holds for every syntax and both numbers are told."""
    small = EntityGraphs(store, IRIS, clock=lambda: NOON, max_bytes=1000)

    for syntax in (TURTLE, JSONLD):
        with pytest.raises(TooLarge, match="1,001 bytes; the limit is 1,000"):
            small.parse(b" " * 1001, syntax, IRIS.expand(CHECKOUT))


@pytest.mark.parametrize(
    "bad",
    [
        {"replicas": "three"},
        {"replcas": 3},
        {"container": [{"id": "https://kg.example/id/domain/alice", "name": "x"}]},
    ],
)
def test_nothing_is_written_that_does_not_validate(
    graphs: EntityGraphs, store: EmbeddedStore, bad: dict[str, Any]
) -> None:
    """An ill-typed literal, an undeclared term, a subject outside the graph: refused whole, never half stored."""
    with pytest.raises(ShapeViolation):
        graphs.put(CHECKOUT, said(**bad))

    assert store.generation == 0


# -- many ---------------------------------------------------------------------------------------------------------------------


def test_prepared_writes_are_applied_together(graphs: EntityGraphs, store: EmbeddedStore) -> None:
    """A batch of validated writes is one generation; a deletion in it holds only for what was read."""
    graphs.put(CHECKOUT, said())
    batch = [graphs.prepare_delete(CHECKOUT), graphs.prepare("prod/a/pod/x", said("prod/a/pod/x", "Pod"))]

    assert [each.outcome for each in graphs.apply(batch)] == ["replaced", "created"]
    assert store.generation == 2

    graphs.put(CHECKOUT, said())
    stale = graphs.prepare_delete(CHECKOUT)
    graphs.put(CHECKOUT, said(replicas=1))
    with pytest.raises(PreconditionFailed):
        graphs.apply([stale])
