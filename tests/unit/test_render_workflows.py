"""Argo Workflows, Tekton and Knative: further systems by mappings alone, down to the pods that ran for them."""

from __future__ import annotations

import json
from typing import Any

import msgspec
import pytest

from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.protocol import Upserted
from tests.memory_sink import MemorySink
from tests.unit.rendering import CONTRACT, around, following

ROOT = "https://kg.example/id/prod/ci/"
NS = "https://w3id.org/drumlin/ns#"


def written(mapping: str, *documents: dict[str, Any]) -> dict[tuple[str, str], set[str]]:
    """Return what the graphs say of objects of a namespace: (short subject, term) → short values."""
    surroundings = around({**CONTRACT, "mappings": [mapping]})
    kinds = {(kind.api_version, kind.name): kind for kind in kinds_of(surroundings.settings)}
    run = following(MemorySink(), surroundings)
    for document in documents:
        document["metadata"] |= {"namespace": "ci", "uid": document["metadata"]["name"]}
        kind = kinds[document["apiVersion"], document["kind"]]
        run.take(Upserted(kind, msgspec.json.decode(json.dumps(document), type=kind.projection)))
    run.flush(everything=True)
    assert run.summary.rejected == []
    said: dict[tuple[str, str], set[str]] = {}
    for line in run._sink.text().splitlines():
        subject, predicate, value = line[:-2].split(" ", 2)
        key = subject[1:-1].removeprefix(ROOT), predicate[1:-1].removeprefix(NS).rpartition("/")[2]
        said.setdefault(key, set()).add(value.strip("<>").removeprefix(ROOT).removeprefix(NS))
    assert "never read" not in run._sink.text()
    return said


def owner(api_version: str, kind: str, name: str) -> dict[str, Any]:
    """Return the reference to a controller."""
    return {
        "ownerReferences": [{"apiVersion": api_version, "kind": kind, "name": name, "uid": name, "controller": True}]
    }


def test_an_argo_workflow_has_its_plan_and_its_pods() -> None:
    """Steps of the DAG with what they wait for and their phase; the pods are the workflow's by their owner."""
    secret = {"arguments": {"parameters": [{"name": "p", "value": "never read"}]}}
    tasks = [
        {"name": "a", **secret},
        {"name": "b", "dependencies": ["a"], **secret},
        {"name": "c", "depends": "b && a"},
    ]
    said = written(
        "argo",
        {
            "apiVersion": "argoproj.io/v1alpha1",
            "kind": "Workflow",
            "metadata": {"name": "build"},
            "spec": {"templates": [{"name": "main", "dag": {"tasks": tasks}}]},
            "status": {
                "phase": "Running",
                "startedAt": "2026-11-29T09:00:00Z",
                "nodes": {"n-1": {"displayName": "a", "phase": "Succeeded"}, "n-2": {"displayName": "b", "phase": "Error"}},
            },
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "build-a-1", **owner("argoproj.io/v1alpha1", "Workflow", "build")}},
    )  # fmt: skip
    flow = "workflow.argoproj.io/build"

    assert said[flow, "phase"] == {"Running"}
    assert said[flow, "hasPart"] == {f"{flow}/step/{each}" for each in "abc"}
    assert said[f"{flow}/step/b", "dependsOn"] == {f"{flow}/step/a"}
    assert (said[f"{flow}/step/a", "phase"], said[f"{flow}/step/b", "phase"]) == ({"Succeeded"}, {"Failed"})
    assert (f"{flow}/step/c", "dependsOn") not in said
    assert said["pod/build-a-1", "managedBy"] == {flow}


def test_a_tekton_run_leads_to_its_task_runs_and_their_pods() -> None:
    """The order by runAfter, the task run of each step that began, and the chain of owners down to the pod."""
    ended = [{"type": "Succeeded", "status": "False", "reason": "TaskRunTimeout", "message": "never read"}]
    version = "tekton.dev/v1"
    said = written(
        "tekton",
        {
            "apiVersion": version,
            "kind": "PipelineRun",
            "metadata": {"name": "release"},
            "spec": {"params": [{"name": "token", "value": "never read"}]},
            "status": {
                "conditions": ended,
                "pipelineSpec": {"tasks": [{"name": "test"}, {"name": "push", "runAfter": ["test"]}]},
                "childReferences": [{"kind": "TaskRun", "name": "release-test", "pipelineTaskName": "test"}],
            },
        },
        {
            "apiVersion": version,
            "kind": "TaskRun",
            "metadata": {"name": "release-test", **owner(version, "PipelineRun", "release")},
            "status": {"conditions": ended, "startTime": "2026-11-29T09:00:00Z", "completionTime": "2026-11-29T10:00:00Z"},
        },
        {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "release-test-pod", **owner(version, "TaskRun", "release-test")}},
    )  # fmt: skip
    run, task = "pipelinerun.tekton.dev/release", "taskrun.tekton.dev/release-test"

    assert said[f"{run}/step/push", "dependsOn"] == {f"{run}/step/test"}
    assert said[f"{run}/step/test", "task"] == {task}
    assert (f"{run}/step/push", "task") not in said
    assert (said[task, "phase"], said[task, "managedBy"]) == ({"Failed"}, {run})
    assert said[task, "reason"] == {'"TaskRunTimeout"'}
    assert said["pod/release-test-pod", "managedBy"] == {task}


@pytest.mark.parametrize(("status", "phase"), [("True", "Running"), ("False", "Failed"), ("Unknown", "Pending")])
def test_a_knative_service_is_a_function_of_revisions_with_their_deployments(status: str, phase: str) -> None:
    """What gets traffic implements it, events and requests start it; a Deployment without replicas is suspended, and the function is well."""
    version = "serving.knative.dev/v1"
    ready = {"conditions": [{"type": "Ready", "status": status}]}
    said = written(
        "knative",
        {"apiVersion": version, "kind": "Service", "metadata": {"name": "resize"}, "status": {**ready, "latestReadyRevisionName": "resize-2", "traffic": [{"revisionName": "resize-1", "percent": 90}, {"revisionName": "resize-2", "percent": 10}]}},
        {"apiVersion": version, "kind": "Revision", "metadata": {"name": "resize-1", "labels": {"serving.knative.dev/service": "resize"}}, "status": ready},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "resize-1-deployment", **owner(version, "Revision", "resize-1")}, "spec": {"replicas": 0, "template": {}}},
        {"apiVersion": "eventing.knative.dev/v1", "kind": "Trigger", "metadata": {"name": "t"}, "spec": {"broker": "default", "filter": {"attributes": {"type": "upload"}}, "subscriber": {"ref": {"kind": "Service", "name": "resize"}, "uri": "never read"}}},
    )  # fmt: skip
    function = "https://kg.example/id/function/prod/ci/resize"

    assert said[function, "phase"] == {phase}
    assert said[function, "implementedBy"] == {f"revision.serving.knative.dev/resize-{each}" for each in (1, 2)}
    assert said[function, "version"] == {'"resize-2"'}
    assert said[function, "trigger"] == {'"upload"'}
    assert said["revision.serving.knative.dev/resize-1", "managedBy"] == {function}
    assert said["deployment/resize-1-deployment", "managedBy"] == {"revision.serving.knative.dev/resize-1"}


def test_an_openfaas_function_is_what_its_deployment_implements() -> None:
    """The Deployment of its name implements it and belongs to it; a topic starts it; environment and secrets are never read."""
    version = "openfaas.com/v1"
    spec = {
        "name": "figlet",
        "image": "figlet:0.1",
        "environment": {"a": "never read"},
        "secrets": ["never read"],
        "annotations": {"topic": "orders"},
    }
    said = written(
        "openfaas",
        {"apiVersion": version, "kind": "Function", "metadata": {"name": "figlet"}, "spec": spec},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "figlet", **owner(version, "Function", "figlet")}, "spec": {"replicas": 1, "template": {}}},
    )  # fmt: skip
    function = "https://kg.example/id/function/prod/ci/figlet"

    assert said[function, "implementedBy"] == {"deployment/figlet"}
    assert (said[function, "trigger"], said[function, "version"]) == ({'"orders"'}, {'"figlet:0.1"'})
    assert said["deployment/figlet", "managedBy"] == {function}


def test_a_sensor_of_argo_events_is_a_function_that_events_start() -> None:
    """The names of the events that it waits for, and its Deployment by its owner."""
    version = "argoproj.io/v1alpha1"
    said = written(
        "argo-events",
        {"apiVersion": version, "kind": "Sensor", "metadata": {"name": "on-upload"}, "spec": {"dependencies": [{"name": "d", "eventSourceName": "s3", "eventName": "upload"}], "triggers": [{"template": {"name": "t", "http": {"url": "never read"}}}]}, "status": {"conditions": [{"type": "Deployed", "status": "True"}]}},
        {"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "on-upload-sensor-x7", **owner(version, "Sensor", "on-upload")}, "spec": {"template": {}}},
    )  # fmt: skip
    function = "https://kg.example/id/function/prod/ci/on-upload"

    assert (said[function, "trigger"], said[function, "phase"]) == ({'"upload"'}, {"Running"})
    assert said["deployment/on-upload-sensor-x7", "managedBy"] == {function}
