"""``drumlin demo --system kuscia``: two domains that compute together, with what both nodes' metrics were.

The objects and samples in ``kuscia/`` are our own, made from what Kuscia's controllers write. Their times are those of one morning, and
stay.
"""

from __future__ import annotations

import shutil
from contextlib import AbstractContextManager
from importlib.resources import files
from pathlib import Path
from typing import Any

from drumlin.api.bootstrap import now
from drumlin.api.cli.output import emit_table
from drumlin.api.demo import prometheus
from drumlin.exporters.kubectl.dump import DumpSource
from drumlin.exporters.kubernetes.custom_kinds import kinds_of
from drumlin.exporters.pipeline.completeness import Completeness
from drumlin.kg.client import Client
from drumlin.kg.config.settings import Settings

AT = "2026-11-29T09:10:00Z"
"""When the recorded metrics end."""
FAILED = "kuscia/cross-domain/kusciajob.kuscia.secretflow/job-fraud"
_METRICS = ("rtt", "request_rate", "error_rate", "bytes_sent")
Row = tuple[Any, ...]


def settings(url: str | None, port: int) -> Settings:
    """Return the configuration of a master whose Prometheus tells domains apart by the scrape target."""
    server = {
        "name": "prometheus-main",
        "kind": "prometheus",
        "url": url,
        "scrape_interval": "15s",
        "matchers": {"instance": "{domain}-gw.internal:9091"},
    }
    return Settings.model_validate(
        {
            "base": f"http://localhost:{port}",
            "cluster": "kuscia",
            "domain": {"id": "kuscia-system", "type": "Domain", "role": ["Master"]},
            "mappings": ["kuscia"],
            "exporters": ["node-exporter", "kuscia"],
            "datasource": [server] if url else [],
        }
    )


def source(directory: Path, of: Settings) -> DumpSource:
    """Write the objects into a directory, and return them as a source: all pods that there are, so that those of ended tasks are gone."""
    directory.mkdir(parents=True, exist_ok=True)
    for each in files("drumlin.api.demo").joinpath("kuscia").iterdir():
        if each.name.endswith(".json"):
            (directory / each.name).write_bytes(each.read_bytes())
    kinds = kinds_of(of)
    return DumpSource([directory], kinds, clock=now, complete=Completeness.parse(["pods"], kinds))


def telemetry(directory: Path) -> AbstractContextManager[str | None]:
    """Start a real Prometheus with the recorded samples, for as long as the context; see ``prometheus.serving_past``."""

    def write(text: Path) -> None:
        with files("drumlin.api.demo").joinpath("kuscia/metrics.om").open("rb") as samples, text.open("wb") as copy:
            shutil.copyfileobj(samples, copy)

    return prometheus.serving_past(directory, write)


def board(client: Client) -> list[Row]:
    """Print how each domain is; return the rows."""
    rows = [
        (_short(row["domain"]), row["topic"], _short(row.get("peer") or ""), _short(row["state"]), row.get("count"))
        for row in client.query("domain-board")
    ]
    emit_table(("domain", "topic", "peer", "state", "count"), rows)
    return rows


def routes(client: Client) -> dict[tuple[str, str], float]:
    """Print the figures of each route at the end of the recording; return them by route and metric."""
    named = sorted({row["route"] for row in client.query("domain-board") if row.get("route")})
    found = {
        (_short(row["entity"]), row["metric"]): round(row["value"], 6)
        for row in client.values(list(_METRICS), named, at=AT, window="5m")
    }
    emit_table(
        ("route", *_METRICS),
        [(_short(name), *(found.get((_short(name), metric)) for metric in _METRICS)) for name in named],
    )
    return found


def cause(client: Client) -> list[Row]:
    """Print the plan of the job that failed and why it did; return the causes."""
    plan = [
        (_short(row["step"]), _short(row.get("phase") or "never began"), _short(row.get("waitsFor") or ""))
        for row in client.query("job-dag", job=FAILED)
    ]
    emit_table(("step", "state", "waits for"), plan)
    rows = [
        (_short(row["party"]), row.get("role"), row["reason"], row.get("exitCode"), _short(row.get("pod") or ""))
        for row in client.query("why-failed", work=FAILED)
    ]
    emit_table(("party", "role", "reason", "exit code", "pod"), rows)
    return rows


def _short(iri: str) -> str:
    return iri.rpartition("/")[2].rpartition("#")[2]
