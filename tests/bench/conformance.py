"""Schemathesis at length: every route of a service with the sample cluster, many requests each; prints what is not as the document says."""

from __future__ import annotations

import tempfile

import httpx

from tests.bench.running import phase, sized
from tests.conformance import faults, operations
from tests.service.conftest import SAMPLE, serving, until_ready


def run(examples: int = sized(100, 1), seconds: float = sized(20.0, 0.5)) -> list[tuple[str, str, str, str, str]]:
    """Send up to ``examples`` requests of each kind to each route; rows of the table, one for each fault."""
    with tempfile.TemporaryDirectory() as store, serving("--store", store, "--source", f"dump:{SAMPLE}") as service:
        until_ready(service)
        document = httpx.get(f"{service.url}/openapi.json").json()
        routes = list(operations(document, service.url))
        routes = routes[:: sized(1, len(routes) // 4)]
        found = []
        for each in routes:
            phase(f"{each.method.upper()} {each.path}")
            found += faults(each, examples, seconds)
    told = [(fault, "", "", "", "") for fault in found]
    return [*told, (f"conformance: faults on {len(routes)} routes", str(len(found)), "", "", "0")]
