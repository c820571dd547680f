"""The bundled sample cluster: recorded from a real API server (our own manifests), moved in time so that its history fits.

The recording stands in ``cluster/`` as the API returned it, without managedFields. Its one day is moved so that everything in it started
``days`` ago and still runs; nothing else is changed. A node for the machine that runs the demo is added: its
node-exporter is scraped for real.
"""

from __future__ import annotations

import json
import re
import uuid
from datetime import datetime, timedelta
from importlib.resources import files
from pathlib import Path
from typing import Any

CLUSTER = "sample"
THIS_MACHINE = "this-machine"
_RECORDED = re.compile(r'"2026-11-27T')
_BEGAN = re.compile(r'"startTime": ?"(\d{4}-\d\d-\d\d)T')


def write_sample(directory: Path, *, days: int, now: datetime) -> None:
    """Write the sample's collections into ``directory``, begun ``days`` + 1 ago."""
    began = (now - timedelta(days=days + 1)).date().isoformat()
    directory.mkdir(parents=True, exist_ok=True)
    for each in files("drumlin.api.demo").joinpath("cluster").iterdir():
        text = _RECORDED.sub(f'"{began}T', each.read_text(encoding="utf-8"))
        (directory / each.name).write_text(text, encoding="utf-8")
    (directory / "this-machine.json").write_text(json.dumps(_this_machine(began)), encoding="utf-8")


def scaled_down(ended: datetime) -> list[dict[str, Any]]:
    """Return pods that ``checkout`` had beside those of the recording until ``ended``; nothing of them is in the cluster any more."""
    found = []
    for pod in collection("pods"):
        metadata = pod["metadata"]
        if metadata["name"].startswith("checkout-"):
            stem, _, suffix = metadata["name"].rpartition("-")
            name = f"{stem}-{suffix[::-1]}"
            own = {"name": name, "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, name)), "deletionTimestamp": _written(ended)}
            found.append({"apiVersion": "v1", "kind": "Pod", **pod, "metadata": {**metadata, **own}})
    return found


def write_scaled_down(directory: Path, ended: datetime) -> None:
    """Write, beside what ``write_sample`` wrote, that those pods were deleted, as ``kubectl get -w --output-watch-events`` does."""
    began = min(_BEGAN.findall((directory / "pods.json").read_text(encoding="utf-8")))
    events = "\n".join(json.dumps({"type": "DELETED", "object": each}) for each in scaled_down(ended))
    (directory / "scaled-down.json").write_text(_RECORDED.sub(f'"{began}T', events), encoding="utf-8")


def _written(moment: datetime) -> str:
    return f"{moment:%Y-%m-%dT%H:%M:%SZ}"


def _this_machine(began: str) -> dict[str, Any]:
    return {
        "apiVersion": "v1",
        "kind": "Node",
        "metadata": {
            "name": THIS_MACHINE,
            "uid": str(uuid.uuid5(uuid.NAMESPACE_DNS, THIS_MACHINE)),
            "creationTimestamp": f"{began}T00:00:00Z",
        },
        "status": {"conditions": [{"type": "Ready", "status": "True"}]},
    }


def collection(name: str) -> list[dict[str, Any]]:
    """Return the recorded objects of one collection (``pods``)."""
    items: list[dict[str, Any]] = json.loads(files("drumlin.api.demo").joinpath(f"cluster/{name}.json").read_bytes())[
        "items"
    ]
    return items
