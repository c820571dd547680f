"""Recorded clusters, served again: collections as the API returned them, watch streams as they came."""

from __future__ import annotations

import json
from pathlib import Path

from tests.fake_apiserver.state import ApiState, Json, Resource


def load(state: ApiState, directory: Path) -> None:
    """Fill ``state`` with every ``<plural>.json`` of ``directory``, each a List as ``kubectl get --raw`` prints it."""
    versions = []
    for file in sorted(directory.glob("*.json")):
        listed = json.loads(file.read_text(encoding="utf-8"))
        resource = _resource(state, file.stem, listed)
        for each in listed["items"]:
            state.record("ADDED", resource, each)
        versions.append(int(listed["metadata"]["resourceVersion"]))
    state.advance(min(versions))  # they were listed one after the other, and watched from the first on
    state.log.clear()  # what was there before has no events; nobody can have watched it
    state.compact()


def replay(state: ApiState, directory: Path, *, duplicates: bool = False) -> None:
    """Let the events of every ``<plural>.ndjson`` happen again in the order of their versions; twice each if asked."""
    events: list[tuple[int, str, Resource, Json]] = []
    for file in sorted(directory.glob("*.ndjson")):
        resource = state.named(file.stem)
        for line in file.read_text(encoding="utf-8").splitlines():
            event = json.loads(line)
            if event["type"] != "BOOKMARK":  # the fake makes its own
                events.append(
                    (int(event["object"]["metadata"]["resourceVersion"]), event["type"], resource, event["object"])
                )
    for _, kind, resource, found in sorted(events, key=lambda event: event[0]):
        state.record(kind, resource, found, times=2 if duplicates else 1)


def _resource(state: ApiState, plural: str, listed: Json) -> Resource:
    group, _, version = listed["apiVersion"].rpartition("/")
    path = f"/{'apis' if group else 'api'}/{listed['apiVersion']}/{plural}"
    if path in state.resources:
        return state.resources[path]
    namespaced = any("namespace" in each["metadata"] for each in listed["items"])
    return state.register(
        Resource(group, version, plural, listed["kind"].removesuffix("List"), namespaced=namespaced, custom=True)
    )
