"""What a tombstone keeps and what it drops."""

from __future__ import annotations

import json
from datetime import UTC, datetime, timedelta, timezone

import pytest

from drumlin.kg import rdf
from drumlin.kg.errors import DrumlinError
from drumlin.kg.graphs import ingest
from drumlin.kg.graphs.ingest import Statements
from drumlin.kg.model.iris import Iris
from drumlin.kg.rdf import jsonld, jsonld_loader
from drumlin.kg.rdf.tombstones import is_tombstone, tombstone
from drumlin.ontology.vocabulary import CLASSES, ENTITY_CLASSES

JOB = "https://kg.example/id/prod/ml/job/train-demand-2026-11"
AT = datetime(2026, 11, 27, 21, 51, 39, tzinfo=UTC)


def job(**more: object) -> dict[str, object]:
    """Describe the job whose tombstone the contract shows."""
    run = f"{JOB}/run/7b1d2a90-1f7e-4a4e-8a4e-51a1c6f6c001"
    return {
        "id": JOB,
        "type": "Job",
        "name": "train-demand-2026-11",
        "namespace": "ml",
        "cluster": "https://kg.example/id/cluster/prod",
        "application": "train-demand",
        "phase": "Completed",
        "container": [{"id": f"{JOB}/container/train", "type": "Container", "name": "train"}],
        "runs": [
            {
                "id": run,
                "type": "Run",
                "startedAt": "2026-11-27T21:49:40Z",
                "endedAt": "2026-11-27T21:49:46Z",
                "outcome": "Completed",
            }
        ],
        **more,
    }


def test_a_deleted_job_leaves_the_contracts_tombstone(contract: dict[str, bytes]) -> None:
    """The contract's tombstone is exactly what remains of the job it describes."""
    expected = rdf.parse(jsonld_loader.inline(contract["tombstone"]), rdf.JSONLD)[None]

    assert tombstone(jsonld.lines(job()), JOB, AT) == expected


def test_a_tombstone_of_a_tombstone_is_itself() -> None:
    """Deleting what is deleted changes nothing, not even the moment."""
    once = tombstone(jsonld.lines(job()), JOB, AT)

    assert is_tombstone(once, JOB)
    assert tombstone(once, JOB, AT + timedelta(days=1)) is once


@pytest.mark.parametrize("name", ["notes/prod/ml/job/train", "prod/ml/job/train", "domain/a", "forecast/a"])
@pytest.mark.parametrize("foreign", [[], ["https://example.org/Thing"]])
@pytest.mark.parametrize("named", [None, *sorted(CLASSES)])
def test_what_can_be_stored_leaves_what_can_be_stored(name: str, named: str | None, foreign: list[str]) -> None:
    """Whatever classes a graph states, its tombstone is valid; a graph without a class of an entity leaves nothing."""
    iris = Iris("https://kg.example")
    graph = iris.expand(name)
    types = [named, *foreign] if named else foreign
    document = {"id": graph, "name": "x", **({"type": types} if types else {})}
    try:
        content = ingest.accept(Statements(jsonld.lines(document)), graph, iris)
    except DrumlinError:  # cannot be stored
        return
    left = tombstone(frozenset(rdf.lines_in(content.text)), graph, AT)
    assert (left is not None) == (named in ENTITY_CLASSES or named == "Tombstone")
    if left is not None:
        ingest.accept(Statements(left), graph, iris)


def test_the_manager_is_kept_and_the_domain_is_not() -> None:
    """Whose it was can still be asked after the deletion; a tombstone has no domain, as in the contract."""
    manager = "https://kg.example/id/prod/ml/cronjob/train"
    former = job(domain="https://kg.example/id/domain/a", managedBy=manager)
    found = jsonld.compact(tombstone(jsonld.lines(former), JOB, AT), JOB)

    assert found["managedBy"] == manager
    assert "domain" not in found
    assert found["formerType"] == "Job"
    assert "phase" not in found


def test_an_open_run_ends_with_the_deletion() -> None:
    """A run without an end gets the moment of the deletion and the outcome Deleted, and keeps its node."""
    node = "https://kg.example/id/prod/-/node/n1"
    run = {"id": f"{JOB}/run/u", "type": "Run", "startedAt": "2026-11-27T21:49:40Z", "scheduledOn": node}
    found = jsonld.compact(tombstone(jsonld.lines(job(runs=[run])), JOB, AT), JOB)

    assert found["runs"] == [{**run, "endedAt": "2026-11-27T21:51:39Z", "outcome": "Deleted"}]


@pytest.mark.parametrize(
    ("at", "text"),
    [
        (AT, "2026-11-27T21:51:39Z"),
        (AT.replace(microsecond=120_000), "2026-11-27T21:51:39.12Z"),
        (datetime(2026, 11, 27, 22, 51, 39, tzinfo=timezone(timedelta(hours=1))), "2026-11-27T21:51:39Z"),
    ],
)
def test_the_moment_is_written_as_the_engine_keeps_it(at: datetime, text: str) -> None:
    """The lines are canonical: reading them through the engine gives them back unchanged."""
    lines = tombstone(jsonld.lines(job()), JOB, at)

    assert any(f'"{text}"' in line for line in lines)
    assert rdf.parse(rdf.serialize(lines, rdf.NTRIPLES), rdf.NTRIPLES)[None] == lines
    assert json.dumps(jsonld.compact(lines, JOB))
